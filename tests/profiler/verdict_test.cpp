// What a stored sweep has come to, by its decisions.
#include "profiler/store/verdict.h"

#include <boost/test/unit_test.hpp>

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(store_verdict)

namespace {

DecisionRow long_run(DecisionKind kind, int64_t trial, int64_t candidate, std::string text) {
  DecisionRow row;
  row.phase = "validate";
  row.kind = kind;
  row.trial_id = trial;
  row.baseline_trial_id = candidate;
  row.text = std::move(text);
  return row;
}

TrialRow trial(int64_t id) {
  TrialRow row;
  row.id = id;
  return row;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_long_run_of_the_winner_says_whether_it_is_validated) {
  // The short trial 1 was run long as 11, 2 as 12.
  const DecisionRow failed = long_run(DecisionKind::rejected, 11, 1, "It ended as oom.");
  const DecisionRow kept = long_run(DecisionKind::kept, 12, 2, "It held.");
  BOOST_TEST((validation_of({failed}, trial(1)).is_passed == false));
  BOOST_TEST(validation_of({failed}, trial(1)).reason() == "It ended as oom");
  BOOST_TEST((validation_of({failed, kept}, trial(12)).is_passed == true));
  // Another's long run says nothing of this one, and no long run is no failure.
  BOOST_TEST(!validation_of({failed}, trial(2)).is_passed.has_value());
  BOOST_TEST(!validation_of({}, trial(1)).is_passed.has_value());
  // Rejected as slow, and kept after all as the runner-up was no better.
  const DecisionRow slow = long_run(DecisionKind::rejected, 11, 1, "It is slow.");
  const DecisionRow after_all = long_run(DecisionKind::kept, 11, 1, "The runner-up is no better.");
  BOOST_TEST((validation_of({slow, after_all}, trial(11)).is_passed == true));
  BOOST_TEST(!validation_of({slow, after_all}, trial(1)).is_passed.has_value());
  BOOST_TEST(validation_of({slow, after_all}, trial(1)).text == "");
  // Kept although it was slower than the runs that it won by.
  BOOST_TEST(!validation_of({kept}, trial(12)).is_slower);
  DecisionRow slower = kept;
  slower.evidence_json = R"({"is_slower_in_long_run": true})";
  BOOST_TEST(validation_of({slower}, trial(12)).is_slower);
  // What is kept elsewhere is no validation.
  DecisionRow scaled = long_run(DecisionKind::kept, 1, 2, "Faster.");
  scaled.phase = "scale";
  BOOST_TEST(!validation_of({scaled}, trial(1)).is_passed.has_value());
  // A note says why there was none.
  const DecisionRow note = long_run(DecisionKind::note, 1, 1, "The budget has no room.");
  BOOST_TEST(!validation_of({note}, trial(1)).is_passed.has_value());
  BOOST_TEST(validation_of({note}, trial(1)).text == "The budget has no room.");
  BOOST_TEST(validation_of({failed, note}, trial(1)).text == "It ended as oom.");
}

BOOST_AUTO_TEST_CASE(a_note_with_the_flag_clears_a_trial) {
  const auto with = [](DecisionKind kind, int64_t trial, std::string evidence) {
    DecisionRow row = long_run(kind, trial, 1, "");
    row.evidence_json = std::move(evidence);
    return row;
  };
  const std::string flag = R"({"is_cleared": true})";
  DecisionRow of_none = with(DecisionKind::note, 0, flag);
  of_none.trial_id.reset();
  const std::set<int64_t> cleared = cleared_trials(
      {with(DecisionKind::note, 2, flag), with(DecisionKind::note, 3, R"({"is_cleared": false})"),
       with(DecisionKind::rejected, 4, flag), with(DecisionKind::note, 5, "[1"),
       with(DecisionKind::note, 6, "[]"), with(DecisionKind::note, 7, R"({"is_cleared": "yes"})"),
       of_none});
  BOOST_TEST((cleared == std::set<int64_t>{2}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::store
