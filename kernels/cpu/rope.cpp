// Rotary position embedding (Su et al. 2021) in the halves layout, in place.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"

namespace moetune::kernels::cpu {
namespace {

template <typename T>
void rotate(const RopeArgs& args) {
  const int64_t half = args.cos.cols;
  const auto* positions = args.positions.row<int32_t>(0);
  const T sign = args.inverse ? T{-1} : T{1};
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const int64_t position = positions[r];
    MOETUNE_CHECK(position >= 0 && position < args.cos.rows, "rope: position {} is not in [0, {})",
                  position, args.cos.rows);
    const T* cos = args.cos.row<T>(position);
    const T* sin = args.sin.row<T>(position);
    for (int64_t head = 0; head < args.heads; ++head) {
      T* first = args.x.row<T>(r) + head * 2 * half;
      T* second = first + half;
#pragma GCC ivdep
      for (int64_t i = 0; i < half; ++i) {
        const T a = first[i];
        const T b = second[i];
        const T s = sign * sin[i];
        first[i] = a * cos[i] - b * s;
        second[i] = b * cos[i] + a * s;
      }
    }
  }
}

}  // namespace

void rope(const RopeArgs& args) {
  MOETUNE_CHECK(args.x.cols == 2 * args.heads * args.cos.cols && args.positions.rows == args.x.rows,
                "rope: x [{},{}], {} heads, cos [{},{}], {} positions", args.x.rows, args.x.cols,
                args.heads, args.cos.rows, args.cos.cols, args.positions.rows);
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) { rotate<T>(args); });
}

}  // namespace moetune::kernels::cpu
