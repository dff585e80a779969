// The facts of a run of another framework, from its logs: framework, model and layout, speed,
// memory, how it ended, and the reason if it failed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

struct RunOptions {
  /// The current time in seconds since 1970, if the run may still be running. A log without recent
  /// lines then means that the run hangs, and a log with recent lines does not count as cut off.
  std::optional<double> now_s;
  /// When the log was last written, in seconds since 1970. Used with `now_s`.
  std::optional<double> written_s;
};

/// Sizes of the layout; empty if not stated.
struct ParallelSizes {
  std::optional<int64_t> tp;
  std::optional<int64_t> pp;
  std::optional<int64_t> cp;
  std::optional<int64_t> ep;
  std::optional<int64_t> etp;
  std::optional<int64_t> vpp;
  std::optional<int64_t> dp;
};

/// A size of the layout and the members that hold it.
struct ParallelSizeRow {
  const char* name;
  std::optional<int64_t> ParallelSizes::*size;
  int32_t spec::PlanKnobs::*knob;  ///< null: it follows from the other sizes and the world size
  NamedSize named;                 ///< null: no line of a log states it
};
/// In the usual order.
std::span<const ParallelSizeRow> parallel_sizes();

/// What the steps of a line were made of; 0: the line does not say it.
struct StepBatch {
  double num_sequences = 0;
  double seq_length = 0;
};

/// Time of one step. Each line of a log is a mean over `interval` steps, which hides their
/// variation.
struct StepTime {
  double median_s = 0;
  double min_s = 0;
  double max_s = 0;
  std::vector<double> steady_s;           ///< one for each line that counts
  std::vector<StepBatch> steady_batches;  ///< of the same lines; empty: not known
  int64_t num_lines = 0;                  ///< lines that count; the warm-up is left out
  int64_t interval = 1;
  bool has_warmup = false;  ///< the warm-up is included, as there are no other lines
  bool is_derived = false;  ///< from tokens or samples per second
};

/// Why a run ended, in a sentence, and all that is known about it.
struct RunFailure {
  std::string kind;  ///< a name of the table of failures: "cuda-oom"
  ForeignStatus status = ForeignStatus::failed;
  std::string sentence;
  int rank = -1;            ///< at fault; -1: not known
  int reporting_rank = -1;  ///< who saw others fail or not come; -1: not known, or itself at fault
  std::vector<int> ranks;   ///< all ranks that had or reported this failure
  int64_t iteration = 0;    ///< earliest iteration in which it can have happened; from 1
  LogPlace place;
  int64_t times = 1;
  bool is_survived = false;
  std::optional<double> time_s;
  std::optional<int> exit_code;
  std::optional<OutOfMemoryFacts> memory;
  std::optional<CollectiveTimeout> timeout;
  std::vector<int> waiting_ranks;  ///< who reported the timeout
  std::vector<int> missing_ranks;  ///< who did not arrive or lagged behind, if the log shows that

  /// The machine is the cause, not the settings: no device or driver, a missing library, a full
  /// disk, a used port, or other processes that hold the device's memory.
  [[nodiscard]] bool is_of_the_machine() const;
};

struct RunFacts {
  Framework framework = Framework::unknown;
  std::string known_by;
  LogPlace known_at;
  bool is_rocm = false;  ///< a log shows that it runs on ROCm

  ForeignStatus status = ForeignStatus::unknown;
  std::string reason;                ///< a sentence; empty if the run ended well
  std::optional<RunFailure> root;    ///< the failure that gave the status
  std::vector<RunFailure> failures;  ///< all failures, `root` first

  int64_t num_steps = 0;  ///< steps that this log covers
  std::optional<int64_t> first_step;
  std::optional<int64_t> last_step;
  std::optional<int64_t> total_steps;
  int64_t num_attempts = 1;
  std::optional<int64_t> world_size;
  ParallelSizes parallel;
  NamedSizes named;  ///< what lines outside of a configuration say; 0: nothing
  std::optional<int64_t> micro_batch_size;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> seq_length;
  std::optional<double> tokens_per_step;  ///< of all ranks; where batches grow, of the last

  std::optional<StepTime> step_time;
  std::optional<double> tokens_per_s_per_gpu;
  bool are_tokens_derived = false;
  std::optional<double> tflops_per_gpu;  ///< as logged: frameworks count differently

  std::optional<MemoryReading> peak_memory;
  std::vector<MemoryReading> memory;  ///< by rank, kind and meaning

  std::optional<double> loss;  ///< from the last line that has one
  std::optional<double> grad_norm;
  std::vector<StepLine> steps;  ///< steps of the attempt that counts: one line each, sorted
  std::string steps_file;       ///< the file to which StepLine::line refers
  int64_t num_skipped_steps = 0;
  int64_t num_nan_steps = 0;
  std::optional<int64_t> first_nan_step;

  std::string model_name;
  std::optional<int64_t> num_parameters;
  std::string device_name;
  std::optional<int64_t> device_bytes;
  int64_t num_allocator_retries = 0;
  int64_t num_checkpoints = 0;

  std::string command;
  EchoedConfig echoed;                              ///< as the log has it
  std::optional<spec::dialects::RunConfig> config;  ///< the same as moetune understands it
  std::string config_source;                        ///< what else says it; empty: the log
  std::vector<std::string> files;
  std::vector<std::string> notes;
};

/// Facts of a run from its logs, at least one: for instance one per rank or node, in any order.
RunFacts facts_of_logs(const std::vector<ForeignLog>& logs, const RunOptions& options = {});

/// Reads the files; those that cannot be of the same run are left out with a note. Throws
/// base::UsageError where one cannot be read.
RunFacts read_run(const std::vector<std::string>& paths, const RunOptions& options = {});

/// Fills the sizes that are not known with those of a configuration; the ranks only where nobody
/// may say otherwise than it.
void take_configured_sizes(const spec::dialects::RunConfig& config, RunFacts& facts);

/// The sizes of a model in words, "48 layers, hidden size 2048", as far as a configuration says
/// them; empty: none. Of a name, such as "llama3 8B", that.
std::string model_words(const spec::dialects::RunConfig& config);

/// Unknown values are null.
nlohmann::json to_json(const RunFacts& facts);

}  // namespace moetune::sweeps
