// The table of what commands print: its page, and that none of its outermost keys has gone. That no
// key is missing in it is looked at wherever a test runs a command (tests/sweeps/cli_fixture.h);
// that none is stale at any depth, where plan, estimate, import, calibrate, diagnose and compare
// are tested. The table of rows of measured runs is compared with what reading them asks for.
#include "sweeps/outputs.h"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <set>

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_keys.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(output_keys, tests::Cli)

namespace {

using nlohmann::json;

/// Keys of the outermost objects.
std::set<std::string> names_of(const json& document) {
  std::set<std::string> names;
  for (const auto& [name, value] : (document.is_array() ? document.at(0) : document).items()) {
    names.insert(name);
  }
  return names;
}

std::set<std::string> names_of(const Output& output) {
  std::set<std::string> names;
  for (std::string path : paths_of(output)) {
    if (path.starts_with("[]")) path.erase(0, std::min<size_t>(3, path.size()));
    if (!path.empty()) names.insert(path.substr(0, path.find_first_of(".[")));
  }
  return names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_outermost_key_is_still_printed) {
  write_sweep([](json&) {});
  const std::string sweep = folder.file("sweep.json");
  const auto check = [&](const char* command, const std::vector<std::string>& words) {
    const tests::Answer answer = run(words);
    const json document = json::parse(answer.out);
    for (const Output& output : outputs()) {
      if (std::string_view(output.commands).find(command) == std::string_view::npos) continue;
      const std::set<std::string> expected = names_of(output);
      const std::set<std::string> printed = names_of(document);
      BOOST_TEST_CONTEXT(command) BOOST_TEST(printed == expected, boost::test_tools::per_element());
    }
  };
  check("sweep", {"sweep", sweep, "--db", db, "--format", "json", "--quiet"});
  check("ls", {"ls", db, "--format", "json"});
  check("show", {"show", db, "1", "--format", "json"});
  check("program", {"program", spec, "--format", "json"});
  check("knobs", {"knobs", "--format", "json"});
}

BOOST_AUTO_TEST_CASE(a_key_that_no_row_has_is_named) {
  const std::vector<std::string> missing = undocumented_keys(
      "sweep",
      json::parse(R"({"db": "x", "new": 1, "best": {"id": 1, "knobs": {"a": 1}, "odd": [2]},
                               "undecided": [{"trial": 1, "other": 2}], "megatron_flags": null})"));
  BOOST_TEST(missing == (std::vector<std::string>{"best.odd[]", "new", "undecided[].other"}),
             boost::test_tools::per_element());
  BOOST_CHECK_THROW(undocumented_keys("report", json::object()), base::Error);
}

// Names in the middle of a path, as of shared keys below a name.
BOOST_AUTO_TEST_CASE(shared_keys_are_looked_for_behind_their_prefix) {
  const json errors = json::parse(R"({"count": 1, "mean_signed": 0, "median_signed": 0, "mean": 0,
                                      "median": 0, "p90": 0, "worst": 0})");
  const json document = {{"summary", {{"memory_error_ratio_by_family", {{"a.b", errors}}}}}};
  BOOST_TEST(undocumented_keys("estimate", document).empty());
  json changed = document;
  changed["summary"]["memory_error_ratio_by_family"]["a.b"]["best"] = 1;
  BOOST_TEST(undocumented_keys("estimate", changed) ==
                 std::vector<std::string>{"summary.memory_error_ratio_by_family.a.b.best"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_key_that_is_no_longer_printed_is_named) {
  const json figure = json::parse(R"({"name": "a", "unit": "", "change_ratio": null,
      "before": {"median": 1, "low": 1, "high": 1, "num_values": 1},
      "after": {"median": 1, "low": 1, "high": 1}, "is_beyond_noise": null})");
  const json wall = {{"label", "host"}, {"sub_cause", nullptr}, {"share_ratio", nullptr}};
  const json document = {{"figures", {figure}},
                         {"kernels", {figure}},
                         {"settings", json::array()},
                         {"walls", {{"before", wall}, {"after", wall}}},
                         {"notes", json::array()}};
  BOOST_TEST(
      unprinted_keys("compare", {document}) ==
          (std::vector<std::string>{"figures[].after.num_values", "kernels[].after.num_values"}),
      boost::test_tools::per_element());
}

/// All that the reading of rows asks for, but sizes of the model, which are the model file's. Of a
/// key that is taken with dashes and with underscores the latter.
std::set<std::string> keys_of_rows(const json& rows) {
  const std::set<std::string> asked = keys_asked_of_rows(rows);
  std::set<std::string> keys;
  for (const std::string& key : asked) {
    std::string plain = key;
    std::ranges::replace(plain, '-', '_');
    const bool is_spelt_twice = plain != key && asked.contains(plain);
    if (!key.starts_with("model.") && !is_spelt_twice) keys.insert(key);
  }
  return keys;
}

BOOST_AUTO_TEST_CASE(the_table_of_rows_has_what_is_read) {
  json rows = json::parse(
      std::ifstream(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json"));
  // What is asked only of rows that few write: that count FLOPs in a way of their own, and that
  // say how weights are sharded.
  json own_way = rows.at(0);
  own_way["flops_accounting"] = "by the moon";
  own_way["derived"] = json::object();
  own_way["fsdp"] = "megatron";
  rows.push_back(own_way);
  rows.push_back(json::object());  // states no model
  std::set<std::string> documented;
  for (const OutputKey& key : kRowKeys) documented.insert(key.path);
  BOOST_TEST(keys_of_rows(rows) == documented, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_page_is_that_of_the_table) {
  const std::string page = tests::read_text(std::string(MOETUNE_SOURCE_DIR) + "/docs/formats.md");
  BOOST_TEST(page.find(files_markdown()) != std::string::npos,
             "docs/formats.md is not what 'moetune schema --markdown' prints");
  BOOST_TEST(page.find(outputs_markdown()) != std::string::npos,
             "docs/formats.md is not what 'moetune schema --markdown' prints");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
