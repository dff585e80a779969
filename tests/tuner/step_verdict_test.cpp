// Causes that are taken away: the replay is the step that was recorded, and verdicts name what was
// put in. The whole table is label_bench's.
#include "profiler/analysis/step_verdict.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/tuner/faulty_steps.h"

namespace moetune::tuner::testing {

using profiler::ReplayedRun;
using profiler::StepVerdict;
using profiler::SubCause;
using profiler::Wall;

namespace {

constexpr size_t kPipeline = 8;  // pp2 dp2 ep2
constexpr size_t kOverlapped = 3;
constexpr size_t kReplicas = 4;    // dp8, overlapped
constexpr size_t kFullQueue = 13;  // dp4, full launch queue

const char* text_of(const StepVerdict& verdict) { return verdict.summary.c_str(); }

}  // namespace

BOOST_AUTO_TEST_SUITE(step_verdict)

BOOST_AUTO_TEST_CASE(a_replay_that_changes_nothing_is_the_recorded_step) {
  for (size_t layout = 0; layout < faulty_layouts().size(); ++layout) {
    for (const Fault fault : {Fault::none, Fault::slow_links, Fault::launches, Fault::syncs,
                              Fault::uneven_experts, Fault::few_micro_batches}) {
      if (!is_possible(layout, fault)) continue;
      const FaultyStep step = play_faulty({layout, {{fault, 3}}, 7, 0.1});
      const ReplayedRun run(step.traces, step.communicators);
      BOOST_TEST(run.step_ns(run.ops()) == step.step_ns, faulty_layouts()[layout].name
                                                             << ", " << row_of(fault).name << ": "
                                                             << run.step_ns(run.ops()) << " for "
                                                             << step.step_ns);
      for (const profiler::ReplayOp& op : run.ops()) BOOST_TEST_REQUIRE(op.slack_ns == 0);
      BOOST_TEST(run.num_inferred_edges() == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_fault_is_named_with_its_sub_cause_and_rank) {
  int num_cases = 0;
  for (const size_t layout : {kPipeline, kOverlapped}) {
    for (int id = 0; id < static_cast<int>(Fault::count); ++id) {
      const auto fault = static_cast<Fault>(id);
      if (!is_possible(layout, fault)) continue;
      FaultyCase faulty{layout, {}, 3, 0.03};
      if (fault != Fault::none) {
        const auto strength = strength_for(layout, fault, 0.25);
        if (!strength) continue;
        faulty.faults = {{fault, *strength}};
      }
      const FaultyStep step = play_faulty(faulty);
      const StepVerdict verdict = judge(step);
      const FaultRow& row = row_of(fault);
      BOOST_TEST((verdict.label == profiler::row_of(row.sub_cause).label),
                 row.name << ": " << text_of(verdict));
      BOOST_TEST((verdict.sub_cause == row.sub_cause), row.name << ": " << text_of(verdict));
      if (row.is_of_one_rank) {
        BOOST_TEST(verdict.rank.value_or(-1) == step.faulty_rank,
                   row.name << ": " << text_of(verdict));
      }
      ++num_cases;
    }
  }
  BOOST_TEST(num_cases >= 27);
}

// Each operation is slowed while a collective is beside it. Links are so slow that collectives last
// long, and the transfers by themselves cost little.
BOOST_AUTO_TEST_CASE(collectives_that_hold_multiprocessors_are_contention) {
  int num_cases = 0;
  for (const size_t layout : {kOverlapped, kReplicas}) {
    const auto strength = strength_for(layout, Fault::held_multiprocessors, 0.15);
    if (!strength) continue;
    const FaultyCase faulty{layout, {{Fault::held_multiprocessors, *strength}}, 3, 0.03};
    const StepVerdict verdict = judge(play_faulty(faulty));
    BOOST_TEST((verdict.label == Wall::communication), text_of(verdict));
    BOOST_TEST((verdict.sub_cause == SubCause::contention), text_of(verdict));
    BOOST_TEST(removal_gain(faulty) <= verdict.ceiling_ratio() + 0.005, text_of(verdict));
    ++num_cases;
  }
  BOOST_TEST(num_cases >= 1);
}

// The host of every rank waits for room in its launch queue most of the time.
BOOST_AUTO_TEST_CASE(a_full_launch_queue_hides_no_fault) {
  BOOST_TEST_REQUIRE(faulty_layouts()[kFullQueue].launch_queue > 0);
  for (const Fault fault : {Fault::slow_rank, Fault::stall}) {
    const auto strength = strength_for(kFullQueue, fault, 0.25);
    BOOST_TEST_REQUIRE(strength.has_value());
    const FaultyCase faulty{kFullQueue, {{fault, *strength}}, 3, 0.03};
    const FaultyStep step = play_faulty(faulty);
    const StepVerdict verdict = judge(step);
    BOOST_TEST((verdict.sub_cause == row_of(fault).sub_cause), text_of(verdict));
    BOOST_TEST(verdict.rank.value_or(-1) == step.faulty_rank, text_of(verdict));
    BOOST_TEST(removal_gain(faulty) <= verdict.ceiling_ratio() + 0.005, text_of(verdict));
  }
}

BOOST_AUTO_TEST_CASE(what_records_do_not_explain_is_unknown_and_never_another_wall) {
  for (const Fault fault : {Fault::slow_links, Fault::offload, Fault::slow_rank}) {
    const auto strength = strength_for(kOverlapped, fault, 0.3);
    BOOST_TEST_REQUIRE(strength.has_value());
    FaultyStep step = play_faulty({kOverlapped, {{fault, *strength}}, 3, 0.03});
    for (profiler::StepTrace& trace : step.traces) {
      for (profiler::TraceRecord& record : trace.records) {
        // Neither stated nor to be inferred: every start is a little later than any end.
        record.producer_id = profiler::kNoRecord;
        if (record.kind == profiler::RecordKind::kernel) record.end_ns -= 5000;
      }
    }
    const StepVerdict verdict = judge(step);
    const Wall right = profiler::row_of(row_of(fault).sub_cause).label;
    BOOST_TEST((verdict.label == Wall::unknown || verdict.label == right), text_of(verdict));
  }
}

// Work that waits for a copy whose record is lost is late for no reason that the records know.
BOOST_AUTO_TEST_CASE(a_gain_is_within_what_the_ceiling_is_with_what_lost_records_leave) {
  FaultyCase faulty{kPipeline, {}, 5, 0.03};
  faulty.faults = {{Fault::offload, strength_for(kPipeline, Fault::offload, 0.25).value()}};
  const StepVerdict whole = judge(play_faulty(faulty));
  BOOST_TEST(whole.most_ratio == whole.ceiling_ratio());
  faulty.lost_records = 0.002;
  FaultyStep step = play_faulty(faulty);
  BOOST_TEST(step.facts.num_lost > 0);
  const StepVerdict told = judge(step);
  step.facts.num_lost = 0;
  const StepVerdict lossy = judge(step);
  BOOST_TEST((lossy.sub_cause == SubCause::offload), text_of(lossy));
  BOOST_TEST(removal_gain(faulty) > lossy.ceiling_ratio() + 0.005, text_of(lossy));
  BOOST_TEST(removal_gain(faulty) <= lossy.most_ratio + 0.005, lossy.most_ratio);
  // Where the recorder says that it lost records, it is the ceiling.
  BOOST_TEST((told.sub_cause == SubCause::offload), text_of(told));
  BOOST_TEST(told.ceiling_ratio() == lossy.most_ratio, text_of(told));
  BOOST_TEST(told.summary.find("up to") != std::string::npos, text_of(told));
}

// The host stands still for as long as it waited, as if its program did.
BOOST_AUTO_TEST_CASE(waits_of_the_host_whose_records_are_lost_are_in_that_ceiling_too) {
  FaultyCase faulty{kPipeline, {}, 5, 0};
  faulty.faults = {{Fault::slow_links, strength_for(kPipeline, Fault::slow_links, 0.25).value()}};
  FaultyStep step = play_faulty(faulty);
  const StepVerdict whole = judge(step);
  for (profiler::StepTrace& trace : step.traces) {
    const auto length = [](const profiler::TraceRecord& record) {
      const bool is_sync = record.kind == profiler::RecordKind::host_sync;
      return is_sync ? record.end_ns - record.start_ns : 0;
    };
    trace.records.erase(std::ranges::max_element(trace.records, {}, length));
  }
  const StepVerdict lossy = judge(step);
  BOOST_TEST((lossy.sub_cause == whole.sub_cause), text_of(lossy));
  BOOST_TEST(lossy.ceiling_ratio() < whole.ceiling_ratio() - 0.005, text_of(lossy));
  BOOST_TEST(lossy.most_ratio >= whole.ceiling_ratio() - 0.001, lossy.most_ratio);
}

BOOST_AUTO_TEST_CASE(of_two_that_hide_each_other_one_is_named_and_no_rank) {
  for (const auto& [first, second] : {std::pair{Fault::slow_links, Fault::allocator},
                                      std::pair{Fault::allocator, Fault::offload}}) {
    FaultyCase faulty{kPipeline, {}, 1, 0.03};
    for (const Fault fault : {first, second}) {
      faulty.faults.push_back({fault, strength_for(kPipeline, fault, 0.25).value()});
    }
    const StepVerdict verdict = judge(play_faulty(faulty));
    BOOST_TEST((verdict.sub_cause == row_of(first).sub_cause ||
                verdict.sub_cause == row_of(second).sub_cause),
               text_of(verdict));
    BOOST_TEST(!verdict.rank.has_value(), text_of(verdict));
  }
}

BOOST_AUTO_TEST_CASE(recomputation_is_memory_only_where_memory_is_short) {
  FaultyStep step = play_faulty({kPipeline, {{Fault::capped_memory, 1}}, 3, 0.03});
  BOOST_TEST((judge(step).sub_cause == SubCause::recompute), text_of(judge(step)));
  step.facts.memory.peak_bytes = 300;
  BOOST_TEST((judge(step).label == Wall::compute), text_of(judge(step)));
}

BOOST_AUTO_TEST_CASE(nothing_recorded_is_no_verdict) {
  const std::vector<profiler::StepTrace> traces(2);
  const StepVerdict verdict = profiler::judge_step(ReplayedRun(traces, {}), {});
  BOOST_TEST((verdict.label == Wall::unknown));
}

BOOST_AUTO_TEST_CASE(ranks_that_wait_for_each_other_in_broken_records_end) {
  // Two ranks whose collectives are numbered the other way round.
  std::vector<profiler::StepTrace> traces(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    traces[rank].rank = rank;
    traces[rank].end_ns = 1000;
    for (int64_t i = 0; i < 2; ++i) {
      profiler::TraceRecord record;
      record.id = i;
      record.rank = rank;
      record.kind = profiler::RecordKind::collective;
      record.name = "grad_reduce";
      record.group = "dp_cp";
      record.sequence = rank == 0 ? i : 1 - i;
      record.start_ns = i * 400;
      record.end_ns = record.start_ns + 300;
      record.transfer_ns = 100;
      traces[rank].records.push_back(record);
    }
  }
  const ReplayedRun run(traces, {});
  BOOST_TEST(run.step_ns(run.ops()) > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::testing
