// Lists of whole numbers as text in one column, such as the samples of a measurement.
#include <fmt/ranges.h>

#include "profiler/store/internal.h"

namespace moetune::store {

std::string list_text(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

std::vector<int64_t> list_from(const std::string& text) {
  constexpr size_t kMostDigits = 18;
  std::vector<int64_t> values;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return values;
  int64_t value = 0;
  size_t num_digits = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9' && num_digits < kMostDigits) {
      value = 10 * value + (c - '0');
      ++num_digits;
      continue;
    }
    const bool is_end = i + 1 == text.size();
    if (is_end && num_digits == 0 && values.empty()) return values;
    if (num_digits == 0 || (c != ',' && !is_end)) return {};
    values.push_back(value);
    value = 0;
    num_digits = 0;
  }
  return values;
}

}  // namespace moetune::store
