// The causes of a step's time as changes of its replay: which operations become how much shorter
// where a cause is taken away.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/analysis/alike_work.h"
#include "profiler/analysis/message_links.h"
#include "profiler/analysis/step_verdict.h"

namespace moetune::profiler {

/// Name of a collective by which ranks send each other the rows of their experts, where the group's
/// name does not tell.
inline constexpr const char* kExpertExchange = "expert_exchange";
/// Name of a copy by which the program reads a number from the device, or now and then more: it
/// comes with a wait.
inline constexpr const char* kReadValue = "value";

/// The least time that a kernel's work takes on the device, where its peaks are known (Williams,
/// Waterman & Patterson 2009).
class Roofline {
 public:
  /// Sums over several kernels, to tell how near they are to that time.
  struct Sum {
    double least_ns = 0;
    double ns = 0;
    void add(double least, int64_t taken_ns) {
      least_ns += least;
      ns += static_cast<double>(taken_ns);
    }
    [[nodiscard]] double ratio() const { return ns > 0 ? least_ns / ns : 0; }
  };

  explicit Roofline(const StepFacts& facts)
      : ns_per_flop_(facts.peak_flops_per_s > 0 ? 1e9 / facts.peak_flops_per_s : 0),
        ns_per_byte_(facts.memory_bytes_per_s > 0 ? 1e9 / facts.memory_bytes_per_s : 0) {}

  [[nodiscard]] bool is_known() const { return ns_per_flop_ > 0 && ns_per_byte_ > 0; }
  [[nodiscard]] double flops_ns(const TraceRecord& record) const {
    return ns_per_flop_ * static_cast<double>(record.flops);
  }
  [[nodiscard]] double bytes_ns(const TraceRecord& record) const {
    return ns_per_byte_ * static_cast<double>(record.bytes);
  }
  [[nodiscard]] double least_ns(const TraceRecord& record) const {
    return std::max(flops_ns(record), bytes_ns(record));
  }
  [[nodiscard]] bool is_flop_bound(const TraceRecord& record) const {
    return flops_ns(record) >= bytes_ns(record);
  }

 private:
  double ns_per_flop_;
  double ns_per_byte_;
};

/// What each cause takes from the operations of one step, prepared once. drop() changes the
/// operations of one rank, or of all where none is given.
class StepCauses {
 public:
  StepCauses(const ReplayedRun& run, const StepFacts& facts);

  [[nodiscard]] bool is_memory_short() const { return is_short_; }

  /// Whether anything is computed again, memory being short or not.
  [[nodiscard]] bool has_recomputation() const { return has_recomputation_; }
  void drop_recomputation(size_t place, ReplayOp& op) const {
    drop_one(SubCause::recompute, place, op);
  }

  /// The one rank whose communicators and links are all slower than others of their kind, if there
  /// is one. Of a link that is slow one way, and of one that alone is slow, the rank that sends.
  [[nodiscard]] std::optional<uint32_t> with_slow_link() const;
  /// By messages; none where these are as fast as others.
  [[nodiscard]] std::optional<SlowLink> slow_link() const;

  /// A rank of the stage that computes longest: of several pipelines, that of the first. None where
  /// two stages of a pipeline compute equally long.
  [[nodiscard]] std::optional<uint32_t> with_slowest_stage() const;

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

  [[nodiscard]] bool is_kernel(size_t op) const { return (traits_[op] & kKernel) != 0; }

  /// Whether dropping it changes any operation.
  [[nodiscard]] bool has(SubCause cause) const { return has_[static_cast<size_t>(cause)]; }

 private:
  /// Whether the rank takes part in this communication.
  [[nodiscard]] bool is_member(size_t op, uint32_t trace) const;

  /// Whether a rank has part in what the cause takes from an operation.
  [[nodiscard]] bool has_part(SubCause cause, size_t place, const ReplayOp& op,
                              uint32_t trace) const;

  [[nodiscard]] bool is_stall(const ReplayOp& op) const;

  /// What kinds of work there are for the causes, as bits.
  enum Trait : uint16_t {
    kKernel = 1 << 0,
    kCommunication = 1 << 1,
    kMessage = 1 << 2,
    kInput = 1 << 3,
    kOffload = 1 << 4,
    kRecompute = 1 << 5,
    kSync = 1 << 6,
    kAllocator = 1 << 7,
    kLoader = 1 << 8,
    kOtherHostWork = 1 << 9,
    kCollective = 1 << 10,
    kOfLayer = 1 << 11,
    kValue = 1 << 12,
  };
  void find_traits();
  void find_present();
  [[nodiscard]] bool may_be_present(SubCause cause) const;

  void drop_one(SubCause cause, size_t place, ReplayOp& op) const;

  /// Of the durations without a cause, one.
  void set(std::vector<int64_t>& durations, size_t place, int64_t ns) const;
  static void scale(int64_t& ns, double factor);
  /// -1: nothing to compare with.
  static void shorten(int64_t& ns, int64_t to_ns);

  void find_usual_gap();
  void find_doubtful_stalls();

  /// Alike work of the rank that does it fastest, where whole ranks are slower. Where only their
  /// work on experts' rows is longer, and nothing says how many rows these are: that as the mean of
  /// the ranks.
  void compare_ranks();

  /// Work beside a collective as it would be without one. What alike work of the rank takes there
  /// longer than alone (or, where none runs alone, than as near to the roofline as the rank's other
  /// work that is bound alike) is spread over the time in which collectives cover it. Where no size
  /// is known, work that is covered for the most part takes as long as work of the rank that may be
  /// of the same size (alone_ns); from what that loses follows what the rest loses.
  void compare_beside_collectives(const StepFacts& facts);
  /// The same of one rank's operations, which are next to each other.
  void compare_beside_collectives(const StepFacts& facts, size_t first, size_t end);

  /// Alike communication of the communicator that moves it fastest, where whole ones are slower;
  /// messages of imported traces by links.
  void compare_instances();
  /// Where all communicators of one rank that can be compared are slow, its link is. Then what it
  /// shares with all members of a slow one and more ranks, such as sums over all of them, is as
  /// slow. `single`: operations of communicators without others of their kind.
  void compare_with_slow_rank(const std::vector<size_t>& single);

  /// Work on experts' rows, as if all ranks of the layer had as many.
  void compare_experts();

  /// Ranks that send each other messages are stages: each as if it had as much to compute.
  void compare_stages();

  enum class Speed : uint8_t { unknown, usual, slow };

  const ReplayedRun& run_;
  AlikeWork alike_;
  MessageLinks links_;
  int64_t stall_ns_;
  bool is_short_ = false;
  bool has_recomputation_ = false;
  int64_t usual_gap_ns_ = 0;
  std::vector<bool> is_doubtful_stall_;  ///< by operation; empty: none is
  std::array<bool, static_cast<size_t>(SubCause::count)> has_ = {};
  std::vector<uint16_t>
      traits_;               ///< by operation: looked up for every cause, and records are large
  unsigned all_traits_ = 0;  ///< of any operation
  // Durations without a cause, by operation; -1: unchanged. Empty: all are.
  std::vector<int64_t> fastest_ns_;         // SubCause::rank
  std::vector<int64_t> free_ns_;            // SubCause::contention
  std::vector<int64_t> usual_transfer_ns_;  // SubCause::one_link
  std::vector<int64_t> balanced_ns_;        // SubCause::experts

  std::vector<double> stage_factors_;       // by trace
  std::vector<double> stage_work_;          // by trace, in ns
  std::vector<int32_t> pipelines_;          // by trace; -1: it sends no messages
  std::vector<std::vector<bool>> members_;  // by instance and trace
  std::vector<Speed> speeds_;               // by instance, beside others of its kind
};

}  // namespace moetune::profiler
