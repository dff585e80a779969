// Packed traces. The bytes of an input are the numbers of the columns: packed, they hardly ever
// survive a mutation. A second time it is taken as the blob itself.
#include "profiler/store/trace_blob.h"

#include <algorithm>
#include <limits>

#include "kernels/base/error.h"
#include "profiler/store/column_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {
namespace {

std::string text_of(int64_t id) {
  if (id < 0) throw base::Error("no such text");
  return id % 2 == 0 ? "" : "name";
}

int64_t number_of(char byte) {
  const auto number = static_cast<int64_t>(static_cast<signed char>(byte));
  if (number == 127) return std::numeric_limits<int64_t>::max();
  return number == -128 ? std::numeric_limits<int64_t>::min() : number;
}

/// A column up to each '\n', of version 1 unless a byte 2 stands before them.
std::string packed(std::string_view input) {
  const bool is_version_2 = input.starts_with('\2');
  input.remove_prefix(is_version_2 ? 1 : 0);
  std::string blob(1, is_version_2 ? '\2' : '\1');
  while (!input.empty()) {
    const size_t length = std::min(input.find('\n'), input.size());
    store::ColumnWriter column;
    for (const char byte : input.substr(0, length)) column.add(number_of(byte));
    const std::string bytes = column.packed();
    for (unsigned shift = 0; shift < 32; shift += 8) {
      blob += static_cast<char>(bytes.size() >> shift);
    }
    blob += bytes;
    input.remove_prefix(std::min(length + 1, input.size()));
  }
  return blob;
}

}  // namespace

void fuzz_trace_blob(std::string_view input) {
  try {
    store::unpack_traces(input, "runs.db", text_of);
  } catch (const base::Error&) {
    // Most likely.
  }
  store::unpack_traces(packed(input), "runs.db", text_of);
}

}  // namespace moetune::tests
