// The contents of a log as they were read: steps, memory, sizes, the echoed configuration,
// failures. run_facts.h draws conclusions about the run from them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/spec/names.h"
#include "sweeps/runs/run_status.h"

namespace moetune::sweeps {

/// The framework that trains.
enum class Framework : uint8_t {
  unknown,
  megatron_lm,
  megatron_bridge,
  torchtitan,
  primus,
  nemo,
  deepspeed,
};

struct FrameworkRow {
  Framework value;
  std::string_view name;
  bool marks_end;  ///< it prints a line that says that the run came to its end
};

}  // namespace moetune::sweeps

namespace moetune::spec {
template <>
struct NameTable<sweeps::Framework> {
  using Row = sweeps::FrameworkRow;
  static constexpr std::array kRows = {
      Row{sweeps::Framework::unknown, "unknown", false},
      Row{sweeps::Framework::megatron_lm, "megatron-lm", true},
      Row{sweeps::Framework::megatron_bridge, "megatron-bridge", true},
      Row{sweeps::Framework::torchtitan, "torchtitan", true},
      Row{sweeps::Framework::primus, "primus", true},
      Row{sweeps::Framework::nemo, "nemo", false},
      Row{sweeps::Framework::deepspeed, "deepspeed", false}};
};
}  // namespace moetune::spec

namespace moetune::sweeps {

/// A place in a log.
struct LogPlace {
  std::string file;
  int64_t line = 0;  ///< from 1; 0: none

  bool operator==(const LogPlace&) const = default;
};

/// One line about a step. Values are means over the steps since the previous line.
struct StepLine {
  int64_t step = 0;   ///< steps that are done, so the first is 1
  int64_t total = 0;  ///< steps that the run will make; 0: not stated
  int64_t line = 0;
  std::optional<double> step_time_s;
  std::optional<double> loss;  ///< NaN if the framework prints NaN or hides the value
  std::optional<double> grad_norm;
  std::optional<double> learning_rate;
  std::optional<double> tflops_per_gpu;
  std::optional<double> tokens_per_s_per_gpu;
  std::optional<double> samples_per_s;
  std::optional<double> global_batch_size;
  std::optional<double> seq_length;
  std::optional<double> consumed_samples;
  std::optional<double> num_skipped;  ///< skipped steps since the previous line
  std::optional<double> num_nan;      ///< steps with a NaN loss since the previous line
  std::optional<double> time_s;       ///< when the line was printed (log_text::first_time)

  /// Fills in missing values from another line about the same step.
  void fill_from(const StepLine& other);
};

/// A value of StepLine, for tables.
using StepMember = std::optional<double> StepLine::*;

/// Step lines with bounded memory: if there are very many, only every second, fourth, ... is kept.
class StepSeries {
 public:
  void add(const StepLine& line);
  /// The kept lines in the order of the log, always including the last one.
  [[nodiscard]] std::vector<StepLine> lines() const;
  [[nodiscard]] bool empty() const { return num_lines_ == 0; }
  [[nodiscard]] int64_t num_lines() const { return num_lines_; }
  [[nodiscard]] const StepLine& last() const { return last_; }
  /// The largest step.
  [[nodiscard]] int64_t furthest() const { return furthest_; }
  /// Lines whose step was larger than that of all lines before.
  [[nodiscard]] int64_t num_advances() const { return num_advances_; }
  /// Skipped steps, summed over the lines of num_advances(), kept or not; so is num_nan().
  [[nodiscard]] double num_skipped() const { return num_skipped_; }
  [[nodiscard]] double num_nan() const { return num_nan_; }
  /// Every stride()-th line is kept.
  [[nodiscard]] int64_t stride() const { return stride_; }

 private:
  std::vector<StepLine> kept_;
  StepLine last_;
  int64_t stride_ = 1;
  int64_t num_lines_ = 0;
  int64_t furthest_ = 0;
  int64_t num_advances_ = 0;
  double num_skipped_ = 0;
  double num_nan_ = 0;
};

enum class MemoryKind : uint8_t { allocated, reserved, device };

/// The largest value that was printed for a rank, kind and meaning.
struct MemoryReading {
  int rank = -1;  ///< -1: not stated
  MemoryKind kind = MemoryKind::allocated;
  bool is_peak = false;  ///< false: in use at the moment of printing
  int64_t bytes = 0;
  int64_t step = -1;  ///< steps that were done when it was printed; -1: not stated
  LogPlace place;
};

/// The numbers in the allocator's message when it ran out of memory.
struct OutOfMemoryFacts {
  int64_t asked_bytes = 0;  ///< requested: the tensor's size, rounded up by the allocator
  int64_t capacity_bytes = 0;
  std::optional<int64_t> free_bytes;  ///< empty: not stated
  int64_t in_use_bytes = 0;           ///< by the process, memory outside of PyTorch included
  int64_t others_bytes = 0;           ///< by other processes on the device
  int64_t allocated_bytes = 0;
  int64_t reserved_unallocated_bytes = 0;
  int64_t graph_pool_bytes = 0;
};

/// A rank that waited for a collective until the watchdog gave up.
struct CollectiveTimeout {
  int64_t sequence = -1;
  std::string operation;
  std::string group;
  int64_t num_elements = -1;
  int64_t waited_ms = -1;
  std::optional<int64_t> last_enqueued;  ///< -1: nothing yet
  int64_t last_completed = -1;
  bool has_open_work = false;  ///< in any group: enqueued and not completed
  std::string group_id;        ///< PyTorch's number of the group: several may share a name
  /// By group_id, of all groups that its watchdogs spoke of: how many operations had been started.
  std::map<std::string, int64_t> enqueued_in;
  std::optional<double> time_s;  ///< when it was reported
};

struct FailureForm;

/// An error in the log, or a report of one by another process.
struct Failure {
  const FailureForm* form = nullptr;
  int rank = -1;
  std::string detail;        ///< the log's own words, short and printable
  int64_t after_step = 0;    ///< StepSeries::furthest when it was logged
  int64_t num_advances = 0;  ///< StepSeries::num_advances when it was logged
  std::optional<double> time_s;
  LogPlace place;
  int64_t times = 1;
  bool is_survived = false;  ///< the same log continues, or ends well
  /// An exception without the frames of a traceback in front of it, or frames without one behind.
  bool is_unsure = false;
  bool is_cut = false;         ///< of these the latter, with nothing behind the frames
  bool is_first_seen = false;  ///< of ranks that ended, the first that torchrun saw
  std::optional<int> exit_code;
  std::optional<OutOfMemoryFacts> memory;
  std::optional<CollectiveTimeout> timeout;
  std::vector<int> missing_ranks = {};  ///< who did not come, where the line names them
};

/// Sizes that a log states outside of the echoed configuration; 0: not stated.
struct NamedSizes {
  int64_t world_size = 0;
  int64_t tp = 0;
  int64_t pp = 0;
  int64_t cp = 0;
  int64_t dp = 0;
  int64_t ep = 0;
  int64_t etp = 0;
  int64_t global_batch_size = 0;  ///< sequences
  int64_t local_batch_size = 0;   ///< sequences of a rank in one pass over the stages
  int64_t seq_length = 0;
  int64_t tokens_per_step = 0;
  int64_t total_steps = 0;
  int64_t vocab_size = 0;
  int64_t padded_vocab_size = 0;
};
using NamedSize = int64_t NamedSizes::*;

/// One setting of an echoed configuration: its name in the log, and its value as Python prints it.
struct EchoedSetting {
  std::string key;
  std::string value;
};

/// The configuration in effect as the log shows it.
struct EchoedConfig {
  /// The notation.
  enum class Form : uint8_t { none, argument_dump, bridge_summary, titan_json };
  Form form = Form::none;
  LogPlace place;
  std::vector<EchoedSetting> settings;  ///< in the order of the log
};

/// A line that says that the run ended well.
struct EndMark {
  std::string text;
  LogPlace place;
};

/// The part of a log from one start of the job to its end or its next start.
struct Attempt {
  StepSeries steps;
  std::set<int64_t> torn_steps;  ///< of lines that begin as one about a step; not all of very many
  /// Of lines about a step the parts that could not be read; not all of very many.
  std::set<int64_t> cut_losses;
  std::set<int64_t> absurd_times;  ///< 0, negative, or longer than any step
  std::map<std::tuple<int, MemoryKind, bool>, MemoryReading> memory;
  std::vector<Failure> failures;
  std::map<int, CollectiveTimeout> timeouts;  ///< by rank
  NamedSizes sizes;
  EchoedConfig config;
  std::string command;  ///< as the shell printed it (set -x)
  std::optional<EndMark> end;
  int64_t first_step = -1;  ///< steps done before this attempt, by a checkpoint; -1: not stated
  int64_t first_line = 1;
  /// Step times and TFLOP/s that were printed without a step number (Megatron-Bridge's rank 0).
  std::vector<double> loose_step_times_s;
  std::vector<double> loose_tflops_per_gpu;
  std::map<std::string, int64_t> parameters;  ///< number of parameters, by the ranks that hold them
  int64_t num_parameters = 0;
  int64_t rounded_parameters = 0;  ///< of the whole model, in hundredths of a billion
  std::string model_name;
  std::string titan_version;  ///< torchtitan alone logs its own
  std::string device_name;
  int64_t device_bytes = 0;
  int64_t num_checkpoints = 0;
  int64_t num_allocator_retries = 0;
  std::optional<double> last_step_time_s;  ///< wall clock of the last step line
  std::optional<double> last_time_s;       ///< of the last line with a time
};

/// One file, or several that were merged.
struct ForeignLog {
  std::vector<std::string> files;
  Framework framework = Framework::unknown;
  std::string known_by;  ///< the words by which the framework was recognized
  LogPlace known_at;
  int framework_weight = 0;
  std::vector<Attempt> attempts;  ///< at least one
  int64_t num_attempts = 1;       ///< all; of very many only some are in `attempts`
  int path_rank = -1;             ///< in the name of the file or of its folder; -1: none
  uint64_t tail_hash = 0;         ///< of its last bytes
  int64_t num_bytes = 0;
  int64_t num_lines = 0;
  std::optional<double> first_time_s;  ///< of the first line with a time, if it stands far in front
  bool is_rocm = false;                ///< a line shows ROCm; false: none does
  int64_t num_facts = 0;               ///< lines that matched a line form or a failure form
  std::vector<std::string> notes;
};

}  // namespace moetune::sweeps
