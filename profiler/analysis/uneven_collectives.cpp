#include "profiler/analysis/uneven_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

constexpr size_t kLeastAlike = 4;
/// Work beside a collective makes it at most half as long again (kMostContention).
constexpr double kUneven = 2;
constexpr int64_t kLargeBytes = 4 << 20;
/// One node has PCIe at least; between nodes eight ranks may share 10 Gbit/s.
constexpr double kSlowestInNodeBytesPerNs = 1;
constexpr double kSlowestBytesPerNs = 0.1;

/// What has to be the same of alike collectives; names are rows of the trace's table.
using Alike = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, int32_t, int64_t, int64_t>;

/// Nothing where the file does not say how large the collective is.
std::optional<Alike> alike_of(const ImportedTrace& trace, const ImportedOp& op) {
  if (op.kind != ActivityKind::kernel || op.comm == kNoRow) return std::nullopt;
  const CommCall& comm = trace.comms[op.comm];
  const bool is_message = comm.peer >= 0 || comm.collective == kNoRow;
  if (is_message || std::max(comm.in_nelems, comm.out_nelems) <= 0) return std::nullopt;
  return Alike{comm.group,      comm.description, comm.collective, comm.dtype,
               comm.group_size, comm.in_nelems,   comm.out_nelems};
}

/// Durations of a trace's collectives, those of a class sorted.
std::map<Alike, std::vector<int64_t>> durations_of(const ImportedTrace& trace) {
  std::map<Alike, std::vector<int64_t>> durations;
  for (const ImportedOp& op : trace.ops) {
    if (const auto alike = alike_of(trace, op)) durations[*alike].push_back(op.duration_ns());
  }
  for (auto& [alike, times] : durations) std::ranges::sort(times);
  return durations;
}

/// What a large message takes over the slowest link that ranks are trained over.
std::optional<double> slowest_ns(const ImportedTrace& trace, int64_t bytes) {
  if (bytes < kLargeBytes) return std::nullopt;
  const auto devices = static_cast<int64_t>(trace.facts.device_names.size());
  const bool is_on_one_node = trace.facts.world_size && devices >= *trace.facts.world_size;
  return static_cast<double>(bytes) /
         (is_on_one_node ? kSlowestInNodeBytesPerNs : kSlowestBytesPerNs);
}

std::vector<int64_t> numbers_in(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    uint32_t number = 0;
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = std::max(behind, at + 1);
  }
  return numbers;
}

}  // namespace

std::vector<UnevenCollectives::Lost> UnevenCollectives::summed(std::vector<Lost> lost) {
  std::ranges::sort(lost, {}, &Lost::op);
  size_t count = 0;
  for (const Lost& one : lost) {
    if (count > 0 && lost[count - 1].op == one.op) {
      lost[count - 1].ns += one.ns;
    } else {
      lost[count++] = one;
    }
  }
  lost.resize(count);
  return lost;
}

std::optional<Evidence> UnevenCollectives::evidence(std::span<const ImportedTrace> traces) const {
  double all_ns = 0;
  double waited_ns = 0;
  double slow_ns = 0;  // of that, by the link
  int64_t num_uneven = 0;
  double longest_ratio = 0;
  for (size_t index = 0; index < lost_.size(); ++index) {
    const ImportedTrace& trace = traces[index];
    const std::map<Alike, std::vector<int64_t>> durations =
        lost_[index].empty() ? std::map<Alike, std::vector<int64_t>>() : durations_of(trace);
    for (const Lost& lost : summed(lost_[index])) {
      const ImportedOp& op = trace.ops[lost.op];
      all_ns += lost.ns;
      const auto alike = alike_of(trace, op);
      if (!alike) continue;
      const std::vector<int64_t>& times = durations.at(*alike);
      const auto own_ns = static_cast<double>(op.duration_ns());
      const auto quick_ns = static_cast<double>(times[(times.size() - 1) / 4]);
      double of_alike_ns = 0;
      if (times.size() >= kLeastAlike && own_ns > kUneven * quick_ns) {
        of_alike_ns = std::min(lost.ns, own_ns - quick_ns);
        ++num_uneven;
        longest_ratio = std::max(longest_ratio, quick_ns > 0 ? own_ns / quick_ns : 0);
      }
      const double link_ns = slowest_ns(trace, op.bytes).value_or(own_ns);
      const double of_link_ns = std::clamp(own_ns - link_ns, 0.0, lost.ns);
      waited_ns += std::max(of_alike_ns, of_link_ns);
      slow_ns += std::max(0.0, of_link_ns - of_alike_ns);
    }
  }
  if (all_ns <= 0 || 2 * waited_ns < all_ns) return std::nullopt;
  const double ratio = waited_ns / all_ns;
  std::string why;
  if (num_uneven > 0) {
    why =
        fmt::format("{} took at least twice as long as a quarter of alike ones, up to {:.0f} times",
                    num_uneven, longest_ratio);
  }
  if (slow_ns > 0) {
    why +=
        fmt::format("{}large ones move less than the slowest link would", why.empty() ? "" : "; ");
  }
  return Evidence{"uneven_collectives_ratio", ratio, "ratio",
                  fmt::format("of the time in collectives that lack a rank's trace {} looks like "
                              "waiting for that rank rather than transfer: {}",
                              base::format_ratio(ratio), why)};
}

std::string UnevenCollectives::ranks_to_record(std::span<const ImportedTrace> traces) const {
  std::map<std::pair<std::string_view, std::string_view>, double> groups;  // by members, purpose
  for (size_t index = 0; index < lost_.size(); ++index) {
    const ImportedTrace& trace = traces[index];
    const auto text_of = [&](uint32_t name) {
      return name == kNoRow ? std::string_view() : std::string_view(trace.names[name]);
    };
    for (const Lost& lost : lost_[index]) {
      const uint32_t row = trace.ops[lost.op].comm;
      if (row == kNoRow || trace.comms[row].members == kNoRow) continue;
      const CommCall& comm = trace.comms[row];
      groups[{text_of(comm.members), text_of(comm.description)}] += lost.ns;
    }
  }
  if (groups.empty()) return {};
  const auto most =
      std::ranges::max_element(groups, {}, [](const auto& one) { return one.second; });
  const auto& [members, purpose] = most->first;
  std::set<int64_t> given;
  for (const ImportedTrace& one : traces) {
    if (one.facts.rank) given.insert(*one.facts.rank);
  }
  std::vector<int64_t> ranks = numbers_in(members);
  std::erase_if(ranks, [&](int64_t rank) { return given.contains(rank); });
  if (ranks.empty() || given.empty()) return {};
  constexpr size_t kMostTold = 8;
  const bool is_cut = ranks.size() > kMostTold || members.find("..") != std::string_view::npos;
  if (ranks.size() > kMostTold) ranks.resize(kMostTold);
  std::string text = ranks.size() == 1 && !is_cut ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool is_last = i + 1 == ranks.size() && !is_cut;
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  if (is_cut) text += " and so on";
  return purpose.empty() ? text : fmt::format("{} of {}", text, purpose);
}

}  // namespace moetune::profiler
