// How often a verdict names the fault that a step has: steps of emulated clusters with known
// faults, played in fifteen layouts, and run by the engine in thirteen. The truth of a case is the
// fault that was put in, whose removal gains what the case was made for. Every tenth played case is
// judged a second time, from files of Kineto's form that are imported. Prints tables; nothing is
// asserted.
//   label_bench [SEEDS]    seeds of noise for each fault, layout and strength (default 3); 0: only
//                          the steps that the engine runs
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "tests/bench/label_emulated.h"
#include "tests/bench/label_score.h"
#include "tests/import/played_kineto.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::tuner::testing {
namespace {

using profiler::StepVerdict;
using profiler::Wall;

StepVerdict add_case(const FaultyCase& faulty, Score& score) {
  const FaultyStep step = play_faulty(faulty);
  StepVerdict verdict = judge(step);
  const NamedCause named = {verdict.label, profiler::row_of(verdict.sub_cause).name, verdict.rank,
                            verdict.ceiling_ratio(), verdict.most_ratio};
  const bool is_right =
      score.add(faulty, step.faulty_rank, named, [&] { return removal_gain(faulty); });
  if (is_right || !is_verbose()) return verdict;
  std::string list;
  for (const profiler::SubCauseRow& row : profiler::sub_causes()) {
    const double ceiling = verdict.sub_ceilings[static_cast<size_t>(row.id)];
    if (ceiling > 0.02) list += fmt::format(" {} {:.2f}", row.name, ceiling);
  }
  print_wrong(faulty, named, list);
  return verdict;
}

/// A folder for files, as long as this lives.
class FileFolder {
 public:
  FileFolder() : path_(std::filesystem::temp_directory_path() / "moetune-bench-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~FileFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FileFolder(const FileFolder&) = delete;
  FileFolder& operator=(const FileFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A case with one fault or none, judged as a verdict on another tool's trace is. Compute is not
/// told apart: that needs the shapes of operators.
void add_imported_case(const FaultyCase& faulty, const FaultyStep& step,
                       const std::vector<profiler::ImportedTrace>& traces, Score& score) {
  const profiler::ImportedWall wall = profiler::classify_imported(traces, {}, step.facts.memory);
  const FaultRow& row = row_of(faulty.faults.empty() ? Fault::none : faulty.faults[0].fault);
  const profiler::SubCauseRow& expected = profiler::row_of(row.sub_cause);
  const bool is_label_right = wall.label == expected.label;
  const bool is_sub_right = wall.sub_cause == expected.name;
  const bool is_rank_right = wall.rank == step.faulty_rank;
  const bool has_sub_cause = expected.label != Wall::compute;
  ++score.num_cases;
  score.num_labels += is_label_right ? 1 : 0;
  score.num_unknown += wall.label == Wall::unknown ? 1 : 0;
  score.num_of_sub_causes += has_sub_cause ? 1 : 0;
  score.num_sub_causes += has_sub_cause && is_sub_right ? 1 : 0;
  score.num_of_ranks += row.is_of_one_rank ? 1 : 0;
  score.num_ranks += row.is_of_one_rank && is_rank_right ? 1 : 0;
  if (has_sub_cause && is_label_right) {
    const double ceiling = wall.ceilings[static_cast<size_t>(wall.label)];
    ++score.num_gains;
    const double gain = removal_gain(faulty);
    score.num_within_ceiling += gain <= ceiling + 0.005 ? 1 : 0;
    ++score.num_of_most;
    score.num_within_most += gain <= wall.most_ratio.value_or(ceiling) + 0.005 ? 1 : 0;
  }
  const bool is_right =
      is_label_right && (is_sub_right || !has_sub_cause) && (is_rank_right || !row.is_of_one_rank);
  if (is_verbose() && !is_right) {
    fmt::print("  {} in {}, imported: rank {}, {}\n", row.name,
               faulty_layouts()[faulty.layout].name, wall.rank.value_or(-1), wall.summary);
  }
}

void run_imported(const std::vector<FaultyCase>& sample) {
  const FileFolder folder;
  Score with_waits;
  Score without_waits;
  Score few_launches_lost;
  Score many_launches_lost;
  for (const FaultyCase& faulty : sample) {
    const FaultyStep step = play_faulty(faulty);
    std::vector<profiler::ImportedTrace> traces =
        tests::through_kineto(step.traces, step.communicators, folder.path());
    add_imported_case(faulty, step, traces, with_waits);
    std::vector<profiler::ImportedTrace> lossy =
        tests::as_recorded(step.traces, step.communicators);
    tests::forget_launches(lossy, 3);
    add_imported_case(faulty, step, lossy, few_launches_lost);
    tests::forget_launches(lossy, 30);
    add_imported_case(faulty, step, lossy, many_launches_lost);
    tests::forget_waits(traces);
    add_imported_case(faulty, step, traces, without_waits);
  }
  print("through Kineto", with_waits);
  print("without wait events", without_waits);
  print("3 % of launch calls lost", few_launches_lost);
  print("a third of launch calls lost", many_launches_lost);
}

void run_played(int64_t num_seeds) {
  print_head("played");
  const std::vector<double> gains = {0.15, 0.25, 0.4};
  Score all;
  std::vector<std::pair<size_t, StrongFault>> strong;  // of the middle gain
  constexpr int64_t kCasesEach = 10;                   // of which one is imported
  std::vector<FaultyCase> sample;
  int64_t num_tried = 0;
  for (int id = 0; id < static_cast<int>(Fault::count); ++id) {
    const auto fault = static_cast<Fault>(id);
    Score score;
    for (size_t layout = 0; layout < faulty_layouts().size(); ++layout) {
      if (!is_possible(layout, fault)) continue;
      for (size_t i = 0; i < gains.size(); ++i) {
        FaultyCase faulty{layout, {}, 1, 0.03};
        // Small and memory-bound work is compute, as nothing is: what they gain is no wall's.
        if (fault != Fault::none) {
          const auto strength = strength_for(layout, fault, gains[i]);
          if (!strength) continue;
          faulty.faults = {{fault, *strength}};
          if (i == 1) strong.emplace_back(layout, faulty.faults[0]);
          if (*strength == 1 && i > 0) continue;  // the same case again
        }
        std::vector<Wall> labels;
        for (int64_t seed = 1; seed <= num_seeds; ++seed) {
          faulty.seed = static_cast<uint64_t>(seed);
          if (num_tried++ % kCasesEach == 0) sample.push_back(faulty);
          labels.push_back(add_case(faulty, score).label);
        }
        for (size_t j = 1; j < labels.size(); ++j) {
          ++score.num_pairs;
          score.num_stable += labels[j] == labels[j - 1] ? 1 : 0;
        }
        if (fault == Fault::none) break;
      }
    }
    print(row_of(fault).name, score);
    all += score;
  }
  print("all", all);
  run_imported(sample);

  Score both;
  for (size_t i = 0; i < strong.size(); ++i) {
    for (size_t j = i + 1; j < strong.size(); j += 7) {
      if (strong[i].first != strong[j].first || strong[i].second.fault == strong[j].second.fault) {
        continue;
      }
      const auto is_compute = [&](size_t k) {
        return profiler::row_of(row_of(strong[k].second.fault).sub_cause).label == Wall::compute;
      };
      if (is_compute(i) || is_compute(j)) continue;
      add_case({strong[i].first, {strong[i].second, strong[j].second}, 1, 0.03}, both);
    }
  }
  print("two equal faults", both);

  for (const double share : {0.02, 0.2, 0.5, 1.0}) {
    Score score;
    for (const auto& [layout, fault] : strong) {
      FaultyCase faulty{layout, {fault}, 5, 0.03};
      faulty.deleted_edges = share;
      add_case(faulty, score);
    }
    print(fmt::format("{:.0f} % of waits deleted", 100 * share), score);
  }
  for (const double share : {0.001, 0.01, 0.1}) {
    Score score;
    for (const auto& [layout, fault] : strong) {
      FaultyCase faulty{layout, {fault}, 5, 0.03};
      faulty.lost_records = share;
      add_case(faulty, score);
    }
    print(fmt::format("{:.1f} % of records lost", 100 * share), score);
  }
}

}  // namespace
}  // namespace moetune::tuner::testing

int main(int argc, char** argv) {
  const int num_seeds = argc > 1 ? std::atoi(argv[1]) : 3;
  const auto timed = [](const auto& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("{:.0f} s\n", seconds.count());
  };
  if (num_seeds > 0) timed([&] { moetune::tuner::testing::run_played(num_seeds); });
  timed(moetune::tuner::testing::run_emulated_labels);
}
