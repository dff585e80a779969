// Series of collectives of several ranks: many of them, orders that fit by chance, and times at the
// ends of what can be imported.
#include "profiler/analysis/matched_series.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/known_clocks.h"
#include "profiler/analysis/matched_collectives.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(matched_series)

namespace {

/// One rank's part of a collective. Its instances are told apart by `number`, which no file has.
struct Part {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t number = 0;
  const char* group = "0";
  int64_t sequence = -1;
};

/// `number` becomes the correlation.
ImportedTrace trace_of(int64_t rank, const std::vector<Part>& parts, int64_t base_time_ns = 0) {
  ImportedTrace trace;
  trace.facts.file = "rank " + std::to_string(rank);
  trace.facts.rank = rank;
  trace.facts.base_time_ns = base_time_ns;
  const uint16_t stream = trace.stream_row({rank, 7});
  const uint16_t thread = trace.thread_row({1, 1});
  const uint32_t launch = trace.names.intern("cudaLaunchKernel");
  for (const Part& part : parts) {
    CommCall comm;
    comm.group = trace.names.intern(part.group);
    comm.members = trace.names.intern("[0, 1, 2]");
    comm.collective = trace.names.intern("allreduce");
    comm.in_nelems = comm.out_nelems = 1000;
    comm.sequence = part.sequence;
    trace.comms.push_back(comm);
    ImportedOp op;
    op.start_ns = part.start_ns;
    op.end_ns = part.end_ns;
    op.correlation = part.number + 1;
    op.name = trace.names.intern("ncclDevKernel_AllReduce(x)");
    op.comm = static_cast<uint32_t>(trace.comms.size() - 1);
    op.stream = stream;
    trace.ops.add(op);
    const int64_t call_ns = std::max(part.start_ns - 10'000, -kMostImportedNs);
    trace.calls.add({call_ns, call_ns, launch, op.correlation, thread, CallKind::launch});
  }
  trace.finish();
  return trace;
}

std::vector<ImportedTrace> traces_of(const std::vector<std::vector<Part>>& ranks,
                                     int64_t base_time_ns = 0) {
  std::vector<ImportedTrace> traces;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    traces.push_back(trace_of(static_cast<int64_t>(rank), ranks[rank], base_time_ns));
  }
  return traces;
}

/// How many collectives were found, and that none was taken for another one.
size_t num_found(const std::vector<ImportedTrace>& traces, const CollectiveMatching& matching) {
  for (const MatchedCollective& one : matching.matched) {
    const CollectivePart& first = one.parts[0];
    for (const CollectivePart& part : one.parts) {
      BOOST_TEST(traces[part.trace].ops[part.op].correlation ==
                 traces[first.trace].ops[first.op].correlation);
    }
  }
  return matching.matched.size();
}

/// Two ranks, of which the second one comes later; its clock is ahead.
struct TwoRanks {
  std::vector<std::vector<Part>> ranks = {{}, {}};
  int64_t ahead_ns = 77'000'000;
  uint32_t number = 0;

  void add(int64_t end_ns, const char* group = "0") {
    ranks[0].push_back({end_ns - 500'000, end_ns, number, group});
    ranks[1].push_back({end_ns - 100'000 + ahead_ns, end_ns + ahead_ns, number++, group});
  }
};

/// At uneven times, of which no two distances are alike.
TwoRanks uneven_times(int count) {
  tests::Random random(5);
  TwoRanks two;
  int64_t end_ns = 0;
  for (int i = 0; i < count; ++i) two.add(end_ns += 1'000'000 + 1000 * random.below(400));
  return two;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_hundred_thousand_collectives_are_all_matched) {
  constexpr int kCount = 100'000;
  std::vector<std::vector<Part>> ranks(2);
  for (int64_t i = 0; i < kCount; ++i) {
    const int64_t end_ns = 200'000 * (i + 1);
    const auto number = static_cast<uint32_t>(i);
    ranks[0].push_back({end_ns - 150'000, end_ns, number});
    ranks[1].push_back({end_ns - 50'000, end_ns, number});
  }
  const ImportedWall wall = classify_imported(traces_of(ranks));
  BOOST_TEST(wall.matching.matched.size() == static_cast<size_t>(kCount));
}

// Each of a million series tells of the clocks, and asks for them.
BOOST_AUTO_TEST_CASE(what_is_known_of_clocks_does_not_grow_with_series) {
  constexpr size_t kCount = 1'000'000;
  KnownClocks clocks(3);
  clocks.add(0, 1, 5000, 3);
  size_t num_right = 0;
  for (size_t i = 0; i < kCount; ++i) {
    clocks.add(1, 2, 1000 + static_cast<int64_t>(i % 7), 1 + i % 5);
    const std::optional<KnownClock>& known = clocks.ahead_of(2)[0];
    num_right += known && known->ahead_ns <= -6000 && known->ahead_ns > -6007 ? 1U : 0U;
  }
  BOOST_TEST(num_right >= kCount - 2);
}

BOOST_AUTO_TEST_CASE(most_pairs_tell_how_far_a_clock_is_ahead) {
  KnownClocks clocks(4);
  clocks.add(0, 1, 90'000'000, 1);
  BOOST_TEST(!clocks.ahead_of(0)[1].has_value());  // by chance, as far as is known
  clocks.add(1, 0, -5'000'000, 40);
  clocks.add(0, 1, 90'000'000, 20);
  BOOST_TEST(clocks.ahead_of(0)[1].value().ahead_ns == 5'000'000);
  BOOST_TEST(clocks.ahead_of(1)[0].value().ahead_ns == -5'000'000);
  clocks.add(0, 1, 90'100'000, 30);  // agrees with that of 20
  BOOST_TEST(clocks.ahead_of(0)[1].value().ahead_ns == 90'100'000);
  BOOST_TEST(clocks.ahead_of(0)[1].value().num_pairs == 51U);
  // By way of another trace, where more say so; and none where sums would be too large.
  clocks.add(1, 2, 1000, 100);
  clocks.add(0, 2, 7, 4);
  BOOST_TEST(clocks.ahead_of(0)[2].value().ahead_ns == 90'101'000);
  BOOST_TEST(clocks.ahead_of(0)[2].value().num_pairs == 51U);
  BOOST_TEST(clocks.ahead_of(2)[2].value().ahead_ns == 0);
  KnownClocks far(3);
  far.add(0, 1, 3 * kMostImportedNs, 9);
  far.add(1, 2, 3 * kMostImportedNs, 9);
  BOOST_TEST(far.ahead_of(0)[1].has_value());
  BOOST_TEST(!far.ahead_of(0)[2].has_value());
}

// Votes that say the same as the best count, at the latest when they have doubled it.
BOOST_AUTO_TEST_CASE(votes_that_agree_are_counted) {
  KnownClocks clocks(2);
  const auto num_pairs = [&] { return clocks.ahead_of(0)[1].value().num_pairs; };
  clocks.add(0, 1, 5000, 10);
  BOOST_TEST(num_pairs() == 10U);
  clocks.add(0, 1, 5000, 4);
  clocks.recount();
  BOOST_TEST(num_pairs() == 14U);
  clocks.add(0, 1, 5000, 8);
  BOOST_TEST(num_pairs() == 22U);
}

// One of another group on each rank, which are not the same one: two always end together.
BOOST_AUTO_TEST_CASE(a_pair_that_fits_by_chance_tells_no_clock) {
  for (const bool is_first : {true, false}) {
    TwoRanks two = uneven_times(300);
    two.ranks[1].erase(two.ranks[1].begin() + 120);
    const char* group = is_first ? "00" : "9";  // before or behind in the order of names
    const auto stray = [&](size_t rank, size_t place, uint32_t number) {
      const int64_t start_ns = two.ranks[rank][place].end_ns + 10'000;
      two.ranks[rank].push_back({start_ns, start_ns + 30'000, number, group});
    };
    stray(0, 3, 1000);
    stray(1, 270, 1001);
    const std::vector<ImportedTrace> traces = traces_of(two.ranks);
    const CollectiveMatching matching = match_across_ranks(traces);
    BOOST_TEST(num_found(traces, matching) == 299U);
    const std::vector<std::optional<int64_t>>& offsets = matching.clock_offsets_ns;
    BOOST_TEST(offsets[0].value() - offsets[1].value() == two.ahead_ns);
    BOOST_TEST((matching.lacks[0].size() == 2U && matching.lacks[1].size() == 1U));
  }
}

// Five that recur on each rank at another time are in order, but not the same ones.
BOOST_AUTO_TEST_CASE(more_pairs_overrule_an_order_that_fits) {
  for (const int num_lost : {0, 1}) {
    TwoRanks two = uneven_times(100);
    if (num_lost > 0) two.ranks[1].erase(two.ranks[1].begin() + 50);
    for (uint32_t i = 0; i < 5; ++i) {
      const int64_t end_ns = 5'000'000 + 2'000'000 * int64_t{i};
      two.ranks[0].push_back({end_ns - 20'000, end_ns, 1000 + i, "00"});
      two.ranks[1].push_back({end_ns + 150'000'000, end_ns + 150'020'000, 2000 + i, "00"});
    }
    const std::vector<ImportedTrace> traces = traces_of(two.ranks);
    const CollectiveMatching matching = match_across_ranks(traces);
    BOOST_TEST(num_found(traces, matching) == static_cast<size_t>(100 - num_lost));
  }
}

// Alike periods without marks fit in order, too, where one rank was recorded a step later.
BOOST_AUTO_TEST_CASE(a_shared_clock_tells_periods_apart_that_are_alike) {
  constexpr int kStep = 10;
  TwoRanks two;
  two.ahead_ns = 0;
  for (int i = 0; i < 6 * kStep; ++i) two.add(int64_t{1'430'000} * (i + 1));
  two.ranks[0].resize(5 * kStep);
  two.ranks[1].erase(two.ranks[1].begin(), two.ranks[1].begin() + kStep);
  const int64_t base_ns = 1'700'000'000'000'000'000;
  const std::vector<ImportedTrace> shared = traces_of(two.ranks, base_ns);
  BOOST_TEST(num_found(shared, match_across_ranks(shared)) == 4U * kStep);
  // Each machine's clock is its own, by any distance: there the order is all that tells.
  for (Part& part : two.ranks[1]) {
    part.start_ns += 715'000;
    part.end_ns += 715'000;
  }
  BOOST_TEST(match_across_ranks(traces_of(two.ranks, base_ns)).matched.size() == 5U * kStep);
  // Numbers are believed.
  for (std::vector<Part>& rank : two.ranks) {
    for (size_t i = 0; i < rank.size(); ++i) rank[i].sequence = static_cast<int64_t>(i);
  }
  BOOST_TEST(match_across_ranks(traces_of(two.ranks, base_ns)).matched.size() == 5U * kStep);
}

/// Alike periods in order, of which the second rank was recorded a step of ten later: `count` of
/// them, which tell a wrong clock.
TwoRanks a_step_off(int count) {
  TwoRanks two;
  for (int i = 0; i < count + 10; ++i) two.add(int64_t{1'430'000} * (i + 1));
  two.ranks[0].resize(static_cast<size_t>(count));
  two.ranks[1].erase(two.ranks[1].begin(), two.ranks[1].begin() + 10);
  return two;
}

/// Matches of two parts with the same number, from `first` on.
size_t num_right(const std::vector<ImportedTrace>& traces, uint32_t first) {
  const CollectiveMatching matching = match_across_ranks(traces);
  return static_cast<size_t>(std::ranges::count_if(matching.matched, [&](const auto& one) {
    const auto number = [&](size_t i) {
      return traces[one.parts[i].trace].ops[one.parts[i].op].correlation - 1;
    };
    return one.parts.size() == 2 && number(0) == number(1) && number(0) >= first;
  }));
}

// Eight that are matched by their numbers stay so beside a hundred in an order that fits.
BOOST_AUTO_TEST_CASE(what_sequences_tell_is_not_corrected) {
  TwoRanks two = a_step_off(100);
  const uint32_t first = two.number;
  for (int64_t i = 0; i < 8; ++i) {
    two.add(int64_t{1'430'000} * (20 + 3 * i) + 700'000, "1");
    for (std::vector<Part>& rank : two.ranks) rank.back().sequence = i;
  }
  BOOST_TEST(num_right(traces_of(two.ranks), first) == 8U);
}

// Each of three series with a lost record has fewer pairs than an order that fits, but not
// together.
BOOST_AUTO_TEST_CASE(several_series_overrule_an_order_that_fits) {
  TwoRanks two = a_step_off(100);
  const uint32_t first = two.number;
  tests::Random random(7);
  for (const char* group : {"1", "2", "3"}) {
    int64_t end_ns = 20'000'000;
    for (int i = 0; i < 60; ++i) two.add(end_ns += 1'000'000 + 1000 * random.below(400), group);
    two.ranks[1].erase(two.ranks[1].end() - 30);
  }
  const std::vector<ImportedTrace> traces = traces_of(two.ranks);
  BOOST_TEST(num_right(traces, first) >= 2 * 59U);  // the first one finds the order alone
  BOOST_TEST(num_right(traces, 0) - num_right(traces, first) == 90U);
}

// Ranks 1 and 2 have one each that rank 0 lacks. On its clock one ends beyond what fits into 64
// bits, which is not where the other one ends.
BOOST_AUTO_TEST_CASE(times_beyond_64_bits_are_not_compared) {
  constexpr int64_t kMost = kMostImportedNs;
  std::vector<std::vector<Part>> ranks(3);
  for (uint32_t i = 0; i < 8; ++i) {
    const int64_t at_ns = 1'000'000 * int64_t{i};
    // The hub's clock is half of the range behind that of rank 2, and ahead of that of rank 1.
    ranks[0].push_back({kMost - 10'000'000, 2 * kMost - 10'000'000 + at_ns, i, "0", i});
    ranks[1].push_back({-kMost, -kMost + at_ns, i, "0", i});
    ranks[0].push_back({-kMost, -kMost / 2 + at_ns, 20 + i, "0", 20 + i});
    ranks[2].push_back({kMost - 1, 3 * kMost / 2 + 40'000'000 + at_ns, 20 + i, "0", 20 + i});
  }
  const int64_t ahead_of_1_ns = 3 * kMost - 10'000'000;
  const int64_t ahead_of_2_ns = -2 * kMost - 40'000'000;
  const int64_t end_1_ns = 2 * kMost - 20'000'000;
  const auto end_on_hub =
      static_cast<int64_t>(static_cast<uint64_t>(end_1_ns) + static_cast<uint64_t>(ahead_of_1_ns));
  const int64_t end_2_ns = end_on_hub - ahead_of_2_ns;
  ranks[1].push_back({kMost - 1, end_1_ns, 99, "0", 99});
  ranks[2].push_back({end_2_ns - 1000, end_2_ns, 98, "0", 99});
  ranks[2].push_back({0, 1000, 97, "0", 97});  // three lengths: the hub is the longest
  const std::vector<ImportedTrace> traces = traces_of(ranks);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(num_found(traces, matching) == 16U);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
