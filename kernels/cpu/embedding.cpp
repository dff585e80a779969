// Token embedding: a table lookup and its transpose, of a whole vocabulary or of one shard of it.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"

namespace moetune::kernels::cpu {
namespace {

constexpr int64_t kElsewhere = -1;

// Which rows of the vocabulary a table holds.
class Shard {
 public:
  Shard(const Tensor& table, int64_t first_row, int64_t vocabulary)
      : first_(first_row),
        count_(table.rows),
        vocabulary_(vocabulary == 0 ? table.rows : vocabulary) {
    MOETUNE_CHECK(first_ >= 0 && first_ + count_ <= vocabulary_,
                  "embedding: a table of rows {} to {} for a vocabulary of {}", first_,
                  first_ + count_ - 1, vocabulary_);
  }

  // The token's row in the table, or kElsewhere.
  [[nodiscard]] int64_t row_of(int64_t token) const {
    MOETUNE_CHECK(token >= 0 && token < vocabulary_, "embedding: token {} is not in [0, {})", token,
                  vocabulary_);
    const int64_t row = token - first_;
    return row >= 0 && row < count_ ? row : kElsewhere;
  }

 private:
  int64_t first_;
  int64_t count_;
  int64_t vocabulary_;
};

}  // namespace

void embedding(const EmbeddingArgs& args) {
  if (args.tokens.rows == 0) return;
  const auto* tokens = args.tokens.row<int32_t>(0);
  const Shard shard(args.table, args.first_row, args.vocabulary);
  dispatch(args.table.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t t = 0; t < args.tokens.rows; ++t) {
      const int64_t row = shard.row_of(tokens[t]);
      if (row == kElsewhere) {
        std::fill_n(args.out.row<T>(t), args.table.cols, T{0});
      } else {
        std::memcpy(args.out.row<T>(t), args.table.row<T>(row),
                    static_cast<size_t>(args.table.cols) * sizeof(T));
      }
    }
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  if (args.tokens.rows == 0) return;
  const auto* tokens = args.tokens.row<int32_t>(0);
  const Shard shard(args.dtable, args.first_row, args.vocabulary);
  dispatch(args.dtable.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t t = 0; t < args.tokens.rows; ++t) {
      const int64_t row = shard.row_of(tokens[t]);
      if (row == kElsewhere) continue;
      const T* __restrict from = args.dout.row<T>(t);
      T* __restrict to = args.dtable.row<T>(row);
      for (int64_t i = 0; i < args.dtable.cols; ++i) to[i] += from[i];
    }
  });
}

}  // namespace moetune::kernels::cpu
