// The only place that tells the kernel how memory will be used, and when no longer.
#include "kernels/base/large_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>

namespace moetune::base {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

void prefer_huge_pages(void* memory, size_t num_bytes) {
  if (num_bytes < 2 * kHugePageBytes) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (begin + num_bytes) / kHugePageBytes * kHugePageBytes;
  // A hint: where it cannot be followed, everything goes on as before.
  (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

void release_freed_memory() { malloc_trim(0); }

}  // namespace moetune::base
