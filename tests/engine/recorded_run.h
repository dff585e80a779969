// One rank run alone on the recording fakes, with the answers that the other ranks would give.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/model/philox.h"
#include "engine/plan/compile.h"
#include "engine/trainer.h"
#include "tests/engine/program_on_tape.h"
#include "tests/engine/training_fixture.h"
#include "tests/fakes/recording/recording_backend.h"
#include "tests/fakes/recording/recording_memory.h"
#include "tests/fakes/recording/recording_world.h"

namespace moetune::engine::testing {

/// Rows [source rank, forward chunks then backward chunks, slice of an expert], made up for a layer
/// and a micro-batch: all T * K rows of each source, not spread evenly, some chunks and experts
/// without any, and sometimes all of them for the first experts, so that other ranks get nothing.
inline std::vector<int32_t> made_up_counts(const plan::LayerDims& dims, int64_t layer,
                                           int64_t micro_batch) {
  const uint64_t key = philox_key(static_cast<uint64_t>(layer * 1000 + micro_batch), "counts");
  uint64_t draws = 0;
  const auto draw = [&](int64_t bound) {
    return static_cast<int64_t>(philox_uniform(key, draws++, static_cast<uint64_t>(bound)));
  };
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  const int64_t num_slices = dims.experts * dims.etp;
  const bool is_lopsided = (layer + micro_batch) % 3 == 2;
  std::vector<int32_t> counts(static_cast<size_t>(dims.expert_ranks * num_chunks * num_slices));
  for (int64_t source = 0; source < dims.expert_ranks; ++source) {
    int64_t left = dims.tokens * dims.topk;
    const int64_t num_chosen = is_lopsided ? dims.topk : dims.experts;
    for (int64_t expert = 0; expert < num_chosen; ++expert) {
      const int64_t rows = expert + 1 == num_chosen ? left : draw(left + 1);
      left -= rows;
      // The rows of an expert are cut differently in the two directions.
      int64_t first_chunk = 0;
      for (const int64_t chunks : {dims.chunks_forward, dims.chunks_backward}) {
        int64_t in_chunks = rows;
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          const int64_t part = chunk + 1 == chunks ? in_chunks : draw(in_chunks + 1);
          in_chunks -= part;
          for (int64_t slice = 0; slice < dims.etp; ++slice) {
            const int64_t owner = expert / dims.local_experts * dims.etp + slice;
            const int64_t at = (source * num_chunks + first_chunk + chunk) * num_slices +
                               owner * dims.local_experts + expert % dims.local_experts;
            counts[static_cast<size_t>(at)] = static_cast<int32_t>(part);
          }
        }
        first_chunk += chunks;
      }
    }
  }
  return counts;
}

/// What a rank asked its device for, and what it was told.
struct RecordedRun {
  plan::StepProgram program;
  std::vector<std::vector<int32_t>> counts;  ///< as fetched in each step
  recording::Tape tape;
  std::vector<size_t> ends;  ///< on the tape: of the set-up, then of each step
  std::unique_ptr<profiler::MemoryLedger> ledger;
};

inline RecordedRun record_rank(const spec::TrialSpec& trial, int rank, int64_t num_steps = 1) {
  RecordedRun run;
  run.program = plan::compile(trial, rank);
  plan::check(run.program);
  // The answer to each copy to the host of a step; none: zeros.
  std::vector<size_t> indices;
  plan::for_each(run.program, [&](const plan::Item& item, const plan::Segment& segment,
                                  const plan::Instr& instr) {
    if (instr.verb != plan::Verb::fetch) return;
    const bool is_counts = static_cast<plan::Fetch>(instr.what) == plan::Fetch::counts;
    indices.push_back(is_counts ? run.counts.size() : SIZE_MAX);
    if (is_counts) run.counts.push_back(made_up_counts(segment.dims, item.layer, item.micro_batch));
  });
  recording::RecordingBackend backend(run.tape, [&](int64_t number, void* host, int64_t bytes) {
    const size_t index = indices[static_cast<size_t>(number) % indices.size()];
    if (index == SIZE_MAX) return;
    const std::vector<int32_t>& counts = run.counts[index];
    std::memcpy(host, counts.data(),
                std::min(static_cast<size_t>(bytes), counts.size() * sizeof(int32_t)));
  });
  recording::RecordingWorld world(plan::layout_of(trial.knobs));
  recording::RecordingMemory memory(run.tape);
  TrainerHooks hooks;
  hooks.initial_value = [](const plan::ParamDesc&, int64_t, int64_t) { return 0.0; };
  hooks.observers.memory = &memory;
  RankTrainer trainer(trial, rank, world, backend, hooks);
  run.ends.push_back(run.tape.size());
  const RandomTokens tokens(trial);
  for (int64_t step = 0; step < num_steps; ++step) {
    trainer.step(step, tokens, profiler::TraceLevel::none);
    run.ends.push_back(run.tape.size());
  }
  run.ledger = std::make_unique<profiler::MemoryLedger>(trainer.ledger());
  return run;
}

/// Runs in which graphs are captured: by itself twice, captured, replayed from then on; and one
/// more as memory may lie elsewhere in the first step.
inline constexpr int64_t kStepsUntilReplayed = 5;

/// `program` followed over a tape that was recorded with `run.program`.
inline ProgramOnTape follow(const spec::TrialSpec& trial, const RecordedRun& run,
                            const plan::StepProgram& program, size_t limit = 10) {
  ProgramOnTape on_tape(trial, program, run.tape, run.counts, limit);
  on_tape.follow_setup(0, run.ends.front());
  for (size_t step = 1; step < run.ends.size(); ++step) {
    on_tape.follow_step(run.ends[step - 1], run.ends[step],
                        static_cast<int64_t>(step) == kStepsUntilReplayed);
  }
  return on_tape;
}

}  // namespace moetune::engine::testing
