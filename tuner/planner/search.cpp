// Layouts by their divisors, bounds to leave out what cannot win.
#include "tuner/planner/search.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/base/parallel_for.h"
#include "tuner/planner/choice_peaks.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/search_choices.h"
#include "tuner/planner/stages.h"

namespace moetune::tuner::planner {

namespace {

using spec::Dispatcher;
using spec::Fsdp;
using spec::PlanGraph;
using spec::PlanKnobs;

std::vector<int32_t> divisors(int64_t count, int64_t most) {
  std::vector<int32_t> all;
  for (int64_t d = 1; d <= std::min(count, most); ++d) {
    if (count % d == 0) all.push_back(static_cast<int32_t>(d));
  }
  return all;
}

/// Buffers of dispatchers beside all choices of memory that differ in nothing that these hold.
class DispatcherBytes {
 public:
  /// `knobs` makes those of a choice.
  template <class Knobs>
  double with(ChoicePeaks& peaks, Dispatcher dispatcher, const Knobs& knobs) {
    std::optional<double>& bytes = known_[static_cast<size_t>(dispatcher)];
    if (!bytes) bytes = peaks.dispatcher_bytes(knobs());
    return *bytes;
  }

 private:
  std::array<std::optional<double>, spec::NameTable<Dispatcher>::kRows.size()> known_;
};

/// Peaks of one choice of memory with all choices of time, as far as they are asked for.
class PeaksOfTime {
 public:
  /// `knobs` makes those of the choice.
  template <class Knobs>
  double bytes(ChoicePeaks& all, DispatcherBytes& dispatchers, const TimeChoice& time,
               const Knobs& knobs) {
    std::optional<ChoicePeaks::Peaks>& peaks = known_[time.has_overlap ? 1 : 0];
    if (!peaks) peaks = all.peaks(knobs());
    return peaks->with(dispatchers.with(all, time.dispatcher, knobs));
  }

 private:
  std::array<std::optional<ChoicePeaks::Peaks>, 2> known_;  ///< without and with overlap
};

/// The fastest configuration of each small range of memory.
class Front {
 public:
  explicit Front(double capacity_bytes) : step_bytes_(capacity_bytes / kSteps) {
    below_.fill(std::numeric_limits<double>::infinity());
  }

  /// Whether a step of so many seconds is faster than all that need as little memory.
  [[nodiscard]] bool is_ahead(double bytes, double seconds) const {
    const size_t place = place_of(bytes);
    return place < kPlaces && seconds < below_[place];
  }
  void add(const PlannedConfig& config) {
    if (!is_ahead(config.peak_bytes, config.seconds)) return;
    const size_t place = place_of(config.peak_bytes);
    fastest_[place] = config;
    for (size_t i = place; i < kPlaces; ++i) below_[i] = std::min(below_[i], config.seconds);
  }
  [[nodiscard]] std::vector<PlannedConfig> configs() const {
    std::vector<PlannedConfig> all;
    for (const std::optional<PlannedConfig>& config : fastest_) {
      if (config && (all.empty() || config->seconds < all.back().seconds)) all.push_back(*config);
    }
    return all;
  }

 private:
  static constexpr size_t kSteps = 128;  ///< of a device's memory
  static constexpr size_t kPlaces = 2 * kSteps;

  [[nodiscard]] size_t place_of(double bytes) const {
    const double place = bytes / step_bytes_;
    return place < static_cast<double>(kPlaces) ? static_cast<size_t>(place) : kPlaces;
  }

  double step_bytes_;
  std::array<std::optional<PlannedConfig>, kPlaces> fastest_;
  std::array<double, kPlaces> below_{};  ///< seconds of the fastest so far with at most so much
};

bool is_faster(const PlannedConfig& a, const PlannedConfig& b) { return a.seconds < b.seconds; }

/// Keeps so many in front; `has_twins`: only the first ones of each layout and micro-batch size.
void leave_first(size_t count, bool has_twins, std::vector<PlannedConfig>& configs) {
  if (!has_twins) {
    configs.resize(std::min(count, configs.size()));
    return;
  }
  std::vector<PlannedConfig> left;
  for (PlannedConfig& config : configs) {
    if (left.size() == count) break;
    const bool is_known = std::ranges::any_of(left, [&](const PlannedConfig& other) {
      return is_same_choice(other.knobs, config.knobs);
    });
    if (!is_known) left.push_back(std::move(config));
  }
  configs = std::move(left);
}

/// Adds what is known of a cell from the choices of another base.
void add_cell(PlanCell from, PlanCell& to) {
  to.num_legal += from.num_legal;
  to.num_fit += from.num_fit;
  if (from.fastest && (!to.fastest || is_faster(*from.fastest, *to.fastest))) {
    to.fastest = std::move(from.fastest);
  }
  const auto is_leaner = [&] { return from.leanest->peak_bytes < to.leanest->peak_bytes; };
  if (from.leanest && (!to.leanest || is_leaner())) to.leanest = std::move(from.leanest);
  if (to.num_legal > 0) to.broken = nullptr;
}

/// Of configurations that do not fit so many are told.
constexpr size_t kNearest = 5;

/// Parts of the space, each searched by itself. The number does not depend on the machine, so that
/// the answer is the same everywhere.
constexpr size_t kNumParts = 2;

/// Searches every kNumParts-th cell of the space.
class Search {
 public:
  Search(const PlanQuestion& question, const Rates& rates, size_t part)
      : q_(question),
        rates_(rates),
        part_(part),
        choices_(question),
        capacity_(static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio),
        front_(capacity_) {}

  PlanAnswer search() {
    enumerate_layouts();
    // The most promising first, so that the others are soon known to be slower.
    std::sort(layouts_.begin(), layouts_.end(),
              [](const Layout& a, const Layout& b) { return a.bound < b.bound; });
    for (const Layout& layout : layouts_) look_at(layout);
    if (q_.wants_space) {
      for (PlanCell& cell : answer_.cells) {
        if (cell.fastest || !cell.leanest) continue;
        enter(cell.leanest->knobs, pipeline_of(cell.leanest->knobs, cell.leanest->stages));
        cell.leanest->seconds = price(cell.leanest->knobs).seconds;
      }
      answer_.front = front_.configs();
    }
    return std::move(answer_);
  }

 private:
  /// What layouts with the same stages share.
  struct Pipeline {
    Stages stages;
    PipelineOutline outline;
  };
  struct Layout {
    PlanKnobs knobs;
    const Pipeline* pipeline = nullptr;
    double bound = 0;
    size_t cell = 0;  ///< in PlanAnswer::cells, where PlanQuestion::wants_space
  };

  /// Rules need no stages.
  [[nodiscard]] PlanRun run_with(const PlanKnobs& knobs) const {
    return planner::run_with(q_, {knobs});
  }

  void enumerate_layouts() {
    const int64_t devices = q_.hardware->num_devices();
    const spec::ModelSpec& model = *q_.model;
    constexpr int64_t kMostTp = 16;
    constexpr int64_t kMostCp = 64;
    constexpr int64_t kMostPp = 64;
    const bool is_moe = model.num_experts > 0;
    num_choices_ = static_cast<int64_t>(choices_.memory().size()) *
                   static_cast<int64_t>(choices_.time().size());
    for (const int32_t tp : divisors(devices, std::min(kMostTp, q_.hardware->devices_per_node))) {
      for (const int32_t cp : divisors(devices / tp, kMostCp)) {
        for (const int32_t pp : divisors(devices / tp / cp, std::min(kMostPp, model.num_layers))) {
          const int64_t dp = devices / tp / cp / pp;
          const int64_t stage_ranks = int64_t{tp} * cp * dp;
          for (const int32_t ep :
               is_moe ? divisors(model.num_experts, stage_ranks) : std::vector<int32_t>{1}) {
            if (num_cells_++ % kNumParts != part_) continue;
            if (q_.wants_space) answer_.cells.push_back({tp, cp, ep, pp, 0, 0, {}, {}, nullptr});
            for (const int32_t etp :
                 (is_moe && tp > 1) ? std::vector<int32_t>{1, tp} : std::vector<int32_t>{1}) {
              for (const int32_t vpp : choices_.virtual_stages_with(pp)) {
                for (int32_t mbs = 1; mbs <= 8; mbs *= 2) {
                  answer_.num_points += num_choices_;
                  PlanKnobs knobs = q_.base;
                  knobs.tp = tp;
                  knobs.cp = cp;
                  knobs.pp = pp;
                  knobs.dp = static_cast<int32_t>(dp);
                  knobs.ep = ep;
                  knobs.etp = etp;
                  knobs.vpp = vpp;
                  knobs.micro_batch_size = mbs;
                  add_layout(knobs);
                }
              }
            }
          }
        }
      }
    }
  }

  void add_layout(PlanKnobs knobs) {
    knobs.recompute = {};
    knobs.overlap_moe_expert_parallel_comm = false;
    knobs.cuda_graphs = {};
    knobs.dispatcher = Dispatcher::alltoall;  // the only one that every layout may have
    // FSDP gathers its units for each micro-batch, so a step without it is faster.
    knobs.fsdp = Fsdp::none;
    if (choices_.may_exchange_heads()) knobs.cp_comm_type = spec::PlanCp::p2p;
    choices_.complete(knobs);
    const PlanRule* broken = broken_rule(run_with(knobs));
    if (broken == nullptr) {
      add_legal(knobs);
    } else if (q_.wants_space && knobs.etp == 1 && knobs.vpp == 1 && knobs.micro_batch_size == 1) {
      answer_.cells.back().broken = broken;
    }
    // Which way to exchange is faster depends on what is recomputed, and one holds less memory.
    if (knobs.cp == 1 || !choices_.may_exchange_heads()) return;
    answer_.num_points += num_choices_;
    knobs.cp_comm_type = spec::PlanCp::a2a;
    if (broken_rule(run_with(knobs)) == nullptr) add_legal(knobs);
  }

  void add_legal(const PlanKnobs& knobs) {
    const PlanRun run = run_with(fastest_of(knobs, knobs.ep > 1));
    Stages stages;
    // Another engine makes its stages by itself.
    if (knobs.pp > 1 && q_.is_of_megatron) {
      stages = choose_stages(run, parts_of_sizes(run), true);
      if (stages.empty()) return;  // a hybrid whose layers do not divide
    }
    const Pipeline& pipeline = pipeline_of(knobs, std::move(stages));
    enter(knobs, pipeline);
    const size_t cell = q_.wants_space ? answer_.cells.size() - 1 : 0;
    layouts_.push_back({knobs, &pipeline, bound_of(knobs, knobs.ep > 1), cell});
  }

  /// Of the fastest choices, whose parts depend on the sizes of a layer alone.
  const StageParts& parts_of_sizes(const PlanRun& run) {
    const PlanKnobs& k = run.knobs;
    const std::array<int32_t, 6> sizes = {
        k.tp, k.cp, k.ep, k.etp, k.micro_batch_size, static_cast<int32_t>(k.cp_comm_type)};
    const auto [place, is_new] = parts_.try_emplace(sizes);
    if (is_new) place->second = parts_by_place(run, works_, rates_);
    return place->second;
  }

  /// Few differ.
  const Pipeline& pipeline_of(const PlanKnobs& knobs, Stages stages) {
    const auto [place, is_new] = pipelines_.try_emplace({knobs.pp, knobs.vpp, std::move(stages)});
    Pipeline& pipeline = place->second;
    if (is_new) {
      pipeline.stages = std::get<Stages>(place->first);
      PlanRun run = run_with(knobs);
      run.stages = pipeline.stages;
      pipeline.outline = outline_of(run);
    }
    return pipeline;
  }

  /// A lower bound of the step time: no choice for this layout with the same memory is faster.
  double bound_of(const PlanKnobs& knobs, bool has_overlap) {
    PlanKnobs fastest = fastest_of(knobs, has_overlap);
    double seconds = price(fastest).seconds;
    if (!q_.is_of_megatron && fastest.fsdp == Fsdp::none) {
      fastest.fsdp = Fsdp::torch;
      seconds = std::min(seconds, price(fastest).seconds);
    }
    // What suits a choice better than an even split does is worth so much at most.
    return (knobs.pp > 1 ? 1 - kWorthWriting : 1) * seconds;
  }

  /// Choices without host time, without copies to the host's memory (of what is recomputed fewer
  /// are made) and, if `has_overlap`, with all exchanges overlapped.
  static PlanKnobs fastest_of(PlanKnobs knobs, bool has_overlap) {
    knobs.overlap_moe_expert_parallel_comm = has_overlap;
    knobs.dispatcher = Dispatcher::hybridep;
    knobs.moe_flex_dispatcher_num_sms = 0;
    knobs.cuda_device_max_connections = spec::PlanKnobs{}.cuda_device_max_connections;
    knobs.cuda_graphs = {PlanGraph::full_iteration};
    knobs.offload = {};
    // FSDP shares out the optimizer's state, whether or not a step without it does.
    knobs.distributed_optimizer = true;
    return knobs;
  }

  /// What is priced from here on has these sizes and stages.
  void enter(const PlanKnobs& knobs, const Pipeline& pipeline) {
    entered_ = run_with(knobs);
    entered_.stages = pipeline.stages;
    outline_ = &pipeline.outline;
    prepared_.reset();
  }

  /// Step time of the entered layout with the choices of `knobs`. Layouts with the same sizes of a
  /// layer share its work.
  StepTime price(const PlanKnobs& knobs) {
    ++answer_.num_timed;
    if (!prepared_) prepared_.emplace(entered_, *outline_, works_);
    prepared_->choose(knobs);
    return prepared_->price(rates_, times_);
  }

  /// Gives `config` the stages that suit its own choices.
  void refine(PlannedConfig& config) {
    if (config.stages.empty()) return;
    PlanRun run = run_with(config.knobs);
    run.stages = choose_stages(run, parts_by_place(run, works_, rates_));
    if (run.stages == config.stages) return;
    const double bytes = predict_memory(run).peak_bytes();
    if (device_bytes(bytes) > capacity_) return;
    config = {run.knobs, bytes, PreparedStep(run, works_).price(rates_).seconds, run.stages};
  }

  void look_at(const Layout& layout) {
    enter(layout.knobs, *layout.pipeline);
    std::optional<PreparedMemory> memory;
    std::optional<ChoicePeaks> peaks;
    const auto peaks_of_layout = [&]() -> ChoicePeaks& {
      if (!memory) {
        memory.emplace(run_with(layout.knobs), layout.pipeline->outline, works_);
        peaks.emplace(*memory, q_.load);
      }
      return *peaks;
    };
    const bool is_hopeless = answer_.best.size() >= static_cast<size_t>(q_.num_best) &&
                             layout.bound > answer_.best.front().seconds;
    PlannedConfig best;
    best.seconds = std::numeric_limits<double>::infinity();
    PlannedConfig least;
    least.peak_bytes = std::numeric_limits<double>::infinity();
    PlanCell* cell = q_.wants_space ? &answer_.cells[layout.cell] : nullptr;
    const std::vector<TimeChoices>& legal = choices_.legal(layout.knobs);
    has_fit_.assign(choices_.groups().size(), {});
    for (size_t g = 0; g < choices_.groups().size(); ++g) {
      if (legal[g].none()) continue;
      const MemoryGroup& group = choices_.groups()[g];
      TimeChoices slower;
      for (const size_t other : group.faster) slower |= has_fit_[other];
      members_.clear();
      for (size_t i = 0; i < group.count; ++i) {
        members_.push_back({*choices_.with(layout.knobs, choices_.memory()[group.first + i])});
      }
      DispatcherBytes dispatchers;
      double bounds[2] = {-1, -1};  // without and with overlap
      for (size_t t = 0; t < choices_.time().size(); ++t) {
        if (!legal[g][t]) continue;
        const TimeChoice& time = choices_.time()[t];
        const auto knobs_of = [&](size_t i) { return choices_.with(members_[i].knobs, time); };
        kept_.clear();
        for (size_t i = 0; i < members_.size(); ++i) {
          if (q_.keeps == nullptr || q_.keeps(knobs_of(i))) kept_.push_back(i);
        }
        answer_.num_legal += static_cast<int64_t>(kept_.size());
        if (cell != nullptr) cell->num_legal += static_cast<int64_t>(kept_.size());
        const auto bytes_of = [&](size_t i) {
          return members_[i].peaks.bytes(peaks_of_layout(), dispatchers, time,
                                         [&] { return knobs_of(i); });
        };
        // The space needs all peaks. Else, where the leanest does not fit no other does, and where
        // one fits those that are leaner do.
        const std::optional<size_t> leanest = cell == nullptr ? leanest_kept(group) : std::nullopt;
        if (leanest) {
          const double bytes = bytes_of(*leanest);
          if (device_bytes(bytes) > capacity_) {
            if (bytes < least.peak_bytes) least = {knobs_of(*leanest), bytes, 0, {}};
            continue;
          }
        }
        double seconds = -1;  // the same for all of them
        for (const size_t i : kept_) {
          if (cell == nullptr && has_fit_[g][t] && is_leaner(group, i, widest_fit_)) {
            ++answer_.num_fit;
            continue;
          }
          const double bytes = bytes_of(i);
          const bool fits = device_bytes(bytes) <= capacity_;
          if (fits) {
            ++answer_.num_fit;
          } else if (bytes < least.peak_bytes) {
            least = {knobs_of(i), bytes, 0, {}};
          }
          const bool is_slower = slower[t] || has_fit_[g][t];
          if (fits && !has_fit_[g][t]) {
            has_fit_[g][t] = true;
            widest_fit_ = i;
          }
          bool is_wanted = fits && !is_hopeless && !is_slower;
          if (cell != nullptr) {
            if (fits) ++cell->num_fit;
            if (!cell->leanest || bytes < cell->leanest->peak_bytes) {
              cell->leanest = {knobs_of(i), bytes, 0, layout.pipeline->stages};
            }
            const double fastest =
                std::min(best.seconds, cell->fastest ? cell->fastest->seconds : best.seconds);
            const auto is_ahead = [&](double at_least) {
              return (fits && !is_slower && at_least < fastest) || front_.is_ahead(bytes, at_least);
            };
            if (!is_wanted && is_ahead(seconds >= 0 ? seconds : layout.bound)) {
              // The layout's bound assumes no recomputation and full overlap; this one is tighter.
              double& bound = bounds[time.has_overlap ? 1 : 0];
              if (bound < 0) bound = bound_of(knobs_of(i), time.has_overlap);
              is_wanted = is_ahead(std::max(bound, seconds));
            }
          }
          if (!is_wanted) continue;
          if (seconds < 0) seconds = price(knobs_of(i)).seconds;
          if (fits && seconds < best.seconds) best = {knobs_of(i), bytes, seconds, {}};
          if (cell != nullptr && front_.is_ahead(bytes, seconds)) {
            front_.add({knobs_of(i), bytes, seconds, layout.pipeline->stages});
          }
        }
      }
    }
    if (best.seconds < std::numeric_limits<double>::infinity()) {
      best.stages = layout.pipeline->stages;
      refine(best);
      keep(best);
      if (cell != nullptr) {
        front_.add(best);
        if (!cell->fastest || best.seconds < cell->fastest->seconds) cell->fastest = best;
      }
    } else if (answer_.num_fit == 0 && least.peak_bytes < std::numeric_limits<double>::infinity()) {
      add_nearest(least, layout.pipeline->stages);
    }
  }

  /// Whether a member of a group needs as much memory as another one at most.
  [[nodiscard]] bool is_leaner(const MemoryGroup& group, size_t member, size_t than) const {
    const std::vector<MemoryChoice>& all = choices_.memory();
    return all[group.first + member].is_leaner(all[group.first + than]);
  }
  /// Of the members that are kept the one that is leaner than all others, where there is one.
  [[nodiscard]] std::optional<size_t> leanest_kept(const MemoryGroup& group) const {
    if (kept_.size() < 2) return std::nullopt;
    const bool is_leanest = std::ranges::all_of(
        kept_, [&](size_t other) { return is_leaner(group, kept_.back(), other); });
    return is_leanest ? std::optional(kept_.back()) : std::nullopt;
  }

  /// Of those that need as much the first ones stay.
  void add_nearest(PlannedConfig& config, const Stages& stages) {
    std::vector<PlannedConfig>& nearest = answer_.nearest;
    const auto same = std::ranges::find_if(nearest, [&](const PlannedConfig& other) {
      return is_same_choice(other.knobs, config.knobs);
    });
    if (same != nearest.end()) {
      if (same->peak_bytes <= config.peak_bytes) return;
      nearest.erase(same);
    }
    if (nearest.size() == kNearest && nearest.back().peak_bytes <= config.peak_bytes) return;
    config.stages = stages;
    nearest.insert(
        std::ranges::upper_bound(nearest, config.peak_bytes, {}, &PlannedConfig::peak_bytes),
        std::move(config));
    if (nearest.size() > kNearest) nearest.pop_back();
  }

  /// `best` is a heap with its slowest in front.
  void keep(const PlannedConfig& config) {
    // Of a layout's two ways to exchange context and of its virtual stages only the fastest stays.
    const auto same = std::ranges::find_if(answer_.best, [&](const PlannedConfig& other) {
      return is_same_choice(other.knobs, config.knobs);
    });
    if (same != answer_.best.end()) {
      if (is_faster(config, *same)) *same = config;
      std::make_heap(answer_.best.begin(), answer_.best.end(), is_faster);
      return;
    }
    answer_.best.push_back(config);
    std::push_heap(answer_.best.begin(), answer_.best.end(), is_faster);
    if (answer_.best.size() <= static_cast<size_t>(q_.num_best)) return;
    std::pop_heap(answer_.best.begin(), answer_.best.end(), is_faster);
    answer_.best.pop_back();
  }

  const PlanQuestion& q_;
  const Rates& rates_;
  size_t part_;
  size_t num_cells_ = 0;  ///< of all parts
  SearchChoices choices_;
  /// A choice of a group of memory choices with the layout that is looked at.
  struct Member {
    PlanKnobs knobs;
    PeaksOfTime peaks{};
  };
  std::vector<Member> members_;       ///< of the group that is looked at
  std::vector<size_t> kept_;          ///< of these, with the time choice that is looked at
  size_t widest_fit_ = 0;             ///< of these the first that fits
  std::vector<TimeChoices> has_fit_;  ///< by group, of the layout that is looked at
  int64_t num_choices_ = 0;           ///< of a layout
  double capacity_;
  Front front_;
  std::map<std::tuple<int32_t, int32_t, Stages>, Pipeline> pipelines_;  ///< by pp and vpp
  std::map<std::array<int32_t, 6>, StageParts> parts_;                  ///< see parts_of_sizes
  std::vector<Layout> layouts_;
  WorkCache works_;
  TimeCache times_;  ///< at rates_
  PlanRun entered_;
  const PipelineOutline* outline_ = nullptr;  ///< of `entered_`
  std::optional<PreparedStep> prepared_;      ///< of `entered_`
  PlanAnswer answer_;
};

/// Joins the answers of the parts of a space, those of one base behind those of the other.
PlanAnswer joined(std::vector<PlanAnswer> parts, const PlanQuestion& question) {
  PlanAnswer all;
  Front front(static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio);
  size_t num_cells = 0;
  const auto move_into = [](std::vector<PlannedConfig>& from, std::vector<PlannedConfig>& to) {
    std::move(from.begin(), from.end(), std::back_inserter(to));
  };
  for (PlanAnswer& part : parts) {
    all.num_points += part.num_points;
    all.num_legal += part.num_legal;
    all.num_fit += part.num_fit;
    all.num_timed += part.num_timed;
    move_into(part.best, all.best);
    move_into(part.nearest, all.nearest);
    for (const PlannedConfig& config : part.front) front.add(config);
  }
  for (size_t p = 0; p < kNumParts; ++p) num_cells += parts[p].cells.size();
  std::stable_sort(all.best.begin(), all.best.end(), is_faster);
  const bool has_twins = parts.size() > kNumParts;
  leave_first(static_cast<size_t>(question.num_best), has_twins, all.best);
  std::stable_sort(
      all.nearest.begin(), all.nearest.end(),
      [](const PlannedConfig& a, const PlannedConfig& b) { return a.peak_bytes < b.peak_bytes; });
  leave_first(all.num_fit > 0 ? 0 : kNearest, has_twins, all.nearest);
  for (size_t i = 0; i < num_cells; ++i) {
    all.cells.push_back(std::move(parts[i % kNumParts].cells[i / kNumParts]));
    for (size_t p = i % kNumParts + kNumParts; p < parts.size(); p += kNumParts) {
      add_cell(std::move(parts[p].cells[i / kNumParts]), all.cells.back());
    }
  }
  if (question.wants_space) all.front = front.configs();
  return all;
}

}  // namespace

PlanRun run_with(const PlanQuestion& question, const PlannedConfig& config) {
  PlanRun run;
  run.model = question.model;
  run.hardware = question.hardware;
  run.knobs = config.knobs;
  run.global_batch_size = question.global_batch_size;
  run.seq_length = question.seq_length;
  run.stages = config.stages;
  run.load = question.load;
  run.is_of_megatron = question.is_of_megatron;
  run.takes_padded_deepep = question.takes_padded_deepep;
  return run;
}

bool is_same_choice(const PlanKnobs& a, const PlanKnobs& b) {
  return a.micro_batch_size == b.micro_batch_size &&
         std::ranges::all_of(spec::layout_sizes(), [&](const spec::LayoutSize& size) {
           return size.plan_member == &PlanKnobs::vpp || a.*size.plan_member == b.*size.plan_member;
         });
}

PlanAnswer search_plans(const PlanQuestion& question, const Rates& rates) {
  std::vector<PlanQuestion> questions = {question};
  for (const PlanKnobs& base : question.other_bases) {
    questions.push_back(question);
    questions.back().base = base;
  }
  std::vector<PlanAnswer> parts(kNumParts * questions.size());
  base::parallel_for(parts.size(), [&](size_t i) {
    parts[i] = Search(questions[i / kNumParts], rates, i % kNumParts).search();
  });
  return joined(std::move(parts), question);
}

}  // namespace moetune::tuner::planner
