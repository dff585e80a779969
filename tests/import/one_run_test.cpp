// Traces that are not of one run, though ranks, steps and devices fit: by when they were recorded,
// and by collectives that do not end together.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/analysis/imported_wall.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
using tests::EventText;

BOOST_AUTO_TEST_SUITE(one_run)

namespace {

/// Layers of a product and a collective of 100 us in a group of these members.
struct Layers {
  int rank = 0;
  int num_layers = 40;
  double product_us = 100;
  std::string members = "[0, 1]";
  std::string collective = "allreduce";
  int world_size = 2;
  bool ends_with_all = false;  ///< with a collective of ranks 0 to 2
};

std::string words_of_collective(const std::string& name, const std::string& group,
                                const std::string& members) {
  return R"(, "Collective name": ")" + name +
         R"(", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float",
         "Process Group Name": ")" +
         group + R"(", "Group size": 2, "Process Group Ranks": ")" + members + "\"";
}

ImportedTrace trace_of(const Layers& layers, const std::string& facts = "") {
  constexpr const char* kKernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";
  EventText events;
  double device_us = 10 + 20 * layers.rank;
  for (int i = 0; i < layers.num_layers; ++i) {
    events.call(4 * i, 1, 2 * i + 1).kernel(device_us, layers.product_us, 2 * i + 1);
    device_us += layers.product_us;
    events.call(4 * i + 2, 1, 2 * i + 2)
        .kernel(device_us, 200, 2 * i + 2, kKernel, 7,
                words_of_collective(layers.collective, "5", layers.members));
    device_us += 200;
  }
  if (layers.ends_with_all) {
    const int last = 2 * layers.num_layers + 1;
    events.call(2 * last, 1, last)
        .kernel(device_us, 200, last, kKernel, 7,
                words_of_collective("allreduce", "0", "[0, 1, 2]"));
    device_us += 200;
  }
  events.range(0, device_us, "ProfilerStep#7");
  return events.read(R"(, "distributedInfo": {"world_size": )" + std::to_string(layers.world_size) +
                     R"(, "rank": )" + std::to_string(layers.rank) + "}" + facts);
}

std::vector<ImportedTrace> both(const Layers& other, const std::string& first_facts = "",
                                const std::string& other_facts = "") {
  std::vector<ImportedTrace> traces;
  traces.push_back(
      trace_of({.members = other.members, .collective = other.collective}, first_facts));
  traces.push_back(trace_of(other, other_facts));
  return traces;
}

bool is_told(const ImportedWall& wall) {
  return std::ranges::any_of(
      wall.evidence, [](const Evidence& evidence) { return evidence.name == "traces_apart"; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_same_steps_an_hour_later_are_of_another_run) {
  const auto at = [](const char* base) {
    return R"(, "baseTimeNanoseconds": )" + std::string(base);
  };
  const std::string first = at("1711964646000000000");
  const Layers other = {.rank = 1};
  const auto is_apart = [](const base::UsageError& error) {
    return std::string(error.what()).find("59 min 59 s apart") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(classify_imported(both(other, first, at("1711968246000000000"))),
                        base::UsageError, is_apart);
  BOOST_CHECK_EXCEPTION(classify_imported(both(other, at("1711968246000000000"), first)),
                        base::UsageError, is_apart);
  // Clocks of nodes may differ by minutes, and not every file has the time of day.
  BOOST_CHECK_NO_THROW(classify_imported(both(other, first, at("1711964946000000000"))));
  BOOST_CHECK_NO_THROW(classify_imported(both(other, first)));
  // Without steps there is nothing that says they were to be the same.
  std::vector<ImportedTrace> traces = both(other, first, at("1711968246000000000"));
  traces[0].steps.clear();
  traces[1].steps.clear();
  BOOST_CHECK_NO_THROW(classify_imported(traces));
}

BOOST_AUTO_TEST_CASE(collectives_that_do_not_end_together_are_told) {
  const ImportedWall other = classify_imported(both({.rank = 1, .product_us = 160}));
  BOOST_TEST(is_told(other));
  BOOST_TEST(name_of(other.label) == "unknown", other.summary);
  BOOST_TEST((other.matching.apart == std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}}));

  const ImportedWall same = classify_imported(both({.rank = 1}));
  BOOST_TEST(!is_told(same));
  BOOST_TEST(name_of(same.label) == "communication", same.summary);
  // Another number of them may be of a longer recording, and members that are cut short of two
  // groups.
  BOOST_TEST(!is_told(classify_imported(both({.rank = 1, .num_layers = 39, .product_us = 160}))));
  BOOST_TEST(
      !is_told(classify_imported(both({.rank = 1, .product_us = 160, .members = "[0, 1, ...]"}))));
  // Who sends to all does not wait for them, and may be far ahead.
  // Of parts of their own who gets the most is last.
  for (const char* collective :
       {"broadcast", "_broadcast_oop", "reduce", "all_to_allv", "all_to_all"}) {
    BOOST_TEST(
        !is_told(classify_imported(both({.rank = 1, .product_us = 160, .collective = collective}))),
        collective);
  }
  BOOST_TEST(is_told(classify_imported(
      both({.rank = 1, .product_us = 160, .collective = "_reduce_scatter_base"}))));
}

// What the second and the third have in common with the first shows that they are of one run.
BOOST_AUTO_TEST_CASE(a_chain_of_collectives_holds_traces_together) {
  const auto judged = [](bool has_chain) {
    std::vector<ImportedTrace> traces;
    for (const Layers& layers :
         {Layers{.rank = 0, .members = "[0, 3]"}, Layers{.rank = 1, .members = "[1, 2]"},
          Layers{.rank = 2, .product_us = 160, .members = "[1, 2]"}}) {
      Layers one = layers;
      one.world_size = 4;
      one.ends_with_all = has_chain;
      traces.push_back(trace_of(one));
    }
    return classify_imported(traces);
  };
  BOOST_TEST(!is_told(judged(true)));
  const ImportedWall other = judged(false);
  BOOST_TEST(is_told(other));
  BOOST_TEST((other.matching.apart == std::vector<std::pair<uint32_t, uint32_t>>{{1, 2}}));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
