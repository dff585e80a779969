#include "profiler/analysis/matched_series.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "profiler/analysis/by_op.h"
#include "profiler/analysis/missing_ranks.h"

namespace moetune::profiler {
namespace {

/// Whether nothing but its kernel's name says what an operation is, and it may be a message.
bool is_unnamed_message(const ImportedTrace& trace, uint32_t row) {
  const ImportedOp& op = trace.ops[row];
  const bool is_named = op.comm != kNoRow && trace.comms[op.comm].collective != kNoRow;
  return !is_named && may_be_message(trace, row);
}

/// Whether a collective of that kind need not end together: it goes from one member to the others,
/// or the other way, where who sends does not wait for who receives; or each gets a part of its
/// own, and who gets the most ends last.
bool may_end_apart(std::string_view kind) {
  constexpr std::array<std::string_view, 4> kKinds = {"reduce", "_reduce_oop", "gather", "scatter"};
  constexpr std::array<std::string_view, 5> kParts = {"broadcast", "Broadcast", "Kernel_Reduce_",
                                                      "all_to_all", "alltoall"};
  const auto is_in_kind = [&](std::string_view part) { return kind.find(part) != kind.npos; };
  return std::ranges::find(kKinds, kind) != kKinds.end() || std::ranges::any_of(kParts, is_in_kind);
}

/// Whether two ranks that have as many instances of a series must have them in common, and end
/// together: enough to tell, and the file names all their members.
bool is_in_common(const SeriesKey& key, size_t num_instances) {
  constexpr size_t kFewest = 8;
  const std::string& members = std::get<1>(key);
  return num_instances >= kFewest && !members.empty() && !may_end_apart(std::get<2>(key)) &&
         members.find("...") == std::string::npos;  // cut short
}
/// When a trace has device work, on its own clock.
Interval time_of_work(const ImportedTrace& trace) {
  if (trace.ops.size() == 0) return {};
  Interval time = {trace.ops[0].start_ns, trace.ops[0].end_ns};
  for (const ImportedOp& op : trace.ops) time.end_ns = std::max(time.end_ns, op.end_ns);
  return time;
}

/// Whether the file says which ranks a series is of.
bool has_group(const SeriesKey& key) {
  return !std::get<0>(key).empty() || !std::get<1>(key).empty();
}

constexpr int64_t kFarNs = 10 * kEndsAgreeNs;  // clocks drift

/// Pairs that end as far apart as the middle one.
size_t num_agreeing(const PairedInstances& paired) {
  const auto agrees = [&](int64_t shift_ns) {
    return distance_of(shift_ns, paired.shift_ns) <= kEndsAgreeNs;
  };
  return static_cast<size_t>(std::ranges::count_if(paired.shifts, agrees));
}

}  // namespace

SeriesMatcher::SeriesMatcher(std::span<const ImportedTrace> traces,
                             const std::vector<OpRows>& left_out)
    : traces_(traces), clocks_(traces.size()) {
  for (size_t i = 0; i < traces.size(); ++i) {
    series_.push_back(series_of(traces[i], left_out[i]));
    times_.push_back(time_of_work(traces[i]));
    for (const auto& [key, instances] : series_.back()) ranks_of_[key].push_back(i);
  }
}

MatchedSeries SeriesMatcher::match() {
  std::map<SeriesKey, std::vector<RankSet>> sets_of;
  for (const auto& [key, ranks] : ranks_of_) {
    if (ranks.size() < 2) continue;
    for (const size_t rank : ranks) {
      found_.num_ops += static_cast<int64_t>(instances_of(rank, key).size());
    }
    sets_of[key] = by_order(key, ranks);
  }
  // The longest tell most of clocks.
  std::vector<std::pair<size_t, const SeriesKey*>> order;
  for (const auto& [key, sets] : sets_of) {
    order.emplace_back(instances_of(sets[0].hub, key).size(), &key);
  }
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const auto& one) { return one.first; });
  for (const auto& [size, key] : order) by_ends(*key, sets_of.at(*key));
  clocks_.recount();
  for (auto& [key, sets] : sets_of) {
    for (RankSet& set : sets) {
      correct(key, set);
      if (!set.others.empty()) take(key, set);
    }
  }
  return std::move(found_);
}

std::vector<RankSet> SeriesMatcher::by_order(const SeriesKey& key,
                                             const std::vector<size_t>& ranks) {
  std::vector<RankSet> sets;
  std::vector<size_t> open = ranks;
  while (!open.empty()) {
    RankSet set = {hub_of(open, key), {}};
    const std::vector<Instance>& first = instances_of(set.hub, key);
    std::vector<size_t> others;
    for (const size_t rank : open) {
      if (rank == set.hub) continue;
      const std::vector<Instance>& second = instances_of(rank, key);
      auto paired = pair_up(traces_[set.hub], first, traces_[rank], second);
      if (paired) {
        paired->trace = rank;
        set.others.push_back(std::move(*paired));
      } else {
        others.push_back(rank);
      }
    }
    if (is_unnamed_message(traces_[set.hub], first[0].op)) {
      if (!others.empty()) set.others.clear();
      others.clear();
    }
    for (const PairedInstances& one : set.others) {
      clocks_.add(set.hub, one.trace, one.shift_ns, num_agreeing(one));
    }
    sets.push_back(std::move(set));
    open = std::move(others);
  }
  std::ranges::stable_sort(sets, std::ranges::greater(),
                           [](const RankSet& set) { return set.others.size(); });
  return sets;
}

void SeriesMatcher::by_ends(const SeriesKey& key, std::vector<RankSet>& sets) {
  RankSet& main = sets[0];
  for (size_t i = 1; i < sets.size(); ++i) {
    if (!has_group(key) && !sets[i].others.empty()) continue;
    if (!join(key, main, sets[i].hub)) continue;
    for (const PairedInstances& other : std::exchange(sets[i].others, {})) {
      join(key, main, other.trace);
    }
  }
}

bool SeriesMatcher::join(const SeriesKey& key, RankSet& set, size_t rank) {
  const std::vector<Instance>& first = instances_of(set.hub, key);
  const std::vector<Instance>& second = instances_of(rank, key);
  auto paired = align_with(key, set.hub, rank);
  if (!paired) {
    const bool is_told = first.size() == second.size() && is_in_common(key, first.size());
    if (is_told) found_.apart.emplace(std::minmax(set.hub, rank));
    return false;
  }
  paired->trace = rank;
  set.others.push_back(std::move(*paired));
  return true;
}

std::optional<PairedInstances> SeriesMatcher::align_with(const SeriesKey& key, size_t hub,
                                                         size_t rank) {
  const auto aligned = [&](std::optional<int64_t> known_ns) {
    auto paired = align(traces_[hub], instances_of(hub, key), traces_[rank],
                        instances_of(rank, key), known_ns);
    if (paired) clocks_.add(hub, rank, paired->shift_ns, num_agreeing(*paired));
    return paired;
  };
  const std::optional<KnownClock> known = clocks_.ahead_of(hub)[rank];
  if (!known) return aligned(std::nullopt);
  auto paired = aligned(known->ahead_ns);
  // Series of different groups do not end together. Those of one do, and may be the first to tell.
  if (paired || !has_group(key)) return paired;
  paired = aligned(std::nullopt);
  if (!paired || paired->pairs.size() > known->num_pairs) return paired;
  // Too few against what is known, unless others have said the same.
  const std::optional<KnownClock>& now = clocks_.ahead_of(hub)[rank];
  if (!now || distance_of(paired->shift_ns, now->ahead_ns) > kFarNs) paired.reset();
  return paired;
}

void SeriesMatcher::correct(const SeriesKey& key, RankSet& set) {
  const std::vector<std::optional<KnownClock>>& ahead = clocks_.ahead_of(set.hub);
  for (PairedInstances& other : std::exchange(set.others, {})) {
    const size_t rank = other.trace;
    const std::optional<KnownClock>& known = ahead[rank];
    const bool is_far = known && known->num_pairs > other.pairs.size() &&
                        distance_of(other.shift_ns, known->ahead_ns) > kFarNs &&
                        !is_any_told(other, instances_of(set.hub, key), instances_of(rank, key));
    std::optional<PairedInstances> paired = std::move(other);
    if (is_far) {
      paired = align(traces_[set.hub], instances_of(set.hub, key), traces_[rank],
                     instances_of(rank, key), known->ahead_ns);
    }
    if (!paired) continue;
    paired->trace = rank;
    set.others.push_back(std::move(*paired));
  }
}

void SeriesMatcher::take(const SeriesKey& key, const RankSet& set) {
  const std::vector<Instance>& of_hub = instances_of(set.hub, key);
  std::map<uint32_t, MatchedCollective> by_op;  // of the hub
  for (const PairedInstances& other : set.others) {
    const std::vector<Instance>& of_other = instances_of(other.trace, key);
    const bool is_behind = set.hub < other.trace;
    std::vector<int64_t>& ahead = found_.shifts[std::minmax(set.hub, other.trace)];
    for (const int64_t shift : other.shifts) ahead.push_back(is_behind ? shift : -shift);
    for (size_t i = 0; i < other.pairs.size(); ++i) {
      const int64_t distance = distance_of(other.shifts[i], other.shift_ns);
      if (distance > kEndsAgreeNs) continue;
      found_.distances[other.trace].push_back(distance);
      const auto& [place, place_of_other] = other.pairs[i];
      MatchedCollective& one = by_op[of_hub[place].op];
      if (one.parts.empty()) {
        one.parts.push_back({static_cast<uint32_t>(set.hub), of_hub[place].op});
      }
      one.parts.push_back({static_cast<uint32_t>(other.trace), of_other[place_of_other].op});
    }
  }
  std::vector<MatchAtEnd> by_end;  // on the hub's clock
  for (auto& [op, one] : by_op) {
    by_end.emplace_back(traces_[set.hub].ops[op].end_ns, std::move(one));
  }
  if (add_without_hub(key, set, by_end)) {
    std::ranges::stable_sort(by_end, {}, [](const auto& one) { return one.first; });
  }
  for (auto& [end_ns, one] : by_end) {
    std::ranges::sort(one.parts, {}, &CollectivePart::trace);
    found_.matched.push_back(std::move(one));
  }
}

bool SeriesMatcher::add_without_hub(const SeriesKey& key, const RankSet& set,
                                    std::vector<MatchAtEnd>& by_end) const {
  const std::vector<Instance>& of_hub = instances_of(set.hub, key);
  if (set.others.size() < 2 || is_unnamed_message(traces_[set.hub], of_hub[0].op)) return false;
  std::vector<LooseInstance> loose;
  for (const PairedInstances& other : set.others) {
    const std::vector<Instance>& of_other = instances_of(other.trace, key);
    std::vector<bool> is_paired(of_other.size());
    for (size_t i = 0; i < other.pairs.size(); ++i) {
      const bool is_together = distance_of(other.shifts[i], other.shift_ns) <= kEndsAgreeNs;
      if (is_together) is_paired[other.pairs[i].second] = true;
    }
    for (size_t place = 0; place < of_other.size(); ++place) {
      if (is_paired[place]) continue;
      const Instance& one = of_other[place];
      int64_t end_ns = 0;  // on the hub's clock
      if (__builtin_sub_overflow(end_of(traces_[other.trace], one), other.shift_ns, &end_ns)) {
        continue;
      }
      loose.push_back({end_ns, static_cast<uint32_t>(other.trace), one});
    }
  }
  std::ranges::stable_sort(loose, {}, &LooseInstance::end_ns);
  const int64_t tolerance_ns = end_tolerance_ns(ends_of(traces_[set.hub], of_hub));
  const size_t num_before = by_end.size();
  for (size_t first = 0; first < loose.size();) {
    MatchedCollective one;
    std::set<uint32_t> ranks;
    size_t next = first;
    const auto is_same = [&](const LooseInstance& other) {
      const Instance& a = loose[first].instance;
      return distance_of(other.end_ns, loose[first].end_ns) <= tolerance_ns &&
             other.instance.sequence == a.sequence && other.instance.step == a.step;
    };
    for (; next < loose.size() && is_same(loose[next]); ++next) {
      if (!ranks.insert(loose[next].trace).second) break;
      one.parts.push_back({loose[next].trace, loose[next].instance.op});
    }
    if (one.parts.size() > 1) by_end.emplace_back(loose[first].end_ns, std::move(one));
    first = next;
  }
  return by_end.size() > num_before;
}

size_t SeriesMatcher::hub_of(const std::vector<size_t>& ranks, const SeriesKey& key) const {
  std::map<size_t, size_t> num_ranks;  // by number of instances
  for (const size_t rank : ranks) ++num_ranks[instances_of(rank, key).size()];
  const auto usual = std::ranges::max_element(
      num_ranks, [](const auto& a, const auto& b) { return a.second <= b.second; });
  return *std::ranges::find_if(
      ranks, [&](size_t rank) { return instances_of(rank, key).size() == usual->first; });
}

Lack SeriesMatcher::lack_of(const CollectivePart& one, const MatchedCollective* match,
                            const std::set<size_t>& partners,
                            const std::vector<std::optional<KnownClock>>& ahead) const {
  const ImportedTrace& trace = traces_[one.trace];
  const ImportedOp& op = trace.ops[one.op];
  const int32_t size = op.comm == kNoRow ? -1 : trace.comms[op.comm].group_size;
  if (match != nullptr && size > 0 && match->parts.size() >= static_cast<size_t>(size)) {
    return Lack::none;
  }
  Lack lack = Lack::none;
  for (const size_t partner : partners) {
    const auto is_partner = [&](const CollectivePart& part) { return part.trace == partner; };
    if (partner == one.trace) continue;
    if (match != nullptr && std::ranges::any_of(match->parts, is_partner)) continue;
    int64_t end_ns = 0;  // on the partner's clock
    const bool is_known =
        ahead[partner] && !__builtin_add_overflow(op.end_ns, ahead[partner]->ahead_ns, &end_ns);
    const Interval& time = times_[partner];
    if (!is_known || (end_ns > time.start_ns && end_ns <= time.end_ns)) return Lack::record;
    lack = Lack::time;
  }
  return lack;
}

std::vector<std::map<uint32_t, Lack>> SeriesMatcher::lacks(
    const std::vector<MatchedCollective>& matched) {
  std::vector<std::vector<ByOp<uint32_t>::Entry>> places(traces_.size());  // in `matched`
  for (uint32_t place = 0; place < matched.size(); ++place) {
    for (const CollectivePart& part : matched[place].parts) {
      places[part.trace].push_back({part.op, place});
    }
  }
  const std::vector<ByOp<uint32_t>> match_of = sorted_by_op<uint32_t>(std::move(places));
  using Group = std::pair<std::string, std::string>;  // its name and members
  const auto group_of = [](const SeriesKey& key) {
    return Group(std::get<0>(key), std::get<1>(key));
  };
  std::map<Group, std::set<size_t>> traces_of;
  for (const auto& [key, ranks] : ranks_of_) {
    traces_of[group_of(key)].insert(ranks.begin(), ranks.end());
  }
  const bool are_all_given = known_ranks(traces_) <= static_cast<int64_t>(traces_.size());
  std::vector<std::map<uint32_t, Lack>> lacks(traces_.size());
  for (const auto& [key, ranks] : ranks_of_) {
    if (is_unnamed_message(traces_[ranks[0]], instances_of(ranks[0], key)[0].op)) continue;
    const bool is_named = has_group(key);
    if (!is_named && (!are_all_given || ranks.size() < 2)) continue;
    std::set<size_t> partners;
    if (is_named) partners = traces_of.at(group_of(key));
    for (const size_t rank : ranks) {
      const std::vector<Instance>& own = instances_of(rank, key);
      const auto num_found = std::ranges::count_if(
          own, [&](const Instance& one) { return match_of[rank].find(one.op) != nullptr; });
      if (!is_named && 2 * static_cast<size_t>(num_found) < own.size()) partners.insert(rank);
    }
    for (const size_t rank : ranks) {
      const std::vector<std::optional<KnownClock>>& ahead = clocks_.ahead_of(rank);
      for (const Instance& one : instances_of(rank, key)) {
        const uint32_t* place = match_of[rank].find(one.op);
        const MatchedCollective* match = place == nullptr ? nullptr : &matched[*place];
        Lack lack = lack_of({static_cast<uint32_t>(rank), one.op}, match, partners, ahead);
        if (!is_named && match == nullptr) lack = Lack::record;
        if (lack != Lack::none) lacks[rank].emplace(one.op, lack);
      }
    }
  }
  return lacks;
}

}  // namespace moetune::profiler
