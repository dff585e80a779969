// Plays programs in virtual time: what the engine would take for a step if each operation took as
// long as it is told, on the same timelines and with the same link functions. Ranks meet only in
// collectives and messages, so the order in which they are advanced changes no time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/route.h"
#include "profiler/timeline.h"

namespace moetune::plan {

/// Where in a program an instruction is run.
struct Position {
  int rank = 0;
  size_t item = 0;
  size_t instr = 0;
  int num_collectives = 0;  ///< beside it; see Sharing
  int64_t start_ns = 0;     ///< of an operation: when it begins
};

/// How long an operation or a copy lasts, or the host works (Verb::host).
using DurationOf =
    std::function<int64_t(const Position& position, const Instr& instr, const OpCost& cost)>;

/// How long a transfer of `instr` between `ranks` lasts, in the place of what the links give; see
/// spec::collective_ns.
using TransferOf =
    std::function<int64_t(const Instr& instr, const std::vector<int>& ranks, int64_t transfer_ns)>;

/// One rank to be played.
struct PlayedRank {
  const StepProgram* program = nullptr;
  const Bindings* bindings = nullptr;  ///< null where no size is routed
};

struct PlayOptions {
  profiler::TraceLevel level = profiler::TraceLevel::none;
  int step = 0;
  /// Decides whether a record is kept in the traces. Called with each complete record in program
  /// order; `rank_place` is an index into the played ranks. Unset: all are kept.
  std::function<bool(size_t rank_place, const profiler::TraceRecord& record)> keeps_record;
  TransferOf transfer_of = {};  ///< unset: as the links give
  /// Told of each collective of a rank, from when the rank was ready to its end, before the rank
  /// launches what comes next.
  std::function<void(int rank, int64_t start_ns, int64_t end_ns)> sees_collective = {};
  /// Operations that a rank may have launched that have not begun; 0: any number.
  int launch_queue = 0;
};

struct PlayResult {
  int64_t step_ns = 0;
  std::vector<profiler::StepTrace> traces;  ///< by played rank; empty records without a level
};

/// Plays one step of `ranks`, which all belong to one trial. Each rank that is left out is taken to
/// do what the first played rank of its pipeline stage does. Throws base::Error where the
/// ranks wait for each other forever, with the instruction of each.
PlayResult play(const spec::HardwareSpec& hardware, const std::vector<PlayedRank>& ranks,
                const DurationOf& duration_of, const PlayOptions& options = {});

/// What a collective's member sends: `payload_bytes` as spec::collective_ns takes it.
int64_t sent_bytes(spec::CollectiveKind kind, int64_t payload_bytes, int64_t num_ranks);

/// What the program's rank sends in a collective or a message of `segment`; nothing in a receive.
/// `route`: the rows of the item, needed where the instruction is routed.
int64_t sent_bytes(const StepProgram& program, const Segment& segment, const Instr& instr,
                   const Route* route);

/// The same routing for every layer and micro-batch: what balanced counts come to on a rank.
class BalancedBindings final : public Bindings {
 public:
  BalancedBindings(const spec::TrialSpec& trial, int rank);
  [[nodiscard]] const Route& at(int64_t /*layer*/, int64_t /*micro_batch*/) const override {
    return route_;
  }

 private:
  Route route_;
};

}  // namespace moetune::plan
