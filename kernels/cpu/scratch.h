// Temporary memory of the CPU operations. Each thread keeps one growing buffer per slot, so that an
// operation called thousands of times on small shapes does not allocate. It is host working memory,
// not device memory: the ledger does not see it, just as it does not see the BLAS library's packing
// buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace moetune::kernels::cpu {

/// Operations use the slots below kGemmScratchSlot, which belongs to row_gemm.
inline constexpr int kGemmScratchSlot = 2;
inline constexpr int kNumScratchSlots = 3;

/// `count` elements of T, 64-byte aligned, contents undefined. Valid until this thread asks for the
/// same slot again.
template <typename T>
T* scratch(int slot, int64_t count) {
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* pointer) const { ::operator delete[](pointer, kAlignment); }
  };
  struct Buffer {
    std::unique_ptr<std::byte[], Free> data;
    size_t size = 0;
  };
  thread_local std::array<Buffer, kNumScratchSlots> buffers;
  Buffer& buffer = buffers[static_cast<size_t>(slot)];
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes > buffer.size) {
    buffer.data.reset();
    buffer.size = 0;
    buffer.data.reset(new (kAlignment) std::byte[bytes]);
    buffer.size = bytes;
  }
  return reinterpret_cast<T*>(buffer.data.get());
}

}  // namespace moetune::kernels::cpu
