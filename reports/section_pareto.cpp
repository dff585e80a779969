// Section "pareto": memory against throughput, with the trials that nothing beats in both.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using store::TrialRow;

/// Rows of the table.
constexpr size_t kMostFront = 60;

// Every trial that no other one beats in memory without being slower; from the smallest to the
// fastest.
std::vector<const TrialRow*> front_of(const Context& context) {
  std::vector<const TrialRow*> trials;
  for (const TrialRow& trial : context.trials) {
    const bool is_measured = trial.status == "ok" && trial.peak_bytes.value_or(0) > 0 &&
                             trial.tokens_per_s.value_or(0) > 0;
    if (is_measured && !is_reference(trial)) trials.push_back(&trial);
  }
  std::ranges::stable_sort(trials, [](const TrialRow* a, const TrialRow* b) {
    if (*a->peak_bytes != *b->peak_bytes) return *a->peak_bytes < *b->peak_bytes;
    return *a->tokens_per_s > *b->tokens_per_s;
  });
  double fastest = 0;
  std::erase_if(trials, [&](const TrialRow* trial) {
    if (*trial->tokens_per_s <= fastest) return true;
    fastest = *trial->tokens_per_s;
    return false;
  });
  return trials;
}

std::string front_table(const std::vector<const TrialRow*>& front, int64_t capacity) {
  const TrialRow& fastest = *front.back();
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>The front</caption><thead><tr><th>"
      "trial</th><th class=\"num\">peak</th><th class=\"num\">of a device</th><th "
      "class=\"num\">tokens/s</th><th class=\"num\">to the fastest</th><th>layout</th></tr></thead>"
      "<tbody>\n";
  const size_t first = front.size() <= kMostFront ? 0 : front.size() - kMostFront;
  for (size_t i = first; i < front.size(); ++i) {
    const TrialRow& trial = *front[i];
    html += fmt::format(
        "<tr><td>{}</td>{}<td class=\"num\">{}</td>{}<td class=\"num\">{}</td><td>{}</td></tr>\n",
        trial_link(trial.ordinal),
        number_cell(as_double(trial.peak_bytes), bytes_text(trial.peak_bytes)),
        capacity > 0 ? fmt::format("{:.1f} %", 100 * static_cast<double>(*trial.peak_bytes) /
                                                   static_cast<double>(capacity))
                     : "–",
        number_cell(trial.tokens_per_s, count_text(trial.tokens_per_s)),
        &trial == &fastest ? "–" : signed_percent(*trial.tokens_per_s / *fastest.tokens_per_s - 1),
        escape_or_dash(layout_of(trial)));
  }
  html += "</tbody></table></div>\n";
  if (first > 0) {
    html += fmt::format("<p class=\"note\">{} smaller ones are left out.</p>\n", first);
  }
  return html;
}

}  // namespace

std::string render_pareto(const SectionInput& input) {
  const std::vector<const TrialRow*> front = front_of(input.context);
  if (front.size() < 2) return "";
  const int64_t capacity = device_bytes_of(*front.back());
  json ordinals = json::array();
  for (const TrialRow* trial : front) ordinals.push_back(trial->ordinal);
  // The smallest that is nearly as fast: what a little patience frees.
  const TrialRow& fastest = *front.back();
  std::string sentence;
  for (const TrialRow* trial : front) {
    if (trial != &fastest && *trial->tokens_per_s > 0.97 * *fastest.tokens_per_s) {
      sentence = fmt::format(
          "<p>Trial {} needs {} instead of {} and is {} as fast as the fastest, {}.</p>\n",
          trial_link(trial->ordinal), bytes_text(trial->peak_bytes), bytes_text(fastest.peak_bytes),
          fmt::format("{:.1f} %", 100 * *trial->tokens_per_s / *fastest.tokens_per_s),
          trial_link(fastest.ordinal));
      break;
    }
  }
  return sentence +
         figure("pareto",
                fmt::format("One mark for each trial that ran: the peak of the fullest rank, and "
                            "tokens per second. The line is the front: {} trials that no other "
                            "beats in one without losing in the other.",
                            front.size()),
                "", front_table(front, capacity)) +
         json_element("data-pareto",
                      {{"front", ordinals}, {"capacity", capacity > 0 ? json(capacity) : json()}});
}

}  // namespace moetune::reports
