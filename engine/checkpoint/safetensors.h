// The safetensors format: named tensors in one file. Reading treats the file as hostile: everything
// is checked before anything is believed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/file_reader.h"

namespace moetune::engine {

/// One tensor of a file: row-major, little-endian.
struct TensorInfo {
  std::string name;
  std::string dtype;           ///< as in the file: F32, F64, F16, BF16, I32, I64, ...
  std::vector<int64_t> shape;  ///< empty: a scalar
  int64_t numel = 0;
  uint64_t begin = 0;  ///< bytes from the start of the buffer
  uint64_t end = 0;
};

/// An open file. Throws base::UsageError, naming file, tensor, value found and what would be right,
/// for anything malformed. Tensors are read when asked for; any number of threads may read.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Throws when there is none of that name.
  [[nodiscard]] const TensorInfo& find(const std::string& name) const;

  /// Elements [first, first + out.size()) of a floating-point tensor (F32, F64, F16, BF16).
  void read(const TensorInfo& tensor, int64_t first, std::span<double> out) const;
  void read(const TensorInfo& tensor, int64_t first, std::span<float> out) const;
  /// Of an integer tensor (I32, I64); a value outside 32 bits is refused.
  void read(const TensorInfo& tensor, int64_t first, std::span<int32_t> out) const;

  /// The whole tensor, which must have this shape.
  template <typename T>
  [[nodiscard]] std::vector<T> read_all(const std::string& name,
                                        const std::vector<int64_t>& shape) const {
    const TensorInfo& tensor = find(name);
    check_shape(tensor, shape);
    std::vector<T> values(static_cast<size_t>(tensor.numel));
    read(tensor, 0, std::span<T>(values));
    return values;
  }
  void check_shape(const TensorInfo& tensor, const std::vector<int64_t>& shape) const;

 private:
  void check_tensor(TensorInfo& tensor) const;
  void check_tiling() const;
  template <typename T>
  void read_as(const TensorInfo& tensor, int64_t first, std::span<T> out) const;

  FileReader file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Bytes of one element of a dtype of the format, 0 for an unknown one.
int64_t safetensors_dtype_bytes(std::string_view dtype);

/// "[2, 24, 64]".
std::string shape_text(const std::vector<int64_t>& shape);

/// A name from a file as it may appear in a message: quoted, escaped, shortened.
std::string quoted_name(const std::string& name);

}  // namespace moetune::engine
