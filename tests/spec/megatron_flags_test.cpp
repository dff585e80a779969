// Flags of Megatron-LM: every knob of the table is said or said to have none, how each value is
// spelled, and that the block can be pasted into a shell.
#include "engine/spec/megatron_flags.h"

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <set>
#include <utility>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {
BOOST_AUTO_TEST_SUITE(flags_of_megatron)

namespace {

using samples::contains;

/// A trial in which every knob has something to say: experts, context ranks, no hand-written
/// stages.
TrialSpec trial_with(const std::vector<std::pair<std::string, std::string>>& knobs) {
  TrialSpec trial = samples::trial();
  for (const auto& [name, value] : knobs) set_knob(trial.knobs, *find_knob(name), value);
  return trial;
}

/// "--a 1 --b": the flags whose names have one of the parts.
std::string flags_like(const TrialSpec& trial, const std::vector<std::string>& parts) {
  std::string text;
  for (const MegatronFlag& flag : megatron_flags(trial).flags) {
    if (std::ranges::none_of(parts, [&](const auto& part) { return contains(flag.name, part); })) {
      continue;
    }
    text += (text.empty() ? "" : " ") + flag.name;
    for (const std::string& value : flag.values) text += " " + value;
  }
  return text;
}

std::string notes_of(const TrialSpec& trial) {
  std::string text;
  for (const std::string& note : megatron_flags(trial).notes) text += note + "\n";
  return text;
}

struct Spelling {
  std::vector<std::pair<std::string, std::string>> knobs;
  std::vector<std::string> parts;
  std::string expected;
};
std::ostream& operator<<(std::ostream& out, const Spelling& row) { return out << row.expected; }

const std::vector<Spelling> kSpellings = {
    {{}, {"tensor-model", "sequence-par"}, "--tensor-model-parallel-size 1"},
    {{{"tensor_model_parallel_size", "2"}},
     {"tensor-model", "sequence-par"},
     "--tensor-model-parallel-size 2 --sequence-parallel"},
    {{}, {"context", "cp-comm"}, "--context-parallel-size 2 --cp-comm-type allgather"},
    {{{"cp_comm_type", "p2p"}}, {"cp-comm"}, "--cp-comm-type p2p"},
    {{{"context_parallel_size", "1"}}, {"context", "cp-comm"}, "--context-parallel-size 1"},
    {{},
     {"expert-"},
     "--moe-shared-expert-intermediate-size 24 --expert-model-parallel-size 4 "
     "--expert-tensor-parallel-size 1"},
    {{}, {"decoder", "virtual", "layout"}, ""},
    {{{"decoder_first_pipeline_num_layers", "1"}, {"decoder_last_pipeline_num_layers", "3"}},
     {"decoder"},
     "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3"},
    {{{"virtual_pipeline_model_parallel_size", "2"}},
     {"virtual"},
     "--num-virtual-stages-per-pipeline-rank 2"},
    {{{"pipeline_model_parallel_layout", "Et|t|t|tL"},
      {"virtual_pipeline_model_parallel_size", "2"}},
     {"virtual", "layout"},
     "--pipeline-model-parallel-layout Et|t|t|tL"},
    {{}, {"recompute"}, ""},
    {{{"recompute", "norm,core_attn,moe_act,experts"}},
     {"recompute"},
     "--recompute-granularity selective --recompute-modules layernorm core_attn moe_act moe"},
    {{{"recompute", "full"}},
     {"recompute"},
     "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"},
    {{}, {"graph", "nan"}, ""},
    {{{"cuda_graph_modules", "attn,moe_router,moe_preprocess"}},
     {"graph", "nan"},
     "--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router moe_preprocess"},
    {{{"cuda_graph_modules", "full_iteration"}},
     {"graph", "nan"},
     "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad"},
    {{}, {"optimizer", "exp-avg"}, "--use-distributed-optimizer"},
    {{{"use_distributed_optimizer", "false"}}, {"optimizer", "exp-avg"}, ""},
    {{{"exp_avg_dtype", "bf16"}},
     {"optimizer", "exp-avg"},
     "--use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 "
     "--exp-avg-sq-dtype fp32"},
    {{{"exp_avg_sq_dtype", "bf16"}},
     {"precision", "exp-avg"},
     "--use-precision-aware-optimizer --exp-avg-dtype fp32 --exp-avg-sq-dtype bf16"},
    {{}, {"overlap"}, ""},
    {{{"overlap_grad_reduce", "true"}}, {"overlap"}, "--overlap-grad-reduce"},
    {{}, {"batch", "seq-length"}, "--seq-length 128 --global-batch-size 8 --micro-batch-size 1"},
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_knob_has_a_flag_or_is_said_to_have_none) {
  const TrialSpec trial = trial_with({});
  const std::vector<std::string> words = words_of(megatron_flags(trial));
  for (const KnobRow& row : knob_table()) {
    BOOST_TEST_CONTEXT(row.name) {
      TrialSpec changed = trial;
      set_knob(changed.knobs, row, samples::other_value(trial.knobs, row));
      const std::vector<std::string> changed_words = words_of(megatron_flags(changed));
      if (!has_megatron_flag(row)) {
        BOOST_TEST(row.megatron_flag.starts_with("none ("));
        BOOST_TEST((changed_words == words));
        BOOST_TEST(contains(notes_of(changed), fmt::format("no flag in Megatron: {}={}", row.name,
                                                           get_knob(changed.knobs, row))));
        continue;
      }
      BOOST_TEST(!contains(notes_of(changed), std::string(row.name)));
      BOOST_TEST((changed_words != words));
      // All flags that the row names are said, with one of the two values.
      std::set<std::string> said(words.begin(), words.end());
      said.insert(changed_words.begin(), changed_words.end());
      for (std::string names(row.megatron_flag); !names.empty();) {
        const size_t end = std::min(names.find(", "), names.size());
        BOOST_TEST(said.contains(names.substr(0, end)), names.substr(0, end) << " is said");
        names.erase(0, std::min(end + 2, names.size()));
      }
    }
  }
}

BOOST_DATA_TEST_CASE(values_are_spelled_as_megatron_does, boost::unit_test::data::make(kSpellings),
                     row) {
  TrialSpec trial = trial_with(row.knobs);
  trial.model.shared_ffn_size = 24;
  BOOST_TEST(flags_like(trial, row.parts) == row.expected);
}

BOOST_AUTO_TEST_CASE(the_model_and_what_it_has_not) {
  TrialSpec trial = trial_with({});
  trial.dtype = DType::bf16;
  BOOST_TEST(flags_like(trial, {"bf16"}) == "--bf16");
  trial.model.is_moe_layer = {false, true, true, false};
  BOOST_TEST(flags_like(trial, {"moe-", "num-experts", "query"}) ==
             "--group-query-attention --num-query-groups 2 --num-experts 8 --moe-router-topk 2 "
             "--moe-ffn-hidden-size 16 --moe-layer-freq ([0]*1+[1]*2+[0]*1) "
             "--moe-token-dispatcher-type alltoall --moe-grouped-gemm");
  trial.model = model_from_json(samples::llama(), "model.json");
  BOOST_TEST(flags_like(trial, {"moe-", "expert"}) == "");
}

BOOST_AUTO_TEST_CASE(what_megatron_cannot_be_told_is_said) {
  BOOST_TEST(
      notes_of(trial_with({{"ep_chunks_forward", "2"}})) ==
      "no flag in Megatron: data_parallel_size=2 (derived: 8 ranks / (tensor 1 x context 2 x "
      "pipeline 2))\n"
      "no flag in Megatron: ep_chunks_forward=2\n"
      "no flag in Megatron: linear_ce_chunk_tokens=256\n");
  BOOST_TEST(contains(
      notes_of(trial_with({{"use_distributed_optimizer", "false"}, {"exp_avg_dtype", "bf16"}})),
      "Megatron takes --use-precision-aware-optimizer only with --use-distributed-optimizer\n"));
}

// A miniature of two layers on eight devices, for six layers on sixteen.
TrialSpec miniature() {
  TrialSpec trial = trial_with({});
  StandsFor& original = trial.stands_for.emplace();
  original.model = trial.model;
  original.model.hidden_size = 512;
  original.model.max_position_embeddings = 4096;
  original.model.num_layers = 6;
  original.model.is_moe_layer.assign(6, true);
  original.hardware = trial.hardware;
  original.hardware.num_nodes *= 2;
  original.seq_length = 4096;
  original.global_batch_size = 256;
  return trial;
}

BOOST_AUTO_TEST_CASE(a_miniature_has_the_sizes_of_what_it_stands_for) {
  const TrialSpec trial = miniature();
  BOOST_TEST(flags_like(trial, {"num-layers", "hidden-size", "seq-length", "batch-size"}) ==
             "--num-layers 6 --hidden-size 512 --moe-ffn-hidden-size 16 --seq-length 4096 "
             "--global-batch-size 256 --micro-batch-size 1");
  const std::string notes = notes_of(trial);
  BOOST_TEST(contains(notes, "stands for (6 layers, hidden size 512, 16 devices)\n"), notes);
  BOOST_TEST(contains(notes,
                      "tuned on a miniature (4 layers, hidden size 32, 8 devices), what to try "
                      "first: --micro-batch-size --tensor-model-parallel-size"),
             notes);
  BOOST_TEST(contains(notes, "data_parallel_size=4 (derived: 16 ranks"), notes);
  BOOST_TEST(!contains(notes, "not as it is"), notes);
  const std::string block = shell_block(megatron_flags(trial));
  BOOST_TEST(contains(block, "--micro-batch-size\n#   --tensor-model-parallel-size --context-"),
             block);
  for (size_t at = 0; at < block.size();) {
    const size_t end = block.find('\n', at);
    BOOST_TEST(end - at <= 120U, block.substr(at, end - at));
    at = end + 1;
  }
}

BOOST_AUTO_TEST_CASE(what_fits_only_the_miniature_is_said) {
  TrialSpec trial = miniature();
  set_knob(trial.knobs, *find_knob("decoder_first_pipeline_num_layers"), "1");
  set_knob(trial.knobs, *find_knob("decoder_last_pipeline_num_layers"), "3");
  BOOST_TEST(flags_like(trial, {"decoder"}) == "");
  BOOST_TEST(contains(notes_of(trial),
                      "left out: decoder_first_pipeline_num_layers=1, of the miniature's 4 layers "
                      "(here are 6)\n"));
  trial = miniature();
  trial.stands_for->global_batch_size = 257;
  BOOST_TEST(contains(notes_of(trial), "not as it is: "));
}

BOOST_AUTO_TEST_CASE(what_it_stands_for_is_read_again_and_is_no_part_of_the_identity) {
  const TrialSpec trial = miniature();
  const nlohmann::json written = to_json(trial);
  const TrialSpec again = trial_spec_from_json(written, "trial.json");
  BOOST_TEST(to_json(again) == written);
  TrialSpec plain = trial;
  plain.stands_for.reset();
  BOOST_TEST(!to_json(plain).contains("stands_for"));
  BOOST_TEST(spec_hash(plain) == spec_hash(trial));
}

BOOST_AUTO_TEST_CASE(the_block_can_be_pasted) {
  TrialSpec trial = trial_with({{"pipeline_model_parallel_layout", "Et*2|(t|)*1tL"},
                                {"recompute", "norm,moe_act"},
                                {"ep_chunks_forward", "4"}});
  trial.model.is_moe_layer[0] = false;
  trial.model.ffn_size = 48;
  const MegatronFlags flags = megatron_flags(trial);
  const std::string block = shell_block(flags);
  BOOST_TEST(
      block ==
      "--num-layers 4 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 4 "
      "\\\n"
      "--group-query-attention --num-query-groups 2 --kv-channels 8 --num-experts 8 "
      "--moe-router-topk 2 \\\n"
      "--moe-ffn-hidden-size 16 --moe-layer-freq '([0]*1+[1]*3)' "
      "--moe-token-dispatcher-type alltoall \\\n"
      "--moe-grouped-gemm \\\n"
      "--seq-length 128 --global-batch-size 8 --micro-batch-size 1 \\\n"
      "--tensor-model-parallel-size 1 --context-parallel-size 2 --expert-model-parallel-size "
      "4 \\\n"
      "--expert-tensor-parallel-size 1 --pipeline-model-parallel-size 2 \\\n"
      "--pipeline-model-parallel-layout 'Et*2|(t|)*1tL' \\\n"
      "--cp-comm-type allgather \\\n"
      "--recompute-granularity selective --recompute-modules layernorm moe_act \\\n"
      "--use-distributed-optimizer\n"
      "# no flag in Megatron: data_parallel_size=2 (derived: 8 ranks / (tensor 1 x context 2 "
      "x pipeline 2))\n"
      "# no flag in Megatron: ep_chunks_forward=4\n"
      "# no flag in Megatron: linear_ce_chunk_tokens=256\n");
  // A shell makes the same words of it.
  std::FILE* shell = popen(("printf '%s\\n' \\\n" + block).c_str(), "r");
  BOOST_REQUIRE(shell != nullptr);
  std::string heard;
  for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) heard += static_cast<char>(c);
  BOOST_TEST(pclose(shell) == 0);
  std::string expected;
  for (const std::string& word : words_of(flags)) expected += word + "\n";
  BOOST_TEST(heard == expected);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
