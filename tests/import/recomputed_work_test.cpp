// Activations that are computed a second time: which work that is, by what PyTorch says of its
// passes, and which wall it makes.
#include "profiler/import/recomputed_work.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "tests/import/nsys_export.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(recomputed_work_test)

namespace {

using tests::EventText;
using Rows = std::vector<uint32_t>;

constexpr int kAutogradThread = 2;

/// An operator on autograd's thread. `sequence`: -1: autograd neither records it nor runs it.
void add_operator(EventText& events, double start, double duration, const std::string& name,
                  int sequence = -1, int forward_thread = 0) {
  const std::string numbers = sequence < 0
                                  ? ""
                                  : R"(, "Sequence number": )" + std::to_string(sequence) +
                                        R"(, "Fwd thread id": )" + std::to_string(forward_thread);
  events.add(R"({"ph": "X", "cat": "cpu_op", "name": ")" + name +
             R"(", "pid": 1, "tid": 2, "ts": )" + std::to_string(start) + R"(, "dur": )" +
             std::to_string(duration) + R"(, "args": {"External id": 1)" + numbers + "}}");
}

void add_gradient(EventText& events, double start, double duration, const std::string& function) {
  add_operator(events, start, duration, "autograd::engine::evaluate_function: " + function, 9, 1);
}

/// The kernel runs at 1000 + 10 times its number.
void launch(EventText& events, double start, int number, int thread = kAutogradThread) {
  events.call(start, 1, number + 1, "cudaLaunchKernel", thread)
      .kernel(1000 + 10 * number, 5, number + 1, "gemm");
}

/// Backward of two layers, each of which is computed again: by a function that is a checkpoint, and
/// in the hook of a saved tensor.
EventText two_layers() {
  EventText events;
  add_gradient(events, 100, 100, "CheckpointFunctionBackward");
  launch(events, 110, 0);
  launch(events, 115, 1, 1);  // by another thread
  events.call(120, 1, 3, "cudaMemcpyAsync", kAutogradThread).copy(1020, 5, 3);
  add_gradient(events, 150, 40, "MmBackward0");
  launch(events, 160, 3);
  launch(events, 195, 4);
  add_gradient(events, 300, 100, "SiluBackward0");
  add_operator(events, 301, 98, "SiluBackward0", 14, 1);
  add_operator(events, 310, 20, "aten::mm", 17);
  launch(events, 315, 5);
  launch(events, 350, 6);
  add_operator(events, 500, 20, "aten::mm", 18);
  launch(events, 505, 7);
  return events;
}

/// Fifty layers of 100 us: 30 us of forward again, an all-reduce of 20 us that belongs to it, and
/// 49 us of backward, all enqueued long before.
EventText fifty_layers() {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    const double host = 20.0 * i;
    const double device = 10'000 + 100.0 * i;
    add_gradient(events, host, 19, "CheckpointFunctionBackward");
    events.call(host + 1, 1, 3 * i + 1, "cudaLaunchKernel", kAutogradThread)
        .kernel(device, 30, 3 * i + 1, "forward");
    events.call(host + 3, 1, 3 * i + 2, "cudaLaunchKernel", kAutogradThread)
        .kernel(device + 30, 20, 3 * i + 2, "ncclDevKernel_AllReduce(x)", 20);
    add_gradient(events, host + 5, 10, "MmBackward0");
    events.call(host + 6, 1, 3 * i + 3, "cudaLaunchKernel", kAutogradThread)
        .kernel(device + 50, 49, 3 * i + 3, "backward");
  }
  return events;
}

ImportedWall wall_with(int64_t peak_bytes, int64_t capacity_bytes) {
  const ImportedTrace trace =
      fifty_layers().read(R"(, "distributedInfo": {"rank": 0, "world_size": 1})");
  MemoryFacts memory;
  memory.peak_bytes = peak_bytes;
  memory.capacity_bytes = capacity_bytes;
  return classify_imported(std::span(&trace, 1), {}, memory);
}

double share_of(const ImportedWall& wall, Wall label) {
  return wall.shares[static_cast<size_t>(label)];
}

std::string told_of(const ImportedWall& wall) {
  const auto at = std::ranges::find(wall.evidence, "recompute_ratio", &Evidence::name);
  if (at == wall.evidence.end()) return {};
  BOOST_TEST(std::abs(at->value - 0.5) < 0.001);
  return at->text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_within_backward_is_recomputed) {
  const ImportedTrace trace = two_layers().read();
  BOOST_TEST_REQUIRE(trace.ops.size() == 8U);
  BOOST_TEST(trace.recomputed == (Rows{0, 4, 5}), boost::test_tools::per_element());
}

// Then gradients are recorded, too, and nothing tells their pass.
BOOST_AUTO_TEST_CASE(second_derivatives_are_not_taken_for_it) {
  EventText events = two_layers();
  add_operator(events, 360, 10, "aten::silu_backward", 20);
  launch(events, 362, 8);
  BOOST_TEST(events.read().recomputed.empty());
}

BOOST_AUTO_TEST_CASE(a_forward_pass_alone_is_not_recomputed) {
  EventText events;
  add_operator(events, 100, 20, "aten::mm", 3);
  launch(events, 105, 0);
  BOOST_TEST(events.read().recomputed.empty());
}

// emit_nvtx() writes the same names, and gradients' functions have their sequence numbers.
BOOST_AUTO_TEST_CASE(ranges_of_nsight_systems_tell_it_too) {
  const tests::TempFolder folder;
  const std::string path = folder.file("a.sqlite");
  {
    tests::NsysExport file(path);
    file.text(1, "cudaLaunchKernel_v7000").text(2, "gemm");
    const std::string gradient = "autograd::engine::evaluate_function: ";
    file.range(7, 70, 100, 200, gradient + "CheckpointFunctionBackward, seq = 5, op_id = 40");
    file.range(7, 70, 101, 199, "CheckpointFunctionBackward, seq = 5, op_id = 41");
    file.range(7, 70, 150, 190, gradient + "torch::autograd::CppNode<F>, seq = 8, op_id = 42");
    file.range(7, 70, 151, 189, "torch::autograd::CppNode<F>, seq = 8, op_id = 43");
    file.range(7, 70, 300, 400, gradient + "SiluBackward0, seq = 4, op_id = 44");
    file.range(7, 70, 301, 399, "SiluBackward0, seq = 4, op_id = 45");
    file.range(7, 70, 310, 330, "aten::mm, seq = 9, op_id = 46");
    file.range(7, 70, 340, 360, "aten::mm, op_id = 47");
    // Without the ranges around the functions.
    file.range(7, 70, 500, 600, "_CheckpointFunctionBackward, seq = 2, op_id = 48");
    file.range(7, 70, 560, 580, "MmBackward0, seq = 11, op_id = 49");
    int64_t correlation = 0;
    for (const int64_t launch_ns : {110, 160, 195, 315, 350, 510, 570}) {
      ++correlation;
      file.call(7, 70, launch_ns, launch_ns + 2, correlation, 1);
      file.kernel(7, 0, 1000 + 10 * correlation, 1005 + 10 * correlation, 13, correlation, 2);
    }
  }
  const std::vector<ImportedTrace> traces = read_trace_file(path);
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  BOOST_TEST_REQUIRE(traces[0].ops.size() == 7U);
  BOOST_TEST(traces[0].recomputed == (Rows{0, 2, 3, 5}), boost::test_tools::per_element());
  BOOST_TEST(traces[0].ranges.empty());
}

// Of a step of 4,999 us, 50 times 30 and 20.
BOOST_AUTO_TEST_CASE(recomputation_is_memory_where_memory_is_short) {
  const ImportedWall wall = wall_with(76LL << 30, 80LL << 30);
  BOOST_TEST(name_of(wall.label) == "memory", wall.summary);
  BOOST_TEST(wall.sub_cause == "recompute", wall.summary);
  BOOST_TEST(std::abs(wall.share_ratio - 0.5) < 0.01);
  BOOST_TEST(std::abs(share_of(wall, Wall::memory) - 0.5) < 0.001);
  BOOST_TEST(share_of(wall, Wall::communication) == 0);
  BOOST_TEST(wall.is_memory_short);
  const std::string told = told_of(wall);
  BOOST_TEST(told.find("it counts as memory") != std::string::npos, told);
}

BOOST_AUTO_TEST_CASE(recomputation_is_what_it_is_otherwise_where_memory_is_not_short) {
  for (const auto& [peak, capacity, why] :
       {std::tuple(60LL << 30, 80LL << 30, "memory is not short"),
        std::tuple(76LL << 30, 0LL, "in use is not known"),
        std::tuple(0LL, 80LL << 30, "in use is not known")}) {
    const ImportedWall wall = wall_with(peak, capacity);
    BOOST_TEST(name_of(wall.label) != "memory", wall.summary);
    BOOST_TEST(share_of(wall, Wall::memory) == 0);
    BOOST_TEST(std::abs(share_of(wall, Wall::communication) - 0.2) < 0.001);
    BOOST_TEST(wall.ceilings[static_cast<size_t>(Wall::memory)] == 0);
    BOOST_TEST(wall.sub_ceilings[static_cast<size_t>(SubCause::recompute)] == 0);
    // What it costs is known nevertheless.
    BOOST_TEST(std::abs(wall.recompute_ratio - 0.5) < 0.01);
    BOOST_TEST(!wall.is_memory_short);
    const std::string told = told_of(wall);
    BOOST_TEST(told.find(why) != std::string::npos, told);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
