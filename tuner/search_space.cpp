// Products and single changes of the axes, what follows from them, and which axes have no legal
// value.
#include "tuner/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::tuner {
namespace {

const spec::KnobRow& row_of(std::string_view knob) {
  const spec::KnobRow* row = spec::find_knob(knob);
  MOETUNE_CHECK(row != nullptr, "there is no knob '{}'", knob);
  return *row;
}

}  // namespace

bool SearchSpace::is_tunable(std::string_view knob) const {
  const auto axis = sweep_.space.find(std::string(knob));
  return axis != sweep_.space.end() && axis->second.size() > 1;
}

std::vector<std::string> SearchSpace::values(std::string_view knob) const {
  const auto axis = sweep_.space.find(std::string(knob));
  if (axis != sweep_.space.end()) return axis->second;
  return {spec::get_knob(sweep_.base.knobs, row_of(knob))};
}

spec::Knobs SearchSpace::completed(spec::Knobs knobs) const {
  const int64_t devices = sweep_.base.hardware.num_devices();
  // Knobs are not checked yet: products of 64 bits hold any three of them.
  const int64_t model_ranks = std::max<int64_t>(1, knobs.replica_ranks());
  if (!sweep_.space.contains("data_parallel_size")) {
    // Where nothing fits, the constraint on the world size says so.
    knobs.data_parallel_size = std::max<int64_t>(1, devices / model_ranks);
  }
  if (knobs.expert_model_parallel_size * knobs.expert_tensor_parallel_size == 1) {
    knobs.ep_chunks_forward = 1;
    knobs.ep_chunks_backward = 1;
  }
  if (knobs.stage_ranks() == 1) knobs.overlap_grad_reduce = false;
  if (!spec::is_ring_attention(knobs)) knobs.cp_comm_type = spec::Knobs{}.cp_comm_type;
  if (knobs.pipeline_model_parallel_size == 1) {
    knobs.decoder_first_pipeline_num_layers = 0;
    knobs.decoder_last_pipeline_num_layers = 0;
    knobs.virtual_pipeline_model_parallel_size = 1;
    knobs.pipeline_model_parallel_layout = "none";
  }
  return knobs;
}

spec::Knobs SearchSpace::with(spec::Knobs knobs, std::string_view knob,
                              std::string_view value) const {
  spec::set_knob(knobs, row_of(knob), value);
  return completed(std::move(knobs));
}

std::vector<spec::Violation> SearchSpace::check(const spec::Knobs& knobs) const {
  return spec::check_constraints({sweep_.base.model, sweep_.base.hardware, sweep_.base.training,
                                  knobs, sweep_.base.communicator});
}

std::vector<spec::Knobs> SearchSpace::product(const spec::Knobs& base,
                                              const std::vector<std::string_view>& knobs) const {
  std::vector<spec::Knobs> points = {base};
  for (const std::string_view knob : knobs) {
    if (!sweep_.space.contains(std::string(knob))) continue;
    std::vector<spec::Knobs> next;
    for (const spec::Knobs& point : points) {
      for (const std::string& value : values(knob)) {
        next.push_back(point);
        spec::set_knob(next.back(), row_of(knob), value);
      }
    }
    points = std::move(next);
  }
  std::set<std::string> seen;
  std::vector<spec::Knobs> unique;
  for (const spec::Knobs& point : points) {
    spec::Knobs made = completed(point);
    if (seen.insert(knobs_key(made)).second) unique.push_back(std::move(made));
  }
  return unique;
}

std::vector<std::string_view> SearchSpace::schedule_knobs() const {
  const std::vector<std::string_view> others =
      layout_knobs({"micro_batch_size", "recompute", "exp_avg_dtype", "exp_avg_sq_dtype"});
  std::vector<std::string_view> names;
  for (const spec::KnobRow& row : spec::knob_table()) {
    if (is_tunable(row.name) && std::ranges::find(others, row.name) == others.end()) {
      names.push_back(row.name);
    }
  }
  return names;
}

std::vector<spec::Knobs> SearchSpace::all() const {
  std::vector<std::string_view> knobs;
  for (const spec::KnobRow& row : spec::knob_table()) knobs.push_back(row.name);
  return product(sweep_.base.knobs, knobs);
}

std::vector<IllegalAxis> SearchSpace::illegal_axes() const {
  std::vector<spec::Knobs> layouts = product(sweep_.base.knobs, layout_knobs({"micro_batch_size"}));
  std::erase_if(layouts, [this](const spec::Knobs& knobs) { return !check(knobs).empty(); });
  layouts.insert(layouts.begin(), sweep_.base.knobs);
  std::vector<IllegalAxis> illegal;
  for (const auto& axis : sweep_.space) {
    const std::string& knob = axis.first;
    std::optional<spec::Violation> first;
    const bool is_usable = std::ranges::any_of(axis.second, [&](const std::string& value) {
      return std::ranges::any_of(layouts, [&](const spec::Knobs& layout) {
        std::vector<spec::Violation> violations = check(with(layout, knob, value));
        if (!violations.empty() && !first) first = std::move(violations.front());
        return violations.empty();
      });
    });
    if (!is_usable && first) illegal.push_back({knob, *std::move(first)});
  }
  return illegal;
}

std::vector<std::string_view> layout_knobs(std::initializer_list<std::string_view> more) {
  std::vector<std::string_view> names;
  for (const spec::KnobRow& row : spec::knob_table()) {
    if (row.group == "parallelism") names.push_back(row.name);
  }
  names.insert(names.end(), more);
  return names;
}

std::string knobs_key(const spec::Knobs& knobs) {
  std::string key;
  for (const spec::KnobRow& row : spec::knob_table()) {
    key += spec::get_knob(knobs, row);
    key += ';';
  }
  return key;
}

std::string layout_text(const spec::Knobs& knobs) {
  std::string text;
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    const bool is_virtual = size.member == &spec::Knobs::virtual_pipeline_model_parallel_size;
    const int64_t value = is_virtual ? spec::num_virtual_stages(knobs) : knobs.*size.member;
    if (!size.is_always_told && value == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", size.name, value);
  }
  if (knobs.pipeline_model_parallel_layout != "none") {
    text += ", stages " + knobs.pipeline_model_parallel_layout;
  }
  return spec::is_ring_attention(knobs) ? text + ", ring attention" : text;
}

bool is_same_layout(const spec::Knobs& a, const spec::Knobs& b) {
  return layout_text(a) == layout_text(b);
}

int recompute_weight(const spec::RecomputeSet& recompute) {
  using spec::RecomputeModule;
  // By what is computed again: an RMS norm, an activation, attention, the experts' first GEMM, all.
  constexpr std::pair<RecomputeModule, int> kWeights[] = {{RecomputeModule::norm, 1},
                                                          {RecomputeModule::moe_act, 2},
                                                          {RecomputeModule::core_attn, 4},
                                                          {RecomputeModule::experts, 8},
                                                          {RecomputeModule::full, 1000}};
  int sum = 0;
  for (const auto& [module, weight] : kWeights) sum += recompute.has(module) ? weight : 0;
  return sum;
}

std::vector<std::string> by_recompute_weight(std::vector<std::string> values) {
  std::ranges::stable_sort(values, {}, [](const std::string& value) {
    return recompute_weight(spec::RecomputeSet(value));
  });
  return values;
}

}  // namespace moetune::tuner
