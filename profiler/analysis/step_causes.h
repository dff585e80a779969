// The causes of a step's time as changes of its replay: which operations become how much shorter
// where a cause is taken away.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/analysis/alike_work.h"
#include "profiler/analysis/compared_ranks.h"
#include "profiler/analysis/compared_stages.h"
#include "profiler/analysis/compared_transfers.h"
#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/shorter_durations.h"
#include "profiler/analysis/step_verdict.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {

/// What each cause takes from the operations of one step, prepared once. drop() changes the
/// operations of one rank, or of all where none is given.
class StepCauses {
 public:
  StepCauses(const ReplayedRun& run, const StepFacts& facts);

  [[nodiscard]] bool is_memory_short() const { return is_short_; }

  /// Whether anything is computed again, memory being short or not.
  [[nodiscard]] bool has_recomputation() const { return traits_.any_has(WorkTraits::kRecompute); }
  void drop_recomputation(size_t place, ReplayOp& op) const {
    drop_one(SubCause::recompute, place, op);
  }

  [[nodiscard]] const ComparedTransfers& transfers() const { return transfers_; }
  [[nodiscard]] const ComparedStages& stages() const { return stages_; }

  void drop(SubCause cause, std::vector<ReplayOp>& ops, std::optional<uint32_t> trace = {}) const;
  /// The same of one operation, a copy of that at `place`.
  void drop(SubCause cause, size_t place, ReplayOp& op, std::optional<uint32_t> trace) const {
    if (!trace || has_part(cause, place, op, *trace)) drop_one(cause, place, op);
  }

  /// A stall of the host that ends as work of the device does may be a wait for it whose record is
  /// lost: takes it from the operation at `place`.
  void drop_doubtful_stall(size_t place, ReplayOp& op) const {
    if (has_doubtful_stalls() && is_doubtful_stall_[place]) op.gap_ns = usual_gap_ns_;
  }
  [[nodiscard]] bool has_doubtful_stalls() const { return !is_doubtful_stall_.empty(); }

  [[nodiscard]] bool is_kernel(size_t op) const { return traits_.has(op, WorkTraits::kKernel); }

  /// Whether dropping it changes any operation.
  [[nodiscard]] bool has(SubCause cause) const { return has_[static_cast<size_t>(cause)]; }

 private:
  StepCauses(const ReplayedRun& run, const StepFacts& facts, const AlikeWork& alike);

  /// Whether a rank has part in what the cause takes from an operation.
  [[nodiscard]] bool has_part(SubCause cause, size_t place, const ReplayOp& op,
                              uint32_t trace) const;

  [[nodiscard]] bool is_stall(const ReplayOp& op) const;

  void find_present();
  [[nodiscard]] bool may_be_present(SubCause cause) const;

  void drop_one(SubCause cause, size_t place, ReplayOp& op) const;

  void find_usual_gap();
  void find_doubtful_stalls();

  const ReplayedRun& run_;
  WorkTraits traits_;
  ComparedTransfers transfers_;  ///< for SubCause::one_link
  ComparedStages stages_;        ///< for SubCause::uneven_stage
  RankDurations ranks_;          ///< for SubCause::rank and SubCause::experts
  ShorterDurations free_;        ///< for SubCause::contention
  int64_t stall_ns_;
  bool is_short_;
  int64_t usual_gap_ns_ = 0;
  std::vector<bool> is_doubtful_stall_;  ///< by operation; empty: none is
  std::array<bool, static_cast<size_t>(SubCause::count)> has_ = {};
};

}  // namespace moetune::profiler
