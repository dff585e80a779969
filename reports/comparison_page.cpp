// The sections of a comparison: what a step costs, the walls, where the time went, what moved, the
// settings that differ, the runs.
#include "reports/comparison_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
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

/// What a kind of window is called.
struct WindowWords {
  ComparedWindow window;
  std::string_view subject;       ///< of the headline
  std::string_view card;          ///< over the length of a window
  std::string_view bar;           ///< what the bar of a rank shows
  std::string_view kernels;       ///< lead of their section
  std::string_view figures;       ///< the same
  std::string_view figures_head;  ///< of their column
};

constexpr auto kWindowWords = std::to_array<WindowWords>({
    {ComparedWindow::step, "A step", "traced step", "mean over its steps",
     "Time in a step, over all streams, mean over ranks. The largest change first.",
     "Beyond noise: the intervals of the steps' medians lie apart. With fewer than three steps "
     "that is not known.",
     "figure, of a step"},
    {ComparedWindow::launched, "What was launched in a trace", "launched in a trace",
     "all that was launched in its trace",
     "Time in all that was launched in a trace, over all streams, mean over ranks. The largest "
     "change first.",
     "Of traces: of all that was launched in each, mean over ranks, and noise is not known. Of "
     "logs: of a step, and beyond noise where the intervals of the medians lie apart.",
     "figure"},
    {ComparedWindow::whole, "A whole trace", "whole trace", "its whole trace",
     "Time in a whole trace, over all streams, mean over ranks. The largest change first.",
     "Of traces: of each as a whole, mean over ranks, and noise is not known. Of logs: of a step, "
     "and beyond noise where the intervals of the medians lie apart.",
     "figure"},
});

const WindowWords& words_for(ComparedWindow window) {
  return *std::ranges::find(kWindowWords, window, &WindowWords::window);
}

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

/// "before" and "after" of one figure, with its change where there is one.
std::string change_sentence(const ComparedRow& row, std::string_view subject) {
  const std::string before = measured_text(row.before.median, row.unit);
  const std::string after = measured_text(row.after.median, row.unit);
  if (!row.change_ratio || !std::isfinite(*row.change_ratio)) {
    return fmt::format("{} took {} before and takes {} now. ", subject, before, after);
  }
  constexpr double kShownChange = 0.0005;
  const double change = *row.change_ratio;
  const std::string words = std::abs(change) < kShownChange
                                ? std::string("takes as long as before")
                                : fmt::format("takes <strong>{:.1f} % {}</strong> time",
                                              100 * std::abs(change), change < 0 ? "less" : "more");
  return fmt::format("{} {}: {} before, {} after. ", subject, words, before, after);
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
  // What a step costs as it was logged, or else what was traced.
  const ComparedRow* logged = find_row(page, "step_time_s");
  const ComparedRow* step = logged != nullptr ? logged : find_row(page, "window_us");
  if (step != nullptr) {
    html += change_sentence(*step, logged != nullptr ? "A step" : words_for(page.window).subject);
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
    std::string_view figure;
    std::string_view label;
  };
  constexpr size_t kMostCards = 6;
  const auto cards = std::to_array<Card>({{"step_time_s", "step"},
                                          {"tokens_per_s_per_gpu", "tokens/s a GPU"},
                                          {"peak_memory_bytes", "peak memory"},
                                          {"window_us", words_for(page.window).card},
                                          {"exposed_comm_us", "exposed communication"},
                                          {"idle_before_launch_us", "idle, the host was late"},
                                          {"compute_busy_us", "compute"}});
  std::string html;
  size_t count = 0;
  for (const Card& one : cards) {
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

/// Two runs of other sizes may differ by those alone.
std::string differences_line(const ComparisonPage& page) {
  std::string html;
  for (const std::string& difference : page.differences) {
    html += (html.empty() ? "<p class=\"notice\">Hard to compare: " : "; ") + told(difference);
  }
  return html.empty() ? html : html + ".</p>\n";
}

std::string verdict_of_two(const ComparisonPage& page) {
  return headline_html(page) + differences_line(page) + compared_cards(page) +
         fmt::format("<p class=\"reason\">Before: {}. After: {}.</p>\n", told(page.before.name),
                     told(page.after.name));
}

std::optional<double> share_in(const ComparedRun& run, const std::string& label) {
  const auto found = std::ranges::find(run.shares, label, &DiagnosedShare::label);
  return found == run.shares.end() ? std::nullopt : std::optional(found->ratio);
}

/// The change from one share to another: "−21.2 points".
std::string points_of(double change_ratio) {
  const std::string points = fmt::format("{:.1f}", 100 * std::abs(change_ratio));
  const char* sign = points == "0.0" ? "" : change_ratio < 0 ? "−" : "+";
  return fmt::format("{}{} points", sign, points);
}

/// Both shares; their change where they are shares of the same.
std::string share_cells(const std::optional<double>& before, const std::optional<double>& after,
                        bool is_same = true) {
  const auto cell = [](const std::optional<double>& ratio) {
    return ratio ? number_cell(ratio, ratio_text(*ratio)) + "<td class=\"share\">" + meter(*ratio) +
                       "</td>"
                 : number_cell({}, "") + "<td></td>";
  };
  const std::string change = is_same && before && after ? points_of(*after - *before) : "";
  return cell(before) + cell(after) + fmt::format("<td class=\"num\">{}</td>", change);
}

/// The wall as a badge and what is said of it. Most such sentences begin with the wall's name,
/// which the badge says already.
std::string wall_line(const ComparedRun& run) {
  const bool is_named = !run.wall.empty() && (run.summary.starts_with(run.wall + ":") ||
                                              run.summary.starts_with(run.wall + " "));
  return wall_badge(run.wall) +
         (is_named ? told(run.summary.substr(run.wall.size())) : " " + told(run.summary));
}

/// Nothing where there is no wall. Ceilings of two walls are told, but not set against each other.
std::string ceilings_row(const ComparisonPage& page) {
  const auto ceiling = [](const ComparedRun& run) {
    return has_wall(run) ? run.share_ratio : std::nullopt;
  };
  const std::optional<double> before = ceiling(page.before);
  const std::optional<double> after = ceiling(page.after);
  if (!before && !after) return "";
  return fmt::format("<tr><td>ceiling of the wall</td>{}</tr>\n",
                     share_cells(before, after, page.before.wall == page.after.wall));
}

std::string walls_section(const ComparisonPage& page) {
  const std::array runs = {&page.before, &page.after};
  if (!std::ranges::any_of(
          runs, [](const ComparedRun* run) { return has_wall(*run) || !run->shares.empty(); })) {
    return "";
  }
  std::string html;
  for (const ComparedRun* run : runs) {
    html += fmt::format("<p><strong>{}:</strong> {}</p>\n",
                        run == &page.before ? "Before" : "After", wall_line(*run));
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
  return html + ceilings_row(page) + "</tbody></table></div>\n";
}

/// The bars of one rank; null where a run has none of it.
struct BarsOfRank {
  const DiagnosedBar* before = nullptr;
  const DiagnosedBar* after = nullptr;
};

/// By rank, as they first occur. Several traces of a run may not know theirs ("?"): of those the
/// first of both runs are together, and so on.
std::vector<BarsOfRank> bars_by_rank(const ComparisonPage& page) {
  std::vector<BarsOfRank> ranks;
  std::map<std::pair<std::string, size_t>, size_t> places;  // of a rank's first bar, second, ...
  const auto add = [&](const ComparedRun& run, const DiagnosedBar* BarsOfRank::*member) {
    std::map<std::string, size_t> counts;
    for (const DiagnosedBar& bar : run.bars) {
      if (bar.window_ns <= 0) continue;
      const auto [found, is_new] = places.try_emplace({bar.rank, counts[bar.rank]++}, ranks.size());
      if (is_new) ranks.emplace_back();
      ranks[found->second].*member = &bar;
    }
  };
  add(page.before, &BarsOfRank::before);
  add(page.after, &BarsOfRank::after);
  return ranks;
}

/// The bars of a rank stand below each other.
std::string bars_section(const ComparisonPage& page) {
  const std::vector<BarsOfRank> ranks = bars_by_rank(page);
  if (ranks.empty()) return "";
  const size_t num_shown = std::min(ranks.size(), kMostWindows);
  std::vector<BudgetBar> bars;
  const auto add = [&](const DiagnosedBar* window, const char* when) {
    if (window == nullptr) return;
    BudgetBar bar = bar_of(*window);
    bar.label += fmt::format(", {}", when);
    bar.name += fmt::format(", {}", when);
    bar.cell += fmt::format(", {} ({})", when, told(window->device));
    bars.push_back(std::move(bar));
  };
  for (size_t i = 0; i < num_shown; ++i) {
    add(ranks[i].before, "before");
    add(ranks[i].after, "after");
  }
  return budget_figure(
      bars,
      fmt::format("Two bars for each rank that was traced, before and after: {}.{}",
                  words_for(page.window).bar,
                  num_shown < ranks.size()
                      ? fmt::format(" {} of {} ranks are shown.", num_shown, ranks.size())
                      : ""),
      "rank", "length");
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

std::string rows_section(const std::vector<ComparedRow>& rows, bool are_kernels,
                         std::string_view head) {
  if (rows.empty()) return "";
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>{}</th><th "
      "class=\"num\">before</th><th class=\"num\">after</th><th class=\"num\">change</th><th>noise"
      "</th></tr></thead><tbody>\n",
      head);
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
  const WindowWords& words = words_for(page.window);
  add("verdict", "Verdict", "Verdict", "", verdict_of_two(page));
  add("walls", "The walls", "Walls", "What holds each run back.", walls_section(page));
  add("windows", "Where the time of each rank went", "Ranks",
      "Exposed: nothing else ran beside it. Host late: the device was idle until the host launched "
      "the next work.",
      bars_section(page));
  add("settings", "Settings that differ", "Settings", "In the words of the second run's framework.",
      settings_section(page));
  add("kernels", "Kernels that moved most", "Kernels", words.kernels,
      rows_section(page.kernels, true, "kernel"));
  add("figures", "All figures", "Figures", words.figures,
      rows_section(page.figures, false, words.figures_head));
  add("run", "The runs", "Runs", "What their logs and files say.", runs_section(page));
  return render_page(result);
}

}  // namespace moetune::reports
