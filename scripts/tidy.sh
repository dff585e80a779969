#!/usr/bin/env bash
# clang-tidy's short list (.clang-tidy) over the project's sources, as errors. Needs a configured build folder (preset
# tidy; built it need not be). That builds sixteen sources as one, which reads their headers once.
#   scripts/tidy.sh BUILD_FOLDER [SOURCE...]     all sources that the build compiles, or those that hold the named ones
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:?the build folder}")
shift
folders='(kernels|profiler|engine|tuner|sweeps|reports)'
mapfile -t sources < <(sed -n 's|^ *"file": "\(.*\)",\{0,1\}$|\1|p' "$build/compile_commands.json" | sort -u |
  grep -E "^($PWD/$folders/.*\.cpp|$build/$folders/.*/unity_[0-9]+_cxx\.cxx)$")
if [ $# -gt 0 ]; then
  chosen=()
  for name in "$@"; do
    path=$(realpath "$name")
    for source in "${sources[@]}"; do
      if [ "$source" = "$path" ] || { [[ $source == *.cxx ]] && grep -qF "\"$path\"" "$source"; }; then chosen+=("$source"); fi
    done
  done
  mapfile -t sources < <(printf '%s\n' "${chosen[@]}" | sort -u)
fi
[ "${#sources[@]}" -gt 0 ] && [ -n "${sources[0]}" ] || { echo "tidy: no sources in $build/compile_commands.json"; exit 1; }
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
  2> >(grep -vE '^[0-9]+ warnings? generated|^$' >&2) && echo "tidy: ${#sources[@]} units are clean"
