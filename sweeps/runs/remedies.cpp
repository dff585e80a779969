// The rows. Where a cause has several remedies, the cheaper one to try stands first.
#include "sweeps/runs/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/model_spec.h"
#include "kernels/base/error.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

namespace dialects = spec::dialects;
using base::WallLabel;
using spec::PlanKnobs;
using spec::PlanRecompute;

constexpr double kWorthALook = 0.02;  // of the step
/// Of the other walls, whose sub-cause nobody has told apart.
constexpr double kWorthALookOfOtherWalls = 0.05;
constexpr int kMostRemediesOfOtherWalls = 2;

struct Row {
  std::string_view rule;
  WallLabel label;
  /// Sub-causes that it helps against (SubCauseRow::name, or "oom" and "host memory"). Empty: all.
  std::array<std::string_view, 3> sub_causes;
  std::string_view why;
  /// Applies the change. False if it is in effect already or does not apply to the run. Null: not a
  /// choice among knobs; `words` holds the flags.
  bool (*change)(PlanKnobs&);
  /// Settings beside the table of knobs, in Megatron-LM's words.
  std::string_view words = {};
  bool is_for_experts = false;  ///< says nothing to a dense model
  double most_saved = 1;        ///< of the time of its sub-causes
};

bool turn_on(bool& knob) { return !std::exchange(knob, true); }

template <class Set, class Value>
bool add_to(Set& set, std::initializer_list<Value> values) {
  bool is_new = false;
  for (const Value value : values) {
    is_new = is_new || !set.has(value);
    set.add(value);
  }
  return is_new;
}

bool halve(int32_t& size) {
  if (size < 2 || size % 2 != 0) return false;
  size /= 2;
  return true;
}

/// Twice the micro-batch with what frees the memory for it; false where there is nothing to free.
bool use_room(PlanKnobs& k, bool frees_memory) {
  if (frees_memory) k.micro_batch_size *= 2;
  return frees_memory;
}

constexpr Row kRows[] = {
    // The device waits for the host.
    {"graphs_of_static_parts",
     WallLabel::host,
     {"launch"},
     "Captured parts of a layer are launched at once.",
     [](PlanKnobs& k) {
       using spec::PlanGraph;
       return add_to(k.cuda_graphs,
                     {PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess});
     }},
    {"fused_permutation",
     WallLabel::host,
     {"launch"},
     "Sorting rows in one kernel takes fewer launches.",
     [](PlanKnobs& k) { return turn_on(k.moe_permute_fusion); },
     {},
     true},
    {"grouped_products",
     WallLabel::host,
     {"launch"},
     "One launch for the products of all local experts.",
     [](PlanKnobs& k) { return turn_on(k.moe_grouped_gemm); },
     {},
     true},
    {"larger_micro_batch",
     WallLabel::host,
     {"launch"},
     "Twice the work behind each launch.",
     [](PlanKnobs& k) {
       k.micro_batch_size *= 2;
       return true;
     }},
    {"no_waiting_for_counts",
     WallLabel::host,
     {"sync"},
     "With a capacity the host need not know how many rows arrive; rows beyond it are dropped, so "
     "losses have to be compared.",
     [](PlanKnobs& k) {
       if (k.capacity_factor > 0) return false;
       k.capacity_factor = 1.5F;
       return true;
     },
     {},
     true},
    {"expandable_segments",
     WallLabel::host,
     {"allocator"},
     "The allocator then grows its segments and need not free and ask again.",
     nullptr,
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
    {"more_loader_workers",
     WallLabel::host,
     {"loader"},
     "More processes prepare the next batch.",
     nullptr,
     "--num-workers 8"},
    {"collect_garbage_together",
     WallLabel::host,
     {"loader"},
     "All ranks collect garbage in the same step, seldom.",
     nullptr,
     "--manual-gc --manual-gc-interval 100"},
    // Ranks move data.
    {"overlap_of_gradients",
     WallLabel::communication,
     {"transfer"},
     "Gradients are reduced while the backward pass goes on.",
     [](PlanKnobs& k) { return k.dp * k.cp > 1 && turn_on(k.overlap_grad_reduce); }},
    {"overlap_of_weights",
     WallLabel::communication,
     {"transfer"},
     "Weights are gathered while the forward pass goes on.",
     [](PlanKnobs& k) {
       if (k.dp * k.cp == 1 || !k.distributed_optimizer) return false;
       k.overlap_grad_reduce = true;  // without which it is refused
       return turn_on(k.overlap_param_gather);
     }},
    {"overlap_of_experts",
     WallLabel::communication,
     {"transfer"},
     "One micro-batch exchanges rows while another one computes.",
     [](PlanKnobs& k) { return k.ep > 1 && turn_on(k.overlap_moe_expert_parallel_comm); },
     {},
     true},
    {"hybrid_dispatcher",
     WallLabel::communication,
     {"transfer", "one link"},
     "Rows cross between nodes once and are spread inside.",
     [](PlanKnobs& k) {
       if (k.ep == 1 || k.dispatcher == spec::Dispatcher::hybridep) return false;
       k.dispatcher = spec::Dispatcher::hybridep;
       return true;
     },
     {},
     true},
    {"overlap_of_tensor_parallelism",
     WallLabel::communication,
     {"transfer"},
     "Products and their tensor-parallel transfers run in pieces beside each other.",
     [](PlanKnobs& k) { return k.tp > 1 && turn_on(k.tp_comm_overlap); }},
    {"less_tensor_parallelism",
     WallLabel::communication,
     {"transfer"},
     "Half the ranks that a layer's products are cut over.",
     [](PlanKnobs& k) {
       if (!halve(k.tp)) return false;
       k.dp *= 2;
       return true;
     }},
    {"fewer_sms_for_exchange",
     WallLabel::communication,
     {"contention"},
     "The exchange leaves more multiprocessors to the kernels beside it.",
     [](PlanKnobs& k) {
       if (k.ep == 1 || k.moe_flex_dispatcher_num_sms == 12) return false;
       k.moe_flex_dispatcher_num_sms = 12;
       return true;
     },
     {},
     true},
    {"look_at_the_link",
     WallLabel::communication,
     {"one link"},
     "One rank's transfers are slower than the others': check its cable, adapter and node.",
     nullptr},
    // Stages wait for each other.
    {"more_virtual_stages",
     WallLabel::pipeline,
     {"bubble"},
     "The bubble shrinks with the number of virtual stages.",
     [](PlanKnobs& k) {
       if (k.pp == 1) return false;
       k.vpp *= 2;
       return true;
     }},
    {"more_micro_batches",
     WallLabel::pipeline,
     {"bubble"},
     "Half the micro-batch is twice as many of them: the bubble's share halves.",
     [](PlanKnobs& k) { return k.pp > 1 && halve(k.micro_batch_size); }},
    {"fewer_stages",
     WallLabel::pipeline,
     {"bubble"},
     "Half the stages, twice the replicas.",
     [](PlanKnobs& k) {
       if (!halve(k.pp)) return false;
       k.dp *= 2;
       if (k.pp == 1) k.vpp = 1;
       return true;
     }},
    {"fewer_layers_at_the_ends",
     WallLabel::pipeline,
     {"uneven stage"},
     "Embedding and head are work too: give their stages fewer layers.",
     nullptr,
     "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"},
    // Some ranks have more to do, or are slower.
    {"balance_of_experts",
     WallLabel::imbalance,
     {"experts"},
     "A stronger balancing loss evens out what the experts receive.",
     nullptr,
     "--moe-aux-loss-coeff 0.01",
     true},
    {"capacity_of_experts",
     WallLabel::imbalance,
     {"experts"},
     "A capacity bounds what the busiest expert computes; rows beyond it are dropped, so losses "
     "have "
     "to be compared.",
     [](PlanKnobs& k) {
       if (k.capacity_factor > 0) return false;
       k.capacity_factor = 1.25F;
       return true;
     },
     {},
     true},
    {"look_at_the_rank",
     WallLabel::imbalance,
     {"rank"},
     "One rank computes slower than the others: check its clocks, temperature and neighbours.",
     nullptr},
    // Memory is bought with time.
    {"selective_recomputation",
     WallLabel::memory,
     {"recompute"},
     "Recompute what is cheap and large instead of whole layers.",
     [](PlanKnobs& k) {
       if (!k.recompute.has(PlanRecompute::full)) return false;
       k.recompute = {};
       k.recompute.add(PlanRecompute::moe_act);
       k.recompute.add(PlanRecompute::layernorm);
       return true;
     }},
    {"no_recomputation",
     WallLabel::memory,
     {"recompute"},
     "Nothing is recomputed, where memory allows it.",
     [](PlanKnobs& k) {
       if (k.recompute == spec::PlanRecomputeSet{}) return false;
       k.recompute = {};
       return true;
     }},
    {"no_offload",
     WallLabel::memory,
     {"offload", "host memory"},
     "Nothing goes to the host's memory, where that fits.",
     [](PlanKnobs& k) {
       if (k.optimizer_offload_ratio == 0 && k.offload == spec::OffloadSet{}) return false;
       k.optimizer_offload_ratio = 0;
       k.offload = {};
       return true;
     }},
    {"smaller_micro_batch",
     WallLabel::memory,
     {"oom"},
     "Half the activations, twice the micro-batches.",
     [](PlanKnobs& k) { return halve(k.micro_batch_size); }},
    {"more_recomputation",
     WallLabel::memory,
     {"oom"},
     "What is cheap and large is recomputed instead of kept; where that is so, whole layers are.",
     [](PlanKnobs& k) {
       if (k.recompute.has(PlanRecompute::full)) return false;
       if (add_to(k.recompute, {PlanRecompute::moe_act, PlanRecompute::layernorm})) return true;
       k.recompute = {};
       k.recompute.add(PlanRecompute::full);
       return true;
     }},
    {"fused_loss",
     WallLabel::memory,
     {"oom"},
     "Logits are not kept: the loss is computed in pieces.",
     [](PlanKnobs& k) {
       if (k.cross_entropy != spec::CrossEntropy::unfused) return false;
       k.cross_entropy = spec::CrossEntropy::native;
       return true;
     }},
    {"offloaded_optimizer",
     WallLabel::memory,
     {"oom"},
     "The optimizer's state lies in the host's memory; steps take longer.",
     [](PlanKnobs& k) {
       if (k.optimizer_offload_ratio > 0) return false;
       k.optimizer_offload_ratio = 1;
       k.precision_aware_optimizer = true;  // the one that can
       return true;
     }},
    {"less_fragmentation",
     WallLabel::memory,
     {"oom"},
     "The allocator grows its segments and leaves fewer holes.",
     nullptr,
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
    {"fewer_loader_workers",
     WallLabel::memory,
     {"host memory"},
     "Each process that prepares batches holds a copy of what it reads.",
     nullptr,
     "--num-workers 1"},
    {"sharded_optimizer",
     WallLabel::memory,
     {"oom", "recompute", "offload"},
     "Each replica keeps its share of the optimizer's state only: room for larger micro-batches.",
     [](PlanKnobs& k) { return k.dp * k.cp > 1 && turn_on(k.distributed_optimizer); }},
    {"narrow_moments",
     WallLabel::memory,
     {"oom", "recompute", "offload"},
     "Moments in bf16 free memory for larger micro-batches or less recomputation.",
     [](PlanKnobs& k) {
       if (k.exp_avg == spec::StateType::bf16) return false;
       k.precision_aware_optimizer = true;
       k.exp_avg = k.exp_avg_sq = spec::StateType::bf16;
       return true;
     }},
    // Memory holds the micro-batch down: free some, and use it at once. What costs least is first.
    {"room_by_fused_loss",
     WallLabel::memory,
     {"capped micro-batch"},
     "Logits are not kept: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       const bool is_new = k.cross_entropy == spec::CrossEntropy::unfused;
       if (is_new) k.cross_entropy = spec::CrossEntropy::native;
       return use_room(k, is_new);
     }},
    {"room_by_sharded_optimizer",
     WallLabel::memory,
     {"capped micro-batch"},
     "Each replica keeps its share of the optimizer's state only: room for twice the micro-batch.",
     [](PlanKnobs& k) { return use_room(k, k.dp * k.cp > 1 && turn_on(k.distributed_optimizer)); }},
    {"room_by_narrow_moments",
     WallLabel::memory,
     {"capped micro-batch"},
     "Moments in bf16 free memory for twice the micro-batch; losses have to be compared.",
     [](PlanKnobs& k) {
       const bool is_new = k.exp_avg != spec::StateType::bf16;
       k.precision_aware_optimizer = true;
       k.exp_avg = k.exp_avg_sq = spec::StateType::bf16;
       return use_room(k, is_new);
     }},
    {"room_by_recomputation",
     WallLabel::memory,
     {"capped micro-batch"},
     "What is cheap and large is recomputed instead of kept: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       return use_room(k,
                       !k.recompute.has(PlanRecompute::full) &&
                           add_to(k.recompute, {PlanRecompute::moe_act, PlanRecompute::layernorm}));
     }},
    {"room_by_more_expert_ranks",
     WallLabel::memory,
     {"capped micro-batch"},
     "Half the experts on each rank: room for twice the micro-batch.",
     [](PlanKnobs& k) {
       k.ep *= 2;
       return use_room(k, true);
     },
     {},
     true},
    // The device computes.
    {"products_in_fp8",
     WallLabel::compute,
     {"FLOPs"},
     "Products in 8 bits; losses have to be compared.",
     [](PlanKnobs& k) {
       if (k.precision != spec::PrecisionRecipe::bf16) return false;
       k.precision = spec::PrecisionRecipe::fp8_blockwise;
       return true;
     },
     {},
     false,
     0.5},  // twice the peak of 16 bits
    {"fused_activations",
     WallLabel::compute,
     {"bandwidth"},
     "Fused kernels read and write activations once.",
     [](PlanKnobs& k) {
       const bool is_new = turn_on(k.fused_activation);
       return turn_on(k.moe_permute_fusion) || is_new;
     }},
    {"larger_products",
     WallLabel::compute,
     {"occupancy"},
     "Twice the rows in each product.",
     [](PlanKnobs& k) {
       k.micro_batch_size *= 2;
       return true;
     }},
    {"whole_experts",
     WallLabel::compute,
     {"occupancy"},
     "Experts that are not cut have wider products.",
     [](PlanKnobs& k) {
       if (!halve(k.etp)) return false;
       k.ep *= 2;
       return true;
     },
     {},
     true},
};

bool helps_against(const Row& row, std::string_view sub_cause) {
  return std::ranges::find(row.sub_causes, sub_cause) != row.sub_causes.end();
}

bool is_for(const Row& row, const FoundWall& wall) {
  return row.label != wall.label || row.sub_causes[0].empty() || wall.sub_cause.empty() ||
         helps_against(row, wall.sub_cause);
}

/// What a row can save at most: no more than the causes that it is for, where those are known.
/// Computing takes whatever the other causes leave, so of it only what a roofline has told apart
/// can be saved, unless it is the wall: none where that is not known.
std::optional<double> ceiling_of(const Row& row, const FoundWall& wall) {
  const auto share = wall.ceilings.find(name_of(row.label));
  const double whole = share == wall.ceilings.end() ? 0 : share->second;
  double of_causes = 0;
  bool is_known = false;
  for (const auto& [cause, ratio] : wall.cause_ceilings) {
    if (!helps_against(row, cause)) continue;
    is_known = true;
    of_causes += ratio;
  }
  if (!is_known && row.label == WallLabel::compute && wall.label != row.label) return std::nullopt;
  return row.most_saved * (is_known ? std::min(whole, of_causes) : whole);
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

/// The model that a run says, where that is a whole one.
std::shared_ptr<const spec::ModelSpec> model_said(const dialects::RunConfig& config) {
  if (config.model.empty()) return nullptr;
  try {
    return std::make_shared<const spec::ModelSpec>(
        spec::model_from_json(config.model, spec::Source("the run's model")));
  } catch (const base::UsageError&) {
    return nullptr;
  }
}

/// As many devices as the run has ranks, of which nothing else is known.
std::shared_ptr<const spec::HardwareSpec> unknown_machine(const dialects::RunConfig& config) {
  spec::HardwareSpec machine;
  machine.name = "the machine";
  machine.devices_per_node = 1;
  machine.num_nodes = config.world_size > 0 ? config.world_size : config.knobs.world_size();
  machine.fp8_flops_per_s = machine.fp4_flops_per_s = 1;  // whatever is asked for
  return std::make_shared<const spec::HardwareSpec>(std::move(machine));
}

/// Rules of the model's framework that a run breaks, as far as its sizes are known.
std::vector<BrokenRule> broken_rules_of(const RunToMend& run, const PlanKnobs& knobs) {
  if (run.model == nullptr) return broken_sizes_of(*run.config, knobs);
  tuner::planner::PlanRun plan;
  plan.model = run.model.get();
  plan.hardware = run.hardware.get();
  plan.knobs = knobs;
  plan.seq_length = std::max<int64_t>(1, run.config->seq_length);
  plan.global_batch_size = std::max<int64_t>(1, run.config->global_batch_size);
  plan.is_of_megatron = run.config->dialect != dialects::Dialect::torchtitan;
  std::vector<BrokenRule> broken;
  for (const tuner::planner::PlanRule* rule : tuner::planner::broken_rules(plan)) {
    broken.push_back({std::string(rule->name), rule->message(plan)});
  }
  return broken;
}

/// With model and machine filled in as far as the run says them.
RunToMend with_sizes(RunToMend run) {
  if (run.model == nullptr) run.model = model_said(*run.config);
  if (run.hardware == nullptr) run.hardware = unknown_machine(*run.config);
  return run;
}

/// Unknown counts as having some.
bool has_experts(const RunToMend& run) {
  if (run.model != nullptr) return run.model->num_experts > 0;
  const nlohmann::json& model = run.config->model;
  if (!run.is_config_known || model.empty()) return true;
  return std::ranges::any_of(
      std::initializer_list<const char*>{"num_experts", "num_local_experts", "n_routed_experts"},
      [&](const char* key) {
        return model.contains(key) && model[key].is_number() && model[key].get<double>() > 0;
      });
}

/// Whether, of a change that does not only set the micro-batch, the framework has words for the
/// rest.
bool says_more_than_batch(const dialects::RunConfig& config, const dialects::RunConfig& changed) {
  dialects::RunConfig rest = changed;
  rest.knobs.micro_batch_size = config.knobs.micro_batch_size;
  return rest.knobs == config.knobs ||
         !dialects::changed_settings(config, rest, config.dialect).empty();
}

/// Whether the first flag or variable of `words` is said already.
bool is_said(const dialects::RunConfig& config, std::string_view words) {
  const std::string name(words.substr(0, words.find_first_of(" =")));
  return config.environment.contains(name) ||
         std::ranges::find(config.unknown, name, &dialects::UnknownSetting::key) !=
             config.unknown.end();
}

}  // namespace

std::string rule_broken_by(const RunToMend& run, const PlanKnobs& knobs) {
  const int64_t pass = int64_t{knobs.micro_batch_size} * knobs.dp;
  const int64_t batch = run.config->global_batch_size;
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

std::vector<Remedy> remedies_of(const FoundWall& wall, const RunToMend& given) {
  std::vector<Remedy> remedies;
  if (wall.label == WallLabel::unknown) return remedies;
  RunToMend run = given;
  if (!run.config) {
    run.config.emplace();
    run.is_config_known = false;
  }
  run = with_sizes(std::move(run));
  const dialects::RunConfig& config = *run.config;
  std::map<WallLabel, int> num_of_other;
  for (const Row& row : kRows) {
    const bool is_other = row.label != wall.label;
    const std::optional<double> ceiling = ceiling_of(row, wall);
    const double least = is_other ? kWorthALookOfOtherWalls : kWorthALook;
    if (!ceiling || *ceiling < least || !is_for(row, wall)) continue;
    if (is_other && num_of_other[row.label] == kMostRemediesOfOtherWalls) continue;
    if (row.is_for_experts && !has_experts(run)) continue;
    Remedy remedy;
    remedy.ceiling_ratio = *ceiling;
    remedy.rule = row.rule;
    remedy.why = row.why;
    if (row.change != nullptr) {
      dialects::RunConfig changed = config;
      if (!row.change(changed.knobs)) continue;
      for (const dialects::SettingChange& change :
           dialects::changed_settings(config, changed, config.dialect)) {
        remedy.flags.push_back(dialects::text_of(change, config.dialect));
      }
      // The framework has no word for it, or only for the larger micro-batch that it makes room
      // for.
      if (remedy.flags.empty() || !says_more_than_batch(config, changed)) continue;
      remedy.knobs = changed.knobs;
      remedy.refused = rule_broken_by(run, changed.knobs);
    } else if (!row.words.empty()) {
      const bool is_variable = row.words.front() != '-';
      if (!is_variable && config.dialect != dialects::Dialect::megatron_lm) continue;
      if (is_said(config, row.words)) continue;
      remedy.flags.emplace_back(row.words);
    }
    // The same change for another wall is told once, with what it can save more.
    const auto same = std::ranges::find_if(remedies, [&](const Remedy& other) {
      return !remedy.flags.empty() && other.flags == remedy.flags;
    });
    if (same != remedies.end()) {
      if (same->ceiling_ratio < remedy.ceiling_ratio) *same = std::move(remedy);
      continue;
    }
    if (is_other) ++num_of_other[row.label];
    remedies.push_back(std::move(remedy));
  }
  // The label's own first among equals; what is refused can only be read.
  std::ranges::stable_sort(remedies, [](const Remedy& a, const Remedy& b) {
    if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
    return a.ceiling_ratio > b.ceiling_ratio;
  });
  return remedies;
}

std::vector<std::string_view> remedy_rules() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.rule);
  return names;
}

}  // namespace moetune::sweeps
