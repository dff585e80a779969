// Names, each kept once and known by a number: a trace of a million kernels has some hundred names.
// Bounded, since names come from files of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace moetune::profiler {

class NameTable {
 public:
  NameTable() = default;
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;
  NameTable(const NameTable&) = delete;  // numbers_ has views of names_
  NameTable& operator=(const NameTable&) = delete;

  /// Longer names are cut.
  static constexpr size_t kMaxNameBytes = size_t{16} << 10;
  /// Largest size of all names together. Beyond it every new name becomes kOverflowName.
  static constexpr size_t kMaxTotalBytes = size_t{64} << 20;
  static constexpr std::string_view kOverflowName = "(more names than are kept)";

  /// The number of a name; a new name gets a new number. Bytes that are not UTF-8 become U+FFFD.
  uint32_t intern(std::string_view name);
  [[nodiscard]] const std::string& operator[](uint32_t name) const { return names_[name]; }
  /// Numbers are from 0 up to this.
  [[nodiscard]] size_t size() const { return names_.size(); }
  /// Names that were cut, and those that were not kept.
  [[nodiscard]] int64_t num_cut() const { return num_cut_; }

 private:
  uint32_t add(std::string_view name);

  std::deque<std::string> names_;
  std::unordered_map<std::string_view, uint32_t> numbers_;  // views of names_
  size_t total_bytes_ = 0;
  int64_t num_cut_ = 0;
};

}  // namespace moetune::profiler
