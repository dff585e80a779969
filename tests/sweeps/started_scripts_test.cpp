// Which of the scripts that a command starts has the settings of the run: that which gets those of
// a trial. What runs before or after it has settings of its own.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(started_scripts, tests::Cli)

BOOST_AUTO_TEST_CASE(scripts_beside_the_run_are_not_read) {
  const std::string settings =
      "torchrun pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 64 --seq-length "
      "4096 --train-iters 500 ";
  tests::write_text(folder.file("job.sh"), "#!/bin/bash\n" + settings + "\"$@\"\n");
  // Its settings are not those of the run, and it takes none.
  tests::write_text(folder.file("other.sh"),
                    "#!/bin/bash\ntorchrun convert.py --tensor-model-parallel-size 4 --bf16\n");
  const auto dry_run = [&](const std::string& command) {
    const nlohmann::json started = {{"dialect", "megatron-lm"}, {"run", command}, {"gpus", 8}};
    tests::write_text(
        folder.file("sweep.json"),
        nlohmann::json{
            {"name", "started"}, {"engine", started}, {"space", {{"tp", {2}}}}, {"num_steps", 8}}
            .dump());
    return run({"sweep", folder.file("sweep.json"), "--db", folder.file("runs.db"), "--dry-run"});
  };
  for (const std::string& command :
       {std::string("sbatch -W job.sh {flags}"),
        std::string("bash other.sh && sbatch -W job.sh {flags}"),
        std::string("sbatch -W job.sh {flags} | tee log; bash other.sh"),
        "bash other.sh; " + settings + "{flags}"}) {
    const tests::Answer answer = dry_run(command);
    BOOST_TEST(answer.code == 0, command << ": " << answer.err);
    BOOST_TEST(tests::contains(answer.out, "the run as it is"), command << ": " << answer.out);
  }
  const tests::Answer deaf = dry_run("bash other.sh {flags}");
  BOOST_TEST(deaf.code == 2);
  BOOST_TEST(tests::contains(deaf.err, "other.sh takes no arguments"), deaf.err);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
