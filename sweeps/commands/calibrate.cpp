// moetune calibrate: rates that plans stand on, from measured runs.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/spec/document.h"
#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "sweeps/planning/row_files.h"

namespace moetune::sweeps {
namespace {

namespace planner = tuner::planner;
using nlohmann::json;

constexpr const char* kCalibrateHelp =
    R"(Fits the rates that plans stand on (shares of peaks and bandwidths, host time, what overlap
leaves exposed) to rows of measured runs, in the format of published results. The file that it
writes goes behind --calibration of plan and estimate. Rows marked suspect, rows that say no
throughput and rows of small test runs stay out.

With --folds N nothing is written: rows are split into N parts, no model on one machine being in
two of them, each part is predicted by a fit to the others, and the errors are printed.)";

struct Sample {
  const PublishedRow* row = nullptr;
  std::unique_ptr<planner::PreparedStep> step;
  std::string part;  ///< rows of one model on one machine
};

/// Rows of a model on a machine together weigh as the root of their number.
std::vector<planner::MeasuredRun> runs_of(const std::vector<Sample>& samples,
                                          const std::function<bool(const Sample&)>& is_in) {
  std::map<std::string, int> counts;
  for (const Sample& sample : samples) ++counts[sample.part];
  std::vector<planner::MeasuredRun> runs;
  for (const Sample& sample : samples) {
    if (!is_in(sample)) continue;
    runs.push_back({sample.step.get(),
                    {sample.row->months},
                    *sample.row->tokens_per_s,
                    1 / std::sqrt(double(counts[sample.part]))});
  }
  return runs;
}

json cross_validated(const std::vector<Sample>& samples, int64_t num_folds,
                     const std::function<std::string(const Sample&)>& part_of) {
  std::map<std::string, int64_t> folds;
  for (const Sample& sample : samples) folds.try_emplace(part_of(sample), 0);
  int64_t next = 0;
  for (auto& [part, fold] : folds) fold = next++ % num_folds;
  std::vector<double> errors;
  std::vector<double> signed_errors;
  for (int64_t fold = 0; fold < num_folds; ++fold) {
    const auto is_in = [&](const Sample& sample) { return folds.at(part_of(sample)) != fold; };
    const planner::Fit fit = planner::fit_rates(runs_of(samples, is_in));
    for (const planner::MeasuredRun& run :
         runs_of(samples, [&](const Sample& sample) { return !is_in(sample); })) {
      signed_errors.push_back(planner::log_error(run, fit.rates));
      errors.push_back(std::abs(signed_errors.back()));
    }
  }
  std::sort(errors.begin(), errors.end());
  return {{"num_folds", num_folds},
          {"num_rows", errors.size()},
          {"median_error", profiler::median(errors)},
          {"p90_error", errors[errors.size() * 9 / 10]},
          {"bias", profiler::median(signed_errors)}};
}

}  // namespace

CommandOptions calibrate_options() {
  namespace po = boost::program_options;
  CommandOptions options("calibrate --rows FILE [--out FILE] [--date YYYY-MM] [--folds N]",
                         kCalibrateHelp);
  options.add()("rows", po::value<std::string>()->value_name("FILE"),
                "measured runs, a JSON array; - for standard input");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write the rates, default standard output");
  options.add()("date", po::value<std::string>()->value_name("YYYY-MM"),
                "of the releases that the rates describe, default 2026-06");
  options.add()("folds", po::value<std::string>()->value_name("N"),
                "predict each part by the others instead of writing");
  return options;
}

int run_calibrate_command(const CommandOptions& options) {
  const std::vector<PublishedRow> rows = load_rows(options.required("rows", "a file of rows"));
  std::vector<Sample> samples;
  for (const PublishedRow& row : rows) {
    if (!row.reason.empty() || !row.is_for_throughput || row.is_suspect || !row.tokens_per_s ||
        *row.tokens_per_s <= 0) {
      continue;
    }
    samples.push_back({&row, std::make_unique<planner::PreparedStep>(row.run),
                       fmt::format("{}|{}|{}", row.model->family, row.model->num_parameters(),
                                   row.hardware_name)});
  }
  if (samples.empty()) throw base::UsageError("--rows: no row says model, layout and throughput");
  if (options.has("folds")) {
    const int64_t folds = options.integer("folds", 2, 2);
    const json report = {
        {"by_model_and_machine",
         cross_validated(samples, folds, [](const Sample& sample) { return sample.part; })},
        {"by_source", cross_validated(samples, folds, [](const Sample& sample) {
           return sample.row->id.substr(0, sample.row->id.rfind('-'));
         })}};
    std::cout << report.dump(2) << '\n';
    return 0;
  }
  const planner::Fit fit = planner::fit_rates(runs_of(samples, [](const Sample&) { return true; }));
  Calibration calibration;
  calibration.rates = fit.rates;
  calibration.fitted = fit.fitted;
  calibration.date = options.has("date") ? options.text("date") : "2026-06";
  calibration.basis = fmt::format("{} measured runs", samples.size());
  calibration.median_error = fit.median_error;
  calibration.p90_error = fit.p90_error;
  const std::string text = to_json(calibration).dump(2) + "\n";
  if (!options.has("out")) {
    std::cout << text;
    return 0;
  }
  std::ofstream file(options.text("out"), std::ios::binary);
  file << text << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written", options.text("out")));
  std::cout << fmt::format("fitted to {}: median error {:.1f} %, nine of ten within {:.1f} %\n",
                           calibration.basis, 100 * fit.median_error, 100 * fit.p90_error);
  return 0;
}

}  // namespace moetune::sweeps
