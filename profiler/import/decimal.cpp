#include "profiler/import/decimal.h"

#include <algorithm>
#include <limits>

namespace moetune::profiler {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Digits at the start of `text`, which loses them.
std::string_view take_digits(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const std::string_view digits = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  return digits;
}

bool take_sign(std::string_view& text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  return is_negative;
}

/// Of digits behind one another, with the point moved behind the first `num_whole` of them.
class Rounding {
 public:
  explicit Rounding(int64_t num_whole) : num_whole_(num_whole) {}

  void take(std::string_view digits) {
    for (const char c : digits) {
      const auto digit = static_cast<uint64_t>(c - '0');
      if (num_taken_ < num_whole_) {
        append(digit);
      } else if (num_taken_ == num_whole_) {
        first_dropped_ = digit;
      } else {
        has_more_ = has_more_ || digit != 0;
      }
      ++num_taken_;
    }
  }

  std::optional<int64_t> value(bool is_negative) {
    for (; num_taken_ < num_whole_ && value_ != 0 && !is_too_large_; ++num_taken_) append(0);
    const bool is_half_to_even = first_dropped_ == 5 && !has_more_ && value_ % 2 == 0;
    if (first_dropped_ >= 5 && !is_half_to_even) ++value_;
    if (is_too_large_ || value_ > kLargest) return std::nullopt;
    const auto value = static_cast<int64_t>(value_);
    return is_negative ? -value : value;
  }

 private:
  static constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();

  void append(uint64_t digit) {
    if (value_ > (kLargest - digit) / 10) is_too_large_ = true;
    if (!is_too_large_) value_ = value_ * 10 + digit;
  }

  int64_t num_whole_;
  int64_t num_taken_ = 0;
  uint64_t value_ = 0;
  uint64_t first_dropped_ = 0;
  bool has_more_ = false;
  bool is_too_large_ = false;
};

}  // namespace

std::optional<int64_t> scaled_decimal(std::string_view text, int scale) {
  const bool is_negative = take_sign(text);
  const std::string_view whole = take_digits(text);
  if (whole.empty()) return std::nullopt;
  std::string_view fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return std::nullopt;
  }
  int64_t exponent = 0;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool is_small = take_sign(text);
    const std::string_view digits = take_digits(text);
    if (digits.empty()) return std::nullopt;
    for (const char c : digits) exponent = std::min<int64_t>(exponent * 10 + (c - '0'), 100'000);
    if (is_small) exponent = -exponent;
  }
  if (!text.empty()) return std::nullopt;
  const int64_t num_whole = static_cast<int64_t>(whole.size()) + exponent + scale;
  Rounding rounding(num_whole);
  if (num_whole < 0) return 0;
  rounding.take(whole);
  rounding.take(fraction);
  return rounding.value(is_negative);
}

}  // namespace moetune::profiler
