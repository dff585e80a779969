// Whether a program is what the tape of its rank says: instruction by instruction, with streams,
// events, allocations, graphs, sizes and places. The tape is written below the executor.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/program_places.h"
#include "tests/fakes/recording/call_work.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::engine::testing {

/// An op with what the program says that it costs and what its calls' arguments come to.
struct PricedOp {
  plan::Op op = plan::Op::count;
  plan::Pass pass = plan::Pass::forward;
  plan::OpCost told;
  recording::Work counted;  ///< flops -1 unless each call has a count; elements: the most of a call
  std::string where;
};

/// Allocations of a program added up as the ledger adds them up.
struct Booked {
  int64_t in_use_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t num_allocations = 0;
  profiler::GroupBytes by_group{};
  profiler::GroupBytes peak_by_group{};
};

class ProgramOnTape {
 public:
  /// `counts`: what the rank's fetches of a step have found, in their order, and again in the next.
  /// Stops after `limit` differences.
  ProgramOnTape(const spec::TrialSpec& trial, const plan::StepProgram& program,
                const recording::Tape& tape, std::span<const std::vector<int32_t>> counts,
                size_t limit = 10)
      : program_(program), tape_(tape), counts_(counts), limit_(limit), places_(trial, program) {}

  /// Entries [begin, end) are those of making what lives from start to end: its allocations.
  void follow_setup(size_t begin, size_t end);
  /// Those of one step, to its end. `is_replayed`: by now every op in a graph's scope is a replay
  /// of what was captured in earlier steps.
  void follow_step(size_t begin, size_t end, bool is_replayed = false);

  [[nodiscard]] const std::vector<std::string>& differences() const { return differences_; }
  [[nodiscard]] const std::vector<PricedOp>& priced_ops() const { return priced_; }
  [[nodiscard]] const Booked& booked() const { return booked_; }

 private:
  void follow(const std::vector<plan::Item>& items);
  void follow(const plan::Instr& instr);
  void op(const plan::Instr& instr);
  void communicate(const plan::Instr& instr);
  void allocate(const plan::Instr& instr);
  void release(const plan::Instr& instr);
  void record(const plan::Instr& instr);
  void wait(const plan::Instr& instr);
  void fetch(const plan::Instr& instr);
  void upload(const plan::Instr& instr);
  void mark(const plan::Instr& instr);

  /// What happens to an operand.
  struct Touch {
    bool is_read = false;
    bool is_written = false;

    void add(bool reads, bool writes) {
      is_read = is_read || reads;
      is_written = is_written || writes;
    }
    [[nodiscard]] const char* text() const {
      return !is_written ? "read" : is_read ? "read and written" : "written";
    }
    bool operator==(const Touch&) const = default;
  };

  void check_label(const plan::Instr& instr);
  void check_accesses(const plan::Instr& instr, const std::map<const void*, Touch>& touched);
  void book(const plan::Instr& instr, int64_t bytes, bool is_allocation);
  const recording::Entry* take_call(const recording::Entry& expected, bool is_op = false);
  const recording::Entry* take_memory(const recording::Entry& expected);
  void check_graph(const recording::Played& call, bool is_op);
  void end_part();

  [[nodiscard]] bool is_lost() const { return is_lost_ || differences_.size() >= limit_; }
  [[nodiscard]] std::string where() const;
  void differ(const std::string& text);
  /// Nothing that comes after can be told from here.
  void lose(const std::string& text);

  const plan::StepProgram& program_;
  const recording::Tape& tape_;
  std::span<const std::vector<int32_t>> counts_;
  size_t limit_;
  Places places_;
  std::vector<std::string> differences_;
  std::vector<PricedOp> priced_;
  Booked booked_;
  bool is_lost_ = false;

  // Where the tape is.
  std::vector<recording::Played> calls_;
  std::vector<size_t> memory_;
  size_t next_call_ = 0;
  size_t next_memory_ = 0;
  size_t num_fetched_ = 0;
  // Where the program is.
  size_t item_index_ = 0;
  size_t instr_index_ = 0;
  const plan::Instr* instr_ = nullptr;
  std::map<int32_t, int64_t> events_;  ///< of the item: the event that a slot holds
  bool is_replayed_ = false;
  bool is_in_scope_ = false;  ///< of a graph
  bool is_in_part_ = false;   ///< of a scope: between two cuts
  int64_t part_launch_ = -1;
  // What has run in this step, by op, virtual stage (its end), layer and micro-batch: its
  // references with their chunks, and whether forward.
  /// By chunk: in which item it ran first.
  std::map<std::tuple<int, int32_t, int32_t, int32_t, std::string>, std::map<int, size_t>> seen_;
  std::set<std::tuple<int, int32_t, int32_t, int32_t>> seen_forward_;
};

}  // namespace moetune::engine::testing
