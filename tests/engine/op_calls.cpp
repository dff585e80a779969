// The table of op_calls.h: an op that is added to the program needs its rows here.
#include "tests/engine/op_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/engine/call_site.h"

namespace moetune::engine::testing {
namespace {

using plan::BucketPart;
using plan::Buf;
using plan::Op;
using plan::ParamKind;
using plan::Pass;
using plan::Space;

/// What tells an op from others that call the same function: one of its operands is this parameter
/// or this buffer, and that operand's address says so.
struct Witness {
  size_t ref = 0;
  std::vector<ParamKind> params = {};
  std::vector<Buf> buffers = {};
};

using Numbers = std::vector<Number> (*)(const Site& site);
using Calls = std::vector<Entry> (*)(const Site& site);

struct OpCalls {
  Op op = Op::count;
  Way way = Way::forward;
  std::string_view function;
  std::string_view roles;  ///< of each reference
  Witness witness;
  Numbers numbers = nullptr;
  /// Instead of one call with the references as they are.
  Calls make = nullptr;
};

// Numbers that calls are told besides their operands.

std::vector<Number> product(const Site& site) {
  const Way way = way_of(site.instr.pass);
  return {{"trans_a", way == Way::wgrad ? 1 : 0},
          {"trans_b", way == Way::forward ? 1 : 0},
          {"accumulate", site.instr.accumulate ? 1 : 0}};
}

std::vector<Number> norm_heads(const Site& site) {
  std::vector<Number> numbers = {{"heads", site.refs[0].cols / site.refs[1].cols}};
  if (site.is_backward()) numbers.push_back({"accumulate", site.instr.accumulate ? 1 : 0});
  return numbers;
}

std::vector<Number> rope_heads(const Site& site) {
  return {{"heads", site.refs[0].cols / site.dims().head_dim},
          {"inverse", site.is_backward() ? 1 : 0}};
}

std::vector<Number> attention_heads(const Site& site) {
  const plan::LayerDims& dims = site.dims();
  std::vector<Number> numbers = {{"batch", dims.sequences},
                                 {"heads", dims.heads},
                                 {"kv_heads", dims.kv_heads},
                                 {"window", dims.window}};
  if (site.is_backward()) numbers.push_back({"accumulate", site.instr.accumulate ? 1 : 0});
  return numbers;
}

std::vector<Number> merged_heads(const Site& site) { return {{"heads", site.dims().heads}}; }
std::vector<Number> slices(const Site& site) {
  return {{"copies", site.dims().etp}, {"local_experts", site.dims().local_experts}};
}

std::vector<Number> accumulate(const Site& site) {
  return {{"accumulate", site.instr.accumulate ? 1 : 0}};
}
std::vector<Number> undivided(const Site& /*site*/) { return {{"divisor", 1}}; }
int64_t slots_of(const Site& site) { return site.dims().topk * site.dims().etp; }
std::vector<Number> slots_to_tokens(const Site& site) { return {{"divisor", slots_of(site)}}; }
std::vector<Number> vocabulary_rows(const Site& site) {
  const plan::StepProgram& program = site.places.program();
  const int64_t own = site.dims().vocab;
  return {{"first_row", own * program.layout.tp_rank(program.rank)},
          {"vocabulary", own * program.layout.tp}};
}
std::vector<Number> vocabulary_columns(const Site& site) {
  const plan::StepProgram& program = site.places.program();
  return {{"first_col", site.dims().vocab * program.layout.tp_rank(program.rank)}};
}
std::vector<Number> topk(const Site& site) { return {{"topk", slots_of(site)}}; }

// Ops that are not one call with their references.

std::vector<Entry> probs_to_slots(const Site& site) {
  const int64_t etp = site.dims().etp;
  const bool is_sum = etp > 1 && site.is_backward();
  Entry entry = site.call(is_sum ? "combine_rows" : "gather_rows");
  add(entry, "x", as_column(site.refs[0]));
  add(entry, "out", as_column(site.refs[1]));
  add(entry, is_sum ? "position" : "index", site.refs[2]);
  entry.numbers = {{is_sum ? "topk" : "divisor", etp}};
  return {entry};
}

/// {x, out, index}: nothing is called where the chunk has no rows.
std::vector<Entry> scattered(const Site& site) {
  if (site.refs[0].rows == 0) return {};
  Entry entry = site.call("scatter_rows");
  add(entry, "x", site.refs[0]);
  add(entry, "out", site.refs[1]);
  add(entry, "index", site.refs[2]);
  return {entry};
}
std::vector<Entry> gathered(const Site& site) {
  if (site.refs[1].rows == 0) return {};
  Entry entry = site.call("gather_rows");
  add(entry, "x", site.refs[0]);
  add(entry, "out", site.refs[1]);
  add(entry, "index", site.refs[2]);
  entry.numbers = {{"divisor", 1}};
  return {entry};
}

/// {x, probs, out, rows} or {x, probs, dout, dx, dprobs, rows}.
std::vector<Entry> expert_act(const Site& site) {
  const RoutedRows* routed = site.places.rows();
  const int64_t rows = routed != nullptr ? site.places.received(site.instr) : site.refs[0].rows;
  if (rows == 0) return {};
  constexpr std::string_view kForward[] = {"x", "probs", "out", "rows"};
  constexpr std::string_view kBackward[] = {"x", "probs", "dout", "dx", "dprobs", "rows"};
  Entry entry = site.call(site.is_backward() ? "gated_act_backward" : "gated_act");
  for (size_t i = 0; i < site.refs.size(); ++i) {
    add(entry, site.is_backward() ? kBackward[i] : kForward[i], site.refs[i]);
  }
  return {entry};
}

/// {logits that become probabilities, lse, indices, weights, counts, sums of probabilities, tokens
/// of each expert or none, counts or none}: the counts are copied as numbers beside the sums.
std::vector<Entry> route(const Site& site) {
  Entry entry = site.call("router");
  add(entry, "logits", site.refs[0]);
  constexpr std::string_view kRoles[] = {"probs",   "lse",    "indices",
                                         "weights", "counts", "prob_sums"};
  for (size_t i = 0; i < std::size(kRoles); ++i) add(entry, kRoles[i], site.refs[i]);
  if (site.refs[6].data == nullptr) return {entry};
  Entry copy = site.call("copy");
  add(copy, "x", site.refs[7]);
  add(copy, "y", site.refs[6]);
  copy.numbers = {{"accumulate", 0}};
  return {entry, copy};
}

/// {sums or none, lse or none, loss or none, z loss or none}.
std::vector<Entry> aux_loss(const Site& site) {
  constexpr std::string_view kRoles[] = {"sums", "lse", "load_balance", "z_loss"};
  Entry entry = site.call("aux_loss");
  for (size_t i = 0; i < std::size(kRoles); ++i) add(entry, kRoles[i], site.refs[i]);
  return {entry};
}

/// {indices, slot maps, counts, offsets or none, indices}: one plan for the chunks of each
/// direction.
std::vector<Entry> route_plan(const Site& site) {
  const plan::LayerDims& dims = site.dims();
  const int64_t num_counts =
      dims.expert_ranks == 1 ? 2 : dims.chunks_forward + dims.chunks_backward;
  require(site.refs[1].rows == 4 && site.refs[2].rows == num_counts,
          "the maps and counts are not those of all chunks");
  std::vector<Entry> entries;
  int64_t first_count = 0;
  for (const bool is_forward : {true, false}) {
    const int64_t chunks = dims.expert_ranks == 1 ? 1
                           : is_forward           ? dims.chunks_forward
                                                  : dims.chunks_backward;
    Entry entry = site.call("route_plan");
    add(entry, "indices", site.refs[is_forward ? 0 : 4]);
    add(entry, "order", as_column(rows_of(site.refs[1], is_forward ? 0 : 2, 1)));
    add(entry, "position", as_column(rows_of(site.refs[1], is_forward ? 1 : 3, 1)));
    add(entry, "counts", rows_of(site.refs[2], first_count, chunks));
    if (is_forward) add(entry, "offsets", site.refs[3]);
    entry.numbers = {{"num_chunks", chunks}};
    entries.push_back(entry);
    first_count += chunks;
  }
  return entries;
}

std::vector<Entry> zero(const Site& site) {
  std::vector<Entry> entries;
  for (const Operand& operand : site.refs) {
    add(entries.emplace_back(site.call("fill_zero")), "to", as_bytes(operand));
  }
  return entries;
}

/// The operand of that number is the expected one.
void require_same(const std::vector<Operand>& refs, size_t index, const Operand& expected) {
  require(index < refs.size(), "an operand is missing");
  require(refs[index].data == expected.data && refs[index].numel() == expected.numel() &&
              refs[index].dtype == expected.dtype,
          "an operand is not where the buckets say");
}

/// {the sum, gradients}: of this rank's share of each bucket.
std::vector<Entry> grad_norm(const Site& site) {
  const plan::StepProgram& program = site.places.program();
  Entry entry = site.call("squared_norm");
  add(entry, "result", site.refs[0]);
  size_t next = 1;
  for (size_t i = 0; i < program.params.buckets.size(); ++i) {
    const plan::BucketDesc& bucket = program.params.buckets[i];
    if (bucket.is_tied_copy) continue;
    const int64_t share = bucket.numel / program.layout.group_size(bucket.group);
    const int64_t first = share * program.layout.rank_in(bucket.group, program.rank);
    add(entry, "data", piece_of(site.places.bucket(i, BucketPart::grad), first, share));
    require_same(site.refs, next++, entry.operands.back());
  }
  require(next == site.refs.size(), "more operands than gradients");
  return {entry};
}

/// Each parameter's part of the shard that this rank updates; the operands are weights, gradients,
/// master weights, m and v of each bucket where that is not empty.
std::vector<Entry> adamw(const Site& site) {
  const plan::StepProgram& program = site.places.program();
  Entry entry = site.call("adamw");
  std::map<size_t, std::pair<int64_t, int64_t>> updated;  // by bucket: from where to where
  for (const plan::ParamDesc& param : program.params.params) {
    const auto index = static_cast<size_t>(param.bucket);
    const plan::BucketDesc& bucket = program.params.buckets[index];
    const int64_t shard = site.places.bucket(index, BucketPart::master).numel();
    const int64_t first =
        shard < bucket.numel ? shard * program.layout.rank_in(bucket.group, program.rank) : 0;
    const int64_t begin = std::max(param.offset, first);
    const int64_t end = std::min(param.offset + param.numel(), first + shard);
    if (begin >= end) continue;
    const auto [place, is_new] = updated.try_emplace(index, begin, end);
    place->second.second = std::max(place->second.second, end);
    const auto slice = [&](std::string_view role, BucketPart part, int64_t from) {
      add(entry, role, piece_of(site.places.bucket(index, part), from, end - begin));
    };
    slice("weight", BucketPart::weight, begin);
    slice("master", BucketPart::master, begin - first);
    slice("m", BucketPart::m, begin - first);
    slice("v", BucketPart::v, begin - first);
    slice("grad", BucketPart::grad, begin);
  }
  size_t next = 0;
  for (const auto& [index, range] : updated) {
    for (const BucketPart part :
         {BucketPart::weight, BucketPart::grad, BucketPart::master, BucketPart::m, BucketPart::v}) {
      // All of a bucket where no rank has a shard of it, and of the state no more than the shard.
      const plan::BucketDesc& bucket = program.params.buckets[index];
      const Operand whole = site.places.bucket(index, part);
      const int64_t shard = site.places.bucket(index, BucketPart::master).numel();
      const bool is_shard = whole.numel() < bucket.numel;
      const int64_t first =
          is_shard ? shard * program.layout.rank_in(bucket.group, program.rank) : 0;
      require_same(site.refs, next++,
                   shard == bucket.numel
                       ? whole
                       : piece_of(whole, range.first - first, range.second - range.first));
    }
  }
  require(next == site.refs.size(), "more operands than are updated");
  return {entry};
}

Witness param(size_t ref, std::vector<ParamKind> kinds) { return {ref, std::move(kinds), {}}; }
Witness buffer(size_t ref, std::vector<Buf> buffers) { return {ref, {}, std::move(buffers)}; }

/// The three products of a linear layer.
void add_linear(std::vector<OpCalls>& rows, Op op, const std::vector<ParamKind>& kinds) {
  rows.push_back({op, Way::forward, "gemm", "a b c bias", param(1, kinds), &product});
  rows.push_back({op, Way::backward, "gemm", "a b c", param(1, kinds), &product});
  rows.push_back({op, Way::wgrad, "gemm", "a b c", param(2, kinds), &product});
}

void add_expert_linear(std::vector<OpCalls>& rows, Op op, ParamKind kind) {
  rows.push_back(
      {op, Way::forward, "grouped_gemm.forward", "x w y rows offsets", param(1, {kind})});
  rows.push_back({op, Way::backward, "grouped_gemm.dgrad", "y w x rows offsets", param(1, {kind})});
  rows.push_back({op, Way::wgrad, "grouped_gemm.wgrad", "y x w offsets", param(2, {kind})});
}

void add_norm(std::vector<OpCalls>& rows, Op op, const std::vector<ParamKind>& kinds) {
  rows.push_back({op, Way::forward, "rms_norm", "x weight out rstd", param(1, kinds), &norm_heads});
  rows.push_back({op, Way::backward, "rms_norm_backward", "x weight rstd dy dx dweight",
                  param(1, kinds), &norm_heads});
}

void add_act(std::vector<OpCalls>& rows, Op op, Buf fc1) {
  rows.push_back({op, Way::forward, "gated_act", "x out", buffer(0, {fc1})});
  rows.push_back({op, Way::backward, "gated_act_backward", "x dout dx", buffer(0, {fc1})});
}

std::vector<OpCalls> make_table() {
  constexpr Way kForward = Way::forward;
  constexpr Way kBackward = Way::backward;
  std::vector<OpCalls> rows = {
      {Op::embed, kForward, "embedding", "table tokens out", param(0, {ParamKind::embedding}),
       &vocabulary_rows},
      {Op::embed, kBackward, "embedding_backward", "dtable tokens dout",
       param(0, {ParamKind::embedding}), &vocabulary_rows},
      {Op::qkv_bias, kBackward, "bias_backward", "dy dbias", param(1, {ParamKind::qkv_bias})},
      {Op::o_bias, kBackward, "bias_backward", "dy dbias", param(1, {ParamKind::o_bias})},
      {Op::mlp_bias, kBackward, "bias_backward", "dy dbias",
       param(1, {ParamKind::mlp_fc1_bias, ParamKind::mlp_fc2_bias})},
      {Op::rope, kForward, "rope", "x cos sin positions",
       buffer(0, {Buf::qkv, Buf::q_rot, Buf::k_rot}), &rope_heads},
      {Op::rope, kBackward, "rope", "x cos sin positions", buffer(0, {Buf::d_qkv}), &rope_heads},
      {Op::kv_pack, kForward, "copy", "x y", buffer(1, {Buf::kv_local}), &accumulate},
      // Packs for the second gathering, then takes the reduced gradients apart.
      {Op::kv_pack, kBackward, "copy", "x y", buffer(1, {Buf::kv_local, Buf::d_qkv}), &accumulate},
      {Op::kv_reorder, kForward, "gather_rows", "x index out", buffer(2, {Buf::kv_full}),
       &undivided},
      {Op::kv_reorder, kBackward, "gather_rows", "x index out", buffer(2, {Buf::kv_full}),
       &undivided},
      {Op::core_attn, kForward, "attention", "q k v out lse positions key_positions",
       buffer(3, {Buf::attn_out, Buf::part_out}), &attention_heads},
      {Op::core_attn, kBackward, "attention_backward",
       "q k v out lse positions dout dq dk dv key_positions", buffer(3, {Buf::attn_out}),
       &attention_heads},
      {Op::attn_merge, kForward, "attention_merge", "out lse part_out part_lse",
       buffer(0, {Buf::attn_out}), &merged_heads},
      {Op::attn_residual, kForward, "copy", "x y", buffer(1, {Buf::mid}), &accumulate},
      {Op::ffn_residual, kForward, "copy", "x y", buffer(1, {Buf::input}), &accumulate},
      {Op::router, kForward, "", "", buffer(0, {Buf::router_probs}), nullptr, &route},
      {Op::router, kBackward, "router_backward",
       "probs lse indices weights dweights dlogits aux_scale", buffer(0, {Buf::router_probs})},
      {Op::aux_loss, kForward, "", "", {}, nullptr, &aux_loss},
      {Op::expand_experts, kForward, "expand_experts", "indices out",
       buffer(1, {Buf::slice_indices}), &slices},
      {Op::moe_preprocess, kForward, "", "", buffer(0, {Buf::topk_indices, Buf::slice_indices}),
       nullptr, &route_plan},
      {Op::permute, kForward, "gather_rows", "x out index position", buffer(0, {Buf::mlp_norm_out}),
       &slots_to_tokens},
      {Op::permute, kBackward, "combine_rows", "x out position", buffer(1, {Buf::d_mlp_norm}),
       &topk},
      {Op::permute_probs, kForward, "", "", buffer(0, {Buf::topk_weights}), nullptr,
       &probs_to_slots},
      {Op::permute_probs, kBackward, "", "", buffer(1, {Buf::d_topk_weights}), nullptr,
       &probs_to_slots},
      {Op::sort_rows, kForward, "", "", buffer(1, {Buf::expert_input}), nullptr, &scattered},
      {Op::sort_rows, kBackward, "", "", buffer(0, {Buf::d_expert_input}), nullptr, &gathered},
      {Op::sort_probs, kForward, "", "", buffer(1, {Buf::expert_probs}), nullptr, &scattered},
      {Op::sort_probs, kBackward, "", "", buffer(0, {Buf::d_expert_probs}), nullptr, &gathered},
      {Op::unsort_rows, kForward, "", "", buffer(0, {Buf::fc2_out}), nullptr, &gathered},
      {Op::unsort_rows, kBackward, "", "", buffer(1, {Buf::d_fc2_out}), nullptr, &scattered},
      {Op::expert_act, kForward, "", "", buffer(0, {Buf::fc1_out}), nullptr, &expert_act},
      {Op::expert_act, kBackward, "", "", buffer(0, {Buf::fc1_out}), nullptr, &expert_act},
      {Op::unpermute, kForward, "combine_rows", "x out position", buffer(1, {Buf::input}), &topk},
      {Op::unpermute, kBackward, "gather_rows", "x out index position", buffer(0, {Buf::d_hidden}),
       &slots_to_tokens},
      {Op::zero_norm_grad, kBackward, "", "", buffer(0, {Buf::d_mlp_norm}), nullptr, &zero},
      {Op::zero_sums, kForward, "", "", buffer(0, {Buf::aux_sums}), nullptr, &zero},
      {Op::zero_sums, kBackward, "", "", buffer(0, {Buf::d_topk_weights}), nullptr, &zero},
      {Op::cross_entropy_stats, kForward, "cross_entropy_stats", "logits targets stats",
       buffer(0, {Buf::logits}), &vocabulary_columns},
      {Op::cross_entropy, kForward, "cross_entropy", "logits targets loss_sum stats",
       buffer(0, {Buf::logits}), &vocabulary_columns},
      {Op::zero_grads, kForward, "", "", {}, nullptr, &zero},
      {Op::grad_norm, kForward, "", "", {}, nullptr, &grad_norm},
      {Op::adamw, kForward, "", "", {}, nullptr, &adamw},
  };
  add_norm(rows, Op::attn_norm, {ParamKind::attn_norm});
  add_norm(rows, Op::qk_norm, {ParamKind::q_norm, ParamKind::k_norm});
  add_norm(rows, Op::mlp_norm, {ParamKind::mlp_norm});
  add_norm(rows, Op::final_norm, {ParamKind::final_norm});
  add_linear(rows, Op::qkv_proj, {ParamKind::qkv});
  add_linear(rows, Op::o_proj, {ParamKind::o_proj});
  add_linear(rows, Op::router_gemm, {ParamKind::router});
  add_linear(rows, Op::shared_fc1, {ParamKind::shared_fc1});
  add_linear(rows, Op::shared_fc2, {ParamKind::shared_fc2});
  add_linear(rows, Op::mlp_fc1, {ParamKind::mlp_fc1});
  add_linear(rows, Op::mlp_fc2, {ParamKind::mlp_fc2});
  add_linear(rows, Op::lm_head, {ParamKind::head, ParamKind::embedding});
  add_act(rows, Op::shared_act, Buf::shared_fc1);
  add_act(rows, Op::mlp_act, Buf::mlp_fc1);
  add_expert_linear(rows, Op::expert_fc1, ParamKind::expert_fc1);
  add_expert_linear(rows, Op::expert_fc2, ParamKind::expert_fc2);
  return rows;
}

const std::vector<OpCalls>& table() {
  static const std::vector<OpCalls> kTable = make_table();
  return kTable;
}

const OpCalls* row_of(Op op, Way way) {
  for (const OpCalls& row : table()) {
    if (row.op == op && row.way == way) return &row;
  }
  return nullptr;
}

bool is_witnessed(const Witness& witness, const plan::Instr& instr) {
  if (witness.params.empty() && witness.buffers.empty()) return true;
  if (witness.ref >= instr.refs.size()) return false;
  const plan::Ref& ref = instr.refs[witness.ref];
  if (!witness.params.empty()) {
    return (ref.space == Space::weight || ref.space == Space::grad) &&
           std::find(witness.params.begin(), witness.params.end(),
                     static_cast<ParamKind>(ref.id)) != witness.params.end();
  }
  return is_buffer(ref.space) && std::find(witness.buffers.begin(), witness.buffers.end(),
                                           static_cast<Buf>(ref.id)) != witness.buffers.end();
}

}  // namespace

bool has_forward(Op op) {
  return row_of(op, Way::forward) != nullptr || has_forward_communication(op);
}

std::vector<Entry> calls_of_op(const Places& places, const plan::Instr& instr) {
  const OpCalls* row = row_of(instr.op, way_of(instr.pass));
  if (row == nullptr) {
    throw Unplaced{
        fmt::format("{} has no row in tests/engine/op_calls.cpp: which function "
                    "of the device does it call with which operands?",
                    plan::op_label(instr.op, instr.pass))};
  }
  require(is_witnessed(row->witness, instr),
          "the operand that tells this op from others is not its");
  const Site site = site_of(places, instr);
  if (row->make != nullptr) return row->make(site);
  Entry entry = site.call(row->function);
  size_t begin = 0;
  for (const Operand& operand : site.refs) {
    require(begin < row->roles.size(), "more operands than the function takes");
    const size_t end = std::min(row->roles.find(' ', begin), row->roles.size());
    add(entry, row->roles.substr(begin, end - begin), operand);
    begin = end + 1;
  }
  if (row->numbers != nullptr) entry.numbers = row->numbers(site);
  return {entry};
}

}  // namespace moetune::engine::testing
