#include "profiler/import/nccl_ranges.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace moetune::profiler {
namespace {

enum class NcclRange : uint8_t { other, send, receive, group_start, group_end, collective };

NcclRange nccl_range_of(std::string_view name) {
  constexpr std::pair<std::string_view, NcclRange> kCalls[] = {
      {"ncclSend", NcclRange::send},
      {"ncclRecv", NcclRange::receive},
      {"ncclGroupStart", NcclRange::group_start},
      {"ncclGroupEnd", NcclRange::group_end},
  };
  for (const auto& [call, kind] : kCalls) {
    if (name == call) return kind;
  }
  // PyTorch's words for what it asks of NCCL.
  constexpr std::string_view kPrefix = "nccl:";
  if (!name.starts_with(kPrefix)) return NcclRange::other;
  name.remove_prefix(kPrefix.size());
  const bool is_message = name.starts_with("send") || name.starts_with("recv") ||
                          name.starts_with("coalesced") || name.starts_with("batch");
  return is_message ? NcclRange::other : NcclRange::collective;
}

/// What one host thread has asked of NCCL up to some moment.
class NcclCalls {
 public:
  void enter(NcclRange kind, int64_t end_ns) {
    switch (kind) {
      case NcclRange::group_start:
        if (depth_++ == 0) begin();
        break;
      case NcclRange::group_end:
        depth_ = std::max(0, depth_ - 1);
        if (depth_ == 0) launched_until_ns_ = end_ns;
        break;
      case NcclRange::send:
      case NcclRange::receive:
        if (depth_ == 0) {
          begin();
          launched_until_ns_ = end_ns;
        }
        ++(kind == NcclRange::send ? num_sends_ : num_receives_);
        break;
      case NcclRange::collective:
        collective_until_ns_ = std::max(collective_until_ns_, end_ns);
        break;
      case NcclRange::other:
        break;
    }
  }

  /// "send" or "recv" if a launch at that moment is of one message, kSendAndReceive if it is of one
  /// each way, else empty.
  [[nodiscard]] std::string_view message_at(int64_t moment_ns) const {
    if (depth_ > 0 || moment_ns > launched_until_ns_ || moment_ns <= collective_until_ns_) {
      return {};
    }
    if (num_sends_ == 1 && num_receives_ == 1) return kSendAndReceive;
    if (num_sends_ + num_receives_ != 1) return {};
    return num_sends_ == 1 ? "send" : "recv";
  }

  /// Of the calls, or groups of calls, that were begun up to now.
  [[nodiscard]] int64_t num_begun() const { return num_begun_; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  void begin() {
    num_sends_ = num_receives_ = 0;
    ++num_begun_;
  }

  int64_t num_begun_ = 0;
  int depth_ = 0;  ///< of groups
  int num_sends_ = 0;
  int num_receives_ = 0;
  int64_t launched_until_ns_ = kNever;  ///< what was asked for is launched until then
  int64_t collective_until_ns_ = kNever;
};

}  // namespace

void describe_messages(ImportedTrace& trace) {
  std::vector<NcclRange> kinds;
  std::vector<bool> is_message_kernel;
  bool has_messages = false;
  for (size_t name = 0; name < trace.names.size(); ++name) {
    const std::string_view text = trace.names[static_cast<uint32_t>(name)];
    kinds.push_back(nccl_range_of(text));
    is_message_kernel.push_back(text.starts_with("nccl") && text.find("SendRecv") != text.npos);
    has_messages =
        has_messages || kinds.back() == NcclRange::send || kinds.back() == NcclRange::receive;
  }
  if (!has_messages) return;
  std::vector<std::pair<uint32_t, uint32_t>> launches;  // rows of the call and of the operation
  for (uint32_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    const bool is_kernel = op.kind == ActivityKind::kernel && is_message_kernel[op.name];
    if (is_kernel && op.call != kNoRow && op.comm == kNoRow) launches.emplace_back(op.call, row);
  }
  std::ranges::sort(launches);  // calls stand by their start
  struct Message {
    uint32_t row = 0;
    std::string_view text;
    std::pair<uint16_t, int64_t> group;  ///< thread, and the number of the group on it
  };
  std::vector<Message> messages;
  std::map<std::pair<uint16_t, int64_t>, int> num_kernels;  // by group
  std::vector<NcclCalls> threads(trace.threads.size());
  size_t next = 0;
  for (const auto& [call_row, row] : launches) {
    const HostCall& call = trace.calls[call_row];
    for (; next < trace.ranges.size() && trace.ranges[next].start_ns <= call.start_ns; ++next) {
      const HostRange& range = trace.ranges[next];
      threads[range.thread].enter(kinds[range.name], range.end_ns);
    }
    const NcclCalls& calls = threads[call.thread];
    const std::string_view text = calls.message_at(call.start_ns);
    if (text.empty()) continue;
    messages.push_back({row, text, {call.thread, calls.num_begun()}});
    ++num_kernels[messages.back().group];
  }
  for (const Message& message : messages) {
    // Of two communicators the two messages are kernels of their own: which is which is not known.
    if (message.text == kSendAndReceive && num_kernels[message.group] > 1) continue;
    CommCall comm;
    comm.collective = trace.names.intern(message.text);
    trace.ops[message.row].comm = static_cast<uint32_t>(trace.comms.size());
    trace.comms.push_back(comm);
  }
}

}  // namespace moetune::profiler
