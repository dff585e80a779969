// rocprofv3's JSON.
#include "profiler/import/rocprof_json.h"

#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_rocprof_json(std::string_view input) {
  profiler::read_rocprof_json(as_file(input, "results.json"));
}

}  // namespace moetune::tests
