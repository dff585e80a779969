// Finds the end of a JSON value. This is the one loop that sees every byte of a trace, so it tests
// eight bytes at a time, and only for quotes, backslashes and brackets. It does not check the JSON
// that it skips; json_fields checks what is read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace moetune::profiler {

/// State of skipping a value, kept between pieces of the data.
struct JsonScan {
  int64_t depth = 0;  ///< open objects and lists
  bool is_in_string = false;
  bool is_escaped = false;  ///< in a string, after a backslash
};

namespace json_scan {

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighs = 0x8080808080808080;

/// The lowest set bit of the result marks the first byte that is zero; bits above it may be wrong.
constexpr uint64_t zero_bytes(uint64_t word) { return (word - kOnes) & ~word & kHighs; }
constexpr uint64_t bytes_equal(uint64_t word, unsigned char byte) {
  return zero_bytes(word ^ (kOnes * byte));
}
inline uint64_t load(const char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}
/// Index of the byte with the lowest set bit.
inline int first_byte(uint64_t marks) { return std::countr_zero(marks) / 8; }

/// The first quote or backslash, or `end`.
inline const char* find_in_string(const char* at, const char* end) {
  for (; end - at >= 8; at += 8) {
    const uint64_t word = load(at);
    const uint64_t found = bytes_equal(word, '"') | bytes_equal(word, '\\');
    if (found != 0) return at + first_byte(found);
  }
  while (at < end && *at != '"' && *at != '\\') ++at;
  return at;
}

/// The first quote or bracket, or `end`. May also stop at a character that equals a bracket but for
/// the bits 0x26; valid JSON has none outside of strings.
inline const char* find_outside(const char* at, const char* end) {
  for (; end - at >= 8; at += 8) {
    const uint64_t word = load(at);
    const uint64_t found = bytes_equal(word, '"') | bytes_equal(word | (kOnes * 0x26), 0x7f);
    if (found != 0) return at + first_byte(found);
  }
  while (at < end && *at != '"' && (*at | 0x26) != 0x7f) ++at;
  return at;
}

}  // namespace json_scan

/// Skips an object, a list or a string, of which `at` is the beginning or the continuation; returns
/// the place after its end. Returns null if the data ends before; `scan` then holds the state for
/// the next piece.
inline const char* scan_json(const char* at, const char* end, JsonScan& scan) {
  while (at < end) {
    if (scan.is_in_string) {
      if (scan.is_escaped) {
        scan.is_escaped = false;
        ++at;
        continue;
      }
      at = json_scan::find_in_string(at, end);
      if (at == end) return nullptr;
      if (*at++ == '\\') {
        scan.is_escaped = true;
        continue;
      }
      scan.is_in_string = false;
      if (scan.depth == 0) return at;
      continue;
    }
    at = json_scan::find_outside(at, end);
    if (at == end) return nullptr;
    switch (*at++) {
      case '"':
        scan.is_in_string = true;
        break;
      case '{':
      case '[':
        ++scan.depth;
        break;
      case '}':
      case ']':
        if (--scan.depth <= 0) return at;
        break;
      default:
        break;
    }
  }
  return nullptr;
}

}  // namespace moetune::profiler
