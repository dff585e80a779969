#include "kernels/base/fnv.h"

#include <fmt/format.h>

namespace moetune::base {

std::string fnv_digits(std::string_view bytes) { return fmt::format("{:016x}", fnv_of(bytes)); }

}  // namespace moetune::base
