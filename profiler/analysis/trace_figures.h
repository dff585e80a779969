// What an imported trace says besides the budget of its windows: its kernels, and names as tables
// show them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct KernelSum {
  uint32_t name = 0;
  int64_t count = 0;
  int64_t sum_ns = 0;  ///< the largest number where it would be more
};
/// Longest first; at most `count`.
std::vector<KernelSum> top_kernels(const ImportedTrace& trace, std::span<const uint32_t> ops,
                                   size_t count);

/// "void gemm<float>(int)" up to the first '<' or '(', at most `max_characters`.
std::string name_before_arguments(std::string_view name, size_t max_characters);
/// At most that many characters (code points) of a text.
std::string_view first_characters(std::string_view text, size_t max_characters);

}  // namespace moetune::profiler
