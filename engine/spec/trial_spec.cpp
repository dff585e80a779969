// JSON form and identity of a trial.
#include "engine/spec/trial_spec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr int64_t kMaxSteps = 1'000'000;
constexpr int64_t kMaxBatch = 1'000'000;
constexpr int64_t kMaxSequence = int64_t{1} << 28;
constexpr double kMaxCoefficient = 1e6;

TrainingSpec training_from(JsonReader reader) {
  TrainingSpec t;
  t.global_batch_size = reader.integer_or("global_batch_size", t.global_batch_size, 1, kMaxBatch);
  t.seq_length = reader.integer_or("seq_length", t.seq_length, 1, kMaxSequence);
  if (reader.has("seed")) t.seed = reader.unsigned_integer("seed");
  reader.ignore("seed");
  t.lr = reader.number_or("lr", t.lr, 0, kMaxCoefficient);
  t.min_lr = reader.number_or("min_lr", t.min_lr, 0, kMaxCoefficient);
  t.lr_warmup_steps = reader.integer_or("lr_warmup_steps", t.lr_warmup_steps, 0, kMaxSteps);
  t.lr_decay_steps = reader.integer_or("lr_decay_steps", t.lr_decay_steps, 0, kMaxSteps);
  t.weight_decay = reader.number_or("weight_decay", t.weight_decay, 0, kMaxCoefficient);
  t.decays_all = reader.boolean_or("decays_all", t.decays_all);
  t.beta1 = reader.number_or("beta1", t.beta1, 0, 0.9999999);
  t.beta2 = reader.number_or("beta2", t.beta2, 0, 0.9999999);
  t.adam_eps = reader.number_or("adam_eps", t.adam_eps, 0, 1);
  t.clip_grad = reader.number_or("clip_grad", t.clip_grad, 0, kMaxCoefficient);
  t.aux_loss_coeff = reader.number_or("aux_loss_coeff", t.aux_loss_coeff, 0, kMaxCoefficient);
  t.z_loss_coeff = reader.number_or("z_loss_coeff", t.z_loss_coeff, 0, kMaxCoefficient);
  reader.refuse_unknown_keys();
  return t;
}

json training_json(const TrainingSpec& t) {
  return {{"global_batch_size", t.global_batch_size},
          {"seq_length", t.seq_length},
          {"seed", t.seed},
          {"lr", t.lr},
          {"min_lr", t.min_lr},
          {"lr_warmup_steps", t.lr_warmup_steps},
          {"lr_decay_steps", t.lr_decay_steps},
          {"weight_decay", t.weight_decay},
          {"decays_all", t.decays_all},
          {"beta1", t.beta1},
          {"beta2", t.beta2},
          {"adam_eps", t.adam_eps},
          {"clip_grad", t.clip_grad},
          {"aux_loss_coeff", t.aux_loss_coeff},
          {"z_loss_coeff", t.z_loss_coeff}};
}

InjectedFault fault_from(JsonReader reader) {
  InjectedFault fault;
  fault.kind = reader.choice("kind", all_values<FaultKind>());
  fault.step = reader.integer_or("step", 0, 0, kMaxSteps);
  fault.rank = reader.integer_or("rank", 0, 0, int64_t{1} << 26);
  reader.refuse_unknown_keys();
  return fault;
}

/// What computes, in which numbers and time, and how the ranks meet: the backend says what the
/// others may be.
void read_modes(JsonReader& reader, TrialSpec& spec) {
  spec.backend = reader.choice_or("backend", spec.backend, all_values<BackendKind>());
  const bool has_device = is_on_device(spec);
  std::vector<DType> dtypes = {DType::f32, DType::f64};
  std::vector<ClockMode> clocks = all_values<ClockMode>();
  if (has_device) {
    // A device keeps its own time, and computes in double precision too slowly to be of use.
    dtypes = {DType::bf16, DType::f32};
    clocks = {ClockMode::wall};
    spec.clock = ClockMode::wall;
  }
  spec.dtype = reader.choice_or("dtype", spec.dtype, dtypes);
  spec.clock = reader.choice_or("clock", spec.clock, clocks);
  std::vector<CommunicatorKind> communicators = all_values<CommunicatorKind>();
  if (!has_device) {
    std::erase_if(communicators, [](CommunicatorKind kind) { return row_of(kind).needs_device; });
  }
  spec.communicator = reader.choice_or("communicator", spec.communicator, communicators);
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): no cryptographic strength needed, the same on every machine.
uint64_t fnv1a_64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace

json to_json(const TrialSpec& spec) {
  return {
      {"model", to_json(spec.model)},
      {"hardware", to_json(spec.hardware)},
      {"knobs", to_json(spec.knobs)},
      {"training", training_json(spec.training)},
      {"data_path", spec.data_path},
      {"data_digest", spec.data_digest},
      {"dtype", name_of(spec.dtype)},
      {"clock", name_of(spec.clock)},
      {"backend", name_of(spec.backend)},
      {"communicator", name_of(spec.communicator)},
      {"fake_rank", spec.fake_rank},
      {"trace", name_of(spec.trace)},
      {"counts_hardware", spec.counts_hardware},
      {"num_warmup_steps", spec.num_warmup_steps},
      {"num_steps", spec.num_steps},
      {"num_traced_steps", spec.num_traced_steps},
      {"records_routing", spec.records_routing},
      {"reference_loss", spec.reference_loss},
      {"reference_tolerance", spec.reference_tolerance},
      {"fault",
       {{"kind", name_of(spec.fault.kind)}, {"step", spec.fault.step}, {"rank", spec.fault.rank}}}};
}

TrialSpec trial_spec_from_json(const json& document, const std::string& source) {
  JsonReader reader(document, source);
  TrialSpec spec;
  spec.model = model_from_json(reader.value("model"), source + ": model");
  spec.hardware = hardware_from_json(reader.value("hardware"), source + ": hardware");
  if (reader.has("knobs")) {
    spec.knobs = knobs_from_json(reader.value("knobs"), source + ": knobs");
  }
  if (reader.has("training")) spec.training = training_from(reader.object("training"));
  spec.data_path = reader.text_or("data_path", spec.data_path);
  spec.data_digest = reader.text_or("data_digest", spec.data_digest);
  read_modes(reader, spec);
  const bool has_narrow_moments = spec.knobs.exp_avg_dtype != MomentType::fp32 ||
                                  spec.knobs.exp_avg_sq_dtype != MomentType::fp32;
  if (spec.dtype == DType::f64 && has_narrow_moments) {
    reader.fail("dtype", "f32 beside an exp_avg_dtype or exp_avg_sq_dtype of bf16");
  }
  spec.fake_rank = reader.integer_or("fake_rank", 0, 0, int64_t{1} << 26);
  spec.trace = reader.choice_or("trace", spec.trace, all_values<TraceLevel>());
  spec.counts_hardware = reader.boolean_or("counts_hardware", spec.counts_hardware);
  if (spec.counts_hardware && !is_on_device(spec)) {
    reader.fail("counts_hardware", "false: only a GPU has such counters (backend cuda)");
  }
  spec.num_warmup_steps =
      reader.integer_or("num_warmup_steps", spec.num_warmup_steps, 0, kMaxSteps);
  spec.num_steps = reader.integer_or("num_steps", spec.num_steps, 0, kMaxSteps);
  spec.num_traced_steps =
      reader.integer_or("num_traced_steps", spec.num_traced_steps, 0, kMaxSteps);
  if (total_steps(spec) < 1) {
    reader.fail("num_steps", "at least one step in num_warmup_steps, num_steps, num_traced_steps");
  }
  spec.records_routing = reader.boolean_or("records_routing", spec.records_routing);
  if (reader.has("reference_loss")) {
    spec.reference_loss = reader.numbers("reference_loss", -1e9, 1e9);
  }
  if (spec.dtype == DType::bf16) spec.reference_tolerance = kReferenceToleranceBf16;
  spec.reference_tolerance =
      reader.number_or("reference_tolerance", spec.reference_tolerance, 0, kMaxCoefficient);
  if (reader.has("fault")) spec.fault = fault_from(reader.object("fault"));
  for (const char* key : {"knobs", "training", "reference_loss", "fault"}) reader.ignore(key);
  reader.refuse_unknown_keys();
  return spec;
}

double reference_tolerance_at(const TrialSpec& spec, int64_t step) {
  constexpr int64_t kStrictSteps = 10;
  constexpr double kWidest = 0.1;
  constexpr double kStepsPerDecade = 5.0;
  const double decades =
      static_cast<double>(std::max<int64_t>(0, step - kStrictSteps)) / kStepsPerDecade;
  return std::min(std::max(spec.reference_tolerance, kWidest),
                  spec.reference_tolerance * std::pow(10.0, decades));
}

std::string spec_hash(const TrialSpec& spec) {
  json document = to_json(spec);
  for (const char* key : {"data_path", "reference_loss", "reference_tolerance"}) {
    document.erase(key);
  }
  // Ranks as threads are what every trial had before there were others.
  if (spec.communicator == CommunicatorKind::threads) document.erase("communicator");
  if (!spec.counts_hardware) document.erase("counts_hardware");
  if (ranks_of(spec) != RanksAre::alone) document.erase("fake_rank");
  // Objects keep their keys sorted, so the dump is canonical.
  return fmt::format("{:016x}",
                     fnv1a_64(document.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace moetune::spec
