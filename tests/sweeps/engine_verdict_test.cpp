// What the verdict on a profiled run of somebody else's engine rests on: it is stored as that of
// our own trials is, and show and the report tell it. The engine is tests/fakes/pretrain_gpt.
#include <boost/test/unit_test.hpp>
#include <map>
#include <memory>

#include "profiler/store/store.h"
#include "sweeps/adapters/engine_space.h"
#include "sweeps/adapters/user_run.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(engine_verdicts, tests::Cli)

namespace {

using nlohmann::json;

const std::string kStandIn =
    std::string(MOETUNE_SOURCE_DIR) +
    "/tests/fakes/pretrain_gpt/pretrain_gpt --bf16 --tensor-model-parallel-size 1 "
    "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --use-distributed-optimizer "
    "--train-iters 500 --lr 2e-5";

/// The first profiled trial, before anything was changed for what it shows.
store::TrialRow first_look(const store::Store& store) {
  for (const store::TrialRow& trial : store.list_trials()) {
    for (const store::NamedText& text : store.read_texts(trial.id)) {
      if (text.name == "title" && text.value.starts_with("a look into the best")) return trial;
    }
  }
  BOOST_REQUIRE_MESSAGE(false, "nothing was profiled");
  return {};
}

}  // namespace

// A trial is left out where it is impossible: of torchtitan's memory less is known.
BOOST_AUTO_TEST_CASE(torchtitan_may_need_less_than_is_predicted) {
  using spec::dialects::Dialect;
  UserRun run;
  run.dialect = Dialect::torchtitan;
  run.config = spec::dialects::import_run(
      "[training]\nseq_len = 8192\nlocal_batch_size = 1\n[parallelism]\n"
      "data_parallel_shard_degree = 8\n",
      Dialect::torchtitan);
  run.world_size = 8;
  run.model = model_named("llama3-8b");
  run.hardware = machine_of("h100-80g", 8);
  run.sweep.base.training.seq_length = 8192;
  run.sweep.base.training.global_batch_size = 8;
  const tuner::TrialRequest request =
      EngineSpace(std::make_shared<const UserRun>(run)).request(settings_of(run), false, 1);
  const auto peak = static_cast<double>(request.prediction.peak_bytes);
  BOOST_TEST_REQUIRE(peak > 0);
  const auto is_left_out = [&](Dialect dialect, double share_of_peak) {
    spec::HardwareSpec hardware = *run.hardware;
    hardware.memory_bytes = static_cast<int64_t>(share_of_peak * peak);
    UserRun other = run;
    other.config.dialect = dialect;
    other.hardware = std::make_shared<const spec::HardwareSpec>(hardware);
    return !EngineSpace(std::make_shared<const UserRun>(other)).too_large(request).empty();
  };
  BOOST_TEST(is_left_out(Dialect::megatron_lm, 0.85));
  BOOST_TEST(!is_left_out(Dialect::torchtitan, 0.85));
  BOOST_TEST(is_left_out(Dialect::torchtitan, 0.6));
}

// The traced step has 40 products of 1 ms, behind each a collective of 3 ms that nothing hides, and
// 910 us before the first one: 15 us until it is launched, 20 us in which the device may start.
BOOST_AUTO_TEST_CASE(what_the_verdict_rests_on_is_stored_and_shown) {
  const json document = {
      {"name", "fake"},
      {"engine", {{"dialect", "megatron-lm"}, {"run", kStandIn + " {flags}"}, {"gpus", 8}}},
      {"space", {{"micro_batch_size", {1, 2}}, {"overlap_grad_reduce", {false, true}}}},
      {"num_steps", 8},
      {"validate_steps", 12},
      {"min_gain_ratio", 0.005},
      {"budget", {{"max_trials", 40}, {"trial_timeout_s", 20}}}};
  tests::write_text(folder.file("sweep.json"), document.dump(2));
  const tests::Answer swept = run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"});
  BOOST_TEST_REQUIRE(swept.code == 0, swept.err);
  const store::Store store = store::Store::open_read_only(db);
  const store::TrialRow look = first_look(store);
  BOOST_TEST(look.wall == "communication");
  const std::string id = std::to_string(look.id);
  std::map<std::string, double> metrics;  // of the whole run
  for (const store::MetricRow& row : store.read_metrics(look.id)) {
    if (row.rank == -1) metrics[row.name] = row.value;
  }
  const auto is_near = boost::test_tools::tolerance(1e-6);
  BOOST_TEST(metrics["traced_step_ns"] == 160.91e6, is_near);
  BOOST_TEST(metrics["compute_busy_ns"] == 40.02e6, is_near);
  BOOST_TEST(metrics["launch_starved_ns"] == 15e3, is_near);
  BOOST_TEST(metrics["dependency_stalled_ns"] == 875e3, is_near);
  for (const char* name :
       {"comm_volume_ns", "comm_exposed_ns", "blocking_transfer_ns", "critical_transfer_ns"}) {
    BOOST_TEST(metrics[name] == 120e6, is_near);
  }
  BOOST_TEST(metrics["critical_compute_ns"] == 40e6, is_near);
  BOOST_TEST(metrics["critical_stalled_ns"] == 895e3, is_near);
  BOOST_TEST(!metrics.contains("num_unresolved_gaps"));

  // They are the verdict's own numbers.
  json verdict;
  for (const store::NamedText& text : store.read_texts(look.id)) {
    if (text.name == "wall_evidence") verdict = json::parse(text.value);
  }
  std::map<std::string, double> evidence;
  for (const json& fact : verdict["evidence"]) evidence[fact["name"]] = fact["value"];
  BOOST_TEST(evidence["comm_volume_ns"] == metrics["comm_volume_ns"], is_near);
  BOOST_TEST(evidence["comm_exposed_ns"] == metrics["comm_exposed_ns"], is_near);
  BOOST_TEST(evidence["comm_blocking_ns"] == metrics["blocking_transfer_ns"], is_near);
  BOOST_TEST(evidence["communication_ratio"] ==
                 metrics["blocking_transfer_ns"] / metrics["traced_step_ns"],
             is_near);
  BOOST_TEST(verdict["share_ratio"].get<double>() == metrics["communication_wall_ratio"], is_near);
  BOOST_TEST(metrics["gain_ceiling_ratio"] ==
                 metrics["communication_wall_ratio"] / (1 - metrics["communication_wall_ratio"]),
             is_near);

  const tests::Answer shown = run({"show", db, id});
  for (const char* line : {"120 ms: communication kernels, summed, a rank",
                           "120 ms: of communication, with nothing else on the device",
                           "120 ms: of that, what the next work waited for"}) {
    BOOST_TEST(tests::contains(shown.out, line), line);
  }
  const std::string page_path = folder.file("look.html");
  BOOST_TEST(run({"report", db, "--trial", id, "--out", page_path}).code == 0);
  const std::string page = tests::read_text(page_path);
  for (const char* part :
       {"What the verdict says", "communication 74.6 % of the time",
        "all, of groups that are not named", "120 ms · 74.6 %</td>",
        "Ceilings, and what was gained", "74.6 %</strong> of the step would be gained",
        "Critical path across the ranks", "data moving"}) {
    BOOST_TEST(tests::contains(page, part), part);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
