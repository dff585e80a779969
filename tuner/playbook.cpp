// The rows of the playbook. The order within a wall is the order of the MoE optimisation workflow:
// cheap and local changes before changes of the layout.
#include "tuner/playbook.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "engine/plan/layout.h"

namespace moetune::tuner {
namespace {

using spec::GraphScope;

using S = const Situation&;
using Values = std::vector<std::string>;

/// A group that blocks less than this of the step is not worth a trial.
constexpr double kMinGroupShare = 0.005;

int64_t number(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int64_t current(S s, const char* knob) {
  return number(spec::get_knob(s.knobs, *spec::find_knob(knob)));
}

/// Values of an integer axis above (or below) the current one, nearest first.
Values above(S s, const char* knob) {
  Values values;
  for (const std::string& v : s.space.values(knob)) {
    if (number(v) > current(s, knob)) values.push_back(v);
  }
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return number(a) < number(b); });
  return values;
}

Values below(S s, const char* knob) {
  Values values;
  for (const std::string& v : s.space.values(knob)) {
    if (number(v) < current(s, knob)) values.push_back(v);
  }
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return number(a) > number(b); });
  return values;
}

/// The smaller values, then the larger ones.
Values others(S s, const char* knob) {
  Values values = below(s, knob);
  const Values larger = above(s, knob);
  values.insert(values.end(), larger.begin(), larger.end());
  return values;
}

/// Cheaper recompute settings than now, cheapest first.
Values less_recompute(S s) {
  Values values;
  for (const std::string& v : s.space.values("recompute")) {
    const int weight = recompute_weight(spec::RecomputeSet(v));
    if (weight < recompute_weight(s.knobs.recompute)) values.push_back(v);
  }
  return by_recompute_weight(std::move(values));
}

int num_items(const spec::GraphSet& set) {
  // Wider than all parts together.
  return set.has(GraphScope::full_iteration) ? set.size() + 3 : set.size();
}

/// Wider sets of captured modules than now, narrowest first. Of equally many, those without
/// attention first: the router's many small launches are what a replay saves most of.
Values wider_graphs(S s) {
  Values values;
  for (const std::string& v : s.space.values("cuda_graph_modules")) {
    if (num_items(spec::GraphSet(v)) > num_items(s.knobs.cuda_graph_modules)) values.push_back(v);
  }
  const auto width = [](const std::string& value) {
    const spec::GraphSet set(value);
    return std::pair(num_items(set), set.has(GraphScope::attn));
  };
  std::stable_sort(values.begin(), values.end(),
                   [&](const auto& a, const auto& b) { return width(a) < width(b); });
  return values;
}

/// Smaller sizes that keep the group inside a node, largest first: as much memory saved as
/// possible.
Values inside_node(S s, const char* knob) {
  Values values = below(s, knob);
  std::erase_if(values, [&](const std::string& v) {
    return number(v) > s.space.sweep().base.hardware.devices_per_node;
  });
  return values;
}

constexpr const char* kStages = "pipeline_model_parallel_layout";

/// Layers of each stage with the layers laid out so.
std::vector<int64_t> stage_sizes(S s, const std::string& layout) {
  spec::Knobs knobs = s.knobs;
  spec::set_knob(knobs, *spec::find_knob(kStages), layout);
  std::vector<int64_t> sizes;
  for (const plan::StageLayers& stage : plan::split_layers(s.space.sweep().base.model, knobs)) {
    sizes.push_back(stage.count);
  }
  return sizes;
}

/// Layouts of as many stages as now, those that move the fewest layers first.
Values other_stages(S s) {
  const std::vector<int64_t> now = stage_sizes(s, s.knobs.pipeline_model_parallel_layout);
  std::vector<std::pair<int64_t, std::string>> by_distance;
  for (const std::string& v : s.space.values(kStages)) {
    const std::vector<int64_t> sizes = stage_sizes(s, v);
    if (v == s.knobs.pipeline_model_parallel_layout || sizes.size() != now.size()) continue;
    int64_t distance = 0;
    for (size_t i = 0; i < now.size(); ++i) distance += std::abs(sizes[i] - now[i]);
    by_distance.emplace_back(distance, v);
  }
  std::ranges::stable_sort(by_distance, {}, &std::pair<int64_t, std::string>::first);
  Values values;
  for (auto& [distance, v] : by_distance) values.push_back(std::move(v));
  return values;
}

bool always(S) { return true; }
bool has_ep(S s) { return s.knobs.expert_model_parallel_size > 1; }
Values bf16_only(S) { return {"bf16"}; }
bool has_pp(S s) { return s.knobs.pipeline_model_parallel_size > 1; }
/// The counts of the first and the last stage and a layout that spells out all exclude each other.
bool has_no_counts(S s) {
  return has_pp(s) && s.knobs.decoder_first_pipeline_num_layers == 0 &&
         s.knobs.decoder_last_pipeline_num_layers == 0;
}
bool has_counted_stages(S s) {
  return has_pp(s) && s.knobs.pipeline_model_parallel_layout == "none";
}
bool has_cp(S s) { return s.knobs.context_parallel_size > 1; }
bool has_tp(S s) { return s.knobs.tensor_model_parallel_size > 1; }
bool has_etp(S s) { return s.knobs.expert_tensor_parallel_size > 1; }
bool tp_spans_nodes(S s) {
  return s.knobs.tensor_model_parallel_size > s.space.sweep().base.hardware.devices_per_node;
}
bool has_recompute(S s) { return !s.knobs.recompute.empty(); }
bool ep_spans_nodes(S s) {
  return s.knobs.expert_model_parallel_size > s.space.sweep().base.hardware.devices_per_node;
}
bool has_graphs_possible(S s) { return !spec::is_full_recompute(s.knobs); }

constexpr const char* kEp = "expert_model_parallel_size";
constexpr const char* kPp = "pipeline_model_parallel_size";
constexpr const char* kVpp = "virtual_pipeline_model_parallel_size";
constexpr const char* kCp = "context_parallel_size";
constexpr const char* kTp = "tensor_model_parallel_size";
constexpr const char* kEtp = "expert_tensor_parallel_size";

constexpr std::array<std::string_view, 3> kFitSizes = {kCp, kPp, kEp};

const std::array kPlaybook = {
    // memory: the step pays for what does not fit.
    RemedyRow{"less_recompute", Wall::memory, "recompute", "", has_recompute, less_recompute,
              "What fits need not be computed twice."},
    RemedyRow{"narrower_exp_avg_sq", Wall::memory, "exp_avg_sq_dtype", "", has_recompute, bf16_only,
              "Narrower moments leave room; only their own rounding changes."},
    RemedyRow{"narrower_exp_avg", Wall::memory, "exp_avg_dtype", "", has_recompute, bf16_only,
              "Narrower moments leave room; only their own rounding changes."},
    RemedyRow{"smaller_micro_batch_for_room", Wall::memory, "micro_batch_size", "", has_recompute,
              [](S s) { return below(s, "micro_batch_size"); },
              "Smaller micro-batches leave room."},

    // communication
    RemedyRow{"chunk_dispatch_forward", Wall::communication, "ep_chunks_forward", "ep", has_ep,
              [](S s) { return above(s, "ep_chunks_forward"); },
              "Dispatch and combine of one chunk run beside the experts of another."},
    RemedyRow{"chunk_dispatch_backward", Wall::communication, "ep_chunks_backward", "ep", has_ep,
              [](S s) { return above(s, "ep_chunks_backward"); },
              "Chunks overlap in the backward pass as well, where there is more to hide behind."},
    RemedyRow{"ep_inside_node", Wall::communication, kEp, "ep", ep_spans_nodes,
              [](S s) { return inside_node(s, kEp); },
              "The all-to-all stays on the fast links of a node."},
    RemedyRow{"tp_inside_node", Wall::communication, kTp, "tp", tp_spans_nodes,
              [](S s) { return inside_node(s, kTp); },
              "What every matrix waits for stays on the fast links of a node."},
    RemedyRow{"less_tensor_parallelism", Wall::communication, kTp, "tp", has_tp,
              [](S s) { return below(s, kTp); },
              "Fewer ranks exchange the tokens around every matrix."},
    RemedyRow{"whole_experts_on_a_rank", Wall::communication, kEtp, "ep", has_etp,
              [](S s) { return below(s, kEtp); },
              "A token's row goes to one rank an expert instead of several."},
    RemedyRow{"overlap_grad_reduce", Wall::communication, "overlap_grad_reduce", "dp_cp",
              [](S s) { return !s.knobs.overlap_grad_reduce; }, [](S) { return Values{"true"}; },
              "Gradients travel while the backward pass is still running."},
    RemedyRow{"distributed_optimizer_off", Wall::communication, "use_distributed_optimizer",
              "dp_cp", [](S s) { return s.knobs.use_distributed_optimizer; },
              [](S) { return Values{"false"}; },
              "One all-reduce instead of a reduce-scatter and a gather of the parameters."},
    RemedyRow{"less_context_parallelism", Wall::communication, kCp, "cp", has_cp,
              [](S s) { return below(s, kCp); }, "Keys and values are gathered from fewer ranks."},
    RemedyRow{"less_expert_parallelism", Wall::communication, kEp, "ep", has_ep,
              [](S s) { return below(s, kEp); }, "Fewer tokens leave their rank."},
    RemedyRow{"keys_around_a_ring", Wall::communication, "cp_comm_type", "cp",
              [](S s) { return has_cp(s) && !spec::is_ring_attention(s.knobs); },
              [](S) { return Values{"p2p"}; },
              "Keys and values travel while attention runs on the block before."},
    RemedyRow{"keys_gathered_at_once", Wall::communication, "cp_comm_type", "cp",
              [](S s) { return spec::is_ring_attention(s.knobs); },
              [](S) { return Values{"all_gather"}; },
              "One collective instead of a message a rank."},
    RemedyRow{"pipeline_instead_of_replicas", Wall::communication, kPp, "dp_cp", always,
              [](S s) { return above(s, kPp); },
              "Fewer replicas reduce fewer gradients; stages exchange activations only."},
    RemedyRow{"fewer_larger_messages", Wall::communication, "micro_batch_size", "", always,
              [](S s) { return above(s, "micro_batch_size"); },
              "Larger micro-batches pay latency less often."},

    // pipeline
    RemedyRow{"more_micro_batches", Wall::pipeline, "micro_batch_size", "pp", has_pp,
              [](S s) { return below(s, "micro_batch_size"); },
              "More micro-batches make the pipeline's bubble a smaller part."},
    RemedyRow{"larger_first_stage", Wall::pipeline, "decoder_first_pipeline_num_layers", "pp",
              has_counted_stages, [](S s) { return above(s, "decoder_first_pipeline_num_layers"); },
              "Stages that take equally long leave no stage waiting."},
    RemedyRow{"other_last_stage", Wall::pipeline, "decoder_last_pipeline_num_layers", "pp",
              has_counted_stages, [](S s) { return others(s, "decoder_last_pipeline_num_layers"); },
              "The last stage also has the head: fewer layers make it equal."},
    RemedyRow{"other_stages", Wall::pipeline, kStages, "pp", has_no_counts, other_stages,
              "Layers moved to another stage let the slowest one catch up."},
    RemedyRow{"more_virtual_stages", Wall::pipeline, kVpp, "pp", has_pp,
              [](S s) { return above(s, kVpp); },
              "Stages taken in turns shrink the pipeline's bubble, and send more messages."},
    RemedyRow{"fewer_stages", Wall::pipeline, kPp, "pp", has_pp, [](S s) { return below(s, kPp); },
              "A shorter pipeline has a shorter bubble."},

    // imbalance
    RemedyRow{"more_experts_on_a_rank", Wall::imbalance, kEp, "", has_ep,
              [](S s) { return below(s, kEp); },
              "Among more experts of one rank, popular and unpopular ones even out."},
    RemedyRow{"more_tokens_at_once", Wall::imbalance, "micro_batch_size", "", has_ep,
              [](S s) { return above(s, "micro_batch_size"); },
              "More tokens at once spread over the experts more evenly."},

    // host
    RemedyRow{"cuda_graphs", Wall::host, "cuda_graph_modules", "", has_graphs_possible,
              wider_graphs, "One replay replaces the launches of a captured part."},
    RemedyRow{"larger_micro_batch", Wall::host, "micro_batch_size", "", always,
              [](S s) { return above(s, "micro_batch_size"); }, "More work per launch."},
    RemedyRow{"fewer_chunks_forward", Wall::host, "ep_chunks_forward", "", always,
              [](S s) { return below(s, "ep_chunks_forward"); }, "Chunks multiply launches."},
    RemedyRow{"fewer_chunks_backward", Wall::host, "ep_chunks_backward", "", always,
              [](S s) { return below(s, "ep_chunks_backward"); }, "Chunks multiply launches."},
    RemedyRow{"larger_loss_chunk", Wall::host, "linear_ce_chunk_tokens", "", always,
              [](S s) { return above(s, "linear_ce_chunk_tokens"); },
              "The head runs in fewer launches."},
    RemedyRow{"fewer_expert_ranks", Wall::host, kEp, "", has_ep, [](S s) { return below(s, kEp); },
              "Without expert parallelism the host need not wait for row counts."},

    // compute
    RemedyRow{"less_recompute_work", Wall::compute, "recompute", "", has_recompute, less_recompute,
              "Recomputation is work, too."},
    RemedyRow{"larger_gemms", Wall::compute, "micro_batch_size", "", always,
              [](S s) { return above(s, "micro_batch_size"); },
              "Larger matrices use the device better."},
    RemedyRow{"whole_experts_forward", Wall::compute, "ep_chunks_forward", "", always,
              [](S s) { return below(s, "ep_chunks_forward"); },
              "Chunks make the experts' matrices smaller."},
    RemedyRow{"whole_experts_backward", Wall::compute, "ep_chunks_backward", "", always,
              [](S s) { return below(s, "ep_chunks_backward"); },
              "Chunks make the experts' matrices smaller."},
    RemedyRow{"larger_head_gemm", Wall::compute, "linear_ce_chunk_tokens", "", always,
              [](S s) { return above(s, "linear_ce_chunk_tokens"); },
              "The head multiplies larger matrices."},
    RemedyRow{"wider_matrices", Wall::compute, kTp, "", has_tp, [](S s) { return below(s, kTp); },
              "Whole matrices use the device better than shares of them."},
    RemedyRow{"whole_experts", Wall::compute, kEtp, "", has_etp, [](S s) { return below(s, kEtp); },
              "Whole experts use the device better than shares of them."},
    RemedyRow{"denser_experts", Wall::compute, kEp, "", always, [](S s) { return above(s, kEp); },
              "Each expert gets the tokens of more ranks at once."},
};

double relief(const RemedyRow& row, const TrialOutcome& outcome) {
  const std::string_view group = row.group;
  if (group.empty()) return 0;
  double share = group_share(outcome, group);
  // What the data stream carries is reduced over all replicas, those of the experts, or everybody.
  if (group == "dp_cp") share += group_share(outcome, "edp") + group_share(outcome, "world");
  return share;
}

}  // namespace

std::span<const RemedyRow> playbook() { return kPlaybook; }
std::span<const std::string_view> fit_sizes() { return kFitSizes; }

std::vector<Remedy> remedies_for(Wall wall, const Situation& situation) {
  std::vector<const RemedyRow*> rows;
  for (const RemedyRow& row : kPlaybook) {
    if (row.wall != wall) continue;
    if (!situation.space.is_tunable(row.knob) || !row.applies(situation)) continue;
    const bool has_group = row.group[0] != '\0';
    if (has_group && !situation.outcome.shares.empty() &&
        relief(row, situation.outcome) < kMinGroupShare) {
      continue;
    }
    rows.push_back(&row);
  }
  if (wall == Wall::communication) {
    std::stable_sort(rows.begin(), rows.end(), [&](const RemedyRow* a, const RemedyRow* b) {
      return relief(*a, situation.outcome) > relief(*b, situation.outcome);
    });
  }
  std::vector<Remedy> remedies;
  const spec::Knobs now = situation.space.completed(situation.knobs);
  for (const RemedyRow* row : rows) {
    const std::vector<std::string>& axis = situation.space.sweep().space.at(row->knob);
    for (std::string& value : row->values(situation)) {
      // A row may name a fixed value that the sweep does not allow.
      if (std::find(axis.begin(), axis.end(), value) == axis.end()) continue;
      spec::Knobs knobs = situation.space.with(situation.knobs, row->knob, value);
      // A change that completing takes back is none.
      if (knobs == now) continue;
      remedies.push_back({row, std::move(value), std::move(knobs)});
    }
  }
  return remedies;
}

}  // namespace moetune::tuner
