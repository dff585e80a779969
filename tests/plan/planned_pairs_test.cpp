// What only plans know, one at a time and in pairs: programs hold what all hold, and ranks that are
// played do all that their programs say.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(planned_pairs)

namespace {

using spec::Offload;
using testing::error_of;
using testing::num_ranks;

struct Technique {
  const char* name;
  void (*set)(Planned&);
  bool (*excludes)(const spec::TrialSpec&) = nullptr;
};

bool is_all_recomputed(const spec::TrialSpec& trial) {
  return spec::is_full_recompute(trial.knobs);
}
bool shares_no_experts(const spec::TrialSpec& trial) {
  return trial.knobs.expert_model_parallel_size == 1;
}
bool weaves_nothing(const spec::TrialSpec& trial) {
  return shares_no_experts(trial) || is_all_recomputed(trial);
}

bool has_own_sequences(const spec::TrialSpec& trial) {
  return trial.knobs.context_parallel_size == 1;
}

constexpr Technique kTechniques[] = {
    {"Megatron's FSDP", [](Planned& p) { p.fsdp = spec::Fsdp::megatron; }},
    {"FSDP2", [](Planned& p) { p.fsdp = spec::Fsdp::torch; }},
    {"offload of activations",
     [](Planned& p) {
       p.offload = {Offload::attn_norm, Offload::qkv_linear, Offload::core_attn, Offload::attn_proj,
                    Offload::mlp_norm,  Offload::expert_fc1, Offload::moe_act};
     },
     is_all_recomputed},
    {"offload of the optimizer", [](Planned& p) { p.optimizer_offload_ratio = 0.7F; }},
    {"fp8_current", [](Planned& p) { p.precision = spec::PrecisionRecipe::fp8_current; }},
    {"fp8_blockwise", [](Planned& p) { p.precision = spec::PrecisionRecipe::fp8_blockwise; }},
    {"allgather", [](Planned& p) { p.dispatcher = spec::Dispatcher::allgather; },
     shares_no_experts},
    {"deepep", [](Planned& p) { p.dispatcher = spec::Dispatcher::deepep; }, shares_no_experts},
    {"hybridep", [](Planned& p) { p.dispatcher = spec::Dispatcher::hybridep; }, shares_no_experts},
    {"overlap over micro-batches", [](Planned& p) { p.overlaps_micro_batches = true; },
     weaves_nothing},
    {"heads exchanged", [](Planned& p) { p.exchanges_heads = true; }, has_own_sequences},
};

const char* const kLayouts[] = {
    R"({"context_parallel_size": 2, "recompute": "norm,core_attn"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "recompute": "full"})",
};
const char* const kExpertLayouts[] = {
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "norm,moe_act",
        "overlap_grad_reduce": true})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
        "ep_chunks_forward": 2, "ep_chunks_backward": 2})",
};

/// body(trial) for all models and layouts, on nodes of two devices.
void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    std::vector<std::string> layouts(std::begin(kLayouts), std::end(kLayouts));
    if (model.num_experts > 0) {
      layouts.insert(layouts.end(), std::begin(kExpertLayouts), std::end(kExpertLayouts));
    }
    for (const std::string& knobs : layouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) {
        spec::TrialSpec trial = testing::trial_of(model, knobs);
        trial.hardware.devices_per_node = 2;
        trial.hardware.num_nodes = num_ranks(trial) / 2;
        body(trial);
      }
    }
  }
}

void check_all(const spec::TrialSpec& trial, const Planned& planned) {
  const testing::RanksOfStep step(trial, planned);
  for (size_t rank = 0; rank < step.programs.size(); ++rank) {
    BOOST_TEST(error_of(step.programs[rank]) == "");
    BOOST_TEST(testing::bytes_left(step.programs[rank], step.bindings[rank]) == 0);
  }
  testing::play_all(trial, step);
}

BOOST_AUTO_TEST_CASE(techniques_hold_what_programs_hold_alone_and_in_pairs) {
  int num_seen = 0;
  for_all([&](const spec::TrialSpec& trial) {
    for (const Technique& one : kTechniques) {
      for (const Technique& other : kTechniques) {
        // Each pair once, in either order; one with itself is it alone.
        if (&other < &one) continue;
        const auto is_out = [&](const Technique& technique) {
          return technique.excludes != nullptr && technique.excludes(trial);
        };
        if (is_out(one) || is_out(other)) continue;
        Planned planned;
        one.set(planned);
        other.set(planned);
        Planned alone;
        other.set(alone);
        // Two values of one choice are no pair.
        if (&one != &other && planned == alone) continue;
        ++num_seen;
        BOOST_TEST_CONTEXT(one.name << " with " << other.name) { check_all(trial, planned); }
      }
    }
  });
  BOOST_TEST(num_seen > 800);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
