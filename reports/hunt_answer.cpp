// One sentence for each verdict of a hunt, with the figures that it rests on.
#include "reports/hunt_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/units.h"
#include "reports/format.h"
#include "reports/html.h"

namespace moetune::reports {

std::string change_text(double ratio) {
  return std::abs(ratio) < 1000 ? signed_percent(ratio) : fmt::format("{:+.2g} %", 100 * ratio);
}

std::string share_text(double probability) {
  if (probability > 0.999 && probability < 1) {
    return "&gt; 99.9 %";
  }
  return fmt::format("{:.1f} %", 100 * probability);
}

std::string plain_ratio(std::optional<double> ratio) {
  return ratio && std::abs(*ratio) < 1000
             ? fmt::format("{:.{}f} %", 100 * *ratio, std::abs(*ratio) < 0.01 ? 2 : 1)
             : "–";
}

std::string duration_text(std::optional<double> seconds) {
  constexpr double kMostSeconds = 9e9;
  return seconds && *seconds >= 0 && *seconds < kMostSeconds
             ? base::format_ns(std::llround(*seconds * 1e9))
             : "–";
}

std::string interval_text(const Effect& effect) {
  return effect.low && effect.high && *effect.low < *effect.high
             ? fmt::format("{} to {}", change_text(*effect.low), change_text(*effect.high))
             : "";
}

HuntCommit commit_of(const Hunt& hunt, const Culprit& culprit) {
  const HuntCommit& listed = hunt.commit_at(culprit.position);
  const auto first = [](const std::string& a, const std::string& b) { return a.empty() ? b : a; };
  return {first(culprit.commit, listed.id), first(culprit.subject, listed.subject),
          first(culprit.author, listed.author), first(culprit.author_date, listed.author_date)};
}

namespace {

// "+4.1 % (+3.6 % to +4.6 %)"
std::string effect_text(const Effect& effect) {
  if (!effect.ratio) {
    return "";
  }
  const std::string interval = interval_text(effect);
  return fmt::format("<strong>{}</strong>{}", change_text(*effect.ratio),
                     interval.empty() ? "" : fmt::format(" ({})", interval));
}

std::string commit_html(const HuntCommit& commit, int64_t position) {
  const std::string place =
      position < 0 ? "The change" : fmt::format("Commit at position {}", position);
  std::string html = commit.id.empty()
                         ? place
                         : fmt::format("Commit <code title=\"{}\">{}</code>", escape(commit.id),
                                       escape(short_id(commit.id)));
  if (!commit.subject.empty()) {
    html += fmt::format(" “{}”", escape(commit.subject));
  }
  if (!commit.author.empty()) {
    html += fmt::format(" by {}", escape(commit.author));
  }
  if (!commit.author_date.empty()) {
    html +=
        fmt::format(" of {}", escape(commit.author_date.substr(0, commit.author_date.find('T'))));
  }
  return html;
}

std::string culprit_sentence(const Hunt& hunt, const Culprit& culprit) {
  const std::string unit = hunt.unit();
  if (hunt.result.hunted_metric == kRunFails) {
    const std::string& failure = hunt.result.failure;
    return fmt::format("{} {} <strong>the run {}</strong>{}.",
                       commit_html(commit_of(hunt, culprit), culprit.position),
                       hunt.has_commits() ? "is the first from which" : "is that with which",
                       failure.empty() ? "fails" : "ends as " + escape(failure),
                       culprit.confidence
                           ? fmt::format(", with a confidence of <strong>{}</strong>",
                                         share_text(*culprit.confidence))
                           : "");
  }
  const std::string effect =
      effect_text(culprit.effect.ratio ? culprit.effect : hunt.result.effect);
  std::string html = fmt::format("{} changed <code>{}</code>{}",
                                 commit_html(commit_of(hunt, culprit), culprit.position),
                                 escape(hunt.row.metric), effect.empty() ? "" : " by " + effect);
  if (culprit.before && culprit.after) {
    html += fmt::format(", from {} to {}", escape(value_text(culprit.before, unit)),
                        escape(value_text(culprit.after, unit)));
  }
  if (culprit.confidence) {
    html +=
        fmt::format(", with a confidence of <strong>{}</strong>", share_text(*culprit.confidence));
  }
  html += ".";
  if (!culprit.moved.empty()) {
    const MovedMetric& moved = culprit.moved.front();
    const std::string_view moved_unit = base::unit_of_name(moved.name);
    html += fmt::format(" What moved: <code>{}</code>", escape(moved.name));
    if (moved.before && moved.after) {
      html += fmt::format(", {} to {}", escape(value_text(moved.before, moved_unit)),
                          escape(value_text(moved.after, moved_unit)));
    }
    html +=
        culprit.moved.size() > 1 ? fmt::format(", and {} more.", culprit.moved.size() - 1) : ".";
  }
  return html;
}

std::string no_change_sentence(const Hunt& hunt) {
  const std::string effect = effect_text(hunt.result.effect);
  std::string html = fmt::format("<strong>No change</strong> of <code>{}</code> between the ends",
                                 escape(hunt.row.metric));
  if (hunt.result.min_effect_ratio) {
    html += fmt::format(" that reaches {}", plain_ratio(hunt.result.min_effect_ratio));
  }
  html += effect.empty() ? "." : fmt::format(": measured {}.", effect);
  if (hunt.result.detectable_ratio) {
    html += fmt::format(" A change of {} would have been seen",
                        plain_ratio(hunt.result.detectable_ratio));
    if (hunt.result.detectable_with_more_ratio && hunt.result.more_runs) {
      html += fmt::format(", with {} more runs one of {}", *hunt.result.more_runs,
                          plain_ratio(hunt.result.detectable_with_more_ratio));
    }
    html += ".";
  }
  return html;
}

std::string most_likely(const Hunt& hunt) {
  const auto& posterior = hunt.result.posterior;
  const auto best = std::ranges::max_element(posterior);
  if (best == posterior.end() || *best <= 0) {
    return "";
  }
  return fmt::format(" Most likely so far, with {}: {}.", share_text(*best),
                     escape(commit_label(hunt, best - posterior.begin())));
}

}  // namespace

std::string answer_html(const Hunt& hunt) {
  const std::string& stored = hunt.row.verdict.empty() ? hunt.result.verdict : hunt.row.verdict;
  const auto& culprits = hunt.result.culprits;
  const std::string reason =
      hunt.result.reason.empty() ? "" : fmt::format(" {}", escape(hunt.result.reason));
  std::string html;
  if (stored == "culprit" && !culprits.empty()) {
    html = culprits.size() == 1
               ? culprit_sentence(hunt, culprits.front())
               : fmt::format("<strong>{} {}</strong> changed <code>{}</code>.", culprits.size(),
                             hunt.has_commits() ? "commits" : "changes", escape(hunt.row.metric));
  } else if (stored == "culprit") {
    html = "A culprit was found, but not written down." + most_likely(hunt);
  } else if (stored == "no_change") {
    html = no_change_sentence(hunt);
  } else if (stored == "environment_changed") {
    html = fmt::format(
        "<strong>The environment changed</strong>, not the code: <code>{}</code> moved while the "
        "commits stayed the same.",
        escape(hunt.row.metric));
  } else if (stored == "unresolved") {
    html = fmt::format(
        "<strong>Not resolved</strong>: no commit could be blamed with the confidence "
        "asked for.{}",
        most_likely(hunt));
  } else {
    html = fmt::format("No verdict yet on <code>{}</code>.{}", escape(hunt.row.metric),
                       most_likely(hunt));
  }
  html = fmt::format("<p class=\"headline\">{}{}</p>\n", html, reason);
  if (stored == "culprit" && culprits.size() > 1) {
    html += "<ol class=\"facts\">\n";
    for (const Culprit& culprit : culprits) {
      html += fmt::format("<li>{}</li>\n", culprit_sentence(hunt, culprit));
    }
    if (hunt.result.interaction.ratio) {
      html += fmt::format("<li>Together they add {} to what each does alone.</li>\n",
                          effect_text(hunt.result.interaction));
    }
    html += "</ol>\n";
  }
  return html;
}

}  // namespace moetune::reports
