// Kernels that should take equally long, on one rank and on several. Where records say how large
// the work is, that and its name tell. Where they do not, as in traces of other tools, one name
// stands for work of several sizes: persistent kernels have the grid of the device, not of the
// work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "profiler/analysis/replayed_run.h"

namespace moetune::profiler {

/// Less than this apart, durations of alike work are the same.
inline constexpr double kAlikeRatio = 1.05;

/// Classes of alike kernels: of one name and size. Where no size is known, the kernels ahead and
/// behind in the order of launches on the stream have the same names, too. Names of imported
/// kernels end in "/" and their number of threads (imported_steps.h), which may follow from
/// experts' rows: it counts neither for neighbours nor for work on such rows.
class AlikeWork {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  explicit AlikeWork(const ReplayedRun& run);

  [[nodiscard]] size_t num_classes() const { return traits_.size(); }
  /// kNone: no kernel.
  [[nodiscard]] uint32_t class_of(size_t op) const { return class_of_[op]; }
  /// Whether the records say how large the work is.
  [[nodiscard]] bool is_sized(uint32_t id) const { return traits_[id].is_sized; }
  /// Whether it is work on experts' rows whose number is not known.
  [[nodiscard]] bool is_of_experts(uint32_t id) const { return traits_[id].is_of_experts; }

 private:
  struct Traits {
    bool is_sized = false;
    bool is_of_experts = false;
  };
  /// By the first operation of each: sums over classes do not depend on how these were found.
  void number_by_op();

  std::vector<uint32_t> class_of_;  ///< by op
  std::vector<Traits> traits_;      ///< by class
};

/// Times of the work of one class on one rank, in ns.
class WorkTimes {
 public:
  void add(int64_t ns) { times_.push_back(static_cast<double>(ns)); }
  /// To be called behind the last add().
  void sort();

  [[nodiscard]] size_t count() const { return times_.size(); }
  [[nodiscard]] double sum() const { return sums_.back(); }
  [[nodiscard]] double mean() const { return mean_of_shortest(count()); }
  /// 0 < n <= count().
  [[nodiscard]] double mean_of_shortest(size_t n) const;
  [[nodiscard]] double mean_of_longest(size_t n) const;
  [[nodiscard]] const std::vector<double>& sorted() const { return times_; }

 private:
  std::vector<double> times_;
  std::vector<double> sums_;  ///< of so many of the shortest
};

/// Share of its time that each rank's work of a class would take on the fastest rank; 1 on that.
/// Empty where only one rank has such work. Where its size is not known and ranks have different
/// numbers of it, some has another size. Then no rank is said to be slower than it is in any case:
/// of the one with more, the longest are left out, and the shortest where another is compared with
/// it.
std::map<uint32_t, double> ratios_to_fastest(const std::map<uint32_t, WorkTimes>& by_trace,
                                             bool is_sized);

/// The same of the mean of the ranks that have equally much of the work.
std::map<uint32_t, double> ratios_to_mean(const std::map<uint32_t, WorkTimes>& by_trace);

/// Work of one name and about one size: each takes at most kOtherSizeRatio times as long as the
/// next shorter one.
struct SizeGroup {
  double longest_ns = 0;
  double mean_ns = 0;
};

/// Sorted, next to each other, work that takes so many times as long is of another size.
inline constexpr double kOtherSizeRatio = 1.1;

/// The shortest first.
std::vector<SizeGroup> size_groups_of(const WorkTimes& times);

/// Collectives that hold multiprocessors make work beside them take so many times as long at most:
/// 32 blocks of NCCL leave 76 of the 108 multiprocessors of an A100, which is 1.42 times, and they
/// take memory's bandwidth, too.
inline constexpr double kMostContention = 1.5;

/// What work of unknown size takes alone, of which a group takes `beside_ns` beside collectives:
/// the nearest of the groups that run alone and do not take longer than it. Nothing where that is
/// further off than kMostContention: it is of another size.
std::optional<double> alone_ns(const std::vector<SizeGroup>& alone, double beside_ns);

}  // namespace moetune::profiler
