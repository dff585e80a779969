// The knob table: every choice the tuner can make, one row each. CLI flags, JSON keys, search axes,
// stored rows, report columns and the documentation page come from the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/spec/knob_values.h"
#include "engine/spec/source.h"

namespace moetune::spec {

/// On the CPU head and loss run on tiles of this many tokens, whatever linear_ce_chunk_tokens is,
/// so that the chunk size changes no bit of the result.
inline constexpr int64_t kLossTile = 64;

/// How much of a wrong value a message shows.
inline constexpr size_t kMostKnobBytes = 60;

/// One value of every knob. Flat: the member count is checked against the table at compile time.
struct Knobs {
  int64_t tensor_model_parallel_size = 1;
  int64_t data_parallel_size = 1;
  int64_t context_parallel_size = 1;
  CpCommType cp_comm_type = CpCommType::all_gather;
  int64_t expert_model_parallel_size = 1;
  int64_t expert_tensor_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t decoder_first_pipeline_num_layers = 0;  ///< 0: even split
  int64_t decoder_last_pipeline_num_layers = 0;   ///< 0: even split
  int64_t virtual_pipeline_model_parallel_size = 1;
  std::string pipeline_model_parallel_layout = "none";  ///< or stages such as "Et|tt|ttL"
  int64_t micro_batch_size = 1;
  RecomputeSet recompute;
  int64_t ep_chunks_forward = 1;
  int64_t ep_chunks_backward = 1;
  int64_t linear_ce_chunk_tokens = 256;
  GraphSet cuda_graph_modules;
  bool use_distributed_optimizer = true;
  bool overlap_grad_reduce = false;
  MomentType exp_avg_dtype = MomentType::fp32;     ///< of AdamW's first moment
  MomentType exp_avg_sq_dtype = MomentType::fp32;  ///< of its second

  bool operator==(const Knobs&) const = default;

  /// Ranks of a pipeline stage.
  [[nodiscard]] int64_t stage_ranks() const {
    return tensor_model_parallel_size * context_parallel_size * data_parallel_size;
  }
  /// Ranks that hold the model once.
  [[nodiscard]] int64_t replica_ranks() const {
    return tensor_model_parallel_size * context_parallel_size * pipeline_model_parallel_size;
  }
  [[nodiscard]] int64_t world_size() const { return stage_ranks() * pipeline_model_parallel_size; }
};

/// The one text is the pipeline's layout.
using KnobMember =
    std::variant<int64_t Knobs::*, bool Knobs::*, std::string Knobs::*, CpCommType Knobs::*,
                 MomentType Knobs::*, RecomputeSet Knobs::*, GraphSet Knobs::*>;

/// One row of the table.
struct KnobRow {
  std::string_view name;  ///< JSON key and CLI flag (underscores become dashes)
  /// parallelism (what a search calls the layout), batch, memory, communication, host
  std::string_view group;
  std::string_view unit;    ///< ranks, layers, sequences, chunks, tokens, or empty
  std::string_view values;  ///< what is allowed, for people: ">= 1", "none | full | set of ..."
  std::string_view megatron_flag;  ///< exact spelling, several by commas; or "none (why)"
  std::string_view help;
  int64_t min_value;  ///< integers: smallest legal value
  KnobMember member;
};

std::span<const KnobRow> knob_table();
/// Row by name, null when there is none.
const KnobRow* find_knob(std::string_view name);

struct PlanKnobs;

/// Sizes of the process grid by their usual short names: tp, dp, cp, etp, ep, pp, vpp.
struct LayoutSize {
  const char* name;  ///< of the row in plan_knob_table, too
  int64_t Knobs::*member;
  int32_t PlanKnobs::*plan_member;
  bool is_always_told;  ///< in a layout's text, also where it is 1
  bool is_of_replica;   ///< one of those whose product are the ranks that hold the model once
};
std::span<const LayoutSize> layout_sizes();

/// Value of one knob as text, as stored and shown ("4", "true", "norm,moe_act").
std::string get_knob(const Knobs& knobs, const KnobRow& row);
/// Parses text into the knob; sets are brought into table order without duplicates. Throws
/// base::UsageError.
void set_knob(Knobs& knobs, const KnobRow& row, std::string_view text);

nlohmann::json to_json(const Knobs& knobs);
/// Unknown keys and wrong types throw base::UsageError naming `source`, the key, the value and what
/// would be right.
Knobs knobs_from_json(const nlohmann::json& json, const Source& source);
/// Sets the keys present, leaves the rest.
void update_knobs(Knobs& knobs, const nlohmann::json& json, const Source& source);

bool recomputes(const Knobs& knobs,
                RecomputeModule module);  ///< false under full: the block is redone as a whole
bool is_full_recompute(const Knobs& knobs);
/// Whether keys and values travel around the ring of context-parallel ranks.
bool is_ring_attention(const Knobs& knobs);
bool has_graph(const Knobs& knobs, GraphScope scope);
/// As in cuda_graph_modules.
std::string name_of(GraphScope scope);

/// The stages that pipeline_model_parallel_layout spells out, each as its letters (E embedding, t
/// layer, m multi-token prediction, L loss); empty without one. Throws base::UsageError for a text
/// that is none.
std::vector<std::string> pipeline_layout_stages(const Knobs& knobs);

/// Virtual stages of each pipeline rank: the knob, or those that the layout spells out (rounded
/// down where they do not fit the ranks, which a constraint refuses).
int64_t num_virtual_stages(const Knobs& knobs);

/// The knob page as markdown.
std::string knobs_markdown();

}  // namespace moetune::spec
