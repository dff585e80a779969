// Looks the name up in every table that may have it.
#include "engine/spec/other_knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/megatron_flags.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/error.h"

namespace moetune::spec {
namespace {

/// "--micro-batch-size" as a key.
std::string as_key(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string key(name);
  std::ranges::replace(key, '-', '_');
  return key;
}

/// The knob that everybody calls "tp".
std::string knob_of_size(std::string_view short_name) {
  for (const LayoutSize& size : layout_sizes()) {
    if (size.name != short_name) continue;
    for (const KnobRow& row : knob_table()) {
      const auto* member = std::get_if<int64_t Knobs::*>(&row.member);
      if (member != nullptr && *member == size.member) return std::string(row.name);
    }
  }
  return {};
}

bool has_flag(const KnobRow& row, std::string_view key) {
  constexpr std::string_view kBetween = ", ";
  if (!has_megatron_flag(row)) return false;
  std::string_view flags = row.megatron_flag;
  while (true) {
    const size_t end = flags.find(kBetween);
    if (as_key(flags.substr(0, end)) == key) return true;
    if (end == std::string_view::npos) return false;
    flags.remove_prefix(end + kBetween.size());
  }
}

/// The knob whose flag in Megatron-LM, written as a key, this is.
std::string knob_of_flag(std::string_view key) {
  for (const KnobRow& row : knob_table()) {
    if (has_flag(row, key)) return std::string(row.name);
  }
  return {};
}

/// The one knob that begins so, a plural's s left out: cuda_graph_modules of "cuda_graphs".
std::string knob_begun_by(std::string_view name) {
  constexpr size_t kShortest = 6;
  if (name.ends_with('s')) name.remove_suffix(1);
  if (name.size() < kShortest) return {};
  std::string found;
  for (const KnobRow& row : knob_table()) {
    if (!row.name.starts_with(name)) continue;
    if (!found.empty()) return {};
    found = row.name;
  }
  return found;
}

/// A choice that plans make, by Megatron-LM's name.
const dialects::Row* megatron_choice(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::ranges::replace(flag, '_', '-');
  const dialects::Row* row = dialects::find_row(flag, dialects::Dialect::megatron_lm);
  const bool is_choice = row != nullptr && (std::holds_alternative<PlanKnobMember>(row->target) ||
                                            std::holds_alternative<dialects::Part>(row->target));
  return is_choice ? row : nullptr;
}

/// The flag of a knob of plans as a key; empty where it has none of its own.
std::string flag_of_plan_knob(const PlanKnobRow& plan) {
  for (const dialects::Row& row : dialects::knob_rows()) {
    if (row.name == plan.name) return as_key(dialects::key_of(row, dialects::Dialect::megatron_lm));
  }
  return {};
}

/// The engine's knob of another name that is the same thing; empty: there is none.
std::string counterpart_of(std::string_view key) {
  if (std::string knob = knob_of_size(key); !knob.empty()) return knob;
  if (std::string knob = knob_of_flag(key); !knob.empty()) return knob;
  const PlanKnobRow* plan = find_plan_knob(key);
  if (plan != nullptr) {
    if (const std::string flag = flag_of_plan_knob(*plan); !flag.empty()) {
      if (std::string knob = knob_of_flag(flag); !knob.empty()) return knob;
    }
  }
  if (std::string knob = knob_begun_by(key); !knob.empty()) return knob;
  // Megatron-LM says some things in several flags: --recompute-method, --cuda-graph-impl.
  const dialects::Row* choice = megatron_choice(key);
  const bool is_part = choice != nullptr && std::holds_alternative<dialects::Part>(choice->target);
  if (choice == nullptr || (plan != nullptr && !is_part)) return {};
  return knob_begun_by(key.substr(0, key.rfind('_')));
}

std::string gap_text(std::string_view what) {
  return fmt::format(
      "the engine does not run '{}' yet (rule engine_runs_knob), 'moetune plan' knows it", what);
}

/// Our name of a value by Megatron-LM's; empty: it is none.
template <class Value>
std::string_view value_of_megatron(std::string_view name) {
  for (const Value value : all_values<Value>()) {
    if (megatron_name(value) == name) return name_of(value);
  }
  return {};
}

bool takes(const PlanKnobRow& plan, std::string_view value) {
  try {
    PlanKnobs knobs;
    set_plan_knob(knobs, plan, value);
    return true;
  } catch (const base::UsageError&) {
    return false;
  }
}

}  // namespace

std::string knob_meant_by(std::string_view name) {
  const std::string key = as_key(name);
  if (std::string knob = counterpart_of(key); !knob.empty()) return knob;
  std::vector<std::string> names;
  for (const KnobRow& row : knob_table()) names.emplace_back(row.name);
  return nearest_name(key, names);
}

std::string engine_knob_gap(std::string_view name) {
  const std::string key = as_key(name);
  if (find_knob(key) != nullptr || !counterpart_of(key).empty()) return {};
  if (find_plan_knob(key) == nullptr && megatron_choice(key) == nullptr) return {};
  return gap_text(key);
}

std::string other_value_hint(const KnobRow& row, std::string_view value) {
  if (value.empty()) return {};
  const std::string_view meant = std::visit(
      [&](auto member) -> std::string_view {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, RecomputeSet Knobs::*>) {
          return value_of_megatron<RecomputeModule>(value);
        } else if constexpr (std::is_same_v<Member, CpCommType Knobs::*>) {
          return value_of_megatron<CpCommType>(value);
        } else {
          return {};
        }
      },
      row.member);
  if (!meant.empty()) return fmt::format("did you mean '{}'?", meant);
  for (const PlanKnobRow& plan : plan_knob_table()) {
    const bool is_same = plan.name == row.name || counterpart_of(plan.name) == row.name;
    if (is_same && takes(plan, value)) return gap_text(value);
  }
  return {};
}

}  // namespace moetune::spec
