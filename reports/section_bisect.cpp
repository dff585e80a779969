// Section "bisect": for each hunt of the database the answer as a sentence, how likely each commit
// is, and every measurement.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/units.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/hunt_answer.h"
#include "reports/hunts.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

constexpr size_t kMostRows = 2000;
constexpr size_t kMostListed = 12;
constexpr size_t kShownMessageBytes = 300;
constexpr size_t kShownNameBytes = 80;

std::string notices(const Hunt& hunt) {
  std::string html;
  if (hunt.row.status != store::SearchStatus::done) {
    html += fmt::format(
        "<p class=\"notice\">This hunt is <strong>{}</strong>: what follows is what it had stored "
        "so "
        "far. The same command goes on with it.</p>\n",
        name_of(hunt.row.status));
  }
  if (!hunt.result.is_readable) {
    html += "<p class=\"notice\">What this hunt found cannot be read; its measurements can.</p>\n";
  }
  if (hunt.result.has_drift) {
    html +=
        "<p class=\"notice\">The machine <strong>drifted</strong> while it was measured: the same "
        "commit gave other values later. Look at the measurements in the order they were "
        "made.</p>\n";
  }
  return html;
}

std::string cards(const Hunt& hunt, const std::vector<HuntRun>& runs) {
  const HuntResult& result = hunt.result;
  double seconds = 0;
  for (const HuntRun& run : runs) {
    seconds +=
        std::max(0.0, run.build_seconds.value_or(0)) + std::max(0.0, run.run_seconds.value_or(0));
  }
  static const Culprit kNone;
  const Culprit& culprit = result.culprits.size() == 1 ? result.culprits.front() : kNone;
  static const Effect kNoEffect;
  const Effect& effect = result.hunted_metric == kRunFails ? kNoEffect
                         : culprit.effect.ratio            ? culprit.effect
                                                           : result.effect;
  const std::string interval = interval_text(effect);
  std::string html = "<dl class=\"cards\">\n";
  html += card("Effect", effect.ratio ? change_text(*effect.ratio) : "–",
               interval.empty() ? "of the metric" : interval);
  html += card("Confidence", culprit.confidence ? share_text(*culprit.confidence) : "–",
               result.confidence ? fmt::format("asked for {}", share_text(*result.confidence))
                                 : "in the culprit");
  html += card("Noise", plain_ratio(result.noise_ratio), "of one run");
  html += card("Would have been seen", plain_ratio(result.detectable_ratio),
               result.min_effect_ratio
                   ? fmt::format("asked for {}", plain_ratio(result.min_effect_ratio))
                   : "smallest change");
  html += card("Runs", fmt::format("{}", result.runs.value_or(static_cast<int64_t>(runs.size()))),
               result.builds ? fmt::format("{} builds", *result.builds) : "measurements");
  html +=
      card("Time spent", duration_text(result.seconds ? result.seconds : std::optional(seconds)),
           hunt.has_commits() ? fmt::format("for {} commits", hunt.last_position()) : "");
  return html + "</dl>\n";
}

/// `caption` is HTML. Empty without rows.
std::string moved_table(const std::string& caption, const std::vector<MovedMetric>& metrics,
                        const std::vector<ConfigChange>& changes) {
  if (metrics.empty() && changes.empty()) {
    return "";
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><caption>{}</caption><thead>"
      "<tr><th>phase, operation, memory group or default</th><th class=\"num\">before</th><th "
      "class=\"num\">after</th><th class=\"num\">change</th></tr></thead><tbody>\n",
      caption);
  for (const MovedMetric& moved : metrics) {
    const std::string_view unit = base::unit_of_name(moved.name);
    const bool has_ratio = moved.before && moved.after && *moved.before != 0;
    html += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td></tr>\n",
        breakable(moved.name), escape(value_text(moved.before, unit)),
        escape(value_text(moved.after, unit)),
        has_ratio ? change_text((*moved.after - *moved.before) / std::abs(*moved.before)) : "–");
  }
  for (const ConfigChange& change : changes) {
    html += fmt::format(
        "<tr><td><code>config {}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
        "<td class=\"num\">–</td></tr>\n",
        breakable(change.name), escape_or_dash(change.before), escape_or_dash(change.after));
  }
  return html + "</tbody></table></div>\n";
}

// With each culprit; between the ends what no culprit has.
std::string moved_tables(const Hunt& hunt) {
  std::string html;
  std::set<std::string> told;
  for (const Culprit& culprit : hunt.result.culprits) {
    const HuntCommit commit = commit_of(hunt, culprit);
    const std::string name =
        commit.id.empty() ? shortened(commit.subject, kShownNameBytes) : short_id(commit.id);
    html += moved_table("What moved with " + escape(name), culprit.moved, culprit.config);
    for (const MovedMetric& moved : culprit.moved) {
      told.insert(moved.name);
    }
  }
  std::vector<MovedMetric> others = hunt.result.moved;
  std::erase_if(others, [&](const MovedMetric& moved) { return told.contains(moved.name); });
  return html + moved_table(told.empty() ? "What differs between the ends"
                                         : "What else differs between the ends",
                            others, {});
}

std::string posterior_table(const Hunt& hunt) {
  std::string html =
      "<div class=\"scroll tall\"><table class=\"compact\"><thead><tr><th class=\"num\">position"
      "</th><th>commit</th><th>subject</th><th>author</th><th>date</th><th "
      "class=\"num\">probability</th></tr></thead><tbody>\n";
  for (const Bar& bar : posterior_bars(hunt)) {
    const std::string p = share_text(bar.probability);
    if (bar.last > bar.first) {
      html += fmt::format(
          "<tr><td class=\"num\">{} to {}</td><td colspan=\"4\">{} commits, together</td><td "
          "class=\"num\">{}</td></tr>\n",
          bar.first, bar.last, bar.last - bar.first + 1, p);
      continue;
    }
    const HuntCommit& commit = hunt.commit_at(bar.first);
    html += fmt::format(
        "<tr><td class=\"num\">{}</td><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td "
        "class=\"num\">{}</td></tr>\n",
        bar.first, escape_or_dash(short_id(commit.id)), escape_or_dash(commit.subject),
        escape_or_dash(commit.author), escape_or_dash(commit.author_date), p);
  }
  if (hunt.result.no_change) {
    html += fmt::format(
        "<tr><td class=\"num\">–</td><td colspan=\"4\">no change at all</td><td "
        "class=\"num\">{}</td></tr>\n",
        share_text(*hunt.result.no_change));
  }
  return html + "</tbody></table></div>\n";
}

std::string runs_table(const Hunt& hunt, const std::vector<HuntRun>& runs) {
  std::string html =
      "<div class=\"scroll tall\"><table class=\"compact\"><thead><tr><th class=\"num\">#</th><th "
      "class=\"num\">position</th><th>measured</th><th>for</th><th>status</th><th "
      "class=\"num\">value</th><th class=\"num\">build</th><th class=\"num\">run</th><th>started"
      "</th><th>what it said</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < runs.size() && i < kMostRows; ++i) {
    const HuntRun& run = runs[i];
    html += fmt::format(
        "<tr><td class=\"num\">{}</td><td class=\"num\">{}</td><td><code>{}</code></td><td>{}</td>"
        "<td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td><td>{}"
        "</td><td class=\"why\">{}</td></tr>\n",
        run.ordinal, run.position,
        escape_or_dash(hunt.has_commits() ? short_id(hunt.commit_at(run.position).id) : run.key),
        escape_or_dash(run.purpose), status_badge(run.status),
        escape(value_text(run.value, hunt.unit())),
        run.build_seconds.value_or(0) > 0 ? duration_text(run.build_seconds) : "–",
        duration_text(run.run_seconds), escape(shortened(run.started_at, 24)),
        escape_or_dash(shortened(run.message, kShownMessageBytes)));
  }
  html += "</tbody></table></div>\n";
  if (runs.size() > kMostRows) {
    html += fmt::format("<p class=\"note\">{} more measurements are in the database.</p>\n",
                        runs.size() - kMostRows);
  }
  return html;
}

// Which commits gave no value, by the reason.
std::string skips(const Hunt& hunt, const std::vector<HuntRun>& runs) {
  std::map<std::string, std::set<int64_t>> failed;
  for (const HuntRun& run : runs) {
    if (run.status != "ok") {
      failed[run.status].insert(run.position);
    }
  }
  std::string html;
  for (const auto& [status, positions] : failed) {
    std::string names;
    size_t num_named = 0;
    for (const int64_t position : positions) {
      if (num_named == kMostListed) {
        names += fmt::format(" and {} more", positions.size() - num_named);
        break;
      }
      if (!hunt.has_commits()) {
        break;  // options have no places
      }
      const std::string id = short_id(hunt.commit_at(position).id);
      names += fmt::format("{}<code>{}</code>", num_named == 0 ? "" : ", ",
                           id.empty() ? fmt::format("position {}", position) : escape(id));
      ++num_named;
    }
    html += fmt::format("<li>Without a value: {}{}{}.</li>\n", status_badge(status),
                        names.empty() ? "" : " at ", names);
  }
  return html;
}

std::string suspects(const Hunt& hunt) {
  const auto& positions = hunt.result.suspects;
  if (positions.empty()) {
    return "";
  }
  std::string html = fmt::format("<li>Still suspected: {} commit{}:", positions.size(),
                                 positions.size() == 1 ? "" : "s");
  for (size_t i = 0; i < positions.size() && i < kMostListed; ++i) {
    html += fmt::format("{} {}", i == 0 ? "" : ",", escape(commit_label(hunt, positions[i])));
  }
  return html + (positions.size() > kMostListed ? ", …</li>\n" : "</li>\n");
}

std::string notes(const Hunt& hunt, const std::vector<HuntRun>& runs) {
  const bool is_found = hunt.row.verdict == "culprit";
  const std::string note =
      hunt.result.note.empty() ? "" : fmt::format("<li>{}</li>\n", escape(hunt.result.note));
  std::string config;
  for (const ConfigChange& change : hunt.result.config) {
    config += fmt::format(
        "<li>The ends fill in <code>{}</code> differently: <code>{}</code> and "
        "<code>{}</code></li>\n",
        escape(change.name), escape_or_dash(change.before), escape_or_dash(change.after));
  }
  const std::string html = note + config + (is_found ? "" : suspects(hunt)) + skips(hunt, runs);
  return html.empty() ? "" : fmt::format("<h4>Notes</h4>\n<ul class=\"facts\">\n{}</ul>\n", html);
}

std::string provenance(const Hunt& hunt) {
  std::string html = "<details><summary>Where this comes from</summary>\n<dl class=\"facts\">\n";
  const store::BisectRow& row = hunt.row;
  for (const auto& [name, value] :
       {std::pair{"repository", &row.repository}, std::pair{"good end", &row.good},
        std::pair{"bad end", &row.bad}, std::pair{"metric", &row.metric},
        std::pair{"command", &row.command_line}, std::pair{"moetune", &row.tool_version},
        std::pair{"its commit", &row.tool_commit}, std::pair{"hunt", &row.config_hash},
        std::pair{"started", &row.started_at}, std::pair{"ended", &row.ended_at}}) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escape_or_dash(shortened(*value, 4000)));
  }
  return html + "</dl>\n</details>\n";
}

std::string charts(const Hunt& hunt, const std::vector<HuntRun>& runs, size_t n) {
  std::string html;
  const auto title = [](const std::string& id, std::string_view text) {
    return fmt::format("<h4 id=\"title-{}\">{}</h4>\n", id, text);
  };
  if (!hunt.result.posterior.empty()) {
    const std::string id = fmt::format("bisect-posterior-{}", n);
    html += title(id, "How likely it was each commit");
    html += figure(id,
                   "The probability that the change came with a commit, oldest first. Commits "
                   "without any are drawn together in one line.",
                   "", posterior_table(hunt));
  }
  if (!runs.empty()) {
    const std::string id = fmt::format("bisect-runs-{}", n);
    html += title(id, "All measurements");
    html += figure(
        id,
        fmt::format("{} runs of {}{} Crosses: runs without a value.", runs.size(), hunt.row.metric,
                    hunt.has_commits()
                        ? fmt::format(" by position: 0 is the good end, {} the bad one. Lines: the "
                                      "levels before and after.",
                                      hunt.last_position())
                        : " in the order they were made."),
        !hunt.has_commits()
            ? ""
            : fmt::format("<div class=\"choice\" role=\"group\" aria-label=\"Order\"><button "
                          "type=\"button\" data-bisect-{0}=\"commit\" aria-pressed=\"true\">By "
                          "commit</button><button type=\"button\" data-bisect-{0}=\"time\" "
                          "aria-pressed=\"false\">In the order they were made</button></div>",
                          n),
        runs_table(hunt, runs));
  }
  return html;
}

std::string hunt_html(const Hunt& hunt, const std::vector<HuntRun>& runs, size_t n) {
  std::string html = fmt::format(
      "<article class=\"hunt\" id=\"hunt-{}\" aria-labelledby=\"title-hunt-{}\">\n<h3 "
      "id=\"title-hunt-{}\"><code>{}</code> from <code>{}</code> to <code>{}</code></h3>\n",
      n, n, n, escape(shortened(hunt.row.metric, 80)), escape(short_id(hunt.row.good)),
      escape(short_id(hunt.row.bad)));
  html += notices(hunt) + answer_html(hunt) + cards(hunt, runs);
  const std::string& command =
      hunt.result.reproduce.empty() ? hunt.row.command_line : hunt.result.reproduce;
  html += "<div class=\"columns\">\n<div>\n";
  if (!command.empty()) {
    html +=
        command_box(fmt::format("copy-bisect-{}", n), "See it again", shortened(command, 16 << 10));
  }
  html += "</div>\n<div>\n" + moved_tables(hunt) + "</div>\n</div>\n";
  return html + charts(hunt, runs, n) + notes(hunt, runs) + provenance(hunt) + "</article>\n";
}

}  // namespace

std::string render_bisect(const SectionInput& input) {
  const std::vector<Hunt>& hunts = input.context.hunts;
  if (hunts.empty()) {
    return "";
  }
  std::string html;
  json data = json::array();
  for (size_t i = 0; i < hunts.size(); ++i) {
    const std::vector<HuntRun> runs = runs_of(input.rows, hunts[i].row.id);
    html += hunt_html(hunts[i], runs, i + 1);
    data.push_back(hunt_chart(hunts[i], runs, i + 1));
  }
  const int64_t num_more = input.context.num_hunts - static_cast<int64_t>(hunts.size());
  if (num_more > 0) {
    html += fmt::format("<p class=\"note\">{} older hunts are in the database.</p>\n", num_more);
  }
  return html + json_element("data-bisect", data);
}

}  // namespace moetune::reports
