// Calls blocks, schedule and passes in their order: the only place that knows all of them.
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

/// A virtual stage of the rank: its number in the order of the model, and where its layers' frames
/// begin.
struct VirtualStage {
  int number = 0;
  StageLayers layers;
  int32_t first_frame = 0;
};

class Compiler {
 public:
  Compiler(const spec::TrialSpec& trial, int rank)
      : trial_(trial), knobs_(trial.knobs), is_full_(spec::is_full_recompute(trial.knobs)) {
    program_.rank = rank;
    program_.layout = layout_of(trial.knobs);
    program_.precision = spec::precision_of(trial.dtype, trial.knobs);
    program_.params = make_param_plan(trial.model, trial.knobs, rank);
    const std::vector<StageLayers> all = split_layers(trial.model, trial.knobs);
    for (size_t k = 0; k < all.size(); ++k) {
      if (holder_of(static_cast<int>(k)) != program_.layout.pp_rank(rank)) continue;
      MOETUNE_CHECK(program_.layout.place_of_stage(Axis::vpp, static_cast<int>(k)) ==
                        static_cast<int>(stages_.size()),
                    "stage {} is not the next one of its rank", k);
      stages_.push_back({static_cast<int>(k), all[k], static_cast<int32_t>(num_layers_)});
      num_layers_ += all[k].count;
    }
    num_stages_ = static_cast<int>(all.size());
    program_.num_frames = static_cast<int32_t>(num_layers_) + program_.layout.vpp;
    program_.num_message_slots = message_slots(program_.layout.pp, program_.layout.vpp);
  }

  StepProgram compile() {
    const BlockContext stage = context(0);
    const int64_t num_micro_batches =
        plan::num_micro_batches(program_.layout, knobs_, trial_.training.global_batch_size);
    const UpdateContext update{stage,
                               program_.params,
                               program_.layout,
                               static_cast<int>(num_micro_batches),
                               program_.num_message_slots,
                               sends()};
    program_.setup.push_back(item(add(setup(update), PassKind::forward)));
    append(begin_step(update));
    const bool is_captured = spec::has_graph(knobs_, spec::GraphScope::full_iteration);
    if (is_captured) append(iteration_graph(stage, true));
    add_micro_batches(stage, num_micro_batches);
    if (is_captured) append(iteration_graph(stage, false));
    add_update(update);
    if (knobs_.use_distributed_optimizer) distributed_optimizer(program_, stage);
    if (knobs_.overlap_grad_reduce) grad_overlap(program_.items, program_.segments);
    contention(program_, trial_.hardware);
    return std::move(program_);
  }

 private:
  [[nodiscard]] BlockContext context(int64_t layer) const {
    return {trial_.model, trial_.training, program_.precision,
            layer_dims(trial_.model, knobs_, trial_.training.seq_length, layer, program_.rank),
            program_.rank};
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
    Segment forward = block_of(kind).forward(c);
    Segment backward = block_of(kind).backward(c);
    recompute(backward, forward, knobs_);
    if (is_full_) made.recomputed = add(recomputed(forward, ends_layer), PassKind::forward);
    made.forward =
        add(std::move(forward), is_full_ ? PassKind::forward_dropped : PassKind::forward);
    made.backward = add(std::move(backward), PassKind::backward);
    return made;
  }

  /// The pipeline rank of a virtual stage.
  [[nodiscard]] int holder_of(int stage) const {
    return program_.layout.place_of_stage(Axis::pp, stage);
  }

  /// Where the rank's virtual stages send to.
  [[nodiscard]] std::set<std::pair<int, bool>> sends() const {
    std::set<std::pair<int, bool>> found;
    for (const VirtualStage& at : stages_) {
      if (at.number > 0) found.emplace(holder_of(at.number - 1), true);
      if (at.number < num_stages_ - 1) found.emplace(holder_of(at.number + 1), false);
    }
    return found;
  }

  /// What one virtual stage runs for a micro-batch.
  struct StageSegments {
    int32_t enter = -1;
    int32_t leave = -1;
    int32_t enter_backward = -1;  ///< -1: its last forward segment has taken the gradient
    int32_t leave_backward = -1;
    std::vector<std::pair<Half, Half>> layers;
  };

  StageSegments segments_of(const VirtualStage& at, const BlockContext& outside) {
    const PassKind first_pass = is_full_ ? PassKind::forward_dropped : PassKind::forward;
    StageSegments made;
    if (at.number == 0) {
      made.enter = add(block_of(BlockKind::embedding).forward(outside), first_pass);
      made.leave_backward =
          add(block_of(BlockKind::embedding).backward(outside), PassKind::backward);
    } else {
      const Border before{at.number - 1, holder_of(at.number - 1)};
      made.enter = add(receive_forward(outside, before), first_pass);
      made.leave_backward = add(send_backward(outside, before), PassKind::backward);
    }
    if (at.number == num_stages_ - 1) {
      made.leave = add(block_of(BlockKind::head).forward(outside), PassKind::forward);
    } else {
      const Border behind{at.number, holder_of(at.number + 1)};
      made.leave = add(send_forward(outside, behind), PassKind::forward);
      made.enter_backward = add(receive_backward(outside, behind), PassKind::forward);
    }
    for (int64_t layer = at.layers.first; layer < at.layers.first + at.layers.count; ++layer) {
      const auto [attention, feed_forward] = halves_of(context(layer).dims);
      // One after the other: segments are numbered as they are made.
      const Half first = half(attention, layer);
      made.layers.emplace_back(first, half(feed_forward, layer));
    }
    return made;
  }

  void add_micro_batches(const BlockContext& outside, int64_t num_micro_batches) {
    std::vector<StageSegments> segments;
    for (const VirtualStage& stage : stages_) segments.push_back(segments_of(stage, outside));
    const Layout& layout = program_.layout;
    const int own = layout.pp_rank(program_.rank);
    for (const ScheduleStep& step :
         layout.vpp == 1 ? one_f_one_b(layout.pp, own, num_micro_batches)
                         : interleaved(layout.pp, layout.vpp, own, num_micro_batches)) {
      const auto at = static_cast<size_t>(step.virtual_stage);
      add_stage(stages_[at], segments[at], step);
    }
  }

  void add_stage(const VirtualStage& stage, const StageSegments& segments,
                 const ScheduleStep& step) {
    const auto num_layers = static_cast<int32_t>(stage.layers.count);
    const auto edge = static_cast<int32_t>(num_layers_) + step.virtual_stage;
    const auto frame = [&](int32_t layer) {
      return layer < num_layers ? stage.first_frame + layer : edge;
    };
    const auto run = [&](int32_t segment, int32_t layer, bool is_in_layer = true) {
      Item made = item(segment, is_in_layer ? stage.layers.first + layer : -1);
      made.micro_batch = static_cast<int32_t>(step.micro_batch);
      made.frame = frame(layer);
      made.next = frame(layer + 1);
      made.edge = edge;
      program_.items.push_back(made);
    };
    if (step.is_forward) {
      run(segments.enter, 0, false);
      for (int32_t i = 0; i < num_layers; ++i) {
        run(segments.layers[static_cast<size_t>(i)].first.forward, i);
        run(segments.layers[static_cast<size_t>(i)].second.forward, i);
      }
      run(segments.leave, num_layers, false);
      return;
    }
    if (segments.enter_backward >= 0) run(segments.enter_backward, num_layers, false);
    for (int32_t i = num_layers; i-- > 0;) {
      const auto& [attention, ffn] = segments.layers[static_cast<size_t>(i)];
      if (is_full_) {
        run(attention.recomputed, i);
        run(ffn.recomputed, i);
      }
      run(ffn.backward, i);
      run(attention.backward, i);
    }
    run(segments.leave_backward, 0, false);
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
      if (!bucket.has_gradient || program_.layout.group_size(bucket.group) == 1) return;
      append(reduce_bucket(update, i), bucket.layer);
    });
    append(clip_gradients(update));
    append(update_weights(update));
    append(end_step(update));
  }

  const spec::TrialSpec& trial_;
  const spec::Knobs& knobs_;
  bool is_full_;
  std::vector<VirtualStage> stages_;  ///< of this rank
  int64_t num_layers_ = 0;
  int num_stages_ = 1;  ///< of all ranks
  StepProgram program_;
  std::map<std::pair<BlockKind, LayerDims>, Half> halves_;
};

}  // namespace

StepProgram compile(const spec::TrialSpec& trial, int rank) {
  return Compiler(trial, rank).compile();
}

}  // namespace moetune::plan
