// Lines that end a run, and what has to be read from them.
#pragma once

#include <boost/test/unit_test.hpp>
#include <ostream>
#include <string>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps::golden_logs {

inline const std::string kOom =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.00 GiB is free.\n";

/// A line behind the steps of a run, or the last one of a traceback there.
struct FailureLine {
  std::string line;
  std::string kind;
  ForeignStatus status;
  bool in_traceback = false;
};
constexpr bool kInTraceback = true;
inline std::ostream& operator<<(std::ostream& out, const FailureLine& row) {
  return out << row.line;
}

inline void check(const FailureLine& row) {
  const std::string line = row.in_traceback ? traceback("", row.line) : row.line + "\n";
  const RunFacts facts = facts_of(megatron_steps(1, 9) + line);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == row.kind);
  BOOST_TEST(facts.status == row.status);
  BOOST_TEST(!facts.reason.empty());
}

}  // namespace moetune::sweeps::golden_logs
