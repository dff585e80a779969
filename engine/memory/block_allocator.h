// Which parts of a growing piece of memory are in use. Only offsets: the memory itself is somebody
// else's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace moetune::engine {

/// Best fit, lowest offset among equals; freed neighbours grow together. The answers depend on the
/// calls alone, so a step that asks for the same gets the same, which is what captured graphs live
/// on.
class BlockAllocator {
 public:
  /// The offset of `bytes` (> 0), or nothing when no free block is that large.
  std::optional<int64_t> allocate(int64_t bytes);
  void free(int64_t offset, int64_t bytes);

  /// Adds free memory at the end.
  void extend(int64_t bytes);
  /// How much has to be added so that `bytes` fit: a free end counts.
  [[nodiscard]] int64_t missing_bytes(int64_t bytes) const;

  [[nodiscard]] int64_t size_bytes() const { return size_; }
  [[nodiscard]] int64_t used_bytes() const { return used_; }

 private:
  void add_free(int64_t offset, int64_t bytes);

  int64_t size_ = 0;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> free_;  ///< offset -> bytes
};

}  // namespace moetune::engine
