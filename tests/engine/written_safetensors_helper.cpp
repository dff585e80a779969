// Headers whose data begins aligned, as other writers make them.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/error.h"
#include "tests/engine/written_safetensors.h"

namespace moetune::engine {
namespace {

template <typename T>
TensorBytes tensor_of(std::string name, const char* dtype, std::vector<int64_t> shape,
                      std::span<const T> values) {
  TensorBytes tensor{std::move(name), dtype, std::move(shape), {}};
  tensor.bytes.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), values.size_bytes());
  return tensor;
}

}  // namespace

TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const float> values) {
  return tensor_of(std::move(name), "F32", std::move(shape), values);
}
TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const double> values) {
  return tensor_of(std::move(name), "F64", std::move(shape), values);
}
TensorBytes make_tensor(std::string name, std::vector<int64_t> shape,
                        std::span<const int32_t> values) {
  return tensor_of(std::move(name), "I32", std::move(shape), values);
}

void write_safetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const TensorBytes& tensor : tensors) {
    MOETUNE_CHECK(!header.contains(tensor.name), "tensor {} is there twice", tensor.name);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = header.dump();
  // The buffer starts aligned, as other writers do it.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  const std::string temporary = path + ".part";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const TensorBytes& tensor : tensors) {
    out.write(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
  }
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, path, error);
  if (!out || error) {
    std::remove(temporary.c_str());
    throw base::Error(fmt::format("{}: cannot be written{}{}", path, error ? ": " : "",
                                  error ? error.message() : ""));
  }
}

}  // namespace moetune::engine
