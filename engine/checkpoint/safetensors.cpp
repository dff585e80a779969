// Turns header entries into checked byte ranges of the file.
#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/checkpoint/safetensors_header.h"
#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kLengthBytes = 8;

struct DTypeRow {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array kDTypes = {
    DTypeRow{"BOOL", 1},    DTypeRow{"U8", 1},  DTypeRow{"I8", 1},  DTypeRow{"F8_E5M2", 1},
    DTypeRow{"F8_E4M3", 1}, DTypeRow{"I16", 2}, DTypeRow{"U16", 2}, DTypeRow{"F16", 2},
    DTypeRow{"BF16", 2},    DTypeRow{"I32", 4}, DTypeRow{"U32", 4}, DTypeRow{"F32", 4},
    DTypeRow{"F64", 8},     DTypeRow{"I64", 8}, DTypeRow{"U64", 8},
};

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

/// Reads in blocks, so that a conversion never needs the tensor twice in memory.
template <typename Stored, typename T, typename Convert>
void read_blocks(const FileReader& file, uint64_t offset, std::span<T> out, Convert convert) {
  constexpr size_t kBlock = 1 << 16;
  std::vector<Stored> block(std::min(kBlock, out.size()));
  for (size_t at = 0; at < out.size(); at += block.size()) {
    const size_t n = std::min(block.size(), out.size() - at);
    file.read(offset + at * sizeof(Stored), block.data(), n * sizeof(Stored));
    for (size_t i = 0; i < n; ++i) out[at + i] = convert(block[i]);
  }
}

}  // namespace

int64_t safetensors_dtype_bytes(std::string_view dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == dtype) return row.bytes;
  }
  return 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string quoted_name(const std::string& name) { return spec::describe(json(name)); }

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < kLengthBytes) {
    throw UsageError(fmt::format("{}: has {} bytes, a safetensors file has at least {}", path,
                                 file_.size(), kLengthBytes));
  }
  uint64_t header_bytes = 0;
  file_.read(0, &header_bytes, kLengthBytes);
  const uint64_t rest = file_.size() - kLengthBytes;
  if (header_bytes > kMaxHeaderBytes || header_bytes > rest) {
    throw UsageError(fmt::format(
        "{}: the header length is {}, expected at most {} (limit) and {} (rest of the file)", path,
        header_bytes, kMaxHeaderBytes, rest));
  }
  std::string text(header_bytes, '\0');
  file_.read(kLengthBytes, text.data(), header_bytes);
  SafetensorsHeader header = parse_safetensors_header(text, path);
  data_begin_ = kLengthBytes + header_bytes;
  metadata_ = std::move(header.metadata);
  for (TensorInfo& tensor : header.tensors) {
    check_tensor(tensor);
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  check_tiling();
}

void SafetensorsFile::check_tensor(TensorInfo& tensor) const {
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw UsageError(fmt::format("{}: tensor {} has {}, expected {}", path(),
                                 quoted_name(tensor.name), found, expected));
  };
  const int64_t element = safetensors_dtype_bytes(tensor.dtype);
  if (element == 0) {
    std::vector<std::string_view> known;
    for (const DTypeRow& row : kDTypes) known.push_back(row.name);
    fail(fmt::format("dtype {}", quoted_name(tensor.dtype)),
         fmt::format("one of {}", fmt::join(known, ", ")));
  }
  int64_t bytes = element;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      fail(fmt::format("shape {}", shape_text(tensor.shape)), "at most 2^63-1 bytes");
    }
  }
  tensor.numel = bytes / element;
  if (tensor.begin > tensor.end) {
    fail(fmt::format("data_offsets [{}, {}]", tensor.begin, tensor.end), "begin <= end");
  }
  if (tensor.end - tensor.begin != static_cast<uint64_t>(bytes)) {
    fail(fmt::format("data_offsets [{}, {}], which is {} bytes", tensor.begin, tensor.end,
                     tensor.end - tensor.begin),
         fmt::format("{} bytes for {} {}", bytes, tensor.dtype, shape_text(tensor.shape)));
  }
}

void SafetensorsFile::check_tiling() const {
  std::vector<const TensorInfo*> order;
  for (const auto& [name, tensor] : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t at = 0;
  for (const TensorInfo* tensor : order) {
    if (tensor->begin != at) {
      throw UsageError(fmt::format("{}: tensor {} begins at byte {} of the buffer, expected {}: {}",
                                   path(), quoted_name(tensor->name), tensor->begin, at,
                                   tensor->begin < at ? "tensors overlap" : "there is a hole"));
    }
    at = tensor->end;
  }
  if (at != file_.size() - data_begin_) {
    throw UsageError(
        fmt::format("{}: the tensors end at byte {} of the buffer, the file has {}: "
                    "the file is {}",
                    path(), at, file_.size() - data_begin_,
                    at > file_.size() - data_begin_ ? "cut off" : "longer than it says"));
  }
}

const TensorInfo& SafetensorsFile::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw UsageError(fmt::format("{}: tensor {} is missing", path(), quoted_name(name)));
  }
  return it->second;
}

void SafetensorsFile::check_shape(const TensorInfo& tensor,
                                  const std::vector<int64_t>& shape) const {
  if (tensor.shape == shape) return;
  throw UsageError(fmt::format("{}: tensor {} has shape {}, expected {}", path(),
                               quoted_name(tensor.name), shape_text(tensor.shape),
                               shape_text(shape)));
}

template <typename T>
void SafetensorsFile::read_as(const TensorInfo& tensor, int64_t first, std::span<T> out) const {
  const auto count = static_cast<int64_t>(out.size());
  MOETUNE_CHECK(first >= 0 && count <= tensor.numel && first <= tensor.numel - count,
                "elements [{}, +{}) of tensor {} with {}", first, count, tensor.name, tensor.numel);
  const uint64_t offset = data_begin_ + tensor.begin +
                          static_cast<uint64_t>(first * safetensors_dtype_bytes(tensor.dtype));
  const auto plain = [](auto value) { return static_cast<T>(value); };
  if constexpr (std::is_same_v<T, int32_t>) {
    if (tensor.dtype == "I32") return read_blocks<int32_t>(file_, offset, out, plain);
    if (tensor.dtype == "I64") {
      return read_blocks<int64_t>(file_, offset, out, [&](int64_t value) {
        if (value != static_cast<int32_t>(value)) {
          throw UsageError(fmt::format("{}: tensor {} has the value {}, expected 32-bit integers",
                                       path(), quoted_name(tensor.name), value));
        }
        return static_cast<int32_t>(value);
      });
    }
  } else {
    if (tensor.dtype == "F32") return read_blocks<float>(file_, offset, out, plain);
    if (tensor.dtype == "F64") return read_blocks<double>(file_, offset, out, plain);
    if (tensor.dtype == "F16") return read_blocks<uint16_t>(file_, offset, out, from_f16);
    if (tensor.dtype == "BF16") return read_blocks<uint16_t>(file_, offset, out, from_bf16);
  }
  throw UsageError(fmt::format("{}: tensor {} has dtype {}, expected one of {}", path(),
                               quoted_name(tensor.name), tensor.dtype,
                               std::is_same_v<T, int32_t> ? "I32, I64" : "F32, F64, F16, BF16"));
}

void SafetensorsFile::read(const TensorInfo& tensor, int64_t first, std::span<double> out) const {
  read_as(tensor, first, out);
}
void SafetensorsFile::read(const TensorInfo& tensor, int64_t first, std::span<float> out) const {
  read_as(tensor, first, out);
}
void SafetensorsFile::read(const TensorInfo& tensor, int64_t first, std::span<int32_t> out) const {
  read_as(tensor, first, out);
}

}  // namespace moetune::engine
