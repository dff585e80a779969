// Hunts in the runs database: resuming after a kill, the order of measurements, texts and numbers
// that are not what they should be, and databases from before there were hunts.
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "profiler/store/bisect.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "tests/profiler/old_store.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(bisect_store)

namespace {

using tests::says;
using tests::TempFolder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

BisectRow sample_hunt(const std::string& hash = "hunt") {
  BisectRow hunt;
  hunt.config_hash = hash;
  hunt.config_json = R"({"metric": "step_ns"})";
  hunt.repository = "/src/engine";
  hunt.good = std::string(40, 'a');
  hunt.bad = std::string(40, 'b');
  hunt.metric = "step_ns";
  hunt.command_line = "moetune bisect --good v1 --bad v2";
  hunt.tool_version = "0.1.0";
  hunt.tool_commit = "abc";
  return hunt;
}

BisectRunRow sample_run(int position, double value) {
  BisectRunRow run;
  run.position = position;
  run.key = "key " + std::to_string(position);
  run.purpose = "search";
  run.status = "ok";
  run.value = value;
  run.metrics_json = R"({"peak_bytes": 5})";
  run.build_seconds = 30;
  run.run_seconds = 1.5;
  run.started_at = "2026-11-20T10:00:00.000Z";
  return run;
}

BOOST_AUTO_TEST_CASE(a_hunt_comes_back_as_it_was_written) {
  const TempFolder folder;
  {
    Store store = Store::open(folder.file("runs.db"));
    const int64_t id = store.open_bisect(sample_hunt());
    store.set_bisect_commits(id, {{0, "c0", "old", "A", "2026-01-01T00:00:00+00:00"},
                                  {1, "c1", "change", "B", "2026-01-02T00:00:00+00:00"}});
    BisectRunRow run = sample_run(1, 42.5);
    run.message = "a note";
    store.add_bisect_run(id, run);
    BOOST_TEST((store.read_bisects().at(0).status == SearchStatus::running));
    BOOST_TEST(store.read_bisects().at(0).result_json == "{}");
    store.finish_bisect(id, SearchStatus::done, "culprit", R"({"runs": 1})");
  }
  const Store store = Store::open_read_only(folder.file("runs.db"));
  const std::vector<BisectRow> hunts = store.read_bisects();
  BOOST_REQUIRE(hunts.size() == 1u);
  const BisectRow& hunt = hunts[0];
  BOOST_TEST(hunt.config_hash == "hunt");
  BOOST_TEST(hunt.config_json == R"({"metric": "step_ns"})");
  BOOST_TEST(hunt.repository == "/src/engine");
  BOOST_TEST(hunt.good == std::string(40, 'a'));
  BOOST_TEST(hunt.bad == std::string(40, 'b'));
  BOOST_TEST(hunt.metric == "step_ns");
  BOOST_TEST((hunt.status == SearchStatus::done));
  BOOST_TEST(hunt.verdict == "culprit");
  BOOST_TEST(hunt.result_json == R"({"runs": 1})");
  BOOST_TEST(hunt.command_line == "moetune bisect --good v1 --bad v2");
  BOOST_TEST(hunt.tool_version == "0.1.0");
  BOOST_TEST(hunt.tool_commit == "abc");
  BOOST_TEST(hunt.started_at.ends_with("Z"));
  BOOST_TEST(hunt.ended_at >= hunt.started_at);

  const auto commits = store.read_bisect_commits(hunt.id);
  BOOST_REQUIRE(commits.size() == 2u);
  BOOST_TEST(commits[1].position == 1);
  BOOST_TEST(commits[1].commit_id == "c1");
  BOOST_TEST(commits[1].subject == "change");
  BOOST_TEST(commits[1].author == "B");
  BOOST_TEST(commits[1].author_date == "2026-01-02T00:00:00+00:00");

  const auto runs = store.read_bisect_runs(hunt.id);
  BOOST_REQUIRE(runs.size() == 1u);
  BOOST_TEST(runs[0].ordinal == 1);
  BOOST_TEST(runs[0].position == 1);
  BOOST_TEST(runs[0].key == "key 1");
  BOOST_TEST(runs[0].purpose == "search");
  BOOST_TEST(runs[0].status == "ok");
  BOOST_TEST(runs[0].value.value() == 42.5);
  BOOST_TEST(runs[0].metrics_json == R"({"peak_bytes": 5})");
  BOOST_TEST(runs[0].message == "a note");
  BOOST_TEST(runs[0].build_seconds == 30);
  BOOST_TEST(runs[0].run_seconds == 1.5);
  BOOST_TEST(runs[0].started_at == "2026-11-20T10:00:00.000Z");
}

BOOST_AUTO_TEST_CASE(the_same_hash_is_the_same_hunt) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t first = store.open_bisect(sample_hunt("one"));
  const int64_t other = store.open_bisect(sample_hunt("two"));
  BOOST_TEST(first != other);
  store.set_bisect_commits(first, {{0, "c0", "", "", ""}});
  store.add_bisect_run(first, sample_run(0, 1));
  store.add_bisect_run(other, sample_run(0, 2));
  store.finish_bisect(first, SearchStatus::interrupted, "", R"({"runs": 1})");
  BOOST_TEST((store.read_bisects().at(0).status == SearchStatus::interrupted));
  BOOST_TEST(store.read_bisects().at(0).ended_at != "");

  BisectRow again = sample_hunt("one");
  again.command_line = "the same, in other words";
  BOOST_TEST(store.open_bisect(again) == first);
  const auto hunts = store.read_bisects();
  BOOST_REQUIRE(hunts.size() == 2u);
  BOOST_TEST((hunts[0].status == SearchStatus::running));
  BOOST_TEST(hunts[0].ended_at == "");
  BOOST_TEST(hunts[0].result_json == R"({"runs": 1})");
  BOOST_TEST(hunts[0].command_line == sample_hunt().command_line);
  BOOST_TEST(store.read_bisect_runs(first).size() == 1u);
  BOOST_TEST(store.read_bisect_runs(first).at(0).value.value() == 1);
  BOOST_TEST(store.read_bisect_runs(other).at(0).value.value() == 2);

  // Commits are replaced as a whole, measurements stay.
  store.set_bisect_commits(first, {{0, "x", "", "", ""}, {1, "y", "", "", ""}});
  BOOST_TEST(store.read_bisect_commits(first).size() == 2u);
  BOOST_TEST(store.read_bisect_commits(first).at(0).commit_id == "x");
  BOOST_TEST(store.read_bisect_runs(first).size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_killed_hunt_keeps_every_measurement) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  // The child tells of each measurement after it was stored, and is killed while it goes on.
  std::array<int, 2> tell{};
  BOOST_REQUIRE(pipe(tell.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    try {
      Store store = Store::open(path);
      const int64_t id = store.open_bisect(sample_hunt());
      store.set_bisect_commits(id, {{0, "c0", "s", "a", "d"}, {1, "c1", "s", "a", "d"}});
      for (int i = 0;; ++i) {
        store.add_bisect_run(id, sample_run(i % 2, i));
        if (write(tell[1], "x", 1) != 1) _exit(98);
      }
    } catch (...) {
      _exit(99);
    }
  }
  close(tell[1]);
  constexpr int kTold = 20;
  char mark = 0;
  for (int i = 0; i < kTold; ++i) {
    BOOST_REQUIRE(read(tell[0], &mark, 1) == 1);
  }
  kill(child, SIGKILL);
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFSIGNALED(status));
  int num_told = kTold;
  while (read(tell[0], &mark, 1) == 1) ++num_told;
  close(tell[0]);

  Store store = Store::open(path);
  const int64_t id = store.open_bisect(sample_hunt());
  BOOST_TEST(store.read_bisects().size() == 1u);
  const auto runs = store.read_bisect_runs(id);
  // Killed between storing and telling, one more is there.
  BOOST_TEST(runs.size() >= static_cast<size_t>(num_told));
  BOOST_TEST(runs.size() <= static_cast<size_t>(num_told) + 1);
  for (size_t i = 0; i < runs.size(); ++i) {
    BOOST_TEST(runs[i].ordinal == static_cast<int64_t>(i) + 1);
    BOOST_TEST(runs[i].value.value() == static_cast<double>(i));
  }
  store.add_bisect_run(id, sample_run(1, -5));
  BOOST_TEST(store.read_bisect_runs(id).back().ordinal == static_cast<int64_t>(runs.size()) + 1);
  BOOST_TEST(store.read_bisect_commits(id).size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_measurement_waits_for_the_disk_and_only_it) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  constexpr int64_t kNormal = 1;
  constexpr int64_t kFull = 2;
  int64_t seen = -1;
  store.database().set_commit_hook(
      [&] { seen = store.database().query_int("PRAGMA synchronous"); });
  store.add_bisect_run(id, sample_run(0, 1));
  store.database().set_commit_hook(nullptr);
  BOOST_TEST(seen == kFull);
  BOOST_TEST(store.database().query_int("PRAGMA synchronous") == kNormal);
  BisectRunRow bad = sample_run(0, 1);
  bad.status = "great";
  BOOST_CHECK_THROW(store.add_bisect_run(id, bad), ConstraintError);
  BOOST_TEST(store.database().query_int("PRAGMA synchronous") == kNormal);
}

BOOST_AUTO_TEST_CASE(measurements_come_back_in_order) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  for (const int64_t ordinal : {7, 3, 12}) {
    BisectRunRow run = sample_run(1, static_cast<double>(ordinal));
    run.ordinal = ordinal;
    store.add_bisect_run(id, run);
  }
  store.add_bisect_run(id, sample_run(0, 99));  // the next one
  std::vector<int64_t> ordinals;
  for (const BisectRunRow& run : store.read_bisect_runs(id)) {
    ordinals.push_back(run.ordinal);
  }
  const std::vector<int64_t> expected = {3, 7, 12, 13};
  BOOST_TEST(ordinals == expected, boost::test_tools::per_element());
  // Nothing is overwritten.
  BisectRunRow twice = sample_run(1, 0);
  twice.ordinal = 7;
  BOOST_CHECK_THROW(store.add_bisect_run(id, twice), ConstraintError);
  BOOST_TEST(store.read_bisect_runs(id).at(1).value.value() == 7);
}

BOOST_AUTO_TEST_CASE(hostile_texts_come_back_as_valid_texts) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const std::string quotes = "'; DROP TABLE bisect_run; --\n<script>\"";
  const std::string broken = "a\xff\xc0\x80z";
  const std::string repaired = "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz";
  const std::string nul("a\0b", 3);
  BisectRow hunt = sample_hunt(quotes);
  hunt.metric = broken;
  hunt.repository = nul;
  const int64_t id = store.open_bisect(hunt);
  store.set_bisect_commits(id, {{0, quotes, broken, nul, std::string(1 << 20, 'd')}});
  BisectRunRow run = sample_run(0, 1);
  run.key = quotes;
  run.purpose = broken;
  run.message = nul;
  run.metrics_json = std::string(1 << 20, '[');
  store.add_bisect_run(id, run);
  store.finish_bisect(id, SearchStatus::failed, "", broken);

  BOOST_TEST(store.open_bisect(hunt) == id);
  const BisectRow back = store.read_bisects().at(0);
  BOOST_TEST(back.config_hash == quotes);
  BOOST_TEST(back.metric == repaired);
  BOOST_TEST((back.repository == nul));
  BOOST_TEST(back.result_json == repaired);
  const BisectCommitRow commit = store.read_bisect_commits(id).at(0);
  BOOST_TEST(commit.commit_id == quotes);
  BOOST_TEST(commit.subject == repaired);
  BOOST_TEST((commit.author == nul));
  BOOST_TEST(commit.author_date.size() == 1u << 20);
  const BisectRunRow read = store.read_bisect_runs(id).at(0);
  BOOST_TEST(read.key == quotes);
  BOOST_TEST(read.purpose == repaired);
  BOOST_TEST((read.message == nul));
  BOOST_TEST((read.metrics_json == run.metrics_json));
}

BOOST_AUTO_TEST_CASE(numbers_that_are_none_are_no_value) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    BisectRunRow run = sample_run(0, value);
    run.build_seconds = value;
    run.run_seconds = value;
    store.add_bisect_run(id, run);
  }
  constexpr double kHuge = std::numeric_limits<double>::max();
  BisectRunRow run = sample_run(std::numeric_limits<int>::max(), -kHuge);
  run.ordinal = std::numeric_limits<int64_t>::max();
  run.run_seconds = kHuge;
  store.add_bisect_run(id, run);
  const auto runs = store.read_bisect_runs(id);
  BOOST_REQUIRE(runs.size() == 4u);
  for (size_t i = 0; i < 3; ++i) {
    BOOST_TEST(!runs[i].value);
    BOOST_TEST(runs[i].build_seconds == 0);
    BOOST_TEST(runs[i].run_seconds == 0);
  }
  BOOST_TEST(runs[3].value.value() == -kHuge);
  BOOST_TEST(runs[3].run_seconds == kHuge);
  BOOST_TEST(runs[3].position == std::numeric_limits<int>::max());
  // There is no next one after the largest.
  BOOST_CHECK_THROW(store.add_bisect_run(id, sample_run(0, 1)), base::Error);
  // What another hand wrote.
  store.database().execute("UPDATE bisect_run SET value = 9e999, build_seconds = -1e999");
  BOOST_TEST(!store.read_bisect_runs(id).at(3).value);
  BOOST_TEST(store.read_bisect_runs(id).at(3).build_seconds == 0);
}

BOOST_AUTO_TEST_CASE(what_breaks_the_schema_is_refused) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  store.set_bisect_commits(id, {{0, "kept", "", "", ""}});
  BOOST_CHECK_THROW(store.add_bisect_run(99, sample_run(0, 1)), ConstraintError);
  BOOST_CHECK_THROW(store.add_bisect_run(id, sample_run(-1, 1)), ConstraintError);
  BOOST_CHECK_THROW(store.finish_bisect(id, static_cast<SearchStatus>(99), "", "{}"),
                    ConstraintError);
  BOOST_CHECK_THROW(store.finish_bisect(id, SearchStatus::done, "guilty", "{}"), ConstraintError);
  BOOST_CHECK_EXCEPTION(store.finish_bisect(99, SearchStatus::done, "", "{}"), base::Error,
                        says("runs.db", "99"));
  // Half a list is no list: the old one stays.
  BOOST_CHECK_THROW(
      store.set_bisect_commits(id, {{0, "new", "", "", ""}, {0, "twice", "", "", ""}}),
      ConstraintError);
  BOOST_TEST(store.read_bisect_commits(id).at(0).commit_id == "kept");
  BOOST_TEST((store.read_bisects().at(0).status == SearchStatus::running));
  for (const char* sql :
       {"UPDATE bisect_hunt SET metric = NULL", "UPDATE bisect_commit SET position = 'first'",
        "INSERT INTO bisect_commit VALUES (9, 0, '', '', '', '')"}) {
    BOOST_CHECK_THROW(store.database().execute(sql), ConstraintError);
  }
}

BOOST_AUTO_TEST_CASE(a_position_that_is_none_is_an_error_with_the_path) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  store.set_bisect_commits(id, {{0, "c", "", "", ""}});
  store.add_bisect_run(id, sample_run(0, 1));
  // As a file made by hand may have it.
  store.database().execute(
      "PRAGMA ignore_check_constraints = on; UPDATE bisect_run SET position = 5000000000; "
      "UPDATE bisect_commit SET position = -3");
  BOOST_CHECK_EXCEPTION(store.read_bisect_runs(id), base::Error, says("runs.db", "5000000000"));
  BOOST_CHECK_EXCEPTION(store.read_bisect_commits(id), base::Error, says("runs.db", "-3"));
}

BOOST_AUTO_TEST_CASE(hunts_and_their_rows_go_together) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t id = store.open_bisect(sample_hunt());
  store.set_bisect_commits(id, {{0, "c", "", "", ""}});
  store.add_bisect_run(id, sample_run(0, 1));
  store.database().execute("DELETE FROM bisect_hunt");
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM bisect_run") == 0);
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM bisect_commit") == 0);
}

BOOST_AUTO_TEST_CASE(older_databases_are_upgraded_and_lose_nothing) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  tests::make_old_store(path, 1);
  {
    Database old(path, OpenMode::read_write);
    old.execute(
        "INSERT INTO model VALUES (1, 'tiny', '{}'); INSERT INTO hardware VALUES (1, 'h', '{}'); "
        "INSERT INTO sweep VALUES (1, 'first', 'hash', '{}', '{}', 1, 1, 'done', 't', 't', 'c', "
        "'v', 'k'); CREATE VIEW mine AS SELECT * FROM trial; "
        "INSERT INTO trial (id, sweep_id, ordinal, spec_hash, phase, status, spec_json, "
        "started_at) "
        "VALUES (1, 1, 1, 'h', 'fit', 'ok', '{}', 't'); INSERT INTO StringIds VALUES (1, 'op'); "
        "INSERT INTO trace_step VALUES (1, 0, 0, 0, 9); "
        "INSERT INTO trace_record VALUES (1, 0, 0, 7, 4, -1, 1, -1, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, "
        "0, 0, 0)");
    BOOST_CHECK_THROW(old.execute("UPDATE trace_record SET kind = 5"), ConstraintError);
  }
  BOOST_CHECK_EXCEPTION(Store::open(path), base::UsageError,
                        says("runs.db", "version 1", "upgrade"));
  BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::UsageError, says("runs.db", "upgrade"));
  BOOST_TEST(Store::upgrade(path) == 1);
  BOOST_TEST(Store::upgrade(path) == Store::schema_version());
  Store store = Store::open(path);
  BOOST_TEST(store.read_sweep(1)->name == "first");
  BOOST_TEST(store.read_trace(1).at(0).records.at(0).id == 7);
  const int64_t id = store.open_bisect(sample_hunt());
  store.set_bisect_commits(id, {{0, "c", "", "", ""}});
  store.add_bisect_run(id, sample_run(0, 1));
  BOOST_TEST(store.read_bisect_runs(id).size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_what_its_version_says_stays_as_it_was) {
  for (const auto& [sql, part] :
       {std::pair{"CREATE TABLE Bisect_Run (a)", "bisect_run"},
        std::pair{"CREATE VIEW bisect_hunt AS SELECT 1", "view bisect_hunt"},
        std::pair{"DROP TABLE decision", "decision"},
        std::pair{"CREATE TRIGGER evil AFTER INSERT ON sweep BEGIN DELETE FROM trial; END",
                  "evil"}}) {
    const TempFolder folder;
    const std::string path = folder.file("runs.db");
    tests::make_old_store(path, 1);
    { Database(path, OpenMode::read_write).execute(sql); }
    BOOST_CHECK_EXCEPTION(Store::upgrade(path), base::UsageError, says("runs.db", part));
    Database database(path, OpenMode::read_only);
    BOOST_TEST(database.query_int("PRAGMA user_version") == 1);
    BOOST_TEST(database.query_int("SELECT count(*) FROM sqlite_schema WHERE name = "
                                  "'bisect_commit'") == 0);
  }
}

BOOST_AUTO_TEST_CASE(shards_keep_their_own_version) {
  const TempFolder folder;
  {
    ShardWriter writer(folder.file("shard.db"));
    writer.add_text("log", "hello");
    writer.commit();
  }
  BOOST_TEST(
      Database(folder.file("shard.db"), OpenMode::read_only).query_int("PRAGMA user_version") == 3);
  BOOST_TEST(read_shard(folder.file("shard.db")).text("log") == "hello");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store
