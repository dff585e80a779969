#include "profiler/name_table.h"

namespace moetune::profiler {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Bytes of the code point at the start of `text`, 0 where they are no UTF-8 (Unicode 15, table
/// 3-7).
size_t code_point_bytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool is_surrogate = first == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !is_overlong && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_outside = (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
    return continues(1) && continues(2) && continues(3) && !is_outside ? 4 : 0;
  }
  return 0;
}

}  // namespace

uint32_t NameTable::intern(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    ++num_cut_;
    size_t end = kMaxNameBytes;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
    name = name.substr(0, end);
  }
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) return known->second;
  std::string clean;
  clean.reserve(name.size());
  for (size_t at = 0; at < name.size();) {
    const size_t length = code_point_bytes(name.substr(at));
    clean += length == 0 ? kReplacement : name.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  if (total_bytes_ + clean.size() > kMaxTotalBytes) {
    ++num_cut_;
    clean = kOverflowName;
  }
  const auto cleaned = numbers_.find(clean);
  return cleaned != numbers_.end() ? cleaned->second : add(clean);
}

uint32_t NameTable::add(std::string_view name) {
  const auto number = static_cast<uint32_t>(names_.size());
  names_.emplace_back(name);
  numbers_.emplace(names_.back(), number);
  total_bytes_ += name.size();
  return number;
}

}  // namespace moetune::profiler
