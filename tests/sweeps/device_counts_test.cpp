// How many devices a plan is looked for on where nobody says.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "sweeps/planning/machines.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

/// A shipped machine, changed.
std::string machine_in(const Cli& cli, const std::function<void(json&)>& change) {
  json document = json::parse(
      tests::read_text(std::string(MOETUNE_SOURCE_DIR) + "/sweeps/hardware/h100-80g.json"));
  change(document);
  const std::string path = cli.folder.file("machine.json");
  tests::write_text(path, document.dump());
  return path;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(numbers_of_devices)

BOOST_AUTO_TEST_CASE(nodes_are_filled_before_there_are_several) {
  const std::vector<int64_t> shipped = device_counts("h100-80g");
  BOOST_TEST(shipped.front() == 1);
  BOOST_TEST(shipped.back() == 4096);
  BOOST_TEST(std::ranges::count(shipped, 8) == 1);
  const Cli cli;
  const std::vector<int64_t> of_six =
      device_counts(machine_in(cli, [](json& document) { document["devices_per_node"] = 6; }));
  const std::vector<int64_t> first(of_six.begin(), of_six.begin() + 6);
  BOOST_TEST(first == (std::vector<int64_t>{1, 2, 4, 6, 12, 24}), boost::test_tools::per_element());
  // Runs use 8 of 9, and where nothing joins nodes the ninth is the last.
  const Cli other;
  const std::vector<int64_t> alone = device_counts(machine_in(other, [](json& document) {
    document["domain_devices"] = 9;
    document.erase("inter_node");
  }));
  BOOST_TEST(alone == (std::vector<int64_t>{1, 2, 4, 8, 9}), boost::test_tools::per_element());
}

// The search had ended at two devices, with a message that asked for at most one.
BOOST_FIXTURE_TEST_CASE(without_a_link_between_nodes_one_is_filled, Cli) {
  const std::string machine =
      machine_in(*this, [](json& document) { document.erase("inter_node"); });
  const std::vector<std::string> words = {
      "plan",  "--model", "qwen3-30b-a3b", "--hardware", machine, "--seq",
      "32768", "--gbs",   "256",           "--top",      "1"};
  const Answer answer = run(words);
  BOOST_TEST(answer.code == 0, answer.err);
  BOOST_TEST(answer.out.find("8 devices are the fewest") != std::string::npos, answer.out);
  std::vector<std::string> larger = words;
  larger[2] = "qwen3-235b-a22b";
  const Answer none = run(larger);
  BOOST_TEST(none.code == 1, none.err);
  BOOST_TEST(none.out.find("8 devices are the most that there are: nothing joins nodes") !=
                 std::string::npos,
             none.out);
}

// More devices than four of a node are more of it, and not more nodes.
BOOST_FIXTURE_TEST_CASE(a_way_out_fills_the_node, Cli) {
  const std::string machine =
      machine_in(*this, [](json& document) { document.erase("inter_node"); });
  const Answer answer = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", machine, "--gpus",
                             "4", "--format", "json"});
  BOOST_TEST(answer.code == 1, answer.err);
  BOOST_TEST(json::parse(answer.out)["ways_out"][0]["what"] == "8 devices (--gpus 8)");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
