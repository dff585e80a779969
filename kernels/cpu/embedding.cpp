// Token embedding: a table lookup and its transpose.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"

namespace moetune::kernels::cpu {
namespace {

void check_token(int64_t token, int64_t vocabulary) {
  MOETUNE_CHECK(token >= 0 && token < vocabulary, "embedding: token {} is not in [0, {})", token,
                vocabulary);
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  if (args.tokens.rows == 0) return;
  const auto* tokens = args.tokens.row<int32_t>(0);
  dispatch(args.table.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t t = 0; t < args.tokens.rows; ++t) {
      check_token(tokens[t], args.table.rows);
      std::memcpy(args.out.row<T>(t), args.table.row<T>(tokens[t]),
                  static_cast<size_t>(args.table.cols) * sizeof(T));
    }
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  if (args.tokens.rows == 0) return;
  const auto* tokens = args.tokens.row<int32_t>(0);
  dispatch(args.dtable.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t t = 0; t < args.tokens.rows; ++t) {
      check_token(tokens[t], args.dtable.rows);
      const T* __restrict from = args.dout.row<T>(t);
      T* __restrict to = args.dtable.row<T>(tokens[t]);
      for (int64_t i = 0; i < args.dtable.cols; ++i) to[i] += from[i];
    }
  });
}

}  // namespace moetune::kernels::cpu
