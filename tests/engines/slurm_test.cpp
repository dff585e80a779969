// A whole sweep whose trials go through Slurm, on this machine alone: sbatch -W, a job script, logs
// that the queue writes. Skipped with a message where Slurm is not installed or cannot run.
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "profiler/store/store.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(slurm, tests::Cli)

BOOST_AUTO_TEST_CASE(a_sweep_goes_through_the_queue) {
  const std::string source(MOETUNE_SOURCE_DIR);
  const std::string script = source + "/scripts/slurm-on-one-machine.sh";
  const std::string slurm = folder.file("slurm");
  if (std::system((script + " start " + slurm + " > " + folder.file("said") + " 2>&1").c_str()) !=
      0) {
    BOOST_TEST_MESSAGE("skipped: no Slurm here: " << tests::read_text(folder.file("said")));
    std::puts(("skipped: no Slurm here: " + tests::read_text(folder.file("said"))).c_str());
    return;
  }
  const tests::ScopedEnvironment config("SLURM_CONF", slurm + "/slurm.conf");
  tests::write_text(folder.file("job.sh"),
                    "#!/bin/bash\n" + source + "/tests/fakes/pretrain_gpt/pretrain_gpt \"$@\"\n");
  std::filesystem::permissions(folder.file("job.sh"), std::filesystem::perms::owner_all);
  const nlohmann::json document = {
      {"name", "through a queue"},
      {"engine",
       {{"dialect", "megatron-lm"},
        {"run",
         "srun -J moetune-{trial} -o train-%j.out ./job.sh --bf16 --micro-batch-size 1 "
         "--global-batch-size 64 --seq-length 4096 --train-iters 500 {flags}"},
        {"log", "train-*.out"},
        {"stop", "scancel -n moetune-{trial}"},
        {"gpus", 8}}},
      {"space", {{"micro_batch_size", {1, 2, 8}}, {"--planted-hang", {true}}}},
      {"num_steps", 8},
      {"validate_steps", 10},
      {"budget", {{"max_trials", 12}, {"trial_timeout_s", 5}}}};
  tests::write_text(folder.file("sweep.json"), document.dump(2));
  const auto process = start({"sweep", folder.file("sweep.json"), "--db", db, "--format", "json"});
  const auto end = process->wait(std::chrono::minutes(14));
  const std::string queue = folder.file("queue");
  std::ignore = std::system(("squeue -h > " + queue).c_str());
  std::ignore = std::system((script + " stop " + slurm).c_str());
  BOOST_REQUIRE(end.has_value());
  BOOST_TEST_REQUIRE(end->code == 0, tests::read_text(folder.file("err")));
  const nlohmann::json result = nlohmann::json::parse(tests::read_text(folder.file("out")));
  BOOST_TEST(result["engine_settings"] == nlohmann::json({"--micro-batch-size 2"}));
  BOOST_TEST(result["num_by_status"]["oom"] == 1);
  BOOST_TEST(result["num_by_status"]["hung"] == 1);
  // The job of the trial that hung is not left in the queue.
  BOOST_TEST(tests::read_text(queue) == "");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
