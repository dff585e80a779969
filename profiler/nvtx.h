// NVTX ranges around the engine's ops, so that Nsight Systems shows our names. nvtx.cpp or
// nvtx_stub.cpp is linked.
#pragma once

namespace moetune::profiler {

/// Opens a range for its lifetime; costs a few nanoseconds when no tool is attached.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace moetune::profiler
