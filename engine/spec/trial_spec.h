// One trial as plain data: everything that decides what moetune-rank does. Canonical JSON; its hash
// is the identity.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/communicators.h"
#include "engine/spec/hardware_spec.h"
#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/modes.h"
#include "engine/spec/source.h"

namespace moetune::spec {

/// The training recipe, frozen by the measurement contract.
struct TrainingSpec {
  int64_t global_batch_size = 8;  ///< sequences
  int64_t seq_length = 128;       ///< tokens
  uint64_t seed = 1;
  double lr = 1e-3;
  double min_lr = 1e-4;
  int64_t lr_warmup_steps = 0;
  int64_t lr_decay_steps = 0;  ///< cosine to min_lr; 0: constant
  double weight_decay = 0.1;
  bool decays_all = false;  ///< false: matrices only
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;       ///< 0: no clipping
  double aux_loss_coeff = 0.0;  ///< sequence-level load-balancing loss
  double z_loss_coeff = 0.0;
};

/// Tokens that all ranks train on in a step, as the losses' means divide by them.
inline double tokens_per_step(const TrainingSpec& training) {
  return static_cast<double>(training.global_batch_size) * static_cast<double>(training.seq_length);
}

/// A fault to inject.
struct InjectedFault {
  FaultKind kind = FaultKind::none;
  int64_t step = 0;
  int64_t rank = 0;
};

/// The run that a miniature was made for (`moetune init`): whose sizes Megatron-LM's flags have.
struct StandsFor {
  ModelSpec model;
  HardwareSpec hardware;
  int64_t seq_length = 4096;
  int64_t global_batch_size = 128;  ///< sequences
};

constexpr double kReferenceTolerance = 2e-3;
/// With bf16 every activation is rounded to 8 bits, and each layout rounds others.
constexpr double kReferenceToleranceBf16 = 2e-2;
/// What a loss of TrialSpec::reference_loss may be at most, either side of 0.
constexpr double kMostReferenceLoss = 1e9;

struct TrialSpec {
  ModelSpec model;
  HardwareSpec hardware;
  Knobs knobs;
  TrainingSpec training;
  std::string data_path;     ///< a file or folder, read as bytes
  std::string data_digest;   ///< of the bytes; part of the identity instead of the path
  DType dtype = DType::f32;  ///< f32; f64 on the cpu, bf16 on cuda
  ClockMode clock = ClockMode::virtual_measured;
  BackendKind backend = BackendKind::cpu;  ///< on a device always in wall time
  CommunicatorKind communicator = CommunicatorKind::threads;
  int64_t fake_rank = 0;  ///< which rank is run in a fake world
  TraceLevel trace = TraceLevel::ops;
  /// Hardware counters over the traced steps, which makes their times unfit for comparison.
  bool counts_hardware = false;
  int64_t num_warmup_steps = 1;  ///< not timed
  int64_t num_steps = 8;         ///< timed, untraced
  int64_t num_traced_steps = 1;  ///< after those, traced, not part of the timing
  bool records_routing = false;
  /// Expected loss per step, from the reference run; steps beyond its end are not checked.
  std::vector<double> reference_loss;
  double reference_tolerance = kReferenceTolerance;  ///< see reference_tolerance_at
  InjectedFault fault;
  /// Of a miniature. It decides nothing of what is run, so it is no part of the identity.
  std::optional<StandsFor> stands_for;
};

/// A device keeps its own time and has memory that the host cannot read.
inline bool is_on_device(const TrialSpec& s) { return s.backend == BackendKind::cuda; }
/// Where the trial's ranks are.
inline RanksAre ranks_of(const TrialSpec& s) { return row_of(s.communicator).ranks; }

/// Total steps a trial runs.
inline int64_t total_steps(const TrialSpec& s) {
  return s.num_warmup_steps + s.num_steps + s.num_traced_steps;
}

/// How far the loss of `step` (from 0) may be off the reference's. Layouts add numbers in different
/// orders, and once a rounding difference sends a token to another expert, training lets it grow:
/// the tolerance holds for ten steps, then the band widens tenfold every five steps, up to 0.1.
/// Measured on the quick start's layouts: 2e-7 until a token changes its expert, then 4e-4, and
/// 3e-2 after a hundred steps; after a spike of the gradient the difference doubles with every step
/// (from 5e-4 at step 10 to 5e-3 at step 14).
double reference_tolerance_at(const TrialSpec& spec, int64_t step);

nlohmann::json to_json(const TrialSpec& spec);
TrialSpec trial_spec_from_json(const nlohmann::json& json, const Source& source);

/// 16 hexadecimal digits over the canonical JSON without data_path, the reference and what a
/// miniature stands for.
std::string spec_hash(const TrialSpec& spec);

/// One broken rule.
struct Violation {
  std::string rule;     ///< name of the constraint, such as "ep_divides_experts"
  std::string message;  ///< knob, value found, what would be right
};

/// What constraints judge: the parts of a trial that decide whether it can run. A view.
struct TrialParts {
  const ModelSpec& model;
  const HardwareSpec& hardware;
  const TrainingSpec& training;
  const Knobs& knobs;
  CommunicatorKind communicator;
  bool reads_text = false;  ///< as bytes; whoever brings tokens of its own, as --verify does, not
};
inline TrialParts parts_of(const TrialSpec& s) {
  return {s.model, s.hardware, s.training, s.knobs, s.communicator, !s.data_digest.empty()};
}

/// One row of the constraint table.
struct ConstraintRow {
  const char* name;
  const char* help;
  /// Empty when satisfied, else the message.
  std::string (*check)(const TrialParts&);
};
const std::vector<ConstraintRow>& constraint_table();

/// All broken rules, in table order; empty when the trial can run. When one of the first
/// two, `sizes` and `layout_text`, is broken, those behind it are not checked: they rely on it.
std::vector<Violation> check_constraints(const TrialParts& trial);

}  // namespace moetune::spec
