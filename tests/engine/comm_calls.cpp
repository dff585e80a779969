// Collectives and messages of op_calls.h: one row for each that a program may hold.
#include <fmt/format.h>

#include <algorithm>

#include "tests/engine/call_site.h"
#include "tests/engine/op_calls.h"
#include "tests/fakes/recording/recording_world.h"

namespace moetune::engine::testing {
namespace {

using plan::BucketPart;
using plan::Buf;
using plan::Op;
using plan::Space;

/// Collectives and messages: the first operand tells what is on its way.
struct CommRow {
  Op op = Op::count;
  Way way = Way::forward;
  spec::CollectiveKind kind = spec::CollectiveKind::all_gather;  ///< of no meaning for messages
  std::vector<Buf> buffers = {};                                 ///< none: a bucket's part or a sum
  Space space = Space::frame;                                    ///< without buffers
  uint8_t id = 0;                                                ///< of that space
};

const std::vector<CommRow>& comm_table() {
  using spec::CollectiveKind;
  constexpr auto kGrad = static_cast<uint8_t>(BucketPart::grad);
  constexpr auto kWeight = static_cast<uint8_t>(BucketPart::weight);
  static const std::vector<CommRow> kTable = {
      {Op::kv_gather, Way::forward, CollectiveKind::all_gather, {Buf::kv_local}},
      {Op::kv_gather, Way::backward, CollectiveKind::all_gather, {Buf::kv_local}},
      {Op::kv_gather, Way::backward, CollectiveKind::reduce_scatter, {Buf::kv_full}},
      {Op::kv_shift, Way::forward, CollectiveKind::ring_shift, {Buf::kv_local, Buf::kv_ring}},
      {Op::kv_shift,
       Way::backward,
       CollectiveKind::ring_shift,
       {Buf::kv_local, Buf::kv_ring, Buf::d_kv_local, Buf::d_kv_ring}},
      {Op::tp_gather,
       Way::forward,
       CollectiveKind::all_gather,
       {Buf::attn_norm_out, Buf::mlp_norm_out, Buf::final_norm_out}},
      {Op::tp_gather,
       Way::backward,
       CollectiveKind::all_gather,
       {Buf::attn_norm_out, Buf::mlp_norm_out, Buf::d_hidden}},
      {Op::tp_scatter,
       Way::forward,
       CollectiveKind::reduce_scatter,
       {Buf::embed_partial, Buf::attn_partial, Buf::mlp_partial, Buf::head_partial}},
      {Op::tp_scatter,
       Way::backward,
       CollectiveKind::reduce_scatter,
       {Buf::attn_partial, Buf::mlp_partial}},
      {Op::vocab_gather, Way::forward, CollectiveKind::all_gather, {Buf::ce_stats}},
      {Op::aux_loss_reduce, Way::forward, CollectiveKind::all_reduce, {Buf::aux_sums}},
      {Op::count_exchange, Way::forward, CollectiveKind::all_gather, {Buf::chunk_counts}},
      {Op::dispatch, Way::forward, CollectiveKind::all_to_all, {Buf::send_rows}},
      {Op::dispatch, Way::backward, CollectiveKind::all_to_all, {Buf::recv_rows}},
      {Op::combine, Way::forward, CollectiveKind::all_to_all, {Buf::recv_rows}},
      {Op::combine, Way::backward, CollectiveKind::all_to_all, {Buf::send_rows}},
      {Op::pp_send, Way::forward, {}, {Buf::input}},
      {Op::pp_send, Way::backward, {}, {Buf::d_hidden}},
      {Op::pp_recv, Way::forward, {}, {Buf::input}},
      {Op::pp_recv, Way::backward, {}, {Buf::d_hidden}},
      {Op::embedding_grad_reduce,
       Way::forward,
       CollectiveKind::all_reduce,
       {},
       Space::bucket,
       kGrad},
      {Op::grad_reduce, Way::forward, CollectiveKind::all_reduce, {}, Space::bucket, kGrad},
      {Op::grad_reduce, Way::forward, CollectiveKind::reduce_scatter, {}, Space::bucket, kGrad},
      {Op::param_gather, Way::forward, CollectiveKind::all_gather, {}, Space::bucket, kWeight},
      {Op::norm_reduce,
       Way::forward,
       CollectiveKind::all_reduce,
       {},
       Space::scalar,
       static_cast<uint8_t>(plan::Scalar::squared_norm)},
      {Op::loss_reduce,
       Way::forward,
       CollectiveKind::all_reduce,
       {},
       Space::scalar,
       static_cast<uint8_t>(plan::Scalar::loss)},
  };
  return kTable;
}

bool is_message(const plan::Instr& instr) { return instr.verb != plan::Verb::comm; }

bool matches(const CommRow& row, const plan::Instr& instr) {
  if (row.op != instr.op || row.way != way_of(instr.pass)) return false;
  if (!is_message(instr) && row.kind != instr.kind) return false;
  const plan::Ref& first = instr.refs.front();
  if (row.buffers.empty()) return first.space == row.space && first.id == row.id;
  return is_buffer(first.space) && std::find(row.buffers.begin(), row.buffers.end(),
                                             static_cast<Buf>(first.id)) != row.buffers.end();
}

/// The part of `whole` (all members' parts together) that is this rank's, where one operand is
/// both.
const void* own_part(const Operand& whole, int64_t part_bytes, int64_t index) {
  return static_cast<const char*>(whole.data) + part_bytes * index;
}

Entry all_to_all(const Site& site, Entry call) {
  const plan::Instr& instr = site.instr;
  const ChunkRows* chunk = site.places.chunk(instr);
  require(chunk != nullptr, "an all-to-all of a chunk without rows");
  const bool is_sent = instr.refs.front().rows == plan::RowsOf::sent;
  int64_t row_bytes = 0;
  for (size_t i = 0; i + 1 < site.refs.size(); i += 2) {
    for (const bool is_from : {true, false}) {
      Operand lane = site.refs[i + (is_from ? 0 : 1)];
      const int64_t lane_bytes = lane.cols * lane.element_bytes();
      require(lane.ld == lane.cols, "rows that travel are not packed");
      lane.dtype.reset();
      lane.cols = lane.ld = lane_bytes;
      if (is_from) row_bytes += lane_bytes;
      add(call, recording::lane_role(is_from, i / 2), lane);
    }
  }
  require(row_bytes == instr.cost_per_row.bytes && instr.cost.bytes == 0,
          "the bytes of a row are not those of the operands");
  const std::vector<int64_t>& to = is_sent ? chunk->sent_to : chunk->received_from;
  const std::vector<int64_t>& from = is_sent ? chunk->received_from : chunk->sent_to;
  for (size_t i = 0; i < to.size(); ++i) {
    call.numbers.push_back({recording::peer_name(true, i), to[i]});
    call.numbers.push_back({recording::peer_name(false, i), from[i]});
  }
  return call;
}

/// All rows to the next member, as many from the one before.
Entry ring_shift(const plan::StepProgram& program, const Site& site, Entry call) {
  const plan::Instr& instr = site.instr;
  const auto size = static_cast<size_t>(program.layout.group_size(instr.group));
  const auto own = static_cast<size_t>(program.layout.rank_in(instr.group, program.rank));
  require(site.refs.size() == 2, "a block comes from one place and goes to another");
  require(instr.cost.bytes == site.refs[0].bytes(), "a block has not the bytes of its operand");
  for (const bool is_from : {true, false}) {
    Operand lane = site.refs[is_from ? 0 : 1];
    require(lane.ld == lane.cols, "rows that travel are not packed");
    const int64_t lane_bytes = lane.cols * lane.element_bytes();
    lane.dtype.reset();
    lane.cols = lane.ld = lane_bytes;
    add(call, recording::lane_role(is_from, 0), lane);
  }
  const int64_t rows = site.refs[0].rows;
  for (size_t i = 0; i < size; ++i) {
    call.numbers.push_back({recording::peer_name(true, i), i == (own + 1) % size ? rows : 0});
    call.numbers.push_back(
        {recording::peer_name(false, i), i == (own + size - 1) % size ? rows : 0});
  }
  return call;
}

}  // namespace

bool has_forward_communication(Op op) {
  return std::any_of(comm_table().begin(), comm_table().end(),
                     [&](const CommRow& row) { return row.op == op && row.way == Way::forward; });
}

Entry call_of_communication(const Places& places, const plan::Instr& instr) {
  using spec::CollectiveKind;
  const bool is_known = std::any_of(comm_table().begin(), comm_table().end(),
                                    [&](const CommRow& row) { return matches(row, instr); });
  if (!is_known) {
    throw Unplaced{
        fmt::format("{} of this kind and first operand has no row in "
                    "tests/engine/comm_calls.cpp",
                    plan::op_label(instr.op, instr.pass))};
  }
  const plan::StepProgram& program = places.program();
  const Site site = site_of(places, instr);
  const Operand& first = site.refs.front();
  const Operand& last = site.refs.back();
  Entry call = site.call("");
  call.numbers = {{"group", static_cast<int64_t>(instr.group)}};
  if (is_message(instr)) {
    call.name = instr.verb == plan::Verb::send ? "send" : "recv";
    call.numbers.push_back({"peer", instr.peer});
    call.numbers.push_back({"tag", plan::message_tag(instr, site.places.item())});
    require(instr.cost.bytes == first.bytes(), "a message has not the bytes of its operand");
    add(call, "data", as_bytes(first));
    if (instr.verb == plan::Verb::send) {
      require(last.rows > 0 && last.bytes() == last.rows * instr.cost.bytes,
              "slots are not as large as messages");
      add(call, "slots", as_bytes(last));
      call.numbers.push_back({"slots", last.rows});
    }
    return call;
  }
  if (instr.kind == CollectiveKind::all_to_all) {
    call.name = "all_to_all";
    return all_to_all(site, call);
  }
  if (instr.kind == CollectiveKind::ring_shift) {
    call.name = "all_to_all";
    return ring_shift(program, site, call);
  }
  const int64_t size = program.layout.group_size(instr.group);
  const int64_t index = program.layout.rank_in(instr.group, program.rank);
  const int64_t payload = instr.cost.bytes;
  const bool is_in_place = site.refs.size() == 1;
  const base::DType dtype = first.dtype.value();
  const int64_t numel = payload / base::size_of(dtype);
  // The losses are several sums that lie together; the first one is the operand.
  require(payload == (instr.kind == CollectiveKind::all_gather ? last : first).bytes() ||
              instr.refs.front().space == Space::scalar,
          "a collective has not the bytes of its operand");
  switch (instr.kind) {
    case CollectiveKind::all_gather: {
      call.name = "all_gather";
      const int64_t part = payload / size;
      const void* from = is_in_place ? own_part(first, part, index) : first.data;
      require(is_in_place || first.bytes() == part, "a member gives not its part of the whole");
      add(call, "send", recording::bytes_at("", from, part));
      add(call, "recv", recording::bytes_at("", last.data, payload));
      return call;
    }
    case CollectiveKind::reduce_scatter: {
      call.name = "reduce_scatter";
      const void* to = is_in_place ? own_part(first, payload / size, index) : last.data;
      require(is_in_place || last.bytes() == payload / size,
              "a member gets not its part of the whole");
      add(call, "send", recording::flat("", first.data, dtype, numel));
      add(call, "recv", recording::flat("", to, dtype, numel / size));
      return call;
    }
    case CollectiveKind::all_reduce:
      call.name = "all_reduce";
      add(call, "data", recording::flat("", first.data, dtype, numel));
      return call;
    default:
      throw Unplaced{"a collective of a kind that the test does not know"};
  }
}

}  // namespace moetune::engine::testing
