#include "profiler/analysis/expert_kernels.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "profiler/analysis/kernel_classes.h"

namespace moetune::profiler {
namespace {

/// What a kernel is to work on experts' rows.
enum class ExpertPart : uint8_t { other, grouped, attention, brings, takes_back, transport };

bool has_text(std::string_view name, std::string_view text) {
  return name.find(text) != std::string_view::npos;
}

ExpertPart expert_part_of(std::string_view name) {
  switch (kernel_class_of(name)) {
    case KernelClass::grouped_gemm:
      return ExpertPart::grouped;
    case KernelClass::attention:
      return ExpertPart::attention;
    case KernelClass::deepep:
    case KernelClass::hybridep:
      if (has_text(name, "notify") || has_text(name, "barrier")) return ExpertPart::transport;
      return has_text(name, "combine") ? ExpertPart::takes_back : ExpertPart::brings;
    case KernelClass::mori:
      return has_text(name, "EpCombine") ? ExpertPart::takes_back : ExpertPart::brings;
    default:
      return row_of(kernel_class_of(name)).work == WorkClass::compute ? ExpertPart::other
                                                                      : ExpertPart::transport;
  }
}

/// Rows of kernels in the order in which they were launched.
std::vector<uint32_t> kernels_by_launch(const ImportedTrace& trace) {
  std::vector<std::pair<int64_t, uint32_t>> launched;
  for (uint32_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    if (op.kind != ActivityKind::kernel) continue;
    const HostCall* call = trace.launch_of(op);
    launched.emplace_back(call == nullptr ? op.start_ns : call->start_ns, row);
  }
  std::ranges::sort(launched);
  std::vector<uint32_t> rows;
  rows.reserve(launched.size());
  for (const auto& [launch_ns, row] : launched) rows.push_back(row);
  return rows;
}

}  // namespace

std::vector<bool> expert_kernels_of(const ImportedTrace& trace) {
  std::vector<ExpertPart> parts;  // by name
  bool has_transport = false;
  for (size_t name = 0; name < trace.names.size(); ++name) {
    parts.push_back(expert_part_of(trace.names[static_cast<uint32_t>(name)]));
    has_transport = has_transport || parts.back() == ExpertPart::brings;
  }
  std::vector<bool> is_of_experts(trace.ops.size());
  for (uint32_t row = 0; row < trace.ops.size(); ++row) {
    is_of_experts[row] = trace.ops[row].kind == ActivityKind::kernel &&
                         parts[trace.ops[row].name] == ExpertPart::grouped;
  }
  if (!has_transport) return is_of_experts;
  bool is_open = false;
  bool is_mixed = false;
  std::vector<uint32_t> between;  // since rows were brought
  for (const uint32_t row : kernels_by_launch(trace)) {
    switch (parts[trace.ops[row].name]) {
      case ExpertPart::brings:
        is_open = true;
        break;
      case ExpertPart::takes_back:
        if (is_open && !is_mixed) {
          for (const uint32_t one : between) is_of_experts[one] = true;
        }
        is_open = is_mixed = false;
        between.clear();
        break;
      case ExpertPart::attention:
        is_mixed = is_mixed || is_open;
        break;
      case ExpertPart::grouped:
      case ExpertPart::other:
        if (is_open) between.push_back(row);
        break;
      case ExpertPart::transport:
        break;
    }
  }
  return is_of_experts;
}

}  // namespace moetune::profiler
