// Settings in which two runs differ: both sides of each, also of variables and of what moetune has
// no word for.
#include "sweeps/runs/compared_settings.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(compared_settings)

namespace {

namespace dialects = spec::dialects;

dialects::RunConfig run_of(const std::string& flags) {
  return dialects::import_run("torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 " + flags,
                              dialects::Dialect::megatron_lm);
}

/// "before -> after", a line each.
std::vector<std::string> lines_of(const dialects::RunConfig& before,
                                  const dialects::RunConfig& after) {
  std::vector<std::string> lines;
  for (const ComparedSetting& setting : differing_settings(before, after)) {
    lines.push_back(setting.before + " -> " + setting.after);
  }
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(both_sides_are_told) {
  const dialects::RunConfig before = run_of("--micro-batch-size 1 --overlap-grad-reduce");
  const dialects::RunConfig after = run_of("--micro-batch-size 2 --moe-permute-fusion");
  std::vector<std::string> lines = lines_of(before, after);
  std::ranges::sort(lines);
  BOOST_TEST(lines == (std::vector<std::string>{" -> --moe-permute-fusion",
                                                "--micro-batch-size 1 -> --micro-batch-size 2",
                                                "--overlap-grad-reduce -> "}),
             boost::test_tools::per_element());
  BOOST_TEST(lines_of(before, before).empty());
  BOOST_TEST(text_of({"--a", "--a 1", ""}) == "without --a");
  BOOST_TEST(text_of({"--a", "", "--a 1"}) == "--a 1");
}

BOOST_AUTO_TEST_CASE(variables_come_and_go) {
  dialects::RunConfig before = run_of("");
  dialects::RunConfig after = before;
  before.environment["NCCL_ALGO"] = "Ring";
  before.environment["NCCL_NVLS_ENABLE"] = "1";
  after.environment["NCCL_NVLS_ENABLE"] = "0";
  BOOST_TEST(lines_of(before, after) ==
                 (std::vector<std::string>{"NCCL_NVLS_ENABLE=1 -> NCCL_NVLS_ENABLE=0",
                                           "NCCL_ALGO=Ring -> "}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(flags_without_a_word_of_ours_are_told_where_both_may_have_them) {
  const dialects::RunConfig before = run_of("--lr 1e-4 --adam-eps 1e-8");
  const dialects::RunConfig after = run_of("--lr 2e-4 --log-throughput");
  BOOST_TEST(lines_of(before, after) ==
                 (std::vector<std::string>{"--adam-eps 1e-8 -> ", " -> --log-throughput",
                                           "--lr 1e-4 -> --lr 2e-4"}),
             boost::test_tools::per_element());
  // As what a log echoes is read.
  BOOST_TEST(lines_of(run_of(""), after).empty());
  dialects::RunConfig other = before;
  other.dialect = dialects::Dialect::primus;
  for (const std::string& line : lines_of(other, after)) {
    BOOST_TEST(line.find("--lr") == std::string::npos, line);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
