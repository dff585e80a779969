// A stand-in for moetune-rank: same command line, files and exit codes, but its steps cost nothing
// and its times come from a formula. Obeys the spec's `fault`. The environment makes it misbehave
// in ways that a spec cannot ask for.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/plan/layout.h"
#include "engine/spec/json_reader.h"
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

/// Which of how many processes this is: communicator nccl.
struct Place {
  std::string folder;
  int rank = -1;  ///< -1: there is only one process
  int num_ranks = 0;

  [[nodiscard]] bool is_one_of_several() const { return rank >= 0; }
};
Place place;

// As moetune-rank leaves it.
void leave_last_word(ExitCode code, const std::string& message) {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string path = place.folder + "/last-word-" + std::to_string(place.rank) + ".json";
  std::ofstream(path + ".part") << nlohmann::json{
      {"code", static_cast<int>(code)},
      {"message", message},
      {"time_ns", std::chrono::duration_cast<nanoseconds>(now).count()}};
  std::filesystem::rename(path + ".part", path);
}

[[noreturn]] void leave(ExitCode code, const std::string& message = "") {
  if (place.is_one_of_several()) leave_last_word(code, message);
  if (!message.empty()) std::cerr << "moetune-rank: " << message << std::endl;
  std::exit(static_cast<int>(code));
}

// Whoever dies says so here, as a connection that closes would.
std::string obituary(int rank) { return place.folder + "/obituary-" + std::to_string(rank); }

void look_for_dead_peers() {
  if (environment("FAKE_RANK_IGNORES_PEERS") == "yes") return;
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    if (rank == place.rank || !std::filesystem::exists(obituary(rank))) continue;
    leave(ExitCode::peer_failed, "rank " + std::to_string(rank) + " is gone");
  }
}

/// Sleeps, and leaves when asked to stop.
void rest(int milliseconds) {
  for (int passed = 0; passed <= milliseconds; passed += 5) {
    if (is_asked_to_stop != 0) leave(ExitCode::interrupted, "stopped");
    if (passed < milliseconds) usleep(5000);
  }
}

/// Until all ranks have come to this step, or one is dead.
void meet(int64_t step) {
  if (environment("FAKE_RANK_MEETS") == "no") return;
  const std::string place_of_step = place.folder + "/at-" + std::to_string(step) + "-";
  std::ofstream(place_of_step + std::to_string(place.rank)) << "x";
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    while (!std::filesystem::exists(place_of_step + std::to_string(rank))) {
      look_for_dead_peers();
      rest(5);
    }
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

std::vector<int> own_ranks(const spec::TrialSpec& trial) {
  if (place.is_one_of_several()) return {place.rank};
  std::vector<int> all;
  for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) all.push_back(rank);
  return all;
}

/// Of one of several processes: odd ranks come later to the collective, and have another clock.
void tell_apart(profiler::StepTrace& trace) {
  if (trace.rank % 2 == 0) return;
  trace.records[1].start_ns += 2000;
  trace.records[1].transfer_ns -= 2000;
  constexpr int64_t kAheadNs = 1'000'000'000;
  trace.start_ns += kAheadNs;
  trace.end_ns += kAheadNs;
  for (profiler::TraceRecord& record : trace.records) {
    for (int64_t* time :
         {&record.launch_start_ns, &record.launch_end_ns, &record.start_ns, &record.end_ns}) {
      *time += kAheadNs;
    }
  }
}

void add_memory(store::ShardWriter& shard, const spec::TrialSpec& trial, int64_t peak) {
  for (const int rank : own_ranks(trial)) {
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
  if (fault.kind == spec::FaultKind::none || fault.step != step) return;
  if (place.is_one_of_several()) {
    if (fault.rank != place.rank) return;
    if (fault.kind != spec::FaultKind::hang) std::ofstream(obituary(place.rank)) << "x";
  }
  if (fault.kind == spec::FaultKind::crash) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    raise(SIGSEGV);
  }
  if (fault.kind == spec::FaultKind::kill) raise(SIGKILL);
  if (fault.kind == spec::FaultKind::error) leave(ExitCode::failed, "a planned error");
  while (fault.kind == spec::FaultKind::hang) rest(1000);
  if (fault.kind == spec::FaultKind::nan) {
    store::ShardStep broken;
    broken.step = step;
    broken.loss = std::nan("");
    shard.add_step(broken);
    shard.commit();
    leave(ExitCode::wrong, "loss is NaN in step " + std::to_string(step));
  }
}

/// A run that is compared with a reference and as long as a validation ends as
/// FAKE_RANK_LONG_RUN says: the name of a fault, or "oom".
constexpr int64_t kLongSteps = 12;
spec::TrialSpec with_long_run_fault(spec::TrialSpec trial) {
  const std::string name = environment("FAKE_RANK_LONG_RUN");
  if (name.empty() || trial.reference_loss.empty() || trial.num_steps < kLongSteps) return trial;
  if (name == "oom") trial.hardware.memory_bytes = 1;
  if (const auto kind = spec::find_by_name<spec::FaultKind>(name)) trial.fault.kind = *kind;
  trial.fault.step = 2;
  return trial;
}

void run(const spec::TrialSpec& trial, const std::string& folder) {
  store::ShardWriter shard(folder + "/shard-" + std::to_string(std::max(place.rank, 0)) + ".db");
  const bool is_leader = place.rank <= 0;
  if (place.is_one_of_several()) {
    shard.add_text("clock_id", place.rank % 2 == 0 ? "this" : "another");
  }
  const auto violations = spec::check_constraints(spec::parts_of(trial));
  if (!violations.empty()) leave(ExitCode::usage, violations.front().message);
  const int64_t peak = trial.knobs.micro_batch_size * 300'000;
  if (trial.hardware.memory_bytes > 0 && peak > trial.hardware.memory_bytes) {
    add_memory(shard, trial, trial.hardware.memory_bytes);
    shard.commit();
    leave(ExitCode::oom, "out of memory on rank 0: 'qkv'");
  }
  if (environment("FAKE_RANK_STOPS_EARLY") == "yes") return;
  const std::string pause = environment("FAKE_RANK_STEP_MS");
  const bool is_diverging = environment("FAKE_RANK_DIVERGES") == "yes";
  const int64_t step_ns = 1'000'000 + 500'000 / trial.knobs.ep_chunks_forward;
  for (int64_t step = 0; step < spec::total_steps(trial); ++step) {
    rest(pause.empty() ? 0 : std::stoi(pause));
    if (place.is_one_of_several()) meet(step);
    act_on_fault(trial.fault, shard, step);
    store::ShardStep row;
    row.step = step;
    row.is_warmup = step < trial.num_warmup_steps;
    row.is_traced = step >= trial.num_warmup_steps + trial.num_steps;
    row.step_ns = row.is_traced ? step_ns * 11 / 10 : step_ns;
    row.loss = 5.0 / static_cast<double>(step + 1);
    if (is_diverging && step > 0) row.loss = 200.0 * static_cast<double>(step);
    shard.add_step(row);
    if (row.is_traced) {
      for (const int rank : own_ranks(trial)) {
        profiler::StepTrace trace = trace_of(rank, static_cast<int>(step), row.step_ns, "ep");
        if (place.is_one_of_several()) tell_apart(trace);
        shard.add_trace(trace);
        // Only of one step, as moetune-rank writes them.
        if (step + 1 < spec::total_steps(trial)) continue;
        shard.add_op({rank, "expert_fc1.forward", 1, 1000, 10, row.step_ns / 2});
      }
    }
    shard.commit();
    if (!is_leader) continue;
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
  if (argc < 5 || argc % 2 == 0 || std::string(argv[1]) != "--spec" ||
      std::string(argv[3]) != "--out") {
    leave(ExitCode::usage, "usage: --spec FILE --out DIR [--saved-run DIR]");
  }
  for (int i = 5; i < argc; i += 2) {
    // As a run that is kept on its way.
    if (std::string(argv[i]) == "--saved-run") std::filesystem::create_directory(argv[i + 1]);
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
    if (const std::string code = environment("FAKE_RANK_EXIT"); !code.empty()) {
      leave(static_cast<ExitCode>(std::stoi(code)), "what it needs is not there");
    }
    if (environment("FAKE_RANK_BREAKS_SHARD") == "yes") {
      std::ofstream(std::string(argv[4]) + "/shard-0.db") << "this is no database";
      return 0;
    }
    if (trial.communicator == spec::CommunicatorKind::nccl) {
      const bool is_slurm = !environment("SLURM_PROCID").empty();
      place = {argv[4], std::stoi(environment(is_slurm ? "SLURM_PROCID" : "RANK")),
               plan::layout_of(trial.knobs).world_size()};
    }
    run(with_long_run_fault(trial), argv[4]);
    if (place.is_one_of_several()) leave_last_word(ExitCode::ok, "");
  } catch (const base::UsageError& error) {
    leave(ExitCode::usage, error.what());
  } catch (const std::exception& error) {
    leave(ExitCode::failed, error.what());
  }
  return 0;
}
