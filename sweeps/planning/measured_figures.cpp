// Measured runs by what they are.
#include "sweeps/planning/measured_figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/fnv.h"
#include "tuner/planner/stages.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using nlohmann::json;

namespace {

/// To both sides of what was measured. Assumed; published runs of one configuration move by 1.4 %
/// from one release to the next in the median.
constexpr double kRunAgain = 1.05;
constexpr double kMostTokens = 1e12;

/// What a model's work follows from. The vocabulary is left out, since logs echo it padded.
std::string text_of(const spec::ModelSpec& m) {
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", m.hidden_size, m.num_heads, m.num_kv_heads,
                  m.head_dim, m.ffn_size, m.num_experts, m.experts_per_token, m.moe_ffn_size,
                  m.shared_ffn_size, m.moe_latent_size, m.hidden_act, m.mtp.depth);
  text += fmt::format("|{}|{}|{}|{}|{}", m.mla.kv_lora_rank, m.mla.q_lora_rank,
                      m.mla.qk_nope_head_dim, m.mla.qk_rope_head_dim, m.mla.v_head_dim);
  text += fmt::format("|{}|{}|{}|{}", m.gdn.key_size(), m.gdn.value_size(), m.mamba.inner_size(),
                      m.mamba.state_size);
  text += fmt::format("|{}|{}|{}|{}|{}", m.has_attention_gate, m.has_attention_sinks,
                      m.has_gated_mlp, m.has_shared_gate, m.has_expert_bias);
  text += fmt::format("|{}|{}", m.hidden_dropout > 0, m.attention_dropout > 0);
  if (m.mla.index_heads > 0) text += fmt::format("|{}|{}", m.mla.index_heads, m.mla.index_head_dim);
  if (m.has_chunked_windows) text += "|chunks";
  for (int64_t layer = 0; layer < m.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const spec::LayerKind kind = m.kind_of(layer);
    text +=
        fmt::format("|{}.{}.{}", static_cast<int>(kind.mixer), static_cast<int>(kind.feed_forward),
                    i < m.attention_window.size() ? m.attention_window[i] : 0);
  }
  return text;
}

/// By figures: a cluster of one's own and the shipped file of its devices have other names.
std::string text_of(const spec::HardwareSpec& hardware) {
  return fmt::format("|{}|{}|{}|{}", hardware.peak_flops_per_s, hardware.memory_bytes_per_s,
                     hardware.devices_per_node, hardware.num_devices());
}

}  // namespace

std::string run_identity(const planner::PlanRun& run) {
  std::string text = text_of(*run.model) + text_of(*run.hardware);
  text += fmt::format("|{}|{}|{}", run.global_batch_size, run.seq_length, run.ep_chunks);
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    const bool is_of_adapters = row.name == "lora_rank";
    // Which layers are recomputed counts where it is not as usual, and so does padding.
    const bool is_each =
        !run.knobs.recompute.has(spec::PlanRecompute::full) || run.knobs.recomputes_each_layer();
    const bool is_padded = run.knobs.pad_to_capacity && run.knobs.capacity_factor > 0;
    const bool is_idle = (row.name.starts_with("recompute_") && is_each) ||
                         (row.name == "pad_to_capacity" && !is_padded);
    if (row.name == "cuda_device_max_connections" || is_idle ||
        (is_of_adapters && run.knobs.task != spec::TrainingTask::lora)) {
      continue;
    }
    text += fmt::format("|{}={}", row.name, spec::get_plan_knob(run.knobs, row));
  }
  // Written or not, stages that the framework makes by itself are the same.
  const bool is_usual = run.stages.empty() || (run.knobs.pp > 1 && planner::splits_by_itself(run) &&
                                               run.stages == planner::unwritten_stages(run));
  if (!is_usual) text += fmt::format("|{}", fmt::join(run.stages, "|"));
  // Another order of forwards and backwards.
  if (run.knobs.pp > 1 && run.holds_all_micro_batches) text += "|forwards_first";
  if (planner::num_virtual_stages(run) > 1 && !run.has_rounds) text += "|without_rounds";
  if (run.knobs.pp > 1 && run.fills_stages) text += "|fills_stages";
  if (run.knobs.pp > 1 && !run.has_usual_schedule) text += "|other_schedule";
  const int64_t of_pass = planner::micro_batches_of_pass(run);
  if (run.knobs.pp > 1 && of_pass < planner::num_micro_batches(run)) {
    text += fmt::format("|pass={}", of_pass);
  }
  if (planner::has_own_modules(run)) text += "|own_modules";
  // With the same choices torchtitan is another program.
  if (!run.is_of_megatron) text += "|torchtitan";
  return base::fnv_digits(text);
}

void add_measured(const planner::PlanRun& run, double tokens_per_s,
                  std::vector<MeasuredFigure>& figures) {
  const std::string identity = run_identity(run);
  auto same = std::ranges::find(figures, identity, &MeasuredFigure::run);
  if (same == figures.end()) {
    figures.push_back({identity, 0, 0, tokens_per_s / kRunAgain, tokens_per_s * kRunAgain,
                       run.model->vocab_size, run.hardware->memory_bytes});
    same = figures.end() - 1;
  }
  const auto count = static_cast<double>(same->num_runs);
  same->tokens_per_s = (same->tokens_per_s * count + tokens_per_s) / (count + 1);
  ++same->num_runs;
  same->low = std::min(same->low, tokens_per_s / kRunAgain);
  same->high = std::max(same->high, tokens_per_s * kRunAgain);
  // One run shows both: what two ran apart may not fit together. 0 is of a file of before.
  const bool is_unsaid = same->vocab_size == 0 || same->memory_bytes == 0;
  const bool shows_more =
      run.model->vocab_size >= same->vocab_size && run.hardware->memory_bytes <= same->memory_bytes;
  if (is_unsaid || shows_more) {
    same->vocab_size = run.model->vocab_size;
    same->memory_bytes = run.hardware->memory_bytes;
  }
}

const MeasuredFigure* measured_of(const planner::PlanRun& run,
                                  const std::vector<MeasuredFigure>& figures) {
  if (figures.empty() || run.load != 1) return nullptr;
  const auto same = std::ranges::find(figures, run_identity(run), &MeasuredFigure::run);
  return same == figures.end() ? nullptr : &*same;
}

bool shows_that_it_fits(const MeasuredFigure& figure, const planner::PlanRun& run,
                        double capacity_bytes) {
  return figure.memory_bytes > 0 && static_cast<double>(figure.memory_bytes) <= capacity_bytes &&
         run.model->vocab_size <= figure.vocab_size;
}

json to_json(const std::vector<MeasuredFigure>& figures) {
  json list = json::array();
  for (const MeasuredFigure& figure : figures) {
    list.push_back({{"run", figure.run},
                    {"num_runs", figure.num_runs},
                    {"tokens_per_s_per_gpu", figure.tokens_per_s},
                    {"low", figure.low},
                    {"high", figure.high},
                    {"vocab_size", figure.vocab_size},
                    {"memory_bytes", figure.memory_bytes}});
  }
  return list;
}

std::vector<MeasuredFigure> figures_from_json(const json& document, const spec::Source& source) {
  std::vector<MeasuredFigure> figures;
  for (const json& entry : document) {
    spec::JsonReader reader(entry, source);
    MeasuredFigure figure;
    figure.run = reader.text("run");
    figure.num_runs = reader.integer("num_runs", 1, 1'000'000);
    constexpr double kLeastTokens = 1e-9;
    figure.tokens_per_s = reader.number("tokens_per_s_per_gpu", kLeastTokens, kMostTokens);
    figure.low = reader.number("low", kLeastTokens, figure.tokens_per_s);
    figure.high = reader.number("high", figure.tokens_per_s, kMostTokens);
    // Files of before do not say these.
    constexpr int64_t kMostMemory = int64_t{1} << 50;
    figure.vocab_size = reader.integer_or("vocab_size", 0, 0, 1'000'000'000);
    figure.memory_bytes = reader.integer_or("memory_bytes", 0, 0, kMostMemory);
    reader.refuse_unknown_keys();
    figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace moetune::sweeps
