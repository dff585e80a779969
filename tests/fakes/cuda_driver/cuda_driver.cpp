// A driver without a device, libcuda.so.1: cuDNN compiles a kernel for a described device only
// where it finds a driver with all of these functions (those of 9.19). The compiled kernel is
// loaded, so that has to work; what it would be run with is refused.

namespace {

// CUresult
constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;
constexpr int kNotSupported = 801;

}  // namespace

#define MOETUNE_REFUSED(NAME) \
  int NAME() { return kNotSupported; }

extern "C" {

int cuInit(unsigned /*flags*/) { return kNoDevice; }

int cuLibraryLoadData(void** library) {
  static char loaded;
  *library = &loaded;
  return kSuccess;
}

int cuLibraryGetKernel(void** kernel) {
  static char found;
  *kernel = &found;
  return kSuccess;
}

int cuLibraryUnload(void* /*library*/) { return kSuccess; }

int cuGetErrorName(int /*error*/, const char** name) {
  *name = "CUDA_ERROR_NO_DEVICE";
  return kSuccess;
}

int cuGetErrorString(int /*error*/, const char** text) {
  *text = "this driver has no device";
  return kSuccess;
}

MOETUNE_REFUSED(cuCtxGetCurrent)
MOETUNE_REFUSED(cuCtxGetLimit)
MOETUNE_REFUSED(cuCtxPopCurrent)
MOETUNE_REFUSED(cuCtxPushCurrent)
MOETUNE_REFUSED(cuDeviceGet)
MOETUNE_REFUSED(cuDeviceGetCount)
MOETUNE_REFUSED(cuDriverGetVersion)
MOETUNE_REFUSED(cuKernelGetAttribute)
MOETUNE_REFUSED(cuKernelSetAttribute)
MOETUNE_REFUSED(cuLaunchCooperativeKernel)
MOETUNE_REFUSED(cuLaunchKernel)
MOETUNE_REFUSED(cuLaunchKernelEx)
MOETUNE_REFUSED(cuLibraryLoadFromFile)
MOETUNE_REFUSED(cuLinkAddData)
MOETUNE_REFUSED(cuLinkComplete)
MOETUNE_REFUSED(cuLinkCreate)
MOETUNE_REFUSED(cuLinkDestroy)
MOETUNE_REFUSED(cuOccupancyMaxPotentialClusterSize)
MOETUNE_REFUSED(cuStreamGetCtx)

}  // extern "C"
