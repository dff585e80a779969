// What files say of single operations beyond their times: who launched them, as what, and with whom
// they communicate.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <map>

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

ImportedSteps::Identity ImportedSteps::identity_of(const ImportedTrace& trace,
                                                   const CommCall& comm) {
  const auto text = [&](uint32_t name) {
    return name == kNoRow ? std::string() : trace.names[name];
  };
  return {text(comm.description), text(comm.group), text(comm.members)};
}

int64_t ImportedSteps::id_of(const Identity& identity) {
  const auto next = static_cast<int64_t>(communicator_ids_.size()) + 1;
  return communicator_ids_.try_emplace(identity, next).first->second;
}

void ImportedSteps::find_communicators(Rank& rank) {
  if (names_ != RecordNames::texts) return;
  const ImportedTrace& trace = traces_[rank.trace];
  std::map<std::array<uint32_t, 3>, int64_t> known;  // by rows of names
  for (const CommCall& comm : trace.comms) {
    const auto [at, is_new] = known.try_emplace({comm.description, comm.group, comm.members}, -1);
    const bool is_named = comm.description != kNoRow || comm.group != kNoRow;
    if (is_new && is_named) {
      Identity identity = identity_of(trace, comm);
      if (identity[2].empty() && !communicator_ids_.contains(identity)) {
        identity[2] = fmt::format("of trace {}", rank.trace);
      }
      at->second = id_of(identity);
    }
    rank.communicators.push_back(at->second);
  }
}

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
  const MatchedOp* matched = matched_ops_[rank.trace].find(row);
  const uint32_t comm = traces_[rank.trace].ops[row].comm;
  if (matched != nullptr) {
    record.communicator = matches_[matched->match].communicator;
  } else if (comm < rank.communicators.size() && record.kind == RecordKind::collective) {
    record.communicator = rank.communicators[comm];
  }
  if (record.kind != RecordKind::p2p) return;
  record.peer = matched != nullptr ? matched->peer : traces_[rank.trace].comms[comm].peer;
}

}  // namespace moetune::profiler
