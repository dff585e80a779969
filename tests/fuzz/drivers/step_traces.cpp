// Chrome JSON of our own, read back.
#include "profiler/import/step_traces.h"

#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_step_traces(std::string_view input) {
  profiler::read_step_traces(as_file(input, "own.json"));
}

}  // namespace moetune::tests
