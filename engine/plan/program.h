// The step of one rank as data: what the engine executes, the memory model adds up, the cost model
// plays and `moetune program` prints. A program is a list of items, each of which runs a segment (a
// list of instructions, shared by all layers and micro-batches that do the same) for one layer and
// micro-batch. How it is made: compile.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/buffers.h"
#include "engine/plan/layout.h"
#include "engine/plan/ops.h"
#include "engine/plan/params.h"
#include "engine/spec/hardware_spec.h"
#include "engine/spec/trial_spec.h"
#include "profiler/memory_ledger.h"

namespace moetune::plan {

using profiler::MemoryGroup;

/// What one instruction does.
enum class Verb : uint8_t {
  op,       ///< launches an operation on its stream
  comm,     ///< launches a collective of its group
  send,     ///< launches a message to another pipeline stage
  recv,     ///< launches the receiving of one
  alloc,    ///< makes a buffer
  free,     ///< ends one
  record,   ///< notes the end of what its stream has been given so far
  wait,     ///< its stream waits for a recorded point
  upload,   ///< host to device, on the copy stream
  fetch,    ///< device to host: the host waits for the stream; binds what was fetched
  copy,     ///< between the memories of device and host, on its stream; nobody waits
  host,     ///< work of the host
  acquire,  ///< from here on the segment uses these parameters
  release,  ///< it no longer does. Of parameters that are shards otherwise passes/fsdp.cpp has
            ///< them gathered in between; all others are there all the time
  mark,     ///< no work: where a graph begins or ends, where an observer looks
};
const char* name_of(Verb verb);
/// Whether a captured graph ends there and another one begins behind it: where streams meet, ranks
/// talk, or the host looks.
bool cuts_graph(Verb verb);

/// Where an operand lies.
enum class Space : uint8_t {
  none,     ///< no operand, such as the bias of a layer without one
  frame,    ///< a Buf of the item's layer and micro-batch
  next,     ///< a Buf of the layer after it: the input that this layer writes
  edge,     ///< a Buf of the virtual stage's end: its output, the head, the residual's gradient
  scratch,  ///< a Buf that lives within the item: a recomputed output that nobody reads
  weight,   ///< a ParamKind of the item's layer
  grad,     ///< its gradient
  bucket,   ///< a BucketPart of bucket `row`
  table,    ///< a Table
  scalar,   ///< a Scalar
  narrow,   ///< the copy of a Buf in the products' narrow type, of the item's layer
  slots,    ///< where messages lie until they are read: id 1 backward, row the peer's index
};

/// What a bucket's memory is made of. Of a bucket that is sharded the first ones are shards.
enum class BucketPart : uint8_t {
  weight,
  grad,
  master,
  m,
  v,
  narrow,      ///< copies of weights in the products' narrow type
  gathered,    ///< of what is sharded, whole: there while it is used
  whole_grad,  ///< likewise
  count
};

/// Whether it is the optimizer's: master weights and moments.
inline bool is_state(BucketPart part) {
  return part == BucketPart::master || part == BucketPart::m || part == BucketPart::v;
}

base::DType type_of(BucketPart part, const Precision& precision);

enum class Access : uint8_t { read, write, update };

/// Which rows of an operand an instruction touches.
enum class RowsOf : uint8_t {
  all,
  range,        ///< [row, row + num_rows)
  received,     ///< those that arrive with the instruction's chunk, in order of arrival
  sent,         ///< those that leave with it, in order of sending
  micro_batch,  ///< [row, row + num_rows) of the micro-batch's tokens
  by_token,     ///< of a table with rows of its own: one for each token, wherever it lies
};

/// An operand: never a pointer, and never a number that only the router knows.
struct Ref {
  Space space = Space::none;
  uint8_t id = 0;  ///< Buf, ParamKind, BucketPart, Table or Scalar, as `space` says
  Access access = Access::read;
  RowsOf rows = RowsOf::all;
  bool is_index_row = false;   ///< row `row` of an index buffer, seen as a column
  bool is_per_chunk = false;   ///< row `row` + the chunk's number
  bool is_chunk_list = false;  ///< needed only where there are several chunks
  int64_t row = 0;             ///< of a bucket its number, of slots the peer's index
  int64_t num_rows = 0;
  int64_t col = 0;       ///< of a bucket the first element
  int64_t num_cols = 0;  ///< 0: all columns, or elements

  bool operator==(const Ref&) const = default;
};

/// What a mark stands for. The first ones are read by passes and gone when they have run.
enum class Mark : uint8_t {
  part_begin,     ///< the buffers of a part (Ref id: the part; space: whose) are needed from here
  part_end,       ///< what the part keeps no longer than this is not
  saved_end,      ///< nor what it has saved
  remake,         ///< buffers that recomputation has dropped are made again here
  remake_begin,   ///< what makes one of them again: up to remake_end
  remake_end,     //
  chunk_send,     ///< sending of a chunk: up to chunk_sent
  chunk_sent,     //
  chunk_body,     ///< computing on a chunk that has arrived: up to chunk_done
  chunk_done,     //
  graph_open,     ///< a captured graph begins
  graph_close,    //
  observe_route,  ///< who wants to see the router's decisions looks here
  observe_logits,
};

/// What the host reads from the device.
enum class Fetch : uint8_t { counts, norm, losses };

enum class Upload : uint8_t { step, route };

/// What a kernel that exchanges rows reads and writes beside sending them, which elsewhere are
/// operations of their own.
struct Packing {
  int64_t bytes = 0;
  int64_t bytes_per_row = 0;  ///< that arrives
};

struct Instr {
  Verb verb = Verb::op;
  Op op = Op::count;  ///< op, comm, send, recv, fetch, copy, host
  Pass pass = Pass::forward;
  Stream stream = Stream::compute;
  Group group = Group::world;                                    ///< comm, send, recv
  spec::CollectiveKind kind = spec::CollectiveKind::all_gather;  ///< comm
  spec::GraphScope scope = spec::GraphScope::none;               ///< graph_open, graph_close
  uint8_t what = 0;          ///< Mark, Fetch, Upload; alloc, free: MemoryGroup
  bool accumulate = false;   ///< adds to its output
  bool device_only = false;  ///< of real devices only, such as waits where memory is used again
  /// record, wait: not for the end of the message before it but for its slot, which takes the data
  /// once an earlier message has been read. On a device that is the end of the copy.
  bool is_for_slot = false;
  bool is_routed = false;  ///< its size follows the rows of `chunk`
  /// comm: by a kernel that sends to other nodes what is passed on there, see
  /// passes/dispatchers.cpp. `cost` has the bytes that it moves within the node.
  bool is_by_node = false;
  int32_t chunk = -1;  ///< of expert-parallel rows; -1: all of them
  int32_t event = -1;  ///< record, wait: slot of the segment
  int16_t peer = -1;   ///< send, recv: index within the pipeline group
  int16_t tag = -1;    ///< send, recv: which border between virtual stages, which direction
  /// Work of one launch: FLOPs and bytes of an op; for comm `bytes` is the payload that
  /// spec::collective_ns takes, for send and recv the message, for copy what is moved, for alloc
  /// and free the allocation, for host what it reads and writes.
  /// Where is_routed, `cost` is without rows and `cost_per_row` comes with each.
  OpCost cost;
  OpCost cost_per_row;
  int64_t across_bytes = 0;  ///< is_by_node: to other nodes, meanwhile
  Packing packing;           ///< comm
  std::vector<Ref> refs;
};

/// Which block a segment belongs to.
enum class BlockKind : uint8_t {
  embedding,
  stage,
  gqa,
  mla,
  gdn,
  mamba,
  dense_mlp,
  moe,
  mtp,       ///< where multi-token prediction joins the stream with the next token
  mtp_head,  ///< where it ends
  head,
  update,
  shards,   ///< weights that are gathered, gradients that are scattered (passes/fsdp.cpp)
  offload,  ///< what goes to the host's memory and comes back (passes/offload.cpp)
  count
};
const char* name_of(BlockKind block);
/// Whether it computes a part of the model, with parameters and buffers of its own.
constexpr bool is_of_model(BlockKind block) { return block < BlockKind::update; }

/// One half (forward or backward) of a block, made once for each kind of layer. Immutable.
struct Segment {
  BlockKind block = BlockKind::update;
  bool is_backward = false;  ///< its chunks are the backward ones
  LayerDims dims;
  std::vector<Instr> code;
  int num_events = 0;
  int num_chunks = 1;
  /// Where it is cut because another micro-batch runs in between (passes/weave.cpp): which of its
  /// pieces this is. All of them have its events, and follow each other in the program's segments.
  int piece = 0;
  int num_pieces = 1;

  [[nodiscard]] bool begins() const { return piece == 0; }
  [[nodiscard]] bool ends() const { return piece + 1 == num_pieces; }
};

/// Segments that are under way at the same time: a whole one, one cut forward, one cut backward.
/// What is known of a segment's events is kept by lane.
inline constexpr size_t kNumLanes = 3;
inline size_t lane_of(const Segment& segment) {
  if (segment.num_pieces == 1) return 0;
  return segment.is_backward ? 2 : 1;
}

/// A segment run once.
struct Item {
  int32_t segment = 0;
  int32_t layer = -1;        ///< global index, -1: outside of layers
  int32_t micro_batch = -1;  ///< -1: outside of micro-batches
  /// Frames of the rank hold the buffers of one micro-batch: its layers in order, then the ends of
  /// its virtual stages. Of two virtual stages with two layers each, by item:
  ///   layer          0  1  end    2  3  end
  ///   frame          0  1   4     2  3   5
  ///   next           1  4   -     3  5   -    where the layer's output goes
  ///   edge           4  4   4     5  5   5    the stage's output and gradient
  /// Each depth of multi-token prediction goes on from an end like a stage with a first layer of
  /// its own (mtp), whose frame is that end. With one layer a depth, behind stage 5 above:
  ///   layer          mtp  6  end    mtp  7  end
  ///   frame           5   6   7      7   8   9
  ///   next            6   7   -      8   9   -
  ///   edge            7   7   7      9   9   9
  int32_t frame = -1;
  int32_t next = -1;
  int32_t edge = -1;
  int32_t sharing = -1;  ///< which of the program's sharings; -1: nothing is shared
};

/// What an instruction shares with communication in flight beside it; see passes/contention.cpp.
struct Sharing {
  spec::LinkShare links;    ///< comm, send
  int num_collectives = 0;  ///< op: streams with one, which takes multiprocessors

  auto operator<=>(const Sharing&) const = default;
};

/// What one rank does in a step.
struct StepProgram {
  int rank = 0;
  Layout layout;
  Precision precision;
  ParamPlan params;
  int32_t num_frames = 0;
  int num_message_slots = 0;  ///< of each peer and direction
  std::vector<std::shared_ptr<const Segment>> segments;
  std::vector<Item> setup;  ///< before the first step: what lives from start to end
  std::vector<Item> items;
  std::vector<std::vector<Sharing>> sharings;  ///< by instruction of the item's segment
};

/// Of instruction `index` of an item.
inline Sharing sharing_of(const StepProgram& program, const Item& item, size_t index) {
  if (item.sharing < 0) return {};
  return program.sharings[static_cast<size_t>(item.sharing)][index];
}

/// What tells messages between the same two ranks apart: tag and micro-batch.
inline int64_t message_tag(const Instr& instr, const Item& item) {
  return (int64_t{instr.tag} << 32) + item.micro_batch;
}

/// Whether rows of experts travel.
inline bool is_exchange_of_rows(const Instr& instr) {
  return instr.verb == Verb::comm && (instr.op == Op::dispatch || instr.op == Op::combine);
}

/// Of a routed exchange: whether rows go to the ranks that have their experts, and not back to
/// those that have their tokens. Its first operand says so, which is what leaves: rows in order of
/// sending go to the experts, rows in order of arrival back from them. The counts of a route are
/// those of the way to the experts (ChunkRoute); on the way back who sends and who receives change
/// places.
inline bool is_to_experts(const Instr& instr) { return instr.refs.front().rows == RowsOf::sent; }

/// body(item, segment, instruction) for all of a step, in order.
template <typename Body>
void for_each(const StepProgram& program, Body&& body) {
  for (const Item& item : program.items) {
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    for (const Instr& instr : segment.code) body(item, segment, instr);
  }
}

/// Bytes of an allocation or work of a launch where `rows` rows are routed to this rank.
inline OpCost cost_at(const Instr& instr, int64_t rows) {
  return {instr.cost.flops + instr.cost_per_row.flops * rows,
          instr.cost.bytes + instr.cost_per_row.bytes * rows, instr.cost.row_flops,
          instr.cost.more_flops, instr.cost.recipe};
}

}  // namespace moetune::plan
