// Picks walls, kept changes and the nearest rival from the decisions, and puts them into the three
// sentences.
#include "reports/winner_reason.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "profiler/store/verdict.h"
#include "reports/decision_changes.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/trial_table.h"

namespace moetune::reports {
namespace {

using store::DecisionKind;
using store::DecisionRow;
using store::Phase;
using store::TrialRow;

/// Remedies that are named; the others are counted.
constexpr size_t kMostNamed = 4;
constexpr size_t kMostChangeBytes = 90;

// "a", "a and b", "a, b and c".
std::string enumeration(const std::vector<std::string>& items) {
  if (items.size() < 2) return items.empty() ? "" : items.front();
  return fmt::format("{} and {}", fmt::join(items.begin(), items.end() - 1, ", "), items.back());
}

std::string link_of(const Context& context, std::optional<int64_t> trial_id) {
  const TrialRow* trial = trial_id ? context.by_id(*trial_id) : nullptr;
  return trial == nullptr ? "" : trial_link(trial->ordinal);
}

bool has_same_knobs(const TrialRow& a, const TrialRow& b) { return knob_changes(a, b).empty(); }

// The walls in the order in which the search met them; the reference run's is none of them.
std::string walls_sentence(const Context& context, const TrialRow& winner) {
  std::vector<std::string> walls;
  std::string last;
  for (const DecisionRow& decision : context.decisions) {
    if (decision.kind != DecisionKind::wall || decision.phase == name_of(Phase::contract) ||
        decision.wall == last) {
      continue;
    }
    last = decision.wall;
    const std::string link = link_of(context, decision.trial_id);
    walls.push_back(escape(last) + (link.empty() ? "" : " (at " + link + ")"));
  }
  if (walls.empty()) return "";
  constexpr size_t kMostWalls = 8;
  constexpr size_t kAtEachEnd = 3;
  if (walls.size() > kMostWalls) {
    const std::string between = fmt::format("{} more", walls.size() - 2 * kAtEachEnd);
    walls.erase(walls.begin() + kAtEachEnd, walls.end() - kAtEachEnd);
    walls.insert(walls.begin() + kAtEachEnd, between);
  }
  const TrialRow* traced = context.at(context.traced);
  const std::string now = winner.wall.empty() && traced != nullptr ? traced->wall : winner.wall;
  const std::string end = now.empty()   ? ""
                          : now == last ? ", which still limits it"
                                        : fmt::format("; what limits it now is {}", escape(now));
  return fmt::format("The search met {}: {}{}.", walls.size() == 1 ? "one wall" : "these walls",
                     enumeration(walls), end);
}

/// A remedy that was kept and gained something over what was there before.
struct GainedRemedy {
  std::string what;  ///< HTML
  double gain_ratio = 0;
  std::string interval;  ///< of the gain; empty: not known
};

// "ep 8 → 4, micro-batch 1 → 2": what a new layout changed. Plain text.
std::string layout_change(const Context& context, const DecisionRow& decision,
                          const TrialRow& before) {
  const TrialRow* after = decision.trial_id ? context.by_id(*decision.trial_id) : nullptr;
  std::vector<std::string> parts;
  for (const KnobChange& change :
       after == nullptr ? std::vector<KnobChange>() : knob_changes(before, *after)) {
    const std::string_view size = short_name_of(change.name);
    const std::string name = !size.empty()                       ? std::string(size)
                             : change.name == "micro_batch_size" ? "micro-batch"
                                                                 : change.name;
    parts.push_back(
        fmt::format("{} {} → {}", name, change.before.empty() ? "–" : change.before, change.after));
  }
  return parts.empty() ? "another layout" : fmt::format("{}", fmt::join(parts, ", "));
}

// " (−3.5 % to +7.7 %, which may be noise)"; empty where no interval is stored.
std::string interval_of(const DecisionRow& decision) {
  if (!decision.gain_low_ratio || !decision.gain_high_ratio) return "";
  const bool may_be_noise = *decision.gain_low_ratio <= 0 && *decision.gain_high_ratio >= 0;
  return fmt::format(" ({} to {}{})", signed_percent(*decision.gain_low_ratio),
                     signed_percent(*decision.gain_high_ratio),
                     may_be_noise ? ", which may be noise" : "");
}

std::vector<GainedRemedy> kept_remedies(const Context& context) {
  std::vector<GainedRemedy> remedies;
  for (const DecisionRow& decision : context.decisions) {
    const TrialRow* before =
        decision.baseline_trial_id ? context.by_id(*decision.baseline_trial_id) : nullptr;
    const bool is_step =
        decision.kind == DecisionKind::kept && decision.phase != name_of(Phase::validate);
    if (!is_step || !decision.gain_ratio || before == nullptr || !before->step_ns) continue;
    const std::string link = link_of(context, decision.trial_id);
    std::string what = decision.knob == "layout" ? layout_change(context, decision, *before)
                                                 : change_text(decision);
    what = breakable(shortened(what, kMostChangeBytes));
    remedies.push_back({link.empty() ? what : what + " (" + link + ")", *decision.gain_ratio,
                        interval_of(decision)});
  }
  return remedies;
}

std::string remedies_sentence(const Context& context) {
  const TrialRow* first = context.at(context.first_fit);
  const std::string from = first == nullptr
                               ? "the first configuration that fitted"
                               : fmt::format("the first configuration that fitted ({}, {} a step)",
                                             trial_link(first->ordinal), ns_text(first->step_ns));
  const std::vector<GainedRemedy> remedies = kept_remedies(context);
  if (remedies.empty()) return fmt::format("Nothing that was tried gained enough over {}.", from);
  // The largest, in the order in which they were found.
  std::vector<double> gains;
  for (const GainedRemedy& remedy : remedies) gains.push_back(remedy.gain_ratio);
  std::ranges::sort(gains, std::greater<>());
  const double least = gains[std::min(gains.size(), kMostNamed) - 1];
  std::vector<std::string> named;
  for (const GainedRemedy& remedy : remedies) {
    if (remedy.gain_ratio < least || named.size() == kMostNamed) continue;
    named.push_back(fmt::format("{} <strong>{}</strong>{}", remedy.what,
                                signed_percent(remedy.gain_ratio), remedy.interval));
  }
  if (remedies.size() > named.size()) {
    named.push_back(fmt::format("{} more", remedies.size() - named.size()));
  }
  return fmt::format("From {} on, this was kept: {}.", from, enumeration(named));
}

// The verdict about a trial that came closest to the winner, of those compared with its knobs.
const DecisionRow* nearest_rejected(const Context& context, const TrialRow& winner) {
  const DecisionRow* nearest = nullptr;
  for (const DecisionRow& decision : context.decisions) {
    const TrialRow* against =
        decision.baseline_trial_id ? context.by_id(*decision.baseline_trial_id) : nullptr;
    const bool is_told = decision.kind == DecisionKind::rejected &&
                         decision.phase != name_of(Phase::validate) && decision.gain_ratio &&
                         decision.trial_id && context.by_id(*decision.trial_id) != nullptr;
    if (!is_told || against == nullptr || !has_same_knobs(*against, winner)) continue;
    if (nearest == nullptr || *decision.gain_ratio > *nearest->gain_ratio) nearest = &decision;
  }
  return nearest;
}

std::string nearest_text(const Context& context, const TrialRow& winner) {
  const DecisionRow* nearest = nearest_rejected(context, winner);
  if (nearest == nullptr) return "";
  const double gain = *nearest->gain_ratio;
  return fmt::format(", of which the nearest, {}, is {:.1f} % {}",
                     link_of(context, nearest->trial_id), 100 * std::abs(gain),
                     gain > 0 ? "faster, less than counts" : "slower");
}

std::string beaten_sentence(const Context& context, const TrialRow& winner) {
  // The last word about a trial counts: one that was undecided may have been judged again.
  std::map<int64_t, bool> is_undecided;
  for (const DecisionRow& decision : context.decisions) {
    if (decision.trial_id && is_verdict(decision.kind)) {
      is_undecided[*decision.trial_id] = decision.kind == DecisionKind::undecided;
    }
  }
  const std::set<int64_t> cleared = store::cleared_trials(context.decisions);
  int num_beaten = 0;
  std::vector<std::string> undecided;
  std::map<std::string, int> others;
  for (const TrialRow& trial : context.trials) {
    if (is_reference(trial) || has_same_knobs(trial, winner)) continue;
    if (cleared.contains(trial.id)) continue;  // it is told by its second run
    if (trial.status != "ok") {
      ++others[trial.status];
    } else if (is_undecided[trial.id]) {
      undecided.push_back(trial_link(trial.ordinal));
    } else {
      ++num_beaten;
    }
  }
  std::vector<std::string> parts;
  if (num_beaten > 0) {
    parts.push_back(
        fmt::format("it was preferred to {} other configuration{} that ran to the end{}",
                    num_beaten, num_beaten == 1 ? "" : "s", nearest_text(context, winner)));
  }
  if (!undecided.empty()) {
    const size_t num_more = undecided.size() - std::min(undecided.size(), kMostNamed);
    if (num_more > 0) undecided.resize(kMostNamed);
    if (num_more > 0) undecided.push_back(fmt::format("{} more", num_more));
    parts.push_back(
        fmt::format("of {} the noise hides whether it is faster", enumeration(undecided)));
  }
  std::vector<std::string> failed;
  for (const auto& [status, count] : others) {
    failed.push_back(fmt::format("{} {}", count, status_in_words(status)));
  }
  if (!failed.empty()) parts.push_back("without a time: " + enumeration(failed));
  if (parts.empty()) return "";
  std::string sentence = fmt::format("{}.", fmt::join(parts, "; "));
  sentence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence.front())));
  return sentence;
}

}  // namespace

std::string winner_reason(const Context& context, const TrialRow& winner) {
  if (!context.is_winner(winner) || context.decisions.empty()) return "";
  std::string sentences;
  for (const std::string& sentence : {walls_sentence(context, winner), remedies_sentence(context),
                                      beaten_sentence(context, winner)}) {
    if (!sentence.empty()) sentences += " " + sentence;
  }
  return fmt::format("<p class=\"reason\"><strong>Why this one.</strong>{}</p>\n", sentences);
}

}  // namespace moetune::reports
