#include "profiler/analysis/paired_series.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

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

/// Instances of two ranks that belong together.
std::vector<std::pair<Instance, Instance>> pairs_of(const std::vector<Instance>& a,
                                                    const std::vector<Instance>& b) {
  std::vector<std::pair<Instance, Instance>> pairs;
  const auto knows = [](const Instance& instance) { return instance.sequence >= 0; };
  if (std::ranges::all_of(a, knows) && std::ranges::all_of(b, knows)) {
    std::map<int64_t, Instance> by_sequence;
    for (const Instance& instance : b) by_sequence.emplace(instance.sequence, instance);
    for (const Instance& instance : a) {
      const auto other = by_sequence.find(instance.sequence);
      if (other != by_sequence.end()) pairs.emplace_back(instance, other->second);
    }
  } else if (a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) pairs.emplace_back(a[i], b[i]);
  }
  return pairs;
}

void set_shifts(const ImportedTrace& first, const ImportedTrace& second, PairedInstances& paired) {
  for (const auto& [one, other] : paired.pairs) {
    paired.shifts.push_back(end_of(second, other) - end_of(first, one));
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
  if (!ahead_ns || first.facts.base_time_ns == 0 || std::ranges::any_of(in_order.pairs, is_told) ||
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

/// A series' instances by their end, as far as that is not their order already.
std::vector<Instance> by_end(const ImportedTrace& trace, std::vector<Instance> instances) {
  std::ranges::stable_sort(instances, {},
                           [&](const Instance& instance) { return end_of(trace, instance); });
  return instances;
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

std::vector<SeriesEnd> ends_of(const ImportedTrace& trace, const std::vector<Instance>& sorted) {
  std::vector<SeriesEnd> ends;
  ends.reserve(sorted.size());
  for (const Instance& one : sorted) ends.push_back({end_of(trace, one), one.step});
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
  set_shifts(first, second, paired);
  const auto are_most = [&](int64_t count) {
    return static_cast<double>(count) >= kAgreeRatio * static_cast<double>(paired.pairs.size());
  };
  const auto num_agree = std::ranges::count_if(paired.shifts, [&](int64_t shift) {
    return distance_of(shift, paired.shift_ns) <= kEndsAgreeNs;
  });
  const auto num_same = std::ranges::count_if(
      paired.pairs, [](const auto& pair) { return may_be_of_one_step(pair.first, pair.second); });
  if (!are_most(num_agree) || !are_most(num_same)) return std::nullopt;
  if (auto shared = by_shared_clock(first, a, second, b, paired)) return shared;
  if (static_cast<size_t>(num_agree) == paired.pairs.size()) return paired;
  // As many records were lost on both, but not the same ones.
  auto aligned = align(first, a, second, b, paired.shift_ns);
  const bool is_better = aligned && aligned->pairs.size() > static_cast<size_t>(num_agree);
  return is_better ? std::move(aligned) : std::optional(std::move(paired));
}

std::optional<PairedInstances> align(const ImportedTrace& first, std::vector<Instance> a,
                                     const ImportedTrace& second, std::vector<Instance> b,
                                     std::optional<int64_t> known_ns) {
  a = by_end(first, std::move(a));
  b = by_end(second, std::move(b));
  const ClockHints hints = {known_ns, shared_ns(first, second)};
  const auto aligned = align_by_ends(ends_of(first, a), ends_of(second, b), hints);
  if (!aligned) return std::nullopt;
  PairedInstances paired;
  for (const auto& [i, j] : aligned->pairs) paired.pairs.emplace_back(a[i], b[j]);
  set_shifts(first, second, paired);
  return paired;
}

}  // namespace moetune::profiler
