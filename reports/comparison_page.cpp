// The sections of a comparison: what a step costs, the walls, where the time went, what moved, the
// settings that differ, the runs.
#include "reports/comparison_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/units.h"
#include "reports/diagnosis_parts.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/local_paths.h"
#include "reports/page.h"
#include "reports/sections.h"
#include "reports/step_figures.h"

namespace moetune::reports {
namespace {

/// Of a kernel's name, which may be a page long.
constexpr size_t kMostKernelBytes = 300;
constexpr size_t kMostSettings = 500;

constexpr std::string_view kUnknownCell = "–";

std::string measured_text(double value, std::string_view unit) {
  if (!std::isfinite(value)) return std::string(kUnknownCell);
  if (unit == "us") return base::format_value(1e3 * value, "ns");
  if (unit == "s") return base::format_value(1e9 * value, "ns");
  return base::format_value(value, unit);
}

/// "exposed_comm_us" in words; its unit stands beside the figure.
std::string words_of_name(std::string name) {
  for (const std::string_view end : {"_us", "_bytes", "_s"}) {
    if (name.ends_with(end)) {
      name.resize(name.size() - end.size());
      break;
    }
  }
  std::ranges::replace(name, '_', ' ');
  return name;
}

const ComparedRow* find_row(const ComparisonPage& page, std::string_view name) {
  const auto found = std::ranges::find(page.figures, name, &ComparedRow::name);
  return found == page.figures.end() ? nullptr : &*found;
}

/// What a step costs: as it was logged, or as it was traced.
const ComparedRow* step_of(const ComparisonPage& page) {
  const ComparedRow* logged = find_row(page, "step_time_s");
  return logged != nullptr ? logged : find_row(page, "window_us");
}

std::string change_words(const ComparedRow& row) {
  return row.change_ratio ? signed_percent(*row.change_ratio) : "new";
}

std::string_view noise_words(const ComparedRow& row) {
  if (!row.is_beyond_noise) return "not known";
  return *row.is_beyond_noise ? "beyond noise" : "within noise";
}

bool has_wall(const ComparedRun& run) { return !run.wall.empty() && run.wall != "unknown"; }

std::string wall_words(const ComparedRun& run) {
  return run.sub_cause.empty() ? told(run.wall)
                               : fmt::format("{} ({})", told(run.wall), told(run.sub_cause));
}

std::string headline_html(const ComparisonPage& page) {
  std::string html = "<p class=\"headline\">";
  if (const ComparedRow* step = step_of(page); step != nullptr) {
    const double change = step->change_ratio.value_or(0);
    constexpr double kShownChange = 0.0005;
    html += std::abs(change) < kShownChange
                ? std::string("A step takes as long as before")
                : fmt::format("A step takes <strong>{:.1f} % {}</strong> time",
                              100 * std::abs(change), change < 0 ? "less" : "more");
    html += fmt::format(": {} before, {} after. ", measured_text(step->before.median, step->unit),
                        measured_text(step->after.median, step->unit));
    if (!step->is_beyond_noise) {
      html += "Whether that is more than noise is not known.";
    } else {
      html += *step->is_beyond_noise ? "That is beyond the noise of its steps."
                                     : "Steps of one run differ by as much.";
    }
  } else {
    html += "No step time is known of both.";
  }
  if (has_wall(page.before) && has_wall(page.after)) {
    html += wall_words(page.before) == wall_words(page.after)
                ? fmt::format(" The wall of both is {}.", wall_words(page.after))
                : fmt::format(" The wall was {} and is {}.", wall_words(page.before),
                              wall_words(page.after));
  }
  return html + "</p>\n";
}

std::string compared_cards(const ComparisonPage& page) {
  struct Card {
    const char* figure;
    const char* label;
  };
  constexpr size_t kMostCards = 6;
  constexpr auto kCards = std::to_array<Card>({{"step_time_s", "step"},
                                               {"tokens_per_s_per_gpu", "tokens/s a GPU"},
                                               {"peak_memory_bytes", "peak memory"},
                                               {"window_us", "traced step"},
                                               {"exposed_comm_us", "exposed communication"},
                                               {"idle_before_launch_us", "idle, the host was late"},
                                               {"compute_busy_us", "compute"}});
  std::string html;
  size_t count = 0;
  for (const Card& one : kCards) {
    const ComparedRow* row = find_row(page, one.figure);
    if (row == nullptr || count == kMostCards) continue;
    html += card(one.label, escape(change_words(*row)),
                 fmt::format("{} to {}, {}", escape(measured_text(row->before.median, row->unit)),
                             escape(measured_text(row->after.median, row->unit)),
                             row->is_beyond_noise ? noise_words(*row) : "noise not known"));
    ++count;
  }
  return html.empty() ? html : "<dl class=\"cards\">\n" + html + "</dl>\n";
}

std::string verdict_of_two(const ComparisonPage& page) {
  return headline_html(page) + compared_cards(page) +
         fmt::format("<p class=\"reason\">Before: {}. After: {}.</p>\n", told(page.before.name),
                     told(page.after.name));
}

std::optional<double> share_in(const ComparedRun& run, const std::string& label) {
  const auto found = std::ranges::find(run.shares, label, &DiagnosedShare::label);
  return found == run.shares.end() ? std::nullopt : std::optional(found->ratio);
}

std::string share_cells(const std::optional<double>& before, const std::optional<double>& after) {
  const auto cell = [](const std::optional<double>& ratio) {
    return ratio ? number_cell(ratio, ratio_text(*ratio)) + "<td class=\"share\">" + meter(*ratio) +
                       "</td>"
                 : number_cell({}, "") + "<td></td>";
  };
  const std::string change = before && after
                                 ? fmt::format("{}{:.1f} points", *after < *before ? "−" : "+",
                                               100 * std::abs(*after - *before))
                                 : "";
  return cell(before) + cell(after) + fmt::format("<td class=\"num\">{}</td>", change);
}

std::string walls_section(const ComparisonPage& page) {
  const std::array runs = {&page.before, &page.after};
  if (!std::ranges::any_of(
          runs, [](const ComparedRun* run) { return has_wall(*run) || !run->shares.empty(); })) {
    return "";
  }
  std::string html;
  for (const ComparedRun* run : runs) {
    html +=
        fmt::format("<p><strong>{}:</strong> {} {}</p>\n", run == &page.before ? "Before" : "After",
                    wall_badge(run->wall), told(run->summary));
  }
  if (page.before.shares.empty() && page.after.shares.empty()) return html;
  html +=
      "<div class=\"scroll\"><table class=\"compact\"><caption>What takes the judged time, each "
      "moment booked once</caption><thead><tr><th>cause</th><th class=\"num\">before</th><th></th>"
      "<th class=\"num\">after</th><th></th><th class=\"num\">change</th></tr></thead><tbody>\n";
  std::vector<std::string> labels;
  for (const ComparedRun* run : runs) {
    for (const DiagnosedShare& share : run->shares) {
      if (std::ranges::find(labels, share.label) == labels.end()) labels.push_back(share.label);
    }
  }
  for (const std::string& label : labels) {
    html += fmt::format("<tr><td>{}</td>{}</tr>\n", wall_badge(label),
                        share_cells(share_in(page.before, label), share_in(page.after, label)));
  }
  html += fmt::format("<tr><td>ceiling of the wall</td>{}</tr>\n",
                      share_cells(page.before.share_ratio, page.after.share_ratio));
  return html + "</tbody></table></div>\n";
}

/// The bars of a rank stand below each other.
std::string bars_section(const ComparisonPage& page) {
  std::vector<std::string> ranks;
  for (const ComparedRun* run : {&page.before, &page.after}) {
    for (const DiagnosedBar& bar : run->bars) {
      if (std::ranges::find(ranks, bar.rank) == ranks.end()) ranks.push_back(bar.rank);
    }
    if (ranks.size() > kMostWindows) ranks.resize(kMostWindows);
  }
  std::vector<BudgetBar> bars;
  const auto add = [&](const ComparedRun& run, const char* when, const std::string& rank) {
    for (const DiagnosedBar& window : run.bars) {
      if (window.rank != rank || window.window_ns <= 0 || bars.size() == kMostWindows) continue;
      BudgetBar bar = bar_of(window);
      bar.label += fmt::format(", {}", when);
      bar.name += fmt::format(", {}", when);
      bar.cell += fmt::format(", {} ({})", when, told(window.device));
      bars.push_back(std::move(bar));
    }
  };
  for (const std::string& rank : ranks) {
    add(page.before, "before", rank);
    add(page.after, "after", rank);
  }
  if (bars.empty()) return "";
  return budget_figure(bars,
                       "Two bars for each rank that was traced, before and after: mean over its "
                       "steps.",
                       "rank");
}

std::string value_cells(const ComparedValue& value, const std::string& unit) {
  const bool is_range = value.low < value.high;
  return fmt::format("<td class=\"num\" data-value=\"{:.9g}\">{}{}</td>", value.median,
                     escape(measured_text(value.median, unit)),
                     is_range ? fmt::format(" <span class=\"note\">{} to {}</span>",
                                            escape(measured_text(value.low, unit)),
                                            escape(measured_text(value.high, unit)))
                              : "");
}

std::string rows_section(const std::vector<ComparedRow>& rows, bool are_kernels) {
  if (rows.empty()) return "";
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>{}</th><th "
      "class=\"num\">before</th><th class=\"num\">after</th><th class=\"num\">change</th><th>noise"
      "</th></tr></thead><tbody>\n",
      are_kernels ? "kernel" : "figure, of a step");
  for (const ComparedRow& row : rows) {
    html += fmt::format(
        "<tr><td class=\"kernel\">{}</td>{}{}<td class=\"num\">{}</td><td>{}</td></tr>\n",
        breakable(are_kernels ? shortened(row.name, kMostKernelBytes) : words_of_name(row.name)),
        value_cells(row.before, row.unit), value_cells(row.after, row.unit),
        escape(change_words(row)), noise_words(row));
  }
  return html + "</tbody></table></div>\n";
}

/// Lines to copy, and whether they would do what they show.
struct CopiedLines {
  std::string lines;
  bool is_whole = true;

  /// `line` as somebody else wrote it, behind `sign`; `mark` is markup.
  void add(const char* kind, const char* sign, const std::string& line, const std::string& mark) {
    // A page shows neither control characters, nor what is too long, nor folders.
    is_whole = is_whole && is_plain_line(line) && line.size() <= kMostToldBytes &&
               without_folders(line) == line;
    lines += fmt::format("<span class=\"{}\">{}{}{}\n</span>", kind, sign, told(line), mark);
  }
};

/// Without a button where not all can be copied as it stands.
std::string lines_box(std::string_view id, std::string_view title, const CopiedLines& box,
                      bool has_all) {
  if (box.lines.empty()) return "";
  const std::string button =
      has_all && box.is_whole
          ? fmt::format(
                "<button type=\"button\" class=\"needs-script\" data-copy=\"{}\">"
                "Copy</button>",
                id)
          : "";
  return fmt::format(
      "<div class=\"copy diff\"><div class=\"copy-head\"><span>{}</span>{}</div><pre id=\"{}\" "
      "tabindex=\"0\">{}</pre></div>\n",
      title, button, id, box.lines);
}

/// Says what differs where a page shows both sides alike.
std::string mark_of_alike(const DiffLine& line) {
  if (line.before.empty() || line.after.empty() || told(line.before) != told(line.after)) return "";
  return without_folders(line.before) == without_folders(line.after)
             ? " <span class=\"note\">(another folder)</span>"
             : " <span class=\"note\">(differs in what is not shown)</span>";
}

std::string settings_section(const ComparisonPage& page) {
  if (!page.are_settings_known) {
    return "<p>The command or configuration of a run is not known: put it into its folder, or log "
           "it.</p>\n";
  }
  if (page.settings.empty()) return "<p>None that moetune reads.</p>\n";
  CopiedLines diff;
  CopiedLines settings;
  CopiedLines variables;
  bool has_folders = false;
  for (size_t i = 0; i < std::min(page.settings.size(), kMostSettings); ++i) {
    const DiffLine& line = page.settings[i];
    for (const std::string* text : {&line.before, &line.after}) {
      has_folders = has_folders || without_folders(*text) != *text;
    }
    // Here the signs are part of the text: what is copied is a diff.
    if (!line.before.empty()) diff.add("minus", "- ", line.before, "");
    if (line.after.empty()) continue;
    diff.add("plus", "+ ", line.after, mark_of_alike(line));
    if (line.is_variable) {
      variables.add("add", "export ", line.after, "");
    } else {
      settings.add("add", "", line.after, "");
    }
  }
  const bool has_all = page.settings.size() <= kMostSettings;
  std::string html =
      lines_box("copy-diff", "From the first to the second", diff, has_all) +
      lines_box("copy-settings", "What the second run says instead", settings, has_all) +
      lines_box("copy-variables", "Its variables, in front of the command", variables, has_all);
  if (!has_all) {
    html +=
        fmt::format("<p class=\"note\">and {} more</p>\n", page.settings.size() - kMostSettings);
  }
  if (!has_folders) return html;
  return html +
         "<p class=\"note\">Absolute paths stand here without their folders: put them "
         "in.</p>\n";
}

std::string runs_section(const ComparisonPage& page) {
  std::string html;
  if (!page.before.facts.empty() || !page.after.facts.empty()) {
    html += fmt::format(
        "<div class=\"columns\">\n<div><h3>Before: {}</h3>\n{}</div>\n<div><h3>After: {}</h3>\n{}"
        "</div>\n</div>\n",
        told(page.before.name), fact_list(page.before.facts), told(page.after.name),
        fact_list(page.after.facts));
  }
  return html + note_list(page.notes);
}

}  // namespace

std::string render_comparison(const ComparisonPage& page) {
  Page result;
  result.title = page.title;
  result.subtitle = "two runs side by side, from what they have left; nothing was run";
  result.origin = escape(page.date);
  const auto add = [&](std::string_view id, std::string_view title, std::string_view short_title,
                       std::string_view lead, std::string body) {
    if (!body.empty()) result.sections.push_back({id, title, short_title, lead, std::move(body)});
  };
  add("verdict", "Verdict", "Verdict", "", verdict_of_two(page));
  add("walls", "The walls", "Walls", "What holds each run back.", walls_section(page));
  add("windows", "Where the time of each rank went", "Ranks",
      "Exposed: nothing else ran beside it. Host late: the device was idle until the host launched "
      "the next work.",
      bars_section(page));
  add("settings", "Settings that differ", "Settings", "In the words of the second run's framework.",
      settings_section(page));
  add("kernels", "Kernels that moved most", "Kernels",
      "Time in a step, over all streams, mean over ranks. The largest change first.",
      rows_section(page.kernels, true));
  add("figures", "All figures", "Figures",
      "Beyond noise: the intervals of the steps' medians lie apart. With fewer than three steps "
      "that is not known.",
      rows_section(page.figures, false));
  add("run", "The runs", "Runs", "What their logs and files say.", runs_section(page));
  return render_page(result);
}

}  // namespace moetune::reports
