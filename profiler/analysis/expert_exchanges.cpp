#include "profiler/analysis/expert_exchanges.h"

#include <algorithm>
#include <string_view>

#include "profiler/analysis/group_words.h"

namespace moetune::profiler {
namespace {

/// Less than this over the mean, sizes are even.
constexpr double kEvenRatio = 1.05;

bool is_uneven(const std::vector<int64_t>& sizes) {
  double sum = 0;
  for (const int64_t size : sizes) sum += static_cast<double>(size);
  const double mean = sum / static_cast<double>(sizes.size());
  return static_cast<double>(std::ranges::max(sizes)) > kEvenRatio * mean;
}

bool has_other_purpose(const ImportedTrace& trace, const CommCall& comm) {
  for (const uint32_t name : {comm.description, comm.group}) {
    if (name == kNoRow) continue;
    const auto group = group_of_words(trace.names[name]);
    if (group && *group != "ep" && *group != "world") return true;
  }
  return false;
}

}  // namespace

std::optional<ExpertExchange> expert_exchange_of(std::span<const ImportedTrace> traces,
                                                 const MatchedCollective& collective) {
  ExpertExchange exchange;
  std::vector<int64_t> sent;
  for (const CollectivePart& part : collective.parts) {
    const ImportedTrace& trace = traces[part.trace];
    const uint32_t row = trace.ops[part.op].comm;
    if (row == kNoRow) return std::nullopt;
    const CommCall& comm = trace.comms[row];
    if (comm.collective == kNoRow) return std::nullopt;
    const std::string_view kind = trace.names[comm.collective];
    if (kind.find("all_to_all") == std::string_view::npos &&
        kind.find("alltoall") == std::string_view::npos) {
      return std::nullopt;
    }
    sent.push_back(comm.in_nelems);
    exchange.received.push_back(comm.out_nelems);
  }
  exchange.opens = is_uneven(exchange.received);
  exchange.closes = is_uneven(sent);
  if (!exchange.opens && !exchange.closes) return std::nullopt;
  const CollectivePart& first = collective.parts.front();
  const ImportedTrace& trace = traces[first.trace];
  if (has_other_purpose(trace, trace.comms[trace.ops[first.op].comm])) return std::nullopt;
  return exchange;
}

}  // namespace moetune::profiler
