// Buffers that a tracing interface fills: handed out and taken back inside of its callbacks, which
// must return at once, and read outside of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace moetune::profiler {

/// A pool of zeroed buffers of one size, aligned for records of any kind. Thread-safe.
class ActivityBuffers {
 public:
  struct Buffer {
    std::unique_ptr<uint8_t[], decltype(&std::free)> data{nullptr, &std::free};
    size_t valid_bytes = 0;
  };

  /// Never holds more than `max_buffers`, whoever has them.
  ActivityBuffers(size_t buffer_bytes, size_t max_buffers);

  /// Makes sure that `count` buffers wait to be handed out.
  void reserve(size_t count);
  /// A zeroed buffer of buffer_bytes(), null when all are out; the pool keeps the ownership.
  uint8_t* hand_out();
  /// Takes back what hand_out gave; a pointer it never gave is ignored and counted.
  void take_back(uint8_t* data, size_t valid_bytes);

  /// What was taken back with something in it, oldest first.
  std::vector<Buffer> take_full();
  /// Zeroes them and hands them out again later.
  void recycle(std::vector<Buffer> buffers);

  [[nodiscard]] size_t buffer_bytes() const { return buffer_bytes_; }
  [[nodiscard]] size_t num_buffers() const;     ///< that exist
  [[nodiscard]] int64_t num_refused() const;    ///< times that hand_out had none
  [[nodiscard]] int64_t num_strangers() const;  ///< pointers that it did not know

 private:
  Buffer make() const;

  const size_t buffer_bytes_;
  const size_t max_buffers_;
  mutable std::mutex mutex_;
  std::vector<Buffer> free_;
  std::vector<Buffer> out_;
  std::vector<Buffer> full_;
  size_t num_buffers_ = 0;
  int64_t num_refused_ = 0;
  int64_t num_strangers_ = 0;
};

}  // namespace moetune::profiler
