// What the setup kernel hands to a pointer-array grouped GEMM: the products it describes, done by
// plain loops, are the CPU operation's. Empty experts, padded rows, more experts than a block has
// threads.
#include "kernels/cuda/grouped_gemm_setup.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_grouped_gemm_setup)

namespace {

struct Case {
  const char* name;
  std::vector<int32_t> counts;
  int64_t in, out, padding;
};

const Case kCases[] = {
    {"one expert", {5}, 8, 16, 0},
    {"empty experts at both ends and inside", {0, 3, 0, 0, 7, 1, 0}, 16, 8, 8},
    {"nothing at all", {0, 0, 0}, 8, 8, 0},
    {"more experts than threads of a block", std::vector<int32_t>(300, 1), 8, 8, 0},
};

std::vector<int32_t> offsets_of(const std::vector<int32_t>& counts) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

/// The arrays of one call, brought to the host; a, b and d as elements from the matrix's begin.
struct Described {
  std::vector<cuda::GroupedProblem> shapes;
  std::vector<const float*> a, b;
  std::vector<float*> d;
  std::vector<int64_t> stride_a, stride_b, stride_d;
};

template <typename T, typename U>
void read(std::vector<T>& host, const U* device, size_t count) {
  static_assert(sizeof(T) == sizeof(U));
  host.resize(count);
  BOOST_TEST_REQUIRE(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost) ==
                     cudaSuccess);
}

Described describe(const GroupedGemmArgs& args, size_t num_experts) {
  const auto count = static_cast<int64_t>(num_experts);
  void* memory = nullptr;
  BOOST_TEST_REQUIRE(
      cudaMalloc(&memory, static_cast<size_t>(cuda::grouped_problems_bytes(count))) == cudaSuccess);
  const cuda::GroupedProblems problems = cuda::carve_grouped_problems(memory, count);
  cuda::setup_grouped_problems(nullptr, args, problems);
  Described described;
  read(described.shapes, problems.shapes, num_experts);
  read(described.a, problems.a, num_experts);
  read(described.b, problems.b, num_experts);
  read(described.d, problems.d, num_experts);
  read(described.stride_a, problems.stride_a, num_experts);
  read(described.stride_b, problems.stride_b, num_experts);
  read(described.stride_d, problems.stride_d, num_experts);
  cudaFree(memory);
  return described;
}

/// The element of `host` that a device pointer into its copy stands for.
template <typename T>
T* on_host(const void* pointer, const Tensor& device, Matrix<T>& host) {
  return host.data().data() + (static_cast<const T*>(pointer) - static_cast<const T*>(device.data));
}

void run_mode(const Case& c, GroupedGemmMode mode) {
  const std::vector<int32_t> list = offsets_of(c.counts);
  auto offsets = column_of(list);
  const auto experts = static_cast<int64_t>(c.counts.size());
  Matrix<float> x(list.back(), c.in, c.in + c.padding);
  Matrix<float> y(list.back(), c.out, c.out + c.padding);
  Matrix<float> w(experts * c.out, c.in, c.in + c.padding);
  x.fill_random(1);
  y.fill_random(2);
  w.fill_random(3);
  OnDevice device;
  GroupedGemmArgs args{mode, device(x), device(y), device(w), {}, device(offsets)};
  const Described described = describe(args, c.counts.size());

  Matrix<float> expected_x = x;
  Matrix<float> expected_y = y;
  Matrix<float> expected_w = w;
  make_cpu_backend()->grouped_gemm(
      {mode, expected_x, expected_y, expected_w, {}, offsets.tensor()});

  const bool is_wgrad = mode == GroupedGemmMode::wgrad;
  for (size_t e = 0; e < c.counts.size(); ++e) {
    const cuda::GroupedProblem shape = described.shapes[e];
    if (c.counts[e] == 0) {
      BOOST_TEST(shape.m == 0);
      continue;
    }
    const bool is_forward = mode == GroupedGemmMode::forward;
    Matrix<float>& a = is_forward ? x : y;
    Matrix<float>& b = is_wgrad ? x : w;
    Matrix<float>& d = is_forward ? y : is_wgrad ? w : x;
    const float* at_a = on_host(described.a[e], is_forward ? args.x : args.y, a);
    const float* at_b = on_host(described.b[e], is_wgrad ? args.x : args.w, b);
    float* at_d = on_host(described.d[e], is_forward ? args.y : is_wgrad ? args.w : args.x, d);
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double total = is_wgrad ? static_cast<double>(at_d[i * described.stride_d[e] + j]) : 0.0;
        for (int64_t p = 0; p < shape.k; ++p) {
          const int64_t sa = described.stride_a[e];
          const int64_t sb = described.stride_b[e];
          total += static_cast<double>(is_wgrad ? at_a[p * sa + i] : at_a[i * sa + p]) *
                   static_cast<double>(is_forward ? at_b[j * sb + p] : at_b[p * sb + j]);
        }
        at_d[i * described.stride_d[e] + j] = static_cast<float>(total);
      }
    }
  }
  BOOST_TEST(relative_error(x, expected_x) < 1e-5);
  BOOST_TEST(relative_error(y, expected_y) < 1e-5);
  BOOST_TEST(relative_error(w, expected_w) < 1e-5);
}

}  // namespace

BOOST_AUTO_TEST_CASE(describes_the_products_of_every_mode) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      run_mode(c, GroupedGemmMode::forward);
      run_mode(c, GroupedGemmMode::dgrad);
      run_mode(c, GroupedGemmMode::wgrad);
    }
  }
}

BOOST_AUTO_TEST_CASE(arrays_are_aligned_and_do_not_overlap) {
  for (const int64_t experts : {1, 21, 22, 32, 33, 256}) {
    alignas(256) static char memory[32768];
    const int64_t bytes = cuda::grouped_problems_bytes(experts);
    const cuda::GroupedProblems problems = cuda::carve_grouped_problems(memory, experts);
    const std::pair<const void*, int64_t> arrays[] = {
        {problems.shapes, 12 * experts},  {problems.a, 8 * experts},
        {problems.b, 8 * experts},        {problems.d, 8 * experts},
        {problems.stride_a, 8 * experts}, {problems.stride_b, 8 * experts},
        {problems.stride_d, 8 * experts}, {memory + bytes, 0}};
    for (size_t i = 0; i + 1 < std::size(arrays); ++i) {
      const auto* begin = static_cast<const char*>(arrays[i].first);
      BOOST_TEST((begin - memory) % 256 == 0);
      BOOST_TEST((begin + arrays[i].second <= static_cast<const char*>(arrays[i + 1].first)));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
