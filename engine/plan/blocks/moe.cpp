// The block of a layer's Mixture-of-Experts half. Saved rows lie in canonical order (expert, source
// rank, token), which no chunk count changes: that is what makes chunking bit-identical. What is
// written here is for one chunk of rows; passes/ep_chunks.cpp makes several of it.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t tokens_if_moe(D d) { return d.is_moe ? d.tokens : 0; }
int64_t slots_out(D d) { return d.tokens * d.slots_per_token(); }
int64_t slots_if_ep(D d) {
  return d.is_moe && d.expert_ranks > 1 && !d.sends_tokens ? slots_out(d) : 0;
}
int64_t rows_in(D d) { return d.received_rows; }
int64_t received_if_ep(D d) {
  if (d.sends_tokens) return d.arriving_tokens;
  return d.expert_ranks > 1 ? d.received_rows : 0;
}
int64_t route_chunks(D d) {
  if (!d.is_moe) return 0;
  return d.expert_ranks > 1 ? d.chunks_forward + d.chunks_backward : 2;
}
int64_t sequences_if_moe(D d) { return d.is_moe ? d.sequences : 0; }
int64_t own_sequences_if_moe(D d) { return d.is_moe ? d.own_sequences : 0; }
int64_t experts(D d) { return d.experts; }
int64_t latent(D d) { return d.latent; }
int64_t expert_hidden(D d) { return d.expert_hidden(); }
int64_t fc1(D d) { return d.fc1_halves * d.moe_ffn; }
int64_t all_fc1(D d) { return d.local_experts * fc1(d); }
bool has_latent(const ModelSpec& model, D) { return model.moe_latent_size > 0; }
bool has_expert_bias(const ModelSpec& model, D) { return model.has_expert_bias; }

constexpr ParamRow kParams[] = {
    {ParamKind::router, "router", experts, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::router_bias, "router_bias", experts, dim::one, Split::whole, Sync::replicated,
     has_expert_bias},
    {ParamKind::balance_bias, "balance_bias", experts, dim::one, Split::whole, Sync::no_gradient,
     [](const ModelSpec& m, D) { return m.has_router_bias; }},
    {ParamKind::latent_down, "latent_down", latent, dim::hidden, Split::whole, Sync::replicated,
     has_latent},
    {ParamKind::latent_up, "latent_up", dim::hidden, latent, Split::whole, Sync::replicated,
     has_latent},
    {ParamKind::expert_fc1, "expert_fc1", all_fc1, expert_hidden, Split::expert_rows,
     Sync::sharded},
    {ParamKind::expert_fc1_bias, "expert_fc1_bias", all_fc1, dim::one, Split::expert_rows,
     Sync::sharded, has_expert_bias},
    {ParamKind::expert_fc2, "expert_fc2", [](D d) { return d.local_experts * d.expert_hidden(); },
     [](D d) { return d.moe_ffn; }, Split::expert_cols, Sync::sharded},
    // Each slice of an expert adds its part.
    {ParamKind::expert_fc2_bias, "expert_fc2_bias",
     [](D d) { return d.local_experts * d.expert_hidden() / d.etp; }, dim::one, Split::expert_part,
     Sync::sharded, has_expert_bias}};

constexpr BufferRow kBuffers[] = {
    {Buf::router_probs, "router_probs", Part::route, Keep::saved, kKept, kStat, tokens_if_moe,
     [](D d) { return d.experts; }},
    {Buf::router_lse, "router_lse", Part::route, Keep::saved, kKept, kStat, tokens_if_moe,
     dim::one},
    {Buf::topk_indices, "topk_indices", Part::route, Keep::saved, kKept, kIndex, tokens_if_moe,
     [](D d) { return d.topk; }},
    {Buf::slice_indices, "slice_indices", Part::route, Keep::forward, kKept, kIndex,
     [](D d) { return d.is_moe && d.etp > 1 ? d.tokens : 0; },
     [](D d) { return d.slots_per_token(); }},
    {Buf::topk_weights, "topk_weights", Part::route, Keep::saved, kKept, kStat, tokens_if_moe,
     [](D d) { return d.topk; }},
    {Buf::expert_counts, "expert_counts", Part::route, Keep::saved, kKept, kIndex,
     own_sequences_if_moe, [](D d) { return d.experts; }},
    // Probability sums per sequence, then tokens per expert; the latter become the aux loss's
    // gradient.
    {Buf::aux_sums, "aux_sums", Part::route, Keep::saved, kKept, kStat,
     [](D d) { return 2 * sequences_if_moe(d); }, [](D d) { return d.experts; }},
    // Send order of the (token, slot) pairs and its inverse, for forward and backward chunks.
    {Buf::slot_maps, "slot_maps", Part::route, Keep::saved, kKept, kIndex,
     [](D d) { return d.is_moe ? int64_t{4} : int64_t{0}; }, slots_out},
    // Rows by chunk of both directions and expert: this rank's, and those of the whole group.
    {Buf::chunk_counts, "chunk_counts", Part::route, Keep::forward, kKept, kIndex, route_chunks,
     [](D d) { return d.expert_slices(); }},
    {Buf::gathered_counts, "gathered_counts", Part::route, Keep::wire, kKept, kIndex,
     [](D d) { return d.expert_ranks > 1 ? d.expert_ranks * route_chunks(d) : 0; },
     [](D d) { return d.expert_slices(); }},
    {Buf::d_router, "d_router", Part::route, Keep::backward, kKept, kElement, tokens_if_moe,
     [](D d) { return d.experts; }},
    {Buf::d_topk_weights, "d_topk_weights", Part::route, Keep::backward, kKept, kStat,
     tokens_if_moe, [](D d) { return d.topk; }},
    // Arrival order to canonical place and the chunks' row lists, for forward and backward chunks.
    {Buf::row_maps, "row_maps", Part::experts, Keep::saved, kKept, kIndex,
     [](D) { return int64_t{4}; }, rows_in},
    // Where each expert's rows begin: canonical, then per forward chunk, then per backward chunk.
    {Buf::offsets, "offsets", Part::experts, Keep::saved, kKept, kIndex,
     [](D d) { return 1 + d.chunks_forward + d.chunks_backward; },
     [](D d) { return d.local_experts + 1; }},
    {Buf::latent_in, "latent_in", Part::route, Keep::forward, kKept, kElement, tokens_if_moe,
     latent},
    {Buf::latent_out, "latent_out", Part::route, Keep::saved, kKept, kElement, tokens_if_moe,
     latent},
    {Buf::d_latent_out, "d_latent_out", Part::route, Keep::backward, kKept, kElement, tokens_if_moe,
     latent},
    {Buf::d_latent_in, "d_latent_in", Part::route, Keep::backward, kKept, kElement, tokens_if_moe,
     latent},
    {Buf::send_rows, "send_rows", Part::route, Keep::wire, kKept, kElement, slots_if_ep,
     expert_hidden},
    {Buf::recv_rows, "recv_rows", Part::experts, Keep::wire, kKept, kElement, received_if_ep,
     expert_hidden},
    {Buf::send_probs, "send_probs", Part::route, Keep::wire, kKept, kStat, slots_if_ep, dim::one},
    {Buf::node_rows, "node_rows", Part::experts, Keep::wire, kKept, kElement,
     [](D d) { return d.passed_tokens; }, expert_hidden},
    {Buf::recv_probs, "recv_probs", Part::experts, Keep::wire, kKept, kStat, received_if_ep,
     [](D d) { return d.sends_tokens ? d.slots_per_token() : int64_t{1}; }},
    {Buf::expert_input, "expert_input", Part::experts, Keep::saved, kKept, kElement, rows_in,
     expert_hidden, spec::Offload::expert_fc1},
    {Buf::expert_probs, "expert_probs", Part::experts, Keep::saved, kKept, kStat, rows_in,
     dim::one},
    {Buf::fc1_out, "fc1_out", Part::experts, Keep::saved, RecomputeModule::experts, kElement,
     rows_in, fc1, spec::Offload::moe_act},
    {Buf::act_out, "act_out", Part::experts, Keep::saved, RecomputeModule::moe_act, kElement,
     rows_in, [](D d) { return d.moe_ffn; }},
    {Buf::fc2_out, "fc2_out", Part::experts, Keep::forward, kKept, kElement, rows_in,
     expert_hidden},
    {Buf::d_fc2_out, "d_fc2_out", Part::experts, Keep::backward, kKept, kElement, rows_in,
     expert_hidden},
    {Buf::d_act, "d_act", Part::experts, Keep::backward, kKept, kElement, rows_in,
     [](D d) { return d.moe_ffn; }},
    {Buf::d_fc1, "d_fc1", Part::experts, Keep::backward, kKept, kElement, rows_in, fc1},
    {Buf::d_expert_probs, "d_expert_probs", Part::experts, Keep::backward, kKept, kStat, rows_in,
     dim::one},
    {Buf::d_expert_input, "d_expert_input", Part::experts, Keep::backward, kKept, kElement, rows_in,
     expert_hidden}};

using spec::CollectiveKind;
using spec::GraphScope;

// Rows of the slot_maps and row_maps buffers.
constexpr int64_t kForwardOrder = 0;     // send order -> slot; arrival order -> canonical row
constexpr int64_t kForwardPosition = 1;  // slot -> place in send order; chunk row list
constexpr int64_t kBackwardOrder = 2;
constexpr int64_t kBackwardPosition = 3;

/// Where a direction's index lists lie, and from which row of `offsets` on its chunks'.
struct Lists {
  int64_t order;
  int64_t position;
  int64_t first_offsets;
};
Lists lists_of(const LayerDims& d, bool is_backward) {
  if (!is_backward) return {kForwardOrder, kForwardPosition, 1};
  return {kBackwardOrder, kBackwardPosition, 1 + d.chunks_forward};
}

Ref slots(int64_t row) { return index_row(in(Buf::slot_maps), row); }
/// The chunk's rows in order of arrival -> canonical rows.
Ref arrival(const Lists& lists) { return received(index_row(in(Buf::row_maps), lists.order)); }
/// The chunk's canonical rows expert by expert.
Ref chunk_list(const Lists& lists) {
  Ref ref = received(index_row(in(Buf::row_maps), lists.position));
  ref.is_chunk_list = true;
  return ref;
}
/// Where each expert's rows begin: in the chunk's list, or in canonical order for all of them.
Ref offsets(const Lists& lists) {
  Ref ref = index_row(in(Buf::offsets), lists.first_offsets);
  ref.is_per_chunk = true;
  return ref;
}

/// Of the sums over sequences that begin at row `first`, those of the rank's own tokens.
Ref own_aux_sums(const LayerDims& d, int64_t first) {
  const int64_t own = d.tp_rank * d.sequences / d.tp;
  return rows(in(Buf::aux_sums), first + own, d.own_sequences);
}

void route(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  const bool has_balance = w.training().aux_loss_coeff > 0;
  w.open(GraphScope::moe_router);
  feed_forward_norm(w);
  w.linear(Op::router_gemm, in(Buf::mlp_norm_out), ParamKind::router, out(Buf::router_probs),
           w.model().has_expert_bias ? weight(ParamKind::router_bias) : nothing());
  // Rows of other tensor-parallel ranks' sequences.
  if (has_balance && d.own_sequences < d.sequences) {
    w.op(Op::zero_sums, {out(Buf::aux_sums)});
  }
  Instr& router =
      w.op(Op::router, {inout(Buf::router_probs), out(Buf::router_lse), out(Buf::topk_indices),
                        out(Buf::topk_weights), out(Buf::expert_counts), out(own_aux_sums(d, 0)),
                        has_balance ? out(own_aux_sums(d, d.sequences)) : nothing(),
                        has_balance ? in(Buf::expert_counts) : nothing()});
  if (w.model().has_router_bias) router.refs.push_back(weight(ParamKind::balance_bias));
  // Losses are means over the global batch: a sequence's sums are those of all its ranks.
  if (has_balance && d.sequence_ranks() > 1) {
    w.join(Stream::context, Stream::compute);
    Instr& reduce = w.comm(Op::aux_loss_reduce, CollectiveKind::all_reduce,
                           2 * d.sequences * d.experts * base::size_of(context.precision.stat),
                           {inout(Buf::aux_sums)});
    if (w.is_tensor_parallel()) reduce.group = Group::tp_cp;
    w.join(Stream::compute, Stream::context);
  }
  const bool has_z = w.training().z_loss_coeff > 0;
  if (has_balance || has_z) {
    w.op(Op::aux_loss,
         {has_balance ? inout(Buf::aux_sums) : nothing(), has_z ? in(Buf::router_lse) : nothing(),
          has_balance ? scalar(Scalar::load_balance_loss) : nothing(),
          has_z ? scalar(Scalar::z_loss) : nothing()});
  }
  w.close(GraphScope::moe_router);
}

// Plans who sends what to whom and packs the rows to send. Nothing here waits for the counts of
// other ranks, so the packing is launched before the host stops to read them.
void preprocess(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  const bool is_parallel = d.expert_ranks > 1;
  // All rows stay here: the sizes are known and the host has nothing to wait for.
  if (!is_parallel) w.begin(Part::experts);
  w.open(GraphScope::moe_preprocess);
  const Ref indices = in(d.etp > 1 ? Buf::slice_indices : Buf::topk_indices);
  if (d.etp > 1) w.op(Op::expand_experts, {in(Buf::topk_indices), out(indices)});
  w.op(Op::moe_preprocess,
       {indices, out(Buf::slot_maps), out(Buf::chunk_counts),
        is_parallel ? nothing() : out(index_row(in(Buf::offsets), 0)), indices});
  if (is_parallel) {
    const int64_t counts = (d.chunks_forward + d.chunks_backward) * d.expert_slices();
    w.join(Stream::expert, Stream::compute);
    w.comm(Op::count_exchange, CollectiveKind::all_gather,
           d.expert_ranks * counts * base::size_of(base::DType::i32),
           {in(Buf::chunk_counts), out(Buf::gathered_counts)});
  }
  if (d.latent > 0) {
    w.linear(Op::latent_down, in(Buf::mlp_norm_out), ParamKind::latent_down, out(Buf::latent_in));
  }
  w.op(Op::permute, {in(d.latent > 0 ? Buf::latent_in : Buf::mlp_norm_out),
                     out(is_parallel ? Buf::send_rows : Buf::expert_input), slots(kForwardOrder),
                     slots(kForwardPosition)});
  w.op(Op::permute_probs,
       {in(Buf::topk_weights), out(is_parallel ? Buf::send_probs : Buf::expert_probs),
        slots(kForwardOrder)});
  w.close(GraphScope::moe_preprocess);
  w.mark(Mark::observe_route).refs = {in(Buf::topk_indices)};
}

int64_t row_bytes(const BlockContext& context, bool has_probs) {
  return context.dims.expert_hidden() * base::size_of(context.precision.element) +
         (has_probs ? base::size_of(context.precision.stat) : 0);
}

/// Experts' matrices have one, which the last operand says.
void add_bias(const SegmentWriter& w, Instr& product, ParamKind kind) {
  if (w.model().has_expert_bias) product.refs.push_back(weight(kind));
}

/// What the experts have given, back at its tokens, onto the layer's output.
void bring_back(SegmentWriter& w, const Ref& rows) {
  const Ref output = in(Space::next, Buf::input);
  if (w.dims().latent == 0) {
    w.op(Op::unpermute, {rows, inout(output), slots(kForwardPosition)});
    return;
  }
  w.op(Op::zero_sums, {out(Buf::latent_out)});
  w.op(Op::unpermute, {rows, inout(Buf::latent_out), slots(kForwardPosition)});
  w.linear(Op::latent_up, in(Buf::latent_out), ParamKind::latent_up, inout(output)).accumulate =
      true;
}

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::moe, false);
  const LayerDims& d = w.dims();
  const Lists lists = lists_of(d, false);
  const bool is_parallel = d.expert_ranks > 1;
  begin_layer(w);
  w.begin(Part::route);
  w.acquire();
  route(w, context);
  preprocess(w);
  const int arrived = w.new_event();
  if (is_parallel) {
    // Dropless buffers have the size the counts say: the host has to know them. Sending needs no
    // more than that; the index lists are made while the first rows are on their way.
    constexpr int64_t kNumberBytes = base::size_of(base::DType::i32);
    const int64_t num_chunks = d.chunks_forward + d.chunks_backward;
    w.fetch(Fetch::counts, Stream::expert, in(Buf::gathered_counts));
    w.host(Op::finish_route, {0, d.expert_ranks * num_chunks * d.expert_slices() * kNumberBytes});
    w.begin(Part::experts);
    w.join(Stream::expert, Stream::compute);
    w.mark(Mark::chunk_send);
    w.all_to_all(Op::dispatch, row_bytes(context, true),
                 {sent(in(Buf::send_rows)), out(received(in(Buf::recv_rows))),
                  sent(in(Buf::send_probs)), out(received(in(Buf::recv_probs)))});
    w.record(Stream::expert, arrived);
    w.mark(Mark::chunk_sent);
    // Two lists of rows for each direction, and where each expert's begin.
    w.host(Op::write_route, {0, (1 + num_chunks) * (d.local_experts + 1) * kNumberBytes},
           {0, 4 * kNumberBytes});
    w.upload(Upload::route, {out(Buf::row_maps), out(Buf::offsets)});
  }
  if (d.shared_ffn > 0) {
    shared_experts_forward(w);
  } else {
    w.op(Op::ffn_residual, {feed_forward_input(d), out(in(Space::next, Buf::input))});
  }
  // What comes next is the first to read what write_route has sent.
  if (is_parallel) w.join(Stream::compute, Stream::copy);
  w.mark(Mark::chunk_body);
  if (is_parallel) {
    w.wait(Stream::compute, arrived);
    w.expert_op(Op::sort_rows,
                {received(in(Buf::recv_rows)), out(Buf::expert_input), arrival(lists)});
    w.expert_op(Op::sort_probs,
                {received(in(Buf::recv_probs)), out(Buf::expert_probs), arrival(lists)});
  }
  add_bias(w,
           w.expert_op(Op::expert_fc1, {in(Buf::expert_input), weight(ParamKind::expert_fc1),
                                        out(Buf::fc1_out), chunk_list(lists), offsets(lists)}),
           ParamKind::expert_fc1_bias);
  w.expert_op(Op::expert_act,
              {in(Buf::fc1_out), in(Buf::expert_probs), out(Buf::act_out), chunk_list(lists)});
  add_bias(w,
           w.expert_op(Op::expert_fc2, {in(Buf::act_out), weight(ParamKind::expert_fc2),
                                        out(Buf::fc2_out), chunk_list(lists), offsets(lists)}),
           ParamKind::expert_fc2_bias);
  if (is_parallel) {
    w.expert_op(Op::unsort_rows,
                {in(Buf::fc2_out), out(received(in(Buf::recv_rows))), arrival(lists)});
    w.join(Stream::expert, Stream::compute);
    w.all_to_all(Op::combine, row_bytes(context, false),
                 {received(in(Buf::recv_rows)), out(sent(in(Buf::send_rows)))});
  }
  w.mark(Mark::chunk_done);
  if (is_parallel) w.join(Stream::compute, Stream::expert);
  bring_back(w, in(is_parallel ? Buf::send_rows : Buf::fc2_out));
  w.release();
  w.end(Part::experts);
  w.end(Part::route);
  end_layer(w);
  return w.finish();
}

Segment backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::moe, true);
  const LayerDims& d = w.dims();
  const Lists lists = lists_of(d, true);
  const bool is_parallel = d.expert_ranks > 1;
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::route);
  w.begin(Part::experts);
  w.acquire();
  w.remake({Buf::mlp_norm_out});
  if (d.latent > 0) {
    w.linear_backward(Op::latent_up, Op::latent_up, in(Buf::latent_out), ParamKind::latent_up,
                      d_hidden, out(Buf::d_latent_out));
  }
  w.op(Op::unpermute, {d.latent > 0 ? in(Buf::d_latent_out) : d_hidden,
                       out(is_parallel ? Buf::send_rows : Buf::d_fc2_out), slots(kBackwardOrder),
                       slots(kBackwardPosition)});
  const int arrived = w.new_event();
  if (is_parallel) {
    w.join(Stream::expert, Stream::compute);
    w.mark(Mark::chunk_send);
    w.all_to_all(Op::combine, row_bytes(context, false),
                 {sent(in(Buf::send_rows)), out(received(in(Buf::recv_rows)))});
    w.record(Stream::expert, arrived);
    w.mark(Mark::chunk_sent);
  }
  // Recomputation needs nothing that is on its way, so it hides the first transfer.
  w.remake({Buf::fc1_out, Buf::act_out});
  // With tensor parallelism the shared experts' gradient is the first to come.
  if (d.shared_ffn == 0 || !w.is_tensor_parallel()) {
    w.priced(Op::zero_norm_grad,
             {0, d.tokens * d.hidden * base::size_of(context.precision.element)},
             {out(Buf::d_mlp_norm)});
  }
  if (d.shared_ffn > 0) shared_experts_backward(w);
  w.mark(Mark::chunk_body);
  if (is_parallel) {
    w.wait(Stream::compute, arrived);
    w.expert_op(Op::unsort_rows,
                {received(in(Buf::recv_rows)), out(Buf::d_fc2_out), arrival(lists)});
  }
  w.expert_op(Op::expert_fc2, {in(Buf::d_fc2_out), weight(ParamKind::expert_fc2), out(Buf::d_act),
                               chunk_list(lists), offsets(lists)});
  w.expert_op(Op::expert_act, {in(Buf::fc1_out), in(Buf::expert_probs), in(Buf::d_act),
                               out(Buf::d_fc1), out(Buf::d_expert_probs), chunk_list(lists)});
  w.expert_op(Op::expert_fc1, {in(Buf::d_fc1), weight(ParamKind::expert_fc1),
                               out(Buf::d_expert_input), chunk_list(lists), offsets(lists)});
  if (is_parallel) {
    w.expert_op(Op::sort_rows,
                {in(Buf::d_expert_input), out(received(in(Buf::recv_rows))), arrival(lists)});
    w.expert_op(Op::sort_probs,
                {in(Buf::d_expert_probs), out(received(in(Buf::recv_probs))), arrival(lists)});
    w.join(Stream::expert, Stream::compute);
    w.all_to_all(Op::dispatch, row_bytes(context, true),
                 {received(in(Buf::recv_rows)), out(sent(in(Buf::send_rows))),
                  received(in(Buf::recv_probs)), out(sent(in(Buf::send_probs)))});
  }
  w.mark(Mark::chunk_done);
  // Weight gradients over all rows in canonical order, while the last gradients travel back.
  w.expert_op(Op::expert_fc2, Pass::wgrad,
              {in(Buf::d_fc2_out), in(Buf::act_out), grad(ParamKind::expert_fc2), offsets(lists)});
  w.expert_op(Op::expert_fc1, Pass::wgrad,
              {in(Buf::d_fc1), in(Buf::expert_input), grad(ParamKind::expert_fc1), offsets(lists)});
  if (w.model().has_expert_bias) {
    w.expert_op(Op::expert_bias,
                {in(Buf::d_fc2_out), grad(ParamKind::expert_fc2_bias), offsets(lists)});
    w.expert_op(Op::expert_bias,
                {in(Buf::d_fc1), grad(ParamKind::expert_fc1_bias), offsets(lists)});
  }
  if (is_parallel) w.join(Stream::compute, Stream::expert);
  if (d.latent > 0) w.op(Op::zero_sums, {out(Buf::d_latent_in)});
  w.op(Op::permute,
       {in(is_parallel ? Buf::send_rows : Buf::d_expert_input),
        inout(d.latent > 0 ? Buf::d_latent_in : Buf::d_mlp_norm), slots(kBackwardPosition)});
  if (d.latent > 0) {
    w.linear_backward(Op::latent_down, Op::latent_down, in(Buf::mlp_norm_out),
                      ParamKind::latent_down, in(Buf::d_latent_in), inout(Buf::d_mlp_norm));
  }
  // Every slice of an expert gives a part of its weight's gradient.
  if (d.etp > 1) w.op(Op::zero_sums, {out(Buf::d_topk_weights)});
  const Ref d_weights = in(Buf::d_topk_weights);
  w.op(Op::permute_probs,
       {in(is_parallel ? Buf::send_probs : Buf::d_expert_probs),
        d.etp > 1 ? inout(d_weights) : out(d_weights), slots(kBackwardPosition)});
  w.op(Op::router, {in(Buf::router_probs), in(Buf::router_lse), in(Buf::topk_indices),
                    in(Buf::topk_weights), in(Buf::d_topk_weights), out(Buf::d_router),
                    w.training().aux_loss_coeff > 0 ? own_aux_sums(d, d.sequences) : nothing()});
  w.linear_backward(Op::router_gemm, Op::router_bias, in(Buf::mlp_norm_out), ParamKind::router,
                    in(Buf::d_router), inout(Buf::d_mlp_norm),
                    w.model().has_expert_bias ? grad(ParamKind::router_bias) : nothing());
  feed_forward_norm_backward(w);
  w.release();
  w.end(Part::experts);
  w.end(Part::route);
  end_layer_backward(w);
  return w.finish();
}

}  // namespace

Block moe() {
  return {BlockKind::moe,
          forward,
          backward,
          {feed_forward_params(), kParams, shared_experts_params()},
          {feed_forward_buffers(), kBuffers, shared_experts_buffers()}};
}

}  // namespace moetune::plan
