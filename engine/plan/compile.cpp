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

/// The frames of one depth of multi-token prediction, and the layer whose parameters its first one
/// has.
struct MtpFrames {
  int32_t joined = 0;  ///< the end that it goes on from
  int32_t first = 0;   ///< of its layers
  int32_t edge = 0;    ///< its own end
  int64_t first_layer = 0;
};

class Compiler {
 public:
  Compiler(const spec::TrialSpec& trial, int rank, const Planned& planned)
      : trial_(trial),
        knobs_(trial.knobs),
        planned_(planned),
        narrow_types_(narrow_types(planned.precision, trial.hardware)),
        is_full_(spec::is_full_recompute(trial.knobs)) {
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
    if (!stages_.empty() && stages_.back().number == num_stages_ - 1) add_mtp_frames();
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
    if (is_narrow()) narrow_weights(program_, stage, narrow_types_);
    if (planned_.fsdp != spec::Fsdp::none) {
      fsdp(program_, stage, planned_.fsdp);
    } else if (knobs_.use_distributed_optimizer) {
      distributed_optimizer(program_, stage);
    }
    // Where all is recomputed nothing is kept that could wait elsewhere: no plan asks for it (rule
    // offload_or_recompute), and what is priced in spite of it has no copies.
    if (!is_full_) offload(program_, stage, planned_.offload);
    offload_optimizer(program_, stage, planned_.optimizer_offload_ratio);
    if (knobs_.overlap_grad_reduce) grad_overlap(program_.items, program_.segments);
    contention(program_, trial_.hardware);
    return std::move(program_);
  }

 private:
  /// Behind those of the stages, depth by depth.
  void add_mtp_frames() {
    const spec::MtpSpec& mtp = trial_.model.mtp;
    const auto num_layers = static_cast<int32_t>(mtp.layers.size());
    int32_t joined = program_.num_frames - 1;
    for (int64_t depth = 0; depth < mtp.depth; ++depth) {
      const int32_t first = program_.num_frames;
      const int64_t owner = mtp.repeats_layer ? 0 : depth;
      mtp_.push_back(
          {joined, first, first + num_layers, trial_.model.num_layers + owner * num_layers});
      program_.num_frames += num_layers + 1;
      joined = first + num_layers;
    }
  }

  [[nodiscard]] BlockContext context(int64_t layer) const {
    LayerDims dims =
        layer_dims(trial_.model, knobs_, trial_.training.seq_length, layer, program_.rank);
    if (planned_.exchanges_heads && dims.is_shared()) {
      dims.exchanges_heads = true;
      dims.is_ring = false;
    }
    return {trial_.model, trial_.training, program_.precision, dims, program_.rank};
  }

  int32_t add(Segment segment, PassKind pass) {
    ep_chunks(segment);
    prices(segment, trial_.training, program_.precision);
    exchange_rows(segment);
    graph_scopes(segment, knobs_);
    lifetimes(segment, knobs_, pass, program_.precision);
    program_.segments.push_back(std::make_shared<const Segment>(std::move(segment)));
    return static_cast<int32_t>(program_.segments.size()) - 1;
  }

  void exchange_rows(Segment& segment) const {
    if (planned_.dispatcher == spec::Dispatcher::alltoall) return;
    BlockContext all = context(0);
    all.dims = segment.dims;
    dispatchers(segment, all, planned_.dispatcher,
                spec::placement_of_ranks(trial_.hardware,
                                         program_.layout.group_ranks(Group::ep, program_.rank)));
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
    const bool ends_layer = kind == halves_of(c.dims).back();
    Segment forward = block_of(kind).forward(c);
    Segment backward = block_of(kind).backward(c);
    recompute(backward, forward, knobs_);
    if (is_narrow()) kept_narrow_[c.dims].add(narrow(forward, backward, narrow_types_, knobs_));
    if (is_full_) made.recomputed = add(recomputed(forward, ends_layer), PassKind::forward);
    made.forward =
        add(std::move(forward), is_full_ ? PassKind::forward_dropped : PassKind::forward);
    made.backward = add(std::move(backward), PassKind::backward);
    return made;
  }

  /// Once all halves of layers are made: the first one's backward segment ends what the layer
  /// saves.
  void add_narrow_lifetimes() {
    for (const auto& [key, half] : halves_) {
      for (const int32_t number : {half.forward, half.recomputed, half.backward}) {
        if (number < 0) continue;
        std::shared_ptr<const Segment>& segment = program_.segments[static_cast<size_t>(number)];
        Segment made = *segment;
        narrow_lifetimes(made, kept_narrow_[key.second]);
        segment = std::make_shared<const Segment>(std::move(made));
      }
    }
  }

  [[nodiscard]] bool is_narrow() const { return spec::is_product_narrow(narrow_types_.recipe); }

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
    std::vector<std::vector<Half>> layers;
  };

  /// One depth of multi-token prediction.
  struct MtpSegments {
    Half entry;
    std::vector<std::vector<Half>> layers;
    int32_t leave = -1;
  };

  std::vector<Half> halves(int64_t layer) {
    std::vector<Half> made;
    for (const BlockKind kind : halves_of(context(layer).dims)) made.push_back(half(kind, layer));
    return made;
  }

  MtpSegments mtp_segments(int64_t number, const BlockContext& outside) {
    const MtpDepth depth{number, number + 1 == trial_.model.mtp.depth};
    const Segment forward = mtp_forward(outside, depth);
    MtpSegments made;
    if (is_full_) made.entry.recomputed = add(recomputed(forward, true), PassKind::forward);
    made.entry.forward = add(forward, is_full_ ? PassKind::forward_dropped : PassKind::forward);
    made.entry.backward = add(mtp_backward(outside, depth), PassKind::backward);
    for (size_t i = 0; i < trial_.model.mtp.layers.size(); ++i) {
      made.layers.push_back(
          halves(mtp_[static_cast<size_t>(number)].first_layer + static_cast<int64_t>(i)));
    }
    made.leave = add(mtp_head_forward(outside, depth), PassKind::forward);
    return made;
  }

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
      made.layers.push_back(halves(layer));
    }
    return made;
  }

  void add_micro_batches(const BlockContext& outside, int64_t num_micro_batches) {
    std::vector<StageSegments> segments;
    for (const VirtualStage& stage : stages_) segments.push_back(segments_of(stage, outside));
    for (size_t depth = 0; depth < mtp_.size(); ++depth) {
      mtp_segments_.push_back(mtp_segments(static_cast<int64_t>(depth), outside));
    }
    if (is_narrow()) add_narrow_lifetimes();
    const Layout& layout = program_.layout;
    const int own = layout.pp_rank(program_.rank);
    Weaver weaver(program_);
    size_t woven_from = 0;  // where the forward step begins that goes with this one
    bool is_woven = false;
    for (const ScheduleStep& step : schedule(layout, own, num_micro_batches)) {
      const auto at = static_cast<size_t>(step.virtual_stage);
      const size_t first = program_.items.size();
      add_stage(stages_[at], segments[at], step);
      if (is_woven) weaver.weave(woven_from, first);
      is_woven = step.is_woven;
      woven_from = first;
    }
  }

  [[nodiscard]] std::vector<ScheduleStep> schedule(const Layout& layout, int stage,
                                                   int64_t num_micro_batches) const {
    if (planned_.overlaps_micro_batches && (layout.pp == 1 || layout.vpp > 1)) {
      return combined_1f1b(layout.pp, layout.vpp, stage, num_micro_batches);
    }
    return layout.vpp == 1 ? one_f_one_b(layout.pp, stage, num_micro_batches)
                           : interleaved(layout.pp, layout.vpp, stage, num_micro_batches);
  }

  void add_stage(const VirtualStage& stage, const StageSegments& segments,
                 const ScheduleStep& step) {
    const auto num_layers = static_cast<int32_t>(stage.layers.count);
    const auto edge = static_cast<int32_t>(num_layers_) + step.virtual_stage;
    const bool has_mtp = stage.number == num_stages_ - 1;
    const auto run = [&](int32_t segment, int32_t frame, int32_t next, int32_t own_edge,
                         int64_t layer = -1) {
      Item made = item(segment, layer);
      made.micro_batch = static_cast<int32_t>(step.micro_batch);
      made.frame = frame;
      made.next = next;
      made.edge = own_edge;
      program_.items.push_back(made);
    };
    const auto frame = [&](int32_t layer) {
      return layer < num_layers ? stage.first_frame + layer : edge;
    };
    const auto run_layer = [&](int32_t segment, int32_t i) {
      run(segment, frame(i), frame(i + 1), edge, stage.layers.first + i);
    };
    if (step.is_forward) {
      run(segments.enter, frame(0), frame(1), edge);
      for (int32_t i = 0; i < num_layers; ++i) {
        for (const Half& half : segments.layers[static_cast<size_t>(i)]) run_layer(half.forward, i);
      }
      if (has_mtp) add_mtp_forward(run);
      run(segments.leave, edge, edge, edge);
      return;
    }
    if (segments.enter_backward >= 0) run(segments.enter_backward, edge, edge, edge);
    if (has_mtp) add_mtp_backward(run);
    for (int32_t i = num_layers; i-- > 0;) {
      add_layer_backward(segments.layers[static_cast<size_t>(i)],
                         [&](int32_t segment) { run_layer(segment, i); });
    }
    run(segments.leave_backward, frame(0), frame(1), edge);
  }

  /// A layer made again from its input, if all is recomputed, and its halves from the last to the
  /// first.
  template <typename Run>
  void add_layer_backward(const std::vector<Half>& halves, Run&& run) {
    if (is_full_) {
      for (const Half& half : halves) run(half.recomputed);
    }
    for (size_t i = halves.size(); i-- > 0;) run(halves[i].backward);
  }

  template <typename Run>
  void add_mtp_forward(Run&& run) {
    for (size_t depth = 0; depth < mtp_.size(); ++depth) {
      const MtpFrames& at = mtp_[depth];
      const MtpSegments& segments = mtp_segments_[depth];
      run(segments.entry.forward, at.joined, at.first, at.edge, at.first_layer);
      for (size_t i = 0; i < segments.layers.size(); ++i) {
        const auto place = static_cast<int32_t>(i);
        for (const Half& half : segments.layers[i]) {
          run(half.forward, at.first + place, at.first + place + 1, at.edge,
              at.first_layer + place);
        }
      }
      run(segments.leave, at.edge, at.edge, at.edge, at.first_layer);
    }
  }

  template <typename Run>
  void add_mtp_backward(Run&& run) {
    for (size_t depth = mtp_.size(); depth-- > 0;) {
      const MtpFrames& at = mtp_[depth];
      const MtpSegments& segments = mtp_segments_[depth];
      for (size_t i = segments.layers.size(); i-- > 0;) {
        const auto place = static_cast<int32_t>(i);
        add_layer_backward(segments.layers[i], [&](int32_t segment) {
          run(segment, at.first + place, at.first + place + 1, at.edge, at.first_layer + place);
        });
      }
      add_layer_backward({segments.entry}, [&](int32_t segment) {
        run(segment, at.joined, at.first, at.edge, at.first_layer);
      });
    }
  }

  void add_update(const UpdateContext& update) {
    const std::vector<BucketDesc>& buckets = program_.params.buckets;
    const auto for_buckets = [&](const std::function<void(int, const BucketDesc&)>& body) {
      for (size_t i = 0; i < buckets.size(); ++i) body(static_cast<int>(i), buckets[i]);
    };
    const int stage = program_.layout.pp_rank(program_.rank);
    const bool has_copy = trial_.model.ties_embeddings || has_embedding_copy(trial_.model, knobs_);
    const bool has_tied =
        has_copy && program_.layout.pp > 1 && (stage == 0 || stage == program_.layout.pp - 1);
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
  const Planned& planned_;
  NarrowTypes narrow_types_;
  bool is_full_;
  std::vector<VirtualStage> stages_;  ///< of this rank
  std::vector<MtpFrames> mtp_;        ///< by depth, on the last stage's rank
  std::vector<MtpSegments> mtp_segments_;
  int64_t num_layers_ = 0;
  int num_stages_ = 1;  ///< of all ranks
  StepProgram program_;
  std::map<std::pair<BlockKind, LayerDims>, Half> halves_;
  std::map<LayerDims, KeptNarrow> kept_narrow_;  ///< by layers of all halves
};

}  // namespace

StepProgram compile(const spec::TrialSpec& trial, int rank, const Planned& planned) {
  return Compiler(trial, rank, planned).compile();
}

}  // namespace moetune::plan
