// The text of the file: a template whose lines depend on model, cluster and whether a miniature is
// needed.
#include "sweeps/starting_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/table.h"
#include "tuner/miniature.h"

namespace moetune::sweeps {
namespace {

constexpr int64_t kSeqLength = 64;

/// Powers of two from 1 to `most` that divide each of `divided`.
std::vector<int64_t> sizes(int64_t most, const std::vector<int64_t>& divided) {
  std::vector<int64_t> values;
  for (int64_t value = 1; value <= most; value *= 2) {
    const auto divides = [&](int64_t whole) { return whole % value == 0; };
    if (std::all_of(divided.begin(), divided.end(), divides)) values.push_back(value);
  }
  return values;
}

/// "key": value lines of the space, each with what it does.
class Lines {
 public:
  void add(const std::string& key, const std::string& value, const std::string& comment) {
    text_ +=
        fmt::format("{}    // {}\n    \"{}\": {}", text_.empty() ? "" : ",\n", comment, key, value);
  }
  void add_sizes(const std::string& key, const std::vector<int64_t>& values,
                 const std::string& comment) {
    if (values.size() > 1) add(key, fmt::format("[{}]", fmt::join(values, ", ")), comment);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string space_text(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  const int64_t devices = hardware.num_devices();
  const int64_t in_node = hardware.devices_per_node;
  Lines lines;
  lines.add_sizes("tensor_model_parallel_size",
                  sizes(std::min<int64_t>(in_node, 4),
                        {model.num_heads, model.num_kv_heads, model.hidden_size, model.vocab_size}),
                  "TP: ranks that share each matrix of attention; within a node");
  lines.add_sizes("context_parallel_size", sizes(std::min<int64_t>(in_node, 2), {kSeqLength}),
                  "CP: ranks that share a sequence");
  lines.add_sizes("pipeline_model_parallel_size",
                  sizes(std::min<int64_t>({devices, model.num_layers, 8}), {model.num_layers}),
                  "PP: pipeline stages");
  if (model.num_layers >= 4) {
    lines.add_sizes("virtual_pipeline_model_parallel_size", {1, 2},
                    "VPP: stages that each pipeline rank holds");
  }
  if (model.num_experts > 0) {
    lines.add_sizes("expert_model_parallel_size",
                    sizes(std::min(devices, model.num_experts), {model.num_experts}),
                    "EP: ranks that the experts of a layer are spread over");
    lines.add("ep_chunks_forward", "[1, 2]", "pieces that overlap dispatch with experts");
    lines.add("ep_chunks_backward", "[1, 2]", "the same, backward");
  }
  lines.add_sizes("micro_batch_size", {1, 2}, "sequences that go through the model at once");
  lines.add("recompute",
            model.num_experts > 0
                ? R"(["none", "norm", "norm,moe_act", "norm,core_attn,moe_act", "full"])"
                : R"(["none", "norm", "norm,core_attn", "full"])",
            "what is computed again in the backward pass instead of being kept");
  lines.add("use_distributed_optimizer", "[false, true]", "ZeRO-1: optimizer state in shards");
  lines.add("overlap_grad_reduce", "[false, true]", "reduce gradients while backward still runs");
  return lines.text();
}

/// Sequences of a step: two for each replica at least, and some 16.
int64_t batch_of(int64_t devices) {
  return devices * std::max<int64_t>(2, (16 + devices - 1) / devices);
}

std::string indented(const nlohmann::json& document) {
  std::string text = document.dump(2);
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3)) {
    text.insert(at + 1, "  ");
  }
  return text;
}

std::string list(const std::vector<std::string>& changes) {
  std::string text;
  for (const std::string& change : changes) text += fmt::format("  //   {}\n", change);
  return text;
}

/// A text as JSON has it.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A time of the host that hardware files may leave out.
struct HostTime {
  std::string_view key;
  int64_t spec::HardwareSpec::*ns;
};
constexpr HostTime kHostTimes[] = {{"launch_ns", &spec::HardwareSpec::launch_ns},
                                   {"graph_launch_ns", &spec::HardwareSpec::graph_launch_ns},
                                   {"sync_ns", &spec::HardwareSpec::sync_ns},
                                   {"kernel_floor_ns", &spec::HardwareSpec::kernel_floor_ns}};

/// The cluster with typical times where its file has none.
spec::HardwareSpec with_host_times(const StartingPoint& start) {
  spec::HardwareSpec hardware = start.hardware;
  for (const HostTime& time : kHostTimes) {
    if (std::ranges::find(start.missing_times, time.key) == start.missing_times.end()) continue;
    hardware.*time.ns = start.typical.*time.ns;
  }
  return hardware;
}

/// What the miniature's own list leaves out.
std::vector<std::string> width_changes(const spec::ModelSpec& there, const spec::ModelSpec& here) {
  std::vector<std::string> changes;
  const auto note = [&](const char* what, int64_t before, int64_t after) {
    if (before != after) changes.push_back(fmt::format("{} {} -> {}", what, before, after));
  };
  note("head_dim", there.head_dim, here.head_dim);
  note("width of an expert", there.moe_ffn_size, here.moe_ffn_size);
  note("width of the shared expert", there.shared_ffn_size, here.shared_ffn_size);
  note("width of dense layers", there.ffn_size, here.ffn_size);
  return changes;
}

/// The sweep would refuse such a cluster only later, and blame figures that nobody wrote.
void check_miniature(const StartingPoint& start, const tuner::Miniature& mini) {
  constexpr int64_t kLeastBytes = 100'000;  // of a file that check_plausible lets through
  // Those who use it already need another advice, and there is none.
  constexpr std::string_view kLargest = "h100-8x8";
  const std::string advice =
      start.hardware_text == kLargest
          ? std::string()
          : fmt::format("; {} is a shipped cluster for large models", kLargest);
  if (start.hardware.memory_bytes > 0 && mini.hardware.memory_bytes < kLeastBytes) {
    throw base::UsageError(fmt::format(
        "{}: key 'memory_bytes': {} on each of {} devices cannot hold this model, even in shards "
        "over all of them{}",
        start.hardware_source, base::format_bytes(start.hardware.memory_bytes),
        start.hardware.num_devices(), advice));
  }
  try {
    spec::check_plausible(mini.hardware, start.hardware_source);
  } catch (const base::UsageError&) {
    throw base::UsageError(
        fmt::format("{}: no emulated cluster has the proportions of this one for this model ({}){}",
                    start.hardware_source, fmt::join(mini.hardware_changes, ", "), advice));
  }
}

}  // namespace

std::vector<std::string> missing_host_times(const nlohmann::json& hardware) {
  std::vector<std::string> missing;
  for (const HostTime& time : kHostTimes) {
    if (!hardware.contains(time.key)) missing.emplace_back(time.key);
  }
  return missing;
}

std::string missing_times_text(const StartingPoint& start) {
  if (start.missing_times.empty()) return {};
  return fmt::format("{}: not in the cluster's file; typical ones were taken (those of {})",
                     fmt::join(start.missing_times, ", "), start.typical.name);
}

bool needs_miniature(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  return !tuner::is_trainable_on_cpu(model, batch_of(hardware.num_devices()) * kSeqLength);
}

std::string starting_sweep(const StartingPoint& start) {
  if (start.hardware.peak_flops_per_s <= 0) {
    throw base::UsageError(
        fmt::format("{}: key 'peak_flops_per_s' is missing or 0, expected the device's peak, such "
                    "as \"989TF\"",
                    start.hardware_source));
  }
  spec::ModelSpec model = start.model;
  spec::HardwareSpec hardware = start.hardware;
  std::string intro =
      "// Written by `moetune init`. Run it with: moetune sweep THIS_FILE --db runs.db\n";
  std::string parts;
  const auto part = [](const std::string& text, const nlohmann::json& document) {
    return text.empty() ? indented(document) : quoted(text);
  };
  if (!needs_miniature(model, hardware)) {
    parts = fmt::format("  \"model\": {},\n  \"hardware\": {},\n",
                        part(start.model_text, spec::to_json(model)),
                        part(start.hardware_text, spec::to_json(hardware)));
  } else {
    const tuner::SequenceLengths lengths{
        std::min<int64_t>(4096, start.model.max_position_embeddings), kSeqLength};
    tuner::Miniature mini = tuner::miniature_of(model, with_host_times(start), lengths, start.cpu);
    check_miniature(start, mini);
    const std::string missing = missing_times_text(start);
    if (!missing.empty()) mini.hardware_changes.push_back(missing);
    model = mini.model;
    hardware = mini.hardware;
    intro += fmt::format(
        "//\n"
        "// {} has {} parameters: no CPU trains it. This sweep trains a miniature of it for real,\n"
        "// on an emulated cluster with the proportions of {} for sequences of {} tokens:\n"
        "// computing, sending, launching and memory cost the same in terms of each other. What\n"
        "// wins here is what to try first there. Step times are those of the miniature; the "
        "sizes in the\n"
        "// Megatron-LM flags at the end are those of \"stands_for\".\n",
        one_line(start.name), base::format_count(static_cast<double>(start.model.num_parameters())),
        one_line(start.hardware.name), lengths.there);
    if (start.is_default_hardware) {
      intro += fmt::format(
          "//\n"
          "// No cluster was named, so {} was taken. For yours: moetune init --hardware FILE\n",
          start.hardware_text);
    }
    parts = fmt::format(
        "  // The miniature:\n{}{}  \"model\": {},\n"
        "  // Its cluster:\n{}  \"hardware\": {},\n"
        "  // What it stands for. The Megatron-LM flags at the end have these sizes; nothing that "
        "is run\n"
        "  // depends on them. Put the sequence length and the batch of your own runs here.\n"
        "  \"stands_for\": {{\n    \"model\": {},\n    \"hardware\": {},\n"
        "    \"seq_length\": {}, \"global_batch_size\": {}\n  }},\n",
        list(mini.model_changes), list(width_changes(start.model, model)),
        indented(spec::to_json(model)), list(mini.hardware_changes),
        indented(spec::to_json(hardware)), part(start.model_text, spec::to_json(start.model)),
        part(start.hardware_text, spec::to_json(start.hardware)), lengths.there,
        batch_of(start.hardware.num_devices()));
  }
  const int64_t devices = hardware.num_devices();
  const int64_t batch = batch_of(devices);
  return intro +
         fmt::format(
             "{{\n  \"name\": {},\n{}"
             "  // A file or a folder of text, read as bytes.\n  \"data_path\": {},\n"
             "  // Threads compute real data, time is that of the emulated cluster. On GPUs:\n"
             "  // \"backend\": \"cuda\", \"dtype\": \"bf16\", \"communicator\": \"nccl\".\n"
             "  \"clock\": \"virtual_measured\",\n"
             "  \"num_warmup_steps\": 1,\n  \"num_steps\": 6,\n  \"num_traced_steps\": 2,\n"
             "  // The recipe, the same for all trials.\n"
             "  \"training\": {{\"global_batch_size\": {}, \"seq_length\": {}, \"lr\": 0.004, "
             "\"min_lr\": 0.0005,\n"
             "    \"lr_warmup_steps\": 10, \"lr_decay_steps\": 160{}}},\n"
             "  // Where the search starts. `moetune knobs` lists all that can be set.\n"
             "  \"knobs\": {{\"data_parallel_size\": {}, \"micro_batch_size\": 1}},\n"
             "  // What it may change. Delete what you cannot or do not want to use.\n"
             "  \"space\": {{\n{}\n  }},\n"
             "  // Runs that may be started, and wall time.\n"
             "  \"budget\": {{\"max_trials\": 48, \"max_seconds\": \"8min\"}},\n"
             "  // Layouts that are measured before the best one is profiled.\n"
             "  \"scale_trials\": 12,\n"
             "  // Smaller gains are never kept.\n"
             "  \"min_gain_ratio\": 0.02,\n"
             "  // Steps of the last run, of the winner.\n"
             "  \"validate_steps\": 40\n}}\n",
             quoted(start.name), parts, quoted(start.data_path), batch, kSeqLength,
             model.num_experts > 0 ? ", \"aux_loss_coeff\": 0.01, \"z_loss_coeff\": 0.001" : "",
             devices, space_text(model, hardware));
}

}  // namespace moetune::sweeps
