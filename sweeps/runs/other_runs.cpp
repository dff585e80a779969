#include "sweeps/runs/other_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moetune::sweeps {
namespace {

int64_t num_step_lines(const ForeignLog& log) {
  int64_t count = 0;
  for (const Attempt& attempt : log.attempts) count += attempt.steps.num_lines();
  return count;
}

/// As the last attempt states it that does.
template <typename Get>
auto stated_last(const ForeignLog& log, const Get& get) {
  auto value = get(log.attempts.front());
  for (const Attempt& attempt : log.attempts) {
    if (const auto next = get(attempt); next != decltype(value){}) value = next;
  }
  return value;
}

/// Logs of one run may name different frameworks: Primus runs Megatron-LM or torchtitan, and only
/// some of its ranks say so. torchtitan and those that build on Megatron-LM have nothing in common.
bool may_be_one(Framework a, Framework b) {
  const auto builds_on_megatron = [](Framework framework) {
    return framework != Framework::unknown && framework != Framework::primus &&
           framework != Framework::torchtitan;
  };
  return !(a == Framework::torchtitan && builds_on_megatron(b)) &&
         !(b == Framework::torchtitan && builds_on_megatron(a));
}

/// "is of 16 ranks, main.log of 8"; empty: they may be of one run.
std::string difference(const ForeignLog& log, const ForeignLog& main) {
  if (!may_be_one(log.framework, main.framework)) {
    return fmt::format("is of {}, {} of {}", spec::name_of(log.framework), main.files.front(),
                       spec::name_of(main.framework));
  }
  const auto world = [](const Attempt& attempt) { return attempt.sizes.world_size; };
  const int64_t ranks = stated_last(log, world);
  const int64_t main_ranks = stated_last(main, world);
  if (ranks > 0 && main_ranks > 0 && ranks != main_ranks) {
    return fmt::format("is of {} ranks, {} of {}", ranks, main.files.front(), main_ranks);
  }
  const auto device = [](const Attempt& attempt) { return attempt.device_name; };
  const std::string name = stated_last(log, device);
  const std::string main_name = stated_last(main, device);
  if (!name.empty() && !main_name.empty() && name != main_name) {
    return fmt::format("is of a run on {}, {} of one on {}", name, main.files.front(), main_name);
  }
  return {};
}

/// A file and its copy. Ranks that fail alike may print the same, and each of them counts.
bool is_copy(const ForeignLog& a, const ForeignLog& b) {
  return num_step_lines(a) > 0 && a.num_bytes == b.num_bytes && a.tail_hash == b.tail_hash &&
         a.path_rank == b.path_rank;
}

}  // namespace

std::vector<std::string> remove_other_runs(std::vector<ForeignLog>& logs) {
  std::vector<std::string> removed;
  if (logs.empty()) return removed;
  const ForeignLog& main = *std::ranges::max_element(logs, {}, num_step_lines);
  std::vector<bool> is_other;
  for (const ForeignLog& log : logs) {
    const std::string why = &log == &main ? std::string() : difference(log, main);
    const std::span before(logs.data(), static_cast<size_t>(&log - logs.data()));
    const auto copied =
        std::ranges::find_if(before, [&](const ForeignLog& one) { return is_copy(one, log); });
    is_other.push_back(!why.empty() || copied != before.end());
    if (!why.empty()) {
      removed.push_back(fmt::format("{} {}: left out", log.files.front(), why));
    } else if (copied != before.end()) {
      removed.push_back(
          fmt::format("{} is a copy of {}: left out", log.files.front(), copied->files.front()));
    }
  }
  size_t place = 0;
  std::erase_if(logs, [&](const ForeignLog&) { return is_other[place++]; });
  return removed;
}

}  // namespace moetune::sweeps
