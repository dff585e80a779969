#include "sweeps/runs/remedy_rows.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "profiler/analysis/group_costs.h"

namespace moetune::sweeps {

namespace {

using base::Wall;
using spec::PlanKnobs;
using spec::PlanRecompute;
using Needs = RemedyRow::Needs;
using Wanted = ProposedSetting::Wanted;

bool turn_on(bool& knob) { return !std::exchange(knob, true); }

template <class Set, class Value>
bool add_to(Set& set, std::initializer_list<Value> values) {
  bool is_new = false;
  for (const Value value : values) {
    is_new = is_new || !set.has(value);
    set.add(value);
  }
  return is_new;
}

bool halve(int32_t& size) {
  if (size < 2 || size % 2 != 0) return false;
  size /= 2;
  return true;
}

/// Twice the micro-batch with what frees the memory for it; false where there is nothing to free.
bool use_room(PlanKnobs& k, bool frees_memory) {
  if (frees_memory) k.micro_batch_size *= 2;
  return frees_memory;
}

bool recompute_all(PlanKnobs& k) {
  if (k.recompute.has(PlanRecompute::full)) return false;
  k.recompute = {};
  k.recompute.add(PlanRecompute::full);
  return true;
}

constexpr ProposedSetting kExpandableSegments{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True",
                                              Wanted::variable, "PYTORCH_HIP_ALLOC_CONF"};

using Groups = std::array<std::string_view, 3>;
/// Who holds the same weights; without groups of their own that is everybody.
constexpr int32_t kManyQueues = 32;  // as Megatron-Bridge sets beside an overlapped exchange

constexpr Groups kReplicas = {"dp_cp", "edp", "world"};
constexpr Groups kExperts = {"ep", profiler::kUnknownMessages};
constexpr Groups kTensor = {"tp"};

using profiler::CollectiveKind;
using profiler::KernelClass;
using profiler::LoaderParts;
constexpr KernelClass kProducts[] = {KernelClass::gemm, KernelClass::grouped_gemm};
/// Without grouped products each expert has its own, and its own activation.
constexpr KernelClass kExpertKernels[] = {KernelClass::gemm, KernelClass::grouped_gemm,
                                          KernelClass::elementwise};
constexpr KernelClass kElementwise[] = {KernelClass::elementwise, KernelClass::indexing};
constexpr KernelClass kUnfusedAttention[] = {KernelClass::attention, KernelClass::gemm,
                                             KernelClass::elementwise};
/// All that computes with rows. What only copies or fills twice as many takes twice as long.
constexpr KernelClass kOfRows[] = {
    KernelClass::deepep_layout, KernelClass::hybridep_pack, KernelClass::moe_routing,
    KernelClass::attention,     KernelClass::grouped_gemm,  KernelClass::gemm,
    KernelClass::convolution,   KernelClass::quantisation,  KernelClass::norm,
    KernelClass::optimizer,     KernelClass::indexing,      KernelClass::elementwise};
/// What a compiler or a fused activation joins.
constexpr KernelClass kJoined[] = {KernelClass::elementwise, KernelClass::indexing,
                                   KernelClass::norm, KernelClass::copy_kernel,
                                   KernelClass::fill_kernel};
/// Where they are not fused, rows are sorted and copied by kernels for anything.
constexpr KernelClass kPermutation[] = {KernelClass::moe_routing, KernelClass::indexing,
                                        KernelClass::elementwise, KernelClass::copy_kernel,
                                        KernelClass::fill_kernel};

/// Torch's, of which weights are gathered once or twice for each micro-batch.
bool gathers_weights(const PlanKnobs& k) {
  return k.fsdp == spec::Fsdp::torch && k.dense_copies() > k.optimizer_instances;
}

/// HSDP: twice the copies of all shards. Two of them stay at least, and experts have to be spread
/// over the shards of one copy.
bool halve_shards(PlanKnobs& k) {
  const int64_t copies = int64_t{2} * k.optimizer_instances;
  if (!gathers_weights(k) || k.dp % copies != 0 || k.dp / copies < 2) return false;
  if (k.dp / copies * k.cp * k.tp % k.ep != 0) return false;
  k.optimizer_instances = static_cast<int32_t>(copies);
  return true;
}

bool compute_in(PlanKnobs& k, spec::PrecisionRecipe precision) {
  if (k.precision != spec::PrecisionRecipe::bf16) return false;
  k.precision = precision;
  return true;
}

constexpr RemedyRow kRemedyRows[] = {
    // The device waits for the host.
    {"graphs_of_static_parts",
     Wall::host,
     {"launch"},
     "Captured parts of a layer are launched at once.",
     [](PlanKnobs& k) {
       using spec::PlanGraph;
       return add_to(k.cuda_graphs,
                     {PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess});
     }},
    {"fused_permutation",
     Wall::host,
     {"launch"},
     "Sorting rows in one kernel takes fewer launches.",
     [](PlanKnobs& k) { return turn_on(k.moe_permute_fusion); },
     {},
     true,
     1,
     Needs::nothing,
     {},
     nullptr,
     kPermutation},
    {"fewer_small_kernels",
     Wall::host,
     {"launch"},
     "What is computed by element takes fewer kernels where it is fused or compiled.",
     [](PlanKnobs& k) { return turn_on(k.fused_activation); },
     {},
     false,
     1,
     Needs::nothing,
     {},
     nullptr,
     kJoined},
    {"grouped_products",
     Wall::host,
     {"launch"},
     "One launch for the products of all local experts.",
     [](PlanKnobs& k) { return turn_on(k.moe_grouped_gemm); },
     {},
     true,
     1,
     Needs::nothing,
     {},
     nullptr,
     kExpertKernels},
    {"larger_micro_batch",
     Wall::host,
     {"launch"},
     "Twice the work behind each launch.",
     [](PlanKnobs& k) {
       k.micro_batch_size *= 2;
       return true;
     },
     {},
     false,
     1,
     Needs::nothing,
     {},
     nullptr,
     {},
     0.5},  // half of the launches stay
    {"no_waiting_for_counts",
     Wall::host,
     {"sync"},
     "With a capacity the host need not know how many rows arrive; rows beyond it are dropped, so "
     "losses have to be compared.",
     [](PlanKnobs& k) {
       if (k.capacity_factor > 0) return false;
       k.capacity_factor = 1.5F;
       return true;
     },
     {},
     true},
    {"expandable_segments",
     Wall::host,
     {"allocator"},
     "The allocator then grows its segments and need not free and ask again.",
     nullptr,
     {{kExpandableSegments}}},
    {.rule = "more_loader_workers",
     .label = Wall::host,
     .sub_causes = {"loader"},
     .why = "More processes prepare the next batch.",
     .change = nullptr,
     .settings = {{{"num_workers", "8", Wanted::at_least}}},
     .part_of_loader =
         [](const LoaderParts& of) { return std::min(1.0, of.loading_ratio + of.stall_ratio); }},
    // Neither loading nor copies are garbage collection.
    {.rule = "collect_garbage_together",
     .label = Wall::host,
     .sub_causes = {"loader"},
     .why = "All ranks collect garbage in the same step, seldom.",
     .change = nullptr,
     .settings = {{{"manual_gc", "true"}, {"manual_gc_interval", "100", Wanted::at_least}}},
     .part_of_loader = [](const LoaderParts& of) { return of.stall_ratio; }},
    {.rule = "copies_from_pinned_memory",
     .label = Wall::host,
     .sub_causes = {"loader"},
     .why = "Input lies in pinned memory and is copied beside the work (pin_memory, non_blocking).",
     .change = nullptr,
     .part_of_loader = [](const LoaderParts& of) { return of.copies_ratio; }},
    // Ranks move data.
    {.rule = "overlap_of_gradients",
     .label = Wall::communication,
     .sub_causes = {"transfer"},
     .why = "Gradients are reduced while the backward pass goes on.",
     .change = [](PlanKnobs& k) { return k.dp * k.cp > 1 && turn_on(k.overlap_grad_reduce); },
     .groups = kReplicas,
     .collectives = CollectiveKind::reductions},
    {.rule = "overlap_of_weights",
     .label = Wall::communication,
     .sub_causes = {"transfer"},
     .why = "Weights are gathered while the forward pass goes on.",
     .change =
         [](PlanKnobs& k) {
           if (k.dp * k.cp == 1 || !k.distributed_optimizer) return false;
           k.overlap_grad_reduce = true;  // without which it is refused
           return turn_on(k.overlap_param_gather);
         },
     .groups = kReplicas,
     .collectives = CollectiveKind::gathers,
     .overlaps_reductions = true},
    {"weights_kept_gathered",
     Wall::communication,
     {"transfer"},
     "Weights stay gathered from the forward to the backward pass, where memory holds them.",
     nullptr,
     {{{"fsdp_reshard_after_forward", "never", Wanted::word}}},
     false,
     0.5,  // the forward pass gathers as much, with less to compute beside it
     Needs::nothing,
     kReplicas,
     nullptr,
     {},
     1,
     gathers_weights},
    {"more_work_for_each_gather",
     Wall::communication,
     {"transfer"},
     "Weights are gathered for twice the work, where memory holds its activations.",
     [](PlanKnobs& k) {
       // Beside stages a step gathers once, however small its micro-batches are.
       if (!gathers_weights(k) || k.pp > 1) return false;
       k.micro_batch_size *= 2;
       return true;
     },
     {},
     false,
     1,
     Needs::nothing,
     kReplicas,
     nullptr,
     {},
     0.5},  // half of the gathers stay
    {"shards_in_halves",
     Wall::communication,
     {"transfer"},
     "Weights are gathered within half of the ranks, at best those of a node; each half holds all "
     "of them.",
     halve_shards,
     {},
     false,
     1,
     Needs::several_nodes,
     kReplicas,
     nullptr,
     {},
     1,
     nullptr,
     spec::dialects::Dialect::torchtitan},
    {"overlap_of_experts",
     Wall::communication,
     {"transfer"},
     "One micro-batch exchanges rows while another one computes.",
     [](PlanKnobs& k) {
       if (k.ep == 1 || !turn_on(k.overlap_moe_expert_parallel_comm)) return false;
       // In one queue of the device the exchange waits for what was launched before it.
       if (k.cuda_device_max_connections == 1) k.cuda_device_max_connections = kManyQueues;
       return true;
     },
     {},
     true,
     1,
     Needs::row_exchange,
     kExperts},
    {"hybrid_dispatcher",
     Wall::communication,
     {"transfer", "one link"},
     "Rows cross between nodes once and are spread inside.",
     [](PlanKnobs& k) {
       if (k.ep == 1 || k.dispatcher == spec::Dispatcher::hybridep) return false;
       k.dispatcher = spec::Dispatcher::hybridep;
       return true;
     },
     {},
     true,
     1,
     Needs::rows_between_nodes,
     kExperts},
    {.rule = "deepep_dispatcher",
     .label = Wall::communication,
     .sub_causes = {"transfer", "one link"},
     .why = "Rows cross between nodes once and are spread inside.",
     .change =
         [](PlanKnobs& k) {
           if (k.ep == 1 || k.dispatcher != spec::Dispatcher::alltoall) return false;
           k.dispatcher = spec::Dispatcher::deepep;
           return true;
         },
     .is_for_experts = true,
     .needs = Needs::rows_between_nodes,
     .groups = kExperts,
     .dialect = spec::dialects::Dialect::torchtitan},
    {"overlap_of_tensor_parallelism",
     Wall::communication,
     {"transfer"},
     "Products and their tensor-parallel transfers run in pieces beside each other.",
     [](PlanKnobs& k) {
       if (k.tp == 1) return false;
       k.sequence_parallel = true;  // without which it is refused
       return turn_on(k.tp_comm_overlap);
     },
     {},
     false,
     1,
     Needs::nothing,
     kTensor},
    {"less_tensor_parallelism",
     Wall::communication,
     {"transfer"},
     "Half the ranks that a layer's products are cut over.",
     [](PlanKnobs& k) {
       if (!halve(k.tp)) return false;
       k.dp *= 2;
       if (k.tp == 1) k.tp_comm_overlap = false;
       return true;
     },
     {},
     false,
     1,
     Needs::nothing,
     kTensor},
    {"fewer_sms_for_exchange",
     Wall::communication,
     {"contention"},
     "The exchange leaves more multiprocessors to the kernels beside it.",
     [](PlanKnobs& k) {
       const bool is_flex =
           k.dispatcher == spec::Dispatcher::deepep || k.dispatcher == spec::Dispatcher::hybridep;
       if (k.ep == 1 || !is_flex || k.moe_flex_dispatcher_num_sms == 12) return false;
       k.moe_flex_dispatcher_num_sms = 12;
       return true;
     },
     {},
     true,
     1,
     Needs::row_exchange},
    {"look_at_the_link",
     Wall::communication,
     {"one link"},
     "One rank's transfers are slower than the others': check its cable, adapter and node.",
     nullptr},
    // Stages wait for each other.
    {"more_virtual_stages",
     Wall::pipeline,
     {"bubble"},
     "The bubble shrinks with the number of virtual stages.",
     [](PlanKnobs& k) {
       if (k.pp == 1) return false;
       k.vpp *= 2;
       return true;
     }},
    {"more_micro_batches",
     Wall::pipeline,
     {"bubble"},
     "Half the micro-batch is twice as many of them: the bubble's share halves.",
     [](PlanKnobs& k) { return k.pp > 1 && halve(k.micro_batch_size); }},
    {"fewer_stages",
     Wall::pipeline,
     {"bubble"},
     "Half the stages, twice the replicas.",
     [](PlanKnobs& k) {
       if (!halve(k.pp)) return false;
       k.dp *= 2;
       if (k.pp == 1) k.vpp = 1;
       return true;
     }},
    {"fewer_layers_at_the_ends",
     Wall::pipeline,
     {"uneven stage"},
     "Embedding and head are work too: give their stages fewer layers.",
     nullptr,
     {{{"account_for_embedding_in_pipeline_split", "true"},
       {"account_for_loss_in_pipeline_split", "true"}}}},
    // Some ranks have more to do, or are slower.
    {"balance_of_experts",
     Wall::imbalance,
     {"experts"},
     "A stronger balancing loss evens out what the experts receive.",
     nullptr,
     {{{"moe_aux_loss_coeff", "0.01", Wanted::at_least}}},
     true},
    {"capacity_of_experts",
     Wall::imbalance,
     {"experts"},
     "A capacity bounds what the busiest expert computes; rows beyond it are dropped, so losses "
     "have "
     "to be compared.",
     [](PlanKnobs& k) {
       if (k.capacity_factor > 0) return false;
       k.capacity_factor = 1.25F;
       return true;
     },
     {},
     true},
    {"look_at_the_rank",
     Wall::imbalance,
     {"rank"},
     "One rank computes slower than the others: check its clocks, temperature and neighbours.",
     nullptr},
    // Memory is bought with time.
    {"selective_recomputation",
     Wall::memory,
     {"recompute"},
     "Recompute what is cheap and large instead of whole layers.",
     [](PlanKnobs& k) {
       if (!k.recompute.has(PlanRecompute::full)) return false;
       k.recompute = {};
       k.recompute.add(PlanRecompute::moe_act);
       k.recompute.add(PlanRecompute::layernorm);
       return true;
     }},
    {"no_recomputation",
     Wall::memory,
     {"recompute"},
     "Nothing is recomputed, where memory allows it.",
     [](PlanKnobs& k) {
       if (k.recompute == spec::PlanRecomputeSet{}) return false;
       k.recompute = {};
       return true;
     }},
    {"no_offload",
     Wall::memory,
     {"offload", "host memory"},
     "Nothing goes to the host's memory, where that fits.",
     [](PlanKnobs& k) {
       if (k.optimizer_offload_ratio == 0 && k.offload == spec::OffloadSet{}) return false;
       k.optimizer_offload_ratio = 0;
       k.offload = {};
       return true;
     }},
    {"less_offload",
     Wall::memory,
     {"offload"},
     "Half of the optimizer's state comes back to the device.",
     [](PlanKnobs& k) {
       if (k.optimizer_offload_ratio == 0) return false;
       k.optimizer_offload_ratio /= 2;
       return true;
     }},
    {"smaller_micro_batch",
     Wall::memory,
     {"oom"},
     "Half the activations, twice the micro-batches.",
     [](PlanKnobs& k) { return halve(k.micro_batch_size); }},
    {"more_recomputation",
     Wall::memory,
     {"oom"},
     "What is cheap and large is recomputed instead of kept; where that is so, whole layers are.",
     [](PlanKnobs& k) {
       if (k.recomputes_block()) {
         k.recompute_method = spec::RecomputeMethod::uniform;
         k.recompute_num_layers = 1;
         return true;
       }
       if (k.recompute.has(PlanRecompute::full)) return false;
       return add_to(k.recompute, {PlanRecompute::moe_act, PlanRecompute::layernorm}) ||
              recompute_all(k);
     },
     {},
     false,
     1,
     Needs::nothing,
     {},
     recompute_all},
    {"fused_loss",
     Wall::memory,
     {"oom"},
     "Logits are not kept: the loss is computed in pieces.",
     [](PlanKnobs& k) {
       if (k.cross_entropy != spec::CrossEntropy::unfused) return false;
       k.cross_entropy = spec::CrossEntropy::native;
       return true;
     }},
    {"offloaded_optimizer",
     Wall::memory,
     {"oom"},
     "The optimizer's state lies in the host's memory; steps take longer.",
     [](PlanKnobs& k) {
       if (k.optimizer_offload_ratio > 0) return false;
       k.optimizer_offload_ratio = 1;
       k.precision_aware_optimizer = true;  // the one that can
       // Weights in FP8 alone and an update on the host exclude each other (rule narrow_weights).
       if (k.precision != spec::PrecisionRecipe::fp8_delayed) k.fp8_param_gather = false;
       return true;
     }},
    {"less_fragmentation",
     Wall::memory,
     {"oom"},
     "The allocator grows its segments and leaves fewer holes.",
     nullptr,
     {{kExpandableSegments}}},
    {"weights_freed_after_forward",
     Wall::memory,
     {"oom"},
     "Weights are not kept gathered between forward and backward pass.",
     nullptr,
     {{{"fsdp_reshard_after_forward", "always", Wanted::word}}},
     false,
     1,
     Needs::nothing,
     {},
     nullptr,
     {},
     1,
     gathers_weights},
    {"fewer_loader_workers",
     Wall::memory,
     {"host memory"},
     "Each process that prepares batches holds a copy of what it reads.",
     nullptr,
     {{{"num_workers", "1", Wanted::at_most}}}},
    {"sharded_optimizer",
     Wall::memory,
     {"oom", "recompute", "offload"},
     "Each replica keeps its share of the optimizer's state only: room for larger micro-batches.",
     [](PlanKnobs& k) { return k.dp * k.cp > 1 && turn_on(k.distributed_optimizer); }},
    {"narrow_moments",
     Wall::memory,
     {"oom", "recompute", "offload"},
     "Moments in bf16 free memory for larger micro-batches or less recomputation.",
     [](PlanKnobs& k) {
       if (k.exp_avg == spec::StateType::bf16) return false;
       k.precision_aware_optimizer = true;
       k.exp_avg = k.exp_avg_sq = spec::StateType::bf16;
       return true;
     }},
    // Memory holds the micro-batch down: free some, and use it at once. What costs least is first.
    {"room_by_fused_loss",
     Wall::memory,
     {"capped micro-batch"},
     "Logits are not kept: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       const bool is_new = k.cross_entropy == spec::CrossEntropy::unfused;
       if (is_new) k.cross_entropy = spec::CrossEntropy::native;
       return use_room(k, is_new);
     }},
    {"room_by_sharded_optimizer",
     Wall::memory,
     {"capped micro-batch"},
     "Each replica keeps its share of the optimizer's state only: room for twice the micro-batch.",
     [](PlanKnobs& k) { return use_room(k, k.dp * k.cp > 1 && turn_on(k.distributed_optimizer)); }},
    {"room_by_narrow_moments",
     Wall::memory,
     {"capped micro-batch"},
     "Moments in bf16 free memory for twice the micro-batch; losses have to be compared.",
     [](PlanKnobs& k) {
       const bool is_new = k.exp_avg != spec::StateType::bf16;
       k.precision_aware_optimizer = true;
       k.exp_avg = k.exp_avg_sq = spec::StateType::bf16;
       return use_room(k, is_new);
     }},
    {"room_by_recomputation",
     Wall::memory,
     {"capped micro-batch"},
     "What is cheap and large is recomputed instead of kept: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       return use_room(k,
                       !k.recompute.has(PlanRecompute::full) &&
                           add_to(k.recompute, {PlanRecompute::moe_act, PlanRecompute::layernorm}));
     }},
    {"room_by_more_expert_ranks",
     Wall::memory,
     {"capped micro-batch"},
     "Half the experts on each rank: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       k.ep *= 2;
       return use_room(k, true);
     },
     {},
     true},
    // The device computes.
    {"products_in_fp8",
     Wall::compute,
     {"FLOPs"},
     "Products in 8 bits; losses have to be compared.",
     [](PlanKnobs& k) { return compute_in(k, spec::PrecisionRecipe::fp8_blockwise); },
     {},
     false,
     0.5,  // twice the peak of 16 bits
     Needs::nothing,
     {},
     [](PlanKnobs& k) { return compute_in(k, spec::PrecisionRecipe::fp8_current); },
     kProducts},
    {.rule = "fused_activations",
     .label = Wall::compute,
     .sub_causes = {"bandwidth"},
     .why = "An activation is read and written once.",
     .change = [](PlanKnobs& k) { return turn_on(k.fused_activation); },
     .kernels = kElementwise},
    {.rule = "fused_rows",
     .label = Wall::compute,
     .sub_causes = {"bandwidth"},
     .why = "Rows are sorted in one kernel, which reads and writes them once.",
     .change = [](PlanKnobs& k) { return turn_on(k.moe_permute_fusion); },
     .is_for_experts = true,
     .kernels = kPermutation},
    {"fused_router",
     Wall::compute,
     {"bandwidth"},
     "Scores, their bias and the choice of experts are one kernel.",
     nullptr,
     {{{"moe_router_fusion", "true"}}},
     true,
     1,
     Needs::nothing,
     {},
     nullptr,
     kPermutation},
    {.rule = "fused_loss_kernels",
     .label = Wall::compute,
     .sub_causes = {"bandwidth"},
     .why = "The loss reads logits fewer times.",
     .change =
         [](PlanKnobs& k) {
           if (k.cross_entropy != spec::CrossEntropy::unfused) return false;
           k.cross_entropy = spec::CrossEntropy::native;
           return true;
         },
     .kernels = kElementwise},
    {.rule = "fused_attention",
     .label = Wall::compute,
     .sub_causes = {"bandwidth"},
     .why = "Scores of all pairs of tokens are not written to memory.",
     .change = [](PlanKnobs& k) { return turn_on(k.fused_attention); },
     .kernels = kUnfusedAttention},
    {"larger_products",
     Wall::compute,
     {"occupancy"},
     "Twice the rows in each product.",
     [](PlanKnobs& k) {
       k.micro_batch_size *= 2;
       return true;
     },
     {},
     false,
     0.5,  // twice the rows take as long as the rows of today at best
     Needs::nothing,
     {},
     nullptr,
     kOfRows},
    {.rule = "whole_experts",
     .label = Wall::compute,
     .sub_causes = {"occupancy"},
     .why = "Experts that are not cut have wider products.",
     .change =
         [](PlanKnobs& k) {
           if (!halve(k.etp)) return false;
           k.ep *= 2;
           return true;
         },
     .is_for_experts = true,
     .kernels = kProducts},
};

}  // namespace

std::span<const RemedyRow> remedy_rows() { return kRemedyRows; }

}  // namespace moetune::sweeps
