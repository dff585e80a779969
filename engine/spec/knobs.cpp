// The knob table and everything that is derived from its rows: text, JSON and the documentation
// page.
#include "engine/spec/knobs.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/spec/json_reader.h"
#include "engine/spec/other_knobs.h"
#include "engine/spec/pipeline_layout.h"
#include "engine/spec/plan_knobs.h"
#include "engine/spec/problems.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

/// Largest value of an integer knob; keeps products of a few knobs within 64 bits.
constexpr int64_t kMaxValue = int64_t{1} << 20;

constexpr std::array kKnobs = {
    KnobRow{
        "tensor_model_parallel_size", "parallelism", "ranks",
        ">= 1; divides heads, key-value groups, widths and vocabulary",
        "--tensor-model-parallel-size",
        "Ranks that share every matrix of attention and dense layers. Between the matrices each "
        "holds a share of the tokens (--sequence-parallel is on wherever this is above 1).",
        1, &Knobs::tensor_model_parallel_size},
    KnobRow{
        "data_parallel_size", "parallelism", "ranks", ">= 1", "none (derived from the world size)",
        "Replicas that each take a share of the global batch. Megatron derives it: world size / "
        "(tensor x context x pipeline).",
        1, &Knobs::data_parallel_size},
    KnobRow{"context_parallel_size", "parallelism", "ranks", ">= 1; 2 x it divides the sequence",
            "--context-parallel-size",
            "Ranks that share each sequence: two zig-zag chunks per rank.", 1,
            &Knobs::context_parallel_size},
    KnobRow{"cp_comm_type", "communication", "", "all_gather | p2p", "--cp-comm-type",
            "How context-parallel ranks see each other's keys and values: gathered before "
            "attention, or passed around a ring block by block while attention runs on the block "
            "that is there. (Megatron spells the first one allgather.)",
            0, &Knobs::cp_comm_type},
    KnobRow{"expert_model_parallel_size", "parallelism", "ranks",
            ">= 1; divides the experts and tensor x context x data", "--expert-model-parallel-size",
            "Ranks that the experts of a layer are spread over, folded over the tensor x context x "
            "data plane of a pipeline stage.",
            1, &Knobs::expert_model_parallel_size},
    KnobRow{
        "expert_tensor_parallel_size", "parallelism", "ranks",
        ">= 1; divides the experts' width; x expert_model_parallel_size divides the plane",
        "--expert-tensor-parallel-size",
        "Ranks that share the matrices of each expert, independent of the tensor parallelism of "
        "attention.",
        1, &Knobs::expert_tensor_parallel_size},
    KnobRow{"pipeline_model_parallel_size", "parallelism", "ranks", ">= 1; at most the layers",
            "--pipeline-model-parallel-size",
            "Pipeline stages, scheduled 1F1B, interleaved where there are virtual stages.", 1,
            &Knobs::pipeline_model_parallel_size},
    KnobRow{"decoder_first_pipeline_num_layers", "parallelism", "layers",
            ">= 0; 0 is an even split", "--decoder-first-pipeline-num-layers",
            "Layers of the first stage, which also holds the embedding.", 0,
            &Knobs::decoder_first_pipeline_num_layers},
    KnobRow{"decoder_last_pipeline_num_layers", "parallelism", "layers", ">= 0; 0 is an even split",
            "--decoder-last-pipeline-num-layers",
            "Layers of the last stage, which also holds the head and the loss.", 0,
            &Knobs::decoder_last_pipeline_num_layers},
    KnobRow{
        "virtual_pipeline_model_parallel_size", "parallelism", "stages",
        ">= 1; above 1 needs pipeline parallelism", "--num-virtual-stages-per-pipeline-rank",
        "Stages that each pipeline rank holds, in turns with the other ranks: the bubble shrinks "
        "as they grow in number, and more messages are sent.",
        1, &Knobs::virtual_pipeline_model_parallel_size},
    KnobRow{"pipeline_model_parallel_layout", "parallelism", "",
            "none | stages such as Et*3|(tt|)*2tL", "--pipeline-model-parallel-layout",
            "Which layers each stage holds, spelled out: E embedding, t layer, L loss, stages "
            "between bars, x*n for n times; virtual stages in the order of the model.",
            0, &Knobs::pipeline_model_parallel_layout},
    KnobRow{"micro_batch_size", "batch", "sequences", ">= 1; divides the global batch per replica",
            "--micro-batch-size", "Sequences that go through the model at once.", 1,
            &Knobs::micro_batch_size},
    KnobRow{
        "recompute", "memory", "", "none | full | set of norm, core_attn, moe_act, experts",
        "--recompute-granularity, --recompute-modules",
        "What is computed again in the backward pass instead of being kept. full: each layer from "
        "its input; a set: only these modules (Megatron's names: norm is layernorm, experts is "
        "moe).",
        0, &Knobs::recompute},
    KnobRow{
        "ep_chunks_forward", "communication", "chunks", ">= 1; above 1 needs expert parallelism",
        "none (nearest: --overlap-moe-expert-parallel-comm)",
        "Pieces that the tokens of an MoE layer are cut into, so that dispatch and combine of one "
        "overlap the experts of another. No Megatron flag does exactly this; the nearest one "
        "overlaps whole micro-batches.",
        1, &Knobs::ep_chunks_forward},
    KnobRow{
        "ep_chunks_backward", "communication", "chunks", ">= 1; above 1 needs expert parallelism",
        "none (nearest: --overlap-moe-expert-parallel-comm)",
        "The same for the backward pass, chosen apart because its ratio of computing to sending "
        "differs. No Megatron flag does exactly this.",
        1, &Knobs::ep_chunks_backward},
    KnobRow{"linear_ce_chunk_tokens", "memory", "tokens", "multiples of 64",
            "none (nearest: --cross-entropy-loss-fusion)",
            "Tokens whose logits exist at the same time: head and loss run in pieces and the full "
            "logits are never stored. The Megatron flag is the nearest one: it fuses the loss but "
            "keeps the logits.",
            1, &Knobs::linear_ce_chunk_tokens},
    KnobRow{"cuda_graph_modules", "host", "",
            "none | full_iteration | set of attn, moe_router, moe_preprocess",
            "--cuda-graph-modules",
            "Parts of a layer whose kernel launches are replaced by one graph replay, or all "
            "forward and "
            "backward passes of a step. Megatron also needs --cuda-graph-impl transformer_engine, "
            "or in "
            "place of both --cuda-graph-impl full_iteration.",
            0, &Knobs::cuda_graph_modules},
    KnobRow{"use_distributed_optimizer", "memory", "", "true | false",
            "--use-distributed-optimizer",
            "Shards optimizer state and master weights over the replicas (ZeRO-1).", 0,
            &Knobs::use_distributed_optimizer},
    KnobRow{"overlap_grad_reduce", "communication", "", "true | false", "--overlap-grad-reduce",
            "Reduces gradients while the backward pass is still running; needs ranks that share a "
            "parameter.",
            0, &Knobs::overlap_grad_reduce},
    KnobRow{"exp_avg_dtype", "memory", "", "fp32 | bf16", "--exp-avg-dtype",
            "What AdamW's mean of the gradients is kept in; bf16 is rounded stochastically, so "
            "that it is right in the mean. Megatron also needs --use-precision-aware-optimizer.",
            0, &Knobs::exp_avg_dtype},
    KnobRow{"exp_avg_sq_dtype", "memory", "", "fp32 | bf16", "--exp-avg-sq-dtype",
            "The same for the mean of their squares, which changes by less than a last place of "
            "bf16 in a step: rounded to nearest it would stand still.",
            0, &Knobs::exp_avg_sq_dtype},
};

/// Converts to anything: stands for one member while counting how many an aggregate takes.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

/// Number of members of a flat aggregate: the most initialisers it accepts.
template <class T, class... Members>
consteval size_t arity() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return arity<T, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}
static_assert(arity<Knobs>() == kKnobs.size(),
              "every member of Knobs has exactly one row in kKnobs, and every row one member");

std::string shown(std::string_view text) { return base::shortened(text, kMostKnobBytes); }

[[noreturn]] void refuse(const KnobRow& row, std::string_view value, std::string_view behind = {}) {
  throw UsageError(
      fmt::format("knob '{}' is '{}', expected {}{}", row.name, shown(value), row.values, behind));
}

int64_t checked_integer(const KnobRow& row, int64_t value, std::string_view text) {
  if (value < row.min_value || value > kMaxValue) {
    throw UsageError(fmt::format("knob '{}' is {}, expected an integer from {} to {}", row.name,
                                 shown(text), row.min_value, kMaxValue));
  }
  return value;
}

template <class T>
constexpr bool kIsSet = false;
template <class E>
constexpr bool kIsSet<NamedSet<E>> = true;

/// The text of a member that is no number.
template <class T>
std::string text_of(const T& value) {
  if constexpr (kIsSet<T>) {
    return value.text();
  } else if constexpr (HasNames<T>) {
    return std::string(name_of(value));
  } else {
    return fmt::format("{}", value);
  }
}

/// Sets a member that is no number; false when the text is none of its values. Throws
/// base::UsageError for a layout that is none.
template <class T>
bool set_by_text(T& member, std::string_view text) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (text != "none") pipeline_stages_of(text);
    member = text;
    return true;
  } else {
    std::optional<T> value;
    if constexpr (kIsSet<T>) {
      value = T::parse(text);
    } else {
      value = find_by_name<T>(text);
    }
    if (value) member = *value;
    return value.has_value();
  }
}

/// What goes behind "expected ..." for a member's value that others know.
template <class T>
std::string behind_expected(const KnobRow& row, std::string_view text) {
  std::string hint;
  if constexpr (kIsSet<T>) {
    for (std::string_view left = text; hint.empty();) {
      const size_t end = left.find(',');
      std::string_view part = left.substr(0, end);
      while (part.starts_with(' ')) part.remove_prefix(1);
      while (part.ends_with(' ')) part.remove_suffix(1);
      if (!T::parse(part)) hint = other_value_hint(row, part);
      if (end == std::string_view::npos) break;
      left.remove_prefix(end + 1);
    }
  } else if constexpr (HasNames<T>) {
    hint = other_value_hint(row, text);
  }
  return hint.empty() ? hint : "; " + hint;
}

void set_from_json(Knobs& knobs, const KnobRow& row, JsonReader& reader) {
  std::visit(
      [&](auto member) {
        using Member = std::remove_reference_t<decltype(knobs.*member)>;
        if constexpr (std::is_same_v<Member, int64_t>) {
          knobs.*member = reader.integer(row.name, row.min_value, kMaxValue);
        } else if constexpr (std::is_same_v<Member, bool>) {
          knobs.*member = reader.boolean(row.name);
        } else {
          const std::string text = reader.text(row.name);
          bool is_known = false;
          try {
            is_known = set_by_text(knobs.*member, text);
          } catch (const UsageError& error) {
            reader.refuse(row.name, error.what());
          }
          if (!is_known) {
            reader.fail(row.name, std::string(row.values) + behind_expected<Member>(row, text));
          }
        }
      },
      row.member);
}

}  // namespace

std::span<const KnobRow> knob_table() { return kKnobs; }

const KnobRow* find_knob(std::string_view name) {
  for (const KnobRow& row : kKnobs) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::span<const LayoutSize> layout_sizes() {
  static constexpr LayoutSize kSizes[] = {
      {"tp", &Knobs::tensor_model_parallel_size, &PlanKnobs::tp, false, true},
      {"dp", &Knobs::data_parallel_size, &PlanKnobs::dp, true, false},
      {"cp", &Knobs::context_parallel_size, &PlanKnobs::cp, true, true},
      {"etp", &Knobs::expert_tensor_parallel_size, &PlanKnobs::etp, false, false},
      {"ep", &Knobs::expert_model_parallel_size, &PlanKnobs::ep, true, false},
      {"pp", &Knobs::pipeline_model_parallel_size, &PlanKnobs::pp, true, true},
      {"vpp", &Knobs::virtual_pipeline_model_parallel_size, &PlanKnobs::vpp, false, false}};
  return kSizes;
}

std::string get_knob(const Knobs& knobs, const KnobRow& row) {
  return std::visit([&](auto member) { return text_of(knobs.*member); }, row.member);
}

void set_knob(Knobs& knobs, const KnobRow& row, std::string_view text) {
  std::visit(
      [&](auto member) {
        using Member = std::remove_reference_t<decltype(knobs.*member)>;
        if constexpr (std::is_same_v<Member, int64_t>) {
          int64_t value = 0;
          const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
          if (error != std::errc() || end != text.data() + text.size()) refuse(row, text);
          knobs.*member = checked_integer(row, value, text);
        } else if constexpr (std::is_same_v<Member, bool>) {
          if (text != "true" && text != "false") refuse(row, text);
          knobs.*member = text == "true";
        } else {
          if (!set_by_text(knobs.*member, text)) {
            refuse(row, text, behind_expected<Member>(row, text));
          }
        }
      },
      row.member);
}

json to_json(const Knobs& knobs) {
  json document = json::object();
  for (const KnobRow& row : kKnobs) {
    std::visit(
        [&](auto member) {
          using Member = std::remove_reference_t<decltype(knobs.*member)>;
          json& value = document[std::string(row.name)];
          if constexpr (std::is_arithmetic_v<std::remove_cv_t<Member>>) {
            value = knobs.*member;
          } else {
            value = text_of(knobs.*member);
          }
        },
        row.member);
  }
  return document;
}

void update_knobs(Knobs& knobs, const json& document, const Source& source) {
  JsonReader reader(document, source);
  Knobs updated = knobs;
  Problems problems;
  for (const KnobRow& row : kKnobs) {
    reader.ignore(row.name);
    if (reader.has(row.name)) problems.attempt([&] { set_from_json(updated, row, reader); });
  }
  problems.attempt([&] { reader.refuse_unknown_keys(kOtherKnobs); });
  problems.throw_if_any();
  knobs = std::move(updated);
}

Knobs knobs_from_json(const json& document, const Source& source) {
  Knobs knobs;
  update_knobs(knobs, document, source);
  return knobs;
}

bool recomputes(const Knobs& knobs, RecomputeModule module) { return knobs.recompute.has(module); }

bool is_full_recompute(const Knobs& knobs) { return recomputes(knobs, RecomputeModule::full); }

bool is_ring_attention(const Knobs& knobs) {
  return knobs.context_parallel_size > 1 && knobs.cp_comm_type == CpCommType::p2p;
}

bool has_graph(const Knobs& knobs, GraphScope scope) { return knobs.cuda_graph_modules.has(scope); }

std::vector<std::string> pipeline_layout_stages(const Knobs& knobs) {
  if (knobs.pipeline_model_parallel_layout == "none") return {};
  return pipeline_stages_of(knobs.pipeline_model_parallel_layout);
}

int64_t num_virtual_stages(const Knobs& knobs) {
  const auto stages = static_cast<int64_t>(pipeline_layout_stages(knobs).size());
  if (stages == 0) return knobs.virtual_pipeline_model_parallel_size;
  return std::max<int64_t>(1, stages / knobs.pipeline_model_parallel_size);
}

std::string name_of(GraphScope scope) {
  return scope == GraphScope::none ? "none" : std::string(name_of<GraphScope>(scope));
}

std::string knobs_markdown() {
  const auto escaped = [](std::string_view text) {
    std::string result;
    for (const char c : text) {
      if (c == '|') result += '\\';
      result += c;
    }
    return result;
  };
  std::string page =
      "# Knobs\n\n"
      "Every choice the tuner can make. Written by `moetune knobs --markdown` from the knob table; "
      "a test compares this\npage with the table.\n\n"
      "A knob's name is its key in JSON. On the command line of `moetune trial` and `moetune "
      "sweep` it is `--set NAME=VALUE`;\nthe name may also be written with dashes. What plans and "
      "other engines can choose is listed by `moetune knobs --plans`.\n";
  const Knobs defaults;
  for (const std::string_view group : {"parallelism", "batch", "memory", "communication", "host"}) {
    page += fmt::format(
        "\n## {}\n\n| knob | values | default | unit | Megatron-LM flag | what it does |\n"
        "|---|---|---|---|---|---|\n",
        group);
    for (const KnobRow& row : kKnobs) {
      if (row.group != group) continue;
      page += fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", row.name, escaped(row.values),
                          get_knob(defaults, row), row.unit, row.megatron_flag, row.help);
    }
  }
  return page;
}

}  // namespace moetune::spec
