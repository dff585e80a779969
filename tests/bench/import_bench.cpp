// How fast traces of other tools are read and judged, on one core, and with how much memory: a
// trace as PyTorch's profiler writes them, plain and packed, and an export of Nsight Systems, or
// the files on the command line. Speeds are of unpacked bytes in a second of the processor, which
// other programs do not slow much. A record is a piece of device work or a call that is kept; an
// event is anything that the file holds, such as a row.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/nsys_sqlite.h"
#include "profiler/import/trace_files.h"
#include "tests/bench/stopwatch.h"
#include "tests/import/nsys_export.h"

namespace moetune {
namespace {

using profiler::ImportedTrace;
constexpr int kRepeats = 3;
constexpr int kKernels = 300'000;
constexpr int kKernelsPerStep = 3'000;

template <typename Body>
double median_seconds(const Body& body) {
  return bench::median_cpu_seconds(body, kRepeats);
}

int64_t peak_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

/// Of each kernel the op, the call, both ends of the arrow and the kernel, as real files have them.
void write_trace(const std::string& path) {
  std::ofstream file(path);
  file << "{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, "
          "\"world_size\": 64},\n  \"traceEvents\": [\n";
  const char* between = "";
  for (int i = 0; i < kKernels; ++i) {
    const double launch_us = 20.0 * i;
    const double start_us = launch_us + 200;
    if (i % kKernelsPerStep == 0) {
      file << between
           << fmt::format(
                  "  {{\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": "
                  "\"ProfilerStep#{}\", \"pid\": 9, \"tid\": 9,\n    \"ts\": {:.3f}, \"dur\": "
                  "{:.3f}\n  }}",
                  i / kKernelsPerStep, launch_us - 5, 20.0 * kKernelsPerStep - 10);
      between = ",\n";
    }
    const bool is_comm = i % 50 == 49;
    file
        << between
        << fmt::format(
               "  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 9, "
               "\"tid\": 9,\n    \"ts\": {0:.3f}, \"dur\": 15.125,\n    \"args\": {{\n      "
               "\"External id\": {1},\"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\"], "
               "\"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"], \"Input Strides\": "
               "[[4096, 1], [1, 4096]], \"Input Dims\": [[8192, 4096], [4096, 1024]], \"Ev Idx\": "
               "{1}\n    }}\n  }},\n"
               "  {{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": "
               "\"cudaLaunchKernel\", \"pid\": 9, \"tid\": 9,\n    \"ts\": {2:.3f}, \"dur\": "
               "4.250,\n    \"args\": {{\n      \"External id\": {1}, \"cbid\": 211, "
               "\"correlation\": {1}\n    }}\n  }},\n"
               "  {{\n    \"ph\": \"s\", \"id\": {1}, \"pid\": 9, \"tid\": 9, \"ts\": {2:.3f},\n"
               "    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }},\n"
               "  {{\n    \"ph\": \"f\", \"id\": {1}, \"pid\": 0, \"tid\": 7, \"ts\": {3:.3f},\n"
               "    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }},\n",
               launch_us, i + 1, launch_us + 5, start_us);
    file << fmt::format(
        "  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{0}\", \"pid\": 0, \"tid\": {1},"
        "\n    \"ts\": {2:.3f}, \"dur\": {3:.3f},\n    \"args\": {{\n      \"External id\": {4}, "
        "\"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": {1}, \"correlation\": {4}, "
        "\"registers per thread\": 168, \"shared memory\": 98304, \"blocks per SM\": 9.481482, "
        "\"warps per SM\": 37.925926, \"grid\": [{5}, 8, 1], \"block\": [128, 1, 1], \"est. "
        "achieved occupancy %\": 59{6}\n    }}\n  }}",
        is_comm ? "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                : "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_"
                  "execute_segment_k_off_kernel__5x_cublas",
        is_comm ? 20 : 7, start_us, is_comm ? 60.0 : 17.5, i + 1, 16 + i % 64,
        is_comm ? ", \"Collective name\": \"allreduce\", \"In msg nelems\": 4194304, \"Out msg "
                  "nelems\": 4194304, \"Group size\": 8, \"dtype\": \"BFloat16\", \"Process Group "
                  "Name\": \"12\", \"Process Group Description\": \"TENSOR_MODEL_PARALLEL_GROUP\", "
                  "\"Process Group Ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\""
                : "");
  }
  file << "\n  ],\n  \"traceName\": \"bench.json\"\n}\n";
}

/// Two processes with a device each, whose rows alternate as in real exports: for each kernel its
/// call, and some ranges and copies with calls of their own; 2.2 rows a kernel.
void write_nsys_export(const std::string& path) {
  constexpr int64_t kExportKernels = 1'000'000;
  constexpr int64_t kFirstName = 1000;
  constexpr int64_t kNumNames = 200;
  tests::NsysExport file(path);
  store::Transaction transaction(file.database());
  file.run("UPDATE TARGET_INFO_GPU SET name = 'GPU'");  // ranks of one run have like devices
  for (int64_t i = 0; i < kNumNames; ++i) {
    file.text(kFirstName + i, fmt::format("void kernel_{}<float, {}>(float*, int)", i, i));
  }
  file.text(1, "cudaLaunchKernel_v7000").text(2, "cudaMemcpyAsync_v3020");
  for (int64_t i = 0; i < kExportKernels; ++i) {
    const int64_t pid = 100 + i % 2;
    const int64_t start = 60'000'000'000 + i * 5000;
    const int64_t correlation = 1 + 3 * i;
    file.call(pid, 1000 + i % 3, start - 20'000, start - 15'000, correlation, 1);
    file.kernel(pid, i % 2, start, start + 8000, 7 + i % 4, correlation,
                kFirstName + i * 7 % kNumNames, 1 + i % 50);
    if (i % 10 == 0) {
      file.range(pid, 1000, start - 21'000, start - 14'000, fmt::format("block {}", i % 100));
    }
    if (i % 20 == 0) {
      file.call(pid, 1000, start - 14'000, start - 13'000, correlation + 1, 2);
      file.copy(pid, i % 2, start + 100, start + 900, 9, correlation + 1, 4096, 1);
    }
  }
  transaction.commit();
}

void measure(const std::string& path) {
  int64_t num_bytes = 0;
  const double unpack_s = median_seconds([&] {
    const auto source = profiler::open_bytes(path);
    std::vector<char> piece(size_t{1} << 19);
    num_bytes = 0;
    while (const size_t got = source->read(piece.data(), piece.size())) {
      num_bytes += static_cast<int64_t>(got);
    }
  });
  const bool is_json = !profiler::is_nsys_sqlite(profiler::first_bytes(path, 16));
  const double scan_s = !is_json ? 0 : median_seconds([&] {
    profiler::JsonStream json(profiler::open_bytes(path), path);
    json.skip();
  });
  const int64_t before_bytes = peak_bytes();
  std::vector<ImportedTrace> traces = profiler::read_trace_file(path);
  const int64_t after_bytes = peak_bytes();
  const double read_s = median_seconds([&] { traces = profiler::read_trace_file(path); });
  int64_t num_records = 0;
  int64_t num_events = 0;
  int64_t num_ops = 0;
  for (const ImportedTrace& trace : traces) {
    num_ops += static_cast<int64_t>(trace.ops.size());
    num_records += static_cast<int64_t>(trace.ops.size() + trace.calls.size());
    num_events += trace.facts.num_events;
  }
  const double windows_s = median_seconds([&] {
    for (const ImportedTrace& trace : traces) {
      const profiler::TraceWindows windows(trace);
      int64_t sum_ns = 0;
      windows.for_each([&](const profiler::TraceWindow& window) {
        sum_ns += windows.measure(window).wide.busy_ns;
      });
      if (sum_ns < 0) std::abort();
    }
  });
  const double verdict_s = median_seconds([&] { profiler::classify_imported(traces); });
  const auto speed = [&](double seconds) {
    return seconds == 0 ? std::string("-")
                        : fmt::format("{:.0f}", static_cast<double>(num_bytes) / 1e6 / seconds);
  };
  fmt::print("{:24} {:>6.0f} {:>7} {:>7} {:>7} {:>9.2f} {:>9.2f} {:>9.1f} {:>9.1f} {:>9.0f}\n",
             std::filesystem::path(path).filename().string().substr(0, 24),
             static_cast<double>(num_bytes) / 1e6, speed(unpack_s), speed(scan_s), speed(read_s),
             static_cast<double>(num_events) / 1e6 / read_s,
             static_cast<double>(num_records) / 1e6 / read_s,
             static_cast<double>(num_ops) / 1e6 / windows_s,
             static_cast<double>(num_ops) / 1e6 / verdict_s,
             static_cast<double>(after_bytes - before_bytes) / static_cast<double>(num_records));
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  std::string folder;
  if (paths.empty()) {
    folder = (std::filesystem::temp_directory_path() / "moetune-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
    paths = {folder + "/made.sqlite", folder + "/made.json", folder + "/made.json.gz"};
    moetune::write_nsys_export(paths[0]);
    moetune::write_trace(paths[1]);
    if (std::system(("gzip -k " + paths[1]).c_str()) != 0) paths.pop_back();
  }
  fmt::print("{:24} {:>6} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "", "", "unpack",
             "scan", "read", "events", "records", "windows", "verdict", "memory");
  fmt::print("{:24} {:>6} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "file", "MB", "MB/s",
             "MB/s", "MB/s", "M/s", "M/s", "M ops/s", "M ops/s", "B/record");
  std::fflush(stdout);
  for (const std::string& path : paths) {
    // Each in a process of its own, so that memory is that of one file.
    const pid_t child = fork();
    if (child == 0) {
      moetune::measure(path);
      std::fflush(stdout);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  if (!folder.empty()) std::filesystem::remove_all(folder);
  return 0;
}
