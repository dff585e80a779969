// Steps of our own engine in the form of other tools' traces, so that what `moetune trace` has
// written can be given to whatever reads traces, and has the wall that its trial has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiler/imported_trace.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// One trace for each rank, by rank, of a file that is_step_traces() knows (step_traces.h). Rules:
///  - A record on a stream is device work, launched by the call that its launch times tell.
///    Synchronisations are calls, loading is a range, a step is a step until its host is done.
///  - Each producer on another stream becomes a recorded event and a wait for it: these calls take
///    a part of the launches' time.
///  - Who shares a communicator, and where messages go, is what the file says. Older files say only
///    the former, and messages go to the next stage of it, or neither. Collectives end at once on
///    all its ranks, so ranks whose ends agree are one group, unless they could be several: nobody
///    knows its ranks then. A message ends at once on both sides, so the rank whose ends agree best
///    is the other one, where one does. Ranks that messages connect are one pipeline.
/// Throws base::UsageError as TraceFileFormat::read.
std::vector<ImportedTrace> read_own_steps(const std::string& path);

/// Streams of the records that another stream waits for, by id.
std::map<int64_t, int32_t> awaited_streams(const StepTrace& step);
/// Bytes that each exchange of experts' rows brings, by id: what it sends comes back by the other
/// one of its layer and micro-batch.
std::map<int64_t, int64_t> received_bytes(const StepTrace& step);

}  // namespace moetune::profiler
