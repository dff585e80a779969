// How often hunts are right (all culprits and no other), what confidence the named culprits have
// (claimed) and how many of them are culprits (delivered), and what hunts cost, in synthetic
// histories of 64 commits. Argument: hunts per case, 1000 by default.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "tests/tuner/synthetic_hunts.h"

int main(int argc, char** argv) {
  using moetune::tests::HuntCase;
  using moetune::tests::HuntStatistics;
  const int num_hunts = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  const HuntCase cases[] = {
      {.name = "shift of 2 noises"},
      {.name = "shift of 3 noises", .shift = 3},
      {.name = "2, 5 % outliers of 8", .outlier_share = 0.05},
      {.name = "2, drift 0.1 a run", .drift = 0.1},
      {.name = "3, drift 0.1 a run", .shift = 3, .drift = 0.1},
      {.name = "no culprit", .num_culprits = 0},
      {.name = "no culprit, outliers", .outlier_share = 0.05, .num_culprits = 0},
      {.name = "no culprit, drift 0.1", .drift = 0.1, .num_culprits = 0},
      {.name = "two culprits of 3", .shift = 3, .num_culprits = 2},
      {.name = "2, builds are free", .build_cost = 0.01},
  };
  fmt::print("{} hunts per case, 64 commits, a build costs 5 runs\n", num_hunts);
  fmt::print("{:24} {:>7} {:>8} {:>10} {:>6} {:>6} {:>7} {:>8}\n", "case", "right", "claimed",
             "delivered", "runs", "p95", "builds", "ms each");
  for (const HuntCase& c : cases) {
    const auto start = std::chrono::steady_clock::now();
    const HuntStatistics s = moetune::tests::run_synthetic_hunts(c, num_hunts);
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{:24} {:>7.3f} {:>8.3f} {:>10.3f} {:>6} {:>6} {:>7} {:>8.1f}\n", c.name, s.right(),
               s.mean_claimed(), s.delivered(), HuntStatistics::quantile(s.runs, 0.5),
               HuntStatistics::quantile(s.runs, 0.95), HuntStatistics::quantile(s.builds, 0.5),
               ms / num_hunts);
    std::fflush(stdout);
  }
}
