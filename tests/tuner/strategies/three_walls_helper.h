// What the tests of the workflow share: sweeps, one search as it went, and what every search keeps
// to.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/tuner/fake_world.h"
#include "tuner/strategies/strategies.h"

namespace moetune::tuner::testing {

constexpr size_t kMaxAsks = 300;

/// Ten axes over plain data parallelism that lacks a few bytes.
spec::SweepSpec wide_sweep();
/// Five axes of two values, and a short validation.
spec::SweepSpec narrow_sweep();

using World = std::function<TrialOutcome(const TrialRequest&)>;

/// All that one search did.
struct Story {
  std::vector<TrialRequest> requests;
  std::vector<TrialOutcome> outcomes;
  std::vector<Decision> decisions;
  std::string best_hash;
  bool has_ended = false;

  [[nodiscard]] std::vector<TrialRequest> started() const {
    std::vector<TrialRequest> trials;
    for (const TrialRequest& request : requests) {
      if (request.action == Action::run) trials.push_back(request);
    }
    return trials;
  }
  [[nodiscard]] const TrialOutcome& outcome_of(const std::string& hash) const {
    for (size_t i = requests.size(); i-- > 0;) {
      if (requests[i].hash == hash) return outcomes[i];
    }
    BOOST_FAIL("nothing ran as " << hash);
    throw base::Error("unreachable");
  }
  [[nodiscard]] const TrialRequest& request_of(const std::string& hash) const {
    for (size_t i = requests.size(); i-- > 0;) {
      if (requests[i].hash == hash) return requests[i];
    }
    BOOST_FAIL("nothing was asked as " << hash);
    throw base::Error("unreachable");
  }
  [[nodiscard]] bool has_decision(Phase phase, DecisionKind kind) const {
    return std::any_of(decisions.begin(), decisions.end(),
                       [&](const Decision& d) { return d.phase == phase && d.kind == kind; });
  }
};

/// `hurry_after`: told to finish soon when so many trials have been started.
Story drive(const spec::SweepSpec& sweep, const World& world, size_t hurry_after = kMaxAsks);

/// Checks what every search keeps to, however it went.
void check_manners(const spec::SweepSpec& sweep, const Story& story);

}  // namespace moetune::tuner::testing
