// GFLOP/s of the GEMM candidates on this model's shapes and on a large square (the machine's peak),
// one thread each: OpenBLAS where it is installed, oneDNN, and the own row_gemm of the experts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/onednn_gemm.h"
#include "kernels/cpu/row_gemm.h"
#include "tests/bench/openblas_sgemm.h"
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
  float* x = t.x.data();
  float* w = t.w.data();
  float* y = t.y.data();
  if (product == Product::forward) openblas_sgemm(false, true, m, n, k, x, k, w, k, y, n);
  if (product == Product::dgrad) openblas_sgemm(false, false, m, k, n, y, n, w, k, x, k);
  if (product == Product::wgrad) openblas_sgemm(true, false, n, k, m, y, n, x, k, w, k);
}

void run_onednn(Product product, int64_t m, int64_t n, int64_t k, Operands& t) {
  using kernels::cpu::onednn_gemm;
  float* x = t.x.data();
  float* w = t.w.data();
  float* y = t.y.data();
  if (product == Product::forward) onednn_gemm(false, true, m, n, k, x, k, w, k, false, y, n);
  if (product == Product::dgrad) onednn_gemm(false, false, m, k, n, y, n, w, k, false, x, k);
  if (product == Product::wgrad) onednn_gemm(true, false, n, k, m, y, n, x, k, false, w, k);
}

bool has_openblas() { return *openblas_config() != '\0'; }

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

/// (n, k) of the quick-start model's linear layers.
constexpr std::array<std::pair<int64_t, int64_t>, 5> kShapes = {
    {{128, 128}, {384, 128}, {128, 64}, {256, 128}, {256, 256}}};

using Run = void (*)(Product, int64_t, int64_t, int64_t, Operands&);

double gflops(Run run, Product product, int64_t m, int64_t n, int64_t k) {
  Operands operands(m, n, k);
  const double ns = median_ns([&] { run(product, m, n, k, operands); });
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / ns;
}

void print_row(Product product, int64_t m, int64_t n, int64_t k) {
  static constexpr std::array<const char*, 3> kNames = {"forward", "dgrad", "wgrad"};
  fmt::print("{:8} {:5} {:5} {:5}", kNames[static_cast<size_t>(product)], m, n, k);
  if (has_openblas()) {
    fmt::print(" {:10.1f}", gflops(run_openblas, product, m, n, k));
  } else {
    fmt::print(" {:>10}", "-");
  }
  fmt::print(" {:10.1f}", gflops(run_onednn, product, m, n, k));
  fmt::print(" {:10.1f}\n", gflops(run_own, product, m, n, k));
}

/// Rows of a forward product whose bits change when the call is split into calls of 1 to 60 rows.
/// EP chunks are such splits, so anything but zero would make training depend on the chunk count.
int64_t rows_that_depend_on_the_split(Run run) {
  constexpr int64_t kRows = 256;
  int64_t num_changed = 0;
  uint32_t state = 1;
  const auto random = [&] { return state = state * 1664525U + 1013904223U; };
  for (const auto& [n, k] : kShapes) {
    Operands whole(kRows, n, k);
    for (float& value : whole.x) value = static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F;
    for (float& value : whole.w) value = static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F;
    run(Product::forward, kRows, n, k, whole);
    for (int64_t begin = 0; begin < kRows;) {
      const int64_t count = std::min<int64_t>(1 + random() % 60, kRows - begin);
      Operands part(count, n, k);
      part.w = whole.w;
      std::copy_n(whole.x.begin() + begin * k, count * k, part.x.begin());
      run(Product::forward, count, n, k, part);
      for (int64_t row = 0; row < count; ++row) {
        num_changed += !std::equal(part.y.begin() + row * n, part.y.begin() + (row + 1) * n,
                                   whole.y.begin() + (begin + row) * n);
      }
      begin += count;
    }
  }
  return num_changed;
}

}  // namespace
}  // namespace moetune::bench

int main() {
  using moetune::bench::Product;
  fmt::print("{}\nGFLOP/s, one thread, median of 9 runs\n", moetune::bench::openblas_config());
  fmt::print("{:8} {:>5} {:>5} {:>5} {:>10} {:>10} {:>10}\n", "product", "m", "n", "k", "OpenBLAS",
             "oneDNN", "row_gemm");
  for (const Product product : {Product::forward, Product::dgrad, Product::wgrad}) {
    for (const auto& [n, k] : moetune::bench::kShapes) {
      for (const int64_t m : {32, 64, 256, 512, 1024}) {
        moetune::bench::print_row(product, m, n, k);
      }
    }
    moetune::bench::print_row(product, 1024, 1024, 1024);
  }
  using moetune::bench::rows_that_depend_on_the_split;
  fmt::print(
      "rows of {} whose bits depend on how the call is split: OpenBLAS {}, oneDNN {}, row_gemm "
      "{}\n",
      256 * moetune::bench::kShapes.size(),
      moetune::bench::has_openblas()
          ? std::to_string(rows_that_depend_on_the_split(moetune::bench::run_openblas))
          : "-",
      rows_that_depend_on_the_split(moetune::bench::run_onednn),
      rows_that_depend_on_the_split(moetune::bench::run_own));
}
