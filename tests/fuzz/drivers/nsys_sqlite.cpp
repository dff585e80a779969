// Exports of Nsight Systems: one of all tables that are read, with bytes changed.
#include "profiler/import/nsys_sqlite.h"

#include "tests/fuzz/fuzz_input.h"
#include "tests/import/nsys_export.h"

namespace moetune::tests {
namespace {

void make_export(const std::string& path) {
  NsysExport file(path, false);
  file.run("PRAGMA page_size = 512").run("VACUUM").run(NsysExport::kTables);
  file.text(1, "gemm").text(2, "cudaLaunchKernel_v7000").text(3, "cudaStreamSynchronize_v3020");
  file.text(4, "cudaEventRecord").text(5, "cudaStreamWaitEvent").text(6, "iteration");
  for (int64_t process = 1; process <= 2; ++process) {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t start = 1000 * i;
      file.range(process, 1, start, start + 900, i % 2 == 0 ? "step " + std::to_string(i) : "", 6);
      file.call(process, 1, start, start + 10, 10 * i + 1, 2);
      file.kernel(process, 0, start + 20, start + 90, 7, 10 * i + 1, 1, 64);
      file.call(process, 1, start + 11, start + 12, 10 * i + 2, 4);
      file.event(process, 7, 10 * i + 2, i + 1, i + 1);
      file.call(process, 1, start + 13, start + 14, 10 * i + 3, 5);
      file.wait(process, 1, start + 13, start + 14, 13, 10 * i + 3, 2, i + 1, i + 1);
      file.copy(process, 0, start + 95, start + 99, 13, 10 * i + 4, 4096, 1);
      file.call(process, 1, start + 15, start + 100, 10 * i + 5, 3);
      file.wait(process, 1, start + 15, start + 100, 7, 10 * i + 5, 3, 0, 0);
    }
  }
}

}  // namespace

void fuzz_nsys_sqlite(std::string_view input) {
  profiler::read_nsys_sqlite(patched_database(input, "export.sqlite", make_export));
}

}  // namespace moetune::tests
