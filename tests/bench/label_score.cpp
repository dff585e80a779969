#include "tests/bench/label_score.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace moetune::tuner::testing {

using profiler::Wall;

namespace {

std::string percent(int64_t part, int64_t all) {
  return all == 0
             ? "-"
             : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(all));
}

std::vector<StrongFault> faults_of(const FaultyCase& faulty) {
  return faulty.faults.empty() ? std::vector<StrongFault>{{Fault::none, 1}} : faulty.faults;
}

}  // namespace

bool Score::add(const FaultyCase& faulty, int faulty_rank, const NamedCause& named,
                const std::function<double()>& removal_gain) {
  const std::vector<StrongFault> faults = faults_of(faulty);
  bool is_label_right = false;
  bool is_sub_right = false;
  for (const StrongFault& fault : faults) {
    const profiler::SubCauseRow& expected = profiler::row_of(row_of(fault.fault).sub_cause);
    is_label_right = is_label_right || named.label == expected.label;
    is_sub_right = is_sub_right || named.sub_cause == expected.name;
  }
  ++num_cases;
  num_labels += is_label_right ? 1 : 0;
  ++num_of_sub_causes;
  num_sub_causes += is_sub_right ? 1 : 0;
  num_unknown += named.label == Wall::unknown ? 1 : 0;
  const bool is_of_rank = faults.size() == 1 && row_of(faults[0].fault).is_of_one_rank;
  const bool is_rank_right = !is_of_rank || named.rank == faulty_rank;
  if (is_of_rank) {
    ++num_of_ranks;
    num_ranks += is_rank_right ? 1 : 0;
  }
  // What removing a fault gains must not be more than what the verdict says it can be.
  if (is_sub_right && named.label != Wall::compute && faults.size() == 1) {
    ++num_gains;
    const double gain = removal_gain();
    const bool is_within = gain <= named.ceiling_ratio + 0.005;
    num_within_ceiling += is_within ? 1 : 0;
    if (!is_within && is_verbose()) {
      print_wrong(faulty, named,
                  fmt::format(" removal gains {:.3f}, ceiling {:.3f}", gain, named.ceiling_ratio));
    }
    ++num_of_most;
    num_within_most += gain <= named.most_ratio + 0.005 ? 1 : 0;
  }
  return is_sub_right && is_rank_right;
}

void Score::add_pair(bool is_stable) {
  ++num_pairs;
  num_stable += is_stable ? 1 : 0;
}

void Score::operator+=(const Score& other) {
  for (int64_t Score::*member :
       {&Score::num_cases, &Score::num_labels, &Score::num_of_sub_causes, &Score::num_sub_causes,
        &Score::num_unknown, &Score::num_of_ranks, &Score::num_ranks, &Score::num_gains,
        &Score::num_within_ceiling, &Score::num_of_most, &Score::num_within_most, &Score::num_pairs,
        &Score::num_stable}) {
    this->*member += other.*member;
  }
}

void print_head(const std::string& what) {
  fmt::print("{:28} {:>6} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", what, "cases",
             "label", "sub-cause", "rank", "unknown", "wrong", "ceiling", "most", "stable");
}

void print(const std::string& name, const Score& s) {
  const int64_t wrong = s.num_cases - s.num_labels - s.num_unknown;
  fmt::print("{:28} {:6} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", name, s.num_cases,
             percent(s.num_labels, s.num_cases), percent(s.num_sub_causes, s.num_of_sub_causes),
             percent(s.num_ranks, s.num_of_ranks), percent(s.num_unknown, s.num_cases),
             percent(wrong, s.num_cases), percent(s.num_within_ceiling, s.num_gains),
             percent(s.num_within_most, s.num_of_most), percent(s.num_stable, s.num_pairs));
  std::fflush(stdout);
}

bool is_verbose() {
  static const bool is = std::getenv("LABEL_BENCH_VERBOSE") != nullptr;
  return is;
}

void print_wrong(const FaultyCase& faulty, const NamedCause& named, const std::string& ceilings) {
  std::string names;
  for (const StrongFault& fault : faults_of(faulty)) {
    names += fmt::format("{} {:.3g} + ", row_of(fault.fault).name, fault.strength);
  }
  fmt::print("  {} in {}: {}/{} rank {} |{}\n", names, faulty_layouts()[faulty.layout].name,
             base::name_of(named.label), named.sub_cause, named.rank.value_or(-1), ceilings);
}

}  // namespace moetune::tuner::testing
