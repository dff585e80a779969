// What becomes of a database that an older moetune wrote: all of it is there afterwards, whenever
// the upgrade was stopped the file is as it was, and what is no such file stays so.
#include <sys/wait.h>

#include <boost/test/data/test_case.hpp>
#include <csignal>

#include "profiler/store/db.h"
#include "profiler/store/schema.h"
#include "profiler/store/store.h"
#include "tests/profiler/old_store.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(upgrade)

namespace {

using tests::says;
using tests::TempFolder;

/// Two sweeps of an old schema: one that is done, with a winner that its decisions tell, and one
/// without decisions.
void fill(const std::string& path) {
  Database old(path, OpenMode::read_write);
  old.execute(R"(
    INSERT INTO model VALUES (1, 'tiny', '{}');
    INSERT INTO hardware VALUES (1, 'h', '{}');
    INSERT INTO sweep VALUES (1, 'first', 'hash', '{}', '{"a": 1}', 1, 1, 'done', '2026-01-01T00:00:00.000Z',
                              '2026-01-01T01:00:00.000Z', 'cmd', '0.1', 'oldest');
    INSERT INTO sweep VALUES (5, 'second', 'other', '{}', '{}', 1, 1, 'interrupted', '2026-01-02T00:00:00.000Z',
                              NULL, 'cmd', '0.1', 'oldest');
    INSERT INTO environment VALUES (1, 0, 'host', 'here'), (1, 1, 'commit', 'abc');
    INSERT INTO trial (id, sweep_id, ordinal, spec_hash, status, reason, phase, is_baseline, spec_json, step_ns,
                       step_ns_low, step_ns_high, started_at, ended_at, duration_ns, num_attempts)
    VALUES (1, 1, 1, 'r', 'ok', '', 'contract', 0, '{}', 500, 490, 510, '2026-01-01T00:00:01.000Z',
            '2026-01-01T00:00:03.000Z', 2000000000, 1),
           (2, 1, 2, 'b', 'oom', 'too large', 'contract', 1, '{}', NULL, NULL, NULL, '2026-01-01T00:01:00.000Z',
            '2026-01-01T00:01:01.000Z', 1000000000, 1),
           (3, 1, 3, 'f', 'ok', '', 'fit', 0, '{}', 300, 290, 330, '2026-01-01T00:02:00.000Z',
            '2026-01-01T00:02:01.000Z', 1000000000, 2),
           (4, 1, 4, 'p', 'pruned', 'too slow', 'scale', 0, '{}', NULL, NULL, NULL, 't', 't', 0, 0),
           (5, 1, 5, 'k', 'ok', '', 'scale', 0, '{}', 200, 190, 210, 't', 't', 0, 1),
           (6, 1, 6, 'v', 'ok', '', 'validate', 0, '{}', 210, 200, 215, 't', 't', 0, 1),
           (7, 1, 7, 'w', 'ok', '', 'validate', 0, '{}', 190, 180, 195, 't', 't', 0, 1),
           (8, 5, 1, 'x', 'ok', '', 'fit', 0, '{}', 400, 390, 410, 't', 't', 0, 1),
           (9, 5, 2, 'y', 'ok', '', 'scale', 0, '{}', 350, 340, 360, 't', 't', 0, 1),
           (10, 5, 3, 'z', 'running', '', 'scale', 0, '{}', NULL, NULL, NULL, 't', NULL, NULL, 1);
    INSERT INTO trial_knob VALUES (3, 0, 'dp', '8');
    INSERT INTO metric VALUES (3, -1, 'step_ns', 'ns', 300);
    INSERT INTO step (trial_id, step, is_warmup, is_traced, step_ns)
    VALUES (3, 0, 1, 0, 900), (3, 1, 0, 0, 310), (3, 2, 0, 0, 290), (3, 3, 0, 0, 300), (3, 4, 0, 1, 320);
    INSERT INTO trace_step VALUES (3, 4, 0, 0, 320);
    INSERT INTO StringIds VALUES (1, 'op');
    INSERT INTO trace_record VALUES (3, 4, 0, 7, 4, -1, 1, -1, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0);
    INSERT INTO decision (sweep_id, ordinal, phase, kind, trial_id, baseline_trial_id, gain_ratio, noise_ratio, text)
    VALUES (1, 1, 'scale', 'kept', 5, 3, 0.5, 0.02, 'better'),
           (1, 2, 'validate', 'rejected', 7, 5, NULL, NULL, 'its loss is too high'),
           (1, 3, 'validate', 'kept', 6, 5, NULL, NULL, 'it held');
    CREATE VIEW mine AS SELECT * FROM trial;
  )");
}

/// All that a database holds, as SQL.
std::string contents_of(const std::string& path) {
  Database database(path, OpenMode::read_only);
  std::string text = fmt::format("version {}\n", database.query_int("PRAGMA user_version"));
  Statement names(database, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1");
  while (names.step()) {
    text += names.get_text(1) + "\n";
    if (names.get_text(1).find("CREATE TABLE") == std::string::npos) continue;
    Statement rows(database, fmt::format("SELECT * FROM {} ORDER BY 1", names.get_text(0)));
    while (rows.step()) {
      for (int c = 0; c < rows.num_columns(); ++c) text += rows.get_text(c) + "|";
      text += "\n";
    }
  }
  return text;
}

BOOST_DATA_TEST_CASE(nothing_is_lost_and_what_ran_has_a_measurement,
                     boost::unit_test::data::make({2, 3}), version) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, version);
  fill(path);
  BOOST_CHECK_EXCEPTION(Store::open(path), base::UsageError,
                        says("runs.db", fmt::format("version {}", version), "upgrade"));
  BOOST_TEST(Store::upgrade(path) == version);
  Store store = Store::open(path);
  BOOST_TEST(store.database().query_int("PRAGMA foreign_keys") == 1);

  const SweepRow sweep = store.read_sweep(1).value();
  BOOST_TEST(sweep.contract_json == R"({"a": 1})");
  BOOST_TEST(sweep.tool_commit == "oldest");
  BOOST_TEST(sweep.winner_trial.value() == 6);  // the last long run that was not refused
  BOOST_TEST(sweep.baseline_trial.value() == 2);
  BOOST_TEST(sweep.first_fit_trial.value() == 3);
  const SweepRow second = store.read_sweep(5).value();
  BOOST_TEST(second.winner_trial.value() == 9);  // the fastest
  BOOST_TEST(!second.baseline_trial.has_value());
  BOOST_TEST(second.first_fit_trial.value() == 8);

  const std::vector<TrialRow> trials = store.list_trials(1);
  BOOST_TEST_REQUIRE(trials.size() == 7U);
  BOOST_TEST(trials[1].is_baseline);
  BOOST_TEST(!trials[2].is_baseline);
  BOOST_TEST(trials[1].reason == "too large");
  BOOST_TEST(trials[2].step_ns_high.value() == 330);
  BOOST_TEST(trials[2].knobs.at(0).value == "8");
  BOOST_TEST(store.read_metrics(3).size() == 1U);
  BOOST_TEST(store.read_steps(3).size() == 5U);
  BOOST_TEST(store.read_trace(3).size() == 1U);
  BOOST_TEST(store.read_trace(3).at(0).records.size() == 1U);
  const std::vector<DecisionRow> decisions = store.read_decisions(1);
  BOOST_TEST_REQUIRE(decisions.size() == 3U);
  BOOST_TEST(decisions[0].gain_ratio.value() == 0.5);
  BOOST_TEST(decisions[0].noise_ratio.value() == 0.02);
  BOOST_TEST(!decisions[0].gain_low_ratio.has_value());
  BOOST_TEST(decisions[2].text == "it held");

  const std::vector<EnvironmentRow> environments = store.read_environments(1);
  BOOST_TEST_REQUIRE(environments.size() == 1U);
  BOOST_TEST(environments[0].value("host") == "here");
  BOOST_TEST(store.read_environments(5).empty());
  const std::vector<MeasurementRow> runs = store.read_measurements(3);
  BOOST_TEST_REQUIRE(runs.size() == 1U);
  BOOST_TEST(runs[0].attempt == 1);
  BOOST_TEST(runs[0].status == "ok");
  BOOST_TEST(runs[0].is_counted);
  BOOST_TEST(runs[0].num_steps == 3);
  const std::vector<int64_t> samples = {310, 290, 300};
  BOOST_TEST(runs[0].samples_ns == samples, boost::test_tools::per_element());
  BOOST_TEST(runs[0].step_ns.value() == 300);
  BOOST_TEST(runs[0].window_start == "2026-01-01T00:02:00.000Z");
  BOOST_TEST(runs[0].environment_id.value() == environments[0].id);
  BOOST_TEST(runs[0].commit == "abc");
  BOOST_TEST(store.read_measurements(2).at(0).status == "oom");
  BOOST_TEST(store.read_measurements(2).at(0).samples_ns.empty());
  BOOST_TEST(store.read_measurements(8).at(0).commit == "oldest");
  for (const int64_t never_ended : {4, 10}) {
    BOOST_TEST(store.read_measurements(never_ended).empty());
  }
  // A new version's rows go into it as into one of its own.
  store.set_environment(5, {{"host", "x"}});
  BOOST_TEST(store.take_back_stale(5, true).taken_back.size() == 1U);
  BOOST_CHECK_THROW(store.database().execute("UPDATE trial SET sweep_id = 99"), ConstraintError);
  store.database().execute("DELETE FROM sweep WHERE id = 1");
  BOOST_TEST(store.read_measurements(3).empty());
  BOOST_TEST(store.read_metrics(3).empty());
}

BOOST_AUTO_TEST_CASE(version_1_comes_all_the_way) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, 1);
  fill(path);
  BOOST_TEST(Store::upgrade(path) == 1);
  BOOST_TEST(Store::open(path).read_measurements(3).size() == 1U);
  BOOST_TEST(Store::open(path).read_bisects().empty());
}

/// What version 4 stored of a trial: two ranks, a text of its own each, a gap in the ids.
constexpr const char* kVersion4Traces = R"(
  INSERT INTO model VALUES (1, 'm', '{}');
  INSERT INTO hardware VALUES (1, 'h', '{}');
  INSERT INTO sweep (id, name, config_hash, config_json, contract_json, model_id, hardware_id, status,
    started_at, command_line, tool_version, tool_commit)
  VALUES (1, 's', 'c', '{}', '{}', 1, 1, 'done', 't', '', '', '');
  INSERT INTO trial (id, sweep_id, ordinal, spec_hash, status, phase, spec_json, started_at)
  VALUES (3, 1, 1, 'h', 'ok', 'fit', '{}', 't'), (4, 1, 2, 'i', 'ok', 'fit', '{}', 't');
  INSERT INTO trace_step VALUES (3, 4, 0, 5, 320), (3, 4, 1, 6, 330), (3, 9, 0, 7, 8), (4, 4, 0, 0, 1);
  INSERT INTO StringIds VALUES (1, ''), (5, 'gemm'), (9, 'all_to_all'), (11, 'ep');
  INSERT INTO trace_record VALUES (3, 4, 0, 7, 0, 0, 5, 2, 1, 10, 11, 12, 50, 1, 640, 99, 0, -1, 0, -1, 1),
    (3, 4, 0, 9, 1, 1, 9, 2, 1, 20, 21, 60, 90, 11, 4096, 0, 7, 3, 2, 7, 0),
    (3, 4, 1, 0, 5, -1, 5, -1, -1, 0, 0, 9, 9, 1, 0, 0, 0, -1, 0, -1, 0),
    (4, 4, 0, 0, 3, 2, 5, 0, 0, 1, 2, 3, 4, 1, 5, 6, 7, 8, 9, 10, 0);
)";

BOOST_AUTO_TEST_CASE(version_4_keeps_its_traces_in_fewer_bytes) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, 4);
  { Database(path, OpenMode::read_write).execute(kVersion4Traces); }
  BOOST_TEST(Store::upgrade(path) == 4);
  Store store = Store::open(path);
  const auto traces = store.read_trace(3);
  BOOST_TEST_REQUIRE(traces.size() == 3U);
  BOOST_TEST(traces[0].start_ns == 5);
  BOOST_TEST(traces[1].end_ns == 330);
  BOOST_TEST(traces[2].records.empty());
  BOOST_TEST_REQUIRE(traces[0].records.size() == 2U);
  const profiler::TraceRecord& first = traces[0].records[0];
  BOOST_TEST(first.id == 7);
  BOOST_TEST(first.name == "gemm");
  BOOST_TEST(first.group.empty());
  BOOST_TEST(first.flops == 99);
  BOOST_TEST(first.is_recompute);
  const profiler::TraceRecord& second = traces[0].records[1];
  BOOST_TEST(second.id == 9);
  BOOST_TEST(second.rank == 0);
  BOOST_TEST(second.step == 4);
  BOOST_TEST((second.kind == profiler::RecordKind::collective));
  BOOST_TEST(second.name == "all_to_all");
  BOOST_TEST(second.group == "ep");
  BOOST_TEST(second.launch_start_ns == 20);
  BOOST_TEST(second.launch_end_ns == 21);
  BOOST_TEST(second.start_ns == 60);
  BOOST_TEST(second.end_ns == 90);
  BOOST_TEST(second.bytes == 4096);
  BOOST_TEST(second.transfer_ns == 7);
  BOOST_TEST(second.sequence == 3);
  BOOST_TEST(second.graph_id == 2);
  BOOST_TEST(second.producer_id == 7);
  BOOST_TEST(second.thread == -1);
  BOOST_TEST(second.communicator == -1);
  BOOST_TEST(second.kernel.empty());
  BOOST_TEST(traces[1].records.at(0).stream == -1);
  BOOST_TEST(store.read_trace(4).at(0).records.at(0).producer_id == 10);
  // What a trial leaves goes with it.
  store.database().execute("DELETE FROM trial WHERE id = 3");
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM trace_blob") == 1);
}

BOOST_AUTO_TEST_CASE(version_5_gets_the_walls_that_it_did_not_know) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, 5);
  {
    Database database(path, OpenMode::read_write);
    database.execute(R"(
      INSERT INTO model VALUES (1, 'm', '{}');
      INSERT INTO hardware VALUES (1, 'h', '{}');
      INSERT INTO sweep (id, name, config_hash, config_json, contract_json, model_id, hardware_id, status,
        started_at, command_line, tool_version, tool_commit)
      VALUES (1, 's', 'c', '{}', '{}', 1, 1, 'done', 't', '', '', '');
      INSERT INTO trial (id, sweep_id, ordinal, spec_hash, status, phase, spec_json, started_at, wall, step_ns)
      VALUES (3, 1, 1, 'h', 'ok', 'fit', '{}', 't', 'communication', 500);
      UPDATE sweep SET winner_trial = 3;
      INSERT INTO trial_knob VALUES (3, 0, 'dp', '8');
      INSERT INTO decision (sweep_id, ordinal, phase, kind, trial_id, wall, text)
      VALUES (1, 1, 'profile', 'wall', 3, 'communication', 'seen');
    )");
    BOOST_CHECK_THROW(database.execute("UPDATE trial SET wall = 'pipeline'"), base::Error);
  }
  BOOST_TEST(Store::upgrade(path) == 5);
  Store store = Store::open(path);
  const TrialRow trial = store.list_trials().at(0);
  BOOST_TEST(trial.wall == "communication");
  BOOST_TEST(*trial.step_ns == 500);
  BOOST_TEST(trial.knobs.at(0).value == "8");
  BOOST_TEST(store.read_decisions(1).at(0).wall == "communication");
  BOOST_TEST(store.read_sweep(1)->winner_trial.value_or(0) == 3);
  for (const char* wall : {"pipeline", "imbalance", "unknown"}) {
    BOOST_CHECK_NO_THROW(
        store.database().execute(fmt::format("UPDATE trial SET wall = '{}'", wall)));
  }
  BOOST_CHECK_THROW(store.database().execute("UPDATE trial SET wall = 'brick'"), base::Error);
}

BOOST_AUTO_TEST_CASE(killed_at_any_moment_it_leaves_the_file_as_it_was) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, 2);
  fill(path);
  const std::string before = contents_of(path);
  const pid_t child = fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    // All is written; only the commit itself is missing.
    Database database(path, OpenMode::read_write);
    database.set_commit_hook([] { raise(SIGKILL); });
    migrate_store(database);
    _exit(0);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_REQUIRE(WIFSIGNALED(status));
  BOOST_TEST(contents_of(path) == before);
  // An error on the way is the same.
  {
    Database database(path, OpenMode::read_write);
    database.execute(
        fmt::format("PRAGMA max_page_count = {}", database.query_int("PRAGMA page_count")));
    BOOST_CHECK_THROW(migrate_store(database), base::Error);
    BOOST_TEST(database.query_int("PRAGMA foreign_keys") == 1);
  }
  BOOST_TEST(contents_of(path) == before);
  BOOST_TEST(Store::upgrade(path) == 2);
  BOOST_TEST(Store::open(path).list_trials().size() == 10U);
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_what_its_version_says_stays_as_it_was) {
  for (const auto& [sql, part] :
       {std::pair{"CREATE TABLE Measurement (a)", "measurement"},
        std::pair{"DROP TABLE environment", "environment"},
        std::pair{"ALTER TABLE trial ADD COLUMN x INTEGER", "trial"},
        std::pair{"ALTER TABLE trial ADD COLUMN x INTEGER AS (zeroblob(900000000))", "trial"},
        std::pair{"CREATE TRIGGER evil AFTER INSERT ON metric BEGIN DELETE FROM trial; END",
                  "evil"},
        std::pair{"DROP TABLE decision; CREATE VIEW decision AS WITH RECURSIVE r(x) AS (SELECT 1 "
                  "UNION ALL SELECT x + 1 FROM r) SELECT x FROM r",
                  "decision"},
        std::pair{"PRAGMA foreign_keys = off; INSERT INTO metric VALUES (77, -1, 'x', 'ns', 1)",
                  "metric"}}) {
    const TempFolder folder;
    const std::string path = folder.file("runs.db");
    tests::make_old_store(path, 2);
    fill(path);
    { Database(path, OpenMode::read_write).execute(sql); }
    BOOST_TEST_CONTEXT(sql) {
      BOOST_CHECK_EXCEPTION(Store::upgrade(path), base::UsageError, says("runs.db", part));
      Database database(path, OpenMode::read_only);
      BOOST_TEST(database.query_int("PRAGMA user_version") == 2);
      BOOST_TEST(database.query_int("SELECT count(*) FROM trial") == 10);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store
