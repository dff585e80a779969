// Section "story": the walls one after the other as a stepped strip, then every decision by phase.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

constexpr auto kPhases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"contract", "Contract: what is compared is frozen"},
    {"fit", "Fit: the smallest model parallelism that fits the memory"},
    {"scale", "Scale: more ranks, traffic inside the fast domain"},
    {"profile", "Profile: where the time goes"},
    {"retune", "Retune: one remedy, one variable at a time"},
    {"validate", "Validate: the long run"},
});

/// One remedy that was kept at a wall.
struct Remedy {
  std::string what;
  double gain_ratio = 0;
  bool has_gain = false;
};

/// A stay at one wall: from the decision that met it to the one that met the next. The last one may
/// be the long run that confirms the winner; it has no wall.
struct Stay {
  std::string wall;
  std::string seen;  ///< the sentence that named the wall
  std::vector<Remedy> kept;
  int num_rejected = 0;
  std::optional<int64_t> step_before_ns;
  std::optional<int64_t> step_after_ns;
};

std::string change_text(const Rows& rows, size_t row) {
  const std::string knob = rows.text(row, "knob");
  const std::string remedy = rows.text(row, "remedy");
  if (knob.empty()) {
    return remedy;
  }
  const std::string before = rows.text(row, "value_before");
  const std::string change =
      fmt::format("{} {} → {}", knob, before.empty() ? "–" : before, rows.text(row, "value_after"));
  return change;
}

std::vector<Stay> collect_stays(const Rows& rows) {
  std::vector<Stay> stays;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string kind = rows.text(i, "kind");
    const std::string wall = rows.text(i, "wall");
    const std::string phase = rows.text(i, "phase");
    const bool names_wall =
        kind == "wall" || phase == "fit" || phase == "scale" || phase == "retune";
    if (!wall.empty() && names_wall && (stays.empty() || stays.back().wall != wall)) {
      stays.push_back({wall, rows.text(i, "text"), {}, 0, {}, {}});
    }
    if (phase == "validate" && kind != "wall") {
      stays.push_back({"", rows.text(i, "text"), {}, 0, {}, rows.integer(i, "trial_step_ns")});
      continue;
    }
    if (stays.empty()) {
      continue;
    }
    Stay& stay = stays.back();
    if (kind == "wall" && stay.seen.empty()) {
      stay.seen = rows.text(i, "text");
    }
    if (kind == "rejected") {
      ++stay.num_rejected;
    }
    if (kind == "kept") {
      const std::optional<double> gain = rows.real(i, "gain_ratio");
      std::string what = change_text(rows, i);
      stay.kept.push_back({what.empty() ? rows.text(i, "text") : what, gain.value_or(0),
                           gain.has_value() && gain.value() != 0});
      if (!stay.step_before_ns) {
        stay.step_before_ns = rows.integer(i, "baseline_step_ns");
      }
      if (const auto after = rows.integer(i, "trial_step_ns")) {
        stay.step_after_ns = after;
      }
    }
  }
  return stays;
}

std::string render_strip(const std::vector<Stay>& stays) {
  std::string html = "<ol class=\"strip\">\n";
  for (const Stay& stay : stays) {
    const bool is_validation = stay.wall.empty();
    html += fmt::format(
        "<li class=\"stay {}\"><div class=\"stay-head\">{}</div><p>{}</p>",
        is_validation ? "validation" : "at-" + identifier(stay.wall),
        is_validation ? "<span class=\"badge validation\">validated</span>" : wall_badge(stay.wall),
        escape(stay.seen));
    if (is_validation) {
      html += fmt::format("<p class=\"step\"><strong>{}</strong></p></li>\n",
                          ns_text(stay.step_after_ns));
      continue;
    }
    if (!stay.kept.empty()) {
      html += "<ul>";
      for (const Remedy& remedy : stay.kept) {
        html += fmt::format("<li><span class=\"what\">{}</span>{}</li>", escape(remedy.what),
                            remedy.has_gain ? fmt::format(" <strong class=\"{}\">{}</strong>",
                                                          remedy.gain_ratio > 0 ? "gain" : "loss",
                                                          signed_percent(remedy.gain_ratio))
                                            : "");
      }
      html += "</ul>";
    } else {
      html += "<p class=\"note\">Nothing that was tried here gained more than the noise.</p>";
    }
    if (stay.num_rejected > 0) {
      html += fmt::format("<p class=\"note\">{} more tried, not kept</p>", stay.num_rejected);
    }
    if (stay.step_before_ns && stay.step_after_ns && *stay.step_before_ns != *stay.step_after_ns) {
      html += fmt::format("<p class=\"step\">{} → <strong>{}</strong></p>",
                          ns_text(stay.step_before_ns), ns_text(stay.step_after_ns));
    }
    html += "</li>\n";
  }
  return html + "</ol>\n";
}

std::string render_decision(const Rows& rows, size_t i) {
  const std::optional<int64_t> trial = rows.integer(i, "trial_ordinal");
  const std::optional<double> gain = rows.real(i, "gain_ratio");
  const std::optional<double> noise = rows.real(i, "noise_ratio");
  const std::string kind = rows.text(i, "kind");
  const bool is_judged = kind == "kept" || kind == "rejected";
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
      "<td class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
      trial ? trial_link(*trial) : "–", kind_badge(kind), wall_badge(rows.text(i, "wall")),
      escape(rows.text(i, "text")), escape_or_dash(change_text(rows, i)),
      is_judged && gain ? signed_percent(*gain) : "–",
      is_judged && noise && *noise > 0 ? fmt::format("{:.2f} %", 100 * *noise) : "–");
}

std::string render_phase(const Rows& rows, std::string_view phase, std::string_view title) {
  std::string body;
  int count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.text(i, "phase") == phase) {
      body += render_decision(rows, i);
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
  const std::vector<Stay> stays = collect_stays(input.rows);
  if (!stays.empty()) {
    html += render_strip(stays);
  }
  html += fmt::format(
      "<details><summary>All {} decisions, phase by phase</summary>\n<div class=\"scroll\">"
      "<table class=\"decisions\"><thead><tr><th>trial</th><th>kind</th><th>wall</th><th>what was "
      "seen and done</th><th>change</th><th class=\"num\">gain</th><th "
      "class=\"num\">noise</th></tr>"
      "</thead>\n",
      input.rows.size());
  for (const auto& [phase, title] : kPhases) {
    html += render_phase(input.rows, phase, title);
  }
  return html + "</table></div>\n</details>\n";
}

}  // namespace moetune::reports
