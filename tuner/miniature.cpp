// Shrinks a model and gives a cluster the ratios that it has for the large one.
#include "tuner/miniature.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "engine/spec/trial_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "tuner/memory_model.h"

namespace moetune::tuner {

using spec::HardwareSpec;
using spec::ModelSpec;
using spec::Work;

namespace {

constexpr int64_t kWidth = 128;  ///< of the residual stream, as in the quick start
constexpr int64_t kMostLayers = 8;
constexpr int64_t kMostExperts = 16;
constexpr int64_t kMostChosen = 2;
constexpr int64_t kMostKvHeads = 4;
constexpr int64_t kMostQueriesPerKv = 2;
constexpr int64_t kVocab = 256;  ///< texts are read as bytes
constexpr int64_t kMostDevices = 16;

constexpr double kElementBytesThere = 2;
constexpr double kElementBytesHere = 4;

int64_t power_of_two_at_most(int64_t value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

/// A width of a layer, divided by `times` and rounded up so that two or four ranks can share it.
int64_t shrunk(int64_t width, double times) {
  constexpr int64_t kStep = 16;
  constexpr int64_t kLeast = 32;
  if (width == 0) return 0;
  const auto steps = static_cast<int64_t>(std::ceil(static_cast<double>(width) / times / kStep));
  return std::min(width, std::max(kLeast, steps * kStep));
}

ModelSpec shrunk_model(const ModelSpec& model, const SequenceLengths& lengths) {
  ModelSpec mini = model;
  mini.hidden_size = std::min(model.hidden_size, kWidth);
  const double times =
      static_cast<double>(model.hidden_size) / static_cast<double>(mini.hidden_size);
  mini.num_kv_heads = power_of_two_at_most(std::min(model.num_kv_heads, kMostKvHeads));
  mini.num_heads =
      mini.num_kv_heads * std::min(model.num_heads / model.num_kv_heads, kMostQueriesPerKv);
  const double head_dim =
      static_cast<double>(model.q_size()) / times / static_cast<double>(mini.num_heads);
  mini.head_dim = std::clamp<int64_t>(std::llround(head_dim / 8) * 8, 8, 64);
  mini.ffn_size = shrunk(model.ffn_size, times);
  mini.moe_ffn_size = shrunk(model.moe_ffn_size, times);
  mini.shared_ffn_size = shrunk(model.shared_ffn_size, times);
  mini.num_experts = model.num_experts == 0 ? 0 : std::min(model.num_experts, kMostExperts);
  mini.experts_per_token = std::min({model.experts_per_token, kMostChosen, mini.num_experts});
  mini.num_layers = std::min(model.num_layers, kMostLayers);
  mini.vocab_size = std::min(model.vocab_size, kVocab);
  mini.max_position_embeddings = std::max<int64_t>(lengths.here, 1);
  // Each layer is like the one at the same height of the model.
  mini.is_moe_layer.clear();
  mini.attention_window.clear();
  for (int64_t layer = 0; layer < mini.num_layers; ++layer) {
    const auto like = static_cast<size_t>(layer * model.num_layers / mini.num_layers);
    mini.is_moe_layer.push_back(model.is_moe_layer[like]);
    const int64_t window = model.attention_window[like];
    mini.attention_window.push_back(
        window == 0 ? 0 : std::max<int64_t>(1, window * lengths.here / lengths.there));
  }
  if (mini.num_moe_layers() == 0) {
    mini.num_experts = mini.experts_per_token = mini.moe_ffn_size = mini.shared_ffn_size = 0;
  }
  mini.rope = {.type = "default", .theta = model.rope.theta};
  mini.initializer_range = std::max(model.initializer_range, 0.04);
  return mini;
}

/// FLOPs a nanosecond that products reach on a device.
struct Rates {
  double product = 0;
  double grouped = 0;
  double half_rows_product = 0;
  double half_rows_grouped = 0;
};

Rates rates_of(const HardwareSpec& hardware, double product_if_unsaid, double grouped_if_unsaid) {
  const auto rate = [&](Work work, double if_unsaid) {
    const double said = hardware.efficiency[static_cast<size_t>(work)];
    return hardware.peak_flops_per_s * (said < 1 ? said : if_unsaid) / 1e9;
  };
  return {rate(Work::product, product_if_unsaid), rate(Work::grouped, grouped_if_unsaid),
          hardware.half_rows[static_cast<size_t>(Work::product)],
          hardware.half_rows[static_cast<size_t>(Work::grouped)]};
}

/// Times of one layer's forward products of one sequence.
struct Products {
  double median_ns = 0;
  double wide_ns = 0;  ///< those of the experts, of the dense layer without experts
};

Products products_of(const ModelSpec& model, double tokens, const Rates& rates) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto q = static_cast<double>(model.q_size());
  const auto kv = static_cast<double>(model.kv_size());
  const auto dense_ns = [&](double in, double out) {
    return 2 * (tokens + rates.half_rows_product) * in * out / rates.product;
  };
  const auto experts = static_cast<double>(model.num_experts);
  const auto grouped_ns = [&](double in, double out) {
    const double rows = tokens * static_cast<double>(model.experts_per_token);
    return 2 * (rows + rates.half_rows_grouped * experts) * in * out / rates.grouped;
  };
  const bool has_experts = model.num_experts > 0;
  const auto ffn = static_cast<double>(has_experts ? model.moe_ffn_size : model.ffn_size);
  const double fc1 = has_experts ? grouped_ns(h, 2 * ffn) : dense_ns(h, 2 * ffn);
  const double fc2 = has_experts ? grouped_ns(ffn, h) : dense_ns(ffn, h);
  std::array<double, 4> all = {dense_ns(h, q + 2 * kv), dense_ns(q, h), fc1, fc2};
  std::sort(all.begin(), all.end());
  return {(all[1] + all[2]) / 2, fc1 + fc2};
}

/// Bytes that a layer sends of one sequence: its hidden states, to each chosen expert.
double sent_bytes(const ModelSpec& model, double tokens, double element_bytes) {
  const auto copies = static_cast<double>(std::max<int64_t>(model.experts_per_token, 1));
  return tokens * copies * static_cast<double>(model.hidden_size) * element_bytes;
}

/// What a device takes when everything that data parallelism can share is in shards: optimizer
/// state over all devices, experts over as many as divide them; no recompute, one sequence at a
/// time. There in bf16 on a device, here in fp32.
int64_t sharded_peak_bytes(const ModelSpec& model, const HardwareSpec& hardware, int64_t seq_length,
                           bool is_there) {
  spec::TrialSpec trial;
  trial.model = model;
  trial.hardware = hardware;
  trial.training.seq_length = seq_length;
  trial.training.global_batch_size = hardware.num_devices();
  trial.knobs.data_parallel_size = hardware.num_devices();
  if (is_there) {
    trial.backend = spec::BackendKind::cuda;
    trial.dtype = spec::DType::bf16;
    trial.clock = spec::ClockMode::wall;
  }
  for (int64_t ep = 2; ep <= std::min(hardware.num_devices(), model.num_experts); ep *= 2) {
    if (hardware.num_devices() % ep == 0 && model.num_experts % ep == 0) {
      trial.knobs.expert_model_parallel_size = ep;
    }
  }
  return estimate_memory(trial, ReceivedRows()).peak_bytes;
}

/// Two digits: the ratios hold no better.
double rounded(double value) { return std::stod(fmt::format("{:.1e}", value)); }
int64_t rounded_ns(double value) { return std::llround(rounded(value)); }

void note(std::vector<std::string>& changes, const char* what, int64_t before, int64_t after) {
  if (before != after) changes.push_back(fmt::format("{} {} -> {}", what, before, after));
}

}  // namespace

bool is_trainable_on_cpu(const ModelSpec& model, int64_t tokens_per_step) {
  // A core does some 1e11 FLOPs a second.
  constexpr double kMostFlops = 2e11;
  constexpr double kMostParameters = 2e7;
  return model.vocab_size <= 4 * kVocab &&
         static_cast<double>(model.num_parameters()) <= kMostParameters &&
         model.training_flops_per_token(kWidth) * static_cast<double>(tokens_per_step) <=
             kMostFlops;
}

Miniature miniature_of(const ModelSpec& model, const HardwareSpec& hardware,
                       const SequenceLengths& lengths, const HardwareSpec& cpu) {
  const std::string gap = spec::engine_gap(model);
  if (!gap.empty())
    throw base::UsageError(fmt::format("there is no miniature of this model: {}", gap));
  Miniature mini{shrunk_model(model, lengths), cpu, {}, {}};
  const Rates rates_there = rates_of(hardware, 2.0 / 3, 0.25);
  const Products there = products_of(model, static_cast<double>(lengths.there), rates_there);
  const Products here =
      products_of(mini.model, static_cast<double>(lengths.here), rates_of(cpu, 1, 1));
  const double time_ratio = here.median_ns / there.median_ns;
  const double link_ratio =
      sent_bytes(mini.model, static_cast<double>(lengths.here), kElementBytesHere) /
      sent_bytes(model, static_cast<double>(lengths.there), kElementBytesThere) /
      (here.wide_ns / there.wide_ns);

  HardwareSpec& made = mini.hardware;
  made.name = "miniature of " + hardware.name;
  made.devices_per_node = std::min(hardware.devices_per_node, kMostDevices);
  made.num_nodes =
      std::min(hardware.num_nodes, std::max<int64_t>(1, kMostDevices / made.devices_per_node));
  const auto scaled = [&](const spec::LinkSpec& link) {
    return spec::LinkSpec{rounded_ns(static_cast<double>(link.latency_ns) * time_ratio),
                          rounded(link.bytes_per_s * link_ratio)};
  };
  made.intra_node = scaled(hardware.intra_node);
  made.inter_node = scaled(hardware.inter_node);
  const auto host_time = [&](int64_t ns) {
    return rounded_ns(static_cast<double>(ns) * time_ratio);
  };
  made.launch_ns = host_time(hardware.launch_ns);
  made.graph_launch_ns = host_time(hardware.graph_launch_ns);
  made.sync_ns = host_time(hardware.sync_ns);
  made.kernel_floor_ns = host_time(hardware.kernel_floor_ns);
  made.comm_sm_ratio = hardware.comm_sm_ratio;
  made.workspace_bytes = 0;
  constexpr double kKiB = 1024;
  const double share =
      static_cast<double>(hardware.memory_bytes) /
      static_cast<double>(sharded_peak_bytes(model, hardware, lengths.there, true));
  made.memory_bytes =
      std::llround(share *
                   static_cast<double>(sharded_peak_bytes(mini.model, made, lengths.here, false)) /
                   kKiB)
      << 10;

  note(mini.model_changes, "hidden_size", model.hidden_size, mini.model.hidden_size);
  note(mini.model_changes, "layers", model.num_layers, mini.model.num_layers);
  note(mini.model_changes, "heads", model.num_heads, mini.model.num_heads);
  note(mini.model_changes, "key-value heads", model.num_kv_heads, mini.model.num_kv_heads);
  note(mini.model_changes, "experts", model.num_experts, mini.model.num_experts);
  note(mini.model_changes, "experts a token", model.experts_per_token,
       mini.model.experts_per_token);
  note(mini.model_changes, "vocabulary", model.vocab_size, mini.model.vocab_size);
  note(mini.hardware_changes, "nodes", hardware.num_nodes, made.num_nodes);
  note(mini.hardware_changes, "devices a node", hardware.devices_per_node, made.devices_per_node);
  const auto bytes = [&](const char* what, int64_t before, int64_t after) {
    mini.hardware_changes.push_back(
        fmt::format("{} {} -> {}", what, base::format_bytes(before), base::format_bytes(after)));
  };
  bytes("memory", hardware.memory_bytes, made.memory_bytes);
  const auto link = [&](const char* what, const spec::LinkSpec& before,
                        const spec::LinkSpec& after) {
    if (before.bytes_per_s == 0) return;
    mini.hardware_changes.push_back(
        fmt::format("{} {:.3g} GB/s and {} -> {:.3g} GB/s and {}", what, before.bytes_per_s / 1e9,
                    base::format_ns(before.latency_ns), after.bytes_per_s / 1e9,
                    base::format_ns(after.latency_ns)));
  };
  link("link in a node", hardware.intra_node, made.intra_node);
  link("link between nodes", hardware.inter_node, made.inter_node);
  return mini;
}

}  // namespace moetune::tuner
