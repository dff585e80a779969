// Prices of choices that hardly anybody makes on purpose: experts without a grouped product,
// attention with its scores in memory, activations in the host's memory; and which choices have no
// price at all.
#pragma once

#include <string_view>

#include "tuner/planner/layer_work.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Streaming multiprocessors of a device (data sheets of A100, H100, B200), or compute units (AMD
/// Instinct MI300X data sheet).
double num_multiprocessors(const spec::HardwareSpec& hardware);

/// Of experts' products that are a kernel each: time over that of one kernel for all, at least 1.
/// An expert's tiles of 128 x 128 fill whole waves of multiprocessors (wave quantization: NVIDIA's
/// guide to matrix multiplication); a grouped kernel fills them with the tiles of all.
double ungrouped_slowness(const PlanRun& run, const OpWork& op);
/// Kernels that a layer launches more than with grouped products, forward and backward: products
/// and activation of every local expert but the first.
double more_launches(const LayerWork& work);

/// Bytes that attention moves more where its scores are in memory, of a layer and micro-batch. The
/// scores of all pairs (no kernel skips the masked half) are written by the first product, read and
/// written by the softmax, and read by the second one; backward they are read or written seven
/// times (gradient of the probabilities, of the softmax, two products of it, one of the
/// probabilities). Dropout has a mask of a byte and one copy more each way.
struct ScoreBytes {
  double forward = 0;
  double backward = 0;
};
ScoreBytes score_bytes(const PlanRun& run, spec::LayerKind kind, int64_t window);

/// Seconds of a layer and micro-batch in which copies to and from the host's memory are not hidden
/// by the `seconds` that the layer computes: out in its forward third, back in its backward.
double exposed_copies(const PlanRun& run, spec::LayerKind kind, int64_t window, double seconds);

/// Whether a change of the knob has a price in time. Neither a formula nor a published figure is
/// known for the others; some of them have one in memory.
bool has_price_in_time(std::string_view knob);

}  // namespace moetune::tuner::planner
