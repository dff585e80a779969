// Chrome JSON of our own, read back.
#include "profiler/import/step_traces.h"

#include "profiler/import/own_steps.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_step_traces(std::string_view input) {
  const std::string path = as_file(input, "own.json");
  profiler::read_step_traces(path);
  profiler::read_own_steps(path);
}

}  // namespace moetune::tests
