// What the tests of hunts share: commits whose runs a function writes, a plan, and noise.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/bisect/hunt.h"

namespace moetune::tests {

/// Commits whose runs a function writes.
class FakeSource : public sweeps::HuntSource {
 public:
  using Model = std::function<void(int position, sweeps::CommitRun& run, std::mt19937_64& random)>;

  explicit FakeSource(Model model, unsigned seed = 1) : model_(std::move(model)), random_(seed) {}

  sweeps::CommitRun measure(int position, const std::string& purpose) override {
    sweeps::CommitRun run;
    run.status = sweeps::RunStatus::ok;
    run.run_seconds = 10;
    if (built.insert(position).second) {
      run.was_built_now = true;
      run.build_seconds = 50;
    }
    model_(position, run, random_);
    made.push_back({position, purpose, run});
    return run;
  }
  [[nodiscard]] bool is_built(int position) const override { return built.contains(position); }
  void discard_build(int position) override { built.erase(position); }

  std::vector<sweeps::HuntRun> made;
  std::set<int> built;

 private:
  Model model_;
  std::mt19937_64 random_;
};

inline sweeps::HuntSetup setup_of(int num_commits, const std::string& metric = "step_time") {
  sweeps::HuntSetup setup;
  for (int i = 0; i <= num_commits; ++i) {
    setup.commits.push_back({fmt::format("{:040x}", 0xabc000 + i), fmt::format("commit {}", i),
                             "A. Author", "2026-01-01T00:00:00+00:00"});
  }
  setup.metric = metric;
  return setup;
}

inline double noise(std::mt19937_64& random, double scale) {
  return std::normal_distribution<double>(0.0, scale)(random);
}

}  // namespace moetune::tests
