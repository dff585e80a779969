// What a transport over CUDA needs beside the transport: marks on streams, copies of messages on
// their way, host values carried to the device and back. Linked only in builds with CUDA; declared
// without its headers.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct CUstream_st;
struct CUevent_st;

namespace moetune::engine {

using CudaStream = CUstream_st*;

/// Throws base::Error with CUDA's text unless `error` (a cudaError_t) is success; where it says so,
/// base::DeviceFailed or what kernels::cuda::memory_failure gives.
void check_cuda(int error, const char* what);

/// What check_cuda would throw, with a text of the caller's.
std::exception_ptr cuda_failure(int error, const std::string& text);

bool is_capturing(CudaStream stream);

/// The end of what is on a stream so far.
class Mark {
 public:
  enum class State : uint8_t { running, done, failed };

  explicit Mark(CudaStream stream);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  [[nodiscard]] State query() const;
  /// With CUDA's words after the text; of a failed one.
  [[nodiscard]] std::exception_ptr failure(const std::string& text) const;
  [[nodiscard]] CUevent_st* event() const { return event_; }

 private:
  CUevent_st* event_ = nullptr;
};

/// Copies on `stream`; what comes later on `other` waits for the copy.
void copy_and_order(void* to, const void* from, int64_t bytes, CudaStream stream, CudaStream other);

/// Memory and streams that data passes on its way. One thread uses it.
class Transit {
 public:
  using Allocate = std::function<void*(int64_t bytes)>;
  using Release = std::function<void(void*)>;
  using Wait = std::function<void(const std::shared_ptr<Mark>&)>;
  static constexpr size_t kScratchBytes = size_t{1} << 20U;

  /// Empty functions: CUDA's own. `wait` returns when a mark is done, or throws.
  Transit(Allocate allocate, Release release, Wait wait);
  ~Transit();
  Transit(const Transit&) = delete;
  Transit& operator=(const Transit&) = delete;

  /// Room for host values, kScratchBytes of pinned and of device memory.
  char* host();
  char* device();

  /// A stream that only waits for messages to be received; one for each `key`.
  CudaStream stream(int key);

  struct Slot {
    void* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<Mark> sent;  ///< null: free
  };
  /// At least `bytes` that no message is using. Waits when very many are on their way. The
  /// reference holds until the next call.
  Slot& slot(int64_t bytes);

 private:
  void* allocate(int64_t bytes);
  void release(void* memory);

  Allocate allocate_;
  Release release_;
  Wait wait_;
  char* host_ = nullptr;
  char* device_ = nullptr;
  std::map<int, CudaStream> streams_;
  std::deque<Slot> slots_;
};

/// Stands in for host memory during one call: operands in host memory are copied to the device and
/// back, at most Transit::kScratchBytes in all; others are used as they are.
class HostValues {
 public:
  HostValues(Transit& transit, CudaStream stream) : transit_(transit), stream_(stream) {}

  const void* in(const void* data, int64_t bytes);
  void* out(void* data, int64_t bytes);
  void* in_out(void* data, int64_t bytes);

  [[nodiscard]] bool has_any() const { return used_bytes_ > 0; }
  /// Puts the copies back on the stream; when they are done, finish_return delivers.
  void start_return();
  void finish_return();

 private:
  struct Return {
    void* target;
    size_t offset;
    size_t bytes;
  };
  size_t reserve(int64_t bytes);
  size_t carry_in(const void* data, int64_t bytes);

  Transit& transit_;
  CudaStream stream_;
  size_t used_bytes_ = 0;
  std::vector<Return> returns_;
};

}  // namespace moetune::engine
