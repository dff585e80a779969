// Trials that the engine runs with real data on an emulated cluster, with known faults. Each is
// judged as a trial of a sweep is. What removing a fault gains is measured by running the trial
// without it.
#include "tests/bench/label_emulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/spec/trial_status.h"
#include "profiler/store/store.h"
#include "sweeps/analyse.h"
#include "tests/bench/label_score.h"
#include "tests/engine/emulated_faults.h"

namespace moetune::tuner::testing {
namespace {

using engine::testing::EmulatedRun;
using nlohmann::json;
using profiler::Wall;

constexpr int kSteps = 2;  ///< neighbouring ones
/// Removals that gain about the same: either is a right answer.
constexpr double kSameGain = 0.05;

struct TrialVerdict {
  NamedCause named;
  bool is_stable = false;  ///< all steps have the label
  std::string ceilings;
};

TrialVerdict judge_as_trial(const EmulatedRun& run) {
  store::ShardContents shard;
  shard.path = "emulated";
  for (const FaultyStep& step : run.steps) {
    shard.traces.insert(shard.traces.end(), step.traces.begin(), step.traces.end());
    shard.metrics.push_back({0, "lost_records", static_cast<double>(step.facts.num_lost)});
  }
  store::ShardMemory& memory = shard.memory.emplace_back();
  memory.peak_bytes = run.steps.front().facts.memory.peak_bytes;
  memory.capacity_bytes = run.steps.front().facts.memory.capacity_bytes;
  store::TrialResult result;
  result.status = spec::name_of(spec::TrialStatus::ok);
  sweeps::analyse_shard(run.trial, shard, 0, result);
  store::ShardContents told;
  told.texts = result.texts;
  const json wall = json::parse(told.text(sweeps::kWallEvidenceText));
  TrialVerdict verdict;
  for (size_t i = 0; i < profiler::kNumWalls; ++i) {
    if (wall.at("label") == base::name_of(static_cast<Wall>(i))) {
      verdict.named.label = static_cast<Wall>(i);
    }
  }
  verdict.named.sub_cause = wall.at("sub_cause");
  if (!wall.at("rank").is_null()) verdict.named.rank = wall.at("rank").get<int64_t>();
  verdict.named.ceiling_ratio = wall.at("share_ratio");
  verdict.named.most_ratio = wall.at("most_ratio");
  for (const json& fact : wall.at("evidence")) {
    if (fact.at("name") == "agreeing_ratio") verdict.is_stable = fact.at("value") == 1;
  }
  for (const auto& [name, ceiling] : wall.at("ceilings").items()) {
    if (ceiling > 0.02) verdict.ceilings += fmt::format(" {} {:.2f}", name, ceiling.get<double>());
  }
  return verdict;
}

bool add_case(const FaultyCase& faulty, const EmulatedRun& run, Score& score) {
  const TrialVerdict verdict = judge_as_trial(run);
  const bool is_right = score.add(faulty, run.steps.front().faulty_rank, verdict.named,
                                  [&] { return engine::testing::emulated_gain(faulty, run); });
  // Steps that are the same to the nanosecond tell nothing.
  const bool differ = run.steps.size() > 1 && run.steps[0].step_ns != run.steps[1].step_ns;
  if (differ) score.add_pair(verdict.is_stable);
  if (!is_right && is_verbose()) print_wrong(faulty, verdict.named, verdict.ceilings);
  return is_right;
}

/// The same trial with records that lose something.
struct Loss {
  const char* name;
  double FaultyCase::*what;
  double share;
  Score score = {};
};

void add_losses(const FaultyCase& faulty, const EmulatedRun& run, std::vector<Loss>& losses) {
  for (Loss& loss : losses) {
    FaultyCase losing = faulty;
    losing.*loss.what = loss.share;
    EmulatedRun lossy = run;
    for (size_t i = 0; i < lossy.steps.size(); ++i) {
      losing.seed = 5 + i;
      lose_records(losing, lossy.steps[i]);
    }
    add_case(losing, lossy, loss.score);
  }
}

/// Of two faults the one whose removal gains most, or either where both gain about the same.
void add_two(const FaultyCase& both, Score& score) {
  const EmulatedRun run = engine::testing::run_emulated(both, kSteps);
  const auto gain_without = [&](const StrongFault& fault) {
    const FaultyCase rest = without_fault(both, fault.fault);
    return 1 - engine::testing::time_of(rest, kSteps) / run.time();
  };
  const double first = gain_without(both.faults[0]);
  const double second = gain_without(both.faults[1]);
  FaultyCase truth = both;
  if (std::abs(first - second) > kSameGain) {
    truth = without_fault(both, both.faults[first > second ? 1 : 0].fault);
  }
  const TrialVerdict verdict = judge_as_trial(run);
  const bool is_right = score.add(truth, run.steps.front().faulty_rank, verdict.named,
                                  [&] { return std::max(first, second); });
  score.add_pair(verdict.is_stable);
  if (!is_right && is_verbose()) print_wrong(both, verdict.named, verdict.ceilings);
}

}  // namespace

void run_emulated_labels() {
  print_head("run by the engine");
  const std::vector<double> gains = {0.15, 0.3};
  std::vector<Loss> losses = {{"20 % of waits deleted", &FaultyCase::deleted_edges, 0.2},
                              {"100 % of waits deleted", &FaultyCase::deleted_edges, 1},
                              {"0.1 % of records lost", &FaultyCase::lost_records, 0.001},
                              {"1 % of records lost", &FaultyCase::lost_records, 0.01}};
  Score all;
  std::vector<std::pair<size_t, StrongFault>> strong;
  for (int id = 0; id < static_cast<int>(Fault::count); ++id) {
    const auto fault = static_cast<Fault>(id);
    Score score;
    for (size_t layout = 0; layout < faulty_layouts().size(); ++layout) {
      if (!engine::testing::is_emulated(layout, fault)) continue;
      if (fault == Fault::none) {
        const FaultyCase healthy{layout, {}};
        add_case(healthy, engine::testing::run_emulated(healthy, kSteps), score);
        continue;
      }
      for (size_t i = 0; i < gains.size(); ++i) {
        const auto strength = engine::testing::emulated_strength(layout, fault, gains[i]);
        if (!strength) continue;
        if (*strength == 1 && i > 0) continue;  // the same case again
        const FaultyCase faulty{layout, {{fault, *strength}}};
        const EmulatedRun run = engine::testing::run_emulated(faulty, kSteps);
        add_case(faulty, run, score);
        if (i + 1 < gains.size() && *strength > 1) continue;
        add_losses(faulty, run, losses);
        strong.emplace_back(layout, faulty.faults[0]);
      }
    }
    print(row_of(fault).name, score);
    all += score;
  }
  print("all", all);
  Score two;
  for (size_t i = 0; i < strong.size(); ++i) {
    for (size_t j = i + 1; j < strong.size(); j += 7) {
      const auto& [layout, first] = strong[i];
      const StrongFault& second = strong[j].second;
      // Compute hides nothing; where collectives shall last, the machine is another one.
      const auto is_left_out = [](const StrongFault& fault) {
        return profiler::row_of(row_of(fault.fault).sub_cause).label == Wall::compute ||
               fault.fault == Fault::held_multiprocessors;
      };
      if (layout != strong[j].first || first.fault == second.fault) continue;
      if (is_left_out(first) || is_left_out(second)) continue;
      add_two({layout, {first, second}}, two);
    }
  }
  print("two faults", two);
  for (const Loss& loss : losses) print(loss.name, loss.score);
}

}  // namespace moetune::tuner::testing
