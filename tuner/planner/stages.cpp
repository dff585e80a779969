// Splits by bounds: from the last stage on each takes as many layers as bounds allow, and the
// lowest bounds are looked for with which all layers are taken.
#include "tuner/planner/stages.h"

#include <algorithm>
#include <limits>
#include <optional>
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

/// What nothing may exceed.
struct SplitBounds {
  double rank_seconds = std::numeric_limits<double>::infinity();
  double stage_seconds = std::numeric_limits<double>::infinity();
  double layer_seconds = std::numeric_limits<double>::infinity();  ///< of a stage's layers alone
  int64_t in_flight = std::numeric_limits<int64_t>::max();         ///< layers times micro-batches
};

class Splitter {
 public:
  Splitter(const StageParts& parts, int64_t pp, const std::vector<int64_t>& in_flight)
      : table_(parts), pp_(pp), in_flight_(in_flight) {
    const auto less = [](const StageSeconds& a, const StageSeconds& b) {
      return a.total() < b.total();
    };
    shortest_ = *std::min_element(parts.layers.begin(), parts.layers.end(), less);
  }

  [[nodiscard]] LayerCounts best() const {
    SplitBounds bounds;
    bounds.rank_seconds =
        least(table_.least().total() / static_cast<double>(pp_), 2 * table_.most().total(),
              [&](double seconds) { return split({.rank_seconds = seconds}).has_value(); });
    if (static_cast<size_t>(pp_) < in_flight_.size()) {
      for (double SplitBounds::*bound :
           {&SplitBounds::stage_seconds, &SplitBounds::layer_seconds}) {
        bounds.*bound = least(0, bounds.rank_seconds, [&](double seconds) {
          SplitBounds tried = bounds;
          tried.*bound = seconds;
          return split(tried).has_value();
        });
      }
    }
    int64_t too_few = 0;
    int64_t enough = table_.num_layers() * *std::max_element(in_flight_.begin(), in_flight_.end());
    while (enough - too_few > 1) {
      bounds.in_flight = (enough + too_few) / 2;
      (split(bounds).has_value() ? enough : too_few) = bounds.in_flight;
    }
    bounds.in_flight = enough;
    const std::optional<LayerCounts> found = split(bounds);
    MOETUNE_CHECK(found.has_value(), "{} layers do not fill {} stages", table_.num_layers(),
                  in_flight_.size());
    return *found;
  }

 private:
  /// The least that is enough, where `high` is and `low` is not, or hardly.
  template <typename IsEnough>
  static double least(double low, double high, const IsEnough& is_enough) {
    constexpr double kAlike = 1e-5;
    while (high - low > kAlike * high) {
      const double middle = (low + high) / 2;
      (is_enough(middle) ? high : low) = middle;
    }
    return high;
  }

  /// None: some layers are left, or a stage has nothing.
  [[nodiscard]] std::optional<LayerCounts> split(const SplitBounds& bounds) const {
    const double most_of_rank = StageSeconds{bounds.rank_seconds}.fourth_power();
    const double most_of_stage = StageSeconds{bounds.stage_seconds}.fourth_power();
    const double most_of_layers = StageSeconds{bounds.layer_seconds}.fourth_power();
    const auto num_stages = static_cast<int64_t>(in_flight_.size());
    LayerCounts layers(in_flight_.size());
    std::vector<StageSeconds> ranks(static_cast<size_t>(pp_));
    int64_t to = table_.num_layers();
    for (int64_t stage = num_stages - 1; stage >= 0; --stage) {
      const auto place = static_cast<size_t>(stage);
      const bool is_last = stage + 1 == num_stages;
      StageSeconds rank = ranks[place % ranks.size()];
      // A layer of each stage that the rank has before this one.
      rank.add(shortest_, static_cast<double>(stage / pp_));
      const auto fits = [&](int64_t from) {
        const StageSeconds seconds = table_.of(from, to, is_last);
        StageSeconds with = rank;
        with.add(seconds);
        return with.fourth_power() <= most_of_rank && seconds.fourth_power() <= most_of_stage &&
               table_.of(from, to, false).fourth_power() <= most_of_layers &&
               (to - from) * in_flight_[place] <= bounds.in_flight;
      };
      int64_t from = is_last ? to : to - 1;
      if (from < stage || !fits(from)) return std::nullopt;
      // Each stage before has a layer.
      while (from > stage && fits(from - 1)) --from;
      layers[place] = to - from;
      ranks[place % ranks.size()].add(table_.of(from, to, is_last));
      to = from;
    }
    return to == 0 ? std::optional(layers) : std::nullopt;
  }

  StageTable table_;
  int64_t pp_;
  const std::vector<int64_t>& in_flight_;
  StageSeconds shortest_;  ///< layer
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
  std::vector<int64_t> in_flight(pp * static_cast<size_t>(run.knobs.vpp));
  for (size_t rank = 0; rank < pp; ++rank) {
    const std::vector<int64_t> of_rank = micro_batches_in_flight(run, static_cast<int>(rank));
    for (size_t round = 0; round < of_rank.size(); ++round) {
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
