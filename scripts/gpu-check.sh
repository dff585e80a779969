#!/usr/bin/env bash
# Everything that needs a GPU, in one go: tests of all kernels, of training, of CUPTI and of NCCL, the benchmarks, a model
# that fills the card, and sweeps that end in a report. Builds first where there are make and cmake; else, and where BIN
# names a folder, takes the programs that are there. Goes on after a failure and names it at the end. Never touches the
# card's settings.
#
#   scripts/gpu-check.sh      results go to tests/bench/results: <gpu>.json (kernels), <gpu>-engine.json (the model that
#                             fills the card) and <gpu>.txt (everything that was printed); where $OUT is set also there,
#                             with the reports of the sweeps
#   GPU_CHECK_SECONDS=530     for everything after the build; a part that has no time left counts as failed
#   GPU_CHECK_NO_BUILD=1      no build, also where there could be one
#   GPU_CHECK_COUNTERS=1      the hardware counters, too; they may fix clock rates while they last
#
# Exit code: 0 everything passed; 1 something failed, named in the last lines; 2 nothing was checked: the programs cannot
# be built, or are not there; 20 there is no GPU (looked for before anything is fetched or built).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
readonly NOT_CHECKED=2 NO_GPU=20
results=tests/bench/results
failed=()

say() { printf 'gpu-check: %s\n' "$*"; }

if ! { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1; }; then
  say "there is no GPU on this machine"
  exit $NO_GPU
fi

# --- the programs -------------------------------------------------------------------------------------------------------

programs=(gpu_test gpu_bench cupti_test moetune moetune-rank)
if [ -z "${GPU_CHECK_NO_BUILD:-}${BIN:-}" ] && command -v make >/dev/null; then
  export PATH=$PWD/.deps/cmake/cmake/data/bin:$PATH
  make --no-print-directory cuda-libs || say "the CUDA libraries could not be fetched: going on without them"
  if ! { make --no-print-directory build/release/build.ninja &&
    cmake --build --preset release --target "${programs[@]}"; }; then
    say "the programs cannot be built (is nvcc there? see docs/gpu.md)"
    exit $NOT_CHECKED
  fi
fi
BIN=${BIN:-build/release/bin}
# A bundle has programs alone: models, hardware and texts are those of the checkout.
[ -d "$BIN/../share/moetune" ] || export MOETUNE_SHARE=${MOETUNE_SHARE:-$PWD/sweeps}
for program in "${programs[@]}"; do
  if ! [ -x "$BIN/$program" ]; then
    say "there is no $BIN/$program: not built, or without CUDA (see docs/gpu.md)"
    exit $NOT_CHECKED
  fi
done

# --- parts and their results --------------------------------------------------------------------------------------------

mkdir -p "$results"
work=$(mktemp -d)
trap 'save; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
deadline=$((SECONDS + ${GPU_CHECK_SECONDS:-530}))

# A result without colours, places on this machine and what only says that a test begins.
plain() {
  sed -e 's/\x1b\[[0-9;]*m//g' -e "s#$PWD/##g" -e "s#$work/##g" -e '/: Entering test /d' \
    -e "s/\"host\": \"$(uname -n)\"/\"host\": \"\"/" -e "s/host $(uname -n),/host,/g" "$1"
}

# What there is so far goes to its place after each part: a run that is cut off leaves the rest.
save() {
  local name
  name=$(sed -n 's/^ "gpu": "\(.*\)",*$/\1/p' "$work/bench.json" 2>/dev/null | tr ' /' '--' | tr -cd 'A-Za-z0-9._-')
  name=${name:-unknown-gpu}
  [ -f "$work/log.txt" ] || return 0
  plain "$work/log.txt" >"$results/$name.txt"
  [ -s "$work/bench.json" ] && plain "$work/bench.json" >"$results/$name.json"
  [ -s "$work/engine.json" ] && plain "$work/engine.json" >"$results/$name-engine.json"
  # Until the benchmarks have said which GPU it is.
  [ "$name" = unknown-gpu ] || rm -f "$results/unknown-gpu.txt" ${OUT:+"$OUT/unknown-gpu.txt"}
  if [ -n "${OUT:-}" ]; then
    mkdir -p "$OUT"
    cp "$results/$name.txt" "$OUT/"
    [ -s "$work/bench.json" ] && cp "$results/$name.json" "$OUT/"
    [ -s "$work/engine.json" ] && cp "$results/$name-engine.json" "$OUT/"
    cp "$work"/report-*.html "$OUT/" 2>/dev/null
    # The traces themselves; what is larger than 15 MB would not be taken back from some machines.
    for name in full runs; do
      [ -s "$work/$name.db" ] && [ "$work/$name.db" -nt "$OUT/$name.db.gz" ] || continue
      gzip -c "$work/$name.db" >"$OUT/$name.db.gz"
      [ "$(stat -c %s "$OUT/$name.db.gz")" -lt 15000000 ] || rm -f "$OUT/$name.db.gz"
    done
  fi
  return 0
}

note() { say "$*" | tee -a "$work/log.txt"; }

problem() {
  note "FAILED: $*"
  failed+=("$*")
}

# part NAME SECONDS COMMAND...: runs it within the time, at most what is left of all, and keeps its output. Not through a
# pipe: that would wait for whatever still holds its other end, such as a process that hangs in the driver and cannot be
# killed. Such a one is left behind.
part() {
  local name=$1 seconds=$2 start=$SECONDS left=$((deadline - SECONDS)) rc=137 pid shown
  shift 2
  if [ "$left" -lt 5 ]; then problem "$name (no time was left)"; return; fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  note "== $name"
  : >"$work/part.txt"
  timeout -k 5 "$seconds" "$@" </dev/null >"$work/part.txt" 2>&1 &
  pid=$!
  tail -n +1 -s 0.2 --pid=$pid -f "$work/part.txt" 2>/dev/null &
  shown=$!
  while kill -0 $pid 2>/dev/null && [ $((SECONDS - start)) -lt $((seconds + 10)) ]; do sleep 0.2; done
  if kill -0 $pid 2>/dev/null; then
    kill $shown 2>/dev/null
    disown $pid
    note "$name: cannot be ended, and is left behind"
  else
    wait $pid
    rc=$?
  fi
  wait $shown 2>/dev/null
  cat "$work/part.txt" >>"$work/log.txt"
  case $rc in
    0) note "$name: ok in $((SECONDS - start)) s" ;;
    77) note "$name: there is no GPU"; exit $NO_GPU ;;
    124 | 137) problem "$name (took longer than $seconds s)" ;;
    *) problem "$name (exit code $rc)" ;;
  esac
  save
}

# trials DATABASE SWEEP: number, status and wall of each trial, a line each. Its JSON has one key a line, in order.
trials() {
  "$BIN/moetune" ls --db "$1" --sweep "$2" --format json | awk '
    function value() { sub(/^[^:]*: /, ""); gsub(/[",]/, ""); return $0 }
    /^    "id": /     { id = value() }
    /^    "status": / { status = value() }
    /^    "wall": /   { print id, status, value() }'
}

# check_trials NAME DATABASE SWEEP: no trial has ended by a fault, and each that was to be traced has a whole trace and a
# wall. A sweep goes on without one, and so it would be seen nowhere.
check_trials() {
  local name=$1 db=$2 sweep=$3 id status wall details trace_note num_traced=0 ended=() wall_less=() noted=() first_note=
  [ -f "$db" ] || { problem "traces of $name: there is no database"; return; }
  while read -r id status wall; do
    case $status in
      ok) ;;
      wrong | failed | crashed | hung) ended+=("$id '$status'"); continue ;;
      *) continue ;;
    esac
    details=$("$BIN/moetune" show --db "$db" --format json "$id") || { ended+=("$id not shown"); continue; }
    grep -q '^    "num_traced_steps": [1-9]' <<<"$details" || continue
    grep -q '^    "trace": "none"' <<<"$details" && continue
    num_traced=$((num_traced + 1))
    [ "$wall" != null ] || wall_less+=("$id")
    trace_note=$(sed -n 's/^    "trace_note": "\(.*\)",*$/\1/p' <<<"$details")
    [ -n "$trace_note" ] || continue
    noted+=("$id")
    first_note=${first_note:-$trace_note}
  done < <(trials "$db" "$sweep")
  note "$name: $num_traced traced trials looked at"
  [ ${#ended[@]} = 0 ] || problem "$name: trials that ended by a fault: ${ended[*]}"
  [ ${#wall_less[@]} = 0 ] || problem "$name: ok, but traced without records, hence no wall: trials ${wall_less[*]}"
  [ ${#noted[@]} = 0 ] || problem "$name: traces of trials ${noted[*]} are not whole: $first_note"
  [ $num_traced -gt 0 ] || problem "$name: no trial that is ok has been traced"
  save
}

# --- NCCL ---------------------------------------------------------------------------------------------------------------

# nccl_spec RANKS COMMUNICATOR LOSSES: a small training as a trial file.
nccl_spec() {
  local layout=''
  [ "$1" -lt 2 ] || layout='"data_parallel_size": 2, "expert_model_parallel_size": 2,'
  [ "$1" -lt 4 ] || layout+='"pipeline_model_parallel_size": 2,'
  cat <<JSON
{"model": {"model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 512,
  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 8,
  "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": true, "max_position_embeddings": 1024,
  "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02},
 "hardware": {"name": "this machine", "num_nodes": 1, "devices_per_node": $1, "memory_bytes": 8000000000,
  "peak_flops_per_s": 1e14, "memory_bytes_per_s": 1e12, "intra_node": {"latency_ns": 10000, "bytes_per_s": 1e11},
  "inter_node": {"latency_ns": 10000, "bytes_per_s": 1e11}, "launch_ns": 4000, "graph_launch_ns": 12000, "sync_ns": 8000,
  "kernel_floor_ns": 3000},
 "backend": "cuda", "communicator": "$2", "dtype": "f32", "data_path": "$PWD/README.md",
 "num_warmup_steps": 2, "num_steps": 6, "num_traced_steps": 1, "reference_tolerance": 5e-4, "reference_loss": [$3],
 "training": {"global_batch_size": 8, "seq_length": 256, "lr": 0.004, "aux_loss_coeff": 0.01, "z_loss_coeff": 0.001},
 "knobs": {$layout "micro_batch_size": 1}}
JSON
}

# nccl_trial RANKS COMMUNICATOR LOSSES: runs it; its JSON is printed.
nccl_trial() {
  local base=$work/nccl-$1-$2
  nccl_spec "$@" >"$base.json"
  "$BIN/moetune" trial "$base.json" --db "$base.db" --step-limit 25 --quiet --format json
}

# nccl RANKS: the training by virtual ranks on one GPU, then by processes over NCCL, one for each GPU, which compare their
# losses with the former.
nccl() {
  local ranks=$1 trial losses
  trial=$(nccl_trial "$ranks" threads '') || {
    echo "the training by virtual ranks has failed:"
    grep -E '^  "(status|reason)"' <<<"$trial"
    return 1
  }
  losses=$(sed -n 's/^      "loss": \([^,]*\),*$/\1/p' <<<"$trial" | paste -sd,)
  if [ "$(tr ',' '\n' <<<"$losses" | grep -c '^[0-9]')" != 9 ]; then
    echo "no 9 losses of virtual ranks: '$losses'"
    return 1
  fi
  trial=$(nccl_trial "$ranks" nccl "$losses") || {
    if grep -q 'has no NCCL' <<<"$trial"; then
      rm -f "$work/nccl-$ranks-nccl.db"
      echo "skipped: there is no NCCL in this build"
      return 0
    fi
    echo "the training over NCCL has failed:"
    grep -E '^  "(status|reason)"' <<<"$trial"
    return 1
  }
  echo "losses over NCCL are those of virtual ranks: $losses"
}

# nccl_part RANKS SECONDS
nccl_part() {
  part "NCCL, $1 rank(s)" "$2" bash -c "nccl $1"
  [ ! -f "$work/nccl-$1-nccl.db" ] || check_trials "NCCL, $1 rank(s)" "$work/nccl-$1-nccl.db" 1
}

num_gpus() {
  if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .
  else
    find /dev -maxdepth 1 -name 'nvidia[0-9]*' | grep -c .
  fi
}

# --- the checks ---------------------------------------------------------------------------------------------------------

full() {
  local rc=0
  "$BIN/moetune" trial sweeps/configs/single-gpu-full.json --db "$work/full.db" --quiet --format json --step-limit 70 \
    >"$work/engine.json" || rc=$?
  "$BIN/moetune" show --db "$work/full.db" 1 || rc=$?
  return $rc
}
export -f full nccl nccl_spec nccl_trial
export BIN work

{
  "$BIN/moetune" --version
  date -u +%FT%TZ
  sed -n '1{s/ *([^)]*) *$//;p}' /proc/driver/nvidia/version
  nvidia-smi -L | sed "s, (UUID.*,,"
} 2>/dev/null | tee "$work/log.txt"

# Two cases trap on purpose; on a card a trap ends the whole process's use of the device, so they are left to the fake.
traps='!cuda_rows/rows_that_do_not_exist_stop_the_kernel:!cuda_rope/a_position_that_does_not_exist_stops_the_kernel'
# A process each: an error of the device stays until its process ends, and would fail all that comes after it.
part "own kernels against the CPU" 60 "$BIN/gpu_test" "--run_test=cuda_*:$traps" --log_level=test_suite
part "GEMM and grouped GEMM against the CPU" 45 "$BIN/gpu_test" \
  "--run_test=gpu_backend:gpu_backend_grouped" --log_level=test_suite
part "attention against the CPU" 75 "$BIN/gpu_test" --run_test=gpu_backend_attention --log_level=test_suite
part "training against the CPU" 60 "$BIN/gpu_test" \
  '--run_test=device_parity:!device_parity/mixed_precision_stays_near' --log_level=test_suite
# Every rank makes plans of its own in cuDNN, which take some 0.4 s each.
part "training in bf16 against the CPU" 60 "$BIN/gpu_test" --run_test=device_parity/mixed_precision_stays_near \
  --log_level=test_suite
part "CUPTI on the card" 30 "$BIN/cupti_test" '--run_test=on_a_gpu*:!on_a_gpu_counters' --log_level=message
# One rank alone starts NCCL, adds up over itself and ends; data moves where there are several GPUs.
nccl_part 1 30
gpus=$(num_gpus)
if [ "$gpus" -ge 4 ]; then
  nccl_part 4 40
elif [ "$gpus" -ge 2 ]; then
  nccl_part 2 40
else
  note "NCCL between GPUs: skipped, it needs two and this machine shows $gpus"
fi
part "benchmarks" 120 "$BIN/gpu_bench" "$work/bench.json"
part "a model that fills the card" 80 bash -c full
check_trials "a model that fills the card" "$work/full.db" 1
# Virtual ranks, then one rank of a large layout, in one database; under two minutes.
part "a sweep on virtual ranks" 75 "$BIN/moetune" sweep sweeps/configs/single-gpu.json --db "$work/runs.db"
check_trials "a sweep on virtual ranks" "$work/runs.db" 1
part "a sweep over a rank of 64" 60 "$BIN/moetune" sweep sweeps/configs/single-gpu-rank-of-64.json --db "$work/runs.db"
check_trials "a sweep over a rank of 64" "$work/runs.db" 2
for sweep in 1 2; do
  part "report $sweep" 10 "$BIN/moetune" report "$work/runs.db" --sweep $sweep --out "$work/report-$sweep.html"
done

# Sampling counters may fix the clock rates while it lasts, so it is asked for and comes last.
if [ -n "${GPU_CHECK_COUNTERS:-}" ]; then
  part "hardware counters" 30 "$BIN/cupti_test" --run_test=on_a_gpu_counters --log_level=message
fi
note "results: $results"
if [ ${#failed[@]} -gt 0 ]; then
  note "${#failed[@]} checks have failed:"
  for name in "${failed[@]}"; do note "FAILED: $name"; done
  exit 1
fi
note "everything passed"
