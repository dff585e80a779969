// The work of kernels from the shapes of their operators, and what of compute it tells apart.
#include "profiler/import/operator_shapes.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <ostream>
#include <string>

#include "profiler/analysis/imported_wall.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(operator_shapes)

namespace {

using tests::EventText;

struct ShapeCase {
  const char* name;
  const char* dims;
  const char* type;  ///< of all inputs
  int64_t flops;
  int64_t bytes = 0;  ///< 0: the work is not known
};
std::ostream& operator<<(std::ostream& out, const ShapeCase& row) {
  return out << row.name << " " << row.dims << " " << row.type;
}

const ShapeCase kShapes[] = {
    // 2 * 8192 * 4096 * 1024, and (8192 * 4096 + 4096 * 1024 + 8192 * 1024) * 2 bytes
    {"aten::mm", "[[8192, 4096], [4096, 1024]]", "c10::BFloat16", 68'719'476'736, 92'274'688},
    {"aten::addmm", "[[1024], [8944, 1024], [1024, 1024], [], []]", "c10::BFloat16", 18'756'927'488,
     38'731'776},
    {"aten::bmm", "[[4,2,3],[4,3,5]]", "c10::Half", 240, 248},
    {"aten::linear", "[[2, 3, 4], [5, 4], []]", "c10::BFloat16", 240, 148},
    // Rows, columns or what is summed over are those of all groups.
    {"aten::_grouped_mm", "[[6, 4], [2, 4, 5], [2]]", "c10::BFloat16", 240, 188},
    {"aten::_grouped_mm", "[[2, 3, 4], [4, 6], [2]]", "c10::BFloat16", 144, 132},
    {"aten::_grouped_mm", "[[3, 8], [8, 5], [2]]", "c10::BFloat16", 240, 188},
    {"aten::_scaled_mm", "[[16, 32], [32, 16], [], []]", "c10::Float8_e4m3fn", 16'384, 1536},
    // Whether these run as TF32 is not known.
    {"aten::mm", "[[8192, 4096], [4096, 1024]]", "float", 0},
    {"aten::mm", "[[8192, 4096], [4095, 1024]]", "c10::BFloat16", 0},
    {"aten::mm", "[[8192, 4096], [4096", "c10::BFloat16", 0},
    {"aten::mm", "[[], []]", "c10::BFloat16", 0},
    {"aten::mm", "[[-1, 4], [4, 4]]", "c10::BFloat16", 0},
    {"aten::mm", "[[[1, 2], [3, 4]]]", "c10::BFloat16", 0},
    {"aten::mm", "[[4000000000, 4000000000], [4000000000, 4000000000]]", "c10::BFloat16", 0},
    // What is added is as large as both together: 5 * 3 elements, of 5 and 3.
    {"aten::add", "[[5, 1], [3], []]", "c10::BFloat16", 0, 2 * (5 + 3 + 15)},
    {"aten::add_", "[[5, 3], [3], []]", "float", 0, 4 * (15 + 3 + 15)},
    {"aten::copy_", "[[5, 3], [5, 3], []]", "float", 0, 4 * (15 + 15)},
    {"aten::sum", "[[5, 3], [], []]", "double", 0, 8 * 15},
    {"aten::add", "[[], [], []]", "float", 0},
    {"aten::add", "[[5, 3]]", "c10::complex<float>", 0},
    {"aten::sort", "[[4, 4], [4, 4]]", "c10::BFloat16", 0},
};

std::string arguments_of(const std::string& dims, const std::string& type) {
  return R"("Input type": [")" + type + R"(", ")" + type + R"(", ")" + type +
         R"("], "Input Dims": )" + dims;
}

/// Fifty kernels of 100 us, each of its own mm of 68.7 GFLOPs and 92.3 MB.
ImportedTrace products(bool has_ids) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.add(R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": )" +
               std::to_string(i) + R"(, "dur": 1, "args": {"External id": )" +
               std::to_string(1000 + i) + ", " +
               arguments_of("[[8192, 4096], [4096, 1024]]", "c10::BFloat16") + "}}");
    events.call(i, 1, i + 1);
    events.kernel(10'000 + 101 * i, 100, i + 1, "gemm", 7,
                  has_ids ? R"(, "External id": )" + std::to_string(1000 + i) : "");
  }
  return events.read();
}

}  // namespace

BOOST_DATA_TEST_CASE(operators_have_work, boost::unit_test::data::make(kShapes), row) {
  const auto work = work_of_operator(row.name, "{" + arguments_of(row.dims, row.type) + "}");
  BOOST_TEST_REQUIRE(work.has_value() == (row.bytes > 0));
  if (!work) return;
  BOOST_TEST(work->flops == row.flops);
  BOOST_TEST(work->bytes == row.bytes);
  BOOST_TEST(work->is_eight_bit == (std::string(row.type).find("Float8") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(kernels_get_the_work_of_their_operator) {
  for (const bool has_ids : {true, false}) {
    const ImportedTrace trace = products(has_ids);
    BOOST_REQUIRE(trace.works.size() == 50u);
    for (uint32_t i = 0; i < 50; ++i) {
      BOOST_TEST(trace.works[i].op == i);
      BOOST_TEST(trace.works[i].flops == 68'719'476'736);
    }
  }
}

// What the id names is not overruled by what the times say.
BOOST_AUTO_TEST_CASE(an_operator_without_shapes_gives_no_work) {
  EventText events;
  events.add(R"({"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 0,
                 "dur": 100, "args": {"External id": 7, )" +
             arguments_of("[[2, 3, 4], [5, 4]]", "c10::BFloat16") + "}}");
  events.call(10, 1, 1).kernel(200, 10, 1, "gemm", 7, R"(, "External id": 8)");
  events.call(20, 1, 2).kernel(300, 10, 2, "fill", 7, R"(, "External id": 7)");
  events.call(30, 1, 3).kernel(400, 90, 3, "gemm", 7, R"(, "External id": 7)");
  const ImportedTrace trace = events.read();
  BOOST_REQUIRE(trace.works.size() == 1u);
  BOOST_TEST(trace.works[0].op == 2u);  // the longest
  BOOST_TEST(trace.works[0].flops == 240);
}

BOOST_AUTO_TEST_CASE(compute_is_told_apart_by_the_roofline) {
  const ImportedTrace trace = products(true);
  const auto wall_with = [&](double flops_per_s, double bytes_per_s) {
    DevicePeaks peaks;
    peaks.flops_per_s = flops_per_s;
    peaks.memory_bytes_per_s = bytes_per_s;
    peaks.device = "device";
    return classify_imported(std::span(&trace, 1), peaks);
  };
  // Of 100 us: 98.2 of arithmetic.
  const ImportedWall flops = wall_with(0.7e15, 3e12);
  BOOST_TEST(name_of(flops.label) == "compute");
  BOOST_TEST(flops.sub_cause == "FLOPs", flops.summary);
  // 68.7 of arithmetic, and 31.3 that nothing explains.
  const ImportedWall small = wall_with(1e15, 3e12);
  BOOST_TEST(small.sub_cause == "occupancy", small.summary);
  const double over = small.sub_ceilings[static_cast<size_t>(SubCause::occupancy)];
  BOOST_TEST(std::abs(over - 0.31) < 0.01);
  // 92.3 to move the operands, of which arithmetic takes 34.4.
  const ImportedWall moves = wall_with(2e15, 1e12);
  BOOST_TEST(moves.sub_cause == "bandwidth", moves.summary);
  const double bandwidth = moves.sub_ceilings[static_cast<size_t>(SubCause::bandwidth)];
  BOOST_TEST(std::abs(bandwidth - 0.573) < 0.01);
}

BOOST_AUTO_TEST_CASE(small_work_without_memory_for_more_is_a_capped_micro_batch) {
  const ImportedTrace trace = products(true);
  const auto wall_with = [&](int64_t peak_bytes, int64_t capacity_bytes) {
    DevicePeaks peaks;
    peaks.flops_per_s = 1e15;
    peaks.memory_bytes_per_s = 3e12;
    MemoryFacts memory;
    memory.peak_bytes = peak_bytes;
    memory.capacity_bytes = capacity_bytes;
    return classify_imported(std::span(&trace, 1), peaks, memory);
  };
  const ImportedWall capped = wall_with(76LL << 30, 80LL << 30);
  BOOST_TEST(name_of(capped.label) == "memory");
  BOOST_TEST(capped.sub_cause == "capped micro-batch", capped.summary);
  // Of 100 us, 31.3 that nothing explains.
  BOOST_TEST(std::abs(capped.share_ratio - 0.31) < 0.01);
  BOOST_TEST(capped.sub_ceilings[static_cast<size_t>(SubCause::capped_micro_batch)] ==
             capped.share_ratio);
  for (const ImportedWall& wall :
       {wall_with(60LL << 30, 80LL << 30), wall_with(76LL << 30, 0), wall_with(0, 80LL << 30)}) {
    BOOST_TEST(name_of(wall.label) == "compute");
    BOOST_TEST(wall.sub_cause == "occupancy", wall.summary);
  }
}

BOOST_AUTO_TEST_CASE(without_peaks_or_shapes_it_is_said_so) {
  const auto why = [](const ImportedTrace& trace) {
    const ImportedWall wall = classify_imported(std::span(&trace, 1));
    BOOST_TEST(name_of(wall.label) == "compute");
    BOOST_TEST(wall.sub_cause.empty());
    for (const Evidence& one : wall.evidence) {
      if (one.name == "shapes_known_ratio") return one.text;
    }
    return std::string();
  };
  BOOST_TEST(why(products(true)).find("--hardware") != std::string::npos);
  EventText events;
  for (int i = 0; i < 50; ++i) events.call(i, 1, i + 1).kernel(10'000 + 101 * i, 100, i + 1);
  ImportedTrace unshaped = events.read();
  BOOST_TEST(why(unshaped).find("record_shapes=True") != std::string::npos);
  // Other tools have no such option.
  unshaped.facts.format = "nsys";
  const std::string nsys = why(unshaped);
  BOOST_TEST(nsys.find("Nsight Systems does not record shapes") != std::string::npos, nsys);
  BOOST_TEST(nsys.find("record_shapes=True") == std::string::npos, nsys);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
