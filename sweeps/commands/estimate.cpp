// moetune estimate: memory and throughput of runs, without running them.
#include "sweeps/planning/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/load.h"
#include "sweeps/planning/like_runs.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/row_files.h"
#include "sweeps/planning/trial_estimate.h"
#include "sweeps/table.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

constexpr const char* kEstimateHelp =
    R"(Says how much memory runs need and how fast they are, on machines that need not be here.
--rows FILE prices every row of a JSON array of runs, in the format of published results, and
compares with what each says was measured. --run prices one run, in the words of Megatron-LM,
Megatron-Bridge, torchtitan or Primus, on --gpus devices of --hardware, or as many as it says. SPEC
prices a trial of moetune's own engine: its memory is what the ledger will say where routing is as
uneven as --imbalance.)";

std::string percent(const json& value) {
  return value.is_number() ? fmt::format("{:+.1f} %", 100 * value.get<double>()) : "";
}

/// With what a run may fit that is far above the device's memory as it is priced.
std::string remark_of(const json& row) {
  const auto choices = row["needed_choices"].get<std::vector<std::string>>();
  return choices.empty() ? std::string() : fmt::format("may fit with {}", fmt::join(choices, ", "));
}

void print_rows(const json& document) {
  TextTable table({{"id"},
                   {"memory", TextTable::Align::right},
                   {"off by", TextTable::Align::right},
                   {"verdict"},
                   {"load", TextTable::Align::right},
                   {"TFLOP/s", TextTable::Align::right},
                   {"off by", TextTable::Align::right},
                   {"wall"},
                   {"remark"}});
  for (const json& row : document["rows"]) {
    if (!row["supported"].get<bool>()) {
      table.add({row["id"].get<std::string>(), "", "", "", "", "", "", "",
                 row["reason"].get<std::string>()});
      continue;
    }
    const auto off = [&](const char* predicted, const char* published) {
      return row[published].is_number() && row[published].get<double>() > 0
                 ? percent(row[predicted].get<double>() / row[published].get<double>() - 1)
                 : std::string{};
    };
    table.add({row["id"].get<std::string>(),
               base::format_bytes(row["peak_allocated_bytes"].get<int64_t>()),
               off("peak_allocated_bytes", "published_peak_allocated_bytes"),
               row["verdict"].get<std::string>(), load_text(row["load_that_fits"].get<double>()),
               fmt::format("{:.0f}", row["tflops_per_gpu"].get<double>()),
               off("tokens_per_s_per_gpu", "published_tokens_per_s_per_gpu"),
               row["wall"].get<std::string>(), remark_of(row)});
  }
  std::cout << table.text(std::nullopt);
  const json& summary = document["summary"];
  std::cout << fmt::format(
      "\nload: fits while the busiest rank's experts get at most so many times their share "
      "(without experts: 16 and more, or -)\n"
      "{} rows, {} priced\n",
      summary["num_rows"].get<int>(), summary["num_supported"].get<int>());
  for (const auto& [key, what] :
       {std::pair{"memory_error_ratio", "memory"}, {"throughput_log_error", "throughput"}}) {
    const json& errors = summary[key];
    if (errors["count"].get<int>() == 0) continue;
    std::cout << fmt::format("{}: {} rows, mean error {:.1f} %, median {:.1f} %, worst {:.1f} %\n",
                             what, errors["count"].get<int>(), 100 * errors["mean"].get<double>(),
                             100 * errors["median"].get<double>(),
                             100 * errors["worst"].get<double>());
  }
  const json& order = summary["order"];
  if (order["tau"].is_number()) {
    std::cout << fmt::format("order of like rows: Kendall's tau {:.2f} in {} groups",
                             order["tau"].get<double>(), order["num_groups"].get<int>());
    if (order["num_of_same_configuration"].get<int>() > 0 &&
        order["tau_of_different"].is_number()) {
      std::cout << fmt::format(", {:.2f} without {} pairs that state the same configuration",
                               order["tau_of_different"].get<double>(),
                               order["num_of_same_configuration"].get<int>());
    }
    std::cout << '\n';
  }
  const json& all_pairs = summary["order_of_all_pairs"];
  if (all_pairs["tau"].is_number()) {
    std::cout << fmt::format(
        "order of all pairs, of other sequence lengths and within noise, too: Kendall's tau-b "
        "{:.2f} "
        "(tau-a {:.2f}) in {} groups\n",
        all_pairs["tau_b"].is_number() ? all_pairs["tau_b"].get<double>() : 0,
        all_pairs["tau"].get<double>(), all_pairs["num_groups"].get<int>());
  }
}

int estimate_one(const CommandOptions& options, const Calibration& loaded) {
  const std::string machine =
      machine_named(options.required("hardware", "a hardware file or name"));
  const int64_t asked_devices = options.integer("gpus", 1, 0);
  // Its own check of the number comes before the text is read.
  if (asked_devices > 0) static_cast<void>(machine_of(machine, asked_devices));
  const auto model = options.has("model") ? model_named(options.text("model")) : nullptr;
  spec::dialects::RunConfig config =
      run_config_of(options, "run", asked_devices, model.get(), devices_of(machine).value_or(1));
  const bool lacks_vocabulary = model != nullptr && take_vocabulary(*model, config);
  OwnedRun owned =
      owned_run(config, lacks_vocabulary ? nullptr : model, machine_of(machine, config.world_size));
  if (lacks_vocabulary) {
    owned.assumed.emplace_back(
        "the vocabulary is that of --model; all other sizes are the run's own");
  }
  if (std::string text = nodes_text(machine, *owned.hardware); !text.empty()) {
    owned.assumed.push_back(std::move(text));
  }
  // As plan prices its own: a command without a layout has the stages that Megatron makes.
  if (owned.run.is_of_megatron && owned.run.stages.empty() && owned.run.knobs.pp > 1 &&
      tuner::planner::splits_by_itself(owned.run)) {
    owned.run.stages = tuner::planner::unwritten_stages(owned.run);
  }
  if (!owned.run.is_of_megatron && owned.run.knobs.cross_entropy == spec::CrossEntropy::native) {
    owned.notes.emplace_back(
        "the loss is taken as compiled: torchtitan's releases of 2024 did not compile it, and take "
        "more memory for their logits (the upper end has it)");
  }
  const spec::PlanKnobs computed = tuner::planner::computed_knobs(owned.run);
  if (tuner::planner::has_own_modules(owned.run) &&
      computed.precision != owned.run.knobs.precision) {
    owned.notes.push_back(
        fmt::format("Megatron-Core's own modules know no recipe of 8 bits: they are priced in {}",
                    spec::name_of(computed.precision)));
  }
  if (computed.params_dtype != owned.run.knobs.params_dtype) {
    owned.notes.emplace_back(
        "torchtitan mixes no precision beside tensor or pipeline parallelism without FSDP: "
        "weights, activations and products are priced in 32 bits, but for those of experts and of "
        "8 bits");
  }
  if (!owned.run.is_of_megatron && tuner::planner::lacks_titan_shards(owned.run.knobs)) {
    owned.notes.emplace_back(
        "experts on several ranks have no shards beside them (data_parallel_shard_degree or "
        "context_parallel_degree above 1): most models of torchtitan 0.2.2 refuse that");
  }
  owned.run.load = options.ratio("imbalance", 1, 1000, 1);
  if (owned.model->num_experts > 0) owned.assumed.push_back(routing_assumption(owned.run.load));
  // A file of rates that is named leads.
  const Calibration of_machine =
      options.has("calibration") ? loaded : with_probed(loaded, *owned.hardware);
  const Calibration calibration =
      of_machine.for_case(*owned.hardware, routing_of_load(*owned.model, owned.run.load));
  const RunEstimate estimate = estimate_run(owned.run, calibration, {});
  std::optional<LikeRuns> published;
  if (options.has("published")) {
    const std::string file = options.text("published");
    published = find_like_runs(load_rows(file), file,
                               {owned.run, estimate.predicted_tokens_per_s,
                                static_cast<double>(owned.hardware->memory_bytes), machine, loaded,
                                of_machine, calibration, true, &config});
  }
  if (options.wants_json()) {
    json row = to_json(estimate);
    row["id"] = "run";
    row["supported"] = true;
    row["reason"] = nullptr;
    row["knobs"] = to_json(owned.run.knobs);
    row["assumed"] = owned.assumed;
    row["notes"] = owned.notes;
    add_settings(owned.settings, row);
    json document = {{"rows", {row}},
                     {"memory_terms", memory_terms_json()},
                     {"summary", {{"num_rows", 1}, {"num_supported", 1}}}};
    if (published) add_like_runs(*published, document);
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
    return 0;
  }
  std::cout << fmt::format(
      "{:.0f} TFLOP/s a GPU ({:.0f} to {:.0f}), {:.0f} tokens/s, {} a step ({})\n"
      "rank {} (stage {}): {} allocated ({} to {}), {}{}; wall {}\n",
      estimate.tflops.value, estimate.tflops.low, estimate.tflops.high, estimate.tokens_per_s.value,
      base::format_ns(std::llround(estimate.step_seconds.value * 1e9)), estimate.grade,
      estimate.rank, estimate.stage,
      base::format_bytes(std::llround(estimate.allocated_bytes.value)),
      base::format_bytes(std::llround(estimate.allocated_bytes.low)),
      base::format_bytes(std::llround(estimate.allocated_bytes.high)), name_of(estimate.verdict),
      load_words(owned.run, estimate), base::name_of(tuner::planner::wall_of(estimate.step)));
  std::cout << fmt::format("rates: {}\n",
                           rates_text(calibration, *owned.hardware, owned.run.knobs.precision,
                                      owned.run.is_of_megatron));
  std::cout << margin_text(estimate) << '\n';
  std::cout << "memory of that rank, in the "
            << estimate.memory.stages[static_cast<size_t>(estimate.stage)].moment << ":\n"
            << memory_text(estimate);
  for (const std::string& assumed : owned.assumed) std::cout << "assumed: " << assumed << '\n';
  for (const std::string& note : owned.notes) std::cout << "note: " << note << '\n';
  std::cout << settings_text(owned.settings);
  if (published) std::cout << to_text(*published);
  return 0;
}

/// A trial of our engine, by its own profile: its program is what runs.
int estimate_spec(const CommandOptions& options) {
  const spec::TrialSpec trial = options.trial().spec;
  check_can_run(trial, options.text("spec"));
  const TrialEstimate estimate = estimate_trial(trial, options.ratio("imbalance", 1, 1000, 1));
  if (options.wants_json()) {
    json row = {{"id", "trial"}, {"supported", true}, {"reason", nullptr}};
    row.update(to_json(estimate, trial));
    const json document = {{"rows", {row}}, {"summary", {{"num_rows", 1}, {"num_supported", 1}}}};
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
    return 0;
  }
  std::cout << text_of(estimate, trial);
  return 0;
}

}  // namespace

CommandOptions estimate_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "estimate (SPEC [--set KNOB=VALUE ...] | --rows FILE | --run COMMAND --hardware HARDWARE "
      "[--gpus N] [--model MODEL] [--published FILE]) [--calibration FILE] [--format text|json]",
      kEstimateHelp);
  options.add_trial();
  const auto text = [&](const char* name, const char* value, const char* help) {
    options.add()(name, po::value<std::string>()->value_name(value), help);
  };
  text("run", "COMMAND|FILE",
       "a command or configuration, a file with one, or - for standard input");
  text("dialect", "DIALECT", "whose words it has; default: told by its content");
  text("model", "MODEL", "a config.json or the name of a shipped model; default: the run's sizes");
  text("hardware", "HARDWARE", "a hardware file or the name of a shipped one");
  text("gpus", "N",
       "devices; default: the ranks that the run says, else those of the file, else 1");
  text("imbalance", "X", "rows of the busiest rank's experts over their share, default 1");
  options.add()("rows", po::value<std::string>()->value_name("FILE"),
                "runs to price, a JSON array; - for standard input");
  text("published", "FILE",
       "with --run: rows as of --rows; shows up to three that are like the run, and why it is "
       "slower");
  options.add()("calibration", po::value<std::string>()->value_name("FILE"),
                "rates from moetune calibrate, default the shipped fit to published runs");
  options.add_format();
  return options;
}

int run_estimate_command(const CommandOptions& options) {
  // What prices one kind of run says nothing of another.
  if (options.has("spec")) {
    options.refuse_beside("SPEC", {"hardware", "gpus", "model", "dialect", "calibration"});
  }
  if (options.has("rows")) {
    options.refuse_beside("--rows", {"hardware", "gpus", "model", "dialect", "imbalance", "set"});
  }
  if (options.has("run")) options.refuse_beside("--run", {"set"});
  const Calibration calibration = options.has("calibration")
                                      ? load_calibration(options.text("calibration"))
                                      : default_calibration();
  if (options.has("rows") + options.has("run") + options.has("spec") != 1) {
    throw base::UsageError("expected one of SPEC, --rows FILE and --run COMMAND");
  }
  if (options.has("published") && !options.has("run")) {
    throw base::UsageError("--published shows runs like that of --run, which is missing");
  }
  if (options.has("spec")) {
    check_is_no_command(options.text("spec"));
    return estimate_spec(options);
  }
  if (options.has("run")) return estimate_one(options, calibration);
  const std::vector<PublishedRow> rows = load_rows(options.text("rows"));
  const json document = estimate_rows(rows, calibration);
  if (options.wants_json()) {
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  } else {
    print_rows(document);
  }
  return 0;
}

}  // namespace moetune::sweeps
