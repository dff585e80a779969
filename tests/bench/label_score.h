// What a bench of labels counts, and how it prints it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "profiler/analysis/wall_label.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::tuner::testing {

/// What a verdict says, of a step or of a trial.
struct NamedCause {
  profiler::Wall label = profiler::Wall::unknown;
  std::string sub_cause;
  std::optional<int64_t> rank;
  double ceiling_ratio = 0;
  double most_ratio = 0;  ///< the ceiling with what nothing explains
};

struct Score {
  int64_t num_cases = 0;
  int64_t num_labels = 0;         ///< right ones
  int64_t num_of_sub_causes = 0;  ///< cases in which the records can tell it
  int64_t num_sub_causes = 0;     ///< right ones
  int64_t num_unknown = 0;
  int64_t num_of_ranks = 0;  ///< cases of one rank
  int64_t num_ranks = 0;     ///< right ones
  int64_t num_gains = 0;
  int64_t num_within_ceiling = 0;
  int64_t num_of_most = 0;  ///< gains of verdicts that tell most_ratio
  int64_t num_within_most = 0;
  int64_t num_pairs = 0;  ///< of neighbouring steps
  int64_t num_stable = 0;

  /// Of several faults any may be named. Whether the cause and the rank are right.
  bool add(const FaultyCase& faulty, int faulty_rank, const NamedCause& named,
           const std::function<double()>& removal_gain);
  void add_pair(bool is_stable);
  void operator+=(const Score& other);
};

void print_head(const std::string& what);
void print(const std::string& name, const Score& score);

/// Wrong cases are printed, too, where the environment has LABEL_BENCH_VERBOSE.
bool is_verbose();
void print_wrong(const FaultyCase& faulty, const NamedCause& named, const std::string& ceilings);

}  // namespace moetune::tuner::testing
