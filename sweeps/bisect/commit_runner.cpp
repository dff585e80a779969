// The stages of one measurement in their order, each with its limit on time and its own way to
// fail.
#include "sweeps/bisect/commit_runner.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/spec/trial_status.h"
#include "kernels/base/text.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/shell_stage.h"
#include "sweeps/bisect/text.h"
#include "sweeps/bisect/worktree.h"

namespace moetune::sweeps {

const char* const kEngineBuildCommand =
    "cmake -S . -B \"$MOETUNE_BISECT_BUILD_DIR\" -G Ninja -DCMAKE_BUILD_TYPE=Release && "
    "cmake --build \"$MOETUNE_BISECT_BUILD_DIR\" --target moetune moetune-rank";
const char* const kEngineRunCommand =
    "\"$MOETUNE_BISECT_BUILD_DIR/bin/moetune\" trial \"$MOETUNE_BISECT_SPEC\" "
    "--db \"$MOETUNE_BISECT_OUT/trial.db\" --quiet --format json";

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxMessageBytes = 500;
constexpr size_t kMaxReasonBytes = 200;  ///< of a build that failed
constexpr int64_t kMaxLineBytes = 1 << 20;
constexpr milliseconds kNoLimit = std::chrono::hours(24 * 365);
/// With less free disk than this, a failure is blamed on the full disk.
constexpr uintmax_t kFewestFreeBytes = 4 << 20;
constexpr int kOomExitCode = static_cast<int>(spec::ExitCode::oom);
constexpr int kHungExitCode = static_cast<int>(spec::ExitCode::hung);

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void make_empty_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) fs::create_directories(path, error);
  if (error) {
    throw base::Error(fmt::format("{}: cannot be made an empty folder: {}", path, error.message()));
  }
}

std::string how_it_ended(const ProcessEnd& end) {
  if (!end.is_signal) return fmt::format("exit code {}", end.code);
  return "killed by " + signal_text(end.code);
}

std::string limit_text(milliseconds limit) { return base::format_ns(limit.count() * 1'000'000); }

/// The line that most likely says what went wrong: compilers print to either stream, and build
/// programs only say that something failed.
std::string telling_line(const ShellStage& stage) {
  const std::string err = last_lines(stage.err_path(), kMaxLineBytes);
  if (const std::string_view line = base::last_line(err); !line.empty()) {
    return plain_text(line, kMaxReasonBytes);
  }
  const std::string out = last_lines(stage.out_path(), kMaxLineBytes);
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("error: ") != std::string::npos) return plain_text(line, kMaxReasonBytes);
  }
  return plain_text(base::last_line(out), kMaxReasonBytes);
}

/// With what the command says of it, if anything.
std::string how_it_ended(const ProcessEnd& end, const ShellStage& stage) {
  const std::string words = telling_line(stage);
  return fmt::format("{}{}{}", how_it_ended(end), words.empty() ? "" : ": ", words);
}

/// Tells CMake and ccache of each other, as far as the user has not.
void offer_ccache(const std::string& folder, std::vector<std::string>& environment) {
  if (find_in_path("ccache").empty()) return;
  const auto offer = [&](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr) environment.push_back(fmt::format("{}={}", name, value));
  };
  for (const char* name : {"CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER",
                           "CMAKE_CUDA_COMPILER_LAUNCHER"}) {
    offer(name, "ccache");
  }
  // Each commit has folders of its own: without these two no result would be found again.
  offer("CCACHE_BASEDIR", folder);
  offer("CCACHE_NOHASHDIR", "true");
}

}  // namespace

bool has_own_engine(const GitRepository& repository, const std::string& commit_id) {
  return repository.has_path(commit_id, "engine/main.cpp") &&
         repository.has_path(commit_id, "sweeps/main.cpp");
}

class CommitRunner::Impl {
 public:
  explicit Impl(CommitRunnerOptions options)
      : options_(std::move(options)),
        repository_(GitRepository::open(options_.repository)),
        scratch_(repository_, options_.scratch) {
    if (options_.run_command.empty()) {
      if (!options_.build_command.empty()) {
        throw base::UsageError("--build without --run: say how the value is measured");
      }
      is_engine_ = true;
      options_.build_command = kEngineBuildCommand;
      options_.run_command = kEngineRunCommand;
    }
    if (options_.metric.empty()) throw base::UsageError("the metric has no name");
    if (!options_.spec_path.empty()) {
      if (!fs::is_regular_file(options_.spec_path)) {
        throw base::UsageError(fmt::format("--spec {}: there is no such file", options_.spec_path));
      }
      options_.spec_path = fs::canonical(options_.spec_path);
    } else if (is_engine_) {
      throw base::UsageError("--spec is missing: the trial to run");
    }
    end_processes_of_scratch(scratch_.folder());
  }

  [[nodiscard]] const GitRepository& repository() const { return repository_; }

  [[nodiscard]] bool is_built(const std::string& id) const {
    if (!has_build()) return true;
    const Places places = places_of(id);
    return read_file(places.marker) == marker_text(id) && fs::exists(places.tree + "/.git") &&
           fs::is_directory(places.build);
  }

  CommitRun run(const std::string& id) {
    if (!is_commit_id(id)) {
      throw base::UsageError(fmt::format("'{}' is no commit id", plain_text(id)));
    }
    CommitRun result;
    try {
      if (prepare(id, result)) measure(id, result);
    } catch (const Interrupted& interrupted) {
      result.status = RunStatus::interrupted;
      result.message = interrupted.what();
    }
    result.message = plain_text(result.message, kMaxMessageBytes);
    refuse_full_disk(result);
    return result;
  }

  void discard_build(const std::string& id) const { fs::remove(places_of(id).marker); }

 private:
  struct Places {
    std::string folder;
    std::string tree;
    std::string build;
    std::string marker;
  };

  [[nodiscard]] bool has_build() const { return !options_.build_command.empty(); }

  [[nodiscard]] Places places_of(const std::string& id) const {
    const std::string folder = scratch_.folder() + "/" + base::short_commit(id);
    // Without a build there is nothing to keep: one checkout goes from commit to commit.
    const std::string tree = has_build() ? folder + "/tree" : scratch_.folder() + "/tree";
    return {folder, tree, folder + "/build", folder + "/built"};
  }

  [[nodiscard]] std::string marker_text(const std::string& id) const {
    return id + "\n" + options_.build_command + "\n";
  }

  void tick(const char* what, const std::string& id) const {
    if (options_.on_tick) options_.on_tick(fmt::format("{} {}", what, base::short_commit(id)));
  }

  [[nodiscard]] ShellStage stage_of(const char* what, const std::string& id) const {
    const Places places = places_of(id);
    ShellStage stage;
    stage.folder = places.tree;
    stage.scratch = scratch_.folder();
    stage.log = places.folder + "/" + what;
    stage.environment = {"MOETUNE_BISECT_COMMIT=" + id, "MOETUNE_BISECT_BUILD_DIR=" + places.build,
                         "MOETUNE_BISECT_SPEC=" + options_.spec_path,
                         "MOETUNE_BISECT_OUT=" + out_folder()};
    offer_ccache(places.folder, stage.environment);
    // It would make every commit run the same engine.
    if (is_engine_) stage.unset.emplace_back("MOETUNE_RANK");
    return stage;
  }

  [[nodiscard]] std::string out_folder() const { return scratch_.folder() + "/out"; }

  /// What fails for want of room says nothing of the commit, and would be kept as if it did.
  void refuse_full_disk(const CommitRun& result) const {
    if (result.status == RunStatus::ok || result.status == RunStatus::interrupted) return;
    std::error_code error;
    const fs::space_info space = fs::space(scratch_.folder(), error);
    if (error || space.available >= kFewestFreeBytes) return;
    throw base::Error(
        fmt::format("the disk is full; the builds of earlier commits lie in {} and can be removed "
                    "({}: {})",
                    scratch_.folder(), name_of(result.status), result.message));
  }

  /// Of a build that has failed: by its own words, whatever else has made room since. (A run may
  /// miss room by its own fault, such as in the shared memory.)
  static bool missed_room(const ShellStage& build) {
    const std::vector<std::string_view> words = {"no space left on device", "disk quota exceeded"};
    return file_has_any(build.err_path(), words) || file_has_any(build.out_path(), words);
  }

  /// Checkout and build. False: `result` says what went wrong.
  bool prepare(const std::string& id, CommitRun& result) {
    if (has_build() && is_built(id)) return true;
    const auto start = steady_clock::now();
    const auto fail = [&](const std::string& message, RunStatus status = RunStatus::build_failed) {
      result.status = status;
      result.message = message;
      result.build_seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
      return false;
    };
    const Places places = places_of(id);
    fs::remove(places.marker);
    tick("checking out", id);
    if (is_engine_ && !has_own_engine(repository_, id)) {
      return fail("this commit is not moetune's own engine: name --build and --run");
    }
    try {
      checkout(places.tree, id);
    } catch (const Interrupted&) {
      throw;
    } catch (const base::Error& error) {
      return fail(fmt::format("the commit cannot be checked out: {}", error.what()),
                  RunStatus::not_prepared);
    }
    make_folder(places.folder);
    if (!has_build()) {
      make_folder(places.build);
      return true;
    }
    // What a failed or killed build left may be half written.
    make_empty_folder(places.build);
    make_empty_folder(out_folder());
    result.was_built_now = true;
    ShellStage stage = stage_of("build", id);
    stage.command = options_.build_command;
    stage.limit = options_.build_limit;
    stage.on_tick = [this, &id] { tick("building", id); };
    const ShellEnd end = run_stage(stage);
    if (end.is_interrupted) throw Interrupted();
    if (end.is_over_limit) {
      return fail(fmt::format("the build was ended after {}", limit_text(options_.build_limit)));
    }
    if (!end.is_success()) {
      return fail(fmt::format("the build failed with {} (all of it: {}.err, .out)",
                              how_it_ended(end.process, stage), stage.log),
                  missed_room(stage) ? RunStatus::not_prepared : RunStatus::build_failed);
    }
    result.build_seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    write_marker(places.marker, id);
    return true;
  }

  void checkout(const std::string& tree, const std::string& id) const {
    const milliseconds limit = options_.build_limit.count() > 0 ? options_.build_limit : kNoLimit;
    Worktree(scratch_, tree).checkout(id, limit);
  }

  static void make_folder(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
      throw base::Error(fmt::format("{}: cannot be created: {}", path, error.message()));
    }
  }

  void write_marker(const std::string& path, const std::string& id) const {
    std::ofstream marker(path, std::ios::binary);
    marker << marker_text(id) << std::flush;
    if (!marker) throw base::Error(fmt::format("{}: cannot be written; is the disk full?", path));
  }

  void measure(const std::string& id, CommitRun& result) {
    make_empty_folder(out_folder());
    ShellStage stage = stage_of("run", id);
    stage.command = options_.run_command;
    stage.limit = options_.run_limit;
    stage.on_tick = [this, &id] { tick("running", id); };
    const ShellEnd end = run_stage(stage);
    result.run_seconds = end.seconds;
    if (end.is_interrupted) throw Interrupted();
    if (end.is_over_limit) {
      result.status = RunStatus::hung;
      result.message = fmt::format("no end within {}: the run was killed with all it had started",
                                   limit_text(options_.run_limit));
    } else if (!end.is_success()) {
      judge_failure(stage, end.process, result);
    } else {
      read_value(stage, result);
    }
  }

  void judge_failure(const ShellStage& stage, const ProcessEnd& end, CommitRun& result) const {
    result.message = how_it_ended(end, stage);
    const bool has_code = !end.is_signal;
    if ((has_code && end.code == kOomExitCode) ||
        file_has_any(stage.err_path(), {"out of memory", "OutOfMemoryError"})) {
      result.status = RunStatus::oom;
    } else if (is_engine_ && has_code && end.code == kHungExitCode) {
      result.status = RunStatus::hung;
    } else {
      const StoredNumbers logged = read_logged(places_of_logs(stage));
      result.status = status_of_failure(logged.status).value_or(RunStatus::crashed);
      if (!logged.reason.empty()) result.message += "; its log: " + logged.reason;
    }
  }

  void read_value(const ShellStage& stage, CommitRun& result) const {
    std::string complaint;
    if (const std::string database = newest_database(out_folder()); !database.empty()) {
      if (read_database(database, result, complaint)) return;
    }
    const std::string text = last_lines(stage.out_path(), kMaxLineBytes);
    PrintedNumbers printed = read_printed(base::last_line(text), options_.metric);
    for (const auto& [name, number] : printed.numbers) result.metrics.try_emplace(name, number);
    if (result.config.empty()) result.config = std::move(printed.config);
    result.value = find_metric(result.metrics, options_.metric);
    if (result.value || read_log(stage, result)) return;
    result.status = RunStatus::no_metric;
    result.message =
        fmt::format("the run ended well, but gave no value of '{}': {}",
                    plain_text(options_.metric), complaint.empty() ? printed.complaint : complaint);
  }

  [[nodiscard]] std::vector<std::string> places_of_logs(const ShellStage& stage) const {
    return {stage.out_path(), stage.err_path(), out_folder()};
  }

  /// True when the run was one of another framework, whose log has the value or a failure.
  bool read_log(const ShellStage& stage, CommitRun& result) const {
    StoredNumbers logged = read_logged(places_of_logs(stage));
    for (const auto& [name, number] : logged.numbers) result.metrics.try_emplace(name, number);
    if (result.config.empty()) result.config = std::move(logged.config);
    if (const auto status = status_of_failure(logged.status)) {
      result.status = *status;
      result.message = fmt::format("its log: {}", logged.reason);
      return true;
    }
    result.value = find_metric(result.metrics, options_.metric);
    return result.value.has_value();
  }

  /// Of what a trial or a log ended as; none: well, or nobody knows.
  static std::optional<RunStatus> status_of_failure(const std::string& status) {
    const std::optional<spec::TrialStatus> known = spec::find_status(status);
    if (!known) return std::nullopt;
    const RunStatus run = run_status_of(*known);
    // The user has interrupted that run, not this hunt.
    const bool is_failure = run != RunStatus::ok && run != RunStatus::interrupted;
    return is_failure ? std::optional(run) : std::nullopt;
  }

  /// True when `result` is complete; else `complaint` says what the store lacks.
  bool read_database(const std::string& database, CommitRun& result, std::string& complaint) const {
    StoredNumbers stored;
    try {
      stored = read_stored(database);
    } catch (const base::Error& error) {
      complaint = error.what();
      return false;
    }
    result.metrics = std::move(stored.numbers);
    result.config = std::move(stored.config);
    if (!stored.status.empty() && stored.status != spec::name_of(spec::TrialStatus::ok)) {
      result.status = status_of_failure(stored.status).value_or(RunStatus::crashed);
      result.message = fmt::format("the trial ended as {}: {}", stored.status, stored.reason);
      return true;
    }
    result.value = find_metric(result.metrics, options_.metric);
    if (result.value) return true;
    complaint = stored.status.empty()
                    ? fmt::format("the store it left has no trial ({})", database)
                    : fmt::format("neither the store it left nor its last line has it");
    return false;
  }

  CommitRunnerOptions options_;
  GitRepository repository_;
  ScratchRepository scratch_;
  bool is_engine_ = false;
};

CommitRunner::CommitRunner(CommitRunnerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
CommitRunner::~CommitRunner() = default;
CommitRun CommitRunner::run(const std::string& commit_id) { return impl_->run(commit_id); }
void CommitRunner::discard_build(const std::string& commit_id) { impl_->discard_build(commit_id); }
bool CommitRunner::is_built(const std::string& commit_id) const {
  return impl_->is_built(commit_id);
}
const GitRepository& CommitRunner::repository() const { return impl_->repository(); }

}  // namespace moetune::sweeps
