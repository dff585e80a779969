// Joins device work to calls by correlation id, and lets neighbours vote where there is nothing to
// join.
#include "profiler/device/device_owners.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace moetune::profiler {

CallIndex::CallIndex(const DeviceActivities& raw, const OpTable& ops, const GraphLabels& labels)
    : ops_(ops), labels_(labels) {
  for (const OpLink& link : raw.op_links) {
    // Of nested ops the inner one, which has the higher id.
    OpId& known = op_of_call_[link.correlation];
    known = std::max(known, link.op);
  }
  for (const ApiCall& call : raw.calls) {
    if (call.start_ns <= 0 || call.end_ns < call.start_ns) continue;
    const auto [known, is_first] = calls_.try_emplace(call.correlation, call);
    if (is_first) continue;
    // A runtime call and the driver call within it.
    known->second.start_ns = std::min(known->second.start_ns, call.start_ns);
    known->second.end_ns = std::max(known->second.end_ns, call.end_ns);
  }
}

OpId CallIndex::op_of(uint32_t correlation, uint32_t other) const {
  auto found = op_of_call_.find(correlation);
  if (found == op_of_call_.end() && other != 0) found = op_of_call_.find(other);
  return found == op_of_call_.end() ? kNoOp : found->second;
}

const ApiCall* CallIndex::find_call(uint32_t correlation, uint32_t other) const {
  auto found = calls_.find(correlation);
  if (found == calls_.end() && other != 0) found = calls_.find(other);
  return found == calls_.end() ? nullptr : &found->second;
}

const ApiCall* CallIndex::call_of(const DeviceActivity& activity) const {
  return find_call(activity.correlation, activity.runtime_correlation);
}
const ApiCall* CallIndex::call_of(const Synchronization& sync) const {
  return find_call(sync.correlation, 0);
}

bool CallIndex::is_own(const DeviceActivity& activity) const {
  return op_of(activity.correlation, activity.runtime_correlation) == kRecorderOp;
}
bool CallIndex::is_own(const Synchronization& sync) const {
  return op_of(sync.correlation, 0) == kRecorderOp;
}

Owner CallIndex::owner_of(const DeviceActivity& activity) const {
  Owner owner;
  const OpId id = op_of(activity.correlation, activity.runtime_correlation);
  const DeviceOp* launching = ops_.find(id);
  const auto node =
      activity.graph_node == 0 ? labels_.nodes.end() : labels_.nodes.find(activity.graph_node);
  if (node != labels_.nodes.end() && node->second.capture_op != kNoOp) {
    owner = {true, node->second.op, {node->second.capture_op, activity.correlation}};
    if (launching == nullptr) return owner;
    // Replayed more than once in a step: what differs is known to the op that replays.
    OpTag& tag = owner.op.tag;
    owner.op.rank = launching->rank;
    if (launching->tag.micro_batch >= 0) tag.micro_batch = launching->tag.micro_batch;
    if (tag.layer < 0) tag.layer = launching->tag.layer;
  } else if (launching != nullptr) {
    owner = {true, *launching, {id, 0}};
  }
  return owner;
}

Owner CallIndex::owner_of(const Synchronization& sync) const {
  const OpId id = op_of(sync.correlation, 0);
  const DeviceOp* op = ops_.find(id);
  return op == nullptr ? Owner{} : Owner{true, *op, {id, 0}};
}

StreamMap::StreamMap(const DeviceActivities& raw, const DeviceOrder& order, const CallIndex& calls,
                     std::vector<int32_t> ranks)
    : ranks_(std::move(ranks)) {
  using Choice = std::tuple<StreamKey, int, int32_t>;  // stream, rank, number
  std::map<Choice, int64_t> votes;
  for (const int64_t position : order.activities) {
    const DeviceActivity& activity = raw.activities[static_cast<size_t>(position)];
    const Owner owner = calls.owner_of(activity);
    const int rank = owner.is_labelled ? index_of(owner.op.rank) : -1;
    if (rank < 0) continue;
    ++votes[{{activity.context, activity.stream}, rank, owner.op.stream}];
    next_number_ = std::max(next_number_, owner.op.stream + 1);
    const ApiCall* call = calls.call_of(activity);
    if (call != nullptr) rank_of_thread_.try_emplace(call->thread, rank);
  }
  std::vector<std::pair<Choice, int64_t>> ranking(votes.begin(), votes.end());
  std::stable_sort(ranking.begin(), ranking.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::set<std::pair<int, int32_t>> taken;
  for (const auto& [choice, count] : ranking) {
    const auto& [stream, rank, number] = choice;
    rank_of_stream_.try_emplace(stream, rank);
    // The analysis takes work under one number for work in order.
    if (numbers_.contains({stream, rank}) || !taken.insert({rank, number}).second) continue;
    numbers_[{stream, rank}] = number;
  }
}

int StreamMap::index_of(int32_t rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

int StreamMap::guess(const StreamKey* stream, const ApiCall* call) const {
  if (stream != nullptr) {
    const auto found = rank_of_stream_.find(*stream);
    if (found != rank_of_stream_.end()) return found->second;
  }
  if (call != nullptr) {
    const auto found = rank_of_thread_.find(call->thread);
    if (found != rank_of_thread_.end()) return found->second;
  }
  return ranks_.empty() ? -1 : 0;
}

int StreamMap::rank_of(const Owner& owner, const DeviceActivity& activity,
                       const ApiCall* call) const {
  const StreamKey stream = {activity.context, activity.stream};
  return owner.is_labelled ? index_of(owner.op.rank) : guess(&stream, call);
}

int StreamMap::rank_of(const Owner& owner, const Synchronization& sync, const ApiCall* call) const {
  if (owner.is_labelled) return index_of(owner.op.rank);
  const StreamKey stream = {sync.context, sync.stream};
  return guess(sync.kind == SyncKind::stream ? &stream : nullptr, call);
}

int32_t StreamMap::number_of(const DeviceActivity& activity, int rank) {
  const auto [found, is_new] =
      numbers_.try_emplace({StreamKey{activity.context, activity.stream}, rank}, next_number_);
  if (is_new) ++next_number_;
  return found->second;
}

}  // namespace moetune::profiler
