// The words that blocks are written in: operands, and instructions in the order in which they run.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "engine/plan/program.h"

namespace moetune::plan {

// Operands. What is read:
inline Ref in(Space space, Buf buf) { return {space, static_cast<uint8_t>(buf)}; }
inline Ref in(Buf buf) { return in(Space::frame, buf); }
inline Ref weight(ParamKind kind) { return {Space::weight, static_cast<uint8_t>(kind)}; }
inline Ref table(Table which) { return {Space::table, static_cast<uint8_t>(which)}; }
inline Ref nothing() { return {}; }

// What is written, and what is read and written:
inline Ref out(Ref ref) {
  ref.access = Access::write;
  return ref;
}
inline Ref out(Buf buf) { return out(in(buf)); }
inline Ref inout(Ref ref) {
  ref.access = Access::update;
  return ref;
}
inline Ref inout(Buf buf) { return inout(in(buf)); }
inline Ref grad(ParamKind kind) {
  return {Space::grad, static_cast<uint8_t>(kind), Access::update};
}
inline Ref scalar(Scalar which) {
  return {Space::scalar, static_cast<uint8_t>(which), Access::update};
}

/// A part of a bucket, read.
inline Ref bucket_part(size_t bucket, BucketPart part) {
  Ref ref{Space::bucket, static_cast<uint8_t>(part)};
  ref.row = static_cast<int64_t>(bucket);
  return ref;
}

// Parts of operands.
inline Ref cols(Ref ref, int64_t first, int64_t count) {
  ref.col = first;
  ref.num_cols = count;
  return ref;
}
inline Ref rows(Ref ref, int64_t first, int64_t count) {
  ref.rows = RowsOf::range;
  ref.row = first;
  ref.num_rows = count;
  return ref;
}
/// The rows of the instruction's chunk that arrive, or that leave.
inline Ref received(Ref ref) {
  ref.rows = RowsOf::received;
  return ref;
}
inline Ref sent(Ref ref) {
  ref.rows = RowsOf::sent;
  return ref;
}
/// A row for each token out of all rows.
inline Ref by_token(Ref ref) {
  ref.rows = RowsOf::by_token;
  return ref;
}
/// Row `row` of an index buffer as a column.
inline Ref index_row(Ref ref, int64_t row) {
  ref.is_index_row = true;
  ref.row = row;
  return ref;
}
/// The slots of messages to the peer at that index of the pipeline group.
inline Ref slots_to(int peer, bool is_backward) {
  Ref ref{Space::slots, static_cast<uint8_t>(is_backward ? 1 : 0), Access::write};
  ref.row = peer;
  return ref;
}
/// Rows [first, first + count) of the micro-batch's part of a table of tokens.
inline Ref tokens_of(Table which, int64_t first, int64_t count) {
  Ref ref = table(which);
  ref.rows = RowsOf::micro_batch;
  ref.row = first;
  ref.num_rows = count;
  return ref;
}

/// What every block of a rank can see. Knobs are for passes.
struct BlockContext {
  const spec::ModelSpec& model;
  const spec::TrainingSpec& training;
  Precision precision;
  LayerDims dims;
  int rank = 0;
};

/// Writes one segment.
class SegmentWriter {
 public:
  SegmentWriter(const BlockContext& context, BlockKind block, bool is_backward)
      : context_(context) {
    constexpr size_t kUsualLength = 32;  // instructions are large to move
    segment_.code.reserve(kUsualLength);
    segment_.block = block;
    segment_.is_backward = is_backward;
    segment_.dims = context.dims;
    pass_ = is_backward ? Pass::backward : Pass::forward;
  }

  /// Of what comes next.
  void set_pass(Pass pass) { pass_ = pass; }
  [[nodiscard]] BlockKind block() const { return segment_.block; }
  [[nodiscard]] const LayerDims& dims() const { return context_.dims; }
  [[nodiscard]] const spec::ModelSpec& model() const { return context_.model; }
  [[nodiscard]] const spec::TrainingSpec& training() const { return context_.training; }

  Instr& add(Verb verb, Stream stream);
  /// An operation of the segment's pass; passes/prices.cpp gives it its cost.
  Instr& op(Op op_id, std::initializer_list<Ref> refs) { return op(op_id, pass_, refs); }
  Instr& op(Op op, Pass pass, std::initializer_list<Ref> refs);
  /// One whose size follows the rows of experts.
  Instr& expert_op(Op op_id, std::initializer_list<Ref> refs) {
    return expert_op(op_id, pass_, refs);
  }
  Instr& expert_op(Op op, Pass pass, std::initializer_list<Ref> refs);
  /// One whose work does not follow from its operands.
  Instr& priced(Op op, const OpCost& cost, std::initializer_list<Ref> refs);

  /// A collective of the op's group and stream; `payload_bytes` as spec::collective_ns takes it.
  Instr& comm(Op op, spec::CollectiveKind kind, int64_t payload_bytes,
              std::initializer_list<Ref> refs);
  /// The context-parallel ranks' shares of the sequence with all columns for all of it with a share
  /// of the columns, or back; `cols`: all. The compute stream has waited for it.
  void exchange(Op op, int64_t cols, const Ref& from, const Ref& to);
  /// Rows of the chunk to other ranks: pairs of what is sent and where it arrives.
  Instr& all_to_all(Op op, int64_t row_bytes, std::initializer_list<Ref> refs);
  Instr& message(Verb verb, Op op, int peer, const Ref& ref);
  [[nodiscard]] int64_t message_bytes() const;

  int new_event() { return segment_.num_events++; }
  void record(Stream stream, int event) { add(Verb::record, stream).event = event; }
  void wait(Stream stream, int event) { add(Verb::wait, stream).event = event; }
  /// `stream` waits for everything launched on `other` so far.
  void join(Stream stream, Stream other);
  /// The same, needed only because memory is used again.
  void join_for_reuse(Stream stream, Stream other);
  /// The same for memory that a message was sent from: `other` sent it last. Who sends more than
  /// has slots waits here, too.
  void join_for_slot(Stream stream, Stream other);

  Instr& mark(Mark what);
  void begin(Part part, Space space = Space::frame) { part_mark(Mark::part_begin, part, space); }
  void end(Part part, Space space = Space::frame) { part_mark(Mark::part_end, part, space); }
  void end_saved(Part part, Space space = Space::frame) { part_mark(Mark::saved_end, part, space); }
  /// Buffers that are made again here if recomputation has dropped them, in this order.
  void remake(std::initializer_list<Buf> buffers);
  /// What is written in between makes the buffer again if recomputation has dropped it.
  void begin_remake(Buf buffer) { mark(Mark::remake_begin).refs = {in(buffer)}; }
  void end_remake() { mark(Mark::remake_end); }
  void open(spec::GraphScope scope) { mark(Mark::graph_open).scope = scope; }
  void close(spec::GraphScope scope) { mark(Mark::graph_close).scope = scope; }

  Instr& host(Op op, const OpCost& cost, const OpCost& cost_per_row = {});
  Instr& fetch(Fetch what, Stream stream, const Ref& ref);
  Instr& upload(Upload what, std::initializer_list<Ref> refs);
  /// The block's parameters, and those of another one that it uses.
  void acquire(std::span<const ParamRow> also = {}) { params(Verb::acquire, also); }
  void release(std::span<const ParamRow> also = {}) { params(Verb::release, also); }

  /// y = norm(x), with what its gradient needs of each row; `bias` of a LayerNorm.
  Instr& norm(Op op, const Ref& x, ParamKind w, ParamKind bias, const Ref& y, const Ref& rstd);
  /// dx (+)= the norm's gradient; w.grad += ...
  Instr& norm_backward(Op op, const Ref& x, ParamKind w, ParamKind bias, const Ref& rstd,
                       const Ref& dy, const Ref& dx);
  /// y (+)= x W^T (+ bias).
  Instr& linear(Op op, const Ref& x, ParamKind w, const Ref& y, const Ref& bias = nothing());
  /// dx (+)= dy W; W.grad += dy^T x; the bias's gradient += column sums.
  void linear_backward(Op op, Op bias_op, const Ref& x, ParamKind w, const Ref& dy, const Ref& dx,
                       const Ref& bias_grad = nothing());

  // Tensor parallelism with sequence parallelism (Korthikanti et al. 2022). Between the matrices a
  // rank holds its share of the tokens; what a matrix that is split by rows reads is gathered, what
  // one that is split by columns writes is added up and scattered. On one rank nothing travels.
  /// Rows of all ranks' tokens, on their way until `event`; -1: there.
  struct Gathered {
    Ref rows;
    int event = -1;
  };
  Gathered gather(const Ref& own, const Ref& all) { return gather(own, all, dims().hidden); }
  /// Of rows with so many columns.
  Gathered gather(const Ref& own, const Ref& all, int64_t cols);
  /// The compute stream waits for them, once.
  Ref arrived(Gathered& gathered);
  /// Sums of `partial` over the ranks, of the rank's own tokens. The compute stream does not wait.
  void scatter(const Ref& partial, const Ref& own) { scatter(partial, own, dims().hidden); }
  void scatter(const Ref& partial, const Ref& own, int64_t cols);
  [[nodiscard]] bool is_tensor_parallel() const { return dims().tp > 1; }
  /// A residual's op and what it reads.
  struct Residual {
    Op op;
    Ref from;
  };
  /// y = residual + x W^T + bias over all ranks' shares of x's columns. The bias is of all ranks
  /// and added by one. `partial`: the rank's share.
  void row_parallel(Op op, const Ref& x, ParamKind w, const Ref& partial, const Ref& y,
                    const Residual& residual, const Ref& bias = nothing());
  /// dx = dy W; W.grad += dy^T x; the bias's gradient += column sums of the rank's own dy.
  void row_parallel_backward(Op op, Op bias_op, const Ref& x, ParamKind w, const Ref& own_dy,
                             Gathered& dy, const Ref& dx, const Ref& bias_grad = nothing());
  /// dx (+)= dy W over all ranks' shares of W's rows; the rest as linear_backward, while the shares
  /// of dx are on their way. The compute stream has waited for them at the end.
  void column_parallel_backward(Op op, Op bias_op, Gathered& x, ParamKind w, const Ref& dy,
                                const Ref& partial, const Ref& dx,
                                const Ref& bias_grad = nothing()) {
    column_parallel_backward(op, bias_op, x, w, dy, partial, dx, bias_grad, dims().hidden);
  }
  /// Of rows with so many columns.
  void column_parallel_backward(Op op, Op bias_op, Gathered& x, ParamKind w, const Ref& dy,
                                const Ref& partial, const Ref& dx, const Ref& bias_grad,
                                int64_t cols);

  Segment finish() { return std::move(segment_); }

 private:
  static int16_t to16(int value) { return static_cast<int16_t>(value); }
  void part_mark(Mark what, Part part, Space space);
  /// Of the rows of all tensor-parallel ranks.
  [[nodiscard]] int64_t block_bytes(int64_t cols) const;
  void params(Verb verb, std::span<const ParamRow> also);

  const BlockContext& context_;
  Segment segment_;
  Pass pass_ = Pass::forward;
};

}  // namespace moetune::plan
