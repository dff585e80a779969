// Bytes written and read back by one order, and the checks that refuse what is too short or too
// long.
#include "engine/comm/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "kernels/base/error.h"

namespace moetune::engine::wire {
namespace {

void put(std::string& to, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) to += static_cast<char>(value >> (8 * i) & 0xFFU);
}

uint64_t get(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

void put_u32(std::string& to, uint32_t value) { put(to, value, 4); }
void put_u64(std::string& to, uint64_t value) { put(to, value, 8); }

std::string_view Parser::take(size_t count) {
  if (count > rest_.size()) {
    throw base::Error(fmt::format("a message ends {} bytes too early", count - rest_.size()));
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

uint32_t Parser::u32() { return static_cast<uint32_t>(get(take(4))); }
uint64_t Parser::u64() { return get(take(8)); }
std::string Parser::bytes(size_t count) { return std::string(take(count)); }
std::string Parser::rest() { return std::string(take(rest_.size())); }

void Parser::finish() const {
  if (!rest_.empty()) {
    throw base::Error(fmt::format("a message is {} bytes too long", rest_.size()));
  }
}

int Deadline::left_ms(int most) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, most));
}

std::chrono::milliseconds with_grace(std::chrono::milliseconds time) {
  return time + std::min(time / 2, std::chrono::milliseconds(5'000));
}

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

Deadline Deadline::or_earlier(std::chrono::milliseconds from_now) const {
  Deadline earlier(from_now);
  earlier.end_ = std::min(earlier.end_, end_);
  return earlier;
}

std::string list_of(const std::vector<int>& numbers) {
  constexpr size_t kMost = 10;
  std::string text;
  const size_t shown = std::min(numbers.size(), kMost);
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == numbers.size();
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", numbers[i]);
  }
  if (numbers.size() > shown) text += fmt::format(" and {} more", numbers.size() - shown);
  return text;
}

std::string random_name() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", static_cast<uint32_t>(device()));
  return name;
}

}  // namespace moetune::engine::wire
