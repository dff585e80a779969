"""Runs commands of Megatron-LM dry, one after the other.

    runs.py CHECKOUT RESULTS [PATTERN...]    those whose names match, else all: RESULTS/NAME.json and NAME.log
    runs.py CHECKOUT RESULTS --table         what was measured, as tests/golden/dry_runs.json has it
"""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

EVERY = """--use-mcore-models --transformer-impl transformer_engine --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine
--weight-decay 0.1 --clip-grad 1.0 --attention-dropout 0 --hidden-dropout 0 --disable-bias-linear
--use-distributed-optimizer
--no-check-for-nan-in-loss-and-grad --no-create-attention-mask-in-dataloader --untie-embeddings-and-output-weights
--normalization RMSNorm --swiglu --position-embedding-type rope --mock-data --tokenizer-type NullTokenizer
--train-iters 20 --eval-iters 0 --eval-interval 1000 --log-interval 1 --split 99,1,0 --num-workers 0"""
ROUTED = """--moe-router-dtype fp32 --moe-grouped-gemm --moe-permute-fusion"""
BALANCED = "--moe-router-force-load-balancing"

QWEN3 = """--hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --group-query-attention
--num-query-groups 4 --kv-channels 128 --qk-layernorm --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768
--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3 --norm-epsilon 1e-6 --rotary-base 1000000
--max-position-embeddings 262144 --vocab-size 151935"""
DEEPSEEK = """--hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64
--v-head-dim 128 --rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 1.0 --qk-layernorm --num-experts 256
--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8
--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --moe-router-score-function sigmoid
--moe-router-enable-expert-bias --moe-router-topk-scaling-factor 2.5 --moe-router-pre-softmax --norm-epsilon 1e-6
--rotary-base 10000 --max-position-embeddings 4096 --vocab-size 129279 --micro-batch-size 1"""
GROUPS = "--moe-router-num-groups 8 --moe-router-group-topk 4"
MOONLIGHT = """--num-layers 27 --hidden-size 2048 --ffn-hidden-size 11264 --num-attention-heads 16 --kv-channels 128
--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --rope-type rope
--no-rope-fusion --qk-layernorm --num-experts 64 --moe-layer-freq ([0]*1+[1]*26) --moe-ffn-hidden-size 1408
--moe-shared-expert-intermediate-size 2816 --moe-router-topk 6 --moe-router-load-balancing-type seq_aux_loss
--moe-aux-loss-coeff 1e-3 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
--moe-router-topk-scaling-factor 2.446 --norm-epsilon 1e-5 --rotary-base 50000 --max-position-embeddings 8192
--seq-length 4096 --vocab-size 163839 --moe-token-dispatcher-type alltoall --tensor-model-parallel-size 2
--sequence-parallel --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --micro-batch-size 1
--global-batch-size 4"""
QWEN3_NEXT = """--num-layers 8 --hidden-size 2048 --ffn-hidden-size 5120 --num-attention-heads 16
--group-query-attention --num-query-groups 2 --kv-channels 256 --qk-layernorm --attention-output-gate
--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-conv-kernel-dim 4
--linear-key-head-dim 128 --linear-value-head-dim 128 --linear-num-key-heads 16 --linear-num-value-heads 32
--rotary-percent 0.25 --num-experts 512 --moe-router-topk 10 --moe-ffn-hidden-size 512
--moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate --moe-router-load-balancing-type aux_loss
--moe-aux-loss-coeff 1e-3 --apply-layernorm-1p --norm-epsilon 1e-6 --rotary-base 10000000
--max-position-embeddings 262144 --vocab-size 151935 --seq-length 4096 --micro-batch-size 2 --global-batch-size 64
--expert-model-parallel-size 16 --moe-token-dispatcher-type alltoall"""
LLAMA = """--num-layers 8 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention
--num-query-groups 8 --kv-channels 128 --norm-epsilon 1e-5 --rotary-base 500000 --max-position-embeddings 131072
--vocab-size 128255 --seq-length 8192 --micro-batch-size 1 --global-batch-size 64"""

SELECTIVE = "--recompute-granularity selective --recompute-modules "
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
NARROW_STATE = "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --main-grads-dtype fp32"
NARROW_GRADS = NARROW_STATE.replace("--main-grads-dtype fp32", "--main-grads-dtype bf16 --grad-reduce-in-bf16")
BLOCKS = "--fp8-format e4m3 --fp8-recipe blockwise"
OVERLAP = "--overlap-moe-expert-parallel-comm"
NATIVE = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl native"
OFFLOAD = "--fine-grained-activation-offloading --offload-modules "
FSDP = """--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --no-gradient-accumulation-fusion
--ckpt-format fsdp_dtensor"""

runs = {}


def add(name, model, gpus, flags="", ranks=(0,), precision="--bf16", balanced=True, **environment):
    experts = [ROUTED, BALANCED if balanced else ""] if "--num-experts" in model else []
    every = EVERY.replace("--hidden-dropout 0", "") if "--hidden-dropout" in flags else EVERY
    words = " ".join([model, flags, precision, *experts, every]).split()
    for rank in ranks:
        suffix = " rank %d" % rank if len(ranks) > 1 else ""
        runs[name + suffix] = dict(gpus=gpus, rank=rank, flags=words, environment=environment)


def add_qwen3():
    base = QWEN3 + " --num-layers 12 --seq-length 4096 --micro-batch-size 2 --global-batch-size 64"
    own = base + " --expert-model-parallel-size 16 --moe-token-dispatcher-type alltoall "
    for name, flags in {
        "plain": "", "native loss": NATIVE, "fp8 blocks": BLOCKS, "fp8 blocks, weights": BLOCKS + " --fp8-param-gather",
        "fp8 tensor": "--fp8-format hybrid --fp8-recipe tensorwise",
        "fp8 delayed": "--fp8-format hybrid --fp8-recipe delayed",
        "layernorm, moe_act": SELECTIVE + "layernorm moe_act", "core_attn": SELECTIVE + "core_attn", "full": FULL,
        "full, 4 layers": FULL.replace("uniform", "block").replace("layers 1", "layers 4"),
        "overlap": OVERLAP, "overlap of gradients": "--overlap-grad-reduce --overlap-param-gather",
        "shared expert beside": "--moe-shared-expert-intermediate-size 768 --moe-shared-expert-overlap",
        "sinks, windows": "--softmax-type learnable --window-size 128,0 --window-attn-skip-freq 2",
        "optimizer offloaded":
            "--optimizer-cpu-offload --optimizer-offload-fraction 1.0 --use-precision-aware-optimizer",
    }.items():
        add("qwen3 " + name, own, 16, flags)
    add("qwen3 allgather", own.replace("alltoall", "allgather"), 16)
    for backend in ("deepep", "hybridep"):
        flexible = own.replace("alltoall", "flex --moe-flex-dispatcher-backend " + backend)
        for name, flags in {"": "", " overlap": OVERLAP, " layernorm, moe_act": SELECTIVE + "layernorm moe_act",
                            " full": FULL}.items():
            add("qwen3 " + backend + name, flexible, 16, flags)
    add("qwen3 hybridep fp8 blocks", flexible, 16, BLOCKS)
    sharded = "--sequence-parallel --expert-tensor-parallel-size "
    add("qwen3 tp 2", own, 16, "--tensor-model-parallel-size 2 " + sharded + "1")
    add("qwen3 tp 4", own, 16, "--tensor-model-parallel-size 4 " + sharded + "1")
    add("qwen3 tp 2, etp 2", own.replace("size 16", "size 8"), 16, "--tensor-model-parallel-size 2 " + sharded + "2")
    long = own.replace("length 4096", "length 32768").replace("batch-size 2", "batch-size 1")
    for kind in ("p2p", "a2a", "all_gather"):
        add("qwen3 cp 4 " + kind, long, 16, "--context-parallel-size 4 --cp-comm-type " + kind)
    for modules in ("expert_fc1", "expert_fc1 moe_act", "qkv_linear", "core_attn", "core_attn attn_proj qkv_linear",
                    "attn_norm mlp_norm"):
        add("qwen3 offload " + modules, own, 16, OFFLOAD + modules, NVTE_CPU_OFFLOAD_V1="1")
    for name, flags in {"": "", " full": FULL, " overlap": OVERLAP}.items():
        add("qwen3 fsdp" + name, own, 16, FSDP + " " + flags, CUDA_DEVICE_MAX_CONNECTIONS="8")
    graphs = "--cuda-graph-impl transformer_engine --te-rng-tracker --cuda-graph-modules "
    add("qwen3 graphs attn", own, 16, graphs + "attn", DRY_RUN_STEPS="6")
    add("qwen3 graphs moe", own, 16, graphs + "moe_router moe_preprocess", balanced=False, DRY_RUN_STEPS="6")
    staged = QWEN3 + """ --num-layers 16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 128
        --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall --pipeline-model-parallel-size 4 """
    add("qwen3 pp 4", staged, 32, ranks=(0, 8, 24))
    virtual = "--num-virtual-stages-per-pipeline-rank 4 "
    add("qwen3 vpp 4", staged, 32, virtual, ranks=(0, 8, 24))
    add("qwen3 vpp 4 overlap", staged, 32, virtual + OVERLAP, ranks=(0, 8, 24))
    add("qwen3 vpp 4 offload", staged.replace("--num-layers 16", "--num-layers 32"), 32,
        virtual + OFFLOAD + "expert_fc1 moe_act", ranks=(0, 24), NVTE_CPU_OFFLOAD_V1="1")
    add("qwen3 pp 4 offload", staged, 32, OFFLOAD + "expert_fc1 moe_act", ranks=(0, 8, 24), NVTE_CPU_OFFLOAD_V1="1")


def add_deepseek():
    layers = " --num-layers 16 --moe-layer-freq ([0]*3+[1]*13) --seq-length 4096 --global-batch-size 512 "
    staged = DEEPSEEK + layers + GROUPS + " --pipeline-model-parallel-size 4 --moe-token-dispatcher-type alltoall "
    own = staged + "--expert-model-parallel-size 64 " + NARROW_STATE
    some = SELECTIVE + "mla_up_proj mlp"
    for name, flags in {
        "plain": "", "mla_up_proj, mlp": some, "full": FULL, "fp8 blocks": BLOCKS + " " + some,
        "vpp 2": some + " --num-layers-per-virtual-pipeline-stage 2",
        "vpp 2 overlap": some + " --num-layers-per-virtual-pipeline-stage 2 " + OVERLAP,
    }.items():
        add("deepseek-v3 " + name, own, 256, flags, ranks=(0, 64, 192))
    add("deepseek-v3 core_attn", own, 256, SELECTIVE + "core_attn")
    add("deepseek-v3 moe", own, 256, SELECTIVE + "moe")
    add("deepseek-v3 tp 4", staged + NARROW_STATE, 256, """--expert-model-parallel-size 32 --sequence-parallel
        --tensor-model-parallel-size 4 --expert-tensor-parallel-size 1""")
    add("deepseek-v3 mtp", own.replace("--num-layers 16", "--num-layers 15").replace("*13", "*12"), 256,
        "--mtp-num-layers 1 --pipeline-model-parallel-layout Ettt|tttt|tttt|ttttmL", ranks=(192,))
    # The runs of Megatron-LM's pull request 6311, and one of SimuMax: published, too.
    proxy = own.replace("--num-layers 16", "--num-layers 14").replace("*13", "*11").replace("4096", "2048", 1)
    proxy = proxy.replace("--seq-length 4096", "--seq-length 2048").replace("size 512", "size 256")
    proxy = proxy.replace("parallel-size 64", "parallel-size 16").replace(NARROW_STATE, "")
    proxy += " --mtp-num-layers 1 --pipeline-model-parallel-layout Ett|(tt|)*6mL"
    for name, flags in {"pr-001": "", "pr-002": FULL, "pr-007": OVERLAP}.items():
        add("as " + name, proxy, 64, flags, ranks=(0, 16, 48))
    four = DEEPSEEK + """ --num-layers 4 --moe-layer-freq ([0]*1+[1]*3) --seq-length 4096 --global-batch-size 16
        --expert-model-parallel-size 4 --pipeline-model-parallel-size 2 --moe-token-dispatcher-type alltoall
        --moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity"""
    add("as simumax-008", four, 8, NATIVE.replace("native", "te"), ranks=(0, 4), FAKE_GIB="170")


def add_others():
    for name, flags in {
        "plain": "", "bf16 gradients": NARROW_GRADS, "mla_up_proj": NARROW_GRADS + " " + SELECTIVE + "mla_up_proj",
        "layernorm, moe_act": NARROW_GRADS + " " + SELECTIVE + "moe_act layernorm", "moe": SELECTIVE + "moe",
        "full": FULL,
    }.items():
        add("moonlight " + name, MOONLIGHT, 8, flags)
    # Published in Megatron-Bridge's skills: its recipe has Transformer Engine's loss, which this checkout refuses
    # (arguments.py) and Megatron-Bridge does not.
    for name, flags in {"001": "", "003": SELECTIVE + "mla_up_proj", "004": SELECTIVE + "mla_up_proj mlp",
                        "005": SELECTIVE + "moe_act", "006": SELECTIVE + "layernorm moe_act"}.items():
        add("as skill-" + name, MOONLIGHT, 8, NARROW_STATE + " " + NATIVE.replace("native", "te") + " " + flags)
    for name, flags in {"plain": "", "layernorm, moe_act": SELECTIVE + "layernorm moe_act", "full": FULL}.items():
        add("qwen3-next " + name, QWEN3_NEXT, 16, flags)
    split = "--tensor-model-parallel-size 4 --sequence-parallel "
    for name, flags in {
        "tp 4": "", "tp 4 native loss": NATIVE, "tp 4 core_attn": SELECTIVE + "core_attn",
        "tp 4 mlp": SELECTIVE + "mlp layernorm", "tp 4 full": FULL,
        "tp 4 plain attention": "--attention-backend unfused",
        "tp 4 dropout": "--hidden-dropout 0.1", "tp 4 fp8": "--fp8-format hybrid --fp8-recipe tensorwise",
    }.items():
        add("llama3 " + name, LLAMA, 16, split + flags)
    add("llama3 tp 8, cp 2", LLAMA, 16,
        "--tensor-model-parallel-size 8 --sequence-parallel --context-parallel-size 2")
    add("llama3 pp 2", LLAMA, 8, split + "--pipeline-model-parallel-size 2", ranks=(0, 4))
    for name, flags in {"": "", " full": FULL}.items():
        add("llama3 fsdp" + name, LLAMA, 16, FSDP + " " + flags, CUDA_DEVICE_MAX_CONNECTIONS="8")


def add_held_out():
    """Not looked at while the model of memory was written: other models and layouts."""
    mixtral = """--num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
        --group-query-attention --num-query-groups 8 --kv-channels 128 --num-experts 8 --moe-router-topk 2
        --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 --norm-epsilon 1e-5 --rotary-base 1000000
        --max-position-embeddings 32768 --vocab-size 31999 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64
        --moe-token-dispatcher-type alltoall --tensor-model-parallel-size 2 --sequence-parallel
        --expert-tensor-parallel-size 1 --expert-model-parallel-size 4 --pipeline-model-parallel-size 2"""
    add("mixtral", mixtral, 16, ranks=(0, 8))
    add("mixtral fp8, norms", mixtral, 16, SELECTIVE + "layernorm moe_act --fp8-format hybrid --fp8-recipe tensorwise",
        ranks=(0, 8))
    large = """--num-layers 12 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 64
        --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm --num-experts 128
        --moe-router-topk 8 --moe-ffn-hidden-size 1536 --moe-router-load-balancing-type aux_loss
        --moe-aux-loss-coeff 1e-3 --norm-epsilon 1e-6 --rotary-base 1000000 --max-position-embeddings 262144
        --vocab-size 151935 --seq-length 16384 --micro-batch-size 1 --global-batch-size 128
        --moe-token-dispatcher-type alltoall --expert-model-parallel-size 32"""
    add("qwen3-235b tp 4, cp 2", large, 64, """--tensor-model-parallel-size 4 --sequence-parallel
        --context-parallel-size 2 --expert-tensor-parallel-size 1 --pipeline-model-parallel-size 2 """ + NARROW_STATE,
        ranks=(0, 32))
    add("qwen3-235b vpp 3 overlap", large.replace("16384", "4096"), 64, """--pipeline-model-parallel-size 2
        --num-virtual-stages-per-pipeline-rank 3 """ + OVERLAP + " " + NARROW_STATE, ranks=(0, 32))
    add("qwen3-235b fsdp, full", large.replace("16384", "4096"), 64, FSDP + " " + FULL,
        CUDA_DEVICE_MAX_CONNECTIONS="8")
    add("qwen3-235b offload", large.replace("16384", "8192"), 64, OFFLOAD + "mlp_norm moe_act core_attn attn_proj",
        NVTE_CPU_OFFLOAD_V1="1")
    kimi = (DEEPSEEK.replace("--num-attention-heads 128", "--num-attention-heads 64")
            .replace("--num-experts 256", "--num-experts 384").replace("--vocab-size 129279", "--vocab-size 163839")
            .replace("coeff 1e-4", "coeff 1e-3") + """ --num-layers 8 --moe-layer-freq ([0]*1+[1]*7) --seq-length 4096
            --global-batch-size 256 --moe-token-dispatcher-type alltoall --expert-model-parallel-size 64
            --pipeline-model-parallel-size 2 """ + NARROW_STATE)
    add("kimi-k2 shared_experts, mla_up_proj", kimi, 128, SELECTIVE + "mla_up_proj shared_experts", ranks=(0, 64))
    add("kimi-k2 fp8 blocks, full", kimi, 128, BLOCKS + " " + FULL, ranks=(0, 64))
    small = """--num-layers 24 --hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --num-experts 16
        --moe-router-topk 2 --moe-ffn-hidden-size 1024 --moe-router-load-balancing-type aux_loss
        --moe-aux-loss-coeff 1e-2 --norm-epsilon 1e-5 --rotary-base 10000 --max-position-embeddings 8192
        --vocab-size 50303 --seq-length 8192 --micro-batch-size 2 --global-batch-size 32
        --moe-token-dispatcher-type alltoall --expert-model-parallel-size 4"""
    add("small experts", small, 8)
    add("small experts, allgather", small.replace("alltoall", "allgather"), 8, NATIVE)


# Functional tests of Megatron-LM, whose peaks are published: test, GPUs, rank, vocabulary.
TESTS = {
    "007": ("gpt/gpt3_7b_tp1_pp4_memory_speed", 8, 6, 131073),
    "009": ("gpt/gpt3_7b_tp4_pp1_memory_speed", 8, 0, 131073),
    "019": ("moe/deepseek_proxy_fsdp_ep2_fsdp2", 8, 0, 50257),
    "024": ("moe/gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer_1node", 4, 2,
            50257),
    "036": ("moe/gpt3_mcore_te_tp2_pp1_te_8experts_etp1_ep4", 8, 0, 50257),
    "041": ("moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_mtp_resume_torch_dist_fp8", 8, 4, 50257),
    "042": ("moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_resume_torch_dist_attn_cudagraph", 8, 4, 50257),
    "043": ("moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_selective_recompute_experimental", 8, 4, 50257),
    "059": ("moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_no_mtp_no_a2a_ovlp_fine_grained_offloading", 8, 4, 50257),
}
# Of a test's flags these need files, write some, or are said by EVERY.
LEFT_OUT = re.compile("--(data-|vocab-|merge-|tokenizer-|save|load|no-load|split|no-mmap|tensorboard|log-|logging|"
                      "profile|train-|eval-|exit-|lr-|async|use-persistent|use-checkpoint|ckpt-(?!format)|dist-ckpt|"
                      "distributed-timeout|deterministic)")
MOCK = EVERY[EVERY.index("--mock-data"):]


def add_tests(checkout):
    try:
        import yaml
    except ImportError:
        return
    for number, (test, gpus, rank, vocabulary) in TESTS.items():
        path = os.path.join(checkout, "tests", "functional_tests", "test_cases", test, "model_config.yaml")
        if not os.path.exists(path):
            continue
        with open(path) as file:
            config = yaml.safe_load(file)
        words = ["--vocab-size", str(vocabulary - 1)]
        for flag, value in config["MODEL_ARGS"].items():
            if LEFT_OUT.match(flag) or flag == "--vocab-size" or value is False:
                continue
            words += [flag] if value is True else [flag, *re.sub(r"^\[(.*)\]$", r"\1", str(value)).split()]
        if "--num-experts" in words:
            words.append(BALANCED)
        environment = {key: str(value) for key, value in (config.get("ENV_VARS") or {}).items()
                       if key.startswith("NVTE") and "CUDNN" not in key}
        if "--use-megatron-fsdp" in words:
            environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
        words += MOCK.split()
        runs["as test " + number] = dict(gpus=gpus, rank=rank, flags=words, environment=environment)
        if number == "042":  # with Megatron-LM's own number of steps before the capture
            at = words.index("--cuda-graph-warmup-steps")
            runs["as test 042, warm"] = dict(gpus=gpus, rank=rank, flags=words[:at] + words[at + 2:],
                                             environment=dict(environment, DRY_RUN_STEPS="6"))


def command_of(flags):
    """A shell command; brackets and bars are quoted."""
    return " ".join("'%s'" % word if re.search(r"[()\[\]|*]", word) else word for word in flags)


def path_of(folder, name):
    return os.path.join(folder, name.replace(" ", "_").replace(",", ""))


def table(folder):
    rows = []
    for name, run in runs.items():
        path = path_of(folder, name) + ".json"
        result = {"error": "not run"}
        if os.path.exists(path):
            with open(path) as file:
                result = json.load(file)
        if "error" in result:
            print("%s: %s" % (name, result["error"][:100]), file=sys.stderr)
            continue
        steps = result["steps"]
        rows.append({
            "name": name, "gpus": run["gpus"], "rank": run["rank"],
            "environment": {key: value for key, value in run["environment"].items()
                            if not key.startswith(("DRY", "FAKE"))},
            "flags": command_of(run["flags"]),
            "peak_allocated_bytes": max([step["peak"] for step in steps] + [steps[0]["before"]]),
            "end_allocated_bytes": steps[-1]["end"], "peak_reserved_bytes": max(step["reserved"] for step in steps),
        })
    json.dump(rows, sys.stdout, indent=1)
    print()


def main():
    add_qwen3()
    add_deepseek()
    add_others()
    add_held_out()
    checkout, folder, *patterns = sys.argv[1:]
    add_tests(checkout)
    if patterns == ["--table"]:
        return table(folder)
    os.makedirs(folder, exist_ok=True)
    for number, (name, run) in enumerate(runs.items()):
        if patterns and not any(re.search(pattern, name) for pattern in patterns):
            continue
        path = path_of(folder, name)
        environment = dict(os.environ, RANK=str(run["rank"]), WORLD_SIZE=str(run["gpus"]), LOCAL_RANK="0",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29600 + number),
                           CUDA_DEVICE_MAX_CONNECTIONS="1", PYTHONWARNINGS="ignore")
        environment.update(run["environment"])
        environment["PYTHONPATH"] = os.pathsep.join([HERE, checkout, os.environ.get("PYTHONPATH", "")])
        flags = [*run["flags"], "--fake-process-group"]
        with open(path + ".log", "w") as log:
            code = subprocess.call([sys.executable, os.path.join(HERE, "measure.py"), checkout, path + ".json", *flags],
                                   env=environment, stdout=log, stderr=subprocess.STDOUT)
        print("%-40s %s" % (name, "ok" if code == 0 else "failed, see %s.log" % path), flush=True)


if __name__ == "__main__":
    main()
