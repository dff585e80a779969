// The table of remedies: a row for each change that helps against a cause of a wall.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/step_parts.h"
#include "profiler/analysis/group_costs.h"
#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/trace_causes.h"

namespace moetune::sweeps {

/// A setting that no knob stands for, in nobody's words yet.
struct ProposedSetting {
  enum class Wanted : uint8_t {
    on,        ///< a switch
    at_least,  ///< a number, and twice the framework's default if that is more
    at_most,   ///< a number
    word,      ///< this one and no other
    variable,  ///< of the environment
  };
  std::string_view name;  ///< of a row in carried_table.cpp, or of the variable
  std::string_view value;
  Wanted wanted = Wanted::on;
  std::string_view name_on_rocm = {};  ///< where that is another; else empty
};

struct RemedyRow {
  /// What the traces have to show for the change to move anything.
  enum class Needs : uint8_t {
    nothing,
    row_exchange,        ///< ranks send each other rows of their experts
    rows_between_nodes,  ///< the same, and there are several nodes
    several_nodes,       ///< that alone
  };

  std::string_view rule;
  base::Wall label;
  /// Sub-causes that it helps against (SubCauseRow::name, or "oom" and "host memory"). Empty: all.
  std::array<std::string_view, 3> sub_causes;
  std::string_view why;
  /// Applies the change. False if it is in effect already or does not apply to the run. Null: not a
  /// choice among knobs; `settings` are proposed.
  bool (*change)(spec::PlanKnobs&);
  /// The first that the framework has a word for decides whether the remedy is in effect already.
  std::array<ProposedSetting, 2> settings = {};
  bool is_for_experts = false;  ///< says nothing to a dense model
  double most_saved = 1;        ///< of the time of its sub-causes
  Needs needs = Needs::nothing;
  /// The groups of ranks (group_words.h) whose communication it changes. Empty: any.
  std::array<std::string_view, 3> groups = {};
  /// Applied where the framework has no word for `change`, or the model nothing that it changes;
  /// null: nothing is.
  bool (*change_instead)(spec::PlanKnobs&) = nullptr;
  /// The kernels that it changes: how long they run, or against the host how long launching them
  /// takes. Empty: any.
  std::span<const profiler::KernelClass> kernels = {};
  double most_of_step = 1;  ///< what it saves at most, whatever its sub-causes cost
  /// Whether it says anything to a run with these knobs; null: to any.
  bool (*is_for)(const spec::PlanKnobs&) = nullptr;
  /// Whose run it has to be; none: anybody's.
  std::optional<spec::dialects::Dialect> dialect = std::nullopt;
  /// The part of waiting for input that it can save; null: all of its causes.
  double (*part_of_loader)(const profiler::LoaderParts&) = nullptr;
  /// What of its groups' communication it changes.
  profiler::CollectiveKind collectives = profiler::CollectiveKind::any;
  /// Of a change to gathers: it overlaps reductions as well, where they are not overlapped yet.
  bool overlaps_reductions = false;
};

/// Where a cause has several remedies, the cheaper one to try stands first.
std::span<const RemedyRow> remedy_rows();

}  // namespace moetune::sweeps
