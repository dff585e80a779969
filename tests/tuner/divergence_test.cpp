// Which losses are those of a run that has diverged, and from which step on.
#include "tuner/divergence.h"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <vector>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(divergence)

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

BOOST_AUTO_TEST_CASE(a_run_that_learns_or_recovers_has_not_diverged) {
  const std::vector<double> fit[] = {
      {},
      {5.5},
      {5.5, 5.4, 5.1, 4.0},
      {5.5, 5.6},
      // A rate that is ten times too high, and less: it comes back.
      {5.53, 4.1, 9.21, 13.45, 31.54, 19.26, 5.71, 11.99, 5.48, 3.49},
      {5.5, 70, 80, 90, 20, 6},  // ten times the first, but not at the end
      {5.5, 5.4, 5.3, 5.2, 60, 60},
      {5.5, 55, 55, 55},     // not more than ten times
      {0.01, 2, 3, 4, 9.9},  // trained weights
  };
  for (const std::vector<double>& losses : fit) {
    BOOST_TEST(!find_divergence(losses).has_value(), losses.size() << " losses");
  }
}

BOOST_AUTO_TEST_CASE(the_step_is_told_from_which_on_losses_are_out_of_bounds) {
  struct Row {
    std::vector<double> losses;
    int64_t step;
    double loss;
  };
  const Row rows[] = {
      {{5.53, 167, 1102, 962, 3.07e9, 5e10}, 1, 167},
      {{5.53, 167, 1102, kNan, kNan}, 1, 167},
      {{5.5, 5.4, 56, 57, 58}, 2, 56},
      {{5.5, 200, 6, 56, 57, 58}, 3, 56},  // the first peak has come down
      {{5.5, 56}, 1, 56},                  // a run of few steps
      {{5.5, 56, 57}, 1, 56},
      {{0.01, 2, 11, 12, 13}, 2, 11},
      // What cannot be compared is, wherever it stands.
      {{5.5, 1e9 + 1, 5.4, 5.3, 5.2}, 1, 1e9 + 1},
      {{5.5, 5.4, 5.3, 5.2, kInf}, 4, kInf},
      {{5.5, -2e9, 5.3, 5.2, 5.1}, 1, -2e9},
      {{2e9, 2e9, 2e9, 2e9}, 0, 2e9},
  };
  for (const Row& row : rows) {
    const std::optional<Divergence> found = find_divergence(row.losses);
    BOOST_TEST_CONTEXT("step " << row.step << ", loss " << row.loss) {
      BOOST_REQUIRE(found.has_value());
      BOOST_TEST(found->step == row.step);
      BOOST_TEST(found->loss == row.loss);
    }
  }
  for (const std::vector<double>& losses :
       {std::vector{5.5, kNan, 5.4, 5.3, 5.2}, std::vector{5.5, kNan}}) {
    const std::optional<Divergence> found = find_divergence(losses);
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->step == 1);
  }
  BOOST_REQUIRE(find_divergence(std::vector{kNan}).has_value());
  BOOST_TEST(find_divergence(std::vector{kNan})->step == 0);
}

BOOST_AUTO_TEST_CASE(the_sentence_names_step_losses_and_rate) {
  const std::vector<double> losses = {5.53, 167, 1102, 962};
  BOOST_TEST(divergence_text({1, 167}, losses, 40) ==
             "diverged at step 1 (loss 167, at step 0 5.53): lower training.lr, which is 40");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
