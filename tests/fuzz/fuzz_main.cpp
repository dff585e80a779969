// One parser's fuzzer: libFuzzer calls this with inputs of its making. Which parser says the build.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetune::tests;
  run_driver(MOETUNE_FUZZ_DRIVER, {reinterpret_cast<const char*>(data), size});
  return 0;
}
