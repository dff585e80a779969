// Adapters from the rows that the blocks of engine/plan declare, priced like other products.
#include "tuner/planner/adapters.h"

#include <algorithm>
#include <iterator>

#include "engine/plan/blocks/blocks.h"
#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

namespace {

using plan::Op;
using plan::ParamKind;
using plan::ParamRow;
using plan::Split;

struct AdaptedMatrix {
  ParamKind matrix;
  Op product;
};
constexpr AdaptedMatrix kAdaptedMatrices[] = {
    {ParamKind::qkv, Op::qkv_proj},          {ParamKind::o_proj, Op::o_proj},
    {ParamKind::mlp_fc1, Op::mlp_fc1},       {ParamKind::mlp_fc2, Op::mlp_fc2},
    {ParamKind::shared_fc1, Op::shared_fc1}, {ParamKind::shared_fc2, Op::shared_fc2},
    {ParamKind::expert_fc1, Op::expert_fc1}, {ParamKind::expert_fc2, Op::expert_fc2},
};

/// Prices adapters of one kind of layer.
class AdapterPricer {
 public:
  AdapterPricer(const PlanRun& run, spec::LayerKind kind, const Rates& rates)
      : rates_(rates),
        sizes_(sizes_of(run, kind, 0)),
        rank_(run.knobs.lora_rank),
        element_(sizes_.element) {
    const spec::HardwareSpec& hardware = *run.hardware;
    const double revision = is_later_revision(hardware) ? rates.later_revision : 1;
    bandwidth_ = hardware.memory_bytes_per_s * revision;
    const spec::PrecisionRecipe recipe =
        element_ > 2 ? spec::PrecisionRecipe::fp32 : spec::PrecisionRecipe::bf16;
    flops_per_s_ = product_flops_per_s(rates, hardware, recipe, has_tf32(run)) * revision;
  }

  [[nodiscard]] AdapterTime time_of(const Adapter& adapter) const {
    const double rows = adapter.is_expert ? sizes_.rows : sizes_.tokens;
    AdapterTime time;
    time.op = adapter.op;
    time.forward.products = product_seconds(rows, adapter.read, adapter.inputs) +
                            product_seconds(rows, adapter.outputs, adapter.outputs);
    // The gradients of input and weight touch the same three tensors each.
    time.backward.products = 2 * time.forward.products;
    const double output = rows * adapter.outputs * element_;
    const double input = rows * adapter.read * element_;
    // A factor reads and writes, a sum reads two and writes one: of experts' rows, too, in order.
    const double per_byte = rates_.memory_dense / bandwidth_;
    time.forward.memory = per_byte * (2 + 3) * output;
    time.backward.memory = per_byte * (2 * output + 3 * input);
    return time;
  }

 private:
  /// Of a product between `columns` and the rank, with so many weights for each unit of it.
  [[nodiscard]] double product_seconds(double rows, double columns, double weights) const {
    const double flops = 2 * rows * weights * rank_;
    const double bytes = element_ * (rows * (columns + rank_) + weights * rank_);
    return std::max(flops / flops_per_s_, bytes / bandwidth_);
  }

  const Rates& rates_;
  LayerSizes sizes_;
  double rank_;
  double element_;
  double bandwidth_ = 1;
  double flops_per_s_ = 1;
};

}  // namespace

std::optional<Adapter> adapter_of(const ParamRow& row, const plan::LayerDims& dims) {
  const auto* adapted = std::ranges::find(kAdaptedMatrices, row.id, &AdaptedMatrix::matrix);
  if (adapted == std::end(kAdaptedMatrices)) return std::nullopt;
  Adapter adapter;
  adapter.op = adapted->product;
  adapter.is_expert = row.split == Split::expert_rows || row.split == Split::expert_cols;
  const int64_t copies = adapter.is_expert ? std::max<int64_t>(dims.local_experts, 1) : 1;
  const double ranks = f64(adapter.is_expert ? dims.etp : dims.tp);
  // What the matrix has whole is cut here.
  const bool has_whole_rows = row.split == Split::cols || row.split == Split::expert_cols;
  adapter.read = f64(row.cols(dims));
  adapter.inputs = adapter.read / (has_whole_rows ? 1 : ranks);
  adapter.outputs = f64(row.rows(dims) / copies) / (has_whole_rows ? ranks : 1);
  return adapter;
}

std::vector<AdapterTime> adapter_times(const PlanRun& run, spec::LayerKind kind,
                                       const Rates& rates) {
  const plan::LayerDims dims = dims_of(run, kind, kAnyWindow, 1);
  const AdapterPricer pricer(run, kind, rates);
  std::vector<AdapterTime> times;
  for (const plan::BlockKind half : plan::halves_of(dims)) {
    for (const std::span<const ParamRow> declared : plan::block_of(half).params) {
      for (const ParamRow& row : declared) {
        if (!is_there(row, *run.model, dims)) continue;
        if (const auto adapter = adapter_of(row, dims)) times.push_back(pricer.time_of(*adapter));
      }
    }
  }
  return times;
}

}  // namespace moetune::tuner::planner
