"""pretrain_gpt.py of a Megatron-LM checkout (core 0.17 was tried), with the CPU in the place of the GPU.

    python -m torch.distributed.run --nproc_per_node N megatron_on_cpu.py CHECKOUT [flags of pretrain_gpt.py...]

What it asks torch.cuda for is answered here: devices that are there, streams and events that do nothing, memory that is
the process', tensors that stay where they are. Communication goes over gloo. Needs torch (its CPU build does), numpy,
einops, packaging, pyyaml, pybind11, make and a C++ compiler; neither Transformer Engine nor Apex. The flags have to say
--transformer-impl local, --distributed-backend gloo and no fusion (megatron_test.cpp has them). Context parallelism
needs Transformer Engine and fails with Megatron-LM's own words.
"""
import atexit
import logging
import os
import resource
import runpy
import shutil
import sys
import sysconfig
import tempfile
import time
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # no compiler for so little

import torch
import torch._dynamo  # has tables of torch.cuda's functions, which are about to change
import torch.distributed
from torch.overrides import TorchFunctionMode

DEVICE_BYTES = 8 << 30  # made up


def nothing(*args, **kwargs):
    return None


class Nothing:
    """A stream, an event or a context, that does nothing. Events know the time."""

    cuda_stream = 0
    time_s = 0.0

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def record(self, *args):
        self.time_s = time.perf_counter()

    def record_event(self, event=None):
        event = event or Nothing()
        event.record()
        return event

    def elapsed_time(self, later):
        return 1e3 * (later.time_s - self.time_s)

    def query(self):
        return True

    wait = wait_event = wait_stream = synchronize = nothing


def held_bytes(*args):
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(*args):
    return max(held_bytes(), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory_stats(*args):
    kinds = {"current": held_bytes(), "peak": peak_bytes()}
    return {f"{what}_bytes.all.{kind}": size for what in ("allocated", "reserved") for kind, size in kinds.items()} | {
        "allocation.all.current": 0, "num_alloc_retries": 0, "num_ooms": 0}


def on_cpu(device):
    """The CPU for every name of a GPU: "cuda", "cuda:1", an index, a device of torch."""
    is_gpu = isinstance(device, int) and not isinstance(device, bool) or str(device).startswith("cuda")
    return "cpu" if is_gpu else device


class GpuIsCpu(TorchFunctionMode):
    """Functions of torch that name a GPU get the CPU."""

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != "pin_memory"}
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        if function is torch.Tensor.to:
            args = tuple(on_cpu(word) if isinstance(word, (str, torch.device)) else word for word in args)
        result = function(*args, **kwargs)
        if function is torch.Tensor.type and isinstance(result, str):
            result = result.replace("torch.", "torch.cuda.")
        return result


def replace_cuda():
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    properties = types.SimpleNamespace(name="cpu", total_memory=DEVICE_BYTES, major=8, minor=0, multi_processor_count=1)
    seed = torch.default_generator.manual_seed
    answers = dict(
        Event=Nothing, Stream=Nothing, device=Nothing, stream=Nothing, current_stream=Nothing, default_stream=Nothing,
        is_available=lambda: True, is_initialized=lambda: True, is_bf16_supported=lambda *a: True,
        is_current_stream_capturing=lambda: False, current_device=lambda: rank, device_count=lambda: rank + 1,
        get_device_name=lambda *a: "cpu", get_device_capability=lambda *a: (8, 0),
        get_device_properties=lambda *a: properties, memory_allocated=held_bytes, memory_reserved=held_bytes,
        max_memory_allocated=peak_bytes, max_memory_reserved=peak_bytes, memory_stats=memory_stats,
        mem_get_info=lambda *a: (DEVICE_BYTES - held_bytes(), DEVICE_BYTES),
        manual_seed=seed, manual_seed_all=seed, default_generators=[torch.default_generator] * (rank + 1),
        get_rng_state=lambda *a, **k: torch.get_rng_state(),
        set_rng_state=lambda state, *a, **k: torch.set_rng_state(state))
    for name in ("init", "set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        answers[name] = nothing
    for name in ("Float", "Double", "Half", "BFloat16", "Int", "Long", "Byte", "Bool"):
        answers[name + "Tensor"] = getattr(torch, name + "Tensor")
    for name, answer in answers.items():
        for module in (torch.cuda, torch.cuda.random, torch.cuda.memory):
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, answer)
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = nothing
    torch.Tensor.is_cuda = property(lambda tensor: True)
    torch.Tensor.record_stream = nothing
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = lambda it, *a, **k: it
    torch.Tensor.pin_memory = lambda it, *a, **k: it
    # One generator for both devices, of which it would warn at every layer.
    logging.getLogger("megatron.core.tensor_parallel.random").setLevel(logging.ERROR)


def use_gloo(function):
    """The function that makes a group, without what is NCCL's."""
    def make(*args, **kwargs):
        kwargs["backend"] = "gloo"
        for name in ("device_id", "pg_options"):
            kwargs.pop(name, None)
        return function(*args, **kwargs)
    return make


def use_norms_of_torch():
    """Its wrapper of torch's norms refuses sequence parallelism, which experts with tensor parallelism need: all that
    it lacks is the mark of weights whose gradients are added up."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def make(kind, config, hidden_size, eps=1e-5, **ignored):
        norm = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        module = norm(hidden_size, eps=eps)
        for weight in module.parameters():
            weight.sequence_parallel = config.sequence_parallel
        return module

    WrappedTorchNorm.__new__ = make


def use_this_python_in_make():
    """It builds its index of data sets with `python3` and `python3-config`, which may be of another Python."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    scripts = {"python3": f'exec "{sys.executable}" "$@"', "python3-config": f"echo {suffix}"}
    for name, line in scripts.items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{line}\n")
        os.chmod(path, 0o755)
    os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]


def main():
    checkout = sys.argv.pop(1)
    sys.path.insert(0, checkout)
    sys.argv[0] = os.path.join(checkout, "pretrain_gpt.py")
    use_this_python_in_make()
    replace_cuda()
    torch.distributed.init_process_group = use_gloo(torch.distributed.init_process_group)
    torch.distributed.new_group = use_gloo(torch.distributed.new_group)
    with GpuIsCpu():
        use_norms_of_torch()
        runpy.run_path(sys.argv[0], run_name="__main__")


main()
