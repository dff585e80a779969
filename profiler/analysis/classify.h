// What kind of work a record is, by rules that the caller passes in, so that the analysis knows no
// op names of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/step_parts.h"
#include "profiler/record.h"

namespace moetune::profiler {

enum class OpClass : uint8_t {
  compute,        ///< a kernel that is not dispatcher work
  dispatcher,     ///< a kernel that packs, routes or unpacks for communication
  communication,  ///< a collective or point-to-point transfer
  memcpy,         ///< a copy between memories
  host,           ///< a host synchronisation: not device work
};
const char* name_of(OpClass op_class);

using base::kDispatcherGroup;
using base::kMemcpyGroup;
using base::kStepEndGroup;

/// What the caller knows about names.
struct ClassificationRules {
  /// Kernels of the dispatcher, such as "permute": matches a record's whole name and its part
  /// before the first '.'.
  std::vector<std::string> dispatcher_ops;
  /// Groups in which waiting is pipeline bubble and not jitter: all that span pipeline stages. With
  /// more than one stage, pass those of world-wide collectives and kStepEndGroup too: the cool-down
  /// bubble ends there.
  std::vector<std::string> pipeline_groups = {"pp"};
};

OpClass classify(const TraceRecord& record, const ClassificationRules& rules);

/// The group that time lost to this record is booked under: its own, or one of the names above.
std::string group_of(const TraceRecord& record, OpClass op_class);

bool is_pipeline_group(const std::string& group, const ClassificationRules& rules);

}  // namespace moetune::profiler
