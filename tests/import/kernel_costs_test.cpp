// What the kernels of each class cost, and launching them, by hand.
#include "profiler/analysis/kernel_costs.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(costs_of_kernels)

namespace {

using tests::EventText;

const std::string kByElement = "void at::native::vectorized_elementwise_kernel<4>(x)";
const std::string kReduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";

/// All that the trace has is of a window of 200 us.
void add(KernelCosts& costs, const EventText& events) {
  const ImportedTrace trace = events.read();
  TraceWindow window;
  window.time = {0, 200'000};
  for (uint32_t row = 0; row < trace.ops.size(); ++row) window.ops.push_back(row);
  costs.add(trace, window, WorkClasses(trace));
}

double of(const KernelCosts::Ratios& ratios, KernelClass id) {
  return ratios[static_cast<size_t>(id)];
}

bool is_near(double is, double expected) { return std::abs(is - expected) < 1e-9; }

}  // namespace

// Products run from 100 to 140 and, on two streams, from 150 to 190 us; by element from 140 to 170.
BOOST_AUTO_TEST_CASE(each_class_has_the_time_in_which_it_runs_and_is_launched) {
  EventText events;
  events.call(0, 10, 1).kernel(100, 40, 1);
  events.call(20, 10, 2).kernel(140, 30, 2, kByElement);
  events.call(40, 10, 3).kernel(150, 40, 3, "gemm", 8);
  events.call(60, 10, 4).kernel(160, 20, 4, "gemm", 9);
  events.call(70, 10, 5, "cudaStreamSynchronize");
  events.call(80, 10, 6).kernel(190, 10, 6, kReduce, 8);
  KernelCosts costs;
  add(costs, events);
  BOOST_TEST(is_near(of(costs.run, KernelClass::gemm), 0.4));
  BOOST_TEST(is_near(of(costs.run, KernelClass::elementwise), 0.15));
  BOOST_TEST(of(costs.run, KernelClass::nccl) == 0);  // it does not compute
  BOOST_TEST(of(costs.run, KernelClass::other) == 0);
  // Products: 10 us, then 20 and 20 since the launch before; by element 20. The call that waits is
  // nobody's.
  BOOST_TEST(is_near(of(costs.launch, KernelClass::gemm), 0.25));
  BOOST_TEST(is_near(of(costs.launch, KernelClass::elementwise), 0.1));
  BOOST_TEST(is_near(of(costs.launch, KernelClass::nccl), 0.05));
  // Of another rank what it has more of.
  EventText other;
  other.call(0, 10, 1).kernel(100, 80, 1, kByElement);
  add(costs, other);
  BOOST_TEST(is_near(of(costs.run, KernelClass::gemm), 0.4));
  BOOST_TEST(is_near(of(costs.run, KernelClass::elementwise), 0.4));
  BOOST_TEST(is_near(of(costs.launch, KernelClass::elementwise), 0.1));
}

// One thread launches at a time: while another one does, this one has no time of its own.
BOOST_AUTO_TEST_CASE(a_launch_has_the_time_since_that_of_any_thread) {
  EventText events;
  events.call(0, 10, 1, "cudaLaunchKernel", 1).kernel(100, 10, 1);
  events.call(50, 10, 2, "cudaLaunchKernel", 2).kernel(110, 10, 2, "void flash_fwd_kernel<x>(y)");
  events.call(90, 10, 3, "cudaLaunchKernel", 1).kernel(120, 10, 3, kByElement);
  KernelCosts costs;
  add(costs, events);
  BOOST_TEST(is_near(of(costs.launch, KernelClass::attention), 0.25));   // from 10 to 60 us
  BOOST_TEST(is_near(of(costs.launch, KernelClass::elementwise), 0.2));  // from 60 to 100
}

// Nobody knows what it does. Copies within the device are kernels, those to the host are not.
BOOST_AUTO_TEST_CASE(a_name_that_says_nothing_may_be_any_class) {
  EventText events;
  events.call(0, 10, 1).kernel(100, 20, 1, "my_kernel");
  events.call(10, 10, 2, "cudaMemcpyAsync").copy(120, 30, 2, "Memcpy DtoD (Device -> Device)");
  events.call(20, 10, 3, "cudaMemcpyAsync").copy(150, 40, 3, "Memcpy DtoH (Device -> Pinned)");
  KernelCosts costs;
  add(costs, events);
  BOOST_TEST(is_near(of(costs.run, KernelClass::other), 0.1));
  BOOST_TEST(is_near(of(costs.run, KernelClass::copy_kernel), 0.15));
  BOOST_TEST(is_near(of(costs.launch, KernelClass::copy_kernel), 0.05));
}

BOOST_AUTO_TEST_CASE(a_ceiling_is_that_of_its_classes) {
  KernelCosts costs;
  const std::vector<KernelClass> products = {KernelClass::gemm, KernelClass::grouped_gemm};
  BOOST_TEST(ceiling_of_classes(products, costs.run, 0.5) == 0.5);  // nothing is known
  costs.run[static_cast<size_t>(KernelClass::gemm)] = 0.3;
  costs.run[static_cast<size_t>(KernelClass::grouped_gemm)] = 0.1;
  costs.run[static_cast<size_t>(KernelClass::norm)] = 0.15;
  costs.run[static_cast<size_t>(KernelClass::other)] = 0.05;
  BOOST_TEST(is_near(ceiling_of_classes(products, costs.run, 0.5), 0.45));
  BOOST_TEST(is_near(ceiling_of_classes(products, costs.run, 0.2), 0.2));
  // Three quarters of 90 %: ranks that wait for one another.
  BOOST_TEST(is_near(ceiling_of_classes(products, costs.run, 0.9), 0.675));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
