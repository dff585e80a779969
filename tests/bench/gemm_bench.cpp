// GFLOP/s of the GEMM candidates on this model's shapes and on a large square (the machine's peak),
// one thread each: OpenBLAS, oneDNN where it is installed, and the own row_gemm of the experts.
#include <fmt/format.h>

#include <array>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/row_gemm.h"
#include "tests/bench/onednn_sgemm.h"
#include "tests/bench/stopwatch.h"

namespace moetune::bench {
namespace {

// The three products of a linear layer with weight [n,k] on m tokens, all 2*m*n*k FLOPs.
enum class Product { forward, dgrad, wgrad };

struct Operands {
  std::vector<float> x, w, y;

  Operands(int64_t m, int64_t n, int64_t k)
      : x(static_cast<size_t>(m * k), 0.5F),
        w(static_cast<size_t>(n * k), 0.25F),
        y(static_cast<size_t>(m * n), 0.125F) {}
};

void run_openblas(Product product, int64_t m, int64_t n, int64_t k, Operands& t) {
  using kernels::cpu::blas_gemm;
  float* x = t.x.data();
  float* w = t.w.data();
  float* y = t.y.data();
  if (product == Product::forward) blas_gemm(false, true, m, n, k, 1.0F, x, k, w, k, 0.0F, y, n);
  if (product == Product::dgrad) blas_gemm(false, false, m, k, n, 1.0F, y, n, w, k, 0.0F, x, k);
  if (product == Product::wgrad) blas_gemm(true, false, n, k, m, 1.0F, y, n, x, k, 0.0F, w, k);
}

void run_onednn(Product product, int64_t m, int64_t n, int64_t k, Operands& t) {
  float* x = t.x.data();
  float* w = t.w.data();
  float* y = t.y.data();
  if (product == Product::forward) onednn_sgemm(false, true, m, n, k, x, k, w, k, y, n);
  if (product == Product::dgrad) onednn_sgemm(false, false, m, k, n, y, n, w, k, x, k);
  if (product == Product::wgrad) onednn_sgemm(true, false, n, k, m, y, n, x, k, w, k);
}

void run_own(Product product, int64_t m, int64_t n, int64_t k, Operands& t) {
  using kernels::cpu::row_gemm;
  float* x = t.x.data();
  float* w = t.w.data();
  float* y = t.y.data();
  if (product == Product::forward) {
    row_gemm<float>(m, n, k, {x, k, 1, nullptr}, w, k, true, false, y, n, nullptr);
  }
  if (product == Product::dgrad) {
    row_gemm<float>(m, k, n, {y, n, 1, nullptr}, w, k, false, false, x, k, nullptr);
  }
  if (product == Product::wgrad) {
    row_gemm<float>(n, k, m, {y, 1, n, nullptr}, x, k, false, false, w, k, nullptr);
  }
}

using Run = void (*)(Product, int64_t, int64_t, int64_t, Operands&);

double gflops(Run run, Product product, int64_t m, int64_t n, int64_t k) {
  Operands operands(m, n, k);
  const double ns = median_ns([&] { run(product, m, n, k, operands); });
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / ns;
}

void print_row(Product product, int64_t m, int64_t n, int64_t k) {
  static constexpr std::array<const char*, 3> kNames = {"forward", "dgrad", "wgrad"};
  fmt::print("{:8} {:5} {:5} {:5} {:10.1f}", kNames[static_cast<size_t>(product)], m, n, k,
             gflops(run_openblas, product, m, n, k));
  if (has_onednn()) {
    fmt::print(" {:10.1f}", gflops(run_onednn, product, m, n, k));
  } else {
    fmt::print(" {:>10}", "-");
  }
  fmt::print(" {:10.1f}\n", gflops(run_own, product, m, n, k));
}

}  // namespace
}  // namespace moetune::bench

int main() {
  using moetune::bench::Product;
  fmt::print("{}\nGFLOP/s, one thread, median of 9 runs\n", moetune::kernels::cpu::blas_config());
  fmt::print("{:8} {:>5} {:>5} {:>5} {:>10} {:>10} {:>10}\n", "product", "m", "n", "k", "OpenBLAS",
             "oneDNN", "row_gemm");
  for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
             {128, 128}, {384, 128}, {128, 64}, {256, 128}, {256, 256}}) {
      for (const int64_t m : {32, 64, 256, 512, 1024}) {
        moetune::bench::print_row(product, m, n, k);
      }
    }
    moetune::bench::print_row(product, 1024, 1024, 1024);
  }
}
