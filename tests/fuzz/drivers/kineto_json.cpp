// Chrome JSON, as it is or packed by gzip.
#include "profiler/import/kineto_json.h"

#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_kineto_json(std::string_view input) {
  profiler::read_kineto_json(as_file(input, "trace_rank3.json"));
}

}  // namespace moetune::tests
