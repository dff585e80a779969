// The time of a training step in closed form: what the layers' programs run, at fitted rates,
// composed by the pipeline's schedule.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/step_parts.h"
#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/pipeline_outline.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/run.h"
#include "tuner/planner/work_cache.h"

namespace moetune::tuner::planner {

/// Parts of the step time of the slowest stage.
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

/// Time of a stage for a micro-batch.
struct StageSeconds {
  double device = 0;
  double host = 0;  ///< to launch it

  bool operator==(const StageSeconds&) const = default;
  void add(const StageSeconds& other, double times = 1) {
    device += times * other.device;
    host += times * other.host;
  }
  /// Device and host work at the same time, so the slower one counts: a smooth maximum of both.
  [[nodiscard]] double total() const { return std::sqrt(std::sqrt(fourth_power())); }
  [[nodiscard]] double fourth_power() const {
    const double d = device * device;
    const double h = host * host;
    return d * d + h * h;
  }
};

/// Times of what is split into stages.
struct StageParts {
  std::vector<StageSeconds> layers;  ///< of the model
  /// Of the same layers without recomputation, where a stage recomputes its first `num_again` only.
  std::vector<StageSeconds> kept{};
  int64_t num_again = 0;
  StageSeconds end;  ///< multi-token prediction, heads and loss, beside the last stage's layers
};

/// Seconds of one micro-batch in one layer.
struct LayerTime {
  std::array<double, static_cast<size_t>(TimePart::count)> parts{};
  double host = 0;  ///< that the host takes to launch it

  double& operator[](TimePart part) { return parts[static_cast<size_t>(part)]; }
  [[nodiscard]] double device() const {
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
  }
};

/// Times of layers at the same rates, shared by runs of one model and recipe with the same works.
class TimeCache {
 public:
  /// What the works take under the run's choices: `price` says it where it is not known.
  template <typename Price>
  const LayerTime& time(const PlanRun& run, const LayerWork& work, const Price& price) {
    spec::PlanKnobs knobs = run.knobs;
    // Of Megatron-Core layers take as long in whatever pipeline, and beside as many replicas.
    if (run.is_of_megatron) knobs.dp = knobs.pp = knobs.vpp = 1;
    const auto [place, is_new] = times_.try_emplace({&work, knobs.cp_comm_type});
    Known& known = place->second;
    if (is_new || known.knobs != knobs) known = {knobs, price()};
    return known.time;
  }

 private:
  /// The last choices that were asked for.
  struct Known {
    spec::PlanKnobs knobs;
    LayerTime time;
  };
  std::map<std::pair<const LayerWork*, spec::PlanCp>, Known> times_;
};

/// Facts about a run that its configuration does not state.
struct TimeContext {
  /// Months from 2026-06, which the rates describe, to the release of the run's software. Beyond
  /// the span of fitted_month nothing changes.
  double months = 0;
};

/// A run whose work is known, to be priced at any rates.
class PreparedStep {
 public:
  /// Keeps references to the model and the machine of `run`.
  explicit PreparedStep(const PlanRun& run);
  /// As above, with works from `cache`, which has to outlive this.
  PreparedStep(const PlanRun& run, WorkCache& cache);
  /// As above, with what is outlined of the run's stages, which has to outlive this, too.
  PreparedStep(const PlanRun& run, const PipelineOutline& outline, WorkCache& cache);

  [[nodiscard]] StepTime price(const Rates& rates, const TimeContext& context = {}) const;
  /// At the rates of `known`, without a context.
  [[nodiscard]] StepTime price(const Rates& rates, TimeCache& known) const;
  /// Seconds of a step that the host of the slowest stage launches, hidden or not.
  [[nodiscard]] double launch_seconds(const Rates& rates) const;
  [[nodiscard]] const PlanRun& run() const { return run_; }
  /// Changes choices that need no new preparation: recomputation, loss, sharding, dispatcher,
  /// overlap, graphs. The sizes have to stay, and which layers full recomputation takes.
  void choose(const spec::PlanKnobs& knobs);

  /// Layers that do the same.
  struct Alike {
    spec::LayerKind kind;
    int64_t window = 0;
    const LayerWork* work = nullptr;
  };
  /// What pipeline ranks have.
  struct Stage {
    double num_ranks = 1;        ///< with the same
    std::vector<double> layers;  ///< of each kind of `alike`, those of multi-token prediction too
    /// Part of them: what is not recomputed where a block of layers is.
    std::vector<double> kept;
    double num_heads = 0;  ///< the model's and those of multi-token prediction
    Weights weights;
  };

 private:
  void prepare();
  /// Layers and heads of a virtual stage.
  struct Part {
    std::vector<double> layers;
    std::vector<double> kept;
    double num_heads = 0;
    bool operator==(const Part&) const = default;
  };
  [[nodiscard]] Part part_of(const PipelineOutline::Part& outlined) const;
  [[nodiscard]] Weights weights_of(const PipelineOutline::Stage& stage,
                                   const std::vector<const Weights*>& of_kinds) const;
  struct Priced {
    StepTime step;
    double launching = 0;  ///< launch_seconds
  };
  [[nodiscard]] Priced priced(const Rates& rates, const TimeContext& context,
                              TimeCache* known) const;

  PlanRun run_;
  std::shared_ptr<WorkCache> own_;  ///< without a cache from the caller
  WorkCache* cache_ = nullptr;
  std::shared_ptr<const PipelineOutline> own_outline_;  ///< without one from the caller
  const PipelineOutline* outline_ = nullptr;
  std::vector<Alike> alike_;
  const LayerWork* head_ = nullptr;
  std::vector<Stage> stages_;  ///< the different ones
  /// With virtual stages that were set by hand: the different ones of each number.
  std::vector<std::vector<Part>> rounds_;
  bool is_split_by_hand_ = false;
  double unevenness_ = 1;  ///< layers of the fullest stage over the mean
};

/// `works` as of PreparedStep.
StageParts stage_parts(const PlanRun& run, WorkCache& works, const Rates& rates);

/// Seconds of one operation of a run's program, as the step is priced; products compute in
/// `recipe`, and what is quantized for them is operations of their own.
using OpPrice = std::function<double(const OpWork& op, spec::PrecisionRecipe recipe)>;
OpPrice op_price(const PlanRun& run, const Rates& rates);

/// Of all parts of a run's step, by the release and the kind of run.
double step_scale(const PlanRun& run, const Rates& rates);

StepTime predict_step(const PlanRun& run, const Rates& rates, const TimeContext& context = {});

double tokens_per_s_per_device(const PlanRun& run, double step_seconds);

/// The wall that the parts speak for.
base::Wall wall_of(const StepTime& step);

}  // namespace moetune::tuner::planner
