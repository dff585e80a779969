#include "profiler/store/column_codec.h"

#include <fmt/format.h>
#include <zstd.h>

#include <utility>

#include "kernels/base/error.h"

namespace moetune::store {
namespace {

/// Traces are written once and read often; higher levels gain a percent or two.
constexpr int kLevel = 9;
constexpr size_t kMaxNumberBytes = 10;

}  // namespace

void ColumnWriter::add(int64_t number) {
  is_all_zero_ = is_all_zero_ && number == 0;
  // Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3.
  uint64_t value = (static_cast<uint64_t>(number) << 1U) ^ static_cast<uint64_t>(number >> 63);
  for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(value | 0x80U);
  bytes_ += static_cast<char>(value);
}

std::string ColumnWriter::packed() const {
  std::string out(ZSTD_compressBound(bytes_.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes_.data(), bytes_.size(), kLevel);
  MOETUNE_CHECK(ZSTD_isError(size) == 0, "packing a trace: {}", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

ColumnReader::ColumnReader(std::string_view packed, size_t max_numbers, std::string where)
    : where_(std::move(where)) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  // Unknown and wrong sizes are the largest numbers there are.
  if (size > max_numbers * kMaxNumberBytes) fail("its size is not one");
  bytes_.resize(size);
  const size_t got = ZSTD_decompress(bytes_.data(), bytes_.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != bytes_.size()) fail("it does not unpack");
}

int64_t ColumnReader::next() {
  if (is_all_zero_) return 0;
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 7 * kMaxNumberBytes; shift += 7) {
    if (at_ == bytes_.size()) fail("it ends early");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) return static_cast<int64_t>((value >> 1U) ^ (~(value & 1U) + 1));
  }
  fail("a number has too many bytes");
}

void ColumnReader::expect_end() const {
  if (at_ != bytes_.size()) fail("it holds too much");
}

void ColumnReader::fail(const char* what) const {
  throw base::Error(fmt::format("{}: the trace is damaged: of a column, {}", where_, what));
}

}  // namespace moetune::store
