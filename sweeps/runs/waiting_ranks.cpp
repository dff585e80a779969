#include "sweeps/runs/waiting_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/units.h"
#include "profiler/analysis/group_words.h"

namespace moetune::sweeps {
namespace {

/// "0-3, 6": at most a few runs of ranks.
std::string words_of_ranks(const std::vector<int>& ranks) {
  constexpr size_t kMostRuns = 8;
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t k = i;
    while (k + 1 < ranks.size() && ranks[k + 1] == ranks[k] + 1) ++k;
    if (runs.size() == kMostRuns) {
      runs.emplace_back("...");
      break;
    }
    runs.push_back(k == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[k]));
    i = k + 1;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(runs, ", "));
}

/// What the watchdogs of all ranks said of one operation that timed out.
struct Waiters {
  std::set<int> ranks;              ///< whose collective timed out
  std::set<int> elsewhere;          ///< who timed out in another group, or at another operation
  std::map<int, int64_t> enqueued;  ///< how many operations a rank of the group had started
  /// At which operation of the group a rank waits, where the group is known for certain.
  std::map<int, int64_t> places;
  bool called_others = false;  ///< ranks of one group called different operations
  /// By operation: who called it in the place of the first, where the group is known for certain.
  using Callers = std::map<std::string, std::set<int>>;
  Callers callers;
  Callers likely_callers;  ///< the same where lines do not name the group
};

/// The earliest; of those at one time the one that the group had come to first.
std::optional<CollectiveTimeout> first_timeout(const AttemptParts& parts) {
  std::optional<CollectiveTimeout> first;
  for (const Attempt* part : parts) {
    for (const auto& [rank, timeout] : part->timeouts) {
      if (timeout.operation.empty()) continue;
      const bool has_times = first && first->time_s && timeout.time_s;
      const bool is_earlier = has_times && *timeout.time_s < *first->time_s;
      const bool is_behind = first && timeout.group_id == first->group_id &&
                             (!has_times || *timeout.time_s == *first->time_s) &&
                             timeout.sequence < first->sequence;
      if (!first || is_earlier || is_behind) first = timeout;
    }
  }
  return first;
}

/// Not every line names its group.
bool is_of_group(const CollectiveTimeout& timeout, const CollectiveTimeout& first) {
  if (!timeout.group_id.empty() && !first.group_id.empty()) {
    return timeout.group_id == first.group_id;
  }
  return timeout.group_id == first.group_id || timeout.operation.empty() ||
         (timeout.operation == first.operation && timeout.sequence == first.sequence);
}

/// Whether two names of operations may be one: a line may be cut within it.
bool may_be_same(std::string_view a, std::string_view b) {
  return a.starts_with(b) || b.starts_with(a);
}

Waiters waiters_of(const AttemptParts& parts, const CollectiveTimeout& first) {
  Waiters waiters;
  for (const Attempt* part : parts) {
    for (const auto& [rank, timeout] : part->timeouts) {
      const bool is_its_group = is_of_group(timeout, first);
      if (is_its_group && rank >= 0 && timeout.last_enqueued) {
        waiters.enqueued[rank] = *timeout.last_enqueued;
      }
      const auto started = timeout.enqueued_in.find(first.group_id);
      if (rank >= 0 && started != timeout.enqueued_in.end()) {
        waiters.enqueued[rank] = started->second;
      }
      if (timeout.operation.empty()) continue;
      const bool is_known_group = !first.group_id.empty() && timeout.group_id == first.group_id;
      if (rank >= 0 && is_known_group && timeout.sequence >= 0) {
        waiters.places[rank] = timeout.sequence;
      }
      const bool is_same = is_its_group && timeout.sequence == first.sequence;
      if (rank >= 0) (is_same ? waiters.ranks : waiters.elsewhere).insert(rank);
      waiters.called_others |= is_same && !may_be_same(timeout.operation, first.operation);
      const bool is_certain = is_same && !first.group_id.empty() && !timeout.group_id.empty();
      if (is_same && rank >= 0) {
        (is_certain ? waiters.callers : waiters.likely_callers)[timeout.operation].insert(rank);
      }
    }
  }
  return waiters;
}

/// Those of the run that waited for nobody. Where few waited only a gap between them says who:
/// groups are most often of neighbours, and begin at a multiple of their size.
std::vector<int> absent_ranks(const std::set<int>& waiting, int64_t world, bool& is_likely) {
  constexpr int64_t kMostWorld = 1'000'000;
  constexpr size_t kFewest = 3;
  if (waiting.empty() || world > kMostWorld) return {};
  const auto count = static_cast<int64_t>(waiting.size());
  const bool is_most = world > 0 && count * 2 >= world;
  const int first = is_most ? 0 : *waiting.begin();
  const auto end = is_most ? static_cast<int>(world) : *waiting.rbegin() + 1;
  const bool has_gap = end - first == count + 1 && first % (end - first) == 0;
  if (!is_most && (waiting.size() < kFewest || !has_gap)) return {};
  is_likely = !is_most;
  std::vector<int> absent;
  for (int rank = first; rank < end; ++rank) {
    if (!waiting.contains(rank)) absent.push_back(rank);
  }
  return absent;
}

/// Ranks that called another operation than most of their group did in its place: nobody is missed
/// then, and none of the calls can end.
struct OddCalls {
  std::string usual;       ///< what most called; empty: no operation has most
  std::vector<int> ranks;  ///< who called others; empty: no operation has most
  std::string words;
};

/// Of two ranks of their group, or of several messages.
bool is_message(const std::string& operation) {
  return operation == "SEND" || operation == "RECV" || operation == "COALESCED";
}

/// Of a group without a name: where most of the run called the same in one place of their groups,
/// few others that called something else there had been waited for. Messages between two ranks say
/// nothing of others.
bool is_odd_in_run(const Waiters::Callers& callers, int64_t world) {
  constexpr size_t kFew = 4;  // one of so many
  size_t most = 0;
  size_t all = 0;
  for (const auto& [operation, ranks] : callers) {
    if (is_message(operation)) return false;
    most = std::max(most, ranks.size());
    all += ranks.size();
  }
  return callers.size() > 1 && static_cast<int64_t>(2 * most) > world && world > 0 &&
         (all - most) * kFew <= most;
}

std::optional<OddCalls> odd_calls(const Waiters& waiters, int64_t world) {
  const bool is_known = waiters.callers.size() > 1;
  if (!is_known && !is_odd_in_run(waiters.likely_callers, world)) return std::nullopt;
  const Waiters::Callers& callers = is_known ? waiters.callers : waiters.likely_callers;
  const auto size_of = [](const auto& entry) { return entry.second.size(); };
  const auto most = std::ranges::max_element(callers, {}, size_of);
  const bool has_most = std::ranges::count(callers, size_of(*most), size_of) == 1;
  OddCalls odd;
  if (has_most) odd.usual = most->first;
  std::vector<std::string> words;
  for (const auto& [operation, ranks] : callers) {
    if (operation == odd.usual) continue;
    const std::vector<int> sorted(ranks.begin(), ranks.end());
    words.push_back(fmt::format("{} had called {}", words_of_ranks(sorted), operation));
    if (has_most) odd.ranks.insert(odd.ranks.end(), sorted.begin(), sorted.end());
  }
  std::ranges::sort(odd.ranks);
  odd.words = fmt::format("{}", fmt::join(words, ", "));
  return odd;
}

/// Whether all ranks of a group had come, by what its name says: it may have several instances.
bool is_whole_group(const Waiters& waiters, const CollectiveTimeout& first,
                    const ParallelSizes& sizes) {
  if (first.group_id.empty()) return false;
  const auto name = profiler::group_of_words(first.group);
  for (const ParallelSizeRow& row : parallel_sizes()) {
    if (!name || *name != row.name) continue;
    const int64_t size = (sizes.*row.size).value_or(0);
    return size > 1 && static_cast<int64_t>(waiters.ranks.size()) >= size;
  }
  return false;
}

/// Who waited for one operation, and who was missing there.
struct Waiting {
  CollectiveTimeout operation;
  Waiters waiters;
  std::optional<OddCalls> odd;
  std::vector<int> missing;
  std::string who;         ///< words
  bool has_all = false;    ///< nobody was missing
  bool is_mutual = false;  ///< those who waited were missing elsewhere
  std::set<int> told;      ///< ranks of which `who` says where they waited

  [[nodiscard]] bool names_somebody() const { return odd || !missing.empty(); }
};

/// "ALLREDUCE number 77 of group TENSOR_MODEL_PARALLEL_GROUP"
std::string words_of_operation(const CollectiveTimeout& timeout) {
  return fmt::format("{}{}{}", timeout.operation,
                     timeout.sequence < 0 ? "" : fmt::format(" number {}", timeout.sequence),
                     timeout.group.empty() ? "" : " of group " + timeout.group);
}

std::string words_of_lag(const std::vector<int>& ranks, int64_t least, int64_t most) {
  return words_of_ranks(ranks) +
         (least < 0 ? fmt::format(" had started none, others had come to number {}", most)
                    : fmt::format(" had come to number {} only, others up to {}", least, most));
}

/// What a rank's watchdog said of the operation that it waited for; null where it did not.
const CollectiveTimeout* timeout_of(const AttemptParts& parts, int rank) {
  for (const Attempt* part : parts) {
    const auto own = part->timeouts.find(rank);
    if (own != part->timeouts.end() && !own->second.operation.empty()) return &own->second;
  }
  return nullptr;
}

/// Ranks of the group that wait at an earlier operation of it than others: these wait for them. Not
/// most of them: one may leave an operation early that the others cannot end.
bool name_by_place(const AttemptParts& parts, Waiting& waiting) {
  const std::map<int, int64_t> places = waiting.waiters.places;
  if (places.empty()) return false;
  const auto place_of = [](const auto& entry) { return entry.second; };
  const auto [least, most] = std::ranges::minmax_element(places, {}, place_of);
  if (least->second == most->second) return false;
  const auto num_least = std::ranges::count(places, least->second, place_of);
  if (2 * num_least > std::ssize(places)) return false;
  waiting.operation = *timeout_of(parts, most->first);
  waiting.waiters = waiters_of(parts, waiting.operation);
  for (const auto& [rank, place] : places) {
    if (place == least->second) waiting.missing.push_back(rank);
  }
  waiting.who = words_of_lag(waiting.missing, least->second, most->second);
  for (const auto& [rank, place] : places) waiting.told.insert(rank);
  return true;
}

/// Ranks that had started fewest operations of the group. `is_certain`: of those that wait
/// elsewhere, and fewer than the one that is waited for.
bool name_by_count(Waiting& waiting, bool is_certain) {
  const Waiters& waiters = waiting.waiters;
  std::map<int, int64_t> counts = waiters.enqueued;
  if (counts.empty()) return false;
  const auto count_of = [](const auto& entry) { return entry.second; };
  int64_t most = std::ranges::max_element(counts, {}, count_of)->second;
  if (is_certain) {
    most = std::max(most, waiting.operation.sequence);
    std::erase_if(counts, [&](const auto& entry) {
      return waiters.ranks.contains(entry.first) || entry.second >= waiting.operation.sequence;
    });
    if (counts.empty()) return false;
  }
  const int64_t least = std::ranges::min_element(counts, {}, count_of)->second;
  if (least == most) return false;
  for (const auto& [rank, count] : counts) {
    if (count == least) waiting.missing.push_back(rank);
  }
  waiting.who = words_of_lag(waiting.missing, least, most);
  return true;
}

/// Where all that are missing wait in other operations: fewer than wait here, or one of two ranks
/// whose watchdog spoke clearly later, as it had begun to wait later.
bool are_late(const AttemptParts& parts, const Waiting& waiting, const std::vector<int>& absent) {
  constexpr double kClearlyLaterSeconds = 1;
  if (absent.size() < waiting.waiters.ranks.size()) return true;
  if (absent.size() != 1) return false;
  const CollectiveTimeout* other = timeout_of(parts, absent.front());
  return other != nullptr && other->time_s && waiting.operation.time_s &&
         *other->time_s >= *waiting.operation.time_s + kClearlyLaterSeconds;
}

/// Whether the one rank that is missing waits, in another group, for one of those that wait here.
void look_for_circle(const AttemptParts& parts, Waiting& waiting) {
  if (waiting.missing.size() != 1) return;
  const int behind = waiting.missing.front();
  const CollectiveTimeout* other = timeout_of(parts, behind);
  if (other == nullptr || other->group_id.empty() ||
      other->group_id == waiting.operation.group_id) {
    return;
  }
  const Waiters there = waiters_of(parts, *other);
  std::vector<int> not_there;
  for (const int rank : waiting.waiters.ranks) {
    const auto count = there.enqueued.find(rank);
    if (count != there.enqueued.end() && count->second < other->sequence) not_there.push_back(rank);
  }
  if (not_there.empty()) return;
  waiting.is_mutual = true;
  waiting.told.insert(behind);
  waiting.who +=
      fmt::format("; {} waited for {}, to which {} had not come: they wait for each other",
                  words_of_ranks({behind}), words_of_operation(*other), words_of_ranks(not_there));
}

Waiting waiting_for(const AttemptParts& parts, const RunFacts& facts,
                    const CollectiveTimeout& operation) {
  Waiting waiting;
  waiting.operation = operation;
  waiting.waiters = waiters_of(parts, operation);
  const Waiters& waiters = waiting.waiters;
  const int64_t world = facts.world_size.value_or(0);
  waiting.odd = odd_calls(waiters, world);
  if (waiting.odd) {
    waiting.who = waiting.odd->words;
    return waiting;
  }
  const bool is_world = world > 0 && static_cast<int64_t>(waiters.ranks.size()) == world &&
                        operation.sequence >= 0 && !is_message(operation.operation);
  waiting.has_all = is_world || is_whole_group(waiters, operation, facts.parallel);
  waiting.who = waiting.has_all ? "all of the group had come" : "who did not come is not said";
  bool is_likely = false;
  std::vector<int> absent;
  if (!waiting.has_all) {
    // Who is known to be in the group is behind or ahead, and not absent.
    std::set<int> present = waiters.ranks;
    for (const auto& [rank, place] : waiters.places) present.insert(rank);
    absent = absent_ranks(present, world, is_likely);
    // Nor is who waits at a later operation, where no words tell groups apart.
    std::erase_if(absent, [&](int rank) {
      const CollectiveTimeout* other = timeout_of(parts, rank);
      return other != nullptr && other->group_id == operation.group_id &&
             other->sequence > operation.sequence;
    });
  }
  // Who waits elsewhere may be of another group; where nobody else is left it is one that came
  // late.
  std::vector<int> silent = absent;
  std::erase_if(silent, [&](int rank) { return waiters.elsewhere.contains(rank); });
  const auto name = [&](const std::vector<int>& ranks) {
    waiting.missing = ranks;
    waiting.who =
        fmt::format("{}{} did not come", is_likely ? "most likely " : "", words_of_ranks(ranks));
  };
  if (!silent.empty()) {
    name(silent);
  } else if (name_by_place(parts, waiting) || name_by_count(waiting, true)) {
    look_for_circle(parts, waiting);
  } else if (!absent.empty() && are_late(parts, waiting, absent)) {
    name(absent);
  } else if (!name_by_count(waiting, false) && absent.size() == 1) {
    if (const CollectiveTimeout* other = timeout_of(parts, absent.front())) {
      waiting.told.insert(absent.front());
      waiting.who = fmt::format("{} waited for {}: which of them is behind is not said",
                                words_of_ranks(absent), words_of_operation(*other));
    }
  }
  return waiting;
}

/// Where the first operation names nobody and all ranks of the run wait: another one may.
void look_at_others(const AttemptParts& parts, const RunFacts& facts, Waiting& first) {
  if (first.has_all || first.names_somebody()) return;
  using Place = std::tuple<std::string, int64_t, std::string>;  // group, number, operation
  std::map<Place, std::pair<int64_t, CollectiveTimeout>> operations;
  std::set<int> ranks;
  for (const Attempt* part : parts) {
    for (const auto& [rank, timeout] : part->timeouts) {
      if (rank < 0 || timeout.operation.empty() || !ranks.insert(rank).second) continue;
      auto& [count, one] = operations[{timeout.group_id, timeout.sequence, timeout.operation}];
      if (count++ == 0) one = timeout;
    }
  }
  if (ranks.empty() || static_cast<int64_t>(ranks.size()) != facts.world_size.value_or(0)) return;
  const auto most = std::ranges::max_element(operations, {},
                                             [](const auto& entry) { return entry.second.first; });
  Waiting other = waiting_for(parts, facts, most->second.second);
  const bool are_first = std::ranges::all_of(
      other.missing, [&](int rank) { return first.waiters.ranks.contains(rank); });
  if (other.names_somebody() && !other.missing.empty() && are_first) first = std::move(other);
}

}  // namespace

void tell_who_waited(const AttemptParts& parts, const RunFacts& facts, RunFailure& failure) {
  const std::optional<CollectiveTimeout> first = first_timeout(parts);
  if (!first) return;
  Waiting waiting = waiting_for(parts, facts, *first);
  look_at_others(parts, facts, waiting);
  const Waiters& waiters = waiting.waiters;
  const std::optional<OddCalls>& odd = waiting.odd;
  failure.waiting_ranks.assign(waiters.ranks.begin(), waiters.ranks.end());
  if (waiting.missing.size() == 1 && !waiting.is_mutual) failure.rank = waiting.missing.front();
  if (odd && odd->ranks.size() == 1) failure.rank = odd->ranks.front();
  failure.missing_ranks = waiting.missing;
  CollectiveTimeout operation = waiting.operation;
  std::vector<int> told_ranks = failure.waiting_ranks;
  if (odd && !odd->usual.empty()) {
    operation.operation = odd->usual;
    std::erase_if(told_ranks,
                  [&](int rank) { return std::ranges::binary_search(odd->ranks, rank); });
  }
  failure.timeout = operation;
  const double waited_s = static_cast<double>(operation.waited_ms) / 1e3;
  failure.sentence = fmt::format("{} waited {}for {}; {}",
                                 told_ranks.empty() ? "a rank" : words_of_ranks(told_ranks),
                                 waited_s < 0 ? "" : words_of_seconds(waited_s) + " ",
                                 words_of_operation(operation), waiting.who);
  if (waiters.called_others && !odd)
    failure.sentence += "; the ranks had called different operations";
  std::vector<int> elsewhere;
  std::ranges::set_difference(waiters.elsewhere, waiting.told, std::back_inserter(elsewhere));
  if (!elsewhere.empty()) {
    failure.sentence += fmt::format("; {} waited in other operations", words_of_ranks(elsewhere));
  }
}

void tell_who_was_idle(const AttemptParts& parts, const Failure& root, RunFailure& failure) {
  std::string group;
  for (const Attempt* part : parts) {
    const auto own = part->timeouts.find(root.rank);
    if (own != part->timeouts.end()) group = own->second.group_id;
  }
  std::set<int> idle;
  bool has_others = false;
  for (const Attempt* part : parts) {
    for (const auto& [rank, timeout] : part->timeouts) {
      if (rank < 0 || !timeout.last_enqueued || timeout.group_id != group) continue;
      has_others |= *timeout.last_enqueued >= 0;
      if (*timeout.last_enqueued < 0) idle.insert(rank);
    }
  }
  if (has_others && idle.size() == 1) failure.rank = *idle.begin();
}

std::string words_of_seconds(double seconds) {
  constexpr double kMostSeconds = 9e9;
  return base::format_ns(std::llround(std::clamp(seconds, 0.0, kMostSeconds) * 1e9));
}

}  // namespace moetune::sweeps
