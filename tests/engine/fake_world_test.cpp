// One rank of a layout alone: the same work, the same memory and the same bytes on the wire as
// among its peers.
#include <map>

#include "kernels/base/error.h"
#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(fake_world)

namespace {

using testing::knobs_of;
using testing::tiny_model;
using testing::tiny_trial;
using testing::train;
using testing::TrainingRun;

spec::TrialSpec fake(spec::TrialSpec trial, int rank) {
  trial.communicator = spec::CommunicatorKind::fake;
  trial.fake_rank = rank;
  return trial;
}

struct OpSum {
  int64_t count = 0;
  int64_t flops = 0;
  int64_t bytes = 0;

  bool operator==(const OpSum&) const = default;
};

std::map<std::string, OpSum> sums_of(const profiler::StepTrace& trace) {
  std::map<std::string, OpSum> sums;
  for (const profiler::TraceRecord& record : trace.records) {
    OpSum& sum = sums[record.name];
    ++sum.count;
    sum.flops += record.flops;
    sum.bytes += record.bytes;
  }
  return sums;
}

// Without expert parallelism no size depends on what others send.
BOOST_AUTO_TEST_CASE(work_and_memory_are_those_of_the_rank_among_its_peers) {
  for (const char* layout :
       {R"({"data_parallel_size": 4})", R"({"context_parallel_size": 2, "data_parallel_size": 2})",
        R"({"pipeline_model_parallel_size": 3})", R"({"tensor_model_parallel_size": 2})",
        R"({"context_parallel_size": 4, "cp_comm_type": "p2p"})",
        R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2,
            "overlap_grad_reduce": true})"}) {
    const spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(layout));
    const TrainingRun whole = train(trial, 2);
    for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
      BOOST_TEST_CONTEXT(layout << ", rank " << rank) {
        const TrainingRun alone = train(fake(trial, rank), 2);
        const auto at = static_cast<size_t>(rank);
        BOOST_TEST(alone.ledgers[at].peak_bytes() == whole.ledgers[at].peak_bytes());
        BOOST_TEST(alone.ledgers[at].num_allocations() == whole.ledgers[at].num_allocations());
        BOOST_TEST((sums_of(alone.traces[at]) == sums_of(whole.traces[at])));
        BOOST_TEST(std::isfinite(alone.steps.back().loss));
        BOOST_TEST(alone.steps.back().grad_norm > 0);
      }
    }
  }
}

// Everybody's block goes to the one behind, and not all of them to the same rank.
BOOST_AUTO_TEST_CASE(a_ring_is_as_fast_as_with_its_peers) {
  spec::TrialSpec trial =
      tiny_trial(tiny_model(), knobs_of(R"({"context_parallel_size": 4, "cp_comm_type": "p2p"})"));
  trial.clock = spec::ClockMode::virtual_modelled;
  const auto transfers = [](const profiler::StepTrace& trace) {
    std::vector<int64_t> ns;
    for (const profiler::TraceRecord& record : trace.records) {
      if (std::string_view(record.name).starts_with("kv_shift")) ns.push_back(record.transfer_ns);
    }
    return ns;
  };
  const std::vector<int64_t> expected = transfers(train(trial, 1).traces[1]);
  BOOST_TEST(!expected.empty());
  BOOST_TEST(transfers(train(fake(trial, 1), 1).traces[1]) == expected,
             boost::test_tools::per_element());
}

// With it, what the peers send is as much as this rank would send to itself.
BOOST_AUTO_TEST_CASE(an_expert_parallel_rank_receives_what_its_own_tokens_say) {
  const spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(R"({"data_parallel_size": 4,
          "expert_model_parallel_size": 4, "ep_chunks_forward": 2, "ep_chunks_backward": 3})"));
  for (int rank = 0; rank < 4; ++rank) {
    const TrainingRun run = train(fake(trial, rank), 2);
    BOOST_TEST(std::isfinite(run.steps.back().loss));
    int64_t dispatched = 0;
    for (const auto& record : run.traces[static_cast<size_t>(rank)].records) {
      if (std::string(record.name) == "dispatch.forward") dispatched += record.bytes;
    }
    BOOST_TEST(dispatched > 0);
  }
}

BOOST_AUTO_TEST_CASE(numbers_are_the_same_in_every_run) {
  const spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(R"({"data_parallel_size": 2,
          "expert_model_parallel_size": 2, "pipeline_model_parallel_size": 2})"));
  for (const int rank : {0, 3}) {
    const TrainingRun first = train(fake(trial, rank), 3);
    const TrainingRun second = train(fake(trial, rank), 3);
    for (size_t step = 0; step < 3; ++step) {
      BOOST_TEST(first.steps[step].loss == second.steps[step].loss);
      BOOST_TEST(first.steps[step].grad_norm == second.steps[step].grad_norm);
    }
  }
}

// The loss is a mean over the global batch, of which this rank computes a part.
BOOST_AUTO_TEST_CASE(losses_are_scaled_up_to_the_whole_batch) {
  const spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(R"({"data_parallel_size": 4})"));
  const double whole = train(trial, 1).steps.front().loss;
  const double alone = train(fake(trial, 1), 1).steps.front().loss;
  BOOST_TEST(alone == whole, boost::test_tools::tolerance(0.2));
}

BOOST_AUTO_TEST_CASE(a_rank_outside_of_the_layout_is_refused) {
  const spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(R"({"data_parallel_size": 4})"));
  BOOST_CHECK_THROW(train(fake(trial, 4), 1), base::UsageError);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
