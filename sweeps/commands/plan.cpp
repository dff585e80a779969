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
#include "sweeps/planning/edited_command.h"
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

/// HybridEP does not find out by itself which ranks NVLink joins: of `domain_devices` those of a
/// node of the plan. What another layout was told holds no longer.
void tell_hybridep(int64_t domain_devices, int64_t in_node, bool is_used,
                   spec::dialects::RunConfig& config) {
  constexpr int64_t kUsualNode = 8;
  const auto tell = [&](const char* name, int64_t value) {
    if (is_used) {
      config.environment[name] = std::to_string(value);
    } else {
      config.environment.erase(name);
    }
  };
  tell("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
       std::min(int64_t{config.knobs.ep} * config.knobs.etp, in_node));
  tell("NVLINK_DOMAIN_SIZE", domain_devices);
  tell("USE_MNNVL", domain_devices > kUsualNode ? 1 : 0);
}

/// Adds what the run of today says beside the plan's choices. What its old layout alone bears is
/// left out, and named in a comment, which is the result.
std::string take_along(const spec::dialects::RunConfig& theirs, spec::dialects::RunConfig& config) {
  namespace dialects = spec::dialects;
  const bool has_moved = !dialects::have_same_layout(theirs, config);
  std::vector<std::string> left_out;
  for (const dialects::UnknownSetting& setting : theirs.unknown) {
    // What the plan decides was not understood there: it is left out.
    if (dialects::find_row(setting.key, theirs.dialect) != nullptr) continue;
    if (has_moved && dialects::follows_layout(setting, theirs.dialect)) {
      left_out.push_back(setting.key);
    } else {
      config.unknown.push_back(setting);
    }
  }
  return left_out.empty() ? std::string()
                          : fmt::format("# left out, as they follow the old layout: {}\n",
                                        dialects::text_of_keys(left_out));
}

/// The first plan as somebody's command or configuration. What `theirs`, the run of today, says
/// beside its choices goes along, such as paths and learning rates.
std::string exported(const CommandOptions& options, const nlohmann::json& model,
                     const std::optional<spec::dialects::RunConfig>& theirs,
                     const PlanResult& result) {
  namespace dialects = spec::dialects;
  const dialects::Dialect dialect = dialect_named(options, "export");
  dialects::RunConfig config;
  config.dialect = dialect;
  if (theirs) {
    config.dialect = theirs->dialect;
    config.model_name = theirs->model_name;
    config.environment = theirs->environment;
    config.environment.erase(std::string(dialects::kConnections));
  }
  config.model = model;
  config.knobs = result.answer.best.front().knobs;
  if (theirs) leave_out_variables_of_choices(*theirs, config);
  leave_out_idle_sequence_parallelism(dialect, config);
  config.pipeline_layout =
      planner::pipeline_layout_of(run_with(result.question, result.answer.best.front()));
  config.global_batch_size = result.question.global_batch_size;
  config.seq_length = result.question.seq_length;
  config.world_size = result.question.hardware->num_devices();
  const bool has_hybridep = config.knobs.dispatcher == spec::Dispatcher::hybridep &&
                            config.knobs.ep > 1 && dialects::can_say(config, "dispatcher", dialect);
  tell_hybridep(domain_devices_of(options.text("hardware")),
                result.question.hardware->devices_per_node, has_hybridep, config);
  if (theirs) dialects::take_model_flags(*theirs, options.has("model"), config);
  const std::string contradicted = theirs ? take_along(*theirs, config) : std::string();
  return dialects::export_run(config, dialect) + contradicted;
}

/// A plan whose step the engine cannot play is a plan all the same.
void play(const Calibration& calibration, bool has_records, PlanResult& result) {
  try {
    play_best(calibration, has_records, result);
  } catch (const base::Error& error) {
    result.not_played = fmt::format("The step could not be played: {}", error.what());
    std::cerr << "moetune: " << result.not_played << '\n';
  }
}

/// Where published runs are from, and what the user's and theirs are priced by.
struct PublishedBasis {
  std::string file;
  std::string machine;            ///< of the user, by name or path
  const Calibration& loaded;      ///< of all cases
  const Calibration& of_machine;  ///< the same with what was probed of the machine
  const Calibration& of_case;     ///< the same for the user's case
};

/// Sets published runs beside the run of today, else beside the first plan, else beside what was
/// asked for.
void set_beside(const std::vector<PublishedRow>& rows, const PublishedBasis& basis,
                const spec::dialects::RunConfig* words, PlanResult& result) {
  const planner::PlanQuestion& question = result.question;
  const bool has_plan = !result.answer.best.empty();
  planner::PlanRun run = result.against ? result.against->run
                         : has_plan     ? run_with(question, result.answer.best.front())
                                        : planner::run_with(question, {question.base});
  double tokens_per_s = 0;
  if (result.against) {
    tokens_per_s = result.against->estimate.predicted_tokens_per_s;
  } else if (has_plan) {
    tokens_per_s = result.estimates.front().predicted_tokens_per_s;
  }
  result.published = find_like_runs(
      rows, basis.file,
      {run, tokens_per_s, capacity_of(question), basis.machine, basis.loaded, basis.of_machine,
       basis.of_case, result.against.has_value(), result.against ? words : nullptr});
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

}  // namespace

int run_plan_command(const CommandOptions& options) {
  // A command may say its model: its sizes, or a recipe.
  NamedModel named;
  if (options.has("model") || !options.has("against")) {
    named = model_and_config(options.required("model", "a model"));
  }
  const std::string machine =
      machine_named(options.required("hardware", "a hardware file or name"));
  const Calibration loaded = options.has("calibration")
                                 ? load_calibration(options.text("calibration"))
                                 : default_calibration();
  Calibration calibration = loaded;
  planner::PlanQuestion question;
  question.seq_length = options.integer("seq", 1, 4096);
  if (question.seq_length > kMostTokens) {
    throw base::UsageError(
        fmt::format("--seq is {}, expected at most {}", question.seq_length, kMostTokens));
  }
  // A file of several nodes is a cluster; one of a node is a kind of machine.
  const std::optional<int64_t> own_devices = devices_of(machine);
  const int64_t asked_devices = options.integer("gpus", 1, 0);
  std::optional<spec::dialects::RunConfig> today_config;
  if (options.has("against")) {
    // Its own check of the number comes before the text is read.
    if (asked_devices > 0) static_cast<void>(machine_of(machine, asked_devices));
    today_config =
        run_config_of(options, "against", asked_devices, named.spec.get(), own_devices.value_or(0));
    if (today_config->world_size == 0) {
      throw base::UsageError(
          "--against needs --gpus, as the run does not say how many ranks it has");
    }
  }
  if (named.spec == nullptr) named = model_of_command(*today_config, machine);
  std::shared_ptr<const spec::ModelSpec> model = named.spec;
  nlohmann::json model_config = named.config;
  question.model = model.get();
  const bool has_devices = asked_devices > 0 || today_config || own_devices;
  const int64_t num_devices = today_config        ? today_config->world_size
                              : asked_devices > 0 ? asked_devices
                                                  : own_devices.value_or(1);
  question.global_batch_size =
      options.integer("gbs", 1, usual_batch(question.seq_length, num_devices));
  if (question.global_batch_size > kMostTokens) {
    throw base::UsageError(
        fmt::format("--gbs is {}, expected at most {}", question.global_batch_size, kMostTokens));
  }
  constexpr int kMostShown = 1000;
  question.num_best =
      static_cast<int>(std::min<int64_t>(kMostShown, options.integer("top", 1, 10)));
  const std::string report = options.text("report");
  const std::string trace_path = options.text("trace-out");
  const std::vector<std::string> inputs = {options.text("model"), machine, options.text("against"),
                                           options.text("calibration"), options.text("published")};
  check_output(report, OutputKind::page, "--report", inputs);
  check_output(trace_path, output_kind(trace_format_of(trace_path)), "--trace-out", inputs);
  if (!report.empty() && report == trace_path) {
    throw base::UsageError("--report and --trace-out name the same file");
  }
  std::vector<PublishedRow> published;
  if (options.has("published")) published = load_rows(options.text("published"));
  question.wants_space = options.has("report");
  question.load = options.ratio("imbalance", 1, 1000, 1);
  question.memory_ratio = options.ratio("memory", 0.01, 1, 1);
  const std::vector<Fixed> fixed = fixed_knobs(options, question.base);
  refuse_experts_of_dense(*question.model, fixed);
  question.keeps = [&fixed, wanted = question.base](const spec::PlanKnobs& knobs) {
    return std::ranges::all_of(
        fixed, [&](const Fixed& one) { return have_same(*one.row, knobs, wanted); });
  };
  if (fixed.empty()) question.keeps = nullptr;
  question.may_exchange_heads =
      std::ranges::none_of(fixed, [](const Fixed& one) { return one.row->name == "cp_comm_type"; });
  // In whose words the plan is.
  std::optional<Dialect> dialect;
  if (options.has("export")) dialect = dialect_named(options, "export");
  std::string without_words;
  bool is_without_mtp = false;
  const auto settle = [&](bool has_own_defaults) {
    is_without_mtp = dialect && model->mtp.depth > 0 && !can_ask_for_mtp(*dialect);
    if (is_without_mtp) {
      spec::ModelSpec trained = *model;
      spec::set_mtp_depth(trained, 0);
      model = std::make_shared<const spec::ModelSpec>(std::move(trained));
      model_config = with_mtp_depth(model_config, 0);
      question.model = model.get();
    }
    if (dialect) {
      search_in_words_of(*dialect, model_config, question);
      if (!has_own_defaults) {
        spec::dialects::follow_defaults(question.base, *dialect);
        // It shards with FSDP2 unless it is told to replicate.
        if (*dialect == Dialect::torchtitan) question.base.fsdp = spec::Fsdp::torch;
      }
    }
    for (const Fixed& one : fixed) set_plan_knob(question.base, *one.row, one.value);
    if (!question.base.overlap_grad_reduce && !is_fixed("overlap_param_gather", fixed)) {
      question.base.overlap_param_gather = false;  // it needs the other
    }
    const auto is_of_weights = [](const Fixed& one) { return one.row->name == "fp8_param_gather"; };
    if (dialect == Dialect::megatron_bridge && !has_own_defaults &&
        std::ranges::none_of(fixed, is_of_weights)) {
      question.base.fp8_param_gather = spec::dialects::preset_gathers_fp8(question.base);
    }
    if (dialect) without_words = keep_to_words_of(*dialect, fixed, question);
  };
  std::shared_ptr<const spec::HardwareSpec> hardware;
  std::optional<OwnedRun> theirs;
  std::optional<spec::dialects::RunConfig> words = today_config;
  PlanResult result;
  const auto calibrate = [&] {
    // A file of rates that is named leads.
    calibration = options.has("calibration") ? loaded : with_probed(loaded, *hardware);
    calibration = calibration.for_case(*hardware, routing_of_load(*model, question.load));
  };
  if (has_devices) {
    hardware = machine_of(machine, num_devices);
    question.hardware = hardware.get();
    if (today_config) {
      const spec::dialects::RunConfig& config = *today_config;
      theirs = owned_run(config, options.has("model") ? model : nullptr, hardware);
      // Both sides train the same.
      if (theirs->model->mtp.depth != model->mtp.depth) {
        model = theirs->model;
        model_config = with_mtp_depth(model_config, model->mtp.depth);
        question.model = model.get();
      }
      if (!dialect) dialect = config.dialect;
      if (config.seq_length > 0 && !options.has("seq")) question.seq_length = config.seq_length;
      if (config.global_batch_size > 0 && !options.has("gbs")) {
        question.global_batch_size = config.global_batch_size;
      }
      // What is not searched over stays as it is there, such as precision and types.
      question.base = theirs->run.knobs;
      // Plans are for Transformer Engine's modules, whose attention keeps no scores.
      if (planner::has_own_modules(theirs->run)) question.base.fused_attention = true;
      if (*dialect != Dialect::torchtitan) undo_costly_choices(question.base);
    }
    settle(today_config && today_config->dialect == dialect);
    // A release that takes a command's own is at hand. Where no framework is named all losses of
    // Megatron-Core are tried but for this one, beside which the chunked one is leaner.
    question.takes_te_loss = question.base.cross_entropy == spec::CrossEntropy::te ||
                             (dialect && !refuses_te_loss(dialect));
    if (theirs) question.other_bases = without_copies(question.base, fixed);
    calibrate();
    // It is told the layers of a stage, by those of the model.
    if (words && words->dialect == Dialect::torchtitan && words->model.empty()) {
      words->model = model_config;
    }
    result = make_plan(question, calibration, theirs ? std::optional(theirs->run) : std::nullopt,
                       words ? &*words : nullptr);
    if (theirs) {
      std::vector<std::string>& notes = result.against->notes;
      notes.insert(notes.begin(), theirs->notes.begin(), theirs->notes.end());
      result.against->settings = theirs->settings;
      if (std::string kept = kept_text(question, *today_config, dialect, fixed); !kept.empty()) {
        result.assumptions.push_back("kept from your command: " + std::move(kept));
      }
      // What is assumed of the model holds for both.
      std::ranges::copy_if(theirs->assumed, std::back_inserter(result.assumptions),
                           [assumption = spec::model_assumption(*theirs->model)](
                               const std::string& line) { return line != assumption; });
    }
  } else {
    settle(false);
    for (const int64_t devices : device_counts(machine)) {
      hardware = machine_of(machine, devices);
      question.hardware = hardware.get();
      calibrate();
      result = make_plan(question, calibration, std::nullopt);
      if (result.answer.num_fit > 0) break;
    }
    const char* what = "fewest (of powers of two) on which it fits";
    if (result.answer.num_fit == 0) {
      what = hardware->inter_node.bytes_per_s > 0
                 ? "most that were tried"
                 : "most that there are: nothing joins nodes, as key 'inter_node' is missing";
    }
    result.assumptions.push_back(
        fmt::format("{} devices are the {}", hardware->num_devices(), what));
  }
  find_ways_out(machine, calibration, result);
  if (options.has("published")) {
    const Calibration of_machine =
        options.has("calibration") ? loaded : with_probed(loaded, *hardware);
    set_beside(published, {options.text("published"), machine, loaded, of_machine, calibration},
               words ? &*words : nullptr, result);
  }
  if (std::string text = nodes_text(machine, *hardware); !text.empty()) {
    result.assumptions.push_back(std::move(text));
  }
  if (dialect) {
    result.assumptions.push_back(fmt::format("a plan for {}: what it has no words for is not tried",
                                             spec::name_of(*dialect)));
    if (is_without_mtp) {
      result.assumptions.push_back(
          fmt::format("the plan is without multi-token prediction, which {} cannot be asked for{}",
                      spec::name_of(*dialect),
                      theirs && theirs->model->mtp.depth > 0 ? "; yours trains it" : ""));
    }
    if (!without_words.empty()) {
      result.assumptions.push_back(fmt::format("{} has no words for {}: its defaults are taken",
                                               spec::name_of(*dialect), without_words));
    }
  }
  const bool has_batch =
      options.has("gbs") || (today_config && today_config->global_batch_size > 0);
  if (!has_batch) look_at_batches(calibration, result);
  if (result.answer.num_legal == 0) refuse_unsearched(question, fixed);
  if (result.answer.num_legal == 0) refuse_illegal(question, hardware->num_devices());
  const bool has_records = options.has("report") || options.has("trace-out");
  if (options.has("play") || has_records) play(calibration, has_records, result);
  if (options.has("trace-out")) {
    if (result.played) {
      write_traces(result.played->traces, trace_path, trace_format_of(trace_path));
    } else {
      std::cerr << fmt::format("{} is not written: there is no played step\n", trace_path);
    }
  }
  const std::string written = options.has("export") && !result.answer.best.empty()
                                  ? exported(options, model_config, today_config, result)
                                  : std::string();
  if (options.wants_json()) {
    nlohmann::json document = to_json(result);
    if (options.has("export")) document["exported"] = written;
    std::cout << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << to_text(result, terminal_width(STDOUT_FILENO));
    if (!written.empty()) std::cout << '\n' << written;
  }
  // Last, as it takes the traces. Standard output is the answer's.
  if (options.has("report")) {
    const std::string name = options.has("model") ? options.text("model") : model->family;
    const int64_t num_bytes = write_plan_page(
        plan_page(result, std::filesystem::path(name).filename().string(), today()), report);
    std::cerr << fmt::format("{} ({})\n", report, base::format_bytes(num_bytes));
  }
  return result.answer.best.empty() ? 1 : 0;
}

}  // namespace moetune::sweeps
