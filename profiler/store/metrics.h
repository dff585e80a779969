// The one table of metric names: what a number of a trial is called, its unit, and which direction
// is better. The store and the shard refuse every other name, so that a typing error never becomes
// a second metric.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moetune::store {

enum class Better : uint8_t { lower, higher, none };

struct MetricInfo {
  std::string_view name;
  std::string_view unit;  ///< ns, s, bytes, ratio, count, flops, 1/s, nats
  Better better;
  std::string_view help;
};

std::span<const MetricInfo> metric_table();
/// The row of a name, or of a name with a communication group behind a dot ("comm_bytes.ep").
/// Throws base::Error for a name that is not in the table.
const MetricInfo& metric_info(std::string_view name);
const char* name_of(Better better);

}  // namespace moetune::store
