// Databases as files: of other programs or versions, damaged, locked, read-only, on a full disk.
#include <boost/test/unit_test.hpp>

#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "tests/profiler/store_samples.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(store_files)

namespace {

using samples::ok_result;
using samples::sample_sweep;
using samples::sample_trial;
using samples::write_shard;
using tests::says;
using tests::TempFolder;

BOOST_AUTO_TEST_CASE(tables_are_strict) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  store.begin_trial(sample_trial(sweep_id, "a"));
  Database& database = store.database();
  for (const char* sql : {"UPDATE trial SET step_ns = 'fast'", "UPDATE trial SET status = 'great'",
                          "UPDATE trial SET wall = 'brick'", "UPDATE trial SET sweep_id = 99",
                          "INSERT INTO prediction VALUES (1, 'x', 1.0, 'guessed')",
                          "INSERT INTO step (trial_id, step, is_warmup, is_traced, step_ns) VALUES "
                          "(9, 0, 0, 0, 1)"}) {
    BOOST_CHECK_THROW(database.execute(sql), ConstraintError);
  }
  BOOST_TEST(database.query_int("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND "
                                "name NOT LIKE 'sqlite_%' AND sql NOT LIKE '%STRICT%'") == 0);
  BOOST_TEST(database.query_int("PRAGMA foreign_keys") == 1);
}

BOOST_AUTO_TEST_CASE(files_that_are_not_ours) {
  const TempFolder folder;
  const auto both = [&](const std::string& name, auto check) {
    BOOST_CHECK_EXCEPTION(Store::open(folder.file(name)), base::UsageError, check);
    BOOST_CHECK_EXCEPTION(Store::open_read_only(folder.file(name)), base::UsageError, check);
    BOOST_CHECK_EXCEPTION(Store::upgrade(folder.file(name)), base::UsageError, check);
  };
  const std::string text = std::string("This is a text, not a database.\n") + std::string(600, '.');
  tests::write_text(folder.file("notes.txt"), text);
  both("notes.txt", says("notes.txt", "not a moetune database"));
  BOOST_TEST(std::filesystem::file_size(folder.file("notes.txt")) == text.size());

  Database(folder.file("other.db"), OpenMode::read_write_create).execute("CREATE TABLE t (a)");
  both("other.db", says("other.db", "not written by moetune"));

  write_shard(folder.file("shard.db"));
  both("shard.db", says("shard.db", "shard"));

  { Store::open(folder.file("newer.db")); }
  Database(folder.file("newer.db"), OpenMode::read_write).execute("PRAGMA user_version = 9");
  both("newer.db", says("newer.db", "version 9", "newer"));

  BOOST_CHECK_EXCEPTION(Store::open_read_only(folder.file("none.db")), base::UsageError,
                        says("none.db", "no such database"));
  BOOST_CHECK_EXCEPTION(Store::open(folder.file("no/such/folder.db")), base::UsageError,
                        says("folder.db", "cannot be opened"));
  BOOST_TEST(!std::filesystem::exists(folder.file("none.db")));
}

BOOST_AUTO_TEST_CASE(empty_files_become_databases_and_keep_their_version) {
  const TempFolder folder;
  const std::string path = folder.file("empty.db");
  tests::write_text(path, "");
  BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::UsageError, says("empty"));
  BOOST_CHECK_EXCEPTION(Store::upgrade(path), base::UsageError, says("empty"));
  {
    Store store = Store::open(path);
    BOOST_TEST(store.database().query_int("PRAGMA user_version") == Store::schema_version());
    BOOST_TEST(store.path() == path);
  }
  BOOST_TEST(Store::upgrade(path) == Store::schema_version());
  BOOST_CHECK_NO_THROW(Store::open_read_only(path));
}

BOOST_AUTO_TEST_CASE(changed_schemas_are_refused) {
  for (const auto& [sql, part] :
       {std::pair{"DROP TABLE decision", "decision"},
        std::pair{"ALTER TABLE trial ADD COLUMN x INTEGER", "trial"},
        std::pair{"CREATE TRIGGER evil AFTER INSERT ON trial BEGIN DELETE "
                  "FROM trial; END",
                  "evil"}}) {
    const TempFolder folder;
    const std::string path = folder.file("runs.db");
    { Store::open(path).database().execute(sql); }
    BOOST_CHECK_EXCEPTION(Store::open(path), base::UsageError, says("runs.db", part));
    BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::UsageError, says("runs.db", part));
  }
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  { Store::open(path).database().execute("CREATE VIEW mine AS SELECT * FROM trial; ANALYZE"); }
  BOOST_CHECK_NO_THROW(Store::open(path));
}

BOOST_AUTO_TEST_CASE(a_damaged_database_is_an_error) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  { Store::open(path).create_or_resume_sweep(sample_sweep()); }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file << std::string(30000, '\x5a');
  file.close();
  BOOST_CHECK_EXCEPTION(Store::open(path), base::Error, says("runs.db", "damaged"));
  BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::Error, says("runs.db", "damaged"));
}

BOOST_AUTO_TEST_CASE(a_locked_database_says_so) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  Store holder = Store::open(path);
  const int64_t sweep_id = holder.create_or_resume_sweep(sample_sweep()).id;
  const Transaction lock(holder.database());
  Database other(path, OpenMode::read_write, 1);
  BOOST_CHECK_EXCEPTION(Transaction{other}, base::Error, says("runs.db", "locked"));
  // Reading goes on.
  BOOST_TEST(Store::open_read_only(path).read_sweep(sweep_id)->name == "quickstart");
}

BOOST_AUTO_TEST_CASE(a_full_disk_says_so_and_leaves_nothing_half_written) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  store.database().execute(
      fmt::format("PRAGMA max_page_count = {}", store.database().query_int("PRAGMA page_count")));
  TrialResult result = ok_result();
  result.texts = {{"stderr", std::string(1 << 20, 'x')}};
  BOOST_CHECK_EXCEPTION(store.finish_trial(id, result), base::Error,
                        says("runs.db", "disk is full"));
  BOOST_TEST(store.get_trial(id)->status == "running");
  BOOST_TEST(store.read_metrics(id).empty());
  store.database().execute("PRAGMA max_page_count = 1000000");
  BOOST_TEST(store.finish_trial(id, result).status == "ok");
}

BOOST_AUTO_TEST_CASE(at_rest_the_database_is_one_file) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  {
    Store store = Store::open(path);
    store.create_or_resume_sweep(sample_sweep());
    BOOST_TEST(std::filesystem::exists(path + "-wal"));
    // A reader beside the writer sees what is committed.
    BOOST_TEST(Store::open_read_only(path).read_sweeps().size() == 1U);
  }
  BOOST_TEST(Store::open_read_only(path).read_sweeps().size() == 1U);
  BOOST_TEST(!std::filesystem::exists(path + "-wal"));
  BOOST_TEST(!std::filesystem::exists(path + "-shm"));
  Store store = Store::open(path);
  Store other = Store::open(folder.file("other.db"));
  other = std::move(store);
  BOOST_TEST(other.path() == path);
  BOOST_TEST(other.read_sweeps().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_read_only_store_cannot_write) {
  const TempFolder folder;
  { Store::open(folder.file("runs.db")); }
  Store store = Store::open_read_only(folder.file("runs.db"));
  BOOST_CHECK_EXCEPTION(store.create_or_resume_sweep(sample_sweep()), base::UsageError,
                        says("read-only"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store
