#!/usr/bin/env bash
# Everything that needs a GPU, in one go: tests of all kernels, of training and of CUPTI, the benchmarks, a model that
# fills the card, and sweeps that end in a report. Builds first where there is a build system; else takes the programs
# from the folder that BIN names. Goes on after a failure and names it at the end. Never touches the card's settings.
#
#   scripts/gpu-check.sh      results go to tests/bench/results: <gpu>.json (kernels), <gpu>-engine.json (the model that
#                             fills the card) and <gpu>.txt (everything that was printed); where $OUT is set also there,
#                             with the report of the sweeps
#
# Exit code: 0 all passed, 1 something failed, 20 there is no GPU (or no CUDA in the build).
set -uo pipefail
cd "$(dirname "$0")/.."
readonly NO_GPU=20
BIN=${BIN:-build/release/bin}
results=tests/bench/results
failed=()

say() { printf 'gpu-check: %s\n' "$*"; }

if ! { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1; }; then
  say "there is no GPU on this machine"
  exit $NO_GPU
fi
if [ -f build/release/build.ninja ] && command -v cmake >/dev/null && [ -z "${GPU_CHECK_NO_BUILD:-}" ]; then
  if ! cmake --build --preset release --target gpu_test gpu_bench cupti_test moetune moetune-rank; then
    say "the programs cannot be built (is nvcc there? see the README's GPU section)"
    exit $NO_GPU
  fi
fi
if ! [ -x "$BIN/gpu_test" ]; then
  say "no $BIN/gpu_test: this build has no CUDA backend"
  exit $NO_GPU
fi
mkdir -p "$results"
work=$(mktemp -d)
trap 'save; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
deadline=$((SECONDS + ${GPU_CHECK_SECONDS:-530}))

# What there is so far goes to its place after each part: a run that is cut off leaves the rest.
save() {
  local name
  name=$(sed -n 's/^ "gpu": "\(.*\)",*$/\1/p' "$work/bench.json" 2>/dev/null | tr ' /' '--' | tr -cd 'A-Za-z0-9._-')
  name=${name:-unknown-gpu}
  [ -f "$work/log.txt" ] || return 0
  cp "$work/log.txt" "$results/$name.txt"
  [ -s "$work/bench.json" ] && cp "$work/bench.json" "$results/$name.json"
  [ -s "$work/engine.json" ] && cp "$work/engine.json" "$results/$name-engine.json"
  if [ -n "${OUT:-}" ]; then
    cp "$results/$name"* "$OUT/"
    cp "$work"/report-*.html "$OUT/" 2>/dev/null
  fi
  return 0
}

# part NAME SECONDS COMMAND...: runs it within the time, at most what is left of all, and keeps its output.
part() {
  local name=$1 seconds=$2 start=$SECONDS left=$((deadline - SECONDS)) rc
  shift 2
  if [ "$left" -lt 5 ]; then failed+=("$name (no time was left)"); return; fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  say "== $name"
  timeout -k 5 "$seconds" "$@" 2>&1 | tee -a "$work/log.txt"
  rc=${PIPESTATUS[0]}
  case $rc in
    0) say "$name: ok in $((SECONDS - start)) s" ;;
    77) say "$name: there is no GPU"; exit $NO_GPU ;;
    124 | 137) failed+=("$name (took longer than $seconds s)") ;;
    *) failed+=("$name (exit code $rc)") ;;
  esac
  save
}

# Two cases trap on purpose; on a card a trap ends the whole process's use of the device, so they are left to the fake.
traps='!cuda_rows/rows_that_do_not_exist_stop_the_kernel:!cuda_rope/a_position_that_does_not_exist_stops_the_kernel'
part "kernels against the CPU" 80 "$BIN/gpu_test" "--run_test=$traps:!device_parity"
part "training against the CPU" 80 "$BIN/gpu_test" --run_test=device_parity --log_level=test_suite
part "CUPTI on the card" 30 "$BIN/cupti_test" '--run_test=on_a_gpu*:!on_a_gpu_counters' --log_level=message
part "benchmarks" 120 "$BIN/gpu_bench" "$work/bench.json"
full() {
  local rc=0
  "$BIN/moetune" trial sweeps/configs/single-gpu-full.json --db "$work/full.db" --quiet --format json --step-limit 70 \
    >"$work/engine.json" || rc=$?
  "$BIN/moetune" show --db "$work/full.db" 1 || rc=$?
  return $rc
}
export -f full
export BIN work
part "a model that fills the card" 80 bash -c full
# Virtual ranks, then one rank of a large layout, in one database; under two minutes.
part "a sweep on virtual ranks" 75 "$BIN/moetune" sweep sweeps/configs/single-gpu.json --db "$work/runs.db"
part "a sweep over a rank of 64" 45 "$BIN/moetune" sweep sweeps/configs/single-gpu-rank-of-64.json --db "$work/runs.db"
for sweep in 1 2; do
  part "report $sweep" 10 "$BIN/moetune" report "$work/runs.db" --sweep $sweep --out "$work/report-$sweep.html"
done

# Sampling counters may fix the clock rates while it lasts, so it is asked for and comes last.
if [ -n "${GPU_CHECK_COUNTERS:-}" ]; then
  part "hardware counters" 30 "$BIN/cupti_test" --run_test=on_a_gpu_counters --log_level=message
fi
say "results: $results"
if [ ${#failed[@]} -gt 0 ]; then
  for part in "${failed[@]}"; do say "FAILED: $part"; done
  exit 1
fi
say "everything passed"
