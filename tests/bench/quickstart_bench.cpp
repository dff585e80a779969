// Quick starts beside processes that keep the cores busy: does the search still find the best? Each
// winner is looked up in one table that every configuration of the space was played for on the
// modelled clock, and the two clocks are compared operation by operation.
//
// Arguments: how many quick starts beside 0, 1 and 2 busy processes (6 7 7), then a folder for
// databases and the table (a new one in the temporary folder; a table that lies there is used),
// then another sweep than the quick start.
// Ends with 1 when a winner is more than 5 % off the best, a quick start takes longer than 180 s,
// fewer than 20 of its trials end well, or the clocks differ by more than 1.3 for an operation.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/ops.h"
#include "engine/spec/trial_spec.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/load.h"
#include "sweeps/stored_routing.h"
#include "tuner/compiled_step.h"
#include "tuner/cost_model.h"
#include "tuner/memory_model.h"
#include "tuner/search_space.h"

namespace moetune {
namespace {

constexpr double kMostOff = 1.05;
constexpr double kMostSeconds = 180;
constexpr int64_t kFewestTrials = 20;  // that end well
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
/// memory. Rows go where the router of a reference run has sent them in the steps of the long run,
/// which a winner has to be best for: in the few that trials time, routing is less even.
class Table {
 public:
  /// From a file, or, where it is of another sweep, played with the routing that `database` holds
  /// and stored there. The table of another version of the cost model is to be deleted by hand.
  Table(const spec::SweepSpec& sweep, const std::string& path, const std::string& database)
      : sweep_(sweep) {
    const std::string identity = spec::spec_hash(sweep.base) + nlohmann::json(sweep.space).dump() +
                                 fmt::format(" {} steps", sweep.validate_steps);
    nlohmann::json stored = nlohmann::json::object();
    if (std::ifstream file(path); file) stored = nlohmann::json::parse(file);
    const bool is_stored = stored.value("sweep", "") == identity;
    if (!is_stored) {
      stored = {
          {"sweep", identity},
          {"routing", spec::to_json(sweeps::read_stored_routing(database, sweep.base).profile)}};
    }
    rows_ = tuner::ReceivedRows(spec::routing_profile_from_json(stored["routing"]),
                                sweep.base.model, sweep.base.training);
    if (is_stored) {
      steps_ = stored["steps"].get<std::map<std::string, int64_t>>();
    } else {
      play_all();
      stored["steps"] = steps_;
      std::ofstream(path) << stored.dump(0);
    }
    best_ = *std::ranges::min_element(steps_, {}, [](const auto& row) { return row.second; });
  }

  [[nodiscard]] size_t size() const { return steps_.size(); }
  [[nodiscard]] const std::string& best_knobs() const { return best_.first; }
  [[nodiscard]] int64_t best_ns() const { return best_.second; }

  [[nodiscard]] int64_t step_ns(const Knobs& knobs) const {
    spec::TrialSpec trial = trial_of(sweep_, knobs);
    trial.num_steps = sweep_.validate_steps;
    return tuner::play_step(trial, {}, rows_).step_ns;
  }

 private:
  void play_all() {
    const tuner::SearchSpace space(sweep_);
    // All axes but recomputation and the chunks of the loss, which are gone through below.
    std::vector<std::string_view> axes;
    for (const auto& [knob, values] : sweep_.space) {
      if (knob != "recompute" && knob != "linear_ce_chunk_tokens") axes.push_back(knob);
    }
    const std::vector<Knobs> points = space.product(sweep_.base.knobs, axes);
    const std::vector<std::string> ladder = tuner::by_recompute_weight(space.values("recompute"));
    for (const Knobs& point : points) {
      for (const std::string& chunk : space.values("linear_ce_chunk_tokens")) {
        // The least recomputation that fits is the fastest: it only adds work.
        for (const std::string& recompute : ladder) {
          const Knobs knobs = space.with(space.with(point, "linear_ce_chunk_tokens", chunk),
                                         "recompute", recompute);
          if (!space.check(knobs).empty() || !fits(knobs)) continue;
          steps_[tuner::knobs_key(knobs)] = step_ns(knobs);
          break;
        }
      }
    }
  }

  [[nodiscard]] bool fits(const Knobs& knobs) const {
    const auto limit =
        static_cast<double>(sweep_.base.hardware.memory_bytes) * (1.0 - sweep_.memory_margin_ratio);
    const auto peak = tuner::estimate_memory(trial_of(sweep_, knobs), rows_);
    return static_cast<double>(peak.peak_bytes) <= limit;
  }

  const spec::SweepSpec& sweep_;
  tuner::ReceivedRows rows_;
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

/// Measured over modelled time of one operation in one winner after the other.
struct ClockRatios {
  std::vector<double> ratios;
  double largest_share = 0;  ///< of the operations of a winner
};
using Clocks = std::map<std::string, ClockRatios>;

/// Adds a winner's operations, of those that are worth a look. Durations are freed of what the
/// probe tells of the machine, as the trial's step is.
void add_clocks(const store::Store& store, int64_t trial_id, const spec::TrialSpec& spec,
                Clocks& clocks) {
  struct Sum {
    double measured_ns = 0;
    double modelled_ns = 0;
  };
  std::map<std::string, Sum> sums;
  double all_ns = 0;
  const std::map<std::string, double> row_flops = tuner::CompiledStep(spec).row_flops();
  for (const store::OpRow& op : store.read_ops(trial_id)) {
    // Communication takes what the links do, on both clocks, and no file has a rate of the host.
    const plan::OpRow* row = plan::find_op_label(op.name);
    if (row == nullptr || op.count == 0 || op.flops + op.bytes == 0) continue;
    if (row->kind == plan::OpKind::collective || row->kind == plan::OpKind::p2p ||
        row->kind == plan::OpKind::host) {
      continue;
    }
    Sum& sum = sums[op.name];
    sum.measured_ns += static_cast<double>(op.duration_ns);
    sum.modelled_ns +=
        static_cast<double>(op.count * plan::roofline_ns(spec.hardware, row->id,
                                                         {op.flops / op.count, op.bytes / op.count,
                                                          std::llround(row_flops.at(op.name))}));
    all_ns += static_cast<double>(op.duration_ns);
  }
  double slowness = 1;
  for (const store::MetricRow& metric : store.read_metrics(trial_id)) {
    if (metric.name == "machine_slowness_ratio") slowness = metric.value;
  }
  for (const auto& [name, sum] : sums) {
    if (sum.measured_ns < kSmallestShare * all_ns || sum.modelled_ns <= 0) continue;
    ClockRatios& op = clocks[name];
    op.ratios.push_back(sum.measured_ns / sum.modelled_ns / slowness);
    op.largest_share = std::max(op.largest_share, sum.measured_ns / all_ns);
  }
}

/// Returns how many operations are off.
int print_clocks(Clocks clocks) {
  int num_off = 0;
  fmt::print("the two clocks by operation: largest share, measured over modelled time\n");
  for (auto& [name, op] : clocks) {
    std::ranges::sort(op.ratios);
    const double median = op.ratios[op.ratios.size() / 2];
    const bool is_off = median > kClocksOff || median < 1 / kClocksOff;
    num_off += is_off;
    fmt::print("    {:28} {:5.1f} %  median {:4.2f}, {:4.2f} to {:4.2f} in {} winners{}\n", name,
               100 * op.largest_share, median, op.ratios.front(), op.ratios.back(),
               op.ratios.size(), is_off ? "  OFF" : "");
  }
  return num_off;
}

struct Options {
  std::vector<int> counts = {6, 7, 7};
  std::string folder;
  std::string sweep_file = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs/quickstart.json";
};

/// The sweep once, into a new database; its seconds, none when it failed.
std::optional<double> run_sweep(const Options& options, const std::string& db, int num_busy) {
  std::filesystem::remove(db);
  const BusyProcesses busy(num_busy);
  const auto start = std::chrono::steady_clock::now();
  const std::string command =
      fmt::format("'{}/moetune' sweep '{}' --db '{}' --quiet > '{}.out' 2>&1", MOETUNE_BIN_DIR,
                  options.sweep_file, db, db);
  if (const int code = std::system(command.c_str()); code != 0) {
    fmt::print("{}: ended with {}; see {}.out\n", db, code, db);
    return std::nullopt;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// True when it is as good and as fast as is asked for, by as many trials.
bool judge(const Table& table, const std::string& db, double seconds, Clocks& clocks) {
  const store::Store store = store::Store::open_read_only(db);
  const store::SweepRow row = store.read_sweep(1).value();
  if (!row.winner_trial) {
    fmt::print("{}: no winner\n", db);
    return false;
  }
  const store::TrialRow winner = store.get_trial(*row.winner_trial).value();
  const auto spec = spec::trial_spec_from_json(nlohmann::json::parse(winner.spec_json), db);
  const int64_t ns = table.step_ns(spec.knobs);
  const double off = static_cast<double>(ns) / static_cast<double>(table.best_ns());
  const std::vector<store::TrialRow> trials = store.list_trials();
  int64_t num_runs = 0;
  for (const store::TrialRow& trial : trials) {
    num_runs += static_cast<int64_t>(store.read_measurements(trial.id).size());
  }
  const auto num_ok = std::ranges::count(trials, "ok", &store::TrialRow::status);
  const bool is_good = off <= kMostOff && seconds <= kMostSeconds && num_ok >= kFewestTrials;
  fmt::print(
      "{}: {:5.1f} s, {} trials, {} measurements; winner {} on the modelled clock, {:.3f} of the "
      "best{}\n    {}\n",
      std::filesystem::path(db).stem().string(), seconds, num_ok, num_runs, base::format_ns(ns),
      off, is_good ? "" : "  MISSED", tuner::knobs_key(spec.knobs));
  add_clocks(store, winner.id, spec, clocks);
  std::fflush(stdout);
  return is_good;
}

int run(const Options& options) {
  const spec::SweepSpec sweep = sweeps::load_sweep(options.sweep_file).spec;
  std::optional<Table> table;
  Clocks clocks;
  int num_missed = 0;
  for (size_t busy = 0; busy < options.counts.size(); ++busy) {
    for (int i = 0; i < options.counts[busy]; ++i) {
      const std::string db = fmt::format("{}/beside-{}-{}.db", options.folder, busy, i + 1);
      const std::optional<double> seconds = run_sweep(options, db, static_cast<int>(busy));
      if (seconds && !table) {
        // The first sweep's reference run tells where the rows go.
        const std::string path = options.folder + "/table.json";
        table.emplace(sweep, path, db);
        fmt::print("{} configurations in {}, the best {}:\n    {}\n", table->size(), path,
                   base::format_ns(table->best_ns()), table->best_knobs());
      }
      num_missed += !seconds || !judge(*table, db, *seconds, clocks);
    }
  }
  num_missed += print_clocks(clocks);
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
  if (argc > 5) options.sweep_file = argv[5];
  std::filesystem::create_directories(options.folder);
  return moetune::run(options);
}
