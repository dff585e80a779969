// The table of fitted coefficients, and rates of products and attention.
#include "tuner/planner/rates.h"

#include <algorithm>
#include <cmath>

namespace moetune::tuner::planner {

namespace {

using spec::HardwareSpec;
using spec::PrecisionRecipe;
using R = Rates;

constexpr RateRow kRates[] = {
    {"product_ampere", &R::product_ampere, 0.2, 1, 0.15, "Products in 16 bits, A100."},
    {"product_hopper", &R::product_hopper, 0.2, 1, 0.2, "Products in 16 bits, Hopper."},
    {"product_hopper_fp8", &R::product_hopper_fp8, 0.15, 1, 0.2, "Products in FP8, Hopper."},
    {"product_blackwell", &R::product_blackwell, 0.2, 1, 0.2, "Products in 16 bits, Blackwell."},
    {"product_blackwell_fp8", &R::product_blackwell_fp8, 0.15, 1, 0.2,
     "Products in FP8 with a scale a tensor, Blackwell."},
    {"product_blackwell_mxfp8", &R::product_blackwell_mxfp8, 0.15, 1, 0.2,
     "Products in MXFP8, Blackwell."},
    {"product_blackwell_nvfp4", &R::product_blackwell_nvfp4, 0.1, 1, 0.2,
     "Products in NVFP4, Blackwell."},
    {"product_half_rows", &R::product_half_rows, 1, 4000, 0.7,
     "Rows of a rank at which a dense product reaches half of its rate."},
    {"grouped", &R::grouped, 0.3, 1.2, 0, "Experts' products over the others."},
    {"grouped_half_rows", &R::grouped_half_rows, 10, 3000, 0.5,
     "Rows of an expert at which its products reach half of their rate."},
    {"attention", &R::attention, 0.3, 1.2, 0.25, "Attention's core over published kernels."},
    {"attention_fp8", &R::attention_fp8, 1, 2, 0, "Attention in FP8 over 16 bits."},
    {"attention_wide", &R::attention_wide, 0.3, 1, 0.2, "Attention with heads of 256 over others."},
    {"scan", &R::scan, 0.001, 0.2, 0.5, "Mamba-2's scan: share of the 16-bit peak."},
    // Kernels of flash-linear-attention, forward and backward, on H200 at 32K.
    {"scan_delta", &R::scan_delta, 0.005, 0.2, 0.3,
     "Gated DeltaNet's scan: share of the 16-bit peak."},
    {"memory_dense", &R::memory_dense, 0.5, 5, 0.3, "Time over bytes, dense layers."},
    {"memory_moe", &R::memory_moe, 0.5, 8, 0.4, "Time over bytes, routing and experts."},
    {"biased_experts", &R::biased_experts, 1, 30, 0.7,
     "Time of the activation of experts with biases over that of others."},
    {"fused_mlp", &R::fused_mlp, 0.2, 1, 0.3,
     "Time of activation and packing with a fused grouped MLP, over without."},
    {"fused_permute", &R::fused_permute, 0.05, 1, 0.3,
     "Time of sorting rows in the dispatcher, over a kernel of its own."},
    {"later_revision", &R::later_revision, 1, 1.8, 0.15,
     "Speed of B300 and GB300, over B200 and GB200."},
    {"host_layer_ns", &R::host_layer_ns, 1e4, 5e7, 0.6,
     "Host time of an MoE layer with eight experts of a rank, eager."},
    {"exchange", &R::exchange, 0.2, 2, 0.3, "Exchange of rows over published kernels."},
    {"exchange_exposed", &R::exchange_exposed, 0.02, 1, 0.4,
     "Exposed share of the exchange, with overlap."},
    {"tensor_factor", &R::tensor_factor, 0.5, 4, 0.3, "Tensor-parallel time over bytes."},
    {"data_exposed", &R::data_exposed, 0.02, 1, 0.4,
     "Exposed share of data-parallel transfers, with overlap."},
    {"pipeline_exposed", &R::pipeline_exposed, 0.02, 1, 0,
     "Exposed share of messages between stages."},
    {"optimizer_factor", &R::optimizer_factor, 0.5, 5, 0, "Optimizer's time over bytes."},
    {"fixed_ns", &R::fixed_ns, 1e5, 1e9, 0.7, "Fixed time of each step."},
    {"parameter_ns", &R::parameter_ns, 1e3, 1e6, 0.7,
     "Host time of each parameter tensor in a step."},
    {"drift_moe", &R::drift_moe, 0, 0.05, 0, "Monthly gain of releases, MoE."},
    {"drift_dense", &R::drift_dense, 0, 0.05, 0, "Monthly gain of releases, dense."},
};
static_assert(sizeof(Rates) == std::size(kRates) * sizeof(double) + sizeof(CaseFactors),
              "every rate has one row");

/// Linear in log2(seq) through the values at 4K and 16K; constant below 2K and above 16K.
double interpolate_by_length(double seq, double at_4k, double at_16k) {
  const double place = std::clamp(std::log2(seq / 4096) / 2, -0.5, 1.0);
  return at_4k + place * (at_16k - at_4k);
}

}  // namespace

std::span<const RateRow> rate_table() { return kRates; }

Generation generation_of(const HardwareSpec& hardware) {
  if (hardware.fp4_flops_per_s > 0) return Generation::blackwell;
  return hardware.fp8_flops_per_s > 0 ? Generation::hopper : Generation::ampere;
}

bool is_later_revision(const HardwareSpec& hardware) {
  constexpr double kUsual = 4.5;  // four times the 16-bit peak, and some room
  return hardware.fp4_flops_per_s > kUsual * hardware.peak_flops_per_s;
}

double product_flops_per_s(const Rates& rates, const HardwareSpec& hardware, PrecisionRecipe recipe,
                           bool has_tf32) {
  const double wide = hardware.peak_flops_per_s;
  const double fp8 = hardware.fp8_flops_per_s > 0 ? hardware.fp8_flops_per_s : wide;
  const double fp4 = hardware.fp4_flops_per_s > 0 ? 4 * wide : fp8;
  const Generation generation = generation_of(hardware);
  const bool is_blackwell = generation == Generation::blackwell;
  const double share = is_blackwell                       ? rates.product_blackwell
                       : generation == Generation::ampere ? rates.product_ampere
                                                          : rates.product_hopper;
  switch (recipe) {
    case PrecisionRecipe::fp8_current:
    case PrecisionRecipe::fp8_delayed:
    case PrecisionRecipe::fp8_blockwise:
      return fp8 * (is_blackwell ? rates.product_blackwell_fp8 : rates.product_hopper_fp8);
    case PrecisionRecipe::mxfp8:
      return fp8 * (is_blackwell ? rates.product_blackwell_mxfp8 : rates.product_hopper_fp8);
    case PrecisionRecipe::nvfp4:
      return fp4 * (is_blackwell ? rates.product_blackwell_nvfp4 : rates.product_hopper_fp8);
    case PrecisionRecipe::fp32:
      // A sixteenth of the 16-bit peak, by the data sheets of A100 and H100; TF32 half of it.
      return (has_tf32 ? wide / 2 : wide / 16) * share;
    default:
      return wide * share;
  }
}

double scan_flops_per_s(const Rates& rates, const HardwareSpec& hardware, bool is_delta) {
  const bool is_blackwell = generation_of(hardware) == Generation::blackwell;
  const double kept = is_blackwell ? rates.product_blackwell / rates.product_hopper : 1;
  return hardware.peak_flops_per_s * (is_delta ? rates.scan_delta : rates.scan) * kept;
}

double attention_flops_per_s(const Rates& rates, const HardwareSpec& hardware, double seq,
                             double head_dim, bool is_backward, bool is_fp8) {
  const bool is_blackwell = generation_of(hardware) == Generation::blackwell;
  // TFLOP/s on Hopper (989 in 16 bits) and on Blackwell (2250).
  double share = 0;
  if (is_blackwell) {
    share = (is_backward ? interpolate_by_length(seq, 1083, 1298)
                         : interpolate_by_length(seq, 1324, 1698)) /
            2250;
  } else {
    share = (is_backward ? interpolate_by_length(seq, 422, 523)
                         : interpolate_by_length(seq, 553, 638)) /
            989;
  }
  // With half of the width the GEMMs of attention have half the depth.
  if (head_dim <= 64) share *= 0.6;
  // Backward kernels for heads of 256 run out of registers: on H200 they were measured at half the
  // rate of those for 128 (flash-attention, issue 2878).
  if (head_dim > 192) share *= rates.attention_wide;
  return hardware.peak_flops_per_s * share * rates.attention * (is_fp8 ? rates.attention_fp8 : 1.0);
}

double wide_attention_flops_per_s(const Rates& rates, const HardwareSpec& hardware, bool is_fused) {
  const double pairs = is_fused ? 1 : 2;
  return product_flops_per_s(rates, hardware, PrecisionRecipe::fp32, false) / pairs;
}

}  // namespace moetune::tuner::planner
