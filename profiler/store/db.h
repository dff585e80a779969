// Connections and statements over SQLite, so that sqlite3.h is included in db.cpp only. Every
// failure becomes an exception whose message names the file; user files are opened in defensive
// mode, files of other programs so that nothing is written even beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace moetune::store {

enum class OpenMode : uint8_t {
  read_write_create,
  read_write,
  read_only,
  /// A file of another program, to be read once. Nothing is written to it or beside it (no log,
  /// lock or shared memory). A file with a log of changes beside it is refused. Every failure is a
  /// base::UsageError. So is reading a text of more than kMaxForeignTextBytes, and reading that
  /// takes more steps than the file's size explains: a damaged file may link pages in circles.
  foreign,
};
/// Longest text that is read from a foreign file.
constexpr int kMaxForeignTextBytes = 1 << 20;
enum class ValueType : uint8_t { null, integer, real, text, blob };

/// A row broke a rule of the schema: a name twice, a value of the wrong type or outside its list.
class ConstraintError : public base::Error {
 public:
  using Error::Error;
};

/// One connection. Not thread-safe.
class Database {
 public:
  /// `busy_timeout_ms` is how long a statement waits for another process's lock.
  Database(const std::string& path, OpenMode mode, int busy_timeout_ms = 5000);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs one or several statements that return nothing of interest.
  void execute(const std::string& sql);
  /// First column of the first row. The query must have a row.
  [[nodiscard]] int64_t query_int(const std::string& sql);
  [[nodiscard]] int64_t last_insert_rowid() const;
  [[nodiscard]] int64_t num_changes() const;
  /// Sets a function that is called inside every commit, before the commit is durable. It must not
  /// throw. For tests and progress.
  void set_commit_hook(std::function<void()> hook);

  /// Merges the write-ahead log into the file, so that the file alone is the database. Does nothing
  /// if another connection has the file open, or if this one is for reading only.
  void leave_wal() noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t file_bytes() const;
  [[nodiscard]] sqlite3* handle() const { return handle_; }
  /// Throws an error that explains SQLite's result code in a sentence with the path.
  [[noreturn]] void fail(int code, const std::string& doing) const;

 private:
  void open(OpenMode mode);
  void guard_foreign();

  std::string path_;
  sqlite3* handle_ = nullptr;
  bool is_foreign_ = false;
  int64_t foreign_steps_left_ = 0;  // in units of kForeignStepsEach
  std::function<void()> commit_hook_;
};

/// One prepared statement. Parameters count from 1, columns from 0. The database must outlive it.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  Statement(const Statement&) = delete;

  Statement& bind(int index, int64_t value);
  Statement& bind(int index, int value) { return bind(index, static_cast<int64_t>(value)); }
  Statement& bind(int index, bool value) { return bind(index, static_cast<int64_t>(value)); }
  /// NaN is stored as NULL.
  Statement& bind(int index, double value);
  Statement& bind(int index, std::string_view value);
  Statement& bind(int index, const std::string& value) {
    return bind(index, std::string_view(value));
  }
  Statement& bind(int index, const char* value) { return bind(index, std::string_view(value)); }
  Statement& bind_null(int index);
  Statement& bind_blob(int index, std::string_view bytes);
  template <typename T>
  Statement& bind(int index, const std::optional<T>& value) {
    return value ? bind(index, *value) : bind_null(index);
  }
  /// Binds NULL for an empty text.
  Statement& bind_text_or_null(int index, std::string_view value);
  /// Binds 1, 2, ... in order.
  template <typename... Values>
  Statement& bind_all(const Values&... values) {
    int index = 0;
    (bind(++index, values), ...);
    return *this;
  }
  /// Index of a parameter by its name with the colon (":sweep_id"); 0 if there is none.
  [[nodiscard]] int parameter_index(const std::string& name) const;

  /// True while there is a row.
  bool step();
  /// Steps to the end, then resets, ready for new parameters.
  void run();
  void reset();

  [[nodiscard]] int num_columns() const;
  [[nodiscard]] std::string column_name(int column) const;
  [[nodiscard]] ValueType type(int column) const;
  [[nodiscard]] bool is_null(int column) const { return type(column) == ValueType::null; }
  [[nodiscard]] int64_t get_int(int column) const;
  /// Returns NaN for NULL.
  [[nodiscard]] double get_double(int column) const;
  /// Returns an empty string for NULL. The result is valid UTF-8: other bytes become U+FFFD, so
  /// that no text of a trial can break JSON or HTML later.
  [[nodiscard]] std::string get_text(int column) const;
  /// The unchanged bytes, which may be invalid UTF-8. Valid until the next step().
  [[nodiscard]] std::string_view text_view(int column) const;
  [[nodiscard]] std::string_view blob_view(int column) const;
  [[nodiscard]] std::optional<int64_t> get_optional_int(int column) const;
  [[nodiscard]] std::optional<double> get_optional_double(int column) const;

 private:
  Database* database_;
  sqlite3_stmt* handle_ = nullptr;
};

/// BEGIN ... COMMIT; rolls back if it is destroyed without commit(). `write` takes the write lock
/// at once, `read` only keeps one consistent view.
class Transaction {
 public:
  enum class Kind : uint8_t { write, read };
  explicit Transaction(Database& database, Kind kind = Kind::write);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool is_open_ = true;
};

}  // namespace moetune::store
