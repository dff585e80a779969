// The walk through a step's allocations; see memory_model.h. What is allocated when follows
// engine/model (stage, layer).
#include "tuner/memory_model.h"

#include <algorithm>
#include <cmath>

#include "engine/spec/attention_workspace.h"
#include "engine/spec/buffers.h"
#include "engine/spec/params.h"
#include "engine/spec/schedule.h"

namespace moetune::tuner {
namespace {

using spec::LayerDims;
using spec::Part;
using spec::PartBytes;
using spec::PassKind;

constexpr size_t kNumParts = 8;
constexpr size_t kNumPasses = 3;
using PartTable = std::array<std::array<PartBytes, kNumParts>, kNumPasses>;

/// Bytes of every part in every pass, for one kind of layer.
PartTable part_table(const LayerDims& dims, const spec::Knobs& knobs,
                     const spec::Precision& precision) {
  PartTable table;
  for (size_t pass = 0; pass < kNumPasses; ++pass) {
    for (size_t part = 0; part < kNumParts; ++part) {
      table[pass][part] = spec::part_bytes(dims, knobs, static_cast<Part>(part),
                                           static_cast<PassKind>(pass), precision);
    }
  }
  return table;
}

/// What is in use, and the highest it has been.
class Usage {
 public:
  void add(MemoryGroup group, int64_t bytes) {
    current_[static_cast<size_t>(group)] += bytes;
    total_ += bytes;
    if (total_ <= peak_.peak_bytes) return;
    peak_.peak_bytes = total_;
    peak_.group_bytes = current_;
  }
  void add(const PartBytes& bytes) {
    // All at once: the order within a part does not matter for the peak at its end.
    current_[static_cast<size_t>(MemoryGroup::activations)] += bytes.saved;
    current_[static_cast<size_t>(MemoryGroup::communication)] += bytes.communication;
    total_ += bytes.saved + bytes.communication;
    add(MemoryGroup::workspace, bytes.workspace);
  }
  /// What ends with the part.
  void drop_temporary(const PartBytes& bytes) {
    drop(MemoryGroup::workspace, bytes.workspace);
    drop(MemoryGroup::communication, bytes.communication);
  }
  void drop(MemoryGroup group, int64_t bytes) {
    current_[static_cast<size_t>(group)] -= bytes;
    total_ -= bytes;
  }
  [[nodiscard]] const RankMemory& peak() const { return peak_; }

 private:
  GroupBytes current_{};
  int64_t total_ = 0;
  RankMemory peak_;
};

/// One rank of one stage. Expert parts depend on the rows received and are priced per layer and
/// micro-batch.
class StageWalk {
 public:
  StageWalk(const spec::TrialSpec& spec, const spec::Layout& layout, int stage)
      : spec_(spec),
        layout_(layout),
        stage_(stage),
        precision_(spec::precision_of(spec.dtype)),
        is_full_(spec::is_full_recompute(spec.knobs)),
        layers_(spec::split_layers(spec.model, spec.knobs)[static_cast<size_t>(stage)]),
        num_micro_batches_(
            spec::num_micro_batches(layout, spec.knobs, spec.training.global_batch_size)) {
    for (int64_t i = 0; i < layers_.count; ++i) {
      const LayerDims dims =
          spec::layer_dims(spec.model, spec.knobs, spec.training.seq_length, layers_.first + i);
      Kind& kind = dims.is_moe ? moe_ : dense_;
      if (!kind.is_set) kind = {true, dims, part_table(dims, spec.knobs, precision_)};
      kinds_.push_back(&kind);
    }
    const int rank = stage * layout.dp * layout.cp;
    const auto params = spec::make_param_plan(spec.model, spec.knobs, rank);
    static_ = spec::static_bytes(params, layout, spec.knobs, precision_);
    constants_ = spec::constant_bytes(
        spec::constant_sizes(kinds_.front()->dims, spec.training.seq_length, num_micro_batches_),
        precision_);
    if (spec.backend == "cuda") constants_ += spec.hardware.workspace_bytes;
    schedule_ = spec::one_f_one_b(layout.pp, stage, num_micro_batches_);
  }

  /// With what the kernels of that rank hold for attention, from its first call to the end: the
  /// moment of the peak stays the same. In f32 plain kernels do it, which need none.
  [[nodiscard]] RankMemory with_attention(RankMemory memory, int rank) const {
    if (spec_.backend != "cuda" || precision_.element != base::DType::bf16) return memory;
    const int64_t bytes =
        spec::attention_workspace_bytes(kinds_.front()->dims, layout_.cp_rank(rank));
    memory.peak_bytes += bytes;
    memory.group_bytes[static_cast<size_t>(MemoryGroup::workspace)] += bytes;
    return memory;
  }

  [[nodiscard]] bool has_experts() const { return moe_.is_set; }
  [[nodiscard]] int64_t balanced_rows() const { return moe_.dims.received_rows; }
  [[nodiscard]] int64_t num_micro_batches() const { return num_micro_batches_; }
  [[nodiscard]] const spec::StageLayers& layers() const { return layers_; }
  [[nodiscard]] bool is_moe(int64_t layer) const {
    return kinds_[static_cast<size_t>(layer)] == &moe_;
  }

  /// rows(layer of the stage, micro-batch): rows received there.
  template <class Rows>
  RankMemory run(const Rows& rows) const {
    Usage usage;
    usage.add(MemoryGroup::weights, static_.weights);
    usage.add(MemoryGroup::gradients, static_.gradients);
    usage.add(MemoryGroup::optimizer, static_.optimizer);
    usage.add(MemoryGroup::workspace, constants_);
    for (const spec::ScheduleStep& step : schedule_) {
      const auto rows_of = [&](int64_t layer) { return rows(layer, step.micro_batch); };
      if (step.is_forward) {
        forward(usage, rows_of);
      } else {
        backward(usage, rows_of);
      }
    }
    return usage.peak();
  }

 private:
  struct Kind {
    bool is_set = false;
    LayerDims dims;
    PartTable parts;
  };

  [[nodiscard]] PartBytes part(int64_t layer, Part part, PassKind pass) const {
    const Kind& kind = *kinds_[static_cast<size_t>(layer)];
    return kind.parts[static_cast<size_t>(pass)][static_cast<size_t>(part)];
  }

  /// The feed-forward part of a layer: the experts' size follows the rows.
  [[nodiscard]] PartBytes ffn(int64_t layer, PassKind pass, int64_t rows) const {
    const Kind& kind = *kinds_[static_cast<size_t>(layer)];
    if (!kind.dims.is_moe) return part(layer, Part::mlp, pass);
    if (rows == kind.dims.received_rows) return part(layer, Part::experts, pass);
    LayerDims dims = kind.dims;
    dims.received_rows = rows;
    return spec::part_bytes(dims, spec_.knobs, Part::experts, pass, precision_);
  }

  [[nodiscard]] int64_t input_bytes() const {
    return part(0, Part::input, PassKind::forward).saved;
  }
  [[nodiscard]] int64_t grad_bytes() const { return part(0, Part::grad, PassKind::forward).saved; }

  void layer_forward(Usage& usage, int64_t layer, PassKind pass, int64_t rows) const {
    const PartBytes block = part(layer, Part::block, pass);
    const PartBytes attn = part(layer, Part::attn, pass);
    const PartBytes route = part(layer, Part::route, pass);
    const PartBytes experts = ffn(layer, pass, rows);
    usage.add(block);
    usage.add(attn);
    usage.drop_temporary(attn);
    usage.add(route);
    usage.add(experts);
    for (const PartBytes& part : {experts, route, block}) usage.drop_temporary(part);
  }

  template <class Rows>
  void forward(Usage& usage, const Rows& rows) const {
    const PassKind pass = is_full_ ? PassKind::forward_dropped : PassKind::forward;
    const int64_t input = input_bytes();
    usage.add(MemoryGroup::activations, input);
    for (int64_t i = 0; i < layers_.count; ++i) {
      // A layer writes into the next one's input, the last one into the stage's edge.
      usage.add(MemoryGroup::activations, input);
      layer_forward(usage, i, pass, rows(i));
    }
    if (stage_ == layout_.pp - 1) {
      const PartBytes head = part(0, Part::head, PassKind::forward);
      usage.add(head);
      usage.add(MemoryGroup::activations, grad_bytes());
      usage.drop_temporary(head);
    }
    usage.drop(MemoryGroup::activations, input);
  }

  template <class Rows>
  void backward(Usage& usage, const Rows& rows) const {
    if (stage_ != layout_.pp - 1) usage.add(MemoryGroup::activations, grad_bytes());
    const int64_t input = input_bytes();
    for (int64_t i = layers_.count - 1; i >= 0; --i) {
      const int64_t received = rows(i);
      if (is_full_) {
        // The block writes its output once more.
        usage.add(MemoryGroup::activations, input);
        layer_forward(usage, i, PassKind::forward, received);
        usage.drop(MemoryGroup::activations, input);
      }
      const PartBytes route = part(i, Part::route, PassKind::backward);
      const PartBytes experts = ffn(i, PassKind::backward, received);
      usage.add(route);
      usage.add(experts);
      usage.drop_temporary(route);
      usage.drop_temporary(experts);
      const PartBytes attn = part(i, Part::attn, PassKind::backward);
      usage.add(attn);
      usage.drop_temporary(attn);
      int64_t saved = input + ffn(i, PassKind::forward, received).saved;
      for (const Part p : {Part::block, Part::attn, Part::route}) {
        saved += part(i, p, PassKind::forward).saved;
      }
      usage.drop(MemoryGroup::activations, saved);
    }
    usage.drop(MemoryGroup::activations, grad_bytes());
  }

  const spec::TrialSpec& spec_;
  spec::Layout layout_;
  int stage_;
  spec::Precision precision_;
  bool is_full_;
  spec::StageLayers layers_;
  int64_t num_micro_batches_;
  Kind moe_;
  Kind dense_;
  std::vector<const Kind*> kinds_;
  spec::StaticBytes static_;
  int64_t constants_ = 0;
  std::vector<spec::ScheduleStep> schedule_;
};

/// The highest of the steps that the trial runs.
RankMemory walk_profile(const StageWalk& walk, const ReceivedRows& rows,
                        const spec::TrialSpec& spec, const spec::Layout& layout, int rank) {
  const int64_t num_steps = std::clamp<int64_t>(spec::total_steps(spec), 1, rows.num_steps());
  RankMemory highest;
  for (int64_t step = 0; step < num_steps; ++step) {
    const RankMemory memory = walk.run([&](int64_t layer, int64_t micro_batch) {
      if (!walk.is_moe(layer)) return int64_t{0};
      return rows.at(layout, spec.knobs, step, walk.layers().first + layer, micro_batch, rank);
    });
    if (memory.peak_bytes > highest.peak_bytes) highest = memory;
  }
  return highest;
}

}  // namespace

const char* name_of(MemoryGroup group) {
  static constexpr std::array<const char*, static_cast<size_t>(MemoryGroup::count)> kNames = {
      "weights", "gradients", "optimizer", "activations", "workspace", "communication"};
  return kNames[static_cast<size_t>(group)];
}

MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const ReceivedRows& rows,
                               const MemoryOptions& options) {
  const spec::Layout layout = spec::layout_of(spec.knobs);
  const int plane = layout.dp * layout.cp;
  MemoryEstimate estimate;
  estimate.grade = rows.has_profile() ? Grade::calibrated : Grade::analytic;
  estimate.ranks.reserve(static_cast<size_t>(layout.world_size()));
  for (int stage = 0; stage < layout.pp; ++stage) {
    const StageWalk walk(spec, layout, stage);
    // Without experts, and with all of them on every rank, no rank can receive more than another.
    if (rows.has_profile() && walk.has_experts() && layout.ep > 1) {
      for (int rank = stage * plane; rank < (stage + 1) * plane; ++rank) {
        estimate.ranks.push_back(
            walk.with_attention(walk_profile(walk, rows, spec, layout, rank), rank));
      }
      continue;
    }
    const double ratio = layout.ep > 1 ? options.imbalance_ratio : 1.0;
    const auto assumed =
        static_cast<int64_t>(std::ceil(static_cast<double>(walk.balanced_rows()) * ratio));
    const RankMemory memory = walk.run([&](int64_t, int64_t) { return assumed; });
    for (int rank = stage * plane; rank < (stage + 1) * plane; ++rank) {
      estimate.ranks.push_back(walk.with_attention(memory, rank));
    }
  }
  for (size_t rank = 0; rank < estimate.ranks.size(); ++rank) {
    if (estimate.ranks[rank].peak_bytes <= estimate.peak_bytes) continue;
    estimate.peak_bytes = estimate.ranks[rank].peak_bytes;
    estimate.peak_rank = static_cast<int>(rank);
  }
  return estimate;
}

}  // namespace moetune::tuner
