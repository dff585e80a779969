#include "profiler/record_details.h"

namespace moetune::profiler {

std::optional<RecordKind> record_kind_of(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(RecordKind::host_work); ++i) {
    const auto kind = static_cast<RecordKind>(i);
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace moetune::profiler
