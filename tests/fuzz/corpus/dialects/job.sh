#!/bin/bash
#SBATCH -N 4
NODES=${SLURM_NNODES:-"4"}; : ${TP:=2}
declare -A SIZE=([8b]=32 [70b]=80)
ARGS=(--num-layers ${SIZE[8b]} --hidden-size $((16 * 256)))
[[ -z "$1" || $NODES -gt 1 ]] && ARGS+=("--bf16")
if [ -f x ]; then P=1; elif (( NODES == 4 )); then P=4; else exit 1; fi
case $MODEL in 8b|7b) L=1 ;; *) L=2 ;; esac
while [ $# -gt 0 ]; do shift; done
for i in 1 2; do echo ${i%.*}; done
train() { torchrun --nproc_per_node 8 --nnodes $NODES "$@"; }
train pretrain_gpt.py "${ARGS[@]}" --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${P:-1} $EXTRA
sbatch <<EOT
srun bash -c "echo \${X:+$L}"
EOT
