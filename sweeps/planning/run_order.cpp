// Pairs that are right, wrong and tied.
#include "sweeps/planning/run_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sweeps/planning/published_rows.h"

namespace moetune::sweeps {

using nlohmann::json;

std::string priced_configuration(const PublishedRow& row) {
  const tuner::planner::PlanRun& run = row.run;
  return fmt::format("{} {} {} {} {}", spec::to_json(run.knobs).dump(), run.global_batch_size,
                     fmt::join(run.stages, "|"), fmt::join(run.stage_layers, ","), run.load);
}

json order_of(const GroupsOfRuns& groups, double noise) {
  int right = 0;
  int wrong = 0;
  int tied = 0;
  int same = 0;  // of those that are tied
  double tau_sum = 0;
  json told = json::array();
  for (const auto& [name, runs] : groups) {
    const int before = right + wrong + tied;
    const int before_balance = right - wrong;
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const double published = std::log(runs[i].published / runs[j].published);
        const double predicted = std::log(runs[i].predicted / runs[j].predicted);
        if (std::abs(published) <= noise) continue;
        if (std::abs(predicted) < 1e-9) {
          ++tied;
          if (runs[i].configuration == runs[j].configuration) ++same;
        } else {
          ++(predicted * published > 0 ? right : wrong);
        }
      }
    }
    const int num_pairs = right + wrong + tied - before;
    if (num_pairs == 0) continue;
    json ids = json::array();
    for (const RankedRun& run : runs) ids.push_back(run.id);
    const double tau = double(right - wrong - before_balance) / num_pairs;
    tau_sum += tau;
    told.push_back({{"rows", std::move(ids)}, {"num_pairs", num_pairs}, {"tau", tau}});
  }
  const int all = right + wrong + tied;
  json order = {
      {"num_groups", told.size()},
      {"num_right", right},
      {"num_wrong", wrong},
      {"num_tied", tied},
      {"num_of_same_configuration", same},
      {"tau_of_different", all > same ? json(double(right - wrong) / (all - same)) : json(nullptr)},
      {"tau_b",
       all > tied ? json((right - wrong) / std::sqrt(double(all) * (all - tied))) : json(nullptr)},
      {"tau", all > 0 ? json(double(right - wrong) / all) : json(nullptr)},
      {"tau_mean_of_groups",
       told.empty() ? json(nullptr) : json(tau_sum / static_cast<double>(told.size()))}};
  order["groups"] = std::move(told);
  return order;
}

}  // namespace moetune::sweeps
