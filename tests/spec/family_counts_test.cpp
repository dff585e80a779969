// Parameters of public models of the families that only plans know, from their sizes: against
// transformers' own count and against what their makers publish.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>

#include "engine/spec/hf_family.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::json;

BOOST_AUTO_TEST_SUITE(family_counts)

namespace {

ModelSpec read(const json& row) {
  return model_from_json(row.at("config"), row.at("name").get<std::string>());
}

/// Of each count: biases and norms that plans leave out, or have beside, told in Family::assumed.
constexpr double kLeftOut = 1e-4;
/// Makers round, and some leave out the embedding or the head.
constexpr double kRounded = 0.05;

}  // namespace

BOOST_AUTO_TEST_CASE(public_models_have_the_parameters_that_transformers_counts) {
  size_t num_counted = 0;
  for (const json& row : samples::public_models()) {
    BOOST_TEST_CONTEXT(row.at("name")) {
      const ModelSpec model = read(row);
      if (row.contains("total")) {
        const auto total = row.at("total").get<double>();
        const auto active = row.at("active").get<double>();
        BOOST_TEST(static_cast<double>(model.num_parameters()) == total,
                   boost::test_tools::tolerance(kLeftOut));
        BOOST_TEST(static_cast<double>(model.num_active_parameters()) == active,
                   boost::test_tools::tolerance(kLeftOut));
        // What has the family's own assumption is near, the others are equal.
        if (model_assumption(model).empty()) {
          BOOST_TEST(model.num_parameters() == row.at("total").get<int64_t>());
          BOOST_TEST(model.num_active_parameters() == row.at("active").get<int64_t>());
        }
        ++num_counted;
      }
      if (!row.contains("published_billions")) continue;
      const json& published = row.at("published_billions");
      BOOST_TEST(static_cast<double>(model.num_parameters()) / 1e9 == published[0].get<double>(),
                 boost::test_tools::tolerance(kRounded));
      BOOST_TEST(
          static_cast<double>(model.num_active_parameters()) / 1e9 == published[1].get<double>(),
          boost::test_tools::tolerance(kRounded));
    }
  }
  BOOST_TEST(num_counted >= 20U);
}

BOOST_AUTO_TEST_CASE(public_models_are_planned_and_not_run) {
  std::set<std::string> families;
  for (const json& row : samples::public_models()) {
    BOOST_TEST_CONTEXT(row.at("name")) {
      const ModelSpec model = read(row);
      families.insert(model.family);
      BOOST_TEST(engine_gap(model).ends_with(" planned, not run, by the engine yet"));
      const ModelSpec again = model_from_json(to_json(model), "again");
      BOOST_TEST(to_json(again) == to_json(model));
      BOOST_TEST(again.num_parameters() == model.num_parameters());
      BOOST_TEST(again.num_mtp_parameters() == model.num_mtp_parameters());
      BOOST_TEST(again.attention_window == model.attention_window,
                 boost::test_tools::per_element());
      BOOST_TEST(again.training_flops_per_token(32768) == model.training_flops_per_token(32768));
      BOOST_TEST(model_assumption(again) == model_assumption(model));
    }
  }
  for (const char* name :
       {"glm4_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "minimax_m2", "ernie4_5_moe",
        "bailing_moe", "bailing_moe_v2", "hunyuan_v1_moe", "olmoe", "llama4_text", "phi3", "phimoe",
        "granitemoe", "dbrx", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "nemotron"}) {
    BOOST_TEST(families.contains(name), name);
  }
}

// Of what no plan has a block for: why, and the name that was written.
BOOST_AUTO_TEST_CASE(families_without_blocks_say_what_is_missing) {
  for (const UnplannedFamily& family : kUnplannedFamilies) {
    BOOST_TEST(find_family(family.name) == nullptr, family.name);
    const std::string message = samples::usage_error([&] {
      model_from_json({{"model_type", family.name}}, "config.json");
    });
    BOOST_TEST(message == fmt::format("config.json: key 'model_type': model family '{}' is not "
                                      "planned yet: {}",
                                      family.name, family.why));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
