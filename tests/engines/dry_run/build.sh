#!/usr/bin/env bash
# Builds libfakecuda.so and a driver beside it: build.sh OUT_FOLDER. PY names the Python whose torch and Transformer
# Engine are asked which functions they need; CUDA_HOME where CUDA's headers are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
cd "$out"
gcc -fPIC -O1 -w -I"${CUDA_HOME:-/usr/local/cuda}/include" -c "$here/fake_cuda.c" -o fake_cuda.o
libraries=$("${PY:-python3}" - <<'PYTHON'
import glob, importlib.util, os
for name in ("torch", "transformer_engine"):
    root = os.path.dirname(importlib.util.find_spec(name).origin)
    print("\n".join(glob.glob(root + "/lib/lib*cuda*.so") + glob.glob(root + "/lib/libtorch_*.so") +
                    glob.glob(root + "/wheel_lib/*.so") + glob.glob(root + "/../transformer_engine_torch*.so") +
                    glob.glob(root + "/lib/libcaffe2_nvrtc.so")))
PYTHON
)
needed() { for library in $libraries; do nm -D --undefined-only "$library"; done | awk '{print $2}' | sed 's/@.*//' |
  grep -E "$1" | sort -u; }
nm --defined-only fake_cuda.o | awk '{print $3}' | sort -u >have.txt
# What they need of the runtime and of cuBLAS beside that returns 0; what makes a handle makes one.
{
  echo '#include <string.h>'
  echo 'void fake_count(void);'
  needed '^(cuda[A-Z]|__cuda|cublas)' | comm -23 - have.txt | while read -r name; do
    case $name in
      cublasCreate_v2 | cublasLt*Create) echo "int $name(void** h) { static char z[4096]; *h = z; return 0; }" ;;
      cublasGetMathMode | cublasGetPointerMode_v2) echo "int $name(void* h, int* m) { *m = 0; return 0; }" ;;
      cublasLtGetVersion) echo "unsigned long $name(void) { return 130100; }" ;;
      cublasGetStatusString) echo "const char* $name(int e) { return \"status\"; }" ;;
      cublasLt*Init_internal) echo "int $name(void* d, unsigned long n) { memset(d, 0, n); return 0; }" ;;
      *Matmul | *[gG]emm*) echo "int $name() { fake_count(); return 0; }" ;;
      *) echo "int $name() { return 0; }" ;;
    esac
  done
} >rest.c
gcc -fPIC -O1 -w -c rest.c -o rest.o
gcc -shared -o libfakecuda.so fake_cuda.o rest.o -lpthread
{ needed '^cu[A-Z]' | grep -vE '^cu(da|blas|rand|fft|solver|sparse|dnn)'; echo cuInit; } | sort -u |
  sed 's/.*/int &() { return 0; }/' >driver.c
gcc -w -shared -fPIC -Wl,-soname,libcuda.so.1 driver.c -o libcuda.so.1

