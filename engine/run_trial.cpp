// Running and recording of a trial; see run_trial.h.
#include "engine/run_trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/last_word.h"
#include "engine/routing_recorder.h"
#include "engine/watchdog.h"
#include "engine/world_run.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/across_ranks.h"
#include "profiler/cupti_recorder.h"
#include "profiler/device_counters.h"
#include "profiler/device_trace.h"
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
  /// `ranks`: those of this process.
  TrialRecorder(const spec::TrialSpec& trial, const std::string& out_dir,
                const std::vector<int>& ranks)
      : trial_(trial),
        is_leader_(trial.communicator != "nccl" || ranks.front() == 0),
        shard_(fmt::format("{}/shard-{}.db", out_dir, is_leader_ ? 0 : ranks.front())),
        progress_path_(out_dir + "/progress") {
    for (const int rank : ranks) traces_[rank];
  }

  /// Of a traced step, before add_step.
  void add_trace(int rank, profiler::StepTrace trace) {
    traces_.at(rank).push_back(std::move(trace));
  }

  /// By the first rank of the process.
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
    if (!row.is_warmup && !row.is_traced) step_ns_.push_back(result.step_ns);
    if (row.is_traced && step + 1 == spec::total_steps(trial_)) add_traces();
    if (!is_leader_) return shard_.commit();
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

  /// What the device holds beside the ledger's allocations, of one rank; the driver's number is of
  /// all ranks on the device.
  void add_device_memory(int rank, const kernels::DeviceMemoryAccount& account,
                         int64_t ledger_bytes, int64_t arena_bytes) {
    if (account.driver_used_bytes == 0) return;
    nlohmann::json lines = nlohmann::json::array();
    lines.push_back({{"name", "peak of the ledger"}, {"bytes", ledger_bytes}});
    lines.push_back({{"name", "arenas beyond it"}, {"bytes", arena_bytes - ledger_bytes}});
    for (const auto& line : account.lines) {
      lines.push_back({{"name", line.name}, {"bytes", line.bytes}});
    }
    device_memory_.push_back({{"rank", rank}, {"lines", std::move(lines)}});
    driver_used_bytes_ = std::max(driver_used_bytes_, account.driver_used_bytes);
  }

  void add_skipped(int64_t num_steps) {
    shard_.add_metric(-1, "num_skipped_steps", static_cast<double>(num_steps));
  }

  void add_workspaces(int rank, int64_t bytes) {
    shard_.add_metric(rank, "kernel_workspace_bytes", static_cast<double>(bytes));
  }

  void add_graphs(int rank, const Graphs& graphs) {
    shard_.add_metric(rank, "num_graphs", static_cast<double>(graphs.num_graphs()));
    shard_.add_metric(rank, "num_graph_replays", static_cast<double>(graphs.num_replays()));
    shard_.add_metric(rank, "num_graphs_given_up", static_cast<double>(graphs.num_given_up()));
  }

  /// Of a traced step: what the tracing interface says it has cost, over all threads.
  void add_tracing_overhead(int64_t ns) { tracing_overhead_ns_.push_back(ns); }
  /// Of a traced step, after its traces.
  void add_counters(const profiler::CounterSums& counters) { counters_.push_back(counters); }
  void add_text(const std::string& key, const std::string& value) { shard_.add_text(key, value); }

  void finish(const RoutingRecorder* routing) {
    if (!device_memory_.empty()) {
      shard_.add_text("device_memory", nlohmann::json{{"ranks", device_memory_},
                                                      {"driver_used_bytes", driver_used_bytes_}}
                                           .dump());
    }
    shard_.add_metric(-1, "wall_step_ns", median(wall_ns_));
    if (!traced_wall_ns_.empty()) {
      const double traced_ns = median(traced_wall_ns_);
      shard_.add_metric(-1, "wall_traced_step_ns", traced_ns);
      if (!wall_ns_.empty()) {
        shard_.add_metric(-1, "tracing_wall_overhead_ratio", traced_ns / median(wall_ns_) - 1.0);
      }
    }
    if (!tracing_overhead_ns_.empty()) {
      shard_.add_metric(-1, "tracing_interface_ns", median(tracing_overhead_ns_));
    }
    if (routing != nullptr) {
      shard_.add_text("routing_profile", spec::to_json(routing->profile()).dump());
    }
    shard_.commit();
  }

  /// Empty when no step was timed, and in all but one of several processes.
  [[nodiscard]] std::string summary() const {
    if (step_ns_.empty() || !is_leader_) return "";
    const double step_ns = median(step_ns_);
    std::string line = fmt::format("{} per step, median of {} steps",
                                   base::format_ns(static_cast<int64_t>(step_ns)), step_ns_.size());
    const auto add_overhead = [&](const char* clock, const std::vector<int64_t>& traced,
                                  double untraced_ns) {
      if (traced.empty() || untraced_ns <= 0) return;
      line += fmt::format("; tracing {:+.1f} % of {}", 100.0 * (median(traced) / untraced_ns - 1),
                          clock);
    };
    const bool is_virtual = trial_.clock != "wall";
    add_overhead(is_virtual ? "virtual time" : "the step", traced_step_ns_, step_ns);
    if (is_virtual) add_overhead("real time", traced_wall_ns_, median(wall_ns_));
    return line;
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
    // A build without CUPTI has no traces of a device.
    std::erase_if(traces_, [&](const auto& of_rank) { return of_rank.second.size() <= chosen; });
    if (trial_.backend == "cuda") {
      std::vector<profiler::StepTrace*> ranks;
      for (auto& [rank, steps] : traces_) ranks.push_back(&steps.at(chosen));
      profiler::resolve_transfers(ranks, plan::group_instances(plan::layout_of(trial_.knobs)));
    }
    if (chosen < counters_.size()) write_counters(counters_[chosen]);
    for (const auto& [rank, steps] : traces_) {
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

  void write_counters(const profiler::CounterSums& counters) {
    const auto add = [&](const char* name, const auto& value) {
      if (value) shard_.add_metric(-1, name, static_cast<double>(*value));
    };
    add("sm_active_ratio", counters.sm_active_ratio);
    add("tensor_active_ratio", counters.tensor_active_ratio);
    add("dram_read_bytes", counters.dram_read_bytes);
    add("dram_write_bytes", counters.dram_write_bytes);
  }

  const spec::TrialSpec& trial_;
  bool is_leader_;  ///< of all processes, the one whose shard and progress the parent reads
  store::ShardWriter shard_;
  std::string progress_path_;
  std::map<int, std::vector<profiler::StepTrace>> traces_;  ///< by rank, then traced step
  nlohmann::json device_memory_ = nlohmann::json::array();
  int64_t driver_used_bytes_ = 0;
  std::vector<profiler::CounterSums> counters_;  ///< by traced step
  std::vector<int64_t> tracing_overhead_ns_;     ///< by traced step
  std::vector<int64_t> step_ns_;
  std::vector<int64_t> traced_step_ns_;
  std::vector<int64_t> wall_ns_;
  std::vector<int64_t> traced_wall_ns_;
  std::mutex mutex_;
};

/// The traces of a device: one recorder for all ranks of the process, started and read by the first
/// of them.
class DeviceTracing {
 public:
  DeviceTracing(const spec::TrialSpec& trial, const std::vector<int>& ranks) {
    // Counters end after the recorder, which is therefore made after them.
    if (trial.counts_hardware) {
      profiler::CounterOptions counter_options;
      counter_options.device = local_device(trial);
      counters_ = profiler::make_device_counters(counter_options);
    }
    const profiler::TraceLevel level = trace_level(trial.trace);
    profiler::DeviceRecorderOptions options;
    options.detail = level == profiler::TraceLevel::all ? profiler::DeviceDetail::all
                                                        : profiler::DeviceDetail::launches;
    counts_overhead_ = options.detail == profiler::DeviceDetail::all;
    options.ranks = {ranks.begin(), ranks.end()};
    recorder_ = profiler::make_cupti_recorder(options);
  }

  void begin(int64_t step) {
    if (!recorder_) return;
    if (!is_set_up_) {
      // The first step that it records would pay for what it sets up.
      recorder_->begin_step(static_cast<int>(step));
      static_cast<void>(recorder_->end_step());
      is_set_up_ = true;
    }
    if (counters_) counters_->begin_step();
    recorder_->begin_step(static_cast<int>(step));
  }

  void end(TrialRecorder& recorder) {
    if (!recorder_) return;
    profiler::DeviceStep step = recorder_->end_step();
    profiler::CounterWindow window;
    for (profiler::RankStep& rank : step.ranks) {
      window = {rank.trace.start_ns, rank.trace.end_ns};
      const int id = rank.trace.rank;
      recorder.add_trace(id, std::move(rank.trace));
    }
    missing_ = profiler::missing_text(step.facts);
    if (counts_overhead_ && recorder_->is_active()) {
      int64_t overhead_ns = 0;
      for (const profiler::OverheadSum& overhead : step.facts.overheads) overhead_ns += overhead.ns;
      recorder.add_tracing_overhead(overhead_ns);
    }
    if (!counters_ || step.ranks.empty()) return;
    // Between the two ends lies the reading of the trace, which is not part of the step.
    const profiler::CounterStep counted = counters_->end_step();
    recorder.add_counters(counted.is_on_wall_clock
                              ? profiler::sum_counters(counted.samples, window)
                              : static_cast<const profiler::CounterSums&>(counted));
  }

  [[nodiscard]] profiler::DeviceRecorder* recorder() const { return recorder_.get(); }
  /// Why the trace is empty or not complete; empty when it is.
  [[nodiscard]] std::string note() const {
    if (!recorder_) return "this build has no CUPTI: steps on the device are not traced";
    std::vector<std::string> notes = {recorder_->note(), missing_};
    if (counters_) notes.push_back(counters_->note());
    std::erase(notes, std::string());
    return fmt::format("{}", fmt::join(notes, " "));
  }
  [[nodiscard]] int64_t device_buffer_bytes() const {
    return (recorder_ ? recorder_->device_buffer_bytes() : 0) +
           (counters_ ? counters_->buffer_bytes() : 0);
  }

 private:
  std::unique_ptr<profiler::DeviceCounters> counters_;
  std::unique_ptr<profiler::DeviceRecorder> recorder_;
  bool is_set_up_ = false;
  bool counts_overhead_ = false;  ///< that the tracing interface reports of itself
  std::string missing_;
};

/// A gradient that is no number, on one rank, from the fault's step on.
void inject_gradient(const spec::TrialSpec& trial, int64_t step, int rank, const Parameters& params,
                     kernels::Backend& backend) {
  const spec::InjectedFault& fault = trial.fault;
  if (fault.kind != "nan_gradient" || fault.rank != rank || step < fault.step) return;
  const kernels::Tensor& gradient = params.buckets().front().grad;
  // All bits set are a NaN in every type.
  const std::vector<uint8_t> bits(static_cast<size_t>(base::size_of(gradient.dtype)), 0xFF);
  backend.copy_to_device(gradient.data, bits.data(), static_cast<int64_t>(bits.size()));
}

/// Compares losses with the reference run's as they come. A token that a rounding difference sends
/// to another expert makes single steps differ either way; what is judged is the mean difference of
/// the last kMeanSteps.
class LossCheck {
 public:
  explicit LossCheck(const spec::TrialSpec& trial) : trial_(trial) {}

  /// Throws base::WrongNumbers. A skipped step has no loss to compare.
  void add(int64_t step, const StepResult& result) {
    if (result.is_skipped) return;
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
      throw base::WrongNumbers(fmt::format("step {}: loss {} and gradient norm {} must be finite",
                                           step, result.loss, result.grad_norm));
    }
    // What a fake world's other ranks bring is made up.
    if (trial_.communicator == "fake") return;
    if (step >= static_cast<int64_t>(trial_.reference_loss.size())) return;
    const double expected = trial_.reference_loss[static_cast<size_t>(step)];
    differences_.push_back(result.loss - expected);
    if (differences_.size() > kMeanSteps) differences_.pop_front();
    const double mean = std::accumulate(differences_.begin(), differences_.end(), 0.0) /
                        static_cast<double>(differences_.size());
    const double allowed = spec::reference_tolerance_at(trial_, step);
    if (std::abs(mean) <= allowed) return;
    throw base::WrongNumbers(fmt::format(
        "step {}: loss {:.6f} is off the reference run's {:.6f}; over the last {} steps by {:.2g} "
        "in the mean, allowed are {:.2g}",
        step, result.loss, expected, differences_.size(), mean, allowed));
  }

 private:
  static constexpr size_t kMeanSteps = 10;

  const spec::TrialSpec& trial_;
  std::deque<double> differences_;
};

/// What the ranks of this process share while they train.
struct Training {
  const spec::TrialSpec& trial;
  const TokenSource& tokens;
  std::vector<int> ranks;  ///< of this process
  TrialRecorder& recorder;
  std::unique_ptr<DeviceTracing> tracing;  ///< on a device, when steps are traced
  std::unique_ptr<Watchdog> watchdog;      ///< on a device
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
  if (training.trial.backend != "cuda") {
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
  int64_t num_skipped = 0;
  LossCheck losses(trial);
  for (int64_t step = 0; step < num_steps; ++step) {
    if (training.watchdog && training.is_first(rank)) {
      training.watchdog->beat(fmt::format("step {} of {}", step + 1, num_steps));
    }
    if (world.join_max(g_is_stop_asked) != 0) {
      training.is_interrupted = true;
      break;
    }
    inject_fault(trial.fault, step, rank);
    const auto level = step >= first_traced ? trace_level(trial.trace) : profiler::TraceLevel::none;
    int64_t own_wall_ns = 0;
    StepResult result = run_step(training, trainer, world, rank, step, level, own_wall_ns);
    const bool is_nan_asked = trial.fault.kind == "nan" && trial.fault.step == step;
    if (is_nan_asked) result.loss = std::nan("");
    const int64_t wall_step_ns = world.join_max(own_wall_ns);
    if (training.is_first(rank)) {
      training.recorder.add_step(step, result, wall_step_ns, trainer.num_launches());
    }
    num_skipped += result.is_skipped ? 1 : 0;
    losses.add(step, result);
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
  if (training.is_first(rank) && trial.backend == "cuda") {
    training.recorder.add_text("device_kernels", trainer.backend().kernels_note());
  }
  training.recorder.add_memory(rank, trainer.ledger());
  training.recorder.add_device_memory(rank, account, trainer.ledger().peak_bytes(),
                                      trainer.held_bytes());
  if (trial.backend == "cuda") {
    training.recorder.add_workspaces(rank, trainer.workspace_bytes());
    training.recorder.add_graphs(rank, trainer.graphs());
  }
}

void check_can_run(const spec::TrialSpec& trial) {
  const std::vector<spec::Violation> violations =
      spec::check_constraints(trial.model, trial.hardware, trial.training, trial.knobs);
  if (!violations.empty()) {
    throw base::UsageError(
        fmt::format("{}: {}", violations.front().rule, violations.front().message));
  }
  const std::string missing = missing_in_build(trial);
  if (!missing.empty()) throw base::UsageError(missing);
  if (trial.communicator == "nccl" && spec::num_virtual_stages(trial.knobs) > 1) {
    throw base::UsageError(
        "virtual stages need messages with tags, which communicator 'nccl' does not have yet; it "
        "would be right: virtual_pipeline_model_parallel_size 1");
  }
  if (trial.model.vocab_size < 256) {
    throw base::UsageError(
        fmt::format("vocab_size {} is too small for text read as bytes; it must be at least 256",
                    trial.model.vocab_size));
  }
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
  TrialRecorder recorder(trial, out_dir, ranks);
  const bool is_one_of_several = trial.communicator == "nccl";
  if (is_one_of_several) recorder.add_text("clock_id", clock_id());
  RoutingRecorder routing(trial);
  TrainerHooks hooks;
  if (trial.records_routing) hooks.observers.routing = &routing;
  hooks.on_zeroed = [&trial](int64_t step, int rank, const Parameters& params,
                             kernels::Backend& backend) {
    inject_gradient(trial, step, rank, params, backend);
  };
  Training training{trial, tokens, ranks, recorder, nullptr, nullptr};
  if (trial.backend == "cuda") {
    training.watchdog =
        std::make_unique<Watchdog>(options.step_limit, [&](const std::string& what) {
          const std::string message = hung_text(what, options.step_limit);
          if (is_one_of_several) {
            leave_last_word(out_dir, ranks.front(), spec::ExitCode::hung, message);
          }
          leave_hung(message);
        });
    if (trial.trace != "none" && trial.num_traced_steps > 0) {
      training.tracing = std::make_unique<DeviceTracing>(trial, ranks);
    }
  }
  try {
    run_ranks(
        trial, hooks,
        [&](RankTrainer& trainer, World& world, int rank) {
          train(training, trainer, world, rank);
        },
        out_dir + "/rendezvous");
  } catch (const std::exception& error) {
    recorder.fail(error.what());
    throw;
  }
  if (training.tracing) {
    const std::string note = training.tracing->note();
    if (!note.empty()) recorder.add_text("trace_note", note);
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
  if (trial.communicator != "nccl") return run_process(trial, out_dir, options);
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
  if (is(std::type_identity<base::OutOfMemory>{})) return ExitCode::oom;
  if (is(std::type_identity<base::WrongNumbers>{})) return ExitCode::wrong;
  if (is(std::type_identity<base::UsageError>{})) return ExitCode::usage;
  if (is(std::type_identity<base::DeviceFailed>{})) return ExitCode::device_failed;
  if (is(std::type_identity<base::PeerFailed>{})) return ExitCode::peer_failed;
  return ExitCode::failed;
}

}  // namespace moetune::engine
