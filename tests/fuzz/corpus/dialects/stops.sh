#!/bin/bash
#SBATCH -N2
f() { local TP=1 A; [ -f x ] && return 1; for i in 1 2; do for j in 3 4; do continue 2; done; break; done; TP=$j; }
TP=2; ((TP *= 2, A = TP++)); let "B = TP" C=--A; (exit 1) || { TP=8; exit 0; } & wait
echo x | while read y; do break; done; f | tee log
if [[ $TP =~ ^4 ]]; then exec srun -n8 pretrain_gpt.py --tensor-model-parallel-size $TP --swiglu --norm-epsilon 1e-6 --attention-backend fused; fi
