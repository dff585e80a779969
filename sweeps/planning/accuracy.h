// How far estimates are from what was published: errors by kind of figure, and whether they order
// like runs as the measurements do.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sweeps/planning/run_order.h"

namespace moetune::sweeps {

struct PublishedRow;
struct RunEstimate;

class Accuracy {
 public:
  void add(const PublishedRow& row, const RunEstimate& estimate);
  void add_unsupported(const PublishedRow& row);
  /// Counts, errors of memory and throughput (ratios: predicted / published - 1; of throughput the
  /// absolute logarithm), and Kendall's tau in groups of like rows: of all pairs, of those whose
  /// configurations differ, and of each group. No prediction orders runs that state the same
  /// configuration. Twice: in `order_of_all_pairs` rows are alike in model, machine, software,
  /// routing and precision, and every pair of them counts; in `order` they have sequences of one
  /// length, too, and pairs count whose figures are further apart than the noise of one run.
  [[nodiscard]] nlohmann::json summary() const;

 private:
  int num_rows_ = 0;
  int num_supported_ = 0;
  int num_priceable_ = 0;
  int num_priceable_supported_ = 0;
  int num_tight_ = 0;
  int num_called_impossible_ = 0;  ///< runs that ran although predicted to be out of memory
  std::vector<double> memory_errors_;
  std::vector<double> time_errors_;
  GroupsOfRuns groups_;          ///< by PublishedRow::group
  GroupsOfRuns of_same_length_;  ///< and by the length of sequences
  std::map<std::string, std::vector<double>> time_by_family_;
  std::map<std::string, std::vector<double>> memory_by_family_;
};

}  // namespace moetune::sweeps
