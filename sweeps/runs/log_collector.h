// Collects what the readers of line forms find in one log. Itself reads what spans several lines:
// attempts, echoed configurations, tracebacks of Python.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "sweeps/runs/line_origin.h"
#include "sweeps/runs/log_lines.h"
#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

/// Whose exception a traceback is of.
enum class TracebackOf : uint8_t {
  program,
  thread,   ///< one that ends alone: the program may go on
  nothing,  ///< nothing that ends: Python says that it ignores the exception, and goes on
};

class LogCollector {
 public:
  /// `path_rank`: the rank that the file's path states; -1: none.
  LogCollector(std::string file, int path_rank);

  /// Starts a line; `text` is the line without its prefixes.
  void begin_line(const LogLine& line, const LineOrigin& origin, std::string_view text);
  [[nodiscard]] bool has_open_block() const { return !blocks_.empty(); }
  /// Takes the first `length` characters of the line if they belong to an open configuration or
  /// traceback. True: the tables of forms are not asked about them.
  bool take_by_block(size_t length);
  /// Sets who wrote the rest of the line, if `origin` states a rank; else changes nothing.
  void set_writer(const LineOrigin& origin) {
    if (origin.likely_rank() >= 0) origin_ = origin;
  }
  void count_facts(int64_t count) { log_.num_facts += count; }
  /// Ends the line after the tables were asked. Adds a failure for an exception of Python that
  /// matched no form.
  void end_line();
  /// Closes open configurations, tracebacks and the attempt. Must be the last call.
  ForeignLog finish(int64_t num_bytes, int64_t num_cut_lines);

  [[nodiscard]] Attempt& now() { return log_.attempts.back(); }
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] LogPlace place() const;
  /// Rank of the line's writer; -1: unknown.
  [[nodiscard]] int rank() const;
  /// Whether the line is the one in a traceback that names the exception.
  [[nodiscard]] bool is_exception() const { return is_exception_; }

  /// Reports words that only one framework prints. Those with the largest weight decide.
  void prove(Framework framework, int weight, std::string_view words);
  /// Reports words that only programs on ROCm print.
  void prove_rocm() { log_.is_rocm = true; }
  /// Reports a line that each process prints once at its start. If it comes again after steps or
  /// failures, it begins another attempt.
  void banner(std::string_view kind);
  void add_step(StepLine line);
  /// Reports a line that begins as one about a step and says nothing of how long it took.
  void add_torn_step(int64_t step);
  /// The same of a line whose loss is cut off, and of one that says a time that no step takes.
  void add_cut_loss(int64_t step);
  void add_absurd_time(int64_t step);
  void add_memory(int rank, MemoryKind kind, bool is_peak, double bytes, int64_t step);
  /// Sets a size such as the number of ranks or layers. Ignores implausible values.
  void set_size(NamedSize member, std::optional<int64_t> value);
  void mark_end(std::string_view text);
  /// Adds a failure of a rank (-1: of the line's writer), to be filled in; null if there are too
  /// many of the kind already.
  Failure* add_failure(const FailureForm& form, int rank, std::string_view detail);
  /// The same of the line's writer.
  Failure* add_failure(const FailureForm& form, std::string_view detail) {
    return add_failure(form, rank(), detail);
  }
  /// The failure of the form's name and of the line's writer whose figures of memory nobody has
  /// told yet, with this form and `detail` in place of its own; null: there is none.
  Failure* failure_without_memory(const FailureForm& form, std::string_view detail);
  /// Reports that the writer's next line says more of its last failure with that name.
  void expect_detail(std::string_view name);
  CollectiveTimeout& timeout_of(int rank);
  /// The time that the line states, else that of the last line with one.
  std::optional<double> time();

  void begin_config(EchoedConfig::Form form);
  void end_config();
  /// Reports what stands in front of the next traceback of the line's writer.
  void expect_traceback(TracebackOf of);
  /// Reports that the next traceback of the line's writer belongs to the one before.
  void expect_more_traceback();
  void begin_traceback();

  // State while torchrun's box of failures is read.
  bool is_root_cause = false;
  int box_rank = -1;
  /// Processes that the launcher killed because they did not end when asked to.
  std::set<int64_t> forced_pids;
  /// Slurm said that it ends what is left: who is killed from here on is a victim.
  bool is_step_ended = false;
  /// salloc said that it gives its nodes back.
  bool is_allocation_given_back = false;
  /// A line about a step had a loss by the name that its framework gives it.
  bool has_printed_loss = false;

 private:
  struct Block {
    enum class Kind : uint8_t { config, traceback };
    Kind kind = Kind::config;
    int64_t num_lines = 0;
    // Configurations.
    EchoedConfig config;
    std::string section;  ///< section of Megatron-Bridge's summary
    std::string json;
    int depth = 0;  ///< open braces and brackets
    bool is_in_text = false;
    // Tracebacks.
    size_t indent = 0;
    TracebackOf of = TracebackOf::program;
    int box_rank = -1;         ///< of the entry of torchrun's box that it is in
    int writer = -1;           ///< rank of its lines
    std::string where;         ///< file and line of the last frame
    std::string source;        ///< source text of that line
    bool is_launcher = false;  ///< it has a frame of what starts ranks
    std::string behind;        ///< the first line behind the frames, not known as an exception
    int64_t last_line = 0;
    int64_t num_attempts = 0;  ///< the last two when the last frame was read
    int64_t num_advances = 0;
  };

  /// What stands in front of a traceback.
  struct TracebackHead {
    TracebackOf of = TracebackOf::program;
    int64_t line = 0;
    int num_open = 0;  ///< tracebacks that have not begun yet
  };

  Block* open_block();
  /// One for a traceback by the line's writer.
  Block& new_traceback(TracebackOf of);
  void close_block(const Block* block);
  bool take_config(Block& block);
  bool take_traceback(Block& block);
  /// Takes the line as what expect_detail announced, if it is that.
  void take_detail();
  /// Adds failures for tracebacks without a known exception that no step follows.
  void add_open_tracebacks();
  /// Whether the line is an exception behind a launcher's prefix and nothing else.
  [[nodiscard]] bool is_bare_exception() const;
  void begin_attempt();
  void close_attempt();

  ForeignLog log_;
  int path_rank_;
  LogLine line_;
  LineOrigin origin_;       ///< of what is read now
  LineOrigin line_origin_;  ///< of the line's beginning
  std::string_view text_;
  bool is_exception_ = false;
  bool is_unsure_ = false;
  bool is_of_thread_ = false;  ///< the exception is
  bool has_failure_ = false;   ///< the line matched a failure form
  std::string exception_where_;
  std::string exception_source_;
  int exception_rank_ = -1;                 ///< where torchrun's box names it
  std::map<int64_t, Block> blocks_;         ///< by LineOrigin::key
  std::map<int64_t, TracebackHead> heads_;  ///< by the same
  std::set<std::pair<std::string, int64_t>> banners_;
  std::map<int64_t, int64_t> step_of_writer_;
  std::optional<std::pair<int64_t, int64_t>> last_torn_;  ///< line and step of the last such line
  std::optional<std::pair<int64_t, int64_t>> last_cut_;   ///< the same of a loss
  std::map<std::pair<std::string_view, int>, size_t> failure_of_;  ///< by name and rank
  /// A failure of which the writer's next line says more.
  struct WantedDetail {
    size_t failure = 0;
    std::string front;  ///< of the detail, which goes on
    std::string where;
    int64_t line = 0;  ///< that announced it
  };
  std::map<int64_t, WantedDetail> wants_detail_;  ///< by LineOrigin::key
  std::optional<double> line_time_s_;
  bool is_time_known_ = false;
};

}  // namespace moetune::sweeps
