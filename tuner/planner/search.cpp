// Layouts by their divisors, choices by short lists, bounds to leave out what cannot win.
#include "tuner/planner/search.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/base/parallel_for.h"
#include "tuner/planner/choice_peaks.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/stages.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

namespace {

using spec::CrossEntropy;
using spec::Dispatcher;
using spec::Fsdp;
using spec::Mixer;
using spec::PlanGraph;
using spec::PlanGraphSet;
using spec::PlanKnobs;
using spec::PlanRecompute;
using spec::PlanRecomputeSet;

std::vector<int32_t> divisors(int64_t count, int64_t most) {
  std::vector<int32_t> all;
  for (int64_t d = 1; d <= std::min(count, most); ++d) {
    if (count % d == 0) all.push_back(static_cast<int32_t>(d));
  }
  return all;
}

/// Which layers full recomputation takes.
struct LayersAgain {
  spec::RecomputeMethod method = spec::RecomputeMethod::uniform;
  int32_t count = 1;

  bool operator==(const LayersAgain&) const = default;
};

/// Choices that change memory. They cost time, if anything.
struct MemoryChoice {
  PlanRecomputeSet recompute;
  LayersAgain layers;
  CrossEntropy cross_entropy;
  Fsdp fsdp;
  std::vector<size_t> faster{};  ///< earlier choices that are as fast at least
};

bool recomputes_no_more(const MemoryChoice& a, const MemoryChoice& b) {
  constexpr PlanRecomputeSet kFull = {PlanRecompute::full};
  // All layers, in whatever groups.
  if (b.recompute == kFull && b.layers.method == spec::RecomputeMethod::uniform) return true;
  if (a.recompute.has(PlanRecompute::full) && a.layers != b.layers) return false;
  return (a.recompute & b.recompute) == a.recompute;
}

/// Whether `a` recomputes nothing that `b` does not, and shares out no weights unless `b` does so
/// in the same way: then it takes no longer. Without FSDP that holds where the optimizer's state is
/// shared out (`shares_state`), else each rank updates all of it. The loss has no price.
bool is_as_fast(const MemoryChoice& a, const MemoryChoice& b, bool shares_state) {
  return recomputes_no_more(a, b) && (a.fsdp == b.fsdp || (a.fsdp == Fsdp::none && shares_state));
}

/// Choices that change only time.
struct TimeChoice {
  Dispatcher dispatcher;
  bool has_overlap;
  PlanGraphSet graphs;
};

/// Some of the time choices, by their places.
using TimeChoices = std::bitset<64>;

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

std::vector<PlanRecomputeSet> recompute_choices(const spec::ModelSpec& model) {
  using M = PlanRecompute;
  const bool is_moe = model.num_experts > 0;
  const bool is_latent = has_mixer(model, Mixer::mla);
  std::vector<PlanRecomputeSet> all = {{}};
  if (is_latent) all.push_back({M::mla_up_proj});
  if (is_moe) {
    all.push_back({M::moe_act});
    all.push_back({M::layernorm, M::moe_act});
    if (is_latent) all.push_back({M::layernorm, M::moe_act, M::mla_up_proj});
    all.push_back({M::layernorm, M::moe});
    if (is_latent) all.push_back({M::layernorm, M::moe, M::mla_up_proj, M::mlp});
  } else {
    all.push_back({M::mlp});
  }
  all.push_back({M::full});
  return all;
}

/// Virtual stages that are tried with so many pipeline stages: few, and of more those into which
/// the layers divide, by themselves or with the embedding and the loss counted as layers.
std::vector<int32_t> virtual_stages(const spec::ModelSpec& model, int64_t pp) {
  constexpr int64_t kFew = 8;
  std::vector<int32_t> all = {1};
  if (pp == 1) return all;
  for (int64_t vpp = 2; vpp <= std::max(kFew, model.num_layers / pp); ++vpp) {
    const int64_t chunks = pp * vpp;
    const bool divides_layers =
        model.num_layers % chunks == 0 || (model.num_layers + 2) % chunks == 0;
    if (vpp <= kFew || divides_layers) all.push_back(static_cast<int32_t>(vpp));
  }
  return all;
}

bool is_faster(const PlannedConfig& a, const PlannedConfig& b) { return a.seconds < b.seconds; }

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
        recomputes_(recompute_choices(*question.model)),
        capacity_(static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio),
        front_(capacity_) {
    const bool is_moe = q_.model->num_experts > 0;
    std::vector<CrossEntropy> losses = {CrossEntropy::native, CrossEntropy::chunked};
    std::vector<Fsdp> shardings = {Fsdp::none, Fsdp::megatron};
    leave_sayable("recompute", &PlanKnobs::recompute, recomputes_);
    leave_sayable("cross_entropy", &PlanKnobs::cross_entropy, losses);
    leave_sayable("fsdp", &PlanKnobs::fsdp, shardings);
    // A framework without Megatron's FSDP has PyTorch's.
    if (!has(shardings, Fsdp::megatron) && is_sayable("fsdp", &PlanKnobs::fsdp, Fsdp::torch)) {
      shardings.push_back(Fsdp::torch);
    }
    add_fixed(q_.base.recompute, recomputes_);
    if (q_.base.cross_entropy != CrossEntropy::chunked) add_fixed(q_.base.cross_entropy, losses);
    add_fixed(q_.base.fsdp, shardings);
    const LayersAgain of_base = {q_.base.recompute_method, q_.base.recompute_num_layers};
    for (const PlanRecomputeSet& recompute : recomputes_) {
      std::vector<LayersAgain> all_layers = {of_base};
      // Layers that the run of today takes together may be too many for another layout.
      const LayersAgain each;
      if (recompute.has(PlanRecompute::full) && of_base != each) all_layers.push_back(each);
      for (const LayersAgain& layers : all_layers) {
        for (const CrossEntropy loss : losses) {
          for (const Fsdp fsdp : shardings) {
            memory_choices_.push_back({recompute, layers, loss, fsdp});
          }
        }
      }
    }
    // What is sent to the host's memory is less where more is recomputed, which may be faster.
    for (size_t later = 0; q_.base.offload.empty() && later < memory_choices_.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        // Without FSDP torchtitan may compute in 32 bits, which is not faster.
        if (is_as_fast(memory_choices_[earlier], memory_choices_[later],
                       q_.base.distributed_optimizer && q_.is_of_megatron)) {
          memory_choices_[later].faster.push_back(earlier);
        }
      }
    }
    std::vector<PlanGraphSet> graphs = {
        {},
        is_moe ? PlanGraphSet{PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess}
               : PlanGraphSet{PlanGraph::full_iteration}};
    leave_sayable("cuda_graphs", &PlanKnobs::cuda_graphs, graphs);
    add_fixed(q_.base.cuda_graphs, graphs);
    std::vector<Dispatcher> dispatchers =
        is_moe ? std::vector<Dispatcher>{Dispatcher::hybridep, Dispatcher::alltoall}
               : std::vector<Dispatcher>{Dispatcher::alltoall};
    leave_sayable("dispatcher", &PlanKnobs::dispatcher, dispatchers);
    // HybridEP's kernels are for NVIDIA's devices: DeepEP, which others have too, stands in for it.
    if (is_of_amd(*q_.hardware)) std::erase(dispatchers, Dispatcher::hybridep);
    if (is_moe && !has(dispatchers, Dispatcher::hybridep) &&
        is_sayable("dispatcher", &PlanKnobs::dispatcher, Dispatcher::deepep)) {
      dispatchers.insert(dispatchers.begin(), Dispatcher::deepep);
    }
    std::vector<bool> overlaps = {true, false};
    leave_sayable("overlap_moe_expert_parallel_comm", &PlanKnobs::overlap_moe_expert_parallel_comm,
                  overlaps);
    searches_unsharded_ = has(shardings, Fsdp::none);
    PlanKnobs alone = two_replicas();
    alone.dp = 1;
    alone.fsdp = Fsdp::none;
    takes_one_unsharded_ = q_.can_say == nullptr || q_.can_say(alone, "fsdp");
    may_exchange_heads_ = q_.may_exchange_heads &&
                          is_sayable("cp_comm_type", &PlanKnobs::cp_comm_type, spec::PlanCp::a2a);
    // What is fixed, or what the run of today has.
    if (is_moe && std::ranges::find(dispatchers, q_.base.dispatcher) == dispatchers.end()) {
      dispatchers.push_back(q_.base.dispatcher);
    }
    for (const Dispatcher dispatcher : dispatchers) {
      for (const bool has_overlap : overlaps) {
        if (has_overlap && !is_moe) continue;
        for (const PlanGraphSet& set : graphs) {
          time_choices_.push_back({dispatcher, has_overlap, set});
        }
      }
    }
  }

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
  /// Adds the fixed value of a knob to the values that are searched.
  template <class T>
  void add_fixed(const T& value, std::vector<T>& values) const {
    if (q_.keeps != nullptr && std::ranges::find(values, value) == values.end()) {
      values.push_back(value);
    }
  }

  template <class T>
  static bool has(const std::vector<T>& values, T value) {
    return std::ranges::find(values, value) != values.end();
  }

  /// A configuration of two replicas, so that there is something to share out.
  [[nodiscard]] PlanKnobs two_replicas() const {
    PlanKnobs knobs = q_.base;
    knobs.tp = knobs.cp = knobs.pp = knobs.vpp = knobs.ep = knobs.etp = 1;
    knobs.dp = 2;
    return knobs;
  }

  /// Whether FSDP has ranks among which to share out weights: FSDP2 takes those of the dense ones
  /// for all.
  [[nodiscard]] bool shares_out_weights(const PlanKnobs& knobs) const {
    const bool has_shares_of_experts =
        q_.model->num_experts > 0 && knobs.fsdp == Fsdp::megatron && knobs.expert_copies() > 1;
    return knobs.dense_copies() > 1 || has_shares_of_experts;
  }

  /// Whether the framework has words for that value of a knob.
  template <class T>
  [[nodiscard]] bool is_sayable(std::string_view knob, T PlanKnobs::*member, const T& value) const {
    if (q_.can_say == nullptr) return true;
    PlanKnobs knobs = two_replicas();
    knobs.*member = value;
    return q_.can_say(knobs, knob);
  }
  template <class T>
  void leave_sayable(std::string_view knob, T PlanKnobs::*member, std::vector<T>& values) const {
    std::erase_if(values, [&](const T& value) { return !is_sayable(knob, member, value); });
  }

  /// The virtual stages that are tried.
  const std::vector<int32_t>& virtual_stages_with(int32_t pp) {
    const auto [place, is_new] = virtual_stages_.try_emplace(pp);
    if (!is_new) return place->second;
    place->second = virtual_stages(*q_.model, pp);
    std::erase_if(place->second, [&](int32_t vpp) {
      if (q_.can_say == nullptr) return false;
      PlanKnobs knobs = two_replicas();
      knobs.pp = pp;
      knobs.vpp = vpp;
      return !q_.can_say(knobs, "vpp");
    });
    return place->second;
  }

  /// Megatron-Core's implications are not another engine's.
  void complete_for_engine(PlanKnobs& knobs) const {
    if (q_.is_of_megatron) complete(*q_.model, *q_.hardware, knobs);
  }

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
    num_choices_ =
        static_cast<int64_t>(memory_choices_.size()) * static_cast<int64_t>(time_choices_.size());
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
              for (const int32_t vpp : virtual_stages_with(pp)) {
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
    if (may_exchange_heads_) knobs.cp_comm_type = spec::PlanCp::p2p;
    complete_for_engine(knobs);
    const PlanRule* broken = broken_rule(run_with(knobs));
    if (broken == nullptr) {
      add_legal(knobs);
    } else if (q_.wants_space && knobs.etp == 1 && knobs.vpp == 1 && knobs.micro_batch_size == 1) {
      answer_.cells.back().broken = broken;
    }
    // Which way to exchange is faster depends on what is recomputed, and one holds less memory.
    if (knobs.cp == 1 || !may_exchange_heads_) return;
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

  static bool has_same_sizes(const PlanKnobs& a, const PlanKnobs& b) {
    return a.micro_batch_size == b.micro_batch_size &&
           std::ranges::all_of(spec::layout_sizes(), [&](const spec::LayoutSize& size) {
             return a.*size.plan_member == b.*size.plan_member;
           });
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

  /// The layout with a choice of memory; none where that is no choice beside another.
  [[nodiscard]] std::optional<PlanKnobs> with_choice(const PlanKnobs& layout,
                                                     const MemoryChoice& choice) const {
    PlanKnobs knobs = layout;
    knobs.recompute = choice.recompute;
    knobs.recompute_method = choice.layers.method;
    knobs.recompute_num_layers = choice.layers.count;
    knobs.cross_entropy = choice.cross_entropy;
    knobs.fsdp = choice.fsdp;
    if (choice.fsdp != Fsdp::none && !shares_out_weights(knobs)) {
      // FSDP over one rank is none, and is no choice beside it. A framework that always shards
      // takes it for one rank only; it shares out state with the weights.
      if (searches_unsharded_ || !takes_one_unsharded_) return std::nullopt;
      knobs.fsdp = Fsdp::none;
      knobs.distributed_optimizer = false;
    }
    // What torchtitan makes of its sizes is no choice beside it. Few of its models run with
    // experts on several ranks and no shards, and those slowly.
    if (!q_.is_of_megatron && (knobs.fsdp != titan_sharding(knobs) || lacks_titan_shards(knobs))) {
      return std::nullopt;
    }
    return knobs;
  }
  [[nodiscard]] PlanKnobs with_choice(PlanKnobs knobs, const TimeChoice& time) const {
    knobs.dispatcher = time.dispatcher;
    knobs.overlap_moe_expert_parallel_comm = time.has_overlap;
    knobs.cuda_graphs = time.graphs;
    // What the choices of the layout itself implied.
    knobs.cuda_device_max_connections = q_.base.cuda_device_max_connections;
    knobs.overlap_param_gather = q_.base.overlap_param_gather;
    complete_for_engine(knobs);
    return knobs;
  }

  /// Of each memory choice the time choices that are legal with it. The layout itself is legal, so
  /// that only rules count that look at choices: layouts with the same sizes above 1 are alike.
  const std::vector<TimeChoices>& legal_choices(const PlanKnobs& layout) {
    const std::array<bool, 8> kind = {
        layout.tp > 1,  layout.cp > 1, layout.dp > 1,  layout.pp > 1,
        layout.vpp > 1, layout.ep > 1, layout.etp > 1, layout.expert_copies() > 1};
    const auto [place, is_new] = legal_choices_.try_emplace(kind);
    if (!is_new) return place->second;
    PlanRun run = run_with(layout);
    for (const MemoryChoice& choice : memory_choices_) {
      TimeChoices legal;
      const std::optional<PlanKnobs> knobs = with_choice(layout, choice);
      for (size_t t = 0; knobs && t < time_choices_.size(); ++t) {
        run.knobs = with_choice(*knobs, time_choices_[t]);
        legal[t] = holds_rules_of_choices(run);
      }
      place->second.push_back(legal);
    }
    return place->second;
  }

  void look_at(const Layout& layout) {
    enter(layout.knobs, *layout.pipeline);
    const PreparedMemory memory(entered_, layout.pipeline->outline, works_);
    ChoicePeaks peaks(memory, q_.load);
    const bool is_hopeless = answer_.best.size() >= static_cast<size_t>(q_.num_best) &&
                             layout.bound > answer_.best.front().seconds;
    PlannedConfig best;
    best.seconds = std::numeric_limits<double>::infinity();
    PlannedConfig least;
    least.peak_bytes = std::numeric_limits<double>::infinity();
    PlanCell* cell = q_.wants_space ? &answer_.cells[layout.cell] : nullptr;
    const std::vector<TimeChoices>& legal = legal_choices(layout.knobs);
    has_fit_.assign(memory_choices_.size(), {});
    for (size_t index = 0; index < memory_choices_.size(); ++index) {
      if (legal[index].none()) continue;
      const MemoryChoice& choice = memory_choices_[index];
      const PlanKnobs of_memory = *with_choice(layout.knobs, choice);
      TimeChoices slower;
      for (const size_t other : choice.faster) slower |= has_fit_[other];
      double peak[2] = {-1, -1};
      double bounds[2] = {-1, -1};  // without and with overlap
      for (size_t t = 0; t < time_choices_.size(); ++t) {
        if (!legal[index][t]) continue;
        const TimeChoice& time = time_choices_[t];
        const auto knobs = [&] { return with_choice(of_memory, time); };
        if (q_.keeps != nullptr && !q_.keeps(knobs())) continue;
        ++answer_.num_legal;
        double& bytes = peak[time.has_overlap ? 1 : 0];
        if (bytes < 0) bytes = peaks.peak_bytes(knobs());
        const bool fits = device_bytes(bytes) <= capacity_;
        if (fits) {
          ++answer_.num_fit;
        } else if (bytes < least.peak_bytes) {
          least = {knobs(), bytes, 0, {}};
        }
        const bool is_slower = slower[t];
        has_fit_[index][t] = fits;
        bool is_wanted = fits && !is_hopeless && !is_slower;
        if (cell != nullptr) {
          ++cell->num_legal;
          if (fits) ++cell->num_fit;
          if (!cell->leanest || bytes < cell->leanest->peak_bytes) {
            cell->leanest = {knobs(), bytes, 0, layout.pipeline->stages};
          }
          const double fastest =
              std::min(best.seconds, cell->fastest ? cell->fastest->seconds : best.seconds);
          const auto is_ahead = [&](double seconds) {
            return (fits && !is_slower && seconds < fastest) || front_.is_ahead(bytes, seconds);
          };
          if (!is_wanted && is_ahead(layout.bound)) {
            // The layout's bound assumes no recomputation and full overlap; this one is tighter.
            double& bound = bounds[time.has_overlap ? 1 : 0];
            if (bound < 0) bound = bound_of(knobs(), time.has_overlap);
            is_wanted = is_ahead(bound);
          }
        }
        if (!is_wanted) continue;
        const double seconds = price(knobs()).seconds;
        if (fits && seconds < best.seconds) best = {knobs(), bytes, seconds, {}};
        if (cell != nullptr && front_.is_ahead(bytes, seconds)) {
          front_.add({knobs(), bytes, seconds, layout.pipeline->stages});
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

  /// Of those that need as much the first ones stay.
  void add_nearest(PlannedConfig& config, const Stages& stages) {
    std::vector<PlannedConfig>& nearest = answer_.nearest;
    if (nearest.size() == kNearest && nearest.back().peak_bytes <= config.peak_bytes) return;
    config.stages = stages;
    nearest.insert(
        std::ranges::upper_bound(nearest, config.peak_bytes, {}, &PlannedConfig::peak_bytes),
        std::move(config));
    if (nearest.size() > kNearest) nearest.pop_back();
  }

  /// `best` is a heap with its slowest in front.
  void keep(const PlannedConfig& config) {
    // Keep only the better of a layout's two ways to exchange context.
    const auto same = std::ranges::find_if(answer_.best, [&](const PlannedConfig& other) {
      return has_same_sizes(other.knobs, config.knobs);
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
  std::vector<PlanRecomputeSet> recomputes_;
  std::vector<MemoryChoice> memory_choices_;
  std::vector<TimeChoice> time_choices_;
  std::map<std::array<bool, 8>, std::vector<TimeChoices>> legal_choices_;  ///< see legal_choices()
  std::vector<TimeChoices> has_fit_;  ///< by memory choice, of the layout that is looked at
  int64_t num_choices_ = 0;           ///< of a layout
  bool may_exchange_heads_ = true;
  bool searches_unsharded_ = true;   ///< Fsdp::none, for all layouts
  bool takes_one_unsharded_ = true;  ///< the framework has words for Fsdp::none of one rank
  std::map<int32_t, std::vector<int32_t>> virtual_stages_;  ///< by pp
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

/// Joins the answers of the parts of a space.
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
    num_cells += part.cells.size();
  }
  std::stable_sort(all.best.begin(), all.best.end(), is_faster);
  all.best.resize(std::min(all.best.size(), static_cast<size_t>(question.num_best)));
  std::stable_sort(
      all.nearest.begin(), all.nearest.end(),
      [](const PlannedConfig& a, const PlannedConfig& b) { return a.peak_bytes < b.peak_bytes; });
  all.nearest.resize(all.num_fit > 0 ? 0 : std::min(all.nearest.size(), kNearest));
  for (size_t i = 0; i < num_cells; ++i) {
    all.cells.push_back(std::move(parts[i % kNumParts].cells[i / kNumParts]));
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

PlanAnswer search_plans(const PlanQuestion& question, const Rates& rates) {
  std::vector<PlanAnswer> parts(kNumParts);
  base::parallel_for(kNumParts,
                     [&](size_t part) { parts[part] = Search(question, rates, part).search(); });
  return joined(std::move(parts), question);
}

}  // namespace moetune::tuner::planner
