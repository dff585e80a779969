// The command or configuration beside a log: one that is not understood is told, and the log is
// diagnosed without it.
#include "sweeps/runs/stated_config.h"

#include <boost/test/unit_test.hpp>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;

const std::string kStatedCommand =
    "torchrun pretrain_gpt.py --seq-length 4096 --micro-batch-size 1 ";
const std::string kBad = "--tensor-model-parallel-size many\n";
const std::string kWhy = " is not understood: '--tensor-model-parallel-size' is 'many', expected";

/// A folder with a log of eight ranks of Megatron-LM that hung.
struct Beside : tests::Cli {
  Beside() {
    std::filesystem::create_directory(folder.file("run"));
    std::filesystem::copy_file(
        std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/nccl_timeout.log", log);
  }
  std::string put(const std::string& name, const std::string& text) {
    const std::string path = folder.file("run/" + name);
    tests::write_text(path, text);
    return path;
  }
  /// The notes of a diagnosis, a line each; it has to tell how the run ended.
  std::string notes_of(std::vector<std::string> words) {
    words.insert(words.begin(), "diagnose");
    words.insert(words.end(), {"--format", "json"});
    const tests::Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const json document = json::parse(answer.out);
    BOOST_TEST(document["run"]["status"] == "hung");
    std::string notes;
    for (const json& note : document["notes"]) notes += note.get<std::string>() + "\n";
    return notes;
  }
  std::string log = folder.file("run/train.log");
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(stated_configs, Beside)

BOOST_AUTO_TEST_CASE(a_script_that_is_not_understood_is_noted) {
  const std::string script = put("job.sh", kStatedCommand + kBad);
  const std::string run_folder = folder.file("run");
  BOOST_TEST(tests::contains(notes_of({run_folder}), script + kWhy));
  BOOST_TEST(tests::contains(notes_of({log, script}), script + kWhy));
  BOOST_TEST(tests::contains(notes_of({log, "--run", script}), script + kWhy));
  BOOST_TEST(tests::contains(notes_of({log, "--run", kStatedCommand + kBad}), "--run" + kWhy));
  // Another one beside it may not be the run's.
  put("other.sh", kStatedCommand);
  BOOST_TEST(tests::contains(notes_of({run_folder}), script + kWhy));
  BOOST_TEST(!tests::contains(notes_of({run_folder}), "other.sh is not understood"));
  // With nothing else there is nothing to diagnose.
  check_refused({"diagnose", script}, 2, {script + kWhy});
  check_refused({"diagnose", script, "--run", script}, 2, {"is 'many', expected"});
  // A name that is mistyped is a mistake.
  check_refused({"diagnose", log, "--run", "jop.sh"}, 2, {"'jop.sh' is neither a file nor"});
}

// Whoever is told what to change has to know of which run.
BOOST_AUTO_TEST_CASE(what_is_understood_only_in_part_is_told) {
  const std::string script = put("job.sh", "for TP in 1 2; do\n" + kStatedCommand +
                                               "--bf16 --tensor-model-parallel-size $TP\ndone\n");
  const std::string note = script + ": it starts 2 runs that differ: the first is read";
  BOOST_TEST(tests::contains(notes_of({folder.file("run")}), note));
  BOOST_TEST(tests::contains(notes_of({log, "--run", script}), note));
  const tests::Answer alone = run({"diagnose", script});
  BOOST_TEST_REQUIRE(alone.code == 0, alone.err);
  BOOST_TEST(tests::contains(alone.out, "note: " + note), alone.out);
}

BOOST_AUTO_TEST_CASE(files_about_something_else_are_not_noted) {
  put("README.md", "# Our runs\n\nThey are of torchtitan and Megatron-LM.\n");
  put("requirements.txt", "torchtitan==0.2.2\n");
  put("pyproject.toml", "[project]\nname = \"torchtitan\"\n");
  put("add_arguments.py", "parser.add_argument(\"--tensor-model-parallel-size\", type=int)\n");
  BOOST_TEST(!tests::contains(notes_of({folder.file("run")}), "not understood"));
  check_refused({"diagnose", folder.file("run/README.md")}, 2, {"is no log, trace or config"});
}

// Ranks that a script leaves open are those of the log.
BOOST_AUTO_TEST_CASE(a_script_has_the_ranks_of_its_log) {
  const std::string fits = put("job.sh", kStatedCommand + "--tensor-model-parallel-size 4\n");
  BOOST_TEST(!tests::contains(notes_of({folder.file("run")}), "not understood"));
  BOOST_TEST(!tests::contains(notes_of({log, "--run", fits}), "not understood"));
  const std::string too_large = put("job.sh", kStatedCommand + "--tensor-model-parallel-size 16\n");
  const std::string of_folder = notes_of({folder.file("run")});
  BOOST_TEST(tests::contains(of_folder, too_large + " is not understood"), of_folder);
  BOOST_TEST(tests::contains(of_folder, "does not divide the 8 ranks"), of_folder);
  const std::string of_option = notes_of({log, "--run", too_large});
  BOOST_TEST(tests::contains(of_option, "needs 16 at least"), of_option);
  // Those that it says itself are its own.
  put("job.sh",
      "torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --micro-batch-size 1 "
      "--seq-length 4096 --tensor-model-parallel-size 16\n");
  BOOST_TEST(!tests::contains(notes_of({folder.file("run")}), "not understood"));
}

BOOST_AUTO_TEST_CASE(the_sentence_names_its_source_once) {
  BOOST_TEST(not_understood("job.sh", "job.sh: 'x' is 'y'") ==
             "job.sh is not understood: 'x' is 'y'");
  BOOST_TEST(not_understood("job.sh", "'x' is 'y'") == "job.sh is not understood: 'x' is 'y'");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
