// How many live trials a search needs on spaces of which every point is known. The clusters are
// emulated: each point is played on hardware that is *not* the one that the search is told of, so
// that its predictions are wrong in ways that trials can teach, and in two worlds in ways that they
// can hardly.
//
// Compared are the workflow without a prediction of time, with the analytic one, with the one that
// trials calibrate, and random search. Trials that run out of memory count; points that break a
// rule do not, as anybody can check them. A folder as argument receives the tables for
// tests/bench/optuna_search.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/spec/routing_profile.h"
#include "kernels/base/units.h"
#include "sweeps/load.h"
#include "tests/tuner/fake_world.h"
#include "tests/tuner/played_world.h"
#include "tuner/compiled_step.h"
#include "tuner/cost_model.h"
#include "tuner/memory_model.h"
#include "tuner/search_space.h"
#include "tuner/strategies/three_walls.h"

namespace moetune {
namespace {

using spec::Knobs;
using tuner::TimePredictor;

constexpr double kGoodEnough = 1.02;  // over the best point
constexpr int kRandomSearches = 200;
constexpr int64_t kProfileSteps = 16;  // more than any trial runs

/// A space, what the search is told of its cluster, and what the cluster is.
struct World {
  std::string name;
  spec::SweepSpec sweep;
  spec::HardwareSpec truth;
  /// Hidden, on top: what a step takes longer than it is played.
  double (*burden)(const Knobs&) = nullptr;
};

/// What is known of one point: its step where it fits.
struct PointResult {
  int64_t peak_bytes = 0;
  int64_t step_ns = 0;
  bool fits = false;
};

class Cluster {
 public:
  explicit Cluster(const World& world)
      : world_(world),
        profile_(tuner::testing::balanced_profile(world.sweep.base.model, world.sweep.base.training,
                                                  kProfileSteps)),
        rows_(profile_, world.sweep.base.model, world.sweep.base.training) {}

  [[nodiscard]] const PointResult& at(const Knobs& knobs) {
    const auto [place, is_new] = points_.try_emplace(tuner::knobs_key(knobs));
    if (is_new) {
      spec::TrialSpec trial = world_.sweep.base;
      trial.knobs = knobs;
      trial.num_steps = world_.sweep.validate_steps;
      PointResult& point = place->second;
      const int64_t capacity = trial.hardware.memory_bytes;
      const tuner::CompiledStep compiled(trial, rows_);
      point.peak_bytes = tuner::estimate_memory(trial, compiled, rows_).peak_bytes;
      point.fits = capacity == 0 || point.peak_bytes <= capacity;
      if (point.fits)
        point.step_ns = burdened(tuner::play_step(truth_of(knobs), compiled, {}).step_ns, knobs);
    }
    return place->second;
  }

  /// What a search is told.
  tuner::TrialOutcome run(const tuner::TrialRequest& request) {
    tuner::TrialOutcome outcome;
    const Knobs& knobs = request.spec.knobs;
    if (request.action != tuner::Action::run) {
      outcome.status = request.action == tuner::Action::invalid ? spec::TrialStatus::invalid
                                                                : spec::TrialStatus::pruned;
      outcome.reason = request.reason;
      return outcome;
    }
    for (int64_t i = 0; i < spec::total_steps(request.spec); ++i) {
      outcome.losses.push_back(3.0 - 0.01 * static_cast<double>(i));
    }
    if (request.is_reference) {
      outcome.status = spec::TrialStatus::ok;
      outcome.step_ns = 1'000'000'000;
      outcome.routing_profile = to_json(profile_).dump();
      return outcome;
    }
    const PointResult& point = at(knobs);
    outcome.peak_bytes = point.peak_bytes;
    if (!point.fits) {
      outcome.status = spec::TrialStatus::oom;
      outcome.reason = "out of memory";
      outcome.wall = base::Wall::memory;
      return outcome;
    }
    const spec::TrialSpec truth = truth_of(knobs);
    tuner::testing::tell_played_step(truth, tuner::CompiledStep(truth, rows_), outcome);
    outcome.step_ns = outcome.step_low_ns = outcome.step_high_ns = point.step_ns;
    return outcome;
  }

 private:
  [[nodiscard]] spec::TrialSpec truth_of(const Knobs& knobs) const {
    spec::TrialSpec trial = world_.sweep.base;
    trial.hardware = world_.truth;
    trial.knobs = knobs;
    return trial;
  }
  [[nodiscard]] int64_t burdened(int64_t ns, const Knobs& knobs) const {
    return world_.burden == nullptr ? ns
                                    : std::llround(static_cast<double>(ns) * world_.burden(knobs));
  }

  const World& world_;
  spec::RoutingProfile profile_;
  tuner::ReceivedRows rows_;
  std::map<std::string, PointResult> points_;
};

/// All legal points, and the best step among those that fit.
struct Table {
  std::vector<Knobs> points;
  int64_t num_fit = 0;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  std::string best;
};

Table table_of(const World& world, Cluster& cluster) {
  const tuner::SearchSpace space(world.sweep);
  Table table;
  for (const Knobs& knobs : space.all()) {
    if (!space.check(knobs).empty()) continue;
    table.points.push_back(knobs);
    const PointResult& point = cluster.at(knobs);
    if (!point.fits) continue;
    ++table.num_fit;
    if (point.step_ns < table.best_ns) {
      table.best_ns = point.step_ns;
      table.best = tuner::knobs_key(knobs);
    }
  }
  return table;
}

struct SearchResult {
  int64_t num_good = 0;  ///< live trials up to the first good enough; 0: none was
  int64_t num_all = 0;   ///< live trials, repeats and the validation too
  double winner = 0;     ///< its step over the best
};

SearchResult search(const World& world, Cluster& cluster, const Table& table,
                    TimePredictor predictor) {
  tuner::ThreeWalls strategy(world.sweep, predictor);
  SearchResult result;
  std::map<std::string, int64_t> steps;
  while (const std::optional<tuner::TrialRequest> request = strategy.ask()) {
    const tuner::TrialOutcome outcome = cluster.run(*request);
    strategy.tell(*request, outcome);
    if (request->action != tuner::Action::run || request->is_reference) continue;
    ++result.num_all;
    if (outcome.status != spec::TrialStatus::ok) continue;
    steps[request->hash] = outcome.step_ns;
    const double ratio = static_cast<double>(outcome.step_ns) / static_cast<double>(table.best_ns);
    if (ratio <= kGoodEnough && result.num_good == 0) result.num_good = result.num_all;
  }
  const auto winner = steps.find(strategy.best_hash());
  if (winner != steps.end()) {
    result.winner = static_cast<double>(winner->second) / static_cast<double>(table.best_ns);
  }
  return result;
}

std::vector<double> random_searches(Cluster& cluster, const Table& table) {
  std::vector<double> trials;
  std::mt19937 random(1);
  std::vector<size_t> order(table.points.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int search = 0; search < kRandomSearches; ++search) {
    std::ranges::shuffle(order, random);
    const auto found = std::ranges::find_if(order, [&](size_t i) {
      const PointResult& point = cluster.at(table.points[i]);
      return point.fits &&
             static_cast<double>(point.step_ns) <= kGoodEnough * static_cast<double>(table.best_ns);
    });
    trials.push_back(static_cast<double>(found - order.begin() + 1));
  }
  return trials;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  return values[std::min(at, values.size() - 1)];
}

/// The axes as lists of texts, and each legal point as its places on them with its step.
void write_table(const std::string& folder, const World& world, Cluster& cluster,
                 const Table& table) {
  nlohmann::json document = {{"axes", world.sweep.space}, {"points", nlohmann::json::array()}};
  for (const Knobs& knobs : table.points) {
    nlohmann::json values = nlohmann::json::array();
    for (const auto& [knob, axis] : world.sweep.space) {
      values.push_back(spec::get_knob(knobs, *spec::find_knob(knob)));
    }
    const PointResult& point = cluster.at(knobs);
    document["points"].push_back(
        {values, point.fits ? nlohmann::json(point.step_ns) : nlohmann::json()});
  }
  std::ofstream(fmt::format("{}/{}.json", folder, world.name)) << document.dump();
}

/// The hardware as it is, where its makers' figures are off: each kind of kernel, link and latency
/// by a factor of its own, log-normal.
spec::HardwareSpec disturbed(spec::HardwareSpec hardware, unsigned seed, double sigma) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> factor(0, sigma);
  for (double& efficiency : hardware.efficiency)
    efficiency = std::min(1.0, efficiency * factor(random));
  const auto scaled = [&](int64_t ns) {
    return std::llround(static_cast<double>(ns) * factor(random));
  };
  hardware.launch_ns = scaled(hardware.launch_ns);
  hardware.graph_launch_ns = scaled(hardware.graph_launch_ns);
  hardware.sync_ns = scaled(hardware.sync_ns);
  for (spec::LinkSpec* link : {&hardware.intra_node, &hardware.inter_node}) {
    link->latency_ns = scaled(link->latency_ns);
    link->bytes_per_s *= factor(random);
  }
  return hardware;
}

std::vector<World> worlds() {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs/";
  const auto sweep_of = [&](const std::string& file) {
    spec::SweepSpec sweep = sweeps::load_sweep(folder + file).spec;
    sweep.base.clock = spec::ClockMode::virtual_modelled;
    sweep.validate_max_loss = 0;
    // Rows are balanced here, so that steps are alike; fewer values than the file has, so that
    // every point can be played.
    sweep.base.num_steps = 2;
    sweep.base.num_traced_steps = 1;
    sweep.validate_steps = 4;
    sweep.budget.min_trials = 0;
    sweep.space["linear_ce_chunk_tokens"] = {"256"};
    sweep.space["ep_chunks_backward"] = {"1"};
    sweep.space["ep_chunks_forward"] = {"1", "2"};
    sweep.space["recompute"] = {"none", "moe_act", "norm,core_attn,moe_act", "full"};
    sweep.space["cuda_graph_modules"] = {"none", "attn,moe_router"};
    sweep.space["use_distributed_optimizer"] = {"true"};
    sweep.base.knobs.use_distributed_optimizer = true;
    return sweep;
  };
  std::vector<World> all;
  constexpr double kUsual = 0.25;
  const auto add = [&](const std::string& name, const spec::SweepSpec& sweep, double sigma) {
    const auto seed = static_cast<unsigned>(all.size() + 1);
    all.push_back({name, sweep, disturbed(sweep.base.hardware, seed, sigma)});
  };
  const spec::SweepSpec quick = sweep_of("quickstart.json");
  const spec::SweepSpec experts = sweep_of("many-experts.json");
  add("quickstart", quick, kUsual);
  add("many-experts", experts, kUsual);
  spec::SweepSpec tight = quick;
  tight.base.hardware.memory_bytes = tight.base.hardware.memory_bytes * 3 / 4;
  add("little-memory", tight, kUsual);
  spec::SweepSpec slow_host = quick;
  slow_host.base.hardware.launch_ns *= 8;
  slow_host.base.hardware.graph_launch_ns *= 4;
  add("slow-host", slow_host, kUsual);
  spec::SweepSpec one_node = experts;
  one_node.base.hardware.num_nodes = 1;
  one_node.base.hardware.devices_per_node = 8;
  add("one-node", one_node, kUsual);
  spec::SweepSpec four_nodes = quick;
  four_nodes.base.hardware.num_nodes = 4;
  four_nodes.base.hardware.devices_per_node = 2;
  add("four-nodes", four_nodes, kUsual);
  // The file promises links between nodes that are six times as fast, and a host that is four times
  // as fast.
  add("adversarial-links", experts, kUsual);
  all.back().truth.inter_node.bytes_per_s /= 6;
  all.back().truth.launch_ns *= 4;
  // What no part of the model knows: pipelines and chunks are slow here.
  add("adversarial-pipeline", quick, kUsual);
  all.back().burden = [](const Knobs& k) {
    return 1.0 + 0.15 * static_cast<double>(k.pipeline_model_parallel_size - 1) +
           0.1 * static_cast<double>(k.overlap_grad_reduce);
  };
  return all;
}

void print_row(const char* name, const std::vector<double>& trials,
               const std::vector<double>& winners) {
  const auto in_time = [](double count) {
    return std::isfinite(count) ? fmt::format("{:.0f}", count) : std::string("never");
  };
  fmt::print("{:24} {:>8} {:>8}", name, in_time(quantile(trials, 0.5)),
             in_time(quantile(trials, 0.9)));
  if (!winners.empty()) {
    fmt::print("   {:.3f}, worst {:.3f}", quantile(winners, 0.5), quantile(winners, 1.0));
  }
  fmt::print("\n");
}

int run(const std::string& folder) {
  struct Mode {
    const char* name;
    TimePredictor predictor;
    std::vector<double> trials, winners;
  };
  Mode modes[] = {{"no prediction of time", TimePredictor::none, {}, {}},
                  {"analytic", TimePredictor::analytic, {}, {}},
                  {"calibrated by trials", TimePredictor::calibrated, {}, {}}};
  std::vector<double> random;
  for (const World& world : worlds()) {
    Cluster cluster(world);
    const Table table = table_of(world, cluster);
    fmt::print("{}: {} legal points, {} fit, the best {}\n    {}\n", world.name,
               table.points.size(), table.num_fit, base::format_ns(table.best_ns), table.best);
    if (!folder.empty()) write_table(folder, world, cluster, table);
    for (Mode& mode : modes) {
      const SearchResult result = search(world, cluster, table, mode.predictor);
      mode.trials.push_back(result.num_good > 0 ? static_cast<double>(result.num_good)
                                                : std::numeric_limits<double>::infinity());
      mode.winners.push_back(result.winner);
      fmt::print(
          "    {:24} good enough after {:3} of {:3} live trials, winner {:.3f} of the best\n",
          mode.name, result.num_good, result.num_all, result.winner);
    }
    const std::vector<double> searches = random_searches(cluster, table);
    fmt::print("    {:24} {:.0f} in the median, {:.0f} in nine of ten\n", "random search",
               quantile(searches, 0.5), quantile(searches, 0.9));
    random.insert(random.end(), searches.begin(), searches.end());
    std::fflush(stdout);
  }
  fmt::print("\nlive trials to within 2 % of the best; winner over the best, median and worst\n");
  fmt::print("{:24} {:>8} {:>8}\n", "", "median", "p90");
  for (const Mode& mode : modes) print_row(mode.name, mode.trials, mode.winners);
  print_row("random search", random, {});
  return 0;
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  if (!folder.empty()) std::filesystem::create_directories(folder);
  return moetune::run(folder);
}
