// Section "history": time or throughput per trial in order, the best so far, and a strip of those
// that have no time.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"
#include "reports/trial_columns.h"

namespace moetune::reports {
namespace {

/// Of more trials than this, the script draws one of marks that lie on top of each other (as
/// kMostMarks of trials.js).
constexpr size_t kMostMarks = 600;

}  // namespace

std::string render_history(const SectionInput& input) {
  const Context& context = input.context;
  if (context.trials.empty()) {
    return "<p>No trial yet.</p>\n";
  }
  size_t num_ok = 0;
  std::set<std::string> untimed;
  for (const store::TrialRow& trial : context.trials) {
    num_ok += trial.status == "ok" ? 1 : 0;
    if (trial.status != "ok") {
      const std::string_view words = status_words(trial.status);
      untimed.insert(words.empty() ? trial.status : fmt::format("{} ({})", trial.status, words));
    }
  }
  return figure(
             "history",
             fmt::format(
                 "{} trials, {} of them ran to the end. Shape and colour: the phase. "
                 "Bars: confidence interval of the median.{} {}The figures stand in the table of "
                 "all trials.{}",
                 context.trials.size(), num_ok,
                 untimed.empty() ? ""
                                 : fmt::format(" Without a time: {}.", fmt::join(untimed, ", ")),
                 std::ranges::any_of(context.trials, is_reference)
                     ? "The one-rank reference run is left out. "
                     : "",
                 context.trials.size() <= kMostMarks
                     ? ""
                     : " Of marks that would lie on top of each other, one is drawn; zoom in for "
                       "the others, and for the bars."),
             "<div class=\"choice\" role=\"group\" aria-label=\"Unit\">"
             "<button type=\"button\" data-history=\"time\" aria-pressed=\"true\">Step "
             "time</button>"
             "<button type=\"button\" data-history=\"throughput\" aria-pressed=\"false\">Throughput"
             "</button></div>",
             "") +
         json_element("data-trials", trial_columns(context));
}

}  // namespace moetune::reports
