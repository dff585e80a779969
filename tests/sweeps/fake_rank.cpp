// A stand-in for moetune-rank: same command line, files and exit codes, but its steps cost nothing
// and its times come from a formula. Obeys the spec's `fault`. The environment makes it misbehave
// in ways that a spec cannot ask for.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/spec/json_reader.h"
#include "engine/spec/layout.h"
#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "profiler/store/shard.h"

namespace {

using namespace moetune;
using spec::ExitCode;

volatile std::sig_atomic_t is_asked_to_stop = 0;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void leave(ExitCode code, const std::string& message = "") {
  if (!message.empty()) std::cerr << "moetune-rank: " << message << std::endl;
  std::exit(static_cast<int>(code));
}

/// Sleeps, and leaves when asked to stop.
void rest(int milliseconds) {
  for (int passed = 0; passed <= milliseconds; passed += 5) {
    if (is_asked_to_stop != 0) leave(ExitCode::interrupted, "stopped");
    if (passed < milliseconds) usleep(5000);
  }
}

/// One compute kernel, one collective and the host's share per rank.
profiler::StepTrace trace_of(int rank, int step, int64_t step_ns, const std::string& group) {
  profiler::StepTrace trace{rank, step, 0, step_ns, {}};
  profiler::TraceRecord kernel;
  kernel.rank = rank;
  kernel.step = step;
  kernel.name = "expert_fc1.forward";
  kernel.launch_end_ns = 1000;
  kernel.start_ns = 1000;
  kernel.end_ns = step_ns / 2;
  kernel.flops = 1000;
  profiler::TraceRecord collective = kernel;
  collective.id = 1;
  collective.kind = profiler::RecordKind::collective;
  collective.stream = 1;
  collective.name = "dispatch.forward";
  collective.group = group;
  collective.start_ns = kernel.end_ns;
  collective.end_ns = step_ns - 1000;
  collective.transfer_ns = collective.end_ns - collective.start_ns;
  collective.bytes = 4096;
  collective.flops = 0;
  collective.sequence = 0;
  collective.producer_id = 0;
  profiler::TraceRecord last = kernel;
  last.id = 2;
  last.name = "adamw.update";
  last.start_ns = collective.end_ns;
  last.end_ns = step_ns;
  last.producer_id = 1;
  trace.records = {kernel, collective, last};
  return trace;
}

void add_memory(store::ShardWriter& shard, const spec::TrialSpec& trial, int64_t peak) {
  for (int rank = 0; rank < spec::layout_of(trial.knobs).world_size(); ++rank) {
    store::ShardMemory memory;
    memory.rank = rank;
    memory.peak_bytes = peak;
    memory.capacity_bytes = trial.hardware.memory_bytes;
    memory.peak_by_group[0] = peak;
    memory.peak_allocation = "qkv";
    shard.add_memory(memory);
  }
}

void act_on_fault(const spec::InjectedFault& fault, store::ShardWriter& shard, int64_t step) {
  if (fault.kind.empty() || fault.step != step) return;
  if (fault.kind == "crash") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    raise(SIGSEGV);
  }
  if (fault.kind == "kill") raise(SIGKILL);
  if (fault.kind == "error") leave(ExitCode::failed, "a planned error");
  while (fault.kind == "hang") rest(1000);
  if (fault.kind == "nan") {
    store::ShardStep broken;
    broken.step = step;
    broken.loss = std::nan("");
    shard.add_step(broken);
    shard.commit();
    leave(ExitCode::wrong, "loss is NaN in step " + std::to_string(step));
  }
}

void run(const spec::TrialSpec& trial, const std::string& folder) {
  store::ShardWriter shard(folder + "/shard-0.db");
  const auto violations =
      spec::check_constraints(trial.model, trial.hardware, trial.training, trial.knobs);
  if (!violations.empty()) leave(ExitCode::usage, violations.front().message);
  const int64_t peak = trial.knobs.micro_batch_size * 300'000;
  if (trial.hardware.memory_bytes > 0 && peak > trial.hardware.memory_bytes) {
    add_memory(shard, trial, trial.hardware.memory_bytes);
    shard.commit();
    leave(ExitCode::oom, "out of memory on rank 0: 'qkv'");
  }
  if (environment("FAKE_RANK_STOPS_EARLY") == "yes") return;
  const std::string pause = environment("FAKE_RANK_STEP_MS");
  const int64_t step_ns = 1'000'000 + 500'000 / trial.knobs.ep_chunks_forward;
  for (int64_t step = 0; step < spec::total_steps(trial); ++step) {
    rest(pause.empty() ? 0 : std::stoi(pause));
    act_on_fault(trial.fault, shard, step);
    store::ShardStep row;
    row.step = step;
    row.is_warmup = step < trial.num_warmup_steps;
    row.is_traced = step >= trial.num_warmup_steps + trial.num_steps;
    row.step_ns = row.is_traced ? step_ns * 11 / 10 : step_ns;
    row.loss = 5.0 / static_cast<double>(step + 1);
    shard.add_step(row);
    if (row.is_traced) {
      for (int rank = 0; rank < spec::layout_of(trial.knobs).world_size(); ++rank) {
        shard.add_trace(trace_of(rank, static_cast<int>(step), row.step_ns, "ep"));
        shard.add_op({rank, "expert_fc1.forward", 1, 1000, 10, row.step_ns / 2});
      }
    }
    shard.commit();
    std::ofstream(folder + "/progress")
        << "step " << step + 1 << " of " << spec::total_steps(trial) << "\n";
  }
  add_memory(shard, trial, peak);
  for (const auto& [name, variable] : {std::pair{"device_memory", "FAKE_RANK_DEVICE_MEMORY"},
                                       std::pair{"trace_note", "FAKE_RANK_TRACE_NOTE"}}) {
    const std::string text = environment(variable);
    if (!text.empty()) shard.add_text(name, text);
  }
  if (!environment("FAKE_RANK_GRAPHS").empty()) {
    for (int rank = 0; rank < 2; ++rank) {
      shard.add_metric(rank, "num_graphs", 3);
      shard.add_metric(rank, "num_graph_replays", 40 + rank);
      shard.add_metric(rank, "num_graphs_given_up", rank);
    }
  }
  if (trial.records_routing) shard.add_text("routing_profile", "{\"a\": 1}");
  shard.commit();
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(
      SIGTERM,
      environment("FAKE_RANK_IS_STUBBORN") == "yes" ? SIG_IGN : [](int) { is_asked_to_stop = 1; });
  if (argc != 5 || std::string(argv[1]) != "--spec" || std::string(argv[3]) != "--out") {
    leave(ExitCode::usage, "usage: --spec FILE --out DIR");
  }
  try {
    std::ifstream file(argv[2]);
    std::stringstream text;
    text << file.rdbuf();
    const spec::TrialSpec trial =
        spec::trial_spec_from_json(spec::parse_json(text.str(), argv[2]), argv[2]);
    const std::string log = environment("FAKE_RANK_LOG");
    if (!log.empty()) {
      std::ofstream(log, std::ios::app) << spec::spec_hash(trial) << " " << getpid() << std::endl;
    }
    if (environment("FAKE_RANK_BREAKS_SHARD") == "yes") {
      std::ofstream(std::string(argv[4]) + "/shard-0.db") << "this is no database";
      return 0;
    }
    run(trial, argv[4]);
  } catch (const base::UsageError& error) {
    leave(ExitCode::usage, error.what());
  } catch (const std::exception& error) {
    leave(ExitCode::failed, error.what());
  }
  return 0;
}
