// Ranks that do not have equally many collectives, in files without sequences: one began later,
// stopped earlier or lost records. Verdicts are those of the whole traces, or there is none.
#include <algorithm>
#include <array>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <functional>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "profiler/analysis/aligned_ends.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/wall_label.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
namespace data = boost::unit_test::data;
using tests::EventText;

BOOST_AUTO_TEST_SUITE(uneven_ranks)

namespace {

constexpr int kRanks = 4;
constexpr int kLayers = 12;

enum class Fault : uint8_t {
  none,
  slow_rank,
  late_host,
  moving_stall,
  slow_transfer,
  skewed_experts
};

/// A collective by its rank, its step and its number in the step.
using IsLost = std::function<bool(int rank, int step, int number)>;

/// Layers of a product, or two, and a collective of all ranks behind each.
struct Run {
  Fault fault = Fault::none;
  IsLost is_lost = [](int, int, int) { return false; };
  bool is_all_lost = false;  ///< products, too: the recording began later or ended earlier
  bool has_steps = true;
  bool has_strays = false;  ///< one of another group on each rank, in a step that is its own
  int num_steps = 4;
  double jitter = 0.02;
  std::array<double, kRanks> clocks_us = {};
};

std::string words_of(const std::string& collective, const std::string& group = "0") {
  return R"(, "Collective name": ")" + collective +
         R"(", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16",
         "Process Group Name": ")" +
         group + R"(", "Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]")";
}

double product_us(const Run& run, int rank, int part, tests::Random& random) {
  constexpr std::array<double, kRanks> kRows = {0.6, 0.7, 0.7, 2};
  double us = 1000 * (1 + run.jitter * (random.below(101) - 50) / 50);
  if (run.fault == Fault::skewed_experts) us = part == 0 ? 500 : us * kRows[rank];
  if (run.fault == Fault::slow_rank && rank == 3) us *= 1.5;
  return us;
}

constexpr int kStrayId = 1'000'000;

std::vector<ImportedTrace> traces_of(const Run& run) {
  const bool has_experts = run.fault == Fault::skewed_experts;
  const std::string collective = has_experts ? "all_to_allv" : "allreduce";
  const std::string kernel =
      has_experts ? "ncclDevKernel_SendRecv(x)" : "ncclDevKernel_AllReduce(x)";
  const double transfer_us = run.fault == Fault::slow_transfer ? 900 : 150;
  tests::Random random(5);
  std::array<EventText, kRanks> events;
  std::array<double, kRanks> host = {};
  std::array<double, kRanks> device = {};
  host.fill(1000);
  int id = 1;
  for (int step = 0; step < run.num_steps; ++step) {
    const std::array<double, kRanks> began = host;
    if (run.fault == Fault::late_host) {
      events[2].range(host[2] + run.clocks_us[2], 8000,
                      "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
      host[2] += 8000;
    }
    // Of no range, as when Python collects garbage.
    if (run.fault == Fault::moving_stall) host[step % kRanks] += 8000;
    const int num_parts = has_experts ? 2 : 1;
    for (int number = 0; number < kLayers * num_parts; ++number) {
      double last_us = 0;
      for (int rank = 0; rank < kRanks; ++rank) {
        const double clock = run.clocks_us[rank];
        const double length_us = product_us(run, rank, number % num_parts, random);
        const double start = std::max(device[rank], host[rank] + 6);
        if (!run.is_all_lost || !run.is_lost(rank, step, number)) {
          const std::string name =
              number % num_parts == 1 ? "cutlass_GroupProblemShape_gemm" : "gemm";
          events[rank].call(host[rank] + clock, 4, id).kernel(start + clock, length_us, id, name);
        }
        ++id;
        host[rank] += 5;
        device[rank] = start + length_us;
        last_us = std::max({last_us, device[rank], host[rank] + 6});
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        const double clock = run.clocks_us[rank];
        const double start = std::max(device[rank], host[rank] + 6);
        device[rank] = last_us + transfer_us;
        if (!run.is_lost(rank, step, number)) {
          events[rank]
              .call(host[rank] + clock, 4, id)
              .kernel(start + clock, device[rank] - start, id, kernel, 7, words_of(collective));
        }
        ++id;
        host[rank] += 5;
      }
    }
    if (run.has_strays) {
      events[step]
          .call(host[step] + run.clocks_us[step], 4, kStrayId + step)
          .kernel(device[step] + run.clocks_us[step], 20, kStrayId + step, kernel, 7,
                  words_of(collective, "00"));
      host[step] += 5;
      device[step] += 20;
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const double clock = run.clocks_us[rank];
      events[rank].call(host[rank] + clock, device[rank] - host[rank] + 5, id++,
                        "cudaDeviceSynchronize");
      host[rank] = device[rank] + 5;
      if (!run.has_steps) continue;
      events[rank].range(began[rank] + clock, host[rank] - began[rank] - 1,
                         "ProfilerStep#" + std::to_string(step + 3));
    }
  }
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < kRanks; ++rank) {
    traces.push_back(events[rank].read(R"(, "distributedInfo": {"world_size": 4, "rank": )" +
                                       std::to_string(rank) + "}"));
  }
  return traces;
}

double found_ratio(const ImportedWall& wall) {
  const auto at = std::ranges::find(wall.evidence, "matched_ratio", &Evidence::name);
  return at == wall.evidence.end() ? 0 : at->value;
}

struct Loss {
  const char* name;
  IsLost is_lost;
  bool is_all_lost = false;
  bool is_most = false;  ///< so many are lost that their time counts
};
std::ostream& operator<<(std::ostream& out, const Loss& loss) { return out << loss.name; }

IsLost one_of(int lossy) {
  return [=](int rank, int step, int number) { return rank == lossy && step == 1 && number == 5; };
}

const Loss kLosses[] = {
    {"one record of rank 0", one_of(0)},
    {"one record of rank 1", one_of(1)},
    {"one record of rank 2", one_of(2)},
    {"one record of rank 3", one_of(3)},
    {"records of all ranks",
     [](int rank, int step, int number) { return (7 * step + number) % 11 == 2 * rank; }, false,
     true},
    {"a tenth of a step",
     [](int rank, int step, int number) { return rank == 1 && step == 0 && number < 2; }, true},
    {"half a step",
     [](int rank, int step, int number) { return rank == 1 && step == 0 && number < 6; }, true},
    {"the first two steps", [](int rank, int step, int) { return rank == 1 && step < 2; }, true},
    {"the last two steps", [](int rank, int step, int) { return rank == 1 && step > 1; }, true},
    {"the first two steps of rank 2", [](int rank, int step, int) { return rank == 2 && step < 2; },
     true},
};

struct Whole {
  Fault fault;
  const char* label;
  const char* sub_cause;
  std::optional<int64_t> rank;
};
std::ostream& operator<<(std::ostream& out, const Whole& whole) {
  return out << whole.label << " (" << whole.sub_cause << ")";
}

const Whole kWholes[] = {{Fault::slow_rank, "imbalance", "rank", 3},
                         {Fault::late_host, "host", "loader", 2},
                         {Fault::slow_transfer, "communication", "transfer", std::nullopt},
                         {Fault::skewed_experts, "imbalance", "experts", 3}};

}  // namespace

BOOST_DATA_TEST_CASE(a_rank_with_fewer_collectives_changes_no_wall,
                     data::make(kWholes) * data::make(kLosses), whole, loss) {
  const ImportedWall all = classify_imported(traces_of({.fault = whole.fault}));
  const ImportedWall wall = classify_imported(
      traces_of({.fault = whole.fault, .is_lost = loss.is_lost, .is_all_lost = loss.is_all_lost}));
  for (const ImportedWall* one : {&all, &wall}) {
    BOOST_TEST(name_of(one->label) == whole.label, one->summary);
    BOOST_TEST(one->sub_cause == whole.sub_cause, one->summary);
    BOOST_TEST((one->rank == whole.rank), one->summary);
  }
  const double apart = std::abs(wall.share_ratio - all.share_ratio);
  BOOST_TEST(apart < (loss.is_most ? 0.2 : 0.02), wall.summary);
  BOOST_TEST(found_ratio(wall) > 0.99);
  BOOST_TEST(wall.matching.residual_ns <= 1);
}

// A clock each, and nothing that says where steps begin.
BOOST_AUTO_TEST_CASE(ends_alone_tell_what_belongs_together) {
  for (const Loss& loss : kLosses) {
    const ImportedWall wall =
        classify_imported(traces_of({.fault = Fault::slow_rank,
                                     .is_lost = loss.is_lost,
                                     .is_all_lost = loss.is_all_lost,
                                     .has_steps = false,
                                     .clocks_us = {0, 123'456, 777, 31'415'926}}));
    BOOST_TEST(name_of(wall.label) == "imbalance", loss.name << ": " << wall.summary);
    BOOST_TEST((wall.rank == 3), loss.name << ": " << wall.summary);
    BOOST_TEST(found_ratio(wall) > 0.99, loss.name);
    BOOST_TEST_REQUIRE(wall.matching.clock_offsets_ns[3].has_value(), loss.name);
    const int64_t between_ns =
        *wall.matching.clock_offsets_ns[3] - wall.matching.clock_offsets_ns[0].value();
    BOOST_TEST(std::abs(between_ns + 31'415'926'000) <= 1, loss.name);
  }
}

// Layers that are all alike fit at any distance of the clocks.
BOOST_AUTO_TEST_CASE(where_several_distances_fit_there_is_no_verdict) {
  const Run run = {.fault = Fault::slow_rank,
                   .is_lost = one_of(3),
                   .has_steps = false,
                   .jitter = 0,
                   .clocks_us = {0, 0, 0, 31'415'926}};
  const ImportedWall wall = classify_imported(traces_of(run));
  BOOST_TEST(name_of(wall.label) == "unknown", wall.summary);
  BOOST_TEST(wall.sub_cause == "unmatched");
  BOOST_TEST(wall.summary.find("was not found on all ranks") != std::string::npos, wall.summary);
  const std::string& advice = wall.evidence.back().text;
  BOOST_TEST(advice.find("the same whole steps on all ranks") != std::string::npos, advice);
  // Steps that are marked, or one clock, tell which it is.
  Run marked = run;
  marked.has_steps = true;
  Run on_one_clock = run;
  on_one_clock.clocks_us = {};
  for (const Run& one : {marked, on_one_clock}) {
    const ImportedWall told = classify_imported(traces_of(one));
    BOOST_TEST(name_of(told.label) == "imbalance", told.summary);
    BOOST_TEST((told.rank == 3));
  }
}

namespace {

/// The step that a part of a match is of, by its place in the run; strays are of none.
int step_of(const std::vector<ImportedTrace>& traces, const CollectivePart& part) {
  constexpr int kIdsAStep = (2 * kLayers + 1) * kRanks;
  const auto id = static_cast<int>(traces[part.trace].ops[part.op].correlation);
  return id >= kStrayId ? -id : (id - 1) / kIdsAStep;
}

void check_steps(const std::vector<ImportedTrace>& traces, const CollectiveMatching& matching) {
  for (const MatchedCollective& one : matching.matched) {
    std::set<int> steps;
    for (const CollectivePart& part : one.parts) steps.insert(step_of(traces, part));
    BOOST_TEST(steps.size() == 1U);
  }
}

}  // namespace

// Ranks whose orders fit by chance, a step apart.
BOOST_AUTO_TEST_CASE(collectives_of_other_steps_are_not_the_same) {
  const std::vector<ImportedTrace> traces =
      traces_of({.fault = Fault::late_host,
                 .is_lost = [](int rank, int step, int) { return step == (rank == 1 ? 0 : 3); },
                 .is_all_lost = true});
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  BOOST_TEST(wall.matching.matched.size() == 3U * kLayers);
  for (const MatchedCollective& one : wall.matching.matched) {
    BOOST_TEST(one.parts.size() >= 3U);
  }
  check_steps(traces, wall.matching);
}

// One of another group on each rank, never in the same step, beside a group that lost a record.
BOOST_AUTO_TEST_CASE(single_collectives_of_other_steps_do_not_mislead) {
  for (const bool has_steps : {true, false}) {
    const std::vector<ImportedTrace> traces =
        traces_of({.fault = Fault::slow_rank,
                   .is_lost = one_of(1),
                   .has_steps = has_steps,
                   .has_strays = true,
                   .clocks_us = {0, 123'456, 777, 31'415'926}});
    const ImportedWall wall = classify_imported(traces);
    BOOST_TEST(name_of(wall.label) == "imbalance", wall.summary);
    BOOST_TEST((wall.rank == 3), wall.summary);
    BOOST_TEST(wall.matching.matched.size() == 4U * kLayers);
    check_steps(traces, wall.matching);
  }
}

namespace {

std::vector<SeriesEnd> ends_at(int count, int jitter_us, uint64_t seed, int period_us = 300) {
  tests::Random random(seed);
  std::vector<SeriesEnd> ends;
  int64_t at_ns = 0;
  for (int i = 0; i < count; ++i) {
    at_ns += 1000 * (period_us + (jitter_us > 0 ? random.below(jitter_us) : 0));
    ends.push_back({at_ns, kNoStep});
  }
  return ends;
}

std::vector<SeriesEnd> shifted(std::vector<SeriesEnd> ends, int64_t ns) {
  for (SeriesEnd& one : ends) one.end_ns += ns;
  return ends;
}

}  // namespace

BOOST_AUTO_TEST_CASE(series_are_aligned_with_gaps) {
  const std::vector<SeriesEnd> whole = ends_at(3000, 100, 1);
  std::vector<SeriesEnd> part = shifted(whole, 5'000'000'000);
  part.erase(part.begin() + 2000);
  part.erase(part.begin() + 700, part.begin() + 720);
  part.erase(part.begin(), part.begin() + 400);
  tests::Random random(3);
  for (SeriesEnd& one : part) one.end_ns += random.below(5000);
  const auto aligned = align_by_ends(whole, part, {});
  BOOST_TEST_REQUIRE(aligned.has_value());
  BOOST_TEST(aligned->pairs.size() == part.size());
  BOOST_TEST(std::abs(aligned->shift_ns - 5'000'002'500) < 1000);
  for (const auto& [a, b] : aligned->pairs) {
    BOOST_TEST(std::abs(part[b].end_ns - whole[a].end_ns - aligned->shift_ns) < 5000);
  }
  const auto back = align_by_ends(part, whole, {});
  BOOST_TEST_REQUIRE(back.has_value());
  BOOST_TEST(back->pairs.size() == part.size());
}

BOOST_AUTO_TEST_CASE(series_of_different_runs_are_not_aligned) {
  const std::vector<SeriesEnd> whole = ends_at(500, 100, 1);
  for (const int count : {20, 100, 499, 500}) {
    BOOST_TEST(!align_by_ends(whole, ends_at(count, 100, 2), {}).has_value(), count);
    BOOST_TEST(!align_by_ends(whole, ends_at(count, 0, 2, 360), {}).has_value(), count);
    BOOST_TEST(!align_by_ends(whole, ends_at(count, 100, 2), {0, 0}).has_value(), count);
  }
  BOOST_TEST(!align_by_ends(whole, {}, {}).has_value());
  // With all alike no distance is better than others, unless a clock is shared.
  const std::vector<SeriesEnd> alike = ends_at(100, 0, 1);
  const std::vector<SeriesEnd> fewer(alike.begin() + 30, alike.end());
  BOOST_TEST(!align_by_ends(alike, fewer, {}).has_value());
  const auto shared = align_by_ends(alike, fewer, {std::nullopt, 0});
  BOOST_TEST_REQUIRE(shared.has_value());
  BOOST_TEST(shared->shift_ns == 0);
  BOOST_TEST(shared->pairs.size() == 70U);
  // Times at the ends of what can be written.
  const std::vector<SeriesEnd> far = {{-(int64_t{1} << 61), kNoStep}, {int64_t{1} << 61, kNoStep}};
  BOOST_TEST(!align_by_ends(far, alike, {}).has_value());
  BOOST_TEST(!align_by_ends(alike, far, {int64_t{1} << 62, {}}).has_value());
}

// No rank is late for long in sum, and what the others wait for is a rank that computes.
BOOST_AUTO_TEST_CASE(stalls_of_another_rank_in_each_step_are_the_hosts) {
  Run run;
  run.fault = Fault::moving_stall;
  run.num_steps = 8;
  const ImportedWall wall = classify_imported(traces_of(run));
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  BOOST_TEST(wall.sub_cause == "loader");
  BOOST_TEST(wall.share_ratio > 0.25, wall.summary);
  BOOST_TEST(!wall.rank.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
