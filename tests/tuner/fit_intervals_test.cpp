// The interval of a predicted peak: points, what rows may add, what trials have taught.
#include "tuner/fit_intervals.h"

#include <boost/test/unit_test.hpp>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(fit_intervals)

namespace {

constexpr int64_t kMiB = 1 << 20;

Prediction predicted(int64_t peak_bytes, int64_t most_bytes) {
  Prediction made;
  made.peak_bytes = peak_bytes;
  made.most_peak_bytes = most_bytes;
  made.is_peak_exact = most_bytes == peak_bytes;
  return made;
}

Prediction exact(int64_t peak_bytes) { return predicted(peak_bytes, peak_bytes); }

TrialOutcome ended(spec::TrialStatus status, int64_t peak_bytes = 0) {
  TrialOutcome outcome;
  outcome.status = status;
  outcome.peak_bytes = peak_bytes;
  return outcome;
}

Room room_of(const FitIntervals& fits, const Prediction& prediction) {
  return fits.room(prediction, prediction.peak_bytes);
}

std::string text_of_peak(const FitIntervals& fits, const Prediction& prediction) {
  return text_of(fits.interval(prediction, prediction.peak_bytes));
}

BOOST_AUTO_TEST_CASE(what_is_known_exactly_is_a_point) {
  FitIntervals fits(100 * kMiB, 0);
  BOOST_TEST(text_of_peak(fits, exact(60 * kMiB)) == "60.0 MiB");
  BOOST_TEST((room_of(fits, exact(100 * kMiB)) == Room::enough));
  BOOST_TEST((room_of(fits, exact(100 * kMiB + 1)) == Room::none));
  // As predicted: nothing widens.
  fits.add(exact(50 * kMiB), ended(spec::TrialStatus::ok, 50 * kMiB));
  BOOST_TEST((room_of(fits, exact(100 * kMiB)) == Room::enough));
}

BOOST_AUTO_TEST_CASE(rows_that_nobody_knows_make_an_interval) {
  const FitIntervals fits(100 * kMiB, 0);
  BOOST_TEST(text_of_peak(fits, predicted(60 * kMiB, 80 * kMiB)) == "60.0 MiB to 80.0 MiB");
  BOOST_TEST((room_of(fits, predicted(60 * kMiB, 80 * kMiB)) == Room::enough));
  BOOST_TEST((room_of(fits, predicted(60 * kMiB, 101 * kMiB)) == Room::unsure));
  BOOST_TEST((room_of(fits, predicted(101 * kMiB, 200 * kMiB)) == Room::none));
}

BOOST_AUTO_TEST_CASE(the_margin_is_taken_from_the_capacity) {
  const FitIntervals fits(100 * kMiB, 0.1);
  BOOST_TEST((room_of(fits, exact(90 * kMiB)) == Room::enough));
  BOOST_TEST((room_of(fits, exact(91 * kMiB)) == Room::none));
  BOOST_TEST((room_of(fits, predicted(60 * kMiB, 95 * kMiB)) == Room::unsure));
  BOOST_TEST(fits.reason(exact(91 * kMiB), 91 * kMiB) ==
             "predicted peak 91.0 MiB exceeds 90.0 MiB: the capacity of 100 MiB without the "
             "margin of 10.0 %");
}

BOOST_AUTO_TEST_CASE(without_a_capacity_everything_fits) {
  const FitIntervals fits(0, 0.1);
  BOOST_TEST((room_of(fits, predicted(60 * kMiB, 80 * kMiB)) == Room::enough));
}

// One trial of each kind: the most that rows may take is what they have taken.
BOOST_AUTO_TEST_CASE(trials_narrow_and_widen) {
  FitIntervals fits(100 * kMiB, 0);
  const Prediction uneven = predicted(60 * kMiB, 300 * kMiB);
  BOOST_TEST((room_of(fits, uneven) == Room::unsure));
  fits.add(predicted(50 * kMiB, 200 * kMiB), ended(spec::TrialStatus::ok, 60 * kMiB));
  BOOST_TEST(text_of_peak(fits, uneven) == "60.0 MiB to 72.0 MiB");
  BOOST_TEST((room_of(fits, uneven) == Room::enough));
  BOOST_TEST((room_of(fits, predicted(90 * kMiB, 300 * kMiB)) == Room::unsure));
  // What is exact errs for other reasons.
  BOOST_TEST((room_of(fits, exact(90 * kMiB)) == Room::enough));
  fits.add(exact(50 * kMiB), ended(spec::TrialStatus::ok, 55 * kMiB));
  BOOST_TEST(text_of_peak(fits, exact(80 * kMiB)) == "80.0 MiB to 88.0 MiB");
  fits.add(exact(50 * kMiB), ended(spec::TrialStatus::ok, 45 * kMiB));
  BOOST_TEST(text_of_peak(fits, exact(100 * kMiB)) == "90.0 MiB to 110 MiB");
  // A failure of another kind says nothing of memory.
  fits.add(exact(50 * kMiB), ended(spec::TrialStatus::wrong, 95 * kMiB));
  BOOST_TEST(text_of_peak(fits, exact(100 * kMiB)) == "90.0 MiB to 110 MiB");
  fits.restart();
  BOOST_TEST(text_of_peak(fits, exact(100 * kMiB)) == "100 MiB");
}

BOOST_AUTO_TEST_CASE(what_needs_no_less_than_one_that_failed_is_not_tried) {
  FitIntervals fits(100 * kMiB, 0);
  fits.add(predicted(80 * kMiB, 300 * kMiB), ended(spec::TrialStatus::oom));
  BOOST_TEST((room_of(fits, predicted(80 * kMiB, 300 * kMiB)) == Room::none));
  BOOST_TEST((room_of(fits, predicted(90 * kMiB, 300 * kMiB)) == Room::none));
  // 1.25 times as much as predicted, and nobody knows how much more.
  BOOST_TEST(text_of_peak(fits, predicted(72 * kMiB, 300 * kMiB)) == "72.0 MiB to 300 MiB");
  BOOST_TEST(text_of_peak(fits, predicted(72 * kMiB, 73 * kMiB)) == "72.0 MiB to 90.0 MiB");
  BOOST_TEST((room_of(fits, exact(90 * kMiB)) == Room::enough));
  BOOST_TEST(fits.reason(predicted(90 * kMiB, 300 * kMiB), 90 * kMiB) ==
             "predicted peak 90.0 MiB to 300 MiB of 100 MiB: one that was predicted to need no "
             "more (80.0 MiB) ran out of memory");
  // One that was predicted to fail teaches nothing.
  FitIntervals others(100 * kMiB, 0);
  others.add(exact(120 * kMiB), ended(spec::TrialStatus::oom));
  BOOST_TEST((room_of(others, exact(100 * kMiB)) == Room::enough));
  BOOST_TEST(others.reason(exact(130 * kMiB), 130 * kMiB) ==
             "predicted peak 130 MiB exceeds the capacity of 100 MiB");
}

BOOST_AUTO_TEST_CASE(more_steps_may_need_more) {
  const FitIntervals fits(100 * kMiB, 0);
  BOOST_TEST((fits.room(exact(90 * kMiB), 101 * kMiB) == Room::none));
  BOOST_TEST(fits.reason(exact(90 * kMiB), 101 * kMiB) ==
             "predicted peak 101 MiB over the validation's steps exceeds the capacity of "
             "100 MiB");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
