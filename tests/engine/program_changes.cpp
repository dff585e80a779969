// The deliberate mistakes, one after the other: each changes a copy of a program in one place that
// a device, a communicator or a memory would notice, so that the comparison is shown to see it.
#include "tests/engine/program_changes.h"

#include <algorithm>
#include <utility>

namespace moetune::engine::testing {
namespace {

using plan::Instr;
using plan::Op;
using plan::Pass;
using plan::Ref;
using plan::RowsOf;
using plan::Segment;
using plan::Space;
using plan::Verb;

/// What a device, a communicator or a memory is asked for.
bool is_seen(const Instr& instr) {
  switch (instr.verb) {
    case Verb::host:
    case Verb::acquire:
    case Verb::release:
    case Verb::mark:
      return false;
    default:
      return true;
  }
}

bool is_comm(const Instr& instr) {
  return instr.verb == Verb::comm || instr.verb == Verb::send || instr.verb == Verb::recv;
}

bool is_memory(const Instr& instr) { return instr.verb == Verb::alloc || instr.verb == Verb::free; }

bool swap_with_next(Segment& segment, size_t at) {
  std::vector<Instr>& code = segment.code;
  if (at + 1 >= code.size() || !is_seen(code[at]) || !is_seen(code[at + 1])) return false;
  std::swap(code[at], code[at + 1]);
  return true;
}

bool drop(Segment& segment, size_t at) {
  if (!is_seen(segment.code[at])) return false;
  segment.code.erase(segment.code.begin() + static_cast<int64_t>(at));
  return true;
}

bool repeat(Segment& segment, size_t at) {
  const Instr instr = segment.code[at];
  if (!is_seen(instr)) return false;
  segment.code.insert(segment.code.begin() + static_cast<int64_t>(at), instr);
  return true;
}

bool other_stream(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (!is_seen(instr) || is_memory(instr)) return false;
  instr.stream = instr.stream == plan::Stream::compute ? plan::Stream::data : plan::Stream::compute;
  return true;
}

bool other_group(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (!is_comm(instr)) return false;
  instr.group = instr.group == plan::Group::world ? plan::Group::cp : plan::Group::world;
  return true;
}

bool other_kind(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (instr.verb != Verb::comm) return false;
  using spec::CollectiveKind;
  instr.kind = instr.kind == CollectiveKind::all_gather ? CollectiveKind::reduce_scatter
                                                        : CollectiveKind::all_gather;
  return true;
}

/// The payload of communication, the size of an allocation.
bool more_bytes(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (!is_comm(instr) && instr.verb != Verb::alloc) return false;
  plan::OpCost& cost = instr.cost.bytes > 0 ? instr.cost : instr.cost_per_row;
  cost.bytes += 8;
  return true;
}

bool other_memory_group(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (!is_memory(instr)) return false;
  instr.what = instr.what == 0 ? 1 : 0;
  return true;
}

bool other_sizing(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (instr.verb != Verb::alloc || !instr.is_routed) return false;
  instr.is_routed = false;
  return true;
}

bool other_peer(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (instr.peer < 0) return false;
  instr.peer = static_cast<int16_t>(instr.peer + 1);
  return true;
}

bool other_tag(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (instr.verb != Verb::send && instr.verb != Verb::recv) return false;
  ++instr.tag;
  return true;
}

bool other_event(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  if (instr.verb != Verb::wait) return false;
  for (const Instr& other : segment.code) {
    if (other.verb != Verb::record || other.event == instr.event) continue;
    instr.event = other.event;
    return true;
  }
  return false;
}

bool other_pass(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  // Messages are told by what they carry.
  if (instr.verb != Verb::op && instr.verb != Verb::comm) return false;
  switch (instr.pass) {
    case Pass::forward:
      instr.pass = Pass::recompute;
      break;
    case Pass::update:
    case Pass::recompute:
      instr.pass = Pass::forward;
      break;
    default:
      instr.pass = instr.pass == Pass::backward ? Pass::wgrad : Pass::backward;
  }
  return true;
}

bool other_op(Segment& segment, size_t at) {
  // Pairs that call the same function where they can.
  constexpr std::pair<Op, Op> kAlike[] = {
      {Op::qkv_proj, Op::o_proj},         {Op::mlp_fc1, Op::mlp_fc2},
      {Op::shared_fc1, Op::shared_fc2},   {Op::router_gemm, Op::lm_head},
      {Op::attn_norm, Op::mlp_norm},      {Op::final_norm, Op::qk_norm},
      {Op::expert_fc1, Op::expert_fc2},   {Op::shared_act, Op::mlp_act},
      {Op::sort_rows, Op::sort_probs},    {Op::permute, Op::permute_probs},
      {Op::dispatch, Op::combine},        {Op::attn_residual, Op::ffn_residual},
      {Op::grad_reduce, Op::loss_reduce}, {Op::norm_reduce, Op::embedding_grad_reduce},
      {Op::qkv_bias, Op::o_bias},         {Op::kv_pack, Op::kv_reorder},
      {Op::pp_send, Op::pp_recv}};
  Instr& instr = segment.code[at];
  if (instr.verb != Verb::op && instr.verb != Verb::comm) return false;
  for (const auto& [one, other] : kAlike) {
    if (instr.op != one && instr.op != other) continue;
    instr.op = instr.op == one ? other : one;
    return true;
  }
  instr.op = instr.op == Op::core_attn ? Op::router : Op::core_attn;
  return true;
}

bool other_chunk(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  const bool has_rows = instr.verb == Verb::op || instr.verb == Verb::comm;
  if (!has_rows || instr.chunk < 0 || segment.num_chunks == 1) return false;
  instr.chunk = (instr.chunk + 1) % segment.num_chunks;
  return true;
}

/// Adds where it overwrites, or the other way round.
bool other_accumulation(Segment& segment, size_t at) {
  Instr& instr = segment.code[at];
  // The experts' weight gradients are always added to, and rope has nothing to add.
  const bool is_product =
      instr.verb == Verb::op && plan::op_row(instr.op).kind == plan::OpKind::compute &&
      instr.op != Op::core_attn && instr.op != Op::expert_fc1 && instr.op != Op::expert_fc2;
  const bool is_copy =
      instr.op == Op::attn_residual || instr.op == Op::ffn_residual || instr.op == Op::kv_pack;
  if (!is_product && !is_copy) return false;
  instr.accumulate = !instr.accumulate;
  return true;
}

/// body(reference) where the reference stands for something.
template <typename Body>
bool change_ref(Segment& segment, size_t at, size_t index, Body&& body) {
  Instr& instr = segment.code[at];
  if (!is_seen(instr) || index >= instr.refs.size()) return false;
  Ref& ref = instr.refs[index];
  if (ref.space == Space::none || ref.is_chunk_list) return false;
  return body(ref);
}

bool other_buffer(Segment& segment, size_t at, size_t index) {
  return change_ref(segment, at, index, [](Ref& ref) {
    ref.id = ref.id == 0 ? 1 : static_cast<uint8_t>(ref.id - 1);
    return true;
  });
}

/// A row less or a column less where the operand says how many it has.
bool other_size(Segment& segment, size_t at, size_t index) {
  const Verb verb = segment.code[at].verb;
  return change_ref(segment, at, index, [&](Ref& ref) {
    if (verb == Verb::alloc || verb == Verb::free || ref.space == Space::scalar) return false;
    if (ref.space == Space::bucket || ref.space == Space::slots) {
      ref.row = ref.row == 0 ? 1 : ref.row - 1;
      return true;
    }
    if (ref.num_rows > 1) {
      --ref.num_rows;
    } else if (ref.num_cols > 1) {
      --ref.num_cols;
    } else {
      // No operand of the tests has so many.
      ref.rows = RowsOf::range;
      ref.num_rows = 1000;
    }
    return true;
  });
}

bool other_place(Segment& segment, size_t at, size_t index) {
  const bool is_of_chunk = segment.code[at].chunk >= 0;
  return change_ref(segment, at, index, [&](Ref& ref) {
    // Without chunks it is row 0, of all.
    if (ref.is_per_chunk && !is_of_chunk) return false;
    if (ref.is_index_row) {
      ref.row = ref.row == 0 ? 1 : ref.row - 1;
    } else if (ref.rows == RowsOf::range || ref.rows == RowsOf::micro_batch) {
      ++ref.row;
    } else if (ref.num_cols > 0) {
      ++ref.col;
    } else {
      return false;
    }
    return true;
  });
}

bool other_access(Segment& segment, size_t at, size_t index) {
  const Instr& instr = segment.code[at];
  if (instr.verb != Verb::op) return false;
  return change_ref(segment, at, index, [&](Ref& ref) {
    const auto num_alike = std::count_if(
        instr.refs.begin(), instr.refs.end(),
        [&](const Ref& other) { return other.space == ref.space && other.id == ref.id; });
    if (num_alike > 1) return false;
    ref.access = ref.access == plan::Access::read ? plan::Access::update : plan::Access::read;
    return true;
  });
}

constexpr InstrChange kInstrChanges[] = {
    {"swapped with the next", &swap_with_next},
    {"dropped", &drop},
    {"done twice", &repeat},
    {"another stream", &other_stream},
    {"another group", &other_group},
    {"another collective", &other_kind},
    {"more bytes", &more_bytes},
    {"another memory group", &other_memory_group},
    {"not routed", &other_sizing},
    {"another peer", &other_peer},
    {"another tag", &other_tag},
    {"another event", &other_event},
    {"another pass", &other_pass},
    {"another op", &other_op},
    {"another chunk", &other_chunk},
    {"adds or does not", &other_accumulation},
    {"another buffer", nullptr, &other_buffer},
    {"another size", nullptr, &other_size},
    {"another place", nullptr, &other_place},
    {"another access", nullptr, &other_access},
};

bool has_space(const plan::StepProgram& program, size_t at, Space space) {
  const Segment& segment = *program.segments[static_cast<size_t>(program.items[at].segment)];
  return std::any_of(segment.code.begin(), segment.code.end(), [&](const Instr& instr) {
    return is_seen(instr) && std::any_of(instr.refs.begin(), instr.refs.end(),
                                         [&](const Ref& ref) { return ref.space == space; });
  });
}

bool is_empty(const plan::StepProgram& program, size_t at) {
  const Segment& segment = *program.segments[static_cast<size_t>(program.items[at].segment)];
  return std::none_of(segment.code.begin(), segment.code.end(), is_seen);
}

bool swap_items(plan::StepProgram& program, size_t at) {
  if (at + 1 >= program.items.size() || is_empty(program, at) || is_empty(program, at + 1)) {
    return false;
  }
  std::swap(program.items[at], program.items[at + 1]);
  return true;
}

bool drop_item(plan::StepProgram& program, size_t at) {
  if (is_empty(program, at)) return false;
  program.items.erase(program.items.begin() + static_cast<int64_t>(at));
  return true;
}

bool other_layer(plan::StepProgram& program, size_t at) {
  plan::Item& item = program.items[at];
  if (item.layer < 0) return false;
  ++item.layer;
  return true;
}

bool other_micro_batch(plan::StepProgram& program, size_t at) {
  plan::Item& item = program.items[at];
  if (item.micro_batch < 0) return false;
  item.micro_batch = item.micro_batch == 0 ? 1 : item.micro_batch - 1;
  return true;
}

bool other_frame(plan::StepProgram& program, size_t at) {
  if (!has_space(program, at, Space::frame)) return false;
  ++program.items[at].frame;
  return true;
}

bool other_next(plan::StepProgram& program, size_t at) {
  if (!has_space(program, at, Space::next)) return false;
  ++program.items[at].next;
  return true;
}

bool other_edge(plan::StepProgram& program, size_t at) {
  if (!has_space(program, at, Space::edge)) return false;
  ++program.items[at].edge;
  return true;
}

constexpr ItemChange kItemChanges[] = {
    {"swapped with the next", &swap_items},
    {"dropped", &drop_item},
    {"another layer", &other_layer},
    {"another micro-batch", &other_micro_batch},
    {"another frame", &other_frame},
    {"another frame of the next layer", &other_next},
    {"another frame of the stage's end", &other_edge},
};

}  // namespace

std::span<const InstrChange> instr_changes() { return kInstrChanges; }
std::span<const ItemChange> item_changes() { return kItemChanges; }

}  // namespace moetune::engine::testing
