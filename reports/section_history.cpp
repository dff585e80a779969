// Section "history": time or throughput per trial in order, the best so far, and a strip of those
// that have no time.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "profiler/store/verdict.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/or_null.h"
#include "reports/sections.h"

namespace moetune::reports {

using nlohmann::json;

namespace {

// What a tooltip calls a trial: its title, else what its decision changed, else its layout.
std::string short_label(const Context& context, const store::TrialRow& trial,
                        const std::string& title) {
  if (!title.empty()) {
    return title;
  }
  for (const store::DecisionRow& decision : context.decisions) {
    if (decision.trial_id == trial.id && !decision.knob.empty()) {
      return decision.knob + " " + decision.value_before + " → " + decision.value_after;
    }
  }
  return layout_of(trial);
}

}  // namespace

std::string render_history(const SectionInput& input) {
  const Context& context = input.context;
  if (input.rows.empty()) {
    return "<p>No trial yet.</p>\n";
  }
  json trials = json::array();
  std::set<int64_t> kept;
  for (const store::DecisionRow& decision : context.decisions) {
    if (decision.kind == "kept" && decision.trial_id) {
      kept.insert(*decision.trial_id);
    }
  }
  const std::set<int64_t> cleared = store::cleared_trials(context.decisions);
  size_t num_ok = 0;
  std::set<std::string> untimed;
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const Rows& rows = input.rows;
    const auto id = rows.integer(i, "id").value_or(0);
    const store::TrialRow* trial = context.by_id(id);
    const std::string status = rows.text(i, "status");
    num_ok += status == "ok" ? 1 : 0;
    if (status != "ok") {
      const std::string_view words = status_words(status);
      untimed.insert(words.empty() ? status : fmt::format("{} ({})", status, words));
    }
    trials.push_back(
        {{"n", rows.integer(i, "ordinal").value_or(0)},
         {"phase", rows.text(i, "phase")},
         {"status", status},
         {"reason", rows.text(i, "reason") +
                        (cleared.contains(id) ? fmt::format("; {}", store::kClearedText) : "")},
         {"label", trial == nullptr ? "" : short_label(context, *trial, rows.text(i, "title"))},
         {"step", or_null(rows.integer(i, "step_ns"))},
         {"low", or_null(rows.integer(i, "step_ns_low"))},
         {"high", or_null(rows.integer(i, "step_ns_high"))},
         {"tokens", or_null(rows.real(i, "tokens_per_s"))},
         {"kept", kept.contains(id)},
         {"reference", trial != nullptr && is_reference(*trial)},
         {"winner", trial != nullptr && context.is_winner(*trial)}});
  }
  return figure(
             "history",
             fmt::format(
                 "{} trials, {} of them ran to the end. Shape and colour: the phase. "
                 "Bars: confidence interval of the median.{} The one-rank reference run is left "
                 "out; the figures stand in the table of all trials.",
                 input.rows.size(), num_ok,
                 untimed.empty() ? ""
                                 : fmt::format(" Without a time: {}.", fmt::join(untimed, ", "))),
             "<div class=\"choice\" role=\"group\" aria-label=\"Unit\">"
             "<button type=\"button\" data-history=\"time\" aria-pressed=\"true\">Step "
             "time</button>"
             "<button type=\"button\" data-history=\"throughput\" aria-pressed=\"false\">Throughput"
             "</button></div>",
             "") +
         json_element("data-history", {{"trials", trials}, {"hasDecisions", !kept.empty()}});
}

}  // namespace moetune::reports
