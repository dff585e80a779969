// moetune trial: one trial, stored or just shown.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/listing.h"
#include "sweeps/load.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/trial_folder.h"
#include "sweeps/scratch_folder.h"
#include "sweeps/session.h"
#include "sweeps/strategies.h"
#include "sweeps/sweep.h"
#include "sweeps/table.h"
#include "sweeps/trace_file.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

/// `problem` becomes what is wrong with the knobs, if anything.
tuner::TrialRequest request_for(spec::TrialSpec spec, std::string title, const std::string& file,
                                std::string& problem) {
  tuner::TrialRequest request;
  request.hash = spec::spec_hash(spec);
  request.phase = tuner::Phase::profile;
  request.title = std::move(title);
  const std::vector<spec::Violation> violations = spec::check_constraints(spec::parts_of(spec));
  if (!violations.empty()) {
    request.action = tuner::Action::invalid;
    problem = broken_rules_text(spec, file);
    for (const spec::Violation& violation : violations) {
      request.reason += fmt::format("{}{}: {}", request.reason.empty() ? "" : "; ", violation.rule,
                                    violation.message);
    }
  } else {
    request.prediction = predict(spec);
  }
  request.spec = std::move(spec);
  return request;
}

/// A search that is over after one request.
class SingleTrial : public tuner::Strategy {
 public:
  explicit SingleTrial(tuner::TrialRequest request) : request_(std::move(request)) {}
  std::optional<tuner::TrialRequest> ask() override {
    return is_told_ ? std::nullopt : std::optional(request_);
  }
  void tell(const tuner::TrialRequest& /*request*/,
            const tuner::TrialOutcome& /*outcome*/) override {
    is_told_ = true;
  }
  std::vector<tuner::Decision> take_decisions() override { return {}; }
  [[nodiscard]] tuner::Progress progress() const override { return {request_.phase, 1, 1}; }
  [[nodiscard]] std::string best_hash() const override { return request_.hash; }

 private:
  tuner::TrialRequest request_;
  bool is_told_ = false;
};

int exit_code_of(const std::string& status) {
  for (const spec::StatusRow& row : spec::status_table()) {
    if (row.name == status && row.exit_code) return static_cast<int>(*row.exit_code);
  }
  return static_cast<int>(spec::ExitCode::failed);
}

}  // namespace

CommandOptions trial_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "trial SPEC [--db PATH] [--set KNOB=VALUE ...] [--format text|json] [--trace-out FILE.json] "
      "[--launch COMMAND] [--print-spec]",
      "Runs one trial. SPEC is a trial as JSON, or a sweep file, whose base is used. Without --db "
      "nothing is kept.");
  options.add_trial();
  options.add()("db", po::value<std::string>()->value_name("PATH"),
                "store the trial in this runs database");
  options.add()("trace-out", po::value<std::string>()->value_name("FILE"),
                "write the traced step as a Chrome trace (chrome://tracing, Perfetto), "
                "or as Perfetto's own where the file ends in .pftrace");
  options.add()("print-spec",
                "only print the trial as moetune-rank takes it, for a launcher of many processes");
  options.add()(
      "step-limit", po::value<std::string>()->value_name("SECONDS"),
      "longest time without a new step before the trial counts as hung, such as 2min; default "
      "60");
  options.add()("quiet,q", "no progress");
  options.add_launch();
  options.add_format();
  return options;
}

int run_trial_command(const CommandOptions& options) {
  const std::string trace_path = options.text("trace-out");
  check_output(trace_path, output_kind(trace_format_of(trace_path)), "--trace-out",
               {options.text("spec"), options.text("db")});
  Loaded<spec::TrialSpec> loaded = options.trial();
  const std::string file = options.text("spec");
  const std::chrono::seconds step_limit(options.seconds("step-limit", 1, 60));
  if (options.has("print-spec")) {
    options.refuse_beside("--print-spec", {"db", "trace-out", "launch"});
    std::cout << spec::to_json(loaded.spec).dump(2) << "\n";
    return 0;
  }
  const std::vector<std::string> changes = options.texts("set");
  std::string problem;
  const tuner::TrialRequest request =
      request_for(std::move(loaded.spec),
                  changes.empty() ? fs::path(file).stem().string()
                                  : fmt::format("{}", fmt::join(changes, ", ")),
                  file, problem);
  // A trial that breaks a rule starts nowhere: no launcher would help.
  const std::string launcher = problem.empty() ? options.launcher(request.spec) : "";

  std::optional<ScratchFolder> scratch;
  std::string database = options.has("db") ? options.database() : "";
  if (database.empty()) database = scratch.emplace("moetune-trial").path() + "/trial.db";
  LoopOptions loop_options;
  loop_options.runner.rank_program = find_rank_program();
  loop_options.runner.launcher = launcher;
  loop_options.runner.folder = running_folder(database);
  loop_options.runner.judges_divergence = true;
  loop_options.runner.step_limit = step_limit;
  Session session = open_session(database, single_trials_row(request.spec));
  const TextSnapshot snapshot(database, loaded.text);
  loop_options.runner.text_path = snapshot.path();
  const InterruptGuard guard;
  Progress progress(stderr, Progress::mode_for(stderr, options.has("quiet")));
  SystemProcessRunner processes;
  SweepLoop loop(session.store, session.sweep_id, processes, loop_options, progress);
  SingleTrial strategy(request);
  loop.run(strategy);

  const auto trial = session.store.find_trial(session.sweep_id, request.hash);
  MOETUNE_CHECK(trial, "{}: trial {} is not there", database, request.hash);
  if (!trace_path.empty() &&
      !write_trace_file(session.store, *trial, trace_path, trace_format_of(trace_path))) {
    std::cerr << "moetune: " << trace_path
              << " is not written: " << no_trace_text(session.store, *trial) << "\n";
  }
  if (options.wants_json()) {
    std::cout << trial_details_json(session.store, *trial).dump(2) << "\n";
  } else {
    std::cout << trial_details_text(session.store, *trial, terminal_width(STDOUT_FILENO));
  }
  if (!problem.empty()) std::cerr << "moetune: " << problem << "\n";
  return exit_code_of(trial->status);
}

}  // namespace moetune::sweeps
