#include "tuner/played_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tuner/stats/robust_ops.h"

namespace moetune::tuner {
namespace {

using plan::Instr;
using plan::Verb;

/// More steps than this tell no more of the durations.
constexpr size_t kMostEstimatedSteps = 24;

bool has_duration(const Instr& instr) { return instr.verb == Verb::op || instr.verb == Verb::host; }

/// The routes of one step of a rank, from what was recorded.
class RecordedBindings final : public plan::Bindings {
 public:
  RecordedBindings(const plan::StepProgram& program, const MeasuredStep& step) {
    auto rows = step.routed_rows.begin();
    plan::for_each(program, [&](const plan::Item& item, const plan::Segment& segment,
                                const Instr& instr) {
      const auto place = std::pair(int64_t{item.layer}, int64_t{item.micro_batch});
      if (segment.dims.is_moe && segment.dims.expert_ranks == 1 && !routes_.contains(place)) {
        routes_[place] = plan::local_route(segment.dims);
      }
      if (instr.verb != Verb::host || instr.op != plan::Op::finish_route) return;
      const plan::LayerDims& dims = segment.dims;
      const int64_t num_rows = 2 * dims.expert_ranks * (dims.chunks_forward + dims.chunks_backward);
      MOETUNE_CHECK(step.routed_rows.end() - rows >= num_rows,
                    "rank {}, step {}: {} routed rows are too few for its program", step.rank,
                    step.step, step.routed_rows.size());
      routes_[place] = route_of(dims, rows);
    });
    MOETUNE_CHECK(rows == step.routed_rows.end(),
                  "rank {}, step {}: {} routed rows are too many for its program", step.rank,
                  step.step, step.routed_rows.size());
  }

  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override {
    const auto found = routes_.find({layer, micro_batch});
    MOETUNE_CHECK(found != routes_.end(), "no route of layer {}, micro-batch {} was recorded",
                  layer, micro_batch);
    return found->second;
  }

 private:
  using Rows = std::vector<int64_t>::const_iterator;

  static plan::Route route_of(const plan::LayerDims& dims, Rows& rows) {
    plan::Route route;
    const auto take = [&](std::vector<int64_t>& peers, int64_t& sum) {
      peers.assign(rows, rows + dims.expert_ranks);
      rows += dims.expert_ranks;
      for (const int64_t count : peers) sum += count;
    };
    route.forward.resize(static_cast<size_t>(dims.chunks_forward));
    route.backward.resize(static_cast<size_t>(dims.chunks_backward));
    for (auto* direction : {&route.forward, &route.backward}) {
      for (plan::ChunkRoute& chunk : *direction) {
        take(chunk.send_rows, chunk.num_sent);
        take(chunk.recv_rows, chunk.num_received);
      }
    }
    for (const plan::ChunkRoute& chunk : route.forward) route.num_received += chunk.num_received;
    return route;
  }

  std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

/// One instruction of a rank's program with a duration.
struct Launch {
  size_t item = 0;
  size_t instr = 0;
  size_t op_class = 0;
  const Instr* code = nullptr;
  bool is_backward = false;
  int64_t layer = -1;
  int64_t micro_batch = -1;

  [[nodiscard]] double rows(const plan::Bindings& bindings) const {
    if (!code->is_routed) return 0;
    return static_cast<double>(bindings.at(layer, micro_batch).received(is_backward, code->chunk));
  }
};

/// The programs of all ranks, their launches, and the classes of alike ones.
class Programs {
 public:
  explicit Programs(const spec::TrialSpec& trial) {
    const int world_size = plan::layout_of(trial.knobs).world_size();
    std::map<OpClass, size_t> known;
    for (int rank = 0; rank < world_size; ++rank) {
      programs_.push_back(plan::compile(trial, rank));
      const plan::StepProgram& program = programs_.back();
      std::vector<Launch>& launches = launches_.emplace_back();
      for (size_t item = 0; item < program.items.size(); ++item) {
        const plan::Item& at = program.items[item];
        const plan::Segment& segment = *program.segments[static_cast<size_t>(at.segment)];
        for (size_t i = 0; i < segment.code.size(); ++i) {
          const Instr& instr = segment.code[i];
          if (!has_duration(instr)) continue;
          const OpClass op = class_of(instr, plan::sharing_of(program, at, i).num_collectives);
          const size_t index = known.try_emplace(op, classes_.size()).first->second;
          if (index == classes_.size()) classes_.push_back(op);
          launches.push_back(
              {item, i, index, &instr, segment.is_backward, at.layer, at.micro_batch});
        }
      }
    }
  }

  [[nodiscard]] size_t num_ranks() const { return programs_.size(); }
  [[nodiscard]] const plan::StepProgram& program(size_t rank) const { return programs_[rank]; }
  [[nodiscard]] const std::vector<Launch>& launches(size_t rank) const { return launches_[rank]; }
  [[nodiscard]] const OpClass& op_class(size_t index) const { return classes_[index]; }
  [[nodiscard]] size_t num_classes() const { return classes_.size(); }

 private:
  /// Beside collectives an operation has fewer multiprocessors.
  static OpClass class_of(const Instr& instr, int num_collectives) {
    return {plan::op_label(instr.op, instr.pass),
            fmt::format("{} FLOPs, {} bytes; {} and {} a row{}; beside {}", instr.cost.flops,
                        instr.cost.bytes, instr.cost_per_row.flops, instr.cost_per_row.bytes,
                        instr.accumulate ? "; adds" : "", num_collectives)};
  }

  std::vector<plan::StepProgram> programs_;
  std::vector<std::vector<Launch>> launches_;  ///< by rank
  std::vector<OpClass> classes_;
};

/// One step of all ranks.
struct WorldStep {
  std::vector<const MeasuredStep*> ranks;
  std::vector<RecordedBindings> bindings;
};

std::vector<WorldStep> world_steps(const Programs& programs,
                                   const std::vector<MeasuredStep>& steps) {
  std::map<int64_t, WorldStep> by_step;
  for (const MeasuredStep& step : steps) {
    const auto rank = static_cast<size_t>(step.rank);
    MOETUNE_CHECK(step.rank >= 0 && rank < programs.num_ranks(), "a step of rank {} of {}",
                  step.rank, programs.num_ranks());
    WorldStep& world = by_step[step.step];
    world.ranks.resize(programs.num_ranks());
    MOETUNE_CHECK(world.ranks[rank] == nullptr, "step {} of rank {} twice", step.step, step.rank);
    MOETUNE_CHECK(step.durations_ns.size() == programs.launches(rank).size(),
                  "rank {}, step {}: {} durations for a program of {} launches", step.rank,
                  step.step, step.durations_ns.size(), programs.launches(rank).size());
    world.ranks[rank] = &step;
  }
  std::vector<WorldStep> worlds;
  for (auto& [step, world] : by_step) {
    for (size_t rank = 0; rank < world.ranks.size(); ++rank) {
      MOETUNE_CHECK(world.ranks[rank] != nullptr, "step {} of rank {} is missing", step, rank);
      world.bindings.emplace_back(programs.program(rank), *world.ranks[rank]);
    }
    worlds.push_back(std::move(world));
  }
  MOETUNE_CHECK(!worlds.empty(), "a trial without steps");
  return worlds;
}

std::vector<OpSample> samples_of(const Programs& programs, const std::vector<WorldStep>& worlds) {
  std::vector<OpSample> samples;
  const size_t stride = (worlds.size() + kMostEstimatedSteps - 1) / kMostEstimatedSteps;
  for (size_t w = 0; w < worlds.size(); w += stride) {
    const WorldStep& world = worlds[w];
    for (size_t rank = 0; rank < world.ranks.size(); ++rank) {
      const std::vector<Launch>& launches = programs.launches(rank);
      for (size_t i = 0; i < launches.size(); ++i) {
        samples.push_back({programs.op_class(launches[i].op_class), static_cast<int>(w),
                           static_cast<int>(rank), launches[i].rows(world.bindings[rank]),
                           static_cast<double>(world.ranks[rank]->durations_ns[i])});
      }
    }
  }
  return samples;
}

/// Durations of one rank's launches, by their places in its program.
class Durations {
 public:
  Durations(const Programs& programs, const std::vector<std::vector<int64_t>>& by_rank) {
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      const std::vector<Launch>& launches = programs.launches(rank);
      auto& own = by_place_.emplace_back(programs.program(rank).items.size());
      for (size_t i = 0; i < launches.size(); ++i) {
        auto& of_item = own[launches[i].item];
        if (of_item.size() <= launches[i].instr) of_item.resize(launches[i].instr + 1);
        of_item[launches[i].instr] = by_rank[rank][i];
      }
    }
  }
  [[nodiscard]] int64_t at(const plan::Position& at) const {
    return by_place_[static_cast<size_t>(at.rank)][at.item][at.instr];
  }

 private:
  std::vector<std::vector<std::vector<int64_t>>> by_place_;  ///< rank, item, instruction
};

int64_t play(const spec::TrialSpec& trial, const Programs& programs, const WorldStep& world,
             const std::vector<std::vector<int64_t>>& by_rank) {
  const Durations durations(programs, by_rank);
  std::vector<plan::PlayedRank> ranks;
  for (size_t rank = 0; rank < programs.num_ranks(); ++rank) {
    ranks.push_back({&programs.program(rank), &world.bindings[rank]});
  }
  return plan::play(trial.hardware, ranks,
                    [&](const plan::Position& at, const Instr&, const plan::OpCost&) {
                      return durations.at(at);
                    })
      .step_ns;
}

/// Robust durations of a step, and how far off they may be.
struct RobustStep {
  std::vector<std::vector<int64_t>> by_rank;
  double error_ns = 0;  ///< half an interval of 95 %, of the rank where it is widest
};

RobustStep robust_step(const Programs& programs, const WorldStep& world, const RobustOps& ops) {
  RobustStep step;
  for (size_t rank = 0; rank < world.ranks.size(); ++rank) {
    const std::vector<Launch>& launches = programs.launches(rank);
    std::vector<int64_t>& own = step.by_rank.emplace_back();
    // One estimate is right or wrong for all that are alike; different ones err independently.
    std::vector<double> errors(programs.num_classes());
    for (const Launch& launch : launches) {
      const OpDuration duration =
          ops.duration(programs.op_class(launch.op_class), launch.rows(world.bindings[rank]))
              .value();
      own.push_back(std::llround(duration.ns));
      errors[launch.op_class] += (duration.high_ns - duration.low_ns) / 2;
    }
    double squares = 0;
    for (const double error : errors) squares += error * error;
    step.error_ns = std::max(step.error_ns, std::sqrt(squares));
  }
  return step;
}

std::vector<ProbeSample> probes_of(const std::vector<WorldStep>& worlds) {
  std::vector<ProbeSample> probes;
  for (const WorldStep& world : worlds) {
    for (const MeasuredStep* step : world.ranks) {
      for (const int64_t ns : step->probe_ns) {
        if (ns <= 0) continue;
        // One rank runs it too rarely in a step for a median of its own.
        probes.push_back({static_cast<int>(step->step), 0, static_cast<double>(ns)});
      }
    }
  }
  return probes;
}

/// A probe is as noisy as anything else: as far as it is unsure of itself, the machine counts as it
/// usually is. As a normal prior of the logarithm, around none, with this deviation.
MachineSpeed believed(const MachineSpeed& speed) {
  constexpr double kUsualDeviation = 0.1;
  const double error = std::log(speed.high / speed.low) / (2 * profiler::kNormal95);
  const double weight =
      kUsualDeviation * kUsualDeviation / (kUsualDeviation * kUsualDeviation + error * error);
  const double log_slowness = weight * std::log(speed.slowness);
  const double reach = profiler::kNormal95 * error * std::sqrt(weight);
  return {std::exp(log_slowness), std::exp(log_slowness - reach), std::exp(log_slowness + reach)};
}

double median_of(const std::vector<ProbeSample>& probes) {
  std::vector<double> values;
  for (const ProbeSample& probe : probes) values.push_back(probe.duration_ns);
  return values.empty() ? 0 : profiler::median(std::move(values));
}

}  // namespace

PlayedTrial play_trial(const spec::TrialSpec& trial, const std::vector<MeasuredStep>& steps,
                       double usual_probe_ns) {
  const Programs programs(trial);
  const std::vector<WorldStep> worlds = world_steps(programs, steps);
  const std::vector<ProbeSample> probes = probes_of(worlds);
  const MachineSpeed speed =
      usual_probe_ns > 0 ? believed(machine_speed(probes, usual_probe_ns)) : MachineSpeed{};
  // How fast the machine was is one number for all operations: its error is added at the end.
  const RobustOps ops(samples_of(programs, worlds),
                      {speed.slowness, speed.slowness, speed.slowness});

  PlayedTrial result;
  double error_ns = 0;
  std::vector<double> played;
  for (const WorldStep& world : worlds) {
    std::vector<std::vector<int64_t>> own;
    for (const MeasuredStep* step : world.ranks) own.push_back(step->durations_ns);
    result.measured_ns.push_back(play(trial, programs, world, own));
    const RobustStep robust = robust_step(programs, world, ops);
    error_ns = std::max(error_ns, robust.error_ns);
    result.played_ns.push_back(play(trial, programs, world, robust.by_rank));
    played.push_back(static_cast<double>(result.played_ns.back()));
  }
  const profiler::MedianInterval middle = profiler::median_interval(std::move(played));
  // What the links and launches take does not follow the machine: no more than this does.
  const double below = middle.median * (1 - speed.slowness / speed.high);
  const double above = middle.median * (speed.slowness / speed.low - 1);
  result.step_ns = std::llround(middle.median);
  result.low_ns = std::llround(
      std::max(0.0, middle.median - std::hypot(error_ns, below, middle.median - middle.low)));
  result.high_ns =
      std::llround(middle.median + std::hypot(error_ns, above, middle.high - middle.median));
  result.probe_ns = std::llround(median_of(probes));
  result.slowness = speed.slowness;
  result.num_classes = static_cast<int64_t>(ops.num_classes());
  return result;
}

}  // namespace moetune::tuner
