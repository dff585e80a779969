// Writes safetensors files for tests to read; the engine itself writes none.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace moetune::engine {

/// A tensor to write: the bytes as they go into the file.
struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const float> values);
TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const double> values);
TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const int32_t> values);

/// Writes beside `path` and renames, so that a reader never sees half a file. Throws base::Error
/// when the disk fails.
void write_safetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace moetune::engine
