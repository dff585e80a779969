// Numbers and strings as bytes between processes: little-endian, every length checked, because what
// arrives may come from anybody.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::engine::wire {

void put_u32(std::string& to, uint32_t value);
void put_u64(std::string& to, uint64_t value);

/// Reads in the order of writing; throws base::Error when the bytes do not suffice.
class Parser {
 public:
  explicit Parser(std::string_view bytes) : rest_(bytes) {}
  uint32_t u32();
  uint64_t u64();
  std::string bytes(size_t count);
  std::string rest();
  /// Throws base::Error unless everything has been read.
  void finish() const;

 private:
  std::string_view take(size_t count);
  std::string_view rest_;
};

/// A point in time that waits may not pass.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(std::chrono::milliseconds from_now) : end_(Clock::now() + from_now) {}

  [[nodiscard]] bool is_past() const { return Clock::now() >= end_; }
  /// What is left, at most `most`, at least 0; rounded up, so that polling does not spin.
  [[nodiscard]] int left_ms(int most = 1'000'000) const;
  [[nodiscard]] Deadline or_earlier(std::chrono::milliseconds from_now) const;

 private:
  Clock::time_point end_;
};

/// The others wait a little longer than rank 0, whose message says who is missing.
std::chrono::milliseconds with_grace(std::chrono::milliseconds time);
double seconds(std::chrono::milliseconds time);

/// "2, 3 and 7"; at most ten of them, then how many more.
std::string list_of(const std::vector<int>& numbers);

/// 16 bytes that nobody can foresee, as 32 hexadecimal digits.
std::string random_name();

}  // namespace moetune::engine::wire
