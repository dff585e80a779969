// Files of other tools, known by their content and read into ImportedTrace: one row of the table
// for each format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct TraceFileFormat {
  const char* name;  ///< as in TraceFacts::format
  const char* what;  ///< in a sentence
  /// By the first 4,096 bytes, unpacked. Rows are asked in order.
  bool (*is_one)(std::string_view head);
  /// One trace for each rank, in the file's order. Throws base::UsageError, which names the file,
  /// for what cannot be read or understood.
  std::vector<ImportedTrace> (*read)(const std::string& path);
};
std::span<const TraceFileFormat> trace_file_formats();

/// Throws base::UsageError also for a file of no known format.
std::vector<ImportedTrace> read_trace_file(const std::string& path);

/// Throws base::UsageError where a file that begins so is Perfetto's protobuf, which `moetune
/// trace` writes, too: that is for viewers, and nobody reads it back.
void refuse_perfetto(const std::string& path, std::string_view head);

/// The rank in a file's name ("rank-3", "rank_3.json", "rank3"), for files that do not say theirs;
/// -1: none.
int64_t rank_in_name(std::string_view path);

}  // namespace moetune::profiler
