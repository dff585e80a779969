// Sweeps and trials by name and from standard input, as a person types them.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;

/// A share folder with the model, hardware and text of the small trial, and a sweep that names
/// them.
struct Named : tests::Cli {
  tests::ScopedEnvironment share{"MOETUNE_SHARE", folder.file("share")};

  Named() {
    const json trial = spec::to_json(tests::small_trial());
    write("models/tiny_moe.json", trial.at("model").dump());
    write("hardware/desk.json", trial.at("hardware").dump());
    write("data/words.txt", std::string(5000, 'a') + "some text to train on");
    write("sweeps/first.json", document().dump());
  }

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder.file("share/" + file);
    std::filesystem::create_directories(path.parent_path());
    tests::write_text(path, text);
  }

  [[nodiscard]] static json document() {
    const json trial = spec::to_json(tests::small_trial());
    return {{"name", "first"},
            {"model", "tiny-moe"},
            {"hardware", "desk"},
            {"data_path", "../data/words.txt"},
            {"num_steps", 6},
            {"training", trial.at("training")},
            {"knobs", trial.at("knobs")}};
  }

  /// With the file as standard input, in the test's folder.
  Answer run_from(const std::string& file, const std::string& arguments) {
    const std::string line = "cd " + folder.file("") + " && exec " + tests::bin("moetune") + " " +
                             arguments + " <" + file;
    for (const char* left : {"out", "err"}) std::filesystem::remove(folder.file(left));
    SystemProcessRunner runner;
    return finish(
        *runner.start({{"/bin/sh", "-c", line}, {}, folder.file("out"), folder.file("err")}));
  }
};

json parsed(const Answer& answer) {
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  return json::parse(answer.out);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(names, Named)

BOOST_AUTO_TEST_CASE(a_sweep_is_found_by_name_with_all_that_it_names) {
  const json trial = parsed(run({"trial", "First", "--print-spec"}));
  const json expected = spec::to_json(tests::small_trial());
  BOOST_TEST((trial.at("model") == expected.at("model")));
  BOOST_TEST((trial.at("hardware") == expected.at("hardware")));
  BOOST_TEST(trial.at("data_path") == folder.file("share/data/words.txt"));
  const json swept = parsed(
      run({"sweep", "first", "--db", db, "--max-trials", "4", "--quiet", "--format", "json"}));
  BOOST_TEST(swept.at("num_run") > 1);
}

BOOST_AUTO_TEST_CASE(a_file_in_the_current_folder_wins_over_a_name) {
  json own = document();
  own["data_path"] = "corpus";
  tests::write_text(folder.file("first"), own.dump());
  const json trial = parsed(run_from("/dev/null", "trial first --print-spec"));
  BOOST_TEST(trial.at("data_path") == folder.file("corpus"));
}

BOOST_AUTO_TEST_CASE(a_dash_is_standard_input_and_paths_start_from_the_current_folder) {
  json own = document();
  own["data_path"] = "corpus";
  tests::write_text(folder.file("typed"), own.dump());
  const json trial = parsed(run_from("typed", "trial - --print-spec"));
  BOOST_TEST(trial.at("data_path") == folder.file("corpus"));
  BOOST_TEST((trial.at("model") == spec::to_json(tests::small_trial()).at("model")));
  own.erase("name");
  own["hardware"] = "dask";
  tests::write_text(folder.file("typed"), own.dump());
  const Answer refused = run_from("typed", "trial -");
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(refused.err.find("standard input: line 1: key 'hardware'") != std::string::npos,
             refused.err);
  BOOST_TEST(refused.err.find("did you mean 'desk'?") != std::string::npos, refused.err);
}

BOOST_AUTO_TEST_CASE(a_sweep_that_is_neither_file_nor_name_is_told_with_near_names) {
  check_refused({"sweep", "fist", "--db", db}, 2,
                {"fist", "no such file", "did you mean 'first'?"});
  check_refused({"bisect", "--repo", folder.file(""), "--good", "a", "--bad", "b", "--spec", "-"},
                2, {});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
