// What a log says, as it says it: steps, memory, sizes, the echoed configuration, failures. What
// follows from that for the run is decided in run_facts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/spec/names.h"
#include "sweeps/runs/run_status.h"

namespace moetune::sweeps {

/// Who trains.
enum class Framework : uint8_t {
  unknown,
  megatron_lm,
  megatron_bridge,
  torchtitan,
  primus,
  nemo,
  deepspeed,
};

}  // namespace moetune::sweeps

namespace moetune::spec {
template <>
struct NameTable<sweeps::Framework> {
  static constexpr std::array kRows = {
      Named<sweeps::Framework>{sweeps::Framework::unknown, "unknown"},
      Named<sweeps::Framework>{sweeps::Framework::megatron_lm, "megatron-lm"},
      Named<sweeps::Framework>{sweeps::Framework::megatron_bridge, "megatron-bridge"},
      Named<sweeps::Framework>{sweeps::Framework::torchtitan, "torchtitan"},
      Named<sweeps::Framework>{sweeps::Framework::primus, "primus"},
      Named<sweeps::Framework>{sweeps::Framework::nemo, "nemo"},
      Named<sweeps::Framework>{sweeps::Framework::deepspeed, "deepspeed"}};
};
}  // namespace moetune::spec

namespace moetune::sweeps {

/// A place in a log.
struct LogPlace {
  std::string file;
  int64_t line = 0;  ///< from 1; 0: none

  bool operator==(const LogPlace&) const = default;
};

/// One line about a step. Means are over the steps since the line before.
struct StepLine {
  int64_t step = 0;   ///< from 1: how many are done
  int64_t total = 0;  ///< that the run is to make; 0: not said
  int64_t line = 0;
  std::optional<double> step_time_s;
  std::optional<double> loss;  ///< nan where the framework says that, or hides it
  std::optional<double> grad_norm;
  std::optional<double> learning_rate;
  std::optional<double> tflops_per_gpu;
  std::optional<double> tokens_per_s_per_gpu;
  std::optional<double> samples_per_s;
  std::optional<double> global_batch_size;
  std::optional<double> seq_length;
  std::optional<double> consumed_samples;
  std::optional<double> num_skipped;  ///< since the line before
  std::optional<double> num_nan;      ///< of these
  std::optional<double> time_s;       ///< when it was printed (log_text::first_time)

  /// Takes what it lacks from another line about the same step.
  void fill_from(const StepLine& other);
};

/// All that can be read from a line about a step, for tables.
using StepMember = std::optional<double> StepLine::*;

/// Step lines with bounded memory: of very many every second, fourth, ... is kept.
class StepSeries {
 public:
  void add(const StepLine& line);
  /// In the order of the log; the last one is always among them.
  [[nodiscard]] std::vector<StepLine> lines() const;
  [[nodiscard]] bool empty() const { return num_lines_ == 0; }
  [[nodiscard]] int64_t num_lines() const { return num_lines_; }
  [[nodiscard]] const StepLine& last() const { return last_; }
  /// The furthest step, and how many lines went further than all before.
  [[nodiscard]] int64_t furthest() const { return furthest_; }
  [[nodiscard]] int64_t num_advances() const { return num_advances_; }
  /// Steps, summed over the lines that went further, also those that were not kept.
  [[nodiscard]] double num_skipped() const { return num_skipped_; }
  [[nodiscard]] double num_nan() const { return num_nan_; }
  /// One of so many lines is kept.
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

/// Of one rank, kind and meaning the largest that was printed.
struct MemoryReading {
  int rank = -1;  ///< -1: not said
  MemoryKind kind = MemoryKind::allocated;
  bool is_peak = false;  ///< else what was in use at that moment
  int64_t bytes = 0;
  int64_t step = -1;  ///< after how many steps it was read; -1: not said
  LogPlace place;
};

/// What the allocator said when it had no more.
struct OutOfMemoryFacts {
  int64_t asked_bytes = 0;  ///< of the allocator: rounded up, not the tensor's own size
  int64_t capacity_bytes = 0;
  int64_t free_bytes = 0;
  int64_t in_use_bytes = 0;  ///< of the process, with what is not PyTorch's
  int64_t others_bytes = 0;  ///< of other processes on the device
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
  int64_t last_enqueued = -1;
  int64_t last_completed = -1;
  std::string group_id;          ///< PyTorch's number of the group: names may be of many
  std::optional<double> time_s;  ///< when it was reported
};

struct FailureForm;

/// Something that went wrong, or that others took for it.
struct Failure {
  const FailureForm* form = nullptr;
  int rank = -1;
  std::string detail;        ///< the log's own words, short and printable
  int64_t after_step = 0;    ///< the furthest step that this log had shown
  int64_t num_advances = 0;  ///< StepSeries::num_advances then
  std::optional<double> time_s;
  LogPlace place;
  int64_t times = 1;
  bool is_survived = false;  ///< the same log goes on, or ends well
  std::optional<int> exit_code;
  std::optional<OutOfMemoryFacts> memory;
  std::optional<CollectiveTimeout> timeout;
};

/// Sizes that a log names outside of the configuration; 0: not said.
struct NamedSizes {
  int64_t world_size = 0;
  int64_t tp = 0;
  int64_t pp = 0;
  int64_t cp = 0;
  int64_t dp = 0;
  int64_t ep = 0;
  int64_t etp = 0;
  int64_t global_batch_size = 0;  ///< sequences
  int64_t seq_length = 0;
  int64_t tokens_per_step = 0;
  int64_t total_steps = 0;
};
using NamedSize = int64_t NamedSizes::*;

/// One setting of an echoed configuration: its name there, the value as Python prints it.
struct EchoedSetting {
  std::string key;
  std::string value;
};

/// The configuration in effect as the log shows it.
struct EchoedConfig {
  /// How it is written.
  enum class Form : uint8_t { none, argument_dump, bridge_summary, titan_json };
  Form form = Form::none;
  LogPlace place;
  std::vector<EchoedSetting> settings;  ///< in their order
};

/// A line that says that all went well.
struct EndMark {
  std::string text;
  LogPlace place;
};

/// From one start of the job to its end or the next start: output files may hold several.
struct Attempt {
  StepSeries steps;
  std::map<std::tuple<int, MemoryKind, bool>, MemoryReading> memory;
  std::vector<Failure> failures;
  std::map<int, CollectiveTimeout> timeouts;  ///< by rank
  NamedSizes sizes;
  EchoedConfig config;
  std::string command;  ///< as the shell printed it (set -x)
  std::optional<EndMark> end;
  int64_t first_step = -1;  ///< before the first step: what a checkpoint had; -1: not said
  int64_t first_line = 1;
  /// Interval means that came without a step (Megatron-Bridge's rank 0), and their TFLOP/s.
  std::vector<double> loose_step_times_s;
  std::vector<double> loose_tflops_per_gpu;
  std::map<std::string, int64_t> parameters;  ///< by the ranks that hold them
  int64_t num_parameters = 0;
  int64_t rounded_parameters = 0;  ///< of the whole model, in hundredths of a billion
  std::string model_name;
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
  std::string known_by;  ///< the words that told it
  LogPlace known_at;
  int framework_weight = 0;
  std::vector<Attempt> attempts;  ///< at least one
  int64_t num_attempts = 1;       ///< more than are kept where there were very many
  int64_t num_bytes = 0;
  int64_t num_lines = 0;
  int64_t num_facts = 0;  ///< lines that a form or a failure was read from
  std::vector<std::string> notes;
};

}  // namespace moetune::sweeps
