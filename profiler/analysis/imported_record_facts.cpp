// What files say of single operations beyond their times: who launched them, as what, and with whom
// they communicate.
#include <limits>

#include "profiler/analysis/imported_steps.h"

namespace moetune::profiler {
namespace {

/// As far as a record holds it; 0 else, as where the file does not say it.
std::array<int32_t, 3> extents_of(const std::array<uint32_t, 3>& stated) {
  std::array<int32_t, 3> extents = {};
  for (size_t i = 0; i < stated.size(); ++i) {
    if (stated[i] <= std::numeric_limits<int32_t>::max()) {
      extents[i] = static_cast<int32_t>(stated[i]);
    }
  }
  return extents;
}

}  // namespace

void ImportedSteps::set_launch(const Rank& rank, const ImportedOp& op, WorkNames& names,
                               TraceRecord& record) const {
  const ImportedTrace& trace = traces_[rank.trace];
  const HostCall* call = trace.launch_of(op);
  if (call != nullptr) record.thread = call->thread;
  const int64_t device = trace.streams[op.stream].device;
  if (device >= 0 && device <= std::numeric_limits<int32_t>::max()) {
    record.device = static_cast<int32_t>(device);
  }
  if (op.kind != ActivityKind::kernel) return;
  if (op.detail != kNoRow) {
    record.grid = extents_of(trace.shapes[op.detail].grid);
    record.block = extents_of(trace.shapes[op.detail].block);
  }
  if (names_ != RecordNames::texts || !trace.has_name(op)) return;
  const auto [at, is_new] = names.try_emplace((uint64_t{op.name} << 32) | kNoRow);
  if (is_new) at->second = kernel_name_of(trace.names[op.name], {});
  if (!(at->second == record.name)) record.kernel = at->second;
}

void ImportedSteps::set_partners(const Rank& rank, uint32_t row, TraceRecord& record) const {
  if (record.group.empty()) return;
  const auto matched = matched_ops_[rank.trace].find(row);
  const bool is_matched = matched != matched_ops_[rank.trace].end();
  if (is_matched) record.communicator = matched->second.communicator;
  if (record.kind != RecordKind::p2p) return;
  const ImportedTrace& trace = traces_[rank.trace];
  record.peer = is_matched ? matched->second.peer : trace.comms[trace.ops[row].comm].peer;
}

}  // namespace moetune::profiler
