// The way of one trial from spec file to result: its folder, its ranks, their shards, and what is
// kept of a failure.
#include "sweeps/runner.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "engine/plan/layout.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/store/judged_steps.h"
#include "sweeps/analyse.h"
#include "sweeps/host_room.h"
#include "sweeps/merge_shards.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/last_words.h"
#include "sweeps/processes/launched_ranks.h"
#include "sweeps/processes/poll.h"
#include "sweeps/processes/process_group.h"
#include "sweeps/processes/trial_commands.h"
#include "tuner/divergence.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using spec::TrialStatus;

constexpr size_t kMaxReasonBytes = 2000;
constexpr int64_t kMaxLogBytes = 64 << 10;
// What a launcher adds to a signal's number when it passes on how a rank ended.
constexpr int kSignalExitBase = 128;
constexpr int kLastSignal = 64;

bool is_signal_code(int code) {
  return code > kSignalExitBase && code <= kSignalExitBase + kLastSignal;
}

/// The last bytes of a file; empty when there is none.
std::string tail_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const int64_t size = file.tellg();
  file.seekg(std::max<int64_t>(0, size - kMaxLogBytes));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written; is the disk full?", path));
}

void make_empty_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) {
    throw base::Error(fmt::format("{}: the folder cannot be created: {}", path, error.message()));
  }
}

std::string crash_reason(int signal_number) {
  std::string reason = "killed by " + signal_text(signal_number);
  if (signal_number == SIGKILL) reason += ", likely the kernel's out-of-memory killer";
  return reason;
}

std::string or_else(const std::string& text, std::string otherwise) {
  return text.empty() ? std::move(otherwise) : text;
}

/// Behind the last step the result is still to be written.
std::string where_it_ended(const std::string& last_progress) {
  if (last_progress.empty()) return "before the first step";
  const std::optional<int64_t> num_steps = steps_where_all_are_done(last_progress);
  if (!num_steps) return "after " + last_progress;
  return fmt::format("after all {} steps, before its result was written", *num_steps);
}

/// A zero exit code is believed only when the shard holds every step.
void check_complete(const spec::TrialSpec& spec, const store::ShardContents& shard,
                    store::TrialResult& result) {
  const auto num_steps = static_cast<int64_t>(shard.steps.size());
  if (num_steps >= spec::total_steps(spec)) return;
  result.status = spec::name_of(TrialStatus::failed);
  result.reason = fmt::format("the ranks ended without an error after {} of {} steps", num_steps,
                              spec::total_steps(spec));
}

/// Losses that explode are wrong also where there are no others to compare them with. Those of a
/// rank that is alone are made up.
void check_divergence(const spec::TrialSpec& spec, const store::ShardContents& shard,
                      store::TrialResult& result) {
  if (result.status != spec::name_of(TrialStatus::ok) || !spec.reference_loss.empty() ||
      spec::ranks_of(spec) == spec::RanksAre::alone) {
    return;
  }
  std::vector<double> losses;
  for (const store::ShardStep& step : shard.steps) losses.push_back(step.loss);
  const std::optional<tuner::Divergence> divergence = tuner::find_divergence(losses);
  if (!divergence) return;
  result.status = spec::name_of(TrialStatus::wrong);
  result.reason = "the run " + tuner::divergence_text(*divergence, losses, spec.training.lr);
}

}  // namespace

TrialRun::TrialRun(TrialRun&& other) noexcept
    : result(std::move(other.result)),
      is_out_of_time(other.is_out_of_time),
      last_progress(std::move(other.last_progress)),
      folder_(std::exchange(other.folder_, {})) {}

const store::ShardContents& TrialRun::shard() const {
  static const store::ShardContents kNone;
  return result.shards.empty() ? kNone : result.shards.front();
}

TrialRun::~TrialRun() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string last_message(const std::string& stderr_text) {
  constexpr std::string_view kPrefix = "moetune-rank: ";
  std::string message;
  std::istringstream lines(stderr_text);
  bool is_after_prefix = false;
  for (std::string line; std::getline(lines, line);) {
    // Rules that launchers draw say nothing.
    if (line.find_first_not_of(" \t\r-=*#") == std::string::npos) continue;
    if (line.starts_with(kPrefix)) {
      message = line.substr(kPrefix.size());
      is_after_prefix = true;
    } else if (is_after_prefix) {
      message += "\n" + line;
    } else {
      message = line;
    }
  }
  return message.substr(0, kMaxReasonBytes);
}

Ending judge(const WatchEnd& end, const std::string& message, const RunnerOptions& options) {
  const auto ending = [](TrialStatus status, std::string reason) {
    return Ending{std::string(spec::name_of(status)), std::move(reason)};
  };
  const std::string where = where_it_ended(end.last_progress);
  if (end.is_interrupted) return ending(TrialStatus::interrupted, "stopped by the user " + where);
  if (end.is_out_of_time) {
    return ending(TrialStatus::interrupted, "ended with the time budget, " + where);
  }
  if (end.is_hung) {
    return ending(TrialStatus::hung,
                  fmt::format("no new step within {}, {}",
                              base::format_ns(options.step_limit.count() * 1'000'000), where));
  }
  const int code = end.process.code;
  if (end.process.is_signal) {
    return ending(TrialStatus::crashed, crash_reason(code) + " " + where);
  }
  if (is_signal_code(code)) {
    return ending(TrialStatus::crashed,
                  crash_reason(code - kSignalExitBase) + " (reported by the launcher) " + where);
  }
  const TrialStatus status = spec::status_from_exit_code(code);
  if (status == TrialStatus::ok) return ending(status, "");
  if (status == TrialStatus::interrupted) {
    // Not by this program, or is_interrupted would be set: repeating it on resume would not help.
    return ending(TrialStatus::crashed, "stopped from outside " + where);
  }
  return ending(status, or_else(message, fmt::format("ended with exit code {} {}", code, where)));
}

namespace {

/// The running processes of a trial, as one.
struct Running {
  std::unique_ptr<Process> process;
  ProcessGroup* group = nullptr;  ///< the same, when there are several
};

Running start(ProcessRunner& runner, const TrialCommands& commands, const TrialFolder& folder,
              int num_ranks) {
  // As long as the ranks may need to find out by themselves that another one is gone.
  constexpr std::chrono::milliseconds kPatience{15'000};
  if (commands.commands.size() == 1) {
    std::unique_ptr<Process> one = runner.start(commands.commands.front());
    if (!commands.is_launcher) return {std::move(one), nullptr};
    return {std::make_unique<LaunchedRanks>(std::move(one), folder, num_ranks, kPatience), nullptr};
  }
  std::vector<std::unique_ptr<Process>> members;
  for (const Command& command : commands.commands) members.push_back(runner.start(command));
  auto group = std::make_unique<ProcessGroup>(std::move(members), kPatience);
  ProcessGroup* seen = group.get();
  return {std::move(group), seen};
}

std::string session_file(const std::string& folder) { return folder + "/session"; }

// A launcher whose moetune was killed needs a while to end its ranks, whose GPUs this trial needs.
void wait_for_earlier(const std::string& folder) {
  constexpr std::chrono::seconds kLongest{45};
  int64_t session = 0;
  if (!(std::ifstream(session_file(folder)) >> session) || session <= 1) return;
  poll_until(std::chrono::steady_clock::now() + kLongest, std::chrono::milliseconds(100),
             [&] { return processes_of_session(session).empty() || num_interrupts() > 0; });
}

/// How the processes ended, and what they said.
struct Aftermath {
  WatchEnd end;
  std::string message;
  std::string stderr_text;
  std::string who;  ///< " (rank 3)", where one of several is known to be the cause
};

// The ranks' own words go before what a launcher says; a process that was killed has none.
void hear_ranks(const std::vector<LastWord>& words, int num_ranks, bool is_launcher,
                Aftermath& aftermath) {
  ProcessEnd& end = aftermath.end.process;
  if (end.is_signal && !end.was_ended_by_us && !is_launcher) return;
  const std::optional<LastWord> cause = cause_of(words);
  const bool is_explained = cause && is_own_failure(cause->code);
  // Who waits for a rank that has failed does not hang.
  if (is_explained) aftermath.end.is_hung = false;
  std::vector<std::string> who;
  // Who only noticed that another rank was gone does not know more than a launcher that saw it die.
  if (cause && (is_explained || end.is_signal || !is_signal_code(end.code))) {
    end.is_signal = false;
    end.code = cause->code;
    aftermath.message = cause->message;
    who.push_back(fmt::format("rank {}", cause->rank));
  }
  // Its exit codes are its own.
  if (is_launcher && !cause && end.code != 0 && !is_signal_code(end.code)) {
    end.code = static_cast<int>(spec::ExitCode::failed);
  }
  const std::string silent = silent_ranks(words, num_ranks);
  if (is_launcher && !is_explained && !silent.empty()) {
    who.push_back(silent + " ended without a word");
  }
  if (!who.empty()) aftermath.who = fmt::format(" ({})", fmt::join(who, "; "));
}

/// Exit codes of moetune-rank that say nothing about the trial. Of one of several processes a spec
/// that it refuses is another build's, too, as this program has read the spec before.
bool is_environment_code(int code, bool is_one_of_several) {
  using spec::ExitCode;
  constexpr std::array kCodes = {ExitCode::environment, ExitCode::no_driver, ExitCode::no_device,
                                 ExitCode::device_too_old};
  const auto exit_code = static_cast<ExitCode>(code);
  return std::ranges::find(kCodes, exit_code) != kCodes.end() ||
         (is_one_of_several && exit_code == ExitCode::usage);
}

/// A program that was found but cannot run, or was not found: so the shell and the loader say.
bool is_start_failure(int code) { return code == 126 || code == 127; }

// What says something about this machine, the launcher or the build, and nothing about the trial:
// it may work the next time, so it must not become the trial's result.
void check_environment(const TrialCommands& commands, bool has_shard,
                       const std::vector<LastWord>& words, const Aftermath& aftermath) {
  const WatchEnd& end = aftermath.end;
  if (end.is_hung || end.is_interrupted || end.is_out_of_time) return;
  const std::string said = or_else(aftermath.message, "it says nothing");
  if (commands.is_launcher && words.empty() && !has_shard) {
    throw base::EnvironmentFailure(
        fmt::format("the launcher has started no rank ({}): {}", said, commands.launcher_line));
  }
  if (const std::optional<LastWord> cause = cause_of(words)) {
    if (!is_environment_code(cause->code, true)) return;
    throw base::EnvironmentFailure(
        fmt::format("rank {} cannot run here: {}", cause->rank, cause->message));
  }
  // The exit codes of a launcher are its own.
  if (commands.is_launcher || end.process.is_signal) return;
  if (is_environment_code(end.process.code, false)) {
    throw base::EnvironmentFailure("moetune-rank cannot run here: " + said);
  }
  if (is_start_failure(end.process.code) && !has_shard) {
    throw base::EnvironmentFailure(fmt::format("{} cannot be started here: {}",
                                               commands.commands.front().arguments.front(), said));
  }
}

// The kernel ends whoever is largest when memory runs out, and another program may have taken it:
// nothing that the emulated devices' capacity has to do with.
void check_not_killed_for_memory(const WatchEnd& end, const HostState& before,
                                 const std::string& host_root) {
  const bool is_killed = end.process.is_signal ? end.process.code == SIGKILL
                                               : end.process.code == kSignalExitBase + SIGKILL;
  if (!is_killed || end.process.was_ended_by_us || !before.num_oom_kills) return;
  const std::optional<int64_t> after = read_host(host_root).num_oom_kills;
  if (!after || *after <= *before.num_oom_kills) return;
  throw base::EnvironmentFailure(
      "this machine ran out of memory, and the kernel's out-of-memory killer has ended the ranks: "
      "free memory, or take a machine with more");
}

/// Of all processes, those of a trial that ended badly as far as there are any.
store::ShardContents read_shards(const spec::TrialSpec& spec, const TrialFolder& folder,
                                 int num_ranks, bool is_ok) {
  std::vector<store::ShardContents> shards;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (!is_ok && !fs::exists(folder.shard(rank))) continue;
    shards.push_back(store::read_shard(folder.shard(rank)));
    if (num_ranks > 1) check_rank(shards.back(), rank);
  }
  if (is_ok && num_ranks > 1) check_all_there(shards);
  return shards.size() == 1 ? std::move(shards.front()) : merge_shards(spec, std::move(shards));
}

bool has_any_shard(const TrialFolder& folder, int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (fs::exists(folder.shard(rank))) return true;
  }
  return false;
}

}  // namespace

TrialRun run_trial(ProcessRunner& runner, const spec::TrialSpec& spec,
                   const RunnerOptions& options) {
  wait_for_earlier(options.folder);
  make_empty_folder(options.folder);
  TrialRun run(options.folder);
  TrialFolder folder{options.folder, options.saved_run};
  if (spec::ranks_of(spec) == spec::RanksAre::processes) {
    // Of a trial whose moetune was killed, ranks on other hosts may still write: not in here.
    folder.path += fmt::format("/{}-{}", getpid(),
                               std::chrono::steady_clock::now().time_since_epoch().count());
    make_empty_folder(folder.path);
  }
  spec::TrialSpec launched = spec;
  if (!options.text_path.empty()) launched.data_path = options.text_path;
  write_file(folder.spec(),
             spec::to_json(launched).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  const TrialCommands commands =
      trial_commands(spec, options.rank_program, options.launcher, folder, options.step_limit);
  const int num_processes = spec::ranks_of(spec) == spec::RanksAre::processes
                                ? plan::layout_of(spec.knobs).world_size()
                                : 1;
  const HostState host = read_host(options.host_root);
  const auto begin = std::chrono::steady_clock::now();
  const Running running = start(runner, commands, folder, num_processes);
  if (commands.is_launcher) {
    write_file(session_file(options.folder), std::to_string(running.process->pid()));
  }
  Aftermath aftermath;
  aftermath.end = watch(*running.process, {folder.progress(), options.step_limit, options.grace,
                                           options.on_tick, options.deadline});
  const auto duration = std::chrono::steady_clock::now() - begin;

  store::TrialResult& result = run.result;
  aftermath.stderr_text = tail_of(
      running.group == nullptr ? folder.stderr_file() : folder.stderr_file(running.group->cause()));
  aftermath.message = last_message(aftermath.stderr_text);
  if (running.group != nullptr) {
    aftermath.who = fmt::format(" (rank {})", running.group->cause());
  }
  const bool has_shard = has_any_shard(folder, num_processes);
  if (spec::ranks_of(spec) == spec::RanksAre::processes) {
    const std::vector<LastWord> words = read_last_words(folder, num_processes);
    check_environment(commands, has_shard, words, aftermath);
    hear_ranks(words, num_processes, commands.is_launcher, aftermath);
  } else {
    check_environment(commands, has_shard, {}, aftermath);
  }
  check_not_killed_for_memory(aftermath.end, host, options.host_root);
  Ending ending = judge(aftermath.end, aftermath.message, options);
  result.status = std::move(ending.status);
  result.reason = std::move(ending.reason);
  run.is_out_of_time = aftermath.end.is_out_of_time;
  run.last_progress = aftermath.end.last_progress;
  const bool is_ok = result.status == spec::name_of(TrialStatus::ok);
  const bool has_cause = !is_ok && !aftermath.end.is_hung && !aftermath.end.is_interrupted &&
                         !aftermath.end.is_out_of_time;
  if (has_cause) result.reason += aftermath.who;
  result.metrics.push_back(
      {-1, "wall_total_ns",
       static_cast<double>(
           std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count())});
  result.metrics.push_back(
      {-1, "process_rss_bytes", static_cast<double>(aftermath.end.process.max_rss_bytes)});
  result.texts.push_back({"command", commands.text()});
  if (!aftermath.stderr_text.empty()) result.texts.push_back({"stderr", aftermath.stderr_text});

  if (!is_ok && !has_shard) return run;
  try {
    result.shards.push_back(read_shards(spec, folder, num_processes, is_ok));
    if (is_ok) check_complete(spec, run.shard(), result);
    if (options.judges_divergence) check_divergence(spec, run.shard(), result);
    analyse_shard(spec, run.shard(), options.usual_probe_ns, result);
  } catch (const base::Error& error) {
    // Of a trial that had ended badly anyway, the first reason is the better one.
    result.texts.push_back({"shard_problem", error.what()});
    if (is_ok) {
      result.status = spec::name_of(TrialStatus::failed);
      result.reason = error.what();
    }
  }
  for (store::ShardContents& shard : result.shards) store::keep_told_step(shard);
  return run;
}

}  // namespace moetune::sweeps
