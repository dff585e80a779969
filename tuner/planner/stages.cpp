// Splits by bounds: from the last stage on each takes as many layers as bounds allow, and the
// lowest bounds are looked for with which all layers are taken.
#include "tuner/planner/stages.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "kernels/base/error.h"
#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

namespace {

using LayerCounts = std::vector<int64_t>;

/// Seconds of any stage.
class StageTable {
 public:
  explicit StageTable(const StageParts& parts)
      : end_(parts.end),
        before_(sums_of(parts.layers)),
        kept_before_(sums_of(parts.kept)),
        num_again_(parts.kept.empty() ? num_layers() : parts.num_again) {}
  [[nodiscard]] int64_t num_layers() const { return static_cast<int64_t>(before_.size()) - 1; }
  /// Layers [from, to).
  [[nodiscard]] StageSeconds of(int64_t from, int64_t to, bool is_last) const {
    const int64_t end_again = std::min(to, from + num_again_);
    StageSeconds stage = between(before_, from, end_again);
    if (end_again < to) stage.add(between(kept_before_, end_again, to));
    if (is_last) stage.add(end_);
    return stage;
  }
  /// All stages together take no less, and no more.
  [[nodiscard]] StageSeconds least() const {
    return with_end(num_again_ < num_layers() ? kept_before_.back() : before_.back());
  }
  [[nodiscard]] StageSeconds most() const { return with_end(before_.back()); }

 private:
  using Sums = std::vector<StageSeconds>;  ///< of the first so many layers

  static Sums sums_of(const std::vector<StageSeconds>& layers) {
    Sums sums(1);
    sums.reserve(layers.size() + 1);
    for (const StageSeconds& layer : layers) {
      sums.push_back(sums.back());
      sums.back().add(layer);
    }
    return sums;
  }
  static StageSeconds between(const Sums& sums, int64_t from, int64_t to) {
    StageSeconds seconds = sums[static_cast<size_t>(to)];
    seconds.add(sums[static_cast<size_t>(from)], -1);
    return seconds;
  }

  [[nodiscard]] StageSeconds with_end(StageSeconds seconds) const {
    seconds.add(end_);
    return seconds;
  }

  StageSeconds end_;
  Sums before_;
  Sums kept_before_;
  int64_t num_again_;  ///< of a stage
};

/// What nothing may exceed: of a rank, of a stage and of a stage's layers alone the fourth power of
/// its seconds, of a stage its layers times micro-batches in flight.
enum Bound : size_t { kOfRank, kOfStage, kOfLayers, kInFlight, kNumBounds };
using Limits = std::array<double, kNumBounds>;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

class Splitter {
 public:
  Splitter(const StageParts& parts, int64_t pp, const std::vector<int64_t>& in_flight)
      : table_(parts),
        pp_(static_cast<size_t>(pp)),
        in_flight_(in_flight),
        layers_(in_flight.size()),
        ranks_(pp_) {
    double least = kNoLimit;
    const StageSeconds* before = nullptr;
    for (const StageSeconds& layer : parts.layers) {
      // Most are as long as the one before.
      const bool is_known = before != nullptr && *before == layer;
      before = &layer;
      if (is_known || layer.total() >= least) continue;
      least = layer.total();
      shortest_ = layer;
    }
  }

  [[nodiscard]] LayerCounts best() {
    Limits limits;
    limits.fill(kNoLimit);
    const double of_rank = least_seconds(table_.least().total() / static_cast<double>(pp_),
                                         2 * table_.most().total(), kOfRank, limits);
    if (pp_ < in_flight_.size()) {
      for (const Bound bound : {kOfStage, kOfLayers}) least_seconds(0, of_rank, bound, limits);
    }
    Trials trials(*this, limits, kInFlight);
    int64_t too_few = 0;
    int64_t enough = table_.num_layers() * *std::max_element(in_flight_.begin(), in_flight_.end());
    while (enough - too_few > 1) {
      const int64_t middle = (enough + too_few) / 2;
      (trials.is_enough(static_cast<double>(middle)) ? enough : too_few) = middle;
    }
    limits[kInFlight] = static_cast<double>(enough);
    MOETUNE_CHECK(split(limits, kInFlight).is_enough, "{} layers do not fill {} stages",
                  table_.num_layers(), in_flight_.size());
    return layers_;
  }

 private:
  /// A split, and the limits of one bound that lead to the same: from one on, and below another.
  struct Trial {
    bool is_enough = false;  ///< all layers are taken, and no stage has nothing
    double from = 0;
    double below = kNoLimit;
  };

  /// Limits of one bound, each between the highest that was too low and the lowest that was enough.
  class Trials {
   public:
    Trials(Splitter& splitter, const Limits& limits, Bound bound)
        : splitter_(splitter), limits_(limits), bound_(bound) {}

    /// Most limits lead to a split that is known.
    bool is_enough(double limit) {
      if (limit >= enough_from_) return true;
      if (limit < too_low_below_) return false;
      limits_[bound_] = limit;
      const Trial trial = splitter_.split(limits_, bound_);
      (trial.is_enough ? enough_from_ : too_low_below_) =
          trial.is_enough ? trial.from : trial.below;
      return trial.is_enough;
    }

   private:
    Splitter& splitter_;
    Limits limits_;
    Bound bound_;
    double enough_from_ = kNoLimit;
    double too_low_below_ = 0;
  };

  /// The least seconds that are enough, where `high` is and `low` is not, or hardly. Sets the
  /// limit.
  double least_seconds(double low, double high, Bound bound, Limits& limits) {
    constexpr double kAlike = 1e-5;
    Trials trials(*this, limits, bound);
    while (high - low > kAlike * high) {
      const double middle = (low + high) / 2;
      (trials.is_enough(StageSeconds{middle}.fourth_power()) ? high : low) = middle;
    }
    limits[bound] = StageSeconds{high}.fourth_power();
    return high;
  }

  /// Leaves the layers in `layers_`. Limits of `varied` are what others are found for.
  Trial split(const Limits& limits, Bound varied) {
    Trial trial;
    std::ranges::fill(ranks_, StageSeconds{});
    int64_t to = table_.num_layers();
    size_t round = layers_.size() / pp_;
    size_t rank = layers_.size() % pp_;
    for (size_t stage = layers_.size(); stage-- > 0;) {
      if (rank == 0) {
        rank = pp_;
        --round;
      }
      --rank;
      const bool is_last = stage + 1 == layers_.size();
      StageSeconds before = ranks_[rank];
      // A layer of each stage that the rank has before this one.
      before.add(shortest_, static_cast<double>(round));
      const auto fits = [&](int64_t from) {
        const StageSeconds seconds = table_.of(from, to, is_last);
        StageSeconds with = before;
        with.add(seconds);
        const double of_stage = seconds.fourth_power();
        const double of_layers = is_last ? table_.of(from, to, false).fourth_power() : of_stage;
        const Limits values = {with.fourth_power(), of_stage, of_layers,
                               static_cast<double>((to - from) * in_flight_[stage])};
        bool is_within_others = true;
        for (size_t bound = 0; bound < kNumBounds; ++bound) {
          if (bound != varied) is_within_others &= values[bound] <= limits[bound];
        }
        // With other limits it may not fit, either.
        if (!is_within_others) return false;
        const double value = values[varied];
        const bool is_within = value <= limits[varied];
        if (is_within) {
          trial.from = std::max(trial.from, value);
        } else {
          trial.below = std::min(trial.below, value);
        }
        return is_within;
      };
      // Each stage before has a layer.
      const auto least = static_cast<int64_t>(stage);
      int64_t from = is_last ? to : to - 1;
      if (from < least || !fits(from)) return trial;
      while (from > least && fits(from - 1)) --from;
      layers_[stage] = to - from;
      ranks_[rank].add(table_.of(from, to, is_last));
      to = from;
    }
    trial.is_enough = to == 0;
    return trial;
  }

  StageTable table_;
  size_t pp_;
  const std::vector<int64_t>& in_flight_;
  StageSeconds shortest_;  ///< layer
  LayerCounts layers_;     ///< of the split that was tried last
  std::vector<StageSeconds> ranks_;
};

/// A layout can be written for it.
bool may_be_written(const PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  return k.first_stage_layers == 0 && k.last_stage_layers == 0 &&
         !has_mixer(*run.model, spec::Mixer::mamba);
}

/// Micro-batches that each virtual stage has in flight.
std::vector<int64_t> in_flight_of(const PlanRun& run) {
  const auto pp = static_cast<size_t>(run.knobs.pp);
  const auto vpp = static_cast<size_t>(run.knobs.vpp);
  std::vector<int64_t> in_flight(pp * vpp);
  std::vector<int64_t> of_rank(vpp);
  for (size_t rank = 0; rank < pp; ++rank) {
    count_in_flight(run, static_cast<int>(rank), run.knobs.overlap_moe_expert_parallel_comm,
                    of_rank);
    for (size_t round = 0; round < vpp; ++round) {
      in_flight[round * pp + rank] = std::max<int64_t>(of_rank[round], 1);
    }
  }
  return in_flight;
}

}  // namespace

StageParts parts_by_place(const PlanRun& run, WorkCache& works, const Rates& rates) {
  StageParts parts = stage_parts(run, works, rates);
  if (!run.knobs.recomputes_block()) return parts;
  PlanRun without = run;
  without.knobs.recompute = {};
  StageParts kept = stage_parts(without, works, rates);
  parts.kept = std::move(kept.layers);
  parts.end = kept.end;  // no layer of multi-token prediction is in a block
  parts.num_again = run.knobs.recompute_num_layers;
  return parts;
}

std::vector<int64_t> best_split(const StageParts& parts, int64_t pp,
                                const std::vector<int64_t>& in_flight) {
  return Splitter(parts, pp, in_flight).best();
}

double stage_seconds(const StageParts& parts, const std::vector<int64_t>& layers, int64_t pp) {
  const StageTable table(parts);
  std::vector<StageSeconds> ranks(static_cast<size_t>(pp));
  std::vector<StageSeconds> slowest(layers.size() / ranks.size());
  int64_t from = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const int64_t to = from + layers[stage];
    const StageSeconds seconds = table.of(from, to, stage + 1 == layers.size());
    ranks[stage % ranks.size()].add(seconds);
    StageSeconds& of_round = slowest[stage / ranks.size()];
    if (seconds.total() > of_round.total()) of_round = seconds;
    from = to;
  }
  StageSeconds rounds;
  for (const StageSeconds& of_round : slowest) rounds.add(of_round);
  double most = rounds.total();
  for (const StageSeconds& rank : ranks) most = std::max(most, rank.total());
  return most;
}

Stages choose_stages(const PlanRun& run, const StageParts& parts, bool is_quick) {
  const int64_t pp = run.knobs.pp;
  if (pp == 1) return {};
  const bool divides = splits_by_itself(run);
  const Stages even = divides ? unwritten_stages(run) : Stages{};
  if (!may_be_written(run)) return even;
  // Each layer has a stage, and the ends have theirs.
  if (pp * run.knobs.vpp > run.model->num_layers) return unwritten_stages(run);
  std::vector<int64_t> in_flight = in_flight_of(run);
  std::vector<int64_t> layers = best_split(parts, pp, in_flight);
  if (divides) {
    const LayerCounts as_many(in_flight.size(), run.model->num_layers / (pp * run.knobs.vpp));
    const double even_seconds = stage_seconds(parts, as_many, pp);
    if (stage_seconds(parts, layers, pp) > (1 - kWorthWriting) * even_seconds) return even;
  }
  if (!is_quick) {
    std::fill(in_flight.begin(), in_flight.end(), 1);
    const std::vector<int64_t> other = best_split(parts, pp, in_flight);
    const auto bytes = [&](const std::vector<int64_t>& counts) {
      PlanRun written = run;
      written.stages = stages_with(*run.model, counts);
      return predict_memory(written).peak_bytes();
    };
    if (other != layers && bytes(other) < bytes(layers)) layers = other;
  }
  return stages_with(*run.model, layers);
}

}  // namespace moetune::tuner::planner
