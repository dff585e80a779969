// Pipeline layouts as text: what they spell out, and what is refused.
#include "engine/spec/pipeline_layout.h"

#include <boost/test/unit_test.hpp>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {
BOOST_AUTO_TEST_SUITE(pipeline_layout)

namespace {

using samples::contains;
using samples::usage_error;
using Stages = std::vector<std::string>;

std::string broken_rule(const std::string& layout, int64_t pp, int64_t vpp = 1, int64_t first = 0) {
  TrialSpec trial = samples::trial();  // four layers
  trial.knobs = {};
  trial.knobs.pipeline_model_parallel_size = pp;
  trial.knobs.virtual_pipeline_model_parallel_size = vpp;
  trial.knobs.decoder_first_pipeline_num_layers = first;
  trial.knobs.pipeline_model_parallel_layout = layout;
  trial.hardware.num_nodes = 1;
  trial.hardware.devices_per_node = pp;
  const auto violations = check_constraints(parts_of(trial));
  return violations.empty() ? "" : violations.front().rule;
}

BOOST_AUTO_TEST_CASE(stages_are_spelled_out) {
  BOOST_TEST(pipeline_stages_of("Et*3|(tt|)*2,tL") == (Stages{"Ettt", "tt", "tt", "tL"}),
             boost::test_tools::per_element());
  BOOST_TEST(pipeline_stages_of("E|(t|)*2 mL") == (Stages{"E", "t", "t", "mL"}),
             boost::test_tools::per_element());
  BOOST_TEST(pipeline_stages_of("E((t)*2|)*2L") == (Stages{"Ett", "tt", "L"}),
             boost::test_tools::per_element());
  BOOST_TEST(pipeline_stages_of("") == Stages{""}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(stages_are_written_as_short_as_people_write_them) {
  for (const char* text : {"Et*3|(tt|)*2t*4L", "Et|(tt|)*29m|L", "Et*4|(t*4|)*14tmL", "EtL", "E|L",
                           "Et|t|t*3|(t|)*2mmL"}) {
    BOOST_TEST(pipeline_layout_text(pipeline_stages_of(text)) == text);
  }
  BOOST_TEST(pipeline_layout_text({}) == "");
}

BOOST_AUTO_TEST_CASE(counted_ends_take_a_layer_of_theirs) {
  const auto text = [](int64_t layers, int64_t depth, int64_t stages, CountedEnds counted) {
    return pipeline_layout_text(counted_pipeline_stages(layers, depth, stages, counted));
  };
  BOOST_TEST(text(6, 0, 4, {true, true}) == "Et|(tt|)*2tL");
  BOOST_TEST(text(7, 1, 4, {false, true}) == "Ett|(tt|)*2tmL");
  BOOST_TEST(text(7, 0, 4, {true, false}) == "Et|(tt|)*2ttL");
  BOOST_TEST(text(2, 0, 4, {true, true}) == "E|(t|)*2L");
  BOOST_TEST(text(7, 0, 4, {true, true}) == "");
  BOOST_TEST(text(8, 0, 4, {}) == "Ett|(tt|)*2ttL");
  const auto lone = [](int64_t layers, int64_t depth, int64_t stages) {
    return pipeline_layout_text(lone_pipeline_stages(layers, depth, stages));
  };
  BOOST_TEST(lone(3, 0, 4) == "Et|(t|)*2L");
  BOOST_TEST(lone(2, 1, 4) == "E|(t|)*2mL");
  BOOST_TEST(lone(3, 2, 6) == "E|(t|)*3mm|L");
  BOOST_TEST(lone(3, 0, 6) == "");
  BOOST_TEST(lone(4, 1, 4) == "");
}

BOOST_AUTO_TEST_CASE(what_is_no_layout_is_refused_with_its_place) {
  const auto error = [](const std::string& text) {
    return usage_error([&] { pipeline_stages_of(text); });
  };
  BOOST_TEST(contains(error("Etx|tL"), "breaks the rule layout_text: 'x' at 2 is no letter"));
  BOOST_TEST(contains(error("E(tt|tL"), "a parenthesis is not closed"));
  BOOST_TEST(contains(error("Et)|tL"), "')' at 2 closes nothing"));
  BOOST_TEST(contains(error("Et*|tL"), "'*' at 2 needs a number"));
  BOOST_TEST(contains(error("Et*0|tL"), "'*' at 2 needs a number"));
  BOOST_TEST(contains(error("Et*99999999999999999999|tL"), "too large"));
  BOOST_TEST(contains(error("(((t*100)*100)*100)*100"), "more than 10000 letters"));
  BOOST_TEST(contains(error(std::string(1'000'000, 't')), "has 1000000 characters"));
  BOOST_TEST(contains(error(std::string(100, '(')), "too deep"));
  BOOST_TEST(contains(error(std::string("E\x01t")), "'?' at 1"));
}

BOOST_AUTO_TEST_CASE(a_layout_holds_for_its_ranks_and_layers) {
  BOOST_TEST(pipeline_stages_for("Et*3|(tt|)*6mL", 2, 15).size() == 8U);
  BOOST_TEST(pipeline_stages_for("EttL", 1, 2) == Stages{"EttL"}, boost::test_tools::per_element());
  const auto error = [](const std::string& text, int64_t pp, int64_t layers) {
    return usage_error([&] { pipeline_stages_for(text, pp, layers); });
  };
  BOOST_TEST(contains(error("Et|t|tL", 2, 3), "'Et|t|tL' has 3 stages, no multiple of pp 2"));
  BOOST_TEST(contains(error("Et*4|t*4L", 2, 48), "has 8 layers, the model 48"));
  BOOST_TEST(contains(error("t|EtL", 2, 2), "does not begin with the only embedding, E"));
  BOOST_TEST(contains(error("Et|EtL", 2, 2), "does not begin with the only embedding, E"));
  BOOST_TEST(contains(error("Et|Lt", 2, 2), "does not end with the only loss, L"));
  BOOST_TEST(contains(error("Et|t", 2, 2), "does not end with the only loss, L"));
}

BOOST_AUTO_TEST_CASE(layouts_that_do_not_add_up_break_named_rules) {
  BOOST_TEST(broken_rule("Ett|ttL", 2) == "");
  BOOST_TEST(broken_rule("Et|t|t|tL", 2) == "");
  BOOST_TEST(broken_rule("E|tt|tt|L", 2) == "");
  BOOST_TEST(broken_rule("Et|t|t|tL", 2, 2) == "");
  BOOST_TEST(broken_rule("Et|zt", 2) == "layout_text");
  BOOST_TEST(broken_rule(std::string(1 << 20, 't'), 2) == "layout_text");
  BOOST_TEST(broken_rule("Ett|tt|L", 2) == "layout_stages");    // three stages for two ranks
  BOOST_TEST(broken_rule("Ett|tL", 2) == "layout_stages");      // three layers of four
  BOOST_TEST(broken_rule("tt|ttL", 2) == "layout_stages");      // no embedding
  BOOST_TEST(broken_rule("Ett|tt", 2) == "layout_stages");      // no loss
  BOOST_TEST(broken_rule("ttE|ttL", 2) == "layout_stages");     // embedding behind layers
  BOOST_TEST(broken_rule("Ett|ttmL", 2) == "layout_stages");    // the engine has no MTP
  BOOST_TEST(broken_rule("Ett|ttL", 2, 2) == "layout_stages");  // contradicts the other knob
  BOOST_TEST(broken_rule("Ett|ttL", 2, 1, 1) == "layout_stages");
}

BOOST_AUTO_TEST_CASE(impossible_virtual_stages_break_named_rules) {
  BOOST_TEST(broken_rule("none", 2, 2) == "");
  BOOST_TEST(broken_rule("none", 1, 2) == "vpp_needs_pp");
  BOOST_TEST(broken_rule("none", 2, 3) == "vpp_divides_layers");
  BOOST_TEST(broken_rule("none", 2, 2, 1) == "vpp_divides_layers");
  TrialSpec trial = samples::trial();
  trial.knobs = {};
  trial.knobs.pipeline_model_parallel_size = 2;
  trial.knobs.virtual_pipeline_model_parallel_size = 2;
  trial.hardware.num_nodes = 1;
  trial.hardware.devices_per_node = 2;
  trial.training.global_batch_size = 7;
  const auto violations = check_constraints(parts_of(trial));
  BOOST_TEST_REQUIRE(violations.size() == 1U);
  BOOST_TEST(violations.front().rule == "vpp_divides_micro_batches");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec
