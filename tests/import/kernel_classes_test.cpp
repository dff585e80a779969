// Real kernel names, and names that only look like communication.
#include "profiler/analysis/kernel_classes.h"

#include <boost/test/unit_test.hpp>
#include <string>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(kernel_classes)

BOOST_AUTO_TEST_CASE(kernels_are_what_their_names_say) {
  struct Row {
    const char* name;
    KernelClass kernel_class;
  };
  using K = KernelClass;
  constexpr Row kRows[] = {
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", K::nccl},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", K::nccl},
      {"ncclSymkDevKernel_AllReduce_AGxLL_R(ncclSymkDevWorkArgs)", K::nccl},
      {"void mscclKernel_Sum_half_Simple(ncclDevComm*)", K::msccl},
      {"mscclpp::allreduce7<half>", K::msccl},
      {"void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)", K::deepep_layout},
      {"void dpsk::ep::internode::dispatch<false, 8>(int4*)", K::deepep},
      {"void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int4*)", K::deepep},
      {"deep_ep::intranode::cached_notify_combine<8>", K::deepep},
      {"void hybrid_ep::dispatch_kernel<8>()", K::hybridep},
      {"void hybrid_ep::permute_kernel<8>()", K::hybridep_pack},
      {"void mori::moe::EpDispatchInterNodeV1Kernel<__hip_bfloat16, true>(x)", K::mori},
      {"EpCombineIntraNodeKernel_bf16", K::mori},
      {"void mori::moe::ConvertOutput<half>(mori::moe::EpDispatchCombineArgs<half>)", K::other},
      {"my_StepDispatchKernel", K::other},
      {"nvshmemi_transfer_rma_put", K::nvshmem},
      {"void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
       K::symmetric_memory},
      {"void vllm::cross_device_reduce_1stage<half, 8>", K::symmetric_memory},
      {"void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<2>(int, int, int, int)", K::userbuffers},
      {"void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int, int, int, int)", K::userbuffers},
      {"kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", K::userbuffers},
      {"kuserbuffers_pullrecv(int, int, int, int*, int*, int4*, int4*, int)", K::userbuffers},
      {"void gemm_with_ub_overlap<userbuffers_chunks>()", K::gemm},
      {"void my_userbuffers_gemm_gpu_kernel()", K::gemm},
      {"void cub::DispatchRadixSort::sort()", K::indexing},
      {"cub::DispatchReduceByKey<long>", K::indexing},
      {"void step::dispatch()", K::other},  // no word begins at "ep::"
      {"void at::native::reduce_kernel<512, 1>(allreduce)", K::elementwise},
      {"void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)", K::attention},
      {"fmhaSm100aKernel_QkvBfloat16", K::attention},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop", K::attention},
      {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", K::gemm},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", K::gemm},
      {"Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", K::gemm},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)",
       K::gemm},
      {"void cutlass::device_kernel<GroupProblemShape<Shape>>", K::grouped_gemm},
      {"moe::dev::routing::routingIndicesHistogramKernel", K::moe_routing},
      {"void permute_2D_data_kernel<true>", K::indexing},
      {"__amd_rocclr_copyBuffer.kd", K::copy_kernel},
      {"__amd_rocclr_fillBufferAligned.kd", K::fill_kernel},
      {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", K::norm},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<T>", K::optimizer},
      {"void at::native::vectorized_elementwise_kernel<4>", K::elementwise},
      {"triton_poi_fused_add_0", K::elementwise},
      {"spin", K::other},
      {"", K::other},
  };
  for (const Row& row : kRows) {
    BOOST_TEST(std::string(row_of(kernel_class_of(row.name)).name) == row_of(row.kernel_class).name,
               row.name);
  }
}

BOOST_AUTO_TEST_CASE(rows_are_in_the_order_of_their_ids) {
  for (size_t i = 0; i < static_cast<size_t>(KernelClass::count); ++i) {
    BOOST_TEST(static_cast<size_t>(row_of(static_cast<KernelClass>(i)).id) == i);
  }
}

BOOST_AUTO_TEST_CASE(rule_sets_differ_in_what_is_communication) {
  NameTable names;
  ImportedOp nccl;
  nccl.name = names.intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)");
  ImportedOp ep;
  ep.name = names.intern("deep_ep::intranode::dispatch<8>");
  ImportedOp layout;
  layout.name = names.intern("deep_ep::get_dispatch_layout<8>");
  ImportedOp copy = nccl;
  copy.kind = ActivityKind::copy;
  const WorkClasses narrow(names, RuleSet::nccl);
  const WorkClasses wide(names, RuleSet::wide);
  BOOST_TEST((narrow.of(nccl) == WorkClass::communication));
  BOOST_TEST((wide.of(nccl) == WorkClass::communication));
  BOOST_TEST((narrow.of(ep) == WorkClass::compute));
  BOOST_TEST((wide.of(ep) == WorkClass::communication));
  BOOST_TEST((narrow.of(layout) == WorkClass::compute));
  BOOST_TEST((wide.of(layout) == WorkClass::dispatcher));
  BOOST_TEST((wide.of(copy) == WorkClass::copy));
}

// Figures that are compared with other tools' know what these know. Verdicts know more.
BOOST_AUTO_TEST_CASE(verdicts_know_transports_that_figures_do_not) {
  ImportedTrace trace;
  for (const char* name : {"void mori::moe::EpCombineIntraNodeKernel<float>(x)",
                           "void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int)"}) {
    ImportedOp op;
    op.name = trace.names.intern(name);
    BOOST_TEST((WorkClasses(trace).of(op) == WorkClass::communication), name);
    BOOST_TEST((WorkClasses(trace.names, RuleSet::wide).of(op) == WorkClass::compute), name);
  }
  ImportedOp copy;
  copy.name = trace.names.intern("Memcpy PtoP (Device -> Device)");
  copy.kind = ActivityKind::copy;
  copy.path = CopyPath::peer;
  BOOST_TEST((WorkClasses(trace).of(copy) == WorkClass::communication));
  BOOST_TEST((WorkClasses(trace.names, RuleSet::wide).of(copy) == WorkClass::copy));
  copy.path = CopyPath::on_device;
  BOOST_TEST((WorkClasses(trace).of(copy) == WorkClass::copy));
}

// Counts of RuleSet::wide are those of other tools, so they go by names. Verdicts do not.
BOOST_AUTO_TEST_CASE(for_verdicts_the_files_word_counts_before_the_name) {
  ImportedTrace trace;
  CommCall described;
  described.collective = trace.names.intern("allreduce");
  CommCall grouped;  // only its group is known
  grouped.group = trace.names.intern("0");
  trace.comms = {described, grouped};
  ImportedOp op;
  op.name = trace.names.intern("mcclKernel_AllReduce_RING");
  ImportedOp collective = op;
  collective.comm = 0;
  ImportedOp other = op;
  other.comm = 1;
  ImportedOp copy = collective;
  copy.kind = ActivityKind::copy;
  const WorkClasses judged(trace);
  BOOST_TEST((judged.of(op) == WorkClass::compute));
  BOOST_TEST((judged.of(collective) == WorkClass::communication));
  BOOST_TEST((judged.of(other) == WorkClass::compute));
  BOOST_TEST((judged.of(copy) == WorkClass::copy));
  BOOST_TEST((WorkClasses(trace.names, RuleSet::wide).of(collective) == WorkClass::compute));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
