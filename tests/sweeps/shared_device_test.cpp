// Which trials' ranks share a device, as the analysis of a trial takes it: virtual ranks on a
// device do, and nobody else.
#include <boost/test/unit_test.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"
#include "sweeps/analyse.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(shared_device)

namespace {

using profiler::TraceBuilder;

/// Two ranks that launch all at once and compute by turns, 100 us each; the step takes 1 ms.
store::ShardContents by_turns() {
  constexpr int64_t kTurnNs = 100'000;
  store::ShardContents shard;
  for (int32_t rank = 0; rank < 2; ++rank) {
    TraceBuilder t(0, 10 * kTurnNs, rank);
    for (int64_t turn = rank; turn < 10; turn += 2) {
      t.kernel("gemm", 0, 0, turn * kTurnNs, (turn + 1) * kTurnNs);
    }
    shard.traces.push_back(t.trace());
  }
  return shard;
}

}  // namespace

BOOST_AUTO_TEST_CASE(only_virtual_ranks_on_a_device_share_it) {
  struct Row {
    spec::BackendKind backend;
    spec::CommunicatorKind communicator;
    bool is_shared;
  };
  using enum spec::BackendKind;
  using spec::CommunicatorKind;
  for (const Row& row :
       {Row{cuda, CommunicatorKind::threads, true}, Row{cuda, CommunicatorKind::nccl, false},
        Row{cuda, CommunicatorKind::fake, false}, Row{cpu, CommunicatorKind::threads, false}}) {
    spec::TrialSpec trial;
    trial.knobs.data_parallel_size = 2;
    trial.backend = row.backend;
    trial.communicator = row.communicator;
    store::TrialResult result;
    result.status = "ok";
    analyse_shard(trial, by_turns(), 0, result);
    std::map<std::string, double> metrics;  // of the whole run
    for (const store::MetricRow& metric : result.metrics) {
      if (metric.rank == -1) metrics[metric.name] = metric.value;
    }
    BOOST_TEST_CONTEXT(spec::row_of(row.communicator).name << " shared: " << row.is_shared) {
      BOOST_TEST(metrics["device_shared_ns"] == (row.is_shared ? 450e3 : 0));
      BOOST_TEST(metrics["dependency_stalled_ns"] == (row.is_shared ? 0 : 450e3));
      BOOST_TEST(metrics["num_unresolved_gaps"] == (row.is_shared ? 0 : 4.5));
      BOOST_TEST(result.wall == (row.is_shared ? "compute" : "unknown"));
      BOOST_TEST_REQUIRE(result.texts.size() == 1);
      const auto evidence = nlohmann::json::parse(result.texts[0].value);
      BOOST_TEST(evidence["label"] == (row.is_shared ? "compute" : "unknown"));
      BOOST_TEST(evidence["shares"]["device_shared"] == (row.is_shared ? 0.45 : 0));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
