// Bytes of gzip, without what is made of them: the checksum at their end hides most of an input
// from the parsers behind it.
#include <array>

#include "profiler/import/byte_source.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_gzip(std::string_view input) {
  const auto source = profiler::open_bytes(as_file(input, "bytes.gz"));
  std::array<char, 4097> piece;
  // What an input of this length unpacks to is bounded, and so is this.
  while (source->read(piece.data(), 1 + input.size() % piece.size()) > 0) continue;
}

}  // namespace moetune::tests
