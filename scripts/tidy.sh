#!/usr/bin/env bash
# clang-tidy's short list (.clang-tidy) over the project's sources, as errors. Needs a configured build folder
# that compiles every source by itself (preset tidy; built it need not be).
#   scripts/tidy.sh BUILD_FOLDER [SOURCE...]     all sources that the build compiles, or those named
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?the build folder}
shift
if [ $# -eq 0 ]; then
  mapfile -t known < <(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",\{0,1\}$|\1|p" "$build/compile_commands.json" | sort -u)
  mapfile -t sources < <(printf '%s\n' "${known[@]}" | grep -E '^(kernels|profiler|engine|tuner|sweeps|reports)/.*\.cpp$')
else
  sources=("$@")
fi
[ ${#sources[@]} -gt 0 ] || { echo "tidy: no sources in $build/compile_commands.json"; exit 1; }
# Tests compile some sources a second time, against fakes of the vendors' headers that clang cannot read: those
# commands are left out.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
awk '
  /^[{]/ { entry = ""; is_open = 1 }
  is_open { line = $0; if (line ~ /^[}]/) line = "}"; entry = entry line "\n" }
  /^[}]/ { if (entry !~ /tests\/fakes\//) { printf "%s%s", separator, entry; separator = "," } is_open = 0 }
  BEGIN { print "[" } END { print "]" }' "$build/compile_commands.json" \
  >"$commands/compile_commands.json"
# The product's C++ sources: Debian's clang 14 knows neither this CUDA nor nvcc's flags, and does not take the structured
# bindings that the tests' lambdas capture (C++20).
# The build's flags are g++'s: clang need not know them all, and its own warnings are not this list's business. The
# count of suppressed warnings of system headers is noise; everything else is shown.
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$commands" --quiet \
  --extra-arg=-Wno-error --extra-arg=-Wno-unknown-warning-option \
  2> >(grep -vE '^[0-9]+ warnings? generated|^$' >&2) && echo "tidy: ${#sources[@]} files are clean"
