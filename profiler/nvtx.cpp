// NVTX ranges by NVIDIA's header-only library.
#include "profiler/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace moetune::profiler {

NvtxRange::NvtxRange(const char* name) { nvtxRangePushA(name); }
NvtxRange::~NvtxRange() { nvtxRangePop(); }

}  // namespace moetune::profiler
