// Room for rows by the hundred megabytes, as traces of a million records need it. The kernel hands
// out memory in pages of 4 KiB, one fault each, and that takes as long as filling them does.
#pragma once

#include <cstddef>
#include <vector>

namespace moetune::base {

/// Asks the kernel for huge pages (madvise, Linux) within memory that was not touched yet. Nothing
/// happens below 4 MB, or where the kernel has none.
void prefer_huge_pages(void* memory, size_t num_bytes);

/// Gives what was freed back to the kernel, where the allocator would keep it between blocks that
/// are still used. For moments between two tasks that each need much.
void release_freed_memory();

/// Room for so many rows in a vector that is still empty.
template <typename Row>
void reserve_large(std::vector<Row>& rows, size_t count) {
  if (rows.capacity() >= count) return;
  rows.reserve(count);
  prefer_huge_pages(rows.data(), count * sizeof(Row));
}

}  // namespace moetune::base
