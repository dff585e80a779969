#include "sweeps/runs/line_fields.h"

#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {

bool read_sizes(std::string_view text, std::span<const SizeField> fields, LogCollector& log) {
  bool has_any = false;
  for (const SizeField& field : fields) {
    const auto value = log_text::integer_behind(text, field.key);
    has_any |= value.has_value();
    log.set_size(field.member, value);
  }
  return has_any;
}

}  // namespace moetune::sweeps
