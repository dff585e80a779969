// Finds the trials that the report speaks about, by what the sweep says and, where it says nothing,
// by its rows.
#include "reports/context.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/error.h"
#include "profiler/store/untrusted_json.h"
#include "profiler/store/verdict.h"
#include "reports/device_account.h"
#include "reports/local_paths.h"
#include "reports/rows.h"

namespace moetune::reports {
namespace {

using store::DecisionKind;
using store::Phase;
using store::TrialRow;

bool has_same_knobs(const TrialRow& a, const TrialRow& b) { return knob_changes(a, b).empty(); }

template <typename Predicate>
int find_first(const std::vector<TrialRow>& trials, Predicate predicate) {
  const auto found = std::ranges::find_if(trials, predicate);
  return found == trials.end() ? -1 : static_cast<int>(found - trials.begin());
}

std::vector<std::string> find_varying_knobs(const std::vector<TrialRow>& trials) {
  std::vector<std::string> order;
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, size_t> num_seen;
  for (const TrialRow& trial : trials) {
    for (const store::NamedText& knob : trial.knobs) {
      if (values[knob.name].empty()) {
        order.push_back(knob.name);
      }
      values[knob.name].insert(knob.value);
      ++num_seen[knob.name];
    }
  }
  std::erase_if(order, [&](const std::string& name) {
    return values[name].size() < 2 && num_seen[name] == trials.size();
  });
  return order;
}

// 0: there is none.
int64_t last_sweep(const store::Store& store) {
  const std::vector<store::SweepRow> sweeps = store.read_sweeps();
  // The last one that has a story; single trials beside it have none.
  for (auto it = sweeps.rbegin(); it != sweeps.rend(); ++it) {
    if (!store.read_decisions(it->id).empty()) {
      return it->id;
    }
  }
  return sweeps.empty() ? 0 : sweeps.back().id;
}

void read_trial_texts(const store::Store& store, Context& context) {
  const Rows rows(store.database(),
                  "SELECT l.trial_id, l.name, l.value FROM trial_log l "
                  "JOIN trial t ON t.id = l.trial_id WHERE t.sweep_id = :sweep_id "
                  "AND l.name IN ('device_memory', 'trace_note', 'title') "
                  "ORDER BY l.trial_id, l.ordinal",
                  {{":sweep_id", context.sweep.id}});
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = rows.text(i, "name");
    const int64_t trial = rows.integer(i, "trial_id").value_or(0);
    if (name == "title") {
      context.titles[trial] = rows.text(i, "value");
      continue;
    }
    auto& texts = name == kDeviceMemoryText ? context.device_memory : context.trace_notes;
    texts[trial].push_back(rows.text(i, "value"));
  }
}

void read_judgements(Context& context) {
  for (const store::DecisionRow& decision : context.decisions) {
    if (!decision.trial_id) continue;
    if (decision.kind == DecisionKind::kept) context.kept.insert(*decision.trial_id);
    if (is_verdict(decision.kind) || decision.kind == DecisionKind::pruned) {
      context.verdicts[*decision.trial_id] = decision.text;
    }
  }
}

std::vector<size_t> sorted_by_importance(const Context& context) {
  /// Smaller comes first.
  struct Rank {
    int group = 0;
    int64_t within = 0;
    size_t position = 0;
    auto operator<=>(const Rank&) const = default;
  };
  std::vector<Rank> ranks;
  for (size_t i = 0; i < context.trials.size(); ++i) {
    const TrialRow& trial = context.trials[i];
    const auto position = static_cast<int>(i);
    const auto latest_first = -static_cast<int64_t>(i);
    if (position == context.shown || position == context.traced) {
      ranks.push_back({0, 0, i});
    } else if (position == context.winner || position == context.baseline ||
               position == context.first_fit) {
      ranks.push_back({1, 0, i});
    } else if (context.kept.contains(trial.id)) {
      ranks.push_back({2, latest_first, i});
    } else if (trial.status == "ok" && trial.step_ns && !is_reference(trial)) {
      ranks.push_back({3, *trial.step_ns, i});
    } else {
      ranks.push_back({4, latest_first, i});
    }
  }
  std::ranges::sort(ranks);
  std::vector<size_t> positions;
  for (const Rank& rank : ranks) positions.push_back(rank.position);
  return positions;
}

std::set<int64_t> traced_trials(const store::Store& store) {
  const Rows rows(store.database(), "SELECT DISTINCT trial_id FROM trace_step", {});
  std::set<int64_t> ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    ids.insert(rows.integer(i, "trial_id").value_or(0));
  }
  return ids;
}

}  // namespace

const TrialRow* Context::by_id(int64_t trial_id) const {
  const auto found = positions.find(trial_id);
  return found == positions.end() ? nullptr : &trials[found->second];
}

std::vector<size_t> Context::most_telling(size_t most) const {
  std::vector<size_t> chosen(
      by_importance.begin(),
      by_importance.begin() + static_cast<std::ptrdiff_t>(std::min(most, by_importance.size())));
  std::ranges::sort(chosen);
  return chosen;
}

bool Context::is_winner(const TrialRow& trial) const {
  return winner >= 0 && at(winner)->id == trial.id;
}

bool Context::has_won(const TrialRow& trial) const { return is_winner(trial) && !is_refused; }

std::string Context::name_of(const TrialRow& trial) const {
  if (has_won(trial)) return "the winner";
  return fmt::format("trial #{}{}", trial.ordinal, is_winner(trial) ? " (not validated)" : "");
}

const store::EnvironmentRow* Context::environment_of(const store::MeasurementRow& run) const {
  const auto found = std::ranges::find_if(
      environments, [&](const auto& row) { return run.environment_id == row.id; });
  return found == environments.end() ? nullptr : &*found;
}

std::vector<store::MeasurementRow> Context::counted_runs(const TrialRow& trial) const {
  std::vector<store::MeasurementRow> runs;
  if (const auto found = measurements.find(trial.id); found != measurements.end()) {
    std::ranges::copy_if(found->second, std::back_inserter(runs),
                         &store::MeasurementRow::is_counted);
  }
  return runs;
}

bool is_reference(const TrialRow& trial) {
  return trial.phase == name_of(Phase::contract) && !trial.is_baseline;
}

std::string knob_of(const TrialRow& trial, const std::string& name) {
  const auto found = std::ranges::find(trial.knobs, name, &store::NamedText::name);
  return found == trial.knobs.end() ? std::string() : found->value;
}

std::string spec_text(const TrialRow& trial, const char* key) {
  const nlohmann::json spec = store::parse_untrusted(trial.spec_json);
  if (!spec.is_object()) {
    return "";
  }
  const auto found = spec.find(key);
  return found != spec.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t device_bytes_of(const TrialRow& trial) {
  const nlohmann::json spec = store::parse_untrusted(trial.spec_json);
  if (!spec.is_object() || !spec.contains("hardware") || !spec["hardware"].is_object()) {
    return 0;
  }
  const auto& hardware = spec["hardware"];
  const auto found = hardware.find("memory_bytes");
  return found != hardware.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

bool is_fake_world(const TrialRow& trial) { return spec_text(trial, "communicator") == "fake"; }

std::vector<KnobChange> knob_changes(const TrialRow& from, const TrialRow& to) {
  std::vector<KnobChange> changes;
  for (const store::NamedText& knob : to.knobs) {
    const std::string before = knob_of(from, knob.name);
    if (before != knob.value) {
      changes.push_back({knob.name, before, knob.value});
    }
  }
  return changes;
}

std::string layout_of(const TrialRow& trial) {
  std::string result;
  for (const LayoutSize& size : kLayoutSizes) {
    const std::string value = knob_of(trial, size.knob);
    if (!value.empty() && (size.is_always_told || value != "1")) {
      result += fmt::format("{}{} {}", result.empty() ? "" : " · ", size.label, value);
    }
  }
  return result;
}

Context read_context(const store::Store& store, int64_t sweep_id, const std::string& trial) {
  Context context;
  context.hunts = read_hunts(store);
  context.num_hunts = count_hunts(store);
  if (!trial.empty()) {
    sweep_id = store.get_trial(trial).sweep_id;
  } else if (sweep_id == 0) {
    sweep_id = last_sweep(store);
    if (sweep_id == 0 && context.hunts.empty()) {
      throw base::UsageError(
          fmt::format("{0}: holds no sweep and no hunt; a report needs one: run `moetune sweep "
                      "FILE --db {0}` or `moetune bisect ... --db {0}` first",
                      store.path()));
    }
    if (sweep_id == 0) {
      context.has_sweep = false;
      context.sweep.id = -1;
      return context;
    }
  }
  std::optional<store::SweepRow> sweep = store.read_sweep(sweep_id);
  if (!sweep) {
    throw base::UsageError(fmt::format("{}: there is no sweep {}; `moetune ls --db {}` lists them",
                                       store.path(), sweep_id, store.path()));
  }
  context.sweep = std::move(*sweep);
  context.folder = typed_command(context.sweep.command_line).folder;
  context.trials = store.list_trials(sweep_id);
  context.decisions = store.read_decisions(sweep_id);
  context.environments = store.read_environments(sweep_id);
  for (store::MeasurementRow& run : store.read_measurements_of_sweep(sweep_id)) {
    context.measurements[run.trial_id].push_back(std::move(run));
  }
  context.varying_knobs = find_varying_knobs(context.trials);
  read_trial_texts(store, context);

  for (size_t i = 0; i < context.trials.size(); ++i) context.positions[context.trials[i].id] = i;
  read_judgements(context);

  // As the sweep says. A foreign hand may have named a trial of another sweep: then there is none.
  const auto position_of = [&](const std::optional<int64_t>& id) {
    return find_first(context.trials, [&](const TrialRow& row) { return row.id == id; });
  };
  context.winner = position_of(context.sweep.winner_trial);
  // One that is being run again, or that a foreign hand has named, has won nothing.
  if (context.winner >= 0 && context.at(context.winner)->status != "ok") context.winner = -1;
  if (const TrialRow* winner = context.at(context.winner)) {
    context.is_refused = store::validation_of(context.decisions, *winner).is_passed == false;
  }
  context.shown = trial.empty() ? context.winner : position_of(store.get_trial(trial).id);
  context.baseline = position_of(context.sweep.baseline_trial);
  context.first_fit = position_of(context.sweep.first_fit_trial);
  context.final_run = context.shown;
  std::vector<const TrialRow*> rows;
  for (const TrialRow& row : context.trials) rows.push_back(&row);
  context.waits_for_tell = waits_for_tell(store, context.sweep, rows);
  if (const TrialRow* shown = context.at(context.shown)) {
    context.engine_run = engine_run_of(store, *shown);
    context.is_forced = has_forced_balancing(store, shown->id);
    context.traced = context.shown;
    const std::set<int64_t> traced = traced_trials(store);
    const auto has_trace = [&](const TrialRow& row) {
      return row.status == "ok" && has_same_knobs(*shown, row) && traced.contains(row.id);
    };
    if (!has_trace(*shown)) {
      const int other = find_first(context.trials, has_trace);
      context.traced = other < 0 ? context.shown : other;
    }
  }
  context.by_importance = sorted_by_importance(context);
  return context;
}

}  // namespace moetune::reports
