// Knobs to flags: the flag of a knob's row and its value, unless a writer of its own says it
// otherwise.
#include "engine/spec/megatron_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/shell_quotes.h"

namespace moetune::spec {
namespace {

constexpr size_t kMaxColumns = 100;
constexpr size_t kMaxCommentColumns = 120;

/// Megatron-LM's flag of a row of the dialects' tables.
std::string flag_of(std::string_view name) {
  return dialects::key_of(dialects::row_of(name), dialects::Dialect::megatron_lm);
}

/// What the flags are made from and where they go.
struct Writing {
  const ModelSpec& model;
  const Knobs& knobs;
  int64_t world_size;
  std::string group;  ///< of the knob that is written
  MegatronFlags result;

  /// By the name of its row in the dialects' tables.
  void flag(std::string_view name, std::vector<std::string> values = {}) {
    result.flags.push_back({group, flag_of(name), std::move(values)});
  }
  void flag(std::string_view name, int64_t value) { flag(name, {std::to_string(value)}); }
  /// By the name in the knob's own row.
  void flag(const KnobRow& row, std::vector<std::string> values) {
    result.flags.push_back({group, std::string(row.megatron_flag), std::move(values)});
  }
  void flag(const KnobRow& row) { flag(row, {get_knob(knobs, row)}); }
  void note(const KnobRow& row, std::string_view why = {}) {
    result.notes.push_back(fmt::format("no flag in Megatron: {}={}{}{}", row.name,
                                       get_knob(knobs, row), why.empty() ? "" : " ", why));
  }
};

void write_data_parallel(const KnobRow& row, Writing& out) {
  const Knobs& k = out.knobs;
  out.note(row, fmt::format("(derived: {} ranks / (tensor {} x context {} x pipeline {}))",
                            out.world_size, k.tensor_model_parallel_size, k.context_parallel_size,
                            k.pipeline_model_parallel_size));
}

void write_tensor_parallel(const KnobRow& row, Writing& out) {
  out.flag(row);
  if (out.knobs.tensor_model_parallel_size > 1) out.flag("sequence_parallel");
}

void write_cp_comm_type(const KnobRow& row, Writing& out) {
  if (out.knobs.context_parallel_size == 1) return;
  out.flag(row, {std::string(megatron_name(out.knobs.cp_comm_type))});
}

/// Also where it is 1: Megatron's default of the experts' tensor size is that of attention.
void write_if_experts(const KnobRow& row, Writing& out) {
  if (out.model.num_experts > 0) out.flag(row);
}

/// 0 stands for an even split, which is Megatron's default.
void write_unless_zero(const KnobRow& row, Writing& out) {
  if (get_knob(out.knobs, row) != "0") out.flag(row);
}

/// A layout that is spelled out says the virtual stages, and Megatron takes only one of the two.
void write_virtual_stages(const KnobRow& row, Writing& out) {
  const bool has_layout = out.knobs.pipeline_model_parallel_layout != "none";
  if (out.knobs.virtual_pipeline_model_parallel_size > 1 && !has_layout) out.flag(row);
}

void write_layout(const KnobRow& row, Writing& out) {
  if (out.knobs.pipeline_model_parallel_layout != "none") out.flag(row);
}

void write_recompute(const KnobRow& /*row*/, Writing& out) {
  if (out.knobs.recompute.empty()) return;
  if (is_full_recompute(out.knobs)) {
    out.flag("recompute_granularity", {"full"});
    out.flag("full_recompute_method", {"uniform"});
    out.flag("full_recompute_num_layers", 1);
    return;
  }
  out.flag("recompute_granularity", {"selective"});
  std::vector<std::string> modules;
  for (const RecomputeModule module : all_values<RecomputeModule>()) {
    if (recomputes(out.knobs, module)) modules.emplace_back(megatron_name(module));
  }
  out.flag("recompute_modules", std::move(modules));
}

/// One piece is what Megatron does.
void write_ep_chunks(const KnobRow& row, Writing& out) {
  if (get_knob(out.knobs, row) != "1") out.note(row);
}

void write_graphs(const KnobRow& row, Writing& out) {
  if (out.knobs.cuda_graph_modules.empty()) return;
  if (has_graph(out.knobs, GraphScope::full_iteration)) {
    out.flag("cuda_graph_impl", {"full_iteration"});
    // The check reads the loss on the host, which a graph cannot.
    out.flag("check_for_nan_in_loss_and_grad");
    return;
  }
  out.flag("cuda_graph_impl", {"transformer_engine"});
  std::vector<std::string> modules;
  for (const GraphScope scope : all_values<GraphScope>()) {
    if (has_graph(out.knobs, scope)) modules.push_back(name_of(scope));
  }
  out.flag(row, std::move(modules));
}

/// Both moments together, at the first of them: Megatron takes their types only with the optimizer
/// that knows types.
void write_moments(const KnobRow& row, Writing& out) {
  const Knobs& k = out.knobs;
  if (k.exp_avg_dtype == MomentType::fp32 && k.exp_avg_sq_dtype == MomentType::fp32) return;
  if (row.name == "exp_avg_dtype") {
    out.flag("precision_aware_optimizer");
    if (!k.use_distributed_optimizer) {
      out.result.notes.push_back(fmt::format("Megatron takes {} only with {}",
                                             flag_of("precision_aware_optimizer"),
                                             flag_of("distributed_optimizer")));
    }
  }
  out.flag(row);
}

/// The knobs that are said by more than their flag and value.
struct WriterRow {
  std::string_view knob;
  void (*write)(const KnobRow& row, Writing& out);
};
constexpr WriterRow kWriters[] = {
    {"tensor_model_parallel_size", write_tensor_parallel},
    {"data_parallel_size", write_data_parallel},
    {"cp_comm_type", write_cp_comm_type},
    {"expert_model_parallel_size", write_if_experts},
    {"expert_tensor_parallel_size", write_if_experts},
    {"decoder_first_pipeline_num_layers", write_unless_zero},
    {"decoder_last_pipeline_num_layers", write_unless_zero},
    {"virtual_pipeline_model_parallel_size", write_virtual_stages},
    {"pipeline_model_parallel_layout", write_layout},
    {"recompute", write_recompute},
    {"ep_chunks_forward", write_ep_chunks},
    {"ep_chunks_backward", write_ep_chunks},
    {"cuda_graph_modules", write_graphs},
    {"exp_avg_dtype", write_moments},
    {"exp_avg_sq_dtype", write_moments},
};

void write_knob(const KnobRow& row, Writing& out) {
  out.group = row.group;
  const auto* special = std::ranges::find(kWriters, row.name, &WriterRow::knob);
  if (special != std::end(kWriters)) {
    special->write(row, out);
  } else if (!has_megatron_flag(row)) {
    out.note(row);
  } else if (const auto* is_on = std::get_if<bool Knobs::*>(&row.member)) {
    if (out.knobs.**is_on) out.flag(row, {});
  } else {
    out.flag(row);
  }
}

/// "([0]*1+[1]*3)": one dense layer, then three with experts, as Megatron reads it.
std::string layer_pattern(const std::vector<bool>& is_moe_layer) {
  std::string text;
  for (size_t first = 0; first < is_moe_layer.size();) {
    size_t end = first;
    while (end < is_moe_layer.size() && is_moe_layer[end] == is_moe_layer[first]) ++end;
    text +=
        fmt::format("{}[{}]*{}", first == 0 ? "" : "+", is_moe_layer[first] ? 1 : 0, end - first);
    first = end;
  }
  return "(" + text + ")";
}

void write_model(Writing& out) {
  const ModelSpec& m = out.model;
  out.group = "model";
  out.flag("num_layers", m.num_layers);
  out.flag("hidden_size", m.hidden_size);
  if (m.ffn_size > 0) out.flag("ffn_hidden_size", m.ffn_size);
  out.flag("num_attention_heads", m.num_heads);
  if (m.num_kv_heads != m.num_heads) {
    out.flag("group_query_attention");
    out.flag("num_query_groups", m.num_kv_heads);
  }
  out.flag("kv_channels", m.head_dim);
  if (m.num_experts == 0) return;
  out.flag("num_experts", m.num_experts);
  out.flag("moe_router_topk", m.experts_per_token);
  out.flag("moe_ffn_hidden_size", m.moe_ffn_size);
  if (m.shared_ffn_size > 0) out.flag("moe_shared_expert_intermediate_size", m.shared_ffn_size);
  if (m.num_moe_layers() != m.num_layers) {
    out.flag("moe_layer_freq", {layer_pattern(m.is_moe_layer)});
  }
  // What was measured: Megatron's defaults gather all tokens and loop over the experts.
  out.flag("moe_token_dispatcher_type", {"alltoall"});
  out.flag("moe_grouped_gemm");
}

/// What `write_batch` says; the knobs of a batch are in its group as well.
constexpr std::array<std::string_view, 3> kBatchRows = {"bf16", "seq_length", "global_batch_size"};

void write_batch(const TrainingSpec& training, DType dtype, Writing& out) {
  out.group = "batch";
  if (dtype == DType::bf16) out.flag("bf16");
  out.flag("seq_length", training.seq_length);
  out.flag("global_batch_size", training.global_batch_size);
}

/// "# ..." in lines of at most kMaxCommentColumns, those behind the first a little further in.
std::string comment_of(std::string_view note) {
  std::string text;
  std::string_view lead = "# ";
  while (!note.empty()) {
    size_t size = note.size();
    if (lead.size() + size > kMaxCommentColumns) {
      const size_t blank = note.rfind(' ', kMaxCommentColumns - lead.size());
      if (blank != std::string_view::npos && blank > 0) size = blank;
    }
    text += fmt::format("{}{}\n", lead, note.substr(0, size));
    note.remove_prefix(std::min(note.size(), size + 1));
    lead = "#   ";
  }
  return text;
}

}  // namespace

// A value that is missing here is a compiler's warning.
std::string_view megatron_name(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::norm:
      return "layernorm";
    case RecomputeModule::core_attn:
      return "core_attn";
    case RecomputeModule::moe_act:
      return "moe_act";
    case RecomputeModule::experts:
      return "moe";
    case RecomputeModule::full:
      break;  // a granularity, no module
  }
  return "";
}

std::string_view megatron_name(CpCommType type) {
  switch (type) {
    case CpCommType::all_gather:
      return "allgather";
    case CpCommType::p2p:
      return "p2p";
  }
  return "";
}

bool has_megatron_flag(const KnobRow& row) { return row.megatron_flag.starts_with("--"); }

MegatronFlags megatron_flags(const ModelSpec& model, const TrainingSpec& training, DType dtype,
                             const Knobs& knobs, int64_t world_size) {
  Writing out{model, knobs, world_size, {}, {}};
  write_model(out);
  write_batch(training, dtype, out);
  for (const KnobRow& row : knob_table()) write_knob(row, out);
  // Groups in the order of their first flag.
  std::vector<std::string> groups;
  for (const MegatronFlag& flag : out.result.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  }
  std::ranges::stable_sort(out.result.flags, {}, [&](const MegatronFlag& flag) {
    return std::ranges::find(groups, flag.group) - groups.begin();
  });
  return std::move(out.result);
}

namespace {

std::string size_text(const ModelSpec& model, const HardwareSpec& hardware) {
  return fmt::format("{} layers, hidden size {}, {} devices", model.num_layers, model.hidden_size,
                     hardware.num_devices());
}

/// Stages that are counted in the miniature's layers mean nothing where there are more.
void drop_stage_sizes(const ModelSpec& miniature, const ModelSpec& model, Knobs& knobs,
                      std::vector<std::string>& notes) {
  if (miniature.num_layers == model.num_layers) return;
  const Knobs defaults;
  for (const char* name : {"pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers",
                           "decoder_last_pipeline_num_layers"}) {
    const KnobRow& row = *find_knob(name);
    const std::string value = get_knob(knobs, row);
    const std::string otherwise = get_knob(defaults, row);
    if (value == otherwise) continue;
    notes.push_back(fmt::format("left out: {}={}, of the miniature's {} layers (here are {})", name,
                                value, miniature.num_layers, model.num_layers));
    set_knob(knobs, row, otherwise);
  }
}

/// The names of what was searched: all flags that knobs gave.
std::string tuned_names(const MegatronFlags& flags) {
  std::string names;
  for (const MegatronFlag& flag : flags.flags) {
    const bool is_of_batch = std::ranges::any_of(
        kBatchRows, [&](std::string_view name) { return flag.name == flag_of(name); });
    if (flag.group == "model" || is_of_batch) continue;
    names += " " + flag.name;
  }
  return names;
}

MegatronFlags flags_of_original(const TrialSpec& trial, const StandsFor& original) {
  TrainingSpec training = trial.training;
  training.seq_length = original.seq_length;
  training.global_batch_size = original.global_batch_size;
  Knobs knobs = trial.knobs;
  std::vector<std::string> notes = {
      fmt::format("sizes and batch: those of what the miniature stands for ({})",
                  size_text(original.model, original.hardware))};
  drop_stage_sizes(trial.model, original.model, knobs, notes);
  const int64_t num_ranks = original.hardware.num_devices();
  knobs.data_parallel_size = std::max<int64_t>(1, num_ranks / knobs.replica_ranks());
  MegatronFlags flags = megatron_flags(original.model, training, trial.dtype, knobs, num_ranks);
  notes.push_back(fmt::format("tuned on a miniature ({}), what to try first:{}",
                              size_text(trial.model, trial.hardware), tuned_names(flags)));
  const TrialParts parts{original.model, original.hardware, training, knobs, trial.communicator};
  for (const Violation& violation : check_constraints(parts)) {
    notes.push_back(fmt::format("not as it is: {}: {}", violation.rule, violation.message));
  }
  flags.notes.insert(flags.notes.begin(), notes.begin(), notes.end());
  return flags;
}

}  // namespace

MegatronFlags megatron_flags(const TrialSpec& trial) {
  if (trial.stands_for) return flags_of_original(trial, *trial.stands_for);
  return megatron_flags(trial.model, trial.training, trial.dtype, trial.knobs,
                        trial.hardware.num_devices());
}

std::vector<std::string> words_of(const MegatronFlags& flags) {
  std::vector<std::string> words;
  for (const MegatronFlag& flag : flags.flags) {
    words.push_back(flag.name);
    words.insert(words.end(), flag.values.begin(), flag.values.end());
  }
  return words;
}

std::string shell_block(const MegatronFlags& flags) {
  std::vector<std::string> lines;
  std::string group;
  for (const MegatronFlag& flag : flags.flags) {
    std::string text = flag.name;
    for (const std::string& value : flag.values) text += " " + base::shell_literal(value);
    const bool fits = !lines.empty() && flag.group == group &&
                      lines.back().size() + 1 + text.size() + 2 <= kMaxColumns;
    if (fits) {
      lines.back() += " " + text;
    } else {
      lines.push_back(std::move(text));
    }
    group = flag.group;
  }
  std::string block = fmt::format("{}\n", fmt::join(lines, " \\\n"));
  for (const std::string& note : flags.notes) block += comment_of(note);
  return block;
}

}  // namespace moetune::spec
