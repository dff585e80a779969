#!/bin/bash
# A script as teams keep them: variables, arrays, a launcher, one command.
export CUDA_DEVICE_MAX_CONNECTIONS=32
export NCCL_NVLS_ENABLE=0
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"32"}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
PP=8; VPP=4

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr ${MASTER_ADDR:-localhost}
)
MODEL_ARGS="--num-layers 94 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 64 \
  --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm --swiglu \
  --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
  --position-embedding-type rope --rotary-base 1000000 --vocab-size 151936 \
  --hidden-dropout 0.0 --attention-dropout 0.0"
MOE_ARGS=(
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1536
    --moe-token-dispatcher-type flex   # DeepEP
    --moe-flex-dispatcher-backend deepep
    --moe-grouped-gemm --moe-permute-fusion
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3
)
if [ -n "${WANDB_API_KEY}" ]; then
    echo "logging to $WANDB_PROJECT" > /dev/null
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    $MODEL_ARGS "${MOE_ARGS[@]}" \
    --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size $PP \
    --pipeline-model-parallel-layout 'Et*2|(t*3|)*30t*2L' \
    --expert-model-parallel-size 32 --expert-tensor-parallel-size=1 \
    --micro-batch-size 1 --global-batch-size 1024 --seq-length 4096 \
    --bf16 --fp8-format e4m3 --fp8-recipe blockwise \
    --recompute-granularity selective --recompute-modules moe_act layernorm \
    --cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 \
    --lr 1e-4 --data-path "$DATA_PATH/my data" 2>&1 | tee train.log
