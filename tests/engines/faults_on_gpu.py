"""Trains a small MoE transformer on one GPU with one planted fault after the other, and records what each costs.

    python faults_on_gpu.py --out DIR [--seconds 150] [--only sync_per_layer,offload] [--tiny]

For each case the same training is timed with and without the fault, in turns and without a profiler; then PyTorch's
profiler records a few steps with the fault. DIR gets CASE.json.gz, the trace, for each case, and truth.json: what
`moetune diagnose` should say of that trace, both step times, and so the share of a step that removing the fault really
gained, which a ceiling must not be below. Needs torch (2.11 was tried) and nothing else. `--tiny` is for trying the
script, also without a GPU: what it measures then means nothing.

A step ends as in most trainers: the loss is fetched for the log, and with that the host waits for the device. That
holds for healthy, faulty and recorded steps alike, so that their times compare.
"""
import argparse
import contextlib
import dataclasses
import gc
import gzip
import itertools
import json
import math
import os
import statistics
import sys
import time
import traceback

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

MAX_TRACE_BYTES = 1_500_000
NUM_BLOCKS = 4  # of healthy and of faulty steps, in turns
STEPS_OF_BLOCK = 5
MEASURE_S = 8  # less steps where they are slow
DEFAULT_CASE_S = 8  # what a case is expected to take, before one ran


@dataclasses.dataclass(frozen=True)
class Sizes:
    """By default so large that healthy steps are bound by the device, also under the profiler, which slows the host."""

    hidden: int = 2048
    heads: int = 16
    ffn: int = 4096
    layers: int = 5
    experts: int = 8
    top_k: int = 2
    batch: int = 8
    sequence: int = 2048
    vocabulary: int = 4096
    own_parameters: bool = False  # one for each expert's weight, not one for all experts of a layer
    features: int = 0  # numbers that come with each token from the host, in multiples of `hidden`

    @property
    def tokens(self):
        return self.batch * self.sequence

    @property
    def capacity(self):
        """Rows of an expert, with some room. Fixed, so that no size has to come from the device."""
        return 8 * math.ceil(1.25 * self.tokens * self.top_k / self.experts / 8)

    def tiny(self):
        return dataclasses.replace(self, hidden=64, heads=4, ffn=64, layers=2, experts=min(self.experts, 8), batch=2,
                                   sequence=32, vocabulary=128)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    label: str
    sub_cause: str
    fault: str
    sizes: Sizes = Sizes()
    others: tuple = ()  # of (label, sub-cause): what may be said as well
    healthy: str = ""  # what the healthy steps are; "": there are none
    needs_gpu: bool = False


CASES = (
    Case("large_gemms", "compute", "FLOPs", "nothing; large products",
         Sizes(hidden=4096, heads=32, layers=3, experts=4, batch=8)),
    # The work behind the fetch is a stall as well: without either the step is as long.
    Case("sync_per_layer", "host", "sync", "each layer fetches how full its experts are and works 5 ms on that",
         others=(("host", "loader"),), healthy="nothing is fetched"),
    Case("slow_loader", "host", "loader", "each batch comes late, by 60 % of a step", healthy="batches are there"),
    Case("offload", "memory", "offload", "save_on_cpu with pinned memory around each layer",
         Sizes(layers=3), healthy="activations stay on the device"),
    Case("bandwidth_bound", "compute", "bandwidth", "norms in FP32, operator by operator, with passes over activations",
         Sizes(hidden=1024, ffn=512, layers=3, experts=4, batch=16, sequence=1024),
         healthy="norms in one kernel, no passes"),
    Case("tiny_experts", "host", "launch", "128 experts, one small product after the other",
         Sizes(hidden=512, heads=8, ffn=512, layers=1, experts=128, batch=2, sequence=1024),
         (("compute", "occupancy"),), "one batched product for all experts"),
    Case("allocator_storm", "host", "allocator", "empty_cache() in each layer", healthy="the cache is kept",
         needs_gpu=True),
    Case("gc_stall", "host", "loader",
         "the host stands still for 60 ms before the second layer, as in a garbage collection",
         healthy="it does not"),
    Case("optimizer_foreach_off", "host", "launch", "AdamW launches several kernels for each parameter",
         Sizes(hidden=512, heads=8, ffn=1024, layers=3, experts=16, batch=4, sequence=512, own_parameters=True),
         healthy="fused AdamW"),
    # Compute is what docs/diagnose.md has for work done twice where memory is not short.
    Case("recompute", "memory", "recompute", "each layer is recomputed, with ample memory",
         others=(("compute", None), ("compute", "bandwidth")),
         healthy="nothing is recomputed"),
    Case("pageable_copies", "host", "loader", "a large input is copied from pageable memory before each step",
         Sizes(layers=4, features=2), (("host", "sync"),), "pinned memory, copied a step ahead beside the work"),
    Case("attention_math", "compute", "bandwidth", "attention writes all scores, at a long sequence",
         Sizes(hidden=1024, heads=8, ffn=1024, layers=3, experts=4, batch=2, sequence=4096), (("compute", None),),
         "fused attention"),
    # Last: a capture that fails may take the device's context with it.
    Case("tiny_kernels", "host", "launch", "nothing but a narrow model, launched kernel by kernel",
         Sizes(hidden=128, heads=4, ffn=256, layers=8, experts=4, batch=2, sequence=128),
         healthy="the whole step is one CUDA graph"),
)


def keep_busy(seconds):
    """Holds the host as a program does, unlike sleep()."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class GatherRows(torch.autograd.Function):
    """index_select where no row but the last is taken twice, and the last one's gradient does not matter: backward is
    a copy then, and not an addition with atomics."""

    @staticmethod
    def forward(ctx, rows, index):
        ctx.save_for_backward(index)
        ctx.num_rows = rows.shape[0]
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient):
        (index,) = ctx.saved_tensors
        rows = gradient.new_zeros(ctx.num_rows, gradient.shape[1])
        return rows.index_copy_(0, index, gradient), None


def weight(*shape, device):
    values = torch.randn(*shape, device=device, dtype=torch.bfloat16)
    return torch.nn.Parameter(values.mul_(0.02))


class Layer(torch.nn.Module):
    def __init__(self, sizes, device):
        super().__init__()
        self.sizes = sizes
        h, f, e = sizes.hidden, sizes.ffn, sizes.experts
        self.norms = torch.nn.ParameterList(
            torch.nn.Parameter(torch.ones(h, device=device, dtype=torch.bfloat16)) for _ in range(2))
        self.qkv = weight(3 * h, h, device=device)
        self.projection = weight(h, h, device=device)
        self.router = weight(e, h, device=device)
        if sizes.own_parameters:
            self.up = torch.nn.ParameterList(weight(h, f, device=device) for _ in range(e))
            self.down = torch.nn.ParameterList(weight(f, h, device=device) for _ in range(e))
        else:
            self.up = weight(e, h, f, device=device)
            self.down = weight(e, f, h, device=device)

    def norm(self, x, scale, fault):
        if fault != "bandwidth_bound":
            return F.rms_norm(x, (x.shape[-1],), scale, 1e-6)
        y = x.float()
        y = y - y.mean(-1, keepdim=True)
        y = y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)
        y = F.dropout(y * scale.float(), 0.1)
        for _ in range(8):
            y = torch.tanh(y) * 1.1
        return y.to(x.dtype)

    def attention(self, x, fault):
        b, s, h = x.shape
        q, k, v = F.linear(x, self.qkv).view(b, s, 3, self.sizes.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        kernel = sdpa_kernel(SDPBackend.MATH) if fault == "attention_math" else contextlib.nullcontext()
        with kernel:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(b, s, h), self.projection)

    def experts(self, x, fault):
        """Rows beyond an expert's capacity go to a last row, which counts for nothing."""
        e, k, rows = self.sizes.experts, self.sizes.top_k, self.sizes.capacity
        scores = F.linear(x, self.router).float().softmax(-1)
        scores, chosen = scores.topk(k, -1)
        chosen = chosen.view(-1)
        is_of = chosen.unsqueeze(0) == torch.arange(e, device=x.device).unsqueeze(1)  # a row of each expert
        place = is_of.cumsum(-1, dtype=torch.int32).gather(0, chosen.unsqueeze(0)).squeeze(0).long() - 1
        is_kept = place < rows
        slot = torch.where(is_kept, chosen * rows + place, e * rows)
        if fault == "sync_per_layer":
            self.fullness = is_kept.float().mean().item()
            keep_busy(5e-3)

        copies = x.unsqueeze(1).expand(-1, k, -1).reshape(-1, x.shape[1])
        taken = x.new_zeros(e * rows + 1, x.shape[1]).index_copy(0, slot, copies)
        taken = taken[:-1].view(e, rows, -1)
        up, down = self.up, self.down
        if self.sizes.own_parameters:
            up, down = torch.stack(list(up)), torch.stack(list(down))
        if fault == "tiny_experts":
            y = torch.stack([F.gelu(a @ u) @ d for a, u, d in zip(taken.unbind(), up.unbind(), down.unbind())])
        else:
            y = torch.bmm(F.gelu(torch.bmm(taken, up)), down)
        y = F.pad(y.reshape(e * rows, -1), (0, 0, 0, 1))
        y = GatherRows.apply(y, slot).view(-1, k, x.shape[1])
        scores = scores * is_kept.view(-1, k)
        return (y * scores.to(x.dtype).unsqueeze(-1)).sum(1)

    def forward(self, x, fault):
        if fault == "allocator_storm":
            torch.cuda.empty_cache()
        x = x + self.attention(self.norm(x, self.norms[0], fault), fault)
        y = self.experts(self.norm(x, self.norms[1], fault).view(-1, x.shape[-1]), fault)
        return x + y.view_as(x)


class Model(torch.nn.Module):
    def __init__(self, sizes, device):
        super().__init__()
        self.embedding = weight(sizes.vocabulary, sizes.hidden, device=device)
        self.layers = torch.nn.ModuleList(Layer(sizes, device) for _ in range(sizes.layers))
        self.head = weight(sizes.vocabulary, sizes.hidden, device=device)

    def forward(self, tokens, features, fault):
        """The loss of sequences that have one token more than the model sees."""
        x = F.embedding(tokens[:, :-1], self.embedding)
        if features is not None:
            x = x + features.view(*x.shape[:2], -1, x.shape[2]).mean(2).to(x.dtype)
        for i, layer in enumerate(self.layers):
            if fault == "gc_stall" and i == 1:
                keep_busy(60e-3)
            if fault == "recompute":
                x = checkpoint(layer, x, fault, use_reentrant=False)
            elif fault == "offload":
                with torch.autograd.graph.save_on_cpu(pin_memory=x.is_cuda):
                    x = layer(x, fault)
            else:
                x = layer(x, fault)
        logits = F.linear(x, self.head).float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Batches(torch.utils.data.IterableDataset):
    delay_s = 0.0

    def __init__(self, sizes, is_pinned):
        generator = torch.Generator().manual_seed(1)
        shape = (sizes.batch, sizes.sequence + 1)
        self.batches = [torch.randint(sizes.vocabulary, shape, generator=generator) for _ in range(4)]
        if is_pinned:
            self.batches = [batch.pin_memory() for batch in self.batches]

    def __iter__(self):
        for batch in itertools.cycle(self.batches):
            if self.delay_s > 0:
                time.sleep(self.delay_s)
            yield batch


class Training:
    """Weights and gradients in BF16; AdamW with weights and state in FP32."""

    def __init__(self, sizes, device, is_capturable=False):
        torch.manual_seed(0)
        self.device = device
        self.model = Model(sizes, device)
        self.weights = list(self.model.parameters())
        self.masters = [w.detach().float() for w in self.weights]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.gradients = [master.grad for master in self.masters]
        options = {"lr": 1e-5}  # so small that routing stays as it is
        self.fused = torch.optim.AdamW(self.masters, fused=True, capturable=is_capturable, **options)
        self.unfused = torch.optim.AdamW(self.masters, fused=False, foreach=False, **options)
        is_gpu = device.type == "cuda"
        self.batches = Batches(sizes, is_gpu)
        self.loader = iter(torch.utils.data.DataLoader(self.batches, batch_size=None))
        self.load_s = 0.0
        self.pageable = self.pinned = self.ahead = None
        if sizes.features > 0:
            self.pageable = torch.rand(sizes.batch, sizes.sequence, sizes.features * sizes.hidden)
            if is_gpu:
                self.pinned = self.pageable.pin_memory()
                self.copies = torch.cuda.Stream()

    def copy_ahead(self):
        with torch.cuda.stream(self.copies):
            self.ahead = self.pinned.to(self.device, non_blocking=True)

    def next_features(self, fault):
        if fault == "pageable_copies" or self.pinned is None:
            return None if self.pageable is None else self.pageable.to(self.device)
        if self.ahead is None:
            self.copy_ahead()
        torch.cuda.current_stream().wait_stream(self.copies)
        features = self.ahead
        features.record_stream(torch.cuda.current_stream())
        self.copy_ahead()
        return features

    def next_tokens(self, fault):
        self.batches.delay_s = self.load_s if fault == "slow_loader" else 0.0
        return next(self.loader)

    def update(self, fault):
        torch._foreach_copy_(self.gradients, [w.grad for w in self.weights])
        (self.unfused if fault == "optimizer_foreach_off" else self.fused).step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
        for w in self.weights:
            w.grad = None

    def launch(self, tokens, features, fault):
        loss = self.model(tokens, features, fault)
        loss.backward()
        self.update(fault)
        return loss.detach()

    def step(self, fault):
        """Returns the loss, when all of the step is done."""
        tokens = self.next_tokens(fault).to(self.device, non_blocking=True)
        return self.launch(tokens, self.next_features(fault), fault).item()


class GraphedTraining(Training):
    """The same, with forward and backward pass and optimizer in one CUDA graph."""

    def __init__(self, sizes, device):
        super().__init__(sizes, device, is_capturable=True)
        self.tokens = next(self.loader).to(device)
        # As torch.cuda.graph asks for: what is made at first use is made before, on another stream.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.launch(self.tokens, None, None)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.launch(self.tokens, None, None)

    def step(self, fault):
        self.tokens.copy_(self.next_tokens(fault), non_blocking=True)
        self.graph.replay()
        return self.loss.item()


def timed_ms(step):
    begin = time.perf_counter()
    loss = step()
    elapsed_ms = 1e3 * (time.perf_counter() - begin)
    if not math.isfinite(loss):
        raise ArithmeticError(f"loss is {loss}")
    return elapsed_ms


def measure(kinds):
    """Milliseconds of the steps of each kind, in turns."""
    usual_ms = [statistics.median(timed_ms(step) for _ in range(3)) for step in kinds]
    num_steps = int(1e3 * MEASURE_S / (NUM_BLOCKS * sum(usual_ms))) - 1
    num_steps = max(2, min(STEPS_OF_BLOCK, num_steps))
    times_ms = [[] for _ in kinds]
    for _ in range(NUM_BLOCKS):
        for step, own_ms in zip(kinds, times_ms):
            step()  # finds memory as the other kind left it
            own_ms += [timed_ms(step) for _ in range(num_steps)]
    return times_ms


def spread(times_ms):
    low, median, high = statistics.quantiles(times_ms, n=4, method="inclusive")
    return {"median": round(median, 3), "quartiles": [round(low, 3), round(high, 3)], "steps": len(times_ms)}


def record(step, path, num_active, is_gpu):
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if is_gpu else [])
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=num_active, repeat=1),
                 record_shapes=True, on_trace_ready=lambda ready: ready.export_chrome_trace(path)) as profiler:
        for _ in range(1 + num_active):
            step()
            profiler.step()


def record_small(step, path, is_gpu):
    """Returns how many steps the trace has: three, or as many as keep it small enough to be stored."""
    for num_active in (3, 2, 1):
        record(step, path, num_active, is_gpu)
        if os.path.getsize(path) <= MAX_TRACE_BYTES:
            break
    return num_active


def read_trace(path, num_steps):
    """Of each step: the number of kernels, the milliseconds in which one ran at least, and those of the step, which are
    more than without the profiler."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    kernels = sorted((float(e["ts"]), float(e["dur"])) for e in events if e.get("cat") == "kernel")
    busy_us, end_us = 0.0, -math.inf
    for start_us, length_us in kernels:
        busy_us += max(0.0, start_us + length_us - max(start_us, end_us))
        end_us = max(end_us, start_us + length_us)
    steps_ms = {e["name"]: float(e["dur"]) / 1e3 for e in events
                if e.get("cat") == "user_annotation" and e.get("name", "").startswith("ProfilerStep#")}
    traced_ms = round(statistics.median(steps_ms.values()), 3) if steps_ms else None
    return len(kernels) / num_steps, busy_us / 1e3 / num_steps, traced_ms


def facts_of(device):
    is_gpu = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if is_gpu else None
    return {"device": properties.name if is_gpu else "cpu", "device_bytes": properties.total_memory if is_gpu else None,
            "torch": torch.__version__, "cuda": torch.version.cuda}


def run_case(case, sizes, device, folder):
    is_gpu = device.type == "cuda"
    fault = None if case.name in ("large_gemms", "tiny_kernels") else case.name
    training = Training(sizes, device)
    if case.name == "slow_loader":
        training.load_s = 0.6e-3 * statistics.median([timed_ms(lambda: training.step(None)) for _ in range(5)][2:])

    def faulty():
        return training.step(fault)

    for _ in range(2):
        faulty()
    peak_bytes = None
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
        faulty()
        peak_bytes = torch.cuda.max_memory_allocated()

    accepted = [(case.label, case.sub_cause), *case.others]
    truth = {"name": case.name, "label": case.label, "sub_cause": case.sub_cause,
             "accepted": [{"label": label, "sub_cause": sub_cause} for label, sub_cause in accepted],
             "fault": case.fault, "healthy": case.healthy or None, "notes": []}
    healthy = None
    if case.name == "tiny_kernels":
        try:
            graphed = GraphedTraining(sizes, device) if is_gpu else None
            healthy = None if graphed is None else lambda: graphed.step(None)
            if healthy is not None:
                healthy()
        except Exception as error:  # then the time of the kernels is what is left, below
            healthy = None
            truth["notes"].append(f"no CUDA graph: {error}")
    elif case.healthy:
        def healthy():
            return training.step(None)

    times_ms = measure([faulty] if healthy is None else [healthy, faulty])
    truth["step_ms_faulty"] = spread(times_ms[-1])
    truth["step_ms_healthy"] = None if healthy is None else spread(times_ms[0])

    if case.healthy and case.name != "tiny_kernels":  # to be compared with the faulty one
        record_small(lambda: training.step(None), os.path.join(folder, f"{case.name}-healthy.json.gz"), is_gpu)
    trace = f"{case.name}.json.gz"
    path = os.path.join(folder, trace)
    num_steps = record_small(faulty, path, is_gpu)
    num_kernels, kernels_ms, traced_ms = read_trace(path, num_steps)
    if is_gpu and num_kernels == 0:
        truth["notes"].append("the profiler recorded no kernels")
    if case.name == "tiny_kernels" and healthy is None and num_kernels > 0:
        kernels_ms = round(kernels_ms, 3)
        truth["healthy"] = "as long as kernels ran in the trace, as there is no CUDA graph"
        truth["step_ms_healthy"] = {"median": kernels_ms, "quartiles": [kernels_ms, kernels_ms], "steps": num_steps}
    gain = None
    if truth["step_ms_healthy"] is not None:
        gain = round(1 - truth["step_ms_healthy"]["median"] / truth["step_ms_faulty"]["median"], 4)
    return truth | {"gain_ratio": gain, "peak_allocated_bytes": peak_bytes, "trace": trace, "steps_of_trace": num_steps,
                    "trace_bytes": os.path.getsize(path), "kernels_per_step": round(num_kernels, 1),
                    "kernel_ms_per_step": round(kernels_ms, 3), "step_ms_traced": traced_ms,
                    "sizes": dataclasses.asdict(sizes), **facts_of(device)}


def line_of(done):
    words = [f"{done['name']:22} {done['step_ms_faulty']['median']:9.2f} ms"]
    if done["gain_ratio"] is not None:
        words += [f"healthy {done['step_ms_healthy']['median']:9.2f} ms", f"gain {100 * done['gain_ratio']:5.1f} %"]
    words += [f"{done['kernels_per_step']:.0f} kernels", f"trace {done['trace_bytes'] / 1e6:.2f} MB", *done["notes"]]
    return ", ".join(words)


def write_truth(folder, truth):
    path = os.path.join(folder, "truth.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(truth, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def clean_up(device):
    gc.collect()
    if device.type == "cuda":
        with contextlib.suppress(Exception):  # an error of the last case's kernels may come as late as here
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=150, help="no case begins that would end later")
    parser.add_argument("--only", default="", metavar="NAME,...", help=", ".join(case.name for case in CASES))
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    options = parser.parse_args(arguments)
    options.only = [name for name in options.only.split(",") if name]
    unknown = set(options.only) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available() and not options.tiny:
        parser.error("no GPU: only --tiny can run")
    return options


def main(arguments):
    begin = time.perf_counter()
    options = parse(arguments)
    os.makedirs(options.out, exist_ok=True)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    # Else the attention that writes its scores would do so in FP32, and be bound by products in FP32.
    with contextlib.suppress(AttributeError):
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    truth = {**facts_of(device), "is_tiny": options.tiny, "cases": [], "skipped": [], "failed": []}
    longest_s = DEFAULT_CASE_S
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        case_begin = time.perf_counter()
        why = None
        if case.needs_gpu and device.type != "cuda":
            why = "needs a GPU"
        elif case_begin - begin + longest_s > options.seconds:
            why = "too late to begin"
        if why is not None:
            truth["skipped"].append({"name": case.name, "why": why})
            print(f"{case.name:22} skipped: {why}", flush=True)
            write_truth(options.out, truth)
            continue
        try:
            done = run_case(case, case.sizes.tiny() if options.tiny else case.sizes, device, options.out)
        except Exception as error:
            truth["failed"].append({"name": case.name, "error": f"{type(error).__name__}: {error}",
                                    "traceback": traceback.format_exc()})
            print(f"{case.name:22} failed: {error}", flush=True)
        else:
            truth["cases"].append(done)
            print(line_of(done) + f", {time.perf_counter() - case_begin:.1f} s", flush=True)
        clean_up(device)
        if len(truth["cases"]) > 1:  # the first one also loads libraries
            longest_s = max(longest_s, time.perf_counter() - case_begin)
        write_truth(options.out, truth)
    print(f"{len(truth['cases'])} cases in {time.perf_counter() - begin:.0f} s", flush=True)
    return 0 if truth["cases"] and not truth["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
