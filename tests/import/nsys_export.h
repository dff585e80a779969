// Makes SQLite files as Nsight Systems exports them, small for tests and large for benchmarks: the
// tables and columns of schema 3.25 that an importer reads, and some that it passes over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/store/db.h"

namespace moetune::tests {

/// globalPid of the process with this number; thread 0 of it.
constexpr int64_t nsys_process(int64_t pid) { return (int64_t{1} << 48) | (pid << 24); }

class NsysExport {
 public:
  static constexpr const char* kTables = R"sql(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, severity INTEGER NOT NULL,
  text TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,
  gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
  blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
  staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
  gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
  copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL,
  eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INTEGER, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2026.2.1.210'),
  ('EXPORT_SCHEMA_VERSION', '3.25.0');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT', 'TOKEN=secret');
INSERT INTO TARGET_INFO_GPU VALUES (1, 1, 'GPU B'), (1, 0, 'GPU A');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '');
)sql";

  explicit NsysExport(const std::string& path, bool has_tables = true)
      : database_(path, store::OpenMode::read_write_create) {
    database_.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off");
    if (has_tables) database_.execute(kTables);
  }

  NsysExport& run(const std::string& sql) {
    database_.execute(sql);
    return *this;
  }
  NsysExport& text(int64_t id, const std::string& value) {
    insert("StringIds", 2).bind_all(id, value).run();
    return *this;
  }
  NsysExport& kernel(int64_t pid, int64_t device, int64_t start, int64_t end, int64_t stream,
                     int64_t correlation, int64_t name, int64_t grid = 1) {
    insert("CUPTI_ACTIVITY_KIND_KERNEL", 29)
        .bind_all(start, end, device, device + 1, 0, stream, correlation, nsys_process(pid), name,
                  name, name, 1, 1, 32, grid, 1, 1, 128, 1, 1, 0, 0, 0, 0, 0, 0)
        .run();
    return *this;
  }
  NsysExport& copy(int64_t pid, int64_t device, int64_t start, int64_t end, int64_t stream,
                   int64_t correlation, int64_t bytes, int64_t kind) {
    insert("CUPTI_ACTIVITY_KIND_MEMCPY", 12)
        .bind_all(start, end, device, device + 1, 0, stream, correlation, nsys_process(pid), bytes,
                  kind, 1, 2)
        .run();
    return *this;
  }
  NsysExport& call(int64_t pid, int64_t thread, int64_t start, int64_t end, int64_t correlation,
                   int64_t name) {
    insert("CUPTI_ACTIVITY_KIND_RUNTIME", 8)
        .bind_all(start, end, 0, nsys_process(pid) | thread, correlation, name, 0)
        .run();
    return *this;
  }
  NsysExport& wait(int64_t pid, int64_t context, int64_t start, int64_t end, int64_t stream,
                   int64_t correlation, int64_t type, int64_t event, int64_t event_sync) {
    insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 10)
        .bind_all(start, end, 0, context, stream, correlation, nsys_process(pid), type, event,
                  event_sync)
        .run();
    return *this;
  }
  NsysExport& event(int64_t pid, int64_t stream, int64_t correlation, int64_t event,
                    int64_t event_sync) {
    insert("CUPTI_ACTIVITY_KIND_CUDA_EVENT", 8)
        .bind_all(0, 0, 1, stream, correlation, nsys_process(pid), event, event_sync)
        .run();
    return *this;
  }
  /// A range by push and pop; `text` or else the string `text_id`.
  NsysExport& range(int64_t pid, int64_t thread, int64_t start, std::optional<int64_t> end,
                    const std::string& text, int64_t text_id = -1) {
    auto& row = insert("NVTX_EVENTS", 7).bind_all(start, end, 59);
    row.bind_text_or_null(4, text).bind(5, nsys_process(pid) | thread);
    (text_id < 0 ? row.bind_null(6) : row.bind(6, text_id)).bind(7, 0).run();
    return *this;
  }
  store::Database& database() { return database_; }

 private:
  /// Parameters that are not bound are NULL.
  store::Statement& insert(const std::string& table, int num_columns) {
    if (!insert_ || last_table_ != table) {
      std::string marks = "?";
      for (int i = 1; i < num_columns; ++i) marks += ", ?";
      insert_.reset();
      insert_.emplace(database_, "INSERT INTO " + table + " VALUES (" + marks + ")");
      last_table_ = table;
    }
    return *insert_;
  }

  store::Database database_;
  std::optional<store::Statement> insert_;
  std::string last_table_;
};

}  // namespace moetune::tests
