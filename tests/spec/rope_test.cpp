// Rotary tables of each type. The expected frequencies are those of the reference implementation
// (transformers 5.23) for head_dim 16, rounded to float there.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::json;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(rope)

namespace {

struct Case {
  const char* name;
  json rope;
  int64_t num_positions;
  double scaling;
  std::vector<double> frequencies;
};
std::ostream& operator<<(std::ostream& out, const Case& row) { return out << row.name; }

const json kLlama3 = {{"rope_type", "llama3"},   {"rope_theta", 1e4},
                      {"factor", 8.0},           {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 32}};

json yarn(const json& changes) {
  json rope = {{"rope_type", "yarn"},
               {"rope_theta", 1e4},
               {"factor", 4.0},
               {"original_max_position_embeddings", 64}};
  rope.update(changes);
  return rope;
}

const std::vector<double> kYarn = {1.0,
                                   0.23717081546783447,
                                   0.04999999701976776,
                                   0.007905694656074047,
                                   0.0024999999441206455,
                                   0.0007905694656074047,
                                   0.0002500000118743628,
                                   7.905694656074047e-05};
const std::vector<double> kPlain = {1.0,  0.31622776601683794,   0.1,   0.031622776601683794,
                                    0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794};

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

const Case kCases[] = {
    {"default", {{"rope_type", "default"}}, 8, 1.0, kPlain},
    {"linear", {{"rope_type", "linear"}, {"factor", 4.0}}, 8, 1.0, scaled(kPlain, 0.25)},
    {"dynamic within", {{"rope_type", "dynamic"}, {"factor", 2.0}}, 256, 1.0, kPlain},
    {"dynamic beyond",
     {{"rope_type", "dynamic"}, {"factor", 2.0}},
     600,
     1.0,
     {1.0, 0.26244500279426575, 0.06887736916542053, 0.018076522275805473, 0.0047440920025110245,
      0.0012450632639229298, 0.00032676063710823655, 8.575668471166864e-05}},
    {"llama3",
     kLlama3,
     8,
     1.0,
     {1.0, 0.0958399772644043, 0.012500000186264515, 0.0039528473280370235, 0.0012499999720603228,
      0.00039528473280370235, 0.0001250000059371814, 3.9528473280370235e-05}},
    {"yarn", yarn(json::object()), 8, 1.138629436111989, kYarn},
    {"yarn, not truncated",
     yarn({{"rope_theta", 150000.0}, {"truncate", false}}),
     8,
     1.138629436111989,
     {1.0, 0.11690013855695724, 0.012703318148851395, 0.0028635566122829914, 0.0006454972317442298,
      0.00014550669584423304, 3.2799827749840915e-05, 7.3936716944444925e-06}},
    {"yarn, mscale", yarn({{"mscale", 1.0}, {"mscale_all_dim", 0.5}}), 8, 1.0648216253695715,
     kYarn},
    {"yarn, one mscale is none", yarn({{"mscale", 0.5}}), 8, 1.138629436111989, kYarn},
    {"yarn, given factor", yarn({{"attention_factor", 1.25}}), 8, 1.25, kYarn},
};

}  // namespace

BOOST_DATA_TEST_CASE(frequencies_match_the_reference, data::make(kCases)) {
  json config = samples::llama();
  config["head_dim"] = 16;
  config["rope_parameters"] = sample.rope;
  const RopeTable table = make_rope_table(model_from_json(config, "c"), sample.num_positions);
  BOOST_REQUIRE(table.half_dim == 8);
  BOOST_REQUIRE(table.cos.size() == static_cast<size_t>(sample.num_positions * 8));
  BOOST_REQUIRE(table.sin.size() == table.cos.size());
  const int64_t checked[] = {0, 1, 3, sample.num_positions - 1};
  for (const int64_t position : checked) {
    for (size_t i = 0; i < 8; ++i) {
      const double angle = static_cast<double>(position) * sample.frequencies[i];
      const size_t at = static_cast<size_t>(position * 8) + i;
      const double bound = 1e-9 + 1e-7 * angle;  // the expected frequency has float precision
      BOOST_TEST(std::abs(table.cos[at] - std::cos(angle) * sample.scaling) <= bound);
      BOOST_TEST(std::abs(table.sin[at] - std::sin(angle) * sample.scaling) <= bound);
    }
  }
}

BOOST_AUTO_TEST_CASE(impossible_tables_are_refused) {
  const ModelSpec model = model_from_json(samples::llama(), "c");
  BOOST_CHECK_THROW(make_rope_table(model, int64_t{1} << 40), base::Error);
  BOOST_CHECK_THROW(make_rope_table(model, -1), base::Error);
  ModelSpec unknown = model;
  unknown.rope.type = "other";
  BOOST_CHECK_THROW(make_rope_table(unknown, 4), base::Error);
  BOOST_TEST(make_rope_table(model, 0).cos.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
