// Takes control characters and broken UTF-8 out of foreign text, and cuts it at a limit.
#include "sweeps/bisect/text.h"

#include <algorithm>

#include "kernels/base/text.h"
#include "kernels/base/utf8.h"

namespace moetune::sweeps {

std::string plain_text(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kEllipsis = "...";
  const std::string line = base::one_line(base::valid_utf8(text));
  const std::string_view kept = base::trimmed(line);
  if (kept.size() <= max_bytes) return std::string(kept);
  const size_t length = max_bytes - std::min(max_bytes, kEllipsis.size());
  return std::string(base::trimmed(base::cut_text(kept, length))).append(kEllipsis);
}

}  // namespace moetune::sweeps
