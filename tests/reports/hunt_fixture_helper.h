// Hunts as `moetune bisect` leaves them in a runs database: a culprit found in noise, one in memory
// among failed builds, no change, and one that is not done. For the tests of the report.
#pragma once

#include <string>

#include "profiler/store/store.h"

namespace moetune::tests {

/// How many add_hunts adds; the newest is that with the culprit in step time.
constexpr int kNumHunts = 4;
/// The culprit of the newest hunt, of this many commits.
constexpr int kCulpritPosition = 37;
constexpr int kNumHuntCommits = 64;

/// `hostile` is put in front of every text.
void add_hunts(store::Store& store, const std::string& hostile = "");

}  // namespace moetune::tests
