// Out-of-line parts of the exception types: messages are composed once, here.
#include "kernels/base/error.h"

#include <utility>

#include "kernels/base/units.h"

namespace moetune::base {

OutOfMemory::OutOfMemory(std::string allocation_name_in, std::string group_name_in,
                         int64_t requested, int64_t in_use, int64_t capacity, int rank_in)
    : Error(fmt::format("out of memory on rank {}: allocation '{}' ({}) of {} does not fit, {} of "
                        "{} are in use",
                        rank_in, allocation_name_in, group_name_in, format_bytes(requested),
                        format_bytes(in_use), format_bytes(capacity))),
      allocation_name(std::move(allocation_name_in)),
      group_name(std::move(group_name_in)),
      requested_bytes(requested),
      in_use_bytes(in_use),
      capacity_bytes(capacity),
      rank(rank_in) {}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw Error(fmt::format("{} (check '{}' failed at {}:{})", message, expression, file, line));
}

}  // namespace moetune::base
