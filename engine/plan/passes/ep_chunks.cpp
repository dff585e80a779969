// Chunks of expert rows: while the experts work on one, the next is under way.
#include <map>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

/// The parts of a segment that chunks are made of, by the marks that the block has set.
struct Parts {
  std::vector<Instr> before;
  std::vector<Instr> send;
  std::vector<Instr> between;  ///< runs while the first chunk is on its way
  std::vector<Instr> body;
  std::vector<Instr> after;
};

Parts split(const std::vector<Instr>& code) {
  Parts parts;
  std::vector<Instr>* at = &parts.before;
  for (const Instr& instr : code) {
    if (instr.verb == Verb::mark) {
      switch (static_cast<Mark>(instr.what)) {
        case Mark::chunk_send:
          at = &parts.send;
          continue;
        case Mark::chunk_sent:
          at = &parts.between;
          continue;
        case Mark::chunk_body:
          at = &parts.body;
          continue;
        case Mark::chunk_done:
          at = &parts.after;
          continue;
        default:
          break;
      }
    }
    at->push_back(instr);
  }
  return parts;
}

}  // namespace

void drop_chunk_lists(Instr& instr) {
  for (Ref& ref : instr.refs) {
    if (ref.is_chunk_list) ref = {};
  }
}

void ep_chunks(Segment& segment) {
  const Parts parts = split(segment.code);
  if (parts.body.empty()) return;
  const bool is_parallel = segment.dims.expert_ranks > 1;
  const int64_t asked =
      segment.is_backward ? segment.dims.chunks_backward : segment.dims.chunks_forward;
  segment.num_chunks = is_parallel ? static_cast<int>(asked) : 1;
  std::map<std::pair<int32_t, int>, int32_t> slots;  // of each chunk's events
  const auto append = [&](const std::vector<Instr>& part, int chunk) {
    for (Instr instr : part) {
      if (instr.event >= 0 && chunk > 0) {
        const auto [slot, is_new] = slots.try_emplace({instr.event, chunk});
        if (is_new) slot->second = segment.num_events++;
        instr.event = slot->second;
      }
      if (is_parallel) instr.chunk = chunk;
      if (segment.num_chunks == 1) drop_chunk_lists(instr);
      segment.code.push_back(std::move(instr));
    }
  };
  segment.code = parts.before;
  append(parts.send, 0);
  segment.code.insert(segment.code.end(), parts.between.begin(), parts.between.end());
  for (int chunk = 0; chunk < segment.num_chunks; ++chunk) {
    if (chunk + 1 < segment.num_chunks) append(parts.send, chunk + 1);
    append(parts.body, chunk);
  }
  segment.code.insert(segment.code.end(), parts.after.begin(), parts.after.end());
}

}  // namespace moetune::plan
