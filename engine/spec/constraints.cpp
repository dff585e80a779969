// The constraint table: what makes a combination of model, hardware, recipe and knobs impossible.
// Where Megatron-LM has the same rule, the semantics are Megatron's.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

using std::string;

constexpr const char* kTp = "tensor_model_parallel_size";

string sizes(const TrialParts& trial) {
  const Knobs& knobs = trial.knobs;
  constexpr int64_t kMaxSize = int64_t{1} << 28;
  // Small enough for products of a few.
  constexpr int64_t kMaxKnob = int64_t{1} << 20;
  for (const KnobRow& row : knob_table()) {
    const auto* member = std::get_if<int64_t Knobs::*>(&row.member);
    if (member == nullptr) continue;
    const int64_t value = knobs.*(*member);
    if (value < row.min_value || value > kMaxKnob) {
      return fmt::format("{} is {}, expected {} to {}", row.name, value, row.min_value, kMaxKnob);
    }
  }
  const std::pair<const char*, int64_t> others[] = {
      {"global_batch_size", trial.training.global_batch_size},
      {"seq_length", trial.training.seq_length},
      {"num_nodes", trial.hardware.num_nodes},
      {"devices_per_node", trial.hardware.devices_per_node},
      {"num_hidden_layers", trial.model.num_layers}};
  for (const auto& [name, value] : others) {
    if (value < 1 || value > kMaxSize) {
      return fmt::format("{} is {}, expected 1 to {}", name, value, kMaxSize);
    }
  }
  return {};
}

string engine_runs_model(const TrialParts& trial) { return engine_gap(trial.model); }

string world_size(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t devices = trial.hardware.num_devices();
  const int64_t model_ranks = k.replica_ranks();
  if (devices % model_ranks == 0 && devices / model_ranks == k.data_parallel_size) return {};
  const string advice =
      devices % model_ranks == 0
          ? fmt::format("data_parallel_size {} would be right", devices / model_ranks)
          : fmt::format("tensor x context x pipeline ({}) must divide the devices", model_ranks);
  return fmt::format(
      "data_parallel_size {} x tensor_model_parallel_size {} x context_parallel_size {} x "
      "pipeline_model_parallel_size {} does not make the {} devices of {} nodes x {}; {}",
      k.data_parallel_size, k.tensor_model_parallel_size, k.context_parallel_size,
      k.pipeline_model_parallel_size, devices, trial.hardware.num_nodes,
      trial.hardware.devices_per_node, advice);
}

/// "tensor_model_parallel_size 3 does not divide the 4 heads of the model; use a divisor of 4",
/// empty where it does.
string undivided(const char* knob, int64_t size, int64_t count, const char* of_what) {
  if (count % size == 0) return {};
  return fmt::format("{} {} does not divide the {} {} of the model; use a divisor of {}", knob,
                     size, count, of_what, count);
}

string tp_divides_heads(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t tp = k.tensor_model_parallel_size;
  const string heads = undivided(kTp, tp, trial.model.num_heads, "attention heads");
  return heads.empty() ? undivided(kTp, tp, trial.model.num_kv_heads, "key-value groups") : heads;
}

string tp_divides_widths(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const std::pair<int64_t, const char*> widths[] = {
      {trial.model.num_moe_layers() < trial.model.num_layers ? trial.model.ffn_size : 0,
       "columns of the MLP"},
      {trial.model.num_moe_layers() > 0 ? trial.model.shared_ffn_size : 0,
       "columns of the shared expert"},
      {trial.model.vocab_size, "entries of the vocabulary"}};
  for (const auto& [width, of_what] : widths) {
    const string wrong = undivided(kTp, k.tensor_model_parallel_size, width, of_what);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

string tp_divides_tokens(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t tp = k.tensor_model_parallel_size;
  const int64_t sequences = k.micro_batch_size;
  const int64_t local = trial.training.seq_length / k.context_parallel_size;
  const bool holds_whole = sequences % tp == 0;
  const bool holds_parts = tp % sequences == 0 && local % (tp / sequences) == 0;
  if (tp == 1 || holds_whole || holds_parts) return {};
  return fmt::format(
      "tensor_model_parallel_size {} does not split {} sequences of {} tokens of a micro-batch on "
      "a "
      "context-parallel rank: each rank takes as many whole sequences, or equal parts of one",
      tp, sequences, local);
}

string etp_divides_width(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (trial.model.num_moe_layers() == 0) return {};
  return undivided("expert_tensor_parallel_size", k.expert_tensor_parallel_size,
                   trial.model.moe_ffn_size, "columns of an expert");
}

/// Whether experts are spread over ranks, whole or in parts.
bool has_expert_parallelism(const Knobs& k) {
  return k.expert_model_parallel_size > 1 || k.expert_tensor_parallel_size > 1;
}

string ep_divides_plane(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t plane = k.stage_ranks();
  const int64_t etp = k.expert_tensor_parallel_size;
  const int64_t ep = k.expert_model_parallel_size;
  if (plane % (etp * ep) == 0) return {};
  return fmt::format(
      "expert_model_parallel_size {}{} does not divide tensor_model_parallel_size x "
      "data_parallel_size x context_parallel_size ({} x {} x {} = {}); use a divisor of {}",
      ep, etp > 1 ? fmt::format(" x expert_tensor_parallel_size {}", etp) : "",
      k.tensor_model_parallel_size, k.data_parallel_size, k.context_parallel_size, plane, plane);
}

string ep_divides_experts(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (trial.model.num_experts % k.expert_model_parallel_size == 0) return {};
  return fmt::format(
      "expert_model_parallel_size {} does not divide the {} experts of the model; use a divisor of "
      "{}",
      k.expert_model_parallel_size, trial.model.num_experts, trial.model.num_experts);
}

string ep_needs_experts(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (!has_expert_parallelism(k) || trial.model.num_moe_layers() > 0) return {};
  return fmt::format(
      "expert_model_parallel_size is {} and expert_tensor_parallel_size {}, but the model has no "
      "experts; use 1 for both",
      k.expert_model_parallel_size, k.expert_tensor_parallel_size);
}

string pp_within_layers(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (k.pipeline_model_parallel_layout != "none") return {};
  if (k.pipeline_model_parallel_size <= trial.model.num_layers) return {};
  return fmt::format(
      "pipeline_model_parallel_size {} is more than the {} layers of the model; use at most {}",
      k.pipeline_model_parallel_size, trial.model.num_layers, trial.model.num_layers);
}

string stage_layers(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t pp = k.pipeline_model_parallel_size;
  const int64_t first = k.decoder_first_pipeline_num_layers;
  const int64_t last = k.decoder_last_pipeline_num_layers;
  if (first == 0 && last == 0) return {};
  const string found = fmt::format(
      "decoder_first_pipeline_num_layers {} and decoder_last_pipeline_num_layers {}", first, last);
  if (pp == 1) {
    return fmt::format("{} need pipeline_model_parallel_size above 1, found 1; use 0", found);
  }
  if (k.pipeline_model_parallel_layout != "none") return {};
  const int64_t num_free = pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const int64_t rest = trial.model.num_layers - first - last;
  if (num_free == 0 && rest != 0) {
    return fmt::format("{} must add up to the {} layers of the model with {} stages", found,
                       trial.model.num_layers, pp);
  }
  if (rest < num_free) {
    return fmt::format("{} leave {} of {} layers for {} other stages; each stage needs at least 1",
                       found, rest, trial.model.num_layers, num_free);
  }
  return {};
}

string vpp_needs_pp(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (num_virtual_stages(k) == 1 || k.pipeline_model_parallel_size > 1) return {};
  return fmt::format(
      "{} virtual stages need pipeline_model_parallel_size above 1, found 1; use 1 virtual stage",
      num_virtual_stages(k));
}

string vpp_divides_layers(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t vpp = k.virtual_pipeline_model_parallel_size;
  if (vpp == 1 || k.pipeline_model_parallel_layout != "none") return {};
  const int64_t first = k.decoder_first_pipeline_num_layers;
  const int64_t last = k.decoder_last_pipeline_num_layers;
  if (first % vpp != 0 || last % vpp != 0) {
    return fmt::format(
        "decoder_first_pipeline_num_layers {} and decoder_last_pipeline_num_layers {} do not split "
        "into {} virtual stages; use multiples of {}",
        first, last, vpp, vpp);
  }
  const int64_t pp = k.pipeline_model_parallel_size;
  const int64_t num_free = vpp * (pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0));
  if (trial.model.num_layers - first - last >= num_free) return {};
  return fmt::format(
      "virtual_pipeline_model_parallel_size {} x pipeline_model_parallel_size {} makes more stages "
      "than the model's {} layers fill; each stage needs at least 1",
      vpp, pp, trial.model.num_layers);
}

string vpp_divides_micro_batches(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t pp = k.pipeline_model_parallel_size;
  const int64_t per_pass = k.micro_batch_size * k.data_parallel_size;
  if (num_virtual_stages(k) == 1 || trial.training.global_batch_size % per_pass != 0) return {};
  const int64_t num_micro_batches = trial.training.global_batch_size / per_pass;
  if (num_micro_batches % pp == 0) return {};
  return fmt::format(
      "the {} micro-batches of a step are not a multiple of pipeline_model_parallel_size {}, as "
      "virtual stages need",
      num_micro_batches, pp);
}

string vpp_within_communicator(const TrialParts& trial) {
  const CommunicatorRow& row = row_of(trial.communicator);
  const int64_t most = row.max_virtual_stages;
  if (most == 0 || num_virtual_stages(trial.knobs) <= most) return {};
  return fmt::format(
      "virtual stages need {}, which communicator '{}' does not have yet; it would be right: "
      "virtual_pipeline_model_parallel_size {}{}",
      row.virtual_stages_need, row.name, most,
      trial.knobs.pipeline_model_parallel_layout == "none"
          ? ""
          : " and a pipeline_model_parallel_layout of as many stages as pipeline ranks");
}

string layout_text(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  try {
    pipeline_layout_stages(k);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return {};
}

string layout_stages(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (k.pipeline_model_parallel_layout == "none") return {};
  const std::vector<string> stages = pipeline_layout_stages(k);
  const auto num_stages = static_cast<int64_t>(stages.size());
  const auto wrong = [&](const string& what) {
    return fmt::format("pipeline_model_parallel_layout {}", what);
  };
  const int64_t pp = k.pipeline_model_parallel_size;
  if (num_stages % pp != 0) {
    return wrong(fmt::format(
        "has {} stages; a multiple of pipeline_model_parallel_size {} is needed", num_stages, pp));
  }
  const int64_t vpp = k.virtual_pipeline_model_parallel_size;
  if (vpp > 1 && vpp != num_stages / pp) {
    return wrong(
        fmt::format("has {} virtual stages a rank, virtual_pipeline_model_parallel_size "
                    "says {}; leave that at 1",
                    num_stages / pp, vpp));
  }
  if (k.decoder_first_pipeline_num_layers > 0 || k.decoder_last_pipeline_num_layers > 0) {
    return wrong(
        "excludes decoder_first_pipeline_num_layers and "
        "decoder_last_pipeline_num_layers; use 0 for both");
  }
  const auto letters = [&](char letter) {
    int64_t total = 0;
    for (const string& stage : stages) total += std::count(stage.begin(), stage.end(), letter);
    return total;
  };
  if (letters('m') > 0) {
    return wrong("has multi-token prediction (m), which the engine does not run; leave out m");
  }
  if (letters('t') != trial.model.num_layers) {
    return wrong(
        fmt::format("has {} layers (t), the model has {}", letters('t'), trial.model.num_layers));
  }
  if (letters('E') != 1 || stages.front().substr(0, 1) != "E") {
    return wrong("has to begin with its one embedding (E)");
  }
  if (letters('L') != 1 || stages.back().empty() || stages.back().back() != 'L') {
    return wrong("has to end with its one loss (L)");
  }
  return {};
}

string cp_divides_sequence(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t cp = k.context_parallel_size;
  if (cp == 1 || trial.training.seq_length % (2 * cp) == 0) return {};
  return fmt::format(
      "context_parallel_size {} needs a seq_length that is a multiple of 2 x {} = {}, found {}", cp,
      cp, 2 * cp, trial.training.seq_length);
}

string seq_within_positions(const TrialParts& trial) {
  if (trial.training.seq_length <= trial.model.max_position_embeddings) return {};
  return fmt::format("seq_length {} is more than the model's max_position_embeddings {}",
                     trial.training.seq_length, trial.model.max_position_embeddings);
}

string micro_batch_divides_global(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t per_pass = k.micro_batch_size * k.data_parallel_size;
  if (trial.training.global_batch_size % per_pass == 0) return {};
  return fmt::format(
      "global_batch_size {} is not a multiple of micro_batch_size x data_parallel_size ({} x {} = "
      "{})",
      trial.training.global_batch_size, k.micro_batch_size, k.data_parallel_size, per_pass);
}

string recompute_needs_experts(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (trial.model.num_moe_layers() > 0) return {};
  if (!recomputes(k, RecomputeModule::moe_act) && !recomputes(k, RecomputeModule::experts)) {
    return {};
  }
  return fmt::format(
      "recompute is '{}', but the model has no experts; leave out moe_act and experts",
      k.recompute.text());
}

string graph_preprocess_needs_router(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (!has_graph(k, GraphScope::moe_preprocess) || has_graph(k, GraphScope::moe_router)) return {};
  return fmt::format("cuda_graph_modules is '{}': moe_preprocess needs moe_router as well",
                     k.cuda_graph_modules.text());
}

string graph_needs_experts(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (trial.model.num_moe_layers() > 0) return {};
  if (!has_graph(k, GraphScope::moe_router) && !has_graph(k, GraphScope::moe_preprocess)) return {};
  return fmt::format(
      "cuda_graph_modules is '{}', but the model has no experts; leave out moe_router and "
      "moe_preprocess",
      k.cuda_graph_modules.text());
}

string graph_without_full_recompute(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (k.cuda_graph_modules.empty() || !is_full_recompute(k)) return {};
  if (has_graph(k, GraphScope::full_iteration)) return {};
  return fmt::format(
      "cuda_graph_modules '{}' cannot be combined with recompute 'full'; use a set of modules or "
      "no graphs",
      k.cuda_graph_modules.text());
}

string graph_full_iteration_alone(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (!has_graph(k, GraphScope::full_iteration)) return {};
  if (k.cuda_graph_modules.size() == 1) return {};
  return fmt::format(
      "cuda_graph_modules is '{}': full_iteration captures everything and stands alone",
      k.cuda_graph_modules.text());
}

string graph_static_shapes(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (!has_graph(k, GraphScope::full_iteration) || trial.model.num_moe_layers() == 0) return {};
  if (!has_expert_parallelism(k)) return {};
  return fmt::format(
      "cuda_graph_modules 'full_iteration' needs shapes that never change, but with "
      "expert_model_parallel_size {} and expert_tensor_parallel_size {} the router decides how "
      "many "
      "rows arrive; use 1 for both or parts of a layer",
      k.expert_model_parallel_size, k.expert_tensor_parallel_size);
}

string ep_chunks_need_ep(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (has_expert_parallelism(k)) return {};
  if (k.ep_chunks_forward == 1 && k.ep_chunks_backward == 1) return {};
  return fmt::format(
      "ep_chunks_forward {} and ep_chunks_backward {} need expert_model_parallel_size above 1, "
      "found 1; use 1 chunk",
      k.ep_chunks_forward, k.ep_chunks_backward);
}

string ep_chunks_within_tokens(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  const int64_t tokens = k.micro_batch_size * trial.training.seq_length /
                         (k.context_parallel_size * k.tensor_model_parallel_size);
  if (std::max(k.ep_chunks_forward, k.ep_chunks_backward) <= tokens) return {};
  return fmt::format(
      "ep_chunks_forward {} and ep_chunks_backward {} must be at most the {} tokens of a "
      "micro-batch on a rank",
      k.ep_chunks_forward, k.ep_chunks_backward, tokens);
}

string overlap_needs_replicas(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (!k.overlap_grad_reduce || k.stage_ranks() > 1) return {};
  return "overlap_grad_reduce is true, but tensor_model_parallel_size x data_parallel_size x "
         "context_parallel_size is 1: there is nothing to reduce; use false";
}

string linear_ce_tile(const TrialParts& trial) {
  const Knobs& k = trial.knobs;
  if (k.linear_ce_chunk_tokens > 0 && k.linear_ce_chunk_tokens % kLossTile == 0) return {};
  return fmt::format("linear_ce_chunk_tokens is {}, expected a multiple of {}",
                     k.linear_ce_chunk_tokens, kLossTile);
}

string text_within_vocabulary(const TrialParts& trial) {
  constexpr int64_t kBytes = 256;
  if (!trial.reads_text || trial.model.vocab_size >= kBytes) return {};
  return fmt::format("vocab_size is {}, expected at least {}: text is read as bytes",
                     trial.model.vocab_size, kBytes);
}

}  // namespace

const std::vector<ConstraintRow>& constraint_table() {
  static const std::vector<ConstraintRow> rows = {
      {"sizes", "Every size is at least its smallest legal value.", sizes},
      {"layout_text", "A layout is letters, bars and repetitions.", layout_text},
      {"engine_runs_model", "The engine runs every part of the model; plans know more.",
       engine_runs_model},
      {"world_size",
       "Tensor x data x context x pipeline parallelism uses every device exactly once.",
       world_size},
      {"tp_divides_heads", "Every tensor-parallel rank has as many heads and key-value groups.",
       tp_divides_heads},
      {"tp_divides_widths",
       "Every tensor-parallel rank has as many columns and vocabulary entries.", tp_divides_widths},
      {"tp_divides_tokens",
       "Every tensor-parallel rank has as many tokens between the matrices: whole sequences of a "
       "micro-batch or equal parts of one.",
       tp_divides_tokens},
      {"etp_divides_width", "Every expert-tensor-parallel rank has as many columns of an expert.",
       etp_divides_width},
      {"ep_divides_plane", "Experts are folded over the tensor x context x data plane of a stage.",
       ep_divides_plane},
      {"ep_divides_experts", "Every expert-parallel rank holds the same number of experts.",
       ep_divides_experts},
      {"ep_needs_experts", "A dense model has nothing to spread over expert-parallel ranks.",
       ep_needs_experts},
      {"pp_within_layers", "Every pipeline stage has at least one layer.", pp_within_layers},
      {"stage_layers", "First and last stage counts leave at least one layer for each other stage.",
       stage_layers},
      {"layout_stages", "A layout holds every layer once, from the embedding to the loss.",
       layout_stages},
      {"vpp_needs_pp", "One pipeline rank has nobody to take turns with.", vpp_needs_pp},
      {"vpp_divides_layers", "Every virtual stage has at least one layer.", vpp_divides_layers},
      {"vpp_divides_micro_batches", "Virtual stages take turns in rounds of pp micro-batches.",
       vpp_divides_micro_batches},
      {"vpp_within_communicator",
       "The communicator tells the messages of several virtual stages apart.",
       vpp_within_communicator},
      {"cp_divides_sequence", "A sequence is cut into two equal chunks per context rank.",
       cp_divides_sequence},
      {"seq_within_positions", "The sequence is no longer than the model's positions.",
       seq_within_positions},
      {"text_within_vocabulary", "The vocabulary has an entry for every byte of a text.",
       text_within_vocabulary},
      {"micro_batch_divides_global", "Every replica runs a whole number of micro-batches per step.",
       micro_batch_divides_global},
      {"recompute_needs_experts", "MoE modules are recomputed only where there are experts.",
       recompute_needs_experts},
      {"graph_preprocess_needs_router", "moe_preprocess is captured together with moe_router.",
       graph_preprocess_needs_router},
      {"graph_needs_experts", "MoE scopes are captured only where there are experts.",
       graph_needs_experts},
      {"graph_full_iteration_alone", "A captured iteration holds all other scopes.",
       graph_full_iteration_alone},
      {"graph_static_shapes", "A captured iteration needs shapes that routing does not change.",
       graph_static_shapes},
      {"graph_without_full_recompute", "Partial graphs refuse full recompute.",
       graph_without_full_recompute},
      {"ep_chunks_need_ep", "Chunks hide expert-parallel communication; without it there is none.",
       ep_chunks_need_ep},
      {"ep_chunks_within_tokens", "A chunk has at least one token.", ep_chunks_within_tokens},
      {"overlap_needs_replicas", "Overlapped gradient reduction needs somebody to reduce with.",
       overlap_needs_replicas},
      {"linear_ce_tile", "Head and loss run on whole tiles, so that chunking changes no result.",
       linear_ce_tile},
  };
  return rows;
}

std::vector<Violation> check_constraints(const TrialParts& trial) {
  std::vector<Violation> violations;
  for (const ConstraintRow& row : constraint_table()) {
    string message = row.check(trial);
    if (message.empty()) continue;
    violations.push_back({row.name, std::move(message)});
    // Every other rule divides by these sizes, and counts these stages.
    if (row.check == sizes || row.check == layout_text) break;
  }
  return violations;
}

}  // namespace moetune::spec
