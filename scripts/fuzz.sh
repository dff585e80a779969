#!/usr/bin/env bash
# Runs the fuzzers of a build folder for some seconds each, several at a time, and tells of each what it did:
#
#   scripts/fuzz.sh build/fuzz SECONDS JOBS [PARSER ...]
#
# Inputs start from tests/fuzz/corpus; new ones are kept in <build folder>/corpus, so that the next call goes on from
# them. An input that breaks a parser (a crash, a sanitizer's report, ten seconds, 2 GiB, an exception that is no
# base::Error) lies in <build folder>/findings, beside the log; then this fails.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2 jobs=$3
shift 3
parsers=("$@")
[ ${#parsers[@]} -gt 0 ] || mapfile -t parsers < <(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort)

# Of a parser: the sources whose words it knows, and folders with more files that it reads.
sources_of() {
  case $1 in
    kineto_json) echo profiler/import/kineto_*.cpp profiler/imported_trace.cpp ;;
    rocprof_json) echo profiler/import/rocprof_json.cpp profiler/import/range_steps.cpp ;;
    run_log) echo sweeps/runs/{line_forms,line_origin,log_blocks,failure_forms,out_of_memory,ended_processes,deepspeed_lines,echoed_config}.cpp ;;
    dialects) echo engine/spec/dialects/{concept_table,trait_table,bridge_options,command,shell,primus}.cpp engine/spec/plan_knobs.cpp ;;
    model_json) echo engine/spec/hf_*.cpp engine/spec/rope.cpp ;;
    hardware_json) echo engine/spec/hardware_spec.* ;;
    sweep_json) echo engine/spec/{sweep_spec,trial_spec,knobs}.* engine/spec/trial_fields.h ;;
    published_rows) echo sweeps/planning/{published_rows,release_defaults,row_flags,row_layout,row_recompute,row_software,row_words}.cpp engine/spec/hardware_names.cpp ;;
  esac
}
seeds_of() {
  case $1 in
    run_log) echo tests/golden/logs ;;
    dialects) echo tests/golden/dialects ;;
    model_json) echo engine/models ;;
    hardware_json) echo sweeps/hardware ;;
    sweep_json) echo sweeps/configs ;;
  esac
}

fuzz_one() {
  local build=$1 seconds=$2 parser=$3 status=0 options=()
  local log=$build/findings/$parser.log found=$build/findings/$parser words=$build/corpus/$parser.dict
  mkdir -p "$build/corpus/$parser" "$found"
  if [ -n "$(sources_of "$parser")" ]; then
    # shellcheck disable=SC2046
    grep -ohE '"[A-Za-z0-9_. :/=<>*|-]{2,40}"' $(sources_of "$parser") | sort -u >"$words"
    options+=("-dict=$words")
  fi
  "$build/bin/${parser}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="$found/" -print_final_stats=1 "${options[@]}" \
    "$build/corpus/$parser" "tests/fuzz/corpus/$parser" $(seeds_of "$parser") >"$log" 2>&1 || status=$?
  printf '%-16s %9s inputs, %6s places covered, %5s MiB, slowest %s s%s\n' "$parser" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")" "$(sed -n 's/^stat::slowest_unit_time_sec: *//p' "$log")" \
    "$([ $status = 0 ] || { grep -q 'run interrupted' "$log" && echo "; interrupted"; } || echo "; FOUND something: $log")"
  [ $status = 0 ]
}
export -f sources_of seeds_of fuzz_one
printf '%s\n' "${parsers[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$@"' _ "$build" "$seconds" {} ||
  { echo "fuzz.sh: what broke a parser is to be mended, and its input kept in tests/fuzz/corpus"; exit 1; }
