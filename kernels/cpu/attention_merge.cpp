// Attention over two sets of keys from the attention over each: what a ring does with every block
// of keys that comes by.
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"

namespace moetune::kernels::cpu {
namespace {

// One head of one row: out [d] and *lse take in the part. With m the larger lse, each side has the
// weight exp(lse - m) / (sum of both).
template <typename T>
void merge(T* out, T* lse, const T* part_out, T part_lse, int64_t d) {
  constexpr T kNoKeys = -std::numeric_limits<T>::infinity();
  const bool has_part = part_lse != kNoKeys;
  if (*lse == kNoKeys) {
    for (int64_t i = 0; i < d; ++i) out[i] = has_part ? part_out[i] : T{0};
    *lse = part_lse;
    return;
  }
  if (!has_part) return;
  const T largest = part_lse > *lse ? part_lse : *lse;
  const T own = std::exp(*lse - largest);
  const T part = std::exp(part_lse - largest);
  const T total = own + part;
  for (int64_t i = 0; i < d; ++i) out[i] = (out[i] * own + part_out[i] * part) / total;
  *lse = largest + std::log(total);
}

}  // namespace

void attention_merge(const AttentionMergeArgs& args) {
  const auto is_like = [](const Tensor& a, const Tensor& b) {
    return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype;
  };
  MOETUNE_CHECK(args.heads > 0 && args.out.cols % args.heads == 0 && args.lse.cols == args.heads &&
                    args.lse.rows == args.out.rows && is_like(args.out, args.part_out) &&
                    is_like(args.lse, args.part_lse),
                "attention_merge: out [{},{}], part_out [{},{}], lse [{},{}], part_lse [{},{}], {} "
                "heads",
                args.out.rows, args.out.cols, args.part_out.rows, args.part_out.cols, args.lse.rows,
                args.lse.cols, args.part_lse.rows, args.part_lse.cols, args.heads);
  const int64_t d = args.out.cols / args.heads;
  dispatch(args.out.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      T* lse = args.lse.row<T>(r);
      const T* part_lse = args.part_lse.row<T>(r);
      for (int64_t head = 0; head < args.heads; ++head) {
        merge(args.out.row<T>(r) + head * d, lse + head, args.part_out.row<T>(r) + head * d,
              part_lse[head], d);
      }
    }
  });
}

}  // namespace moetune::kernels::cpu
