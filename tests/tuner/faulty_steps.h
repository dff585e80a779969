// Steps of emulated clusters with faults of known kind and strength, to judge verdicts by: played
// from the programs of all ranks, so that a fault does to the step what it would do to a real one.
// What steps that the engine runs (tests/engine/emulated_faults.h) share with them is here, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "profiler/analysis/step_verdict.h"

namespace moetune::tuner::testing {

enum class Fault : uint8_t {
  none,
  slow_links,
  one_ranks_link,
  launches,
  syncs,
  allocator,
  loader,  ///< stands on one rank, as a record
  stall,   ///< the same without a record: a garbage collection
  slow_rank,
  uneven_experts,
  few_micro_batches,
  uneven_stages,
  capped_memory,
  offload,
  small_work,
  slow_memory,
  held_multiprocessors,
  large_products,  ///< nothing to mend but arithmetic
  count
};

/// What a fault is, and what a verdict has to say of it.
struct FaultRow {
  Fault id;
  const char* name;
  profiler::SubCause sub_cause;
  bool is_of_one_rank;
};
const FaultRow& row_of(Fault fault);

/// A fault with its strength; 1: none of it. Of few_micro_batches and uneven_stages there is one.
struct StrongFault {
  Fault fault = Fault::none;
  double strength = 1;
};

/// A layout that is tried.
struct FaultyLayout {
  const char* name;
  const char* knobs;     ///< JSON
  int launch_queue = 0;  ///< launched operations that may not have begun; 0: any number
};
const std::vector<FaultyLayout>& faulty_layouts();

struct FaultyCase {
  size_t layout = 0;
  std::vector<StrongFault> faults;
  uint64_t seed = 1;          ///< of the noise of durations
  double noise_ratio = 0.03;  ///< spread of each duration
  double deleted_edges = 0;   ///< share of stated waits that the records lose
  double lost_records = 0;    ///< share of records that are lost
};

struct FaultyStep {
  std::vector<profiler::StepTrace> traces;
  profiler::GroupInstances communicators;
  profiler::StepFacts facts;
  int64_t step_ns = 0;
  int64_t num_micro_batches = 1;
  int faulty_rank = 0;  ///< of faults of one rank, and of uneven stages

  /// What cases of different batches are compared by.
  [[nodiscard]] double time() const {
    return static_cast<double>(step_ns) / static_cast<double>(num_micro_batches);
  }
};

/// Whether the layout has what the fault needs: stages, experts' ranks, several communicators.
bool is_possible(size_t layout, Fault fault);
FaultyStep play_faulty(const FaultyCase& faulty);
/// Share of the step that goes when the faults are removed; the same noise.
double removal_gain(const FaultyCase& faulty);
/// The strength with which the fault's removal gains about `gain_ratio`; none where no strength
/// does. Of faults without strengths 1 where they gain at least as much.
std::optional<double> strength_for(size_t layout, Fault fault, double gain_ratio);

profiler::StepVerdict judge(const FaultyStep& step);

// For whoever makes faulty steps in another way:

/// Puts into a healthy trial what faults change of its hardware, knobs and batch. Returns the
/// micro-batches of a step.
int64_t put_into(spec::TrialSpec& trial, const std::vector<StrongFault>& faults);
double strength_of(const std::vector<StrongFault>& faults, Fault fault);
bool has_fault(const std::vector<StrongFault>& faults, Fault fault);
/// Time that a fault of that strength inserts into a layer: a copy, or work of the host.
double inserted_ns(double strength);
/// What the case says that recorders lose, drawn by its seed. As they do, it counts lost records.
void lose_records(const FaultyCase& faulty, FaultyStep& step);
/// strength_for, of steps that take time_with(strength).
std::optional<double> strength_for(Fault fault, double gain_ratio, double healthy,
                                   const std::function<double(double strength)>& time_with);
/// How much longer collectives have to take so that they are beside work for most of a step, and
/// cost little by themselves: else transfers are what holds the step back.
double long_collectives(const std::function<FaultyStep(double longer)>& step_with);
/// Links that are slow so that collectives last stay.
FaultyCase without_fault(FaultyCase faulty, Fault fault);
FaultyCase without_faults(FaultyCase faulty);

}  // namespace moetune::tuner::testing
