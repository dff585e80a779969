// What the program says that its ops cost is what the arguments of their calls come to: bytes of
// every operand in its own type, FLOPs of products and of attention.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tests/engine/program_on_tape.h"
#include "tests/engine/recorded_layouts.h"
#include "tests/engine/recorded_run.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(recorded_costs)

namespace {

using plan::Op;
using plan::Pass;
using testing::PricedOp;

/// A handful of FLOPs an element is all that rows, norms and activations do.
constexpr int64_t kMostFlopsPerElement = 16;

using Label = std::pair<Op, Pass>;

/// Compares one price after the other.
class Prices {
 public:
  /// Why the price is wrong; empty when it is right.
  std::string check(const PricedOp& op) {
    if (op.told.bytes != op.counted.bytes) {
      return fmt::format("{} bytes, counted {}", op.told.bytes, op.counted.bytes);
    }
    if (op.counted.flops >= 0) {
      if (op.told.flops == op.counted.flops) return {};
      return fmt::format("{} FLOPs, counted {}", op.told.flops, op.counted.flops);
    }
    // No call declares these, but they are the same small number for each element.
    if (op.counted.elements == 0) {
      return op.told.flops == 0 ? "" : fmt::format("{} FLOPs of nothing", op.told.flops);
    }
    const int64_t each = op.told.flops / op.counted.elements;
    const int64_t known = per_element_.try_emplace(label_of(op), each).first->second;
    if (each * op.counted.elements == op.told.flops && each == known &&
        each <= kMostFlopsPerElement) {
      return {};
    }
    return fmt::format("{} FLOPs for {} elements, {} for each elsewhere", op.told.flops,
                       op.counted.elements, known);
  }

  static Label label_of(const PricedOp& op) {
    return {op.op, op.pass == Pass::recompute ? Pass::forward : op.pass};
  }

 private:
  std::map<Label, int64_t> per_element_;
};

BOOST_AUTO_TEST_CASE(costs_are_those_of_the_arguments) {
  Prices prices;
  std::map<Label, std::string> wrong;  ///< an example of each
  testing::for_recorded_ranks([&](const spec::TrialSpec& trial, int rank) {
    const testing::RecordedRun run = testing::record_rank(trial, rank);
    const testing::ProgramOnTape on_tape = testing::follow(trial, run, run.program);
    BOOST_TEST_REQUIRE(!on_tape.priced_ops().empty());
    for (const PricedOp& op : on_tape.priced_ops()) {
      const std::string why = prices.check(op);
      if (why.empty()) continue;
      wrong.try_emplace(Prices::label_of(op),
                        fmt::format("{} {}: {}", spec::name_of(trial.dtype), op.where, why));
    }
  });
  for (const auto& [label, why] : wrong) BOOST_ERROR(why);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
