// Steps by hand with one cause each: what may be said of work whose size no record states, of
// ranks that are given different work, and of links between two ranks.
#include "profiler/analysis/step_causes.h"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/analysis/alike_work.h"
#include "profiler/analysis/message_links.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(step_cause_tests)

namespace {

constexpr int64_t kUs = 1000;

/// Launched long before, behind what was launched before.
TraceRecord& add(StepTrace& trace, const char* name, int stream, int64_t start_ns, int64_t end_ns) {
  TraceRecord record;
  record.id = static_cast<int64_t>(trace.records.size());
  record.rank = trace.rank;
  record.stream = stream;
  record.name = name;
  record.launch_start_ns = trace.records.empty() ? 0 : trace.records.back().launch_end_ns;
  record.launch_end_ns = record.launch_start_ns + 10;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  trace.records.push_back(record);
  trace.end_ns = std::max(trace.end_ns, end_ns);
  return trace.records.back();
}

/// On stream 0, behind what is there.
TraceRecord& add_next(StepTrace& trace, const char* name, int64_t duration_ns) {
  const int64_t start_ns = trace.records.empty() ? kUs : trace.records.back().end_ns;
  return add(trace, name, 0, start_ns, start_ns + duration_ns);
}

std::vector<StepTrace> ranks(size_t count) {
  std::vector<StepTrace> traces(count);
  for (size_t i = 0; i < count; ++i) traces[i].rank = static_cast<int32_t>(i);
  return traces;
}

/// Durations of the rank's operations of a name, in us, without a cause.
std::vector<int64_t> without(SubCause cause, const std::vector<StepTrace>& traces, uint32_t rank,
                             const char* name) {
  const ReplayedRun run(traces, {});
  const StepCauses causes(run, {});
  std::vector<ReplayOp> ops = run.ops();
  causes.drop(cause, ops);
  std::vector<int64_t> durations;
  for (const ReplayOp& op : ops) {
    if (op.trace != rank || !(run.record_of(op).name == name)) continue;
    durations.push_back((op.duration_ns + kUs / 2) / kUs);
  }
  return durations;
}

using Durations = std::vector<int64_t>;

/// Four products of 300 us, each followed by an addition, then four of other lengths, beside the
/// last three of which a collective runs.
std::vector<StepTrace> overlapped(int64_t alone_us, int64_t beside_us, int64_t flops = 0) {
  std::vector<StepTrace> traces = ranks(1);
  StepTrace& trace = traces[0];
  int64_t collective_ns = 0;
  for (int i = 0; i < 8; ++i) {
    const int64_t us = i < 4 ? 300 : i == 4 ? alone_us : beside_us;
    if (i == 5) collective_ns = trace.records.back().end_ns;
    add_next(trace, "gemm", us * kUs).flops = i < 4 ? flops : 2 * flops;
    add_next(trace, "add", 40 * kUs);
  }
  const int64_t end_ns = trace.records.back().end_ns;
  TraceRecord& collective = add(trace, "reduce", 1, collective_ns, end_ns);
  collective.kind = RecordKind::collective;
  collective.group = "dp_cp";
  collective.transfer_ns = end_ns - collective_ns;
  return traces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(work_of_two_sizes_under_one_name_is_no_contention) {
  const auto gemms = [](const std::vector<StepTrace>& traces) {
    return without(SubCause::contention, traces, 0, "gemm");
  };
  // As long as the one of its size that ran alone.
  BOOST_TEST(gemms(overlapped(600, 600)) == (Durations{300, 300, 300, 300, 600, 600, 600, 600}),
             boost::test_tools::per_element());
  BOOST_TEST(gemms(overlapped(600, 780)) == (Durations{300, 300, 300, 300, 600, 600, 600, 600}),
             boost::test_tools::per_element());
  // All of one size.
  BOOST_TEST(gemms(overlapped(300, 390)) == (Durations{300, 300, 300, 300, 300, 300, 300, 300}),
             boost::test_tools::per_element());
  // Twice as long as anything that ran alone: collectives do not explain that.
  BOOST_TEST(gemms(overlapped(300, 600)) == (Durations{300, 300, 300, 300, 300, 600, 600, 600}),
             boost::test_tools::per_element());
  // Where records state the size, they do.
  BOOST_TEST(gemms(overlapped(600, 1200, 1'000'000)) ==
                 (Durations{300, 300, 300, 300, 600, 600, 600, 600}),
             boost::test_tools::per_element());
}

// Ranks are looked at one after the other: none is slowed by what runs on another.
BOOST_AUTO_TEST_CASE(contention_is_of_the_own_rank_alone) {
  std::vector<StepTrace> traces = ranks(3);
  traces[0] = overlapped(600, 780)[0];
  traces[1] = traces[0];
  traces[1].records.pop_back();  // its collective
  traces[2] = traces[0];
  for (size_t i = 0; i < traces.size(); ++i) {
    traces[i].rank = static_cast<int32_t>(i);
    for (TraceRecord& record : traces[i].records) record.rank = traces[i].rank;
  }
  const Durations recorded = {300, 300, 300, 300, 600, 780, 780, 780};
  const Durations alone = {300, 300, 300, 300, 600, 600, 600, 600};
  const auto gemms = [&](uint32_t rank) {
    return without(SubCause::contention, traces, rank, "gemm");
  };
  BOOST_TEST(gemms(0) == alone, boost::test_tools::per_element());
  BOOST_TEST(gemms(1) == recorded, boost::test_tools::per_element());
  BOOST_TEST(gemms(2) == alone, boost::test_tools::per_element());
}

// Sums over classes would else depend on which stream's kernels end first.
BOOST_AUTO_TEST_CASE(classes_are_numbered_by_their_first_operation) {
  std::vector<StepTrace> traces = ranks(1);
  add(traces[0], "last_on_its_stream", 3, kUs, 2 * kUs);
  add(traces[0], "first", 1, kUs, 2 * kUs);
  add(traces[0], "second", 1, 2 * kUs, 3 * kUs);
  add(traces[0], "first", 2, kUs, 2 * kUs);
  add(traces[0], "second", 2, 2 * kUs, 3 * kUs);
  add(traces[0], "first", 2, 3 * kUs, 4 * kUs);
  const ReplayedRun run(traces, {});
  const AlikeWork alike(run);
  BOOST_TEST(alike.num_classes() == 5u);
  std::vector<uint32_t> classes;
  for (size_t i = 0; i < run.ops().size(); ++i) classes.push_back(alike.class_of(i));
  // Ahead of and behind the second work of stream 2 are others than on stream 1.
  BOOST_TEST(classes == (std::vector<uint32_t>{0, 1, 2, 1, 3, 4}),
             boost::test_tools::per_element());
}

// What those lose that are covered tells what one loses that is covered in part.
BOOST_AUTO_TEST_CASE(work_of_unknown_size_that_is_covered_in_part_is_slowed_in_part) {
  std::vector<StepTrace> traces = overlapped(330, 390);
  TraceRecord& collective = traces[0].records.back();
  // Of the fifth product 130 of 330 us, and the addition behind it.
  collective.start_ns -= 170 * kUs;
  collective.transfer_ns += 170 * kUs;
  BOOST_TEST(without(SubCause::contention, traces, 0, "gemm") == Durations(8, 300),
             boost::test_tools::per_element());
}

// A collective that takes half of the device: work is slowed only as long as it is covered.
BOOST_AUTO_TEST_CASE(contention_is_of_the_time_beside_a_collective) {
  std::vector<StepTrace> traces = ranks(1);
  StepTrace& trace = traces[0];
  // Of 400 us alone; one is covered for 200 of its 500 us, one for all of its 800, one for a
  // little.
  for (const int64_t us : {400, 500, 800, 404, 400}) add_next(trace, "gemm", us * kUs).flops = 1000;
  const int64_t begin_ns = kUs + 700 * kUs;
  TraceRecord& collective = add(trace, "reduce", 1, begin_ns, begin_ns + 1008 * kUs);
  collective.kind = RecordKind::collective;
  collective.group = "dp_cp";
  collective.transfer_ns = 1008 * kUs;
  // The last but one counts as alone, with a mean of 401.3 us.
  BOOST_TEST(
      without(SubCause::contention, traces, 0, "gemm") == (Durations{400, 401, 402, 404, 400}),
      boost::test_tools::per_element());
  // Hardly slowed: not at all.
  trace.records[1].end_ns -= 90 * kUs;
  trace.records[2].start_ns -= 90 * kUs;
  trace.records[2].end_ns = trace.records[2].start_ns + 410 * kUs;
  BOOST_TEST(
      without(SubCause::contention, traces, 0, "gemm") == (Durations{400, 410, 410, 404, 400}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(more_work_of_one_name_is_no_slow_rank) {
  // A head behind the layers of the second rank, and one among its products.
  for (const bool is_among : {false, true}) {
    std::vector<StepTrace> traces = ranks(2);
    for (StepTrace& trace : traces) {
      for (int i = 0; i < 8; ++i) {
        add_next(trace, "gemm", 225 * kUs);
        if (!is_among) add_next(trace, "add", 25 * kUs);
        if (trace.rank == 1 && i == (is_among ? 4 : 7)) add_next(trace, "gemm", 1000 * kUs);
      }
    }
    Durations recorded(9, 225);
    recorded[is_among ? 5 : 8] = 1000;
    BOOST_TEST(without(SubCause::rank, traces, 1, "gemm") == recorded,
               boost::test_tools::per_element());
    BOOST_TEST(without(SubCause::rank, traces, 0, "gemm") == Durations(8, 225),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_slow_rank_is_found_beside_ranks_with_less_work) {
  std::vector<StepTrace> traces = ranks(2);
  for (int i = 0; i < 12; ++i) add_next(traces[0], "gemm", 200 * kUs);
  for (int i = 0; i < 16; ++i) add_next(traces[1], "gemm", 320 * kUs);
  BOOST_TEST(without(SubCause::rank, traces, 1, "gemm") == Durations(16, 200),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(ranks_are_compared_by_what_is_certain) {
  const auto times = [](std::vector<int64_t> all) {
    WorkTimes made;
    for (const int64_t ns : all) made.add(ns);
    made.sort();
    return made;
  };
  // Of 100, 100 and 1,000 the two shortest count, beside 100 and 100.
  const std::map<uint32_t, WorkTimes> uneven = {{0, times({100, 100})},
                                                {1, times({1000, 100, 100})}};
  BOOST_TEST(ratios_to_fastest(uneven, false).at(0) == 1);
  BOOST_TEST(ratios_to_fastest(uneven, false).at(1) == 1);
  BOOST_TEST(ratios_to_fastest(uneven, true).at(1) == 0.25);
  // The rank with less is not slow beside one with small work: of that the two longest count.
  const std::map<uint32_t, WorkTimes> small = {{0, times({100, 100})}, {1, times({10, 100, 100})}};
  BOOST_TEST(ratios_to_fastest(small, false).at(0) == 1);
  // As many on both: the means.
  const std::map<uint32_t, WorkTimes> even = {{0, times({100, 300})}, {1, times({300, 500})}};
  BOOST_TEST(ratios_to_fastest(even, false).at(1) == 0.5);
  BOOST_TEST(ratios_to_mean(even).at(1) == 0.75);
  BOOST_TEST(ratios_to_fastest({{0, times({100})}}, false).empty());
}

namespace {

/// Four ranks with layers of attention, experts and a collective: the third one's experts take
/// 1,500 us, or as long as others', and all its work `factor` times as long.
std::vector<StepTrace> layers_of_experts(bool is_uneven, double factor, bool is_known) {
  constexpr std::array<double, 4> kLoads = {1, 0.7, 2.5, 0.5};
  std::vector<StepTrace> traces = ranks(4);
  for (int64_t layer = 0; layer < 6; ++layer) {
    int64_t end_ns = 0;
    for (StepTrace& trace : traces) {
      const double own = trace.rank == 2 ? factor : 1;
      const double load = is_uneven ? kLoads[static_cast<size_t>(trace.rank)] : 1;
      add_next(trace, "attention", static_cast<int64_t>(300 * own) * kUs);
      add_next(trace, "products", static_cast<int64_t>(600 * load * own) * kUs).is_of_experts =
          is_known;
      end_ns = std::max(end_ns, trace.records.back().end_ns + 50 * kUs);
    }
    for (StepTrace& trace : traces) {
      TraceRecord& record = add_next(trace, "combine", 0);
      record.end_ns = trace.end_ns = end_ns;
      record.kind = RecordKind::collective;
      record.group = "experts";
      record.sequence = layer;
      record.transfer_ns = 50 * kUs;
    }
  }
  for (StepTrace& trace : traces) trace.start_ns = 0;
  return traces;
}

StepVerdict verdict_of(const std::vector<StepTrace>& traces) {
  return judge_step(ReplayedRun(traces, {}), {});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_with_more_rows_of_experts_is_not_a_slow_one) {
  struct Row {
    bool is_uneven;
    double factor;
    bool is_known;
    SubCause cause;
  };
  for (const Row& row : {Row{true, 1, true, SubCause::experts}, Row{true, 1, false, SubCause::rank},
                         Row{false, 2, true, SubCause::rank}}) {
    const StepVerdict verdict =
        verdict_of(layers_of_experts(row.is_uneven, row.factor, row.is_known));
    BOOST_TEST((verdict.label == Wall::imbalance), verdict.summary);
    BOOST_TEST((verdict.sub_cause == row.cause), verdict.summary);
    BOOST_TEST((verdict.rank == 2), verdict.summary);
    if (row.cause != SubCause::experts) continue;
    // With the mean, 705 us, a layer takes 1,055 us instead of 1,850.
    BOOST_TEST(std::abs(verdict.ceiling_ratio() - 795.0 / 1850) < 0.005);
  }
}

namespace {

using Way = std::pair<uint32_t, uint32_t>;

/// Three rounds of messages there and back through four ranks, 100 us each, or 2,500 on slow ways.
std::vector<StepTrace> rounds_of_messages(const std::vector<Way>& slow, size_t num_ranks = 4) {
  std::vector<Way> ways;
  for (uint32_t i = 0; i + 1 < num_ranks; ++i) ways.emplace_back(i, i + 1);
  for (auto i = static_cast<uint32_t>(num_ranks - 1); i > 0; --i) ways.emplace_back(i, i - 1);
  std::vector<StepTrace> traces = ranks(num_ranks);
  int64_t number = 0;
  for (int round = 0; round < 3; ++round) {
    for (const Way& way : ways) {
      const bool is_slow = std::ranges::find(slow, way) != slow.end();
      const int64_t transfer_ns = (is_slow ? 2500 : 100) * kUs;
      StepTrace& from = traces[way.first];
      StepTrace& to = traces[way.second];
      const auto free_ns = [](const StepTrace& trace) {
        return trace.records.empty() ? kUs : trace.records.back().end_ns;
      };
      const int64_t end_ns = std::max(free_ns(from), free_ns(to)) + transfer_ns;
      for (StepTrace* trace : {&from, &to}) {
        TraceRecord& record =
            add_next(*trace, trace == &from ? "send" : "recv", end_ns - free_ns(*trace));
        record.kind = RecordKind::p2p;
        record.group = "pipeline";
        record.sequence = number;
        record.bytes = 100;
        record.transfer_ns = transfer_ns;
      }
      ++number;
    }
  }
  return traces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_link_is_found_by_its_messages) {
  struct Row {
    std::vector<Way> slow;
    std::vector<uint32_t> rank;  ///< one or none
    size_t num_slow;
  };
  const std::vector<Row> rows = {
      {{}, {}, 0},
      {{{1, 2}}, {1}, 1},
      {{{2, 1}}, {2}, 1},
      {{{1, 2}, {2, 1}}, {1}, 2},
      {{{2, 3}, {3, 2}}, {3}, 2},                  // all links of the last rank
      {{{0, 1}, {1, 0}, {1, 2}, {2, 1}}, {1}, 4},  // both links of a rank
      {{{0, 1}, {2, 3}}, {}, 0},                   // they have no rank in common
  };
  for (const Row& row : rows) {
    const std::vector<StepTrace> traces = rounds_of_messages(row.slow);
    const ReplayedRun run(traces, {});
    const StepCauses causes(run, {});
    const std::optional<uint32_t> found = causes.transfers().with_slow_link();
    BOOST_TEST_CONTEXT(row.slow.size() << " slow ways, found " << (found ? *found : 99)) {
      BOOST_TEST(found.has_value() == !row.rank.empty());
      if (found && !row.rank.empty()) BOOST_TEST(*found == row.rank[0]);
      BOOST_TEST(MessageLinks(run).slow_links().size() == row.num_slow);
      BOOST_TEST(causes.has(SubCause::one_link) == (row.num_slow > 0));
    }
  }
  // With one link only there is none to compare it with.
  const std::vector<StepTrace> two = rounds_of_messages({{0, 1}}, 2);
  const ReplayedRun run(two, {});
  BOOST_TEST(!StepCauses(run, {}).has(SubCause::one_link));
}

BOOST_AUTO_TEST_CASE(a_slow_link_between_stages_is_one_link_of_its_sender) {
  const StepVerdict verdict = verdict_of(rounds_of_messages({{1, 2}}));
  BOOST_TEST((verdict.label == Wall::communication), verdict.summary);
  BOOST_TEST((verdict.sub_cause == SubCause::one_link), verdict.summary);
  BOOST_TEST((verdict.rank == 1), verdict.summary);
  BOOST_TEST_REQUIRE(verdict.link.has_value());
  BOOST_TEST(verdict.link->from == 1);
  BOOST_TEST(verdict.link->to == 2);
  BOOST_TEST(verdict.link->ratio() == 25);
  BOOST_TEST(verdict.link->text(5, 6) ==
             "messages from rank 5 to rank 6 take 2.50 ms, those between two other ranks 100 us");
  // 2,400 of 3,000 us a round.
  const double one_link = verdict.sub_ceilings[static_cast<size_t>(SubCause::one_link)];
  BOOST_TEST(std::abs(one_link - 0.8) < 0.005);
}

namespace {

/// A collective of a group.
struct Sum {
  const char* group;
  std::vector<int32_t> ranks;
  int64_t us;
};

/// Its ranks wait for the last one in it; each group of ranks is a communicator.
StepVerdict verdict_of_sums(const std::vector<Sum>& sums, size_t num_ranks = 4) {
  std::vector<StepTrace> traces = ranks(num_ranks);
  GroupInstances communicators;
  std::map<int64_t, int64_t> sequences;
  int64_t end_ns = 0;
  for (const Sum& sum : sums) {
    int64_t now_ns = kUs;
    for (const int32_t rank : sum.ranks) {
      now_ns = std::max(now_ns, traces[static_cast<size_t>(rank)].end_ns);
    }
    const int64_t communicator = 100 * sum.group[0] + sum.ranks.front();
    for (const int32_t rank : sum.ranks) {
      StepTrace& trace = traces[static_cast<size_t>(rank)];
      const int64_t free_ns = std::max(trace.end_ns, kUs);
      TraceRecord& record = add(trace, "sum", 0, free_ns, now_ns + sum.us * kUs);
      record.kind = RecordKind::collective;
      record.group = sum.group;
      record.bytes = 1000;
      record.sequence = sequences[communicator];
      record.transfer_ns = sum.us * kUs;
      communicators[{rank, sum.group}] = communicator;
    }
    ++sequences[communicator];
    end_ns = std::max(end_ns, now_ns + sum.us * kUs);
  }
  for (StepTrace& trace : traces) {
    trace.start_ns = 0;
    trace.end_ns = end_ns;
  }
  return judge_step(ReplayedRun(traces, communicators), {});
}

}  // namespace

// Nothing compares with sums over all ranks. They are as slow as a rank's other communicators are
// if all of these are slow.
BOOST_AUTO_TEST_CASE(sums_over_all_ranks_are_slow_by_the_link_of_one) {
  const auto sums = [](int64_t slow_us, int64_t expert_us, int64_t all_us) {
    return std::vector<Sum>{{"ep", {0, 1}, slow_us},
                            {"ep", {2, 3}, 100},
                            {"dp", {0, 2}, 100},
                            {"dp", {1, 3}, expert_us},
                            {"world", {0, 1, 2, 3}, all_us}};
  };
  const auto one_link = [](const StepVerdict& verdict) {
    return verdict.sub_ceilings[static_cast<size_t>(SubCause::one_link)];
  };
  const StepVerdict slow = verdict_of_sums(sums(400, 400, 2000));
  BOOST_TEST((slow.label == Wall::communication), slow.summary);
  BOOST_TEST((slow.sub_cause == SubCause::one_link), slow.summary);
  BOOST_TEST((slow.rank == 1), slow.summary);
  // Of 2,800 us: 600 of its own communicators and three quarters of 2,000.
  BOOST_TEST(std::abs(one_link(slow) - 2100.0 / 2800) < 0.01, one_link(slow));
  // No rank has slow ones alone, or these are too little to tell.
  const StepVerdict pair = verdict_of_sums(sums(400, 100, 2000));
  BOOST_TEST((pair.sub_cause == SubCause::transfer), pair.summary);
  const StepVerdict little = verdict_of_sums(sums(400, 400, 9000));
  BOOST_TEST((little.sub_cause == SubCause::transfer), little.summary);
  BOOST_TEST(one_link(little) < 0.1);
  // A group of other ranks than the slow ones have, such as those of a node.
  std::vector<Sum> within = sums(400, 400, 100);
  within.push_back({"tp", {1, 2}, 2000});
  BOOST_TEST((verdict_of_sums(within).sub_cause == SubCause::transfer));
}

// A stall of the host: a wait whose record is lost ends as work of the device does.
BOOST_AUTO_TEST_CASE(a_stall_that_ends_with_work_of_the_device_may_be_a_wait) {
  const auto gap_without = [](int64_t busy_us, int64_t stall_us) {
    std::vector<StepTrace> traces = ranks(1);
    for (int i = 0; i < 30; ++i) add_next(traces[0], "add", kUs);
    add_next(traces[0], "gemm", busy_us * kUs);
    const int64_t end_ns = traces[0].records.back().launch_end_ns + stall_us * kUs;
    TraceRecord& next = add(traces[0], "gemm", 0, end_ns + kUs, end_ns + 2 * kUs);
    next.launch_start_ns = end_ns;
    next.launch_end_ns = end_ns + 10;
    const ReplayedRun run(traces, {});
    const StepCauses causes(run, {});
    ReplayOp op = run.ops().back();
    causes.drop_doubtful_stall(run.ops().size() - 1, op);
    return std::pair(causes.has_doubtful_stalls(), op.gap_ns / kUs);
  };
  // The device is done after 31 us and the product.
  BOOST_TEST((gap_without(1000, 1032) == std::pair(true, int64_t{0})));
  BOOST_TEST((gap_without(1000, 1100) == std::pair(false, int64_t{1100})));
  BOOST_TEST((gap_without(3000, 1032) == std::pair(false, int64_t{1032})));
  BOOST_TEST((gap_without(50, 82) == std::pair(false, int64_t{82})));  // no stall
}

BOOST_AUTO_TEST_CASE(the_slowest_stage_has_a_rank) {
  const auto slowest = [](std::array<int64_t, 4> work_us) {
    std::vector<StepTrace> traces = ranks(4);
    GroupInstances pipelines;
    for (StepTrace& trace : traces) {
      add_next(trace, "gemm", work_us[static_cast<size_t>(trace.rank)] * kUs);
      TraceRecord& message = add_next(trace, "send", kUs);
      message.kind = RecordKind::p2p;
      message.group = "pp";
      message.micro_batch = 0;
      pipelines[{trace.rank, "pp"}] = trace.rank % 2;
    }
    const ReplayedRun run(traces, pipelines);
    const std::optional<uint32_t> found = StepCauses(run, {}).stages().slowest();
    return found ? static_cast<int>(*found) : -1;
  };
  // Ranks 0 and 2 are a pipeline, 1 and 3 the other.
  BOOST_TEST(slowest({100, 100, 100, 200}) == 3);
  BOOST_TEST(slowest({100, 100, 199, 200}) == 2);
  BOOST_TEST(slowest({200, 100, 199, 100}) == -1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
