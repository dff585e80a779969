// Knobs by name.
#include "sweeps/planning/kept_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using spec::dialects::Dialect;

namespace {

/// Sizes that the search lays out: what can be said of one depends on the others.
bool is_size_of_layout(std::string_view knob) {
  constexpr std::array<std::string_view, 9> kNames = {
      "tp", "cp", "dp", "pp", "vpp", "ep", "etp", "micro_batch_size", "optimizer_instances"};
  return std::ranges::find(kNames, knob) != kNames.end();
}

}  // namespace

bool is_fixed(std::string_view knob, const std::vector<Fixed>& fixed) {
  return std::ranges::any_of(fixed, [&](const Fixed& one) { return one.row->name == knob; });
}

std::string keep_to_words_of(Dialect dialect, const std::vector<Fixed>& fixed,
                             planner::PlanQuestion& question) {
  namespace dialects = spec::dialects;
  // Asked of two replicas, so that there is something to share out.
  const auto can_say = [&](spec::PlanKnobs knobs, std::string_view knob) {
    knobs.tp = knobs.cp = knobs.pp = knobs.vpp = knobs.ep = knobs.etp = 1;
    knobs.dp = 2;
    return question.can_say(knobs, knob);
  };
  std::string left;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    if (is_size_of_layout(row.name) || can_say(question.base, row.name)) continue;
    const std::string value = get_plan_knob(question.base, row);
    if (is_fixed(row.name, fixed)) {
      throw base::UsageError(fmt::format("--fix {}={}: {} has no words for it", row.name, value,
                                         spec::name_of(dialect)));
    }
    const std::string_view fallback = dialects::fallback_of(dialects::row_of(row.name), dialect);
    spec::PlanKnobs changed = question.base;
    set_plan_knob(changed, row,
                  fallback.empty() ? get_plan_knob(spec::PlanKnobs{}, row) : std::string(fallback));
    if (!can_say(changed, row.name)) continue;
    question.base = changed;
    left += fmt::format("{}{}={}", left.empty() ? "" : ", ", row.name, value);
  }
  return left;
}

void undo_costly_choices(spec::PlanKnobs& knobs) {
  using K = spec::PlanKnobs;
  for (bool K::*knob :
       {&K::sequence_parallel, &K::distributed_optimizer, &K::overlap_grad_reduce,
        &K::overlap_param_gather, &K::moe_grouped_gemm, &K::moe_permute_fusion,
        &K::gradient_accumulation_fusion, &K::fused_attention, &K::fused_activation}) {
    knobs.*knob = true;
  }
  knobs.first_stage_layers = knobs.last_stage_layers = 0;
}

std::vector<spec::PlanKnobs> without_copies(const spec::PlanKnobs& base,
                                            const std::vector<Fixed>& fixed) {
  std::vector<spec::PlanKnobs> others;
  const auto add_without = [&](std::string_view name, const auto& undo) {
    if (is_fixed(name, fixed)) return;
    std::vector<spec::PlanKnobs> all = {base};
    all.insert(all.end(), others.begin(), others.end());
    for (spec::PlanKnobs& knobs : all) {
      undo(knobs);
      others.push_back(knobs);
    }
  };
  if (!base.offload.empty()) add_without("offload", [](auto& knobs) { knobs.offload = {}; });
  if (base.optimizer_offload_ratio > 0) {
    add_without("optimizer_offload_ratio", [](auto& knobs) { knobs.optimizer_offload_ratio = 0; });
  }
  return others;
}

bool refuses_te_loss(std::optional<Dialect> dialect) { return dialect == Dialect::megatron_lm; }

std::string kept_text(const planner::PlanQuestion& question, const spec::dialects::RunConfig& words,
                      std::optional<Dialect> dialect, const std::vector<Fixed>& fixed) {
  const spec::PlanKnobs& theirs = words.knobs;
  constexpr std::array<std::string_view, 14> kSearched = {"recompute",
                                                          "recompute_method",
                                                          "recompute_num_layers",
                                                          "cuda_graphs",
                                                          "offload",
                                                          "optimizer_offload_ratio",
                                                          "dispatcher",
                                                          "fsdp",
                                                          "cp_comm_type",
                                                          "cross_entropy",
                                                          "overlap_moe_expert_parallel_comm",
                                                          "delay_wgrad_compute",
                                                          "overlap_param_gather",
                                                          "cuda_device_max_connections"};
  std::string text;
  const auto add = [&](std::string_view what) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", what);
  };
  spec::PlanKnobs usual;
  if (!question.is_of_megatron) {
    constexpr const char* kSaysNothing = "[training]\nlocal_batch_size = 1\n";
    usual = spec::dialects::import_run(kSaysNothing, Dialect::torchtitan).knobs;
  }
  const auto is_unsaid = [&](const spec::PlanKnobRow& row) {
    const auto known = spec::dialects::knob_rows();
    const auto said = std::ranges::find(known, row.name, &spec::dialects::Row::name);
    return said != known.end() && !spec::dialects::is_said(words, *said) &&
           get_plan_knob(theirs, row) == spec::dialects::fallback_of(*said, words.dialect);
  };
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    const bool is_idle = row.is_of_experts && question.model->num_experts == 0;
    if (is_idle || is_unsaid(row) || is_size_of_layout(row.name) || is_fixed(row.name, fixed) ||
        std::ranges::find(kSearched, row.name) != kSearched.end()) {
      continue;
    }
    if (have_same(row, question.base, theirs) && !have_same(row, theirs, usual)) {
      add(fmt::format("{}={}", row.name, get_plan_knob(theirs, row)));
    }
  }
  if (theirs.cross_entropy == spec::CrossEntropy::te && refuses_te_loss(dialect) &&
      !is_fixed("cross_entropy", fixed)) {
    add("cross_entropy=te among the losses that are tried, though Megatron-LM refuses it (core "
        "0.19)");
  }
  return text;
}

}  // namespace moetune::sweeps
