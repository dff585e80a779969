// The rows of the op table: the formula of each op's FLOPs and bytes. The order of a step's ops is
// in blocks/.
#include "engine/plan/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>

#include "engine/spec/peaks.h"

namespace moetune::plan {
namespace {

using G = Group;
using K = OpKind;
using S = Stream;
using W = Work;

constexpr std::array<OpRow, static_cast<size_t>(Op::count)> kOps = {{
    {Op::embed, "embed", K::memory, S::compute, G::world, W::light},
    {Op::embed_positions, "embed_positions", K::memory, S::compute, G::world, W::light},
    {Op::attn_norm, "attn_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::qkv_proj, "qkv_proj", K::compute, S::compute, G::world, W::product},
    {Op::qkv_bias, "qkv_bias", K::memory, S::compute, G::world, W::light},
    {Op::qk_norm, "qk_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::rope, "rope", K::memory, S::compute, G::world, W::heavy},
    {Op::kv_pack, "kv_pack", K::memory, S::compute, G::world, W::light},
    {Op::kv_gather, "kv_gather", K::collective, S::context, G::cp, W::none},
    {Op::kv_reorder, "kv_reorder", K::memory, S::compute, G::world, W::none},
    {Op::kv_shift, "kv_shift", K::collective, S::context, G::cp, W::none},
    {Op::core_attn, "core_attn", K::compute, S::compute, G::world, W::attention},
    {Op::attn_merge, "attn_merge", K::memory, S::compute, G::world, W::heavy},
    {Op::attn_gate, "attn_gate", K::memory, S::compute, G::world, W::heavy},
    {Op::o_proj, "o_proj", K::compute, S::compute, G::world, W::product},
    {Op::o_bias, "o_bias", K::memory, S::compute, G::world, W::light},
    {Op::attn_residual, "attn_residual", K::memory, S::compute, G::world, W::light},
    {Op::mla_q_down, "mla_q_down", K::compute, S::compute, G::world, W::product},
    {Op::mla_q_up, "mla_q_up", K::compute, S::compute, G::world, W::product},
    {Op::mla_kv_down, "mla_kv_down", K::compute, S::compute, G::world, W::product},
    {Op::mla_kv_up, "mla_kv_up", K::compute, S::compute, G::world, W::product},
    {Op::mla_latent_norm, "mla_latent_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::mla_pack, "mla_pack", K::memory, S::compute, G::world, W::light},
    {Op::head_exchange, "head_exchange", K::collective, S::context, G::cp, W::none},
    {Op::gdn_in_proj, "gdn_in_proj", K::compute, S::compute, G::world, W::product},
    {Op::gdn_conv, "gdn_conv", K::memory, S::compute, G::world, W::scan},
    {Op::gdn_gates, "gdn_gates", K::memory, S::compute, G::world, W::heavy},
    {Op::gdn_scan, "gdn_scan", K::compute, S::compute, G::world, W::scan},
    {Op::gdn_norm, "gdn_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::gdn_out_proj, "gdn_out_proj", K::compute, S::compute, G::world, W::product},
    {Op::mamba_in_proj, "mamba_in_proj", K::compute, S::compute, G::world, W::product},
    {Op::mamba_conv, "mamba_conv", K::memory, S::compute, G::world, W::scan},
    {Op::mamba_gates, "mamba_gates", K::memory, S::compute, G::world, W::heavy},
    {Op::mamba_scan, "mamba_scan", K::compute, S::compute, G::world, W::scan},
    {Op::mamba_norm, "mamba_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::mamba_out_proj, "mamba_out_proj", K::compute, S::compute, G::world, W::product},
    {Op::tp_gather, "tp_gather", K::collective, S::tensor, G::tp, W::none},
    {Op::tp_scatter, "tp_scatter", K::collective, S::tensor, G::tp, W::none},
    {Op::mlp_norm, "mlp_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::router_gemm, "router_gemm", K::compute, S::compute, G::world, W::product},
    {Op::router_bias, "router_bias", K::memory, S::compute, G::world, W::light},
    {Op::router, "router", K::memory, S::compute, G::world, W::heavy},
    {Op::zero_sums, "zero_sums", K::memory, S::compute, G::world, W::none},
    {Op::amax, "amax", K::memory, S::compute, G::world, W::light},
    {Op::quantize, "quantize", K::memory, S::compute, G::world, W::light},
    {Op::aux_loss_reduce, "aux_loss_reduce", K::collective, S::context, G::cp, W::none},
    {Op::aux_loss, "aux_loss", K::memory, S::compute, G::world, W::none},
    {Op::expand_experts, "expand_experts", K::dispatcher, S::compute, G::world, W::none},
    {Op::moe_preprocess, "moe_preprocess", K::dispatcher, S::compute, G::world, W::none},
    {Op::count_exchange, "count_exchange", K::collective, S::expert, G::ep, W::none},
    {Op::latent_down, "latent_down", K::compute, S::compute, G::world, W::product},
    {Op::permute, "permute", K::dispatcher, S::compute, G::world, W::light},
    {Op::permute_probs, "permute_probs", K::dispatcher, S::compute, G::world, W::none},
    {Op::dispatch, "dispatch", K::collective, S::expert, G::ep, W::none},
    {Op::sort_rows, "sort_rows", K::dispatcher, S::compute, G::world, W::none},
    {Op::sort_probs, "sort_probs", K::dispatcher, S::compute, G::world, W::none},
    {Op::expert_fc1, "expert_fc1", K::compute, S::compute, G::world, W::grouped},
    {Op::expert_act, "expert_act", K::memory, S::compute, G::world, W::heavy},
    {Op::expert_fc2, "expert_fc2", K::compute, S::compute, G::world, W::grouped},
    {Op::expert_bias, "expert_bias", K::memory, S::compute, G::world, W::light},
    {Op::unsort_rows, "unsort_rows", K::dispatcher, S::compute, G::world, W::none},
    {Op::combine, "combine", K::collective, S::expert, G::ep, W::none},
    {Op::unpermute, "unpermute", K::dispatcher, S::compute, G::world, W::light},
    {Op::latent_up, "latent_up", K::compute, S::compute, G::world, W::product},
    {Op::zero_norm_grad, "zero_norm_grad", K::memory, S::compute, G::world, W::none},
    {Op::shared_fc1, "shared_fc1", K::compute, S::compute, G::world, W::product},
    {Op::shared_act, "shared_act", K::memory, S::compute, G::world, W::heavy},
    {Op::shared_fc2, "shared_fc2", K::compute, S::compute, G::world, W::product},
    {Op::shared_gate, "shared_gate", K::compute, S::compute, G::world, W::product},
    {Op::shared_scale, "shared_scale", K::memory, S::compute, G::world, W::heavy},
    {Op::mlp_fc1, "mlp_fc1", K::compute, S::compute, G::world, W::product},
    {Op::mlp_act, "mlp_act", K::memory, S::compute, G::world, W::heavy},
    {Op::mlp_fc2, "mlp_fc2", K::compute, S::compute, G::world, W::product},
    {Op::mlp_bias, "mlp_bias", K::memory, S::compute, G::world, W::light},
    {Op::ffn_residual, "ffn_residual", K::memory, S::compute, G::world, W::light},
    {Op::mtp_norm, "mtp_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::mtp_proj, "mtp_proj", K::compute, S::compute, G::world, W::product},
    {Op::mtp_slice, "mtp_slice", K::memory, S::compute, G::world, W::light},
    {Op::final_norm, "final_norm", K::memory, S::compute, G::world, W::heavy},
    {Op::lm_head, "lm_head", K::compute, S::compute, G::world, W::product},
    {Op::cross_entropy_stats, "cross_entropy_stats", K::memory, S::compute, G::world, W::heavy},
    {Op::vocab_gather, "vocab_gather", K::collective, S::tensor, G::tp, W::none},
    {Op::cross_entropy, "cross_entropy", K::memory, S::compute, G::world, W::heavy},
    {Op::pp_send, "pp_send", K::p2p, S::pipeline_send, G::pp, W::none},
    {Op::pp_recv, "pp_recv", K::p2p, S::pipeline_recv, G::pp, W::none},
    {Op::embedding_grad_reduce, "embedding_grad_reduce", K::collective, S::data, G::embedding,
     W::none},
    {Op::grad_reduce, "grad_reduce", K::collective, S::data, G::dp_cp, W::none},
    {Op::grad_norm, "grad_norm", K::memory, S::compute, G::world, W::none},
    {Op::norm_reduce, "norm_reduce", K::collective, S::data, G::world, W::none},
    // A dozen FLOPs an element, behind seven streams of memory.
    {Op::adamw, "adamw", K::memory, S::compute, G::world, W::light},
    {Op::param_gather, "param_gather", K::collective, S::data, G::dp_cp, W::none},
    {Op::shard_gather, "shard_gather", K::collective, S::weights, G::dp_cp, W::none},
    {Op::shard_reduce, "shard_reduce", K::collective, S::data, G::dp_cp, W::none},
    {Op::loss_reduce, "loss_reduce", K::collective, S::data, G::world, W::none},
    {Op::zero_grads, "zero_grads", K::memory, S::compute, G::world, W::none},
    {Op::host_sync, "host_sync", K::host, S::compute, G::world, W::none},
    {Op::finish_route, "finish_route", K::host, S::compute, G::world, W::none},
    {Op::write_route, "write_route", K::host, S::compute, G::world, W::none},
    {Op::to_host, "to_host", K::host, S::to_host, G::world, W::none},
    {Op::from_host, "from_host", K::host, S::from_host, G::world, W::none},
}};

constexpr bool is_indexed_by_id() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].id != static_cast<Op>(i)) return false;
  }
  return true;
}
static_assert(is_indexed_by_id(), "kOps must be in the order of Op");

constexpr size_t kNumPasses = static_cast<size_t>(Pass::count);
using Labels = std::array<std::array<std::string, kNumPasses>, kOps.size()>;

const Labels& labels() {
  static const Labels kLabels = [] {
    Labels made;
    for (size_t op = 0; op < kOps.size(); ++op) {
      for (size_t pass = 0; pass < kNumPasses; ++pass) {
        made[op][pass] = fmt::format("{}.{}", kOps[op].name, name_of(static_cast<Pass>(pass)));
      }
    }
    return made;
  }();
  return kLabels;
}

/// Pairs of a query in [0, queries) and a key in [0, keys) that does not come after it.
int64_t causal_pairs(int64_t queries, int64_t keys) {
  if (queries <= 0) return 0;
  // The first `seen` queries see one key more each, the others all.
  const int64_t seen = std::min(queries, keys);
  return seen * (seen + 1) / 2 + (queries - seen) * keys;
}

int64_t causal_pairs(int64_t first_query, int64_t end_query, const PositionRange& keys) {
  return causal_pairs(end_query, keys.end) - causal_pairs(first_query, keys.end) -
         causal_pairs(end_query, keys.begin) + causal_pairs(first_query, keys.begin);
}

/// The same where a query sees the keys of its own chunk only.
int64_t causal_pairs_in_chunks(int64_t queries, int64_t keys, int64_t chunk) {
  const int64_t whole = std::min(queries / chunk, keys / chunk);
  const int64_t begin = whole * chunk;
  return whole * causal_pairs(chunk, chunk) +
         causal_pairs(std::min(queries - begin, chunk), std::min(keys - begin, chunk));
}

int64_t causal_pairs_in_chunks(const PositionRange& queries, const PositionRange& keys,
                               int64_t chunk) {
  const auto pairs = [chunk](int64_t num_queries, int64_t num_keys) {
    return causal_pairs_in_chunks(num_queries, num_keys, chunk);
  };
  return pairs(queries.end, keys.end) - pairs(queries.begin, keys.end) -
         pairs(queries.end, keys.begin) + pairs(queries.begin, keys.begin);
}

}  // namespace

std::span<const OpRow> op_table() { return kOps; }
const OpRow& op_row(Op op) { return kOps[static_cast<size_t>(op)]; }

const char* name_of(Pass pass) {
  static constexpr std::array<const char*, kNumPasses> kNames = {"forward", "backward", "wgrad",
                                                                 "recompute", "update"};
  return kNames[static_cast<size_t>(pass)];
}

const char* name_of(Stream stream) {
  static constexpr std::array<const char*, static_cast<size_t>(Stream::count)> kNames = {
      "compute",       "expert parallel",  "context parallel", "data parallel",
      "pipeline send", "pipeline receive", "tensor parallel",  "copy",
      "weights",       "to host",          "from host"};
  return kNames[static_cast<size_t>(stream)];
}

const char* op_label(Op op, Pass pass) {
  return labels()[static_cast<size_t>(op)][static_cast<size_t>(pass)].c_str();
}

const OpRow* find_op_label(std::string_view label) {
  static const std::map<std::string, const OpRow*, std::less<>> kByLabel = [] {
    std::map<std::string, const OpRow*, std::less<>> made;
    for (size_t op = 0; op < kOps.size(); ++op) {
      for (const std::string& text : labels()[op]) made[text] = &kOps[op];
    }
    return made;
  }();
  const auto found = kByLabel.find(label);
  return found == kByLabel.end() ? nullptr : found->second;
}

namespace {

/// Of one sequence: below 2^57 for the longest that are read (2^28 tokens).
int64_t pairs_of_a_sequence(const LayerDims& d, std::optional<int64_t> key_rank) {
  const int64_t seq = d.context_tokens / std::max<int64_t>(d.sequences, 1);
  const std::vector<PositionRange> keys =
      key_rank ? local_ranges(d, *key_rank) : std::vector<PositionRange>{{0, seq}};
  const std::vector<PositionRange> all_queries =
      d.exchanges_heads ? std::vector<PositionRange>{{0, seq}} : local_ranges(d);
  int64_t pairs = 0;
  for (const PositionRange& queries : all_queries) {
    for (const PositionRange& range : keys) {
      if (d.window > 0 && d.is_chunked) {
        pairs += causal_pairs_in_chunks(queries, range, d.window);
        continue;
      }
      pairs += causal_pairs(queries.begin, queries.end, range);
      // Not what a query sees that is a window's length before it.
      if (d.window > 0) {
        pairs -= causal_pairs(queries.begin - d.window, queries.end - d.window, range);
      }
    }
  }
  return pairs;
}

/// The product of the factors. That of attention grows with the square of the sequence: from some
/// millions of tokens on 64 bits do not hold it.
void set_flops(std::initializer_list<int64_t> factors, OpCost& cost) {
  int64_t whole = 1;
  double all = 1;
  for (const int64_t factor : factors) all *= static_cast<double>(factor);
  if (all >= static_cast<double>(OpCost::kMostFlops)) {
    cost.flops = OpCost::kMostFlops;
    cost.more_flops = all - static_cast<double>(OpCost::kMostFlops);
    return;
  }
  for (const int64_t factor : factors) whole *= factor;
  cost.flops = whole;
}

}  // namespace

int64_t visible_pairs(const LayerDims& d, std::optional<int64_t> key_rank) {
  return d.sequences * pairs_of_a_sequence(d, key_rank);
}

int busiest_in_attention(const spec::TrialSpec& trial) {
  int busiest = 0;
  int64_t most = 0;
  for (const int rank : layout_of(trial.knobs).group_ranks(Group::cp, 0)) {
    int64_t pairs = 0;
    for (int64_t layer = 0; layer < trial.model.num_layers; ++layer) {
      pairs += visible_pairs(
          layer_dims(trial.model, trial.knobs, trial.training.seq_length, layer, rank));
    }
    if (pairs <= most) continue;
    busiest = rank;
    most = pairs;
  }
  return busiest;
}

int64_t scan_flops(Op op, const LayerDims& d) {
  switch (op) {
    case Op::gdn_scan:
      return 8 * d.scan_head_dim;
    case Op::mamba_scan:
      return 7 * d.scan_state;
    default:
      return 2 * d.conv_kernel;
  }
}

OpCost op_cost(Op op, Pass pass, const LayerDims& dims, std::span<const OperandShape> operands) {
  OpCost cost;
  int64_t largest = 0;
  for (const OperandShape& operand : operands) {
    cost.bytes += operand.numel() * operand.element_bytes * (operand.is_updated ? 2 : 1);
    largest = std::max(largest, operand.numel());
  }
  constexpr int64_t kHeavyFlops = 8;
  switch (op_row(op).work) {
    case Work::none:
    case Work::count:
      break;
    case Work::product:
    case Work::grouped: {
      // Each row of the first operand meets one matrix: the weights, or their gradient.
      const OperandShape& matrix = operands[pass == Pass::wgrad ? 2 : 1];
      const int64_t num_matrices = op_row(op).work == Work::grouped ? dims.local_experts : 1;
      set_flops({2, operands[0].rows, matrix.numel()}, cost);
      cost.flops /= num_matrices;
      cost.more_flops /= static_cast<double>(num_matrices);
      cost.row_flops = 2 * matrix.numel();
      break;
    }
    case Work::attention: {
      const bool is_backward = pass == Pass::backward;
      const int64_t cols =
          (is_backward ? 3 : 1) * operands[0].cols + (is_backward ? 2 : 1) * operands[3].cols;
      // A ring's keys are told by where they sit, which is one row for each rank.
      const int64_t pairs = dims.is_ring ? pairs_of_a_sequence(dims, operands.back().index_row)
                                         : pairs_of_a_sequence(dims, std::nullopt);
      set_flops({2, cols, dims.sequences, pairs}, cost);
      break;
    }
    case Work::scan:
      cost.flops = (pass == Pass::backward ? 2 : 1) * scan_flops(op, dims) * operands[0].numel();
      break;
    case Work::light:
      cost.flops = largest;
      break;
    case Work::heavy:
      cost.flops = kHeavyFlops * largest;
      break;
  }
  return cost;
}

double host_link_bytes_per_s(const HardwareSpec& hardware) {
  constexpr double kUsual = 32e9;
  constexpr double kReached = 0.8;
  return kReached * (hardware.host_link_bytes_per_s > 0 ? hardware.host_link_bytes_per_s : kUsual);
}

int64_t host_copy_ns(const HardwareSpec& hardware, const OpCost& cost) {
  return static_cast<int64_t>(1e9 * static_cast<double>(cost.bytes) /
                              host_link_bytes_per_s(hardware));
}

bool is_before_sending(Op op) {
  return op == Op::permute || op == Op::permute_probs || op == Op::unpermute;
}
bool is_after_receiving(Op op) {
  return op == Op::sort_rows || op == Op::sort_probs || op == Op::unsort_rows;
}

int64_t update_bytes_per_element(const Precision& precision) {
  return 3 * base::size_of(precision.stat) + 2 * base::size_of(precision.m) +
         2 * base::size_of(precision.v) + base::size_of(precision.element);
}

int64_t host_work_ns(const OpCost& cost) { return cost.bytes / 2; }

int64_t slowed_ns(const HardwareSpec& hardware, int64_t duration_ns, int num_collectives) {
  constexpr double kLeast = 0.25;  // of the device, whatever is in flight
  const double left = std::max(kLeast, 1 - hardware.comm_sm_ratio * num_collectives);
  return left < 1 ? static_cast<int64_t>(static_cast<double>(duration_ns) / left) : duration_ns;
}

double work_ns(const HardwareSpec& hardware, Work work, double flops, double bytes,
               double row_flops) {
  double seconds = 0;
  if (hardware.peak_flops_per_s > 0) {
    seconds = (flops + hardware.half_rows[static_cast<size_t>(work)] * row_flops) /
              hardware.peak_flops_per_s;
  }
  if (hardware.memory_bytes_per_s > 0) {
    seconds = std::max(seconds, bytes / hardware.memory_bytes_per_s);
  }
  return seconds / hardware.efficiency[static_cast<size_t>(work)] * 1e9;
}

bool is_of_recipe(Op op) {
  return op != Op::router_gemm && op != Op::lm_head && op != Op::mtp_proj;
}

int64_t roofline_ns(const HardwareSpec& hardware, Op op, const OpCost& cost) {
  const bool is_narrow = spec::is_product_narrow(cost.recipe);
  // Against the wide peak that work_ns divides by.
  const double speed =
      is_narrow && hardware.peak_flops_per_s > 0
          ? spec::peak_flops_per_s(hardware, cost.recipe) / hardware.peak_flops_per_s
          : 1;
  const double ns =
      work_ns(hardware, op_row(op).work, cost.all_flops() / speed, static_cast<double>(cost.bytes),
              (is_narrow ? 2 : 1) * static_cast<double>(cost.row_flops) / speed);
  return std::max(static_cast<int64_t>(ns), hardware.kernel_floor_ns);
}

}  // namespace moetune::plan
