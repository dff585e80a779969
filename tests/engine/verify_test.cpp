// The engine against reference models on one rank and on layouts, and what verify says to folders
// that are broken.
#include "engine/verify.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/safetensors.h"
#include "engine/plan/layout.h"
#include "kernels/base/error.h"
#include "tests/engine/written_safetensors.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(verification)

namespace {

namespace fs = std::filesystem;
using base::UsageError;
using nlohmann::json;
using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string golden(const std::string& name) {
  return std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/" + name;
}

/// A reference model, a layout, and knobs that change how it is computed.
struct Case {
  const char* model;
  plan::Layout layout;
  std::function<void(spec::Knobs&)> change = [](spec::Knobs&) {};
};
std::ostream& operator<<(std::ostream& out, const Case& row) {
  const plan::Layout& l = row.layout;
  return out << row.model << " tp " << l.tp << " cp " << l.cp << " dp " << l.dp << " pp " << l.pp
             << " vpp " << l.vpp << " etp " << l.etp << " ep " << l.ep;
}

spec::Knobs knobs_of(const plan::Layout& layout) {
  spec::Knobs knobs;
  knobs.tensor_model_parallel_size = layout.tp;
  knobs.context_parallel_size = layout.cp;
  knobs.data_parallel_size = layout.dp;
  knobs.pipeline_model_parallel_size = layout.pp;
  knobs.virtual_pipeline_model_parallel_size = layout.vpp;
  knobs.expert_tensor_parallel_size = layout.etp;
  knobs.expert_model_parallel_size = layout.ep;
  return knobs;
}

void all_experts_chunked(spec::Knobs& knobs) {
  knobs.ep_chunks_forward = 3;
  knobs.ep_chunks_backward = 2;
  knobs.recompute = spec::RecomputeSet("norm,core_attn,moe_act,experts");
}

void ring(spec::Knobs& knobs) { knobs.cp_comm_type = spec::CpCommType::p2p; }

// 3 layers of qwen3_moe over 2 stages are an uneven split.
const Case kCases[] = {
    {"llama", {.cp = 1, .dp = 1, .pp = 1, .ep = 1}},
    {"llama", {.cp = 2, .dp = 1, .pp = 1, .ep = 1}},
    {"llama", {.cp = 2, .dp = 2, .pp = 2, .ep = 1}},  // the embedding is tied across stages
    {"llama", {.tp = 2}},
    {"llama", {.tp = 2, .cp = 2, .pp = 2}},
    {"llama", {.tp = 2}, [](spec::Knobs& k) { k.micro_batch_size = 2; }},
    {"llama", {.tp = 2, .pp = 2}, [](spec::Knobs& k) { k.recompute = spec::RecomputeSet("full"); }},
    {"llama", {.cp = 2}, ring},
    {"llama", {.tp = 2, .cp = 3, .pp = 2}, ring},
    {"mixtral", {.tp = 2}},
    {"mixtral", {.dp = 2, .etp = 2}},
    {"mixtral", {.tp = 2, .cp = 2, .etp = 2, .ep = 2}, all_experts_chunked},
    {"qwen3_moe", {.tp = 2, .cp = 2, .pp = 3, .etp = 4}, ring},
    {"qwen3_moe_mixed", {.cp = 2, .dp = 2, .etp = 2, .ep = 2}, ring},
    {"qwen3_moe_mixed", {.tp = 2, .cp = 2, .pp = 2, .etp = 1, .ep = 2, .vpp = 2}, ring},
    {"qwen3_moe_mixed", {.tp = 2, .pp = 2, .etp = 2, .vpp = 2}},
    {"qwen3_moe_mixed", {.cp = 3, .pp = 2, .ep = 3, .vpp = 2}, ring},
    {"qwen3_moe_mixed",
     {.tp = 2, .cp = 2, .pp = 2, .etp = 2, .ep = 2},
     [](spec::Knobs& k) {
       ring(k);
       k.pipeline_model_parallel_layout = "E|t|ttt|L";
     }},
    {"mixtral", {.tp = 2, .cp = 2, .ep = 4}, all_experts_chunked},
    {"qwen3_moe", {.tp = 2, .dp = 2, .pp = 2, .ep = 2}},
    {"qwen3_moe", {.tp = 2, .cp = 2, .pp = 3, .ep = 2}},
    {"qwen3_moe_mixed", {.tp = 2, .cp = 2, .ep = 2}, all_experts_chunked},
    {"llama",
     {.cp = 3, .dp = 2, .pp = 1, .ep = 1},
     [](spec::Knobs& k) { k.use_distributed_optimizer = false; }},
    {"llama_biased", {.cp = 1, .dp = 1, .pp = 1, .ep = 1}},
    {"llama_biased", {.cp = 1, .dp = 2, .pp = 2, .ep = 1}},
    {"llama_biased",
     {.cp = 2, .dp = 1, .pp = 3, .ep = 1},
     [](spec::Knobs& k) { k.recompute = spec::RecomputeSet("full"); }},
    {"mixtral", {.cp = 1, .dp = 1, .pp = 1, .ep = 1}},
    {"mixtral", {.cp = 2, .dp = 1, .pp = 1, .ep = 2}},
    {"mixtral", {.cp = 1, .dp = 2, .pp = 1, .ep = 2}},
    {"mixtral", {.cp = 2, .dp = 1, .pp = 2, .ep = 2}},
    {"mixtral", {.cp = 4, .dp = 1, .pp = 1, .ep = 4}, all_experts_chunked},
    {"qwen3_moe", {.cp = 1, .dp = 1, .pp = 1, .ep = 1}},
    {"qwen3_moe",
     {.cp = 1, .dp = 1, .pp = 1, .ep = 1},
     [](spec::Knobs& k) { k.micro_batch_size = 2; }},
    {"qwen3_moe", {.cp = 2, .dp = 1, .pp = 1, .ep = 2}},
    {"qwen3_moe", {.cp = 1, .dp = 2, .pp = 1, .ep = 2}},
    {"qwen3_moe", {.cp = 2, .dp = 1, .pp = 2, .ep = 2}},
    {"qwen3_moe", {.cp = 1, .dp = 1, .pp = 2, .ep = 1}},
    {"qwen3_moe",
     {.cp = 1, .dp = 1, .pp = 2, .ep = 1},
     [](spec::Knobs& k) { k.decoder_first_pipeline_num_layers = 1; }},
    {"qwen3_moe", {.cp = 2, .dp = 2, .pp = 2, .ep = 4}},
    {"qwen3_moe",
     {.cp = 2, .dp = 2, .pp = 1, .ep = 2},
     [](spec::Knobs& k) { k.use_distributed_optimizer = false; }},
    {"qwen3_moe_mixed", {.cp = 1, .dp = 1, .pp = 1, .ep = 1}},
    {"qwen3_moe_mixed", {.cp = 2, .dp = 1, .pp = 2, .ep = 2}, all_experts_chunked},
    {"qwen3_moe_mixed", {.cp = 3, .dp = 2, .pp = 1, .ep = 6}},
};

/// A copy of a reference model to damage.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    fs::copy(golden(name), folder_.file("model"), fs::copy_options::recursive);
  }
  [[nodiscard]] std::string path() const { return folder_.file("model"); }
  [[nodiscard]] std::string file(const std::string& name) const { return path() + "/" + name; }

  /// Changes one JSON file.
  void edit(const std::string& name, const std::function<void(json&)>& change) const {
    json document = json::parse(read_text(file(name), 1 << 20));
    change(document);
    write_text(file(name), document.dump());
  }
  /// Changes the tensors of one file, all F32.
  void edit_tensors(const std::string& name,
                    const std::function<void(std::map<std::string, TensorBytes>&)>& change) const {
    std::map<std::string, TensorBytes> tensors;
    {
      const SafetensorsFile old(file(name));
      for (const auto& [key, info] : old.tensors()) {
        const bool is_integer = info.dtype == "I32";
        tensors[key] = is_integer
                           ? make_tensor(key, info.shape, old.read_all<int32_t>(key, info.shape))
                           : make_tensor(key, info.shape, old.read_all<float>(key, info.shape));
      }
    }
    change(tensors);
    std::vector<TensorBytes> list;
    for (const auto& [key, tensor] : tensors) list.push_back(tensor);
    write_safetensors(file(name), list);
  }
  VerifyResult run() const { return verify(path(), spec::Knobs{}); }

 private:
  TempFolder folder_;
};

float& first_float(TensorBytes& tensor) { return *reinterpret_cast<float*>(tensor.bytes.data()); }

}  // namespace

BOOST_DATA_TEST_CASE(matches_the_reference, kCases, row) {
  spec::Knobs knobs = knobs_of(row.layout);
  row.change(knobs);
  const VerifyResult result = verify(golden(row.model), knobs);
  BOOST_TEST_CONTEXT(to_json(result).dump()) {
    BOOST_TEST(result.ok);
    BOOST_TEST(result.logits_max_abs <= 2e-5);
    BOOST_TEST(result.gradient_worst_rel_l2 <= 2e-5);
    BOOST_TEST(result.router_mismatches == 0);
    // Exact equality would mean that nothing was compared.
    BOOST_TEST(result.logits_max_abs > 0);
    BOOST_TEST(result.gradient_worst_rel_l2 > 0);
  }
}

BOOST_AUTO_TEST_CASE(prints_exactly_the_promised_keys) {
  const json document = to_json(verify(golden("llama"), spec::Knobs{}));
  std::vector<std::string> keys;
  for (const auto& [key, value] : document.items()) keys.push_back(key);
  const std::vector<std::string> expected = {"grad_norm_max_rel",     "gradient_worst_name",
                                             "gradient_worst_rel_l2", "logits_max_abs",
                                             "loss_max_abs",          "ok",
                                             "router_mismatches"};
  BOOST_TEST(keys == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(notices_each_kind_of_difference) {
  {
    const Copy copy("mixtral");
    copy.edit_tensors("activations.safetensors",
                      [](auto& tensors) { first_float(tensors.at("logits")) += 1e-3f; });
    const VerifyResult result = copy.run();
    BOOST_TEST(!result.ok);
    BOOST_TEST(result.logits_max_abs > 9e-4);
    BOOST_TEST(result.router_mismatches == 0);
  }
  {
    const Copy copy("mixtral");
    copy.edit_tensors("activations.safetensors", [](auto& tensors) {
      auto* expert =
          reinterpret_cast<int32_t*>(tensors.at("model.layers.1.mlp.gate.indices").bytes.data());
      std::swap(expert[0], expert[1]);                               // the order does not matter
      expert[2] = (expert[2] + expert[3]) == 7 ? 0 : 7 - expert[3];  // another expert
    });
    const VerifyResult result = copy.run();
    BOOST_TEST(!result.ok);
    BOOST_TEST(result.router_mismatches == 1);
  }
  {
    const Copy copy("mixtral");
    const std::string name = "model.layers.1.block_sparse_moe.experts.5.w3.weight";
    copy.edit_tensors("gradients.safetensors",
                      [&](auto& tensors) { first_float(tensors.at(name)) += 1.0f; });
    const VerifyResult result = copy.run();
    BOOST_TEST(!result.ok);
    BOOST_TEST(result.gradient_worst_name == name);
  }
  {
    const Copy copy("llama");
    copy.edit("expected.json", [](json& j) {
      j["loss_per_step"][3] = j["loss_per_step"][3].get<double>() + 1e-4;
      j["grad_norm_per_step"][2] = j["grad_norm_per_step"][2].get<double>() * 1.001;
    });
    const VerifyResult result = copy.run();
    BOOST_TEST(!result.ok);
    BOOST_TEST(std::abs(result.loss_max_abs - 1e-4) < 1e-6);
    BOOST_TEST(std::abs(result.grad_norm_max_rel - 1e-3) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(notices_numbers_that_are_none) {
  const Copy copy("llama");
  copy.edit_tensors("activations.safetensors",
                    [](auto& tensors) { first_float(tensors.at("logits")) = std::nanf(""); });
  BOOST_TEST(!copy.run().ok);
}

BOOST_AUTO_TEST_CASE(the_optimizer_counts) {
  const Copy copy("llama");
  copy.edit("expected.json", [](json& j) { j["optimizer"]["weight_decay"] = 0.0; });
  const VerifyResult result = copy.run();
  BOOST_TEST(!result.ok);
  BOOST_TEST(result.loss_max_abs > 1e-5);
  BOOST_TEST(result.gradient_worst_rel_l2 < 5e-5);
}

BOOST_AUTO_TEST_CASE(refuses_impossible_layouts) {
  const auto refuses = [](const char* model, const plan::Layout& layout, const char* rule) {
    BOOST_CHECK_EXCEPTION(verify(golden(model), knobs_of(layout)), UsageError, says(model, rule));
  };
  refuses("mixtral", {.cp = 3, .ep = 3}, "ep_divides_experts");
  refuses("mixtral", {.ep = 2}, "ep_divides_plane");
  refuses("mixtral", {.pp = 3}, "pp_within_layers");
  refuses("mixtral", {.cp = 5}, "cp_divides_sequence");
  refuses("mixtral", {.dp = 4}, "micro_batch_divides_global");
  refuses("llama", {.dp = 0}, "sizes");
  refuses("mixtral", {.tp = 3}, "tp_divides_heads");
  refuses("mixtral", {.tp = 8}, "tp_divides_heads");
  refuses("mixtral", {.dp = 5, .etp = 5}, "etp_divides_width");
  refuses("mixtral", {.dp = 2, .etp = 2, .ep = 2}, "ep_divides_plane");
  refuses("mixtral", {.vpp = 2}, "vpp_needs_pp");
  refuses("mixtral", {.pp = 2, .vpp = 2}, "vpp_divides_layers");
  refuses("qwen3_moe_mixed", {.dp = 2, .pp = 2, .vpp = 2}, "vpp_divides_micro_batches");
}

// Before any tensor is read: a reference's may be large.
BOOST_AUTO_TEST_CASE(impossible_layouts_are_refused_before_tensors_are_read) {
  for (const char* model : {"mixtral", "llama"}) {
    const Copy copy(model);
    for (const auto& entry : fs::directory_iterator(copy.path())) {
      if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 3);
    }
    BOOST_CHECK_EXCEPTION(verify(copy.path(), knobs_of({.tp = 3})), UsageError,
                          says("impossible", "tp_divides_heads"));
    BOOST_CHECK_EXCEPTION(verify(copy.path(), spec::Knobs{}), UsageError, says(".safetensors"));
  }
}

BOOST_AUTO_TEST_CASE(expert_parallelism_means_nothing_to_a_dense_model) {
  BOOST_TEST(verify(golden("llama"), knobs_of({.cp = 2, .ep = 2})).ok);
  BOOST_CHECK_EXCEPTION(verify(golden("llama"), knobs_of({.etp = 5, .ep = 7})), UsageError,
                        says("llama", "ep_divides_plane"));
}

BOOST_AUTO_TEST_CASE(refuses_broken_folders) {
  BOOST_CHECK_EXCEPTION(verify("/nowhere", spec::Knobs{}), UsageError,
                        says("/nowhere/config.json"));
  for (const char* name :
       {"config.json", "expected.json", "model.safetensors", "tokens.safetensors",
        "activations.safetensors", "gradients.safetensors"}) {
    BOOST_TEST_CONTEXT(name) {
      const Copy cut("llama");
      fs::resize_file(cut.file(name), fs::file_size(cut.file(name)) - 3);
      BOOST_CHECK_EXCEPTION(cut.run(), UsageError, says(name));
      fs::remove(cut.file(name));
      BOOST_CHECK_THROW(cut.run(), UsageError);
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_what_does_not_fit_together) {
  const auto refuses = [](const char* file, const std::function<void(json&)>& change,
                          const char* message) {
    const Copy copy("llama");
    copy.edit(file, change);
    BOOST_CHECK_EXCEPTION(copy.run(), UsageError, says(message));
  };
  refuses(
      "config.json", [](json& j) { j["model_type"] = "deepseek_v4"; }, "deepseek_v4");
  refuses(
      "config.json", [](json& j) { j["intermediate_size"] = 56; },
      "model.safetensors: tensor \"model.layers.0.mlp.down_proj.weight\" has shape [32, 48], "
      "expected [32, 56]");
  refuses(
      "config.json", [](json& j) { j["num_hidden_layers"] = 3; }, "model.layers.2.");
  refuses(
      "config.json", [](json& j) { j["num_hidden_layers"] = 1; }, "does not belong");
  refuses(
      "config.json", [](json& j) { j["tie_word_embeddings"] = false; }, "lm_head.weight");
  refuses(
      "expected.json", [](json& j) { j["seq"] = 23; }, "tokens");
  refuses(
      "expected.json", [](json& j) { j["batch"] = "2"; }, "batch");
  refuses(
      "expected.json", [](json& j) { j["loss_per_step"].clear(); }, "at least one step");
  refuses(
      "expected.json", [](json& j) { j["grad_norm_per_step"].erase(0); }, "4 values");
  refuses(
      "expected.json", [](json& j) { j["loss_per_step"].push_back(1.0); }, "5 values");
  refuses(
      "expected.json", [](json& j) { j["optimizer"]["name"] = "sgd"; }, "adamw");
  refuses(
      "expected.json", [](json& j) { j["optimizer"].erase("lr"); }, "optimizer.lr");
}

BOOST_AUTO_TEST_CASE(refuses_tokens_outside_the_vocabulary) {
  const Copy copy("llama");
  copy.edit_tensors("tokens.safetensors", [](auto& tensors) {
    *reinterpret_cast<int32_t*>(tensors.at("tokens").bytes.data()) = 64;
  });
  BOOST_CHECK_EXCEPTION(copy.run(), UsageError, says("token 64", "0 to 63"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
