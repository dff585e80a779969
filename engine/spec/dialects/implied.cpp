// What choices imply in Megatron, which its own assertions ask for (arguments.py and
// transformer_config.py at the release of DialectRow): written where a run does not say it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/spec/dialects/texts.h"
#include "engine/spec/implied_knobs.h"

namespace moetune::spec::dialects {
namespace {

bool is_full_iteration(const PlanKnobs& knobs) {
  return knobs.cuda_graphs.has(PlanGraph::full_iteration);
}

void add_variables(RunConfig& run, Dialect dialect) {
  const PlanKnobs& k = run.knobs;
  const auto imply = [&](const char* name, const char* value) {
    run.environment.try_emplace(name, value);
  };
  // Transformer Engine keeps to its older way of offloading.
  if (!k.offload.empty()) imply("NVTE_CPU_OFFLOAD_V1", "1");
  // Graphs of Transformer Engine do not register buffers that may move.
  const bool may_move = std::ranges::any_of(
      std::array{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}, [&](const char* name) {
        const auto found = run.environment.find(name);
        return found != run.environment.end() &&
               found->second.find("expandable_segments:True") != std::string::npos;
      });
  if (may_move && !k.cuda_graphs.empty() && !is_full_iteration(k)) {
    imply("NCCL_GRAPH_REGISTER", "0");
  }
  if (dialect == Dialect::primus && k.precision == PrecisionRecipe::mxfp8) {
    imply("NVTE_ROCM_ENABLE_MXFP8", "1");
  }
}

}  // namespace

void add_implied(RunConfig& run, Dialect dialect) {
  if (dialect == Dialect::torchtitan) return;
  set_implied(run.knobs);
  PlanKnobs& k = run.knobs;
  // Primus has no word for HybridEP: DeepEP, which takes no padding, is written there.
  const bool is_deepep = k.dispatcher == Dispatcher::deepep ||
                         (dialect == Dialect::primus && k.dispatcher == Dispatcher::hybridep);
  // Shapes behind the router have to stay as they were when a graph of them was captured.
  const bool is_captured = k.cuda_graphs.has(PlanGraph::moe) || is_full_iteration(k);
  if (is_captured && k.capacity_factor > 0 && !is_deepep) k.pad_to_capacity = true;
  if (is_deepep && dialect != Dialect::primus) k.pad_to_capacity = false;
  add_variables(run, dialect);
}

bool takes_padded_deepep(const RunConfig& run) {
  return run.dialect == Dialect::primus ||
         (run.knobs.dispatcher == Dispatcher::deepep && run.knobs.pad_to_capacity);
}

void write_implied(Writing& writing, std::vector<Setting>& settings) {
  if (writing.dialect == Dialect::torchtitan) return;
  const PlanKnobs& k = writing.knobs();
  // What the run says wins, in whosever words.
  const auto is_said = [&](const std::string& key) {
    return std::ranges::any_of(writing.run.unknown, [&](const UnknownSetting& setting) {
      if (writing.run.dialect == writing.dialect) return setting.key == key;
      const std::optional<Setting> theirs =
          translated(setting, writing.run.dialect, writing.dialect);
      return theirs && theirs->key == key;
    });
  };
  /// False where the dialect has no word for it.
  const auto imply = [&](std::string_view name, const char* word) {
    const std::string key = key_of(row_of(name), writing.dialect);
    if (!key.empty() && !is_said(key)) settings.push_back({.key = key, .words = {word}});
    return !key.empty();
  };
  if (is_full_iteration(k) && k.capacity_factor == 0 && k.fused_grouped_mlp) {
    const std::string factor = key_of(row_of("moe_expert_rank_capacity_factor"), writing.dialect);
    if (imply("moe_paged_stash", "true") && !is_said(factor)) {
      writing.notes.push_back(factor + " goes with the paged stash: add it by hand");
    }
  }
  const bool is_turbo = writing.dialect == Dialect::primus && k.dispatcher == Dispatcher::deepep;
  if (is_turbo) imply("moe_router_dtype", "fp32");
}

void leave_out_excluded(RunConfig& run, Dialect dialect, std::vector<std::string>& notes) {
  const auto leave_out = [&](std::string_view name, const char* excluded_by) {
    const auto gone = std::erase_if(run.unknown, [&](const UnknownSetting& setting) {
      const Row* row = find_carried(setting.key, run.dialect);
      return row != nullptr && row->name == name && setting.value != "false";
    });
    if (gone > 0) notes.push_back(fmt::format("{} is left out: {} excludes it", name, excluded_by));
  };
  if (run.knobs.overlap_moe_expert_parallel_comm) {
    leave_out("moe_shared_expert_overlap", "the overlap of the experts' exchange");
  }
  // Primus' own DeepEP is another, and may take it.
  const bool is_deepep = run.knobs.dispatcher == Dispatcher::deepep && dialect != Dialect::primus;
  if (is_deepep && std::exchange(run.knobs.pad_to_capacity, false)) {
    notes.emplace_back("moe_pad_expert_input_to_capacity is left out: DeepEP excludes it");
  }
}

}  // namespace moetune::spec::dialects
