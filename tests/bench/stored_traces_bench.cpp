// What a stored trace takes, in bytes and time: as the table of rows that version 4 of the runs
// database had, and packed in columns as it is now. Of the traces of a runs database on the command
// line, or of a made-up program with noise. Bytes are those of a file that holds traces alone, less
// those of an empty one; times are the processor's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "embedded/kSchema4Sql.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/schema.h"
#include "profiler/store/store.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

namespace fs = std::filesystem;
using Traces = std::vector<profiler::StepTrace>;

template <typename Body>
double seconds_of(const Body& body) {
  const std::clock_t start = std::clock();
  body();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// 8 ranks, 40 layers of 25 operations, durations that vary by 3 %.
std::vector<Traces> made_up() {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(1, 0.03);
  std::vector<Traces> trials(20);
  for (Traces& traces : trials) {
    for (int32_t rank = 0; rank < 8; ++rank) {
      profiler::StepTrace trace{rank, 5, 0, 0, {}};
      int64_t at_ns = 1'000'000'000 + static_cast<int64_t>(random() % 1'000'000);
      for (int64_t i = 0; i < 1000; ++i) {
        const int64_t op = i % 25;
        profiler::TraceRecord record;
        record.id = i;
        record.name = fmt::format("op{}.forward", op);
        record.layer = static_cast<int32_t>(i / 25);
        record.launch_start_ns = at_ns - 100'000;
        record.launch_end_ns = record.launch_start_ns + 5000;
        record.start_ns = at_ns;
        at_ns += static_cast<int64_t>(static_cast<double>(20'000 + 7'000 * op) * noise(random));
        record.end_ns = at_ns;
        record.flops = 1'000'000 * op;
        record.bytes = 4096 * op;
        if (op % 10 == 3) {
          record.kind = profiler::RecordKind::collective;
          record.stream = 1;
          record.group = "ep";
          record.sequence = i / 10;
          record.transfer_ns = (record.end_ns - record.start_ns) / 2;
          record.producer_id = i - 1;
        }
        trace.records.push_back(record);
      }
      traces.push_back(std::move(trace));
    }
  }
  return trials;
}

std::vector<Traces> traces_in(const std::string& path, const fs::path& folder) {
  const std::string copy = folder / "given.db";
  fs::copy_file(path, copy);
  Store::upgrade(copy);
  const Store store = Store::open_read_only(copy);
  std::vector<Traces> trials;
  for (const TrialRow& trial : store.list_trials()) {
    Traces traces = store.read_trace(trial.id);
    if (!traces.empty()) trials.push_back(std::move(traces));
  }
  return trials;
}

/// One trial for each; returns their ids.
std::vector<int64_t> make_store(const std::string& path, size_t num_trials) {
  Store store = Store::open(path);
  SweepRow sweep;
  sweep.config_hash = "bench";
  std::vector<int64_t> ids;
  TrialRow trial;
  trial.sweep_id = store.create_or_resume_sweep(sweep).id;
  trial.phase = "fit";
  for (size_t i = 0; i < num_trials; ++i) {
    trial.spec_hash = fmt::format("{:08}", i);
    ids.push_back(store.begin_trial(trial));
  }
  return ids;
}

int64_t bytes_of(const std::string& path) {
  Database(path, OpenMode::read_write).execute("PRAGMA journal_mode = delete; VACUUM");
  return static_cast<int64_t>(fs::file_size(path));
}

/// Its table of rows, beside the tables of today.
void write_rows(Database& database, const std::vector<int64_t>& ids,
                const std::vector<Traces>& trials) {
  Transaction transaction(database);
  Statement text(database, "INSERT OR IGNORE INTO StringIds (value) VALUES (?)");
  Statement id(database, "SELECT id FROM StringIds WHERE value = ?");
  std::map<std::string, int64_t> known;
  const auto id_of = [&](const std::string& value) {
    const auto [at, is_new] = known.try_emplace(value, 0);
    if (is_new) {
      text.bind(1, value).run();
      id.bind(1, value).step();
      at->second = id.get_int(0);
      id.reset();
    }
    return at->second;
  };
  Statement window(database, "INSERT INTO trace_step VALUES (?, ?, ?, ?, ?)");
  std::string marks = "?";
  for (int i = 1; i < 21; ++i) marks += ", ?";
  Statement row(database, "INSERT INTO trace_record VALUES (" + marks + ")");
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const profiler::StepTrace& trace : trials[i]) {
      window.bind_all(ids[i], trace.step, trace.rank, trace.start_ns, trace.end_ns).run();
      for (const profiler::TraceRecord& record : trace.records) {
        row.bind_all(ids[i], trace.step, trace.rank);
        bind_columns<ColumnSet::first>(row, 4, record, id_of);
        row.run();
      }
    }
  }
  transaction.commit();
}

size_t read_rows(Database& database, const std::vector<int64_t>& ids,
                 const std::vector<Traces>& trials) {
  Statement select(database, select_from_version_4());
  size_t num_read = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const profiler::StepTrace& trace : trials[i]) {
      select.bind_all(ids[i], trace.step, trace.rank);
      while (select.step()) {
        Columns columns(select);
        profiler::TraceRecord record;
        read_columns<ColumnSet::first>(columns, "bench", record);
        ++num_read;
      }
      select.reset();
    }
  }
  return num_read;
}

std::string version_4_table() {
  const std::string schema(kSchema4Sql);
  const size_t begin = schema.find("CREATE TABLE trace_record");
  return schema.substr(begin, schema.find(";\n\n", begin) - begin);
}

void run(const std::vector<Traces>& trials, const fs::path& folder) {
  size_t num_records = 0;
  for (const Traces& traces : trials) {
    for (const profiler::StepTrace& trace : traces) num_records += trace.records.size();
  }
  const auto count = static_cast<double>(num_records);
  fmt::print("{} trials, {} records\n", trials.size(), num_records);
  fmt::print("{:<22} {:>14} {:>16} {:>16}\n", "", "bytes a record", "written a s", "read a s");
  const auto print = [&](const char* name, int64_t bytes, double write_s, double read_s) {
    fmt::print("{:<22} {:>14.1f} {:>16.0f} {:>16.0f}\n", name, static_cast<double>(bytes) / count,
               count / write_s, count / read_s);
  };
  const std::string rows = folder / "rows.db";
  const std::string packed = folder / "packed.db";
  const std::vector<int64_t> ids = make_store(rows, trials.size());
  const int64_t empty_bytes = bytes_of(rows);
  {
    Database database(rows, OpenMode::read_write);
    database.execute(version_4_table());
    const double write_s = seconds_of([&] { write_rows(database, ids, trials); });
    size_t num_read = 0;
    const double read_s = seconds_of([&] { num_read = read_rows(database, ids, trials); });
    MOETUNE_CHECK(num_read == num_records, "{} of {} records", num_read, num_records);
    print("rows (version 4)", bytes_of(rows) - empty_bytes, write_s, read_s);
  }
  make_store(packed, trials.size());
  Store store = Store::open(packed);
  const double write_s = seconds_of([&] {
    for (size_t i = 0; i < ids.size(); ++i) {
      TrialResult result;
      result.status = "ok";
      result.shards.emplace_back().traces = trials[i];
      store.finish_trial(ids[i], result);
    }
  });
  size_t num_read = 0;
  const double read_s = seconds_of([&] {
    for (const int64_t id : ids) {
      for (const profiler::StepTrace& trace : store.read_trace(id)) {
        num_read += trace.records.size();
      }
    }
  });
  MOETUNE_CHECK(num_read == num_records, "{} of {} records", num_read, num_records);
  const int64_t blob_bytes =
      store.database().query_int("SELECT sum(length(columns)) FROM trace_blob");
  store.database().leave_wal();
  print("packed", bytes_of(packed) - empty_bytes, write_s, read_s);
  fmt::print("of it blobs            {:>14.1f}\n", static_cast<double>(blob_bytes) / count);
}

}  // namespace
}  // namespace moetune::store

int main(int argc, char** argv) {
  std::string pattern = (std::filesystem::temp_directory_path() / "moetune-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return 1;
  const auto trials =
      argc > 1 ? moetune::store::traces_in(argv[1], pattern) : moetune::store::made_up();
  moetune::store::run(trials, pattern);
  std::filesystem::remove_all(pattern);
  return 0;
}
