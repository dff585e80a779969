// How fast kernels, links and hosts work in practice, as shares of what a machine's data sheet
// says: few numbers, fitted to published runs. moetune calibrate fits them anew.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/spec/peaks.h"

namespace moetune::tuner::planner {

/// Generations of devices that share efficiencies.
enum class Generation : uint8_t { ampere, hopper, blackwell };
/// By what a device computes in: no FP8, FP8, FP4.
Generation generation_of(const spec::HardwareSpec& hardware);
/// Whether it is a later revision of its generation, by its peak in FP4 (B300, GB300).
bool is_later_revision(const spec::HardwareSpec& hardware);

/// One for each PrecisionRecipe.
using CaseFactors = std::array<double, spec::NameTable<spec::PrecisionRecipe>::kRows.size()>;
constexpr CaseFactors no_case_factors() {
  CaseFactors ones{};
  ones.fill(1);
  return ones;
}

/// Shares are of a peak or bandwidth; factors are of the time that the plain arithmetic gives.
struct Rates {
  // Products of the layers, by generation and by what they compute in.
  double product_ampere = 0.76;
  double product_hopper = 0.59;
  double product_hopper_fp8 = 0.58;
  double product_blackwell = 0.48;
  double product_blackwell_fp8 = 0.67;
  double product_blackwell_mxfp8 = 0.61;
  double product_blackwell_nvfp4 = 0.38;
  double product_half_rows = 100;  ///< rows of a rank at which half of that is reached
  double grouped = 0.95;           ///< experts' products, over the others
  double grouped_half_rows = 400;  ///< rows of an expert at which half of that is reached
  double attention = 0.7;          ///< over published kernel measurements
  double attention_fp8 = 1.25;
  double attention_wide = 0.7;  ///< heads of 256, over narrower ones
  double scan = 0.012;          ///< of the 16-bit peak: Mamba-2
  double scan_delta = 0.055;    ///< of the 16-bit peak: Gated DeltaNet
  double memory_dense = 1.3;    ///< time over bytes / bandwidth
  double memory_moe = 2.4;
  /// Biases and clamps of experts are kernels of their own: time of the activation over that of
  /// the usual, fused one.
  double biased_experts = 4;
  double fused_mlp = 0.6;       ///< of the time of the experts' activation and packing
  double fused_permute = 0.7;   ///< of the time of sorting rows, where the dispatcher does it
  double later_revision = 1.3;  ///< speed of B300 and GB300 beside B200 and GB200
  double host_layer_ns = 7e6;   ///< of the MoE layer of host_time.h, on x86
  double exchange = 0.82;       ///< exchange of experts' rows, over published kernel measurements
  double exchange_exposed = 0.32;  ///< with overlap
  double tensor_factor = 1.8;      ///< tensor-parallel transfers, time over bytes / bandwidth
  double data_exposed = 0.49;      ///< of gradients and weights, with overlap
  double pipeline_exposed = 0.24;
  double optimizer_factor = 1.5;  ///< time over the bytes of its state
  double fixed_ns = 60e6;         ///< of each step
  double parameter_ns = 60e3;     ///< of each step and parameter tensor of a rank, on x86
  double drift_moe = 0.014;       ///< gain of a month's releases at the same configuration
  double drift_dense = 0.005;
  /// Step time of the runs that are asked for over what the rates above say, by precision. It is no
  /// rate: it belongs to a machine, a kind of routing and a half-year.
  CaseFactors case_factor = no_case_factors();
};

/// Months after 2026-06 of the first and the last release among the published runs that the shipped
/// rates were fitted to: 2022-05 and 2026-08.
inline constexpr double kFirstFittedMonth = -49;
inline constexpr double kLastFittedMonth = 2;
/// The nearest month of that span: nothing tells that releases get faster or slower beyond it.
inline double fitted_month(double months) {
  return std::clamp(months, kFirstFittedMonth, kLastFittedMonth);
}

/// A coefficient as calibration sees it.
struct RateRow {
  std::string_view name;
  double Rates::*member;
  double low;    ///< plausible range
  double high;   //
  double sigma;  ///< of the prior on its logarithm, around the default; 0: not fitted
  std::string_view help;
};
std::span<const RateRow> rate_table();

using spec::peak_flops_per_s;

/// FLOP/s that GEMMs reach in that recipe on that machine: their peak times the share of it. With
/// `has_tf32` those of 32 bits are done in TF32.
double product_flops_per_s(const Rates& rates, const spec::HardwareSpec& hardware,
                           spec::PrecisionRecipe recipe, bool has_tf32);
/// FLOP/s of Gated DeltaNet or Mamba-2. Their kernels were written for Hopper: on later devices
/// they lose the share that 16-bit products lose.
double scan_flops_per_s(const Rates& rates, const spec::HardwareSpec& hardware, bool is_delta);
/// FLOP/s of attention's core. Published kernel measurements by sequence length
/// (arXiv 2603.07685, table 9), times Rates::attention.
double attention_flops_per_s(const Rates& rates, const spec::HardwareSpec& hardware, double seq,
                             double head_dim, bool is_backward, bool is_fp8);
/// Of 32 bits: PyTorch's products. Unfused it computes the masked pairs, too, which do not count.
double wide_attention_flops_per_s(const Rates& rates, const spec::HardwareSpec& hardware,
                                  bool is_fused);

}  // namespace moetune::tuner::planner
