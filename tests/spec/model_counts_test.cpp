// Parameters and training FLOPs of public models against published figures, data in the rows.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/library.h"
#include "engine/spec/model_spec.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::committed_model;
using samples::json;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(model_counts)

namespace {

/// Published, in 1e9 and without multi-token prediction and vision. Where a model's makers publish
/// two or three digits, the tolerance is wide: those figures name the model.
struct Count {
  const char* name;
  double total_billions;
  double active_billions;
  double tolerance_ratio;
  double active_tolerance_ratio = 0;  ///< 0: the same
};
std::ostream& operator<<(std::ostream& out, const Count& row) { return out << row.name; }

constexpr double kTwoPlaces = 2e-4;  // of figures with two places behind the point
const Count kCounts[] = {
    {"deepseek-v3", 671.03, 37.55, kTwoPlaces},
    {"kimi-k2", 1026.4, 32.86, kTwoPlaces},
    {"deepseek-v2", 235.74, 21.38, kTwoPlaces},
    {"moonlight-16b-a3b", 15.96, 2.91, 2e-3},
    {"qwen3-30b-a3b", 30.53, 3.35, 1e-3},
    {"qwen3-235b-a22b", 235.09, 22.19, kTwoPlaces},
    {"qwen3-next-80b-a3b", 79.67, 3.87, 2e-3},
    {"qwen3.5-35b-a3b", 34.66, 3.45, 2e-3},
    {"mixtral-8x7b", 46.70, 12.88, kTwoPlaces},
    {"mixtral-8x22b", 140.63, 39.16, kTwoPlaces},
    {"qwen2-57b-a14b", 57.41, 14.25, kTwoPlaces},
    {"gpt-oss-20b", 20.91, 4.19, 1e-3},
    {"gpt-oss-120b", 116.83, 5.71, 1e-3},
    {"llama3-8b", 8.03, 8.03, kTwoPlaces},
    {"llama3-70b", 70.55, 70.55, kTwoPlaces},
    {"llama3-405b", 405.85, 405.85, kTwoPlaces},
    // Model cards.
    {"nemotron-3-nano-30b-a3b", 31.6, 3.6, 6e-3},
    {"nemotron-3-super-120b-a12b", 120.6, 12.7, 6e-3},
    {"nemotron-3-ultra-550b-a55b", 550, 55, 2e-2},
    {"qwen3.5-122b-a10b", 122, 10, 3e-2},
    {"qwen3.5-397b-a17b", 397, 17, 3e-2},
    {"qwen3-8b", 8.2, 8.2, 2e-3},
    {"qwen2.5-32b", 32.8, 32.8, 2e-3},
    {"gpt-175b", 175, 175, 3e-3},
    // Of the checkpoint; the makers' active parameters are without the embedding.
    {"deepseek-v2-lite", 15.706, 2.4, kTwoPlaces, 0.12},
    {"qwen3-coder-480b-a35b", 480.15, 35, kTwoPlaces, 0.02},
};

json committed_config(const std::string& name) {
  const std::string path = find_in_library(Shelf::model, name);
  BOOST_REQUIRE_MESSAGE(!path.empty(), name << " is shipped");
  return json::parse(samples::read_file("engine/models/" + path.substr(path.rfind('/') + 1)));
}

/// GFLOP per trained token that published runs imply: TFLOP/s divided by tokens/s. `changes` makes
/// the model as it was run of the one that is shipped.
struct Work {
  const char* name;
  int64_t seq_length;
  double gflops;
  json changes;
};
std::ostream& operator<<(std::ostream& out, const Work& row) {
  return out << row.name << " at " << row.seq_length << " " << row.changes;
}

const Work kWork[] = {
    {"deepseek-v3", 4096, 259.99, {}},
    {"deepseek-v3", 4096, 249.81, {{"num_nextn_predict_layers", 0}}},
    {"deepseek-v3", 4096, 249.81, {{"num_nextn_predict_layers", nullptr}}},
    {"kimi-k2", 4096, 204.48, {}},
    {"kimi-k2", 4096, 204.48, {{"model_type", "deepseek_v3"}}},
    {"qwen3-30b-a3b", 4096, 23.006, {}},
    {"qwen3-235b-a22b", 4096, 148.03, {}},
    {"llama3-8b", 8192, 51.47, {}},
    {"llama3-70b", 8192, 449.22, {}},
    {"llama3-405b", 8192, 2523.96, {}},
    {"gpt-oss-120b", 4096, 32.63, {}},
    {"nemotron-3-nano-30b-a3b", 8192, 22.28, {}},
    {"nemotron-3-super-120b-a12b", 8192, 84.73, {}},
    // Published runs of these have odd accounting or none: by the formula alone, computed apart.
    {"gpt-oss-20b", 4096, 22.91, {}},
    {"nemotron-3-super-120b-a12b", 4096, 74.57, {{"num_nextn_predict_layers", 0}}},
    {"nemotron-3-ultra-550b-a55b", 8192, 358.92, {}},
    {"qwen3.5-35b-a3b", 4096, 18.94, {{"mtp_num_hidden_layers", 0}}},
    {"qwen3-next-80b-a3b", 8192, 23.948, {{"mtp_num_hidden_layers", 0}}},
    {"qwen2-57b-a14b", 4096, 84.654, {}},
    {"moonlight-16b-a3b", 4096, 17.153, {}},
    {"deepseek-v2", 4096, 13.27, {{"num_hidden_layers", 4}}},
    {"gpt-175b", 2048, 1061.95, {}},
};

}  // namespace

BOOST_DATA_TEST_CASE(published_sizes, data::make(kCounts)) {
  const ModelSpec model = model_from_json(committed_config(sample.name), sample.name);
  const auto billions = [](int64_t count) { return static_cast<double>(count) / 1e9; };
  const double active =
      sample.active_tolerance_ratio > 0 ? sample.active_tolerance_ratio : sample.tolerance_ratio;
  BOOST_TEST(billions(model.num_parameters()) == sample.total_billions,
             boost::test_tools::tolerance(sample.tolerance_ratio));
  BOOST_TEST(billions(model.num_active_parameters()) == sample.active_billions,
             boost::test_tools::tolerance(active));
}

BOOST_DATA_TEST_CASE(published_work_per_token, data::make(kWork)) {
  json config = committed_config(sample.name);
  if (!sample.changes.is_null()) config.update(sample.changes);
  const ModelSpec model = model_from_json(config, sample.name);
  BOOST_TEST(model.training_flops_per_token(sample.seq_length) / 1e9 == sample.gflops,
             boost::test_tools::tolerance(1e-3));
}

// The main model, and the block behind it without the embedding and the head that it shares.
BOOST_AUTO_TEST_CASE(deepseek_v3_to_the_last_weight) {
  const ModelSpec model = committed_model("deepseek_v3");
  const int64_t h = 7168;
  const int64_t attention = h * 1536 + 1536 * 128 * 192 + h * (512 + 64) + 512 * 128 * (128 + 128) +
                            128 * 128 * h + 1536 + 512;
  const int64_t experts = h * 256 + 257 * 3 * h * 2048;
  const int64_t dense = 3 * h * 18432;
  BOOST_TEST(model.num_parameters() ==
             2 * 129280 * h + h + 61 * (attention + 2 * h) + 3 * dense + 58 * experts);
  BOOST_TEST(model.num_mtp_parameters() == 3 * h + 2 * h * h + attention + experts + 2 * h);
}

BOOST_AUTO_TEST_CASE(repeated_blocks_have_one_set_of_weights_and_cost_each_time) {
  json config = committed_config("nemotron-3-super-120b-a12b");
  const ModelSpec repeated = model_from_json(config, "c");
  config["mtp_use_repeated_layer"] = false;
  const ModelSpec apart = model_from_json(config, "c");
  BOOST_TEST(apart.num_mtp_parameters() == 2 * repeated.num_mtp_parameters());
  BOOST_TEST(apart.num_parameters() == repeated.num_parameters());
  BOOST_TEST(apart.training_flops_per_token(4096) == repeated.training_flops_per_token(4096));
}

BOOST_AUTO_TEST_CASE(a_tiny_plain_gpt_by_hand) {
  const json config = {{"model_type", "megatron_gpt"}, {"vocab_size", 60},
                       {"padded_vocab_size", 64},      {"hidden_size", 32},
                       {"num_hidden_layers", 1},       {"num_attention_heads", 4},
                       {"max_position_embeddings", 16}};
  const ModelSpec model = model_from_json(config, "c");
  const int64_t attention = 4 * 32 * 32 + 4 * 32;
  const int64_t mlp = 2 * 32 * 128 + 128 + 32;
  BOOST_TEST(model.num_parameters() == 64 * 32 + 16 * 32 + attention + mlp + 3 * 2 * 32);
  const double linear = 32 * 64 + 4 * 32 * 32 + 2 * 32 * 128;
  BOOST_TEST(model.training_flops_per_token(10) == 6 * (linear + 10 * 32));
}

BOOST_AUTO_TEST_CASE(halves_of_layers_are_counted) {
  const ModelSpec model = committed_model("nemotron_3_nano_30b_a3b");
  BOOST_TEST(model.num_layers == 52);
  BOOST_TEST(model.num_moe_layers() == 23);
  BOOST_TEST(model.num_layers_with(FeedForward::moe) == 23);
  BOOST_TEST(model.num_layers_with(FeedForward::none) == 29);
  BOOST_TEST(model.num_layers_with(FeedForward::dense) == 0);
  BOOST_TEST((model.kind_of(5) == LayerKind{Mixer::gqa, FeedForward::none}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
