// Measured runs from where people have them: rows of published results, trials of a database, logs.
// All become what calibration fits to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sweeps/planning/calibration_cases.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/run_order.h"
#include "tuner/planner/fit.h"

namespace moetune::sweeps {

/// A run with what it measured and what it is a case of.
struct MeasuredSample {
  std::shared_ptr<const spec::ModelSpec> model;        ///< what `step` refers to
  std::shared_ptr<const spec::HardwareSpec> hardware;  //
  std::shared_ptr<const tuner::planner::PreparedStep> step;
  double tokens_per_s = 0;  ///< of one device
  double months = 0;        ///< of the software, after 2026-06
  std::string source;       ///< document, database or log
  bool is_own = false;      ///< of a database or log
  std::string machine;      ///< name of the hardware
  std::string precision;
  std::string routing;  ///< routing_of_case
  std::string group;    ///< of a row: PublishedRow::group
  RankedRun ranked{};   ///< of a row, without a prediction
  [[nodiscard]] CaseKey key() const;
  /// Runs of one model on one machine.
  [[nodiscard]] std::string part() const;
};

/// Rows that state all that is needed. Suspect rows, rows that say no throughput and rows of small
/// test runs stay out.
std::vector<MeasuredSample> samples_of_rows(const std::string& path);

/// The finished trials of a database, as their Megatron flags say them: what those cannot say is
/// told once each in `notes`. Throws base::UsageError when none has ended well.
std::vector<MeasuredSample> samples_of_database(const std::string& path,
                                                std::vector<std::string>& notes);

/// A run of another framework by its log: a file, or a folder with the files of its ranks.
/// `hardware` is the name or path of its machine, as many devices as the log says. `model` may be
/// null where the echoed configuration has its sizes. What the log leaves out is told in `notes`.
/// Throws base::UsageError where layout, speed or sizes of the model are not said.
MeasuredSample sample_of_log(const std::string& path, const std::string& hardware,
                             std::shared_ptr<const spec::ModelSpec> model,
                             std::vector<std::string>& notes);

/// With weights: runs of a model on a machine together weigh as the root of their number.
std::vector<tuner::planner::MeasuredRun> runs_of(const std::vector<const MeasuredSample*>& samples);

/// What runs of each kind take over what the rates say, and how far off they are then.
std::vector<CalibrationCase> cases_of(const std::vector<const MeasuredSample*>& samples,
                                      tuner::planner::Rates rates);

}  // namespace moetune::sweeps
