// Short lists of values, those that the framework has words for.
#include "tuner/planner/search_choices.h"

#include <algorithm>

#include "engine/spec/implied_knobs.h"
#include "kernels/base/error.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/static_memory.h"
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

template <class T>
bool has(const std::vector<T>& values, T value) {
  return std::ranges::find(values, value) != values.end();
}

bool recomputes_no_more(const MemoryChoice& a, const MemoryChoice& b) {
  constexpr PlanRecomputeSet kFull = {PlanRecompute::full};
  // All layers, in whatever groups.
  if (b.recompute == kFull && b.layers.method == spec::RecomputeMethod::uniform) return true;
  if (a.recompute.has(PlanRecompute::full) && a.layers != b.layers) return false;
  return (a.recompute & b.recompute) == a.recompute;
}

/// Whether `a` recomputes nothing that `b` does not, and shares out no weights unless `b` does so
/// in the same way: then it takes no longer. Without FSDP that holds where the optimizer's state is
/// shared out (`shares_state`), else each rank updates all of it.
bool is_as_fast(const MemoryChoice& a, const MemoryChoice& b, bool shares_state) {
  return recomputes_no_more(a, b) && (a.fsdp == b.fsdp || (a.fsdp == Fsdp::none && shares_state));
}

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
  for (int64_t vpp = 2; vpp <= std::max(kFew, (model.num_layers + 2) / pp); ++vpp) {
    const int64_t chunks = pp * vpp;
    const bool divides_layers =
        model.num_layers % chunks == 0 || (model.num_layers + 2) % chunks == 0;
    if (vpp <= kFew || divides_layers) all.push_back(static_cast<int32_t>(vpp));
  }
  return all;
}

}  // namespace

/// Adds the fixed value of a knob to the values that are searched.
template <class T>
void SearchChoices::add_fixed(const T& value, std::vector<T>& values) const {
  if (q_.keeps != nullptr && std::ranges::find(values, value) == values.end()) {
    values.push_back(value);
  }
}

/// A configuration of two replicas, so that there is something to share out.
PlanKnobs SearchChoices::two_replicas() const {
  PlanKnobs knobs = q_.base;
  set_one_rank(knobs);
  knobs.dp = 2;
  return knobs;
}

/// Whether the framework has words for that value of a knob.
template <class T>
bool SearchChoices::is_sayable(std::string_view knob, T PlanKnobs::*member, const T& value) const {
  if (q_.can_say == nullptr) return true;
  PlanKnobs knobs = two_replicas();
  knobs.*member = value;
  return q_.can_say(knobs, knob);
}
template <class T>
void SearchChoices::leave_sayable(std::string_view knob, T PlanKnobs::*member,
                                  std::vector<T>& values) const {
  std::erase_if(values, [&](const T& value) { return !is_sayable(knob, member, value); });
}

SearchChoices::SearchChoices(const PlanQuestion& question) : q_(question) {
  std::vector<Fsdp> shardings = {Fsdp::none, Fsdp::megatron};
  leave_sayable("fsdp", &PlanKnobs::fsdp, shardings);
  // A framework without Megatron's FSDP has PyTorch's.
  if (!has(shardings, Fsdp::megatron) && is_sayable("fsdp", &PlanKnobs::fsdp, Fsdp::torch)) {
    shardings.push_back(Fsdp::torch);
  }
  add_fixed(q_.base.fsdp, shardings);
  searches_unsharded_ = has(shardings, Fsdp::none);
  PlanKnobs alone = two_replicas();
  alone.dp = 1;
  alone.fsdp = Fsdp::none;
  takes_one_unsharded_ = q_.can_say == nullptr || q_.can_say(alone, "fsdp");
  may_exchange_heads_ = q_.may_exchange_heads &&
                        is_sayable("cp_comm_type", &PlanKnobs::cp_comm_type, spec::PlanCp::a2a);
  add_memory_choices(shardings);
  add_time_choices();
}

/// By the memory that they need, the most first: none has a price in Megatron-Core's time.
std::vector<CrossEntropy> SearchChoices::losses() const {
  std::vector<CrossEntropy> losses = {CrossEntropy::native};
  if (q_.is_of_megatron) losses.push_back(CrossEntropy::unfused);
  if (q_.takes_te_loss) losses.push_back(CrossEntropy::te);
  losses.push_back(CrossEntropy::chunked);
  leave_sayable("cross_entropy", &PlanKnobs::cross_entropy, losses);
  if (q_.base.cross_entropy != CrossEntropy::chunked) add_fixed(q_.base.cross_entropy, losses);
  const auto place = [](CrossEntropy loss) {
    return loss == CrossEntropy::native ? -1 : static_cast<int>(loss);
  };
  std::ranges::sort(losses, {}, place);
  return losses;
}

/// Whether the precision-aware optimizer is a choice beside that of the question. Megatron-Core has
/// it beside Adam and the distributed optimizer only. It has to free something.
bool SearchChoices::may_be_aware() const {
  PlanKnobs aware = q_.base;
  spec::set_implied(aware);
  if (!q_.is_of_megatron || aware.precision_aware_optimizer || !aware.distributed_optimizer ||
      aware.optimizer != spec::OptimizerKind::adam) {
    return false;
  }
  aware.precision_aware_optimizer = true;
  return (has_master_remainders(aware) || aware.main_grads != spec::StateType::fp32) &&
         is_sayable("precision_aware_optimizer", &PlanKnobs::precision_aware_optimizer, true);
}

void SearchChoices::add_memory_choices(const std::vector<Fsdp>& shardings) {
  std::vector<PlanRecomputeSet> recomputes = recompute_choices(*q_.model);
  leave_sayable("recompute", &PlanKnobs::recompute, recomputes);
  add_fixed(q_.base.recompute, recomputes);
  const std::vector<CrossEntropy> losses = this->losses();
  PlanKnobs implied = q_.base;
  if (q_.is_of_megatron) spec::set_implied(implied);
  std::vector<bool> optimizers = {implied.precision_aware_optimizer};
  if (may_be_aware()) optimizers.push_back(true);
  const LayersAgain of_base = {q_.base.recompute_method, q_.base.recompute_num_layers};
  const auto add_group = [&](MemoryChoice choice, size_t first_loss, size_t num_losses) {
    groups_.push_back({memory_.size()});
    for (const bool is_aware : optimizers) {
      // What FSDP, which has masters of its own, then keeps is not known.
      if (is_aware != optimizers.front() && choice.fsdp != Fsdp::none) continue;
      choice.is_aware = is_aware;
      for (size_t i = first_loss; i < first_loss + num_losses; ++i) {
        choice.cross_entropy = losses[i];
        choice.loss_place = i;
        memory_.push_back(choice);
      }
    }
    groups_.back().count = memory_.size() - groups_.back().first;
  };
  for (const PlanRecomputeSet& recompute : recomputes) {
    std::vector<LayersAgain> all_layers = {of_base};
    // Layers that the run of today takes together may be too many for another layout.
    const LayersAgain each;
    if (recompute.has(PlanRecompute::full) && of_base != each) all_layers.push_back(each);
    for (const LayersAgain& layers : all_layers) {
      for (const Fsdp fsdp : shardings) {
        const MemoryChoice choice = {recompute, layers, {}, fsdp, false, 0};
        if (q_.is_of_megatron) {
          add_group(choice, 0, losses.size());
          continue;
        }
        // Torchtitan's losses differ in time.
        for (size_t i = 0; i < losses.size(); ++i) add_group(choice, i, 1);
      }
    }
  }
  // What is sent to the host's memory is less where more is recomputed, which may be faster.
  for (size_t later = 0; q_.base.offload.empty() && later < groups_.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      // Without FSDP torchtitan may compute in 32 bits, which is not faster.
      if (is_as_fast(memory_[groups_[earlier].first], memory_[groups_[later].first],
                     q_.base.distributed_optimizer && q_.is_of_megatron)) {
        groups_[later].faster.push_back(earlier);
      }
    }
  }
}

void SearchChoices::add_time_choices() {
  const bool is_moe = q_.model->num_experts > 0;
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
  // What is fixed, or what the run of today has.
  if (is_moe && std::ranges::find(dispatchers, q_.base.dispatcher) == dispatchers.end()) {
    dispatchers.push_back(q_.base.dispatcher);
  }
  for (const Dispatcher dispatcher : dispatchers) {
    for (const bool has_overlap : overlaps) {
      if (has_overlap && !is_moe) continue;
      for (const PlanGraphSet& set : graphs) {
        time_.push_back({dispatcher, has_overlap, set});
      }
    }
  }
  MOETUNE_CHECK(time_.size() <= TimeChoices{}.size(), "{} choices of time", time_.size());
}

/// Whether FSDP has ranks among which to share out weights: FSDP2 takes those of the dense ones
/// for all.
bool SearchChoices::shares_out_weights(const PlanKnobs& knobs) const {
  const bool has_shares_of_experts =
      q_.model->num_experts > 0 && knobs.fsdp == Fsdp::megatron && knobs.expert_copies() > 1;
  return knobs.dense_copies() > 1 || has_shares_of_experts;
}

const std::vector<int32_t>& SearchChoices::virtual_stages_with(int32_t pp) {
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

void SearchChoices::complete(PlanKnobs& knobs) const {
  if (q_.is_of_megatron) planner::complete(*q_.model, *q_.hardware, knobs);
}

std::optional<PlanKnobs> SearchChoices::with(const PlanKnobs& layout,
                                             const MemoryChoice& choice) const {
  PlanKnobs knobs = layout;
  knobs.recompute = choice.recompute;
  knobs.recompute_method = choice.layers.method;
  knobs.recompute_num_layers = choice.layers.count;
  knobs.cross_entropy = choice.cross_entropy;
  knobs.fsdp = choice.fsdp;
  knobs.precision_aware_optimizer = choice.is_aware;
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
PlanKnobs SearchChoices::with(const PlanKnobs& of_memory, const TimeChoice& time) const {
  PlanKnobs knobs = of_memory;
  knobs.dispatcher = time.dispatcher;
  knobs.overlap_moe_expert_parallel_comm = time.has_overlap;
  knobs.cuda_graphs = time.graphs;
  // What the choices of the layout itself implied.
  knobs.cuda_device_max_connections = q_.base.cuda_device_max_connections;
  knobs.overlap_param_gather = q_.base.overlap_param_gather;
  complete(knobs);
  return knobs;
}

// The layout itself is legal, so that only rules count that look at choices.
const std::vector<TimeChoices>& SearchChoices::legal(const PlanKnobs& layout) {
  const auto [tp, sequences, ep, etp] = layout.slice_sizes();
  const std::array<bool, 8> kind = {
      tp > 1,        sequences > 1, ep > 1,         etp > 1,
      layout.dp > 1, layout.pp > 1, layout.vpp > 1, layout.expert_copies() > 1};
  const auto [place, is_new] = legal_choices_.try_emplace(kind);
  if (!is_new) return place->second;
  PlanRun run = run_with(q_, {layout});
  for (const MemoryGroup& group : groups_) {
    TimeChoices legal;
    const std::optional<PlanKnobs> knobs = with(layout, memory_[group.first]);
    for (size_t t = 0; knobs && t < time_.size(); ++t) {
      run.knobs = with(*knobs, time_[t]);
      legal[t] = holds_rules_of_choices(run);
    }
    place->second.push_back(legal);
  }
  return place->second;
}

}  // namespace moetune::tuner::planner
