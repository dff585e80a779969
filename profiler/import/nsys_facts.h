// What an export of Nsight Systems says beside its records: versions, devices, warnings.
#pragma once

#include "profiler/import/foreign_tables.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Sets version, devices, base time and notes: warnings of the profiler, a schema that is not
/// known, and what `tables` lacks of all that was asked for until now.
void read_nsys_facts(ForeignTables& tables, TraceFacts& facts);

}  // namespace moetune::profiler
