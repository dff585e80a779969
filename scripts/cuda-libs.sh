#!/usr/bin/env bash
# Fetches the CUDA libraries that the CUDA backend needs and this system lacks, and says what that is before it does.
#
#   scripts/cuda-libs.sh            fetch what is missing (`make cuda-libs`)
#   scripts/cuda-libs.sh --check    only say what is missing; leaves with 1 when something is
#
# Where nvcc is found but cuBLASLt, cuDNN, NCCL, NVRTC, CUTLASS or cudnn-frontend is not, their headers and libraries are
# taken from NVIDIA's own wheels (pinned in cmake/Cuda.cmake, which also does the looking). They go to
# ~/.cache/moetune/cuda-libs, outside the build folder, so that they are fetched once; MOETUNE_CUDA_LIBS names another
# folder. A part counts as there only when all its files are, so that a fetch may be interrupted at any time. With
# everything in place, and without nvcc, it does nothing and returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'cuda-libs: %s\n' "$*"; }

# Sets nvcc, needs, cache (see the head of Cuda.cmake) and the arrays names, wheels, sizes, files of the missing parts.
look() {
  local line
  names=() wheels=() sizes=() files=() nvcc='' needs='' cache=''
  while read -r -a line; do
    case ${line[0]:-} in
      nvcc) nvcc=${line[1]:-} ;;
      needs) needs=${line[1]} ;;
      cache) cache=${line[*]:1} ;;
      part) names+=("${line[1]}") wheels+=("${line[2]}") sizes+=("${line[3]}") files+=("${line[*]:4}") ;;
    esac
  done < <(cmake -P cmake/Cuda.cmake)
  [ -n "$cache" ] || { say "cmake/Cuda.cmake could not be run (is cmake installed?)"; exit 1; }
}

# unpack WHEEL FOLDER PATTERN...: the files that match, and the wheel's own list of files last: that is the mark of
# "complete". Each file appears under its name only when it is whole.
unpack() {
  python3 - "$@" <<'PYTHON'
import fnmatch, os, shutil, sys, zipfile

wheel, folder, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
with zipfile.ZipFile(wheel) as archive:
    names = [n for n in archive.namelist() if not n.endswith("/")]
    wanted = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    info = [n for n in names if n.split("/")[0].endswith(".dist-info")]
    for pattern in patterns:
        if not fnmatch.filter(wanted, pattern):
            sys.exit(f"{wheel} holds nothing like {pattern}")
    for name in wanted + sorted(info, key=lambda n: n.endswith("/RECORD")):
        path = os.path.normpath(os.path.join(folder, name))
        if not path.startswith(os.path.normpath(folder) + os.sep):
            sys.exit(f"{wheel} holds a file outside of its folder: {name}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(name) as source, open(path + ".part", "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(path + ".part", path)
PYTHON
}

check=0
case ${1:-} in
  '') ;;
  --check) check=1 ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

look
if [ -z "$nvcc" ]; then
  say "no nvcc here: nothing to fetch, moetune is built without the CUDA backend"
  exit 0
fi
if [ ${#names[@]} = 0 ]; then
  say "everything is in place, nothing to fetch"
  exit 0
fi
say "nvcc $nvcc is here; missing beside it: ${names[*]}"
[ $check = 0 ] || exit 1
if [ "${nvcc%%.*}" != "$needs" ]; then
  say "the wheels are for CUDA $needs; please install these libraries for CUDA ${nvcc%%.*} another way (the build goes on without)"
  exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
  say "fetching needs python3 with pip, please install it (Debian, Ubuntu: python3-pip); the build goes on without these libraries"
  exit 0
fi

mkdir -p "$cache"
if command -v flock >/dev/null; then  # a second run waits for the first and finds its work done
  exec 9>"$cache/.lock"
  flock 9
  look
  [ ${#names[@]} -gt 0 ] || { say "everything is in place, nothing to fetch"; exit 0; }
fi
total=0
for size in "${sizes[@]}"; do total=$((total + size)); done
say "fetching NVIDIA's wheels with pip, $total MB in all, into $cache"
download=$cache/.download
rm -rf "$download"  # what an interrupted run left
trap 'rm -rf "$download"' EXIT
mkdir -p "$download"
for i in "${!names[@]}"; do
  say "  ${wheels[i]} (${sizes[i]} MB)"
  # Only headers are used of the one wheel that is made for a version of Python, so any will do.
  python3 -m pip download -qq --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
    --implementation cp --python-version 3.11 --abi cp311 --dest "$download" "${wheels[i]}" ||
    { say "${wheels[i]} could not be fetched; run this again later, or set MOETUNE_CUDA_LIBS to a folder that has it"; exit 1; }
  read -r -a patterns <<<"${files[i]}"
  unpack "$download"/*.whl "$cache" "${patterns[@]}"
  rm -f "$download"/*.whl
done
look
if [ ${#names[@]} -gt 0 ]; then
  say "still missing after all this: ${names[*]}"
  exit 1
fi
say "done: $(du -sh "$cache" | cut -f1) in $cache"
