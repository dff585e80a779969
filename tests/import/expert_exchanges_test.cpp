// Which all-to-alls are exchanges of experts' rows: those with uneven parts, in no group of another
// purpose.
#include "profiler/analysis/expert_exchanges.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "profiler/analysis/imported_steps.h"
#include "tests/import/trace_texts.h"

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

// Gradients of weights may be computed when the rows have gone back. Products of several groups of
// rows are known by their name there, others are not.
BOOST_AUTO_TEST_CASE(grouped_products_behind_an_exchange_are_of_its_layer) {
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    tests::EventText events;
    int id = 0;
    const auto launch = [&](double start, double length, const std::string& name,
                            const std::string& more = "") {
      ++id;
      events.call(2 * id, 1, id).kernel(start, length, id, name, 7, more);
    };
    const int own = rank == 0 ? 150 : 50;  // of 100 rows each
    const auto exchange = [&](double start, int sent, int received) {
      launch(start, 10, "ncclDevKernel_SendRecv(x)",
             R"(, "Collective name": "all_to_allv", "dtype": "Float", "Group size": 2,
              "Process Group Name": "5", "Process Group Ranks": "[0, 1]",
              "Process Group Description": "EXPERT_MODEL_PARALLEL_GROUP", "In msg nelems": )" +
                 std::to_string(sent) + R"(, "Out msg nelems": )" + std::to_string(received));
    };
    launch(100, 10, "grouped_gemm_before");
    exchange(120, 100, own);
    launch(130, own, "grouped_gemm_of_rows");
    exchange(300, own, 100);
    launch(310, own, "grouped_gemm_of_weights");
    launch(500, 10, "gemm");
    events.range(0, 600, "ProfilerStep#1");
    traces.push_back(events.read(R"(, "distributedInfo": {"world_size": 2, "rank": )" +
                                 std::to_string(rank) + "}"));
  }
  const ImportedSteps steps(traces, match_across_ranks(traces));
  const std::vector<StepTrace> made = steps.make(0);
  int num_kernels = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    const int64_t own = rank == 0 ? 150 : 50;
    for (const TraceRecord& record : made[rank].records) {
      if (record.kind != RecordKind::kernel) continue;
      const int64_t start_us = record.start_ns / 1000;
      const bool is_of_layer = start_us == 130 || start_us == 310;
      BOOST_TEST(record.flops == (is_of_layer ? own : 0), start_us);
      BOOST_TEST((record.layer >= 0) == is_of_layer, start_us);
      ++num_kernels;
    }
  }
  BOOST_TEST(num_kernels == 8);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
