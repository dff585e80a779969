// What knobs were worth, from made-up trials whose times are known.
#include "reports/knob_effects.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(knob_worth)

namespace {

store::TrialRow ran(int64_t id, const std::string& fast, const std::string& other,
                    int64_t step_ns) {
  store::TrialRow trial;
  trial.id = trial.ordinal = id;
  trial.phase = "retune";
  trial.status = "ok";
  trial.step_ns = step_ns;
  trial.step_ns_low = step_ns - 10;
  trial.step_ns_high = step_ns + 10;
  trial.knobs = {{"fast", fast}, {"other", other}, {"fixed", "1"}};
  return trial;
}

Context context_of(std::vector<store::TrialRow> trials) {
  Context context;
  context.trials = std::move(trials);
  context.varying_knobs = {"fast", "other"};
  return context;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_varies_alone_is_told_from_what_goes_along) {
  // "fast" is worth 100 %, "other" 1 % and then nothing that is clear of the noise.
  const Context context = context_of({ran(1, "a", "x", 2000), ran(2, "b", "x", 1000),
                                      ran(3, "a", "y", 2020), ran(4, "b", "y", 1001)});
  const std::vector<KnobEffect> effects = knob_effects(context);
  BOOST_REQUIRE(effects.size() == 2u);
  const KnobEffect& fast = effects[0];
  BOOST_TEST(fast.knob == "fast");
  BOOST_TEST(fast.num_settings == 2u);
  BOOST_TEST(fast.num_clear == 2u);
  BOOST_TEST(fast.most_ratio == 2020.0 / 1001 - 1, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(fast.best_value == "b");
  BOOST_TEST(fast.num_best == 2u);
  BOOST_TEST(fast.explained_ratio > 0.99);
  const KnobEffect& other = effects[1];
  BOOST_TEST(other.num_settings == 2u);
  BOOST_TEST(other.num_clear == 0u);
  BOOST_TEST(other.most_ratio == 0.01, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(other.explained_ratio < 0.01);
}

BOOST_AUTO_TEST_CASE(knobs_that_changed_together_were_never_alone) {
  const std::vector<KnobEffect> effects =
      knob_effects(context_of({ran(1, "a", "x", 2000), ran(2, "b", "y", 1000)}));
  BOOST_REQUIRE(effects.size() == 2u);
  for (const KnobEffect& effect : effects) {
    BOOST_TEST(effect.num_settings == 0u);
    BOOST_TEST(effect.explained_ratio == 1.0, boost::test_tools::tolerance(1e-9));
  }
}

BOOST_AUTO_TEST_CASE(only_what_ran_counts) {
  std::vector<store::TrialRow> trials = {ran(1, "a", "x", 2000), ran(2, "b", "x", 1000),
                                         ran(3, "b", "y", 0), ran(4, "c", "x", 900)};
  trials[1].status = "oom";
  trials[3].phase = "contract";
  BOOST_TEST(knob_effects(context_of(trials)).empty());
  BOOST_TEST(knob_effects(context_of({})).empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
