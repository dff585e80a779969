// CUDA's runtime as PyTorch and Transformer Engine call it, without a device: memory is address space that nothing is
// written to, streams and events are numbers, kernels are not launched. See README.md.
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
typedef struct {
  char* p;
  size_t n;
  int host;
} range;
static range ranges[65536];
static int num;
static size_t used;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static size_t capacity(void) {
  static size_t c;
  if (!c) {
    const char* e = getenv("FAKE_GIB");
    c = (size_t)((e ? atof(e) : 79.2) * (1ull << 30));
  }
  return c;
}
static void* take(size_t n, int host) {
  n = (n + 4095) & ~4095ull;
  pthread_mutex_lock(&mu);
  if (!host && used + n > capacity()) {
    pthread_mutex_unlock(&mu);
    return 0;
  }
  char* p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    pthread_mutex_unlock(&mu);
    return 0;
  }
  int i = 0;
  while (i < num && ranges[i].p) i++;
  if (i == num && num == 65536) abort();
  if (i == num) num++;
  ranges[i] = (range){p, n, host};
  if (!host) used += n;
  pthread_mutex_unlock(&mu);
  return p;
}
static void give(void* q) {
  if (!q) return;
  pthread_mutex_lock(&mu);
  for (int i = 0; i < num; i++)
    if (ranges[i].p == q) {
      munmap(q, ranges[i].n);
      if (!ranges[i].host) used -= ranges[i].n;
      ranges[i].p = 0;
      break;
    }
  pthread_mutex_unlock(&mu);
}
static int where(const void* q) {  // 0 unknown, 1 device, 2 host
  int r = 0;
  pthread_mutex_lock(&mu);
  for (int i = 0; i < num; i++)
    if (ranges[i].p && (char*)q >= ranges[i].p && (char*)q < ranges[i].p + ranges[i].n) {
      r = ranges[i].host ? 2 : 1;
      break;
    }
  pthread_mutex_unlock(&mu);
  return r;
}
static long launches;
// Kernels, copies and fills that were asked for, and functions of cuBLAS that launch one.
long fake_launches(void) { return launches; }
void fake_count(void) { launches++; }
static int capturing;
static unsigned long long capture_id = 1;
static __thread cudaError_t last;
cudaError_t cudaMalloc(void** p, size_t n) {
  *p = take(n ? n : 1, 0);
  return *p ? 0 : (last = cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) { return cudaMalloc(p, n); }
cudaError_t cudaFree(void* p) {
  give(p);
  return 0;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  give(p);
  return 0;
}
cudaError_t cudaMallocHost(void** p, size_t n) {
  *p = take(n ? n : 1, 1);
  return *p ? 0 : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned f) { return cudaMallocHost(p, n); }
cudaError_t cudaFreeHost(void* p) {
  give(p);
  return 0;
}
cudaError_t cudaHostRegister(void* p, size_t n, unsigned f) { return 0; }
cudaError_t cudaHostUnregister(void* p) { return 0; }
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  *t = capacity();
  *f = capacity() - used;
  return 0;
}
static void copy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  if (n > (1u << 22)) return;
  memmove(d, s, n);
}
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  copy(d, s, n, k);
  return 0;
}
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, enum cudaMemcpyKind k, cudaStream_t t) {
  launches++;
  copy(d, s, n, k);
  return 0;
}
cudaError_t cudaMemcpyPeerAsync(void* d, int a, const void* s, int b, size_t n, cudaStream_t t) { return 0; }
cudaError_t cudaMemcpyToSymbol(const void* y, const void* s, size_t n, size_t o, enum cudaMemcpyKind k) { return 0; }
cudaError_t cudaMemset(void* d, int v, size_t n) {
  if (n <= (1u << 22)) memset(d, v, n);
  return 0;
}
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t s) {
  launches++;
  return cudaMemset(d, v, n);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  int w = where(p);
  a->type = w == 1 ? cudaMemoryTypeDevice : w == 2 ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->devicePointer = w ? (void*)p : 0;
  a->hostPointer = w == 2 ? (void*)p : 0;
  return 0;
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return 0;
}
cudaError_t cudaGetDevice(int* n) {
  *n = 0;
  return 0;
}
cudaError_t cudaSetDevice(int n) { return 0; }
cudaError_t cudaDeviceSynchronize(void) { return 0; }
cudaError_t cudaDeviceCanAccessPeer(int* c, int a, int b) {
  *c = 0;
  return 0;
}
cudaError_t cudaDeviceEnablePeerAccess(int a, unsigned f) { return 0; }
cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) {
  snprintf(s, n, "0000:01:00.0");
  return 0;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* l, int* g) {
  *l = 0;
  *g = -5;
  return 0;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int d) {
  *p = (cudaMemPool_t)8;
  return 0;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return 0;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return 0;
}
cudaError_t cudaDeviceGetAttribute(int* v, enum cudaDeviceAttr a, int d) {
  switch (a) {
    case cudaDevAttrMultiProcessorCount:
      *v = 132;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *v = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *v = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      *v = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *v = 65535;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *v = 2048;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *v = 32;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *v = 49152;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *v = 232448;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *v = 233472;
      break;
    case cudaDevAttrWarpSize:
      *v = 32;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *v = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *v = 0;
      break;
    case cudaDevAttrL2CacheSize:
      *v = 52428800;
      break;
    case cudaDevAttrClockRate:
      *v = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *v = 2619000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *v = 5120;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *v = 65536;
      break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
      *v = 1;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *v = 0;
      break;
    case cudaDevAttrTextureAlignment:
      *v = 512;
      break;
    default:
      *v = 0;
  }
  return 0;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "NVIDIA H100 80GB HBM3");
  p->totalGlobalMem = capacity();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 9;
  p->multiProcessorCount = 132;
  p->l2CacheSize = 52428800;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlockOptin = 232448;
  p->concurrentKernels = 1;
  p->unifiedAddressing = 1;
  p->asyncEngineCount = 3;
  p->totalConstMem = 65536;
  p->memPitch = 2147483647;
  p->textureAlignment = 512;
  p->cooperativeLaunch = 1;
  p->memoryBusWidth = 5120;
  p->maxBlocksPerMultiProcessor = 32;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  return 0;
}
static long handle(void) {
  static long h = 0x1000;
  return __sync_add_and_fetch(&h, 16);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
  *s = (cudaStream_t)handle();
  return 0;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return cudaStreamCreate(s); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) { return cudaStreamCreate(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return 0; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return 0; }
cudaError_t cudaStreamQuery(cudaStream_t s) { return 0; }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  *p = 0;
  return 0;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) { return 0; }
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t c, void* d, unsigned f) {
  c(s, 0, d);
  return 0;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* d) {
  f(d);
  return 0;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  capturing = 1;

  capture_id++;
  return 0;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  capturing = 0;
  *g = (cudaGraph_t)handle();
  return 0;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus* st) {
  *st = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return 0;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus* st, unsigned long long* id,
                                     cudaGraph_t* g, const cudaGraphNode_t** d, const cudaGraphEdgeData** e,
                                     size_t* n) {
  *st = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = capture_id;
  if (g) *g = (cudaGraph_t)16;
  if (d) *d = 0;
  if (e) *e = 0;
  if (n) *n = 0;
  return 0;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* m) { return 0; }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long f) {
  *e = (cudaGraphExec_t)handle();
  return 0;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long f) {
  *e = (cudaGraphExec_t)handle();
  return 0;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { return 0; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return 0; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) { return 0; }
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char* p, unsigned f) { return 0; }
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* n, size_t* k) {
  if (!n) *k = 1;
  return 0;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = (cudaEvent_t)handle();
  return 0;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return 0; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return 0; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return 0; }
cudaError_t cudaEventQuery(cudaEvent_t e) { return 0; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return 0; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = 1;
  return 0;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = 90;
  a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = 232448;
  return 0;
}
cudaError_t cudaFuncSetAttribute(const void* f, enum cudaFuncAttribute a, int v) { return 0; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int b, size_t s, unsigned g) {
  *n = 2;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int b, size_t s) {
  *n = 2;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* n, const void* f, const cudaLaunchConfig_t* c) {
  *n = 16;
  return 0;
}
cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** a, size_t s, cudaStream_t t) {
  launches++;
  return 0;
}
cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 g, dim3 b, void** a, size_t s, cudaStream_t t) { return 0; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** a) {
  launches++;
  return 0;
}
int __cudaLaunchKernel(void* k, dim3 g, dim3 b, void** a, size_t s, void* t) {
  launches++;
  return 0;
}
int __cudaGetKernel(void** k, const void* f) {
  *k = (void*)16;
  return 0;
}
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, void* t) { return 0; }
int __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* s, void* t) {
  g->x = g->y = g->z = 1;
  *b = *g;
  *s = 0;
  *(void**)t = 0;
  return 0;
}
void** __cudaRegisterFatBinary(void* p) {
  static void* h[4];
  return h;
}
void __cudaRegisterFatBinaryEnd(void** h) {}
void __cudaUnregisterFatBinary(void** h) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
cudaError_t cudaGetSymbolAddress(void** p, const void* s) {
  static char* z;
  if (!z) z = take(1 << 20, 0);
  *p = z;
  return 0;
}
cudaError_t cudaGetLastError(void) {
  cudaError_t e = last;
  last = 0;
  return e;
}
cudaError_t cudaPeekAtLastError(void) { return last; }
const char* cudaGetErrorName(cudaError_t e) { return e == 2 ? "cudaErrorMemoryAllocation" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t e) { return e == 2 ? "out of memory" : "an error"; }
cudaError_t cudaProfilerStart(void) { return 0; }
cudaError_t cudaProfilerStop(void) { return 0; }
static int nothing(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* s, void** p, unsigned v, unsigned long long f,
                                             enum cudaDriverEntryPointQueryResult* r) {
  *p = (void*)nothing;
  if (r) *r = cudaDriverEntryPointSuccess;
  return 0;
}
cudaError_t cudaGetDriverEntryPoint(const char* s, void** p, unsigned long long f,
                                    enum cudaDriverEntryPointQueryResult* r) {
  *p = (void*)nothing;
  if (r) *r = cudaDriverEntryPointSuccess;
  return 0;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void* v) {
  *(unsigned long long*)v = 0;
  return 0;
}

// cuBLAS is asked for an algorithm, and one without a workspace is found: all of its result (an algorithm of 8 words,
// the workspace, status, waves, 4 reserved) is 0.
int cublasLtMatmulAlgoGetHeuristic(void* l, void* o, void* a, void* b, void* c, void* d, void* p, int n,
                                   unsigned long long* result, int* found) {
  memset(result, 0, 14 * sizeof *result);
  *found = 1;
  return 0;
}
