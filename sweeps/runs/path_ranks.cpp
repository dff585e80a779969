#include "sweeps/runs/path_ranks.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

bool is_decimal(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// A name with a number in it that may be a rank.
struct NumberedName {
  std::string before;
  int number = 0;
  std::string behind;
};

/// By the last number of a name: "job-4242-", 2, ".out".
std::optional<NumberedName> numbered(const std::string& name) {
  size_t end = name.size();
  while (end > 0 && !is_decimal(name[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && is_decimal(name[begin - 1])) --begin;
  const int number = log_text::rank_of(
      log_text::leading_integer(std::string_view(name).substr(begin, end - begin)));
  if (begin == end || number < 0) return std::nullopt;
  return NumberedName{name.substr(0, begin), number, name.substr(end)};
}

/// The numbers of all files or folders beside one that are called like it. A folder is looked
/// through once for all that are called alike.
class NumbersBeside {
 public:
  const std::set<int>& of(const fs::path& folder, const NumberedName& name) {
    const auto key = std::tuple(folder.string(), name.before, name.behind);
    const auto [known, is_new] = known_.try_emplace(key);
    if (is_new) known->second = found(folder, name);
    return known->second;
  }

 private:
  /// Of very many entries not all.
  static std::set<int> found(const fs::path& folder, const NumberedName& name) {
    constexpr size_t kMostEntries = 100'000;
    std::set<int> numbers;
    std::error_code error;
    size_t num_entries = 0;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (++num_entries > kMostEntries) break;
      const auto other = numbered(entry->path().filename().string());
      const bool is_alike = other && other->before == name.before && other->behind == name.behind;
      if (is_alike) numbers.insert(other->number);
    }
    return numbers;
  }

  std::map<std::tuple<std::string, std::string, std::string>, std::set<int>> known_;
};

/// None where it cannot be told, as of a folder that is gone.
fs::path absolute_path(const std::string& path) {
  std::error_code error;
  return fs::absolute(path, error);
}

bool are_all_of(const std::set<int>& numbers, int64_t world) {
  return world > 0 && std::ssize(numbers) == world && *numbers.begin() == 0 &&
         *numbers.rbegin() == world - 1;
}

/// As the logs state it; 0: not, -1: in several ways.
int64_t stated_world(const std::vector<ForeignLog>& logs) {
  int64_t world = 0;
  for (const ForeignLog& log : logs) {
    for (const Attempt& attempt : log.attempts) {
      const int64_t stated = attempt.sizes.world_size;
      if (stated > 0 && world > 0 && stated != world) return -1;
      if (stated > 0) world = stated;
    }
  }
  return world;
}

/// Whether lines of a log are known to be of other ranks.
bool has_other_ranks(const ForeignLog& log, int rank) {
  const auto is_other = [rank](int said) { return said >= 0 && said != rank; };
  return std::ranges::any_of(log.attempts, [&](const Attempt& attempt) {
    return std::ranges::any_of(attempt.failures,
                               [&](const Failure& failure) { return is_other(failure.rank); }) ||
           std::ranges::any_of(attempt.timeouts,
                               [&](const auto& timeout) { return is_other(timeout.first); });
  });
}

/// What had no rank gets this one.
void set_rank(ForeignLog& log, int rank) {
  log.path_rank = rank;
  for (Attempt& attempt : log.attempts) {
    for (Failure& failure : attempt.failures) {
      if (failure.rank < 0) failure.rank = rank;
    }
    if (auto timeout = attempt.timeouts.extract(-1); !timeout.empty()) {
      timeout.key() = rank;
      attempt.timeouts.insert(std::move(timeout));
    }
    std::map<std::tuple<int, MemoryKind, bool>, MemoryReading> memory;
    for (auto& [key, reading] : attempt.memory) {
      if (reading.rank < 0) reading.rank = rank;
      memory.emplace(std::tuple(reading.rank, reading.kind, reading.is_peak), reading);
    }
    attempt.memory = std::move(memory);
  }
}

/// ".../none_abc/attempt_0/2/stderr.log" of torchrun: the folder is the rank within the node.
struct TorchrunPlace {
  std::string root;   ///< of the node: ".../none_abc"
  fs::path attempt;   ///< ".../none_abc/attempt_0"
  NumberedName rank;  ///< of the folder
};

std::optional<TorchrunPlace> torchrun_place(const std::string& path) {
  const fs::path file = absolute_path(path);
  const std::string stem = file.stem().string();
  const fs::path folder = file.parent_path();
  const fs::path attempt = folder.parent_path();
  const auto rank = numbered(folder.filename().string());
  const bool is_torchruns = (stem == "stdout" || stem == "stderr") && rank &&
                            rank->before.empty() && rank->behind.empty() &&
                            attempt.filename().string().starts_with("attempt_");
  if (!is_torchruns) return std::nullopt;
  return TorchrunPlace{attempt.parent_path().string(), attempt, *rank};
}

/// Of one node. Of several the same numbers come again, and the rank is not known.
void name_by_torchrun(std::vector<ForeignLog>& logs, int64_t world) {
  NumbersBeside beside;
  std::vector<std::pair<ForeignLog*, TorchrunPlace>> places;
  for (ForeignLog& log : logs) {
    if (auto place = torchrun_place(log.files.front())) places.emplace_back(&log, *place);
  }
  for (const auto& [log, place] : places) {
    if (place.root != places.front().second.root) return;
    const bool is_whole = world == 0 || are_all_of(beside.of(place.attempt, place.rank), world);
    if (!is_whole || has_other_ranks(*log, place.rank.number)) return;
  }
  for (const auto& [log, place] : places) {
    if (log->path_rank < 0) set_rank(*log, place.rank.number);
  }
}

/// A number at the end of a name may as well be of a node, of a run in an array or of a restart: it
/// is the rank where as many files as the run has ranks are numbered from 0, all of the logs are
/// such, and one of them alone has steps.
void name_by_task(std::vector<ForeignLog>& logs, int64_t world) {
  if (logs.size() < 2 || world < 2) return;
  NumbersBeside beside;
  std::vector<int> ranks;
  int num_with_steps = 0;
  std::string before;
  for (const ForeignLog& log : logs) {
    const fs::path file = absolute_path(log.files.front());
    const auto name = numbered(file.filename().string());
    if (!name || log.path_rank >= 0 || has_other_ranks(log, name->number)) return;
    const std::string start = (file.parent_path() / name->before).string();
    if (!ranks.empty() && start != before) return;
    before = start;
    if (!are_all_of(beside.of(file.parent_path(), *name), world)) return;
    const auto has_steps = [](const Attempt& attempt) { return !attempt.steps.empty(); };
    num_with_steps += std::ranges::any_of(log.attempts, has_steps) ? 1 : 0;
    ranks.push_back(name->number);
  }
  if (num_with_steps > 1) return;
  for (size_t i = 0; i < logs.size(); ++i) set_rank(logs[i], ranks[i]);
}

}  // namespace

void name_ranks_by_paths(std::vector<ForeignLog>& logs) {
  const int64_t world = stated_world(logs);
  if (world < 0) return;
  name_by_torchrun(logs, world);
  name_by_task(logs, world);
}

}  // namespace moetune::sweeps
