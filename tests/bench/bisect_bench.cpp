// How often hunts are right (all culprits and no other), what confidence the named culprits have
// (claimed) and how many of them are culprits (delivered), and what hunts cost, in synthetic
// histories of 64 commits: the search alone, then whole hunts, which also choose the metric.
// Argument: hunts per case, 1000 by default. Ends with 1 when claimed and delivered are more than 2
// points apart, or a case is right less often than the README says.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "tests/bisect/whole_hunts.h"

namespace {

using moetune::tests::HuntCase;
using moetune::tests::HuntStatistics;
using moetune::tests::WholeHuntCase;

int num_missed = 0;

template <typename Case, typename Run>
void print_case(const Case& c, int num_hunts, double least_right, const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  const HuntStatistics s = run(c, num_hunts);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  // Without a culprit there is no claim whose truth could be counted.
  const bool is_calibrated =
      c.num_culprits == 0 || std::abs(s.mean_claimed() - s.delivered()) <= 0.02;
  const bool is_right = s.right() >= least_right;
  num_missed += !is_calibrated + !is_right;
  fmt::print("{:28} {:>7.3f} {:>7.3f} {:>8.3f} {:>10.3f} {:>6} {:>6} {:>7} {:>8.1f}{}{}\n", c.name,
             s.right(), least_right, s.mean_claimed(), s.delivered(),
             HuntStatistics::quantile(s.runs, 0.5), HuntStatistics::quantile(s.runs, 0.95),
             HuntStatistics::quantile(s.builds, 0.5), ms / num_hunts,
             is_right ? "" : "  NOT RIGHT ENOUGH", is_calibrated ? "" : "  NOT CALIBRATED");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int num_hunts = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  struct Row {
    HuntCase c;
    double least_right;
  };
  const Row searches[] = {
      {{.name = "shift of 2 noises"}, 0.97},
      {{.name = "shift of 3 noises", .shift = 3}, 0.97},
      {{.name = "2, 5 % outliers of 8", .outlier_share = 0.05}, 0.95},
      {{.name = "2, drift 0.1 a run", .drift = 0.1}, 0.94},
      {{.name = "3, drift 0.1 a run", .shift = 3, .drift = 0.1}, 0.94},
      {{.name = "no culprit", .num_culprits = 0}, 0.95},
      {{.name = "no culprit, outliers", .outlier_share = 0.05, .num_culprits = 0}, 0.95},
      {{.name = "no culprit, drift 0.1", .drift = 0.1, .num_culprits = 0}, 0.95},
      {{.name = "2, speed wanders by 2", .wander = 2}, 0.94},
      {{.name = "no culprit, it wanders", .wander = 2, .num_culprits = 0}, 0.95},
      {{.name = "two culprits of 3", .shift = 3, .num_culprits = 2}, 0.95},
      {{.name = "2, builds are free", .build_cost = 0.01}, 0.97},
  };
  const WholeHuntCase hunts[] = {
      {.name = "whole: shift of 2"},
      {.name = "whole: a counter shows it", .has_counter = true},
      {.name = "whole: another counter", .has_other_counter = true},
      {.name = "whole: a part shows it", .has_part = true},
      {.name = "whole: two, counter for one", .shift = 3, .num_culprits = 2, .has_counter = true},
      {.name = "whole: work was moved", .has_moved_part = true},
      {.name = "whole: a part, it wanders", .has_part = true, .wander = 2},
      {.name = "whole: 1 in 10 crashes", .crash_share = 0.1, .failure_share = 0.02},
  };
  fmt::print("{} hunts per case, 64 commits, a build costs 5 runs\n", num_hunts);
  fmt::print("{:28} {:>7} {:>7} {:>8} {:>10} {:>6} {:>6} {:>7} {:>8}\n", "case", "right", "asked",
             "claimed", "delivered", "runs", "p95", "builds", "ms each");
  for (const Row& row : searches) {
    print_case(row.c, num_hunts, row.least_right,
               [](const HuntCase& c, int n) { return moetune::tests::run_synthetic_hunts(c, n); });
  }
  for (const WholeHuntCase& c : hunts) {
    print_case(
        c, num_hunts, c.num_culprits == 1 ? 0.95 : 0.9,
        [](const WholeHuntCase& each, int n) { return moetune::tests::run_whole_hunts(each, n); });
  }
  return num_missed == 0 ? 0 : 1;
}
