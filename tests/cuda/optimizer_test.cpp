// AdamW and the sum of squares over many slices at once, against the CPU slice by slice: aligned
// and not, empty and long, more slices than one launch takes.
#include <boost/test/unit_test.hpp>
#include <deque>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_optimizer, BackendFixture)

namespace {

// Length, and how many elements past a 16-byte boundary the slice begins.
struct Length {
  int64_t numel, shift;
};

const std::vector<Length> kLengths = {{1, 0},    {3, 0},    {0, 0},    {1024, 0}, {4096, 0},
                                      {4097, 0}, {9000, 1}, {5000, 2}, {17, 3}};

// More than three launches of either kind take.
std::vector<Length> many_lengths() {
  std::vector<Length> lengths;
  for (int64_t i = 0; i < 3300; ++i) lengths.push_back({i % 7, i % 2});
  return lengths;
}

// A flat tensor that begins `shift` elements into its memory, which is aligned.
template <typename T>
struct Flat {
  Matrix<T> memory;
  int64_t begin;
  int64_t numel;

  Flat(const Matrix<float>& values, int64_t shift)
      : memory(1, values.cols() + shift + 4), begin(shift), numel(values.cols()) {
    for (int64_t i = 0; i < numel; ++i) memory(0, begin + i) = static_cast<T>(values(0, i));
  }

  void* on(OnDevice& device) const { return device(memory).columns(begin, numel).data; }

  [[nodiscard]] Matrix<float> values() const {
    Matrix<float> result(1, numel);
    for (int64_t i = 0; i < numel; ++i) result(0, i) = static_cast<float>(memory(0, begin + i));
    return result;
  }
};

template <typename W, typename M>
struct Parameter {
  Matrix<float> cpu_weight, cpu_master, cpu_grad;
  Matrix<M> cpu_m, cpu_v;
  Flat<W> weight;
  Flat<float> master;
  Flat<M> m;
  Flat<M> v;
  Flat<float> grad;

  explicit Parameter(const Length& length)
      : cpu_weight(1, length.numel),
        cpu_master(random_values<float>(1, length.numel, 1)),
        cpu_grad(random_values<float>(1, length.numel, 4)),
        cpu_m(random_matrix<M>(1, length.numel, 2)),
        cpu_v(random_matrix<M>(1, length.numel, 3, 0, 0.0, 1.0)),
        weight(cpu_weight, length.shift),
        master(cpu_master, length.shift),
        m(widened(cpu_m), length.shift),
        v(widened(cpu_v), length.shift),
        grad(cpu_grad, length.shift) {}

  [[nodiscard]] AdamWArgs::Slice cpu_slice(bool use_decay, int64_t first_element) const {
    return {cpu_weight.tensor().data,
            cpu_master.tensor().data,
            cpu_m.tensor().data,
            cpu_v.tensor().data,
            cpu_grad.tensor().data,
            cpu_master.cols(),
            use_decay,
            first_element};
  }

  [[nodiscard]] AdamWArgs::Slice slice(OnDevice& on, bool shares_master, bool use_decay,
                                       int64_t first_element = 0) const {
    void* master_at = master.on(on);
    return {shares_master ? master_at : weight.on(on),
            master_at,
            m.on(on),
            v.on(on),
            grad.on(on),
            master.numel,
            use_decay,
            first_element};
  }

  void fetch(OnDevice& on, bool shares_master) {
    if (!shares_master) on.fetch(weight.memory);
    on.fetch(master.memory);
    on.fetch(m.memory);
    on.fetch(v.memory);
  }
};

// Elements further apart than by the rounding of f32.
int64_t num_unlike(const Matrix<float>& a, const Matrix<float>& b) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.cols(); ++i) {
    const float distance = std::fabs(a(0, i) - b(0, i));
    count += distance <= kElementTolerance<float> * (std::fabs(b(0, i)) + 0.1F) ? 0 : 1;
  }
  return count;
}

template <typename W, typename M>
void check_adamw(Backend& cpu, const std::vector<Length>& lengths, bool shares_master) {
  AdamWArgs args;
  args.lr = 0.1;
  args.weight_decay = 0.25;
  args.grad_scale = 0.5;
  args.step = 3;
  args.rounding_seed = 11;
  args.m_dtype = args.v_dtype = kDTypeOf<M>;
  AdamWArgs device_args = args;
  device_args.weight_dtype = kDTypeOf<W>;
  std::deque<Parameter<W, M>> parameters;  // deque: slices point into them
  OnDevice on;
  for (const Length& length : lengths) {
    auto& p = parameters.emplace_back(length);
    const bool use_decay = parameters.size() % 2 == 0;
    const int64_t first_element = (int64_t{1} << 40) * static_cast<int64_t>(parameters.size());
    args.slices.push_back(p.cpu_slice(use_decay, first_element));
    device_args.slices.push_back(p.slice(on, shares_master, use_decay, first_element));
  }
  cpu.adamw(args);
  cuda::adamw(nullptr, device_args);
  int64_t unlike = 0;
  int64_t numel = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto& p = parameters[i];
    p.fetch(on, shares_master);
    BOOST_TEST_CONTEXT("slice " << i << " of " << lengths[i].numel) {
      if (!shares_master)
        BOOST_TEST(relative_error(p.weight.values(), p.cpu_weight) < kElementTolerance<W>);
      BOOST_TEST(relative_error(p.master.values(), p.cpu_master) < kElementTolerance<float>);
      unlike += num_unlike(p.m.values(), widened(p.cpu_m));
      unlike += num_unlike(p.v.values(), widened(p.cpu_v));
      numel += lengths[i].numel;
      // What lies before and behind a slice is not its own.
      BOOST_TEST(num_nan(p.master.memory) == lengths[i].shift + 4);
      BOOST_TEST(num_nan(p.v.memory) == lengths[i].shift + 4);
    }
  }
  // Stochastic rounding has the CPU's draws: only where the last bit of an f32 differs may one go
  // the other way.
  BOOST_TEST(unlike <= numel / 1000);
}

double norm_on_device(SquaredNormArgs args) {
  Matrix<double> result(1, 1);  // NaN
  OnDevice on;
  args.result = number_on(on, result);
  cuda::squared_norm(nullptr, args);
  on.fetch(result);
  return result(0, 0);
}

template <typename T>
double check_norm(Backend& cpu, const std::vector<Length>& lengths) {
  SquaredNormArgs args;
  SquaredNormArgs device_args;
  device_args.dtype = kDTypeOf<T>;
  OnDevice on;
  std::deque<Matrix<float>> values;
  std::deque<Flat<T>> flats;
  for (const Length& length : lengths) {
    values.push_back(random_values<T>(1, length.numel, values.size()));
    flats.emplace_back(values.back(), length.shift);
    args.slices.push_back({values.back().tensor().data, length.numel});
    device_args.slices.push_back({flats.back().on(on), length.numel});
  }
  double expected = -1.0;
  args.result = &expected;
  cpu.squared_norm(args);
  const double result = norm_on_device(device_args);
  BOOST_TEST(result == expected, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(norm_on_device(device_args) == result);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(adamw_equals_the_cpu) {
  check_adamw<float, float>(*backend, kLengths, false);
  check_adamw<float, float>(*backend, kLengths, true);
  check_adamw<float, Bf16>(*backend, kLengths, false);
  check_adamw<Bf16, float>(*backend, kLengths, false);
  check_adamw<Bf16, Bf16>(*backend, kLengths, false);
}

BOOST_AUTO_TEST_CASE(adamw_takes_more_slices_than_one_table) {
  check_adamw<Bf16, Bf16>(*backend, many_lengths(), false);
}

BOOST_AUTO_TEST_CASE(adamw_passes_nan_on) {
  Parameter<float, float> p({10, 0});
  p.grad.memory(0, 3) = kNan;
  AdamWArgs args;
  OnDevice on;
  args.slices = {p.slice(on, false, false)};
  cuda::adamw(nullptr, args);
  p.fetch(on, false);
  BOOST_TEST(num_nan(p.weight.values()) == 1);
  BOOST_TEST(num_nan(p.master.values()) == 1);
}

BOOST_AUTO_TEST_CASE(steps_count_from_one_and_f64_is_refused) {
  AdamWArgs args;
  args.step = 0;
  BOOST_CHECK_THROW(cuda::adamw(nullptr, args), base::Error);
  args.step = 1;
  args.dtype = DType::f64;
  BOOST_CHECK_THROW(cuda::adamw(nullptr, args), base::Error);
}

BOOST_AUTO_TEST_CASE(squared_norm_equals_the_cpu_and_repeats_its_bits) {
  BOOST_TEST(check_norm<float>(*backend, kLengths) > 0.0);
  BOOST_TEST(check_norm<Bf16>(*backend, kLengths) > 0.0);
  BOOST_TEST(check_norm<float>(*backend, many_lengths()) > 0.0);
  BOOST_TEST(check_norm<float>(*backend, {{600000, 0}}) > 0.0);
  BOOST_TEST(check_norm<float>(*backend, {}) == 0.0);
  BOOST_TEST(check_norm<float>(*backend, {{0, 0}}) == 0.0);
}

BOOST_AUTO_TEST_CASE(squared_norm_of_nan_is_nan) {
  auto values = random_values<float>(1, 5000, 1);
  values(0, 4999) = kNan;
  OnDevice on;
  SquaredNormArgs args;
  args.slices = {{on(values).data, 5000}};
  BOOST_TEST(std::isnan(norm_on_device(args)));
}

BOOST_AUTO_TEST_CASE(slots_of_partial_sums_come_back) {
  const auto values = random_values<float>(1, 100, 1);
  OnDevice on;
  SquaredNormArgs args;
  args.slices = {{on(values).data, 100}};
  const double first = norm_on_device(args);
  for (int i = 0; i < 100; ++i) BOOST_TEST(norm_on_device(args) == first);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
