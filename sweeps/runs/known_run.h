// All that is known of a run: what its logs say, filled up by its traces and by its command or
// configuration. What is printed of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

struct KnownRun {
  RunFacts facts;                  ///< what logs say wins, then traces
  std::optional<double> traced_s;  ///< of a step, by the traces; set where no log says it
  bool is_tflops_derived = false;  ///< from tokens and the model's sizes, as no log says it
};
KnownRun known_run(const RunDiagnosis& diagnosis);

/// The same as JSON. Every key is there, null where nothing is known.
nlohmann::json known_json(const RunDiagnosis& diagnosis, const nlohmann::json& of_traces);

/// "tp 2", "pp 4"
std::vector<std::string> size_words(const ParallelSizes& sizes);

/// The run as it is printed: "speed" and "812 ms a step ...". Empty of traces alone.
std::vector<std::pair<std::string, std::string>> fact_lines(const RunDiagnosis& diagnosis);
/// These lines, those of the configuration broken at so many columns.
std::string facts_text(const RunDiagnosis& diagnosis, std::optional<size_t> width);

}  // namespace moetune::sweeps
