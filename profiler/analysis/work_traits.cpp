#include "profiler/analysis/work_traits.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace moetune::profiler {
namespace {

bool has_word(const TraceRecord& record, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return record.name.text().find(word) != std::string::npos;
  });
}

}  // namespace

WorkTraits::WorkTraits(const ReplayedRun& run) {
  by_op_.reserve(run.ops().size());
  for (const ReplayOp& op : run.ops()) {
    const TraceRecord& record = run.record_of(op);
    unsigned traits = 0;
    const auto set = [&](Trait trait, bool has) {
      if (has) traits |= trait;
    };
    set(kCommunication, !record.group.empty());
    set(kRecompute, record.is_recompute);
    switch (record.kind) {
      case RecordKind::kernel:
        set(kKernel, true);
        set(kOfLayer, record.layer >= 0);
        break;
      case RecordKind::collective:
        set(kCollective, true);
        break;
      case RecordKind::p2p:
        set(kMessage, true);
        break;
      case RecordKind::memcpy:
        set(kInput, has_word(record, {"input"}));
        set(kOffload, has_word(record, {"offload", "reload"}));
        set(kValue, record.name == kReadValue);
        break;
      case RecordKind::host_sync:
        set(kSync, true);
        set(kInput, has_word(record, {"input"}));
        set(kOffload, has_word(record, {"offload"}));
        break;
      case RecordKind::host_work:
        set(kAllocator, has_word(record, {"alloc", "Malloc", "Free"}));
        set(kLoader, has_word(record, {"load", "Load"}));
        set(kOtherHostWork, (traits & (kAllocator | kLoader)) == 0);
        break;
    }
    by_op_.push_back(static_cast<uint16_t>(traits));
    all_ |= traits;
  }
}

}  // namespace moetune::profiler
