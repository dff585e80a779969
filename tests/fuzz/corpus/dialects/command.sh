TP=2 PP='4'
export CUDA_DEVICE_MAX_CONNECTIONS=1
ARGS=(--num-layers 32 --hidden-size 4096)
torchrun --nproc_per_node 8 --nnodes ${NODES:-4} pretrain_gpt.py "${ARGS[@]}" \
 --tensor-model-parallel-size $TP --pipeline-model-parallel-size "$PP" --pipeline-model-parallel-layout 'Et*3|(tt|)*2tL' --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 > log 2>&1 && echo $(date)
