// Running and recording of a trial; see run_trial.h.
#include "engine/run_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "engine/routing_recorder.h"
#include "engine/world_run.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "profiler/store/shard.h"

namespace moetune::engine {
namespace {

// Written by the signal handler, read by all rank threads.
std::atomic<int> g_is_stop_asked{0};
static_assert(std::atomic<int>::is_always_lock_free);

void ask_stop(int /*signal*/) { g_is_stop_asked = 1; }

profiler::TraceLevel trace_level(const std::string& name) {
  if (name == "none") return profiler::TraceLevel::none;
  return name == "all" ? profiler::TraceLevel::all : profiler::TraceLevel::ops;
}

// Breaks the trial on purpose where the spec asks for it, so that the tuner's handling can be
// tested.
void inject_fault(const spec::InjectedFault& fault, int64_t step, int rank) {
  if (fault.kind.empty() || fault.step != step || fault.rank != rank) return;
  if (fault.kind == "crash") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    std::raise(SIGSEGV);
  }
  if (fault.kind == "kill") std::raise(SIGKILL);
  if (fault.kind == "error") throw base::Error("injected error");
  while (fault.kind == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
}

double median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? static_cast<double>(values[n / 2])
                    : 0.5 * static_cast<double>(values[n / 2 - 1] + values[n / 2]);
}

/// Writes what the ranks report; used by one thread at a time.
class TrialRecorder {
 public:
  TrialRecorder(const spec::TrialSpec& trial, const std::string& out_dir)
      : trial_(trial),
        shard_(out_dir + "/shard-0.db"),
        progress_path_(out_dir + "/progress"),
        traces_(static_cast<size_t>(spec::layout_of(trial.knobs).world_size())) {}

  /// Of a traced step, before add_step.
  void add_trace(int rank, profiler::StepTrace trace) {
    traces_[static_cast<size_t>(rank)].push_back(std::move(trace));
  }

  void add_step(int64_t step, const StepResult& result, int64_t wall_step_ns, int64_t launches) {
    store::ShardStep row;
    row.step = step;
    row.is_warmup = step < trial_.num_warmup_steps;
    row.is_traced = step >= trial_.num_warmup_steps + trial_.num_steps;
    row.step_ns = result.step_ns;
    row.loss = result.loss;
    row.aux_loss = result.aux_loss;
    row.z_loss = result.z_loss;
    row.grad_norm = result.grad_norm;
    row.lr = result.lr;
    shard_.add_step(row);
    if (!row.is_warmup) (row.is_traced ? traced_wall_ns_ : wall_ns_).push_back(wall_step_ns);
    if (row.is_traced) traced_step_ns_.push_back(result.step_ns);
    if (row.is_traced && step + 1 == spec::total_steps(trial_)) add_traces();
    if (step == 0) shard_.add_metric(0, "num_launches", static_cast<double>(launches));
    shard_.commit();
    std::ofstream(progress_path_) << fmt::format("step {} of {}\n", step + 1,
                                                 spec::total_steps(trial_));
  }

  void add_memory(int rank, const profiler::MemoryLedger& ledger) {
    shard_.add_memory({rank, ledger.peak_bytes(), ledger.capacity_bytes(), ledger.peak_by_group(),
                       ledger.peak_allocation()});
    shard_.add_metric(rank, "num_allocations", static_cast<double>(ledger.num_allocations()));
  }

  void finish(const RoutingRecorder* routing) {
    shard_.add_metric(-1, "wall_step_ns", median(wall_ns_));
    if (!traced_wall_ns_.empty()) {
      const double traced_ns = median(traced_wall_ns_);
      shard_.add_metric(-1, "wall_traced_step_ns", traced_ns);
      if (!wall_ns_.empty()) {
        shard_.add_metric(-1, "tracing_wall_overhead_ratio", traced_ns / median(wall_ns_) - 1.0);
      }
    }
    if (routing != nullptr) {
      shard_.add_text("routing_profile", spec::to_json(routing->profile()).dump());
    }
    shard_.commit();
  }

  void fail(const std::string& reason) {
    shard_.add_text("reason", reason);
    shard_.commit();
  }

  std::mutex& mutex() { return mutex_; }

 private:
  // One step is kept, the one of median duration: a single slow step should not name the wall.
  void add_traces() {
    std::vector<size_t> order(traced_step_ns_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return traced_step_ns_[a] < traced_step_ns_[b];
    });
    const size_t chosen = order[(order.size() - 1) / 2];
    for (const std::vector<profiler::StepTrace>& steps : traces_) {
      const profiler::StepTrace& trace = steps.at(chosen);
      std::map<std::string, store::ShardOp> ops;
      for (const profiler::TraceRecord& record : trace.records) {
        store::ShardOp& op = ops[record.name];
        op.rank = record.rank;
        op.name = record.name;
        ++op.count;
        op.flops += record.flops;
        op.bytes += record.bytes;
        op.duration_ns += record.end_ns - record.start_ns;
      }
      for (const auto& [name, op] : ops) shard_.add_op(op);
      shard_.add_trace(trace);
    }
  }

  const spec::TrialSpec& trial_;
  store::ShardWriter shard_;
  std::string progress_path_;
  std::vector<std::vector<profiler::StepTrace>> traces_;  ///< by rank, then traced step
  std::vector<int64_t> traced_step_ns_;
  std::vector<int64_t> wall_ns_;
  std::vector<int64_t> traced_wall_ns_;
  std::mutex mutex_;
};

// Why the trial's backend cannot train in this build.
std::string backend_refusal(const std::string& backend) {
  if (kernels::has_cuda()) {
    return fmt::format(
        "backend '{}' is built and its kernels are tested, but the trainer does not run on it yet; "
        "it would be right: cpu",
        backend);
  }
  const std::string missing = MOETUNE_MISSING_CUDA_PARTS;
  return fmt::format(
      "backend '{}' cannot run in this build, which has no CUDA ({}); it would be "
      "right: cpu",
      backend,
      missing.empty() ? "it is a sanitizer build" : "not found when it was built: " + missing);
}

void check_numbers(const spec::TrialSpec& trial, int64_t step, const StepResult& result) {
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw base::WrongNumbers(fmt::format("step {}: loss {} and gradient norm {} must be finite",
                                         step, result.loss, result.grad_norm));
  }
  if (step >= static_cast<int64_t>(trial.reference_loss.size())) return;
  const double expected = trial.reference_loss[static_cast<size_t>(step)];
  const double difference = std::abs(result.loss - expected);
  const double allowed = spec::reference_tolerance_at(trial, step);
  if (!(difference <= allowed)) {
    throw base::WrongNumbers(
        fmt::format("step {}: loss {:.6f} is off the reference run's {:.6f} by {:.2g}, allowed "
                    "are {:.2g}",
                    step, result.loss, expected, difference, allowed));
  }
}

// One rank's life: steps until the end, or until somebody asks for a stop. All ranks decide alike.
void train(const spec::TrialSpec& trial, const TokenSource& tokens, TrialRecorder& recorder,
           std::atomic<bool>& is_interrupted, RankTrainer& trainer, ThreadWorld& world, int rank) {
  const int64_t num_steps = spec::total_steps(trial);
  const int64_t first_traced = trial.num_warmup_steps + trial.num_steps;
  for (int64_t step = 0; step < num_steps; ++step) {
    if (world.join_max(g_is_stop_asked) != 0) {
      is_interrupted = true;
      break;
    }
    inject_fault(trial.fault, step, rank);
    const auto level = step >= first_traced ? trace_level(trial.trace) : profiler::TraceLevel::none;
    const int64_t begin_ns = profiler::wall_ns();
    StepResult result = trainer.step(step, tokens, level);
    const bool is_nan_asked = trial.fault.kind == "nan" && trial.fault.step == step;
    if (is_nan_asked) result.loss = std::nan("");
    if (step >= first_traced) recorder.add_trace(rank, trainer.take_trace());
    const int64_t wall_step_ns = world.join_max(profiler::wall_ns() - begin_ns);
    if (rank == 0) recorder.add_step(step, result, wall_step_ns, trainer.num_launches());
    check_numbers(trial, step, result);
  }
  const std::scoped_lock lock(recorder.mutex());
  recorder.add_memory(rank, trainer.ledger());
}

}  // namespace

spec::ExitCode run_trial(const spec::TrialSpec& trial, const std::string& out_dir) {
  std::signal(SIGTERM, ask_stop);
  std::signal(SIGINT, ask_stop);
  const std::vector<spec::Violation> violations =
      spec::check_constraints(trial.model, trial.hardware, trial.training, trial.knobs);
  if (!violations.empty()) {
    throw base::UsageError(
        fmt::format("{}: {}", violations.front().rule, violations.front().message));
  }
  if (trial.backend != "cpu") {
    throw base::UsageError(backend_refusal(trial.backend));
  }
  if (trial.model.vocab_size < 256) {
    throw base::UsageError(
        fmt::format("vocab_size {} is too small for text read as bytes; it must be at least 256",
                    trial.model.vocab_size));
  }
  spec::Corpus corpus = spec::read_corpus(trial.data_path);
  if (!trial.data_digest.empty() && corpus.digest != trial.data_digest) {
    throw base::UsageError(
        fmt::format("training text '{}' has the digest {}, the trial was planned for {}: the text "
                    "has changed since",
                    trial.data_path, corpus.digest, trial.data_digest));
  }
  const TextSource tokens(std::move(corpus), trial.training, trial.data_path);
  std::filesystem::create_directories(out_dir);
  TrialRecorder recorder(trial, out_dir);
  RoutingRecorder routing(trial);
  TrainerHooks hooks;
  if (trial.records_routing) hooks.routing = &routing;
  std::atomic<bool> is_interrupted{false};
  try {
    run_ranks(trial, hooks, [&](RankTrainer& trainer, ThreadWorld& world, int rank) {
      train(trial, tokens, recorder, is_interrupted, trainer, world, rank);
    });
  } catch (const std::exception& error) {
    recorder.fail(error.what());
    throw;
  }
  recorder.finish(trial.records_routing ? &routing : nullptr);
  return is_interrupted ? spec::ExitCode::interrupted : spec::ExitCode::ok;
}

}  // namespace moetune::engine
