// Files that are no logs, or broken ones: facts or nothing, never a crash, never without bounds.
#include <boost/test/unit_test.hpp>
#include <random>

#include "kernels/base/error.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(hostile_logs)

namespace {

using golden_logs::facts_of;
using golden_logs::megatron_step;
using golden_logs::megatron_steps;

/// JSON that is no UTF-8 throws when it is written.
std::string dumped(const RunFacts& facts) { return to_json(facts).dump(); }

}  // namespace

BOOST_AUTO_TEST_CASE(broken_copies_of_all_logs) {
  std::mt19937_64 random(11);
  for (const std::string& name : golden_logs::all_names()) {
    const std::string text = golden_logs::text_of(name);
    for (int round = 0; round < 20; ++round) {
      std::string broken = text;
      for (int i = 0; i < 1 + round; ++i) {
        const size_t at = random() % broken.size();
        switch (random() % 5) {
          case 0:
            broken[at] = static_cast<char>(random());
            break;
          case 1:
            broken.resize(at + 1);
            break;
          case 2:
            broken.insert(at, broken.substr(random() % broken.size(), random() % 300));
            break;
          case 3:
            broken.erase(at, random() % 100);
            break;
          default:
            broken.insert(at, "99999999999999999999999999");
        }
        if (broken.empty()) broken = "x";
      }
      BOOST_TEST_CONTEXT(name) {
        const RunFacts facts = facts_of(broken);
        BOOST_TEST(!dumped(facts).empty());
        BOOST_TEST(facts.num_steps >= 0);
        if (facts.step_time) BOOST_TEST(facts.step_time->median_s > 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(sizes_whose_product_is_too_large) {
  const std::string echo =
      "------------------------ arguments ------------------------\n"
      "  hidden_size ..................................... 64\n"
      "  num_attention_heads ............................. 4\n"
      "  num_layers ...................................... 4\n"
      "-------------------- end of arguments ---------------------\n";
  // In 64 bits the first is 0.
  for (const char* sizes :
       {"context-parallel size: 536870912, hierarchical context-parallel sizes: None, "
        "tensor-model-parallel size: 536870912, pipeline-model-parallel size: 64",
        "context-parallel size: 999999999, tensor-model-parallel size: 999999999, "
        "pipeline-model-parallel size: 999999999"}) {
    const std::string world = "using world size: 16, data-parallel size: 0, ";
    const RunFacts facts = facts_of(world + sizes + "\n" + echo + megatron_steps(1, 3));
    BOOST_TEST(facts.world_size.value_or(0) == 16);
    BOOST_TEST(!facts.parallel.dp);
  }
  const std::string bar =
      "Epoch 1: :   2%|x  | 9223372036854775807/100 [00:02<12:00, reduced_train_loss=9.900]\n";
  BOOST_TEST(facts_of(bar + megatron_steps(1, 3)).num_steps == 3);
}

BOOST_AUTO_TEST_CASE(cut_anywhere_a_log_tells_no_other_facts) {
  const std::string text = golden_logs::text_of("megatron_lm.log");
  const size_t begin = text.find("iteration       30/");
  const size_t end = text.find("saving checkpoint");
  for (size_t at = begin; at < end; ++at) {
    const RunFacts facts = facts_of(text.substr(0, at));
    BOOST_TEST_CONTEXT(text.substr(at < 20 ? 0 : at - 20, 20)) {
      BOOST_TEST(facts.num_nan_steps == 0);
      BOOST_TEST((facts.status == ForeignStatus::truncated));
      BOOST_TEST(facts.step_time->max_s <= 0.8150001);
    }
  }
}

BOOST_AUTO_TEST_CASE(sizes_that_make_no_sense) {
  const RunFacts facts = facts_of(
      "using world size: 99999999999999999999, data-parallel size: -3, context-parallel size: 0\n"
      "[Rank 99999999999] (after 1 iterations) memory (MB) | max allocated: 5.00\n"
      "[Rank 0] (after 1 iterations) memory (MB) | max allocated: -5.00 | max reserved: 1e300\n"
      " iteration 9223372036854775807/ 9223372036854775807 | elapsed time per iteration (ms): 1.0 "
      "|\n iteration 99999999999999999999/ 5 | elapsed time per iteration (ms): 1.0 |\n"
      "Building device mesh with parallelism: pp=1000000, dp_replicate=1000000, "
      "dp_shard=1000000, cp=1000000, tp=1000000\n"
      "Building 2-D device mesh with ['dp_shard', 'tp'], [1000000, 1000000]\n"
      "Building 2-D device mesh with ['dp_shard', 'tp'], [4\n");
  BOOST_TEST(!facts.parallel.dp.has_value());
  BOOST_TEST(!facts.peak_memory.has_value());
  BOOST_TEST(facts.steps.empty());
  BOOST_TEST(!dumped(facts).empty());
}

BOOST_AUTO_TEST_CASE(a_step_of_ages_or_of_less_than_none_has_no_time) {
  for (const char* time : {"99999999999999999999999999", "-1.0"}) {
    const RunFacts facts =
        facts_of(std::string(" iteration 5/ 6 | elapsed time per iteration (ms): ") + time +
                 " | lm loss: 2.5 |\n");
    BOOST_TEST_REQUIRE(facts.steps.size() == 1U);
    BOOST_TEST(!facts.steps[0].step_time_s.has_value());
    BOOST_TEST(!facts.step_time.has_value());
    BOOST_TEST(facts.loss.value_or(0) == 2.5);
  }
}

BOOST_AUTO_TEST_CASE(batches_beyond_all_bounds_are_left_out) {
  std::string text = megatron_steps(1, 3);
  for (size_t at = text.find("batch size:    64"); at != std::string::npos;
       at = text.find("batch size:    64")) {
    text.replace(at, 17, "batch size: 99999999999999999999999");
  }
  const RunFacts facts = facts_of(text);
  BOOST_TEST(facts.num_steps == 3);
  BOOST_TEST(!facts.global_batch_size.has_value());
}

BOOST_AUTO_TEST_CASE(very_many_of_everything) {
  std::string text;
  for (int rank = 0; rank < 3000; ++rank) {
    const std::string prefix = "[rank" + std::to_string(rank) + "]: ";
    text += prefix + "Traceback (most recent call last):\n" + prefix + "  File \"a.py\", line 1\n" +
            prefix + "RuntimeError: " + std::string(2000, 'x') + "\n";
  }
  for (int i = 0; i < 200; ++i) text += "- arguments -\n" + megatron_step(1) + megatron_step(2);
  text += "- arguments -\n";
  for (int i = 0; i < 10'000; ++i) {
    text += "  name" + std::to_string(i) + " ......... " + std::string(100, 'v') + "\n";
  }
  const RunFacts facts = facts_of(text);
  BOOST_TEST(facts.num_attempts == 201);  // the last shows only its arguments
  BOOST_TEST(facts.echoed.settings.size() <= 4096U);
  BOOST_TEST(dumped(facts).size() < 500'000U);
}

BOOST_AUTO_TEST_CASE(configurations_without_an_end) {
  const std::string deep = "Running with configs: {\"a\": " + std::string(100'000, '[') + "\n";
  BOOST_TEST(facts_of(deep + megatron_steps(1, 3)).num_steps == 3);
  const RunFacts open = facts_of("Running with configs: {\"a\": {\n" + megatron_steps(1, 3));
  BOOST_TEST(open.num_steps == 3);
  BOOST_TEST(!dumped(open).empty());
}

BOOST_AUTO_TEST_CASE(very_many_steps_keep_their_bounds) {
  std::string text;
  for (int step = 1; step <= 70'000; ++step) {
    text += " iteration " + std::to_string(step) +
            "/ 70000 | elapsed time per iteration (ms): 5 | " +
            "lm loss: 2 | number of skipped iterations: 1 | number of nan iterations: 0 |\n";
  }
  const RunFacts facts = facts_of(text);
  BOOST_TEST((facts.status == ForeignStatus::ok));
  BOOST_TEST(facts.num_steps == 70'000);
  BOOST_TEST(facts.num_skipped_steps == 70'000);
  BOOST_TEST(facts.steps.size() <= 65'537U);
  BOOST_TEST(facts.step_time->interval == 1);
  BOOST_TEST(facts.notes.size() == 1U);
}

BOOST_AUTO_TEST_CASE(lines_of_megabytes_between_steps) {
  const RunFacts facts = facts_of(megatron_steps(1, 50) + std::string(3'000'000, 'x') + "\n" +
                                  std::string(1000, '\0') + megatron_steps(51, 100));
  BOOST_TEST((facts.status == ForeignStatus::ok));
  BOOST_TEST(facts.num_steps == 100);
  BOOST_REQUIRE(facts.notes.size() == 1U);
  BOOST_TEST(facts.notes[0] == "run.log: 1 line is longer than 64 KiB: cut into pieces");
}

// Prefixes of launchers without an end, in lines and in tracebacks.
BOOST_AUTO_TEST_CASE(megabytes_of_prefixes) {
  std::string text =
      megatron_steps(1, 3) + "[rank1]: Traceback (most recent call last):\n[rank1]: ";
  for (int i = 0; i < 60'000; ++i) text += "[rank[rank7]:[rank-1/";
  text += "CUDA out of memory. Tried to allocate 2.00 MiB.";
  const RunFacts facts = facts_of(text + "\n");
  BOOST_TEST((facts.status == ForeignStatus::oom));
  BOOST_TEST(facts.root->rank == 7);
  BOOST_TEST(!dumped(facts_of(text + text)).empty());
}

BOOST_AUTO_TEST_CASE(what_is_no_log) {
  const std::string step = megatron_step(1);
  for (const std::string& text :
       {std::string(), std::string("hello\n"), "{\"traceEvents\": [\"" + step + "\"]}",
        "[\n {\"name\": \"" + step + "\"}]", "#!/bin/bash\necho \"" + step + "\"",
        std::string("SQLite format 3\0", 16) + step, "\x1f\x8b" + step,
        "import os\nprint('''" + step + "''')", std::string(5000, '\0') + step,
        std::string("model:\n  tensor_model_parallel_size: 2\n")}) {
    BOOST_TEST(!looks_like_log(text), text.substr(0, 40));
  }
  BOOST_TEST(looks_like_log("some\nwords\n" + step));
  BOOST_TEST(looks_like_log(step.substr(0, 200)));  // the head of a log may end anywhere
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_read) {
  BOOST_CHECK_THROW(read_log_file("/nowhere/run.log"), base::UsageError);
  BOOST_CHECK_THROW(read_log_file(golden_logs::folder()), base::UsageError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
