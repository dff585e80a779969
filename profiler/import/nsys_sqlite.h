// Traces of Nsight Systems, from the SQLite file that `nsys export --type sqlite` writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Any SQLite file.
bool is_nsys_sqlite(std::string_view head);

/// One trace for each device of each process (globalPid, deviceId), in their order: the file does
/// not say ranks. Rules:
///  - Device work: the tables of kernels, graph replays, copies and fills. Its call has the same
///    process and correlationId.
///  - Ids repeat in every process and mean something only within it.
///  - A call's name decides what it is, not the syncType beside it, which some versions wrote
///    wrongly; a query waits for nothing. Version numbers behind names of calls are cut off.
///  - A stream's wait is joined to the recording of its event by eventSyncId, else by eventId and
///    the order of calls.
///  - Ranges are those of NVTX, without the operators of a framework: they are too many, and what
///    they launched is known by correlation. Steps are ranges called so (range_steps.h).
///  - What the export lacks is told in facts.notes, as are warnings of the profiler and a schema
///    that this was not written for. The environment of the traced program, which the file holds,
///    is not read.
/// The file is not changed and nothing is written beside it. Throws base::UsageError as
/// TraceFileFormat::read, also where there is no device work.
std::vector<ImportedTrace> read_nsys_sqlite(const std::string& path);

}  // namespace moetune::profiler
