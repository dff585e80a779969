// Errors by kind of figure.
#include "sweeps/planning/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "profiler/analysis/stats.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/published_rows.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;

/// "bridge-012" is of the family "bridge".
std::string family_of(const std::string& id) { return id.substr(0, id.rfind('-')); }

json errors_json(std::vector<double> errors) {
  json document = {{"count", errors.size()}};
  if (errors.empty()) return document;
  double signed_sum = 0;
  double sum = 0;
  for (const double error : errors) {
    signed_sum += error;
    sum += std::abs(error);
  }
  const auto count = static_cast<double>(errors.size());
  document["mean_signed"] = signed_sum / count;
  document["median_signed"] = profiler::median(errors);
  for (double& error : errors) error = std::abs(error);
  document["mean"] = sum / count;
  document["median"] = profiler::median(errors);
  document["p90"] = profiler::quantile(errors, 0.9);
  document["worst"] = *std::ranges::max_element(errors);
  return document;
}

}  // namespace

void Accuracy::add_unsupported(const PublishedRow& row) {
  ++num_rows_;
  if (row.is_for_memory || row.is_for_throughput) ++num_priceable_;
}

void Accuracy::add(const PublishedRow& row, const RunEstimate& estimate) {
  ++num_rows_;
  ++num_supported_;
  if (row.is_for_memory || row.is_for_throughput) {
    ++num_priceable_;
    ++num_priceable_supported_;
  }
  if (estimate.verdict == Verdict::tight) ++num_tight_;
  if (row.ran && estimate.verdict == Verdict::oom) ++num_called_impossible_;
  if (row.is_suspect) return;
  const std::string family = family_of(row.id);
  if (row.is_for_memory && row.allocated_bytes) {
    // Within the range that the source's unit leaves open there is no error.
    const Interval& stated = *row.allocated_bytes;
    const double told = std::clamp(estimate.allocated_bytes.value, stated.low, stated.high);
    const double error = estimate.allocated_bytes.value / told - 1;
    // A stated figure of almost nothing has an error without bounds.
    if (std::isfinite(error)) {
      memory_errors_.push_back(error);
      memory_by_family_[family].push_back(error);
    }
  }
  if (row.is_for_throughput && row.tokens_per_s && *row.tokens_per_s > 0) {
    const double error = std::log(estimate.tokens_per_s.value / *row.tokens_per_s);
    if (!std::isfinite(error)) return;
    time_errors_.push_back(error);
    time_by_family_[family].push_back(error);
    const RankedRun run = {row.id, estimate.tokens_per_s.value, *row.tokens_per_s,
                           priced_configuration(row)};
    groups_[row.group].push_back(run);
    of_same_length_[fmt::format("{}|{}", row.group, row.run.seq_length)].push_back(run);
  }
}

json Accuracy::summary() const {
  json document = {{"num_rows", num_rows_},
                   {"num_supported", num_supported_},
                   {"num_priceable", num_priceable_},
                   {"num_priceable_supported", num_priceable_supported_},
                   {"num_tight", num_tight_},
                   {"num_running_called_oom", num_called_impossible_},
                   {"memory_error_ratio", errors_json(memory_errors_)},
                   {"throughput_log_error", errors_json(time_errors_)}};
  for (const auto& [family, errors] : memory_by_family_) {
    document["memory_error_ratio_by_family"][family] = errors_json(errors);
  }
  for (const auto& [family, errors] : time_by_family_) {
    document["throughput_log_error_by_family"][family] = errors_json(errors);
  }
  document["order"] = order_of(of_same_length_, kNoiseOfRuns);
  document["order_of_all_pairs"] = order_of(groups_, 0);
  return document;
}

}  // namespace moetune::sweeps
