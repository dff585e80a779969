// The rows of the key 'engine', and the space of such a sweep.
#include "engine/spec/engine_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/knobs.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr size_t kMostNameBytes = 200;
constexpr size_t kMostValueBytes = 4096;
constexpr size_t kMostValues = 1000;

bool all_of(std::string_view text, std::string_view more, bool takes_small) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (takes_small && c >= 'a' && c <= 'z') || more.find(c) != std::string_view::npos;
  });
}

/// A value as text. Of raw names true is a switch that is said, false one that is left out.
std::string setting_text(const json& value, std::string_view name, const JsonReader& space) {
  if (!value.is_string() && !value.is_boolean() && !value.is_number()) {
    space.fail(name, "a list of texts, numbers, true or false");
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const bool is_plain = std::ranges::none_of(text, [](char c) { return c >= 0 && c < ' '; });
  if (!is_plain || text.empty() || text.size() > kMostValueBytes) {
    space.fail(name, fmt::format("values of 1 to {} characters on one line", kMostValueBytes));
  }
  return text;
}

std::string knob_text(const std::string& text, const PlanKnobRow& row, const JsonReader& space) {
  PlanKnobs knobs;
  try {
    set_plan_knob(knobs, row, text);
  } catch (const base::UsageError& error) {
    space.refuse(row.name, error.what());
  }
  return get_plan_knob(knobs, row);
}

/// Also by Megatron's name, without dashes in front, as `moetune knobs` has it. Names whose values
/// are other words there (cp_comm_type's) are left out: they would be misread.
const PlanKnobRow* knob_called(std::string_view name, EngineDialect dialect) {
  if (dialect == EngineDialect::command || name.starts_with('-')) return nullptr;
  if (const PlanKnobRow* row = find_plan_knob(name)) return row;
  std::string plain(name);
  std::ranges::replace(plain, '-', '_');
  if (const KnobRow* own = find_knob(plain)) {
    for (const LayoutSize& size : layout_sizes()) {
      if (own->member == KnobMember(size.member)) return find_plan_knob(size.name);
    }
  }
  for (const dialects::Row& row : dialects::knob_rows()) {
    const bool is_alike = std::holds_alternative<PlanKnobMember>(row.target) && row.words.empty() &&
                          !dialects::is_inverted(row, dialects::Dialect::megatron_lm);
    std::string theirs = dialects::key_of(row, dialects::Dialect::megatron_lm);
    if (!is_alike || theirs.empty()) continue;
    theirs.erase(0, theirs.find_first_not_of('-'));
    std::ranges::replace(theirs, '-', '_');
    if (theirs == plain) return find_plan_knob(row.name);
  }
  return nullptr;
}

[[noreturn]] void refuse_name(const std::string& name, EngineDialect dialect,
                              const JsonReader& space) {
  std::vector<std::string> names;
  for (const PlanKnobRow& row : plan_knob_table()) names.emplace_back(row.name);
  const std::string nearest = nearest_name(name, names);
  space.fail(name.substr(0, kMostNameBytes),
             fmt::format("{}a flag (--name), a path (section.name) or a variable (NAME){}",
                         dialect == EngineDialect::command ? "" : "a knob of `moetune plan`, ",
                         nearest.empty() || dialect == EngineDialect::command
                             ? std::string()
                             : fmt::format("; did you mean '{}'?", nearest)));
}

}  // namespace

std::optional<dialects::Dialect> dialect_of(EngineDialect engine) {
  for (const EngineDialectRow& row : NameTable<EngineDialect>::kRows) {
    if (row.value == engine) return row.dialect;
  }
  return std::nullopt;
}

std::span<const Field<EngineSpec>> engine_fields() {
  static constexpr Field<EngineSpec> kRows[] = {
      field<&EngineSpec::dialect>({.key = "dialect",
                                   .quantity = Quantity::text,
                                   .help = "Whose words its settings have; command: only those "
                                           "that the space itself says.",
                                   .presence = Presence::required}),
      field<&EngineSpec::run>({.key = "run",
                               .quantity = Quantity::text,
                               .help = "What /bin/sh runs in the sweep file's folder, to its end. "
                                       "{flags}: settings that differ; {all_flags}: all of them; "
                                       "{config}: a file with all; {out}: the trial's folder; "
                                       "{trial}: its name; {steps}: how many.",
                               .presence = Presence::required}),
      field<&EngineSpec::config>({.key = "config",
                                  .quantity = Quantity::text,
                                  .help = "The run's settings without {flags}: a file, or a "
                                          "command; empty: they stand in `run`, or in a "
                                          "script that it starts."}),
      field<&EngineSpec::log>({.key = "log",
                               .quantity = Quantity::text,
                               .help = "Where its log is, with *, {out}; several by blanks; empty: "
                                       "what `run` prints."}),
      field<&EngineSpec::trace>({.key = "trace",
                                 .quantity = Quantity::text,
                                 .help = "Where its traces are: files or folders, as `log`; empty: "
                                         "{out}."}),
      field<&EngineSpec::profile>({.key = "profile",
                                   .quantity = Quantity::text,
                                   .help = "Flags or overrides of the run that is profiled; empty: "
                                           "those of the dialect; none: nothing is profiled."}),
      field<&EngineSpec::stop>({.key = "stop",
                                .quantity = Quantity::text,
                                .help = "What /bin/sh runs where a trial has to be ended, such as "
                                        "scancel -n moetune-{trial}."}),
      field<&EngineSpec::gpus>({.key = "gpus",
                                .limits = {0, 1e6},
                                .help = "Ranks of the run; 0: as its settings, or else the "
                                        "hardware, say."}),
      field<&EngineSpec::loss_band_ratio>(
          {.key = "loss_band_ratio",
           .quantity = Quantity::ratio,
           .limits = {0, 1},
           .help = "How far the loss of a step may be off the baseline's."}),
  };
  return kRows;
}

RawForm raw_form_of(std::string_view name, EngineDialect dialect) {
  if (name.empty() || name.size() > kMostNameBytes) return RawForm::none;
  if (name.starts_with("-")) {
    const bool is_flag = name.size() > 1 && all_of(name, "-_.", true);
    return is_flag && dialect != EngineDialect::primus ? RawForm::flag : RawForm::none;
  }
  const char first = name.front();
  if (first >= '0' && first <= '9') return RawForm::none;
  if (first != '_' && all_of(name, "_", false)) return RawForm::variable;
  if (!all_of(name, "_.", true)) return RawForm::none;
  if (name.find('.') != std::string_view::npos) {
    const bool has_paths =
        dialect == EngineDialect::megatron_bridge || dialect == EngineDialect::torchtitan;
    return has_paths ? RawForm::path : RawForm::none;
  }
  return dialect == EngineDialect::primus ? RawForm::key : RawForm::none;
}

std::map<std::string, std::vector<std::string>> read_engine_space(JsonReader space,
                                                                  const json& values,
                                                                  EngineDialect dialect) {
  std::map<std::string, std::vector<std::string>> axes;
  for (const auto& [name, ignored] : values.items()) {
    const PlanKnobRow* row = knob_called(name, dialect);
    if (row != nullptr && row->name == "dp") {
      space.refuse(name, "follows from the ranks and the other sizes");
    }
    if (row == nullptr && raw_form_of(name, dialect) == RawForm::none) {
      refuse_name(name, dialect, space);
    }
    const auto [place, is_new] = axes.try_emplace(row == nullptr ? name : std::string(row->name));
    if (!is_new) {
      space.refuse(
          name, fmt::format("the knob '{}' has values under another name already", place->first));
    }
    std::vector<std::string>& axis = place->second;
    for (const json& value : space.array(name)) {
      std::string text = setting_text(value, name, space);
      if (row != nullptr) text = knob_text(text, *row, space);
      if (std::ranges::find(axis, text) != axis.end()) {
        space.fail(name, fmt::format("each value once, '{}' is there twice", text));
      }
      axis.push_back(std::move(text));
    }
    if (axis.empty() || axis.size() > kMostValues) {
      space.fail(name, fmt::format("1 to {} values", kMostValues));
    }
  }
  return axes;
}

}  // namespace moetune::spec
