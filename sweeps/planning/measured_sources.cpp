#include "sweeps/planning/measured_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/megatron_flags.h"
#include "engine/spec/source.h"
#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "profiler/store/store.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/rates_file.h"
#include "sweeps/planning/row_files.h"
#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/run_folder.h"

namespace moetune::sweeps {

namespace {

namespace planner = tuner::planner;

/// What is behind the factor of a case (fit_case), in the weights of runs_of. Of what others
/// published few models are measured in each case, and what is left of these is mostly their own:
/// with 6 runs that the fit had not seen are predicted as well as without factors
/// (docs/planner.md), with less the median gets worse. Of runs on one's own cluster the first
/// counts half.
constexpr double kPriorOfOthers = 6;
constexpr double kPriorOfOwn = 1;

/// All but what was measured, where, and where that is written. The release counts as the one that
/// the rates are for, as plans take it.
MeasuredSample sample_of_run(const spec::dialects::RunConfig& config,
                             std::shared_ptr<const spec::ModelSpec> model,
                             std::shared_ptr<const spec::HardwareSpec> hardware) {
  if (model == nullptr && !model_of_recipe(config).empty()) {
    throw base::UsageError(
        "the run leaves its sizes and its layout to a recipe: name the model with --model");
  }
  const OwnedRun owned = owned_run(config, std::move(model), std::move(hardware));
  MeasuredSample sample;
  sample.model = owned.model;
  sample.hardware = owned.hardware;
  sample.step = std::make_shared<const planner::PreparedStep>(owned.run);
  sample.is_own = true;
  sample.precision = spec::name_of(owned.run.knobs.precision);
  sample.routing = routing_of_case(
      *owned.model, spec::dialects::forces_balance(config) ? "forced_balance" : "natural");
  return sample;
}

}  // namespace

CaseKey MeasuredSample::key() const { return {machine, precision, routing, half_year_of(months)}; }

std::string MeasuredSample::part() const {
  return fmt::format("{}|{}|{}", model->family, model->num_parameters(), machine);
}

std::vector<MeasuredSample> samples_of_rows(const std::string& path) {
  std::vector<MeasuredSample> samples;
  for (const PublishedRow& row : load_rows(path)) {
    if (!row.reason.empty() || !row.is_for_throughput || row.is_suspect || !row.tokens_per_s ||
        *row.tokens_per_s <= 0) {
      continue;
    }
    samples.push_back({row.model,
                       row.hardware,
                       std::make_shared<const planner::PreparedStep>(row.run),
                       *row.tokens_per_s,
                       row.months,
                       row.id.substr(0, row.id.rfind('-')),
                       false,
                       row.hardware_name,
                       std::string(spec::name_of(row.run.knobs.precision)),
                       routing_of_case(*row.model, row.routing),
                       row.group,
                       {row.id, 0, *row.tokens_per_s, priced_configuration(row)}});
  }
  if (samples.empty()) throw base::UsageError("--rows: no row says model, layout and throughput");
  return samples;
}

std::vector<MeasuredSample> samples_of_database(const std::string& path,
                                                std::vector<std::string>& notes) {
  std::vector<MeasuredSample> samples;
  std::set<std::string> told;
  const store::Store store = store::Store::open_read_only(path);
  for (const store::TrialRow& trial : store.list_trials()) {
    const bool is_ok = spec::find_status(trial.status) == spec::TrialStatus::ok;
    if (!is_ok || !trial.tokens_per_s || *trial.tokens_per_s <= 0) continue;
    const std::string source = fmt::format("{} trial {}", path, trial.id);
    const spec::TrialSpec spec =
        spec::trial_spec_from_json(spec::parse_json(trial.spec_json, source), spec::Source(source));
    if (spec::ranks_of(spec) == spec::RanksAre::alone) {
      if (told.insert("alone").second) {
        notes.emplace_back("trials of one rank alone say no throughput of a cluster: left out");
      }
      continue;
    }
    if (!(spec.hardware.peak_flops_per_s > 0) || !(spec.hardware.memory_bytes_per_s > 0)) {
      if (told.insert("peaks").second) {
        notes.emplace_back(
            "trials on hardware without peak_flops_per_s and memory_bytes_per_s say "
            "nothing of shares of them: left out");
      }
      continue;
    }
    if (spec.hardware.peak_flops_per_s < kSlowestGpu && told.insert("slow").second) {
      notes.push_back(
          fmt::format("trials on {}: peak_flops_per_s is {:.2g}, which no GPU that plans are for "
                      "has; rates of a CPU say nothing of theirs",
                      spec.hardware.name, spec.hardware.peak_flops_per_s));
    }
    const spec::MegatronFlags flags = spec::megatron_flags(spec.model, spec.training, spec.dtype,
                                                           spec.knobs, spec.hardware.num_devices());
    for (const std::string& note : flags.notes) {
      if (told.insert(note).second) notes.push_back(note);
    }
    std::string command = "pretrain_gpt.py";
    for (const std::string& word : spec::words_of(flags)) command += " '" + word + "'";
    spec::dialects::ImportOptions how;
    how.source = fmt::format("{} trial {}", path, trial.id);
    how.world_size = spec.hardware.num_devices();
    MeasuredSample sample = sample_of_run(
        spec::dialects::import_run(command, spec::dialects::Dialect::megatron_lm, how),
        std::make_shared<const spec::ModelSpec>(spec.model),
        std::make_shared<const spec::HardwareSpec>(spec.hardware));
    sample.tokens_per_s = *trial.tokens_per_s / static_cast<double>(spec.hardware.num_devices());
    sample.source = path;
    sample.machine = spec.hardware.name;
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) {
    throw base::UsageError(fmt::format(
        "{}: no trial of several ranks on hardware with stated peaks has ended well", path));
  }
  return samples;
}

MeasuredSample sample_of_log(const std::string& path, const std::string& hardware,
                             std::shared_ptr<const spec::ModelSpec> model,
                             std::vector<std::string>& notes) {
  const std::vector<std::string> logs = find_run_files(path).logs;
  if (logs.empty()) throw base::UsageError(fmt::format("{}: is or holds no log of a run", path));
  const RunFacts facts = read_run(logs);
  const auto refuse = [&](const char* what) {
    throw base::UsageError(fmt::format("{}: the log does not say {}", path, what));
  };
  if (!facts.config) refuse("its configuration: it echoes neither arguments nor a command");
  if (!facts.world_size) refuse("how many ranks it has");
  if (!facts.tokens_per_s_per_gpu || *facts.tokens_per_s_per_gpu <= 0) {
    refuse("how fast it is: steps after the warm-up, with batch size and sequence length");
  }
  for (const std::string& note : facts.notes) notes.push_back(fmt::format("{}: {}", path, note));
  MeasuredSample sample =
      sample_of_run(*facts.config, std::move(model), machine_of(hardware, *facts.world_size));
  sample.tokens_per_s = *facts.tokens_per_s_per_gpu;
  const planner::PlanRun& run = sample.step->run();
  const double peak = planner::peak_flops_per_s(*run.hardware, run.knobs.precision);
  const double reached = sample.tokens_per_s * run.model->training_flops_per_token(run.seq_length);
  // Adapters leave out the gradients of all other weights.
  if (peak > 0 && run.knobs.task != spec::TrainingTask::lora && reached > peak) {
    throw base::UsageError(fmt::format(
        "{}: {:.0f} TFLOP/s are more than the {:.0f} that {} has: it is of another device or model",
        path, reached / 1e12, peak / 1e12, run.hardware->name));
  }
  sample.source = path;
  sample.machine = sample.hardware->name;
  return sample;
}

std::vector<planner::MeasuredRun> runs_of(const std::vector<const MeasuredSample*>& samples) {
  std::map<std::string, int> counts;
  for (const MeasuredSample* sample : samples) ++counts[sample->part()];
  std::vector<planner::MeasuredRun> runs;
  for (const MeasuredSample* sample : samples) {
    runs.push_back({sample->step.get(),
                    {sample->months},
                    sample->tokens_per_s,
                    1 / std::sqrt(static_cast<double>(counts[sample->part()]))});
  }
  return runs;
}

std::vector<CalibrationCase> cases_of(const std::vector<const MeasuredSample*>& samples,
                                      planner::Rates rates) {
  rates.case_factor = planner::no_case_factors();
  const std::vector<planner::MeasuredRun> runs = runs_of(samples);
  struct OfKey {
    std::vector<planner::MeasuredRun> runs;
    bool has_own = false;
  };
  std::map<CaseKey, OfKey> by_key;
  for (size_t i = 0; i < samples.size(); ++i) {
    OfKey& of_key = by_key[samples[i]->key()];
    of_key.runs.push_back(runs[i]);
    of_key.has_own = of_key.has_own || samples[i]->is_own;
  }
  std::vector<CalibrationCase> cases;
  for (const auto& [key, of_key] : by_key) {
    const planner::CaseFit fit =
        planner::fit_case(of_key.runs, rates, of_key.has_own ? kPriorOfOwn : kPriorOfOthers);
    std::vector<double> errors;
    for (const planner::MeasuredRun& run : of_key.runs) {
      errors.push_back(std::abs(planner::log_error(run, rates) - std::log(fit.factor)));
    }
    cases.push_back({key, static_cast<int64_t>(of_key.runs.size()), profiler::median(errors),
                     fit.factor, fit.low, fit.high});
  }
  return cases;
}

}  // namespace moetune::sweeps
