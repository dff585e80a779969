#include "profiler/import/kineto_event.h"

#include "profiler/import/json_members.h"

namespace moetune::profiler {
namespace {

struct MemberRow {
  std::string_view key;
  bool is_argument;
  std::string_view KinetoEvent::*member;
};

constexpr MemberRow kMembers[] = {
    {"name", false, &KinetoEvent::name},
    {"ts", false, &KinetoEvent::ts},
    {"dur", false, &KinetoEvent::dur},
    {"pid", false, &KinetoEvent::pid},
    {"tid", false, &KinetoEvent::tid},
    {"device", true, &KinetoEvent::device},
    {"stream", true, &KinetoEvent::stream},
    {"correlation", true, &KinetoEvent::correlation},
    {"bytes", true, &KinetoEvent::bytes},
    {"graph id", true, &KinetoEvent::graph},
    {"graph node id", true, &KinetoEvent::graph_node},
    {"Collective name", true, &KinetoEvent::collective},
    {"Process Group Name", true, &KinetoEvent::group},
    {"Process Group Description", true, &KinetoEvent::description},
    {"Process Group Ranks", true, &KinetoEvent::members},
    {"dtype", true, &KinetoEvent::dtype},
    {"Group size", true, &KinetoEvent::group_size},
    {"In msg nelems", true, &KinetoEvent::in_nelems},
    {"Out msg nelems", true, &KinetoEvent::out_nelems},
    {"Seq", true, &KinetoEvent::sequence},
    {"Src Rank", true, &KinetoEvent::source_rank},
    {"Dst Rank", true, &KinetoEvent::destination_rank},
    {"cuda_sync_kind", true, &KinetoEvent::sync_kind},
    {"wait_on_stream", true, &KinetoEvent::wait_stream},
    {"wait_on_cuda_event_record_corr_id", true, &KinetoEvent::wait_correlation},
    {"wait_on_cuda_event_id", true, &KinetoEvent::wait_event},
    {"Device Type", true, &KinetoEvent::device_type},
    {"Total Allocated", true, &KinetoEvent::total_allocated},
    {"Total Reserved", true, &KinetoEvent::total_reserved},
    {"External id", true, &KinetoEvent::external_id},
    {"Sequence number", true, &KinetoEvent::autograd_sequence},
    {"Fwd thread id", true, &KinetoEvent::forward_thread},
    {"flops", true, &KinetoEvent::flops},
    {"least bytes", true, &KinetoEvent::least_bytes},
    {"eight bit", true, &KinetoEvent::eight_bit},
    {"recomputed", true, &KinetoEvent::recomputed},
};

/// Of keys of one length there is one, or two: found without looking at the others.
constexpr size_t kMaxKeyBytes = 40;
constexpr auto kFirstOfLength = [] {
  std::array<std::array<uint8_t, 6>, kMaxKeyBytes> rows = {};
  for (size_t row = 0; row < std::size(kMembers); ++row) {
    auto& same = rows[kMembers[row].key.size()];
    size_t free = 0;
    while (same[free] != 0) ++free;
    same[free] = static_cast<uint8_t>(row + 1);
  }
  return rows;
}();

}  // namespace

KinetoHead head_of_event(std::string_view event) {
  KinetoHead head;
  JsonMembers members(event);
  while ((head.phase.empty() || head.category.empty()) && members.next()) {
    std::string_view text = members.value();
    if (!text.starts_with('"')) continue;
    text = text.substr(1, text.size() - 2);
    if (members.key() == "ph") head.phase = text;
    if (members.key() == "cat") head.category = text;
  }
  return head;
}

void KinetoEvent::take(const JsonField& field) {
  if (field.key.empty()) {
    if (field.parent == "grid" && num_grid_ < grid.size()) grid[num_grid_++] = field.text;
    if (field.parent == "block" && num_block_ < block.size()) block[num_block_++] = field.text;
    return;
  }
  if (field.key.size() >= kMaxKeyBytes || field.depth > 2) return;
  const bool is_argument = field.depth == 2;
  if (is_argument && field.parent != "args") return;
  for (const uint8_t row : kFirstOfLength[field.key.size()]) {
    if (row == 0) return;
    const MemberRow& member = kMembers[row - 1];
    if (member.is_argument == is_argument && member.key == field.key) {
      this->*member.member = field.text;
      return;
    }
  }
}

}  // namespace moetune::profiler
