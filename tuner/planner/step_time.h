// The time of a training step in closed form: what the layers' programs run, at fitted rates,
// composed by the pipeline's schedule.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/step_parts.h"
#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// What is priced apart, on the busiest stage.
enum class TimePart : uint8_t {
  products,   ///< dense products and the head
  experts,    ///< experts' products
  attention,  ///< core of attention, and scans
  memory,     ///< what only moves bytes
  recompute,
  expert_exchange,  ///< exposed
  tensor,           ///< exposed transfers of tensor parallelism
  context,          ///< and of context parallelism
  pipeline,         ///< messages between stages
  host_copies,      ///< of activations to the host's memory and back, exposed
  bubble,
  data,  ///< gradients and weights, exposed
  optimizer,
  host,  ///< waiting for launches
  fixed,
  count
};
/// Its name, words and wall.
base::NamedPart named(TimePart part);

struct StepTime {
  double seconds = 0;
  std::array<double, static_cast<size_t>(TimePart::count)> parts{};  ///< seconds, adding up

  [[nodiscard]] double& part(TimePart which) { return parts[static_cast<size_t>(which)]; }
  [[nodiscard]] double part(TimePart which) const { return parts[static_cast<size_t>(which)]; }
};

/// Of a stage and a micro-batch.
struct StageSeconds {
  double device = 0;
  double host = 0;  ///< to launch it

  void add(const StageSeconds& other, double times = 1) {
    device += times * other.device;
    host += times * other.host;
  }
  /// Device and host go on beside each other; what is slower decides, softly where both are alike.
  [[nodiscard]] double total() const { return std::sqrt(std::sqrt(fourth_power())); }
  [[nodiscard]] double fourth_power() const {
    const double d = device * device;
    const double h = host * host;
    return d * d + h * h;
  }
};

/// What is split into stages.
struct StageParts {
  std::vector<StageSeconds> layers;  ///< of the model
  StageSeconds end;  ///< multi-token prediction, heads and loss, beside the last stage's layers
};

/// What is known of a run beside its configuration.
struct TimeContext {
  /// Months of the release after 2026-06, which the rates are of; negative: before.
  double months = 0;
};

/// Works and parameters of layers that runs of one model and recipe share: those with the same
/// sizes in a layer.
class WorkCache {
 public:
  const LayerWork& layer(const PlanRun& run, spec::LayerKind kind, int64_t window);
  const LayerWork& head(const PlanRun& run);
  const Weights& weights(const PlanRun& run, spec::LayerKind kind);

 private:
  /// What a layer's work follows from; load and capacity are those of all runs.
  using Sizes = std::array<int32_t, 6>;
  static Sizes sizes_key(const PlanRun& run);

  std::map<std::tuple<Sizes, spec::LayerKind, int64_t>, LayerWork> layers_;
  std::map<Sizes, LayerWork> heads_;
  std::map<std::pair<Sizes, spec::LayerKind>, Weights> weights_;
};

/// A run whose work is known, to be priced at any rates.
class PreparedStep {
 public:
  /// Of what `run` refers to, model and machine have to outlive it.
  explicit PreparedStep(const PlanRun& run);
  /// The same with works from `cache`, which has to outlive it.
  PreparedStep(const PlanRun& run, WorkCache& cache);

  [[nodiscard]] StepTime price(const Rates& rates, const TimeContext& context = {}) const;
  [[nodiscard]] const PlanRun& run() const { return run_; }
  /// The same sizes with other choices, of which none changes what is prepared: recomputation,
  /// loss, sharding, dispatcher, overlap, graphs.
  void choose(const spec::PlanKnobs& knobs) { run_.knobs = knobs; }

  /// Layers that do the same.
  struct Alike {
    spec::LayerKind kind;
    int64_t window = 0;
    const LayerWork* work = nullptr;
  };
  /// What a pipeline rank has.
  struct Stage {
    std::vector<double> layers;  ///< of each kind of `alike`, those of multi-token prediction too
    double num_heads = 0;        ///< the model's and those of multi-token prediction
    Weights weights;
  };

 private:
  void prepare(WorkCache& cache);
  /// Layers and heads of a virtual stage.
  struct Part {
    std::vector<double> layers;
    double num_heads = 0;
    bool operator==(const Part&) const = default;
  };
  void count(spec::LayerKind kind, int64_t window, double times, WorkCache& cache, Part& part);

  PlanRun run_;
  std::shared_ptr<WorkCache> own_;  ///< where nobody lends one
  std::vector<Alike> alike_;
  const LayerWork* head_ = nullptr;
  std::vector<Stage> stages_;
  /// Of written virtual stages: those of each number that differ.
  std::vector<std::vector<Part>> rounds_;
  bool is_split_by_hand_ = false;
  double unevenness_ = 1;  ///< of the fullest stage over the mean, in whole layers
};

/// `works` as of PreparedStep.
StageParts stage_parts(const PlanRun& run, WorkCache& works, const Rates& rates);

StepTime predict_step(const PlanRun& run, const Rates& rates, const TimeContext& context = {});

double tokens_per_s_per_device(const PlanRun& run, double step_seconds);

/// The wall that the parts speak for.
base::Wall wall_of(const StepTime& step);

}  // namespace moetune::tuner::planner
