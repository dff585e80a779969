// The tables of public weight names by model family, and the arithmetic from our shards to places
// in those weights.
#include "engine/checkpoint/hf_weights.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using plan::ParamKind;

bool is_ignored(const std::string& name, const spec::ModelSpec& model) {
  return name.ends_with("rotary_emb.inv_freq") ||
         (model.ties_embeddings && name == "lm_head.weight");
}

}  // namespace

class HfNames::Builder {
 public:
  Builder(HfNames& names, ParamKind kind, int64_t layer)
      : names_(names), segments_(names.segments_[{kind, layer}]) {}

  Builder& add(const std::string& name, std::vector<int64_t> shape) {
    int64_t numel = 1;
    for (const int64_t dim : shape) numel *= dim;
    segments_.push_back({name, 0, at_, numel});
    at_ += numel;
    names_.shapes_.emplace(name, std::move(shape));
    return *this;
  }

 private:
  HfNames& names_;
  std::vector<HfSegment>& segments_;
  int64_t at_ = 0;
};

HfNames::HfNames(const spec::ModelSpec& model, ExpertNaming experts)
    : model_(model), experts_(std::move(experts)) {
  const int64_t h = model.hidden_size;
  Builder(*this, ParamKind::embedding, -1).add("model.embed_tokens.weight", {model.vocab_size, h});
  Builder(*this, ParamKind::head, -1)
      .add(model.ties_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
           {model.vocab_size, h});
  Builder(*this, ParamKind::final_norm, -1).add("model.norm.weight", {h});
  for (int64_t layer = 0; layer < model.num_layers; ++layer) add_layer(layer);
}

void HfNames::add_layer(int64_t layer) {
  const spec::ModelSpec& m = model_;
  const int64_t h = m.hidden_size;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const auto param = [&](ParamKind kind) { return Builder(*this, kind, layer); };
  param(ParamKind::attn_norm).add(prefix + "input_layernorm.weight", {h});
  param(ParamKind::mlp_norm).add(prefix + "post_attention_layernorm.weight", {h});
  param(ParamKind::qkv)
      .add(attention + "q_proj.weight", {m.q_size(), h})
      .add(attention + "k_proj.weight", {m.kv_size(), h})
      .add(attention + "v_proj.weight", {m.kv_size(), h});
  if (m.has_attention_bias) {
    param(ParamKind::qkv_bias)
        .add(attention + "q_proj.bias", {m.q_size()})
        .add(attention + "k_proj.bias", {m.kv_size()})
        .add(attention + "v_proj.bias", {m.kv_size()});
  }
  if (m.has_qk_norm) {
    param(ParamKind::q_norm).add(attention + "q_norm.weight", {m.head_dim});
    param(ParamKind::k_norm).add(attention + "k_norm.weight", {m.head_dim});
  }
  param(ParamKind::o_proj).add(attention + "o_proj.weight", {h, m.q_size()});
  if (m.has_attention_output_bias) param(ParamKind::o_bias).add(attention + "o_proj.bias", {h});
  if (m.is_moe_layer[static_cast<size_t>(layer)]) {
    add_experts(layer, prefix + experts_.block + ".");
    return;
  }
  const std::string mlp = prefix + "mlp.";
  param(ParamKind::mlp_fc1)
      .add(mlp + "gate_proj.weight", {m.ffn_size, h})
      .add(mlp + "up_proj.weight", {m.ffn_size, h});
  param(ParamKind::mlp_fc2).add(mlp + "down_proj.weight", {h, m.ffn_size});
  if (m.has_mlp_bias) {
    param(ParamKind::mlp_fc1_bias)
        .add(mlp + "gate_proj.bias", {m.ffn_size})
        .add(mlp + "up_proj.bias", {m.ffn_size});
    param(ParamKind::mlp_fc2_bias).add(mlp + "down_proj.bias", {h});
  }
}

void HfNames::add_experts(int64_t layer, const std::string& block) {
  const spec::ModelSpec& m = model_;
  const int64_t h = m.hidden_size;
  const int64_t f = m.moe_ffn_size;
  Builder(*this, ParamKind::router, layer).add(block + "gate.weight", {m.num_experts, h});
  if (m.shared_ffn_size > 0) {
    const std::string shared = block + "shared_expert.";
    Builder(*this, ParamKind::shared_fc1, layer)
        .add(shared + "gate_proj.weight", {m.shared_ffn_size, h})
        .add(shared + "up_proj.weight", {m.shared_ffn_size, h});
    Builder(*this, ParamKind::shared_fc2, layer)
        .add(shared + "down_proj.weight", {h, m.shared_ffn_size});
  }
  Builder fc1(*this, ParamKind::expert_fc1, layer);
  Builder fc2(*this, ParamKind::expert_fc2, layer);
  if (experts_.is_fused) {
    fc1.add(block + "experts.gate_up_proj", {m.num_experts, 2 * f, h});
    fc2.add(block + "experts.down_proj", {m.num_experts, h, f});
    return;
  }
  const bool is_numbered = experts_.is_numbered;
  for (int64_t expert = 0; expert < m.num_experts; ++expert) {
    const std::string prefix = fmt::format("{}experts.{}.", block, expert);
    fc1.add(prefix + (is_numbered ? "w1.weight" : "gate_proj.weight"), {f, h});
    fc1.add(prefix + (is_numbered ? "w3.weight" : "up_proj.weight"), {f, h});
    fc2.add(prefix + (is_numbered ? "w2.weight" : "down_proj.weight"), {h, f});
  }
}

HfNames HfNames::of_checkpoint(const spec::ModelSpec& model, const Checkpoint& checkpoint) {
  // Before names are made: a hostile config.json may ask for any number of them.
  constexpr double kMaxTensors = 1e6;
  const double num_tensors =
      16.0 * static_cast<double>(model.num_layers) +
      3.0 * static_cast<double>(model.num_moe_layers()) * static_cast<double>(model.num_experts);
  if (num_tensors > kMaxTensors) {
    throw UsageError(
        fmt::format("{}: config.json describes a model of about {:.0f} tensors, "
                    "expected at most {:.0f}",
                    checkpoint.path(), num_tensors, kMaxTensors));
  }
  ExpertNaming naming;
  if (model.family == "mixtral") naming = {"block_sparse_moe", false, true};
  for (const std::string& name : checkpoint.names()) {
    const size_t at = name.find(".experts.");
    if (at == std::string::npos) continue;
    const std::string before = name.substr(0, at);
    const std::string after = name.substr(at);
    naming.block = before.ends_with(".block_sparse_moe") ? "block_sparse_moe" : "mlp";
    naming.is_fused = after == ".experts.gate_up_proj" || after == ".experts.down_proj";
    naming.is_numbered = after.ends_with(".w1.weight") || after.ends_with(".w2.weight") ||
                         after.ends_with(".w3.weight");
    break;
  }
  return {model, naming};
}

std::vector<HfSegment> HfNames::segments(ParamKind kind, int64_t layer) const {
  const auto it = segments_.find({kind, layer});
  MOETUNE_CHECK(it != segments_.end(), "no parameter of kind {} in layer {}",
                static_cast<int>(kind), layer);
  return it->second;
}

void HfNames::check(const Checkpoint& checkpoint) const {
  for (const auto& [name, shape] : shapes_) {
    const TensorInfo* tensor = checkpoint.find(name);
    if (tensor == nullptr) {
      throw UsageError(fmt::format("{}: tensor {} is missing, expected it with shape {}",
                                   checkpoint.path(), quoted_name(name), shape_text(shape)));
    }
    if (tensor->shape != shape) {
      throw UsageError(fmt::format("{}: tensor {} has shape {}, expected {} by config.json",
                                   checkpoint.path(), quoted_name(name), shape_text(tensor->shape),
                                   shape_text(shape)));
    }
    const std::string& dtype = tensor->dtype;
    if (dtype != "F32" && dtype != "F64" && dtype != "F16" && dtype != "BF16") {
      throw UsageError(fmt::format("{}: tensor {} has dtype {}, expected F32, F64, F16 or BF16",
                                   checkpoint.path(), quoted_name(name), dtype));
    }
  }
  for (const std::string& name : checkpoint.names()) {
    if (shapes_.contains(name) || is_ignored(name, model_)) continue;
    throw UsageError(
        fmt::format("{}: tensor {} does not belong to the {} model that config.json describes",
                    checkpoint.path(), quoted_name(name), model_.family));
  }
}

namespace {

/// The shard a thread has read last.
struct LastPiece {
  uint64_t loader = 0;
  ParamKind kind = ParamKind::embedding;
  int64_t layer = -1;
  int64_t first_row = -1;  ///< of the whole parameter
  int64_t first_col = -1;
  std::vector<double> values;

  [[nodiscard]] bool holds(uint64_t id, const plan::ParamDesc& param) const {
    return loader == id && kind == param.kind && layer == param.layer &&
           first_row == param.runs.front().global && first_col == param.first_col &&
           static_cast<int64_t>(values.size()) == param.numel();
  }
};

void read_piece(const HfNames& names, const Checkpoint& checkpoint, const plan::ParamDesc& param,
                LastPiece& piece) {
  piece.kind = param.kind;
  piece.layer = param.layer;
  piece.first_row = param.runs.front().global;
  piece.first_col = param.first_col;
  piece.values.assign(static_cast<size_t>(param.numel()), 0.0);
  int64_t num_read = 0;
  const std::vector<HfSegment> segments = names.segments(param.kind, param.layer);
  param.for_stretches(0, param.numel(), [&](int64_t local, int64_t global, int64_t count) {
    for (const HfSegment& segment : segments) {
      const int64_t from = std::max(global, segment.param_begin);
      const int64_t to = std::min(global + count, segment.param_begin + segment.numel);
      if (from >= to) continue;
      checkpoint.read(
          segment.tensor, segment.tensor_begin + from - segment.param_begin,
          std::span(piece.values)
              .subspan(static_cast<size_t>(local + from - global), static_cast<size_t>(to - from)));
      num_read += to - from;
    }
  });
  MOETUNE_CHECK(num_read == param.numel(), "{}: {} of {} elements in the checkpoint", param.name,
                num_read, param.numel());
}

}  // namespace

InitialValue checkpoint_initial_value(const spec::ModelSpec& model,
                                      std::shared_ptr<const Checkpoint> checkpoint) {
  static std::atomic<uint64_t> num_loaders = 0;
  const uint64_t id = ++num_loaders;
  auto names = std::make_shared<const HfNames>(HfNames::of_checkpoint(model, *checkpoint));
  names->check(*checkpoint);
  return [id, names, checkpoint = std::move(checkpoint)](
             const plan::ParamDesc& param, int64_t local, int64_t /*global*/) -> double {
    thread_local LastPiece piece;
    if (!piece.holds(id, param)) {
      piece.loader = 0;
      read_piece(*names, *checkpoint, param, piece);
      piece.loader = id;
    }
    return piece.values[static_cast<size_t>(local)];
  };
}

HfGather::HfGather(HfNames names) : names_(std::move(names)) {
  for (const auto& [name, shape] : names_.shapes()) {
    int64_t numel = 1;
    for (const int64_t dim : shape) numel *= dim;
    tensors_[name].resize(static_cast<size_t>(numel));
    num_expected_ += numel;
  }
}

void HfGather::add(const plan::ParamDesc& param, int64_t first, std::span<const double> values) {
  const std::vector<HfSegment> segments = names_.segments(param.kind, param.layer);
  const auto add_stretch = [&](int64_t local, int64_t global, int64_t count) {
    for (const HfSegment& segment : segments) {
      const int64_t from = std::max(global, segment.param_begin);
      const int64_t to = std::min(global + count, segment.param_begin + segment.numel);
      if (from >= to) continue;
      const auto begin = values.begin() + (local - first + from - global);
      std::copy(begin, begin + (to - from),
                tensors_.at(segment.tensor).begin() + segment.tensor_begin +
                    (from - segment.param_begin));
      num_added_ += to - from;
    }
  };
  param.for_stretches(first, first + static_cast<int64_t>(values.size()), add_stretch);
}

const std::map<std::string, std::vector<double>>& HfGather::tensors() const {
  MOETUNE_CHECK(num_added_ == num_expected_, "{} elements were gathered, the model has {}",
                num_added_, num_expected_);
  return tensors_;
}

}  // namespace moetune::engine
