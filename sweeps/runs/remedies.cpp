// The rows of remedy_rows.cpp that help against a wall, as settings of the run's framework.
#include "sweeps/runs/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/dense_model.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/hardware_names.h"
#include "engine/spec/model_spec.h"
#include "sweeps/runs/remedy_rows.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

namespace dialects = spec::dialects;
using base::Wall;
using profiler::CollectiveKind;
using spec::PlanKnobs;

constexpr double kWorthALook = 0.02;  // of the step
/// Of the other walls, whose sub-cause nobody has told apart.
constexpr double kWorthALookOfOtherWalls = 0.05;
constexpr int kMostRemediesOfOtherWalls = 2;
/// First where the allocator held enough memory.
constexpr std::string_view kAgainstFragments = "less_fragmentation";
constexpr std::string_view kOffload = "offload";      // SubCauseRow::name
constexpr std::string_view kRecompute = "recompute";  // the same
constexpr std::string_view kLaunch = "launch";        // the same

bool helps_against(const RemedyRow& row, std::string_view sub_cause) {
  return std::ranges::find(row.sub_causes, sub_cause) != row.sub_causes.end();
}

/// Of what helps against a cause, what changes the cause itself stands for it first.
bool changes_cause(std::string_view sub_cause, const RemedyRow& row) {
  return row.sub_causes[0] == sub_cause;
}

bool is_for(const RemedyRow& row, const FoundWall& wall) {
  return row.label != wall.label || row.sub_causes[0].empty() || wall.sub_cause.empty() ||
         helps_against(row, wall.sub_cause);
}

/// What is left of a ceiling of all communication for such collectives of the row's groups, where
/// the traces tell groups and kinds apart. Communication whose group is not known may be theirs.
double share_of_groups(const RemedyRow& row, CollectiveKind kind, const profiler::GroupCosts& costs,
                       double whole) {
  const bool is_any_group = row.groups[0].empty() || !costs.are_known();
  if (is_any_group && kind == CollectiveKind::any) return whole;
  double own = costs.ratio_of("", kind);
  double all = costs.unknown_ratio;
  for (const auto& [group, ratio] : costs.ratios) {
    all += ratio;
    const bool is_own = std::ranges::find(row.groups, group) != row.groups.end();
    if (is_own) own += costs.ratio_of(group, kind);
  }
  if (all <= 0) return is_any_group ? whole : 0;
  // Ranks that wait for one another may save more than one of them shows.
  return std::min(whole, std::max(own, whole * own / all));
}

/// The same for the row's kernels, where traces tell their classes.
double share_of_kernels(const RemedyRow& row, const profiler::KernelCosts& costs, double whole) {
  if (row.kernels.empty()) return whole;
  const bool is_of_host = row.label == Wall::host;
  return ceiling_of_classes(row.kernels, is_of_host ? costs.launch : costs.run, whole);
}

/// A rule that a run breaks.
struct BrokenRule {
  std::string name;
  std::string message;
};

int64_t size_of(const nlohmann::json& model, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (model.contains(key) && model[key].is_number_integer()) return model[key].get<int64_t>();
  }
  return 0;
}

/// Rules on the sizes that a run says, where they do not make a whole model.
std::vector<BrokenRule> broken_sizes_of(const dialects::RunConfig& config, const PlanKnobs& k) {
  std::vector<BrokenRule> broken;
  const auto divides = [&](const char* rule, int64_t part, int64_t whole, std::string_view what) {
    if (whole <= 0 || part <= 0 || whole % part == 0) return;
    broken.push_back({rule, fmt::format("{} does not divide the {} {}", part, whole, what)});
  };
  const nlohmann::json& model = config.model;
  divides("ep_divides_experts", k.ep,
          size_of(model, {"num_experts", "num_local_experts", "n_routed_experts"}), "experts");
  divides("tp_divides_heads", k.tp, size_of(model, {"num_attention_heads"}), "attention heads");
  divides("ep_divides_plane", int64_t{k.ep} * k.etp, k.stage_ranks(), "ranks of a pipeline stage");
  if (config.world_size > 0 && k.world_size() != config.world_size) {
    broken.push_back(
        {"world_size", fmt::format("tp {} x cp {} x dp {} x pp {} does not make {} ranks", k.tp,
                                   k.cp, k.dp, k.pp, config.world_size)});
  }
  return broken;
}

/// The model that a run says, where it has all the sizes that rules ask for. A command leaves the
/// vocabulary to its tokenizer, and has biases unless it is told otherwise, which no plan prices.
std::shared_ptr<const spec::ModelSpec> model_said(const dialects::RunConfig& config) {
  constexpr int64_t kAnyVocabulary = 131'072;
  if (config.model.empty()) return nullptr;
  nlohmann::json sizes = config.model;
  if (!sizes.contains("vocab_size")) sizes["vocab_size"] = kAnyVocabulary;
  if (sizes.contains("use_bias")) sizes["use_bias"] = false;
  try {
    return std::make_shared<const spec::ModelSpec>(
        spec::model_from_json(sizes, spec::Source("the run's model")));
  } catch (const base::UsageError&) {
    return nullptr;
  }
}

/// As many devices as the run has ranks, of which no more is known than their name, if that.
std::shared_ptr<const spec::HardwareSpec> unknown_machine(const RunToMend& run) {
  const dialects::RunConfig& config = *run.config;
  spec::HardwareSpec machine;
  machine.name = run.device_name.empty() ? "the machine" : run.device_name;
  machine.devices_per_node = 1;
  machine.num_nodes = config.world_size > 0 ? config.world_size : config.knobs.world_size();
  // Whatever is asked for, but what such a device has no products for.
  machine.fp8_flops_per_s = spec::lacks_eight_bit_floats(run.device_name) ? 0 : 1;
  machine.fp4_flops_per_s = spec::lacks_four_bit_floats(run.device_name) ? 0 : 1;
  const bool is_amd = run.is_rocm || spec::is_name_of_amd(run.device_name);
  machine.vendor = is_amd ? spec::Vendor::amd : spec::Vendor::nvidia;
  return std::make_shared<const spec::HardwareSpec>(std::move(machine));
}

/// Sequences of a step, where the run has these knobs; 0: not known. What the run does not say
/// follows its layout. Torchtitan's pipelines are left out: their local batch is several
/// micro-batches, which another layout keeps in part.
int64_t following_batch(const dialects::RunConfig& config, const PlanKnobs& knobs) {
  const bool has_stages = config.knobs.pp > 1 || knobs.pp > 1;
  const bool is_fixed = config.dialect == dialects::Dialect::torchtitan && has_stages;
  if (!config.is_batch_derived || config.global_batch_size == 0 || is_fixed) {
    return config.global_batch_size;
  }
  return int64_t{knobs.micro_batch_size} * knobs.dp;
}

/// Unknown counts as having some, unless traces speak against it.
bool has_experts(const RunToMend& run) {
  if (run.model != nullptr) return run.model->num_experts > 0;
  if (!run.is_config_known && run.config->knobs.ep == 1 &&
      !dialects::names_dense_model(*run.config)) {
    return run.has_expert_work;
  }
  return !dialects::says_dense_model(*run.config);
}

/// What rules ask of settings that no knob stands for.
void add_carried_choices(const RunToMend& run, tuner::planner::PlanRun& plan) {
  if (!plan.is_of_megatron) return;
  const dialects::RunConfig& config = *run.config;
  const auto drops = [&](const char* trait) {
    const bool is_said = config.model_flags.contains(trait);
    const nlohmann::json& traits = is_said ? config.model_flags : config.model_defaults;
    if (const auto ratio = traits.find(trait); ratio != traits.end()) {
      return ratio->is_number() && ratio->get<double>() > 0;
    }
    const auto echoed = std::ranges::find(run.echoed, trait, &EchoedSetting::key);
    return echoed != run.echoed.end() && dialects::parse_number(echoed->value).value_or(0) > 0;
  };
  plan.has_attention_dropout = drops("attention_dropout");
  plan.has_hidden_dropout = drops("hidden_dropout");
  for (const dialects::UnknownSetting& setting : config.unknown) {
    const dialects::Row* row = dialects::find_carried(setting.key, config.dialect);
    if (row == nullptr || setting.value == "null") continue;
    if (row->name == "moe_shared_expert_overlap") {
      plan.overlaps_shared_experts = dialects::parse_switch(setting.value).value_or(true);
    } else if (row->name == "moe_router_load_balancing_type") {
      plan.balances_without_capacity = setting.value.find("sinkhorn") != std::string::npos ||
                                       setting.value.find("quantile") != std::string::npos;
    }
  }
}

/// Rules of the model's framework that a run breaks, as far as its sizes are known.
std::vector<BrokenRule> broken_rules_of(const RunToMend& run, const PlanKnobs& knobs) {
  spec::ModelSpec unknown_model;
  unknown_model.num_experts = has_experts(run) ? 1 : 0;
  tuner::planner::PlanRun plan;
  plan.model = run.model == nullptr ? &unknown_model : run.model.get();
  plan.hardware = run.hardware.get();
  plan.knobs = knobs;
  plan.seq_length = std::max<int64_t>(1, run.config->seq_length);
  plan.global_batch_size = std::max<int64_t>(1, following_batch(*run.config, knobs));
  plan.is_of_megatron = run.config->dialect != dialects::Dialect::torchtitan;
  plan.takes_padded_deepep = dialects::takes_padded_deepep(*run.config);
  plan.states_own_modules = run.config->has_own_modules;
  add_carried_choices(run, plan);
  const bool has_sizes = run.model != nullptr;
  std::vector<BrokenRule> broken;
  if (!has_sizes) broken = broken_sizes_of(*run.config, knobs);
  for (const tuner::planner::PlanRule* rule : has_sizes
                                                  ? tuner::planner::broken_rules(plan)
                                                  : tuner::planner::broken_rules_of_knobs(plan)) {
    // Where nobody knows the configuration, what is set may be anything.
    const bool is_of_machine = rule->binds == tuner::planner::RuleOf::any_engine;
    if (!has_sizes && !run.is_config_known && !is_of_machine) continue;
    broken.push_back({std::string(rule->name), rule->message(plan)});
  }
  return broken;
}

/// With model and machine filled in as far as the run says them.
RunToMend with_sizes(RunToMend run) {
  if (run.model == nullptr) run.model = model_said(*run.config);
  if (run.hardware == nullptr) run.hardware = unknown_machine(run);
  return run;
}

/// Whether, of a change that does not only set the micro-batch, the framework has words for the
/// rest.
bool says_more_than_batch(const dialects::RunConfig& config, const dialects::RunConfig& changed) {
  dialects::RunConfig rest = changed;
  rest.knobs.micro_batch_size = config.knobs.micro_batch_size;
  return rest.knobs == config.knobs || !dialects::changes_of_text(config, rest).empty();
}

/// Megatron-LM's dump of its arguments has the names of the parser's results.
std::string echoed_key(const std::string& key) {
  if (!key.starts_with("--")) return key;
  std::string name = key.substr(2);
  std::ranges::replace(name, '-', '_');
  return name;
}

/// What the run says of a setting, its log included; none: nothing, or no more than null.
std::optional<std::string> said_value(const RunToMend& run, const std::string& key) {
  std::optional<std::string> said;
  for (const dialects::UnknownSetting& setting : run.config->unknown) {
    if (setting.key == key) said = setting.value.empty() ? "true" : setting.value;  // a switch
  }
  for (const EchoedSetting& setting : run.echoed) {
    if (!said && setting.key == echoed_key(key)) said = setting.value;
  }
  if (said == "null" || said == "None") said.reset();
  return said;
}

/// A word in a file, without the quotes of its form.
std::string unquoted(std::string word) {
  std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
  return word;
}

/// Whether a run chooses by operation what it computes again: then each operator of the forward
/// pass, and of its repetition, goes through Python, which ends with recomputation.
bool selects_operators(const RunToMend& run) {
  const dialects::RunConfig& config = *run.config;
  const spec::PlanRecomputeSet& recompute = config.knobs.recompute;
  if (config.dialect != dialects::Dialect::torchtitan || !run.is_config_known ||
      recompute.empty() || recompute.has(spec::PlanRecompute::full)) {
    return false;
  }
  const auto word_of = [&](std::string_view name) {
    const dialects::Row& row = dialects::row_of(name);
    const std::string_view fallback = dialects::fallback_of(row, config.dialect);
    return unquoted(
        said_value(run, dialects::key_of(row, config.dialect)).value_or(std::string(fallback)));
  };
  return word_of("activation_checkpoint") == "selective" &&
         !dialects::parse_integer(word_of("selective_ac_option"));
}

/// What that takes at most, as a share of the step: the backward pass launches as much again.
double selecting_ratio(const FoundWall& wall) {
  const auto launch = wall.cause_ceilings.find(kLaunch);
  return launch == wall.cause_ceilings.end() ? 0 : launch->second / 2;
}

/// What a row can save at most: no more than the causes that it is for, where those are known, than
/// its groups communicate, and than its kernels run or are launched.
/// Computing takes whatever the other causes leave, so of it only what a roofline has told apart
/// can be saved, unless it is the wall: none where that is not known.
std::optional<double> ceiling_of(const RemedyRow& row, const FoundWall& wall,
                                 const RunToMend& run) {
  if (wall.needless_recompute_ratio > 0 && changes_cause(kRecompute, row)) {
    const double selecting = selects_operators(run) ? selecting_ratio(wall) : 0;
    return row.most_saved * std::min(1.0, wall.needless_recompute_ratio + selecting);
  }
  const auto share = wall.ceilings.find(name_of(row.label));
  const double whole = share == wall.ceilings.end() ? 0 : share->second;
  double of_causes = 0;
  bool is_known = false;
  for (const auto& [cause, ratio] : wall.cause_ceilings) {
    if (!helps_against(row, cause)) continue;
    is_known = true;
    of_causes += ratio;
  }
  if (!is_known && row.label == Wall::compute && wall.label != row.label) return std::nullopt;
  double ceiling = is_known ? std::min(whole, of_causes) : whole;
  if (row.part_of_loader != nullptr) ceiling *= row.part_of_loader(wall.loader);
  const double of_groups = share_of_groups(row, row.collectives, wall.groups, ceiling);
  const bool has_reductions =
      row.overlaps_reductions && !run.config->knobs.overlap_grad_reduce && of_groups >= kWorthALook;
  ceiling =
      has_reductions ? share_of_groups(row, CollectiveKind::any, wall.groups, ceiling) : of_groups;
  ceiling = row.most_saved * share_of_kernels(row, wall.kernels, ceiling);
  return std::min(ceiling, row.most_of_step);
}

/// The value to propose: also more than a framework does by itself.
std::string proposed_value(const ProposedSetting& wanted, std::string_view fallback) {
  const auto least = dialects::parse_integer(wanted.value);
  const auto usual = dialects::parse_integer(fallback);
  const bool is_more = wanted.wanted == ProposedSetting::Wanted::at_least && least && usual;
  return is_more ? fmt::format("{}", std::max(*least, 2 * *usual)) : std::string(wanted.value);
}

/// Whether a value does what the proposed one does, or says more than can be compared.
bool does_as_much(ProposedSetting::Wanted wanted, const std::string& value,
                  const std::string& proposed) {
  if (wanted == ProposedSetting::Wanted::word) return value == proposed;
  if (wanted == ProposedSetting::Wanted::on) return dialects::parse_switch(value).value_or(true);
  const auto is = dialects::parse_number(value);
  const auto wants = dialects::parse_number(proposed);
  if (!is || !wants) return true;
  return wanted == ProposedSetting::Wanted::at_most ? *is <= *wants : *is >= *wants;
}

/// A word as it works, without the quotes of its file.
std::string working_word(std::string_view name, std::string word, const PlanKnobs& knobs) {
  word = unquoted(std::move(word));
  const bool is_open = word.empty() || word == "default";
  // FSDP2 frees weights behind the forward pass, unless several micro-batches are under way.
  if (name == "fsdp_reshard_after_forward" && is_open) return knobs.pp > 1 ? "never" : "always";
  return word;
}

/// The settings of a row in the words of the run's framework. Empty where it has none, or where the
/// first of them is in effect already.
std::vector<std::string> proposed_settings(const RemedyRow& row, const RunToMend& run) {
  const dialects::RunConfig& config = *run.config;
  std::vector<std::string> flags;
  for (const ProposedSetting& wanted : row.settings) {
    if (wanted.name.empty()) continue;
    if (wanted.wanted == ProposedSetting::Wanted::variable) {
      const bool has_own_name = run.is_rocm && !wanted.name_on_rocm.empty();
      const std::string_view name = has_own_name ? wanted.name_on_rocm : wanted.name;
      if (config.environment.contains(wanted.name) || config.environment.contains(name)) return {};
      flags.push_back(fmt::format("{}={}", name, wanted.value));
      continue;
    }
    const dialects::Row& choice = dialects::row_of(wanted.name);
    const std::string key = dialects::key_of(choice, config.dialect);
    if (key.empty()) continue;
    const std::string_view fallback = dialects::fallback_of(choice, config.dialect);
    const std::string value = proposed_value(wanted, fallback);
    std::string in_effect = said_value(run, key).value_or(std::string(fallback));
    if (wanted.wanted == ProposedSetting::Wanted::word) {
      in_effect = working_word(wanted.name, std::move(in_effect), config.knobs);
    }
    if (flags.empty() && !in_effect.empty() && does_as_much(wanted.wanted, in_effect, value)) {
      return {};
    }
    flags.push_back(dialects::text_of(dialects::change_to(config, key, value), config.dialect));
  }
  return flags;
}

/// Whether a change moves anything of what the traces show. Dispatchers that gather rows have no
/// exchange that could be told from other gathering.
bool is_in_traces(const RemedyRow& row, const RunToMend& run) {
  if (row.needs == RemedyRow::Needs::nothing) return true;
  if (row.needs == RemedyRow::Needs::several_nodes) return !run.is_on_one_node;
  const bool gathers = run.config->knobs.dispatcher == spec::Dispatcher::allgather;
  const bool is_between_nodes = row.needs == RemedyRow::Needs::rows_between_nodes;
  return (run.has_row_exchange || gathers) && !(is_between_nodes && run.is_on_one_node);
}

bool is_for_run(const RemedyRow& row, const dialects::RunConfig& config) {
  return (!row.dialect || *row.dialect == config.dialect) &&
         (row.is_for == nullptr || row.is_for(config.knobs));
}

/// As if all were offloaded for which there are settings.
RunToMend with_offload(RunToMend run) {
  run.config->stated.clear();  // which of the words is said nobody knows
  PlanKnobs& knobs = run.config->knobs;
  knobs.optimizer_offload_ratio = 1;
  knobs.precision_aware_optimizer = true;  // the one that can, and stays
  knobs.offload.add(spec::Offload::core_attn);
  return run;
}

/// Whether what goes to the host may be of something else than the settings that offload: nothing
/// comes back, and none of these is on.
bool may_be_checkpoint(const FoundWall& wall, const RunToMend& run) {
  const PlanKnobs& knobs = run.config->knobs;
  return wall.is_offload_one_way && knobs.optimizer_offload_ratio == 0 && knobs.offload.empty();
}

/// As if whole layers were computed again.
RunToMend with_recompute(RunToMend run) {
  run.config->stated.clear();
  run.config->knobs.recompute = {};
  run.config->knobs.recompute.add(spec::PlanRecompute::full);
  return run;
}

/// Takes out of a change what only experts have; graphs are of the dense half of a layer instead.
/// False where nothing but the micro-batch is left of it.
bool make_dense(const dialects::RunConfig& config, PlanKnobs& changed) {
  const PlanKnobs& before = config.knobs;
  const spec::PlanGraphSet of_experts{spec::PlanGraph::moe, spec::PlanGraph::moe_router,
                                      spec::PlanGraph::moe_preprocess};
  spec::PlanGraphSet graphs;
  for (const auto& row : spec::NameTable<spec::PlanGraph>::kRows) {
    if (!changed.cuda_graphs.has(row.value)) continue;
    const bool is_left_out = of_experts.has(row.value) && !before.cuda_graphs.has(row.value);
    graphs.add(is_left_out ? spec::PlanGraph::mlp : row.value);
  }
  // torchtitan chooses by operation, whatever modules there are.
  const bool is_module = config.dialect != dialects::Dialect::torchtitan;
  spec::PlanRecomputeSet recompute;
  for (const auto& row : spec::NameTable<spec::PlanRecompute>::kRows) {
    const bool is_left_out =
        is_module && row.value == spec::PlanRecompute::moe_act && !before.recompute.has(row.value);
    if (changed.recompute.has(row.value) && !is_left_out) recompute.add(row.value);
  }
  const bool is_whole = graphs == changed.cuda_graphs && recompute == changed.recompute;
  changed.cuda_graphs = graphs;
  changed.recompute = recompute;
  PlanKnobs rest = changed;
  rest.micro_batch_size = before.micro_batch_size;
  return is_whole || rest != before;
}

/// Sets the remedy's knobs and settings. False where the change does not apply, or where the
/// framework has no word for it, or only for the larger micro-batch that it makes room for.
bool apply_change(bool (*change)(PlanKnobs&), const RunToMend& run, Remedy& remedy) {
  const dialects::RunConfig& config = *run.config;
  dialects::RunConfig changed = config;
  if (change == nullptr || !change(changed.knobs)) return false;
  if (!has_experts(run) && !make_dense(config, changed.knobs)) return false;
  // The nearest word of a framework may be another dispatcher.
  const bool has_other_dispatcher = changed.knobs.dispatcher != config.knobs.dispatcher;
  if (has_other_dispatcher && !dialects::can_say(changed, "dispatcher", config.dialect)) {
    return false;
  }
  const std::vector<dialects::SettingChange> changes = dialects::changes_of_text(config, changed);
  if (changes.empty() || !says_more_than_batch(config, changed)) return false;
  for (const dialects::SettingChange& one : changes) {
    remedy.flags.push_back(dialects::text_of(one, config.dialect));
  }
  remedy.knobs = changed.knobs;
  remedy.refused = rule_broken_by(run, changed.knobs);
  return true;
}

/// Products in 8 bits are not every device's; where nothing names it, that is a condition.
void add_condition_of_device(const RunToMend& run, bool is_machine_known, Remedy& remedy) {
  if (is_machine_known || !run.device_name.empty() || !remedy.knobs) return;
  const bool is_narrow = spec::is_product_narrow(remedy.knobs->precision);
  if (!is_narrow || spec::is_product_narrow(run.config->knobs.precision)) return;
  remedy.why +=
      " Nothing names the device: it needs compute capability 8.9 or higher, or an MI300.";
}

/// A change, and what it may save of each wall.
struct LabelledRemedy {
  Wall label = Wall::unknown;  ///< of its row
  bool is_told = false;        ///< against the cause of a row it saves enough
  double most_of_step = 1;
  std::map<Wall, double> saved = {};
  Remedy remedy = {};

  /// The same change, by another row: that which saves more is told.
  void add(LabelledRemedy other) {
    for (const auto& [label_of_other, ratio] : other.saved) {
      saved[label_of_other] = std::max(saved[label_of_other], ratio);
    }
    most_of_step = std::min(most_of_step, other.most_of_step);
    const bool is_of_wall = remedy.is_of_wall || other.remedy.is_of_wall;
    const bool is_better = other.is_told == is_told
                               ? other.remedy.ceiling_ratio > remedy.ceiling_ratio
                               : other.is_told;
    if (is_better) {
      label = other.label;
      remedy = std::move(other.remedy);
    }
    is_told = is_told || other.is_told;
    remedy.is_of_wall = is_of_wall;
  }

  /// It changes all of these causes at once.
  [[nodiscard]] double ceiling_ratio() const {
    double sum = 0;
    for (const auto& [label_of_row, ratio] : saved) sum += ratio;
    return std::min(sum, most_of_step);
  }
};

/// By falling ceiling, refused ones last; against each other label only those that can save most.
std::vector<Remedy> in_order(std::vector<LabelledRemedy> found, const FoundWall& wall) {
  // The label's own first among equals; what is refused can only be read.
  std::ranges::stable_sort(found, [](const LabelledRemedy& a, const LabelledRemedy& b) {
    const bool is_possible = a.remedy.refused.empty();
    if (is_possible != b.remedy.refused.empty()) return is_possible;
    return a.remedy.ceiling_ratio > b.remedy.ceiling_ratio;
  });
  std::vector<Remedy> remedies;
  std::map<Wall, int> num_of_other;
  for (LabelledRemedy& one : found) {
    const bool is_other = !one.remedy.is_of_wall;
    if (is_other && num_of_other[one.label]++ >= kMostRemediesOfOtherWalls) continue;
    remedies.push_back(std::move(one.remedy));
  }
  if (wall.is_fragmented) {
    std::stable_partition(remedies.begin(), remedies.end(),
                          [](const Remedy& remedy) { return remedy.rule == kAgainstFragments; });
  }
  return remedies;
}

}  // namespace

std::string rule_broken_by(const RunToMend& run, const PlanKnobs& knobs) {
  const int64_t pass = int64_t{knobs.micro_batch_size} * knobs.dp;
  const int64_t batch = following_batch(*run.config, knobs);
  if (batch > 0 && pass > 0 && batch % pass != 0) {
    return fmt::format("global_batch: {} sequences are no multiple of micro-batch {} x dp {}",
                       batch, knobs.micro_batch_size, knobs.dp);
  }
  const RunToMend sized = with_sizes(run);
  const std::vector<BrokenRule> before = broken_rules_of(sized, run.config->knobs);
  for (const BrokenRule& rule : broken_rules_of(sized, knobs)) {
    if (std::ranges::find(before, rule.name, &BrokenRule::name) == before.end()) {
      return fmt::format("{}: {}", rule.name, rule.message);
    }
  }
  return {};
}

std::vector<Remedy> remedies_of(const FoundWall& found_wall, const RunToMend& given) {
  if (found_wall.label == Wall::unknown) return {};
  RunToMend run = given;
  if (!run.config) {
    run.config.emplace();
    run.is_config_known = false;
  }
  run = with_sizes(std::move(run));
  run.config->is_dense = !has_experts(run);
  FoundWall wall = found_wall;
  if (may_be_checkpoint(wall, run)) wall.cause_ceilings[std::string(kOffload)] = 0;
  const RunToMend offloading = run.has_unsaid_offload ? with_offload(run) : run;
  const RunToMend recomputing = run.has_unsaid_recompute ? with_recompute(run) : run;
  std::vector<LabelledRemedy> found;
  for (const RemedyRow& row : remedy_rows()) {
    const bool is_other = row.label != wall.label;
    const std::optional<double> ceiling = ceiling_of(row, wall, run);
    if (!ceiling || *ceiling < kWorthALook) continue;
    if (row.is_for_experts && !has_experts(run)) continue;
    if (!is_in_traces(row, run)) continue;
    if (!is_for_run(row, *run.config)) continue;
    const double least = is_other ? kWorthALookOfOtherWalls : kWorthALook;
    LabelledRemedy one = {.label = row.label,
                          .is_told = is_for(row, wall) && *ceiling >= least,
                          .most_of_step = row.most_of_step,
                          .saved = {{row.label, *ceiling}}};
    Remedy& remedy = one.remedy;
    remedy.is_of_wall = !is_other && one.is_told;
    remedy.ceiling_ratio = *ceiling;
    remedy.rule = row.rule;
    remedy.why = row.why;
    if (row.change != nullptr) {
      const RunToMend& from = changes_cause(kOffload, row)     ? offloading
                              : changes_cause(kRecompute, row) ? recomputing
                                                               : run;
      if (!apply_change(row.change, from, remedy) &&
          !apply_change(row.change_instead, from, remedy)) {
        continue;
      }
    } else if (!row.settings[0].name.empty()) {
      remedy.flags = proposed_settings(row, run);
      if (remedy.flags.empty()) continue;
    }
    // The same change against another cause is told once.
    const auto same = std::ranges::find_if(found, [&](const LabelledRemedy& other) {
      return !remedy.flags.empty() && other.remedy.flags == remedy.flags;
    });
    if (same == found.end()) {
      add_condition_of_device(run, given.hardware != nullptr, remedy);
      found.push_back(std::move(one));
    } else {
      same->add(std::move(one));
    }
  }
  std::erase_if(found, [](const LabelledRemedy& one) { return !one.is_told; });
  for (LabelledRemedy& one : found) one.remedy.ceiling_ratio = one.ceiling_ratio();
  return in_order(std::move(found), wall);
}

std::vector<std::string_view> remedy_rules() {
  std::vector<std::string_view> names;
  for (const RemedyRow& row : remedy_rows()) names.push_back(row.rule);
  return names;
}

}  // namespace moetune::sweeps
