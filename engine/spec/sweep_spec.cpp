// Reads a sweep file: the trial part is a trial spec without the parts a sweep decides itself, the
// rest is the search.
#include "engine/spec/sweep_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "engine/spec/fields.h"
#include "engine/spec/other_knobs.h"
#include "engine/spec/spec_files.h"
#include "engine/spec/trial_fields.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr double kMaxCount = 1e6;

std::span<const Field<SweepBudget>> budget_fields() {
  static constexpr Field<SweepBudget> kRows[] = {
      field<&SweepBudget::max_trials>({.key = "max_trials",
                                       .limits = {static_cast<double>(kMinTrials), kMaxCount},
                                       .help = "Runs that may be started, repeats included."}),
      field<&SweepBudget::min_trials>(
          {.key = "min_trials",
           .limits = {0, kMaxCount},
           .help = "Runs that are started even where none is predicted to gain enough, so that "
                   "more of the space is seen; as far as the phases have any."}),
      field<&SweepBudget::max_seconds>({.key = "max_seconds",
                                        .quantity = Quantity::seconds,
                                        .limits = {1, kMaxCount},
                                        .help = "Wall time of the sweep."}),
      field<&SweepBudget::trial_timeout_s>(
          {.key = "trial_timeout_s",
           .quantity = Quantity::seconds,
           .limits = {0.1, kMaxCount},
           .help = "A trial without a new step for so long is hung."}),
  };
  return kRows;
}

std::span<const Field<SweepSpec>> sweep_fields() {
  static constexpr Field<SweepSpec> kRows[] = {
      field<&SweepSpec::name>({.key = "name",
                               .quantity = Quantity::text,
                               .help = "What reports call the sweep.",
                               .presence = Presence::required}),
      field<&SweepSpec::strategy>(
          {.key = "strategy",
           .quantity = Quantity::text,
           .help = "How the space is searched; there is only three_walls today."}),
      object_field<&SweepSpec::engine, &engine_fields>(
          {.key = "engine",
           .quantity = Quantity::text,
           .help = "Somebody else's engine that trains, in place of moetune's own."}),
      object_field<&SweepSpec::budget, &budget_fields>(
          {.key = "budget", .quantity = Quantity::text, .help = "When the search ends."}),
      field<&SweepSpec::scale_trials>({.key = "scale_trials",
                                       .limits = {0, kMaxCount},
                                       .help = "Layouts measured in the scale phase."}),
      field<&SweepSpec::min_gain_ratio>(
          {.key = "min_gain_ratio",
           .quantity = Quantity::ratio,
           .limits = {0, 1},
           .help = "Smaller gains are never kept, however quiet the machine is."}),
      field<&SweepSpec::validate_steps>({.key = "validate_steps",
                                         .limits = {1, kMaxCount},
                                         .help = "Steps of the last run, of the winner."}),
      field<&SweepSpec::validate_max_loss>(
          {.key = "validate_max_loss",
           .limits = {0, kMaxCount},
           .help =
               "The mean of the last quarter of that run's losses, of ten steps at most, has to "
               "fall below this; 0: not checked."}),
      field<&SweepSpec::memory_margin_ratio>(
          {.key = "memory_margin_ratio",
           .quantity = Quantity::ratio,
           .limits = {0, 0.99},
           .help = "Share of the memory that a predicted peak has to leave free."}),
  };
  return kRows;
}

/// One allowed value, brought into the form that get_knob gives.
std::string axis_value(const json& value, const KnobRow& row, const Knobs& base,
                       const JsonReader& space) {
  if (!value.is_string() && !value.is_boolean() && !value.is_number_integer()) {
    space.fail(row.name, fmt::format("a list of values ({})", row.values));
  }
  Knobs knobs = base;
  try {
    set_knob(knobs, row, value.is_string() ? value.get<std::string>() : value.dump());
  } catch (const base::UsageError& error) {
    space.refuse(row.name, error.what());
  }
  return get_knob(knobs, row);
}

void read_space(JsonReader space, SweepSpec& sweep) {
  for (const KnobRow& row : knob_table()) {
    space.ignore(row.name);
    if (!space.has(row.name)) continue;
    std::vector<std::string>& values = sweep.space[std::string(row.name)];
    for (const json& value : space.array(row.name)) {
      std::string text = axis_value(value, row, sweep.base.knobs, space);
      for (const std::string& other : values) {
        if (other == text)
          space.fail(row.name, fmt::format("each value once, '{}' is there twice", text));
      }
      values.push_back(std::move(text));
    }
    if (values.empty()) space.fail(row.name, fmt::format("at least one value ({})", row.values));
  }
  space.refuse_unknown_keys(kOtherKnobs);
  // Every layout is predicted before the first is measured.
  constexpr int64_t kMostLayouts = 20'000;
  int64_t num_layouts = 1;
  for (const auto& [name, values] : sweep.space) {
    const KnobRow* row = find_knob(name);
    if (row->group != "parallelism" && row->group != "batch") continue;
    num_layouts = std::min(num_layouts * static_cast<int64_t>(values.size()), kMostLayouts + 1);
    if (num_layouts <= kMostLayouts) continue;
    space.fail(name,
               fmt::format("fewer values: parallelism and batch axes span more than {} layouts",
                           kMostLayouts));
  }
}

// Configurations are told apart by the 95 % interval of a median, which six values are the fewest
// for, and the workflow reads the wall from a trace.
void check_measurement(const JsonReader& reader, const SweepSpec& sweep) {
  constexpr int64_t kFewestSteps = 6;
  if (sweep.base.num_steps < kFewestSteps) {
    reader.fail("num_steps", fmt::format("at least {}: fewer have no 95 % interval", kFewestSteps));
  }
  if (sweep.strategy != "three_walls") return;
  if (sweep.base.trace == TraceLevel::none)
    reader.fail("trace", "ops or all: the wall is read from a trace");
  if (sweep.base.num_traced_steps < 1) {
    reader.fail("num_traced_steps", "at least 1: the wall is read from a trace");
  }
}

/// Of a run of somebody else's engine.
std::span<const Field<TrialSpec>> engine_run_fields() {
  static constexpr Field<TrialSpec> kRows[] = {
      // Fewer have no 95 % interval.
      field<&TrialSpec::num_steps>({.key = "num_steps",
                                    .limits = {6, kMaxCount},
                                    .help = "Steps of each trial that are measured."}),
      field<&TrialSpec::num_warmup_steps>({.key = "num_warmup_steps",
                                           .limits = {1, kMaxCount},
                                           .help = "Steps before them, not measured."}),
  };
  return kRows;
}

/// Defaults for other engines: their launches are slow.
SweepSpec engine_sweep_defaults() {
  SweepSpec sweep;
  sweep.base.num_steps = 10;
  sweep.base.num_warmup_steps = 3;
  sweep.base.num_traced_steps = 0;
  sweep.base.clock = ClockMode::wall;
  sweep.budget.trial_timeout_s = 1800;
  sweep.budget.max_seconds = static_cast<int64_t>(kMaxCount);
  return sweep;
}

/// A sweep of another engine. Keys of our own engine are refused.
SweepSpec engine_sweep_from_json(const json& document, const Source& source,
                                 const std::string& folder) {
  JsonReader reader(document, source);
  SweepSpec sweep = engine_sweep_defaults();
  Problems problems;
  read_fields(reader, sweep_fields(), sweep, problems);
  const bool is_engine_read = problems.empty();
  read_fields(reader, engine_run_fields(), sweep.base, problems);
  sweep.engine.folder = folder;
  sweep.has_model = reader.has("model");
  sweep.has_hardware = reader.has("hardware");
  reader.ignore("model");
  reader.ignore("hardware");
  if (sweep.has_model) problems.attempt([&] { sweep.base.model = read_model(reader, folder); });
  if (sweep.has_hardware) {
    problems.attempt([&] { sweep.base.hardware = read_hardware(reader, folder); });
  }
  problems.attempt([&] {
    if (!reader.has("space")) reader.fail("space", "what may be changed, with its values");
    const JsonReader space = reader.object("space");
    // Which names it may hold depends on the engine's dialect.
    if (is_engine_read) {
      sweep.space = read_engine_space(space, reader.value("space"), sweep.engine.dialect);
    }
  });
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  problems.throw_if_any();
  return sweep;
}

}  // namespace

SweepSpec sweep_from_json(const json& document, const Source& source, const std::string& folder) {
  if (document.is_object() && document.contains("engine")) {
    return engine_sweep_from_json(document, source, folder);
  }
  JsonReader reader(document, source);
  SweepSpec sweep;
  TrialSpec& base = sweep.base;
  Problems problems;
  read_fields(reader, sweep_fields(), sweep, problems);
  read_file_parts(reader, folder, base, problems);
  read_trial_run(reader, base, problems);
  check_learning_rates(reader, base.training, problems);
  if (!base.data_path.empty()) base.data_path = data_path_of(base.data_path, folder);
  reader.ignore("space");
  if (reader.has("space")) {
    problems.attempt([&] { read_space(reader.object("space"), sweep); });
  }
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  problems.attempt([&] { check_measurement(reader, sweep); });
  problems.throw_if_any();
  return sweep;
}

std::vector<FieldPage> sweep_pages() {
  std::vector<FieldPage> pages = trial_part_pages();
  const FieldPage space{{.key = "space",
                         .quantity = Quantity::text,
                         .help = "What may be changed: knobs with their allowed values. Knobs that "
                                 "are absent stay as they are."},
                        FieldKind::space,
                        json::object(),
                        {},
                        {}};
  pages.push_back(space);
  for (std::vector<FieldPage> more : {pages_of(sweep_fields(), SweepSpec{}), trial_run_pages()}) {
    std::move(more.begin(), more.end(), std::back_inserter(pages));
  }
  return pages;
}

std::vector<FieldPage> engine_sweep_pages() {
  const SweepSpec defaults = engine_sweep_defaults();
  std::vector<FieldPage> pages = pages_of(sweep_fields(), defaults);
  for (FieldPage& page : pages) {
    if (page.info.key == "engine") page.info.presence = Presence::required;
  }
  const FieldPage space{
      {.key = "space",
       .quantity = Quantity::text,
       .help = "What may be changed: knobs of plans (`moetune knobs --plans`), the engine's own "
               "flags or paths (\"--lr\", \"optimizer.lr\"), variables of the environment, with "
               "their allowed values.",
       .presence = Presence::required},
      FieldKind::settings,
      json::object(),
      {},
      {}};
  pages.push_back(space);
  for (FieldPage page : trial_part_pages()) {
    if (page.kind != FieldKind::model && page.kind != FieldKind::hardware) continue;
    page.info.presence = Presence::optional;
    page.info.help = page.kind == FieldKind::model
                         ? "The model, where the run does not say its sizes: for predictions."
                         : "The cluster: for predictions, and for what fits.";
    pages.push_back(std::move(page));
  }
  for (FieldPage& page : pages_of(engine_run_fields(), defaults.base)) {
    pages.push_back(std::move(page));
  }
  return pages;
}

}  // namespace moetune::spec
