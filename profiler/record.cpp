// Names of the record kinds, as stored.
#include "profiler/record.h"

namespace moetune::profiler {

const char* name_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kernel:
      return "kernel";
    case RecordKind::collective:
      return "collective";
    case RecordKind::p2p:
      return "p2p";
    case RecordKind::memcpy:
      return "memcpy";
    case RecordKind::host_sync:
      return "host_sync";
    case RecordKind::host_work:
      return "host_work";
  }
  return "?";
}

}  // namespace moetune::profiler
