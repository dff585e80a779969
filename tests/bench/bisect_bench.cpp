// How often hunts are right (all culprits and no other), what confidence the named culprits have
// (claimed) and how many of them are culprits (delivered), how often the interval of 95 % holds the
// planted effect (covered), and what hunts cost, in synthetic histories of 64 commits: the search
// alone, then whole hunts, which also choose the metric, then hunts among the changes of a
// configuration. Arguments: hunts per case, 1000 by default, and a part of the names of the cases
// to run, all by default. Swapped: in how many the bad end was said to be better, which it never
// is. Named: without a culprit, in how many one was named all the same. Guessed: in how many the
// first guess at the most runs to go held. Ends with 1 when claimed and delivered are more than 2
// points apart, a case is right less often than is asked of it, more than 1 in 100 are swapped,
// more than 1 in 20 named for nothing, or its median of runs or builds is larger. Six cases miss
// that, of noise and histories that the code does not assume and of effects below the noise:
// docs/results.md has them.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "tests/bisect/whole_hunts.h"
#include "tests/tuner/bisect/synthetic_configs.h"

namespace {

using moetune::tests::EarlierRuns;
using moetune::tests::HuntCase;
using moetune::tests::HuntStatistics;
using moetune::tests::NoiseShape;
using moetune::tests::WholeHuntCase;

int num_missed = 0;
int num_run = 0;
std::string_view only;  ///< cases with this in their name

/// What is asked of a case; 0: nothing.
struct Target {
  double right = 0.95;
  int runs = 0;  ///< median, at most
  int builds = 0;
};

template <typename Case, typename Run>
void print_case(const Case& c, int num_hunts, const Target& target, const Run& run) {
  if (std::string_view(c.name).find(only) == std::string_view::npos) return;
  const auto start = std::chrono::steady_clock::now();
  const HuntStatistics s = run(c, num_hunts);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  // Without a culprit there is no claim whose truth could be counted.
  const bool is_calibrated =
      c.num_culprits == 0 || std::abs(s.mean_claimed() - s.delivered()) <= 0.02;
  const bool is_right = s.right() >= target.right;
  const int runs = HuntStatistics::quantile(s.runs, 0.5);
  const int builds = HuntStatistics::quantile(s.builds, 0.5);
  const bool is_cheap =
      (target.runs == 0 || runs <= target.runs) && (target.builds == 0 || builds <= target.builds);
  const double swapped = static_cast<double>(s.num_swapped) / s.num_hunts;
  const bool is_turned = swapped > 0.01;
  const bool is_invented =
      c.num_culprits == 0 && static_cast<double>(s.num_named) / s.num_hunts > 0.05;
  ++num_run;
  num_missed += !is_calibrated + !is_right + !is_cheap + is_turned + is_invented;
  fmt::print(
      "{:28} {:>7.3f} {:>7.3f} {:>8.3f} {:>10.3f} {:>8.3f} {:>6} {:>6} {:>7} {:>8.3f} {:>6} {:>8} "
      "{:>8.1f}{}{}{}{}{}\n",
      c.name, s.right(), target.right, s.mean_claimed(), s.delivered(), s.covered(), runs,
      HuntStatistics::quantile(s.runs, 0.95), builds, swapped,
      c.num_culprits == 0 ? fmt::format("{:.3f}", static_cast<double>(s.num_named) / s.num_hunts)
                          : "-",
      s.num_guessed > 0 ? fmt::format("{:.3f}", static_cast<double>(s.num_guessed) / s.num_hunts)
                        : "-",
      ms / num_hunts, is_right ? "" : "  NOT RIGHT ENOUGH", is_calibrated ? "" : "  NOT CALIBRATED",
      is_cheap ? "" : "  TOO DEAR", is_turned ? "  SWAPPED" : "", is_invented ? "  INVENTED" : "");
  std::fflush(stdout);
}

/// Hunts among configurations have the bounds of their table.
void print_config_case(const moetune::tests::ConfigPlant& plant, int num_hunts) {
  const std::string name = fmt::format("knobs: {}", plant.name);
  if (name.find(only) == std::string::npos) return;
  const auto start = std::chrono::steady_clock::now();
  const moetune::tests::ConfigHuntStatistics s = moetune::tests::run_config_hunts(plant, num_hunts);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const bool is_right = s.right() >= plant.right;
  // None named is none claimed. A claim may be modest: that all of it is right is much to say.
  const bool is_calibrated =
      s.num_named <= num_hunts / 2 || s.delivered() >= s.mean_claimed() - 0.02;
  const bool is_cheap = s.median_runs() <= plant.runs;
  ++num_run;
  num_missed += !is_right + !is_calibrated + !is_cheap;
  fmt::print("{:28} {:>7.3f} {:>7.3f} {:>8.3f} {:>10.3f} {:>8} {:>6} {:>48.1f}{}{}{}\n", name,
             s.right(), plant.right, s.mean_claimed(), s.delivered(), "-", s.median_runs(),
             ms / num_hunts, is_right ? "" : "  NOT RIGHT ENOUGH",
             is_calibrated ? "" : "  NOT CALIBRATED", is_cheap ? "" : "  TOO DEAR");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int num_hunts = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  if (argc > 2) only = argv[2];
  struct Row {
    HuntCase c;
    Target target;
  };
  const Row searches[] = {
      {{.name = "shift of 2 noises"}, {0.97, 45, 12}},
      {{.name = "shift of 3 noises", .shift = 3}, {0.97}},
      {{.name = "2, 5 % outliers of 8", .outlier_share = 0.05}, {0.95}},
      {{.name = "2, drift 0.1 a run", .drift = 0.1}, {0.94}},
      {{.name = "3, drift 0.1 a run", .shift = 3, .drift = 0.1}, {0.94}},
      {{.name = "no culprit", .num_culprits = 0}, {0.95, 60}},
      {{.name = "no culprit, outliers", .outlier_share = 0.05, .num_culprits = 0}, {0.95, 60}},
      {{.name = "no culprit, drift 0.1", .drift = 0.1, .num_culprits = 0}, {0.95, 60}},
      {{.name = "2, speed wanders by 2", .wander = 2}, {0.94}},
      {{.name = "no culprit, it wanders", .wander = 2, .num_culprits = 0}, {0.95, 60}},
      {{.name = "two culprits of 3", .shift = 3, .num_culprits = 2}, {0.95}},
      {{.name = "2, builds are free", .build_cost = 0.01}, {0.97}},
      {{.name = "2, log-normal", .shape = NoiseShape::log_normal}, {}},
      {{.name = "2, exponential", .shape = NoiseShape::exponential}, {}},
      {{.name = "2, Student's t of 2", .shape = NoiseShape::student_2}, {}},
      {{.name = "3, two speeds", .shape = NoiseShape::two_speeds, .shift = 3}, {}},
      {{.name = "no culprit, log-normal", .shape = NoiseShape::log_normal, .num_culprits = 0}, {}},
      {{.name = "no culprit, exponential", .shape = NoiseShape::exponential, .num_culprits = 0},
       {}},
      // What is not right in these two is undecided.
      {{.name = "no culprit, Student", .shape = NoiseShape::student_2, .num_culprits = 0}, {}},
      {{.name = "no culprit, two speeds", .shape = NoiseShape::two_speeds, .num_culprits = 0}, {}},
      // So much noise never lets a hunt say that nothing has changed: only that it cannot tell.
      {{.name = "no culprit, noise of 0.2", .noise_ratio = 0.2, .num_culprits = 0}, {0}},
      {{.name = "the same, log-normal",
        .shape = NoiseShape::log_normal,
        .noise_ratio = 0.2,
        .num_culprits = 0},
       {0}},
  };
  struct WholeRow {
    WholeHuntCase c;
    Target target;
  };
  const WholeRow hunts[] = {
      {{.name = "whole: shift of 2"}, {0.95}},
      {{.name = "whole: a counter shows it", .has_counter = true}, {0.95}},
      {{.name = "whole: another counter", .has_other_counter = true}, {0.95}},
      {{.name = "whole: a part shows it", .has_part = true}, {0.95}},
      {{.name = "whole: two, counter for one", .shift = 3, .num_culprits = 2, .has_counter = true},
       {0.9}},
      {{.name = "whole: work was moved", .has_moved_part = true}, {0.95}},
      {{.name = "whole: a part that is hidden", .has_hidden_part = true}, {0.95}},
      {{.name = "whole: a doubtful part", .has_doubtful_part = true}, {0.95}},
      {{.name = "whole: doubtful, it wanders", .has_doubtful_part = true, .wander = 2}, {0.95}},
      // Of histories at the ends of that range and beyond.
      {{.name = "whole: doubtful, 9 in 10",
        .has_doubtful_part = true,
        .part_share = {0.9, 0.9},
        .none_of_rest = {0.5, 0.5}},
       {}},
      {{.name = "whole: doubtful, every other",
        .has_doubtful_part = true,
        .part_share = {0.5, 0.5},
        .none_of_rest = {0.8, 0.8}},
       {}},
      {{.name = "whole: 0.7", .shift = 0.7, .min_effect_ratio = 0.007}, {0.5}},
      {{.name = "whole: 0.7, a doubtful part",
        .shift = 0.7,
        .has_doubtful_part = true,
        .min_effect_ratio = 0.007},
       {0.5}},
      {{.name = "whole: 0.7, doubtful, wanders",
        .shift = 0.7,
        .has_doubtful_part = true,
        .min_effect_ratio = 0.007,
        .wander = 2},
       {0.4}},
      // In one history of 25 the step does not follow, which so much noise rarely lets a hunt say.
      {{.name = "whole: 0.7, in all parts",
        .shift = 0.7,
        .has_common_speed = true,
        .min_effect_ratio = 0.007},
       {0.9}},
      {{.name = "whole: the same, it wanders",
        .shift = 0.7,
        .has_common_speed = true,
        .min_effect_ratio = 0.007,
        .wander = 2},
       {0.9}},
      {{.name = "whole: the same, spread",
        .shift = 0.7,
        .has_common_speed = true,
        .is_spread = true,
        .min_effect_ratio = 0.007,
        .wander = 2},
       {0.9}},
      // In 0.18 of these nothing is slower, which so much noise never lets a hunt say.
      {{.name = "whole: the same, doubtful",
        .shift = 0.7,
        .has_doubtful_part = true,
        .has_common_speed = true,
        .min_effect_ratio = 0.007,
        .wander = 2},
       {0.8}},
      {{.name = "whole: in all, made up for",
        .shift = 0.7,
        .has_common_speed = true,
        .made_up_share = {0.15, 0.15},
        .min_effect_ratio = 0.007},
       // Five times as many as is assumed: the claim is too high by what that hides.
       {0.8}},
      {{.name = "whole: 1 in 10 crashes", .crash_share = 0.1, .failure_share = 0.02}, {0.95}},
      // What leads and runs of earlier buy: the same histories without and with.
      {{.name = "whole: counter, not followed", .has_counter = true, .follows_leads = false}, {}},
      {{.name = "whole: a part, not followed", .has_part = true, .follows_leads = false}, {}},
      {{.name = "whole: doubtful, not followed", .has_doubtful_part = true, .follows_leads = false},
       {0}},
      {{.name = "whole: gone on, forgotten", .earlier = EarlierRuns::forgotten}, {}},
      {{.name = "whole: gone on, as one", .earlier = EarlierRuns::as_one}, {}},
      {{.name = "whole: gone on, stretches", .earlier = EarlierRuns::stretches}, {}},
  };
  fmt::print("{} hunts per case, 64 commits, a build costs 5 runs\n", num_hunts);
  fmt::print("{:28} {:>7} {:>7} {:>8} {:>10} {:>8} {:>6} {:>6} {:>7} {:>8} {:>6} {:>8} {:>8}\n",
             "case", "right", "asked", "claimed", "delivered", "covered", "runs", "p95", "builds",
             "swapped", "named", "guessed", "ms each");
  for (const Row& row : searches) {
    print_case(row.c, num_hunts, row.target,
               [](const HuntCase& c, int n) { return moetune::tests::run_synthetic_hunts(c, n); });
  }
  for (const WholeRow& row : hunts) {
    print_case(row.c, num_hunts, row.target,
               [](const WholeHuntCase& c, int n) { return moetune::tests::run_whole_hunts(c, n); });
  }
  for (const moetune::tests::ConfigPlant& plant : moetune::tests::kConfigPlants) {
    print_config_case(plant, num_hunts);
  }
  if (num_run == 0) fmt::print("no case has '{}' in its name\n", only);
  return num_run == 0 ? 2 : num_missed == 0 ? 0 : 1;
}
