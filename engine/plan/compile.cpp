// Blocks ordered by the schedule, rewritten by the passes; see compile.h.
#include "engine/plan/compile.h"

#include <functional>
#include <map>
#include <tuple>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/passes/passes.h"
#include "engine/plan/schedules/schedule.h"
#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

/// The segments of one half of a layer, after all passes.
struct Half {
  int32_t forward = -1;
  int32_t recomputed = -1;  ///< full recomputation only
  int32_t backward = -1;
};

class Compiler {
 public:
  Compiler(const spec::TrialSpec& trial, int rank)
      : trial_(trial),
        knobs_(trial.knobs),
        is_full_(spec::is_full_recompute(trial.knobs)),
        layers_(split_layers(
            trial.model, trial.knobs)[static_cast<size_t>(layout_of(trial.knobs).pp_rank(rank))]) {
    program_.rank = rank;
    program_.layout = layout_of(trial.knobs);
    program_.precision = spec::precision_of(trial.dtype);
    program_.params = make_param_plan(trial.model, trial.knobs, rank);
    program_.num_frames = static_cast<int32_t>(layers_.count) + 1;
  }

  StepProgram compile() {
    const BlockContext stage = context(layers_.first);
    const int64_t num_micro_batches =
        plan::num_micro_batches(program_.layout, knobs_, trial_.training.global_batch_size);
    const UpdateContext update{stage, program_.params, program_.layout,
                               static_cast<int>(num_micro_batches),
                               knobs_.use_distributed_optimizer};
    program_.setup.push_back(item(add(setup(update), PassKind::forward)));
    append(begin_step(update));
    const bool is_captured = spec::has_graph(knobs_, spec::GraphScope::full_iteration);
    if (is_captured) append(iteration_graph(stage, true));
    add_micro_batches(stage, num_micro_batches);
    if (is_captured) append(iteration_graph(stage, false));
    add_update(update);
    if (knobs_.overlap_grad_reduce) grad_overlap(program_.items, program_.segments);
    return std::move(program_);
  }

 private:
  [[nodiscard]] BlockContext context(int64_t layer) const {
    return {trial_.model, trial_.training, program_.precision,
            layer_dims(trial_.model, knobs_, trial_.training.seq_length, layer), program_.rank};
  }

  int32_t add(Segment segment, PassKind pass) {
    ep_chunks(segment);
    prices(segment, trial_.training, program_.precision);
    graph_scopes(segment, knobs_);
    lifetimes(segment, knobs_, pass, program_.precision);
    program_.segments.push_back(std::make_shared<const Segment>(std::move(segment)));
    return static_cast<int32_t>(program_.segments.size()) - 1;
  }

  [[nodiscard]] static Item item(int32_t segment, int64_t layer = -1) {
    Item made;
    made.segment = segment;
    made.layer = static_cast<int32_t>(layer);
    return made;
  }

  /// Outside of micro-batches.
  void append(Segment segment, int64_t layer = -1) {
    program_.items.push_back(item(add(std::move(segment), PassKind::forward), layer));
  }

  /// Both directions of a half, made once for all layers of the same dims.
  const Half& half(BlockKind kind, int64_t layer) {
    const BlockContext c = context(layer);
    const auto [place, is_new] = halves_.try_emplace({kind, c.dims});
    Half& made = place->second;
    if (!is_new) return made;
    const bool ends_layer = kind != BlockKind::gqa;
    Segment forward = kind == BlockKind::gqa   ? gqa_forward(c)
                      : kind == BlockKind::moe ? moe_forward(c)
                                               : dense_mlp_forward(c);
    Segment backward = kind == BlockKind::gqa   ? gqa_backward(c)
                       : kind == BlockKind::moe ? moe_backward(c)
                                                : dense_mlp_backward(c);
    recompute(backward, forward, knobs_);
    if (is_full_) made.recomputed = add(recomputed(forward, ends_layer), PassKind::forward);
    made.forward =
        add(std::move(forward), is_full_ ? PassKind::forward_dropped : PassKind::forward);
    made.backward = add(std::move(backward), PassKind::backward);
    return made;
  }

  void add_micro_batches(const BlockContext& stage, int64_t num_micro_batches) {
    const int pp = program_.layout.pp;
    const int own = program_.layout.pp_rank(program_.rank);
    const bool is_first = own == 0;
    const bool is_last = own == pp - 1;
    const PassKind first_pass = is_full_ ? PassKind::forward_dropped : PassKind::forward;
    const int32_t enter =
        add(is_first ? embedding_forward(stage) : receive_forward(stage, own - 1), first_pass);
    const int32_t leave =
        add(is_last ? head_forward(stage) : send_forward(stage, own + 1), PassKind::forward);
    const int32_t enter_backward =
        is_last ? -1 : add(receive_backward(stage, own + 1), PassKind::forward);
    const int32_t leave_backward = add(
        is_first ? embedding_backward(stage) : send_backward(stage, own - 1), PassKind::backward);
    std::vector<std::pair<Half, Half>> layers;
    for (int64_t i = 0; i < layers_.count; ++i) {
      const int64_t layer = layers_.first + i;
      const bool is_moe = trial_.model.is_moe_layer[static_cast<size_t>(layer)];
      const Half attention = half(BlockKind::gqa, layer);
      layers.emplace_back(attention, half(is_moe ? BlockKind::moe : BlockKind::dense_mlp, layer));
    }
    const auto last = static_cast<int32_t>(layers.size());
    for (const ScheduleStep& step : one_f_one_b(pp, own, num_micro_batches)) {
      const auto run = [&](int32_t segment, int32_t frame) {
        Item made = item(segment, frame < last ? layers_.first + frame : -1);
        made.micro_batch = static_cast<int32_t>(step.micro_batch);
        made.frame = frame;
        made.next = frame + 1;
        made.edge = last;
        program_.items.push_back(made);
      };
      const auto run_outside = [&](int32_t segment, int32_t frame) {
        run(segment, frame);
        program_.items.back().layer = -1;
      };
      if (step.is_forward) {
        run_outside(enter, 0);
        for (int32_t i = 0; i < last; ++i) {
          run(layers[static_cast<size_t>(i)].first.forward, i);
          run(layers[static_cast<size_t>(i)].second.forward, i);
        }
        run_outside(leave, last);
        continue;
      }
      if (enter_backward >= 0) run_outside(enter_backward, last);
      for (int32_t i = last; i-- > 0;) {
        const auto& [attention, ffn] = layers[static_cast<size_t>(i)];
        if (is_full_) {
          run(attention.recomputed, i);
          run(ffn.recomputed, i);
        }
        run(ffn.backward, i);
        run(attention.backward, i);
      }
      run_outside(leave_backward, 0);
    }
  }

  void add_update(const UpdateContext& update) {
    const std::vector<BucketDesc>& buckets = program_.params.buckets;
    const auto for_buckets = [&](const std::function<void(int, const BucketDesc&)>& body) {
      for (size_t i = 0; i < buckets.size(); ++i) body(static_cast<int>(i), buckets[i]);
    };
    const int stage = program_.layout.pp_rank(program_.rank);
    const bool has_tied = trial_.model.ties_embeddings && program_.layout.pp > 1 &&
                          (stage == 0 || stage == program_.layout.pp - 1);
    for_buckets([&](int i, const BucketDesc& bucket) {
      if (!has_tied || !(bucket.is_tied_copy || bucket.name == "embedding")) return;
      append(reduce_tied_embedding(update, i));
    });
    for_buckets([&](int i, const BucketDesc& bucket) {
      if (program_.layout.group_size(bucket.group) == 1) return;
      append(reduce_bucket(update, i), bucket.layer);
    });
    append(clip_gradients(update));
    append(update_weights(update));
    for_buckets([&](int i, const BucketDesc& bucket) {
      if (!update.is_sharded || program_.layout.group_size(bucket.group) == 1) return;
      append(gather_bucket(update, i), bucket.layer);
    });
    append(end_step(update));
  }

  const spec::TrialSpec& trial_;
  const spec::Knobs& knobs_;
  bool is_full_;
  StageLayers layers_;
  StepProgram program_;
  std::map<std::pair<BlockKind, LayerDims>, Half> halves_;
};

}  // namespace

StepProgram compile(const spec::TrialSpec& trial, int rank) {
  return Compiler(trial, rank).compile();
}

}  // namespace moetune::plan
