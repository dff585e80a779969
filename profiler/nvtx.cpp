// NVTX ranges by NVIDIA's header-only library.
#include "profiler/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace moetune::profiler {
namespace {

// The library sets itself up in its first call without ordering that for other threads; ranks may
// open their first ranges at the same time.
void initialize_once() {
  static const bool is_initialized = [] {
    nvtxInitialize(nullptr);
    return true;
  }();
  (void)is_initialized;
}

}  // namespace

NvtxRange::NvtxRange(const char* name) {
  initialize_once();
  nvtxRangePushA(name);
}
NvtxRange::~NvtxRange() { nvtxRangePop(); }

}  // namespace moetune::profiler
