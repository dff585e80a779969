// A window in parts, each with the reason why no compute ran in it, as trace_causes.h finds them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/base/large_memory.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

enum class IdleCause : uint8_t {
  compute,        ///< a kernel ran that is no communication, or a copy or fill within the device
  communication,  ///< what runs next was enqueued, or starts when this ends
  host,           ///< what runs next had not been enqueued, or began as soon after its launch as it
                  ///< could; nothing ran meanwhile, or something that it does not wait for
  host_copy,      ///< a copy to or from the host that is no offloading, and nothing else
  offload,        ///< a copy that is (is_offload), and nothing else
  latency,        ///< enqueued, and started as soon as devices do
  unknown,        ///< enqueued and not started, without a known launch, or only kernels without a
                  ///< name run
  count
};

struct CauseSegment {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  IdleCause cause = IdleCause::unknown;
  /// Row of trace.ops: what communicates or copies; of host, latency and unknown what was waited
  /// for, kNoRow at the end of the window and while kernels run.
  uint32_t op = kNoRow;
};

/// Ascending and without holes: no end is kept beside the next start, as those of many ranks take
/// much memory.
class CauseSegments {
 public:
  CauseSegments() = default;
  CauseSegments(std::initializer_list<CauseSegment> segments) {
    for (const CauseSegment& segment : segments) add(segment);
  }

  void reserve(size_t count) { base::reserve_large(begun_, count); }
  /// It begins where the last one ends.
  void add(const CauseSegment& segment) {
    begun_.push_back({segment.start_ns, segment.op, segment.cause});
    end_ns_ = segment.end_ns;
  }
  /// Makes the last one longer.
  void extend(int64_t end_ns) { end_ns_ = end_ns; }

  [[nodiscard]] size_t size() const { return begun_.size(); }
  [[nodiscard]] bool empty() const { return begun_.empty(); }
  CauseSegment operator[](size_t place) const {
    const Begun& own = begun_[place];
    const int64_t end_ns = place + 1 < begun_.size() ? begun_[place + 1].start_ns : end_ns_;
    return {own.start_ns, end_ns, own.cause, own.op};
  }
  /// Place of the first one that ends after a moment.
  [[nodiscard]] size_t first_after(int64_t moment_ns) const {
    if (end_ns_ <= moment_ns) return size();
    const auto later = std::ranges::upper_bound(begun_, moment_ns, {}, &Begun::start_ns);
    return later == begun_.begin() ? 0 : static_cast<size_t>(later - begun_.begin()) - 1;
  }

  class Walk {
   public:
    using value_type = CauseSegment;
    using difference_type = std::ptrdiff_t;
    Walk() = default;
    Walk(const CauseSegments* owner, size_t place) : owner_(owner), place_(place) {}
    CauseSegment operator*() const { return (*owner_)[place_]; }
    Walk& operator++() {
      ++place_;
      return *this;
    }
    Walk operator++(int) { return {owner_, place_++}; }
    bool operator==(const Walk& other) const { return place_ == other.place_; }

   private:
    const CauseSegments* owner_ = nullptr;
    size_t place_ = 0;
  };
  [[nodiscard]] Walk begin() const { return {this, 0}; }
  [[nodiscard]] Walk end() const { return {this, size()}; }

 private:
  struct Begun {
    int64_t start_ns = 0;
    uint32_t op = kNoRow;
    IdleCause cause = IdleCause::unknown;
  };

  std::vector<Begun> begun_;
  int64_t end_ns_ = 0;  ///< of the last one
};

}  // namespace moetune::profiler
