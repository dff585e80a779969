// The one vocabulary of where a training step goes: its parts, the walls that they stand behind and
// the groups that are waited for. The analysis measures by it, the cost model predicts by it, the
// tuner reads and tells it, the report draws it; it lies here because all of them may include this
// folder and none of them another's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moetune::base {

/// What holds a step back. In the order in which ties are decided; compute is what remains, unknown
/// is time that nothing explains.
enum class Wall : uint8_t { communication, host, pipeline, imbalance, memory, compute, unknown };
constexpr size_t kNumWalls = 7;
/// Those whose time would vanish with them.
inline constexpr std::array kRecoverableWalls = {Wall::communication, Wall::host, Wall::pipeline,
                                                 Wall::imbalance, Wall::memory};
constexpr bool is_recoverable(Wall wall) { return wall < Wall::compute; }
/// Of the step. A wall with less behind it does not bind.
inline constexpr double kLeastBindingRatio = 0.10;
/// The recoverable wall with the largest share, compute where none binds. Shares by Wall, 0 to 1.
Wall binding_wall(const std::array<double, kNumWalls>& shares,
                  double least_ratio = kLeastBindingRatio);
/// Adds `ratio` to the wall of the part named `part` (see name_of). Ignores unknown names.
void add_share(std::string_view part, double ratio, std::array<double, kNumWalls>& shares);
const char* name_of(Wall wall);
/// Reads what name_of wrote; nothing for another text.
std::optional<Wall> wall_from_name(std::string_view name);

enum class StepPart : uint8_t {
  compute,
  recompute,
  launch_starved,
  transfer,         ///< nothing computes because its data moves
  late,             ///< nothing computes because a participant of the group came late
  pipeline_bubble,  ///< the same, where that is another stage
  device_shared,    ///< nothing computes because other ranks use the device that all share
  stalled,          ///< nothing computes, and no record says why
  count
};

/// One row a part. The parts are disjoint and make the step.
struct StepPartRow {
  StepPart id;
  const char* name;  ///< in stored shares and predictions
  bool is_by_group;  ///< the name gets the group's: transfer and late of a group are one share
  Wall wall;
  const char* metric;      ///< the stored metric that holds it (profiler/analysis/budget_terms)
  const char* subtracted;  ///< metric included in `metric` that belongs to another part; or empty
  const char* text;        ///< in sentences; of a group with the group's name for {}
  const char* label;       ///< in tables and legends
  const char* color;       ///< of the report's style sheet; empty: by its place among the groups
  int hatch;               ///< of the report's charts
};
std::span<const StepPartRow> step_parts();
const StepPartRow& row_of(StepPart part);

/// Groups without a communicator.
constexpr const char* kDispatcherGroup = "dispatcher";
constexpr const char* kMemcpyGroup = "memcpy";
constexpr const char* kStepEndGroup = "step_end";  ///< this rank is done, the slowest is not

/// What is said of a group of ranks, and of the three above.
struct GroupRow {
  const char* name;       ///< in traces and metrics
  const char* adjective;  ///< "expert-parallel"; empty: no communicator
  /// Text, label, colour and hatch of waiting for it; empty: those of the part, with its name.
  const char* text;
  const char* label;
  const char* color;
  int hatch;
};
std::span<const GroupRow> group_rows();
/// Null for a group that nobody knows.
const GroupRow* find_group(std::string_view name);

/// Kinds of work that a prediction tells apart in compute.
struct WorkRow {
  const char* name;
  const char* label;  ///< in sentences too
};
std::span<const WorkRow> work_rows();

/// "recompute", "blocking_ep", "compute_attention": the name of a share of the step, and of a
/// predicted part.
std::string name_of(StepPart part, std::string_view group = {});
/// Reads what name_of wrote; nothing for another text. A share of a group counts as its transfer,
/// which has the same wall and text as its waiting.
struct NamedPart {
  const StepPartRow* row;
  std::string_view group;  ///< of compute the kind of work; empty: all of it
};
std::optional<NamedPart> part_from_name(std::string_view name);

/// "recomputation", "blocking ep communication", "attention": in a sentence.
std::string text_of(const NamedPart& part);
/// "launch-starved", "transfer ep": in a legend.
std::string label_of(const NamedPart& part);

}  // namespace moetune::base
