// Layouts that planner's tests compile: runs of plans, and the programs of the same.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/compile.h"
#include "tests/plan/planned_models.h"
#include "tests/tuner/planner_samples.h"
#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner::samples {

inline constexpr int64_t kMicroBatches = 4;
inline constexpr double kLink = 1e9;  ///< bytes a second: a byte takes a nanosecond

struct Sizes {
  int32_t tp = 1;
  int32_t cp = 1;
  int32_t dp = 1;
  int32_t pp = 1;
  int32_t vpp = 1;
  int32_t ep = 1;
  int32_t etp = 1;
  int32_t micro_batch_size = 1;
  spec::PlanCp exchange = spec::PlanCp::p2p;
};

inline std::string text_of(const PlanRun& run) {
  std::string text;
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    const int32_t value = run.knobs.*size.plan_member;
    if (value > 1) text += std::string(size.name) + std::to_string(value) + " ";
  }
  return text + (run.knobs.cp_comm_type == spec::PlanCp::all_gather ? "gathered" : "");
}

inline const std::vector<Sizes> kLayouts = {
    {},
    {.dp = 2},
    {.tp = 2, .dp = 2},
    {.cp = 2, .dp = 2},
    {.cp = 4, .exchange = spec::PlanCp::all_gather},
    {.tp = 2, .cp = 2, .micro_batch_size = 2},
    {.pp = 2},
    {.tp = 2, .pp = 2, .vpp = 2},
};
inline const std::vector<Sizes> kExpertLayouts = {
    {.dp = 2, .ep = 2},
    {.dp = 4, .ep = 4},
    {.cp = 2, .dp = 2, .ep = 2, .micro_batch_size = 2},
    {.tp = 2, .dp = 2, .ep = 2, .etp = 2},
    {.tp = 2, .dp = 4, .pp = 2, .ep = 2, .etp = 2},
};

using Models = std::vector<std::pair<std::string, spec::ModelSpec>>;

/// Of usual sizes, which need no padding.
inline Models usual_models() { return {{"dense", dense_model()}, {"moe", moe_model()}}; }

/// Those and one of each family.
inline Models all_models() {
  Models models = plan::testing::small_models();
  for (const auto& named : usual_models()) models.push_back(named);
  models.emplace_back("hybrid", hybrid_model(4));
  return models;
}

using Body = std::function<void(PlanRun&)>;

inline void with_run(const spec::ModelSpec& model, const Sizes& sizes, const Body& body) {
  const spec::HardwareSpec hardware = machine(int64_t{sizes.tp} * sizes.cp * sizes.dp * sizes.pp);
  PlanRun run = run_of(model, hardware);
  run.seq_length = std::min<int64_t>(run.seq_length, model.max_position_embeddings / 2);
  spec::PlanKnobs& k = run.knobs;
  k.tp = sizes.tp;
  k.cp = sizes.cp;
  k.dp = sizes.dp;
  k.pp = sizes.pp;
  k.vpp = sizes.vpp;
  k.ep = sizes.ep;
  k.etp = sizes.etp;
  k.micro_batch_size = sizes.micro_batch_size;
  k.cp_comm_type = sizes.exchange;
  run.global_batch_size = kMicroBatches * sizes.dp * sizes.micro_batch_size;
  BOOST_TEST_CONTEXT(text_of(run)) { body(run); }
}

inline void for_layouts(const Models& models, const Body& body) {
  for (const auto& [name, model] : models) {
    BOOST_TEST_CONTEXT(name) {
      for (const Sizes& sizes : kLayouts) with_run(model, sizes, body);
      if (model.num_experts == 0) continue;
      for (const Sizes& sizes : kExpertLayouts) with_run(model, sizes, body);
    }
  }
}

/// Of the first rank of a pipeline stage.
inline plan::StepProgram program_of(const PlanRun& run, int64_t stage) {
  return plan::compile(trial_of(run), static_cast<int>(stage * run.knobs.stage_ranks()),
                       plan::planned_of(computed_knobs(run)));
}

inline std::vector<plan::StepProgram> programs_of(const PlanRun& run) {
  std::vector<plan::StepProgram> programs;
  for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
    programs.push_back(program_of(run, stage));
  }
  return programs;
}

inline bool is_of_layer(const plan::Segment& segment) {
  switch (segment.block) {
    case plan::BlockKind::gqa:
    case plan::BlockKind::mla:
    case plan::BlockKind::gdn:
    case plan::BlockKind::mamba:
    case plan::BlockKind::dense_mlp:
    case plan::BlockKind::moe:
      return true;
    default:
      return false;
  }
}

/// With as many rows as come where routing is balanced; as many leave.
inline plan::OpCost cost_of(const plan::Segment& segment, const plan::Instr& instr) {
  return plan::cost_at(instr, segment.dims.received_rows);
}

/// On one node whose links have no latency.
inline spec::HardwareSpec one_node(const PlanRun& run) {
  spec::HardwareSpec hardware = *run.hardware;
  hardware.devices_per_node = run.knobs.world_size();
  hardware.num_nodes = 1;
  hardware.intra_node = hardware.inter_node = {0, kLink};
  return hardware;
}

inline int64_t window_of(const spec::ModelSpec& model, int64_t layer) {
  return layer < model.num_layers ? model.attention_window[static_cast<size_t>(layer)] : 0;
}

}  // namespace moetune::tuner::planner::samples
