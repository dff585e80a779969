// JSON form and identity of a trial.
#include "engine/spec/trial_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "engine/spec/fields.h"
#include "engine/spec/trial_fields.h"
#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr double kMaxSteps = 1e6;
constexpr double kMaxBatch = 1e6;
constexpr double kMaxSequence = int64_t{1} << 28;
constexpr double kMaxRank = int64_t{1} << 26;
constexpr double kMaxCoefficient = 1e6;

constexpr FieldInfo count(std::string_view key, Limits limits, std::string_view help) {
  return {.key = key, .limits = limits, .help = help};
}
constexpr FieldInfo word(std::string_view key, std::string_view help) {
  return {.key = key, .quantity = Quantity::text, .help = help};
}

std::span<const Field<TrainingSpec>> training_fields() {
  constexpr Limits kCoefficient{0, kMaxCoefficient};
  constexpr Limits kBeta{0, 0.9999999};
  constexpr Limits kSteps{0, kMaxSteps};
  static constexpr Field<TrainingSpec> kRows[] = {
      field<&TrainingSpec::global_batch_size>(
          count("global_batch_size", {1, kMaxBatch}, "Sequences of a step, over all ranks.")),
      field<&TrainingSpec::seq_length>(
          count("seq_length", {1, kMaxSequence}, "Tokens of a sequence.")),
      field<&TrainingSpec::seed>(word("seed", "Of initial weights and of the order of data.")),
      field<&TrainingSpec::lr>(count("lr", kCoefficient, "Largest learning rate.")),
      field<&TrainingSpec::min_lr>(count("min_lr", kCoefficient, "Learning rate at the end.")),
      field<&TrainingSpec::lr_warmup_steps>(
          count("lr_warmup_steps", kSteps, "Steps of linear warm-up.")),
      field<&TrainingSpec::lr_decay_steps>(
          count("lr_decay_steps", kSteps, "Steps of the cosine to min_lr; 0: constant.")),
      field<&TrainingSpec::weight_decay>(
          count("weight_decay", kCoefficient, "AdamW's decoupled decay.")),
      field<&TrainingSpec::decays_all>(
          word("decays_all", "Also vectors, such as norms, decay; otherwise matrices only.")),
      field<&TrainingSpec::beta1>(count("beta1", kBeta, "Of AdamW's first moment.")),
      field<&TrainingSpec::beta2>(count("beta2", kBeta, "Of its second moment.")),
      field<&TrainingSpec::adam_eps>(count("adam_eps", {0, 1}, "AdamW's epsilon.")),
      field<&TrainingSpec::clip_grad>(count(
          "clip_grad", kCoefficient, "Largest global norm of the gradients; 0: no clipping.")),
      field<&TrainingSpec::aux_loss_coeff>(
          count("aux_loss_coeff", kCoefficient, "Of the load-balancing loss, per sequence.")),
      field<&TrainingSpec::z_loss_coeff>(
          count("z_loss_coeff", kCoefficient, "Of the router's z-loss.")),
  };
  return kRows;
}

std::span<const Field<InjectedFault>> fault_fields() {
  static constexpr Field<InjectedFault> kRows[] = {
      field<&InjectedFault::kind>({.key = "kind",
                                   .quantity = Quantity::text,
                                   .help = "What breaks.",
                                   .presence = Presence::required}),
      field<&InjectedFault::step>(count("step", {0, kMaxSteps}, "When, from 0.")),
      field<&InjectedFault::rank>(count("rank", {0, kMaxRank}, "Where.")),
  };
  return kRows;
}

/// Of what a miniature stands for, where model and hardware are objects.
const std::vector<Field<StandsFor>>& stands_for_fields() {
  static const std::vector<Field<StandsFor>> kRows = [] {
    std::vector<Field<StandsFor>> rows = {
        {{.key = "model",
          .quantity = Quantity::text,
          .help = "The model itself.",
          .presence = Presence::required},
         FieldKind::model,
         [](JsonReader& reader, const FieldInfo& row, StandsFor& original) {
           original.model = model_from_json(reader.value(row.key), reader.source_of(row.key));
         },
         [](const StandsFor& original) { return to_json(original.model); },
         nullptr,
         nullptr},
        {{.key = "hardware",
          .quantity = Quantity::text,
          .help = "The cluster itself.",
          .presence = Presence::required},
         FieldKind::hardware,
         [](JsonReader& reader, const FieldInfo& row, StandsFor& original) {
           original.hardware = hardware_from_json(reader.value(row.key), reader.source_of(row.key));
         },
         [](const StandsFor& original) { return to_json(original.hardware); },
         nullptr,
         nullptr},
    };
    rows.insert(rows.end(), stands_for_sizes().begin(), stands_for_sizes().end());
    return rows;
  }();
  return kRows;
}

Field<TrialSpec> part(FieldKind kind, FieldInfo info,
                      void (*read)(JsonReader&, const FieldInfo&, TrialSpec&),
                      json (*write)(const TrialSpec&)) {
  return {info, kind, read, write, nullptr, nullptr};
}

/// The parts that have readers of their own.
const std::vector<Field<TrialSpec>>& part_fields() {
  static const std::vector<Field<TrialSpec>> kRows = {
      part(
          FieldKind::model,
          {.key = "model",
           .quantity = Quantity::text,
           .help = "A Hugging Face config.json, or the name of a shipped model.",
           .presence = Presence::required},
          [](JsonReader& reader, const FieldInfo& row, TrialSpec& spec) {
            spec.model = model_from_json(reader.value(row.key), reader.source_of(row.key));
          },
          [](const TrialSpec& spec) { return to_json(spec.model); }),
      part(
          FieldKind::hardware,
          {.key = "hardware",
           .quantity = Quantity::text,
           .help = "A hardware file, or the name of a shipped one.",
           .presence = Presence::required},
          [](JsonReader& reader, const FieldInfo& row, TrialSpec& spec) {
            spec.hardware = hardware_from_json(reader.value(row.key), reader.source_of(row.key));
          },
          [](const TrialSpec& spec) { return to_json(spec.hardware); }),
      part(
          FieldKind::knobs,
          {.key = "knobs",
           .quantity = Quantity::text,
           .help = "The configuration; of a sweep, where it starts. docs/knobs.md has them all."},
          [](JsonReader& reader, const FieldInfo& row, TrialSpec& spec) {
            spec.knobs = knobs_from_json(reader.value(row.key), reader.source_of(row.key));
          },
          [](const TrialSpec& spec) { return to_json(spec.knobs); }),
      {{.key = "stands_for",
        .quantity = Quantity::text,
        .help = "What a miniature was made for: Megatron-LM's flags have its sizes. No part of "
                "what is run.",
        .presence = Presence::written_if_set},
       FieldKind::object,
       [](JsonReader& reader, const FieldInfo& row, TrialSpec& spec) {
         JsonReader object = reader.object(row.key);
         Problems problems;
         read_fields(object, std::span(stands_for_fields()), spec.stands_for.emplace(), problems);
         problems.attempt([&] { object.refuse_unknown_keys(); });
         problems.throw_if_any();
       },
       [](const TrialSpec& spec) {
         return spec.stands_for ? write_fields(std::span(stands_for_fields()), *spec.stands_for)
                                : json();
       },
       nullptr,
       [](const TrialSpec&) { return pages_of(std::span(stands_for_fields()), StandsFor{}); }},
  };
  return kRows;
}

/// A row whose choices the backend says: check_modes reads it, and is the only one to complain.
constexpr Field<TrialSpec> by_backend(Field<TrialSpec> row) {
  row.read = [](JsonReader&, const FieldInfo&, TrialSpec&) {};
  return row;
}

/// How a trial is run: the keys that a sweep file has as well.
std::span<const Field<TrialSpec>> run_fields() {
  constexpr Limits kSteps{0, kMaxSteps};
  static constexpr Field<TrialSpec> kRows[] = {
      object_field<&TrialSpec::training, &training_fields>(
          word("training", "The recipe, the same for all trials of a sweep.")),
      field<&TrialSpec::data_path>(
          word("data_path", "A file or folder of text to train on, read as bytes.")),
      field<&TrialSpec::data_digest>(word("data_digest", "Of those bytes; filled in by moetune.")),
      by_backend(field<&TrialSpec::dtype>(
          word("dtype", "Elements: f32 or f64 on the CPU, bf16 or f32 on a GPU."))),
      by_backend(field<&TrialSpec::clock>(word("clock",
                                               "Wall time, or virtual time of an emulated cluster; "
                                               "a GPU has wall time only."))),
      field<&TrialSpec::backend>(word("backend", "What computes.")),
      by_backend(field<&TrialSpec::communicator>(
          word("communicator",
               "How ranks meet: as threads, as a process and a GPU each, or one "
               "rank of a world that is not there."))),
      field<&TrialSpec::fake_rank>(
          count("fake_rank", {0, kMaxRank}, "Which rank is run where the world is not there.")),
      field<&TrialSpec::trace>(word("trace", "What the traced steps record.")),
      field<&TrialSpec::counts_hardware>(
          word("counts_hardware", "Hardware counters over the traced steps; backend cuda.")),
      field<&TrialSpec::num_warmup_steps>(
          count("num_warmup_steps", kSteps, "First steps, not timed.")),
      field<&TrialSpec::num_steps>(count("num_steps", kSteps, "Timed steps.")),
      field<&TrialSpec::num_traced_steps>(
          count("num_traced_steps", kSteps, "Traced steps behind them, not timed.")),
      field<&TrialSpec::reference_tolerance>(
          count("reference_tolerance", {0, kMaxCoefficient},
                "How far losses may be off the reference's in the first ten steps; 0.02 where "
                "dtype is bf16.")),
      object_field<&TrialSpec::fault, &fault_fields>(
          word("fault", "A fault to inject, to see how a failure is handled.")),
  };
  return kRows;
}

/// What a sweep sets for its trials.
std::span<const Field<TrialSpec>> sweep_set_fields() {
  static constexpr Field<TrialSpec> kRows[] = {
      field<&TrialSpec::records_routing>(
          word("records_routing", "Keep what the router chose, for predictions.")),
      field<&TrialSpec::reference_loss>({.key = "reference_loss",
                                         .quantity = Quantity::text,
                                         .limits = {-kMostReferenceLoss, kMostReferenceLoss},
                                         .help = "Losses of the reference run, by step."}),
  };
  return kRows;
}

/// What depends on other keys: the backend says what the modes may be.
void check_modes(JsonReader& reader, TrialSpec& spec, Problems& problems) {
  const bool has_device = is_on_device(spec);
  // A device keeps its own time, and computes in double precision too slowly to be of use.
  if (has_device && !reader.has("clock")) spec.clock = ClockMode::wall;
  const std::vector<DType> dtypes =
      has_device ? std::vector{DType::bf16, DType::f32} : std::vector{DType::f32, DType::f64};
  const std::vector<ClockMode> clocks =
      has_device ? std::vector{ClockMode::wall} : all_values<ClockMode>();
  std::vector<CommunicatorKind> communicators = all_values<CommunicatorKind>();
  if (!has_device) {
    std::erase_if(communicators, [](CommunicatorKind kind) { return row_of(kind).needs_device; });
  }
  problems.attempt([&] { spec.dtype = reader.choice_or("dtype", spec.dtype, dtypes); });
  problems.attempt([&] { spec.clock = reader.choice_or("clock", spec.clock, clocks); });
  problems.attempt([&] {
    spec.communicator = reader.choice_or("communicator", spec.communicator, communicators);
  });
  if (spec.dtype == DType::bf16 && !reader.has("reference_tolerance")) {
    spec.reference_tolerance = kReferenceToleranceBf16;
  }
}

}  // namespace

std::span<const Field<StandsFor>> stands_for_sizes() {
  static constexpr Field<StandsFor> kRows[] = {
      field<&StandsFor::seq_length>(
          count("seq_length", {1, kMaxSequence}, "Tokens of a sequence there.")),
      field<&StandsFor::global_batch_size>(
          count("global_batch_size", {1, kMaxBatch}, "Sequences of a step there.")),
  };
  return kRows;
}

json to_json(const TrialSpec& spec) {
  json document = write_fields(std::span(part_fields()), spec);
  document.update(write_fields(run_fields(), spec));
  document.update(write_fields(sweep_set_fields(), spec));
  return document;
}

void read_trial_parts(JsonReader& reader, TrialSpec& spec, Problems& problems) {
  read_fields(reader, std::span(part_fields()), spec, problems);
}

void read_trial_run(JsonReader& reader, TrialSpec& spec, Problems& problems) {
  read_fields(reader, run_fields(), spec, problems);
  check_modes(reader, spec, problems);
  const bool has_narrow_moments = spec.knobs.exp_avg_dtype != MomentType::fp32 ||
                                  spec.knobs.exp_avg_sq_dtype != MomentType::fp32;
  problems.attempt([&] {
    if (spec.dtype == DType::f64 && has_narrow_moments) {
      reader.fail("dtype", "f32 beside an exp_avg_dtype or exp_avg_sq_dtype of bf16");
    }
  });
  problems.attempt([&] {
    if (spec.counts_hardware && !is_on_device(spec)) {
      reader.fail("counts_hardware", "false: only a GPU has such counters (backend cuda)");
    }
  });
  problems.attempt([&] {
    if (total_steps(spec) < 1) {
      reader.fail("num_steps",
                  "at least one step in num_warmup_steps, num_steps, num_traced_steps");
    }
  });
}

void read_trial_of_sweep(JsonReader& reader, TrialSpec& spec, Problems& problems) {
  read_fields(reader, sweep_set_fields(), spec, problems);
}

TrialSpec trial_spec_from_json(const json& document, const Source& source) {
  JsonReader reader(document, source);
  TrialSpec spec;
  Problems problems;
  read_trial_parts(reader, spec, problems);
  read_trial_run(reader, spec, problems);
  read_trial_of_sweep(reader, spec, problems);
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  problems.throw_if_any();
  return spec;
}

std::vector<FieldPage> trial_part_pages() {
  return pages_of(std::span(part_fields()), TrialSpec{});
}

std::vector<FieldPage> trial_run_pages() { return pages_of(run_fields(), TrialSpec{}); }

std::vector<FieldPage> trial_pages() {
  std::vector<FieldPage> pages = trial_part_pages();
  for (std::vector<FieldPage> more :
       {trial_run_pages(), pages_of(sweep_set_fields(), TrialSpec{})}) {
    std::move(more.begin(), more.end(), std::back_inserter(pages));
  }
  return pages;
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
  for (const char* key : {"data_path", "reference_loss", "reference_tolerance", "stands_for"}) {
    document.erase(key);
  }
  for (const char* key : {"power_watts", "source", "sources"}) document["hardware"].erase(key);
  // Ranks as threads are what every trial had before there were others.
  if (spec.communicator == CommunicatorKind::threads) document.erase("communicator");
  if (!spec.counts_hardware) document.erase("counts_hardware");
  if (ranks_of(spec) != RanksAre::alone) document.erase("fake_rank");
  // Objects keep their keys sorted, so the dump is canonical.
  return base::fnv_digits(document.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace moetune::spec
