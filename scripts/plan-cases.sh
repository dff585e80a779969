#!/usr/bin/env bash
# The cases of docs/planner.md, planned: a page and a text of each, in FOLDER (default out/cases). MOETUNE names another
# program than build/release/bin/moetune.
#   scripts/plan-cases.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
MOETUNE=${MOETUNE:-build/release/bin/moetune}
OUT=${1:-out/cases}
mkdir -p "$OUT"

# page NAME OPTION...: exit code 1 says that nothing fits, which is an answer, too.
page() {
  local name=$1
  shift
  "$MOETUNE" plan "$@" --report "$OUT/$name.html" > "$OUT/$name.txt" || [ $? -eq 1 ]
  echo "$OUT/$name.html"
}

page qwen3-30b --model qwen3-30b-a3b --hardware h100-80g --gpus 16

QWEN35=(--model qwen3.5-35b-a3b --hardware h100-80g --gpus 32 --seq 131072 --gbs 64)
page qwen3.5-35b-128k "${QWEN35[@]}"
page qwen3.5-35b-128k-uneven "${QWEN35[@]}" --imbalance 2.5

DEEPSEEK=(--model deepseek-v3 --hardware h100-80g)
OFFLOAD=(--gbs 64 --fix precision=fp8-blockwise --fix optimizer_offload_ratio=1)
STAGES=(--fix tp=1 --fix ep=32 --fix pp=8 --fix vpp=4)
page deepseek-v3-128k "${DEEPSEEK[@]}" --gpus 256 --seq 131072 "${OFFLOAD[@]}"
page deepseek-v3-128k-published "${DEEPSEEK[@]}" --gpus 256 --seq 131072 "${OFFLOAD[@]}" "${STAGES[@]}" --fix cp=32
page deepseek-v3-256k "${DEEPSEEK[@]}" --gpus 512 --seq 262144 "${OFFLOAD[@]}"
page deepseek-v3-256k-published "${DEEPSEEK[@]}" --gpus 512 --seq 262144 "${OFFLOAD[@]}" "${STAGES[@]}" --fix cp=64

QWEN235=(--model qwen3-235b-a22b --hardware gb200-nvl72 --gpus 128 --seq 131072 --gbs 256)
# The published layout, by the flags of Megatron-LM. Embedding and loss count as layers.
PUBLISHED="torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --context-parallel-size 4
  --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|(tt|)*46tL' --expert-model-parallel-size 32
  --expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 1 --global-batch-size 256 --seq-length 131072
  --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --moe-grouped-gemm
  --moe-permute-fusion --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep
  --recompute-granularity selective --recompute-modules moe_act layernorm --cuda-graph-impl transformer_engine
  --cuda-graph-modules attn moe_router moe_preprocess"
PUBLISHED=${PUBLISHED//$'\n'/}  # a line is a command
page qwen3-235b-128k "${QWEN235[@]}"
page qwen3-235b-128k-tp4-cp4 "${QWEN235[@]}" --fix tp=4 --fix cp=4
page qwen3-235b-128k-tp1-cp16 "${QWEN235[@]}" --fix tp=1 --fix cp=16
page qwen3-235b-128k-published "${QWEN235[@]}" --against "$PUBLISHED"
page qwen3-235b-128k-published-mxfp8 "${QWEN235[@]}" --against "$PUBLISHED --fp8-format e4m3 --fp8-recipe mxfp8"

QWEN_NEXT=(--model qwen3-next-80b-a3b --hardware gb200-nvl72 --gpus 64)
page qwen3-next-8k "${QWEN_NEXT[@]}" --seq 8192 --gbs 1024
page qwen3-next-32k "${QWEN_NEXT[@]}" --seq 32768 --gbs 256
page qwen3-next-64k "${QWEN_NEXT[@]}" --seq 65536 --gbs 128
