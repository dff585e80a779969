// The only place where base units (bytes, nanoseconds, FLOPs) become text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moetune::base {

/// "512 B", "3.2 MiB": powers of 1024, three significant digits.
std::string format_bytes(int64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "7.89 s", "2 min 05 s".
std::string format_ns(int64_t ns);

/// "1.23 GFLOP/s" and so on, powers of 1000.
std::string format_flops_per_s(double flops_per_s);

/// "12.3k", "4.56M": powers of 1000 without a unit, for counts.
std::string format_count(double count);

/// "12.3 %" from a ratio 0..1.
std::string format_ratio(double ratio);

/// "42.871 ms" for ns, "3.2 MiB" for bytes, "12.345 %" for ratio, "70.1k/s" for 1/s, else the
/// number with the unit behind it, if there is one: five digits, so that small changes show.
std::string format_value(double value, std::string_view unit);

/// What a metric of that name is counted in: ns, bytes, s, or nothing.
std::string_view unit_of_name(std::string_view metric);

/// The first digits of a commit's id; another name stays as it is.
std::string short_commit(std::string_view id);

}  // namespace moetune::base
