// Copies and fills of the fake device. What host memory has to do with them is as on a card: a copy
// from ordinary memory reads it at the call, one into it is complete at the return, and pinned
// memory is read and written when the copy runs.
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fakes/simt/simt_memory.h"
#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

/// Rows of `width` bytes; something in one piece is one row.
struct Copy {
  char* to = nullptr;
  size_t to_pitch = 0;
  const char* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;
  size_t height = 1;

  [[nodiscard]] bool is_empty() const { return width == 0 || height == 0; }
  [[nodiscard]] size_t extent(size_t pitch) const { return (height - 1) * pitch + width; }
  void run() const {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(to + row * to_pitch, from + row * from_pitch, width);
    }
  }
};

enum class Wait : uint8_t { no, yes };

Operation what_of(const Copy& copy, Place from, Place to, Wait wait) {
  Operation what;
  what.kind = WorkKind::copy;
  what.bytes = copy.width * copy.height;
  what.is_async = wait == Wait::no;
  what.is_from_pinned = from == Place::pinned;
  what.is_to_pinned = to == Place::pinned;
  if (from == Place::device) {
    what.direction = to == Place::device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  } else {
    what.direction = to == Place::device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
  }
  return what;
}

cudaError_t check_end(const char* what, const void* address, size_t bytes, bool is_device,
                      bool is_checked) {
  const Place place = place_of(address);
  if (is_checked && is_device && place == Place::pageable) {
    return refuse(cudaErrorInvalidValue,
                  fmt::format("the {} is ordinary memory of the host, the copy's kind says the "
                              "device",
                              what));
  }
  if (is_checked && !is_device && place == Place::device) {
    return refuse(
        cudaErrorInvalidValue,
        fmt::format("the {} is memory of the device, the copy's kind says the host", what));
  }
  if (!is_inside(address, bytes)) {
    return refuse(
        cudaErrorInvalidValue,
        fmt::format("{} bytes of the {} go past the end of what was allocated", bytes, what));
  }
  return cudaSuccess;
}

cudaError_t check_kind(const Copy& copy, cudaMemcpyKind kind) {
  const bool is_checked = kind != cudaMemcpyDefault;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (copy.width > copy.to_pitch || copy.width > copy.from_pitch) {
    if (copy.height > 1) return cudaErrorInvalidPitchValue;
  }
  const cudaError_t status =
      check_end("target", copy.to, copy.extent(copy.to_pitch), to_device, is_checked);
  if (status != cudaSuccess) return status;
  return check_end("source", copy.from, copy.extent(copy.from_pitch), from_device, is_checked);
}

/// The source's rows as they are now.
Copy stage(const Copy& copy, std::vector<char>& rows) {
  rows.resize(copy.width * copy.height);
  Copy staged = copy;
  staged.to = rows.data();
  staged.to_pitch = copy.width;
  staged.run();
  staged = copy;
  staged.from = rows.data();
  staged.from_pitch = copy.width;
  return staged;
}

cudaError_t copy_on(cudaStream_t handle, const Copy& copy, cudaMemcpyKind kind, Wait wait) {
  CUstream_st* stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
  if (copy.is_empty()) return cudaSuccess;
  if (const cudaError_t status = check_kind(copy, kind); status != cudaSuccess) return status;
  const Place from = place_of(copy.from);
  const Place to = place_of(copy.to);
  const bool is_on_device = from == Place::device && to == Place::device;
  if (stream->capture && (from == Place::pageable || to == Place::pageable)) {
    return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported,
                      "a copy of ordinary host memory on a captured stream: a replay would use "
                      "what lies there then");
  }
  const bool is_direct =
      to == Place::pageable || (from != Place::device && to != Place::device && !stream->capture);
  const Operation what = what_of(copy, from, to, wait);
  if (is_direct) {
    const cudaError_t status = finish(stream->frontier);
    if (status != cudaSuccess) return status;
    return run_now([&] { return copy.run(), Failure(); }, placed(what, *stream));
  }
  Work work = [copy] { return copy.run(), Failure(); };
  if (from == Place::pageable && world().schedule.is_deferred) {
    const auto rows = std::make_shared<std::vector<char>>();
    work = [staged = stage(copy, *rows), rows] { return staged.run(), Failure(); };
  }
  const cudaError_t status = submit(*stream, std::move(work), what);
  if (status != cudaSuccess || wait == Wait::no || is_on_device) return status;
  return finish(stream->frontier);
}

cudaError_t fill_on(cudaStream_t handle, const Copy& rows, int value, Wait wait) {
  CUstream_st* stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
  if (rows.is_empty()) return cudaSuccess;
  const cudaError_t status = check_end("target", rows.to, rows.extent(rows.to_pitch), true, true);
  if (status != cudaSuccess) return status;
  Operation what;
  what.kind = WorkKind::fill;
  what.bytes = rows.width * rows.height;
  what.is_async = wait == Wait::no;
  const auto fill = [rows, value] {
    for (size_t row = 0; row < rows.height; ++row) {
      std::memset(rows.to + row * rows.to_pitch, value, rows.width);
    }
    return Failure();
  };
  return submit(*stream, fill, what);
}

Copy bytes_of(void* to, const void* from, size_t bytes) {
  return {static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1};
}

Copy rows_of(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
             size_t height) {
  return {
      static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width, height};
}

}  // namespace
}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

// Complete when it returns, except between two places on devices, as on a card.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    const cudaError_t status = refuse_while_capturing("cudaMemcpy");
    if (status != cudaSuccess) return status;
    return copy_on(nullptr, bytes_of(to, from, bytes), kind, Wait::yes);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync",
              [&] { return copy_on(stream, bytes_of(to, from, bytes), kind, Wait::no); });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return call("cudaMemcpy2D", [&] {
    const cudaError_t status = refuse_while_capturing("cudaMemcpy2D");
    if (status != cudaSuccess) return status;
    return copy_on(nullptr, rows_of(to, to_pitch, from, from_pitch, width, height), kind,
                   Wait::yes);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return call("cudaMemcpy2DAsync", [&] {
    return copy_on(stream, rows_of(to, to_pitch, from, from_pitch, width, height), kind, Wait::no);
  });
}

// The host does not wait for a fill of device memory.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return call("cudaMemset",
              [&] { return fill_on(nullptr, bytes_of(to, nullptr, bytes), value, Wait::yes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync",
              [&] { return fill_on(stream, bytes_of(to, nullptr, bytes), value, Wait::no); });
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return call("cudaMemset2DAsync", [&] {
    return fill_on(stream, rows_of(to, pitch, nullptr, 0, width, height), value, Wait::no);
  });
}

}  // extern "C"
