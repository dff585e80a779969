// Chrome JSON, as it is or packed by gzip; what is read of it is written for viewers, and that is
// read again.
#include "profiler/import/kineto_json.h"

#include <cstdlib>
#include <sstream>

#include "profiler/export/chrome_json.h"
#include "profiler/export/perfetto.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_kineto_json(std::string_view input) {
  const auto traces = profiler::read_kineto_json(as_file(input, "trace_rank3.json"));
  std::ostringstream perfetto;
  profiler::write_imported_perfetto(perfetto, traces);
  std::ostringstream chrome;
  profiler::write_imported_chrome_json(chrome, traces, "viewer");
  const auto again = profiler::read_kineto_json(as_file(chrome.str(), "viewer.json"));
  if (again.at(0).ops.size() != traces.at(0).ops.size()) std::abort();
}

}  // namespace moetune::tests
