// Counting: parameters and training FLOPs of an architecture.
#include "engine/spec/model_spec.h"

#include <algorithm>

#include "engine/spec/model_counts.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

/// Parameters of the parts of a model. In double, which holds whole numbers exactly up to 2^53, far
/// above the largest model that is read: so hostile sizes can be counted before they are refused.
class ParameterCount {
 public:
  explicit ParameterCount(const ModelSpec& model)
      : m_(model), h_(static_cast<double>(model.hidden_size)) {}

  /// With `num_experts` of the experts counted.
  [[nodiscard]] double layer(LayerKind kind, double num_experts) const {
    double sum = 0;
    if (kind.mixer != Mixer::none) sum += norm(h_) + mixer(kind.mixer);
    if (kind.feed_forward == FeedForward::dense) sum += norm(h_) + dense();
    if (kind.feed_forward == FeedForward::moe) sum += norm(h_) + moe(num_experts);
    return sum;
  }

  /// Layers, final norm, embedding, head.
  [[nodiscard]] double model(double num_experts) const {
    double sum = norm(h_);
    for (int64_t i = 0; i < m_.num_layers; ++i) sum += layer(m_.kind_of(i), num_experts);
    sum += static_cast<double>(m_.vocab_rows()) * h_ * (m_.ties_embeddings ? 1 : 2);
    if (m_.has_learned_positions) sum += static_cast<double>(m_.max_position_embeddings) * h_;
    return sum;
  }

  /// Each depth: norms of the stream, of the embedding and of the result, the product that joins
  /// them (2h x h), its layers. Embedding and head are the model's (arXiv 2412.19437, section 2.2).
  [[nodiscard]] double mtp() const {
    if (m_.mtp.depth == 0) return 0;
    double block = 3 * norm(h_) + 2 * h_ * h_;
    for (const LayerKind kind : m_.mtp.layers) {
      block += layer(kind, static_cast<double>(m_.num_experts));
    }
    return block * (m_.mtp.repeats_layer ? 1 : static_cast<double>(m_.mtp.depth));
  }

 private:
  [[nodiscard]] double norm(double width) const { return width * (m_.has_layer_norm ? 2 : 1); }

  /// Of one MLP with inputs and outputs of `width`. Gate and up are two matrices, if there is one.
  [[nodiscard]] double mlp(double width, int64_t ffn, bool has_bias) const {
    const auto f = static_cast<double>(ffn);
    const double wide = m_.has_gated_mlp ? 2 : 1;
    return (wide + 1) * width * f + (has_bias ? wide * f + width : 0);
  }

  [[nodiscard]] double dense() const { return mlp(h_, m_.ffn_size, m_.has_mlp_bias); }

  [[nodiscard]] double moe(double num_experts) const {
    const auto latent = static_cast<double>(m_.moe_latent_size);
    double router = h_ * static_cast<double>(m_.num_experts);
    if (m_.has_expert_bias) router += static_cast<double>(m_.num_experts);
    const double experts =
        num_experts * mlp(latent > 0 ? latent : h_, m_.moe_ffn_size, m_.has_expert_bias);
    const double shared = mlp(h_, m_.shared_ffn_size, false) + (m_.has_shared_gate ? h_ : 0);
    return router + experts + shared + 2 * h_ * latent;
  }

  [[nodiscard]] double mixer(Mixer mixer) const {
    switch (mixer) {
      case Mixer::gqa:
        return gqa();
      case Mixer::mla:
        return mla();
      case Mixer::gdn:
        return gdn();
      case Mixer::mamba:
        return mamba();
      case Mixer::none:
        break;
    }
    return 0;
  }

  [[nodiscard]] double gqa() const {
    const auto q = static_cast<double>(m_.q_size());
    const auto kv = static_cast<double>(m_.kv_size());
    const double columns = q * (m_.has_attention_gate ? 2 : 1) + 2 * kv;
    double sum = h_ * columns + q * h_;
    if (m_.has_attention_bias) sum += columns;
    if (m_.has_attention_output_bias) sum += h_;
    if (m_.has_qk_norm) sum += 2 * norm(static_cast<double>(m_.head_dim));
    if (m_.has_attention_sinks) sum += static_cast<double>(m_.num_heads);
    return sum;
  }

  /// arXiv 2405.04434, section 2.1: queries, keys and values through narrow matrices; the rotated
  /// part of the keys is one head that all share.
  [[nodiscard]] double mla() const {
    const auto heads = static_cast<double>(m_.num_heads);
    const auto q_rank = static_cast<double>(m_.mla.q_lora_rank);
    const auto kv_rank = static_cast<double>(m_.mla.kv_lora_rank);
    const auto nope = static_cast<double>(m_.mla.qk_nope_head_dim);
    const auto rope = static_cast<double>(m_.mla.qk_rope_head_dim);
    const auto v = static_cast<double>(m_.mla.v_head_dim);
    const double q = heads * (nope + rope);
    double sum = q_rank > 0 ? h_ * q_rank + q_rank * q : h_ * q;
    sum += h_ * (kv_rank + rope) + kv_rank * heads * (nope + v) + heads * v * h_;
    if (m_.has_qk_norm) sum += norm(q_rank) + norm(kv_rank);
    return sum + indexer();
  }

  /// Of queries from their latent, of one head of keys that all share, of a weight for each head;
  /// LayerNorm on the keys. As in transformers 5's DeepseekV32Indexer.
  [[nodiscard]] double indexer() const {
    const auto heads = static_cast<double>(m_.mla.index_heads);
    const auto dim = static_cast<double>(m_.mla.index_head_dim);
    const auto q_rank = static_cast<double>(m_.mla.q_lora_rank);
    return (q_rank > 0 ? q_rank : h_) * heads * dim + h_ * (dim + heads) + 2 * dim;
  }

  /// Queries, keys, values, gates and two numbers a head in; a convolution without bias over the
  /// first three; decay and time step of each head; a norm of a head; out. As in transformers 5's
  /// Qwen3NextGatedDeltaNet.
  [[nodiscard]] double gdn() const {
    const auto keys = static_cast<double>(m_.gdn.key_size());
    const auto values = static_cast<double>(m_.gdn.value_size());
    const auto heads = static_cast<double>(m_.gdn.num_value_heads);
    return h_ * (2 * keys + 2 * values + 2 * heads) +
           static_cast<double>(m_.gdn.conv_kernel) * (2 * keys + values) + 2 * heads +
           static_cast<double>(m_.gdn.value_head_dim) + values * h_;
  }

  /// Gate, stream, input and output maps and a time step a head in; a convolution with bias over
  /// the three in the middle; decay, skip and time step of each head; a norm; out. As in
  /// transformers 5's NemotronHMamba2Mixer.
  [[nodiscard]] double mamba() const {
    const auto inner = static_cast<double>(m_.mamba.inner_size());
    const auto heads = static_cast<double>(m_.mamba.num_heads);
    const double maps =
        2 * static_cast<double>(m_.mamba.num_groups) * static_cast<double>(m_.mamba.state_size);
    return h_ * (2 * inner + maps + heads) +
           static_cast<double>(m_.mamba.conv_kernel + 1) * (inner + maps) + 3 * heads + inner +
           inner * h_;
  }

  const ModelSpec& m_;
  double h_;
};

int64_t whole(double count) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  MOETUNE_CHECK(count < kExact, "a model of {:.1e} parameters cannot be counted", count);
  return static_cast<int64_t>(count);
}

/// Keys a query sees on average. Without a window L/2, the convention of published TFLOP/s; with
/// one, each of the first `window` queries sees as many keys as there are and every later one
/// `window`. Of chunks half of each.
double mean_context(int64_t window, bool is_chunked, int64_t seq_length) {
  const auto length = static_cast<double>(seq_length);
  if (window <= 0 || window >= seq_length) return length / 2;
  const auto w = static_cast<double>(window);
  if (is_chunked) {
    const auto rest = static_cast<double>(seq_length % window);
    return ((length - rest) * w + rest * rest) / (2 * length);
  }
  return w - w * (w - 1) / (2 * length);
}

/// Multiply-adds of a token's forward pass, term by term as in Megatron-LM's
/// num_floating_point_operations (megatron/training/training.py) and, for windows,
/// Megatron-Bridge's flop_utils.py. The router is not counted.
class MultiplyAdds {
 public:
  MultiplyAdds(const ModelSpec& model, int64_t seq_length)
      : m_(model), h_(static_cast<double>(model.hidden_size)), seq_length_(seq_length) {}

  /// All that is linear in the sequence.
  [[nodiscard]] double mixer(Mixer mixer) const {
    switch (mixer) {
      case Mixer::gqa:
        return gqa();
      case Mixer::mla:
        return mla();
      case Mixer::gdn:
        return gdn();
      case Mixer::mamba:
        return mamba();
      case Mixer::none:
        break;
    }
    return 0;
  }

  /// What grows with the keys that a query sees.
  [[nodiscard]] double core(Mixer mixer, int64_t window) const {
    const double context = mean_context(window, m_.has_chunked_windows, seq_length_);
    if (mixer == Mixer::gqa) return 2 * static_cast<double>(m_.q_size()) * context;
    if (mixer != Mixer::mla) return 0;
    return static_cast<double>(m_.num_heads) *
           static_cast<double>(m_.mla.qk_head_dim() + m_.mla.v_head_dim) * context;
  }

  [[nodiscard]] double feed_forward(FeedForward half) const {
    switch (half) {
      case FeedForward::dense:
        return mlp(h_, m_.ffn_size);
      case FeedForward::moe:
        return moe();
      case FeedForward::none:
        break;
    }
    return 0;
  }

  [[nodiscard]] double head() const { return h_ * static_cast<double>(m_.vocab_rows()); }

  /// Of one depth: a layer like the last and the head once more. Megatron counts the norms and the
  /// product that joins stream and embedding only in models without a pattern.
  [[nodiscard]] double mtp_block(int64_t window) const {
    double sum = head();
    const bool has_pattern = std::ranges::any_of(m_.mtp.layers, [](const LayerKind& kind) {
      return kind.mixer == Mixer::none || kind.feed_forward == FeedForward::none;
    });
    if (!has_pattern) sum += 3 * h_ + 2 * h_ * h_;
    for (const LayerKind kind : m_.mtp.layers) {
      sum += mixer(kind.mixer) + core(kind.mixer, window) + feed_forward(kind.feed_forward);
    }
    return sum;
  }

 private:
  [[nodiscard]] double mlp(double width, int64_t ffn) const {
    return (m_.has_gated_mlp ? 3 : 2) * width * static_cast<double>(ffn);
  }

  [[nodiscard]] double moe() const {
    const int64_t chosen = m_.moe_ffn_size * m_.experts_per_token;
    if (m_.moe_latent_size == 0) return mlp(h_, chosen + m_.shared_ffn_size);
    const auto latent = static_cast<double>(m_.moe_latent_size);
    return mlp(latent, chosen) + 2 * h_ * latent + mlp(h_, m_.shared_ffn_size);
  }

  [[nodiscard]] double gqa() const {
    const auto q = static_cast<double>(m_.q_size());
    const auto kv = static_cast<double>(m_.kv_size());
    const double gate = m_.has_attention_gate ? q : 0;
    return h_ * (q + 2 * kv + gate) + q * h_;
  }

  /// Norms of the compressed queries and keys count as one each.
  [[nodiscard]] double mla() const {
    const auto heads = static_cast<double>(m_.num_heads);
    const auto q_rank = static_cast<double>(m_.mla.q_lora_rank);
    const auto kv_rank = static_cast<double>(m_.mla.kv_lora_rank);
    const auto nope = static_cast<double>(m_.mla.qk_nope_head_dim);
    const auto rope = static_cast<double>(m_.mla.qk_rope_head_dim);
    const auto v = static_cast<double>(m_.mla.v_head_dim);
    const double q = heads * (nope + rope);
    const double queries = q_rank > 0 ? q_rank * (h_ + q + 1) : h_ * q;
    const double keys_and_values = kv_rank * (h_ + heads * (nope + v) + 1) + h_ * rope;
    return queries + keys_and_values + heads * v * h_;
  }

  [[nodiscard]] double gdn() const {
    const auto keys = static_cast<double>(m_.gdn.key_size());
    const auto values = static_cast<double>(m_.gdn.value_size());
    const auto heads = static_cast<double>(m_.gdn.num_value_heads);
    const auto dim = static_cast<double>(m_.gdn.value_head_dim);
    return h_ * (2 * keys + 2 * values + 2 * heads) +
           static_cast<double>(m_.gdn.conv_kernel) * (2 * keys + values) + 4 * heads * dim * dim +
           h_ * values;
  }

  /// Megatron takes an inner width of twice the hidden size whatever the heads are, and 7 FLOPs for
  /// each element of the state.
  [[nodiscard]] double mamba() const {
    const double inner = 2 * h_;
    const auto state = static_cast<double>(m_.mamba.state_size);
    const auto groups = static_cast<double>(m_.mamba.num_groups);
    const auto heads = static_cast<double>(m_.mamba.num_heads);
    return h_ * (2 * inner + 2 * groups * state + heads) + 3.5 * inner * state + inner * h_;
  }

  const ModelSpec& m_;
  double h_;
  int64_t seq_length_;
};

}  // namespace

double approximate_parameters(const ModelSpec& model) {
  const ParameterCount count(model);
  return count.model(static_cast<double>(model.num_experts)) + count.mtp();
}

int64_t ModelSpec::num_layers_with(FeedForward half) const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    count += kind_of(layer).feed_forward == half ? 1 : 0;
  }
  return count;
}

int64_t ModelSpec::num_moe_layers() const {
  return std::count(is_moe_layer.begin(), is_moe_layer.end(), true);
}

int64_t ModelSpec::num_parameters() const {
  return whole(ParameterCount(*this).model(static_cast<double>(num_experts)));
}

int64_t ModelSpec::num_active_parameters() const {
  return whole(ParameterCount(*this).model(static_cast<double>(experts_per_token)));
}

int64_t ModelSpec::num_mtp_parameters() const { return whole(ParameterCount(*this).mtp()); }

// 3 (forward, and twice that backward) x 2 (multiply-add) x multiply-adds per token of the forward
// pass.
double ModelSpec::training_flops_per_token(int64_t seq_length) const {
  const MultiplyAdds count(*this, seq_length);
  double multiply_adds = count.head();
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const LayerKind kind = kind_of(layer);
    multiply_adds += count.mixer(kind.mixer);
    multiply_adds += count.core(kind.mixer, attention_window[static_cast<size_t>(layer)]);
    multiply_adds += count.feed_forward(kind.feed_forward);
  }
  if (mtp.depth > 0) {
    multiply_adds += static_cast<double>(mtp.depth) * count.mtp_block(attention_window.back());
  }
  return 3 * 2 * multiply_adds;
}

}  // namespace moetune::spec
