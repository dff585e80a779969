#include "profiler/analysis/paired_series.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "kernels/base/median.h"
#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/trace_figures.h"

namespace moetune::profiler {
namespace {

constexpr int64_t kFarApartNs = int64_t{1} << 60;
/// Share of a series' instances that must end together for the match to be believed.
constexpr double kAgreeRatio = 0.8;

int64_t launching_step(const ImportedTrace& trace, const ImportedOp& op) {
  const HostCall* call = trace.launch_of(op);
  if (call == nullptr) return kNoStep;
  const auto later =
      std::ranges::upper_bound(trace.steps, call->start_ns, {}, &ImportedStep::start_ns);
  if (later == trace.steps.begin() || call->start_ns >= std::prev(later)->end_ns) return kNoStep;
  return std::prev(later)->number;
}

bool is_told(const Instance& a, const Instance& b) {
  return (a.sequence >= 0 && a.sequence == b.sequence) || (a.step != kNoStep && a.step == b.step);
}

/// Places of the instances of two ranks that belong together.
std::vector<std::pair<uint32_t, uint32_t>> pairs_of(const std::vector<Instance>& a,
                                                    const std::vector<Instance>& b) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  pairs.reserve(std::min(a.size(), b.size()));
  const auto knows = [](const Instance& instance) { return instance.sequence >= 0; };
  if (std::ranges::all_of(a, knows) && std::ranges::all_of(b, knows)) {
    using Numbered = std::pair<int64_t, uint32_t>;  // sequence and place in b
    std::vector<Numbered> by_sequence;
    by_sequence.reserve(b.size());
    for (uint32_t i = 0; i < b.size(); ++i) by_sequence.emplace_back(b[i].sequence, i);
    if (!std::ranges::is_sorted(by_sequence)) std::ranges::sort(by_sequence);
    for (uint32_t i = 0; i < a.size(); ++i) {
      const auto other = std::ranges::lower_bound(by_sequence, a[i].sequence, {}, &Numbered::first);
      if (other != by_sequence.end() && other->first == a[i].sequence) {
        pairs.emplace_back(i, other->second);
      }
    }
  } else if (a.size() == b.size()) {
    for (uint32_t i = 0; i < a.size(); ++i) pairs.emplace_back(i, i);
  }
  return pairs;
}

void set_shifts(const ImportedTrace& first, const std::vector<Instance>& a,
                const ImportedTrace& second, const std::vector<Instance>& b,
                PairedInstances& paired) {
  paired.shifts.reserve(paired.pairs.size());
  for (const auto& [one, other] : paired.pairs) {
    paired.shifts.push_back(end_of(second, b[other]) - end_of(first, a[one]));
  }
  paired.shift_ns = base::upper_median(paired.shifts);
}

/// How far the second clock is ahead if both are of one machine; none: it is not known of both when
/// they began.
std::optional<int64_t> shared_ns(const ImportedTrace& first, const ImportedTrace& second) {
  const int64_t base_ns = first.facts.base_time_ns;
  const int64_t other_ns = second.facts.base_time_ns;
  int64_t ahead_ns = 0;
  if ((base_ns == 0) != (other_ns == 0) || __builtin_sub_overflow(base_ns, other_ns, &ahead_ns)) {
    return std::nullopt;
  }
  return ahead_ns;
}

/// Where periods are all alike, an order may fit that is whole periods off. If it is far from a
/// clock that both traces have, and most end together on that one: those. None: the order counts.
std::optional<PairedInstances> by_shared_clock(const ImportedTrace& first,
                                               const std::vector<Instance>& a,
                                               const ImportedTrace& second,
                                               const std::vector<Instance>& b,
                                               const PairedInstances& in_order) {
  // Clocks of two machines are further apart than ends on one.
  constexpr int64_t kOfOneMachineNs = 50'000;
  constexpr int64_t kFarTolerances = 8;  // the usual time from one instance to the next
  const std::optional<int64_t> ahead_ns = shared_ns(first, second);
  if (!ahead_ns || first.facts.base_time_ns == 0 || is_any_told(in_order, a, b) ||
      distance_of(in_order.shift_ns, *ahead_ns) <=
          kFarTolerances * end_tolerance_ns(ends_of(first, a))) {
    return std::nullopt;
  }
  auto aligned = align(first, a, second, b, ahead_ns);
  const bool is_shared = aligned && aligned->pairs.size() >= kFewestOfSteps &&
                         2 * aligned->pairs.size() >= in_order.pairs.size() &&
                         distance_of(aligned->shift_ns, *ahead_ns) <= kOfOneMachineNs;
  return is_shared ? std::move(aligned) : std::nullopt;
}

/// Places of a series' instances by their end, as far as that is not their order already.
std::vector<uint32_t> by_end(const ImportedTrace& trace, const std::vector<Instance>& instances) {
  std::vector<uint32_t> places(instances.size());
  std::iota(places.begin(), places.end(), 0U);
  std::ranges::stable_sort(places, {},
                           [&](uint32_t place) { return end_of(trace, instances[place]); });
  return places;
}

}  // namespace

Series series_of(const ImportedTrace& trace, const OpRows& left_out) {
  const WorkClasses wide(trace);
  const auto text = [&](uint32_t name) {
    return name == kNoRow ? std::string() : trace.names[name];
  };
  Series series;
  for (size_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    if (wide.of(op) != WorkClass::communication || op.kind == ActivityKind::copy) continue;
    if (left_out.contains(static_cast<uint32_t>(row))) continue;
    const CommCall comm = op.comm == kNoRow ? CommCall() : trace.comms[op.comm];
    // The two ends of a message have different names (send, recv): see matched_messages.h.
    if (comm.peer >= 0 || text(comm.collective) == "send" || text(comm.collective) == "recv") {
      continue;
    }
    const bool is_named = comm.collective != kNoRow && !sends_and_receives(trace, comm);
    const std::string kind =
        is_named ? text(comm.collective) : name_before_arguments(trace.names[op.name], 80);
    // Sizes differ between the members of an exchange of unequal parts.
    const int64_t bytes = kind.find("all_to_all") != std::string::npos
                              ? 0
                              : std::max(comm.in_nelems, comm.out_nelems);
    series[{text(comm.group), text(comm.members), kind, bytes}].push_back(
        {comm.sequence, static_cast<uint32_t>(row), launching_step(trace, op)});
  }
  return series;
}

int64_t end_of(const ImportedTrace& trace, const Instance& instance) {
  return trace.ops[instance.op].end_ns;
}

std::vector<SeriesEnd> ends_of(const ImportedTrace& trace, const std::vector<Instance>& instances) {
  std::vector<SeriesEnd> ends;
  ends.reserve(instances.size());
  for (const Instance& one : instances) ends.push_back({end_of(trace, one), one.step});
  return ends;
}

int64_t distance_of(int64_t a, int64_t b) {
  const double distance = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return distance < static_cast<double>(kFarApartNs) ? std::abs(a - b) : kFarApartNs;
}

std::optional<PairedInstances> pair_up(const ImportedTrace& first, const std::vector<Instance>& a,
                                       const ImportedTrace& second,
                                       const std::vector<Instance>& b) {
  PairedInstances paired;
  paired.pairs = pairs_of(a, b);
  if (paired.pairs.empty()) return std::nullopt;
  set_shifts(first, a, second, b, paired);
  const auto are_most = [&](int64_t count) {
    return static_cast<double>(count) >= kAgreeRatio * static_cast<double>(paired.pairs.size());
  };
  const auto num_agree = std::ranges::count_if(paired.shifts, [&](int64_t shift) {
    return distance_of(shift, paired.shift_ns) <= kEndsAgreeNs;
  });
  const auto num_same = std::ranges::count_if(paired.pairs, [&](const auto& pair) {
    return may_be_of_one_step(a[pair.first], b[pair.second]);
  });
  if (!are_most(num_agree) || !are_most(num_same)) return std::nullopt;
  if (auto shared = by_shared_clock(first, a, second, b, paired)) return shared;
  if (static_cast<size_t>(num_agree) == paired.pairs.size()) return paired;
  // As many records were lost on both, but not the same ones.
  auto aligned = align(first, a, second, b, paired.shift_ns);
  const bool is_better = aligned && aligned->pairs.size() > static_cast<size_t>(num_agree);
  return is_better ? std::move(aligned) : std::optional(std::move(paired));
}

bool is_any_told(const PairedInstances& paired, const std::vector<Instance>& a,
                 const std::vector<Instance>& b) {
  return std::ranges::any_of(
      paired.pairs, [&](const auto& pair) { return is_told(a[pair.first], b[pair.second]); });
}

std::optional<PairedInstances> align(const ImportedTrace& first, const std::vector<Instance>& a,
                                     const ImportedTrace& second, const std::vector<Instance>& b,
                                     std::optional<int64_t> known_ns) {
  const std::vector<uint32_t> places_a = by_end(first, a);
  const std::vector<uint32_t> places_b = by_end(second, b);
  const auto ends_at = [](const ImportedTrace& trace, const std::vector<Instance>& instances,
                          const std::vector<uint32_t>& places) {
    std::vector<SeriesEnd> ends;
    ends.reserve(places.size());
    for (const uint32_t place : places) {
      ends.push_back({end_of(trace, instances[place]), instances[place].step});
    }
    return ends;
  };
  const ClockHints hints = {known_ns, shared_ns(first, second)};
  const auto aligned =
      align_by_ends(ends_at(first, a, places_a), ends_at(second, b, places_b), hints);
  if (!aligned) return std::nullopt;
  PairedInstances paired;
  for (const auto& [i, j] : aligned->pairs) paired.pairs.emplace_back(places_a[i], places_b[j]);
  set_shifts(first, a, second, b, paired);
  return paired;
}

}  // namespace moetune::profiler
