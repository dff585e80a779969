#include "profiler/import/trace_files.h"

#include <fmt/format.h>

#include <cctype>

#include "kernels/base/error.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/decimal.h"
#include "profiler/import/kineto_json.h"
#include "profiler/import/nsys_sqlite.h"
#include "profiler/import/own_steps.h"
#include "profiler/import/rocprof_json.h"
#include "profiler/import/step_traces.h"

namespace moetune::profiler {
namespace {

constexpr size_t kHeadBytes = 4096;

constexpr TraceFileFormat kFormats[] = {
    {"nsys", "an export of Nsight Systems (nsys export --type sqlite)", is_nsys_sqlite,
     read_nsys_sqlite},
    // Before Kineto, which takes any JSON.
    {"rocprofiler-sdk", "a trace of rocprofv3 (--output-format json)", is_rocprof_json,
     read_rocprof_json},
    {"moetune", "what `moetune trace` writes of a trial (.json)", is_step_traces, read_own_steps},
    {"kineto", "a trace of PyTorch's profiler (Chrome JSON, also packed by gzip)", is_kineto_json,
     read_kineto_json},
};

/// Two packets follow one another there: each is field 1 of the file, with its length.
bool is_perfetto_trace(std::string_view head) {
  if (!head.starts_with('\x0a')) return false;
  uint64_t length = 0;
  size_t at = 1;
  for (unsigned shift = 0; at < head.size() && shift < 35; shift += 7) {
    const auto byte = static_cast<unsigned char>(head[at++]);
    length |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) != 0) continue;
    const size_t next = at + length;
    return length > 0 && next < head.size() && head[next] == '\x0a';
  }
  return false;
}

}  // namespace

std::span<const TraceFileFormat> trace_file_formats() { return kFormats; }

std::vector<ImportedTrace> read_trace_file(const std::string& path) {
  const std::string head = first_bytes(path, kHeadBytes);
  for (const TraceFileFormat& format : kFormats) {
    if (format.is_one(head)) return format.read(path);
  }
  refuse_perfetto(path, head);
  std::string known;
  for (const TraceFileFormat& format : kFormats) {
    known += (known.empty() ? "" : ", ") + std::string(format.what);
  }
  throw base::UsageError(fmt::format("{}: {}, expected {}", path,
                                     head.empty() ? "is empty" : "is no trace of a known kind",
                                     known));
}

void refuse_perfetto(const std::string& path, std::string_view head) {
  if (!is_perfetto_trace(head)) return;
  throw base::UsageError(
      fmt::format("{}: is Perfetto's own format, which is for viewers and cannot be read back: "
                  "expected what `moetune trace` writes with --format chrome (.json)",
                  path));
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
