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
  // One value, spelled in two ways.
  BOOST_TEST(lines_of(run_of("--lr 1e-4"), run_of("--lr 0.0001")).empty());
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
  // A run without any of them says so.
  BOOST_TEST(
      lines_of(run_of(""), run_of("--lr 2e-4")) == (std::vector<std::string>{" -> --lr 2e-4"}),
      boost::test_tools::per_element());
  // What a log echoes is read without them, and without variables.
  dialects::RunConfig echo = run_of("--micro-batch-size 1 --tensor-model-parallel-size 1");
  echo.is_echo = true;
  dialects::RunConfig command = run_of("--lr 2e-4 --micro-batch-size 2");
  command.environment["NCCL_ALGO"] = "Ring";
  BOOST_TEST(lines_of(echo, command) ==
                 (std::vector<std::string>{"--micro-batch-size 1 -> --micro-batch-size 2"}),
             boost::test_tools::per_element());
  dialects::RunConfig other = before;
  other.dialect = dialects::Dialect::primus;
  for (const std::string& line : lines_of(other, after)) {
    BOOST_TEST(line.find("--lr") == std::string::npos, line);
  }
}

/// What knobs do not tell apart.
BOOST_AUTO_TEST_CASE(runs_of_one_dialect_are_compared_by_what_they_say) {
  using Lines = std::vector<std::string>;
  const auto differ = [](const dialects::RunConfig& before, const dialects::RunConfig& after,
                         const Lines& lines) {
    BOOST_TEST(lines_of(before, after) == lines, boost::test_tools::per_element());
  };
  differ(run_of("--fp8-format e4m3"), run_of("--fp8-format hybrid"),
         {"--fp8-format e4m3 -> --fp8-format hybrid"});
  const std::string full = "--recompute-granularity full ";
  differ(run_of(full + "--recompute-method uniform --recompute-num-layers 1"),
         run_of(full + "--recompute-method block --recompute-num-layers 2"),
         {"--recompute-method uniform -> --recompute-method block",
          "--recompute-num-layers 1 -> --recompute-num-layers 2"});
  differ(run_of("--cuda-graph-impl local"), run_of("--cuda-graph-impl transformer_engine"),
         {"--cuda-graph-impl local -> --cuda-graph-impl transformer_engine"});
  const auto layers = [](const std::string& count) {
    return dialects::import_run("pretrain_gpt.py --hidden-size 64 --num-layers " + count,
                                dialects::Dialect::megatron_lm);
  };
  differ(layers("4"), layers("8"), {"--num-layers 4 -> --num-layers 8"});
  // Also where one of them is an echo, as both say it.
  dialects::RunConfig echo = run_of("--fp8-format e4m3");
  echo.is_echo = true;
  differ(echo, run_of("--fp8-format hybrid"), {"--fp8-format e4m3 -> --fp8-format hybrid"});
}

namespace {

dialects::RunConfig titan_run(const std::string& batch, const std::string& mode,
                              const std::string& recipe) {
  return dialects::import_run("[training]\nlocal_batch_size = " + batch +
                                  "\n[parallelism]\npipeline_parallel_degree = 2\n"
                                  "[activation_checkpoint]\nmode = \"" +
                                  mode + "\"\n[quantize.linear.float8]\nrecipe_name = \"" + recipe +
                                  "\"\n",
                              dialects::Dialect::torchtitan);
}

}  // namespace

BOOST_AUTO_TEST_CASE(files_of_one_dialect_are_compared_by_what_they_say) {
  const dialects::RunConfig before = titan_run("16", "full", "rowwise");
  const dialects::RunConfig after = titan_run("8", "selective", "tensorwise");
  BOOST_TEST(lines_of(before, after) ==
                 (std::vector<std::string>{
                     "training.local_batch_size = 16 -> training.local_batch_size = 8",
                     "activation_checkpoint.mode = \"full\" -> activation_checkpoint.mode = "
                     "\"selective\"",
                     "quantize.linear.float8.recipe_name = \"rowwise\" -> "
                     "quantize.linear.float8.recipe_name = \"tensorwise\""}),
             boost::test_tools::per_element());
}

// Overrides do not say what their recipe holds.
BOOST_AUTO_TEST_CASE(a_whole_configuration_and_overrides_are_compared_where_both_say_it) {
  const auto bridge = [](const std::string& text) {
    return dialects::import_run(text, dialects::Dialect::megatron_bridge);
  };
  const std::string model = "model:\n  tensor_model_parallel_size: 2\n";
  const dialects::RunConfig whole =
      bridge(model + "train:\n  micro_batch_size: 1\noptimizer:\n  lr: 0.1\n  adam_eps: 1e-8\n");
  const dialects::RunConfig overrides = bridge(
      "train.py model.tensor_model_parallel_size=2 train.micro_batch_size=2 optimizer.lr=0.2");
  BOOST_TEST(lines_of(whole, overrides) ==
                 (std::vector<std::string>{"train.micro_batch_size=1 -> train.micro_batch_size=2",
                                           "optimizer.lr=0.1 -> optimizer.lr=0.2"}),
             boost::test_tools::per_element());
  // Between two of a kind what only one says counts.
  BOOST_TEST(
      lines_of(whole, bridge(model + "train:\n  micro_batch_size: 1\noptimizer:\n  lr: 0.1\n")) ==
          (std::vector<std::string>{"optimizer.adam_eps=1e-8 -> "}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_was_not_understood_is_not_told_in_other_words) {
  const dialects::RunConfig megatron =
      run_of("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  bool has_batch = false;
  for (const std::string& line : lines_of(megatron, titan_run("16", "memory_budget", "rowwise"))) {
    BOOST_TEST(line.find("activation_checkpoint.mode") == std::string::npos, line);
    has_batch = has_batch || line.find("parallelism.pipeline_parallel_degree") != std::string::npos;
  }
  BOOST_TEST(has_batch);
  const std::vector<std::string> known =
      lines_of(megatron, titan_run("16", "selective", "rowwise"));
  const std::string line =
      "activation_checkpoint.mode = full -> activation_checkpoint.mode = selective";
  BOOST_TEST((std::ranges::find(known, line) != known.end()));
}

BOOST_AUTO_TEST_CASE(lines_are_words_of_a_shell) {
  dialects::RunConfig before = run_of("");
  dialects::RunConfig after = run_of("--wandb-exp-name 'a; b $(id)' --data-path 0.5 '/x y'");
  after.environment["NCCL_ALGO"] = "Ring; id";
  BOOST_TEST(lines_of(before, after) ==
                 (std::vector<std::string>{" -> NCCL_ALGO='Ring; id'", " -> --data-path 0.5 '/x y'",
                                           " -> --wandb-exp-name 'a; b $(id)'"}),
             boost::test_tools::per_element());
  const std::string script = "train.py model.tensor_model_parallel_size=2 ";
  const auto bridge = [&](const std::string& more) {
    return dialects::import_run(script + more, dialects::Dialect::megatron_bridge);
  };
  BOOST_TEST(lines_of(bridge(""), bridge("'model.recompute_modules=[core_attn,moe]'")) ==
                 (std::vector<std::string>{" -> model.recompute_modules='[core_attn, moe]'"}),
             boost::test_tools::per_element());
  // An option of the script stands beside its overrides.
  BOOST_TEST(lines_of(bridge("--recipe a"), bridge("--recipe b")) ==
                 (std::vector<std::string>{"--recipe a -> --recipe b"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_kept_of_a_source_has_bounds) {
  const std::string many(5000, 'x');
  const dialects::RunConfig one = run_of("--save /" + many + "1");
  const dialects::RunConfig two = run_of("--save /" + many + "2");
  BOOST_REQUIRE(!one.stated.empty());
  BOOST_TEST(one.stated.back().key == "--save");
  BOOST_TEST(one.stated.back().value.size() == dialects::kMostStatedBytes);
  BOOST_TEST(one.stated.back().value.find("... (5002 bytes, ") != std::string::npos);
  BOOST_TEST(lines_of(one, two).size() == 1U);
  std::string flags;
  for (size_t i = 0; i < dialects::kMostStated; ++i) flags += "--a" + std::to_string(i) + " ";
  const dialects::RunConfig all = run_of(flags);
  BOOST_TEST(all.stated.size() == dialects::kMostStated);
  BOOST_REQUIRE(!all.notes.empty());
  BOOST_TEST(all.notes.front() == "it has 4098 settings: a comparison reads the first 4096");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
