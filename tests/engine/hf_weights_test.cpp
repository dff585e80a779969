// Weights under public names: every spelling of experts gives the same values, any layout loads its
// shards, and what is gathered from a layout is the checkpoint again.
#include "engine/checkpoint/hf_weights.h"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tests/engine/written_safetensors.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(hf_weights)

namespace {

using base::UsageError;
using nlohmann::json;
using plan::ParamKind;
using tests::says;
using tests::TempFolder;

spec::ModelSpec small_model(const std::string& family, const json& changes = json::object()) {
  json config = {{"model_type", family},
                 {"vocab_size", 10},
                 {"hidden_size", 8},
                 {"intermediate_size", 6},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 2},
                 {"num_experts", 4},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 6},
                 {"mlp_only_layers", json::array()}};
  config.update(changes);
  return spec::model_from_json(config, "config.json");
}

using Tensors = std::map<std::string, TensorBytes>;

/// Every element of every tensor has its own value.
Tensors numbered(const HfNames& names) {
  Tensors tensors;
  float next = 1;
  for (const auto& [name, shape] : names.shapes()) {
    int64_t numel = 1;
    for (const int64_t dim : shape) numel *= dim;
    std::vector<float> values(static_cast<size_t>(numel));
    for (float& value : values) value = next++;
    tensors[name] = make_tensor(name, shape, values);
  }
  return tensors;
}

class Saved {
 public:
  explicit Saved(const Tensors& tensors) {
    std::vector<TensorBytes> list;
    for (const auto& [name, tensor] : tensors) list.push_back(tensor);
    write_safetensors(folder_.file("model.safetensors"), list);
    checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open_folder(folder_.file("")));
  }
  std::shared_ptr<const Checkpoint> checkpoint;

 private:
  TempFolder folder_;
};

spec::Knobs knobs_of(int64_t dp, int64_t cp, int64_t ep, int64_t pp) {
  spec::Knobs knobs;
  knobs.data_parallel_size = dp;
  knobs.context_parallel_size = cp;
  knobs.expert_model_parallel_size = ep;
  knobs.pipeline_model_parallel_size = pp;
  return knobs;
}

/// All elements of one rank's parameter, in its order.
std::vector<double> values_of(const InitialValue& initial, const plan::ParamDesc& param) {
  std::vector<double> values;
  param.for_stretches(0, param.numel(), [&](int64_t local, int64_t global, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values.push_back(initial(param, local + i, global + i));
  });
  return values;
}

const plan::ParamDesc& find(const plan::ParamPlan& plan, ParamKind kind) {
  for (const plan::ParamDesc& param : plan.params) {
    if (param.kind == kind) return param;
  }
  throw base::Error("no such parameter");
}

std::vector<float> floats(const TensorBytes& tensor) {
  const auto* begin = reinterpret_cast<const float*>(tensor.bytes.data());
  return {begin, begin + tensor.bytes.size() / 4};
}

}  // namespace

BOOST_AUTO_TEST_CASE(stacks_projections_and_experts_in_order) {
  const spec::ModelSpec model = small_model("mixtral");
  const Tensors tensors = numbered(HfNames(model, {"block_sparse_moe", false, true}));
  const Saved saved(tensors);
  const InitialValue initial = checkpoint_initial_value(model, saved.checkpoint);
  const auto expect = [&](const plan::ParamDesc& param, const std::vector<std::string>& names) {
    std::vector<double> expected;
    for (const std::string& name : names) {
      const std::vector<float> part = floats(tensors.at(name));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    BOOST_TEST(values_of(initial, param) == expected, boost::test_tools::per_element());
  };
  const plan::ParamPlan plan = plan::make_param_plan(model, knobs_of(1, 2, 2, 1), 1);
  const std::string attention = "model.layers.0.self_attn.";
  expect(find(plan, ParamKind::qkv),
         {attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"});
  // The second expert-parallel rank holds experts 2 and 3, gate before up.
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  expect(find(plan, ParamKind::expert_fc1), {experts + "2.w1.weight", experts + "2.w3.weight",
                                             experts + "3.w1.weight", experts + "3.w3.weight"});
  expect(find(plan, ParamKind::expert_fc2), {experts + "2.w2.weight", experts + "3.w2.weight"});
  expect(find(plan, ParamKind::head), {"lm_head.weight"});
  expect(find(plan, ParamKind::final_norm), {"model.norm.weight"});
}

BOOST_AUTO_TEST_CASE(every_spelling_of_experts_gives_the_same_weights) {
  const spec::ModelSpec model = small_model("qwen3_moe");
  const Tensors per_expert = numbered(HfNames(model, {"mlp", false, false}));
  Tensors numbered_names;
  Tensors fused;
  std::map<std::string, std::vector<float>> stacked;
  for (const auto& [name, tensor] : per_expert) {
    const size_t at = name.find("mlp.experts.");
    TensorBytes renamed = tensor;
    if (at == std::string::npos) {
      const size_t gate = name.find("mlp.gate.");
      if (gate != std::string::npos) renamed.name.replace(gate, 3, "block_sparse_moe");
      numbered_names[renamed.name] = renamed;
      fused[name] = tensor;
      continue;
    }
    const std::string expert(1, name[at + 12]);
    const std::string part = name.substr(at + 14);
    const std::string before = name.substr(0, at);
    renamed.name = before + "block_sparse_moe.experts." + expert +
                   (part.starts_with("gate") ? ".w1"
                    : part.starts_with("up") ? ".w3"
                                             : ".w2") +
                   ".weight";
    numbered_names[renamed.name] = renamed;
  }
  for (const std::string layer : {"0", "1"}) {
    const std::string prefix = "model.layers." + layer + ".mlp.experts.";
    for (const std::string expert : {"0", "1", "2", "3"}) {
      for (const std::string part : {"gate", "up", "down"}) {
        auto& to = stacked[prefix + (part == "down" ? "down_proj" : "gate_up_proj")];
        const auto values = floats(per_expert.at(prefix + expert + "." + part + "_proj.weight"));
        to.insert(to.end(), values.begin(), values.end());
      }
    }
  }
  for (const auto& [name, values] : stacked) {
    const bool is_down = name.ends_with("down_proj");
    fused[name] = make_tensor(
        name, is_down ? std::vector<int64_t>{4, 8, 6} : std::vector<int64_t>{4, 12, 8}, values);
  }
  const Saved a(per_expert);
  const Saved b(numbered_names);
  const Saved c(fused);
  const InitialValue from_a = checkpoint_initial_value(model, a.checkpoint);
  const InitialValue from_b = checkpoint_initial_value(model, b.checkpoint);
  const InitialValue from_c = checkpoint_initial_value(model, c.checkpoint);
  for (int rank = 0; rank < 4; ++rank) {
    const plan::ParamPlan plan = plan::make_param_plan(model, knobs_of(2, 2, 4, 1), rank);
    for (const plan::ParamDesc& param : plan.params) {
      const std::vector<double> expected = values_of(from_a, param);
      BOOST_TEST(values_of(from_b, param) == expected, boost::test_tools::per_element());
      BOOST_TEST(values_of(from_c, param) == expected, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(gathering_a_layout_gives_the_checkpoint_again) {
  for (const json& changes :
       {json{{"tie_word_embeddings", true}, {"attention_bias", true}},
        json{{"mlp_only_layers", {1}}}, json{{"shared_expert_intermediate_size", 4}}}) {
    BOOST_TEST_CONTEXT(changes.dump()) {
      const spec::ModelSpec model = small_model("qwen3_moe", changes);
      const HfNames names(model, {});
      const Tensors tensors = numbered(names);
      const Saved saved(tensors);
      const InitialValue initial = checkpoint_initial_value(model, saved.checkpoint);
      HfGather gather(names);
      for (const int rank : {0, 1, 2, 3}) {
        const plan::ParamPlan plan = plan::make_param_plan(model, knobs_of(2, 1, 2, 2), rank);
        for (const plan::ParamDesc& param : plan.params) {
          const bool is_expert =
              param.kind == ParamKind::expert_fc1 || param.kind == ParamKind::expert_fc2;
          if (param.is_tied_copy || (!is_expert && rank % 2 == 1)) continue;
          // In two pieces, as shards of a bucket cut them.
          const std::vector<double> values = values_of(initial, param);
          const size_t cut = values.size() / 3;
          gather.add(param, 0, std::span(values).first(cut));
          gather.add(param, static_cast<int64_t>(cut), std::span(values).subspan(cut));
        }
      }
      for (const auto& [name, values] : gather.tensors()) {
        const std::vector<float> expected = floats(tensors.at(name));
        BOOST_TEST(values == std::vector<double>(expected.begin(), expected.end()),
                   boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(incomplete_gathering_is_noticed) {
  const HfGather gather(HfNames(small_model("llama"), {}));
  BOOST_CHECK_THROW(static_cast<void>(gather.tensors()), base::Error);
}

BOOST_AUTO_TEST_CASE(a_tied_head_is_the_embedding) {
  const spec::ModelSpec model = small_model("llama", {{"tie_word_embeddings", true}});
  Tensors tensors = numbered(HfNames(model, {}));
  // Some exporters write it all the same, and rotary tables, too.
  tensors["lm_head.weight"] = make_tensor("lm_head.weight", {10, 8}, std::vector<float>(80, -1.0f));
  const std::string rotary = "model.layers.0.self_attn.rotary_emb.inv_freq";
  tensors[rotary] = make_tensor(rotary, {1}, std::vector<float>{1});
  const Saved saved(tensors);
  const InitialValue initial = checkpoint_initial_value(model, saved.checkpoint);
  const plan::ParamPlan plan = plan::make_param_plan(model, knobs_of(1, 1, 1, 2), 1);
  const plan::ParamDesc& head = find(plan, ParamKind::head);
  BOOST_TEST(head.is_tied_copy);
  BOOST_TEST(initial(head, 3, 3) ==
             static_cast<double>(floats(tensors.at("model.embed_tokens.weight"))[3]));
}

BOOST_AUTO_TEST_CASE(refuses_checkpoints_that_do_not_fit) {
  const spec::ModelSpec model = small_model("mixtral");
  const auto refuses = [&](const std::function<void(Tensors&)>& change, const char* name,
                           const char* message) {
    Tensors tensors = numbered(HfNames(model, {"block_sparse_moe", false, true}));
    change(tensors);
    const Saved saved(tensors);
    BOOST_CHECK_EXCEPTION(checkpoint_initial_value(model, saved.checkpoint), UsageError,
                          says(name, message));
  };
  const char* expert = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
  refuses([&](Tensors& t) { t.erase(expert); }, expert, "is missing");
  refuses(
      [&](Tensors& t) {
        t[expert] = make_tensor(expert, {6, 8}, std::vector<float>(48));
      },
      expert, "[6, 8], expected [8, 6]");
  refuses(
      [&](Tensors& t) {
        t[expert] = make_tensor(expert, {8, 6}, std::vector<int32_t>(48));
      },
      expert, "dtype I32");
  refuses([](Tensors& t) { t["extra"] = make_tensor("extra", {1}, std::vector<float>{1}); },
          "extra", "does not belong");
  refuses([](Tensors& t) { t.erase("lm_head.weight"); }, "lm_head.weight", "is missing");
}

BOOST_AUTO_TEST_CASE(refuses_to_name_endless_tensors) {
  const Saved saved({});
  const spec::ModelSpec model = small_model("mixtral", {{"num_hidden_layers", 1000},
                                                        {"num_local_experts", 16000},
                                                        {"num_experts", 16000},
                                                        {"hidden_size", 8}});
  BOOST_CHECK_EXCEPTION(checkpoint_initial_value(model, saved.checkpoint), UsageError,
                        says("tensors"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
