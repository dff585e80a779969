// Measured runs by what they are.
#include "sweeps/planning/measured_figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/fnv.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/stages.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using nlohmann::json;

namespace {

/// Four of five runs are measured so near to it when they are run again with the same choices: of
/// 100 published pairs (the next release included) that is 5 %.
constexpr double kRunAgain = 1.05;
constexpr double kMostTokens = 1e12;

}  // namespace

std::string run_identity(const planner::PlanRun& run) {
  const spec::ModelSpec& model = *run.model;
  std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", model.family, model.num_parameters(),
                                 model.num_layers, model.mtp.depth, run.hardware->name,
                                 run.hardware->num_devices(), run.global_batch_size, run.seq_length,
                                 run.ep_chunks);
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    if (row.name == "cuda_device_max_connections" || !planner::has_price_in_time(row.name)) {
      continue;
    }
    text += fmt::format("|{}={}", row.name, spec::get_plan_knob(run.knobs, row));
  }
  // Written or not, stages that the framework makes by itself are the same.
  const bool is_usual = run.stages.empty() || (run.knobs.pp > 1 && planner::splits_by_itself(run) &&
                                               run.stages == planner::unwritten_stages(run));
  if (!is_usual) text += fmt::format("|{}", fmt::join(run.stages, "|"));
  return base::fnv_digits(text);
}

void add_measured(const planner::PlanRun& run, double tokens_per_s,
                  std::vector<MeasuredFigure>& figures) {
  const std::string identity = run_identity(run);
  auto same = std::ranges::find(figures, identity, &MeasuredFigure::run);
  if (same == figures.end()) {
    figures.push_back({identity, 0, 0, tokens_per_s / kRunAgain, tokens_per_s * kRunAgain});
    same = figures.end() - 1;
  }
  const auto count = static_cast<double>(same->num_runs);
  same->tokens_per_s = (same->tokens_per_s * count + tokens_per_s) / (count + 1);
  ++same->num_runs;
  same->low = std::min(same->low, tokens_per_s / kRunAgain);
  same->high = std::max(same->high, tokens_per_s * kRunAgain);
}

const MeasuredFigure* measured_of(const planner::PlanRun& run,
                                  const std::vector<MeasuredFigure>& figures) {
  if (figures.empty() || run.load != 1) return nullptr;
  const auto same = std::ranges::find(figures, run_identity(run), &MeasuredFigure::run);
  return same == figures.end() ? nullptr : &*same;
}

json to_json(const std::vector<MeasuredFigure>& figures) {
  json list = json::array();
  for (const MeasuredFigure& figure : figures) {
    list.push_back({{"run", figure.run},
                    {"num_runs", figure.num_runs},
                    {"tokens_per_s_per_gpu", figure.tokens_per_s},
                    {"low", figure.low},
                    {"high", figure.high}});
  }
  return list;
}

std::vector<MeasuredFigure> figures_from_json(const json& document, const spec::Source& source) {
  std::vector<MeasuredFigure> figures;
  for (const json& entry : document) {
    spec::JsonReader reader(entry, source);
    MeasuredFigure figure;
    figure.run = reader.text("run");
    figure.num_runs = reader.integer("num_runs", 1, 1'000'000);
    constexpr double kLeastTokens = 1e-9;
    figure.tokens_per_s = reader.number("tokens_per_s_per_gpu", kLeastTokens, kMostTokens);
    figure.low = reader.number("low", kLeastTokens, figure.tokens_per_s);
    figure.high = reader.number("high", figure.tokens_per_s, kMostTokens);
    reader.refuse_unknown_keys();
    figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace moetune::sweeps
