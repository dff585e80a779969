// Hunting culprits among the changes of a configuration: single ones, interactions, several, hidden
// improvements, combinations that fail; calibration over synthetic hunts.
#include "tuner/bisect/config_search.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "kernels/base/error.h"
#include "tests/tuner/bisect/synthetic_configs.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(config_search)

namespace {

namespace data = boost::unit_test::data;
using tests::Culprits;
using tests::named_by;
using Machine = tests::ConfigMachine;

ConfigHuntOptions options_of(int num_changes, bool is_deterministic = false) {
  ConfigHuntOptions options;
  options.num_changes = num_changes;
  options.is_deterministic = is_deterministic;
  return options;
}

/// Answers until the hunt is over: `value` of nothing is a failure. The runs of each set.
std::map<ChangeSet, int> play(ConfigHunt& hunt,
                              const std::function<std::optional<double>(const ChangeSet&)>& value) {
  std::map<ChangeSet, int> runs;
  int num_asked = 0;
  while (const auto request = hunt.next()) {
    BOOST_REQUIRE_LT(++num_asked, 2000);
    if (const auto found = value(request->changes)) {
      ++runs[request->changes];
      hunt.add(request->changes, *found);
    } else {
      BOOST_REQUIRE_EQUAL(runs.count(request->changes), 0);
      runs[request->changes] = 0;
      hunt.add_failure(request->changes);
    }
  }
  return runs;
}

// The benchmark has the figures of more hunts.
BOOST_DATA_TEST_CASE(is_as_right_as_it_claims, data::make(tests::kConfigPlants), plant) {
  constexpr int kHunts = 200;
  const tests::ConfigHuntStatistics s = tests::run_config_hunts(plant, kHunts);
  BOOST_TEST_MESSAGE(plant.name << ": right " << s.right() << ", median of " << s.median_runs()
                                << " runs");
  BOOST_TEST(s.right() >= plant.right);
  BOOST_TEST(s.median_runs() <= plant.runs);
  BOOST_TEST(*std::max_element(s.runs.begin(), s.runs.end()) < 1000);
  if (s.num_named > kHunts / 2) {
    BOOST_TEST(s.delivered() >= s.mean_claimed() - 0.03);
    // The claim is worth the asked confidence, and no empty modesty.
    BOOST_TEST(s.mean_claimed() >= 0.85);
  }
}

BOOST_AUTO_TEST_CASE(says_what_a_single_culprit_does) {
  ConfigHunt hunt(options_of(6));
  Machine machine(7, [](const ChangeSet& set) { return set[4] ? 5.0 : 0.0; });
  const auto runs = play(hunt, std::ref(machine));
  const ConfigHuntResult& result = hunt.result();
  BOOST_REQUIRE(result.verdict == HuntVerdict::culprit);
  BOOST_REQUIRE_EQUAL(result.culprits.size(), 1);
  const ConfigCulprit& culprit = result.culprits.front();
  BOOST_TEST(culprit.changes == std::vector<int>{4}, boost::test_tools::per_element());
  BOOST_TEST(culprit.confidence >= 0.95);
  BOOST_TEST(!culprit.is_interaction);
  BOOST_TEST(!culprit.is_improvement);
  BOOST_TEST(culprit.effect_low_ratio < 0.1);
  BOOST_TEST(culprit.effect_high_ratio > 0.1);
  BOOST_TEST(culprit.effect_low_ratio > 0.02);
  BOOST_TEST(culprit.effect_low_ratio < culprit.effect_ratio);
  BOOST_TEST(culprit.effect_ratio < culprit.effect_high_ratio);
  BOOST_TEST(std::abs(culprit.before - 100) < 3);
  BOOST_TEST(std::abs(culprit.after - 110) < 5);
  BOOST_TEST(culprit.is_good_restored);
  BOOST_TEST(result.noise_ratio > 0.01);
  BOOST_TEST(result.noise_ratio < 0.04);
  // Looked at afresh: alone, and the bad configuration without it.
  ChangeSet alone(6, false);
  alone[4] = true;
  ChangeSet without(6, true);
  without[4] = false;
  BOOST_TEST(runs.at(alone) >= 3);
  BOOST_TEST(runs.at(without) >= 2);
}

BOOST_AUTO_TEST_CASE(the_same_answers_bring_the_same_questions) {
  std::vector<std::pair<ChangeSet, double>> told;
  ConfigHunt hunt(options_of(12));
  Machine machine(3, [](const ChangeSet& set) { return set[2] && set[9] ? 3.0 : 0.0; });
  play(hunt, [&](const ChangeSet& set) {
    told.emplace_back(set, machine(set));
    return told.back().second;
  });
  BOOST_TEST((named_by(hunt.result()) == Culprits{{2, 9}}));
  BOOST_TEST(hunt.result().culprits.front().is_interaction);
  ConfigHunt again(options_of(12));
  for (const auto& [set, value] : told) {
    const auto request = again.next();
    BOOST_REQUIRE(request.has_value());
    BOOST_REQUIRE(request->changes == set);
    again.add(set, value);
  }
  BOOST_TEST(!again.next().has_value());
  BOOST_TEST((named_by(again.result()) == Culprits{{2, 9}}));
}

BOOST_AUTO_TEST_CASE(a_hidden_improvement_is_named_as_one) {
  ConfigHunt hunt(options_of(6));
  Machine machine(11, [](const ChangeSet& s) { return (s[1] ? 9.0 : 0.0) - (s[5] ? 4.0 : 0.0); });
  play(hunt, std::ref(machine));
  const ConfigHuntResult& result = hunt.result();
  BOOST_REQUIRE((named_by(result) == Culprits{{1}, {5}}));
  BOOST_TEST(!result.culprits[0].is_improvement);
  BOOST_TEST(std::abs(result.culprits[0].effect_ratio - 0.18) < 0.04);
  BOOST_TEST(!result.culprits[0].is_good_restored);
  BOOST_TEST(result.culprits[1].is_improvement);
  BOOST_TEST(std::abs(result.culprits[1].effect_ratio + 0.08) < 0.04);
  BOOST_TEST(result.culprits[1].is_good_restored);
  BOOST_TEST(std::abs(result.effect_ratio - 0.10) < 0.04);
}

BOOST_AUTO_TEST_CASE(higher_may_be_better) {
  ConfigHuntOptions options = options_of(5);
  options.is_higher_better = true;
  ConfigHunt hunt(options);
  Machine machine(5, [](const ChangeSet& set) { return set[3] ? -6.0 : 0.0; });
  play(hunt, std::ref(machine));
  BOOST_REQUIRE((named_by(hunt.result()) == Culprits{{3}}));
  const ConfigCulprit& culprit = hunt.result().culprits.front();
  BOOST_TEST(!culprit.is_improvement);
  BOOST_TEST(culprit.effect_low_ratio < -0.12);
  BOOST_TEST(culprit.effect_high_ratio > -0.12);
  BOOST_TEST(culprit.effect_high_ratio < -0.02);
  BOOST_TEST(std::abs(culprit.before - 100) < 3);
  BOOST_TEST(std::abs(culprit.after - 88) < 5);
}

BOOST_AUTO_TEST_CASE(combinations_that_fail_are_gone_around) {
  // Change 1 needs change 0, and 6 does not go with 7 unless 2 is there.
  const auto is_valid = [](const ChangeSet& s) {
    return (!s[1] || s[0]) && (!s[6] || !s[7] || s[2]);
  };
  int num_right = 0;
  int num_failed = 0;
  constexpr int kHunts = 30;
  for (unsigned seed = 0; seed < kHunts; ++seed) {
    ConfigHunt hunt(options_of(8));
    Machine machine(200 + seed, [](const ChangeSet& set) { return set[5] ? 3.0 : 0.0; });
    play(hunt, [&](const ChangeSet& set) {
      return is_valid(set) ? std::optional<double>(machine(set)) : std::nullopt;
    });
    num_right +=
        hunt.result().verdict == HuntVerdict::culprit && named_by(hunt.result()) == Culprits{{5}};
    num_failed += hunt.result().num_failed;
  }
  BOOST_TEST(num_right >= kHunts - 2);
  // The half that the culprit is in is no valid one.
  BOOST_TEST(num_failed >= kHunts);

  // Here the culprit is the one that needs another: both are named, and that it could not be told.
  ConfigHunt exact(options_of(8, true));
  play(exact, [&](const ChangeSet& set) {
    return is_valid(set) ? std::optional<double>(set[1] ? 110.0 : 100.0) : std::nullopt;
  });
  BOOST_TEST((exact.result().verdict == HuntVerdict::culprit));
  BOOST_TEST((named_by(exact.result()) == Culprits{{0, 1}}));
  BOOST_TEST(exact.result().culprits.front().num_untold == 1);
  BOOST_TEST(exact.result().num_failed > 0);

  // Without the culprit nothing goes: whether there are more stays open.
  ConfigHunt tied(options_of(3, true));
  play(tied, [&](const ChangeSet& s) {
    return s[1] && !s[0] ? std::nullopt : std::optional<double>(s[0] ? 110.0 : 100.0);
  });
  BOOST_TEST((named_by(tied.result()) == Culprits{{0}}));
  BOOST_TEST(!tied.result().culprits.front().is_good_restored);
  BOOST_TEST(tied.result().complete == 0.0);
  BOOST_TEST(!tied.result().reason.empty());
}

BOOST_AUTO_TEST_CASE(nothing_but_the_ends_can_be_measured) {
  for (const bool is_deterministic : {false, true}) {
    ConfigHunt hunt(options_of(4, is_deterministic));
    Machine machine(1, [](const ChangeSet&) { return 0.0; });
    play(hunt, [&](const ChangeSet& set) -> std::optional<double> {
      const auto count = std::count(set.begin(), set.end(), true);
      if (count != 0 && count != 4) return std::nullopt;
      return (is_deterministic ? 100.0 : machine(set)) + (count == 4 ? 20.0 : 0.0);
    });
    BOOST_TEST((hunt.result().verdict == HuntVerdict::unresolved));
    BOOST_TEST(hunt.result().suspects.size() == 4);
    BOOST_TEST(!hunt.result().reason.empty());
  }
}

BOOST_AUTO_TEST_CASE(an_end_fails) {
  for (const bool is_good : {false, true}) {
    ConfigHunt hunt(options_of(4));
    Machine machine(1, [](const ChangeSet&) { return 0.0; });
    play(hunt, [&](const ChangeSet& set) {
      return set == ChangeSet(4, is_good) ? std::optional<double>(machine(set)) : std::nullopt;
    });
    BOOST_TEST((hunt.result().verdict == HuntVerdict::unresolved));
    BOOST_TEST(hunt.result().reason == std::string("the ") + (is_good ? "good" : "bad") +
                                           " configuration cannot be measured");
  }
}

BOOST_AUTO_TEST_CASE(the_wrong_way_round) {
  ConfigHunt noisy(options_of(6));
  Machine machine(2, [](const ChangeSet& set) { return set[2] ? -4.0 : 0.0; });
  play(noisy, std::ref(machine));
  BOOST_TEST((noisy.result().verdict == HuntVerdict::unresolved));
  BOOST_TEST(noisy.result().is_swapped);
  BOOST_TEST(noisy.result().culprits.empty());
  ConfigHunt exact(options_of(6, true));
  play(exact, [](const ChangeSet& set) { return set[2] ? 90.0 : 100.0; });
  BOOST_TEST(exact.result().is_swapped);
}

BOOST_AUTO_TEST_CASE(exact_metrics_run_once) {
  const auto check = [](int num_changes, const tests::ConfigEffect& effect, const Culprits& planted,
                        int most_runs) {
    ConfigHunt hunt(options_of(num_changes, true));
    const auto runs = play(hunt, [&](const ChangeSet& set) { return 1000.0 + effect(set); });
    BOOST_TEST((hunt.result().verdict == HuntVerdict::culprit));
    BOOST_TEST((named_by(hunt.result()) == planted));
    for (const auto& [set, count] : runs) BOOST_TEST(count == 1);
    BOOST_TEST(hunt.num_runs() <= most_runs);
    for (const ConfigCulprit& culprit : hunt.result().culprits) {
      BOOST_TEST(culprit.confidence == 1.0);
      BOOST_TEST(culprit.is_interaction == (culprit.changes.size() > 1));
    }
    BOOST_TEST(hunt.result().complete == 1.0);
  };
  check(
      1, [](const ChangeSet& s) { return s[0] ? 50.0 : 0; }, {{0}}, 2);
  for (int culprit = 0; culprit < 20; ++culprit) {
    const auto at = static_cast<size_t>(culprit);
    check(
        20, [=](const ChangeSet& s) { return s[at] ? 50.0 : 0; }, {{culprit}}, 13);
  }
  for (int a = 0; a < 9; ++a) {
    for (int b = a + 1; b < 9; ++b) {
      const auto one = static_cast<size_t>(a);
      const auto two = static_cast<size_t>(b);
      check(
          9, [=](const ChangeSet& s) { return s[one] && s[two] ? 50.0 : 0; }, {{a, b}}, 16);
      check(
          9, [=](const ChangeSet& s) { return (s[one] ? 50.0 : 0) + (s[two] ? 30.0 : 0); },
          {{a}, {b}}, 20);
    }
  }
  check(
      12, [](const ChangeSet& s) { return s[1] && s[6] && s[11] ? 50.0 : 0; }, {{1, 6, 11}}, 30);
  // Change 2 undoes it unless 1 is there as well, which may all be left out.
  check(
      4, [](const ChangeSet& s) { return s[0] && s[3] && (!s[2] || s[1]) ? 50.0 : 0; }, {{0, 3}},
      20);
  // Here no single change of the four can be left out, though two of them can.
  check(
      4, [](const ChangeSet& s) { return s[0] && s[3] && s[1] == s[2] ? 50.0 : 0; }, {{0, 1, 2, 3}},
      20);
}

BOOST_AUTO_TEST_CASE(no_exact_change) {
  ConfigHunt hunt(options_of(5, true));
  const auto runs = play(hunt, [](const ChangeSet& set) { return set[1] ? 1010.0 : 1000.0; });
  BOOST_TEST((hunt.result().verdict == HuntVerdict::no_change));
  BOOST_TEST(hunt.num_runs() == 2);
  BOOST_TEST(hunt.result().effect_ratio == 0.01);
}

BOOST_AUTO_TEST_CASE(a_limit_of_runs_ends_it) {
  ConfigHuntOptions options = options_of(20);
  options.max_runs = 20;
  ConfigHunt hunt(options);
  Machine machine(4, [](const ChangeSet& set) { return set[7] ? 2.0 : 0.0; });
  play(hunt, std::ref(machine));
  BOOST_TEST((hunt.result().verdict == HuntVerdict::unresolved));
  BOOST_TEST(hunt.result().reason == "20 runs were not enough");
  BOOST_TEST(hunt.num_runs() == 20);
  BOOST_TEST(!hunt.next().has_value());
}

BOOST_AUTO_TEST_CASE(nonsense_is_turned_down) {
  BOOST_CHECK_THROW(ConfigHunt(options_of(0)), base::Error);
  ConfigHuntOptions options = options_of(3);
  options.confidence = 1.0;
  BOOST_CHECK_THROW(ConfigHunt{options}, base::Error);
  options = options_of(3);
  options.min_effect_ratio = 0.0;
  BOOST_CHECK_THROW(ConfigHunt{options}, base::Error);
  ConfigHunt hunt(options_of(3));
  BOOST_CHECK_THROW(hunt.add(ChangeSet(2, true), 1.0), base::Error);
  BOOST_CHECK_THROW(hunt.add(ChangeSet(3, true), std::nan("")), base::Error);
  BOOST_CHECK_THROW(hunt.add_failure(ChangeSet(4, true)), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
