// Gated activations and their gradients on the device against the CPU operations.
#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_gated_act)

namespace {

constexpr Activation kActivations[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                       Activation::relu};

struct Case {
  int64_t rows;
  int64_t f;
  int64_t padding;
  bool has_probs;
  bool has_list;  ///< every second row only, last first
};

const Case kCases[] = {{0, 16, 0, true, false},   {1, 1, 0, true, false},   {5, 7, 1, true, true},
                       {9, 24, 8, true, true},    {3, 130, 0, true, false}, {40, 64, 0, true, true},
                       {7, 512, 16, true, false}, {2, 4104, 0, true, true}, {0, 8, 0, true, true},
                       {6, 48, 0, false, true}};

Matrix<int32_t> list_of(const Case& c) {
  Matrix<int32_t> list(c.has_list ? c.rows / 2 : 0, 1);
  for (int64_t i = 0; i < list.rows(); ++i) {
    list(i, 0) = static_cast<int32_t>(2 * (list.rows() - 1 - i));
  }
  return list;
}

// An empty list is a list all the same: its pointer must not be null.
template <typename Place>
Tensor list_tensor(const Case& c, const Matrix<int32_t>& list, Place place) {
  static int32_t nothing = 0;
  if (!c.has_list) return {};
  Tensor tensor = place(list);
  if (tensor.data == nullptr) tensor.data = &nothing;
  return tensor;
}

template <typename T>
void check_forward(Backend& cpu, const Case& c, Activation activation) {
  const auto x = random_matrix<T>(c.rows, 2 * c.f, 1, 2 * c.f + c.padding, -4.0, 4.0);
  const auto probs = random_matrix<float>(c.rows, 1, 2, 0, 0.0, 1.0);
  const auto list = list_of(c);
  Matrix<T> out(c.rows, c.f, c.f + c.padding);
  auto expected = widened(out);
  OnDevice on;
  const Tensor device_probs = c.has_probs ? on(probs) : Tensor{};
  const Tensor host_probs = c.has_probs ? probs.tensor() : Tensor{};
  cuda::gated_act(nullptr,
                  {on(x), device_probs, on(out),
                   list_tensor(c, list, [&](const auto& m) { return on(m); }), activation});
  cpu.gated_act({widened(x), host_probs, expected,
                 list_tensor(c, list, [](const auto& m) { return m.tensor(); }), activation});
  on.fetch(out);
  // Rows that are not on the list keep their NaN.
  auto got = widened(out);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.f; ++i) {
      BOOST_REQUIRE(std::isnan(got(r, i)) == std::isnan(expected(r, i)));
      if (std::isnan(got(r, i))) got(r, i) = expected(r, i) = 0.0F;
    }
  }
  BOOST_TEST(relative_error(got, expected) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(out));
}

template <typename T>
void check_backward(Backend& cpu, const Case& c, Activation activation) {
  const auto x = random_matrix<T>(c.rows, 2 * c.f, 1, 2 * c.f + c.padding, -4.0, 4.0);
  const auto dout = random_matrix<T>(c.rows, c.f, 2, c.f + c.padding);
  const auto probs = random_matrix<float>(c.rows, 1, 3, 0, 0.0, 1.0);
  const auto list = list_of(c);
  auto dx = random_matrix<T>(c.rows, 2 * c.f, 4);
  auto dprobs = random_matrix<float>(c.rows, 1, 5);
  auto expected = widened(dx);
  auto expected_dprobs = dprobs;
  OnDevice on;
  const Tensor none;
  cuda::gated_act_backward(
      nullptr, {{on(x), c.has_probs ? on(probs) : none, none,
                 list_tensor(c, list, [&](const auto& m) { return on(m); }), activation},
                on(dout),
                on(dx),
                on(dprobs)});
  cpu.gated_act_backward(
      {{widened(x), c.has_probs ? probs.tensor() : none, none,
        list_tensor(c, list, [](const auto& m) { return m.tensor(); }), activation},
       widened(dout),
       expected,
       expected_dprobs});
  on.fetch(dx);
  on.fetch(dprobs);
  BOOST_TEST(relative_error(widened(dx), expected) < kElementTolerance<T>);
  BOOST_TEST(relative_error(dprobs, expected_dprobs) < 1e-5);
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    for (const Activation activation : kActivations) {
      BOOST_TEST_CONTEXT(c.rows << " x " << c.f << ", activation "
                                << static_cast<int>(activation)) {
        check_forward<T>(*cpu, c, activation);
        check_backward<T>(*cpu, c, activation);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(far_values_have_their_limits) {
  Matrix<float> x(1, 16);
  for (int64_t i = 0; i < 8; ++i) {
    x(0, i) = i % 2 == 0 ? 200.0F : -200.0F;
    x(0, 8 + i) = 1.0F;
  }
  x(0, 7) = NAN;
  Matrix<float> out(1, 8);
  OnDevice on;
  cuda::gated_act(nullptr, {on(x), {}, on(out), {}, Activation::silu});
  on.fetch(out);
  BOOST_TEST(out(0, 0) == 200.0F);
  BOOST_TEST(out(0, 1) == 0.0F);
  BOOST_TEST(std::isnan(out(0, 7)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
