// Quick starts beside processes that keep the cores busy: does the search still find the best? Each
// winner is looked up in one table that every configuration of the space was played for on the
// modelled clock, and the two clocks are compared operation by operation.
//
// Arguments: how many quick starts beside 0, 1 and 2 busy processes (6 7 7), then a folder for
// databases and the table (a new one in the temporary folder; a table that lies there is used).
// Ends with 1 when a winner is more than 5 % off the best or a quick start takes longer than 180 s.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/plan/ops.h"
#include "engine/spec/trial_spec.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/load.h"
#include "tuner/cost_model.h"
#include "tuner/memory_model.h"
#include "tuner/search_space.h"

namespace moetune {
namespace {

constexpr double kMostOff = 1.05;
constexpr double kMostSeconds = 180;
constexpr double kClocksOff = 1.3;
constexpr double kSmallestShare = 0.01;

using spec::Knobs;

spec::TrialSpec trial_of(const spec::SweepSpec& sweep, const Knobs& knobs) {
  spec::TrialSpec trial = sweep.base;
  trial.knobs = knobs;
  return trial;
}

/// Step times on the modelled clock by the text of all knobs: of each choice of layout, micro-batch
/// and schedule, with the recomputation and the chunks of the loss that make it fastest within the
/// memory. Rows are taken for balanced.
class Table {
 public:
  Table(const spec::SweepSpec& sweep, const std::string& path) {
    if (std::filesystem::exists(path)) {
      std::ifstream file(path);
      const auto stored = nlohmann::json::parse(file);
      for (const auto& [knobs, ns] : stored.items()) steps_[knobs] = ns.get<int64_t>();
    } else {
      play_all(sweep);
      std::ofstream(path) << nlohmann::json(steps_).dump(0);
    }
    const auto best =
        std::ranges::min_element(steps_, {}, [](const auto& row) { return row.second; });
    best_ = *best;
  }

  [[nodiscard]] size_t size() const { return steps_.size(); }
  [[nodiscard]] const std::string& best_knobs() const { return best_.first; }
  [[nodiscard]] int64_t best_ns() const { return best_.second; }

  static int64_t step_ns(const spec::SweepSpec& sweep, const Knobs& knobs) {
    return tuner::play_step(trial_of(sweep, knobs), {}).step_ns;
  }

 private:
  void play_all(const spec::SweepSpec& sweep) {
    const tuner::SearchSpace space(sweep);
    const std::vector<Knobs> points = space.product(
        sweep.base.knobs,
        {"context_parallel_size", "expert_model_parallel_size", "pipeline_model_parallel_size",
         "micro_batch_size", "ep_chunks_forward", "ep_chunks_backward", "cuda_graph_modules",
         "use_distributed_optimizer", "overlap_grad_reduce"});
    for (const Knobs& point : points) {
      // The least recomputation that fits is the fastest: it only adds work.
      for (const std::string& recompute : ladder(space)) {
        if (play_variants(sweep, space, space.with(point, "recompute", recompute))) break;
      }
    }
  }

  bool play_variants(const spec::SweepSpec& sweep, const tuner::SearchSpace& space,
                     const Knobs& point) {
    bool has_fitted = false;
    for (const std::string& chunk : space.values("linear_ce_chunk_tokens")) {
      const Knobs knobs = space.with(point, "linear_ce_chunk_tokens", chunk);
      if (!space.check(knobs).empty() || !fits(sweep, knobs)) continue;
      has_fitted = true;
      steps_[tuner::knobs_key(knobs)] = step_ns(sweep, knobs);
    }
    return has_fitted;
  }

  static std::vector<std::string> ladder(const tuner::SearchSpace& space) {
    std::vector<std::string> values = space.values("recompute");
    std::ranges::stable_sort(
        values, {}, [](const std::string& value) { return tuner::recompute_weight(value); });
    return values;
  }

  static bool fits(const spec::SweepSpec& sweep, const Knobs& knobs) {
    const auto limit =
        static_cast<double>(sweep.base.hardware.memory_bytes) * (1.0 - sweep.memory_margin_ratio);
    const auto peak = tuner::estimate_memory(trial_of(sweep, knobs), tuner::ReceivedRows());
    return static_cast<double>(peak.peak_bytes) <= limit;
  }

  std::map<std::string, int64_t> steps_;
  std::pair<std::string, int64_t> best_;
};

/// Processes that compute and go through memory until they are ended.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        std::vector<double> memory(1 << 20, 1.0);
        for (volatile double sum = 0;;) {
          for (double& value : memory) value = value * 0.999 + 0.001;
          sum = sum + memory.front();
        }
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> children_;
};

/// Measured over modelled time of each operation, of those that are worth a look.
void print_clocks(const store::Store& store, int64_t trial_id, const spec::HardwareSpec& hardware) {
  struct Sum {
    double measured_ns = 0;
    double modelled_ns = 0;
  };
  std::map<std::string, Sum> sums;
  double all_ns = 0;
  for (const store::OpRow& op : store.read_ops(trial_id)) {
    // Communication takes what the links do, on both clocks.
    const plan::OpRow* row = plan::find_op_label(op.name);
    if (row == nullptr || op.count == 0 || op.flops + op.bytes == 0) continue;
    if (row->kind == plan::OpKind::collective || row->kind == plan::OpKind::p2p) continue;
    Sum& sum = sums[op.name];
    sum.measured_ns += static_cast<double>(op.duration_ns);
    sum.modelled_ns += static_cast<double>(
        op.count * plan::roofline_ns(hardware, {op.flops / op.count, op.bytes / op.count}));
    all_ns += static_cast<double>(op.duration_ns);
  }
  for (const auto& [name, sum] : sums) {
    if (sum.measured_ns < kSmallestShare * all_ns || sum.modelled_ns <= 0) continue;
    const double ratio = sum.measured_ns / sum.modelled_ns;
    const bool is_off = ratio > kClocksOff || ratio < 1 / kClocksOff;
    fmt::print("    {:28} {:5.1f} % of the operations, measured over modelled {:5.2f}{}\n", name,
               100 * sum.measured_ns / all_ns, ratio, is_off ? "  OFF" : "");
  }
}

struct Options {
  std::vector<int> counts = {6, 7, 7};
  std::string folder;
};

/// True when it is as good and as fast as is asked for.
bool run_one(const Options& options, const spec::SweepSpec& sweep, const std::string& sweep_file,
             const Table& table, int num_busy, int index) {
  const std::string db = fmt::format("{}/beside-{}-{}.db", options.folder, num_busy, index);
  std::filesystem::remove(db);
  double seconds = 0;
  {
    const BusyProcesses busy(num_busy);
    const auto start = std::chrono::steady_clock::now();
    const std::string command =
        fmt::format("'{}/moetune' sweep '{}' --db '{}' --quiet > '{}.out' 2>&1", MOETUNE_BIN_DIR,
                    sweep_file, db, db);
    const int code = std::system(command.c_str());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (code != 0) {
      fmt::print("{} busy, {}: ended with {}; see {}.out\n", num_busy, index, code, db);
      return false;
    }
  }
  const store::Store store = store::Store::open_read_only(db);
  const store::SweepRow row = store.read_sweep(1).value();
  if (!row.winner_trial) {
    fmt::print("{} busy, {}: no winner\n", num_busy, index);
    return false;
  }
  const store::TrialRow winner = store.get_trial(*row.winner_trial).value();
  const auto spec = spec::trial_spec_from_json(nlohmann::json::parse(winner.spec_json), db);
  const int64_t ns = Table::step_ns(sweep, spec.knobs);
  const double off = static_cast<double>(ns) / static_cast<double>(table.best_ns());
  const std::vector<store::TrialRow> trials = store.list_trials();
  int64_t num_runs = 0;
  for (const store::TrialRow& trial : trials) {
    num_runs += static_cast<int64_t>(store.read_measurements(trial.id).size());
  }
  const bool is_good = off <= kMostOff && seconds <= kMostSeconds;
  fmt::print(
      "{} busy, {}: {:5.1f} s, {} trials, {} measurements; winner {} on the modelled clock, "
      "{:.3f} of the best{}\n    {}\n",
      num_busy, index, seconds, std::ranges::count(trials, "ok", &store::TrialRow::status),
      num_runs, base::format_ns(ns), off, is_good ? "" : "  MISSED", tuner::knobs_key(spec.knobs));
  print_clocks(store, winner.id, sweep.base.hardware);
  std::fflush(stdout);
  return is_good;
}

int run(const Options& options) {
  const std::string sweep_file =
      std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs/quickstart.json";
  const spec::SweepSpec sweep = sweeps::load_sweep(sweep_file).spec;
  const auto start = std::chrono::steady_clock::now();
  const Table table(sweep, options.folder + "/table.json");
  fmt::print("{} configurations in {}/table.json ({:.1f} s), the best {}:\n    {}\n", table.size(),
             options.folder,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
             base::format_ns(table.best_ns()), table.best_knobs());
  std::fflush(stdout);
  int num_missed = 0;
  for (size_t busy = 0; busy < options.counts.size(); ++busy) {
    for (int i = 0; i < options.counts[busy]; ++i) {
      num_missed += !run_one(options, sweep, sweep_file, table, static_cast<int>(busy), i + 1);
    }
  }
  fmt::print("{} missed\n", num_missed);
  return num_missed > 0;
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  moetune::Options options;
  for (int i = 1; i < argc && i <= 3; ++i)
    options.counts[static_cast<size_t>(i - 1)] = std::atoi(argv[i]);
  options.folder = argc > 4 ? argv[4]
                            : (std::filesystem::temp_directory_path() /
                               fmt::format("moetune-quickstart-bench-{}", getpid()))
                                  .string();
  std::filesystem::create_directories(options.folder);
  return moetune::run(options);
}
