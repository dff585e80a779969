// Parameters, what is saved for backward, and what comes on top at the worst moment.
#include "tuner/planner/memory_profile.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tuner/planner/adapters.h"
#include "tuner/planner/dispatcher_buffers.h"
#include "tuner/planner/full_recompute.h"
#include "tuner/planner/memory_rows.h"
#include "tuner/planner/static_memory.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

namespace {

using spec::CrossEntropy;
using spec::FeedForward;
using spec::Fsdp;
using spec::LayerKind;
using spec::PlanKnobs;
using spec::PlanRecompute;

/// Tokens that the allgather dispatcher keeps.
double gathered_token_bytes(const PlanRun& run) {
  const PlanKnobs& k = run.knobs;
  const int64_t ranks = int64_t{k.ep} * k.etp;
  if (k.dispatcher != spec::Dispatcher::allgather || ranks <= 1 || run.model->num_experts == 0) {
    return 0;
  }
  return figure_of<MemoryRule::gathered_tokens>() * static_cast<double>(run.model->hidden_size) *
         sequence_tokens(run) * static_cast<double>(ranks);
}

/// Of handles, and what is gathered and kept: the input of the head with sequence parallelism, the
/// tokens of the allgather dispatcher.
double workspace_bytes(const PlanRun& run, bool has_experts, bool has_head) {
  const PlanKnobs& k = run.knobs;
  const bool is_grouped = has_experts && has_grouped_products(run);
  const double handles = figure_of<MemoryRule::plain_workspaces>() +
                         (is_grouped ? figure_of<MemoryRule::grouped_workspaces>() : 0);
  double bytes = handles * figure_of<MemoryRule::workspace>();
  const auto hidden = static_cast<double>(run.model->hidden_size);
  if (has_head && k.sequence_parallel && k.tp > 1) {
    bytes += figure_of<MemoryRule::gathered_head_input>() * context_tokens(run) * hidden;
  }
  if (has_experts) bytes += gathered_token_bytes(run);
  return bytes;
}

using LayerMemory = PreparedMemory::LayerMemory;

/// Memory on top of what is kept, in the backward pass of a virtual stage. Under full recomputation
/// a layer's own tensors are all there again. Then the layer with the most of them counts, less the
/// inputs of the layers behind it, which are gone by then. Otherwise the last layer's backward is
/// the worst moment, as everything is still kept.
double backward_on_top(const PipelineOutline::Part& part, const std::vector<LayerMemory>& layers,
                       bool is_all_recomputed) {
  double worst = layers[static_cast<size_t>(part.last)].transient;
  if (!is_all_recomputed) return worst;
  for (size_t kind = 0; kind < part.layers.size(); ++kind) {
    if (part.layers[kind] == 0) continue;
    worst = std::max(worst, layers[kind].transient - part.behind[kind] * layers[kind].saved);
  }
  return worst;
}

/// Rows of a MoE layer's forward, when experts are done and their rows are sorted to be sent back:
/// as they were sorted to be sent, received, multiplied and sorted again. Where a rank has one
/// expert nothing is sorted, and what was received is what the expert keeps. Beside them the output
/// of the shared expert. Seen with an all-to-all; other dispatchers are taken to hold as many.
double moe_forward_bytes(const PlanRun& run, const LayerSizes& sizes, double row_bytes) {
  const PlanKnobs& k = run.knobs;
  if (!run.is_of_megatron || k.ep * k.etp <= 1) return 0;
  const double sent = sizes.own_tokens * static_cast<double>(run.model->experts_per_token);
  const bool is_sorted = run.model->num_experts > k.ep;
  const double received = figure_of<MemoryRule::moe_forward_rows>() - (is_sorted ? 0 : 1);
  const double shared =
      run.model->shared_ffn_size > 0 ? sizes.own_tokens * sizes.hidden * sizes.element : 0;
  return (sent + received * sizes.chunk_rows) * row_bytes + shared;
}

LayerMemory layer_memory(const PlanRun& run, LayerKind kind, int64_t window) {
  const LayerSizes sizes = sizes_of(run, kind, window);
  const PlanKnobs& k = run.knobs;
  LayerMemory memory;
  double whole = 0;
  double of_moe = 0;  // that nothing but the whole module's recomputation drops
  for (const SavedTerm& term : saved_terms()) {
    if (term.name == kFirstBehindMixer) memory.of_mixer = memory.saved;
    if (term.is_there != nullptr && !term.is_there(sizes, k)) continue;
    const double bytes = term.bytes(sizes, k);
    whole += bytes;
    if (term.name == kScores) memory.scores = bytes;
    if (!(k.offload & term.offloaded_by).empty()) {
      memory.offloaded += bytes;
      continue;
    }
    const bool is_dropped = !(k.recompute & term.dropped_by).empty();
    if (!is_dropped) {
      memory.saved += bytes;
    } else {
      if (term.left != nullptr) memory.saved += term.left(sizes, k);
      if ((k.recompute & term.dropped_by) == spec::PlanRecomputeSet{PlanRecompute::moe}) {
        of_moe += bytes;
      }
    }
  }
  const bool is_cast = has_titan_autocast(run);
  if (is_cast) {
    const double more = titan_autocast_bytes(run, sizes);
    memory.saved += more;
    whole += more;
  }
  const std::optional<double> selective = titan_selective_bytes(run, sizes);
  if (selective) {
    memory.saved = *selective;
    memory.of_mixer = 0;
  }
  const double own = sizes.own_tokens * sizes.hidden;
  const double all = sizes.tokens * sizes.hidden;
  // Of the stream between the matrices and its gradients.
  const double stream = is_cast ? 4 : sizes.element;
  const double dense_streams = figure_of<MemoryRule::dense_stream>() * stream * all +
                               figure_of<MemoryRule::dense_own_stream>() * stream * own;
  if (kind.feed_forward == FeedForward::moe) {
    const int64_t latent = run.model->moe_latent_size;
    const double width = latent > 0 ? static_cast<double>(latent) : sizes.hidden;
    // Rows before and after they are sorted or exchanged, and the gradients of the stream.
    memory.transient = figure_of<MemoryRule::moe_rows>() * sizes.chunk_rows * stream * width +
                       figure_of<MemoryRule::moe_stream>() * stream * own;
    memory.forward = moe_forward_bytes(run, sizes, stream * width);
    // While the module runs, forward or again, what it drops at its end is there.
    memory.transient += of_moe;
    memory.forward += of_moe;
    memory.overlapped = sizes.chunk_rows * stream * width;
  } else if (kind.feed_forward == FeedForward::dense) {
    const double factor = run.model->has_gated_mlp ? 2 : 1;
    memory.transient = dense_streams + sizes.tokens * sizes.element * factor *
                                           static_cast<double>(run.model->ffn_size) / sizes.tp;
  } else {
    memory.transient = dense_streams;
  }
  if (selective) memory.transient += std::max(0.0, whole - memory.saved);
  if (k.recompute.has(PlanRecompute::full)) {
    memory.saved = stream * own;
    memory.of_mixer = 0;
    memory.recomputed = whole;
    memory.transient = whole + std::max(memory.transient, memory.forward);
    memory.forward = 0;
  }
  return memory;
}

/// Bytes of a rank's own tokens of a micro-batch, with `of_column` bytes in each column of the
/// hidden state (twice that in fp32).
double token_bytes(const PlanRun& run, double of_column) {
  return sequence_tokens(run) * static_cast<double>(run.model->hidden_size) * of_column *
         element_bytes(run.knobs) / 2;
}

double num_logits(const PlanRun& run) {
  return context_tokens(run) * static_cast<double>(run.model->vocab_rows()) / run.knobs.tp;
}

/// fp32 probabilities that the loss leaves for its backward pass. Torchtitan's are gone before the
/// head's backward.
double softmax_bytes(const PlanRun& run) {
  if (!run.is_of_megatron) return 0;
  const CrossEntropy loss = run.knobs.cross_entropy;
  const bool is_kept = loss == CrossEntropy::native || loss == CrossEntropy::unfused;
  return is_kept ? figure_of<MemoryRule::softmax>() * num_logits(run) : 0;
}

struct OnTop {
  double bytes = 0;
  std::string_view moment;
};
/// What the loss takes: logits and what is made of them, at its worst moment.
OnTop loss_on_top(const PlanRun& run) {
  const PlanKnobs& k = run.knobs;
  const double gathered =
      token_bytes(run, figure_of<MemoryRule::logit_gradients>()) * (k.sequence_parallel ? k.tp : 1);
  const double kept = token_bytes(run, figure_of<MemoryRule::kept_at_head>());
  if (k.cross_entropy == CrossEntropy::chunked) return {kept + gathered, kMomentOfLoss};
  const double num = num_logits(run);
  const double logits = figure_of<MemoryRule::logits>() * num;
  if (const auto of_logit = titan_logit_bytes(k); of_logit && !run.is_of_megatron) {
    const double at_head = logits + gathered;
    if (at_head > *of_logit * num) return {kept + at_head, kMomentOfHead};
    return {kept + *of_logit * num, kMomentOfLoss};
  }
  const double softmax = softmax_bytes(run);
  const bool is_native = k.cross_entropy == CrossEntropy::native;
  // Wide logits become the probabilities in place, but for compiled code.
  const bool is_in_place = softmax > 0 && has_wide_elements(k) && !is_native;
  const double wide =
      is_native && !has_wide_elements(k) ? figure_of<MemoryRule::compiled_logits>() * num : 0;
  const double own_logits = logits * element_bytes(k) / 2;
  const double at_loss = softmax + wide + (is_in_place ? 0 : own_logits);
  // Their gradient is as wide as they are; that of the head is a tensor of its own where it is not
  // added to the others at once.
  const bool is_added_at_once = k.gradient_accumulation_fusion || has_adapters(k);
  const double of_head = is_added_at_once || !run.is_of_megatron
                             ? 0
                             : element_bytes(k) * static_cast<double>(run.model->vocab_rows()) *
                                   static_cast<double>(run.model->hidden_size) / k.tp;
  const double at_head = own_logits + gathered + of_head;
  // Each depth of multi-token prediction leaves its own until its backward.
  const double before = softmax * static_cast<double>(run.model->mtp.depth);
  if (at_head > at_loss) return {kept + before + at_head, kMomentOfHead};
  return {kept + before + at_loss, kMomentOfLoss};
}

/// The same under torchtitan's autocast. Its cache has copies of matrices outside of experts, which
/// recomputed layers do not keep otherwise.
OnTop autocast_loss_on_top(const PlanRun& run, const Weights& weights) {
  const bool keeps_copies = run.knobs.recompute.empty();
  const double cached = keeps_copies ? 0 : 2 * std::max(0.0, weights.products - weights.experts);
  return {titan_autocast_loss_bytes(run, num_logits(run), cached), kMomentOfLoss};
}

/// The worst moment where gradients appear in the backward pass: the loss, which has none, the
/// first backward, or the end of the last one, with all gradients and a layer's activations.
void settle_fresh_gradients(const OnTop& loss, double in_layer, double unit_gradients,
                            double layer_activations, StageMemory& memory) {
  struct Moment {
    double gradients = 0;
    double activations = 0;
    OnTop on_top;
    [[nodiscard]] double total() const { return gradients + activations + on_top.bytes; }
  };
  const double all = memory.peak.gradients;
  const double activations = memory.peak.activations;
  const Moment at_first{std::min(all, unit_gradients), activations, {in_layer, kMomentOfLayer}};
  const Moment at_last{all, layer_activations, {in_layer, kMomentOfLastLayer}};
  Moment worst{0, activations, loss};
  if (at_first.total() > worst.total()) worst = at_first;
  if (at_last.total() > worst.total()) worst = at_last;
  memory.peak.gradients = worst.gradients;
  memory.peak.activations = worst.activations;
  memory.peak.transient = worst.on_top.bytes;
  memory.moment = worst.on_top.moment;
}

double elements_of(const Weights& weights) {
  double sum = 0;
  for (const Weights::Shape& shape : weights.shapes) {
    sum += static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  }
  return sum;
}

}  // namespace

std::vector<int64_t> micro_batches_in_flight(const PlanRun& run, int stage) {
  std::vector<int64_t> in_flight(static_cast<size_t>(num_virtual_stages(run)));
  count_in_flight(run, stage, run.knobs.overlap_moe_expert_parallel_comm, in_flight);
  return in_flight;
}

void count_in_flight(const PlanRun& run, int stage, bool has_overlap,
                     std::span<int64_t> in_flight) {
  const int64_t pp = run.knobs.pp;
  const auto vpp = static_cast<int64_t>(in_flight.size());
  const int64_t all = micro_batches_of_pass(run);
  if (run.holds_all_micro_batches && pp > 1) {
    std::ranges::fill(in_flight, all);
    return;
  }
  if (vpp == 1) {
    in_flight[0] = std::min(pp - stage, all);
    if (has_overlap && pp > 1) in_flight[0] = std::min(in_flight[0] + 1, all);
    return;
  }
  // Forwards of virtual stages go round in groups of micro-batches; so many of them come before the
  // first backward (Narayanan et al. 2021, section 2.2).
  const int64_t group = micro_batches_of_round(run);
  int64_t forwards = 2 * (pp - stage - 1) + (vpp - 1) * group + 1;
  if (has_overlap) ++forwards;
  forwards = std::min(forwards, all * vpp);
  const int64_t whole_rounds = forwards / (group * vpp);
  int64_t left = forwards - whole_rounds * group * vpp;
  for (int64_t& of_stage : in_flight) {
    const int64_t of_last_round = std::min(left, group);
    of_stage = whole_rounds * group + of_last_round;
    left -= of_last_round;
  }
}

PreparedMemory::PreparedMemory(const PlanRun& run)
    : run_(run),
      own_outline_(std::make_shared<const PipelineOutline>(outline_of(run))),
      outline_(own_outline_.get()) {
  WorkCache works;
  prepare(works);
}

PreparedMemory::PreparedMemory(const PlanRun& run, const PipelineOutline& outline, WorkCache& works)
    : run_(run), outline_(&outline) {
  prepare(works);
}

void PreparedMemory::prepare(WorkCache& works) {
  const auto pp = static_cast<size_t>(run_.knobs.pp);
  const size_t vpp = outline_->stages.front().parts.size();
  in_flight_.resize(2 * pp * vpp);
  for (const bool has_overlap : {false, true}) {
    for (size_t p = 0; p < pp; ++p) {
      const std::span<int64_t> of_stage(&in_flight_[((has_overlap ? pp : 0) + p) * vpp], vpp);
      count_in_flight(run_, static_cast<int>(p), has_overlap, of_stage);
    }
  }
  // They are in the outline, and with() copies the run often.
  run_.stages.clear();
  run_.stage_layers.clear();
  const std::vector<const Weights*> of_kinds = works.weights_of_kinds(run_, *outline_);
  parameters_.resize(pp);
  for (size_t p = 0; p < pp; ++p) {
    const PipelineOutline::Stage& stage = outline_->stages[p];
    if (stage.first_same != p) continue;
    parameters_[p] = parameters_of(stage, of_kinds, works);
    // Later stages hold fewer micro-batches: of those with the same layers the first holds most.
    const double all = parameters_[p].weights.total();
    const auto is_like = [&](size_t before) { return parameters_[before].weights.total() == all; };
    if (std::ranges::none_of(stage.like, is_like)) different_.push_back(p);
  }
}

PreparedMemory::Parameters PreparedMemory::parameters_of(
    const PipelineOutline::Stage& stage, const std::vector<const Weights*>& of_kinds,
    WorkCache& works) const {
  Parameters parameters;
  const auto add = [&](const Weights& weights, double times = 1) {
    parameters.weights.add(weights, times);
    parameters.largest_layer = std::max(parameters.largest_layer, weights.total());
    const double experts = run_.knobs.expert_copies() > 1 ? weights.experts : 0;
    const double unit = weights.split + weights.replicated + experts;
    parameters.all_units += times * unit;
    return unit;
  };
  for (const PipelineOutline::Part& part : stage.parts) {
    for (const size_t kind : part.kinds) {
      parameters.largest_unit =
          std::max(parameters.largest_unit, add(*of_kinds[kind], part.layers[kind]));
    }
    if (part.has_embedding) parameters.root_unit += add(works.embedding_weights(run_));
    if (part.has_mtp) parameters.weights.add(works.mtp_weights(run_, stage.has_embedding));
    if (part.has_head) parameters.root_unit += add(works.head_weights(run_, stage.has_embedding));
  }
  parameters.shapes_elements = elements_of(parameters.weights);
  return parameters;
}

std::span<const int64_t> PreparedMemory::in_flight(size_t number, bool has_overlap) const {
  const size_t pp = outline_->stages.size();
  const size_t vpp = in_flight_.size() / (2 * pp);
  return {&in_flight_[((has_overlap ? pp : 0) + number) * vpp], vpp};
}

PlanRun PreparedMemory::with(const PlanKnobs& knobs, double load) const {
  PlanRun run = run_;
  run.load = load;
  run.knobs = knobs;
  run.knobs = computed_knobs(run);
  return run;
}

std::vector<LayerMemory> PreparedMemory::layer_memories(const PlanRun& run) const {
  std::vector<LayerMemory> layers;
  layers.reserve(outline_->alike.size());
  for (const PipelineOutline::Alike& alike : outline_->alike) {
    layers.push_back(layer_memory(run, alike.kind, alike.window));
  }
  return layers;
}

PreparedMemory::Layers PreparedMemory::layers_of(const PlanRun& run) const {
  Layers layers;
  layers.all = layer_memories(run);
  if (run.knobs.recomputes_block()) {
    PlanKnobs knobs = run.knobs;
    knobs.recompute = {};
    layers.kept = layer_memories(with(knobs, run.load));
  }
  return layers;
}

double PreparedMemory::mtp_bytes(const PlanRun& run, const std::vector<LayerMemory>& layers) const {
  double of_depth = token_bytes(run, figure_of<MemoryRule::mtp_activations>());
  for (const LayerKind kind : run.model->mtp.layers) {
    const size_t place = outline_->find(kind, 0);
    if (place < layers.size()) of_depth += layers[place].saved;
  }
  return static_cast<double>(run.model->mtp.depth) * of_depth;
}

PreparedMemory::OfLayers PreparedMemory::of_layers(size_t number, const PlanRun& run,
                                                   const Layers& known) const {
  const std::vector<LayerMemory>& layers = known.all;
  const PlanKnobs& k = run.knobs;
  const PipelineOutline::Stage& stage = outline_->stages[number];
  const bool has_overlap = k.overlap_moe_expert_parallel_comm;
  const std::span<const int64_t> in_flight = this->in_flight(number, has_overlap);
  // The forward that an overlapped exchange has beside a backward is the one whose loss it is.
  const std::span<const int64_t> at_loss = this->in_flight(number, false);
  OfLayers result;
  result.is_last_recomputed = k.recompute.has(PlanRecompute::full);
  // Where layers are recomputed in blocks those of multi-token prediction are not.
  const std::vector<LayerMemory>& of_mtp = known.kept.empty() ? layers : known.kept;
  const bool is_by_layer = !k.recompute.has(PlanRecompute::full) || k.recomputes_each_layer();
  for (size_t i = 0; i < stage.parts.size(); ++i) {
    const PipelineOutline::Part& part = stage.parts[i];
    double saved = 0;
    const double mtp = part.has_mtp ? mtp_bytes(run, of_mtp) : 0;
    if (is_by_layer || part.order.empty()) {
      for (size_t kind = 0; kind < part.layers.size(); ++kind) {
        saved += part.layers[kind] * layers[kind].saved;
        result.of_mixers +=
            part.layers[kind] * layers[kind].of_mixer * static_cast<double>(in_flight[i]);
      }
      result.last_transient = backward_on_top(part, layers, k.recompute.has(PlanRecompute::full));
      result.last_forward = layers[static_cast<size_t>(part.last)].forward;
    } else {
      const PartMemory memory = part_memory(part.order, mtp, layers, known.kept, k);
      saved = memory.saved;
      result.last_forward =
          memory.is_last_recomputed ? 0 : known.kept[static_cast<size_t>(part.last)].forward;
      result.of_mixers += memory.of_mixer * static_cast<double>(in_flight[i]);
      result.last_transient = memory.on_top;
      if (part.has_mtp) {
        result.last_transient =
            std::max(result.last_transient, of_mtp[static_cast<size_t>(part.last)].transient);
      }
      result.is_last_recomputed =
          memory.is_last_recomputed && (!part.has_mtp || known.kept.empty());
    }
    // The mask of the embedding's dropout.
    if (part.has_embedding && run.model->hidden_dropout > 0) {
      saved += token_bytes(run, figure_of<MemoryRule::embedding_mask>());
    }
    saved += mtp;
    result.activations += saved * static_cast<double>(in_flight[i]);
    result.at_loss += saved * static_cast<double>(at_loss[i]);
    if (has_overlap && k.pp > 1 && i + 1 == stage.parts.size()) {
      const double own = token_bytes(run, 2 * figure_of<MemoryRule::overlapped_outputs>());
      result.at_loss += own * static_cast<double>(part.order.size()) +
                        layers[static_cast<size_t>(part.last)].overlapped;
    }
    result.num_layers += static_cast<double>(part.order.size());
  }
  result.last_saved = layers[static_cast<size_t>(stage.parts.back().last)].saved;
  for (const LayerMemory& layer : layers) {
    result.scores = std::max(result.scores, layer.scores);
    result.on_its_way =
        std::max(result.on_its_way, figure_of<MemoryRule::offload_on_its_way>() * layer.offloaded);
  }
  // A backward of another virtual stage is next when the loss is computed.
  if (stage.has_head && stage.parts.size() > 1) {
    result.loaded_back = result.on_its_way * static_cast<double>(stage.parts.front().order.size());
  }
  return result;
}

PreparedMemory::GatheredUnits PreparedMemory::gathered_units(const PlanRun& run,
                                                             const Parameters& own,
                                                             const OfLayers& layers,
                                                             bool has_head) {
  const PlanKnobs& k = run.knobs;
  GatheredUnits units;
  if (k.fsdp == Fsdp::none) return units;
  const double element = element_bytes(k);
  if (keeps_titan_stage_gathered(run)) {
    // All of the stage, and the fresh gradients of one unit in the weights' type.
    const double bytes = element * (own.weights.total() + own.largest_layer);
    return {bytes, bytes, bytes, bytes};
  }
  if (k.fsdp == Fsdp::torch) {
    const double bytes = own.largest_layer * (figure_of<MemoryRule::fsdp_units>() * element +
                                              figure_of<MemoryRule::fsdp_gradient>());
    return {bytes, bytes, bytes, 0};
  }
  const double unit = own.largest_unit;
  const double root = own.root_unit;
  const double num_layers = std::max(1.0, layers.num_layers);
  const double ahead = std::ceil(figure_of<MemoryRule::fsdp_ahead>() / std::max(1.0, unit));
  const double gathered =
      std::min(num_layers, std::max(figure_of<MemoryRule::fsdp_units>(), ahead)) * unit;
  // While gradients of layers wait, what these had saved is gone.
  const double num_waiting = std::min(
      num_layers, std::floor(figure_of<MemoryRule::fsdp_waiting>() / std::max(1.0, unit)) + 2);
  const double more = (num_waiting - 1) * (unit - layers.last_saved / element);
  const bool keeps_all = k.overlap_moe_expert_parallel_comm;
  const double kept = keeps_all ? own.all_units : 0;
  const double gradients =
      keeps_all ? own.all_units : (has_head ? root : 0) + unit + std::max(0.0, more);
  units.at_loss = element * (root + kept);
  units.in_forward = element * (root + gathered + kept);
  units.in_backward = element * (root + gathered + gradients);
  units.in_update = element * root;
  return units;
}

StageMemory PreparedMemory::stage_memory(size_t number, const PlanRun& run,
                                         const OfLayers& layers) const {
  const PlanKnobs& k = run.knobs;
  const PipelineOutline::Stage& stage = outline_->stages[number];
  const Parameters& own = parameters(number);
  OnTop loss{0, kMomentOfLayer};
  if (stage.has_head) {
    loss = has_titan_autocast(run) ? autocast_loss_on_top(run, own.weights) : loss_on_top(run);
  }
  loss.bytes += layers.on_its_way + layers.loaded_back;
  // The loss of the last micro-batch in flight, or the first backward behind it.
  const bool is_beside_softmax =
      stage.has_head && layers.is_last_recomputed && run.model->mtp.depth > 0;
  const double in_layer =
      layers.last_transient + layers.on_its_way + (is_beside_softmax ? softmax_bytes(run) : 0);
  // Where the gradient of a stage's output is received lies there before its forward is done.
  const double received = k.pp > 1 && !stage.has_head
                              ? token_bytes(run, figure_of<MemoryRule::received_gradient>())
                              : 0;
  const double in_forward = layers.last_forward + layers.on_its_way + received;
  StageMemory result;
  result.stage = static_cast<int>(number);
  const StaticParts held = static_parts(run, own.weights, own.shapes_elements);
  result.peak = held.parts;
  result.peak.workspaces = workspace_bytes(run, stage.has_experts, stage.has_head) +
                           titan_bucket_bytes(run, own.weights.total());
  const GatheredUnits gathered = gathered_units(run, own, layers, stage.has_head);
  const auto take = [&](OnTop on_top, double activations, double units) {
    result.peak.activations = activations;
    result.peak.transient = on_top.bytes;
    result.peak.gathered = units;
    result.moment = on_top.moment;
  };
  const auto take_if_worse = [&](OnTop on_top, double activations, double units) {
    const double worst = result.peak.activations + result.peak.transient + result.peak.gathered;
    if (activations + on_top.bytes + units > worst) take(on_top, activations, units);
  };
  const double activations = layers.activations;
  take(loss, stage.has_head ? layers.at_loss : activations, gathered.at_loss);
  if (layers.last_forward > 0) {
    take_if_worse({in_forward, kMomentOfForward}, stage.has_head ? layers.at_loss : activations,
                  gathered.in_forward);
  }
  take_if_worse({in_layer, kMomentOfLayer}, activations, gathered.in_backward);
  if (stage.has_experts) result.peak.exchange_buffers = dispatcher_buffer_bytes(run);
  // Graphs are captured with nothing else in flight. Later their tensors stay where they are, in
  // the pool; PyTorch counts the rest. Steps before the capture had all at once.
  if (k.cuda_graphs.has(spec::PlanGraph::attn) && k.cuda_graph_warmup_steps == 0) {
    result.in_graphs =
        std::min(layers.of_mixers, activations - layers.of_mixers + result.peak.transient);
    // While they are captured PyTorch counts them. Moments are not there yet.
    const double masters = held.parts.optimizer * (1 - kMomentsOfState);
    const double captured = held.parts.weights + held.parts.gradients + held.parts.narrow_weights +
                            masters + layers.of_mixers + layers.scores;
    const double gathered_tokens = stage.has_experts ? gathered_token_bytes(run) : 0;
    const double all = result.peak.total() - result.peak.exchange_buffers - gathered_tokens;
    result.in_graphs = std::clamp(all - captured, 0.0, result.in_graphs);
  }
  // Nothing is kept for backward any more when the weights are updated, but for pools of graphs.
  if (held.gradient_copy > 0) {
    take_if_worse({held.gradient_copy, kMomentOfUpdate}, result.in_graphs, gathered.in_update);
  }
  if (is_titan_unsharded(run) && num_micro_batches(run) == 1) {
    settle_fresh_gradients(loss, in_layer, bytes_of_type(k.main_grads) * own.largest_layer,
                           activations / std::max(1.0, layers.num_layers), result);
  }
  // Torchtitan has no gradients before the first backward.
  result.at_start = result.peak.weights + (run.is_of_megatron ? result.peak.gradients : 0);
  const double moments = run.is_of_megatron ? kMomentsOfState : 1.0;
  result.first_step =
      result.allocated() - result.peak.dummy_gradients - moments * result.peak.optimizer;
  if (is_titan_unsharded(run)) {
    const double at_update = held.parts.total() + result.peak.workspaces;
    result.first_step = std::max(result.first_step, at_update);
  }
  return result;
}

MemoryPrediction PreparedMemory::predict(const PlanKnobs& knobs, double load) const {
  const PlanRun run = with(knobs, load);
  const Layers layers = layers_of(run);
  MemoryPrediction prediction;
  for (size_t p = 0; p < outline_->stages.size(); ++p) {
    prediction.stages.push_back(stage_memory(p, run, of_layers(p, run, layers)));
    if (prediction.stages.back().peak.total() > prediction.worst().peak.total()) {
      prediction.worst_stage = static_cast<int>(p);
    }
  }
  return prediction;
}

double PreparedMemory::peak_bytes(const PlanKnobs& knobs, double load) const {
  const PlanRun run = with(knobs, load);
  const Layers layers = layers_of(run);
  double peak = 0;
  for (const size_t p : different_) {
    peak = std::max(peak, stage_memory(p, run, of_layers(p, run, layers)).peak.total());
  }
  return peak;
}

MemoryPrediction predict_memory(const PlanRun& run) {
  return PreparedMemory(run).predict(run.knobs, run.load);
}

double dispatcher_bytes(const PlanRun& run) {
  return gathered_token_bytes(run) + dispatcher_buffer_bytes(run);
}

double device_bytes(double peak_bytes) {
  return peak_bytes * (1 + figure_of<MemoryRule::fragments>()) +
         figure_of<MemoryRule::beside_pytorch>();
}

double reserved_bytes(double allocated_bytes, double pool_bytes, double capacity_bytes) {
  const double with_cache = pool_bytes +
                            allocated_bytes * (1 + figure_of<MemoryRule::cached_share>()) +
                            figure_of<MemoryRule::cached_least>();
  if (capacity_bytes <= 0) return with_cache;
  const double least = (pool_bytes + allocated_bytes) * (1 + figure_of<MemoryRule::fragments>());
  const double beside = figure_of<MemoryRule::beside_pytorch>();
  return std::min(with_cache, std::max(capacity_bytes - beside, least));
}

double capacity_beside_buffers(const StageMemory& memory, double capacity_bytes) {
  return capacity_bytes <= 0 ? 0 : std::max(1.0, capacity_bytes - memory.peak.exchange_buffers);
}

}  // namespace moetune::tuner::planner
