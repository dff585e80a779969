// The pool of buffers. Everything under its lock is a move of a pointer, apart from the first use
// of a buffer beyond the reserve.
#include "profiler/device/activity_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace moetune::profiler {

ActivityBuffers::ActivityBuffers(size_t buffer_bytes, size_t max_buffers)
    : buffer_bytes_(buffer_bytes), max_buffers_(max_buffers) {}

// calloc returns fresh pages that the kernel zeroes as they are touched.
ActivityBuffers::Buffer ActivityBuffers::make() const {
  Buffer buffer;
  buffer.data.reset(static_cast<uint8_t*>(std::calloc(1, buffer_bytes_)));
  return buffer;
}

void ActivityBuffers::reserve(size_t count) {
  std::vector<Buffer> made;
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (!made.empty()) {
        free_.push_back(std::move(made.back()));
        made.pop_back();
      }
      if (free_.size() >= count || num_buffers_ >= max_buffers_) return;
      ++num_buffers_;
    }
    Buffer buffer = make();
    if (buffer.data == nullptr) {
      const std::scoped_lock lock(mutex_);
      --num_buffers_;
      return;
    }
    // Touched here, so that no page fault falls into a measured call.
    std::memset(buffer.data.get(), 0, buffer_bytes_);
    made.push_back(std::move(buffer));
  }
}

uint8_t* ActivityBuffers::hand_out() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty() && num_buffers_ < max_buffers_) {
    Buffer buffer = make();
    if (buffer.data != nullptr) {
      ++num_buffers_;
      free_.push_back(std::move(buffer));
    }
  }
  if (free_.empty()) {
    ++num_refused_;
    return nullptr;
  }
  out_.push_back(std::move(free_.back()));
  free_.pop_back();
  return out_.back().data.get();
}

void ActivityBuffers::take_back(uint8_t* data, size_t valid_bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(
      out_.begin(), out_.end(), [data](const Buffer& buffer) { return buffer.data.get() == data; });
  if (found == out_.end()) {
    ++num_strangers_;
    return;
  }
  found->valid_bytes = std::min(valid_bytes, buffer_bytes_);
  (found->valid_bytes > 0 ? full_ : free_).push_back(std::move(*found));
  out_.erase(found);
}

std::vector<ActivityBuffers::Buffer> ActivityBuffers::take_full() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(full_, {});
}

void ActivityBuffers::recycle(std::vector<Buffer> buffers) {
  for (Buffer& buffer : buffers) {
    std::memset(buffer.data.get(), 0, buffer_bytes_);
    buffer.valid_bytes = 0;
  }
  const std::scoped_lock lock(mutex_);
  for (Buffer& buffer : buffers) free_.push_back(std::move(buffer));
}

size_t ActivityBuffers::num_buffers() const {
  const std::scoped_lock lock(mutex_);
  return num_buffers_;
}
int64_t ActivityBuffers::num_refused() const {
  const std::scoped_lock lock(mutex_);
  return num_refused_;
}
int64_t ActivityBuffers::num_strangers() const {
  const std::scoped_lock lock(mutex_);
  return num_strangers_;
}

}  // namespace moetune::profiler
