// Whole numbers, one column after another, in few bytes: differences to what was expected as
// variable-length bytes, packed by zstd. The only code that knows zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moetune::store {

/// a - b and a + b for any two numbers, without overflow: difference_of(a, b) added to b is a.
constexpr int64_t difference_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
constexpr int64_t sum_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

class ColumnWriter {
 public:
  /// Small numbers of either sign take one byte, others up to ten.
  void add(int64_t number);
  [[nodiscard]] std::string packed() const;
  [[nodiscard]] bool is_all_zero() const { return is_all_zero_; }

 private:
  std::string bytes_;
  bool is_all_zero_ = true;
};

/// Bytes of somebody: everything that is wrong with them is a base::Error that names `where`.
class ColumnReader {
 public:
  /// Reads at most `max_numbers`. Data that would unpack to more bytes than these can need is
  /// refused before it is unpacked.
  ColumnReader(std::string_view packed, size_t max_numbers, std::string where);
  /// Any number of zeros.
  ColumnReader() : is_all_zero_(true) {}
  /// Throws after the last one.
  int64_t next();
  [[nodiscard]] bool is_at_end() const { return at_ == bytes_.size(); }
  /// Throws where numbers are left.
  void expect_end() const;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string where_;
  std::string bytes_;
  size_t at_ = 0;
  bool is_all_zero_ = false;
};

}  // namespace moetune::store
