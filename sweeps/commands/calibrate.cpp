// moetune calibrate: rates that plans stand on, from measured runs.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/document.h"
#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/load.h"
#include "sweeps/planning/measured_sources.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/rates_file.h"

namespace moetune::sweeps {
namespace {

namespace planner = tuner::planner;
using nlohmann::json;

constexpr const char* kCalibrateHelp =
    R"(Fits the rates that plans stand on (shares of peaks and bandwidths, host time, what overlap
leaves exposed) to measured runs: rows in the format of published results, the trials of databases,
logs of your own runs, and what moetune probe has written. The file that it writes goes behind
--calibration of plan and estimate. Rows marked suspect, rows that say no throughput and rows of
small test runs stay out.

Rows alone are fitted from the rates of the sources. What was measured on one machine says little of
most rates: it is fitted from the shipped fit, or from --calibration, and rates that it says nothing
of stay as they are there.

With --folds N nothing is written: rows are split into N parts, no model on one machine being in
two of them, each part is predicted by a fit to the others, and errors and order are printed.)";

using Samples = std::vector<const MeasuredSample*>;

/// The value of --date, empty where it is missing.
std::string checked_month(const CommandOptions& options) {
  std::string date = options.text("date");
  if (!options.has("date")) return date;
  const bool has_form =
      date.size() == 7 && date[4] == '-' &&
      std::ranges::count_if(date, [](char c) { return c >= '0' && c <= '9'; }) == 6;
  const std::string month = has_form ? date.substr(5) : "";
  if (month < "01" || month > "12") {
    throw base::UsageError(
        fmt::format("--date is '{}', expected a month such as 2026-06", date.substr(0, 40)));
  }
  return date;
}

json cross_validated(const std::vector<MeasuredSample>& samples, int64_t num_folds,
                     const std::function<std::string(const MeasuredSample&)>& part_of) {
  std::map<std::string, int64_t> folds;
  for (const MeasuredSample& sample : samples) folds.try_emplace(part_of(sample), 0);
  int64_t next = 0;
  for (auto& [part, fold] : folds) fold = next++ % num_folds;
  std::vector<double> errors;
  std::vector<double> signed_errors;
  GroupsOfRuns groups;
  for (int64_t fold = 0; fold < num_folds; ++fold) {
    Samples inside;
    Samples outside;
    for (const MeasuredSample& sample : samples) {
      (folds.at(part_of(sample)) == fold ? outside : inside).push_back(&sample);
    }
    if (outside.empty()) continue;  // fewer parts than folds
    Calibration fold_fit;
    fold_fit.rates = planner::fit_rates(runs_of(inside)).rates;
    fold_fit.cases = cases_of(inside, fold_fit.rates);
    for (const MeasuredSample* sample : outside) {
      const Calibration of_case =
          fold_fit.for_case(*sample->hardware, sample->routing, sample->months);
      signed_errors.push_back(planner::log_error(runs_of({sample}).front(), of_case.rates));
      errors.push_back(std::abs(signed_errors.back()));
      RankedRun run = sample->ranked;
      run.predicted = run.published * std::exp(signed_errors.back());
      groups[sample->group].push_back(std::move(run));
    }
  }
  return {{"num_folds", num_folds},
          {"order_of_all_pairs", order_of(groups, 0)},
          {"num_rows", errors.size()},
          {"median_error", profiler::median(errors)},
          {"p90_error", profiler::quantile(errors, 0.9)},
          {"bias", profiler::median(signed_errors)}};
}

}  // namespace

CommandOptions calibrate_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "calibrate [--rows FILE] [--db PATH ...] [--log PATH ... --hardware HARDWARE [--model "
      "MODEL]] [--probe FILE] [--calibration FILE] [--out FILE] [--date YYYY-MM] [--folds N]",
      kCalibrateHelp);
  options.add()("rows", po::value<std::string>()->value_name("FILE"),
                "measured runs, a JSON array; - for standard input");
  options.add()("db", po::value<std::vector<std::string>>()->value_name("PATH"),
                "a database of trials; may be repeated");
  options.add()("log", po::value<std::vector<std::string>>()->value_name("PATH"),
                "a log of a run, or the folder with those of its ranks; may be repeated");
  options.add()("hardware", po::value<std::string>()->value_name("HARDWARE"),
                "of the logs: a hardware file or the name of a shipped one");
  options.add()("model", po::value<std::string>()->value_name("MODEL"),
                "of the logs: a config.json or the name of a shipped model; default: the sizes "
                "that they echo");
  options.add()("probe", po::value<std::string>()->value_name("FILE"),
                "a hardware file that moetune probe has written");
  options.add()("calibration", po::value<std::string>()->value_name("FILE"),
                "rates to start from; default: of rows those of the sources, else the shipped fit");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write the rates, default standard output");
  options.add()(
      "date", po::value<std::string>()->value_name("YYYY-MM"),
      "of the releases that the rates describe, default this month; of rows alone 2026-06");
  options.add()("folds", po::value<std::string>()->value_name("N"),
                "predict each part by the others instead of writing");
  return options;
}

namespace {

/// What was measured, as the command line names it.
struct Measured {
  std::vector<MeasuredSample> samples;
  std::vector<std::string> notes;
  std::vector<std::string> bases;  ///< for people: "294 measured runs"

  void add(std::vector<MeasuredSample> more, const char* what) {
    bases.push_back(fmt::format("{} {}{}", more.size(), what, more.size() == 1 ? "" : "s"));
    std::ranges::move(more, std::back_inserter(samples));
  }
};

void check_inputs(const CommandOptions& options) {
  std::vector<std::string> inputs = options.texts("db");
  for (const std::string& path : options.texts("log")) inputs.push_back(path);
  for (const char* option : {"rows", "hardware", "model", "probe", "calibration"}) {
    inputs.push_back(options.text(option));
  }
  check_output(options.text("out"), OutputKind::rates, "--out", inputs);
}

Measured read_measured(const CommandOptions& options) {
  Measured measured;
  if (options.has("rows")) measured.add(samples_of_rows(options.text("rows")), "measured run");
  for (const std::string& path : options.texts("db")) {
    measured.add(samples_of_database(path, measured.notes), "stored trial");
  }
  for (const auto& [option, needs] :
       {std::pair{"log", "hardware"}, {"hardware", "log"}, {"model", "log"}}) {
    if (options.has(option) && !options.has(needs)) {
      throw base::UsageError(fmt::format("--{} needs --{}", option, needs));
    }
  }
  if (options.has("log")) {
    const auto model = options.has("model") ? model_named(options.text("model")) : nullptr;
    std::vector<MeasuredSample> logged;
    for (const std::string& path : options.texts("log")) {
      logged.push_back(sample_of_log(path, options.text("hardware"), model, measured.notes));
    }
    measured.add(std::move(logged), "logged run");
  }
  if (measured.samples.empty() && !options.has("probe")) {
    throw base::UsageError(
        "expected a file of rows (--rows), a database (--db), a log (--log) or a hardware file "
        "that was probed (--probe)");
  }
  return measured;
}

void print_folds(const CommandOptions& options, const std::vector<MeasuredSample>& samples) {
  if (samples.empty()) throw base::UsageError("--folds needs measured runs: --rows, --db or --log");
  const int64_t folds = options.integer("folds", 2, 2);
  if (folds > static_cast<int64_t>(samples.size())) {
    throw base::UsageError(fmt::format("--folds is {}, expected at most {}: so many runs there are",
                                       folds, samples.size()));
  }
  const json report = {
      {"by_model_and_machine",
       cross_validated(samples, folds, [](const MeasuredSample& sample) { return sample.part(); })},
      {"by_source", cross_validated(samples, folds,
                                    [](const MeasuredSample& sample) { return sample.source; })}};
  std::cout << report.dump(2) << '\n';
}

/// Rates of a machine as `path`, a file of a probe, has measured them.
void take_probe(const std::string& path, Calibration& calibration) {
  const spec::Document document = spec::read_document(read_spec_file(path), path);
  const spec::HardwareSpec machine = spec::hardware_from_json(document.json, document.source);
  if (machine.peak_flops_per_s < kSlowestGpu) {
    throw base::UsageError(fmt::format(
        "{}: peak_flops_per_s is {:.2g}, which no GPU that plans are for has; rates of a CPU say "
        "nothing of theirs",
        path, machine.peak_flops_per_s));
  }
  if (take_curves(machine, calibration).empty()) {
    throw base::UsageError(
        fmt::format("{}: has no measured efficiencies; write them with moetune probe --out", path));
  }
  // How far the rates were from measured runs is not known of those that are in their place.
  calibration.median_error = calibration.p90_error = 0;
  calibration.cases.reset();
}

void fit_to(const std::vector<MeasuredSample>& samples, Calibration& calibration) {
  Samples all;
  for (const MeasuredSample& sample : samples) all.push_back(&sample);
  const planner::Fit fit = planner::fit_rates(runs_of(all), calibration.rates);
  calibration.rates = fit.rates;
  calibration.fitted = fit.fitted;
  calibration.cases = cases_of(all, fit.rates);
  for (const MeasuredSample& sample : samples) {
    if (sample.is_own) {
      add_measured(sample.step->run(), sample.tokens_per_s, calibration.measured);
    }
  }
  std::vector<double> errors;
  for (const MeasuredSample& sample : samples) {
    const Calibration of_case =
        calibration.for_case(*sample.hardware, sample.routing, sample.months);
    errors.push_back(std::abs(planner::log_error(runs_of({&sample}).front(), of_case.rates)));
  }
  calibration.median_error = profiler::median(errors);
  calibration.p90_error = profiler::quantile(errors, 0.9);
}

void write(const std::string& path, const Calibration& calibration) {
  std::ofstream file(path, std::ios::binary);
  file << to_json(calibration).dump(2) << '\n' << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written", path));
}

}  // namespace

int run_calibrate_command(const CommandOptions& options) {
  check_inputs(options);
  const std::string date = checked_month(options);
  Measured measured = read_measured(options);
  const std::vector<MeasuredSample>& samples = measured.samples;
  if (options.has("folds")) {
    print_folds(options, samples);
    return 0;
  }
  const bool is_own = options.has("db") || options.has("log");
  const bool has_probe = options.has("probe");
  Calibration calibration;
  if (options.has("calibration")) {
    calibration = load_calibration(options.text("calibration"));
  } else if (has_probe || is_own) {
    calibration = default_calibration();
  }
  if (has_probe) {
    take_probe(options.text("probe"), calibration);
    measured.bases.push_back(fmt::format("a probe, over {}", calibration.basis));
  }
  if (!samples.empty()) fit_to(samples, calibration);
  if (options.has("date")) {
    calibration.date = date;
  } else if (options.has("rows") && !is_own && !has_probe) {
    calibration.date = "2026-06";  // the month that the drift of rows is counted from
  } else {
    calibration.date = fmt::format("{:%Y-%m}", fmt::gmtime(std::time(nullptr)));
  }
  calibration.basis = fmt::format("{}", fmt::join(measured.bases, ", "));
  for (const std::string& note : measured.notes) std::cerr << "note: " << note << '\n';
  if (!options.has("out")) {
    std::cout << to_json(calibration).dump(2) << '\n';
    return 0;
  }
  write(options.text("out"), calibration);
  if (samples.empty()) {
    std::cout << fmt::format("taken from {}\n", calibration.basis);
    return 0;
  }
  std::cout << fmt::format("fitted to {}: median error {:.1f} %, nine of ten within {:.1f} %\n",
                           calibration.basis, 100 * calibration.median_error,
                           100 * calibration.p90_error);
  return 0;
}

}  // namespace moetune::sweeps
