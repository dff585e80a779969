// What Megatron's own assertions refuse (arguments.py, transformer_config.py and
// optimizer_config.py at the release of DialectRow), so that no figure is told of a run that cannot
// start.
#include <fmt/format.h>

#include "engine/spec/dialects/parts.h"

namespace moetune::spec::dialects {
namespace {

/// Weights are gathered where they are shared out. Megatron-Bridge turns the overlap on by itself.
void check_gather_overlap(Reading& in) {
  const PlanKnobs& k = in.run.knobs;
  const bool is_shared = k.distributed_optimizer || k.fsdp == Fsdp::megatron;
  if (!k.overlap_param_gather || is_shared || in.may_stand_elsewhere()) return;
  in.problem(fmt::format("'{}' needs '{}' or '{}': without them no weights are gathered",
                         in.key("overlap_param_gather"), in.key("distributed_optimizer"),
                         in.key("use_megatron_fsdp")));
}

/// Only the optimizer that knows types keeps its state in fewer bits.
void check_state_types(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  if (k.precision_aware_optimizer || !has_narrow_state(k)) return;
  std::string_view narrow = "main_params";
  if (k.exp_avg_sq != StateType::fp32) narrow = "exp_avg_sq";
  if (k.exp_avg != StateType::fp32) narrow = "exp_avg";
  constexpr std::string_view kAware = "precision_aware_optimizer";
  if (in.may_stand_elsewhere() && !in.is_stated(kAware)) {
    k.precision_aware_optimizer = true;
    in.note(fmt::format("'{}' needs '{}', which is not said here: taken as on", in.key(narrow),
                        in.key(kAware)));
    return;
  }
  in.problem(fmt::format("'{}' is {}, which needs '{}': without it the optimizer's state is fp32",
                         in.key(narrow), get_plan_knob(k, *find_plan_knob(narrow)),
                         in.key(kAware)));
}

/// DeepEP sends what was routed, not what a capacity has room for.
void check_padding(Reading& in) {
  constexpr std::string_view kBackend = "moe_flex_dispatcher_backend";
  const bool is_of_recipe = in.dialect == Dialect::megatron_bridge && !in.is_stated(kBackend);
  // Primus' own kernels are others.
  if (in.run.knobs.dispatcher != Dispatcher::deepep || in.dialect == Dialect::primus ||
      is_of_recipe) {
    return;
  }
  if (!in.run.knobs.pad_to_capacity) return;
  in.problem(fmt::format("'{}' contradicts '{}' deepep: DeepEP takes no padded experts",
                         in.key("pad_to_capacity"), in.key(kBackend)));
}

/// A graph of the experts needs as many rows in every step.
void take_padding(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const bool is_captured =
      k.cuda_graphs.has(PlanGraph::moe) || k.cuda_graphs.has(PlanGraph::full_iteration);
  const bool is_open = k.capacity_factor > 0 && k.dispatcher != Dispatcher::deepep &&
                       !in.is_stated("pad_to_capacity") && in.may_stand_elsewhere();
  if (!is_captured || !is_open) return;
  k.pad_to_capacity = true;
  in.note(fmt::format("a graph of the experts needs '{}', which is not said here: taken as on",
                      in.key("pad_to_capacity")));
}

}  // namespace

void refuse_contradictions(Reading& reading) {
  // What a log echoes has been taken by Megatron.
  if (reading.options.is_echo) return;
  check_gather_overlap(reading);
  check_state_types(reading);
  check_padding(reading);
  take_padding(reading);
}

}  // namespace moetune::spec::dialects
