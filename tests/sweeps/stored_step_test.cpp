// A step of another engine's traces in the form of our own: names for people, groups by our names
// where theirs say which they are, and nothing of times that cannot be added up.
#include "sweeps/adapters/stored_step.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <utility>

#include "tests/import/trace_texts.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(stored_step)

namespace {

struct StoredStep {
  explicit StoredStep(const tests::EventText& events) {
    Diagnosis diagnosis;
    diagnosis.traces.push_back(events.read());
    add_stored_step(diagnosis, shard, notes);
  }
  store::ShardContents shard;
  std::vector<std::string> notes;
};

}  // namespace

BOOST_AUTO_TEST_CASE(groups_get_our_names_where_theirs_say_which) {
  for (const auto& [theirs, ours] : {
           std::pair("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
           std::pair("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
           std::pair("EXPERT_DATA_PARALLEL_GROUP", "edp"),
           std::pair("DATA_PARALLEL_GROUP_WITH_CP", "dp_cp"),
           std::pair("TENSOR_AND_DATA_PARALLEL_GROUP", "TENSOR_AND_DATA_PARALLEL_GROUP"),
           std::pair("mesh_dp_shard_mod_ep", "edp"),
           std::pair("mesh_tp", "tp"),
           std::pair("somebody's", "somebody's"),
       }) {
    tests::EventText events;
    events.range(0, 100, "ProfilerStep#3").call(0, 5, 1).call(10, 5, 2);
    events.kernel(10, 20, 1, "void ns::gemm<float>(float*)");
    events.kernel(
        30, 10, 2, "ncclDevKernel_AllReduce_Sum_f32(Args<4096ul>)", 9,
        std::string(R"(, "Collective name": "allreduce", "Process Group Description": ")") +
            theirs + R"(", "Process Group Name": "4", "Group size": 8)");
    const StoredStep stored(events);
    BOOST_TEST_REQUIRE(stored.shard.traces.size() == 1u);
    const auto& records = stored.shard.traces[0].records;
    BOOST_TEST_REQUIRE(records.size() >= 2u);
    BOOST_TEST(records[0].name == "gemm");
    BOOST_TEST(records[1].name == "ncclDevKernel_AllReduce_Sum_f32");
    BOOST_TEST(records[1].group == ours);
    BOOST_TEST(!stored.shard.metrics.empty());
  }
}

// Of communicators with one purpose; the groups' names do not tell them apart.
BOOST_AUTO_TEST_CASE(records_hold_what_the_file_says_beyond_their_times) {
  tests::EventText events;
  events.range(0, 100, "ProfilerStep#3");
  const auto comm = [](const char* name) {
    return fmt::format(R"(, "Collective name": "allreduce", "Process Group Name": "{}",
                         "Process Group Description": "somebody's", "Group size": 8)",
                       name);
  };
  events.call(0, 5, 1).kernel(10, 20, 1, "void ns::gemm<float>(float*)", 7,
                              R"(, "grid": [640, 2, 1], "block": [128, 1, 1])");
  events.call(6, 1, 2).kernel(30, 10, 2, "ncclDevKernel_AllReduce", 9, comm("4"));
  events.call(8, 1, 3).kernel(40, 10, 3, "ncclDevKernel_AllReduce", 9, comm("5"));
  events.call(10, 1, 4).kernel(50, 10, 4, "ncclDevKernel_AllReduce", 9, comm("4"));
  const StoredStep stored(events);
  BOOST_TEST_REQUIRE(stored.shard.traces.size() == 1u);
  const auto& records = stored.shard.traces[0].records;
  BOOST_TEST_REQUIRE(records.size() >= 4u);
  BOOST_TEST(records[0].name == "gemm");
  BOOST_TEST(records[0].kernel == "void ns::gemm<float>(float*)");
  BOOST_TEST(records[0].grid[0] == 640);
  BOOST_TEST(records[0].device == 0);
  BOOST_TEST(records[0].thread == 0);
  BOOST_TEST(records[0].communicator == -1);
  BOOST_TEST(records[1].group == records[2].group);
  BOOST_TEST(records[1].communicator > 0);
  BOOST_TEST(records[2].communicator > 0);
  BOOST_TEST(records[1].communicator != records[2].communicator);
  BOOST_TEST(records[1].communicator == records[3].communicator);
}

// An mm of 2 * 8192 * 4096 * 1024 FLOPs and (8192 * 4096 + 4096 * 1024 + 8192 * 1024) * 2 bytes.
// The third one is behind the step.
BOOST_AUTO_TEST_CASE(work_that_shapes_tell_is_stored_by_kernel) {
  const std::string type = R"("c10::BFloat16")";
  tests::EventText events;
  events.range(0, 1000, "ProfilerStep#3");
  for (int i = 0; i < 3; ++i) {
    const int start = i < 2 ? 20 * i : 1100;
    events.add(R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": )" +
               std::to_string(start) + R"(, "dur": 10, "args": {"External id": )" +
               std::to_string(100 + i) + R"(, "Input type": [)" + type + ", " + type +
               R"(], "Input Dims": [[8192, 4096], [4096, 1024]]}})");
    events.call(start + 1, 5, i + 1);
    events.kernel(100 + 600 * i, 200, i + 1, "void ns::gemm<float>(float*)", 7,
                  R"(, "External id": )" + std::to_string(100 + i));
  }
  const StoredStep stored(events);
  BOOST_TEST_REQUIRE(stored.shard.ops.size() == 1u);
  const store::ShardOp& op = stored.shard.ops[0];
  BOOST_TEST(op.rank == 0);
  BOOST_TEST(op.name == "gemm");
  BOOST_TEST(op.count == 2);
  BOOST_TEST(op.flops == 2 * 68'719'476'736);
  BOOST_TEST(op.bytes == 2 * 92'274'688);
  BOOST_TEST(op.duration_ns == 400'000);
}

BOOST_AUTO_TEST_CASE(times_that_cannot_be_added_up_are_not_stored) {
  tests::EventText events;
  events.call(0, 5, 1).kernel(10, 20, 1).call(9e12, 5, 2).kernel(9.1e12, 20, 2);
  const StoredStep near(events);
  BOOST_TEST(near.shard.traces.size() == 1u);
  events.call(2e13, 5, 3).kernel(2.1e13, 20, 3);
  const StoredStep far(events);
  BOOST_TEST(far.shard.traces.empty());
  BOOST_TEST(far.notes.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
