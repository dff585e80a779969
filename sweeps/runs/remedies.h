// What to change in a run of another framework, by the wall that its traces and its log show: rows
// of knobs, written as settings of the framework that the run is for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "kernels/base/step_parts.h"
#include "profiler/analysis/group_costs.h"
#include "profiler/analysis/kernel_costs.h"
#include "profiler/analysis/trace_causes.h"
#include "sweeps/runs/run_log.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// The wall of a run, found in traces of any framework, in a log, or by a sweep's analysis.
struct FoundWall {
  base::Wall label = base::Wall::unknown;
  std::string sub_cause;  ///< launch, sync, transfer, ...; empty: not told apart
  /// By label: upper bound of the share of the step that is saved if its causes are gone.
  std::map<std::string, double, std::less<>> ceilings;
  /// The same by sub-cause, if these are known.
  std::map<std::string, double, std::less<>> cause_ceilings = {};
  /// Of a step: what computing activations a second time costs, although memory is not known to be
  /// short. That is of the label that the same work has otherwise.
  double needless_recompute_ratio = 0;
  /// Tensors that go to the host do not come back: without a setting that offloads they may be of a
  /// checkpoint.
  bool is_offload_one_way = false;
  /// Of a run without memory: the allocator held enough, in pieces that were too small.
  bool is_fragmented = false;
  /// What waiting for input is made of, as far as traces tell.
  profiler::LoaderParts loader = {};
  /// What the communication of each group costs, where traces name groups.
  profiler::GroupCosts groups = {};
  /// What kernels of each class cost, and launching them; zeros: not known.
  profiler::KernelCosts kernels = {};
};

/// The run to change. Without a configuration, remedies use Megatron-LM's flags and do not know
/// what is set already.
struct RunToMend {
  std::optional<spec::dialects::RunConfig> config;
  bool is_config_known = true;                         ///< false: only sizes from a log are known
  std::shared_ptr<const spec::ModelSpec> model;        ///< null: as the configuration states
  std::shared_ptr<const spec::HardwareSpec> hardware;  ///< null: as many devices as ranks
  std::vector<EchoedSetting> echoed = {};  ///< what the log says beside the configuration
  bool has_row_exchange = true;            ///< false: traces show that ranks exchange no rows
  /// False: traces show neither such an exchange nor kernels that only experts have. It counts
  /// where no configuration says what the model is.
  bool has_expert_work = true;
  bool is_rocm = false;         ///< false: also where that is not known
  std::string device_name{};    ///< by traces or the log, where no hardware file was named
  bool is_on_one_node = false;  ///< false: also where that is not known
  /// Traces show that tensors go to the host's memory, and no configuration says which.
  bool has_unsaid_offload = false;
  /// The same of activations that are computed a second time.
  bool has_unsaid_recompute = false;
};

struct Remedy {
  std::optional<spec::PlanKnobs> knobs;  ///< of the changed run; empty: knobs do not change
  std::vector<std::string> flags;        ///< the framework's flags; empty: not a matter of flags
  double ceiling_ratio = 0;              ///< upper bound of the saving, as a share of the step
  std::string rule;                      ///< name of the row
  std::string why;                       ///< a sentence
  std::string refused;      ///< the constraint that forbids it: name and message; or empty
  bool is_of_wall = false;  ///< false: it is against another label with a considerable share
  /// It may let a failed run go on, and saves no time: a rule asks for it, or it frees memory of
  /// the device or of the host.
  bool is_for_failure = false;
};

/// Remedies for the wall, and a few for each other label with a considerable share, by falling
/// ceiling, refused ones last. Empty for an unknown wall.
std::vector<Remedy> remedies_of(const FoundWall& wall, const RunToMend& run);

/// What a rule of the framework asks for that the run broke, where the assertion names one setting;
/// else empty. `sentence`: the log's words.
std::vector<Remedy> remedies_of_rule(std::string_view sentence, const RunToMend& run);

/// The rule that `knobs` break and the run itself does not, "rule: sentence"; empty: none.
std::string rule_broken_by(const RunToMend& run, const spec::PlanKnobs& knobs);

/// Names of the rows, for pages and tests.
std::vector<std::string_view> remedy_rules();

}  // namespace moetune::sweeps
