#!/usr/bin/env bash
# Gathers what scripts/gpu-check.sh runs, with the libraries it needs besides CUDA's, into build/gpu-bundle.tar.xz, for a
# GPU machine without a compiler. There: tar xf build/gpu-bundle.tar.xz, then
# LD_LIBRARY_PATH=$PWD/gpu-bundle:<folders of CUPTI, cuDNN, cuBLAS, NCCL and NVRTC>:$LD_LIBRARY_PATH
# BIN=$PWD/gpu-bundle GPU_CHECK_NO_BUILD=1 scripts/gpu-check.sh
# (what LD_LIBRARY_PATH was before may be how the driver's library is found).
# Where that machine's processor is another one, configure with -DMOETUNE_CPU_ARCH=x86-64-v3 first.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=build/gpu-bundle
if grep -q '^MOETUNE_CPU_ARCH:STRING=native$' build/release/CMakeCache.txt; then
  echo "gpu-bundle: built for this processor only: on another one its programs may end with SIGILL" >&2
fi
rm -rf $bundle && mkdir -p $bundle
for program in gpu_test gpu_bench cupti_test moetune moetune-rank; do
  cp build/release/bin/$program $bundle/
  strip $bundle/$program
  # Everything but the C and C++ run time, the driver and NVIDIA's libraries, which the machine has its own of.
  ldd build/release/bin/$program | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
    grep -Ev '/(libc|libm|libdl|librt|libutil|libpthread|libstdc\+\+|libgcc_s|libcuda|libcupti|libcudnn|libnvrtc|libcublas|libnccl)[.-]' |
    while read -r library; do [ -e "$bundle/${library##*/}" ] || cp -L "$library" $bundle/; done
done
tar -C build -cJf $bundle.tar.xz gpu-bundle
du -sh $bundle $bundle.tar.xz
