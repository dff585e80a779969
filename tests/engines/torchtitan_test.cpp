// A real torchtitan, which trains on the CPU, swept and diagnosed from end to end. It takes a
// Python environment of about a gigabyte: MOETUNE_TORCHTITAN names a program that is called with a
// folder, the number of ranks and torchtitan's flags, and prints its log. Skipped with a message
// where it is not set.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>

#include "profiler/store/store.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(torchtitan, tests::Cli)

BOOST_AUTO_TEST_CASE(a_real_engine_is_swept) {
  const char* program = std::getenv("MOETUNE_TORCHTITAN");
  const char* work = std::getenv("MOETUNE_TORCHTITAN_FOLDER");
  if (program == nullptr || !std::filesystem::exists(program)) {
    std::puts("skipped: MOETUNE_TORCHTITAN names no program that trains with torchtitan");
    return;
  }
  const std::string place = work == nullptr ? folder.file("titan") : work;
  const nlohmann::json document = {
      {"name", "torchtitan on the CPU"},
      {"engine",
       {{"dialect", "torchtitan"},
        {"run",
         std::string(program) + " " + place + " 2 --parallelism.tensor_parallel_degree 2 {flags}"},
        {"config",
         "torchrun --nproc_per_node 2 -m torchtitan.train --training.local_batch_size 2 "
         "--training.seq_len 256 --parallelism.tensor_parallel_degree 2 "
         "--parallelism.data_parallel_shard_degree -1"},
        {"gpus", 2}}},
      {"space", {{"tp", {1, 2}}, {"pp", {1, 2}}, {"cp", {1, 2}}}},
      {"num_steps", 6},
      {"num_warmup_steps", 2},
      {"validate_steps", 8},
      {"scale_trials", 4},
      {"budget", {{"max_trials", 8}, {"trial_timeout_s", 300}}}};
  tests::write_text(folder.file("sweep.json"), document.dump(2));
  const auto process = start({"sweep", folder.file("sweep.json"), "--db", db});
  const auto end = process->wait(std::chrono::minutes(25));
  BOOST_REQUIRE(end.has_value());
  const std::string said = tests::read_text(folder.file("err"));
  BOOST_TEST_MESSAGE(said);
  BOOST_TEST_REQUIRE(end->code == 0, said);
  const store::Store store = store::Store::open_read_only(db);
  int num_ok = 0;
  for (const store::TrialRow& trial : store.list_trials()) {
    if (trial.status != "ok") continue;
    ++num_ok;
    BOOST_TEST(trial.step_ns.value_or(0) > 1'000'000);
    BOOST_TEST(trial.loss_final.value_or(0) > 1);
    BOOST_TEST(trial.loss_final.value_or(0) < 10);
  }
  BOOST_TEST(num_ok >= 3);

  // What its trials have left, each by itself: logs of two ranks, and of the one that was profiled
  // traces, which are of a CPU.
  int num_diagnosed = 0;
  bool has_traces = false;
  for (const auto& left : std::filesystem::directory_iterator(db + ".runs")) {
    const tests::Answer answer = run({"diagnose", left.path().string(), "--format", "json"});
    BOOST_TEST_CONTEXT(left.path()) {
      BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
      const nlohmann::json told = nlohmann::json::parse(answer.out);
      BOOST_TEST(told["run"]["framework"] == "torchtitan");
      if (told["run"]["status"] != "ok") continue;
      ++num_diagnosed;
      has_traces |= told["notes"].dump().find("holds no device work") != std::string::npos;
      BOOST_TEST(told["run"]["world_size"] == 2);
      BOOST_TEST(told["run"]["seq_length"] == 256);
      BOOST_TEST(told["run"]["micro_batch_size"] == 2);
      BOOST_TEST(told["run"]["step_time_s"].get<double>() > 1e-3);
      BOOST_TEST(told["run"]["loss"].get<double>() < 10);
      // Of a device's work alone can there be a verdict.
      BOOST_TEST(told["wall"]["label"] == "unknown");
      BOOST_TEST(!told["wall"]["summary"].get<std::string>().empty());
    }
  }
  BOOST_TEST(num_diagnosed >= num_ok);
  BOOST_TEST(has_traces);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
