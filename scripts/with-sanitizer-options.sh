#!/usr/bin/env bash
# Runs a command with the options that the sanitizer builds are tested with.
set -euo pipefail
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="second_deadlock_stack=1:${TSAN_OPTIONS:-}"
exec "$@"
