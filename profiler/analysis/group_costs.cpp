#include "profiler/analysis/group_costs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "profiler/analysis/group_words.h"
#include "profiler/analysis/kernel_classes.h"

namespace moetune::profiler {
namespace {

constexpr std::string_view kWorld = "world";
/// In the words of groups whose size is not that of one axis of the layout.
constexpr std::array<std::string_view, 2> kSeveralAxes = {"_and_", "hierarchical"};

/// What the words of a communication say of its group: its description counts before its name.
std::optional<std::string_view> group_said(const ImportedTrace& trace, const CommCall& comm) {
  for (const uint32_t name : {comm.description, comm.group}) {
    if (name == kNoRow) continue;
    if (const auto group = group_of_words(trace.names[name])) return group;
  }
  return std::nullopt;
}

bool has_one_axis(const ImportedTrace& trace, const CommCall& comm) {
  if (comm.description == kNoRow) return true;
  std::string words = trace.names[comm.description];
  for (char& c : words) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::none_of(
      kSeveralAxes, [&](std::string_view word) { return words.find(word) != std::string::npos; });
}

bool is_of_mesh(const ImportedTrace& trace, const CommCall& comm) {
  return comm.description != kNoRow && trace.names[comm.description].starts_with("mesh_");
}

/// Of a kernel that the file does not describe; empty: not known.
std::string_view group_of_kernel(std::string_view name) {
  switch (kernel_class_of(name)) {
    case KernelClass::deepep:
    case KernelClass::deepep_layout:
    case KernelClass::hybridep:
    case KernelClass::hybridep_pack:
    case KernelClass::mori:
      return "ep";
    case KernelClass::userbuffers:
      return "tp";
    default:
      return {};
  }
}

/// Whether a communication sends and receives, as far as the file says it, else by its kernel. Old
/// versions call the kernel that does whatever has none of its own "SendRecv_RING_SIMPLE_...".
bool sends(const ImportedTrace& trace, const ImportedOp& op) {
  const bool is_named = op.comm != kNoRow && trace.comms[op.comm].collective != kNoRow;
  const std::string& name = trace.names[is_named ? trace.comms[op.comm].collective : op.name];
  constexpr std::string_view kKernel = "SendRecv";
  const size_t at = name.find(kKernel);
  if (!is_named)
    return at != std::string::npos && !name.substr(at + kKernel.size()).starts_with('_');
  return name == "send" || name == "recv" || name == kSendAndReceive;
}

/// As far as the file says it, else by its kernel.
CollectiveKind kind_of(const ImportedTrace& trace, const ImportedOp& op) {
  const bool is_named = op.comm != kNoRow && trace.comms[op.comm].collective != kNoRow;
  std::string name = trace.names[is_named ? trace.comms[op.comm].collective : op.name];
  name.resize(std::min(name.size(), name.find_first_of("<(")));  // types behind it name anything
  std::erase(name, '_');
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // "allgather", "AllGather_RING_LL"; "reduce_scatter", "allreduce", "AllReduce_Sum_bf16".
  if (name.find("allgather") != std::string::npos) return CollectiveKind::gathers;
  if (name.find("reduce") != std::string::npos) return CollectiveKind::reductions;
  return CollectiveKind::any;
}

void see_size(GroupCosts& costs, std::string_view group, int64_t size) {
  const auto [known, is_new] = costs.sizes.try_emplace(std::string(group), size);
  if (!is_new && known->second != size) known->second = 0;
}

/// The group of each row of the trace's comms, empty where it is not known. Notes groups and sizes.
std::vector<std::string_view> groups_of_comms(const ImportedTrace& trace,
                                              const std::vector<bool>& is_message,
                                              GroupCosts& costs) {
  struct Said {
    std::optional<std::string_view> group;
    bool has_one_axis = true;
  };
  std::map<std::pair<uint32_t, uint32_t>, Said> said;   // by words
  std::set<std::pair<std::string_view, int32_t>> seen;  // groups and their sizes
  std::vector<std::string_view> groups;
  groups.reserve(trace.comms.size());
  for (size_t row = 0; row < trace.comms.size(); ++row) {
    const CommCall& comm = trace.comms[row];
    const auto [known, is_new] = said.try_emplace({comm.description, comm.group});
    if (is_new) {
      known->second = {group_said(trace, comm), has_one_axis(trace, comm)};
      costs.has_meshes = costs.has_meshes || is_of_mesh(trace, comm);
    }
    const std::string_view by_words = known->second.group.value_or(std::string_view());
    groups.push_back(is_message[row] ? std::string_view("pp") : by_words);
    if (groups.back().empty()) continue;
    // Messages within the group of all ranks do not tell how many stages there are.
    const bool is_own = by_words != kWorld || groups.back() == kWorld;
    const bool is_size = is_own && known->second.has_one_axis && comm.group_size > 0;
    if (!seen.emplace(groups.back(), is_size ? comm.group_size : 0).second) continue;
    costs.ratios.try_emplace(std::string(groups.back()), 0);
    if (is_size) see_size(costs, groups.back(), comm.group_size);
  }
  return groups;
}

}  // namespace

void GroupCosts::add(const ImportedTrace& trace, const std::vector<bool>& is_message,
                     const CauseSegments& segments, int64_t window_ns, const WaitsByOp* waits) {
  CommGroups groups(trace, is_message, *this);
  if (window_ns <= 0) return;
  struct Own {
    int64_t all_ns = 0;
    int64_t gather_ns = 0;
    int64_t reduction_ns = 0;
  };
  std::map<std::string_view, Own> own;  // empty: not known
  for (const CauseSegment& segment : segments) {
    if (segment.cause != IdleCause::communication) continue;
    std::string_view group = groups.of(trace.ops[segment.op]);
    if (group.empty() && sends(trace, trace.ops[segment.op])) group = kUnknownMessages;
    const int64_t ns = split_comm(segment, waits).transfer_ns;
    const CollectiveKind kind = kind_of(trace, trace.ops[segment.op]);
    own[group].all_ns += ns;
    if (kind == CollectiveKind::gathers) own[group].gather_ns += ns;
    if (kind == CollectiveKind::reductions) own[group].reduction_ns += ns;
  }
  const auto see = [&](double& ratio, int64_t ns) {
    ratio = std::max(ratio, static_cast<double>(ns) / static_cast<double>(window_ns));
  };
  for (const auto& [group, of] : own) {
    see(group.empty() ? unknown_ratio : ratios[std::string(group)], of.all_ns);
    see(gather_ratios[std::string(group)], of.all_ns - of.reduction_ns);
    see(reduction_ratios[std::string(group)], of.all_ns - of.gather_ns);
  }
}

double GroupCosts::ratio_of(std::string_view group, CollectiveKind kind) const {
  const auto& of_kind = kind == CollectiveKind::gathers ? gather_ratios : reduction_ratios;
  if (kind != CollectiveKind::any) {
    if (const auto found = of_kind.find(group); found != of_kind.end()) return found->second;
  }
  if (group.empty()) return unknown_ratio;
  const auto found = ratios.find(group);
  return found == ratios.end() ? 0 : found->second;
}

CommGroups::CommGroups(const ImportedTrace& trace, const std::vector<bool>& is_message,
                       GroupCosts& costs)
    : trace_(trace), by_comm_(groups_of_comms(trace, is_message, costs)) {}

std::string_view CommGroups::of(const ImportedOp& op) {
  const std::string_view said = op.comm == kNoRow ? std::string_view() : by_comm_[op.comm];
  if (!said.empty()) return said;
  const auto [known, is_new] = by_kernel_.try_emplace(op.name);
  if (is_new) known->second = group_of_kernel(trace_.names[op.name]);
  return known->second;
}

}  // namespace moetune::profiler
