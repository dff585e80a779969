// Sets a trial up, runs its steps on every rank, and sorts what was thrown into exit codes.
#include "engine/run_trial.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/device_tracing.h"
#include "engine/last_word.h"
#include "engine/loss_check.h"
#include "engine/routing_recorder.h"
#include "engine/saved_run.h"
#include "engine/trial_recorder.h"
#include "engine/watchdog.h"
#include "engine/work_recorder.h"
#include "engine/world_run.h"
#include "kernels/backend.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

// Written by the signal handler, read by all rank threads.
std::atomic<int> g_is_stop_asked{0};
static_assert(std::atomic<int>::is_always_lock_free);

void ask_stop(int /*signal*/) { g_is_stop_asked = 1; }

// Breaks the trial on purpose where the spec asks for it, so that the tuner's handling can be
// tested.
void inject_fault(const spec::InjectedFault& fault, int64_t step, int rank) {
  using spec::FaultKind;
  if (fault.kind == FaultKind::none || fault.step != step || fault.rank != rank) return;
  if (fault.kind == FaultKind::crash) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    std::raise(SIGSEGV);
  }
  if (fault.kind == FaultKind::kill) std::raise(SIGKILL);
  if (fault.kind == FaultKind::error) throw base::Error("injected error");
  while (fault.kind == FaultKind::hang) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// A gradient that is no number, on one rank, from the fault's step on.
void inject_gradient(const spec::TrialSpec& trial, int64_t step, int rank, const Parameters& params,
                     kernels::Backend& backend) {
  const spec::InjectedFault& fault = trial.fault;
  if (fault.kind != spec::FaultKind::nan_gradient || fault.rank != rank || step < fault.step)
    return;
  const kernels::Tensor& gradient = params.buckets().front().grad;
  // All bits set are a NaN in every type.
  const std::vector<uint8_t> bits(static_cast<size_t>(base::size_of(gradient.dtype)), 0xFF);
  backend.copy_to_device(gradient.data, bits.data(), static_cast<int64_t>(bits.size()));
}

/// What the ranks of this process share while they train.
struct Training {
  const spec::TrialSpec& trial;
  const TokenSource& tokens;
  std::vector<int> ranks;  ///< of this process
  TrialRecorder& recorder;
  std::unique_ptr<DeviceTracing> tracing;  ///< on a device, when steps are traced
  std::unique_ptr<WorkRecorder> work;      ///< where steps can be played
  std::unique_ptr<Watchdog> watchdog;      ///< on a device
  std::unique_ptr<SavedRun> saved;         ///< where one is asked for
  RoutingRecorder& routing;
  std::atomic<bool> is_interrupted{false};

  [[nodiscard]] bool is_first(int rank) const { return rank == ranks.front(); }
};

/// `wall_ns` becomes what the step took in real time, without the start and the reading of a trace.
StepResult run_step(Training& training, RankTrainer& trainer, World& world, int rank, int64_t step,
                    profiler::TraceLevel level, int64_t& wall_ns) {
  const auto timed_step = [&](profiler::TraceLevel at_level) {
    const int64_t begin_ns = profiler::wall_ns();
    StepResult result = trainer.step(step, training.tokens, at_level);
    wall_ns = profiler::wall_ns() - begin_ns;
    return result;
  };
  const bool is_traced = level != profiler::TraceLevel::none;
  if (training.work && !is_traced && step >= training.trial.num_warmup_steps) {
    trainer.record_durations(training.work->begin(rank));
    StepResult result = timed_step(level);
    trainer.record_durations(nullptr);
    training.recorder.add_work(training.work->end(rank, step));
    return result;
  }
  if (!spec::is_on_device(training.trial)) {
    StepResult result = timed_step(level);
    if (is_traced) training.recorder.add_trace(rank, trainer.take_trace());
    return result;
  }
  // The timeline of the host says nothing about a device; its own records do.
  if (!is_traced || !training.tracing) {
    return timed_step(profiler::TraceLevel::none);
  }
  world.join_local();
  if (training.is_first(rank)) training.tracing->begin(step);
  // Of all processes: who begins later would look like a late participant of the first collective.
  static_cast<void>(world.join_max(0));
  trainer.set_traced(true);
  const StepResult result = timed_step(profiler::TraceLevel::none);
  trainer.set_traced(false);
  world.join_local();
  if (training.is_first(rank)) training.tracing->end(training.recorder);
  world.join_local();
  return result;
}

// One rank's life: steps until the end, or until somebody asks for a stop. All ranks decide alike.
void train(Training& training, RankTrainer& trainer, World& world, int rank) {
  const spec::TrialSpec& trial = training.trial;
  const int64_t num_steps = spec::total_steps(trial);
  const int64_t first_traced = trial.num_warmup_steps + trial.num_steps;
  if (training.tracing) trainer.set_recorder(training.tracing->recorder());
  LossCheck losses(trial);
  RunState state = training.saved ? training.saved->restore(trainer, training.routing) : RunState();
  int64_t& num_skipped = state.num_skipped;
  for (int64_t step = state.next_step; step < num_steps; ++step) {
    if (training.watchdog && training.is_first(rank)) {
      training.watchdog->beat(fmt::format("step {} of {}", step + 1, num_steps));
    }
    if (world.join_max(g_is_stop_asked) != 0) {
      training.is_interrupted = true;
      if (training.saved && step <= first_traced) {
        training.saved->save(state, trainer, training.routing, training.recorder);
      }
      break;
    }
    inject_fault(trial.fault, step, rank);
    const auto level = step >= first_traced ? trial.trace : profiler::TraceLevel::none;
    int64_t own_wall_ns = 0;
    StepResult result = run_step(training, trainer, world, rank, step, level, own_wall_ns);
    const bool is_nan_asked = trial.fault.kind == spec::FaultKind::nan && trial.fault.step == step;
    if (is_nan_asked) result.loss = std::nan("");
    const int64_t wall_step_ns = world.join_max(own_wall_ns);
    if (training.is_first(rank)) {
      training.recorder.add_step(step, result, wall_step_ns, trainer.num_launches());
    }
    num_skipped += result.is_skipped ? 1 : 0;
    losses.add(step, result);
    state.next_step = step + 1;
    state.num_updates = trainer.num_updates();
    if (training.saved && state.next_step <= first_traced && state.next_step < num_steps) {
      training.saved->save_when_due(state, trainer, training.routing, training.recorder);
    }
  }
  if (num_skipped > 0 && num_skipped == num_steps) {
    throw base::WrongNumbers(
        fmt::format("all {} steps were skipped: their gradients are NaN or infinite", num_steps));
  }
  kernels::DeviceMemoryAccount account = trainer.backend().memory_account();
  if (training.is_first(rank)) {
    account.lines.push_back({"messages on their way", world.message_bytes()});
  }
  if (training.tracing && training.is_first(rank)) {
    account.lines.push_back({"buffers of CUPTI", training.tracing->device_buffer_bytes()});
  }
  const std::scoped_lock lock(training.recorder.mutex());
  if (training.is_first(rank) && num_skipped > 0) training.recorder.add_skipped(num_skipped);
  if (training.is_first(rank) && spec::is_on_device(trial)) {
    training.recorder.add_text("device_kernels", trainer.backend().kernels_note());
  }
  training.recorder.add_memory(rank, trainer.ledger());
  training.recorder.add_device_memory(rank, account, trainer.ledger().peak_bytes(),
                                      trainer.held_bytes());
  if (spec::is_on_device(trial)) {
    training.recorder.add_workspaces(rank, trainer.workspace_bytes());
    training.recorder.add_graphs(rank, trainer.graphs());
  }
}

void check_can_run(const spec::TrialSpec& trial) {
  spec::TrialParts parts = spec::parts_of(trial);
  parts.reads_text = true;
  const std::vector<spec::Violation> violations = spec::check_constraints(parts);
  if (!violations.empty()) {
    throw base::UsageError(
        fmt::format("{}: {}", violations.front().rule, violations.front().message));
  }
  const std::string missing = missing_in_build(trial);
  if (!missing.empty()) throw base::UsageError(missing);
}

// What tells whether the clocks of two processes are one: containers of a host have names of their
// own and share its clock.
std::string clock_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

spec::ExitCode run_process(const spec::TrialSpec& trial, const std::string& out_dir,
                           const RunOptions& options) {
  std::signal(SIGTERM, ask_stop);
  std::signal(SIGINT, ask_stop);
  check_can_run(trial);
  spec::Corpus corpus = spec::read_corpus(trial.data_path);
  if (!trial.data_digest.empty() && corpus.digest != trial.data_digest) {
    throw base::UsageError(
        fmt::format("training text '{}' has the digest {}, the trial was planned for {}: the text "
                    "has changed since",
                    trial.data_path, corpus.digest, trial.data_digest));
  }
  const TextSource tokens(std::move(corpus), trial.training, trial.data_path);
  const std::vector<int> ranks = local_ranks(trial);
  std::filesystem::create_directories(out_dir);
  auto saved =
      options.saved_run.empty() ? nullptr : std::make_unique<SavedRun>(trial, options.saved_run);
  const bool goes_on = saved && saved->is_there();
  if (goes_on) saved->restore_shard(out_dir + "/shard-0.db");
  using File = store::ShardWriter::File;
  TrialRecorder recorder(trial, out_dir, ranks, goes_on ? File::gone_on_with : File::created);
  const bool is_one_of_several = spec::ranks_of(trial) == spec::RanksAre::processes;
  if (is_one_of_several) recorder.add_text("clock_id", clock_id());
  RoutingRecorder routing(trial);
  TrainerHooks hooks;
  if (trial.records_routing) hooks.observers.routing = &routing;
  auto work = WorkRecorder::is_for(trial) ? std::make_unique<WorkRecorder>(ranks) : nullptr;
  hooks.observers.route = work.get();
  hooks.on_zeroed = [&trial](int64_t step, int rank, const Parameters& params,
                             kernels::Backend& backend) {
    inject_gradient(trial, step, rank, params, backend);
  };
  Training training{trial,   tokens,           ranks,  recorder, nullptr, std::move(work),
                    nullptr, std::move(saved), routing};
  if (spec::is_on_device(trial)) {
    training.watchdog =
        std::make_unique<Watchdog>(options.step_limit, [&](const std::string& what) {
          const std::string message = hung_text(what, options.step_limit);
          if (is_one_of_several) {
            leave_last_word(out_dir, ranks.front(), spec::ExitCode::hung, message);
          }
          leave_hung(message);
        });
    if (trial.trace != spec::TraceLevel::none && trial.num_traced_steps > 0) {
      training.tracing = std::make_unique<DeviceTracing>(trial, ranks);
    }
  }
  try {
    run_ranks(trial, hooks,
              [&](RankTrainer& trainer, World& world, int rank) {
                train(training, trainer, world, rank);
              },
              // The watchdog speaks first: it knows what the step was at.
              {out_dir + "/rendezvous", options.step_limit + std::chrono::minutes(1)});
  } catch (const std::exception& error) {
    recorder.fail(error.what());
    throw;
  }
  if (training.tracing) {
    const std::string note = training.tracing->note();
    if (!note.empty()) recorder.add_text("trace_note", note);
    recorder.set_lost_records(ranks.front(), training.tracing->num_lost());
  }
  recorder.finish(trial.records_routing ? &routing : nullptr);
  if (options.on_summary) {
    const std::string line = recorder.summary();
    if (!line.empty()) options.on_summary(line);
  }
  return training.is_interrupted ? spec::ExitCode::interrupted : spec::ExitCode::ok;
}

}  // namespace

spec::ExitCode run_trial(const spec::TrialSpec& trial, const std::string& out_dir,
                         const RunOptions& options) {
  if (spec::ranks_of(trial) != spec::RanksAre::processes)
    return run_process(trial, out_dir, options);
  const int rank = local_ranks(trial).front();
  try {
    const spec::ExitCode code = run_process(trial, out_dir, options);
    leave_last_word(out_dir, rank, code, "");
    return code;
  } catch (const std::exception& error) {
    leave_last_word(out_dir, rank, exit_code_of(error), error.what());
    throw;
  }
}

spec::ExitCode exit_code_of(const std::exception& error) {
  using spec::ExitCode;
  const auto is = [&]<typename T>(std::type_identity<T>) {
    return dynamic_cast<const T*>(&error) != nullptr;
  };
  if (const auto* none = dynamic_cast<const base::NoDevice*>(&error)) {
    if (none->why == base::NoDevice::Why::no_driver) return ExitCode::no_driver;
    return none->why == base::NoDevice::Why::no_device ? ExitCode::no_device
                                                       : ExitCode::device_too_old;
  }
  // The host's memory, not the device's, which has a ledger.
  if (is(std::type_identity<base::EnvironmentFailure>{}) ||
      is(std::type_identity<std::bad_alloc>{}))
    return ExitCode::environment;
  if (is(std::type_identity<base::OutOfMemory>{})) return ExitCode::oom;
  if (is(std::type_identity<base::WrongNumbers>{})) return ExitCode::wrong;
  if (is(std::type_identity<base::UsageError>{})) return ExitCode::usage;
  if (is(std::type_identity<base::DeviceFailed>{})) return ExitCode::device_failed;
  if (is(std::type_identity<base::PeerFailed>{})) return ExitCode::peer_failed;
  return ExitCode::failed;
}

}  // namespace moetune::engine
