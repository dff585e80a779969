// What the communication of each group of ranks costs, and how many ranks a group has, as far as
// traces say which group a communication is of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/collective_waits.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// What sends and receives, and whose group is not known: the rows of experts, or messages between
/// stages, but neither gradients nor weights.
inline constexpr std::string_view kUnknownMessages = "messages";

/// What a collective does with gradients or weights. Others may be anything.
enum class CollectiveKind : uint8_t { any, gathers, reductions };

/// Groups have our names (group_words.h). Kernels of DeepEP and its like are of "ep", messages
/// between stages of "pp", and kUnknownMessages are as one more group.
struct GroupCosts {
  /// The share of a rank's time in which communication of the group ran with nothing else on the
  /// device and did not wait for a late rank; of the rank where it is largest. 0: it always ran
  /// beside other work. A group that is missing does not communicate.
  std::map<std::string, double, std::less<>> ratios;
  double unknown_ratio = 0;  ///< the same of communication whose group is not known
  /// The same without reductions, and without gathers; "": the group is not known.
  std::map<std::string, double, std::less<>> gather_ratios;
  std::map<std::string, double, std::less<>> reduction_ratios;
  /// Ranks of a group, where the traces say it; 0: they say several sizes.
  std::map<std::string, int64_t, std::less<>> sizes;

  /// PyTorch's device meshes name groups, as torchtitan has them and Megatron has not.
  bool has_meshes = false;

  /// Whether the traces name any group.
  [[nodiscard]] bool are_known() const { return !ratios.empty(); }

  /// What communication that is or may be of that kind costs in a group; "": in one not known.
  [[nodiscard]] double ratio_of(std::string_view group, CollectiveKind kind) const;

  /// Adds a rank. `is_message`: stage_messages_of(trace). `segments` explain the rank's time of
  /// `window_ns`; `waits` may be null.
  void add(const ImportedTrace& trace, const std::vector<bool>& is_message,
           const CauseSegments& segments, int64_t window_ns, const WaitsByOp* waits);
};

/// Our names of the groups that a trace's communication is in. Refers to the trace.
class CommGroups {
 public:
  /// `is_message`: stage_messages_of(trace). Notes the groups and their sizes in `costs`.
  CommGroups(const ImportedTrace& trace, const std::vector<bool>& is_message, GroupCosts& costs);
  /// Of one that communicates; empty: not known.
  [[nodiscard]] std::string_view of(const ImportedOp& op);

 private:
  const ImportedTrace& trace_;
  std::vector<std::string_view> by_comm_;
  std::unordered_map<uint32_t, std::string_view> by_kernel_;  ///< by name
};

}  // namespace moetune::profiler
