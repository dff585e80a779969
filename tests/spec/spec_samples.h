// Small valid documents for the tests of engine/spec; each test changes one thing in them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "engine/spec/trial_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec::samples {

using nlohmann::json;

inline std::string read_file(const std::string& relative_path) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/" + relative_path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Counts of public models of families that only plans know, with the `config` that is shipped.
inline json public_models() {
  json models = json::parse(read_file("tests/golden/models/public.json"));
  for (json& model : models) {
    if (model.contains("config")) continue;
    const auto name = model.at("name").get<std::string>();
    const std::string file = find_in_library(Shelf::model, library_name(name));
    model["config"] = json::parse(std::ifstream(file));
  }
  return models;
}

inline ModelSpec committed_model(const std::string& name) {
  const std::string path = "engine/models/" + name + ".json";
  return model_from_json(parse_json(read_file(path), path), path);
}

inline json llama() {
  return {{"model_type", "llama"},    {"vocab_size", 64},
          {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5}};
}

inline json mixtral() {
  json config = llama();
  config.update({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  return config;
}

inline json qwen3_moe() {
  json config = llama();
  config.update({{"model_type", "qwen3_moe"},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 16},
                 {"norm_topk_prob", true}});
  return config;
}

/// Two nodes of four devices.
inline json cluster() {
  return {{"name", "two-by-four"},
          {"num_nodes", 2},
          {"devices_per_node", 4},
          {"memory_bytes", 1 << 20},
          {"intra_node", {{"latency_ns", 1000}, {"bytes_per_s", 1e9}}},
          {"inter_node", {{"latency_ns", 5000}, {"bytes_per_s", 1e8}}},
          {"launch_ns", 2000}};
}

inline TrialSpec trial() {
  TrialSpec spec;
  spec.model = model_from_json(qwen3_moe(), "model.json");
  spec.hardware = hardware_from_json(cluster(), "hardware.json");
  spec.knobs.data_parallel_size = 2;
  spec.knobs.context_parallel_size = 2;
  spec.knobs.pipeline_model_parallel_size = 2;
  spec.knobs.expert_model_parallel_size = 4;
  spec.data_path = "corpus";
  return spec;
}

/// A value that the knob does not have.
inline std::string other_value(const Knobs& knobs, const KnobRow& row) {
  if (row.name == "pipeline_model_parallel_layout") return "Et|tL";
  if (row.name == "cp_comm_type") return "p2p";
  if (row.name.ends_with("_dtype")) return "bf16";
  if (row.name == "recompute") return "norm,core_attn,moe_act,experts";
  if (row.name == "cuda_graph_modules") return "attn,moe_router,moe_preprocess";
  const std::string now = get_knob(knobs, row);
  return now == "true" ? "false" : now == "false" ? "true" : "64";
}

/// The message of the base::UsageError that `action` throws; empty when it throws nothing. Other
/// types pass through and fail the test.
template <class Action>
std::string usage_error(Action&& action) {
  try {
    action();
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace moetune::spec::samples
