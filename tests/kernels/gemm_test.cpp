// Dense GEMM against naive loops: all transposes, strides, accumulation, empty sizes.
#include <boost/test/unit_test.hpp>
#include <thread>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(gemm, BackendFixture)

namespace {

struct Shape {
  int64_t m, n, k;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.m << "x" << shape.n << "x" << shape.k;
}

const std::vector<Shape> kShapes = {{1, 1, 1},    {3, 5, 7},   {33, 17, 65},
                                    {64, 48, 32}, {100, 1, 9}, {130, 384, 257}};

template <typename T>
void check_gemm(Backend& backend, const Shape& shape, bool trans_a, bool trans_b, bool accumulate) {
  const auto [m, n, k] = shape;
  Matrix<T> a(trans_a ? k : m, trans_a ? m : k, (trans_a ? m : k) + 3);
  Matrix<T> b(trans_b ? n : k, trans_b ? k : n, (trans_b ? k : n) + 1);
  Matrix<T> c(m, n, n + 2);
  a.fill_random(1);
  b.fill_random(2);
  if (accumulate) c.fill_random(3);
  const Matrix<double> expected = naive_product(a, trans_a, b, trans_b, c, accumulate);
  backend.gemm({a, b, c, trans_a, trans_b, accumulate});
  BOOST_TEST(relative_error(c, expected) < kForwardTolerance<T>);
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const Shape& shape : kShapes) {
    for (int bits = 0; bits < 8; ++bits) {
      const bool trans_a = (bits & 1) != 0;
      const bool trans_b = (bits & 2) != 0;
      const bool accumulate = (bits & 4) != 0;
      BOOST_TEST_CONTEXT(shape << " ta " << trans_a << " tb " << trans_b << " acc " << accumulate) {
        check_gemm<float>(*backend, shape, trans_a, trans_b, accumulate);
        check_gemm<double>(*backend, shape, trans_a, trans_b, accumulate);
      }
    }
  }
}

// The two products that a linear layer's backward pass takes from here.
BOOST_AUTO_TEST_CASE(linear_layer_gradients_by_central_differences) {
  Matrix<double> x(5, 7);
  Matrix<double> w(6, 7);
  Matrix<double> y(5, 6);
  Matrix<double> dy(5, 6);
  x.fill_random(1);
  w.fill_random(2);
  dy.fill_random(3);
  const auto loss = [&] {
    backend->gemm({x, w, y, false, true, false});
    return weighted_sum(dy, y);
  };
  Matrix<double> dx(5, 7);
  Matrix<double> dw(6, 7);
  dw.fill(0.0);
  backend->gemm({dy, w, dx, false, false, false});
  backend->gemm({dy, x, dw, true, false, true});
  BOOST_TEST(gradient_error(loss, x, dx) < kGradientTolerance);
  BOOST_TEST(gradient_error(loss, w, dw) < kGradientTolerance);
}

BOOST_AUTO_TEST_CASE(empty_sizes) {
  Matrix<float> a(3, 0);
  Matrix<float> b(0, 4);
  Matrix<float> c(3, 4);
  backend->gemm({a, b, c});  // k = 0: zeros over poison
  BOOST_TEST(weighted_sum(c, c) == 0.0);
  c.fill(2.0F);
  backend->gemm({a, b, c, false, false, true});
  BOOST_TEST(c(2, 3) == 2.0F);
  backend->gemm({Matrix<float>(0, 5), Matrix<float>(5, 4), Matrix<float>(0, 4)});
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
  Matrix<float> a(3, 5);
  Matrix<float> b(4, 4);
  Matrix<float> c(3, 4);
  BOOST_CHECK_THROW(backend->gemm({a, b, c}), base::Error);
}

BOOST_AUTO_TEST_CASE(many_threads_get_the_same_bits) {
  Matrix<float> a(96, 64);
  Matrix<float> b(64, 80);
  Matrix<float> alone(96, 80);
  a.fill_random(1);
  b.fill_random(2);
  backend->gemm({a, b, alone});
  std::vector<Matrix<float>> results(8, Matrix<float>(96, 80));
  std::vector<std::jthread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      const auto mine = make_cpu_backend();
      for (int i = 0; i < 20; ++i) mine->gemm({a, b, result});
    });
  }
  threads.clear();
  for (const auto& result : results) BOOST_TEST(result.same_bits(alone));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
