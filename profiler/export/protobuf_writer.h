// Messages in protobuf's wire format: what a writer of few messages needs of it, without the
// compiler and the library of protobuf. (https://protobuf.dev/programming-guides/encoding)
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace moetune::profiler {

/// The fields of one message, in the order they are added.
class ProtobufMessage {
 public:
  /// uint32, uint64, bool, enum.
  ProtobufMessage& number(uint32_t field, uint64_t value) {
    tag(field, 0);
    varint(value);
    return *this;
  }
  /// int32 and int64, not zigzag.
  ProtobufMessage& integer(uint32_t field, int64_t value) {
    return number(field, static_cast<uint64_t>(value));
  }
  ProtobufMessage& fixed(uint32_t field, uint64_t value) {
    tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift);
    return *this;
  }
  ProtobufMessage& real(uint32_t field, double value) {
    return fixed(field, std::bit_cast<uint64_t>(value));
  }
  ProtobufMessage& text(uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(uint32_t field, const ProtobufMessage& value) {
    return text(field, value.bytes_);
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void tag(uint32_t field, uint32_t wire_type) { varint((field << 3U) | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(value | 0x80U);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace moetune::profiler
