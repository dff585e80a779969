#include "sweeps/adapters/foreign_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "kernels/base/units.h"
#include "reports/engine_trial.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/adapters/left_files.h"
#include "sweeps/adapters/told_log.h"
#include "sweeps/processes/attend.h"
#include "sweeps/processes/printed_output.h"
#include "sweeps/runs/diagnosed_run.h"
#include "sweeps/runs/run_folder.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr int64_t kKeptLogBytes = 64 << 10;
/// Grace period, at least, for the command after its log says that the run has ended.
constexpr std::chrono::milliseconds kQueueSlack{180'000};

void write_all(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written; is the disk full?", path));
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) {
    throw base::Error(fmt::format("{}: the folder cannot be created: {}", path, error.message()));
  }
}

/// A running command of the user's.
struct Launch {
  std::string out;
  std::string printed;  ///< what the command prints, both streams
  std::string folder;   ///< of the sweep file
  std::string log;      ///< patterns; empty: what is printed
  FileMarks before;     ///< logs that were there

  [[nodiscard]] std::vector<std::string> logs() const {
    return log.empty() ? std::vector{printed} : changed_files(log, folder, before);
  }
};

Command shell_command(const std::string& text, const std::vector<std::string>& environment,
                      const std::string& folder, const std::string& printed) {
  Command command;
  command.arguments = {"/bin/sh", "-c", text};
  command.environment = environment;
  command.stdout_path = printed;
  command.stderr_path = printed;
  command.working_directory = folder;
  return command;
}

/// What the log says of a run on its way.
struct LogState {
  std::string step;      ///< "step 4 of 13", empty before the first one
  bool is_over = false;  ///< it has ended, well or not
};

LogState state_of(const std::vector<std::string>& paths, int64_t num_steps) {
  LogState state;
  try {
    const std::vector<std::string> logs = logs_among(paths);
    if (logs.empty()) return state;
    const RunFacts facts = read_run(logs);
    state.is_over =
        facts.status != ForeignStatus::truncated && facts.status != ForeignStatus::unknown;
    if (!facts.last_step) return state;
    const int64_t done = *facts.last_step - facts.first_step.value_or(1) + 1;
    state.step = fmt::format("step {} of {}", done, num_steps);
  } catch (const base::UsageError&) {
    // Nothing was written yet.
  }
  return state;
}

/// Stays with the command until it ends or has to be ended: silence in its log, Ctrl-C, the end of
/// the sweep's time. Before there is a log, the run may stand in a queue.
CommandEnd stay_with(Process& process, const Launch& launch, int64_t num_steps,
                     const RunnerOptions& options) {
  int64_t seen = 0;
  auto last_change = steady_clock::now();
  auto next_look = steady_clock::now();
  auto next_reading = steady_clock::now();
  bool is_unread = false;
  const bool may_queue = !launch.log.empty();
  LogState state;
  Attention attention;
  attention.look = std::min(std::chrono::milliseconds(200), options.step_limit);
  attention.grace = options.grace;
  attention.deadline = options.deadline;
  attention.num_interrupts_before = 0;
  attention.on_look = [&] {
    const auto now = steady_clock::now();
    if (now >= next_look) {
      next_look = now + std::chrono::seconds(1);
      const int64_t bytes = bytes_of(launch.logs());
      if (bytes != seen) {
        seen = bytes;
        last_change = now;
        is_unread = true;
      }
    }
    const bool is_silent = now - last_change >= options.step_limit;
    if (is_unread && (is_silent || now >= next_reading)) {
      is_unread = false;
      state = state_of(launch.logs(), num_steps);
      // A long log takes a twentieth of a core.
      next_reading = now + 20 * (steady_clock::now() - now);
    }
    const bool is_waited_for = may_queue && seen == 0;
    // A queue may take its time to notice that a job is over.
    const auto limit = state.is_over
                           ? std::max<std::chrono::milliseconds>(options.step_limit, kQueueSlack)
                           : options.step_limit;
    if (!is_waited_for && now - last_change >= limit) return false;
    if (options.on_tick) options.on_tick(state.step);
    return true;
  };
  const AttendedEnd ended = attend(process, attention);
  CommandEnd end;
  end.code = ended.process.code;
  end.detail = end_of_file(launch.printed, kKeptLogBytes);
  switch (ended.why) {
    case WhyEnded::by_itself:
      end.how = ended.process.is_signal ? CommandEnd::How::signalled : CommandEnd::How::exited;
      break;
    case WhyEnded::interrupted:
      end.how = CommandEnd::How::interrupted;
      break;
    case WhyEnded::out_of_time:
      end.how = CommandEnd::How::out_of_time;
      break;
    case WhyEnded::given_up:
      if (state.is_over) {  // whose command does not end; the log says how it went
        end.code = 0;
        break;
      }
      end.how = CommandEnd::How::hung;
      end.detail =
          fmt::format("nothing new in the log within {}, {}",
                      base::format_ns(options.step_limit.count() * 1'000'000),
                      state.step.empty() ? "before the first step" : "after " + state.step);
      break;
  }
  return end;
}

/// `left.facts` say what memory was in use.
void read_traces(const std::vector<std::string>& paths, const spec::HardwareSpec* hardware,
                 EngineLeavings& left) {
  std::vector<std::string> traces;
  for (const std::string& path : paths) {
    const RunFolder found = find_run_files(path);
    traces.insert(traces.end(), found.traces.begin(), found.traces.end());
  }
  Diagnosis diagnosis =
      diagnose_found_traces(traces, left.notes, nullptr, said_memory(left.facts, hardware));
  if (!diagnosis.traces.empty()) {
    left.diagnosis = std::move(diagnosis);
  } else {
    left.notes.emplace_back("no trace was found; see the key 'engine.trace'");
  }
}

/// Includes the modification time: two runs may print the same text.
std::string digest_of(const std::string& log) {
  std::string identity;
  for (const auto& [file, mark] : files_at(escaped_for_patterns(log), ".")) {
    identity += fmt::format("{} {} {}\n", mark.modified_ns, mark.bytes,
                            base::fnv_digits(end_of_file(file, kKeptLogBytes)));
  }
  return base::fnv_digits(identity);
}

/// The end of a log; one that is packed is nothing to be looked at.
std::string kept_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const bool is_packed = file.peek() == 0x1f;
  return is_packed ? fmt::format("packed: {}", path) : end_of_file(path, kKeptLogBytes);
}

/// What both ways to a result have in common.
TrialRun result_with(const UserRun& run, const tuner::TrialRequest& request,
                     const EngineLeavings& left, const std::vector<std::string>& logs) {
  TrialRun done{std::string()};
  done.result = engine_result(run, request, left);
  if (!logs.empty()) {
    done.result.texts.push_back({"log", kept_log(logs.front())});
  }
  done.is_out_of_time = left.end.how == CommandEnd::How::out_of_time;
  return done;
}

}  // namespace

std::string engine_folder(const std::string& database_path) {
  return fs::absolute(database_path).string() + ".runs";
}

std::string engine_trial_folder(const std::string& folder, const tuner::TrialRequest& request) {
  return fmt::format("{}/{}-{}", folder, request.hash.substr(0, 8), request.attempt);
}

std::vector<store::NamedText> environment_of(const UserRun& run) {
  const spec::EngineSpec& engine = run.engine();
  // Which machines a command runs on only it knows. Where it is launched is told, and does not make
  // measurements incomparable: a cluster has several nodes to log in to.
  std::string launched_from;
  for (const store::NamedText& row : environment_rows()) {
    if (row.name == "host") launched_from = row.value;
  }
  return {{"launched_from", launched_from},
          {"engine", std::string(spec::name_of(engine.dialect))},
          {"binary", base::fnv_digits(engine.run + "\n" + run.config_text)}};
}

TrialRun ForeignEngine::run(ProcessRunner& processes, const tuner::TrialRequest& request,
                            const RunnerOptions& options) {
  const spec::EngineSpec& engine = run_->engine();
  Launch launch;
  launch.out = engine_trial_folder(folder_, request);
  make_folder(launch.out);
  launch.printed = launch.out + "/printed.log";
  launch.folder = engine.folder;
  const EngineCommand command = engine_command(*run_, request, launch.out);
  launch.log = path_with(engine.log, command.placeholders);
  if (!command.config_path.empty()) write_all(command.config_path, command.config_text);
  if (!launch.log.empty()) launch.before = files_at(launch.log, launch.folder);
  const std::string trace =
      path_with(engine.trace.empty() ? "{out}" : engine.trace, command.placeholders);
  const FileMarks traces_before = files_at(trace, engine.folder);
  const auto begin = steady_clock::now();
  EngineLeavings left;
  {
    const std::unique_ptr<Process> process = processes.start(
        shell_command(command.text, command.environment, engine.folder, launch.printed));
    left.end = stay_with(*process, launch, launched_steps(request), options);
  }
  const bool is_ended_here =
      left.end.how != CommandEnd::How::exited && left.end.how != CommandEnd::How::signalled;
  if (is_ended_here && !engine.stop.empty()) {
    // Whatever a launcher has started elsewhere; a queue that does not answer is not waited for.
    Attention attention;
    attention.num_interrupts_before = num_interrupts();
    attention.deadline = steady_clock::now() + std::chrono::seconds(60);
    run_and_read(shell_command(filled_in(engine.stop, command.placeholders, "engine.stop"), {},
                               engine.folder, ""),
                 attention);
  }
  const std::vector<std::string> logs = logs_among(launch.logs());
  if (!logs.empty()) left.facts = read_run(logs);
  if (request.is_profiled) {
    read_traces(changed_files(trace, engine.folder, traces_before), run_->hardware.get(), left);
  }
  const auto duration = steady_clock::now() - begin;
  TrialRun done = result_with(*run_, request, left, logs.empty() ? launch.logs() : logs);
  done.result.texts.push_back({reports::kCommandText, command.shell_text()});
  done.result.texts.push_back({reports::kCommandFolderText, engine.folder});
  done.result.metrics.push_back(
      {-1, "wall_total_ns",
       static_cast<double>(
           std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count())});
  return done;
}

ToldEngine::ToldEngine(std::shared_ptr<const UserRun> run, std::vector<std::string> files,
                       std::optional<int> exit_code)
    : run_(std::move(run)),
      files_(std::move(files)),
      logs_(logs_among(files_)),
      exit_code_(exit_code) {
  if (logs_.empty()) return;
  facts_ = read_run(logs_);
  check_told_run(*run_, *facts_, logs_.front());
}

void ToldEngine::check(const tuner::TrialRequest& request) {
  if (!facts_ && exit_code_.value_or(0) == 0) {
    std::error_code error;
    const bool is_empty = std::ranges::all_of(files_, [&](const std::string& file) {
      return fs::is_regular_file(file, error) && fs::file_size(file, error) == 0;
    });
    throw base::UsageError(fmt::format(
        "{}: {}; nothing was stored. Pass the log of the command that --dry-run names; where it "
        "left none, say with which code it ended (--exit-code)",
        fmt::join(files_, ", "),
        is_empty            ? "there is nothing in it"
        : files_.size() > 1 ? "none of the files is a log of a run that moetune knows"
        : fs::is_directory(files_.front(), error) ? "holds no log of a run that moetune knows"
                                                  : "is no log of a run that moetune knows"));
  }
  if (facts_) check_told_trial(*run_, request, *facts_, logs_.front(), exit_code_);
  check_environment(leavings());
}

EngineLeavings ToldEngine::leavings() const {
  EngineLeavings left;
  left.end.code = exit_code_.value_or(0);
  left.facts = facts_;
  return left;
}

TrialRun ToldEngine::run(ProcessRunner& /*processes*/, const tuner::TrialRequest& request,
                         const RunnerOptions& /*options*/) {
  EngineLeavings left = leavings();
  if (request.is_profiled) read_traces(files_, run_->hardware.get(), left);
  TrialRun done = result_with(*run_, request, left, {});
  for (const std::string& log : logs_) done.result.texts.push_back({kToldLogText, digest_of(log)});
  is_taken_ = true;
  return done;
}

void check_not_told(const store::Store& store, int64_t sweep_id,
                    const std::vector<std::string>& files) {
  std::map<std::string, std::string> logs;  // by digest
  for (const std::string& log : logs_among(files)) logs.emplace(digest_of(log), log);
  if (logs.empty()) return;
  for (const store::TrialRow& trial : store.list_trials(sweep_id)) {
    for (const store::NamedText& text : store.read_texts(trial.id)) {
      const auto known = text.name == kToldLogText ? logs.find(text.value) : logs.end();
      if (known == logs.end()) continue;
      throw base::UsageError(
          fmt::format("{}: this log was already used for trial {}; pass the log of the next run",
                      known->second, trial.id));
    }
  }
}

}  // namespace moetune::sweeps
