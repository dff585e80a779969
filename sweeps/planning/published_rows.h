// Rows of measured runs, as a JSON array: what moetune estimate prices and moetune calibrate fits
// to. The format is that of published results (docs/formats.md, "Rows file").
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sweeps/planning/interval.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// One published run.
struct PublishedRow {
  std::string id;
  std::string reason;  ///< why it cannot be priced; empty: it can
  /// Model and machine of `run`.
  std::shared_ptr<const spec::ModelSpec> model;
  std::shared_ptr<const spec::HardwareSpec> hardware;
  std::string hardware_name;  ///< name in the hardware file
  tuner::planner::PlanRun run;
  double months = 0;             ///< from 2026-06 to the release of its software
  bool is_month_stated = false;  ///< of that release; a year alone counts as its middle
  std::string routing = "unknown";
  /// What the row leaves open and how it was priced, a line each.
  std::vector<std::string> assumed;
  int num_unknown = 0;  ///< unstated knobs that change the figure
  /// Keys whose words are not known: what was taken for them is no more sure than where they are
  /// missing.
  std::set<std::string> not_understood;
  /// What trained is not, or not known to be, built on Megatron-Core, as which it is priced.
  bool is_of_other_engine = false;
  /// The run with the leanest of what is not stated, in several ways: it is impossible only where
  /// none of them fits.
  std::vector<tuner::planner::PlanRun> leaner;

  int memory_stage = -1;           ///< pipeline stage whose memory is stated; -1: worst rank
  bool is_for_memory = false;      ///< states what is needed to price its memory
  bool is_for_throughput = false;  ///< the same of its speed
  bool is_suspect = false;
  bool ran = true;  ///< false: out of memory, or no result
  std::optional<Interval> allocated_bytes;
  std::optional<double> reserved_bytes;
  std::optional<double> tflops;
  std::optional<double> tokens_per_s;  ///< stated, or by the step's time or TFLOP/s
  std::optional<double> step_seconds;
  /// GFLOP per token as the source counts them; 0: the usual way.
  double gflop_per_token = 0;
  std::string accounting;  ///< how the source counts; empty: the usual way
  std::string source;      ///< document and place
  std::string group;     ///< the same for rows of one model, machine, software, routing, precision
  std::string software;  ///< what trained, as the row has it
  std::string date;      ///< of its release, as the row has it
};

/// Returns all rows; those that cannot be priced have a reason. Throws base::UsageError if the
/// document is not an array of objects.
std::vector<PublishedRow> published_rows_of(const nlohmann::json& document,
                                            const std::string& source);

/// The dotted paths of the keys that the reading of these rows asks for, such as "optimizer.type"
/// and "assumed[].field": what the table of docs/formats.md is compared with.
std::set<std::string> keys_asked_of_rows(const nlohmann::json& document);

}  // namespace moetune::sweeps
