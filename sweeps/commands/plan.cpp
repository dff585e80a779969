// moetune plan: which configurations of a cluster fit, and how fast they will be.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/document.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/load.h"
#include "sweeps/planning/exported_plan.h"
#include "sweeps/planning/kept_choices.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/plan_answer.h"
#include "sweeps/planning/plan_report.h"
#include "sweeps/planning/row_files.h"
#include "sweeps/planning/token_limit.h"
#include "sweeps/planning/ways_out.h"
#include "sweeps/table.h"
#include "sweeps/trace_file.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {
namespace {

namespace planner = tuner::planner;

constexpr const char* kPlanHelp =
    R"(Predicts memory and speed of every configuration of a Megatron-Core run on a cluster, which
need not exist, and lists the fastest that fit. Nothing is run.

Exit code 1: nothing fits; the missing memory is printed.)";

std::vector<Fixed> fixed_knobs(const CommandOptions& options, spec::PlanKnobs& base) {
  std::vector<Fixed> fixed;
  for (const std::string& word : options.texts("fix")) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const spec::PlanKnobRow* row = spec::find_plan_knob(name);
    if (row == nullptr) {
      std::vector<std::string> names;
      for (const spec::PlanKnobRow& known : spec::plan_knob_table()) names.emplace_back(known.name);
      const std::string nearest = spec::nearest_name(name, names);
      throw base::UsageError(fmt::format(
          "--fix names '{}', which is no knob of plans{}; moetune knobs --plans lists them",
          name.substr(0, 80),
          nearest.empty() ? std::string() : fmt::format(": did you mean '{}'?", nearest)));
    }
    if (equals == std::string::npos) {
      throw base::UsageError(fmt::format("--fix is '{0}', expected {0}=VALUE", name));
    }
    if (std::ranges::any_of(fixed, [&](const Fixed& one) { return one.row == row; })) {
      throw base::UsageError(fmt::format("--fix names '{}' twice, expected one value", row->name));
    }
    set_plan_knob(base, *row, word.substr(equals + 1));
    fixed.push_back({row, get_plan_knob(base, *row)});
  }
  return fixed;
}

/// Throws base::UsageError for a choice about experts of a model that has none.
void refuse_experts_of_dense(const spec::ModelSpec& model, const std::vector<Fixed>& fixed) {
  if (model.num_experts > 0) return;
  for (const Fixed& one : fixed) {
    if (!one.row->is_of_experts || one.value == get_plan_knob({}, *one.row)) continue;
    throw base::UsageError(fmt::format("--fix {}={} is about experts, and the model has none",
                                       one.row->name, one.value));
  }
}

/// For a question without a legal configuration. Throws base::UsageError if the fixed knobs by
/// themselves break no rule: then the search has just not tried their values.
void refuse_unsearched(const planner::PlanQuestion& question, const std::vector<Fixed>& fixed) {
  planner::PlanRun run = planner::run_with(question, {question.base});
  spec::set_dp_for(question.hardware->num_devices(), run.knobs);
  if (fixed.empty() || planner::broken_rule(run) != nullptr) return;
  std::string text = "no configuration is legal; none that is searched has";
  for (size_t i = 0; i < fixed.size(); ++i) {
    text += fmt::format("{} {}={}", i > 0 ? "," : "", fixed[i].row->name, fixed[i].value);
  }
  throw base::UsageError(text + " (micro_batch_size is searched in powers of two up to 8)");
}

/// Tokens of a step where nobody says: about four million, in a power of two of sequences, times
/// the odd factor of the devices, so that replicas can share them evenly.
int64_t usual_batch(int64_t seq_length, int64_t num_devices) {
  constexpr int64_t kTokens = int64_t{4} << 20;
  int64_t wanted = 32;
  while (wanted * seq_length * 2 <= kTokens) wanted *= 2;
  int64_t batch = num_devices;
  while (batch % 2 == 0) batch /= 2;
  if (batch > kMostTokens) return wanted;  // no machine has as many
  // The nearest as a ratio.
  const auto is_nearer = [&](int64_t twice) {
    return static_cast<double>(twice) / static_cast<double>(wanted) <=
           static_cast<double>(2 * wanted) / static_cast<double>(twice);
  };
  while (is_nearer(2 * batch)) batch *= 2;
  return batch;
}

}  // namespace

CommandOptions plan_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "plan [--model MODEL] --hardware HARDWARE [--gpus N] [--seq N] [--gbs N] "
      "[--fix PLAN-KNOB=VALUE ...] [--against COMMAND] [--published FILE] [--top N] "
      "[--report FILE] [--format text|json]",
      kPlanHelp);
  const auto text = [&](const char* name, const char* value, const char* help) {
    options.add()(name, po::value<std::string>()->value_name(value), help);
  };
  text(
      "model", "MODEL",
      "a Hugging Face config.json, the name of a shipped model, or -; may be left out beside a run "
      "of today that says its sizes, or names a recipe");
  text("hardware", "HARDWARE", "a hardware file or the name of a shipped one, such as h100-80g");
  text("gpus", "N",
       "devices; default: the ranks of the run of today, else those of a file with several nodes, "
       "else as few as it fits on");
  text("seq", "N", "tokens of a sequence, default 4096");
  text("gbs", "N",
       "sequences of a step, default about four million tokens; without it others are priced, too");
  options.add()("fix", po::value<std::vector<std::string>>()->value_name("PLAN-KNOB=VALUE"),
                "keeps a knob of plans at a value; repeatable (moetune knobs --plans lists them)");
  text(
      "against", "COMMAND|FILE",
      "the run of today: a command or configuration of Megatron-LM, Megatron-Bridge, torchtitan or "
      "Primus, a file with one, or -; says flag by flag what a change buys");
  text("published", "FILE",
       "measured runs, a JSON array as of estimate --rows, or -; shows up to three that are like "
       "yours, else like the first plan, and why yours is slower");
  text("dialect", "DIALECT", "whose words --against has; default: told by its content");
  text("export", "DIALECT", "also prints the first plan as a command or file of this framework");
  text("imbalance", "X", "rows of the busiest rank's experts over their share, default 1");
  text("memory", "X", "share of a device's memory that may be used, default 1");
  text("top", "N", "how many to show, default 10");
  text("calibration", "FILE", "rates from moetune calibrate, default the shipped ones");
  options.add()("play", "plays the steps of the first three plans instruction by instruction");
  text("report", "FILE", "writes the answer as one self-contained HTML file, with the played step");
  text("trace-out", "FILE",
       "writes the played step as a Chrome trace (chrome://tracing, Perfetto), or as Perfetto's "
       "own where the file ends in .pftrace");
  options.add_format();
  return options;
}

namespace {

using spec::dialects::Dialect;

/// Has a question search what a dialect has words for, by the dialects' own tables.
void search_in_words_of(Dialect dialect, const nlohmann::json& model,
                        planner::PlanQuestion& question) {
  spec::dialects::RunConfig run;
  run.dialect = dialect;
  run.model = model;
  question.is_of_megatron = dialect != Dialect::torchtitan;
  question.takes_padded_deepep = dialect == Dialect::primus;
  question.can_say = [dialect, run](const spec::PlanKnobs& knobs, std::string_view knob) {
    spec::dialects::RunConfig said = run;
    said.knobs = knobs;
    return spec::dialects::can_say(said, knob, dialect);
  };
}

/// Whether a dialect has a setting for the depth of multi-token prediction.
bool can_ask_for_mtp(Dialect dialect) {
  namespace dialects = spec::dialects;
  return !dialects::key_of(dialects::row_of("mtp_num_layers"), dialect).empty();
}

/// Of a question whose every configuration is illegal: the rules that the fixed knobs break.
[[noreturn]] void refuse_illegal(const planner::PlanQuestion& question, int64_t num_devices) {
  planner::PlanRun run = planner::run_with(question, {question.base});
  spec::set_dp_for(num_devices, run.knobs);
  std::string text = "no configuration is legal";
  for (const planner::PlanRule* rule : planner::broken_rules(run)) {
    text += fmt::format("; {}: {}", rule->name, rule->message(run));
  }
  throw base::UsageError(text);
}

/// The model that a command says by its sizes or its recipe. Throws base::UsageError where it says
/// none.
NamedModel model_of_command(const spec::dialects::RunConfig& config, const std::string& machine) {
  const std::string recipe = model_of_recipe(config);
  if (!recipe.empty()) return model_and_config(spec::find_in_library(spec::Shelf::model, recipe));
  const auto model = owned_run(config, nullptr, machine_of(machine, config.world_size)).model;
  return {model, with_mtp_depth(config.model, model->mtp.depth)};
}

std::string today() {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
}

int64_t tokens_of(const CommandOptions& options, const char* name, int64_t otherwise) {
  const int64_t tokens = options.integer(name, 1, otherwise);
  if (tokens > kMostTokens) {
    throw base::UsageError(
        fmt::format("--{} is {}, expected at most {}", name, tokens, kMostTokens));
  }
  return tokens;
}

/// A question to the planner in the words of the command line, and its answer.
class PlanCommand {
 public:
  /// Reads all that is asked. Throws base::UsageError. Refers to the options.
  explicit PlanCommand(const CommandOptions& options);
  /// Answers, and returns the exit code.
  int run();

 private:
  [[nodiscard]] bool has(const char* option) const { return options_.has(option); }

  void read_devices();
  void check_outputs() const;
  void read_fixed();

  void answer_on(int64_t num_devices);
  void answer_on_fewest();
  /// What the run of today says becomes the start of the question.
  void start_from(const spec::dialects::RunConfig& config);
  void tell_of_today();
  void train(std::shared_ptr<const spec::ModelSpec> model);
  /// Brings the question's start into the dialect's words, and sets what is fixed.
  void settle(bool has_own_defaults);
  void calibrate();

  /// Sets published runs beside the run of today, else beside the first plan, else beside what was
  /// asked for.
  void set_beside_published();
  void tell_assumptions();
  void play();
  void print() const;
  void write_page();

  const CommandOptions& options_;
  NamedModel model_;
  std::string machine_;  ///< by name or path
  Calibration loaded_;   ///< of all cases
  Calibration calibration_;
  planner::PlanQuestion question_;
  std::vector<Fixed> fixed_;
  std::vector<PublishedRow> published_;
  std::optional<int64_t> num_devices_;  ///< none: as few as it fits on
  std::optional<spec::dialects::RunConfig> today_;
  std::optional<spec::dialects::RunConfig> words_;  ///< the same with the model's layers
  std::optional<Dialect> dialect_;                  ///< in whose words the plan is

  std::shared_ptr<const spec::HardwareSpec> hardware_;
  std::optional<OwnedRun> theirs_;  ///< the run of today
  std::string without_words_;       ///< knobs that the dialect has no words for
  bool is_without_mtp_ = false;     ///< as the dialect cannot be asked for it
  PlanResult result_;
};

PlanCommand::PlanCommand(const CommandOptions& options)
    : options_(options),
      // A command may say its model: its sizes, or a recipe.
      model_(options.has("model") || !options.has("against")
                 ? model_and_config(options.required("model", "a model"))
                 : NamedModel{}),
      machine_(machine_named(options.required("hardware", "a hardware file or name"))),
      loaded_(options.has("calibration") ? load_calibration(options.text("calibration"))
                                         : default_calibration()),
      calibration_(loaded_) {
  question_.seq_length = tokens_of(options, "seq", 4096);
  read_devices();
  if (model_.spec == nullptr) model_ = model_of_command(*today_, machine_);
  question_.model = model_.spec.get();
  question_.global_batch_size =
      tokens_of(options, "gbs", usual_batch(question_.seq_length, num_devices_.value_or(1)));
  constexpr int kMostShown = 1000;
  question_.num_best =
      static_cast<int>(std::min<int64_t>(kMostShown, options.integer("top", 1, 10)));
  check_outputs();
  if (has("published")) published_ = load_rows(options.text("published"));
  question_.wants_space = has("report");
  question_.load = options.ratio("imbalance", 1, 1000, 1);
  question_.memory_ratio = options.ratio("memory", 0.01, 1, 1);
  read_fixed();
  if (has("export")) dialect_ = dialect_named(options, "export");
}

void PlanCommand::read_devices() {
  // A file of several nodes is a cluster; one of a node is a kind of machine.
  const std::optional<int64_t> own_devices = devices_of(machine_);
  const int64_t asked_devices = options_.integer("gpus", 1, 0);
  if (has("against")) {
    // Its own check of the number comes before the text is read.
    if (asked_devices > 0) static_cast<void>(machine_of(machine_, asked_devices));
    today_ = run_config_of(options_, "against", asked_devices, model_.spec.get(),
                           own_devices.value_or(0));
    if (today_->world_size == 0) {
      throw base::UsageError(
          "--against needs --gpus, as the run does not say how many ranks it has");
    }
    num_devices_ = today_->world_size;
    words_ = today_;
  } else if (asked_devices > 0) {
    num_devices_ = asked_devices;
  } else {
    num_devices_ = own_devices;
  }
}

void PlanCommand::check_outputs() const {
  const std::string report = options_.text("report");
  const std::string trace = options_.text("trace-out");
  const std::vector<std::string> inputs = {options_.text("model"), machine_,
                                           options_.text("against"), options_.text("calibration"),
                                           options_.text("published")};
  check_output(report, OutputKind::page, "--report", inputs);
  check_output(trace, output_kind(trace_format_of(trace)), "--trace-out", inputs);
  if (!report.empty() && report == trace) {
    throw base::UsageError("--report and --trace-out name the same file");
  }
}

void PlanCommand::read_fixed() {
  fixed_ = fixed_knobs(options_, question_.base);
  refuse_experts_of_dense(*question_.model, fixed_);
  if (!fixed_.empty()) {
    question_.keeps = [this, wanted = question_.base](const spec::PlanKnobs& knobs) {
      return std::ranges::all_of(
          fixed_, [&](const Fixed& one) { return have_same(*one.row, knobs, wanted); });
    };
  }
  question_.may_exchange_heads = !is_fixed("cp_comm_type", fixed_);
}

int PlanCommand::run() {
  if (num_devices_) {
    answer_on(*num_devices_);
  } else {
    answer_on_fewest();
  }
  find_ways_out(machine_, calibration_, result_);
  if (has("published")) set_beside_published();
  tell_assumptions();
  const bool has_batch = has("gbs") || (today_ && today_->global_batch_size > 0);
  if (!has_batch) look_at_batches(calibration_, result_);
  if (result_.answer.num_legal == 0) {
    refuse_unsearched(question_, fixed_);
    refuse_illegal(question_, hardware_->num_devices());
  }
  if (has("play") || has("report") || has("trace-out")) play();
  print();
  // Last, as it takes the traces. Standard output is the answer's.
  if (has("report")) write_page();
  return result_.answer.best.empty() ? 1 : 0;
}

void PlanCommand::answer_on(int64_t num_devices) {
  hardware_ = machine_of(machine_, num_devices);
  question_.hardware = hardware_.get();
  if (today_) start_from(*today_);
  settle(today_ && today_->dialect == dialect_);
  // A release that takes a command's own is at hand. Where no framework is named all losses of
  // Megatron-Core are tried but for this one, beside which the chunked one is leaner.
  question_.takes_te_loss = question_.base.cross_entropy == spec::CrossEntropy::te ||
                            (dialect_ && !refuses_te_loss(dialect_));
  calibrate();
  if (!theirs_) {
    result_ = make_plan(question_, calibration_, std::nullopt);
    return;
  }
  question_.other_bases = without_copies(question_.base, fixed_);
  // Torchtitan is told the layers of a stage, by those of the model.
  if (words_->dialect == Dialect::torchtitan && words_->model.empty()) {
    words_->model = model_.config;
  }
  result_ = make_plan(question_, calibration_, theirs_->run, &*words_);
  tell_of_today();
}

void PlanCommand::start_from(const spec::dialects::RunConfig& config) {
  theirs_ = owned_run(config, has("model") ? model_.spec : nullptr, hardware_);
  // Both sides train the same.
  if (theirs_->model->mtp.depth != model_.spec->mtp.depth) train(theirs_->model);
  if (!dialect_) dialect_ = config.dialect;
  if (config.seq_length > 0 && !has("seq")) question_.seq_length = config.seq_length;
  if (config.global_batch_size > 0 && !has("gbs")) {
    question_.global_batch_size = config.global_batch_size;
  }
  // What is not searched over stays as it is there, such as precision and types.
  question_.base = theirs_->run.knobs;
  // Plans are for Transformer Engine's modules, whose attention keeps no scores.
  if (planner::has_own_modules(theirs_->run)) question_.base.fused_attention = true;
  if (*dialect_ != Dialect::torchtitan) undo_costly_choices(question_.base);
}

void PlanCommand::train(std::shared_ptr<const spec::ModelSpec> model) {
  model_.config = with_mtp_depth(model_.config, model->mtp.depth);
  model_.spec = std::move(model);
  question_.model = model_.spec.get();
}

void PlanCommand::settle(bool has_own_defaults) {
  is_without_mtp_ = dialect_ && model_.spec->mtp.depth > 0 && !can_ask_for_mtp(*dialect_);
  if (is_without_mtp_) {
    spec::ModelSpec trained = *model_.spec;
    spec::set_mtp_depth(trained, 0);
    train(std::make_shared<const spec::ModelSpec>(std::move(trained)));
  }
  if (dialect_) search_in_words_of(*dialect_, model_.config, question_);
  if (dialect_ && !has_own_defaults) {
    spec::dialects::follow_defaults(question_.base, *dialect_);
    // It shards with FSDP2 unless it is told to replicate.
    if (*dialect_ == Dialect::torchtitan) question_.base.fsdp = spec::Fsdp::torch;
  }
  for (const Fixed& one : fixed_) set_plan_knob(question_.base, *one.row, one.value);
  if (!question_.base.overlap_grad_reduce && !is_fixed("overlap_param_gather", fixed_)) {
    question_.base.overlap_param_gather = false;  // it needs the other
  }
  if (dialect_ == Dialect::megatron_bridge && !has_own_defaults &&
      !is_fixed("fp8_param_gather", fixed_)) {
    question_.base.fp8_param_gather = spec::dialects::preset_gathers_fp8(question_.base);
  }
  if (dialect_) without_words_ = keep_to_words_of(*dialect_, fixed_, question_);
}

void PlanCommand::calibrate() {
  // A file of rates that is named leads.
  calibration_ = has("calibration") ? loaded_ : with_probed(loaded_, *hardware_);
  calibration_ = calibration_.for_case(*hardware_, routing_of_load(*model_.spec, question_.load));
}

void PlanCommand::tell_of_today() {
  std::vector<std::string>& notes = result_.against->notes;
  notes.insert(notes.begin(), theirs_->notes.begin(), theirs_->notes.end());
  result_.against->settings = theirs_->settings;
  if (std::string kept = kept_text(question_, *today_, dialect_, fixed_); !kept.empty()) {
    result_.assumptions.push_back("kept from your command: " + std::move(kept));
  }
  // What is assumed of the model holds for both.
  std::ranges::copy_if(theirs_->assumed, std::back_inserter(result_.assumptions),
                       [assumption = spec::model_assumption(*theirs_->model)](
                           const std::string& line) { return line != assumption; });
}

void PlanCommand::answer_on_fewest() {
  settle(false);
  for (const int64_t devices : device_counts(machine_)) {
    hardware_ = machine_of(machine_, devices);
    question_.hardware = hardware_.get();
    calibrate();
    result_ = make_plan(question_, calibration_, std::nullopt);
    if (result_.answer.num_fit > 0) break;
  }
  const char* what = "fewest (of powers of two) on which it fits";
  if (result_.answer.num_fit == 0) {
    what = hardware_->inter_node.bytes_per_s > 0
               ? "most that were tried"
               : "most that there are: nothing joins nodes, as key 'inter_node' is missing";
  }
  result_.assumptions.push_back(
      fmt::format("{} devices are the {}", hardware_->num_devices(), what));
}

void PlanCommand::set_beside_published() {
  const Calibration of_machine = has("calibration") ? loaded_ : with_probed(loaded_, *hardware_);
  const planner::PlanQuestion& question = result_.question;
  const bool has_plan = !result_.answer.best.empty();
  planner::PlanRun run = result_.against ? result_.against->run
                         : has_plan      ? run_with(question, result_.answer.best.front())
                                         : planner::run_with(question, {question.base});
  double tokens_per_s = 0;
  if (result_.against) {
    tokens_per_s = result_.against->estimate.predicted_tokens_per_s;
  } else if (has_plan) {
    tokens_per_s = result_.estimates.front().predicted_tokens_per_s;
  }
  result_.published = find_like_runs(
      published_, options_.text("published"),
      {run, tokens_per_s, capacity_of(question), machine_, loaded_, of_machine, calibration_,
       result_.against.has_value(), result_.against && words_ ? &*words_ : nullptr});
}

void PlanCommand::tell_assumptions() {
  std::vector<std::string>& assumptions = result_.assumptions;
  if (std::string text = nodes_text(machine_, *hardware_); !text.empty()) {
    assumptions.push_back(std::move(text));
  }
  if (!dialect_) return;
  const std::string_view name = spec::name_of(*dialect_);
  assumptions.push_back(fmt::format("a plan for {}: what it has no words for is not tried", name));
  if (is_without_mtp_) {
    assumptions.push_back(
        fmt::format("the plan is without multi-token prediction, which {} cannot be asked for{}",
                    name, theirs_ && theirs_->model->mtp.depth > 0 ? "; yours trains it" : ""));
  }
  if (!without_words_.empty()) {
    assumptions.push_back(
        fmt::format("{} has no words for {}: its defaults are taken", name, without_words_));
  }
}

void PlanCommand::play() {
  // A plan whose step the engine cannot play is a plan all the same.
  try {
    play_best(calibration_, has("report") || has("trace-out"), result_);
  } catch (const base::Error& error) {
    result_.not_played = fmt::format("The step could not be played: {}", error.what());
    std::cerr << "moetune: " << result_.not_played << '\n';
  }
  if (!has("trace-out")) return;
  const std::string path = options_.text("trace-out");
  if (result_.played) {
    write_traces(result_.played->traces, path, trace_format_of(path));
  } else {
    std::cerr << fmt::format("{} is not written: there is no played step\n", path);
  }
}

void PlanCommand::print() const {
  std::string written;
  if (has("export") && !result_.answer.best.empty()) {
    written = exported({.dialect = *dialect_,
                        .machine = options_.text("hardware"),
                        .model = model_.config,
                        .is_model_asked_for = has("model"),
                        .theirs = today_},
                       result_);
  }
  if (options_.wants_json()) {
    nlohmann::json document = to_json(result_);
    if (has("export")) document["exported"] = written;
    std::cout << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << to_text(result_, terminal_width(STDOUT_FILENO));
    if (!written.empty()) std::cout << '\n' << written;
  }
}

void PlanCommand::write_page() {
  const std::string report = options_.text("report");
  const std::string name = has("model") ? options_.text("model") : model_.spec->family;
  const int64_t num_bytes = write_plan_page(
      plan_page(result_, std::filesystem::path(name).filename().string(), today()), report);
  std::cerr << fmt::format("{} ({})\n", report, base::format_bytes(num_bytes));
}

}  // namespace

int run_plan_command(const CommandOptions& options) {
  if (options.has("dialect") && !options.has("against")) {
    throw base::UsageError("--dialect needs --against");
  }
  return PlanCommand(options).run();
}

}  // namespace moetune::sweeps
