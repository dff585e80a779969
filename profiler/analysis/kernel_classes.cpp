#include "profiler/analysis/kernel_classes.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace moetune::profiler {
namespace {

constexpr KernelClassRow kClassRows[] = {
    {KernelClass::nccl, "NCCL", WorkClass::communication},
    {KernelClass::rccl, "RCCL", WorkClass::communication},
    {KernelClass::deepep, "DeepEP", WorkClass::communication},
    {KernelClass::deepep_layout, "DeepEP layout", WorkClass::dispatcher},
    {KernelClass::hybridep, "HybridEP", WorkClass::communication},
    {KernelClass::hybridep_pack, "HybridEP packing", WorkClass::dispatcher},
    {KernelClass::mori, "MORI", WorkClass::communication, false},
    {KernelClass::nvshmem, "NVSHMEM", WorkClass::communication},
    {KernelClass::msccl, "MSCCL", WorkClass::communication},
    {KernelClass::symmetric_memory, "symmetric memory", WorkClass::communication},
    {KernelClass::userbuffers, "userbuffers", WorkClass::communication, false},
    {KernelClass::copy_kernel, "copy", WorkClass::compute},
    {KernelClass::fill_kernel, "fill", WorkClass::compute},
    {KernelClass::moe_routing, "routing", WorkClass::compute},
    {KernelClass::attention, "attention", WorkClass::compute},
    {KernelClass::grouped_gemm, "grouped GEMM", WorkClass::compute},
    {KernelClass::gemm, "GEMM", WorkClass::compute},
    {KernelClass::convolution, "convolution", WorkClass::compute},
    {KernelClass::quantisation, "quantisation", WorkClass::compute},
    {KernelClass::norm, "norm", WorkClass::compute},
    {KernelClass::optimizer, "optimizer", WorkClass::compute},
    {KernelClass::indexing, "indexing", WorkClass::compute},
    {KernelClass::elementwise, "element-wise", WorkClass::compute},
    {KernelClass::other, "other", WorkClass::compute},
};
static_assert(std::size(kClassRows) == static_cast<size_t>(KernelClass::count));

enum class Where : uint8_t { anywhere, at_start, at_word };

/// Fits a name that has `text` there and, behind it, `then`.
struct Pattern {
  KernelClass id;
  std::string_view text;
  std::string_view then = {};
  Where where = Where::anywhere;
  bool ignores_case = false;  ///< `text` is in small letters then
};

// In this order: what packs for a transport before the transport, attention before GEMM (flash
// kernels are cutlass kernels), GEMM before convolution (implicit GEMMs that say so are both).
constexpr Pattern kPatterns[] = {
    {KernelClass::deepep_layout, "ep::", "get_dispatch_layout", Where::at_word},
    {KernelClass::deepep_layout, "deep_ep", "get_dispatch_layout"},
    {KernelClass::hybridep_pack, "hybrid_ep", "permute"},
    {KernelClass::hybridep_pack, "hybrid_ep", "preprocess"},
    {KernelClass::hybridep_pack, "hybrid_ep", "metadata"},
    {KernelClass::hybridep_pack, "hybrid_ep", "scan"},
    {KernelClass::nccl, "ncclKernel", {}, Where::at_start},
    {KernelClass::nccl, "ncclDevKernel", {}, Where::at_start},
    {KernelClass::nccl, "ncclSymDevKernel", {}, Where::at_start},
    {KernelClass::nccl, "ncclSymkDevKernel", {}, Where::at_start},
    {KernelClass::rccl, "rccl"},
    {KernelClass::msccl, "msccl"},
    {KernelClass::symmetric_memory, "cross_device_reduce"},
    {KernelClass::symmetric_memory, "multimem_all_reduce"},
    {KernelClass::symmetric_memory, "multimem_all_gather"},
    {KernelClass::symmetric_memory, "multimem_one_shot"},
    {KernelClass::symmetric_memory, "multimem_reduce"},
    {KernelClass::symmetric_memory, "one_shot_all_reduce"},
    {KernelClass::symmetric_memory, "two_shot_all_reduce"},
    {KernelClass::symmetric_memory, "symm_mem", "all_reduce"},
    {KernelClass::symmetric_memory, "symm_mem", "barrier"},
    {KernelClass::userbuffers, "userbuffers_", "_gpu_", Where::at_word},
    {KernelClass::userbuffers, "kuserbuffers_", {}, Where::at_word},
    {KernelClass::nvshmem, "nvshmem"},
    {KernelClass::deepep, "ep::", "dispatch", Where::at_word},
    {KernelClass::deepep, "ep::", "combine", Where::at_word},
    {KernelClass::deepep, "ep::", "notify", Where::at_word},
    {KernelClass::deepep, "ep::", "barrier", Where::at_word},
    {KernelClass::deepep, "deep_ep", "dispatch"},
    {KernelClass::deepep, "deep_ep", "combine"},
    {KernelClass::deepep, "deep_ep", "notify"},
    {KernelClass::deepep, "deep_ep", "barrier"},
    {KernelClass::hybridep, "hybrid_ep", "dispatch"},
    {KernelClass::hybridep, "hybrid_ep", "combine"},
    {KernelClass::hybridep, "hybrid_ep", "barrier"},
    {KernelClass::mori, "EpDispatch", "Kernel", Where::at_word},
    {KernelClass::mori, "EpCombine", "Kernel", Where::at_word},

    {KernelClass::copy_kernel, "__amd_rocclr_copyBuffer"},
    {KernelClass::copy_kernel, "MEMORY_COPY_"},
    {KernelClass::fill_kernel, "__amd_rocclr_fillBuffer"},
    {KernelClass::indexing, "permute_2D_data_kernel"},  // of embeddings
    {KernelClass::moe_routing, "permute_kernel"},
    {KernelClass::moe_routing, "unpermute"},
    {KernelClass::moe_routing, "sort_chunks"},
    {KernelClass::moe_routing, "moe::dev::routing"},
    {KernelClass::moe_routing, "moe::dev::finalize"},
    {KernelClass::moe_routing, "moe::dev::permute"},
    {KernelClass::moe_routing, "moe", "routing"},
    {KernelClass::moe_routing, "topk", "gating"},
    {KernelClass::moe_routing, "topk", "softmax"},
    {KernelClass::attention, "flash_fwd"},
    {KernelClass::attention, "flash_bwd"},
    {KernelClass::attention, "flashattn", {}, Where::anywhere, true},
    {KernelClass::attention, "fmha", {}, Where::anywhere, true},
    {KernelClass::attention, "compute_attn"},
    {KernelClass::attention, "cudnn", "sdpa"},
    {KernelClass::attention, "_attn_fwd"},
    {KernelClass::attention, "_attn_bwd"},
    {KernelClass::grouped_gemm, "GroupProblemShape"},
    {KernelClass::grouped_gemm, "GemmGrouped"},
    {KernelClass::grouped_gemm, "grouped_gemm"},
    {KernelClass::grouped_gemm, "group_gemm"},
    {KernelClass::grouped_gemm, "bmm_MxE"},
    {KernelClass::gemm, "gemm", {}, Where::anywhere, true},
    {KernelClass::gemm, "nvjet_"},
    {KernelClass::gemm, "cutlass::device_kernel"},
    {KernelClass::gemm, "cutlass::Kernel"},
    {KernelClass::gemm, "Cijk_", {}, Where::at_start},
    {KernelClass::gemm, "_xmma_"},
    {KernelClass::gemm, "bmm_"},
    {KernelClass::gemm, "cublasLt"},
    {KernelClass::gemm, "splitKreduce"},
    {KernelClass::gemm, "gemv", {}, Where::anywhere, true},
    {KernelClass::convolution, "scudnn"},
    {KernelClass::convolution, "wgrad"},
    {KernelClass::convolution, "dgrad"},
    {KernelClass::convolution, "winograd", {}, Where::anywhere, true},
    {KernelClass::convolution, "miopen", {}, Where::anywhere, true},
    {KernelClass::convolution, "conv2d"},
    {KernelClass::convolution, "convolve"},
    {KernelClass::convolution, "conv_"},
    {KernelClass::quantisation, "quantize"},
    {KernelClass::quantisation, "cast_to_fp8"},
    {KernelClass::quantisation, "per_token_cast"},
    {KernelClass::quantisation, "per_channel_cast"},
    {KernelClass::quantisation, "cast_transpose"},
    {KernelClass::norm, "layer_norm"},
    {KernelClass::norm, "layernorm", {}, Where::anywhere, true},
    {KernelClass::norm, "rms_norm"},
    {KernelClass::norm, "rmsnorm", {}, Where::anywhere, true},
    {KernelClass::norm, "batch_norm"},
    {KernelClass::norm, "bn_fw"},
    {KernelClass::norm, "bn_bw"},
    {KernelClass::optimizer, "multi_tensor_apply"},
    {KernelClass::optimizer, "adam", {}, Where::anywhere, true},
    {KernelClass::indexing, "embedding"},
    {KernelClass::indexing, "cub::"},
    {KernelClass::indexing, "radix"},
    {KernelClass::indexing, "index_"},
    {KernelClass::indexing, "gather"},
    {KernelClass::indexing, "scatter"},
    {KernelClass::elementwise, "elementwise"},
    {KernelClass::elementwise, "reduce_kernel"},
    {KernelClass::elementwise, "CatArrayBatchedCopy"},
    {KernelClass::elementwise, "triton_poi"},
    {KernelClass::elementwise, "triton_red"},
    {KernelClass::elementwise, "triton_per"},
};

bool is_word_character(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || c == '_' || byte >= 0x80;
}

size_t find_text(std::string_view name, const Pattern& pattern, size_t from) {
  if (!pattern.ignores_case) return name.find(pattern.text, from);
  const auto at = std::search(name.begin() + static_cast<std::ptrdiff_t>(from), name.end(),
                              pattern.text.begin(), pattern.text.end(), [](char a, char b) {
                                return std::tolower(static_cast<unsigned char>(a)) == b;
                              });
  return at == name.end() ? std::string_view::npos : static_cast<size_t>(at - name.begin());
}

bool fits(std::string_view name, const Pattern& pattern) {
  size_t at = 0;
  if (pattern.where == Where::at_start) {
    if (!name.starts_with(pattern.text)) return false;
  } else {
    at = find_text(name, pattern, 0);
    while (pattern.where == Where::at_word && at != std::string_view::npos && at > 0 &&
           is_word_character(name[at - 1])) {
      at = find_text(name, pattern, at + 1);
    }
    if (at == std::string_view::npos) return false;
  }
  return name.find(pattern.then, at + pattern.text.size()) != std::string_view::npos;
}

}  // namespace

const KernelClassRow& row_of(KernelClass kernel_class) {
  return kClassRows[static_cast<size_t>(kernel_class)];
}

KernelClass kernel_class_of(std::string_view name) {
  for (const Pattern& pattern : kPatterns) {
    if (fits(name, pattern)) return pattern.id;
  }
  return KernelClass::other;
}

WorkClasses::WorkClasses(const NameTable& names, RuleSet rules) {
  by_name_.reserve(names.size());
  for (size_t name = 0; name < names.size(); ++name) {
    const std::string_view text = names[static_cast<uint32_t>(name)];
    if (rules == RuleSet::wide) {
      const KernelClassRow& row = row_of(kernel_class_of(text));
      by_name_.push_back(row.is_in_wide ? row.work : WorkClass::compute);
    } else {
      const bool is_comm = text.starts_with("nccl") && text.find("Kernel", 4) != text.npos;
      by_name_.push_back(is_comm ? WorkClass::communication : WorkClass::compute);
    }
  }
}

WorkClasses::WorkClasses(const ImportedTrace& trace) : is_for_verdicts_(true) {
  by_name_.reserve(trace.names.size());
  for (size_t name = 0; name < trace.names.size(); ++name) {
    by_name_.push_back(row_of(kernel_class_of(trace.names[static_cast<uint32_t>(name)])).work);
  }
  is_described_.reserve(trace.comms.size());
  for (const CommCall& comm : trace.comms) is_described_.push_back(comm.collective != kNoRow);
}

}  // namespace moetune::profiler
