// Works out from buffers, chunks and routed rows where each operand has to lie: a second
// computation of what the engine's frames do, so that the comparison does not ask the engine about
// itself.
#include "tests/engine/program_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/schedules/schedule.h"
#include "tests/engine/call_site.h"

namespace moetune::engine::testing {
namespace {

using plan::RowsOf;
using plan::Space;

/// Outside of any frame: outputs of a recomputation that nobody reads.
constexpr int32_t kScratch = -2;

Operand columns_of(const Operand& operand, int64_t first, int64_t count) {
  Operand part = shifted(operand, first);
  part.cols = count;
  return part;
}

}  // namespace

RoutedRows routed_rows(const plan::LayerDims& dims, int64_t own, std::span<const int32_t> counts) {
  RoutedRows rows;
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  for (int64_t number = 0; number < num_chunks; ++number) {
    const bool is_forward = number < dims.chunks_forward;
    std::vector<ChunkRows>& chunks = is_forward ? rows.forward : rows.backward;
    ChunkRows chunk;
    if (!chunks.empty()) {
      chunk.first_sent = chunks.back().first_sent + chunks.back().num_sent;
      chunk.first_received = chunks.back().first_received + chunks.back().num_received;
    }
    chunk.sent_to.assign(static_cast<size_t>(dims.expert_ranks), 0);
    chunk.received_from.assign(static_cast<size_t>(dims.expert_ranks), 0);
    for (int64_t source = 0; source < dims.expert_ranks; ++source) {
      // Each slice of an expert is one to the ranks that exchange rows.
      const int64_t num_slices = dims.local_experts * dims.expert_ranks;
      for (int64_t slice = 0; slice < num_slices; ++slice) {
        const int64_t count =
            counts[static_cast<size_t>((source * num_chunks + number) * num_slices + slice)];
        const int64_t target = slice / dims.local_experts;
        if (source == own) {
          chunk.sent_to[static_cast<size_t>(target)] += count;
          chunk.num_sent += count;
        }
        if (target == own) {
          chunk.received_from[static_cast<size_t>(source)] += count;
          chunk.num_received += count;
        }
      }
    }
    if (is_forward) rows.num_received += chunk.num_received;
    chunks.push_back(std::move(chunk));
  }
  return rows;
}

void Places::enter(const plan::Item& item) {
  std::erase_if(frames_, [](const auto& frame) { return frame.second.buffers.empty(); });
  item_ = item;
  segment_ = program_.segments[static_cast<size_t>(item.segment)].get();
}

bool Places::has_buffers() const {
  return std::any_of(frames_.begin(), frames_.end(),
                     [](const auto& frame) { return !frame.second.buffers.empty(); });
}

const RoutedRows* Places::rows() const {
  const auto frame = frames_.find({item_.frame, item_.micro_batch});
  return frame != frames_.end() && frame->second.rows ? &*frame->second.rows : nullptr;
}

const ChunkRows* Places::chunk(const plan::Instr& instr) const {
  const RoutedRows* all = rows();
  if (all == nullptr || instr.chunk < 0) return nullptr;
  const std::vector<ChunkRows>& chunks = segment_->is_backward ? all->backward : all->forward;
  const auto index = static_cast<size_t>(instr.chunk);
  return index < chunks.size() ? &chunks[index] : nullptr;
}

int64_t Places::received(const plan::Instr& instr) const {
  if (rows() == nullptr) throw Unplaced{"a size follows rows that nobody has fetched"};
  if (instr.chunk < 0) return rows()->num_received;
  if (chunk(instr) == nullptr) throw Unplaced{fmt::format("no chunk {}", instr.chunk)};
  return chunk(instr)->num_received;
}

Places::Key Places::key_of(Space space) const {
  if (space == Space::scratch) return {kScratch, kScratch};
  const int32_t frame = space == Space::frame  ? item_.frame
                        : space == Space::next ? item_.next
                                               : item_.edge;
  if (frame < 0) throw Unplaced{"a buffer of a frame that the item has not"};
  return {frame, item_.micro_batch};
}

Operand Places::shape_of(const plan::Ref& ref) const {
  const spec::Precision& precision = program_.precision;
  switch (ref.space) {
    case Space::scalar: {
      const auto count = static_cast<int64_t>(plan::Scalar::count);
      return {"", nullptr, base::DType::f64, 1, count, count};
    }
    case Space::table: {
      const plan::TableRow row =
          plan::tables_of(segment_->dims, trial_.training.seq_length,
                          plan::num_micro_batches(program_.layout, trial_.knobs,
                                                  trial_.training.global_batch_size))[ref.id];
      return {"", nullptr, precision.of(row.content), row.rows, row.cols, row.cols};
    }
    case Space::slots: {
      const int64_t message = segment_->dims.tokens * segment_->dims.hidden;
      return {"", nullptr, precision.element, program_.num_message_slots, message, message};
    }
    case Space::bucket: {
      const plan::BucketDesc& bucket = program_.params.buckets[static_cast<size_t>(ref.row)];
      const auto part = static_cast<plan::BucketPart>(ref.id);
      const bool is_whole = part == plan::BucketPart::weight || part == plan::BucketPart::grad ||
                            !trial_.knobs.use_distributed_optimizer;
      const int64_t numel =
          is_whole ? bucket.numel : bucket.numel / program_.layout.group_size(bucket.group);
      return {"", nullptr, plan::type_of(part, precision), 1, numel, numel};
    }
    default: {
      const plan::BufferRow& row = plan::buffer_row(static_cast<plan::Buf>(ref.id));
      plan::LayerDims dims = segment_->dims;
      // Rows that are routed have no number before the counts are there.
      if (dims.expert_ranks > 1 && row.part == plan::Part::experts) {
        if (rows() == nullptr) throw Unplaced{"a size follows rows that nobody has fetched"};
        dims.received_rows = rows()->num_received;
      }
      return {
          "", nullptr, precision.of(row.content), row.rows(dims), row.cols(dims), row.cols(dims)};
    }
  }
}

int64_t Places::bytes_of(const plan::Ref& ref) const { return shape_of(ref).bytes(); }

void Places::place(const plan::Ref& ref, const void* data) {
  Operand made = shape_of(ref);
  made.data = data;
  bool is_new = true;
  switch (ref.space) {
    case Space::scalar:
      is_new = scalars_ == nullptr;
      scalars_ = data;
      break;
    case Space::table:
      is_new = tables_.emplace(ref.id, made).second;
      break;
    case Space::bucket:
      is_new = buckets_.emplace(std::pair(static_cast<size_t>(ref.row), ref.id), made).second;
      break;
    case Space::slots:
      is_new = slots_.emplace(std::pair(ref.row, ref.id), made).second;
      break;
    default:
      is_new = frames_[key_of(ref.space)].buffers.emplace(ref.id, made).second;
  }
  if (!is_new) throw Unplaced{"it is made twice"};
}

Operand Places::take(const plan::Ref& ref) {
  const auto frame = frames_.find(key_of(ref.space));
  if (frame == frames_.end() || !frame->second.buffers.contains(ref.id)) {
    throw Unplaced{"a buffer is ended that is not there"};
  }
  const Operand taken = frame->second.buffers.at(ref.id);
  frame->second.buffers.erase(ref.id);
  return taken;
}

Operand Places::bucket(size_t index, plan::BucketPart part) const {
  const auto found = buckets_.find({index, static_cast<uint8_t>(part)});
  if (found == buckets_.end()) throw Unplaced{"a bucket's part that is not there"};
  return found->second;
}

Operand Places::parameter(const plan::Ref& ref) const {
  const auto part = ref.space == Space::weight ? plan::BucketPart::weight : plan::BucketPart::grad;
  for (const plan::ParamDesc& param : program_.params.params) {
    if (param.kind != static_cast<plan::ParamKind>(ref.id) || param.layer != item_.layer) continue;
    Operand operand = shifted(bucket(static_cast<size_t>(param.bucket), part), param.offset);
    operand.rows = param.is_bias ? 1 : param.rows;
    operand.cols = operand.ld = param.numel() / operand.rows;
    return operand;
  }
  throw Unplaced{fmt::format("layer {} has no parameter of kind {}", item_.layer, ref.id)};
}

Operand Places::whole(const plan::Ref& ref) const {
  switch (ref.space) {
    case Space::weight:
    case Space::grad:
      return parameter(ref);
    case Space::bucket:
      return bucket(static_cast<size_t>(ref.row), static_cast<plan::BucketPart>(ref.id));
    case Space::slots: {
      const auto found = slots_.find({ref.row, ref.id});
      if (found == slots_.end()) throw Unplaced{"slots that are not there"};
      return found->second;
    }
    case Space::table: {
      const auto found = tables_.find(ref.id);
      return found != tables_.end() ? found->second : shape_of(ref);
    }
    case Space::scalar: {
      Operand all = shape_of(ref);
      all.data = scalars_;
      return columns_of(all, ref.id, 1);
    }
    default: {
      const auto frame = frames_.find(key_of(ref.space));
      if (frame != frames_.end()) {
        const auto found = frame->second.buffers.find(ref.id);
        if (found != frame->second.buffers.end()) return found->second;
      }
      // What has no bytes is not allocated.
      const Operand shape = shape_of(ref);
      if (shape.numel() == 0) return shape;
      throw Unplaced{
          fmt::format("{} is not there", plan::buffer_row(static_cast<plan::Buf>(ref.id)).name)};
    }
  }
}

Operand Places::find(const plan::Ref& ref, const plan::Instr& instr) const {
  if (ref.space == Space::none) return {};
  const bool is_of_chunk = instr.chunk >= 0;
  if (ref.is_chunk_list && (!is_of_chunk || segment_->num_chunks == 1)) return {};
  Operand operand = whole(ref);
  if (ref.space == Space::slots) return operand;
  if (ref.space == Space::bucket) {
    return ref.num_cols > 0 ? columns_of(operand, ref.col, ref.num_cols) : operand;
  }
  if (ref.is_index_row) {
    const int64_t row = ref.is_per_chunk ? (is_of_chunk ? ref.row + instr.chunk : 0) : ref.row;
    operand = as_column(rows_of(operand, row, 1));
  }
  switch (ref.rows) {
    case RowsOf::all:
    case RowsOf::by_token:
      break;
    case RowsOf::range:
      operand = rows_of(operand, ref.row, ref.num_rows);
      break;
    case RowsOf::micro_batch:
      operand =
          rows_of(operand, item_.micro_batch * segment_->dims.block_tokens + ref.row, ref.num_rows);
      break;
    case RowsOf::received:
    case RowsOf::sent: {
      if (!is_of_chunk) break;
      const ChunkRows* own = chunk(instr);
      if (own == nullptr) throw Unplaced{fmt::format("no rows of chunk {}", instr.chunk)};
      operand = ref.rows == RowsOf::sent ? rows_of(operand, own->first_sent, own->num_sent)
                                         : rows_of(operand, own->first_received, own->num_received);
      break;
    }
  }
  return ref.num_cols > 0 ? columns_of(operand, ref.col, ref.num_cols) : operand;
}

}  // namespace moetune::engine::testing
