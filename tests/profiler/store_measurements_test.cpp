// Trials that are measured again: environments, every measurement of a trial, replacing it.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <csignal>

#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "tests/profiler/store_samples.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(store_measurements)

namespace {

using samples::ok_result;
using samples::sample_sweep;
using samples::sample_trial;
using samples::status_of_child;
using samples::write_shard;
using tests::TempFolder;

const std::vector<NamedText> kHere = {{"host", "a"}, {"commit", "c1"}, {"binary", "b1"}};

BOOST_AUTO_TEST_CASE(environments_are_kept) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  BOOST_TEST(store.read_environments(sweep_id).empty());
  BOOST_TEST(store.read_environment(sweep_id).empty());
  const int64_t first = store.set_environment(sweep_id, kHere);
  BOOST_TEST(store.set_environment(sweep_id, kHere) == first);
  std::vector<NamedText> changed = kHere;
  changed.push_back({"memory", "1 GiB"});
  const int64_t second = store.set_environment(sweep_id, changed);
  BOOST_TEST(second != first);
  // Back again is a third time: the latest is the one that the sweep runs in.
  const int64_t third = store.set_environment(sweep_id, kHere);
  const std::vector<EnvironmentRow> rows = store.read_environments(sweep_id);
  BOOST_TEST_REQUIRE(rows.size() == 3U);
  BOOST_TEST(rows[0].id == first);
  BOOST_TEST(rows[2].id == third);
  BOOST_TEST(rows[2].ordinal == 3);
  BOOST_TEST(rows[1].value("memory") == "1 GiB");
  BOOST_TEST(rows[0].value("memory") == "");
  BOOST_TEST(store.read_environment(sweep_id).size() == 3U);
  // Host, commit and binary decide what may be compared, and nothing else.
  BOOST_TEST(are_comparable(rows[0], rows[1]));
  for (const char* name : {"host", "commit", "binary"}) {
    EnvironmentRow other = rows[0];
    for (NamedText& value : other.values) {
      if (value.name == name) value.value += "x";
    }
    BOOST_TEST(!are_comparable(rows[0], other));
    std::erase_if(other.values, [&](const NamedText& value) { return value.name == name; });
    BOOST_TEST(!are_comparable(rows[0], other));
  }
  // They go with their sweep.
  store.database().execute("DELETE FROM sweep");
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM environment_value") == 0);
}

BOOST_AUTO_TEST_CASE(every_run_of_a_trial_is_a_measurement) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t here = store.set_environment(sweep_id, kHere);
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  BOOST_TEST(store.read_measurements(id).empty());
  TrialResult result = ok_result({write_shard(folder.file("0.db"))});
  result.num_steps = 3;
  result.samples_ns = {790, 800, 820};
  store.finish_trial(id, result);
  std::vector<MeasurementRow> runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 1U);
  BOOST_TEST(runs[0].attempt == 1);
  BOOST_TEST(runs[0].purpose == "first");
  BOOST_TEST(runs[0].status == "ok");
  BOOST_TEST(runs[0].is_counted);
  BOOST_TEST(runs[0].num_steps == 3);
  BOOST_TEST(runs[0].samples_ns == result.samples_ns, boost::test_tools::per_element());
  BOOST_TEST(runs[0].step_ns.value() == 800);
  BOOST_TEST(runs[0].step_ns_low.value() == 790);
  BOOST_TEST(runs[0].step_ns_high.value() == 820);
  BOOST_TEST(runs[0].window_start == store.get_trial(id)->started_at);
  BOOST_TEST(runs[0].window_end >= runs[0].window_start);
  BOOST_TEST(runs[0].duration_ns.value() >= 0);
  BOOST_TEST(runs[0].environment_id.value() == here);
  BOOST_TEST(runs[0].commit == "c1");

  // Again, in the same environment: the trial's own rows stay those of its first run.
  TrialResult again;
  again.status = "ok";
  again.purpose = "longer";
  again.num_steps = 9;
  again.step_ns = 860;
  again.samples_ns = {850, 860, 870};
  again.played_ns = {855, 860, 861};
  again.probe_ns = 57;
  const std::string start = "2026-02-03T04:05:06.000Z";
  BOOST_TEST(store.add_measurement(id, start, again, TrialSpeed{830, 800, 860, 5.0}) == 2);
  runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 2U);
  BOOST_TEST(runs[1].purpose == "longer");
  BOOST_TEST(runs[1].played_ns == again.played_ns, boost::test_tools::per_element());
  BOOST_TEST(runs[1].probe_ns.value() == 57);
  BOOST_TEST(runs[0].played_ns.empty());
  BOOST_TEST(!runs[0].probe_ns.has_value());
  BOOST_TEST(runs[1].window_start == start);
  BOOST_TEST(runs[0].is_counted);
  TrialRow trial = store.get_trial(id).value();
  BOOST_TEST(trial.step_ns.value() == 830);
  BOOST_TEST(trial.step_ns_low.value() == 800);
  BOOST_TEST(trial.tokens_per_s.value() == 5.0);
  BOOST_TEST(trial.num_attempts == 2);
  BOOST_TEST(store.read_steps(id).size() == 2U);
  TrialResult bad;
  bad.status = "crashed";
  bad.reason = "signal 11";
  bad.purpose = "again";
  store.add_measurement(id, start, bad, std::nullopt);
  BOOST_TEST(store.get_trial(id)->status == "ok");
  BOOST_TEST(store.get_trial(id)->step_ns.value() == 830);
  BOOST_TEST(store.read_measurements(id).at(2).reason == "signal 11");

  // With another build: what was measured stays, but no longer counts.
  std::vector<NamedText> rebuilt = kHere;
  rebuilt[2].value = "b2";
  const int64_t there = store.set_environment(sweep_id, rebuilt);
  TrialRow next = sample_trial(sweep_id, "a");
  next.started_at = start;
  next.is_baseline = true;
  TrialResult other = ok_result({write_shard(folder.file("1.db"), 3)});
  other.step_ns = 400;
  BOOST_TEST(store.replace_trial(next, {{"step_ns", 7, "analytic"}}, {}, other).status == "ok");
  runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 4U);
  for (const MeasurementRow& run : runs) BOOST_TEST(run.is_counted == (run.attempt == 4));
  BOOST_TEST(runs[3].environment_id.value() == there);
  BOOST_TEST(runs[0].environment_id.value() == here);
  trial = store.get_trial(id).value();
  BOOST_TEST(trial.step_ns.value() == 400);
  BOOST_TEST(trial.is_baseline);
  BOOST_TEST(trial.knobs.size() == 2U);
  BOOST_TEST(store.read_ops(id).at(0).rank == 3);
  BOOST_TEST(store.read_predictions(id).at(0).value == 7);
  BOOST_TEST(store.read_measurements_of_sweep(sweep_id).size() == 4U);
  BOOST_TEST(store.read_measurements_of_sweep(sweep_id + 1).empty());
}

BOOST_AUTO_TEST_CASE(replacing_a_trial_is_all_or_nothing) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  const std::string shard = write_shard(folder.file("0.db"));
  int64_t sweep_id = 0;
  {
    Store store = Store::open(path);
    sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
    store.set_environment(sweep_id, kHere);
    TrialRow trial = sample_trial(sweep_id, "a");
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, ok_result()), base::Error);
    const int64_t id = store.begin_trial(trial);
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, ok_result()), base::Error);
    store.finish_trial(id, ok_result({shard}));
    TrialResult stopped;
    stopped.status = "interrupted";
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, stopped), base::Error);
  }
  const int status = status_of_child([&] {
    Store store = Store::open(path);
    store.set_environment(sweep_id, {{"host", "b"}});
    TrialResult result = ok_result();
    result.step_ns = 1;
    store.database().set_commit_hook([] { raise(SIGKILL); });
    store.replace_trial(sample_trial(sweep_id, "a"), {}, {}, result);
  });
  BOOST_REQUIRE(WIFSIGNALED(status));
  Store store = Store::open(path);
  const TrialRow trial = store.find_trial(sweep_id, "a").value();
  BOOST_TEST(trial.status == "ok");
  BOOST_TEST(trial.step_ns.value() == 800);
  BOOST_TEST(store.read_steps(trial.id).size() == 2U);
  BOOST_TEST(store.read_measurements(trial.id).size() == 1U);
  BOOST_TEST(store.read_measurements(trial.id)[0].is_counted);
  // There is no other moment between then and now.
  int num_commits = 0;
  store.database().set_commit_hook([&] { ++num_commits; });
  store.replace_trial(sample_trial(sweep_id, "a"), {}, {}, ok_result());
  BOOST_TEST(num_commits == 1);
  store.add_measurement(trial.id, "t", ok_result(), TrialSpeed{1, 1, 1, 1});
  BOOST_TEST(num_commits == 2);
}

BOOST_AUTO_TEST_CASE(a_run_that_was_stopped_is_no_measurement) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  TrialResult stopped;
  stopped.status = "interrupted";
  store.finish_trial(id, stopped);
  BOOST_TEST(store.read_measurements(id).empty());
  // Nobody said where it ran.
  store.begin_trial(sample_trial(sweep_id, "a"));
  store.finish_trial(id, ok_result());
  BOOST_TEST(!store.read_measurements(id).at(0).environment_id.has_value());
  store.set_environment(sweep_id, kHere);
  TrialResult again = ok_result();
  store.add_measurement(id, "t", again, std::nullopt);
  BOOST_TEST(!store.read_measurements(id).at(0).is_counted);
}

BOOST_AUTO_TEST_CASE(what_a_foreign_hand_made_of_measurements_is_survived) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  store.set_environment(sweep_id, kHere);
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  store.finish_trial(id, ok_result());
  for (const char* samples :
       {"", "[", "]", "[]", "no list", "[1,,2]", "[1,2", "[-5]", "[1.5]", "[99999999999999999999]",
        "[1,]", "[,1]", "[[1]]", "[1 ,2]", "{\"a\": 1}"}) {
    store::Statement(store.database(), "UPDATE measurement SET samples = ?").bind(1, samples).run();
    BOOST_TEST(store.read_measurements(id).at(0).samples_ns.empty(), samples);
  }
  store.database().execute("UPDATE measurement SET samples = '[7,8]'");
  BOOST_TEST(store.read_measurements(id).at(0).samples_ns.size() == 2U);
  store.database().execute(
      "UPDATE measurement SET attempt = 9223372036854775807, num_steps = -3, window_start = 'x', "
      "step_ns = -9223372036854775808, duration_ns = -1, is_counted = 0");
  BOOST_TEST(store.read_measurements(id).at(0).num_steps == -3);
  // There is no next number.
  BOOST_CHECK_THROW(store.add_measurement(id, "t", ok_result(), std::nullopt), base::Error);
  for (const char* sql :
       {"UPDATE measurement SET purpose = 'fun'", "UPDATE measurement SET status = 'running'",
        "UPDATE measurement SET environment_id = 99"}) {
    BOOST_CHECK_THROW(store.database().execute(sql), ConstraintError);
  }
  // The environment it was made in is gone: nothing is known of it.
  store.database().execute("DELETE FROM environment");
  BOOST_TEST(!store.read_measurements(id).at(0).environment_id.has_value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store
