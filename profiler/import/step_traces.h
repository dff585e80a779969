// Step traces from the Chrome JSON that we write ourselves (export/chrome_json.h), as they were: a
// trace that was exported once can be exported to another format, or compared, without its run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/record.h"

namespace moetune::profiler {

/// Whether a file that begins so, unpacked, is one of these: its "otherData", which stands there as
/// a whole, names us as the writer.
bool is_step_traces(std::string_view head);

/// All steps of all ranks, in the order of the file. Throws base::UsageError, which names the file,
/// for one that is damaged, or that somebody else wrote: other tools' records lack what ours have
/// (imported_trace.h holds those).
/// Older files lack what records did not have then.
std::vector<StepTrace> read_step_traces(const std::string& path);

}  // namespace moetune::profiler
