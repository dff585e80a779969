#include "sweeps/runs/text_scan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

#include "engine/spec/quantity.h"

namespace moetune::sweeps::log_text {
namespace {

bool is_figure(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

/// Whether three digits and no fourth follow a comma.
bool is_thousands(std::string_view text, size_t comma) {
  if (comma + 3 >= text.size()) return false;
  for (size_t i = comma + 1; i <= comma + 3; ++i) {
    if (!is_figure(text[i])) return false;
  }
  return comma + 4 >= text.size() || !is_figure(text[comma + 4]);
}

/// Digits of fixed places, such as "05" of a time.
std::optional<int> fixed_digits(std::string_view text, size_t first, size_t count) {
  if (first + count > text.size()) return std::nullopt;
  int value = 0;
  for (size_t i = first; i < first + count; ++i) {
    if (!is_figure(text[i])) return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

/// "05:06:07", with a fraction behind '.' or ','.
std::optional<double> time_of_day(std::string_view text) {
  const auto hours = fixed_digits(text, 0, 2);
  const auto minutes = fixed_digits(text, 3, 2);
  const auto seconds = fixed_digits(text, 6, 2);
  if (!hours || !minutes || !seconds || text[2] != ':' || text[5] != ':') return std::nullopt;
  if (*hours > 23 || *minutes > 59 || *seconds > 60) return std::nullopt;
  double time = *hours * 3600.0 + *minutes * 60.0 + *seconds;
  if (text.size() > 8 && (text[8] == '.' || text[8] == ',')) {
    double place = 0.1;
    for (size_t i = 9; i < text.size() && is_figure(text[i]) && place > 1e-10; ++i, place /= 10) {
      time += place * (text[i] - '0');
    }
  }
  return time;
}

std::optional<double> on_day(int year, int month, int day, std::string_view clock) {
  using namespace std::chrono;
  const year_month_day date{std::chrono::year{year},
                            std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(day))};
  const auto time = time_of_day(clock);
  if (!date.ok() || !time) return std::nullopt;
  constexpr double kSecondsPerDay = 86'400;
  return static_cast<double>(sys_days(date).time_since_epoch().count()) * kSecondsPerDay + *time;
}

}  // namespace

std::optional<double> leading_number(std::string_view text) {
  text = without_blanks(text);
  std::array<char, 48> digits{};
  size_t size = 0;
  size_t at = 0;
  for (; at < text.size() && size < digits.size(); ++at) {
    const char c = text[at];
    if (c == ',' && size > 0 && is_thousands(text, at)) continue;
    const bool is_part = is_figure(c) || is_letter(c) || c == '.' || c == '+' || c == '-';
    if (!is_part) break;
    digits[size++] = c;
  }
  const size_t first = size > 0 && digits[0] == '+' ? 1 : 0;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data() + first, digits.data() + size, value);
  if (error != std::errc{}) return std::nullopt;
  // "inf" of "info" is no number; "61.25GiB" and "87.5%" are.
  const bool is_word = !std::isfinite(value) && end != digits.data() + size;
  return is_word ? std::nullopt : std::optional(value);
}

std::optional<int64_t> leading_integer(std::string_view text) {
  text = without_blanks(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<std::string_view> behind(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + key.size());
}

std::optional<double> number_behind(std::string_view text, std::string_view key) {
  const auto rest = behind(text, key);
  return rest ? leading_number(*rest) : std::nullopt;
}

std::optional<int64_t> integer_behind(std::string_view text, std::string_view key) {
  const auto rest = behind(text, key);
  return rest ? leading_integer(*rest) : std::nullopt;
}

std::optional<int64_t> bytes_behind(std::string_view text, std::string_view key) {
  constexpr double kMostBytes = 1e18;
  const auto rest = behind(text, key);
  if (!rest) return std::nullopt;
  const std::string_view size = without_blanks(*rest);
  const size_t blank = size.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const std::string_view unit = up_to(size.substr(blank + 1), " .,;)]");
  const auto value =
      unit == "bytes"
          ? leading_number(size)
          : spec::parse_quantity(spec::Quantity::bytes, size.substr(0, blank + 1 + unit.size()));
  if (!value || *value < 0 || *value > kMostBytes) return std::nullopt;
  return std::llround(*value);
}

int rank_of(std::optional<int64_t> number) {
  constexpr int64_t kMostRanks = 1'000'000;  // of the largest runs there are, and far more
  return number && *number >= 0 && *number < kMostRanks ? static_cast<int>(*number) : -1;
}

int named_rank(std::string_view text) {
  for (const std::string_view key : {"[Rank ", "Rank "}) {
    const int rank = rank_of(integer_behind(text, key));
    if (rank >= 0) return rank;
  }
  return -1;
}

char torch_level(std::string_view text) {
  if (text.size() < 3 || text[0] != '[') return 0;
  const bool is_level = text[2] == ' ' || std::isdigit(static_cast<unsigned char>(text[2])) != 0;
  return is_level ? text[1] : '\0';
}

std::string_view up_to(std::string_view text, std::string_view ends) {
  return text.substr(0, std::min(text.find_first_of(ends), text.size()));
}

bool is_commented_command(std::string_view line) {
  if (!line.starts_with("# ")) return false;
  const std::string_view command = bare(line.substr(2));
  const auto is_of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./").find(c) != std::string_view::npos;
  };
  // What stands in front of the first blank is a program; prose begins with a capital.
  const std::string_view program = up_to(command, " ");
  const size_t flag = command.find(" --");
  return std::ranges::all_of(program, is_of_name) && flag != std::string_view::npos &&
         flag + 3 < command.size() && command[flag + 3] >= 'a' && command[flag + 3] <= 'z';
}

std::string_view bare(std::string_view text) {
  text = without_blanks(text);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string printable(std::string_view text, size_t most) {
  std::string result;
  for (size_t i = 0; i < text.size() && result.size() < most;) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // Lengths of UTF-8 by the first byte; what stands for more than U+FFFF is no part of a message.
    const size_t length =
        byte < 0x80 ? 1 : (byte >= 0xC2 && byte < 0xE0 ? 2 : (byte >= 0xE0 && byte < 0xF0 ? 3 : 0));
    bool is_valid = length > 0 && i + length <= text.size() && byte >= 0x20 && byte != 0x7F;
    for (size_t k = 1; is_valid && k < length; ++k) {
      is_valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    }
    if (is_valid && length == 3) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      const bool is_overlong = byte == 0xE0 && second < 0xA0;
      const bool is_surrogate = byte == 0xED && second >= 0xA0;
      is_valid = !is_overlong && !is_surrogate;
    }
    // C1 controls steer terminals as escapes do.
    if (is_valid && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0)
      is_valid = false;
    if (is_valid) {
      result.append(text, i, length);
      i += length;
    } else {
      result += '?';
      ++i;
    }
  }
  return result;
}

std::optional<double> first_time(std::string_view text) {
  constexpr size_t kClock = 8;  // characters of "05:06:07"
  for (size_t at = text.find("20"); at != std::string_view::npos; at = text.find("20", at + 1)) {
    if (at > 0 && is_figure(text[at - 1])) continue;
    const std::string_view date = text.substr(at);
    const auto year = fixed_digits(date, 0, 4);
    if (!year) continue;
    const bool has_dashes = date.size() > 4 && date[4] == '-';
    const size_t month_at = has_dashes ? 5 : 4;
    const size_t day_at = has_dashes ? 8 : 6;
    const auto month = fixed_digits(date, month_at, 2);
    const auto day = fixed_digits(date, day_at, 2);
    if (!month || !day || date.size() < day_at + 3 + kClock) continue;
    if (has_dashes && date[7] != '-') continue;
    const char between = date[day_at + 2];
    if (between != ' ' && between != 'T' && between != '_') continue;
    if (const auto time = on_day(*year, *month, *day, date.substr(day_at + 3))) return time;
  }
  return std::nullopt;
}

std::optional<double> glog_time(std::string_view text, double near_s) {
  // "E0304 05:06:07.089012345 File.cpp:683"; some print "E304".
  const size_t start = text.find_first_of("EWFI");
  if (start == std::string_view::npos) return std::nullopt;
  size_t end = start + 1;
  while (end < text.size() && is_figure(text[end])) ++end;
  const size_t count = end - start - 1;
  if ((count != 3 && count != 4) || end >= text.size() || text[end] != ' ') return std::nullopt;
  const auto month = fixed_digits(text, start + 1, count - 2);
  const auto day = fixed_digits(text, end - 2, 2);
  if (!month || !day) return std::nullopt;
  using namespace std::chrono;
  const auto days_since = floor<days>(sys_seconds{seconds{static_cast<int64_t>(near_s)}});
  return on_day(static_cast<int>(year_month_day(days_since).year()), *month, *day,
                text.substr(end + 1));
}

}  // namespace moetune::sweeps::log_text
