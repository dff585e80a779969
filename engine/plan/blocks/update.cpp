// What a step does outside of micro-batches: it clears gradients at the beginning, and updates
// weights at the end.
#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {
namespace {

using spec::CollectiveKind;

MemoryGroup group_of(BucketPart part) {
  if (part == BucketPart::weight) return MemoryGroup::weights;
  return part == BucketPart::grad ? MemoryGroup::gradients : MemoryGroup::optimizer;
}

void allocate(SegmentWriter& w, const Ref& ref, MemoryGroup group, int64_t bytes) {
  if (bytes == 0) return;
  Instr& instr = w.add(Verb::alloc, Stream::compute);
  instr.what = static_cast<uint8_t>(group);
  instr.cost.bytes = bytes;
  instr.refs = {out(ref)};
}

/// Calls `body` for each bucket with a gradient.
template <typename Body>
void for_trained(const ParamPlan& params, Body&& body) {
  for (size_t i = 0; i < params.buckets.size(); ++i) {
    if (params.buckets[i].has_gradient) body(i, params.buckets[i]);
  }
}

/// The gradients of a bucket are added up over the ranks of the op's group.
Instr& add_up(SegmentWriter& w, Op op, const UpdateContext& c, int index) {
  const auto bucket = static_cast<size_t>(index);
  w.join(Stream::data, Stream::compute);
  return w.comm(op, CollectiveKind::all_reduce,
                c.params.buckets[bucket].numel * base::size_of(c.block.precision.stat),
                {inout(bucket_part(bucket, BucketPart::grad))});
}

}  // namespace

Segment setup(const UpdateContext& c) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  const Precision& precision = c.block.precision;
  allocate(w, scalar(Scalar::loss), MemoryGroup::workspace,
           static_cast<int64_t>(Scalar::count) * base::size_of(base::DType::f64));
  const auto buckets = [&](std::initializer_list<BucketPart> parts) {
    for (size_t i = 0; i < c.params.buckets.size(); ++i) {
      const BucketDesc& bucket = c.params.buckets[i];
      for (const BucketPart part : parts) {
        if (!bucket.has_gradient && part != BucketPart::weight) continue;
        allocate(w, bucket_part(i, part), group_of(part),
                 bucket.numel * base::size_of(type_of(part, precision)));
      }
    }
  };
  buckets({BucketPart::weight});
  buckets({BucketPart::grad});
  buckets({BucketPart::master, BucketPart::m, BucketPart::v});
  for (const TableRow& row : tables_of(w.dims(), w.training().seq_length, c.num_micro_batches)) {
    allocate(w, table(row.id), MemoryGroup::workspace,
             row.rows * row.cols * base::size_of(precision.of(row.content)));
  }
  for (const auto& [peer, is_backward] : c.sends) {
    allocate(w, slots_to(peer, is_backward), MemoryGroup::communication,
             c.num_message_slots * w.message_bytes());
  }
  return w.finish();
}

Segment begin_step(const UpdateContext& c) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  Instr& tokens = w.upload(Upload::step, {out(table(Table::tokens)), out(table(Table::targets)),
                                          out(scalar(Scalar::loss))});
  if (w.dims().mtp_depth > 0) tokens.refs.push_back(out(table(Table::mtp_targets)));
  // All that comes later on the compute stream can read the tokens.
  w.join(Stream::compute, Stream::copy);
  Instr& zero = w.priced(Op::zero_grads, {}, {});
  for_trained(c.params, [&](size_t i, const BucketDesc& bucket) {
    zero.cost.bytes += bucket.numel * base::size_of(c.block.precision.stat);
    zero.refs.push_back(out(bucket_part(i, BucketPart::grad)));
  });
  return w.finish();
}

Segment reduce_bucket(const UpdateContext& c, int index) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  add_up(w, Op::grad_reduce, c, index).group = c.params.buckets[static_cast<size_t>(index)].group;
  return w.finish();
}

Segment reduce_tied_embedding(const UpdateContext& c, int index) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  add_up(w, Op::embedding_grad_reduce, c, index);
  return w.finish();
}

Segment clip_gradients(const UpdateContext& c) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  const Ref norm = scalar(Scalar::squared_norm);
  w.join(Stream::compute, Stream::data);
  Instr& sum = w.priced(Op::grad_norm, {0, base::size_of(base::DType::f64)}, {out(norm)});
  // Every rank adds up its own share of each bucket, also where all ranks hold the whole.
  for_trained(c.params, [&](size_t i, const BucketDesc& bucket) {
    if (bucket.is_tied_copy) return;
    const int64_t share = shard_of(bucket, c.layout);
    sum.cost.flops += 2 * share;
    sum.cost.bytes += share * base::size_of(c.block.precision.stat);
    sum.refs.push_back(cols(bucket_part(i, BucketPart::grad),
                            share * c.layout.rank_in(bucket.group, c.block.rank), share));
  });
  w.join(Stream::data, Stream::compute);
  w.comm(Op::norm_reduce, CollectiveKind::all_reduce, base::size_of(base::DType::f64), {norm});
  // The host reads the norm to decide on clipping and to notice a norm that is NaN or infinite.
  w.fetch(Fetch::norm, Stream::data, norm);
  return w.finish();
}

Segment update_weights(const UpdateContext& c) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  const int64_t numel = c.params.num_trained();
  const int64_t element_bytes = update_bytes_per_element(c.block.precision);
  Instr& update = w.priced(Op::adamw, {12 * numel, element_bytes * numel}, {});
  for_trained(c.params, [&](size_t i, const BucketDesc&) {
    const auto part = [&](BucketPart which) { return bucket_part(i, which); };
    for (const Ref& ref :
         {out(part(BucketPart::weight)), part(BucketPart::grad), inout(part(BucketPart::master)),
          inout(part(BucketPart::m)), inout(part(BucketPart::v))}) {
      update.refs.push_back(ref);
    }
  });
  return w.finish();
}

Segment end_step(const UpdateContext& c) {
  SegmentWriter w(c.block, BlockKind::update, false);
  w.set_pass(Pass::update);
  constexpr int64_t kNumLosses = 3;
  w.join(Stream::data, Stream::compute);
  const Ref losses = scalar(Scalar::loss);
  w.comm(Op::loss_reduce, CollectiveKind::all_reduce, kNumLosses * base::size_of(base::DType::f64),
         {losses});
  w.fetch(Fetch::losses, Stream::data, losses);
  return w.finish();
}

Segment iteration_graph(const BlockContext& context, bool is_open) {
  SegmentWriter w(context, BlockKind::update, false);
  if (is_open) {
    w.open(spec::GraphScope::full_iteration);
  } else {
    w.close(spec::GraphScope::full_iteration);
  }
  return w.finish();
}

}  // namespace moetune::plan
