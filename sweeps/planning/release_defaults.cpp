// Performance recipes by release: rules read off the recipe files of Megatron-Bridge's tags v0.2.0
// to v0.6.0, by kinds of blocks, precision, task, machine and month.
#include "sweeps/planning/release_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/planning/row_flags.h"
#include "sweeps/planning/row_software.h"
#include "sweeps/planning/row_words.h"
#include "tuner/planner/rates.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::Dispatcher;
using spec::Mixer;
using spec::PlanGraph;
using spec::PlanKnobs;
using spec::PlanRecompute;

/// Months after 2026-06, in which container 26.06 came.
constexpr double kFullGraphs = 0;
/// The first container with such a Transformer Engine: 26.08.
constexpr double kWideLossGradients = 2;

using tuner::planner::has_mixer;

/// Whether NVLink joins more than a node's devices (NVL72).
bool is_rack(const PublishedRow& row) { return row.hardware_name.find("nvl") != std::string::npos; }

/// Months after 26.06 of "NeMo container 26.08"; far before without one.
double months_of_container(std::string_view version) {
  constexpr std::string_view kName = "container ";
  constexpr double kNone = -1000;
  const size_t place = version.find(kName);
  if (place == std::string_view::npos) return kNone;
  const char* const end = version.data() + version.size();
  int year = 0;
  int month = 0;
  const auto after_year = std::from_chars(version.data() + place + kName.size(), end, year);
  if (after_year.ec != std::errc() || after_year.ptr == end || *after_year.ptr != '.') return kNone;
  const auto after_month = std::from_chars(after_year.ptr + 1, end, month);
  const bool is_month = after_month.ec == std::errc() && month >= 1 && month <= 12;
  if (!is_month || year < 0 || year > 99) return kNone;
  return 12.0 * (year - 26) + month - 6;
}

class Defaults {
 public:
  Defaults(const RowReader& row, PublishedRow& result)
      : row_(row),
        result_(result),
        knobs_(result.run.knobs),
        generation_(tuner::planner::generation_of(*result.hardware)) {}

  void apply() {
    const bool is_moe = result_.model->num_experts > 0;
    if (is_moe) {
      graphs_of_moe();
      dispatcher();
      overlap();
      recompute();
    } else if (!row_.has("cuda_graphs") && result_.model->num_parameters() < 10'000'000'000) {
      knobs_.cuda_graphs = {PlanGraph::full_iteration};
      note("cuda_graphs full_iteration: small dense model");
    }
    tensor_overlap(is_moe);
    narrow_weights();
    gradients_of_finetuning();
    loss();
  }

 private:
  /// Megatron-Bridge perf_recipes/_common.py, and nemotronh/common.py, which differs. From
  /// Transformer Engine 2.18 on the fused loss has a wide gradient beside the logits, as an unfused
  /// one has.
  void loss() {
    if (has_mixer(*result_.model, Mixer::mamba)) {
      knobs_.cross_entropy = spec::CrossEntropy::native;
    } else if (months_of_container(row_.object("software").word("version")) >= kWideLossGradients) {
      knobs_.cross_entropy = spec::CrossEntropy::unfused;
    } else {
      knobs_.cross_entropy = spec::CrossEntropy::te;
    }
  }

  void note(const std::string& what) {
    result_.assumed.push_back(what + " (recipe of the release)");
  }

  [[nodiscard]] bool is_blackwell() const {
    return generation_ == tuner::planner::Generation::blackwell;
  }
  /// From 26.06 on recipes for racks and B300 capture the whole iteration, those with Muon do not.
  /// A year alone does not say that a run is of such a release.
  [[nodiscard]] bool has_full_graphs() const {
    const bool is_hybrid = has_mixer(*result_.model, Mixer::mamba);
    return is_blackwell() && result_.is_month_stated && result_.months >= kFullGraphs &&
           !is_hybrid && knobs_.optimizer != spec::OptimizerKind::muon &&
           (is_rack(result_) || tuner::planner::is_later_revision(*result_.hardware)) &&
           knobs_.precision != spec::PrecisionRecipe::bf16;
  }

  void graphs_of_moe() {
    if (row_.has("cuda_graphs")) {
      const json& stated = row_.at("cuda_graphs");
      const json& part = stated.is_array() && stated.size() == 1 ? stated[0] : stated;
      const bool is_full =
          part.is_string() && graph_word(part.get<std::string>()) == PlanGraph::full_iteration;
      knobs_.fused_grouped_mlp = has_full_graphs() && is_full;
      knobs_.fp8_attention = knobs_.fused_grouped_mlp;
      return;
    }
    const bool is_latent = has_mixer(*result_.model, Mixer::mla);
    if (has_full_graphs()) {
      knobs_.cuda_graphs = {PlanGraph::full_iteration};
      knobs_.fused_grouped_mlp = true;
      knobs_.fp8_attention = true;
      note("cuda_graphs full_iteration, fused grouped MLP, attention in FP8");
    } else if (has_mixer(*result_.model, Mixer::mamba) && is_blackwell()) {
      knobs_.cuda_graphs = {PlanGraph::attn, PlanGraph::mamba, PlanGraph::moe_router,
                            PlanGraph::moe_preprocess};
      note("cuda_graphs attn, mamba, moe_router, moe_preprocess");
    } else if (is_blackwell() && !is_latent &&
               ((is_rack(result_) && !result_.model->has_attention_sinks) ||
                tuner::planner::is_later_revision(*result_.hardware))) {
      knobs_.cuda_graphs = {PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess};
      note("cuda_graphs attn, moe_router, moe_preprocess");
    } else {
      note("cuda_graphs none");
    }
  }

  /// Recipes of dense models overlap tensor-parallel transfers, those in FP4 do not.
  void tensor_overlap(bool is_moe) {
    if (is_moe || knobs_.tp == 1 || knobs_.precision == spec::PrecisionRecipe::nvfp4) return;
    knobs_.tp_comm_overlap = true;
    note("tp_comm_overlap");
  }

  void narrow_weights() {
    const RowFlags flags(row_);
    if (flags.reader().has("fp8_param_gather") || !spec::dialects::preset_gathers_fp8(knobs_)) {
      return;
    }
    knobs_.fp8_param_gather = true;
    note("fp8_param_gather");
  }

  /// Recipes for fine-tuning reduce gradients in 16 bits.
  void gradients_of_finetuning() {
    if (knobs_.task == spec::TrainingTask::pretrain) return;
    if (row_.object("optimizer").has("main_grads_dtype")) return;
    knobs_.main_grads = spec::StateType::bf16;
    note("main gradients bf16");
  }

  void dispatcher() {
    if (row_.has("dispatcher") || knobs_.ep * knobs_.etp == 1) return;
    // On B200 recipes of models with latent attention took it up with 26.02,
    // and those of models with sinks with 26.04.
    const bool has_new_recipe = (has_mixer(*result_.model, Mixer::mla) && result_.months >= -4) ||
                                (result_.model->has_attention_sinks && result_.months >= -2);
    const bool has_flex = !spec::is_of_amd(*result_.hardware) &&
                          (is_rack(result_) || (is_blackwell() && has_new_recipe) ||
                           tuner::planner::is_later_revision(*result_.hardware) ||
                           (generation_ == tuner::planner::Generation::hopper && knobs_.ep > 8));
    knobs_.dispatcher = has_flex ? Dispatcher::hybridep : Dispatcher::alltoall;
    note(std::string("dispatcher ") + std::string(name_of(knobs_.dispatcher)));
  }

  void overlap() {
    if (!has_full_graphs() || knobs_.ep == 1) return;
    knobs_.overlap_moe_expert_parallel_comm = true;
    knobs_.delay_wgrad_compute = true;
    note("overlap_moe_expert_parallel_comm");
  }

  void recompute() {
    if (row_.has("recompute")) return;
    const bool is_latent = has_mixer(*result_.model, Mixer::mla);
    if (is_latent && !has_full_graphs()) {
      knobs_.recompute.add(PlanRecompute::mla_up_proj);
      note("recompute mla_up_proj");
    } else if (has_mixer(*result_.model, Mixer::mamba) && !is_blackwell()) {
      for (const PlanRecompute module : {PlanRecompute::moe, PlanRecompute::layernorm,
                                         PlanRecompute::core_attn, PlanRecompute::moe_act}) {
        knobs_.recompute.add(module);
      }
      note("recompute moe, layernorm, core_attn, moe_act");
    } else if (result_.model->has_attention_sinks &&
               !tuner::planner::is_later_revision(*result_.hardware)) {
      knobs_.recompute.add(PlanRecompute::layernorm);
      knobs_.recompute.add(PlanRecompute::moe_act);
      note("recompute layernorm, moe_act");
    }
  }

  const RowReader& row_;
  PublishedRow& result_;
  PlanKnobs& knobs_;
  tuner::planner::Generation generation_;
};

/// Whether a line of what is assumed begins with the key.
bool is_told(const std::vector<std::string>& assumed, const std::string& key) {
  return std::any_of(assumed.begin(), assumed.end(),
                     [&](const std::string& line) { return line.starts_with(key + " "); });
}

bool has_experts(const PublishedRow& row) { return row.model->num_experts > 0; }
bool always(const RowReader& /*row*/, const PublishedRow& /*result*/) { return true; }
bool of_experts(const RowReader& /*row*/, const PublishedRow& result) {
  return has_experts(result);
}

/// A key of a row that may be missing, and the knob of that name.
struct OpenKey {
  const char* key;
  bool is_of_speed;  ///< other values make a step of another length, so the interval is wider
  /// Whether anything is left open without it.
  bool (*counts)(const RowReader& row, const PublishedRow& result) = always;
};
constexpr OpenKey kOpenKeys[] = {
    {"precision", true},
    {"cuda_graphs", true},
    {"recompute", true},
    {"dispatcher", true, of_experts},
    {"fsdp", false},
    {"task", false},
    {"sequence_parallel", false,
     [](const RowReader& /*row*/, const PublishedRow& result) { return result.run.knobs.tp > 1; }},
    // A layout that is written has them.
    {"vpp", true,
     [](const RowReader& row, const PublishedRow& result) {
       return result.run.knobs.pp > 1 && !row.has("pipeline_layout");
     }},
    // With one rank for a dense matrix nobody has more for that of an expert.
    {"etp", true,
     [](const RowReader& /*row*/, const PublishedRow& result) {
       return has_experts(result) && result.run.knobs.tp > 1;
     }},
};

/// What the optimizer keeps, as far as the row leaves it open.
void tell_optimizer(const RowReader& row, PublishedRow& result) {
  const RowReader optimizer = row.object("optimizer");
  const PlanKnobs& knobs = result.run.knobs;
  std::string open;
  const auto add = [&](bool is_open, const std::string& what) {
    if (is_open) open += (open.empty() ? "" : ", ") + what;
  };
  const auto narrow = [](spec::StateType type) { return std::string(name_of(type)); };
  add(!optimizer.has("type"), std::string(name_of(knobs.optimizer)));
  // What FSDP and its kin shard they say themselves.
  add(!optimizer.has("distributed") && is_none_word(row.word("fsdp")),
      knobs.distributed_optimizer ? "distributed" : "not distributed");
  // Only the precision-aware one has others than 32 bits.
  const bool is_wide = optimizer.has("precision_aware") && !knobs.precision_aware_optimizer;
  add(!is_wide && !optimizer.has("exp_avg_dtype") && !optimizer.has("exp_avg_sq_dtype"),
      "moments in " + narrow(knobs.exp_avg));
  add(!optimizer.has("main_grads_dtype") && !is_told(result.assumed, "main gradients"),
      "gradients in " + narrow(knobs.main_grads));
  if (!open.empty()) result.assumed.push_back("optimizer " + open + ": the row does not say");
}

/// What moves the figures, is not stated, and no recipe of a release has.
void take_unstated(const RowReader& row, PublishedRow& result) {
  for (const OpenKey& open : kOpenKeys) {
    if (row.has(open.key) || !open.counts(row, result)) continue;
    if (open.is_of_speed) ++result.num_unknown;
    if (is_told(result.assumed, open.key)) continue;
    result.assumed.push_back(
        fmt::format("{} {}: the row does not say", open.key,
                    get_plan_knob(result.run.knobs, *spec::find_plan_knob(open.key))));
  }
  tell_optimizer(row, result);
}

}  // namespace

void apply_release_defaults(const RowReader& row, PublishedRow& result) {
  if (is_megatron_bridge(row.object("software").word("name"))) {
    Defaults(row, result).apply();
  } else if (result.run.is_of_megatron) {
    result.run.knobs.cross_entropy = spec::CrossEntropy::unfused;
  }
  take_unstated(row, result);
}

}  // namespace moetune::sweeps
