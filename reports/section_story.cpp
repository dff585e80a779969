// Section "story": the walls one after the other as a stepped strip, then every decision by phase.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/search_words.h"
#include "reports/decision_changes.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using base::DecisionKind;
using base::Phase;

constexpr auto kPhaseTitles = std::to_array<std::pair<Phase, std::string_view>>({
    {Phase::contract, "Contract: what is compared is frozen"},
    {Phase::fit, "Fit: the smallest model parallelism that fits the memory"},
    {Phase::scale, "Scale: more ranks, traffic inside the fast domain"},
    {Phase::profile, "Profile: where the time goes"},
    {Phase::retune, "Retune: one remedy, one variable at a time"},
    {Phase::validate, "Validate: the long run"},
});

/// What a long search decided is more than anybody reads: so much of it stands on the page.
constexpr size_t kMostStays = 24;
constexpr size_t kMostInStay = 12;
constexpr size_t kMostDecisions = 300;

/// One remedy that was kept.
struct Remedy {
  std::string what;
  std::string wall;  ///< whose remedy it is
  std::optional<double> gain_ratio;
};

enum class StayKind : uint8_t { wall, layout, validated, refused };

/// One cell of the strip: a stay at one wall, from the decision that met it to the one that met the
/// next; the search for a layout; or the long run at the end, whatever it said.
struct Stay {
  StayKind kind = StayKind::wall;
  std::string wall;
  std::vector<std::string> seen;  ///< sentences
  std::vector<Remedy> kept;
  int num_rejected = 0;
  int num_undecided = 0;
  std::optional<int64_t> step_before_ns;
  std::optional<int64_t> step_after_ns;
};

DecisionKind kind_of(const Rows& rows, size_t row) {
  return base::decision_kind_of(rows.text(row, "kind"));
}

// As the store has read it: with its evidence, of which a query would fail where it is no JSON.
// Null where it has none of that ordinal.
const store::DecisionRow* decision_of(const Context& context, const Rows& rows, size_t row) {
  const int64_t ordinal = rows.integer(row, "ordinal").value_or(0);
  const auto found =
      std::ranges::lower_bound(context.decisions, ordinal, {}, &store::DecisionRow::ordinal);
  const bool is_known = found != context.decisions.end() && found->ordinal == ordinal;
  return is_known ? &*found : nullptr;
}

// Where a decision belongs: it opens a cell, or goes on with the last one.
Stay& stay_for(std::vector<Stay>& stays, const Rows& rows, size_t i) {
  const DecisionKind kind = kind_of(rows, i);
  const std::string wall = rows.text(i, "wall");
  const std::string phase = rows.text(i, "phase");
  const auto open = [&](StayKind stay_kind, const std::string& of_wall) -> Stay& {
    stays.push_back({.kind = stay_kind, .wall = of_wall});
    return stays.back();
  };
  if (phase == name_of(Phase::validate)) {
    const StayKind wanted =
        kind == DecisionKind::rejected ? StayKind::refused : StayKind::validated;
    const bool goes_on = !stays.empty() && stays.back().kind == wanted;
    return goes_on ? stays.back() : open(wanted, "");
  }
  if (phase == name_of(Phase::scale) && wall.empty()) {
    const bool goes_on = !stays.empty() && stays.back().kind == StayKind::layout;
    return goes_on ? stays.back() : open(StayKind::layout, "");
  }
  // A remedy of another wall is tried on the way; only the profile says that the wall has changed.
  const bool names_wall =
      !wall.empty() && (kind == DecisionKind::wall || phase != name_of(Phase::retune));
  const bool is_other =
      stays.empty() || stays.back().kind != StayKind::wall || stays.back().wall != wall;
  return (names_wall && is_other) || stays.empty() ? open(StayKind::wall, wall) : stays.back();
}

void add_kept(Stay& stay, const Context& context, const Rows& rows, size_t i) {
  const store::DecisionRow* decision = decision_of(context, rows, i);
  const std::string what = decision == nullptr ? "" : short_change_text(*decision);
  std::optional<double> gain = rows.real(i, "gain_ratio");
  const auto before = rows.integer(i, "baseline_step_ns");
  if (gain == 0.0 || !before) {
    gain.reset();  // nothing to compare with: the first that fitted
  }
  stay.kept.push_back(
      {what.empty() || !gain ? rows.text(i, "text") : what, rows.text(i, "wall"), gain});
  if (!stay.step_before_ns && !stay.step_after_ns) {
    stay.step_before_ns = before;
  }
  if (const auto after = rows.integer(i, "trial_step_ns")) {
    stay.step_after_ns = after;
  }
}

std::vector<Stay> collect_stays(const Context& context, const Rows& rows) {
  std::vector<Stay> stays;
  for (size_t i = 0; i < rows.size(); ++i) {
    const DecisionKind kind = kind_of(rows, i);
    const std::string phase = rows.text(i, "phase");
    const bool is_judged = is_verdict(kind);
    if (phase == name_of(Phase::contract) || kind == DecisionKind::tried ||
        kind == DecisionKind::pruned) {
      continue;
    }
    if (kind == DecisionKind::note && phase != name_of(Phase::validate) &&
        phase != name_of(Phase::scale)) {
      continue;
    }
    Stay& stay = stay_for(stays, rows, i);
    if (phase == name_of(Phase::validate)) {
      stay.seen.push_back(rows.text(i, "text"));
      if (is_judged) {
        stay.step_after_ns = rows.integer(i, "trial_step_ns");
      }
    } else if (kind == DecisionKind::kept) {
      add_kept(stay, context, rows, i);
    } else if (kind == DecisionKind::rejected) {
      ++stay.num_rejected;
    } else if (kind == DecisionKind::undecided) {
      ++stay.num_undecided;
    } else if (stay.seen.empty()) {
      stay.seen.push_back(rows.text(i, "text"));
    }
  }
  return stays;
}

std::string head_of(const Stay& stay) {
  switch (stay.kind) {
    case StayKind::layout:
      return "<span class=\"badge cell-head\">layout</span>";
    case StayKind::validated:
      return "<span class=\"badge cell-head validated\">validated</span>";
    case StayKind::refused:
      return "<span class=\"badge cell-head refused\">not confirmed</span>";
    case StayKind::wall:
      break;
  }
  return wall_badge(stay.wall);
}

std::string class_of(const Stay& stay) {
  switch (stay.kind) {
    case StayKind::layout:
      return "at-layout";
    case StayKind::validated:
      return "validation";
    case StayKind::refused:
      return "refusal";
    case StayKind::wall:
      break;
  }
  return "at-" + identifier(stay.wall);
}

std::string remedies_of(const Stay& stay) {
  std::string html;
  if (!stay.kept.empty()) {
    html += "<ul>";
    // The last ones lead to the step time at the cell's foot.
    const size_t first = stay.kept.size() <= kMostInStay ? 0 : stay.kept.size() - kMostInStay;
    if (first > 0) html += fmt::format("<li>{} more before</li>", first);
    for (const Remedy& remedy : std::span(stay.kept).subspan(first)) {
      const bool is_other =
          stay.kind == StayKind::wall && !remedy.wall.empty() && remedy.wall != stay.wall;
      html += fmt::format("<li>{}<span class=\"what\">{}</span>",
                          is_other ? wall_badge(remedy.wall) + " " : "", breakable(remedy.what));
      if (remedy.gain_ratio) {
        html += fmt::format(" <strong class=\"{}\">{}</strong>",
                            *remedy.gain_ratio > 0 ? "gain" : "loss",
                            signed_percent(*remedy.gain_ratio));
      }
      html += "</li>";
    }
    html += "</ul>";
  } else if (stay.num_rejected + stay.num_undecided > 0) {
    html += "<p class=\"note\">Nothing that was tried here gained more than the noise.</p>";
  }
  if (stay.num_undecided > 0) {
    html +=
        fmt::format("<p class=\"note\">{} undecided: the noise hides whether it gains enough</p>",
                    stay.num_undecided);
  }
  if (stay.num_rejected > 0) {
    html += fmt::format("<p class=\"note\">{} tried and not kept</p>", stay.num_rejected);
  }
  return html;
}

std::string render_strip(const std::vector<Stay>& stays) {
  std::string html = "<ol class=\"strip\">\n";
  // Where it began, and how it went on to the end.
  const size_t num_left_out = stays.size() <= kMostStays ? 0 : stays.size() - kMostStays;
  for (size_t i = 0; i < stays.size(); ++i) {
    if (i > 0 && i <= num_left_out) continue;
    const Stay& stay = stays[i];
    if (num_left_out > 0 && i == num_left_out + 1) {
      html += fmt::format(
          "<li class=\"stay\"><p class=\"note\">{} cells between are left out.</p></li>\n",
          num_left_out);
    }
    html += fmt::format("<li class=\"stay {}\"><div class=\"stay-head\">{}</div>", class_of(stay),
                        head_of(stay));
    for (const std::string& sentence :
         std::span(stay.seen).first(std::min(stay.seen.size(), kMostInStay))) {
      html += fmt::format("<p class=\"seen\">{}</p>", breakable(sentence));
    }
    html += remedies_of(stay);
    if (stay.step_after_ns) {
      html += fmt::format("<p class=\"step\">{}<strong>{}</strong> a step</p>",
                          stay.step_before_ns ? ns_text(stay.step_before_ns) + " → " : "",
                          ns_text(stay.step_after_ns));
    }
    html += "</li>\n";
  }
  return html + "</ol>\n";
}

std::string render_decision(const Context& context, const Rows& rows, size_t i) {
  const std::optional<int64_t> trial = rows.integer(i, "trial_ordinal");
  const std::optional<double> gain = rows.real(i, "gain_ratio");
  const std::optional<double> noise = rows.real(i, "noise_ratio");
  const DecisionKind kind = kind_of(rows, i);
  const bool is_judged = is_verdict(kind);
  const store::DecisionRow* decision = decision_of(context, rows, i);
  const std::string change = decision == nullptr ? "" : change_text(*decision);
  const std::optional<double> low = rows.real(i, "gain_low_ratio");
  const std::optional<double> high = rows.real(i, "gain_high_ratio");
  const std::string interval = low && high
                                   ? fmt::format(" <span class=\"note\">{} to {}</span>",
                                                 signed_percent(*low), signed_percent(*high))
                                   : "";
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
      "<td class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
      trial ? trial_link(*trial) : "–", kind_badge(name_of(kind)), wall_badge(rows.text(i, "wall")),
      escape(rows.text(i, "text")), escape_or_dash(change),
      is_judged && gain ? signed_percent(*gain) + interval : "–",
      is_judged && noise && *noise > 0 ? fmt::format("{:.2f} %", 100 * *noise) : "–");
}

// Rows of the table: all of them, or, of a long search, what was kept and what was seen, and of the
// rest the latest.
std::vector<size_t> shown_decisions(const Rows& rows) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() <= kMostDecisions) return order;
  const size_t column = rows.column("kind");
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto key = [&](size_t i) {
      const DecisionKind kind = base::decision_kind_of(rows.text(i, column));
      return std::pair(kind != DecisionKind::kept && kind != DecisionKind::wall, rows.size() - i);
    };
    return key(a) < key(b);
  });
  order.resize(kMostDecisions);
  std::ranges::sort(order);
  return order;
}

std::string render_phase(const SectionInput& input, const std::vector<size_t>& shown, Phase phase,
                         std::string_view title) {
  const Rows& rows = input.rows;
  std::string body;
  int count = 0;
  const size_t column = rows.column("phase");
  for (const size_t i : shown) {
    if (rows.text(i, column) == name_of(phase)) {
      body += render_decision(input.context, rows, i);
      ++count;
    }
  }
  if (count == 0) {
    return "";
  }
  return fmt::format(
      "<tbody class=\"group\"><tr><th colspan=\"7\" scope=\"rowgroup\">{}</th></tr>\n{}</tbody>\n",
      title, body);
}

}  // namespace

std::string render_story(const SectionInput& input) {
  if (input.rows.empty()) {
    return "<p>No decision has been stored.</p>\n";
  }
  std::string html;
  const std::vector<Stay> stays = collect_stays(input.context, input.rows);
  if (!stays.empty()) {
    html += render_strip(stays);
  }
  const std::vector<size_t> shown = shown_decisions(input.rows);
  html += fmt::format(
      "<details><summary>{}, phase by phase</summary>\n<div class=\"scroll\">"
      "<table class=\"decisions\"><thead><tr><th>trial</th><th>kind</th><th>wall</th><th>what was "
      "seen and done</th><th>change</th><th class=\"num\">gain</th><th "
      "class=\"num\">noise</th></tr>"
      "</thead>\n",
      shown.size() == input.rows.size()
          ? fmt::format("All {} decisions", shown.size())
          : fmt::format("{} of {} decisions: what was seen and kept, and the latest", shown.size(),
                        input.rows.size()));
  for (const auto& [phase, title] : kPhaseTitles) {
    html += render_phase(input, shown, phase, title);
  }
  return html + "</table></div>\n</details>\n";
}

}  // namespace moetune::reports
