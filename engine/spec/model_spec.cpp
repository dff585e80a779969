// Counting: parameters and training FLOPs of an architecture.
#include "engine/spec/model_spec.h"

#include <algorithm>

namespace moetune::spec {

namespace {

/// Weights of one gated MLP (gate, up, down), without biases.
int64_t mlp_weights(int64_t hidden, int64_t ffn) { return 3 * hidden * ffn; }

/// All parameters, with `num_counted_experts` experts per MoE layer.
int64_t count_parameters(const ModelSpec& m, int64_t num_counted_experts) {
  const int64_t h = m.hidden_size;
  int64_t attention = h * (m.q_size() + 2 * m.kv_size()) + m.q_size() * h;
  if (m.has_attention_bias) attention += m.q_size() + 2 * m.kv_size();
  if (m.has_attention_output_bias) attention += h;
  if (m.has_qk_norm) attention += 2 * m.head_dim;
  const int64_t norms = 2 * h;
  const int64_t dense = mlp_weights(h, m.ffn_size) + (m.has_mlp_bias ? 2 * m.ffn_size + h : 0);
  const int64_t moe = h * m.num_experts + num_counted_experts * mlp_weights(h, m.moe_ffn_size) +
                      mlp_weights(h, m.shared_ffn_size);
  const int64_t num_moe = m.num_moe_layers();
  const int64_t embeddings = m.vocab_size * h * (m.ties_embeddings ? 1 : 2);
  return m.num_layers * (attention + norms) + num_moe * moe + (m.num_layers - num_moe) * dense + h +
         embeddings;
}

/// Keys a query sees on average. Without a window L/2, the convention of published TFLOP/s; with
/// one, each of the first `window` queries sees as many keys as there are and every later one
/// `window`.
double mean_context(int64_t window, int64_t seq_length) {
  const auto length = static_cast<double>(seq_length);
  if (window <= 0 || window >= seq_length) return length / 2;
  const auto w = static_cast<double>(window);
  return w - w * (w - 1) / (2 * length);
}

}  // namespace

int64_t ModelSpec::num_moe_layers() const {
  return std::count(is_moe_layer.begin(), is_moe_layer.end(), true);
}

int64_t ModelSpec::num_parameters() const { return count_parameters(*this, num_experts); }

int64_t ModelSpec::num_active_parameters() const {
  return count_parameters(*this, experts_per_token);
}

// 3 (forward, and twice that backward) x 2 (multiply-add) x multiply-adds per token of the forward
// pass. The router is not counted.
double ModelSpec::training_flops_per_token(int64_t seq_length) const {
  const auto h = static_cast<double>(hidden_size);
  const auto q = static_cast<double>(q_size());
  const auto kv = static_cast<double>(kv_size());
  double multiply_adds = h * static_cast<double>(vocab_size);
  for (size_t layer = 0; layer < static_cast<size_t>(num_layers); ++layer) {
    multiply_adds += h * (q + 2 * kv) + q * h;
    multiply_adds += 2 * q * mean_context(attention_window[layer], seq_length);
    const int64_t ffn_per_token =
        is_moe_layer[layer] ? moe_ffn_size * experts_per_token + shared_ffn_size : ffn_size;
    multiply_adds += 3 * h * static_cast<double>(ffn_per_token);
  }
  return 3 * 2 * multiply_adds;
}

}  // namespace moetune::spec
