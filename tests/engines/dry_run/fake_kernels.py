"""What libfakecuda.so cannot stand in for: Triton, cuDNN's attention, Apex, and numbers that kernels would have made.

Imported before Megatron-LM. Kernels of Triton and of torch.compile are compiled as ever, and launched never. Attention
makes its outputs and nothing else. Every expert is given as many tokens, as the fake device's router chooses none.
"""
import math
import os
import sys
import types

import torch
import triton
import triton.runtime.autotuner
import triton.runtime.jit
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Nothing:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: None

    def run(self, *args, **kwargs):
        return None


class Device:
    """What Triton asks of a driver: an H100."""

    class utils:
        @staticmethod
        def get_device_properties(device):
            return dict(max_shared_mem=232448, max_num_regs=65536, multiprocessor_count=132, warpSize=32,
                        sm_clock_rate=1980000, mem_clock_rate=2619000, mem_bus_width=5120)

    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device=0: 0)
    get_active_torch_device = staticmethod(lambda: torch.device("cuda", 0))
    set_current_device = staticmethod(lambda device: None)
    get_device_interface = staticmethod(lambda: torch.cuda)
    get_benchmarker = staticmethod(lambda: lambda function, **kwargs: 1.0)
    map_python_to_cpp_type = staticmethod(lambda kind: kind)
    is_active = staticmethod(lambda: True)


def without_triton():
    for kind in (triton.runtime.jit.JITFunction, triton.runtime.autotuner.Autotuner,
                 triton.runtime.autotuner.Heuristics):
        kind.run = Nothing.run
        kind.__getitem__ = Nothing.__getitem__
    driver.set_active(Device())
    for backend in backends.values():
        object.__setattr__(backend, "driver", Device)
    import torch.utils._triton
    import torch._inductor.config
    import torch._inductor.runtime.triton_helpers as helpers
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    torch.utils._triton.has_triton = torch.utils._triton.has_triton_package = lambda *args: True
    torch._inductor.config.compile_threads = 1
    helpers.set_driver_to_gpu = lambda: None
    CachingAutotuner.precompile = CachingAutotuner.run = Nothing.run


def without_attention():
    import transformer_engine.pytorch  # loads the next
    import transformer_engine_torch as tex
    from transformer_engine.pytorch.cpp_extensions.fused_attn import FusedAttnBackend

    def forward(max_q, max_kv, training, scale, dropout, zero, layout, out_format, scale_format, bias, mask, softmax,
                window, diagonal, cu_q, cu_kv, q, k, v, dtype, *rest):
        packed = q.dim() == 3
        out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=dtype, device="cuda")
        rows = (q.shape[0], q.shape[-2], 1) if packed else (cu_q.numel() - 1, q.shape[-2], max_q, 1)
        tensors = [out, torch.empty(rows, dtype=torch.float32, device="cuda"),
                   torch.empty(2, dtype=torch.int64, device="cuda")]
        sinks = rest[7]
        return tensors + ([sinks] if torch.is_tensor(sinks) else [])

    def backward(max_q, max_kv, scale, dropout, zero, layout, out_format, grad_format, grad_layout, scale_format,
                 grad_scale_format, bias, mask, softmax, window, diagonal, deterministic, cu_q, cu_kv, q, k, v, out,
                 grad, dtype, *rest):
        workspace = torch.empty(q.shape, dtype=torch.float32, device="cuda")
        gradients = [torch.empty(x.shape, dtype=dtype, device="cuda") for x in (q, k, v)]
        del workspace
        of_sinks = None
        if "VANILLA" not in str(softmax):
            of_sinks = torch.empty((1, q.shape[-2], 1, 1), dtype=torch.float32, device="cuda")
        return gradients + [None, of_sinks]

    tex.get_fused_attn_backend = lambda *args, **kwargs: FusedAttnBackend["F16_arbitrary_seqlen"]
    tex.fused_attn_fwd, tex.fused_attn_bwd = forward, backward


def with_balanced_experts():
    from megatron.core.transformer.moe import token_dispatcher

    AllToAll, AllGather = token_dispatcher.MoEAlltoAllTokenDispatcher, token_dispatcher.MoEAllGatherTokenDispatcher
    original = AllToAll.preprocess

    def on_device(values):
        return torch.tensor(values, dtype=torch.int64).to("cuda")

    def preprocess(self, routing_map):
        result = original(self, routing_map)
        if self.drop_and_pad:
            return result
        rows = routing_map.size(0) * self.config.moe_router_topk
        every = [rows // self.num_experts + (i < rows % self.num_experts) for i in range(self.num_experts)]
        if self.config.moe_router_padding_for_quantization:
            unit = 32 if self.config.fp8_recipe == "mxfp8" else 16
            every = [(x + unit - 1) // unit * unit for x in every]
        own = [every[i] for i in self.local_expert_indices]
        if torch.is_tensor(self.num_out_tokens):
            self.num_out_tokens = on_device(sum(every))
        ranks, count = self.ep_size * self.tp_size, self.num_local_experts
        if ranks == 1:
            of_ranks = per_expert = on_device(own)
        else:
            self.input_splits = on_device([sum(every[r * count:(r + 1) * count]) for r in range(self.ep_size)])
            self.output_splits = on_device([sum(own)] * self.ep_size)
            self.output_splits_tp = on_device([sum(own) * self.ep_size] * self.tp_size)
            of_ranks, per_expert = on_device([own] * ranks), on_device([x * ranks for x in own])
        if count > 1:
            self.num_global_tokens_per_local_expert = of_ranks.view(-1, count)
        return per_expert

    def postprocess(self, hidden_states, probs):
        """As the original, whose counts of tokens a kernel would make."""
        first, last = self.local_expert_indices[0], self.local_expert_indices[-1] + 1
        self.hidden_shape_before_permute = hidden_states.shape
        self.local_map = self.routing_map[:, first:last].contiguous()
        self.local_probs = probs[:, first:last].contiguous()
        count = hidden_states.size(0) * self.config.moe_router_topk // self.config.num_moe_experts
        per_expert = torch.full((self.num_local_experts,), count, dtype=torch.long)
        rows = int(per_expert.sum())
        permuted, _, self.reversed_local_input_permutation_mapping, _, _ = token_dispatcher.permute(
            hidden_states, self.local_map, num_out_tokens=rows, fused=self.config.moe_permute_fusion)
        self.local_probs = self.local_probs.T.contiguous().reshape(-1)[:rows] * 1
        self.routing_map = None
        return permuted, per_expert, self.local_probs

    def multihot(self, indices, probs):
        """As the original, whose number of rows a kernel would find."""
        rows, count = indices.size(0), int(self.tokens_per_expert.sum())
        chosen = torch.zeros((rows, self.num_local_experts), dtype=torch.long, device="cuda")
        weights = torch.zeros((rows, self.num_local_experts), dtype=torch.float, device="cuda")
        mask = indices != -1
        valid, places = (torch.empty(count, dtype=torch.long, device="cuda") for _ in range(2))
        chosen[places, valid] = 1
        weights[places, valid] = probs.reshape(-1)[:1].expand(count)
        del mask
        return chosen.bool(), weights

    AllToAll.preprocess, AllGather.dispatch_postprocess = preprocess, postprocess
    token_dispatcher._DeepepManager._indices_to_multihot = multihot


def distinct_ranks(num_ranks, per_rank, chosen):
    """How many ranks hold at least one of the experts that a token chose, if it chose evenly."""
    num_experts = num_ranks * per_rank
    return num_ranks * (1 - math.comb(num_experts - per_rank, chosen) / math.comb(num_experts, chosen))


def with_flex_dispatchers():
    """DeepEP and HybridEP, without their buffers. A rank sends each of its tokens once to each rank that needs it."""

    def empty(*shape, like=None, dtype=None):
        return torch.empty(shape, dtype=dtype or like.dtype, device="cuda")

    class Event:
        def __init__(self, *args):
            pass

        def current_stream_wait(self):
            pass

    class Sizes:
        get_nvl_buffer_size_hint = get_rdma_buffer_size_hint = lambda *args: 0

    class Buffer:
        get_dispatch_config = get_combine_config = staticmethod(lambda num_ranks: Sizes())
        set_num_sms = staticmethod(lambda count: None)

        def __init__(self, group, num_nvl_bytes, num_rdma_bytes):
            self.group, self.num_nvl_bytes, self.num_rdma_bytes = group, num_nvl_bytes, num_rdma_bytes

        def get_dispatch_layout(self, topk_idx, num_experts, **rest):
            self.num_experts = num_experts
            tokens, ranks = topk_idx.size(0), self.group.size()
            counts = [empty(count, dtype=torch.int32) for count in (ranks, max(1, ranks // 8), num_experts)]
            return *counts, empty(tokens, ranks, dtype=torch.bool), Event()

        def dispatch(self, x, handle=None, topk_idx=None, **rest):
            if handle is not None:
                return empty(handle[0], x.size(1), like=x), None, None, None, handle, Event()
            tokens, chosen = topk_idx.shape
            ranks, local = self.group.size(), self.num_experts // self.group.size()
            rows = round(tokens * distinct_ranks(ranks, local, chosen))
            received = tokens * ranks * chosen // self.num_experts
            handle = (rows, tokens, empty(tokens, ranks, dtype=torch.bool), empty(rows, dtype=torch.int32))
            return (empty(rows, x.size(1), like=x), empty(rows, chosen, dtype=torch.int64),
                    empty(rows, chosen, dtype=torch.float32), [received] * local, handle, Event())

        def combine(self, x, handle, topk_weights=None, **rest):
            weights = None if topk_weights is None else empty(handle[1], topk_weights.size(1), dtype=torch.float32)
            return empty(handle[1], x.size(1), like=x), weights, Event()

    class HybridEPBuffer:
        def __init__(self, group, **rest):
            self.ranks = group.size()

        def dispatch_with_permute(self, hidden, routing_map=None, handle=None, num_of_experts_per_rank=None,
                                  pad_multiple=None, num_permuted_tokens=None, **rest):
            if handle is None:
                tokens, num_experts = routing_map.shape
                each = tokens * experts_of_a_token() // num_of_experts_per_rank
                if pad_multiple:
                    each = -(-each // pad_multiple) * pad_multiple
                handle = (num_permuted_tokens or each * num_of_experts_per_rank, tokens, num_experts,
                          [each] * num_of_experts_per_rank)
            rows = handle[0]
            return (empty(rows, hidden.size(1), like=hidden), empty(rows, dtype=torch.float32), None,
                    torch.tensor(handle[3]), handle)

        def combine_with_unpermute(self, hidden, handle, probs=None, **rest):
            weights = None if probs is None else empty(handle[1], handle[2], dtype=torch.float32)
            return empty(handle[1], hidden.size(1), like=hidden), weights

    def experts_of_a_token():
        from megatron.training import get_args

        return get_args().moe_router_topk

    module, utils = types.ModuleType("deep_ep"), types.ModuleType("deep_ep.utils")
    module.Buffer, module.HybridEPBuffer = Buffer, HybridEPBuffer
    module.utils, utils.EventHandle, utils.EventOverlap = utils, Event, Event
    sys.modules["deep_ep"], sys.modules["deep_ep.utils"] = module, utils


def with_all_dispatchers():
    """Megatron-LM refuses flexible ones beside its fake process group."""
    from megatron.training import arguments

    validate = arguments.validate_args

    def validate_args(args, *rest):
        is_fake = args.fake_process_group
        args.fake_process_group = args.use_gloo_process_groups = False
        result = validate(args, *rest)
        args.fake_process_group = is_fake
        return result

    arguments.validate_args = validate_args


def with_stand_ins():
    apex = types.ModuleType("fused_weight_gradient_mlp_cuda")
    apex.wgrad_gemm_accum_fp32 = apex.wgrad_gemm_accum_fp16 = lambda *args: None
    sys.modules[apex.__name__] = apex
    import megatron.core.datasets.utils
    import megatron.core.pipeline_parallel.utils

    megatron.core.datasets.utils.compile_helpers = lambda: None  # it is built
    megatron.core.pipeline_parallel.utils.set_ideal_affinity_for_current_gpu = lambda *args: None
    try:
        import fla.ops.common.chunk_o as chunk_o

        chunk_o.IS_NVIDIA_HOPPER = False  # it refuses Triton's version there, for what its kernels compute
    except ImportError:
        pass


os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("NVTE_DISABLE_NVRTC", "1")
without_triton()
without_attention()
with_flex_dispatchers()
with_stand_ins()
with_all_dispatchers()
with_balanced_experts()
