// The points of a sweep: axes in file order, what follows from other knobs, which points are legal.
#include "tuner/search_space.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "kernels/base/error.h"
#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(search_space)

namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;
using spec::Knobs;

/// Eight devices, plain data parallelism.
spec::SweepSpec sweep(std::map<std::string, std::vector<std::string>> space) {
  spec::SweepSpec made;
  made.base = samples::trial();
  made.base.knobs = {};
  made.base.knobs.data_parallel_size = 8;
  made.base.training.global_batch_size = 16;
  made.space = std::move(space);
  return made;
}

std::string text(const Knobs& knobs, const char* name) {
  return spec::get_knob(knobs, *spec::find_knob(name));
}

std::string first_rule(const SearchSpace& space, const Knobs& knobs) {
  const std::vector<spec::Violation> broken = space.check(knobs);
  return broken.empty() ? "" : broken.front().rule;
}

size_t num_different(const std::vector<Knobs>& points) {
  std::set<std::string> keys;
  for (const Knobs& point : points) keys.insert(knobs_key(point));
  return keys.size();
}

BOOST_AUTO_TEST_CASE(values_keep_file_order_and_fall_back_to_the_baseline) {
  spec::SweepSpec file = sweep({{"micro_batch_size", {"4", "1", "2"}}, {"recompute", {"full"}}});
  file.base.knobs.cuda_graph_modules = spec::GraphSet("attn");
  const SearchSpace space(file);
  BOOST_TEST(space.values("micro_batch_size") == (std::vector<std::string>{"4", "1", "2"}),
             boost::test_tools::per_element());
  BOOST_TEST(space.values("recompute") == std::vector<std::string>{"full"},
             boost::test_tools::per_element());
  BOOST_TEST(space.values("cuda_graph_modules") == std::vector<std::string>{"attn"},
             boost::test_tools::per_element());
  BOOST_TEST(space.is_tunable("micro_batch_size"));
  BOOST_TEST(!space.is_tunable("recompute"));  // one value is no choice
  BOOST_TEST(!space.is_tunable("cuda_graph_modules"));
}

BOOST_AUTO_TEST_CASE(unknown_knobs_and_illegal_values_are_refused) {
  const spec::SweepSpec file = sweep({});
  const SearchSpace space(file);
  BOOST_CHECK_THROW((void)space.values("micro_batch"), base::Error);
  const std::string illegal =
      samples::usage_error([&] { (void)space.with(file.base.knobs, "micro_batch_size", "many"); });
  BOOST_TEST(samples::contains(illegal, "micro_batch_size"), illegal);
  BOOST_TEST(samples::contains(illegal, "many"), illegal);
}

// knob, value, expected data-parallel size, expected first rule
const char* const kChanges[][4] = {
    {"context_parallel_size", "2", "4", ""},
    {"context_parallel_size", "4", "2", ""},
    {"pipeline_model_parallel_size", "4", "2", ""},
    {"expert_model_parallel_size", "8", "8", ""},
    {"pipeline_model_parallel_size", "3", "2", "world_size"},
    {"pipeline_model_parallel_size", "16", "1", "world_size"},
    {"expert_model_parallel_size", "3", "8", "ep_divides_plane"},
    {"micro_batch_size", "3", "8", "micro_batch_divides_global"},
    {"recompute", "norm", "8", ""},
};

BOOST_DATA_TEST_CASE(data_parallelism_follows_the_devices, data::xrange(std::size(kChanges)),
                     index) {
  const auto& [knob, value, data_parallel, broken] = kChanges[index];
  const spec::SweepSpec file = sweep({});
  const SearchSpace space(file);
  const Knobs knobs = space.with(file.base.knobs, knob, value);
  BOOST_TEST_CONTEXT(knob << " = " << value) {
    BOOST_TEST(text(knobs, knob) == value);
    BOOST_TEST(text(knobs, "data_parallel_size") == data_parallel);
    BOOST_TEST(first_rule(space, knobs) == broken);
    Knobs back = knobs;  // nothing else has moved
    spec::set_knob(back, *spec::find_knob(knob), text(file.base.knobs, knob));
    back.data_parallel_size = file.base.knobs.data_parallel_size;
    BOOST_TEST((back == file.base.knobs));
  }
}

BOOST_AUTO_TEST_CASE(data_parallelism_stays_where_it_is_an_axis) {
  const spec::SweepSpec file =
      sweep({{"data_parallel_size", {"4", "8"}}, {"context_parallel_size", {"1", "2"}}});
  const SearchSpace space(file);
  const Knobs knobs = space.with(file.base.knobs, "context_parallel_size", "2");
  BOOST_TEST(knobs.data_parallel_size == 8);
  BOOST_TEST(first_rule(space, knobs) == "world_size");
  int num_legal = 0;
  const std::vector<Knobs> points = space.all();
  for (const Knobs& point : points) num_legal += space.check(point).empty() ? 1 : 0;
  BOOST_TEST(points.size() == 4U);
  BOOST_TEST(num_legal == 2);  // 8 x 1 and 4 x 2
}

BOOST_AUTO_TEST_CASE(choices_without_meaning_become_neutral) {
  const spec::SweepSpec file = sweep({});
  const SearchSpace space(file);
  Knobs knobs = file.base.knobs;
  knobs.expert_model_parallel_size = 4;
  knobs.ep_chunks_forward = 2;
  knobs.ep_chunks_backward = 4;
  knobs.overlap_grad_reduce = true;
  // They mean something: nothing is touched.
  BOOST_TEST((space.completed(knobs) == knobs));
  const Knobs without_experts = space.with(knobs, "expert_model_parallel_size", "1");
  BOOST_TEST(without_experts.ep_chunks_forward == 1);
  BOOST_TEST(without_experts.ep_chunks_backward == 1);
  BOOST_TEST(without_experts.overlap_grad_reduce);
  const Knobs without_replicas = space.with(knobs, "pipeline_model_parallel_size", "8");
  BOOST_TEST(!without_replicas.overlap_grad_reduce);

  Knobs staged = space.with(file.base.knobs, "pipeline_model_parallel_size", "2");
  staged.decoder_first_pipeline_num_layers = 1;
  BOOST_TEST((space.completed(staged) == staged));
  const Knobs whole = space.with(staged, "pipeline_model_parallel_size", "1");
  BOOST_TEST(whole.decoder_first_pipeline_num_layers == 0);
  BOOST_TEST((space.completed(whole) == whole));
}

BOOST_AUTO_TEST_CASE(product_combines_the_named_axes_only) {
  const spec::SweepSpec file = sweep({{"pipeline_model_parallel_size", {"1", "2"}},
                                      {"expert_model_parallel_size", {"1", "4", "8"}},
                                      {"micro_batch_size", {"1", "2"}},
                                      {"recompute", {"none", "full"}}});
  const SearchSpace space(file);
  Knobs from = file.base.knobs;
  from.recompute = spec::RecomputeSet("norm");
  const std::vector<Knobs> points =
      space.product(from, {"pipeline_model_parallel_size", "expert_model_parallel_size",
                           "micro_batch_size", "context_parallel_size"});
  BOOST_TEST_REQUIRE(points.size() == 12U);
  BOOST_TEST(num_different(points) == 12U);
  for (const Knobs& point : points) {
    BOOST_TEST(point.recompute.text() == "norm");
    BOOST_TEST(point.context_parallel_size == 1);
    BOOST_TEST(point.data_parallel_size * point.pipeline_model_parallel_size == 8);
    // An expert group of eight does not fit into a stage of four.
    const bool fits =
        point.pipeline_model_parallel_size == 1 || point.expert_model_parallel_size < 8;
    BOOST_TEST(space.check(point).empty() == fits);
  }
  // The last named axis is the fastest.
  BOOST_TEST(points[0].micro_batch_size == 1);
  BOOST_TEST(points[1].micro_batch_size == 2);
  BOOST_TEST(points[2].expert_model_parallel_size == 4);
  BOOST_TEST(points[6].pipeline_model_parallel_size == 2);
}

BOOST_AUTO_TEST_CASE(points_that_completing_makes_equal_come_once) {
  const spec::SweepSpec file =
      sweep({{"expert_model_parallel_size", {"1", "2"}}, {"ep_chunks_forward", {"1", "2", "4"}}});
  const std::vector<Knobs> points = SearchSpace(file).all();
  BOOST_TEST(points.size() == 4U);  // 1 without experts, 3 with
  BOOST_TEST(num_different(points) == 4U);
}

BOOST_AUTO_TEST_CASE(without_axes_there_is_the_baseline) {
  const spec::SweepSpec file = sweep({});
  const std::vector<Knobs> points = SearchSpace(file).all();
  BOOST_TEST_REQUIRE(points.size() == 1U);
  BOOST_TEST((points[0] == file.base.knobs));
}

BOOST_AUTO_TEST_CASE(axes_of_which_every_value_is_illegal_are_named) {
  // Of 8 devices and a batch of 16 there are no groups of 3, and none of 5.
  const spec::SweepSpec file = sweep({{"expert_model_parallel_size", {"3", "5"}},
                                      {"micro_batch_size", {"1", "32"}},
                                      {"recompute", {"none", "full"}}});
  const std::vector<IllegalAxis> illegal = SearchSpace(file).illegal_axes();
  BOOST_REQUIRE(illegal.size() == 1U);
  BOOST_TEST(illegal.front().knob == "expert_model_parallel_size");
  BOOST_TEST(illegal.front().violation.rule != "");
}

// Legal with a layout of the space, though not with the base's.
BOOST_AUTO_TEST_CASE(an_axis_that_some_layout_allows_is_not_named) {
  const spec::SweepSpec file = sweep({{"pipeline_model_parallel_size", {"1", "2"}},
                                      {"virtual_pipeline_model_parallel_size", {"2"}}});
  BOOST_TEST(SearchSpace(file).illegal_axes().empty());
}

BOOST_AUTO_TEST_CASE(texts_and_keys_tell_knobs_apart) {
  const Knobs knobs;
  for (const spec::KnobRow& row : spec::knob_table()) {
    Knobs other = knobs;
    spec::set_knob(other, row, spec::samples::other_value(knobs, row));
    BOOST_TEST_CONTEXT(row.name) { BOOST_TEST(knobs_key(other) != knobs_key(knobs)); }
  }
  Knobs layout = knobs;
  layout.pipeline_model_parallel_size = 2;
  BOOST_TEST(layout_text(layout) == "dp 1, cp 1, ep 1, pp 2");
  BOOST_TEST(!is_same_layout(layout, knobs));
  layout = knobs;
  layout.recompute = spec::RecomputeSet("full");
  BOOST_TEST(is_same_layout(layout, knobs));
}

BOOST_AUTO_TEST_CASE(recompute_is_ordered_from_cheap_to_dear) {
  const std::vector<std::string> kLadder = {
      "none",      "norm",    "moe_act",      "norm,moe_act",
      "core_attn", "experts", "norm,experts", "norm,core_attn,moe_act,experts",
      "full"};
  BOOST_TEST(recompute_weight({}) == 0);
  for (size_t i = 1; i < kLadder.size(); ++i) {
    BOOST_TEST_CONTEXT(kLadder[i]) {
      BOOST_TEST(recompute_weight(spec::RecomputeSet(kLadder[i - 1])) <
                 recompute_weight(spec::RecomputeSet(kLadder[i])));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
