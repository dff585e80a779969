// Section "prediction": were the models right? Predicted against measured memory and time, with the
// worst error.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

// predicted / measured - 1.
std::optional<double> error_of(std::optional<int64_t> predicted, std::optional<int64_t> measured) {
  if (!predicted || !measured || *measured <= 0 || *predicted <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(*predicted) / static_cast<double>(*measured) - 1;
}

/// Keeps the error that is farthest from zero.
struct Worst {
  std::optional<double> error;
  int64_t ordinal = 0;
  int64_t count = 0;
  double sum = 0;

  void add(std::optional<double> value, int64_t trial) {
    if (!value) {
      return;
    }
    ++count;
    sum += std::abs(*value);
    if (!error || std::abs(*value) > std::abs(*error)) {
      error = value;
      ordinal = trial;
    }
  }
  [[nodiscard]] std::string text(std::string_view what) const {
    if (!error) {
      return "";
    }
    return fmt::format(
        "<li><strong>{}</strong>: worst error {} (trial {}), mean {:.2f} % over {} trials</li>",
        what, signed_percent(*error), trial_link(ordinal), 100 * sum / static_cast<double>(count),
        count);
  }
};

}  // namespace

std::string render_prediction(const SectionInput& input) {
  const Rows& rows = input.rows;
  std::set<int64_t> in_table;
  for (const size_t position : input.context.most_telling(kMostDeep)) {
    in_table.insert(input.context.trials[position].id);
  }
  Worst worst_memory;
  Worst worst_time;
  std::string body;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t ordinal = rows.integer(i, "ordinal").value_or(0);
    const store::TrialRow* trial = input.context.by_id(rows.integer(i, "id").value_or(0));
    if (trial != nullptr && is_reference(*trial)) {
      continue;
    }
    const auto predicted_bytes = rows.integer(i, "predicted_peak_bytes");
    const auto bytes = rows.integer(i, "peak_bytes");
    const auto predicted_ns = rows.integer(i, "predicted_step_ns");
    const auto ns = rows.integer(i, "step_ns");
    const auto memory_error = error_of(predicted_bytes, bytes);
    const auto time_error = error_of(predicted_ns, ns);
    worst_memory.add(memory_error, ordinal);
    worst_time.add(time_error, ordinal);
    if (trial == nullptr || !in_table.contains(trial->id)) continue;
    body += fmt::format(
        "<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
        "<td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
        "<td>{}</td></tr>\n",
        trial_link(ordinal), bytes_text(predicted_bytes), bytes_text(bytes),
        memory_error ? signed_percent(*memory_error) : "–",
        escape_or_dash(rows.text(i, "memory_grade")), ns_text(predicted_ns), ns_text(ns),
        time_error ? signed_percent(*time_error) : "–", escape_or_dash(rows.text(i, "time_grade")));
  }
  if (!worst_memory.error && !worst_time.error) {
    return "<p>No trial has both a prediction and a measurement.</p>\n";
  }
  const std::string table =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>trial</th><th "
      "class=\"num\">memory predicted</th><th class=\"num\">measured</th><th "
      "class=\"num\">error</th><th>evidence</th><th class=\"num\">step predicted</th><th "
      "class=\"num\">measured</th><th "
      "class=\"num\">error</th><th>evidence</th></tr></thead><tbody>\n" +
      body + "</tbody></table></div>\n" + shown_note(input.context, kMostDeep);
  return "<ul class=\"facts\">" + worst_memory.text("Memory") + worst_time.text("Step time") +
         "</ul>\n" +
         figure(
             "prediction",
             "Left the peak memory of the fullest rank, right the step time; one mark per trial. "
             "The line is where prediction and measurement are equal.",
             "", table);
}

}  // namespace moetune::reports
