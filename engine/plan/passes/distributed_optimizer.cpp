// The pass that shares the optimizer out: ZeRO stage 1 (Rajbhandari et al. 2020). Ranks that hold
// the same parameters keep the optimizer's state of a shard each. Gradients are added up only where
// their shard is, AdamW works on the shard, and the weights are gathered again at the end of the
// step. The norm is shared out like that in any case: its sum is over all ranks.
#include <algorithm>
#include <utility>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

/// Elements [begin, end) of a bucket. `num_updated` of them belong to parameters with a gradient;
/// the others are padding or have no gradient.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t num_updated = 0;
};

/// The elements of each bucket that the rank updates; none where its shard is only padding.
std::vector<Range> own_ranges(const StepProgram& program) {
  std::vector<Range> ranges(program.params.buckets.size());
  for (const ShardPiece& piece : shard_pieces(program.params, program.layout, program.rank)) {
    const ParamDesc& param = program.params.params[piece.param];
    if (!program.params.has_gradient(param)) continue;
    Range& range = ranges[static_cast<size_t>(param.bucket)];
    const bool is_first = range.begin == range.end;
    range.begin = is_first ? piece.begin : std::min(range.begin, piece.begin);
    range.end = std::max(range.end, piece.end);
    range.num_updated += piece.end - piece.begin;
  }
  return ranges;
}

/// Whether only the shard of it is kept: master weights and moments, and all of what is sharded.
bool is_shard(const BucketDesc& bucket, const Ref& ref) {
  const auto part = static_cast<BucketPart>(ref.id);
  return bucket.is_sharded || is_state(part);
}

const BucketDesc& bucket_of(const StepProgram& program, const Ref& ref) {
  return program.params.buckets[static_cast<size_t>(ref.row)];
}

void shrink_allocation(const StepProgram& program, Instr& instr) {
  const Ref& ref = instr.refs.front();
  if (ref.space != Space::bucket) return;
  const BucketDesc& bucket = bucket_of(program, ref);
  if (!is_shard(bucket, ref)) return;
  instr.cost.bytes = instr.cost.bytes / bucket.numel * bucket.own_numel;
}

/// Narrows the operands to the rank's own elements. The cost is proportional to their number.
void narrow_update(const StepProgram& program, Instr& instr) {
  const std::vector<Range> ranges = own_ranges(program);
  const auto range_of = [&](const Ref& ref) { return ranges[static_cast<size_t>(ref.row)]; };
  std::erase_if(instr.refs,
                [&](const Ref& ref) { return range_of(ref).begin == range_of(ref).end; });
  for (Ref& ref : instr.refs) {
    const BucketDesc& bucket = bucket_of(program, ref);
    if (bucket.own_numel == bucket.numel) continue;
    const Range range = range_of(ref);
    const int64_t first = is_shard(bucket, ref) ? bucket.own_begin : 0;
    ref = cols(ref, range.begin - first, range.end - range.begin);
  }
  const int64_t num_all = program.params.num_trained();
  int64_t num_own = 0;
  for (const Range& range : ranges) num_own += range.num_updated;
  if (num_all == 0) return;
  instr.cost = {instr.cost.flops / num_all * num_own, instr.cost.bytes / num_all * num_own};
}

/// What is done with gradients of sharded buckets outside of micro-batches.
void narrow_gradients(const StepProgram& program, Instr& instr) {
  for (Ref& ref : instr.refs) {
    if (ref.space != Space::bucket) continue;
    const BucketDesc& bucket = bucket_of(program, ref);
    if (!bucket.is_sharded) continue;
    const int64_t others = bucket.numel - bucket.own_numel;
    if (instr.op == Op::grad_norm) {
      ref.col -= bucket.own_begin;
    } else {
      instr.cost.bytes -= others * base::size_of(program.precision.stat);
    }
  }
}

void shard(const StepProgram& program, Instr& instr) {
  if (instr.verb == Verb::alloc) shrink_allocation(program, instr);
  switch (instr.op) {
    case Op::grad_reduce:
      instr.kind = spec::CollectiveKind::reduce_scatter;
      return;
    case Op::adamw:
      return narrow_update(program, instr);
    case Op::zero_grads:
    case Op::embedding_grad_reduce:
    case Op::grad_norm:
      return narrow_gradients(program, instr);
    default:
      return;
  }
}

SegmentWriter writer(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::update, false);
  w.set_pass(Pass::update);
  return w;
}

Segment gather(const StepProgram& program, const BlockContext& context, size_t index) {
  SegmentWriter w = writer(context);
  const BucketDesc& bucket = program.params.buckets[index];
  w.join(Stream::data, Stream::compute);
  w.comm(Op::param_gather, spec::CollectiveKind::all_gather,
         bucket.numel * base::size_of(program.precision.element),
         {inout(bucket_part(index, BucketPart::weight))})
      .group = bucket.group;
  return w.finish();
}

/// The segment, preceded by a wait of the compute stream for the gathered weights.
Segment behind_gathers(const Segment& segment, const BlockContext& context) {
  SegmentWriter w = writer(context);
  w.join(Stream::compute, Stream::data);
  Segment made = w.finish();
  append(made, segment);
  return made;
}

}  // namespace

void append(Segment& segment, const Segment& next) {
  for (Instr instr : next.code) {
    if (instr.event >= 0) instr.event += segment.num_events;
    segment.code.push_back(std::move(instr));
  }
  segment.num_events += next.num_events;
}

void distributed_optimizer(StepProgram& program, const BlockContext& context) {
  for (BucketDesc& bucket : program.params.buckets) {
    if (!bucket.has_gradient) continue;
    bucket.own_numel = shard_of(bucket, program.layout);
    bucket.own_begin = bucket.own_numel * program.layout.rank_in(bucket.group, program.rank);
  }
  // Nobody shares the segments of the update, so that each can be changed where it is.
  const auto replace = [&](const Item& item, auto&& changed) {
    std::shared_ptr<const Segment>& place = program.segments[static_cast<size_t>(item.segment)];
    if (place->block == BlockKind::update) {
      place = std::make_shared<const Segment>(changed(*place));
    }
  };
  for (const auto* items : {&program.setup, &program.items}) {
    for (const Item& item : *items) {
      replace(item, [&](Segment segment) {
        for (Instr& instr : segment.code) shard(program, instr);
        return segment;
      });
    }
  }
  const Item end = program.items.back();
  program.items.pop_back();
  for (size_t i = 0; i < program.params.buckets.size(); ++i) {
    const BucketDesc& bucket = program.params.buckets[i];
    const bool is_alone = program.layout.group_size(bucket.group) == 1;
    if (!bucket.has_gradient || bucket.is_sharded || is_alone) continue;
    Item item;
    item.segment = static_cast<int32_t>(program.segments.size());
    item.layer = static_cast<int32_t>(bucket.layer);
    program.segments.push_back(std::make_shared<const Segment>(gather(program, context, i)));
    program.items.push_back(item);
  }
  program.items.push_back(end);
  replace(end, [&](const Segment& segment) { return behind_gathers(segment, context); });
}

}  // namespace moetune::plan
