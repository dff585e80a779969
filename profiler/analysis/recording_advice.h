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

/// Why there is no verdict, as far as the traces themselves do not show it.
struct VerdictLack {
  bool is_too_little = false;   ///< less work than the constants above
  bool is_unmatched = false;    ///< communication that was found on no other rank
  bool lacks_parts = false;     ///< collectives that were not found on all ranks that have them
  bool are_ids_shared = false;  ///< correlation ids do not tell what launched what
  bool lacks_lengths = false;   ///< kernels that do not end after their start
  bool lacks_records = false;   ///< lost ones, of which what is left does not tell enough
};

/// What the traces of a run lack for a verdict, the most helpful first: texts that complete "record
/// ...", with the option of the tool that made the traces. If nothing is missing: more steps.
std::vector<std::string> what_to_record(std::span<const ImportedTrace> traces,
                                        const VerdictLack& lack);

/// What shows the cause of stalls of the host: completes "record ...".
std::string how_to_see_stalls(std::span<const ImportedTrace> traces);

/// Why the traces, none of which has any, have no shapes of operators: a part of a sentence, in the
/// words of the tool that made them.
std::string why_no_shapes(std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler
