// Checks each tensor of a reference run against the model before anything is compared with it.
#include "engine/checkpoint/reference_run.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using nlohmann::json;
using spec::JsonReader;

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr int64_t kMaxSize = 1 << 20;

void read_optimizer(JsonReader reader, spec::TrainingSpec& training) {
  if (reader.text("name") != "adamw") reader.fail("name", "\"adamw\"");
  training.lr = reader.number("lr", 0.0, 1e3);
  training.beta1 = reader.number("beta1", 0.0, 1.0);
  training.beta2 = reader.number("beta2", 0.0, 1.0);
  training.adam_eps = reader.number("eps", 0.0, 1.0);
  training.weight_decay = reader.number("weight_decay", 0.0, 1e3);
  if (reader.text_or("decays", "every parameter") != "every parameter") {
    reader.fail("decays", "\"every parameter\"");
  }
  training.clip_grad = reader.number_or("clip", 0.0, 0.0, 1e9);
  training.decays_all = true;
  training.lr_warmup_steps = 0;
  training.lr_decay_steps = 0;
  training.aux_loss_coeff = 0;
  training.z_loss_coeff = 0;
}

void read_expected(const std::string& path, ReferenceRun& run) {
  const json document = spec::parse_json(read_text(path, kMaxJsonBytes), path);
  JsonReader reader(document, path, "", spec::NullIs::absent);
  run.training.global_batch_size = reader.integer("batch", 1, kMaxSize);
  run.training.seq_length = reader.integer("seq", 1, kMaxSize);
  constexpr double kMax = std::numeric_limits<double>::max();
  run.losses = reader.numbers("loss_per_step", -kMax, kMax);
  run.grad_norms = reader.numbers("grad_norm_per_step", 0.0, kMax);
  if (run.losses.empty()) reader.fail("loss_per_step", "at least one step");
  if (run.grad_norms.size() != run.losses.size()) {
    reader.fail("grad_norm_per_step",
                fmt::format("{} values as in loss_per_step", run.losses.size()));
  }
  read_optimizer(reader.object("optimizer"), run.training);
}

void read_tokens(const std::string& path, ReferenceRun& run) {
  const SafetensorsFile file(path);
  const TensorInfo& info = file.find("tokens");
  // The file may have more steps than were run.
  const int64_t num_steps =
      info.shape.size() == 3 && info.shape[0] > run.num_steps() ? info.shape[0] : run.num_steps();
  run.tokens = file.read_all<int32_t>(
      "tokens", {num_steps, run.training.global_batch_size, run.training.seq_length + 1});
  for (const int32_t token : run.tokens) {
    if (token >= 0 && token < run.model.vocab_size) continue;
    throw UsageError(fmt::format("{}: tensor 'tokens' has the token {}, expected 0 to {}", path,
                                 token, run.model.vocab_size - 1));
  }
}

/// The module that routes is named differently by family and version of the reference; its layer is
/// not.
std::string indices_name(const SafetensorsFile& file, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (const auto& [name, tensor] : file.tensors()) {
    if (name.starts_with(prefix) && name.ends_with(".indices")) return name;
  }
  throw UsageError(fmt::format("{}: no tensor {}*.indices with the experts of MoE layer {}",
                               file.path(), prefix, layer));
}

void read_activations(const std::string& path, ReferenceRun& run) {
  const SafetensorsFile file(path);
  const int64_t batch = run.training.global_batch_size;
  const int64_t seq = run.training.seq_length;
  run.logits = file.read_all<double>("logits", {batch, seq, run.model.vocab_size});
  for (int64_t layer = 0; layer < run.model.num_layers; ++layer) {
    if (!run.model.is_moe_layer[static_cast<size_t>(layer)]) continue;
    run.experts[layer] = file.read_all<int32_t>(indices_name(file, layer),
                                                {batch * seq, run.model.experts_per_token});
  }
}

void read_gradients(const std::string& path, ReferenceRun& run) {
  const Checkpoint file = Checkpoint::open_file(path);
  run.gradient_names = std::make_shared<const HfNames>(HfNames::of_checkpoint(run.model, file));
  run.gradient_names->check(file);
  for (const auto& [name, shape] : run.gradient_names->shapes()) {
    std::vector<double>& values = run.gradients[name];
    values.resize(static_cast<size_t>(file.find(name)->numel));
    file.read(name, 0, std::span(values));
  }
}

}  // namespace

ReferenceRun load_reference_run(const std::string& folder) {
  ReferenceRun run;
  const std::string config = folder + "/config.json";
  run.model =
      spec::model_from_json(spec::parse_json(read_text(config, kMaxJsonBytes), config), config);
  spec::refuse_engine_gap(run.model, config);
  read_expected(folder + "/expected.json", run);
  return run;
}

void load_reference_tensors(const std::string& folder, ReferenceRun& run) {
  run.weights = std::make_shared<const Checkpoint>(Checkpoint::open_folder(folder));
  HfNames::of_checkpoint(run.model, *run.weights).check(*run.weights);
  read_tokens(folder + "/tokens.safetensors", run);
  read_activations(folder + "/activations.safetensors", run);
  read_gradients(folder + "/gradients.safetensors", run);
}

}  // namespace moetune::engine
