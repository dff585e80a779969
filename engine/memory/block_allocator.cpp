#include "engine/memory/block_allocator.h"

#include <iterator>

#include "kernels/base/error.h"

namespace moetune::engine {

std::optional<int64_t> BlockAllocator::allocate(int64_t bytes) {
  MOETUNE_CHECK(bytes > 0, "a block of {} bytes", bytes);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) return std::nullopt;
  const auto [offset, length] = *best;
  free_.erase(best);
  if (length > bytes) free_[offset + bytes] = length - bytes;
  used_ += bytes;
  return offset;
}

void BlockAllocator::free(int64_t offset, int64_t bytes) {
  used_ -= bytes;
  add_free(offset, bytes);
}

void BlockAllocator::extend(int64_t bytes) {
  add_free(size_, bytes);
  size_ += bytes;
}

int64_t BlockAllocator::missing_bytes(int64_t bytes) const {
  if (free_.empty()) return bytes;
  const auto& [offset, length] = *free_.rbegin();
  return offset + length == size_ ? bytes - length : bytes;
}

void BlockAllocator::add_free(int64_t offset, int64_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    MOETUNE_CHECK(before->first + before->second <= offset, "a block at {} is freed twice", offset);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace moetune::engine
