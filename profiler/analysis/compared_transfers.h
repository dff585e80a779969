// Communication of alike groups and links beside each other: is one slower than the others?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/analysis/message_links.h"
#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/shorter_durations.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {

/// Refers to the run.
class ComparedTransfers {
 public:
  ComparedTransfers(const ReplayedRun& run, const WorkTraits& traits);

  /// Alike communication of the communicator that moves it fastest, where whole ones are slower;
  /// messages of imported traces by links.
  [[nodiscard]] const ShorterDurations& usual() const { return usual_; }

  /// The one rank whose communicators and links are all slower than others of their kind, if there
  /// is one. Of a link that is slow one way, and of one that alone is slow, the rank that sends.
  [[nodiscard]] std::optional<uint32_t> with_slow_link() const;
  /// By messages; none where these are as fast as others.
  [[nodiscard]] std::optional<SlowLink> slow_link() const;

  /// Whether the rank takes part in this communication.
  [[nodiscard]] bool is_member(size_t op, uint32_t trace) const;

 private:
  enum class Speed : uint8_t { unknown, usual, slow };

  void compare_instances(const WorkTraits& traits);
  /// Where all communicators of one rank that can be compared are slow, its link is. Then what it
  /// shares with all members of a slow one and more ranks, such as sums over all of them, is as
  /// slow. `single`: operations of communicators without others of their kind.
  void compare_with_slow_rank(const WorkTraits& traits, const std::vector<size_t>& single);
  /// By instance: whether all members of one of the rank's slow communicators are in it.
  [[nodiscard]] std::vector<bool> with_slow_part(uint32_t rank) const;

  const ReplayedRun& run_;
  MessageLinks links_;
  ShorterDurations usual_;
  std::vector<std::vector<bool>> members_;  ///< by instance and trace
  std::vector<Speed> speeds_;               ///< by instance, beside others of its kind
};

}  // namespace moetune::profiler
