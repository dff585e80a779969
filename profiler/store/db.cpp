// SQLite behind db.h; the only file that includes sqlite3.h.
#include "profiler/store/db.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::store {
namespace {

// Longest text or blob that is read or written: far above every trace, far below what exhausts the
// memory.
constexpr int kMaxValueBytes = 256 << 20;
// Instructions of SQLite's machine between two looks at how many are left.
constexpr int kForeignStepsEach = 100'000;
// A row of a whole file takes less than one instruction a byte, and is read once or twice.
constexpr int64_t kForeignStepsPerByte = 8;

int call_commit_hook(void* hook) {
  (*static_cast<std::function<void()>*>(hook))();
  return 0;
}

/// A path as SQLite's URI of a file that nobody changes.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file://";
  for (const char c : std::filesystem::absolute(path).string()) {
    const bool is_plain = c == '/' || c == '.' || c == '-' || c == '_' || (c >= '0' && c <= '9') ||
                          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    uri += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri + "?immutable=1";
}

/// An immutable file is read without the changes that lie in a log beside it.
void refuse_open_changes(const std::string& path) {
  for (const char* ending : {"-wal", "-journal"}) {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path + ending, error);
    if (!error && bytes > 0) {
      throw base::UsageError(fmt::format(
          "{}: has changes in {}{} that are not in it yet; wait until the program that writes it "
          "is done, or open it once with sqlite3",
          path, path, ending));
    }
  }
}

int take_foreign_steps(void* left) { return --*static_cast<int64_t*>(left) < 0 ? 1 : 0; }

/// What a library says about a file, which may quote the file: one line, not too long.
std::string complaint_of(std::string_view text) {
  return base::one_line(base::valid_utf8(text.substr(0, 200)));
}

[[noreturn]] void fail_foreign(const std::string& path, int code, const char* text) {
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      throw base::UsageError(fmt::format("{}: is no SQLite file, or a damaged one", path));
    case SQLITE_CANTOPEN:
      throw base::UsageError(fmt::format("{}: cannot be opened ({})", path, complaint_of(text)));
    case SQLITE_TOOBIG:
      throw base::UsageError(
          fmt::format("{}: has a text of more than {} MB where a name is expected, or is damaged",
                      path, kMaxForeignTextBytes >> 20));
    case SQLITE_INTERRUPT:
      throw base::UsageError(
          fmt::format("{}: is damaged: it holds more rows than its size allows", path));
    case SQLITE_NOMEM:
      throw base::UsageError(fmt::format("{}: takes more memory than there is", path));
    default:
      throw base::UsageError(
          fmt::format("{}: is damaged or cut: SQLite says '{}'", path, complaint_of(text)));
  }
}

}  // namespace

Database::Database(const std::string& path, OpenMode mode, int busy_timeout_ms)
    : path_(path), is_foreign_(mode == OpenMode::foreign) {
  // SQLite would open a device or a pipe and leave its journal beside it.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw base::UsageError(fmt::format("{}: is not a regular file; a {}database is one", path,
                                       is_foreign_ ? "" : "runs "));
  }
  try {
    open(mode);
    sqlite3_extended_result_codes(handle_, 1);
    sqlite3_busy_timeout(handle_, busy_timeout_ms);
    sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH,
                  is_foreign_ ? kMaxForeignTextBytes : kMaxValueBytes);
    // The file may come from anybody: nothing in its schema may run code or change the file's
    // structure.
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
    if (is_foreign_) guard_foreign();
    execute("PRAGMA trusted_schema = off; PRAGMA cell_size_check = on; PRAGMA foreign_keys = on;");
  } catch (...) {
    sqlite3_close_v2(handle_);
    throw;
  }
}

void Database::open(OpenMode mode) {
  int flags = SQLITE_OPEN_NOMUTEX;
  std::string name = path_;
  switch (mode) {
    case OpenMode::read_write_create:
      flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
      break;
    case OpenMode::read_write:
      flags |= SQLITE_OPEN_READWRITE;
      break;
    case OpenMode::read_only:
      flags |= SQLITE_OPEN_READONLY;
      break;
    case OpenMode::foreign:
      // Only an immutable file leaves SQLite without a log and a lock file beside it.
      flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
      name = immutable_uri(path_);
      refuse_open_changes(path_);
      break;
  }
  const int code = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) {
    fail(code, "opening it");
  }
}

void Database::guard_foreign() {
  constexpr int64_t kFreeSteps = 10'000'000;
  const int64_t steps = file_bytes() / kForeignStepsEach * kForeignStepsPerByte;
  foreign_steps_left_ = steps + kFreeSteps / kForeignStepsEach;
  sqlite3_progress_handler(handle_, kForeignStepsEach, take_foreign_steps, &foreign_steps_left_);
  // A mapped file that somebody shortens would end the program.
  execute("PRAGMA query_only = on; PRAGMA temp_store = memory; PRAGMA mmap_size = 0;");
}

int64_t Database::file_bytes() const {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path_, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

Database::~Database() { sqlite3_close_v2(handle_); }

void Database::fail(int code, const std::string& doing) const {
  const char* text = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  if (is_foreign_) fail_foreign(path_, code, text);
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      throw base::UsageError(fmt::format(
          "{}: this is not a moetune database (not an SQLite file); name a file written by "
          "'moetune sweep', or for a new sweep one that does not exist yet",
          path_));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw base::Error(fmt::format(
          "{}: the database is locked by another process; wait until it is done, or stop it",
          path_));
    case SQLITE_FULL:
      throw base::Error(
          fmt::format("{}: the disk is full; make room, then run the same command again", path_));
    case SQLITE_CANTOPEN:
      throw base::UsageError(fmt::format(
          "{}: the database cannot be opened; name an existing file, or a place in a folder that "
          "exists and may be written ({})",
          path_, text));
    case SQLITE_READONLY:
      throw base::UsageError(
          fmt::format("{}: the database is read-only; make the file and its folder writable ({})",
                      path_, text));
    case SQLITE_CORRUPT:
      throw base::Error(fmt::format(
          "{}: the database is damaged; restore it, or start a new one ({})", path_, text));
    case SQLITE_CONSTRAINT:
      throw ConstraintError(fmt::format("{}: {}: {}", path_, doing, text));
    default:
      throw base::Error(
          fmt::format("{}: {} failed: {} (SQLite error {})", path_, doing, text, code));
  }
}

void Database::execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    fail(code, fmt::format("'{}'", sql.substr(0, 80)));
  }
}

int64_t Database::query_int(const std::string& sql) {
  Statement statement(*this, sql);
  MOETUNE_CHECK(statement.step(), "{}: no row from '{}'", path_, sql);
  return statement.get_int(0);
}

int64_t Database::last_insert_rowid() const { return sqlite3_last_insert_rowid(handle_); }

int64_t Database::num_changes() const { return sqlite3_changes64(handle_); }

void Database::set_commit_hook(std::function<void()> hook) {
  commit_hook_ = std::move(hook);
  sqlite3_commit_hook(handle_, commit_hook_ ? call_commit_hook : nullptr, &commit_hook_);
}

void Database::leave_wal() noexcept {
  if (sqlite3_db_readonly(handle_, "main") == 0) {
    sqlite3_busy_timeout(handle_, 0);
    sqlite3_exec(handle_, "PRAGMA journal_mode = delete", nullptr, nullptr, nullptr);
  }
}

Statement::Statement(Database& database, std::string_view sql) : database_(&database) {
  const int code = sqlite3_prepare_v3(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                      0, &handle_, nullptr);
  if (code != SQLITE_OK) {
    database.fail(code, fmt::format("'{}'", sql.substr(0, 80)));
  }
  MOETUNE_CHECK(handle_ != nullptr, "{}: empty statement '{}'", database.path(), sql);
}

Statement::~Statement() { sqlite3_finalize(handle_); }

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), handle_(std::exchange(other.handle_, nullptr)) {}

Statement& Statement::bind(int index, int64_t value) {
  if (const int code = sqlite3_bind_int64(handle_, index, value); code != SQLITE_OK) {
    database_->fail(code, "binding a parameter");
  }
  return *this;
}

Statement& Statement::bind(int index, double value) {
  if (const int code = sqlite3_bind_double(handle_, index, value); code != SQLITE_OK) {
    database_->fail(code, "binding a parameter");
  }
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  // A null pointer would bind NULL instead of an empty text.
  const char* data = value.data() != nullptr ? value.data() : "";
  const int code =
      sqlite3_bind_text64(handle_, index, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) {
    database_->fail(code, "binding a parameter");
  }
  return *this;
}

Statement& Statement::bind_null(int index) {
  if (const int code = sqlite3_bind_null(handle_, index); code != SQLITE_OK) {
    database_->fail(code, "binding a parameter");
  }
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view bytes) {
  const int code =
      sqlite3_bind_blob64(handle_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) {
    database_->fail(code, "binding a parameter");
  }
  return *this;
}

Statement& Statement::bind_text_or_null(int index, std::string_view value) {
  return value.empty() ? bind_null(index) : bind(index, value);
}

int Statement::parameter_index(const std::string& name) const {
  return sqlite3_bind_parameter_index(handle_, name.c_str());
}

bool Statement::step() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code != SQLITE_DONE) {
    const std::string sql = sqlite3_sql(handle_);
    try {
      database_->fail(code, fmt::format("'{}'", sql.substr(0, 80)));
    } catch (...) {
      sqlite3_reset(handle_);
      throw;
    }
  }
  return false;
}

void Statement::run() {
  while (step()) {
  }
  reset();
}

void Statement::reset() { sqlite3_reset(handle_); }

int Statement::num_columns() const { return sqlite3_column_count(handle_); }

std::string Statement::column_name(int column) const {
  const char* name = sqlite3_column_name(handle_, column);
  return name != nullptr ? name : "";
}

ValueType Statement::type(int column) const {
  switch (sqlite3_column_type(handle_, column)) {
    case SQLITE_INTEGER:
      return ValueType::integer;
    case SQLITE_FLOAT:
      return ValueType::real;
    case SQLITE_TEXT:
      return ValueType::text;
    case SQLITE_BLOB:
      return ValueType::blob;
    default:
      return ValueType::null;
  }
}

int64_t Statement::get_int(int column) const { return sqlite3_column_int64(handle_, column); }

double Statement::get_double(int column) const {
  return is_null(column) ? std::numeric_limits<double>::quiet_NaN()
                         : sqlite3_column_double(handle_, column);
}

std::string Statement::get_text(int column) const { return base::valid_utf8(text_view(column)); }

std::string_view Statement::text_view(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  if (text == nullptr) {
    return {};
  }
  return {text, static_cast<size_t>(sqlite3_column_bytes(handle_, column))};
}

std::string_view Statement::blob_view(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(handle_, column));
  if (bytes == nullptr) {
    return {};
  }
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(handle_, column))};
}

std::optional<int64_t> Statement::get_optional_int(int column) const {
  return is_null(column) ? std::nullopt : std::optional(get_int(column));
}

std::optional<double> Statement::get_optional_double(int column) const {
  return is_null(column) ? std::nullopt : std::optional(get_double(column));
}

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  // IMMEDIATE: a lock that cannot be had fails here, where the busy timeout waits, and not in the
  // middle.
  database_.execute(kind == Kind::write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (is_open_) {
    // Not execute(): a destructor must not throw, and SQLite may have rolled back by itself
    // already.
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  is_open_ = false;
}

}  // namespace moetune::store
