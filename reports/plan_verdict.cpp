// A plan in words and tables: the best, the others, what is missing, what would help, and what all
// of that rests on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "kernels/base/units.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/plan_sections.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

std::string rounded_ns(double ns) { return ns_text(std::llround(ns)); }

std::string interval_note(const PlanFigure& figure, std::string (*text)(double)) {
  return fmt::format("{} to {}", text(figure.low), text(figure.high));
}

/// Behind a gain or a speed.
std::string speed_note(const std::optional<PlanSpeed>& speed) {
  if (!speed) return "";
  const PlanFigure& tokens = speed->tokens_per_s;
  return fmt::format(" <span class=\"note\">{} to {} tokens/s, {}</span>", speed_number(tokens.low),
                     speed_number(tokens.high), escape(speed->grade));
}

/// A gain or a speed with what it is predicted to be between.
std::string speed_cell(double value, std::string_view text, const std::optional<PlanSpeed>& speed) {
  return fmt::format("<td class=\"num\" data-value=\"{:.9g}\">{}{}</td>", value, escape(text),
                     speed_note(speed));
}

/// `has_fit`: without the change it fits, so that fitting with it is nothing to tell.
std::string fit_note(const PlanChange& change, bool has_fit) {
  if (change.verdict.empty()) return "";
  if (change.verdict == "fits") return has_fit ? "" : "fits alone";
  std::string note = change.verdict == "tight" ? "tight alone" : "does not fit alone";
  if (change.missing_bytes.value_or(0) > 0) {
    note += fmt::format(": {} missing", rounded_bytes(*change.missing_bytes));
  }
  return note;
}

std::string flags_note(const std::vector<std::string>& flags) {
  if (flags.empty()) return "";
  return fmt::format(" <span class=\"note\">{}</span>",
                     breakable(fmt::format("{}", fmt::join(flags, " "))));
}

std::string change_rows(const std::vector<PlanChange>& changes, bool has_fit) {
  std::string html;
  for (const PlanChange& change : changes) {
    const PlanDifference& difference = change.difference;
    html +=
        fmt::format("<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td>", escape(difference.knob),
                    flags_note(change.flags), breakable(difference.from), breakable(difference.to));
    if (change.gain_ratio) {
      html += speed_cell(*change.gain_ratio, signed_percent(*change.gain_ratio), change.speed);
      html += number_cell(change.more_bytes,
                          change.more_bytes ? signed_bytes(*change.more_bytes) : "–");
      html += fmt::format("<td>{}</td>", fit_note(change, has_fit));
    } else if (change.broken_rule.empty()) {
      html += "<td class=\"num\">–</td>";
      html += number_cell(change.more_bytes,
                          change.more_bytes ? signed_bytes(*change.more_bytes) : "–");
      const std::string fit = fit_note(change, has_fit);
      html += fmt::format("<td>speed not priced{}{}</td>", fit.empty() ? "" : ", ", fit);
    } else {
      html +=
          fmt::format("<td class=\"num\">–</td><td class=\"num\">–</td><td>not alone: {}{}</td>",
                      escape(change.broken_rule),
                      change.rule_text.empty() ? "" : ": " + escape(change.rule_text));
    }
    html += "</tr>\n";
  }
  return html;
}

std::string gain_cell(const PlanPathStep& step) {
  if (!step.gain_ratio) {
    return fmt::format("<td class=\"num\">not priced{}</td>", speed_note(step.speed));
  }
  return speed_cell(*step.gain_ratio, signed_percent(*step.gain_ratio), step.speed);
}

std::string path_table(const std::vector<PlanPathStep>& path) {
  if (path.empty()) return "";
  return "<h3>Step by step</h3>\n<p class=\"lead\">Each step with all those before it. The first "
         "are what to change next; their gains multiply to that of the plan.</p>\n" +
         step_table(path);
}

/// The knobs of a plan as what they change of the first.
std::string differences_text(const PlanRow& row) {
  std::vector<std::string> texts;
  for (const PlanDifference& difference : row.to_first) {
    texts.push_back(
        fmt::format("<span>{} {}</span>", escape(difference.knob), breakable(difference.to)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string points_text(const PlanPage& page) {
  return fmt::format("{} configurations were looked at in {:.1f} s, {} are legal, {} fit.",
                     base::format_count(static_cast<double>(page.num_points)), page.search_seconds,
                     base::format_count(static_cast<double>(page.num_legal)),
                     base::format_count(static_cast<double>(page.num_fit)));
}

}  // namespace

std::string figure_cell(const PlanFigure& figure, std::string (*text)(double)) {
  return fmt::format(
      "<td class=\"num\" data-value=\"{:.9g}\">{} <span class=\"note\">{}</span></td>",
      figure.value, text(figure.value), interval_note(figure, text));
}

std::string change_table(const std::vector<PlanChange>& changes, std::string_view what,
                         bool has_fit) {
  return fmt::format(
             "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>{}</th><th>from</th>"
             "<th>to</th><th class=\"num\">throughput</th><th class=\"num\">memory</th><th></th>"
             "</tr></thead><tbody>\n",
             what) +
         change_rows(changes, has_fit) + "</tbody></table></div>\n";
}

std::string step_table(const std::vector<PlanPathStep>& path) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th class=\"num\">step</th><th>"
      "change</th><th class=\"num\">throughput</th><th class=\"num\">so far</th><th "
      "class=\"num\">peak</th><th></th></tr></thead><tbody>\n";
  for (size_t i = 0; i < path.size(); ++i) {
    const PlanPathStep& step = path[i];
    html +=
        fmt::format("<tr><td class=\"num\">{}</td><td>{}</td>", i + 1, breakable(step.changes)) +
        gain_cell(step) +
        number_cell(step.cumulative_ratio, fmt::format("{:.2f} ×", step.cumulative_ratio)) +
        number_cell(step.peak_bytes, rounded_bytes(step.peak_bytes));
    html += fmt::format("<td>{}{}</td></tr>\n", escape(step.verdict),
                        step.missing_bytes > 0
                            ? fmt::format(": {} missing", rounded_bytes(step.missing_bytes))
                            : std::string());
  }
  return html + "</tbody></table></div>\n";
}

std::string rounded_bytes(double bytes) { return bytes_text(std::llround(bytes)); }

std::string signed_bytes(double bytes) {
  return (bytes < 0 ? "−" : "+") + rounded_bytes(std::abs(bytes));
}

std::string plan_verdict(const PlanPage& page) {
  if (page.rows.empty()) {
    const double missing = page.misses.empty() ? 0 : page.misses.front().missing_bytes;
    return fmt::format(
        "<p class=\"headline\">Nothing fits on {} devices of {}: {} are missing with the least of "
        "all.</p>\n<p class=\"reason\">{}</p>\n",
        page.num_devices, escape(page.hardware), rounded_bytes(missing), points_text(page));
  }
  const PlanRow& first = page.rows.front();
  std::string html = fmt::format(
      "<p class=\"headline\">The best plan is <strong>{}</strong>: {}. About {} TFLOP/s on each "
      "device, a step of {}, {} of memory on the fullest.</p>\n",
      escape(first.layout), escape(first.choices), speed_number(first.tflops.value),
      rounded_ns(first.step_ns.value), rounded_bytes(first.peak_bytes.value));
  const double share = first.needed_bytes / page.allocatable_bytes;
  html +=
      "<dl class=\"cards\">\n" +
      card("TFLOP/s per device", speed_number(first.tflops.value),
           "predicted, " + interval_note(first.tflops, speed_number)) +
      card("tokens/s per device", speed_number(first.tokens_per_s.value),
           interval_note(first.tokens_per_s, speed_number)) +
      card("step time", rounded_ns(first.step_ns.value), interval_note(first.step_ns, rounded_ns)) +
      card("peak memory", rounded_bytes(first.peak_bytes.value),
           fmt::format("{} has to fit, {} of what can be allocated<span class=\"meter\"><span "
                       "style=\"width:{:.0f}%\"></span></span>",
                       rounded_bytes(first.needed_bytes), base::format_ratio(share),
                       std::min(100.0, 100 * share))) +
      card("fits up to a load of", page.has_experts ? escape(first.load_text) : "–",
           page.has_experts ? "rows of the busiest rank's experts over their share"
                            : "the model has no experts") +
      card("binding wall", wall_badge(first.wall), "what holds it back") + "</dl>\n";
  html += "<p class=\"reason\">" + points_text(page);
  if (page.rows.size() > 1) {
    const PlanRow& second = page.rows[1];
    html += fmt::format(" The runner-up, {}, is {} slower: {}.", escape(second.layout),
                        base::format_ratio(second.step_ns.value / first.step_ns.value - 1),
                        escape(second.why_slower));
  }
  return html + "</p>\n";
}

std::string plan_table(const PlanPage& page) {
  if (page.rows.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"trials\"><thead><tr><th>plan</th><th>knobs</th><th "
      "class=\"num\">step</th><th class=\"num\">TFLOP/s</th><th class=\"num\">tokens/s</th><th "
      "class=\"num\">peak</th><th class=\"num\">load</th><th class=\"num\">dp</th><th>wall</th>"
      "<th>why slower</th><th>grade</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < page.rows.size(); ++i) {
    const PlanRow& row = page.rows[i];
    html += fmt::format("<tr{}><td>{}</td><td class=\"knobs\">{}</td>",
                        i == 0 ? " class=\"winner\"" : "", i + 1,
                        i == 0 ? escape(row.layout + ", " + row.choices) : differences_text(row));
    html += figure_cell(row.step_ns, rounded_ns) + figure_cell(row.tflops, speed_number) +
            figure_cell(row.tokens_per_s, speed_number) +
            number_cell(row.peak_bytes.value, rounded_bytes(row.peak_bytes.value)) +
            number_cell(page.has_experts ? std::optional(row.load_that_fits) : std::nullopt,
                        escape(row.load_text)) +
            number_cell(static_cast<double>(row.replicas), fmt::format("{}", row.replicas));
    html += fmt::format("<td>{}</td><td>{}</td><td>{}</td></tr>\n", wall_badge(row.wall),
                        escape_or_dash(row.why_slower), escape(row.grade));
  }
  return html +
         "</tbody></table></div>\n<p class=\"note\">TFLOP/s and tokens/s are of one device; in "
         "grey, where the figure lies in about nine of ten cases. Load: it fits while the "
         "busiest rank's experts get at most so many times their share.</p>\n";
}

std::string plan_misses(const PlanPage& page) {
  if (!page.rows.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>The nearest misses</caption><thead>"
      "<tr><th>layout</th><th>choices</th><th class=\"num\">peak</th><th "
      "class=\"num\">missing</th></tr></thead><tbody>\n";
  for (const PlanMiss& miss : page.misses) {
    html += fmt::format("<tr><td>{}</td><td>{}</td>", escape(miss.layout), breakable(miss.choices));
    html += number_cell(miss.peak_bytes, rounded_bytes(miss.peak_bytes)) +
            number_cell(miss.missing_bytes, rounded_bytes(miss.missing_bytes)) + "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  if (page.ways_out.empty()) return html;
  html +=
      "<h3>Ways out, each alone, the one that leaves least missing first</h3>\n<div "
      "class=\"scroll\"><table class=\"compact\"><thead><tr><th>change</th><th class=\"num\">then "
      "missing</th><th></th></tr></thead><tbody>\n";
  for (const PlanWayOut& way : page.ways_out) {
    const bool fits = way.missing_bytes <= 0;
    html += fmt::format("<tr><td>{}</td><td class=\"num\">{}</td><td>{}</td></tr>\n",
                        escape(way.what), fits ? "–" : rounded_bytes(way.missing_bytes),
                        !fits ? "" : (way.is_tight ? "may fit" : "fits"));
  }
  return html + "</tbody></table></div>\n";
}

std::string plan_against(const PlanPage& page) {
  if (!page.against) return "";
  const PlanAgainst& theirs = *page.against;
  std::string html = fmt::format(
      "<p class=\"reason\">Today: {}; {}. {} TFLOP/s on each device ({}), a step of {}, {} "
      "allocated: {}.",
      escape(theirs.layout), escape(theirs.choices), speed_number(theirs.tflops.value),
      interval_note(theirs.tflops, speed_number), rounded_ns(theirs.step_ns.value),
      rounded_bytes(theirs.peak_bytes.value), escape(theirs.verdict));
  const bool has_fit = theirs.missing_bytes <= 0;
  if (!has_fit) {
    html += fmt::format(" <strong>{}</strong> of a device's memory are missing.",
                        rounded_bytes(theirs.missing_bytes));
  }
  if (!page.rows.empty()) {
    html +=
        fmt::format(" The first plan is <strong>{:.2f} times</strong> as fast in tokens a second.",
                    page.rows.front().tokens_per_s.value / theirs.tokens_per_s.value);
  }
  html += "</p>\n";
  if (!theirs.notes.empty()) {
    html += "<ul class=\"facts\">\n";
    for (const std::string& note : theirs.notes) html += "<li>" + escape(note) + "</li>\n";
    html += "</ul>\n";
  }
  if (theirs.changes.empty()) return html;
  if (!theirs.order.empty()) html += "<p class=\"lead\">" + escape(theirs.order) + "</p>\n";
  return html + change_table(theirs.changes, "knob", has_fit) + path_table(theirs.path);
}

std::string plan_batches(const PlanPage& page) {
  if (page.batches.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th class=\"num\">sequences</th>"
      "<th class=\"num\">tokens</th><th class=\"num\">step</th><th class=\"num\">tokens/s</th>"
      "<th></th></tr></thead><tbody>\n";
  for (const PlanBatch& batch : page.batches) {
    const bool is_planned = batch.global_batch_size == page.global_batch_size;
    const double tokens =
        static_cast<double>(batch.global_batch_size) * static_cast<double>(page.seq_length);
    html += fmt::format("<tr{}>", is_planned ? " class=\"winner\"" : "") +
            number_cell(static_cast<double>(batch.global_batch_size),
                        std::to_string(batch.global_batch_size)) +
            number_cell(tokens, base::format_count(tokens)) +
            number_cell(batch.step_ns, rounded_ns(batch.step_ns)) +
            speed_cell(batch.speed.tokens_per_s.value, speed_number(batch.speed.tokens_per_s.value),
                       batch.speed) +
            fmt::format("<td>{}</td></tr>\n", is_planned ? "planned for" : "");
  }
  html += "</tbody></table></div>\n";
  if (page.smallest_good_batch == 0) return html;
  return html +
         fmt::format(
             "<p class=\"reason\">The smallest within 2 % of the fastest of these is {}{}. Another "
             "batch may have a better layout.</p>\n",
             page.smallest_good_batch,
             page.smallest_good_batch == page.global_batch_size
                 ? ", which is planned for"
                 : fmt::format(": --gbs {} plans for it", page.smallest_good_batch));
}

std::string plan_advice(const PlanPage& page) {
  std::string html;
  if (!page.thumbs.empty()) {
    html +=
        "<h3>Rules of thumb beside the model</h3>\n<div class=\"scroll\"><table "
        "class=\"compact\"><thead><tr><th>rule</th><th>the first plan</th><th "
        "class=\"num\">keeping "
        "to it costs</th></tr></thead><tbody>\n";
    for (const PlanThumb& thumb : page.thumbs) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"num\">{}</td></tr>\n",
                          escape(thumb.says), thumb.agrees ? "✓ keeps to it" : "≠ differs",
                          thumb.cost_ratio ? base::format_ratio(*thumb.cost_ratio) : "–");
    }
    html += "</tbody></table></div>\n";
  }
  if (!page.helps.empty()) {
    html +=
        "<h3>What would help most</h3>\n<p class=\"lead\">One change of what was asked for, "
        "the rest as it is in the first plan.</p>\n" +
        change_table(page.helps, "what", true);
  }
  return html;
}

std::string plan_basis(const PlanPage& page) {
  std::string html = "<ul class=\"facts\">\n";
  for (const std::string& assumption : page.assumptions) {
    html += "<li>" + escape(assumption) + "</li>\n";
  }
  return html +
         "<li>Nothing was run. Step times are sums in closed form, the played step is a check of "
         "who waits for whom. Intervals hold about nine of ten published runs.</li>\n</ul>\n";
}

}  // namespace moetune::reports
