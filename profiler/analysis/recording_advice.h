// What to record next time where traces of other tools do not explain a run: a verdict that says
// only "unknown" leaves its reader with nothing to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Less device work than this is no sample of a run.
constexpr int64_t kMinJudgedOps = 32;
constexpr int64_t kMinJudgedNs = 1'000'000;

/// What the traces of a run lack for a verdict, the most helpful first: texts that complete "record
/// ...", with the option of the tool that made the traces. If nothing is missing: more steps.
/// `is_too_little`: there is less work than the constants above.
std::vector<std::string> what_to_record(std::span<const ImportedTrace> traces, bool is_too_little);

/// Why the traces, none of which has any, have no shapes of operators: a part of a sentence, in the
/// words of the tool that made them.
std::string why_no_shapes(std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler
