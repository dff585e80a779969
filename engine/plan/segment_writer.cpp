#include "engine/plan/segment_writer.h"

#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

Instr& SegmentWriter::add(Verb verb, Stream stream) {
  Instr& instr = segment_.code.emplace_back();
  instr.verb = verb;
  instr.pass = pass_;
  instr.stream = stream;
  return instr;
}

Instr& SegmentWriter::op(Op op_id, Pass pass, std::initializer_list<Ref> refs) {
  Instr& instr = add(Verb::op, op_row(op_id).stream);
  instr.op = op_id;
  instr.pass = pass;
  instr.refs = refs;
  return instr;
}

Instr& SegmentWriter::expert_op(Op op_id, Pass pass, std::initializer_list<Ref> refs) {
  Instr& instr = op(op_id, pass, refs);
  instr.is_routed = dims().expert_ranks > 1;
  return instr;
}

Instr& SegmentWriter::priced(Op op, const OpCost& cost, std::initializer_list<Ref> refs) {
  Instr& instr = add(Verb::op, op_row(op).stream);
  instr.op = op;
  instr.cost = cost;
  instr.refs = refs;
  return instr;
}

Instr& SegmentWriter::comm(Op op, spec::CollectiveKind kind, int64_t payload_bytes,
                           std::initializer_list<Ref> refs) {
  Instr& instr = add(Verb::comm, op_row(op).stream);
  instr.op = op;
  instr.group = op_row(op).group;
  instr.kind = kind;
  instr.cost.bytes = payload_bytes;
  instr.refs = refs;
  return instr;
}

void SegmentWriter::exchange(Op op, int64_t cols, const Ref& from, const Ref& to) {
  join(Stream::context, Stream::compute);
  comm(op, spec::CollectiveKind::all_to_all, block_bytes(cols), {from, out(to)});
  join(Stream::compute, Stream::context);
}

Instr& SegmentWriter::all_to_all(Op op, int64_t row_bytes, std::initializer_list<Ref> refs) {
  Instr& instr = comm(op, spec::CollectiveKind::all_to_all, 0, refs);
  instr.is_routed = true;
  instr.cost_per_row.bytes = row_bytes;
  return instr;
}

Instr& SegmentWriter::message(Verb verb, Op op, int peer, const Ref& ref) {
  Instr& instr = add(verb, op_row(op).stream);
  instr.op = op;
  instr.group = op_row(op).group;
  instr.peer = to16(peer);
  instr.cost.bytes = message_bytes();
  instr.refs = {ref};
  if (verb == Verb::send) instr.refs.push_back(slots_to(peer, segment_.is_backward));
  return instr;
}

int64_t SegmentWriter::message_bytes() const {
  return dims().tokens * dims().hidden * base::size_of(context_.precision.element);
}

void SegmentWriter::join(Stream stream, Stream other) {
  const int event = new_event();
  record(other, event);
  wait(stream, event);
}

void SegmentWriter::join_for_reuse(Stream stream, Stream other) {
  join(stream, other);
  for (auto instr = segment_.code.end() - 2; instr != segment_.code.end(); ++instr) {
    instr->device_only = true;
  }
}

void SegmentWriter::join_for_slot(Stream stream, Stream other) {
  join(stream, other);
  for (auto instr = segment_.code.end() - 2; instr != segment_.code.end(); ++instr) {
    instr->is_for_slot = true;
  }
}

Instr& SegmentWriter::mark(Mark what) {
  Instr& instr = add(Verb::mark, Stream::compute);
  instr.what = static_cast<uint8_t>(what);
  return instr;
}

void SegmentWriter::part_mark(Mark what, Part part, Space space) {
  mark(what).refs = {{space, static_cast<uint8_t>(part)}};
}

void SegmentWriter::remake(std::initializer_list<Buf> buffers) {
  Instr& instr = mark(Mark::remake);
  for (const Buf buffer : buffers) instr.refs.push_back(in(buffer));
}

Instr& SegmentWriter::host(Op op, const OpCost& cost, const OpCost& cost_per_row) {
  Instr& instr = add(Verb::host, Stream::compute);
  instr.op = op;
  instr.cost = cost;
  instr.cost_per_row = cost_per_row;
  instr.is_routed = cost_per_row.bytes > 0;
  return instr;
}

Instr& SegmentWriter::fetch(Fetch what, Stream stream, const Ref& ref) {
  Instr& instr = add(Verb::fetch, stream);
  instr.op = Op::host_sync;
  instr.what = static_cast<uint8_t>(what);
  instr.refs = {ref};
  return instr;
}

Instr& SegmentWriter::upload(Upload what, std::initializer_list<Ref> refs) {
  join_for_reuse(Stream::copy, Stream::compute);
  Instr& instr = add(Verb::upload, Stream::copy);
  instr.what = static_cast<uint8_t>(what);
  instr.refs = refs;
  return instr;
}

void SegmentWriter::params(Verb verb, std::span<const ParamRow> also) {
  Instr& instr = add(verb, Stream::compute);
  const auto append = [&](std::span<const ParamRow> rows) {
    for (const ParamRow& row : rows) {
      if (is_there(row, model(), dims())) instr.refs.push_back(weight(row.id));
    }
  };
  for (const std::span<const ParamRow> rows : block_of(segment_.block).params) append(rows);
  append(also);
}

Instr& SegmentWriter::norm(Op op_id, const Ref& x, ParamKind w, ParamKind bias, const Ref& y,
                           const Ref& rstd) {
  Instr& instr = op(op_id, {x, weight(w), out(y), out(rstd)});
  if (model().has_layer_norm) instr.refs.push_back(weight(bias));
  return instr;
}

Instr& SegmentWriter::norm_backward(Op op_id, const Ref& x, ParamKind w, ParamKind bias,
                                    const Ref& rstd, const Ref& dy, const Ref& dx) {
  Instr& instr = op(op_id, Pass::backward, {x, weight(w), rstd, dy, dx, grad(w)});
  if (model().has_layer_norm) instr.refs.push_back(grad(bias));
  return instr;
}

Instr& SegmentWriter::linear(Op op_id, const Ref& x, ParamKind w, const Ref& y, const Ref& bias) {
  return op(op_id, {x, weight(w), y, bias});
}

void SegmentWriter::linear_backward(Op op_id, Op bias_op, const Ref& x, ParamKind w, const Ref& dy,
                                    const Ref& dx, const Ref& bias_grad) {
  if (bias_grad.space != Space::none) op(bias_op, {dy, bias_grad});
  op(op_id, {dy, weight(w), dx}).accumulate = dx.access == Access::update;
  op(op_id, Pass::wgrad, {dy, x, grad(w)}).accumulate = true;
}

SegmentWriter::Gathered SegmentWriter::gather(const Ref& own, const Ref& all, int64_t cols) {
  if (!is_tensor_parallel()) return {own};
  join(Stream::tensor, Stream::compute);
  comm(Op::tp_gather, spec::CollectiveKind::all_gather, block_bytes(cols), {own, out(all)});
  const int event = new_event();
  record(Stream::tensor, event);
  return {all, event};
}

Ref SegmentWriter::arrived(Gathered& gathered) {
  if (gathered.event >= 0) wait(Stream::compute, gathered.event);
  gathered.event = -1;
  return gathered.rows;
}

void SegmentWriter::scatter(const Ref& partial, const Ref& own, int64_t cols) {
  join(Stream::tensor, Stream::compute);
  comm(Op::tp_scatter, spec::CollectiveKind::reduce_scatter, block_bytes(cols),
       {partial, out(own)});
}

int64_t SegmentWriter::block_bytes(int64_t cols) const {
  return dims().block_tokens * cols * base::size_of(context_.precision.element);
}

void SegmentWriter::row_parallel(Op op_id, const Ref& x, ParamKind w, const Ref& partial,
                                 const Ref& y, const Residual& residual, const Ref& bias) {
  if (!is_tensor_parallel()) {
    op(residual.op, {residual.from, out(y)});
    linear(op_id, x, w, inout(y), bias).accumulate = true;
    return;
  }
  linear(op_id, x, w, out(partial), dims().tp_rank == 0 ? bias : nothing());
  scatter(partial, y);
  join(Stream::compute, Stream::tensor);
  op(residual.op, {residual.from, inout(y)}).accumulate = true;
}

void SegmentWriter::row_parallel_backward(Op op_id, Op bias_op, const Ref& x, ParamKind w,
                                          const Ref& own_dy, Gathered& dy, const Ref& dx,
                                          const Ref& bias_grad) {
  if (bias_grad.space != Space::none) op(bias_op, {own_dy, bias_grad});
  linear_backward(op_id, bias_op, x, w, arrived(dy), dx);
}

void SegmentWriter::column_parallel_backward(Op op_id, Op bias_op, Gathered& x, ParamKind w,
                                             const Ref& dy, const Ref& partial, const Ref& dx,
                                             const Ref& bias_grad, int64_t cols) {
  if (!is_tensor_parallel()) {
    linear_backward(op_id, bias_op, x.rows, w, dy, dx, bias_grad);
    return;
  }
  if (bias_grad.space != Space::none) op(bias_op, {dy, bias_grad});
  op(op_id, {dy, weight(w), out(partial)});
  scatter(partial, dx, cols);
  const Ref gathered = arrived(x);
  op(op_id, Pass::wgrad, {dy, gathered, grad(w)}).accumulate = true;
  join(Stream::compute, Stream::tensor);
}

}  // namespace moetune::plan
