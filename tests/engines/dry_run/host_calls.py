"""What Megatron-LM's host does for a layer, counted: calls of Python functions and launches.

    host_calls.py CHECKOUT [PATTERN...]    of the commands below whose names match, else of all

Each command is run dry twice, with 4 and with 12 layers. What the sixth step's forward and backward of the longer one
has more, over the layers and micro-batches that it has more, is a layer's. Counts do not depend on the machine or on
what else it does; tuner/planner/host_time.cpp has them.
"""
import ctypes
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 6  # graphs are captured before the fourth
SHORT, LONG = 4, 12
MICRO_BATCHES = 4

WITHOUT_SIZES = re.compile(r"--(num-layers|moe-layer-freq|seq-length|tensor-model-parallel-size|micro-batch-size|"
                           r"expert-model-parallel-size|expert-tensor-parallel-size|global-batch-size|"
                           r"moe-token-dispatcher-type) \S+|--sequence-parallel")


def commands():
    """Name: GPUs, replicas of the dense layers, flags but for layers and batches, and whether routing is forced.

    Of "frozen" layers norms alone are trained, as beside adapters.
    """
    sys.argv = [sys.argv[0]]
    source = runpy.run_path(os.path.join(HERE, "runs.py"), run_name="commands")
    qwen3, full, selective = source["QWEN3"], source["FULL"], source["SELECTIVE"]
    latent = WITHOUT_SIZES.sub("", " ".join(source["MOONLIGHT"].split()))
    delta = WITHOUT_SIZES.sub("", " ".join(source["QWEN3_NEXT"].split()))
    dense = re.sub(r"--(num-experts|moe-)\S* \S+", "", " ".join(qwen3.split()))
    alltoall = "--moe-token-dispatcher-type alltoall "
    flexible = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend "
    split = "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1"
    tensorwise = "--fp8-format hybrid --fp8-recipe tensorwise"
    graphs = "--cuda-graph-impl transformer_engine --te-rng-tracker --cuda-graph-modules "
    found = {}

    def add(name, flags, gpus=16, replicas=16, balanced=True):
        found[name] = (gpus, replicas, flags, balanced)

    def experts(flags="", count=16, dispatcher=alltoall):
        return "%s %s --expert-model-parallel-size %d %s" % (qwen3, dispatcher, count, flags)

    for count in (16, 8, 4):
        add("%d experts of a rank" % (128 // count), experts(count=count))
    add("tp 2", experts(split), replicas=8)
    for kind in ("p2p", "a2a"):
        add("cp 2 " + kind, experts("--context-parallel-size 2 --cp-comm-type " + kind), replicas=8)
    add("allgather", experts(dispatcher=alltoall.replace("alltoall", "allgather")))
    for backend in ("deepep", "hybridep"):
        add(backend, experts(dispatcher=flexible + backend))
        add(backend + " overlap", experts(source["OVERLAP"], dispatcher=flexible + backend))
    add("hybridep full", experts(full, dispatcher=flexible + "hybridep"))
    add("overlap", experts(source["OVERLAP"]))
    add("gradients reduced meanwhile", experts("--overlap-grad-reduce"))
    add("and weights gathered", experts("--overlap-grad-reduce --overlap-param-gather"))
    for count in (16, 8):
        add("frozen, %d experts of a rank" % (128 // count), experts(count=count))
    add("frozen dense", dense)
    for modules in ("core_attn", "layernorm", "moe_act", "layernorm moe_act", "moe"):
        add(modules, experts(selective + modules))
    add("full", experts(full))
    for modules in ("attn", "moe_router moe_preprocess", "attn moe_router moe_preprocess"):
        add("graphs " + modules, experts(graphs + modules), balanced="router" not in modules)
    add("fp8 blocks", experts(source["BLOCKS"]))
    add("fp8 tensor", experts(tensorwise))
    add("fp8 tensor, 32 experts of a rank", experts(tensorwise, count=4))
    add("fp8 delayed", experts(tensorwise.replace("tensorwise", "delayed")))
    add("shared expert", experts("--moe-shared-expert-intermediate-size 768"))
    add("shared expert beside", experts("--moe-shared-expert-intermediate-size 768 --moe-shared-expert-overlap"))
    for name, flags in {"": "", " mla_up_proj": selective + "mla_up_proj", " full": full, " tp 2": split}.items():
        add("latent" + name, "%s --expert-model-parallel-size 8 %s %s" % (latent, alltoall, flags), 8,
            4 if "tp" in name else 8)
    add("dense without norms of queries and keys", dense.replace("--qk-layernorm", ""))
    for name, flags in {"": "", " tp 2": split[:split.index(" --expert")], " full": full, " mlp": selective + "mlp",
                        " core_attn": selective + "core_attn", " fp8 tensor": tensorwise}.items():
        add("dense" + name, dense + " " + flags, 16, 8 if "tp" in name else 16)
    add("delta net, 32 experts of a rank", "%s --expert-model-parallel-size 16 %s" % (delta, alltoall))
    return source, found


def freeze_layers():
    from megatron.core.transformer.transformer_layer import TransformerLayer

    build = TransformerLayer.__init__

    def build_frozen(self, *args, **kwargs):
        build(self, *args, **kwargs)
        for name, parameter in self.named_parameters():
            parameter.requires_grad = "layer_norm" in name or "layernorm" in name

    TransformerLayer.__init__ = build_frozen


def count_one(checkout, path):
    """In a process of its own, with the flags of pretrain_gpt.py behind."""
    import torch

    import fake_kernels
    import triton.runtime.autotuner
    import triton.runtime.jit
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    counts = {"calls": 0, "triton": 0}

    def run(*args, **kwargs):
        counts["triton"] += 1

    def launcher(kernel, grid):
        return run

    for kind in (triton.runtime.jit.JITFunction, triton.runtime.autotuner.Autotuner,
                 triton.runtime.autotuner.Heuristics):
        kind.run, kind.__getitem__ = run, launcher
    CachingAutotuner.run = run
    fake = ctypes.CDLL(os.environ["LD_PRELOAD"])
    fake.fake_launches.restype = ctypes.c_long
    torch.cuda.init()
    torch.cuda.set_device(0)
    import megatron.training.training as training

    def on_event(frame, event, argument):
        if event == "call":
            counts["calls"] += 1

    if "FROZEN" in os.environ:
        freeze_layers()
    get_schedule = training.get_forward_backward_func
    num_steps = 0

    def counted_schedule(*args, **kwargs):
        schedule = get_schedule(*args, **kwargs)

        def step(*args, **kwargs):
            nonlocal num_steps
            num_steps += 1
            if num_steps < STEPS:
                return schedule(*args, **kwargs)
            before, launches = counts["triton"], fake.fake_launches()
            threading.setprofile_all_threads(on_event)  # backward has a thread of its own
            schedule(*args, **kwargs)
            threading.setprofile_all_threads(None)
            with open(path, "w") as file:
                json.dump({"calls": counts["calls"], "launches": fake.fake_launches() - launches,
                           "triton": counts["triton"] - before}, file)
            os._exit(0)

        return step

    training.get_forward_backward_func = counted_schedule
    runpy.run_path(os.path.join(checkout, "pretrain_gpt.py"), run_name="__main__")


def main():
    if sys.argv[1] == "--one":
        checkout, path = sys.argv[2:4]
        sys.argv = ["pretrain_gpt.py"] + sys.argv[4:]
        return count_one(checkout, path)
    checkout, patterns = sys.argv[1], sys.argv[2:]
    source, found = commands()
    print("| command | calls | launches | of Triton |\n|---|---|---|---|")
    for name, (gpus, replicas, flags, balanced) in found.items():
        if patterns and not any(re.search(pattern, name) for pattern in patterns):
            continue
        counts = []
        for layers in (SHORT, LONG):
            source["runs"].clear()
            source["add"]("one", "%s --num-layers %d --seq-length %d --micro-batch-size 1 --global-batch-size %d" % (
                flags, layers, 2048 if "context" in flags else 1024, replicas * MICRO_BATCHES), gpus, balanced=balanced)
            environment = dict(os.environ, RANK="0", WORLD_SIZE=str(gpus), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                               MASTER_PORT="29599", CUDA_DEVICE_MAX_CONNECTIONS="1", PYTHONWARNINGS="ignore",
                               PYTHONPATH=os.pathsep.join([HERE, checkout]))
            if name.startswith("frozen"):
                environment["FROZEN"] = "1"
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "counts.json")
                with open(os.path.join(folder, "log"), "w+") as log:
                    subprocess.call([sys.executable, os.path.abspath(__file__), "--one", checkout, path,
                                     *source["runs"]["one"]["flags"], "--fake-process-group"],
                                    env=environment, stdout=log, stderr=subprocess.STDOUT)
                    log.seek(0)
                    lines = log.read().splitlines()
                if not os.path.exists(path):
                    print("| %s | failed: %s |" % (name, lines[-1] if lines else ""), flush=True)
                    break
                with open(path) as file:
                    counts.append(json.load(file))
        if len(counts) == 2:
            each = (LONG - SHORT) * MICRO_BATCHES
            more = [(counts[1][key] - counts[0][key]) / each for key in ("calls", "launches", "triton")]
            print("| %s | %.0f | %.1f | %.0f |" % (name, *more), flush=True)


main()
