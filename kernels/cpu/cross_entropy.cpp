// Softmax cross-entropy with its gradient, in place on one chunk of logits.
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

template <typename T>
void run(const CrossEntropyArgs& args) {
  const int64_t vocabulary = args.logits.cols;
  const auto* targets = args.targets.row<int32_t>(0);
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    const int64_t target = targets[r];
    MOETUNE_CHECK(target >= 0 && target < vocabulary, "cross_entropy: target {} is not in [0, {})",
                  target, vocabulary);
    T* x = args.logits.row<T>(r);
    const T target_logit = x[target];
    const T largest = max(x, vocabulary);
    exp_shifted(x, vocabulary, largest);
    const double total = sum(x, vocabulary);
    // Straight onto the caller's sum, row by row: the chunk size then changes no bit of the loss.
    *args.loss_sum += std::log(total) + static_cast<double>(largest - target_logit);
    scale(x, vocabulary, static_cast<T>(args.grad_scale / total));
    x[target] -= static_cast<T>(args.grad_scale);
  }
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args) {
  if (args.logits.numel() == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows, "cross_entropy: {} targets for {} rows",
                args.targets.rows, args.logits.rows);
  dispatch(args.logits.dtype, [&]<typename T>(std::type_identity<T>) { run<T>(args); });
}

}  // namespace moetune::kernels::cpu
