// Models of families that plans know and the engine does not run, small and at full size, and what
// their tests ask of programs.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "tests/plan/program_checks.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan::testing {

using spec::FeedForward;
using spec::LayerKind;
using spec::Mixer;
using spec::ModelSpec;

inline constexpr LayerKind kMambaOnly{Mixer::mamba, FeedForward::none};
inline constexpr LayerKind kAttentionOnly{Mixer::gqa, FeedForward::none};
inline constexpr LayerKind kExpertsOnly{Mixer::none, FeedForward::moe};
inline constexpr LayerKind kDenseOnly{Mixer::none, FeedForward::dense};

inline void set_layers(ModelSpec& model, const std::vector<LayerKind>& kinds) {
  model.layer_kinds = kinds;
  model.num_layers = static_cast<int64_t>(kinds.size());
  model.is_moe_layer.clear();
  for (const LayerKind& kind : kinds) {
    model.is_moe_layer.push_back(kind.feed_forward == FeedForward::moe);
  }
  model.attention_window.assign(kinds.size(), 0);
}

/// As many layers, of which the first `num_dense` have no experts.
inline std::vector<LayerKind> layers_of(Mixer mixer, size_t count, size_t num_dense) {
  std::vector<LayerKind> kinds(count, {mixer, FeedForward::moe});
  for (size_t i = 0; i < num_dense; ++i) kinds[i].feed_forward = FeedForward::dense;
  return kinds;
}

/// DeepSeek-V3 at full size.
inline ModelSpec deepseek_v3() {
  ModelSpec m;
  m.family = "deepseek_v3";
  m.vocab_size = 129280;
  m.hidden_size = 7168;
  m.num_heads = 128;
  m.num_kv_heads = 128;
  m.head_dim = 192;
  m.mla = {1536, 512, 128, 64, 128};
  m.ffn_size = 18432;
  m.num_experts = 256;
  m.experts_per_token = 8;
  m.moe_ffn_size = 2048;
  m.shared_ffn_size = 2048;
  m.max_position_embeddings = 163840;
  m.has_router_bias = true;
  m.mtp = {1, {{Mixer::mla, FeedForward::moe}}, false};
  set_layers(m, layers_of(Mixer::mla, 61, 3));
  return m;
}

/// Qwen3-Next at full size.
inline ModelSpec qwen3_next() {
  ModelSpec m;
  m.family = "qwen3_next";
  m.vocab_size = 151936;
  m.hidden_size = 2048;
  m.num_heads = 16;
  m.num_kv_heads = 2;
  m.head_dim = 256;
  m.gdn = {4, 16, 32, 128, 128};
  m.ffn_size = 5120;
  m.num_experts = 512;
  m.experts_per_token = 10;
  m.moe_ffn_size = 512;
  m.shared_ffn_size = 512;
  m.max_position_embeddings = 262144;
  m.has_qk_norm = true;
  m.has_attention_gate = true;
  m.has_shared_gate = true;
  m.mtp = {1, {{Mixer::gqa, FeedForward::moe}}, false};
  std::vector<LayerKind> kinds = layers_of(Mixer::gdn, 48, 0);
  for (size_t i = 3; i < kinds.size(); i += 4) kinds[i].mixer = Mixer::gqa;
  set_layers(m, kinds);
  return m;
}

/// Qwen3.5-35B-A3B at full size, the text part.
inline ModelSpec qwen35() {
  ModelSpec m = qwen3_next();
  m.vocab_size = 248320;
  m.num_experts = 256;
  m.experts_per_token = 8;
  std::vector<LayerKind> kinds = layers_of(Mixer::gdn, 40, 0);
  for (size_t i = 3; i < kinds.size(); i += 4) kinds[i].mixer = Mixer::gqa;
  set_layers(m, kinds);
  return m;
}

/// Of Nemotron-3-Super's sizes, with an order of its 88 entries that makes 120 billion parameters.
inline ModelSpec nemotron_super() {
  ModelSpec m;
  m.family = "nemotron_h";
  m.vocab_size = 131072;
  m.hidden_size = 4096;
  m.num_heads = 32;
  m.num_kv_heads = 2;
  m.head_dim = 128;
  m.mamba = {128, 64, 128, 8, 4};
  m.num_experts = 512;
  m.experts_per_token = 22;
  m.moe_ffn_size = 2688;
  m.moe_latent_size = 1024;
  m.shared_ffn_size = 5376;
  m.max_position_embeddings = 262144;
  m.has_gated_mlp = false;
  m.has_router_bias = true;
  m.mtp = {2, {kAttentionOnly, kExpertsOnly}, true};
  std::vector<LayerKind> kinds;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 5; ++j) kinds.insert(kinds.end(), {kMambaOnly, kExpertsOnly});
    kinds.push_back(kAttentionOnly);
  }
  set_layers(m, kinds);
  return m;
}

/// What small models share.
inline ModelSpec small() {
  ModelSpec m;
  m.vocab_size = 64;
  m.hidden_size = 32;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = 8;
  m.ffn_size = 48;
  m.num_experts = 8;
  m.experts_per_token = 2;
  m.moe_ffn_size = 16;
  m.max_position_embeddings = 256;
  return m;
}

inline ModelSpec small_deepseek() {
  ModelSpec m = small();
  m.mla = {16, 8, 8, 4, 6};
  m.shared_ffn_size = 16;
  m.has_router_bias = true;
  m.mtp = {1, {{Mixer::mla, FeedForward::moe}}, false};
  set_layers(m, layers_of(Mixer::mla, 4, 1));
  return m;
}

/// With an indexer of keys.
inline ModelSpec small_deepseek_sparse() {
  ModelSpec m = small_deepseek();
  m.mla.index_heads = 2;
  m.mla.index_head_dim = 8;
  return m;
}

/// Queries in one step, two depths, an embedding that is the head.
inline ModelSpec small_moonlight() {
  ModelSpec m = small_deepseek();
  m.mla.q_lora_rank = 0;
  m.has_attention_output_bias = true;
  m.ties_embeddings = true;
  m.mtp.depth = 2;
  return m;
}

inline ModelSpec small_qwen3_next() {
  ModelSpec m = small();
  m.gdn = {4, 4, 8, 8, 8};
  m.shared_ffn_size = 16;
  m.has_qk_norm = true;
  m.has_attention_gate = true;
  m.has_shared_gate = true;
  m.mtp = {1, {{Mixer::gqa, FeedForward::moe}}, false};
  set_layers(m, {{Mixer::gdn, FeedForward::moe},
                 {Mixer::gdn, FeedForward::dense},
                 {Mixer::gdn, FeedForward::moe},
                 {Mixer::gqa, FeedForward::moe}});
  return m;
}

inline ModelSpec small_nemotron() {
  ModelSpec m = small();
  m.mamba = {8, 4, 8, 4, 4};
  m.moe_latent_size = 16;
  m.shared_ffn_size = 16;
  m.has_gated_mlp = false;
  m.has_router_bias = true;
  m.mtp = {2, {kAttentionOnly, kExpertsOnly}, true};
  set_layers(m, {kMambaOnly, kExpertsOnly, kAttentionOnly, kExpertsOnly, kMambaOnly, kDenseOnly});
  return m;
}

/// GPT-OSS: sinks, windows, biases everywhere.
inline ModelSpec small_gpt_oss() {
  ModelSpec m = small();
  m.has_attention_sinks = true;
  m.has_attention_bias = true;
  m.has_attention_output_bias = true;
  m.has_expert_bias = true;
  set_layers(m, layers_of(Mixer::gqa, 4, 0));
  m.attention_window = {16, 0, 16, 0};
  return m;
}

/// Llama 4: chunks of keys, which sequences are no multiple of; dense layers between others.
inline ModelSpec small_llama4() {
  ModelSpec m = small();
  m.shared_ffn_size = 16;
  m.has_chunked_windows = true;
  std::vector<LayerKind> kinds = layers_of(Mixer::gqa, 4, 0);
  kinds[0].feed_forward = kinds[2].feed_forward = FeedForward::dense;
  set_layers(m, kinds);
  m.attention_window = {24, 24, 24, 0};
  return m;
}

/// GPT-3: LayerNorm, learned positions, plain MLPs, more rows of the vocabulary than entries.
inline ModelSpec small_gpt() {
  ModelSpec m = small();
  m.num_experts = 0;
  m.experts_per_token = 0;
  m.num_kv_heads = 4;
  m.vocab_size = 60;
  m.padded_vocab_size = 64;
  m.has_attention_bias = true;
  m.has_attention_output_bias = true;
  m.has_mlp_bias = true;
  m.has_gated_mlp = false;
  m.has_layer_norm = true;
  m.has_learned_positions = true;
  m.ties_embeddings = true;
  set_layers(m, layers_of(Mixer::gqa, 4, 4));
  return m;
}

inline std::vector<std::pair<std::string, ModelSpec>> small_models() {
  return {{"deepseek", small_deepseek()},     {"moonlight", small_moonlight()},
          {"qwen3_next", small_qwen3_next()}, {"nemotron", small_nemotron()},
          {"gpt_oss", small_gpt_oss()},       {"gpt", small_gpt()},
          {"llama4", small_llama4()},         {"deepseek_sparse", small_deepseek_sparse()}};
}

inline spec::TrialSpec trial_of(const ModelSpec& model, const std::string& knobs = "{}",
                                int64_t seq_length = 128) {
  spec::TrialSpec trial = spec::samples::trial();
  trial.model = model;
  trial.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  trial.training.seq_length = seq_length;
  trial.training.global_batch_size = 8;
  trial.training.aux_loss_coeff = 0.01;
  trial.dtype = spec::DType::bf16;
  trial.hardware.devices_per_node = layout_of(trial.knobs).world_size();
  trial.hardware.num_nodes = 1;
  return trial;
}

/// What the formulas count: products, the core of attention, scans. Not the router's product and
/// not the one column of the shared experts' gate.
inline bool is_counted(Op op) {
  const spec::Work work = op_row(op).work;
  return op != Op::router_gemm && op != Op::shared_gate &&
         (work == spec::Work::product || work == spec::Work::grouped ||
          work == spec::Work::attention || work == spec::Work::scan);
}

/// Their FLOPs in one micro-batch of all ranks of one replica, in some passes and blocks.
inline int64_t flops_of(const spec::TrialSpec& trial,
                        const std::function<bool(const Segment&, const Instr&)>& is_it) {
  int64_t flops = 0;
  for (int rank = 0; rank < num_ranks(trial); ++rank) {
    const StepProgram program = compile(trial, rank);
    for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      if (instr.verb != Verb::op || item.micro_batch != 0) return;
      if (!is_counted(instr.op) || !is_it(segment, instr)) return;
      // Routed rows are balanced, and all chunks' together are a layer's.
      const int64_t num_chunks = instr.chunk >= 0 ? segment.num_chunks : 1;
      flops += cost_at(instr, segment.dims.received_rows / num_chunks).flops;
    });
  }
  return flops;
}

inline int64_t forward_flops(const spec::TrialSpec& trial, BlockKind block) {
  return flops_of(trial, [&](const Segment& segment, const Instr& instr) {
    return segment.block == block && instr.pass == Pass::forward;
  });
}

/// GFLOPs of a trained token, forward and backward, in sequences of so many.
inline double trained_gflops(const ModelSpec& model, int64_t seq_length) {
  const int64_t forward =
      flops_of(trial_of(model, "{}", seq_length),
               [](const Segment&, const Instr& instr) { return instr.pass == Pass::forward; });
  return 3 * static_cast<double>(forward) / static_cast<double>(seq_length) / 1e9;
}

/// Pairs of query and key of one sequence, half of all and the diagonal.
inline int64_t causal_pairs(int64_t length) { return length * (length + 1) / 2; }

/// All parameters that the ranks of a layout hold, copies counted once. Each parameter's pieces
/// must make up the whole of it.
inline std::map<std::string, int64_t> parameters_of(const ModelSpec& model,
                                                    const std::string& knobs) {
  const spec::Knobs parsed = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  const Layout layout = layout_of(parsed);
  std::map<std::string, int64_t> numel;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const ParamPlan plan = make_param_plan(model, parsed, rank);
    for (const ParamDesc& param : plan.params) {
      const BucketDesc& bucket = plan.buckets[static_cast<size_t>(param.bucket)];
      if (param.is_tied_copy || layout.rank_in(bucket.group, rank) != 0) continue;
      int64_t rows = 0;
      for (const RowRun& run : param.runs) rows += run.count;
      BOOST_TEST_REQUIRE(rows == param.rows, param.name << " is not made of its runs");
      numel[param.name] += param.numel();
    }
  }
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    for (const ParamDesc& param : make_param_plan(model, parsed, rank).params) {
      if (param.is_tied_copy) continue;
      BOOST_TEST(numel.at(param.name) == param.global_rows * param.global_cols, param.name);
    }
  }
  return numel;
}

inline int64_t sum_of(const std::map<std::string, int64_t>& numel) {
  int64_t sum = 0;
  for (const auto& [name, count] : numel) sum += count;
  return sum;
}

}  // namespace moetune::plan::testing
