// What kind of thing a record is for a replay.
#pragma once

#include <string>

#include "profiler/record.h"

namespace moetune::profiler {

inline bool is_on_host(const TraceRecord& record) {
  return record.kind == RecordKind::host_sync || record.kind == RecordKind::host_work;
}

inline bool is_receive(const TraceRecord& record) {
  return record.kind == RecordKind::p2p && record.name.text().find("recv") != std::string::npos;
}

/// Messages of imported traces have a number of their own instead of a micro-batch.
inline bool is_numbered(const TraceRecord& record) {
  return record.kind == RecordKind::p2p && record.micro_batch < 0 && record.sequence >= 0;
}

}  // namespace moetune::profiler
