// The cost of every operation, from the shapes of its operands.
#include <algorithm>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

/// Of an element of a copy; see passes/narrow.cpp.
constexpr int64_t kNarrowBytes = 1;

/// Shape of an operand; rows that the router decides are `dims.received_rows`.
OperandShape shape_of(const Ref& ref, const LayerDims& dims, const spec::TrainingSpec& training,
                      const Precision& precision, bool is_narrow_product) {
  OperandShape shape;
  switch (ref.space) {
    case Space::none:
    case Space::bucket:
    case Space::slots:
      return {};
    case Space::weight:
    case Space::grad: {
      const ParamRow& row = param_row(static_cast<ParamKind>(ref.id));
      const bool is_grad = ref.space == Space::grad;
      shape = {row.rows(dims), row.cols(dims),
               is_grad             ? base::size_of(precision.stat)
               : is_narrow_product ? kNarrowBytes
                                   : base::size_of(precision.element)};
      break;
    }
    case Space::narrow: {
      const BufferRow& row = buffer_row(static_cast<Buf>(ref.id));
      shape = {row.rows(dims), row.cols(dims), kNarrowBytes};
      break;
    }
    case Space::table: {
      const TableRow row = tables_of(dims, training.seq_length, 1)[ref.id];
      shape = {row.rows, row.cols, base::size_of(precision.of(row.content))};
      break;
    }
    case Space::scalar:
      shape = {1, 1, base::size_of(base::DType::f64)};
      break;
    default: {
      const BufferRow& row = buffer_row(static_cast<Buf>(ref.id));
      shape = {row.rows(dims), row.cols(dims), base::size_of(precision.of(row.content))};
    }
  }
  if (ref.is_index_row) shape = {shape.cols, 1, shape.element_bytes, false, ref.row};
  if (ref.rows == RowsOf::range || ref.rows == RowsOf::micro_batch) shape.rows = ref.num_rows;
  if (ref.rows == RowsOf::by_token) shape.rows = std::min(shape.rows, dims.block_tokens);
  if (ref.num_cols > 0) shape.cols = ref.num_cols;
  shape.is_updated = ref.access == Access::update;
  return shape;
}

OpCost cost_of(const Instr& instr, const LayerDims& dims, const spec::TrainingSpec& training,
               const Precision& precision) {
  std::vector<OperandShape> operands;
  for (const Ref& ref : instr.refs) {
    operands.push_back(
        shape_of(ref, dims, training, precision, spec::is_product_narrow(instr.cost.recipe)));
    // What is updated in place has been counted as read.
    const bool is_updated_too =
        ref.access == Access::read && ref.space != Space::none &&
        std::any_of(instr.refs.begin(), instr.refs.end(), [&](const Ref& other) {
          Ref same = other;
          same.access = Access::read;
          return other.access == Access::update && same == ref;
        });
    if (is_updated_too) operands.back().element_bytes = 0;
  }
  OpCost cost = op_cost(instr.op, instr.pass, dims, operands);
  cost.recipe = instr.cost.recipe;
  return cost;
}

}  // namespace

void prices(Segment& segment, const spec::TrainingSpec& training, const Precision& precision) {
  for (Instr& instr : segment.code) {
    if (instr.verb != Verb::op || segment.block == BlockKind::update) continue;
    if (!instr.is_routed) {
      instr.cost = cost_of(instr, segment.dims, training, precision);
      continue;
    }
    // Every op of the experts costs so much without rows and so much with each.
    LayerDims dims = segment.dims;
    dims.received_rows = 0;
    instr.cost = cost_of(instr, dims, training, precision);
    dims.received_rows = 1;
    const OpCost with_one = cost_of(instr, dims, training, precision);
    instr.cost_per_row = {with_one.flops - instr.cost.flops, with_one.bytes - instr.cost.bytes};
  }
}

}  // namespace moetune::plan
