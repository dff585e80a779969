// moetune-rank started with the sizes of a layout: those that it takes, and those that it refuses.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(rank_program_layouts, tests::Cli)

namespace {

using nlohmann::json;
using std::chrono::seconds;

}  // namespace

BOOST_AUTO_TEST_CASE(the_rank_program_takes_each_size_of_a_layout_once) {
  const auto refused = [&](const std::string& layout, const std::string& why) {
    std::filesystem::remove(folder.file("err"));
    SystemProcessRunner runner;
    const Command command{
        {tests::bin("moetune-rank"), "--verify", folder.file(""), "--layout", layout},
        {},
        "/dev/null",
        folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_TEST(end->code == 2);
    const std::string error = tests::read_text(folder.file("err"));
    BOOST_TEST_CONTEXT(error) {
      BOOST_TEST(error.find(why) != std::string::npos);
      BOOST_TEST(error.find("(layout_syntax)") != std::string::npos);
    }
  };
  for (const char* why : {"key 'dp' is 0", "key 'ep' is 1.5", "unknown key 'fsdp'"}) {
    refused(R"({"dp": 0, "ep": 1.5, "fsdp": 2})", why);
  }
  refused(R"({"dp": 1, "dp": 2})", "--layout: key 'dp' is there twice");
  refused(R"({"dp": 0})", "--layout: key 'dp' is 0, expected an integer from 1 to 1024");
  refused(R"({"tp": -2})", "--layout: key 'tp' is -2, expected an integer from 1 to 1024");
  refused(R"({"ep": 1.5})", "--layout: key 'ep' is 1.5, expected an integer from 1 to 1024");
  refused(R"({"cp": 2, "cp_comm_type": "a2a"})", "'cp_comm_type' is \"a2a\"");
  refused(R"({"fsdp": 2})", "--layout: unknown key 'fsdp'");
  refused("[2]", "--layout: found an array");
  refused("{\"dp\"", "--layout: ");
}

BOOST_AUTO_TEST_CASE(the_rank_program_refuses_layouts_that_cannot_be) {
  const auto refused = [&](const std::string& model, const std::string& layout,
                           const std::string& rule) {
    std::filesystem::remove(folder.file("err"));
    SystemProcessRunner runner;
    const Command command{
        {tests::bin("moetune-rank"), "--verify",
         std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/" + model, "--layout", layout},
        {},
        "/dev/null",
        folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    const std::string error = tests::read_text(folder.file("err"));
    BOOST_TEST_CONTEXT(layout << ": " << error) {
      BOOST_TEST(end->code == 2);
      BOOST_TEST(error.find("impossible") != std::string::npos);
      BOOST_TEST(error.find("(" + rule + ")") != std::string::npos);
    }
  };
  refused("mixtral", R"({"tp": 3})", "tp_divides_heads");
  refused("mixtral", R"({"tp": 4})", "tp_divides_heads");
  refused("mixtral", R"({"dp": 2, "etp": 2, "ep": 2})", "ep_divides_plane");
  refused("mixtral", R"({"dp": 5, "etp": 5})", "etp_divides_width");
  refused("mixtral", R"({"vpp": 2})", "vpp_needs_pp");
  // All that are broken, not the first.
  for (const char* rule : {"tp_divides_heads", "vpp_needs_pp"}) {
    refused("mixtral", R"({"tp": 3, "vpp": 2})", rule);
  }
  refused("mixtral", R"({"pp": 2, "vpp": 2})", "vpp_divides_layers");
  refused("qwen3_moe_mixed", R"({"dp": 2, "pp": 2, "vpp": 2})", "vpp_divides_micro_batches");
  refused("llama", R"({"cp": 5, "cp_comm_type": "p2p"})", "cp_divides_sequence");
}

BOOST_AUTO_TEST_CASE(the_rank_program_takes_every_axis_of_a_layout) {
  const auto verdict = [&](const std::string& layout) {
    std::filesystem::remove(folder.file("out"));
    SystemProcessRunner runner;
    const Command command{{tests::bin("moetune-rank"), "--verify",
                           std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/qwen3_moe_mixed",
                           "--format", "json", "--layout", layout},
                          {},
                          folder.file("out"),
                          folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_REQUIRE_MESSAGE(end->code == 0, tests::read_text(folder.file("err")));
    return json::parse(tests::read_text(folder.file("out")));
  };
  const json spread = verdict(
      R"({"tp": 2, "etp": 1, "cp": 2, "cp_comm_type": "p2p", "ep": 2, "pp": 2, "vpp": 2, "dp": 1})");
  BOOST_TEST(spread.at("ok") == true);
  // Sums in another order: the layout was not that of one rank.
  BOOST_TEST(spread != verdict("{}"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
