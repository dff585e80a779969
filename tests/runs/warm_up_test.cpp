// First steps that tell nothing of the others.
#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(warm_up)

namespace {

using golden_logs::facts_of;
using golden_logs::megatron_step;
using golden_logs::megatron_steps;

}  // namespace

BOOST_AUTO_TEST_CASE(warm_up_is_left_out) {
  std::string text = megatron_step(1);
  text.replace(text.find("1000.0"), 6, "9000.0");
  const RunFacts one = facts_of(text);
  BOOST_TEST(one.step_time->has_warmup);
  const RunFacts more = facts_of(text + megatron_steps(2, 4));
  BOOST_TEST(more.step_time->median_s == 1.0);
  BOOST_TEST(more.step_time->max_s == 1.0);
  BOOST_TEST(!more.step_time->has_warmup);
}

// Kernels that are chosen and compiled take more than a step. A slow one later is a slow one.
BOOST_AUTO_TEST_CASE(warm_up_may_take_several_steps) {
  const auto timed = [](int step, const std::string& ms) {
    std::string text = megatron_step(step);
    text.replace(text.find("1000.0"), 6, ms);
    return text;
  };
  const std::string first = megatron_step(1) + timed(2, "4000.0") + timed(3, "1600.0");
  const RunFacts long_one = facts_of(first + megatron_steps(4, 12));
  BOOST_TEST(long_one.step_time->num_lines == 9);
  BOOST_TEST(long_one.step_time->max_s == 1.0);
  const RunFacts later =
      facts_of(megatron_steps(1, 3) + timed(4, "4000.0") + megatron_steps(5, 12));
  BOOST_TEST(later.step_time->num_lines == 11);
  BOOST_TEST(later.step_time->max_s == 4.0);
  // A run that becomes slower was not warming up before.
  const RunFacts slowing =
      facts_of(megatron_step(1) + timed(2, "500.0") + timed(3, "500.0") + megatron_steps(4, 12));
  BOOST_TEST(slowing.step_time->num_lines == 11);
  BOOST_TEST(slowing.step_time->min_s == 0.5);
  // No more than a quarter.
  const RunFacts half = facts_of(first + timed(4, "4000.0") + megatron_steps(5, 8));
  BOOST_TEST(half.step_time->num_lines == 6);
}

// Megatron-LM since core 0.16 resets nothing after the first line: the second is the mean of two
// steps, and counts the first one's again.
BOOST_AUTO_TEST_CASE(the_second_line_has_the_first_step_in_it) {
  const auto line = [](int step, const std::string& ms, int num_skipped) {
    std::string text = megatron_step(step);
    text.replace(text.find("1000.0"), 6, ms);
    const std::string key = "skipped iterations:   ";
    text.replace(text.find(key) + key.size(), 1, std::to_string(num_skipped));
    return text;
  };
  const std::string two = line(1, "9000.0", 1) + line(2, "5000.0", 2);
  const RunFacts facts = facts_of(two + line(3, "1000.0", 1) + line(4, "1000.0", 0));
  BOOST_TEST(facts.num_skipped_steps == 3);
  BOOST_TEST(facts.step_time->num_lines == 2);
  BOOST_TEST(facts.step_time->max_s == 1.0);
  const RunFacts alone = facts_of(two);
  BOOST_TEST(alone.step_time->median_s == 1.0);
  BOOST_TEST(!alone.step_time->has_warmup);
  // What the clock does not say is taken as it stands.
  const RunFacts reset = facts_of(line(1, "9000.0", 1) + line(2, "1000.0", 1));
  BOOST_TEST(reset.num_skipped_steps == 2);
}

// Of the experts a rank has its share only: the sum over tensor and pipeline ranks is not the
// model.
BOOST_AUTO_TEST_CASE(parameters_with_expert_parallelism_are_the_rounded_ones) {
  const std::string sum =
      " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 4000000000\n";
  const std::string total = "Total number of parameters in billions: 30.53\n";
  const auto with_ep = [&](int ep) {
    return "+ torchrun --nproc_per_node=8 pretrain_gpt.py --seq-length 4096 --num-experts 128 "
           "--expert-model-parallel-size " +
           std::to_string(ep) + "\n" + sum + megatron_steps(1, 3);
  };
  BOOST_TEST(facts_of(with_ep(1) + total).num_parameters.value_or(0) == 4'000'000'000);
  BOOST_TEST(facts_of(with_ep(8) + total).num_parameters.value_or(0) == 30'530'000'000);
  BOOST_TEST(!facts_of(with_ep(8)).num_parameters.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
