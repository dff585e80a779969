#!/usr/bin/env bash
# Formats the project's C++ files in place; with --check only names those that differ and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' |
  while IFS= read -r -d '' file; do [ -f "$file" ] && printf '%s\0' "$file"; done |
  xargs -0 -r -n 16 -P "$(nproc)" clang-format "${mode[@]}"
