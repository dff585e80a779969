#include "profiler/analysis/trace_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/trace_windows.h"

namespace moetune::profiler {
namespace {

/// A place to cut moves on until no communication lies across it. Where that takes more rounds over
/// all of it, what was matched is in no common order, and there is no such place.
constexpr int kMostRounds = 16;

/// Ranks that were recorded together for this part of the longest recording are taken as a whole.
constexpr double kTogetherRatio = 0.95;

/// A moment of each trace, on its own clock.
using Cut = std::vector<int64_t>;

class Cutter {
 public:
  Cutter(std::span<const ImportedTrace> traces, const CollectiveMatching& matching)
      : traces_(traces), offsets_ns_(matching.clock_offsets_ns) {
    offsets_ns_.resize(traces.size());
    for (const ImportedTrace& trace : traces) {
      std::vector<int64_t>& launches = launches_ns_.emplace_back();
      const std::vector<uint32_t> rows = ops_by_call(trace, [](const ImportedOp&) { return true; });
      base::reserve_large(launches, rows.size());
      for (const uint32_t row : rows) {
        launches.push_back(trace.launch_of(trace.ops[row])->start_ns);
      }
      int64_t& end_ns = ends_ns_.emplace_back(launches.empty() ? 0 : launches.back() + 1);
      for (const ImportedOp& op : trace.ops) end_ns = std::max(end_ns, op.end_ns);
      num_ops_ += launches.size();
      num_ranks_ += trace.ops.empty() ? 0 : 1;
      has_launches_ = has_launches_ && launches.empty() == trace.ops.empty();
      if (trace.ops.size() > traces[longest_].ops.size()) longest_ = launches_ns_.size() - 1;
    }
    for (const auto* all : {&matching.matched, &matching.messages}) {
      for (const MatchedCollective& one : *all) add_meeting(one);
    }
  }

  std::vector<std::vector<ImportedStep>> parts(size_t part_ops, bool is_together_only) const {
    std::vector<std::vector<ImportedStep>> parts(launches_ns_.size());
    if (!has_launches_ || num_ops_ == 0) return parts;
    const size_t num_each = std::max(part_ops, std::min(kMostPartOps, kFewestPartOps * num_ranks_));
    const size_t count = (num_ops_ - 1) / num_each + 1;
    Cut first = cut_at(0, count);
    Cut last = ends_ns_;
    const bool is_shorter = is_together_only && leave_out_alone(first, last);
    std::vector<Cut> cuts = {std::move(first)};
    for (size_t part = 1; part < count; ++part) {
      auto cut = cut_behind(cuts.back(), cut_at(part, count));
      if (cut && is_each_before(*cut, last)) cuts.push_back(std::move(*cut));
    }
    if (cuts.size() < 2 && !is_shorter) return parts;
    cuts.push_back(std::move(last));
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      for (size_t trace = 0; trace < parts.size(); ++trace) {
        parts[trace].push_back(
            {static_cast<int64_t>(part), cuts[part][trace], cuts[part + 1][trace]});
      }
    }
    return parts;
  }

 private:
  struct Launch {
    uint32_t trace = 0;
    int64_t start_ns = 0;
  };

  void add_meeting(const MatchedCollective& one) {
    for (const CollectivePart& part : one.parts) {
      const ImportedTrace& trace = traces_[part.trace];
      const HostCall* call = trace.launch_of(trace.ops[part.op]);
      if (call != nullptr) met_.push_back({part.trace, call->start_ns});
    }
    meeting_ends_.push_back(met_.size());
  }

  /// Moves both ends to where all ranks were recorded: what some did alone waited for something
  /// that nobody knows. False where there is little of it, or clocks are not known.
  bool leave_out_alone(Cut& first, Cut& last) const {
    double begin_ns = std::numeric_limits<double>::lowest();
    double end_ns = std::numeric_limits<double>::max();
    double longest_ns = 0;
    for (size_t trace = 0; trace < traces_.size(); ++trace) {
      const Chunks<ImportedOp>& own = traces_[trace].ops;
      if (own.size() == 0) continue;
      if (!offsets_ns_[trace]) return false;
      const auto offset_ns = static_cast<double>(*offsets_ns_[trace]);
      const double own_begin_ns = static_cast<double>(own[0].start_ns) + offset_ns;
      const double own_end_ns = static_cast<double>(ends_ns_[trace]) + offset_ns;
      longest_ns = std::max(longest_ns, own_end_ns - own_begin_ns);
      begin_ns = std::max(begin_ns, own_begin_ns);
      end_ns = std::min(end_ns, own_end_ns);
    }
    if (end_ns <= begin_ns || end_ns - begin_ns >= kTogetherRatio * longest_ns) return false;
    Cut begin = first;
    Cut end = last;
    for (size_t trace = 0; trace < traces_.size(); ++trace) {
      if (launches_ns_[trace].empty()) continue;
      begin[trace] = launch_from(trace, std::llround(begin_ns) - *offsets_ns_[trace]);
      end[trace] = launch_from(trace, std::llround(end_ns) - *offsets_ns_[trace]);
    }
    if (!close(begin) || !close(end) || !is_each_before(begin, end)) return false;
    first = std::move(begin);
    last = std::move(end);
    return true;
  }

  /// Whether every rank has launches between the two.
  [[nodiscard]] bool is_each_before(const Cut& begin, const Cut& end) const {
    for (size_t trace = 0; trace < traces_.size(); ++trace) {
      const std::vector<int64_t>& own = launches_ns_[trace];
      if (own.empty()) continue;
      const auto next = std::ranges::lower_bound(own, begin[trace]);
      if (next == own.end() || *next >= end[trace]) return false;
    }
    return true;
  }

  /// The launches of what each device does when that of the trace with most work has done so many
  /// of `count` equal parts: hosts may be far ahead of their devices, each as far as it likes.
  [[nodiscard]] Cut cut_at(size_t part, size_t count) const {
    const Chunks<ImportedOp>& most = traces_[longest_].ops;
    const int64_t moment_ns = most[part * most.size() / count].start_ns;
    Cut cut;
    for (size_t trace = 0; trace < traces_.size(); ++trace) {
      const Chunks<ImportedOp>& own = traces_[trace].ops;
      if (own.size() == 0) {
        cut.push_back(0);
      } else if (part == 0) {
        cut.push_back(launches_ns_[trace].front());
      } else if (offsets_ns_[longest_] && offsets_ns_[trace]) {
        cut.push_back(launch_from(trace, moment_ns + *offsets_ns_[longest_] - *offsets_ns_[trace]));
      } else {
        cut.push_back(launch_from(trace, moment_ns - most[0].start_ns + own[0].start_ns));
      }
    }
    return cut;
  }

  /// When the first work was launched that starts at a moment or later.
  [[nodiscard]] int64_t launch_from(size_t trace, int64_t moment_ns) const {
    const ImportedTrace& own = traces_[trace];
    for (size_t row = first_from(own, moment_ns); row < own.ops.size(); ++row) {
      if (const HostCall* call = own.launch_of(own.ops[row])) return call->start_ns;
    }
    return ends_ns_[trace];
  }

  /// At launches. None where that leaves some rank without work before or behind it.
  [[nodiscard]] std::optional<Cut> cut_behind(const Cut& last, Cut cut) const {
    for (size_t trace = 0; trace < cut.size(); ++trace) {
      cut[trace] = std::max(last[trace], cut[trace]);
    }
    if (!close(cut)) return std::nullopt;
    for (size_t trace = 0; trace < cut.size(); ++trace) {
      const std::vector<int64_t>& own = launches_ns_[trace];
      if (own.empty()) continue;
      const auto next = std::ranges::lower_bound(own, cut[trace]);
      if (next == own.end() || *next <= last[trace]) return std::nullopt;
      cut[trace] = *next;
    }
    return cut;
  }

  /// Moves a cut on until no meeting lies across it. False where that does not come to an end.
  bool close(Cut& cut) const {
    for (int round = 0; round < kMostRounds; ++round) {
      bool is_closed = true;
      size_t at = 0;
      for (const size_t end : meeting_ends_) {
        const std::span<const Launch> met(met_.data() + at, end - at);
        at = end;
        const auto is_before = [&](const Launch& one) { return one.start_ns < cut[one.trace]; };
        if (std::ranges::none_of(met, is_before) || std::ranges::all_of(met, is_before)) continue;
        is_closed = false;
        for (const Launch& one : met) cut[one.trace] = std::max(cut[one.trace], one.start_ns + 1);
      }
      if (is_closed) return true;
    }
    return false;
  }

  std::span<const ImportedTrace> traces_;
  std::vector<std::optional<int64_t>> offsets_ns_;
  std::vector<std::vector<int64_t>> launches_ns_;  ///< by trace, ascending: when work was launched
  std::vector<int64_t> ends_ns_;                   ///< by trace: behind all work
  size_t num_ops_ = 0;
  size_t num_ranks_ = 0;  ///< with device work
  bool has_launches_ = true;
  size_t longest_ = 0;                ///< the trace that launches most
  std::vector<Launch> met_;           ///< what was matched, one communication after the other
  std::vector<size_t> meeting_ends_;  ///< of each of them: of met_
};

}  // namespace

std::vector<std::vector<ImportedStep>> parts_of_ranks(std::span<const ImportedTrace> traces,
                                                      const CollectiveMatching& matching,
                                                      const PartSizes& sizes) {
  size_t num_ops = 0;
  for (const ImportedTrace& trace : traces) num_ops += trace.ops.size();
  const bool is_cut = num_ops > sizes.most_whole;
  const bool may_be_apart = sizes.is_together_only && traces.size() > 1;
  if (!is_cut && !may_be_apart) return std::vector<std::vector<ImportedStep>>(traces.size());
  constexpr size_t kWhole = std::numeric_limits<size_t>::max();
  return Cutter(traces, matching).parts(is_cut ? sizes.part : kWhole, sizes.is_together_only);
}

}  // namespace moetune::profiler
