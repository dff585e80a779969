// Small readers for pieces of a log line: numbers, sizes and times as frameworks print them. No
// regular expressions: logs have gigabytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moetune::sweeps::log_text {

/// The number behind blanks at the start: "  4,321", "2.0E-05", "-1", "nan", "inf". Commas count
/// where three digits follow each. None where no number stands there.
std::optional<double> leading_number(std::string_view text);
/// The same of digits alone.
std::optional<int64_t> leading_integer(std::string_view text);

/// What follows the first `key`, if there is one.
std::optional<std::string_view> behind(std::string_view text, std::string_view key);
/// The number that follows the first `key`.
std::optional<double> number_behind(std::string_view text, std::string_view key);
std::optional<int64_t> integer_behind(std::string_view text, std::string_view key);
/// A size that follows, with its unit of PyTorch's messages: "2.50 GiB", "512 bytes".
std::optional<int64_t> bytes_behind(std::string_view text, std::string_view key);

/// The rank that a number is: below a million; else, and of none, -1.
int rank_of(std::optional<int64_t> number);
/// "[Rank 5]" or "Rank 5," in the line itself; -1 where it does not say.
int named_rank(std::string_view text);

/// The level of a line of PyTorch's logger: 'W' of "[W304 05:06:07.089 TCPStore.cpp:125] ...". 0:
/// of another one.
char torch_level(std::string_view text);

/// The part up to the first of `ends`; all where none is there.
std::string_view up_to(std::string_view text, std::string_view ends);

/// "# torchrun train.py --flags": a command with flags, behind the sign of a comment.
bool is_commented_command(std::string_view line);

/// Without blanks at both ends.
std::string_view bare(std::string_view text);

/// For messages: at most `most` bytes of valid UTF-8, what is not printable as '?'.
std::string printable(std::string_view text, size_t most = 300);

/// Seconds since 1970 of the first date and time in a text, as if its clock were UTC:
/// "2026-03-04 05:06:07,089", "2026-03-04T05:06:07.5", "2026-03-04_05:06:07", "20260304 05:06:07".
std::optional<double> first_time(std::string_view text);

/// The same of what glog prints, which has no year: "E0304 05:06:07.089", in the year of `near_s`.
std::optional<double> glog_time(std::string_view text, double near_s);

}  // namespace moetune::sweeps::log_text
