// Safetensors files: the header, and the elements that it promises.
#include "engine/checkpoint/safetensors.h"

#include <algorithm>

#include "engine/checkpoint/safetensors_header.h"
#include "kernels/base/error.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_safetensors(std::string_view input) {
  // Behind its length, which few mutations keep right.
  try {
    engine::parse_safetensors_header(input.substr(std::min<size_t>(8, input.size())), "header");
  } catch (const base::UsageError&) {
    // The file is looked at all the same.
  }
  const engine::SafetensorsFile file(as_file(input, "model.safetensors"));
  std::vector<float> values;
  for (const auto& [name, tensor] : file.tensors()) {
    values.resize(static_cast<size_t>(std::min<int64_t>(tensor.numel, 1000)));
    try {
      file.read(tensor, 0, std::span<float>(values));
    } catch (const base::UsageError&) {
      // Of another type.
    }
  }
}

}  // namespace moetune::tests
