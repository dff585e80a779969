#include "profiler/analysis/compared_transfers.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace moetune::profiler {
namespace {

/// A rank's transfers that are found slow beside alike ones have to be this part of them, to tell
/// how slow those are with which no others compare.
constexpr double kLeastComparedPart = 0.1;

struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(int64_t ns) {
    sum += static_cast<double>(ns);
    ++count;
  }
  [[nodiscard]] double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

}  // namespace

ComparedTransfers::ComparedTransfers(const ReplayedRun& run, const WorkTraits& traits)
    : run_(run), links_(run), usual_(run.ops().size()) {
  compare_instances(traits);
}

std::optional<uint32_t> ComparedTransfers::with_slow_link() const {
  const bool has_slow_group = std::ranges::count(speeds_, Speed::slow) > 0;
  const std::vector<SlowLink>& links = links_.slow_links();
  if (!has_slow_group && links.size() == 1) return links[0].from;
  std::optional<uint32_t> found;
  int64_t num_found = 0;
  for (uint32_t trace = 0; trace < run_.traces().size(); ++trace) {
    int64_t num_slow = 0;
    int64_t num_usual = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i][trace] || speeds_[i] == Speed::unknown) continue;
      ++(speeds_[i] == Speed::slow ? num_slow : num_usual);
    }
    bool is_in_all = true;
    for (const MessageLinks::Pair& pair : links_.pairs()) {
      if (pair.has(trace)) ++(pair.is_slow ? num_slow : num_usual);
      if (pair.is_slow && !pair.has(trace)) is_in_all = false;
    }
    if (num_slow == 0 || num_usual > 0 || !is_in_all) continue;
    ++num_found;
    found = trace;
  }
  if (num_found == 1) return found;
  const auto is_slow = [](const MessageLinks::Pair& pair) { return pair.is_slow; };
  if (has_slow_group || std::ranges::count_if(links_.pairs(), is_slow) != 1) return std::nullopt;
  return std::ranges::find_if(links_.pairs(), is_slow)->first;
}

std::optional<SlowLink> ComparedTransfers::slow_link() const {
  const std::vector<SlowLink>& links = links_.slow_links();
  return links.empty() ? std::nullopt : std::optional(links.front());
}

bool ComparedTransfers::is_member(size_t op, uint32_t trace) const {
  const int32_t instance = run_.instance_of(op);
  return instance >= 0 && members_[static_cast<size_t>(instance)][trace];
}

void ComparedTransfers::compare_instances(const WorkTraits& traits) {
  const std::vector<ReplayOp>& ops = run_.ops();
  members_.assign(static_cast<size_t>(run_.num_instances()),
                  std::vector<bool>(run_.traces().size()));
  speeds_.assign(members_.size(), Speed::unknown);
  using Transfer = std::tuple<std::string_view, std::string_view, int64_t>;
  const auto transfer_of = [&](const ReplayOp& op) {
    const TraceRecord& record = run_.record_of(op);
    return Transfer{record.group, record.name, record.bytes};
  };
  // Messages whose other end is in no trace have no known transfer; links tell of those that have
  // a number.
  const auto has_transfer = [&](size_t i) {
    const TraceRecord& record = run_.record_of(ops[i]);
    return record.kind != RecordKind::p2p || (record.transfer_ns > 0 && !links_.has(i));
  };
  std::map<Transfer, std::map<int32_t, Mean>> classes;
  for (const size_t i : run_.communication()) {
    if (run_.instance_of(i) < 0) continue;
    members_[static_cast<size_t>(run_.instance_of(i))][ops[i].trace] = true;
    if (!has_transfer(i)) continue;
    classes[transfer_of(ops[i])][run_.instance_of(i)].add(ops[i].duration_ns);
  }
  std::vector<size_t> single;  // nothing to compare with
  for (const size_t i : run_.communication()) {
    if (links_.has(i) && links_.usual_ns(i) >= 0) usual_.set(i, links_.usual_ns(i));
    if (run_.instance_of(i) < 0 || !has_transfer(i)) continue;
    const auto& by_instance = classes[transfer_of(ops[i])];
    if (by_instance.size() < 2) {
      if (!traits.has(i, WorkTraits::kMessage)) single.push_back(i);
      continue;
    }
    Speed& speed = speeds_[static_cast<size_t>(run_.instance_of(i))];
    if (speed == Speed::unknown) speed = Speed::usual;
    double least = by_instance.begin()->second.value();
    for (const auto& [instance, mean] : by_instance) least = std::min(least, mean.value());
    const double own = by_instance.at(run_.instance_of(i)).value();
    if (own < kSlowLinkRatio * least) continue;
    speed = Speed::slow;
    usual_.set(i, static_cast<int64_t>(least));
  }
  compare_with_slow_rank(traits, single);
}

std::vector<bool> ComparedTransfers::with_slow_part(uint32_t rank) const {
  std::vector<bool> has_slow_part(members_.size());
  for (size_t part = 0; part < members_.size(); ++part) {
    const std::vector<bool>& members = members_[part];
    if (speeds_[part] != Speed::slow || !members[rank]) continue;
    if (std::ranges::count(members, true) < 2) continue;
    for (size_t whole = 0; whole < members_.size(); ++whole) {
      bool is_within = true;
      for (size_t trace = 0; trace < members.size(); ++trace) {
        is_within = is_within && (!members[trace] || members_[whole][trace]);
      }
      if (is_within) has_slow_part[whole] = true;
    }
  }
  return has_slow_part;
}

void ComparedTransfers::compare_with_slow_rank(const WorkTraits& traits,
                                               const std::vector<size_t>& single) {
  if (std::ranges::count(speeds_, Speed::slow) == 0) return;
  const std::optional<uint32_t> rank = with_slow_link();
  if (!rank) return;
  const std::vector<bool> has_slow_part = with_slow_part(*rank);
  // Of the rank's own records, as those of the others are the same transfers.
  double slow_ns = 0;
  double usual_ns = 0;
  for (const size_t i : run_.communication()) {
    const ReplayOp& op = run_.ops()[i];
    if (op.trace != *rank || !usual_.has(i) || traits.has(i, WorkTraits::kMessage)) continue;
    slow_ns += static_cast<double>(op.duration_ns);
    usual_ns += static_cast<double>(usual_.of(i));
  }
  std::vector<size_t> like_these;
  double single_ns = 0;
  for (const size_t i : single) {
    if (!has_slow_part[static_cast<size_t>(run_.instance_of(i))]) continue;
    like_these.push_back(i);
    const ReplayOp& op = run_.ops()[i];
    if (op.trace == *rank) single_ns += static_cast<double>(op.duration_ns);
  }
  if (slow_ns < kLeastComparedPart * (slow_ns + single_ns)) return;
  for (const size_t i : like_these) {
    const auto own_ns = static_cast<double>(run_.ops()[i].duration_ns);
    usual_.set(i, static_cast<int64_t>(own_ns * usual_ns / slow_ns));
  }
}

}  // namespace moetune::profiler
