// The same collectives in the traces of several ranks, series by series, and what of them lacks a
// rank that has a trace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/known_clocks.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/matched_messages.h"
#include "profiler/analysis/paired_series.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct MatchedSeries {
  std::vector<MatchedCollective> matched;
  ClockShifts shifts;
  /// Of ends from those of the hub, after the clocks were aligned: by the other's trace.
  std::map<size_t, std::vector<int64_t>> distances;
  std::set<std::pair<size_t, size_t>> apart;  ///< traces with a series that does not end together
  int64_t num_ops = 0;
};

/// Ranks whose instances of a series end together with those of one of them.
struct RankSet {
  size_t hub = 0;
  std::vector<PairedInstances> others;
};

/// Matches each series of which several traces have instances. Of a series one rank is the hub,
/// with which others are paired: by sequence or order; those that have another number of instances,
/// as where a record was lost, by ends. What the hub itself lacks is found among the others then.
class SeriesMatcher {
 public:
  /// `left_out`: by trace. Refers to the traces.
  SeriesMatcher(std::span<const ImportedTrace> traces, const std::vector<OpRows>& left_out);

  /// Once.
  MatchedSeries match();
  /// After that. By trace and row of its ops: what is in no match with all traces that have its
  /// group, or as many as the file says. Of a group that no file names that is told, with all ranks
  /// there, of what was not matched, and for the sake of ranks that have hardly any matches.
  [[nodiscard]] std::vector<std::map<uint32_t, Lack>> lacks(
      const std::vector<MatchedCollective>& matched);

 private:
  struct LooseInstance {
    int64_t end_ns = 0;  ///< on the hub's clock
    uint32_t trace = 0;
    Instance instance;
  };
  /// With its end on the hub's clock.
  using MatchAtEnd = std::pair<int64_t, MatchedCollective>;

  [[nodiscard]] const std::vector<Instance>& instances_of(size_t rank, const SeriesKey& key) const {
    return series_[rank].at(key);
  }
  /// The first rank with the number of instances that most ranks have; of several such numbers the
  /// largest.
  [[nodiscard]] size_t hub_of(const std::vector<size_t>& ranks, const SeriesKey& key) const;
  /// By sequence or order: sets of ranks, the largest first. Of kernels that may be messages there
  /// is one set or none: stages at the ends of a pipeline have as many messages as each other, but
  /// not with each other, and an exchange of all has all ranks in it.
  std::vector<RankSet> by_order(const SeriesKey& key, const std::vector<size_t>& ranks);
  /// Puts ranks of other sets into the largest one. Where no file says the group, sets may be of
  /// several: then only single ranks.
  void by_ends(const SeriesKey& key, std::vector<RankSet>& sets);
  bool join(const SeriesKey& key, RankSet& set, size_t rank);
  /// By ends, on the clocks that are known now if they end together there. Whatever it finds tells
  /// of the clocks, also what is too little against them.
  std::optional<PairedInstances> align_with(const SeriesKey& key, size_t hub, size_t rank);
  /// Pairs again what ends far from where it would on the clocks that more pairs tell, as where an
  /// order fits by chance or whole periods off, unless sequences or marked steps tell it. What does
  /// not end together on them is left out.
  void correct(const SeriesKey& key, RankSet& set);
  void take(const SeriesKey& key, const RankSet& set);
  /// What others than the hub have in common, on the clocks that are known now. False: nothing.
  bool add_without_hub(const SeriesKey& key, const RankSet& set,
                       std::vector<MatchAtEnd>& by_end) const;
  /// Of one instance, as far as its match and the traces of its group tell. `ahead`: of its clock.
  [[nodiscard]] Lack lack_of(const CollectivePart& one, const MatchedCollective* match,
                             const std::set<size_t>& partners,
                             const std::vector<std::optional<KnownClock>>& ahead) const;

  std::span<const ImportedTrace> traces_;
  std::vector<Series> series_;   ///< by trace
  std::vector<Interval> times_;  ///< by trace: of its device work
  std::map<SeriesKey, std::vector<size_t>> ranks_of_;
  KnownClocks clocks_;
  MatchedSeries found_;
};

}  // namespace moetune::profiler
