// Work over rates, per layer, then per stage, then per step.
#include "tuner/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tuner/planner/adapters.h"
#include "tuner/planner/exchange.h"
#include "tuner/planner/full_recompute.h"
#include "tuner/planner/host_time.h"
#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/op_classes.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/titan_memory.h"
#include "tuner/planner/titan_time.h"

namespace moetune::tuner::planner {

namespace {

using plan::Op;
using plan::Pass;
using spec::FeedForward;
using spec::LayerKind;
using spec::Mixer;
using spec::PlanGraph;
using spec::PlanKnobs;
using spec::PlanRecompute;
using spec::Work;

struct TimePartRow {
  TimePart id;
  base::StepPart part;
  std::string_view group;  ///< or, of compute, the kind of work
};

constexpr std::array<TimePartRow, static_cast<size_t>(TimePart::count)> kTimeParts = {{
    {TimePart::products, base::StepPart::compute, "products"},
    {TimePart::experts, base::StepPart::compute, "experts"},
    {TimePart::attention, base::StepPart::compute, "attention"},
    {TimePart::memory, base::StepPart::compute, "bytes"},
    {TimePart::recompute, base::StepPart::recompute, {}},
    {TimePart::expert_exchange, base::StepPart::transfer, "ep"},
    {TimePart::tensor, base::StepPart::transfer, "tp"},
    {TimePart::context, base::StepPart::transfer, "cp"},
    {TimePart::pipeline, base::StepPart::transfer, "pp"},
    {TimePart::host_copies, base::StepPart::transfer, base::kMemcpyGroup},
    {TimePart::bubble, base::StepPart::pipeline_bubble, {}},
    {TimePart::data, base::StepPart::transfer, "dp_cp"},
    {TimePart::optimizer, base::StepPart::compute, "optimizer"},
    {TimePart::host, base::StepPart::launch_starved, {}},
    {TimePart::fixed, base::StepPart::compute, "fixed"},
}};

constexpr bool is_in_order_of_time_parts() {
  for (size_t i = 0; i < kTimeParts.size(); ++i) {
    if (kTimeParts[i].id != static_cast<TimePart>(i)) return false;
  }
  return true;
}
static_assert(is_in_order_of_time_parts(), "kTimeParts must be in the order of TimePart");

class StepPricer {
 public:
  StepPricer(const PlanRun& run, const Rates& rates, const TimeContext& context)
      : run_(run), k_(run.knobs), hw_(*run.hardware), rates_(rates) {
    revision_ = is_later_revision(hw_) ? rates.later_revision : 1;
    const bool is_moe = run.model->num_experts > 0;
    const double drift = is_moe ? rates.drift_moe : rates.drift_dense;
    scale_ = std::exp(-drift * fitted_month(context.months)) *
             rates.case_factor[static_cast<size_t>(k_.precision)];
  }

  LayerTime layer(const PreparedStep::Alike& alike) const {
    LayerTime time;
    const FeedForward half = alike.kind.feed_forward;
    for (const OpWork& op : alike.work->ops) add_op(op, half, time);
    for (const CommWork& comm : alike.work->comms) add_comm(comm, half, time);
    if (k_.exchanges_heads() &&
        (alike.kind.mixer == spec::Mixer::gqa || alike.kind.mixer == spec::Mixer::mla)) {
      add_head_exchange(time);
    }
    if (!k_.fused_attention) add_scores(alike, time);
    add_eager(eager_layer_bytes(run_, alike.kind), !k_.recompute.empty(), time);
    const double num_adapters = has_adapters(k_) ? add_adapters(alike.kind, time) : 0;
    if (!k_.offload.empty()) {
      time[TimePart::host_copies] += exposed_copies(run_, alike.kind, alike.window, time.device());
    }
    // What Megatron's layers do again is in their calls.
    const double again = relaunched(alike);
    time.host = host_seconds(alike.kind, num_adapters) * (run_.is_of_megatron ? 1 : again) +
                ungrouped_seconds(alike) * again;
    return time;
  }

  LayerTime head(const LayerWork& work) const {
    LayerTime time;
    for (const OpWork& op : work.ops) add_op(op, FeedForward::none, time);
    add_eager(eager_head_bytes(run_), false, time);
    return time;
  }

  static void add(const LayerTime& one, double times, LayerTime& sum) {
    for (size_t i = 0; i < sum.parts.size(); ++i) sum.parts[i] += times * one.parts[i];
    sum.host += times * one.host;
  }

  StepTime step(const LayerTime& worst, const Weights& weights, double num_parameters) const {
    const double seconds = on_host(worst);
    const auto m = static_cast<double>(num_micro_batches(run_));
    const auto vpp = static_cast<double>(num_virtual_stages(run_));
    StepTime step;
    for (size_t i = 0; i < worst.parts.size(); ++i) step.parts[i] = m * worst.parts[i];
    step.part(TimePart::host) = m * (seconds - worst.device());
    // Fewer micro-batches than stages leave each round of virtual stages waiting for the last one.
    const double pp = k_.pp;
    const auto of_pass = static_cast<double>(micro_batches_of_pass(run_));
    const double gaps = pp - 1 + (vpp - 1) * std::max(0.0, pp - of_pass);
    // The pipeline fills and drains once a pass.
    step.part(TimePart::bubble) = std::ceil(m / of_pass) * gaps / vpp * seconds;
    if (k_.pp > 1) {
      // Each virtual stage sends once forward and once back.
      step.part(TimePart::pipeline) = m * 2 * vpp * message_seconds() * rates_.pipeline_exposed;
    }
    add_update(weights, step);
    // Norms of gradients, their copies, the update and the buckets of replicas go through lists of
    // parameters on the host.
    if (!has_adapters(k_)) {
      step.part(TimePart::fixed) += 1e-9 * rates_.parameter_ns * host_slowness() * num_parameters;
    }
    for (double& part : step.parts) part *= scale_;
    for (const double part : step.parts) step.seconds += part;
    return step;
  }

  [[nodiscard]] double scale() const { return scale_; }

  /// Of a step, of the host.
  [[nodiscard]] double launch_seconds(const LayerTime& stage) const {
    return scale_ * static_cast<double>(num_micro_batches(run_)) * stage.host;
  }

  /// One operation of a program, whose narrow copies are operations of their own.
  [[nodiscard]] double played_seconds(const OpWork& op, spec::PrecisionRecipe of_product) const {
    if (op.op == Op::adamw) {
      return scale_ * rates_.optimizer_factor * op.bytes / hw_.memory_bytes_per_s;
    }
    // What recipes read and write has a share of the products' price, without a factor.
    if (op.op == Op::quantize || op.op == Op::amax) {
      return scale_ * op.bytes / (hw_.memory_bytes_per_s * revision_);
    }
    const bool is_product = op.work == Work::product || op.work == Work::grouped;
    const spec::PrecisionRecipe recipe = spec::is_product_narrow(of_product) ? of_product
                                         : spec::is_product_narrow(k_.precision)
                                             ? spec::PrecisionRecipe::bf16
                                             : k_.precision;
    return scale_ * done_share(op) *
           (is_product ? product_seconds(op, recipe_of(op, recipe)) : op_seconds(op, recipe));
  }

  /// What FSDP adds to a micro-batch for these weights.
  [[nodiscard]] double gathering_seconds(const Weights& weights) const {
    return k_.fsdp == spec::Fsdp::none ? 0 : exposed_wire_seconds(weights);
  }
  [[nodiscard]] static double on_host(const LayerTime& stage) { return seconds_of(stage).total(); }
  [[nodiscard]] static StageSeconds seconds_of(const LayerTime& time) {
    return {time.device(), time.host};
  }

 private:
  [[nodiscard]] double recomputed_share(Op op, FeedForward half) const {
    if (k_.recompute.has(PlanRecompute::full)) return 1;
    if (has_titan_selective(run_)) return titan_recomputed_share(run_, op);
    return (k_.recompute & modules_of(op, half)).empty() ? 0 : 1;
  }
  [[nodiscard]] bool is_recomputed(Op op, FeedForward half) const {
    return recomputed_share(op, half) > 0;
  }

  void add_eager(const EagerBytes& bytes, bool is_again, LayerTime& time) const {
    const double per_byte = rates_.memory_dense / (hw_.memory_bytes_per_s * revision_);
    time[TimePart::memory] += per_byte * (bytes.forward + bytes.backward);
    if (is_again) time[TimePart::recompute] += per_byte * bytes.forward;
  }

  void add_op(const OpWork& op, FeedForward half, LayerTime& time) const {
    if (op.pass == Pass::wgrad && has_adapters(k_)) return;
    const double seconds = done_share(op) * op_seconds(op, k_.precision);
    const TimePart part = op.work == Work::grouped   ? TimePart::experts
                          : op.work == Work::product ? TimePart::products
                          : op.work == Work::attention || op.work == Work::scan
                              ? TimePart::attention
                              : TimePart::memory;
    time[part] += seconds;
    const bool is_layer = half != FeedForward::none || op.op != Op::lm_head;
    if (op.pass == Pass::forward && is_layer) {
      time[TimePart::recompute] += recomputed_share(op.op, half) * seconds;
    }
  }

  /// Of an operation's time, by who does it and how.
  [[nodiscard]] double done_share(const OpWork& op) const {
    double share = 1;
    // Biases and clamps are passes over the rows of their own, in 16 bits whatever the products
    // compute in.
    if (run_.model->has_expert_bias && op.op == Op::expert_act) share *= rates_.biased_experts;
    if (is_done_by_dispatcher(op.op)) share *= rates_.fused_permute;
    return share;
  }

  [[nodiscard]] bool is_done_by_dispatcher(Op op) const {
    const bool is_hybrid = k_.dispatcher == spec::Dispatcher::hybridep;
    if (plan::is_before_sending(op)) return is_hybrid || k_.dispatcher == spec::Dispatcher::deepep;
    return is_hybrid && plan::is_after_receiving(op);
  }

  /// What an operation computes in under a recipe.
  [[nodiscard]] spec::PrecisionRecipe recipe_of(const OpWork& op,
                                                spec::PrecisionRecipe precision) const {
    if (plan::is_of_recipe(op.op)) return precision;
    return has_wide_elements(k_) ? spec::PrecisionRecipe::fp32 : spec::PrecisionRecipe::bf16;
  }

  /// Without what is quantized for it.
  [[nodiscard]] double product_seconds(const OpWork& op, spec::PrecisionRecipe recipe) const {
    const bool is_grouped = op.work == Work::grouped;
    double rate =
        product_flops_per_s(rates_, hw_, is_grouped ? grouped_recipe(run_, recipe) : recipe,
                            has_tf32(run_) && plan::is_of_recipe(op.op)) *
        revision_;
    if (is_grouped) {
      rate *= rates_.grouped;
      if (!has_grouped_products(run_)) rate /= ungrouped_slowness(run_, op);
    }
    const double half_rows = is_grouped ? rates_.grouped_half_rows : rates_.product_half_rows;
    const double flops =
        op.flops + half_rows * (spec::is_product_narrow(recipe) ? 2 : 1) * op.row_flops;
    return std::max(flops / rate, op.bytes / (hw_.memory_bytes_per_s * revision_));
  }

  [[nodiscard]] double op_seconds(const OpWork& op, spec::PrecisionRecipe precision) const {
    const double bandwidth = hw_.memory_bytes_per_s * revision_;
    switch (op.work) {
      case Work::product:
      case Work::grouped: {
        const spec::PrecisionRecipe recipe = recipe_of(op, precision);
        double seconds = product_seconds(op, recipe);
        // Quantizing reads and writes 4.5 bytes for each element of an operand. `bytes` has about 4
        // for it: 2 of the operand itself, 2 of a result that is about as large.
        if (spec::is_product_narrow(recipe)) {
          seconds += 4.5 / 4 * std::max(0.0, op.bytes - op.weight_bytes) / bandwidth;
        }
        return seconds;
      }
      case Work::attention: {
        if (has_wide_elements(k_)) {
          return op.flops /
                 (wide_attention_flops_per_s(rates_, hw_, k_.fused_attention) * revision_);
        }
        const bool is_latent = run_.model->mla.kv_lora_rank > 0;
        const double dim =
            static_cast<double>(is_latent ? run_.model->mla.qk_head_dim() : run_.model->head_dim);
        return op.flops / (attention_flops_per_s(rates_, hw_, static_cast<double>(run_.seq_length),
                                                 dim, op.pass == Pass::backward, k_.fp8_attention) *
                           revision_);
      }
      case Work::scan:
        if (op.op == Op::gdn_conv || op.op == Op::mamba_conv) break;
        return op.flops / (scan_flops_per_s(rates_, hw_, op.op == Op::gdn_scan) * revision_);
      default:
        break;
    }
    const bool is_routed = is_of_experts(op.op);
    double factor = is_routed ? rates_.memory_moe : rates_.memory_dense;
    if (k_.fused_grouped_mlp && is_in_fused_mlp(op.op)) factor *= rates_.fused_mlp;
    return factor * op.bytes / bandwidth;
  }

  /// How often a collective outside of the exchange of experts' rows is done.
  [[nodiscard]] double times_of(const CommWork& comm) const {
    return comm.pass == Pass::forward && k_.recompute.has(PlanRecompute::full) ? 2 : 1;
  }

  void add_comm(const CommWork& comm, FeedForward half, LayerTime& time) const {
    const double latency = 1e-9 * static_cast<double>(hw_.intra_node.latency_ns);
    switch (comm.group) {
      case plan::Group::tp: {
        const double exposed = k_.tp_comm_overlap ? 0.5 : 1.0;
        time[TimePart::tensor] +=
            times_of(comm) * rates_.tensor_factor * exposed * collective_seconds(comm, k_.tp, 1);
        break;
      }
      case plan::Group::cp:
      case plan::Group::tp_cp: {
        const bool is_ring = comm.op == Op::kv_shift;
        if (is_ring && k_.cp_comm_type == spec::PlanCp::a2a) break;  // add_head_exchange
        // A ring's blocks travel while attention works on the one before.
        const double exposed = is_ring && k_.cp_comm_type == spec::PlanCp::p2p ? 0.3 : 1.0;
        time[TimePart::context] +=
            times_of(comm) * exposed * collective_seconds(comm, k_.cp, k_.tp);
        break;
      }
      case plan::Group::ep: {
        if (comm.kind != spec::CollectiveKind::all_to_all) {
          time[TimePart::expert_exchange] += latency;
          break;
        }
        const double seconds = exchange_seconds(run_) / rates_.exchange;
        time[TimePart::expert_exchange] +=
            seconds * (k_.overlap_moe_expert_parallel_comm ? exposed_exchange() : 1);
        // What is recomputed is exchanged within the layer's own backward, beside nothing.
        if (comm.pass == Pass::forward && is_recomputed(comm.op, half) &&
            !k_.recompute.has(PlanRecompute::moe_act)) {
          time[TimePart::expert_exchange] += seconds;
        }
        break;
      }
      default:
        break;
    }
  }

  /// Of an exchange beside other work: what is not hidden, and what the multiprocessors that it
  /// keeps cost the work that hides it.
  [[nodiscard]] double exposed_exchange() const {
    double hidden = 1 - rates_.exchange_exposed;
    // In one queue an exchange waits for what was launched before it: 191.1 against 198.5 TFLOP/s
    // on H100 (Megatron-LM #6311) is a quarter of what was hidden.
    constexpr double kHiddenInOrder = 0.75;
    if (k_.cuda_device_max_connections == 1) hidden *= kHiddenInOrder;
    const double kept = std::min(0.9, exchange_multiprocessors(k_) / num_multiprocessors(hw_));
    return 1 - hidden + hidden * kept;
  }

  /// Launches with recomputation over those without, of what was not counted (host_calls).
  [[nodiscard]] double relaunched(const PreparedStep::Alike& alike) const {
    const FeedForward half = alike.kind.feed_forward;
    const auto is_again = [&](const auto& part) {
      return part.pass == Pass::forward && is_recomputed(part.op, half);
    };
    const auto again = std::count_if(alike.work->ops.begin(), alike.work->ops.end(), is_again) +
                       std::count_if(alike.work->comms.begin(), alike.work->comms.end(), is_again);
    return 1 + static_cast<double>(again) / std::max(1, alike.work->num_launches);
  }

  [[nodiscard]] double host_slowness() const {
    return hw_.host_slowness > 0 ? hw_.host_slowness : 1;
  }

  /// Ulysses (Jacobs et al. 2023, arXiv 2309.14509): queries, keys and values are exchanged for all
  /// tokens of a rank's heads, and the output back; the same again backward.
  void add_head_exchange(LayerTime& time) const {
    const spec::ModelSpec& model = *run_.model;
    const bool is_latent = model.mla.kv_lora_rank > 0;
    const int64_t values = is_latent ? model.mla.v_head_dim : model.head_dim;
    const int64_t columns = model.num_heads * (model.head_dim + values) +
                            model.num_kv_heads * (model.head_dim + values);
    const LayerSizes sizes = sizes_of(run_, model.kind_of(0), 0);
    const double bytes = sizes.tokens * f64(columns) / k_.tp * sizes.element;
    const double passes = k_.recompute.has(PlanRecompute::full) ? 3 : 2;
    time[TimePart::context] +=
        passes * group_seconds(hw_, spec::CollectiveKind::all_to_all, k_.cp, k_.tp, bytes);
  }

  /// On ranks that are `stride` apart.
  [[nodiscard]] double collective_seconds(const CommWork& comm, double size, double stride) const {
    return group_seconds(hw_, comm.kind, size, stride, comm.bytes);
  }

  /// What the host is busy with, forward and backward, of a layer of that kind.
  [[nodiscard]] double host_seconds(LayerKind kind, double num_adapters) const {
    if (k_.cuda_graphs.has(PlanGraph::full_iteration)) return 0;
    const double ns =
        rates_.host_layer_ns * host_calls(run_, kind, num_adapters) / reference_host_calls();
    return 1e-9 * host_slowness() * ns;
  }

  /// Of the host, for experts whose products are kernels of their own: a launch takes as long as
  /// the others of the layer. No graph of a part of a layer has them.
  [[nodiscard]] double ungrouped_seconds(const PreparedStep::Alike& alike) const {
    const bool is_grouped =
        has_grouped_products(run_) || alike.kind.feed_forward != FeedForward::moe;
    if (is_grouped || k_.cuda_graphs.has(PlanGraph::full_iteration)) return 0;
    return 1e-9 * host_slowness() * rates_.host_layer_ns * more_launches(*alike.work) /
           std::max(1, alike.work->num_launches);
  }

  void add_scores(const PreparedStep::Alike& alike, LayerTime& time) const {
    const ScoreBytes bytes = score_bytes(run_, alike.kind, alike.window);
    const double per_byte = rates_.memory_dense / (hw_.memory_bytes_per_s * revision_);
    time[TimePart::attention] += per_byte * (bytes.forward + bytes.backward);
    if (is_recomputed(Op::core_attn, alike.kind.feed_forward)) {
      time[TimePart::recompute] += per_byte * bytes.forward;
    }
  }

  /// Returns how many the layer has. Experts share theirs, so that its products are dense ones.
  double add_adapters(LayerKind kind, LayerTime& time) const {
    const std::vector<AdapterTime> adapters = adapter_times(run_, kind, rates_);
    for (const AdapterTime& adapter : adapters) {
      time[TimePart::products] += adapter.forward.products + adapter.backward.products;
      time[TimePart::memory] += adapter.forward.memory + adapter.backward.memory;
      if (is_recomputed(adapter.op, kind.feed_forward)) {
        time[TimePart::recompute] += adapter.forward.products + adapter.forward.memory;
      }
    }
    return static_cast<double>(adapters.size());
  }

  [[nodiscard]] double message_seconds() const {
    const LayerSizes sizes = sizes_of(run_, run_.model->kind_of(0), 0);
    const double bytes = sizes.own_tokens * sizes.hidden * sizes.element;
    const bool is_near = k_.stage_ranks() * 2 <= hw_.devices_per_node;
    const spec::LinkSpec& link = is_near ? hw_.intra_node : hw_.inter_node;
    return link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0;
  }

  /// Of reducing the gradients and gathering the weights, what is not hidden: of a step, with FSDP
  /// of a micro-batch.
  [[nodiscard]] double exposed_wire_seconds(const Weights& weights) const {
    const double gradient = k_.main_grads == spec::StateType::fp32 ? 4 : 2;
    const double weight = has_wide_elements(k_) ? 4 : 2;
    using spec::CollectiveKind;
    // Of `elements`, `narrow` ones are gathered in a byte each.
    const auto exposed = [&](bool is_hidden) { return is_hidden ? rates_.data_exposed : 1; };
    // Units of FSDP are fetched and reduced meanwhile by either switch.
    const bool is_fsdp = k_.fsdp != spec::Fsdp::none;
    const double of_weights =
        exposed(k_.overlap_param_gather || (is_fsdp && k_.overlap_grad_reduce));
    const double of_gradients =
        exposed(k_.overlap_grad_reduce || (is_fsdp && k_.overlap_param_gather));
    const auto gathered = [&](double elements, double narrow, double size, double stride) {
      return of_weights * group_seconds(hw_, CollectiveKind::all_gather, size, stride,
                                        weight * elements - (weight - 1) * narrow);
    };
    const auto reduced = [&](double elements, double narrow, double size, double stride) {
      const auto seconds = [&](CollectiveKind kind) {
        return of_gradients * group_seconds(hw_, kind, size, stride, gradient * elements);
      };
      if (!is_shared()) return seconds(CollectiveKind::all_reduce);
      return seconds(CollectiveKind::reduce_scatter) + gathered(elements, narrow, size, stride);
    };
    // Weights in MXFP8 are quantized by rows and by columns behind their gathering in 16 bits.
    const bool gathers_narrow =
        has_narrow_weights(k_) && k_.precision != spec::PrecisionRecipe::mxfp8;
    const double narrow_experts = gathers_narrow ? weights.experts : 0;
    const double narrow_dense =
        gathers_narrow ? std::max(0.0, weights.products - weights.experts) : 0;
    const auto copies = static_cast<double>(k_.dense_copies());
    const auto expert_copies = static_cast<double>(k_.expert_copies());
    const double expert_stride = static_cast<double>(k_.ep) * k_.etp;
    const double dense = weights.split + weights.replicated;
    // Units of FSDP are gathered for the forward and again for the backward.
    if (has_adapters(k_)) {
      const double rank = k_.lora_rank;
      double wire = reduced(rank * weights.adapters, 0, copies, k_.tp) +
                    reduced(rank * weights.expert_adapters, 0, expert_copies, expert_stride);
      if (is_fsdp) {
        wire += 2 * (gathered(dense, narrow_dense, copies, k_.tp) +
                     gathered(weights.experts, narrow_experts, expert_copies, expert_stride));
      }
      return wire;
    }
    const double times = is_fsdp ? 1.5 : 1;
    const double wire = reduced(dense, narrow_dense, copies, k_.tp) +
                        reduced(weights.experts, narrow_experts, expert_copies, expert_stride);
    return times * wire;
  }

  /// Where each rank updates all that it holds, all ranks need the gradients, and no weights
  /// travel.
  [[nodiscard]] bool is_shared() const {
    return k_.distributed_optimizer || k_.fsdp != spec::Fsdp::none;
  }

  void add_update(const Weights& weights, StepTime& step) const {
    step.part(TimePart::fixed) = has_fixed_time(run_) ? 1e-9 * rates_.fixed_ns : 0;
    // Units of FSDP are gathered in each micro-batch.
    const double times =
        k_.fsdp == spec::Fsdp::none ? 1 : static_cast<double>(num_micro_batches(run_));
    step.part(TimePart::data) = times * exposed_wire_seconds(weights);
    // The update of adapters is too little to see.
    if (has_adapters(k_)) return;
    const double dense = weights.split + weights.replicated;
    const auto copies = static_cast<double>(k_.dense_copies());
    const auto expert_copies = static_cast<double>(k_.expert_copies());
    const double owned =
        is_shared() ? dense / copies + weights.experts / expert_copies : dense + weights.experts;
    // Gradient, master and both moments read, the latter three written, and the weight.
    constexpr double kBytes = 4 + 2 * 12 + 2;
    step.part(TimePart::optimizer) =
        rates_.optimizer_factor * owned * kBytes / hw_.memory_bytes_per_s;
    // State in the host's memory goes over its link twice.
    const double copied = 2 * (bytes_of_type(k_.main_params) + bytes_of_type(k_.exp_avg) +
                               bytes_of_type(k_.exp_avg_sq));
    step.part(TimePart::optimizer) += static_cast<double>(k_.optimizer_offload_ratio) * owned *
                                      copied / plan::host_link_bytes_per_s(hw_);
  }

  const PlanRun& run_;
  const PlanKnobs& k_;
  const spec::HardwareSpec& hw_;
  const Rates& rates_;
  double revision_ = 1;
  double scale_ = 1;  ///< of all parts, by release and kind of run
};

}  // namespace

base::NamedPart named(TimePart part) {
  const TimePartRow& row = kTimeParts[static_cast<size_t>(part)];
  return {&base::row_of(row.part), row.group};
}

StepTime PreparedStep::price(const Rates& rates, const TimeContext& context) const {
  return priced(rates, context, nullptr).step;
}

StepTime PreparedStep::price(const Rates& rates, TimeCache& known) const {
  return priced(rates, {}, &known).step;
}

double PreparedStep::launch_seconds(const Rates& rates) const {
  return priced(rates, {}, nullptr).launching;
}

PreparedStep::Priced PreparedStep::priced(const Rates& rates, const TimeContext& context,
                                          TimeCache* known) const {
  const StepPricer pricer(run_, rates, context);
  const auto time_of_work = [&](const LayerWork& work, const auto& price) {
    return known == nullptr ? price() : known->time(run_, work, price);
  };
  std::vector<LayerTime> layers;
  layers.reserve(alike_.size());
  for (const Alike& alike : alike_) {
    layers.push_back(time_of_work(*alike.work, [&] { return pricer.layer(alike); }));
  }
  std::vector<LayerTime> kept;
  if (run_.knobs.recomputes_block()) {
    PlanRun without = run_;
    without.knobs.recompute = {};
    const StepPricer pricer_of_kept(without, rates, context);
    for (const Alike& alike : alike_) kept.push_back(pricer_of_kept.layer(alike));
  }
  const LayerTime head = time_of_work(*head_, [&] { return pricer.head(*head_); });
  const auto time_of = [&](const auto& stage) {
    LayerTime sum;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const double left = kept.empty() ? 0 : stage.kept[i];
      StepPricer::add(layers[i], stage.layers[i] - left, sum);
      if (left > 0) StepPricer::add(kept[i], left, sum);
    }
    StepPricer::add(head, stage.num_heads, sum);
    return sum;
  };
  const auto slower = [](const LayerTime& a, const LayerTime& b) {
    return StepPricer::on_host(a) < StepPricer::on_host(b) ? b : a;
  };
  // Ranks go through their virtual stages together: the slowest of each number is waited for.
  LayerTime rounds;
  for (const std::vector<Part>& round : rounds_) {
    LayerTime slowest;
    for (const Part& part : round) slowest = slower(slowest, time_of(part));
    StepPricer::add(slowest, 1, rounds);
  }
  std::vector<LayerTime> times;
  LayerTime slowest;
  LayerTime all;
  for (const Stage& stage : stages_) {
    times.push_back(time_of(stage));
    slowest = slower(slowest, times.back());
    StepPricer::add(times.back(), stage.num_ranks, all);
  }
  // Where no layout is written people balance their stages, head and multi-token prediction
  // included, as well as whole layers allow.
  LayerTime balanced;
  StepPricer::add(all, unevenness_ / run_.knobs.pp, balanced);
  const bool is_balanced =
      !is_split_by_hand_ && StepPricer::on_host(balanced) < StepPricer::on_host(slowest);
  // What a stage does once a step, or with FSDP in each micro-batch, may make another rank last.
  Priced worst;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    double num_parameters = 0;
    for (size_t kind = 0; kind < stage.layers.size(); ++kind) {
      num_parameters += stage.layers[kind] * parameter_tensors(run_, alike_[kind].kind);
    }
    const LayerTime time = is_balanced ? balanced : slower(times[i], rounds);
    const StepTime step = pricer.step(time, stage.weights, num_parameters);
    if (step.seconds > worst.step.seconds) worst = {step, pricer.launch_seconds(time)};
  }
  return worst;
}

StageParts stage_parts(const PlanRun& asked, WorkCache& works, const Rates& rates) {
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  const StepPricer pricer(run, rates, {});
  const spec::ModelSpec& model = *run.model;
  std::vector<std::pair<PreparedStep::Alike, StageSeconds>> known;
  const auto seconds_of = [&](LayerKind kind, int64_t window) {
    for (const auto& [alike, seconds] : known) {
      if (alike.kind == kind && alike.window == window) return seconds;
    }
    const PreparedStep::Alike alike = {kind, window, &works.layer(run, kind, window)};
    known.emplace_back(alike, StepPricer::seconds_of(pricer.layer(alike)));
    known.back().second.device += pricer.gathering_seconds(works.weights(run, kind));
    return known.back().second;
  };
  StageParts parts;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    const auto& windows = model.attention_window;
    parts.layers.push_back(
        seconds_of(model.kind_of(layer), index < windows.size() ? windows[index] : 0));
  }
  const auto depth = static_cast<double>(model.mtp.depth);
  if (model.mtp.depth > 0) {
    // The weights of its layers count with those of all that belongs to it.
    for (const LayerKind kind : model.mtp.layers) {
      parts.end.add(seconds_of(kind, 0), depth);
      parts.end.device -= depth * pricer.gathering_seconds(works.weights(run, kind));
    }
    parts.end.device += pricer.gathering_seconds(mtp_weights(run, true));
  }
  parts.end.add(StepPricer::seconds_of(pricer.head(works.head(run))), 1 + depth);
  parts.end.device += pricer.gathering_seconds(head_weights(run, false));
  return parts;
}

OpPrice op_price(const PlanRun& asked, const Rates& rates) {
  struct Priced {
    PlanRun run;
    Rates rates;
    StepPricer pricer;
    Priced(const PlanRun& one, const Rates& at) : run(one), rates(at), pricer(run, rates, {}) {}
  };
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  const auto priced = std::make_shared<const Priced>(run, rates);
  return [priced](const OpWork& op, spec::PrecisionRecipe recipe) {
    return priced->pricer.played_seconds(op, recipe);
  };
}

double step_scale(const PlanRun& run, const Rates& rates) {
  return StepPricer(run, rates, {}).scale();
}

StepTime predict_step(const PlanRun& run, const Rates& rates, const TimeContext& context) {
  return PreparedStep(run).price(rates, context);
}

}  // namespace moetune::tuner::planner
