// Files that are found by name: how names are compared, where they are looked for, what is said
// when none is there.
#include "engine/spec/library.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>

#include "engine/spec/spec_files.h"
#include "engine/spec/sweep_spec.h"
#include "tests/profiler/temp_folder.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {
BOOST_AUTO_TEST_SUITE(library)

namespace {

using nlohmann::json;

/// A share folder of a test's own, named by the environment.
struct Share {
  tests::TempFolder folder;

  Share() {
    for (const ShelfRow& row : shelf_table()) {
      std::filesystem::create_directories(folder.file("share/" + std::string(row.folder)));
    }
    setenv("MOETUNE_SHARE", folder.file("share").c_str(), 1);
    std::filesystem::create_directories(folder.file("own"));
  }
  ~Share() { unsetenv("MOETUNE_SHARE"); }

  void write(const std::string& path, const std::string& text) const {
    tests::write_text(folder.file(path), text);
  }
  [[nodiscard]] std::string own() const { return folder.file("own"); }
};

json small_sweep() {
  return {{"name", "small"},
          {"model", samples::mixtral()},
          {"hardware", samples::cluster()},
          {"data_path", "text.txt"},
          {"num_steps", 6}};
}

std::string error_of(const json& document, const std::string& folder) {
  try {
    static_cast<void>(sweep_from_json(document, "sweep.json", folder));
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_name_has_no_folder_no_ending_no_case_and_one_kind_of_dash) {
  BOOST_TEST(library_name("engine/models/Qwen3_30B_a3b.json") == "qwen3-30b-a3b");
  BOOST_TEST(library_name("quickstart.txt") == "quickstart");
  BOOST_TEST(library_name("h100-8x8") == "h100-8x8");
  BOOST_TEST(library_name("v1.5") == "v1.5");
}

// The links of the build folder stand for the installed share folder.
BOOST_AUTO_TEST_CASE(what_comes_with_the_programs_is_found_beside_them) {
  BOOST_REQUIRE(std::getenv("MOETUNE_SHARE") == nullptr);
  for (const ShelfRow& row : shelf_table()) {
    const std::vector<std::string> names = library_names(row.shelf);
    BOOST_TEST(!names.empty(), row.folder << " holds something");
    BOOST_TEST(std::ranges::is_sorted(names));
    for (const std::string& name : names) {
      const std::string file = find_in_library(row.shelf, name);
      BOOST_TEST(std::filesystem::is_regular_file(file), name << " is " << file);
      BOOST_TEST(library_name(file) == name);
    }
  }
  for (const char* name : {"qwen3-30b-a3b", "QWEN3_30B_A3B", "qwen3_30b_a3b.json"}) {
    BOOST_TEST(find_in_library(Shelf::model, name).ends_with("/qwen3_30b_a3b.json"));
  }
  BOOST_TEST(find_in_library(Shelf::hardware, "h100_8x8").ends_with("/h100-8x8.json"));
  BOOST_TEST(find_in_library(Shelf::hardware, "qwen3-30b-a3b") == "");
  BOOST_TEST(find_in_library(Shelf::model, "x/qwen3-30b-a3b") == "");
  BOOST_TEST(find_in_library(Shelf::model, "") == "");
}

BOOST_FIXTURE_TEST_CASE(the_environment_names_another_share_folder, Share) {
  BOOST_TEST(library_names(Shelf::model).empty());
  write("share/models/My_Model.json", "{}");
  write("share/models/notes.md", "no model");
  BOOST_TEST(library_names(Shelf::model) == std::vector<std::string>{"my-model"},
             boost::test_tools::per_element());
  BOOST_TEST(find_in_library(Shelf::model, "my-model") ==
             folder.file("share/models/My_Model.json"));
}

BOOST_FIXTURE_TEST_CASE(a_file_of_the_own_folder_wins_over_a_name, Share) {
  write("share/models/big.json", "{}");
  write("own/big", "{}");
  BOOST_TEST(find_file(Shelf::model, "big", own()) == folder.file("own/big"));
  BOOST_TEST(find_file(Shelf::model, "big.json", own()) == folder.file("share/models/big.json"));
  BOOST_TEST(find_file(Shelf::model, "../own/big", own()) == folder.file("own/big"));
  std::filesystem::create_directories(folder.file("own/BIG"));
  BOOST_TEST(find_file(Shelf::model, "BIG", own()) == folder.file("share/models/big.json"));
  BOOST_TEST(find_file(Shelf::model, "small", own()) == "");
}

BOOST_AUTO_TEST_CASE(a_short_name_is_that_of_one_file) {
  for (const char* name : {"qwen330b-a3b", "qwen3-30b", "Qwen3_30B"}) {
    BOOST_TEST(likely_in_library(Shelf::model, name).ends_with("/qwen3_30b_a3b.json"), name);
  }
  for (const char* name : {"qwen3", "mixtral", "qwen3-3", "", "x/deepseekv3", "deepseekv3.json"}) {
    BOOST_TEST(likely_in_library(Shelf::model, name) == "", name);
  }
}

BOOST_AUTO_TEST_CASE(near_names_are_told) {
  BOOST_TEST(library_hint(Shelf::model, "qwen3-30b") == "did you mean 'qwen3-30b-a3b'?");
  BOOST_TEST(library_hint(Shelf::model, "Qwen 3-30b-a3b") == "did you mean 'qwen3-30b-a3b'?");
  BOOST_TEST(library_hint(Shelf::model, "../models/mixtral.json") ==
             "did you mean 'mixtral-8x22b' or 'mixtral-8x7b'?");
  BOOST_TEST(library_hint(Shelf::hardware, "h100-8x9") == "did you mean 'h100-8x8'?");
  const std::string all = library_hint(Shelf::hardware, "tpu");
  BOOST_TEST(all.starts_with("known names: "));
  for (const std::string& name : library_names(Shelf::hardware)) {
    BOOST_TEST(all.find(name) != std::string::npos);
  }
}

BOOST_FIXTURE_TEST_CASE(an_empty_share_folder_says_where_it_looked, Share) {
  BOOST_TEST(library_hint(Shelf::model, "x") ==
             "there are no names: nothing is in " + folder.file("share/models"));
  setenv("MOETUNE_SHARE", folder.file("none").c_str(), 1);
  BOOST_TEST(library_hint(Shelf::model, "x") ==
             "there are no names: the share folder " + folder.file("none") +
                 " is missing, which comes with moetune; the environment variable MOETUNE_SHARE "
                 "can name another");
}

BOOST_FIXTURE_TEST_CASE(a_sweep_and_a_trial_name_model_hardware_and_text, Share) {
  write("share/models/tiny.json", samples::mixtral().dump());
  write("share/hardware/desk.json", samples::cluster().dump());
  write("share/data/words.txt", "some words");
  json document = small_sweep();
  const SweepSpec spelled = sweep_from_json(document, "sweep.json", own());
  document.update({{"model", "Tiny"}, {"hardware", "desk.json"}, {"data_path", "words"}});
  const SweepSpec named = sweep_from_json(document, "sweep.json", own());
  BOOST_TEST((to_json(named.base.model) == to_json(spelled.base.model)));
  BOOST_TEST((to_json(named.base.hardware) == to_json(spelled.base.hardware)));
  BOOST_TEST(named.base.data_path == folder.file("share/data/words.txt"));
  BOOST_TEST(spelled.base.data_path == folder.file("own/text.txt"));

  document.erase("name");
  const TrialSpec trial = trial_from_json(document, "trial.json", own());
  BOOST_TEST((to_json(trial) == to_json(named.base)));
  write("own/words", "own words");
  BOOST_TEST(trial_from_json(document, "trial.json", own()).data_path == folder.file("own/words"));
}

BOOST_FIXTURE_TEST_CASE(a_name_that_is_none_is_told_with_near_ones, Share) {
  write("share/models/tiny.json", samples::mixtral().dump());
  json document = small_sweep();
  document["model"] = "tyny";
  for (const char* part : {"sweep.json: key 'model'", "\"tyny\"", "own/tyny", "'tiny'"}) {
    BOOST_TEST(error_of(document, own()).find(part) != std::string::npos, error_of(document, own())
                                                                              << " says " << part);
  }
  document.erase("name");
  BOOST_CHECK_EXCEPTION(static_cast<void>(trial_from_json(document, "trial.json", own())),
                        base::UsageError, tests::says("did you mean 'tiny'?"));
  // What is wrong in a named file is told of that file.
  write("share/models/tiny.json", R"({"model_type": "mixtral", "vocab_size": 0})");
  document = small_sweep();
  document["model"] = "tiny";
  BOOST_TEST(samples::contains(error_of(document, own()),
                               folder.file("share/models/tiny.json") + ": line "));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
