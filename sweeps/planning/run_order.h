// Whether predictions order like runs as their measurements do.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moetune::sweeps {

struct PublishedRow;

/// Throughput of one run.
struct RankedRun {
  std::string id;
  double predicted = 0;
  double published = 0;
  std::string configuration;  ///< everything that the prediction depends on
};
/// Runs that are compared with each other.
using GroupsOfRuns = std::map<std::string, std::vector<RankedRun>>;

/// What of a row is priced.
std::string priced_configuration(const PublishedRow& row);

/// Two published figures of one configuration differ by a few per cent: the same layout at the next
/// release by 1.4 % in the median, the same recipe measured again by 6 %.
inline constexpr double kNoiseOfRuns = 0.02;

/// Kendall's tau (kOrderKeys of plan_outputs.h) over pairs of a group whose published figures are
/// further apart than `noise`, a logarithm.
nlohmann::json order_of(const GroupsOfRuns& groups, double noise);

}  // namespace moetune::sweeps
