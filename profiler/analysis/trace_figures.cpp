#include "profiler/analysis/trace_figures.h"

#include <algorithm>
#include <limits>

namespace moetune::profiler {

std::vector<KernelSum> top_kernels(const ImportedTrace& trace, std::span<const uint32_t> ops,
                                   size_t count) {
  // Of a trace with broken times a sum may be more than a number holds.
  constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
  std::vector<KernelSum> by_name(trace.names.size());
  for (const uint32_t row : ops) {
    const ImportedOp& op = trace.ops[row];
    if (op.kind != ActivityKind::kernel && op.kind != ActivityKind::graph) continue;
    KernelSum& sum = by_name[op.name];
    sum.name = op.name;
    ++sum.count;
    sum.sum_ns += std::min(op.duration_ns(), kLongest - sum.sum_ns);
  }
  std::erase_if(by_name, [](const KernelSum& sum) { return sum.count == 0; });
  std::ranges::stable_sort(by_name, std::ranges::greater(), &KernelSum::sum_ns);
  if (by_name.size() > count) by_name.resize(count);
  return by_name;
}

std::string_view first_characters(std::string_view text, size_t max_characters) {
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool starts_one = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (starts_one && ++characters > max_characters) return text.substr(0, at);
  }
  return text;
}

std::string name_before_arguments(std::string_view name, size_t max_characters) {
  return std::string(first_characters(name.substr(0, name.find_first_of("<(")), max_characters));
}

}  // namespace moetune::profiler
