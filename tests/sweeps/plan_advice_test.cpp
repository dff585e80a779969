// What a plan advises beside a command: that no choice of the command stands in the way, that its
// steps make what they are priced as, and that ways out lead where they say.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;
using tests::contains;

BOOST_AUTO_TEST_SUITE(plan_advice)

namespace {

/// Of 16 devices.
const std::string kCommand =
    "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --expert-model-parallel-size 8 "
    "--micro-batch-size 1 --global-batch-size 128 --seq-length 4096 --bf16 "
    "--use-distributed-optimizer --moe-token-dispatcher-type alltoall --moe-grouped-gemm";

/// With Megatron's FSDP, whose gradients are in 16 bits, and the loss of Transformer Engine.
const std::string kSharded =
    "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 "
    "--sequence-parallel --expert-model-parallel-size 16 --expert-tensor-parallel-size 1 "
    "--micro-batch-size 4 --global-batch-size 256 --seq-length 4096 --bf16 "
    "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy "
    "optim_grads_params --recompute-granularity selective --recompute-modules layernorm moe_act "
    "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
    "--overlap-moe-expert-parallel-comm --cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
    "--moe-grouped-gemm --moe-permute-fusion --overlap-grad-reduce --overlap-param-gather "
    "--delay-wgrad-compute --no-gradient-accumulation-fusion";

json plan_of(Cli& cli, std::vector<std::string> words, int code = 0) {
  words.insert(words.begin(), {"plan", "--hardware", "h100-80g", "--format", "json"});
  const Answer answer = cli.run(words);
  BOOST_TEST_REQUIRE(answer.code == code, answer.err);
  return json::parse(answer.out);
}
json plan_against(Cli& cli, const std::string& command, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model", "qwen3-30b-a3b", "--against", command, "--top", "1"});
  return plan_of(cli, std::move(more));
}

/// The change of a knob; none where there is none.
const json* change_of(const json& changes, const std::string& knob) {
  const auto found =
      std::ranges::find_if(changes, [&](const json& change) { return change["knob"] == knob; });
  return found == changes.end() ? nullptr : &*found;
}

/// No step that fits is faster than the plan.
void check_plan_leads(const json& theirs) {
  for (const json& step : theirs["path"]) {
    if (step["missing_bytes"].get<int64_t>() > 0) continue;
    BOOST_TEST(step["cumulative_speed_ratio"].get<double>() <=
                   theirs["speed_ratio"].get<double>() * (1 + 1e-9),
               theirs["path"].dump());
  }
}

/// A command of Megatron-LM that flags are written into and left out of.
class MegatronCommand {
 public:
  explicit MegatronCommand(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) add(word);
  }
  void apply(const std::string& flag) {
    constexpr std::string_view kWithout = "without ";
    if (flag.starts_with(kWithout)) {
      const size_t before = settings_.size();
      erase(flag.substr(kWithout.size()));
      BOOST_TEST(settings_.size() + 1 == before, flag);  // it was there
      return;
    }
    if (!flag.starts_with("-")) {
      variables_ += flag + " ";
      return;
    }
    const size_t space = flag.find(' ');
    erase(flag.substr(0, space));
    settings_.emplace_back(flag.substr(0, space),
                           space == std::string::npos ? "" : flag.substr(space));
  }
  [[nodiscard]] std::string text() const {
    std::string text = variables_ + script_;
    for (const auto& [key, value] : settings_) text += " " + key + value;
    return text;
  }

 private:
  void add(const std::string& word) {
    if (script_.find(".py") == std::string::npos) {
      script_ += (script_.empty() ? "" : " ") + word;
    } else if (word.starts_with("--")) {
      settings_.emplace_back(word, "");
    } else {
      settings_.back().second += " " + word;
    }
  }
  void erase(const std::string& key) {
    std::erase_if(settings_, [&](const auto& one) { return one.first == key; });
  }

  std::string variables_;
  std::string script_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

/// Each step's flags, applied to the command, make the run that the step is priced as.
void check_steps(Cli& cli, const std::string& text, const std::string& model,
                 const json& document) {
  MegatronCommand command(text);
  for (const json& step : document["against"]["path"]) {
    for (const json& flag : step["flags"]) command.apply(flag.get<std::string>());
    const Answer again = cli.run({"estimate", "--run", command.text(), "--model", model,
                                  "--hardware", "h100-80g", "--format", "json"});
    BOOST_TEST_REQUIRE(again.code == 0, command.text() + again.err);
    const json row = json::parse(again.out)["rows"][0];
    BOOST_TEST(row["peak_allocated_bytes"] == step["peak_allocated_bytes"], command.text());
    BOOST_TEST(
        row["tokens_per_s_per_gpu"].get<double>() == step["tokens_per_s_per_gpu"].get<double>(),
        boost::test_tools::tolerance(1e-9));
  }
}

}  // namespace

// A choice of the command that costs speed is offered to be undone.
BOOST_FIXTURE_TEST_CASE(choices_of_a_command_are_free, Cli) {
  const double best =
      plan_against(*this, kCommand)["plans"][0]["tokens_per_s_per_gpu"].get<double>();
  const struct {
    std::string flags;
    std::string knob;
    std::string without;
    std::string column;
  } kChoices[] = {
      {" --attention-backend unfused", "fused_attention", "without --attention-backend",
       "unfused attention"},
      {" --fine-grained-activation-offloading --offload-modules core_attn attn_proj expert_fc1 "
       "moe_act",
       "offload", "without --fine-grained-activation-offloading", "offload core_attn"},
      {" --optimizer-cpu-offload --optimizer-offload-fraction 1.0 --use-precision-aware-optimizer",
       "optimizer_offload_ratio", "without --optimizer-cpu-offload",
       "optimizer 100 % in the host's memory"},
  };
  for (const auto& choice : kChoices) {
    BOOST_TEST_CONTEXT(choice.knob) {
      const std::string command = kCommand + choice.flags;
      const json document = plan_against(*this, command);
      const json& theirs = document["against"];
      BOOST_TEST(document["plans"][0]["tokens_per_s_per_gpu"].get<double>() >= 0.98 * best);
      const json* change = change_of(theirs["changes"], choice.knob);
      BOOST_TEST_REQUIRE((change != nullptr), theirs["changes"].dump());
      BOOST_TEST(contains((*change)["flags"].dump(), choice.without), change->dump());
      check_plan_leads(theirs);
      check_steps(*this, command, "qwen3-30b-a3b", document);
      const Answer text = run({"plan", "--hardware", "h100-80g", "--model", "qwen3-30b-a3b",
                               "--against", command, "--top", "1"});
      BOOST_TEST(contains(text.out.substr(text.out.find("\nyours: ")), choice.column), text.out);
    }
  }
}

// What is fixed is fixed, whatever the command says.
BOOST_FIXTURE_TEST_CASE(fixed_choices_of_a_command_stay, Cli) {
  const json document =
      plan_against(*this, kCommand + " --attention-backend unfused",
                   {"--fix", "fused_attention=false", "--fix", "tp=1", "--fix", "cp=1"});
  BOOST_TEST(document["plans"][0]["knobs"]["fused_attention"] == false);
  BOOST_TEST((change_of(document["against"]["changes"], "fused_attention") == nullptr));
}

BOOST_FIXTURE_TEST_CASE(what_is_kept_of_a_command_is_told, Cli) {
  const json document = plan_against(*this, kCommand + " --grad-reduce-in-bf16");
  BOOST_TEST(contains(document["assumptions"].dump(), "kept from your command: main_grads=bf16"),
             document["assumptions"].dump());
  BOOST_TEST(!contains(plan_against(*this, kCommand)["assumptions"].dump(), "kept from"));
  // Neither is what another framework has unasked.
  const json titan =
      plan_against(*this,
                   "torchrun --nproc-per-node 8 --nnodes 2 -m torchtitan.train --model.name qwen3 "
                   "--model.flavor 30B-A3B --parallelism.expert_parallel_degree 8 "
                   "--training.local_batch_size 1 --training.seq_len 4096");
  BOOST_TEST(!contains(titan["assumptions"].dump(), "kept from"), titan["assumptions"].dump());
}

BOOST_FIXTURE_TEST_CASE(variables_go_with_the_choice_that_needs_them, Cli) {
  const json document =
      plan_against(*this,
                   "NVTE_CPU_OFFLOAD_V1=1 " + kCommand +
                       " --fine-grained-activation-offloading --offload-modules core_attn",
                   {"--fix", "offload=none", "--fix", "tp=1", "--export", "megatron-lm"});
  const std::string path = document["against"]["path"].dump();
  BOOST_TEST(contains(path, "unset NVTE_CPU_OFFLOAD_V1"), path);
  BOOST_TEST(!contains(document["exported"].get<std::string>(), "NVTE_CPU_OFFLOAD_V1"));
}

BOOST_FIXTURE_TEST_CASE(sequences_are_not_cut_for_one_rank, Cli) {
  const json document = plan_against(*this, kCommand, {"--fix", "tp=1", "--export", "megatron-lm"});
  BOOST_TEST(!contains(document.dump(), "--sequence-parallel"));
  BOOST_TEST((change_of(document["against"]["changes"], "sequence_parallel") == nullptr));
}

// Layers of the first and the last stage hold for the command's own pipeline.
BOOST_FIXTURE_TEST_CASE(layers_of_the_ends_bind_no_plan, Cli) {
  const std::string piped =
      kCommand + " --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers ";
  const auto legal = [](const json& document) { return document["num_legal"].get<int64_t>(); };
  const json uneven = plan_against(*this, piped + "20");
  BOOST_TEST(legal(uneven) == legal(plan_against(*this, kCommand)));
  const json& theirs = uneven["against"];
  std::string flags;
  for (const json& step : theirs["path"]) flags += step["flags"].dump();
  BOOST_TEST(contains(flags, "without --decoder-first-pipeline-num-layers"), flags);
  check_plan_leads(theirs);
  check_steps(*this, piped + "20", "qwen3-30b-a3b", uneven);
}

// What gradients are kept in follows from FSDP, settings from others, and one flag means two.
BOOST_FIXTURE_TEST_CASE(steps_of_a_command_make_what_is_priced, Cli) {
  const json sharded = plan_against(*this, kSharded);
  check_plan_leads(sharded["against"]);
  check_steps(*this, kSharded, "qwen3-30b-a3b", sharded);
  const std::string recomputing =
      kCommand + " --recompute-activations --tensor-model-parallel-size 2 --sequence-parallel";
  const json again = plan_against(*this, recomputing);
  check_plan_leads(again["against"]);
  check_steps(*this, recomputing, "qwen3-30b-a3b", again);
}

// 94 layers on 8 stages: the command counts embedding and loss, a plan writes its stages.
BOOST_FIXTURE_TEST_CASE(counted_ends_go_with_their_stages, Cli) {
  const std::string command =
      "torchrun --nproc-per-node 8 --nnodes 32 pretrain_gpt.py --tensor-model-parallel-size 2 "
      "--pipeline-model-parallel-size 8 --expert-model-parallel-size 32 "
      "--expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 1 "
      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
      "--global-batch-size 2048 --seq-length 4096 --bf16 --use-distributed-optimizer "
      "--moe-token-dispatcher-type alltoall --recompute-activations --moe-grouped-gemm";
  const json document = plan_of(
      *this, {"--model", "qwen3-235b-a22b", "--against", command, "--top", "1", "--fix", "pp=8",
              "--fix", "vpp=4", "--fix", "tp=2", "--fix", "cp=1", "--fix", "ep=32"});
  check_plan_leads(document["against"]);
  check_steps(*this, command, "qwen3-235b-a22b", document);
}

// The options of a way out, and nothing else, lead to what it promises.
BOOST_FIXTURE_TEST_CASE(ways_out_lead_where_they_say, Cli) {
  const std::vector<std::string> words = {"--model", "qwen3-next-80b-a3b", "--gpus", "16"};
  const json document = plan_of(*this, words, 1);
  BOOST_TEST_REQUIRE(!document["ways_out"].empty());
  bool has_ratio = false;
  for (const json& way : document["ways_out"]) {
    const auto what = way["what"].get<std::string>();
    std::istringstream options(what.substr(what.rfind('(') + 1));
    std::vector<std::string> again = {"--model", "qwen3-next-80b-a3b"};
    std::string word;
    while (options >> word)
      again.push_back(word.ends_with(')') ? word.substr(0, word.size() - 1) : word);
    if (std::ranges::find(again, "--gpus") == again.end()) {
      again.insert(again.end(), {"--gpus", "16"});
    }
    has_ratio = has_ratio || contains(what, "optimizer_offload_ratio=0.");
    const auto missing = way["missing_bytes"].get<int64_t>();
    const json found = plan_of(*this, again, missing > 0 ? 1 : 0);
    if (missing <= 0) continue;
    BOOST_TEST(found["nearest_misses"][0]["missing_bytes"].get<int64_t>() <= missing, what);
  }
  // Of the optimizer's state the least share that has to go.
  BOOST_TEST(has_ratio, document["ways_out"].dump());
}

// Who gets along with one change is told of no two.
BOOST_FIXTURE_TEST_CASE(ways_out_are_as_simple_as_they_can_be, Cli) {
  const json document = plan_of(*this, {"--model", "deepseek-v3", "--gpus", "128"}, 1);
  const std::string ways = document["ways_out"].dump();
  BOOST_TEST(contains(ways, "gradients of 16 bits ("), ways);
  BOOST_TEST(!contains(ways, "gradients of 16 bits, and"), ways);
}

BOOST_FIXTURE_TEST_CASE(ways_out_are_not_taken_yet, Cli) {
  const json document = plan_of(*this,
                                {"--model", "qwen3-next-80b-a3b", "--gpus", "8", "--fix",
                                 "main_grads=bf16", "--fix", "precision_aware_optimizer=true"},
                                1);
  for (const json& way : document["ways_out"]) {
    BOOST_TEST(!contains(way["what"].get<std::string>(), "main_grads"), way.dump());
  }
}

// A command may say its model itself.
BOOST_FIXTURE_TEST_CASE(a_command_says_its_model, Cli) {
  const std::string sizes =
      kCommand +
      " --num-layers 16 --hidden-size 2048 --ffn-hidden-size 1024 --num-attention-heads 16 "
      "--group-query-attention --num-query-groups 4 --num-experts 32 --moe-router-topk 4 "
      "--swiglu --normalization RMSNorm --disable-bias-linear --vocab-size 32000 "
      "--untie-embeddings-and-output-weights --position-embedding-type rope "
      "--max-position-embeddings 4096 --export-nothing 1";
  const json said = plan_of(*this, {"--against", sizes, "--top", "1"});
  BOOST_TEST(!said["plans"].empty());
  check_plan_leads(said["against"]);
  const json recipe =
      plan_of(*this, {"--against",
                      "torchrun --nproc-per-node=8 --nnodes=4 run_recipe.py --recipe "
                      "qwen3_30b_a3b_pretrain_config model.expert_model_parallel_size=8 "
                      "train.micro_batch_size=1 train.global_batch_size=512 model.seq_length=4096 "
                      "model.moe_token_dispatcher_type=alltoall",
                      "--top", "1"});
  BOOST_TEST(contains(recipe["assumptions"].dump(), "by the name of the recipe"),
             recipe["assumptions"].dump());
  check_refused({"plan", "--hardware", "h100-80g", "--against", kCommand}, 2, {"model"});
}

BOOST_FIXTURE_TEST_CASE(the_routing_of_an_estimate_is_told, Cli) {
  const std::vector<std::string> words = {"estimate",      "--run",      kCommand,  "--model",
                                          "qwen3-30b-a3b", "--hardware", "h100-80g"};
  BOOST_TEST(contains(run(words).out, "assumed: the busiest rank's experts receive 1.00"));
  std::vector<std::string> loaded = words;
  loaded.insert(loaded.end(), {"--imbalance", "1.5", "--format", "json"});
  BOOST_TEST(contains(json::parse(run(loaded).out)["rows"][0]["assumed"].dump(), "receive 1.50"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
