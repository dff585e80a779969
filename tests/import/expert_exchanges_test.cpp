// Which all-to-alls are exchanges of experts' rows: those with uneven parts, in no group of another
// purpose.
#include "profiler/analysis/expert_exchanges.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(expert_exchanges)

namespace {

struct Sizes {
  int64_t sent = 0;
  int64_t received = 0;
};

std::optional<ExpertExchange> exchange_of(const std::vector<Sizes>& ranks,
                                          const std::string& description,
                                          const std::string& collective = "all_to_allv",
                                          const std::string& group = "7") {
  std::vector<ImportedTrace> traces;
  MatchedCollective matched;
  for (const Sizes& sizes : ranks) {
    ImportedTrace& trace = traces.emplace_back();
    CommCall comm;
    comm.collective = trace.names.intern(collective);
    comm.description = trace.names.intern(description);
    comm.group = trace.names.intern(group);
    comm.in_nelems = sizes.sent;
    comm.out_nelems = sizes.received;
    ImportedOp op;
    op.comm = 0;
    trace.comms.push_back(comm);
    trace.ops.add(op);
    trace.finish();
    matched.parts.push_back({static_cast<uint32_t>(traces.size() - 1), 0});
  }
  return expert_exchange_of(traces, matched);
}

const std::vector<Sizes> kDispatch = {{100, 160}, {100, 60}, {100, 80}};
const std::vector<Sizes> kCombine = {{160, 100}, {60, 100}, {80, 100}};
const std::vector<Sizes> kEven = {{100, 100}, {100, 103}, {101, 100}};

}  // namespace

BOOST_AUTO_TEST_CASE(uneven_parts_come_and_go_back) {
  const auto dispatch = exchange_of(kDispatch, "EXPERT_MODEL_PARALLEL_GROUP");
  BOOST_TEST_REQUIRE(dispatch.has_value());
  BOOST_TEST(dispatch->opens);
  BOOST_TEST(!dispatch->closes);
  BOOST_TEST(dispatch->received == (std::vector<int64_t>{160, 60, 80}));
  const auto combine = exchange_of(kCombine, "EXPERT_MODEL_PARALLEL_GROUP");
  BOOST_TEST_REQUIRE(combine.has_value());
  BOOST_TEST(!combine->opens);
  BOOST_TEST(combine->closes);
}

BOOST_AUTO_TEST_CASE(groups_without_a_purpose_count) {
  for (const char* words : {"", "undefined", "default_pg", "mesh_ep"}) {
    BOOST_TEST(exchange_of(kDispatch, words).has_value(), words);
  }
}

BOOST_AUTO_TEST_CASE(others_are_no_exchange_of_rows) {
  BOOST_TEST(!exchange_of(kEven, "EXPERT_MODEL_PARALLEL_GROUP").has_value());
  BOOST_TEST(!exchange_of(kEven, "").has_value());
  BOOST_TEST(!exchange_of({{0, 0}, {0, 0}}, "mesh_ep").has_value());
  BOOST_TEST(!exchange_of(kDispatch, "CONTEXT_PARALLEL_GROUP").has_value());
  BOOST_TEST(!exchange_of(kDispatch, "undefined", "all_to_allv", "mesh_cp").has_value());
  BOOST_TEST(!exchange_of(kDispatch, "mesh_ep", "allreduce").has_value());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
