// Parts of traces without steps: how much is in them, and that no communication lies across two.
#include "profiler/analysis/trace_parts.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(trace_parts)

namespace {

constexpr int64_t kEachNs = 100'000;
/// Every so many kernels there is an all-reduce.
constexpr int kKernelsEach = 50;

/// One rank's kernels, none of whose names recur in equal distances. The host is `ahead_ns` ahead
/// of the device and launches a kernel of 60 us every 100 us.
class Rank {
 public:
  explicit Rank(int rank, int64_t ahead_ns = 10'000) : ahead_ns_(ahead_ns) {
    trace_.facts.file = "rank" + std::to_string(rank);
    trace_.facts.format = "kineto";
    trace_.facts.rank = rank;
    trace_.facts.world_size = 2;
    trace_.names.intern("");
    stream_ = trace_.stream_row({0, 7});
    thread_ = trace_.thread_row({1, 1});
    call_ = trace_.names.intern("cudaLaunchKernel");
    CommCall comm;
    comm.group = trace_.names.intern("0");
    comm.collective = trace_.names.intern("allreduce");
    comm.group_size = 2;
    trace_.comms.push_back(comm);
  }

  Rank& kernel(int64_t start_ns, const std::string& name, bool is_comm = false) {
    ImportedOp op;
    op.start_ns = start_ns;
    op.end_ns = start_ns + 60'000;
    op.name = trace_.names.intern(name);
    op.stream = stream_;
    op.correlation = ++last_id_;
    if (is_comm) {
      CommCall comm = trace_.comms[0];
      comm.sequence = num_comms_++;
      op.comm = static_cast<uint32_t>(trace_.comms.size());
      trace_.comms.push_back(comm);
    }
    trace_.ops.add(op);
    HostCall call;
    call.start_ns = start_ns - ahead_ns_;
    call.end_ns = call.start_ns + 5'000;
    call.name = call_;
    call.kind = CallKind::launch;
    call.thread = thread_;
    call.correlation = last_id_;
    if (has_calls_) trace_.calls.add(call);
    return *this;
  }

  Rank& kernels(int count, int first = 0) {
    for (int i = first; i < count; ++i) {
      const bool is_comm = i % kKernelsEach == kKernelsEach - 1;
      // Squares of a number have no period that is short.
      const std::string name = is_comm ? "ncclDevKernel_AllReduce(x)"
                                       : "k" + std::to_string(int64_t{i} * i % 100'003 % 7);
      kernel(1'000'000 + kEachNs * i, name, is_comm);
    }
    return *this;
  }

  Rank& without_calls() {
    has_calls_ = false;
    return *this;
  }

  ImportedTrace finish() {
    trace_.finish();
    return std::move(trace_);
  }

 private:
  ImportedTrace trace_;
  int64_t ahead_ns_;
  uint16_t stream_ = 0;
  uint16_t thread_ = 0;
  uint32_t call_ = 0;
  uint32_t last_id_ = 0;
  int64_t num_comms_ = 0;
  bool has_calls_ = true;
};

/// The part that an operation was launched in; none where it is in no part.
std::optional<int64_t> part_of(const ImportedTrace& trace, const std::vector<ImportedStep>& parts,
                               const ImportedOp& op) {
  const int64_t launched_ns = trace.launch_of(op)->start_ns;
  std::optional<int64_t> found;
  for (const ImportedStep& part : parts) {
    if (launched_ns < part.start_ns || launched_ns >= part.end_ns) continue;
    BOOST_TEST(!found.has_value());
    found = part.number;
  }
  return found;
}

std::vector<size_t> sizes_of(const ImportedTrace& trace, const std::vector<ImportedStep>& parts) {
  std::vector<size_t> sizes(parts.size());
  for (const ImportedOp& op : trace.ops) {
    const std::optional<int64_t> part = part_of(trace, parts, op);
    BOOST_REQUIRE(part.has_value());
    ++sizes.at(static_cast<size_t>(*part));
  }
  return sizes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_work_is_in_parts_of_equal_size) {
  const ImportedTrace trace = Rank(0).kernels(60'000).finish();
  const auto sizes = [&](size_t part) {
    return sizes_of(trace, parts_of_ranks(std::span(&trace, 1), {}, {0, part}).at(0));
  };
  const auto per_element = boost::test_tools::per_element();
  BOOST_TEST(sizes(25'000) == std::vector<size_t>(3, 20'000), per_element);
  BOOST_TEST(sizes(30'000) == std::vector<size_t>(2, 30'000), per_element);
  // However little a part may have, it has several steps of most programs.
  BOOST_TEST(sizes(7) == std::vector<size_t>(12, kFewestPartOps), per_element);
  BOOST_TEST(parts_of_ranks(std::span(&trace, 1), {}, {60'000, 20'000}).at(0).empty());
  BOOST_TEST(parts_of_ranks({}, {}, {0, 7}).empty());
}

BOOST_AUTO_TEST_CASE(parts_of_many_ranks_are_bounded_together) {
  std::vector<ImportedTrace> traces;
  const int each = static_cast<int>(kFewestPartOps);
  const size_t num_ranks = kMostPartOps / kFewestPartOps + 2;
  for (size_t rank = 0; rank < num_ranks; ++rank) traces.push_back(Rank(0).kernels(each).finish());
  const auto parts = parts_of_ranks(traces, {}, {0, 10'000});
  const std::vector<size_t> halves(2, kFewestPartOps / 2);
  BOOST_TEST(sizes_of(traces.back(), parts.back()) == halves, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(without_launches_there_are_no_parts) {
  std::vector<ImportedTrace> traces;
  traces.push_back(Rank(0).kernels(40'000).finish());
  traces.push_back(Rank(1).without_calls().kernels(40'000).finish());
  for (const auto& parts : parts_of_ranks(traces, {}, {0, 10'000})) BOOST_TEST(parts.empty());
  // A trace without device work does not matter.
  traces[1] = Rank(1).finish();
  const auto parts = parts_of_ranks(traces, {}, {0, 10'000});
  BOOST_TEST(sizes_of(traces[0], parts[0]).size() == 4u);
}

BOOST_AUTO_TEST_CASE(matched_communication_is_in_one_part) {
  // The second rank's host is two seconds ahead of its device.
  std::vector<ImportedTrace> traces;
  traces.push_back(Rank(0).kernels(60'000).finish());
  traces.push_back(Rank(1, 2'000'000'000).kernels(60'000).finish());
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_REQUIRE(matching.matched.size() == 60'000u / kKernelsEach);
  const auto parts = parts_of_ranks(traces, matching, {0, 40'000});
  BOOST_REQUIRE(parts[0].size() == 3u);
  for (const MatchedCollective& one : matching.matched) {
    const auto part = [&](size_t at) {
      const ImportedTrace& trace = traces[one.parts[at].trace];
      return part_of(trace, parts[one.parts[at].trace], trace.ops[one.parts[at].op]);
    };
    BOOST_TEST((part(0).has_value() && part(0) == part(1)));
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    for (const size_t size : sizes_of(traces[rank], parts[rank])) {
      BOOST_TEST(std::abs(static_cast<double>(size) - 20'000) <= kKernelsEach);
    }
  }
  // Without anything in common each rank is cut by its own launches.
  BOOST_TEST(sizes_of(traces[1], parts_of_ranks(traces, {}, {0, 40'000})[1]) ==
                 std::vector<size_t>(3, 20'000),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_place_that_cannot_be_cut_is_left_whole) {
  // What was launched first on one rank is matched with what was launched last on the other.
  std::vector<ImportedTrace> traces;
  traces.push_back(Rank(0).kernels(40'000).finish());
  traces.push_back(Rank(1).kernels(40'000).finish());
  CollectiveMatching matching;
  matching.matched.push_back({{{0, 0}, {1, 39'999}}, 0, 0});
  for (const auto& parts : parts_of_ranks(traces, matching, {0, 20'000})) BOOST_TEST(parts.empty());
  const ImportedSteps whole(traces, matching, RecordNames::numbers, {0, 20'000});
  BOOST_TEST(!whole.are_parts());
  BOOST_TEST(whole.num_ops(0) == 80'000u);
  // What lies across one place of three leaves the others.
  matching.matched[0] = {{{0, 9'000}, {1, 11'000}}, 0, 0};
  const auto parts = parts_of_ranks(traces, matching, {0, 20'000});
  BOOST_TEST(sizes_of(traces[0], parts[0]) == std::vector<size_t>(4, 10'000),
             boost::test_tools::per_element());
  BOOST_TEST(sizes_of(traces[1], parts[1]) == (std::vector<size_t>{11'001, 8'999, 10'000, 10'000}),
             boost::test_tools::per_element());
  const ImportedSteps steps(traces, matching, RecordNames::numbers, {0, 20'000});
  BOOST_TEST(steps.are_parts());
  BOOST_TEST(steps.num_steps() == 4u);
}

// What the first rank waited for before the second one's recording began, nobody knows.
BOOST_AUTO_TEST_CASE(what_one_rank_did_alone_is_left_out) {
  std::vector<ImportedTrace> traces;
  traces.push_back(Rank(0, 3'000'000).kernels(20'000).finish());
  traces.push_back(Rank(1).kernels(12'000, 8'000).finish());
  CollectiveMatching matching;
  matching.clock_offsets_ns = {0, 0};
  for (uint32_t op = 8'000 + kKernelsEach - 1; op < 12'000; op += kKernelsEach) {
    matching.matched.push_back({{{0, op}, {1, op - 8'000}}, 0, 0});
  }
  PartSizes sizes;
  for (const auto& parts : parts_of_ranks(traces, matching, sizes)) BOOST_TEST(parts.empty());
  sizes.is_together_only = true;
  const auto parts = parts_of_ranks(traces, matching, sizes);
  BOOST_REQUIRE(parts[0].size() == 1u);
  for (const ImportedOp& op : traces[0].ops) {
    const int64_t number = (op.start_ns - 1'000'000) / kEachNs;
    const bool is_together = number >= 8'000 && number < 12'000;
    BOOST_TEST(part_of(traces[0], parts[0], op).has_value() == is_together, number);
  }
  BOOST_TEST(sizes_of(traces[1], parts[1])[0] == 4'000u);
  // Cut, too.
  sizes.most_whole = 0;
  sizes.part = 12'000;
  const auto halves = parts_of_ranks(traces, matching, sizes);
  BOOST_TEST(halves[1].size() == 2u);
  BOOST_TEST(halves[1].back().end_ns == parts[1].back().end_ns);
  // Where clocks are not known, and where they were recorded together, all of it stays.
  matching.clock_offsets_ns = {0, std::nullopt};
  for (const auto& all : parts_of_ranks(traces, matching, PartSizes{.is_together_only = true})) {
    BOOST_TEST(all.empty());
  }
  traces[1] = Rank(1).kernels(20'000).finish();
  matching.clock_offsets_ns = {0, 0};
  for (const auto& all : parts_of_ranks(traces, matching, PartSizes{.is_together_only = true})) {
    BOOST_TEST(all.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_long_trace_without_steps_is_judged_by_parts) {
  const ImportedTrace trace = Rank(0).kernels(250'000).finish();
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(wall.num_steps == 8);
  const auto is_told = [](const Evidence& one) { return one.name == "replayed_parts"; };
  BOOST_TEST(std::ranges::any_of(wall.evidence, is_told));
  // Of 100 us the device waits 40 for the next launch, 10 of them for the device's own latency.
  BOOST_TEST(name_of(wall.label) == "host");
  BOOST_TEST(std::abs(wall.share_ratio - 0.4) < 0.11);
  BOOST_TEST(wall.high_ratio - wall.low_ratio < 0.01);
  // Short ones are one step, as they were recorded.
  const ImportedTrace some = Rank(0).kernels(100'000).finish();
  BOOST_TEST(classify_imported(std::span(&some, 1)).num_steps == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
