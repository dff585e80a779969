// Where the readers of line forms put what they read from one log, and what needs more than one
// line: attempts, echoed configurations, tracebacks of Python.
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

class LogCollector {
 public:
  /// `path_rank`: what the file's path says of its rank; -1: nothing.
  LogCollector(std::string file, int path_rank);

  /// The line that is read from now on, without its prefixes.
  void begin_line(const LogLine& line, const LineOrigin& origin, std::string_view text);
  /// Whether the line belongs to something that is read as a whole, so that no table is asked.
  bool take_by_block();
  /// Of what follows on this line, where it says it; else nothing changes.
  void set_writer(const LineOrigin& origin) {
    if (origin.likely_rank() >= 0) origin_ = origin;
  }
  void count_facts(int64_t count) { log_.num_facts += count; }
  /// When the tables were asked: an exception of Python of which they knew nothing.
  void end_line();
  /// Closes what is open. Call once; nothing may follow.
  ForeignLog finish(int64_t num_bytes, int64_t num_cut_lines);

  [[nodiscard]] Attempt& now() { return log_.attempts.back(); }
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] LogPlace place() const;
  /// Of the line's writer; -1: not known.
  [[nodiscard]] int rank() const;
  /// Whether it is the line of a traceback that says which exception it was.
  [[nodiscard]] bool is_exception() const { return is_exception_; }

  /// Words that only one framework prints; the heaviest count.
  void prove(Framework framework, int weight, std::string_view words);
  /// What is printed once a start of the process: a second time begins another attempt.
  void banner(std::string_view kind);
  void add_step(StepLine line);
  void add_memory(int rank, MemoryKind kind, bool is_peak, double bytes, int64_t step);
  /// Ranks, layers and the like that make sense; others are left out.
  void set_size(NamedSize member, std::optional<int64_t> value);
  void mark_end(std::string_view text);
  /// The failure, to be filled; null where there are too many of the kind already.
  Failure* add_failure(const FailureForm& form, int rank, std::string_view detail);
  CollectiveTimeout& timeout_of(int rank);
  /// The time that the line says, or else the last one before.
  std::optional<double> time();

  void begin_config(EchoedConfig::Form form);
  void end_config();
  void begin_traceback();

  // Of torchrun's box of failures.
  bool is_root_cause = false;
  int box_rank = -1;
  /// Processes that the launcher killed, as they did not end when they were asked to.
  std::set<int64_t> forced_pids;

 private:
  struct Block {
    enum class Kind : uint8_t { config, traceback };
    Kind kind = Kind::config;
    int64_t num_lines = 0;
    // Configurations.
    EchoedConfig config;
    std::string section;  ///< of Megatron-Bridge's summary
    std::string json;
    int depth = 0;  ///< of braces and brackets
    bool is_in_text = false;
    // Tracebacks.
    size_t indent = 0;
    std::string where;   ///< file and line of the last frame
    std::string source;  ///< what stands there
  };

  Block* open_block();
  void close_block(const Block* block);
  bool take_config(Block& block);
  bool take_traceback(Block& block);
  void begin_attempt();
  void close_attempt();

  ForeignLog log_;
  int path_rank_;
  LogLine line_;
  LineOrigin origin_;
  std::string_view text_;
  bool is_exception_ = false;
  bool has_failure_ = false;  ///< a table knew the line
  std::string exception_where_;
  std::string exception_source_;
  std::map<int64_t, Block> blocks_;  ///< by LineOrigin::key
  std::set<std::pair<std::string, int64_t>> banners_;
  std::map<int64_t, int64_t> step_of_writer_;
  std::map<std::pair<std::string_view, int>, size_t> failure_of_;  ///< by name and rank
  std::optional<double> line_time_s_;
  bool is_time_known_ = false;
};

}  // namespace moetune::sweeps
