#include "profiler/import/trace_files.h"

#include <fmt/format.h>

#include <cctype>

#include "kernels/base/error.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/decimal.h"
#include "profiler/import/kineto_json.h"
#include "profiler/import/nsys_sqlite.h"
#include "profiler/import/rocprof_json.h"

namespace moetune::profiler {
namespace {

constexpr size_t kHeadBytes = 4096;

constexpr TraceFileFormat kFormats[] = {
    {"nsys", "an export of Nsight Systems (nsys export --type sqlite)", is_nsys_sqlite,
     read_nsys_sqlite},
    // Before Kineto, which takes any JSON.
    {"rocprofiler-sdk", "a trace of rocprofv3 (--output-format json)", is_rocprof_json,
     read_rocprof_json},
    {"kineto", "a trace of PyTorch's profiler (Chrome JSON, also packed by gzip)", is_kineto_json,
     read_kineto_json},
};

}  // namespace

std::span<const TraceFileFormat> trace_file_formats() { return kFormats; }

std::vector<ImportedTrace> read_trace_file(const std::string& path) {
  const std::string head = first_bytes(path, kHeadBytes);
  for (const TraceFileFormat& format : kFormats) {
    if (format.is_one(head)) return format.read(path);
  }
  std::string known;
  for (const TraceFileFormat& format : kFormats) {
    known += (known.empty() ? "" : ", ") + std::string(format.what);
  }
  throw base::UsageError(fmt::format("{}: {}, expected {}", path,
                                     head.empty() ? "is empty" : "is no trace of a known kind",
                                     known));
}

int64_t rank_in_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kWord = "rank";
  for (size_t at = name.find(kWord); at != std::string_view::npos; at = name.find(kWord, at + 1)) {
    if (at > 0 && std::isalpha(static_cast<unsigned char>(name[at - 1])) != 0) continue;
    std::string_view rest = name.substr(at + kWord.size());
    if (!rest.empty() && (rest[0] == '-' || rest[0] == '_' || rest[0] == '.')) {
      rest.remove_prefix(1);
    }
    const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (digits.empty() || digits.size() > 9) continue;
    return whole_number(digits).value_or(-1);
  }
  return -1;
}

}  // namespace moetune::profiler
