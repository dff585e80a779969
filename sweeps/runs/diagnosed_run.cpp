#include "sweeps/runs/diagnosed_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <variant>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/hardware_names.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/analysis/kernel_classes.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/known_run.h"
#include "sweeps/runs/other_config.h"
#include "sweeps/runs/run_folder.h"
#include "sweeps/runs/secrets.h"
#include "sweeps/runs/seen_world.h"
#include "sweeps/runs/stated_config.h"
#include "sweeps/runs/traced_layout.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

namespace {

using base::Wall;
using nlohmann::json;

/// Of a run that ended as oom: the device's memory, or the host's.
const char* kind_of_memory(const RunFacts& facts) {
  return facts.root && facts.root->kind == "host-oom" ? "host memory" : "oom";
}

/// Whether a process was killed as the kernel does where the host has no memory left.
bool may_lack_host_memory(const RunDiagnosis& diagnosis) {
  if (!diagnosis.facts || !diagnosis.facts->root) return false;
  const RunFailure& root = *diagnosis.facts->root;
  const bool is_signal = root.kind == "signal" || root.kind == "process-signal";
  return is_signal && (root.exit_code == -9 || root.exit_code == 137);
}

/// Whether the allocator held as much as was asked for.
bool is_fragmented(const RunFacts& facts) {
  if (!facts.root || !facts.root->memory) return false;
  const OutOfMemoryFacts& memory = *facts.root->memory;
  return memory.asked_bytes > 0 && memory.reserved_unallocated_bytes >= memory.asked_bytes;
}

/// What the traces, or else the failure, speak for.
FoundWall wall_of(const RunDiagnosis& diagnosis) {
  if (diagnosis.facts && diagnosis.facts->status == ForeignStatus::oom) {
    FoundWall memory{
        Wall::memory, kind_of_memory(*diagnosis.facts), {{name_of(Wall::memory), 1.0}}};
    memory.is_fragmented = is_fragmented(*diagnosis.facts);
    return memory;
  }
  FoundWall found;
  if (!diagnosis.traces) return found;
  const profiler::ImportedWall& wall = diagnosis.traces->wall;
  found.label = wall.label;
  found.sub_cause = wall.sub_cause;
  found.ceilings = profiler::by_name(wall.ceilings);
  found.cause_ceilings = profiler::by_name(wall.sub_ceilings);
  found.loader = wall.loader;
  found.groups = wall.groups;
  found.kernels = wall.kernels;
  found.is_offload_one_way = wall.is_offload_one_way;
  if (!wall.is_memory_short) found.needless_recompute_ratio = wall.recompute_ratio;
  return found;
}

/// The wall where no share of a step tells it: of a run that is out of memory, or without traces.
json wall_without_shares(const RunDiagnosis& diagnosis) {
  json wall = {{"label", name_of(Wall::unknown)},
               {"sub_cause", nullptr},
               {"rank", nullptr},
               {"share_ratio", nullptr},
               {"low_ratio", nullptr},
               {"high_ratio", nullptr},
               {"most_ratio", nullptr},
               {"joint_ratio", nullptr},
               {"num_replayed_steps", 0},
               {"ceilings", json::object()},
               {"unknown_ratio", 1.0},
               {"summary",
                "There is no trace of a device: record one step of a few ranks with PyTorch's "
                "profiler (CPU and CUDA activities) or Nsight Systems."},
               {"evidence", json::array()}};
  if (!is_out_of_memory(diagnosis)) return wall;
  const RunFacts& facts = *diagnosis.facts;
  wall["label"] = name_of(Wall::memory);
  wall["sub_cause"] = kind_of_memory(facts);
  if (facts.root && facts.root->rank >= 0) wall["rank"] = facts.root->rank;
  wall["unknown_ratio"] = nullptr;
  wall["summary"] = facts.reason;
  return wall;
}

std::string remedy_text(const Remedy& remedy) {
  const std::string flags = remedy.flags.empty() ? std::string("(no flag)")
                                                 : fmt::format("{}", fmt::join(remedy.flags, "; "));
  const std::string ceiling = remedy.is_for_failure
                                  ? std::string()
                                  : fmt::format("{:5.1f} %  ", 100 * remedy.ceiling_ratio);
  std::string text = fmt::format("  {}{}\n", ceiling, one_line(flags));
  text += fmt::format("           {}: {}\n", remedy.rule, remedy.why);
  if (!remedy.refused.empty()) {
    text += fmt::format("           not possible here: {}\n", one_line(remedy.refused));
  }
  return text;
}

/// What lets a failed run go on, then what makes it faster: each under its own heading.
std::string remedies_text(const RunDiagnosis& diagnosis) {
  std::string to_run;
  std::string to_be_faster;
  for (const Remedy& remedy : diagnosis.remedies) {
    (remedy.is_for_failure ? to_run : to_be_faster) += remedy_text(remedy);
  }
  std::string text;
  if (!to_run.empty()) {
    text += fmt::format("\nto make it run, {}:\n{}", what_failure_asks_for(diagnosis), to_run);
  }
  if (!to_be_faster.empty()) {
    text += fmt::format(
        "\nto make it faster; the share of the step is the most that a change can save:\n{}",
        to_be_faster);
  }
  return text;
}

/// Where `what` says another size of the world than a trace: that they are hardly of one run. Else
/// empty.
std::string other_world_text(std::string_view what, int64_t world_size, const Diagnosis& traces) {
  for (const profiler::ImportedTrace& trace : traces.traces) {
    const std::optional<int64_t> of_trace = trace.facts.world_size;
    if (!of_trace || *of_trace == world_size) continue;
    return fmt::format(
        "{} is of a run of {} ranks, {} of one of {}: they do not seem to be of one run", what,
        world_size, trace.facts.file, *of_trace);
  }
  return {};
}

/// Where a step took much longer in one than in the other, what is told of the wall holds for the
/// traced one alone.
void note_other_step_time(RunDiagnosis& diagnosis) {
  constexpr double kOther = 1.5;  // recording alone may take a tenth or two
  if (!diagnosis.facts->step_time) return;
  const std::optional<double> traced_s = step_time_s(*diagnosis.traces);
  const double logged_s = diagnosis.facts->step_time->median_s;
  if (!traced_s || *traced_s <= 0 || logged_s <= 0) return;
  if (std::max(*traced_s / logged_s, logged_s / *traced_s) < kOther) return;
  const auto text = [](double s) { return base::format_ns(static_cast<int64_t>(s * 1e9)); };
  diagnosis.notes.push_back(
      fmt::format("a step took {} in the log and {} in the traces: the wall and what changes save "
                  "are of the traced step",
                  text(logged_s), text(*traced_s)));
}

/// Sets the knobs that are one setting of the framework to what holds where it is not said.
void take_defaults(spec::dialects::Dialect dialect, spec::PlanKnobs& knobs) {
  for (const spec::dialects::Row& row : spec::dialects::knob_rows()) {
    const std::string_view fallback = spec::dialects::fallback_of(row, dialect);
    const spec::PlanKnobRow* knob = spec::find_plan_knob(row.name);
    const bool is_one = std::holds_alternative<spec::PlanKnobMember>(row.target);
    if (is_one && knob != nullptr && !fallback.empty()) {
      spec::set_plan_knob(knobs, *knob, fallback);
    }
  }
}

/// Whether logs and traces are of two runs, and what to change is against the wall of the traces.
bool is_told_of_traces_alone(const RunDiagnosis& diagnosis) {
  return !diagnosis.other_log.empty() && !is_out_of_memory(diagnosis);
}

/// What logs say of a run whose configuration nobody has; for the rest its framework's defaults.
spec::dialects::RunConfig config_of_facts(const RunDiagnosis& diagnosis) {
  spec::dialects::RunConfig config;
  // Megatron-LM's words are said where nothing tells whose the run is.
  const bool has_meshes = diagnosis.traces && diagnosis.traces->wall.groups.has_meshes;
  if (has_meshes) config.dialect = spec::dialects::Dialect::torchtitan;
  // Primus runs torchtitan, too, whose settings are the same there.
  const bool is_of_primus = diagnosis.facts && diagnosis.facts->framework == Framework::primus;
  if (diagnosis.facts && !(is_of_primus && has_meshes)) {
    config.dialect = dialect_of(diagnosis.facts->framework).value_or(config.dialect);
  }
  if (config.dialect == spec::dialects::Dialect::torchtitan) {
    // Several of its settings make a knob: sharding, checkpoints, compilation.
    config =
        spec::dialects::import_run("[parallelism]\ntensor_parallel_degree = 1\n", config.dialect);
  } else {
    take_defaults(config.dialect, config.knobs);
  }
  if (!diagnosis.facts || is_told_of_traces_alone(diagnosis)) return config;
  const RunFacts& facts = *diagnosis.facts;
  const auto take = [](int32_t& to, const std::optional<int64_t>& from) {
    constexpr int64_t kMost = 1 << 20;
    if (from && *from > 0 && *from <= kMost) to = static_cast<int32_t>(*from);
  };
  for (const ParallelSizeRow& row : parallel_sizes()) {
    if (row.knob != nullptr) take(config.knobs.*row.knob, facts.parallel.*row.size);
  }
  take(config.knobs.micro_batch_size, facts.micro_batch_size);
  config.global_batch_size = facts.global_batch_size.value_or(0);
  config.is_batch_derived = config.is_batch_derived && !facts.global_batch_size;
  config.seq_length = facts.seq_length.value_or(0);
  return config;
}

/// Whether kernels ran that only experts have; true, too, where no kernel is known.
bool shows_experts(const profiler::KernelCosts& kernels) {
  using profiler::KernelClass;
  const auto has_some = [](double ratio) { return ratio > 0; };
  if (std::ranges::none_of(kernels.run, has_some)) return true;
  return std::ranges::any_of(
      std::initializer_list<KernelClass>{KernelClass::grouped_gemm, KernelClass::moe_routing},
      [&](KernelClass id) {
        const auto at = static_cast<size_t>(id);
        return kernels.run[at] > 0 || kernels.launch[at] > 0;
      });
}

/// What traces show of experts and the exchange of their rows, and whether all ranks share a node.
void add_traced_facts(const AboutRun& about, const RunDiagnosis& diagnosis, RunToMend& run) {
  const int64_t world = world_size_of(diagnosis).value_or(0);
  const auto holds_all = [&](int64_t devices) { return world > 0 && devices >= world; };
  run.is_on_one_node = about.hardware != nullptr && holds_all(about.hardware->devices_per_node);
  if (!diagnosis.traces) return;
  run.has_row_exchange = false;
  for (const profiler::ImportedTrace& trace : diagnosis.traces->traces) {
    run.has_row_exchange = run.has_row_exchange || may_exchange_rows(trace);
    const auto devices = static_cast<int64_t>(trace.facts.device_names.size());
    run.is_on_one_node = run.is_on_one_node || holds_all(devices);
  }
  run.has_expert_work = shows_experts(diagnosis.traces->wall.kernels) ||
                        std::ranges::any_of(diagnosis.traces->traces, exchanges_rows);
}

/// Settings against one of two causes that hide each other, as if it alone saved what both do.
std::string settings_against(Wall label, const std::string& sub_cause, double joint_ratio,
                             FoundWall wall, const RunToMend& run) {
  constexpr size_t kMostTold = 2;
  wall.label = label;
  wall.sub_cause = sub_cause;
  wall.ceilings = {{name_of(label), joint_ratio}};
  wall.cause_ceilings = {};
  std::vector<std::string> settings;
  for (const Remedy& remedy : remedies_of(wall, run)) {
    if (!remedy.is_of_wall || !remedy.refused.empty() || remedy.flags.empty()) continue;
    settings.push_back(fmt::format("{}", fmt::join(remedy.flags, " ")));
    if (settings.size() == kMostTold) break;
  }
  const std::string name = sub_cause.empty() ? "" : fmt::format(" ({})", sub_cause);
  return fmt::format("against {}{} {}", name_of(label), name,
                     settings.empty() ? "none that moetune knows"
                                      : fmt::format("{}", fmt::join(settings, ", or ")));
}

/// Of causes that hide each other none alone has a remedy that saves enough to be listed.
void note_joint_remedies(const FoundWall& wall, double joint_ratio, const RunToMend& run,
                         RunDiagnosis& diagnosis) {
  std::string hider = "against what hides it none that moetune knows";
  if (const auto cause = diagnosis.traces->wall.hidden_by) {
    const profiler::SubCauseRow& row = profiler::row_of(*cause);
    hider = settings_against(row.label, row.name, joint_ratio, wall, run);
  }
  diagnosis.notes.push_back(fmt::format(
      "two causes hide each other: change settings against both together, which saves {} of the "
      "step at most (their joint ceiling): {}; {}",
      base::format_ratio(joint_ratio),
      settings_against(wall.label, wall.sub_cause, joint_ratio, wall, run), hider));
}

/// Where no remedy is against the wall, those against other causes look like the answer.
void note_missing_remedy(const FoundWall& wall, const RunToMend& run, RunDiagnosis& diagnosis) {
  const std::vector<Remedy>& remedies = diagnosis.remedies;
  const bool is_unknown = wall.label == Wall::unknown;
  if (is_unknown) return;
  if (diagnosis.traces && !is_out_of_memory(diagnosis)) {
    const std::optional<double> joint_ratio = diagnosis.traces->wall.joint_ratio;
    if (joint_ratio) return note_joint_remedies(wall, *joint_ratio, run, diagnosis);
  }
  if (std::ranges::any_of(remedies, &Remedy::is_of_wall)) return;
  std::string name = name_of(wall.label);
  if (!wall.sub_cause.empty()) name += fmt::format(" ({})", wall.sub_cause);
  diagnosis.notes.push_back(
      fmt::format("against the wall itself, {}: none that moetune knows in {}'s words{}{}", name,
                  spec::dialects::dialect_row(run.config->dialect).title,
                  run.is_config_known ? ", beside what is in effect already" : "",
                  remedies.empty() ? "" : "; what to change is against other causes"));
}

/// Settings against communication do nothing against waiting for a rank without a trace.
void note_waiting_instead(RunDiagnosis& diagnosis) {
  if (!diagnosis.traces || is_out_of_memory(diagnosis)) return;
  const profiler::ImportedWall& wall = diagnosis.traces->wall;
  const bool has_remedy = std::ranges::any_of(diagnosis.remedies, &Remedy::is_of_wall);
  if (wall.label != Wall::communication || wall.waiting_instead.empty() || !has_remedy) return;
  diagnosis.notes.push_back(
      wall.is_waiting_likely
          ? fmt::format("the wall is more likely {}, against which settings of communication do "
                        "nothing: give the traces of all ranks before you change them",
                        wall.waiting_instead)
          : fmt::format("settings against communication do nothing where it is {}",
                        wall.waiting_instead));
}

/// What makes a configuration one of another run than the traces.
void note_contradictions(const profiler::GroupCosts& groups,
                         const spec::dialects::RunConfig& config, RunDiagnosis& diagnosis) {
  if (config.stated_world_size > 0) {
    std::string text = other_world_text("the command", config.stated_world_size, *diagnosis.traces);
    if (!text.empty()) diagnosis.notes.push_back(std::move(text));
  }
  for (std::string& sentence : contradicted_sizes(groups, config.knobs)) {
    diagnosis.notes.push_back(std::move(sentence));
  }
}

/// The layout that the traces name, where no log says it; and whether a configuration that is known
/// can be of the same run. What to change is told from the configuration.
void add_traced_layout(RunDiagnosis& diagnosis, RunToMend& run) {
  const int64_t world = world_size_of(diagnosis).value_or(0);
  spec::PlanKnobs& knobs = run.config->knobs;
  if (diagnosis.traces) {
    const profiler::GroupCosts& groups = diagnosis.traces->wall.groups;
    const bool says_sizes = diagnosis.facts && !is_told_of_traces_alone(diagnosis);
    const ParallelSizes said = says_sizes ? diagnosis.facts->parallel : ParallelSizes{};
    if (run.is_config_known) {
      note_contradictions(groups, *run.config, diagnosis);
      spec::PlanKnobs of_traces;
      diagnosis.traced_sizes =
          take_traced_sizes(groups, said, seen_world_size(diagnosis).value_or(0), of_traces);
    } else {
      diagnosis.traced_sizes = take_traced_sizes(groups, said, world, knobs);
    }
    // At least those that were traced.
    const auto num_traced = static_cast<int64_t>(diagnosis.traces->traces.size());
    if (world == 0 && !run.is_config_known) spec::set_dp_for(num_traced, knobs);
  }
  if (world > 0) spec::set_dp_for(world, knobs);
}

/// Whether a configuration says that tensors go to the host's memory, in whatever words.
bool says_offload(const spec::dialects::RunConfig& config) {
  const spec::PlanKnobs& knobs = config.knobs;
  return knobs.optimizer_offload_ratio > 0 || !knobs.offload.empty() ||
         std::ranges::any_of(config.unknown, [](const spec::dialects::UnknownSetting& setting) {
           return setting.key.find("offload") != std::string::npos;
         });
}

void add_traced_offload(const FoundWall& wall, RunDiagnosis& diagnosis, RunToMend& run) {
  const char* name = profiler::row_of(profiler::SubCause::offload).name;
  const auto ceiling = wall.cause_ceilings.find(name);
  const bool is_seen =
      wall.label != Wall::unknown &&
      (wall.sub_cause == name || (ceiling != wall.cause_ceilings.end() && ceiling->second > 0));
  if (!is_seen || !diagnosis.traces) return;
  run.has_unsaid_offload = !run.is_config_known && !wall.is_offload_one_way;
  const bool is_sure = wall.sub_cause == name && !wall.is_offload_one_way;
  if (run.is_config_known && is_sure && !says_offload(*run.config)) {
    diagnosis.notes.emplace_back(
        "the traces show that tensors go to the host's memory and back (offload), which the "
        "configuration does not say: turn off what moves them");
  }
}

void add_traced_recompute(const FoundWall& wall, RunDiagnosis& diagnosis, RunToMend& run) {
  if (!diagnosis.traces) return;
  const bool is_seen = diagnosis.traces->wall.recompute_ratio > 0;
  run.has_unsaid_recompute = is_seen && !run.is_config_known;
  const bool is_said = run.is_config_known && !run.config->knobs.recompute.empty();
  if (is_said && !is_seen && wall.label != Wall::unknown) {
    diagnosis.notes.emplace_back(
        "the configuration has activations computed a second time, which the traces do not show: "
        "what that costs is in the wall's other labels");
  }
}

/// What is told of a run whose configuration nobody has stands on less.
void note_unknown_config(const RunToMend& run, RunDiagnosis& diagnosis) {
  const std::vector<std::string> traced_sizes = size_words(diagnosis.traced_sizes);
  const std::string layout =
      traced_sizes.empty()
          ? std::string()
          : fmt::format(" and the groups in the traces ({})", fmt::join(traced_sizes, ", "));
  diagnosis.notes.push_back(fmt::format(
      "no command or configuration of the run {}: what to change is told from {}'s defaults{}; "
      "name {} with --run",
      diagnosis.has_unread_config ? "is understood" : "is known",
      spec::dialects::dialect_row(run.config->dialect).title, layout,
      diagnosis.has_unread_config || diagnosis.has_other_config ? "another" : "it"));
}

/// The device by the traces, else by the log. Of several kinds the one that can do less.
std::string named_device(const RunDiagnosis& diagnosis) {
  std::vector<std::string> names;
  if (diagnosis.traces) {
    for (const profiler::ImportedTrace& trace : diagnosis.traces->traces) {
      names.push_back(trace.device_name());
    }
  }
  if (diagnosis.facts) names.push_back(diagnosis.facts->device_name);
  std::erase_if(names, [](const std::string& name) { return name.empty(); });
  if (names.empty()) return {};
  const auto least = std::ranges::find_if(names, spec::lacks_eight_bit_floats);
  return least == names.end() ? names.front() : *least;
}

void add_remedies(const AboutRun& about, RunDiagnosis& diagnosis) {
  RunToMend run;
  // What to change follows from the wall, and that from the traces: not for the run of the logs.
  const bool is_of_logs = diagnosis.config && diagnosis.config_source.empty();
  run.is_config_known = diagnosis.config && !(is_of_logs && is_told_of_traces_alone(diagnosis));
  run.config = run.is_config_known ? *diagnosis.config : config_of_facts(diagnosis);
  // Torchtitan's models have no sizes but by their name.
  const bool is_by_name = run.config->dialect == spec::dialects::Dialect::torchtitan;
  if (is_by_name && run.config->model_name.empty() && diagnosis.facts) {
    run.config->model_name = diagnosis.facts->model_name;
  }
  add_traced_layout(diagnosis, run);
  run.model = about.model;
  run.hardware = about.hardware;
  if (diagnosis.facts) run.echoed = diagnosis.facts->echoed.settings;
  run.is_rocm = diagnosis.facts && diagnosis.facts->is_rocm;
  run.device_name = named_device(diagnosis);
  add_traced_facts(about, diagnosis, run);
  const FoundWall wall = wall_of(diagnosis);
  add_traced_offload(wall, diagnosis, run);
  add_traced_recompute(wall, diagnosis, run);
  diagnosis.remedies = remedies_of(wall, run);
  for (Remedy& remedy : diagnosis.remedies) remedy.is_for_failure = is_out_of_memory(diagnosis);
  note_missing_remedy(wall, run, diagnosis);
  note_waiting_instead(diagnosis);
  std::vector<Remedy> asked;
  if (may_lack_host_memory(diagnosis)) {
    asked = remedies_of({Wall::memory, "host memory", {{name_of(Wall::memory), 1.0}}}, run);
    for (Remedy& remedy : asked) remedy.is_for_failure = true;
  } else if (diagnosis.facts && diagnosis.facts->root &&
             diagnosis.facts->status == ForeignStatus::failed) {
    asked = remedies_of_rule(diagnosis.facts->root->sentence, run);
  }
  diagnosis.remedies.insert(diagnosis.remedies.begin(), asked.begin(), asked.end());
  if (!diagnosis.config && (wall.label != Wall::unknown || !diagnosis.remedies.empty())) {
    note_unknown_config(run, diagnosis);
  }
}

/// As it was named, else as it stands in a file. One that is not understood, or is of another run
/// than the logs, is noted: what a log or traces say is told without it.
void add_stated_config(const RunFolder& files, const AboutRun& about, RunDiagnosis& diagnosis) {
  const int64_t world_size = world_size_of(diagnosis).value_or(0);
  const RunFacts* logged = diagnosis.facts ? &*diagnosis.facts : nullptr;
  if (!about.read_config) {
    StatedConfig stated = config_of_files(files, logged, world_size, diagnosis.notes);
    diagnosis.config = std::move(stated.config);
    diagnosis.config_source = std::move(stated.source);
    diagnosis.has_unread_config = stated.has_unread;
    diagnosis.has_other_config = stated.has_other;
    return;
  }
  try {
    spec::dialects::RunConfig config = about.read_config(world_size);
    std::string other;
    if (logged != nullptr) {
      other = of_other_run(about.config_source, *logged, config, diagnosis.notes);
    }
    if (!other.empty()) {
      diagnosis.has_other_config = true;
      diagnosis.notes.push_back(std::move(other));
      return;
    }
    add_notes_of(config, about.config_source, diagnosis.notes);
    diagnosis.config = std::move(config);
    diagnosis.config_source = about.config_source;
  } catch (const base::UsageError& error) {
    if (!diagnosis.facts && !diagnosis.traces) throw;
    diagnosis.has_unread_config = true;
    diagnosis.notes.push_back(not_understood(about.config_source, error.what()));
  }
}

/// Rows of experts between ranks, or what may be such. `counts_messages`: a kernel that sends and
/// receives, too, of which nothing else is known.
bool has_exchange(const profiler::ImportedTrace& trace, bool counts_messages) {
  using profiler::KernelClass;
  const auto is_one_of = [](std::string_view text, std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(
        words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
  };
  std::vector<std::optional<KernelClass>> classes(trace.names.size());
  for (const profiler::ImportedOp& op : trace.ops) {
    if (op.kind == profiler::ActivityKind::graph) return true;  // of many kernels
    if (op.kind != profiler::ActivityKind::kernel) continue;
    // What the file calls it counts before the kernel's name.
    if (op.comm != profiler::kNoRow && trace.comms[op.comm].collective != profiler::kNoRow) {
      const std::string& collective = trace.names[trace.comms[op.comm].collective];
      // Several messages at once.
      const bool is_any = collective == "coalesced" || collective == profiler::kSendAndReceive;
      if (is_any && counts_messages) return true;
      if (is_one_of(collective, {"all_to_all", "alltoall", "AllToAll"})) return true;
      continue;
    }
    const std::string& name = trace.names[op.name];
    std::optional<KernelClass>& kernel = classes[op.name];
    if (!kernel) kernel = profiler::kernel_class_of(name);
    switch (*kernel) {
      case KernelClass::userbuffers:  // of tensor parallelism
        break;
      case KernelClass::nccl:
      case KernelClass::rccl:
        if (is_one_of(name, {"AllToAll", "AlltoAll"})) return true;
        // The kernels that do it among other things.
        if (counts_messages && is_one_of(name, {"SendRecv", "Generic"})) return true;
        break;
      default:
        if (row_of(*kernel).work != profiler::WorkClass::compute) return true;
        if (!trace.has_name(op)) return true;
    }
  }
  return false;
}

}  // namespace

bool may_exchange_rows(const profiler::ImportedTrace& trace) { return has_exchange(trace, true); }
bool exchanges_rows(const profiler::ImportedTrace& trace) { return has_exchange(trace, false); }

profiler::MemoryFacts said_memory(const std::optional<RunFacts>& facts,
                                  const spec::HardwareSpec* hardware) {
  profiler::MemoryFacts memory;
  if (facts && facts->peak_memory) memory.peak_bytes = facts->peak_memory->bytes;
  if (facts) memory.capacity_bytes = facts->device_bytes.value_or(0);
  if (memory.capacity_bytes == 0 && hardware != nullptr) {
    memory.capacity_bytes = hardware->memory_bytes;
  }
  return memory;
}

bool is_out_of_memory(const RunDiagnosis& diagnosis) {
  return diagnosis.facts && diagnosis.facts->status == ForeignStatus::oom;
}

std::string what_failure_asks_for(const RunDiagnosis& diagnosis) {
  if (is_out_of_memory(diagnosis)) return "what would free memory";
  if (may_lack_host_memory(diagnosis)) return "what would free memory of the host";
  return "what the rule asks for";
}

WallInShort wall_in_short(const RunDiagnosis& diagnosis) {
  if (is_out_of_memory(diagnosis)) {
    return {name_of(Wall::memory), kind_of_memory(*diagnosis.facts), std::nullopt};
  }
  if (!diagnosis.traces) return {};
  const profiler::ImportedWall& wall = diagnosis.traces->wall;
  return {name_of(wall.label), wall.sub_cause, wall.share_ratio};
}

RunDiagnosis diagnose_run(const std::vector<std::string>& paths, const AboutRun& about) {
  RunDiagnosis diagnosis;
  RunFolder files = files_of_run(paths);
  diagnosis.notes = std::move(files.notes);
  if (!files.logs.empty()) diagnosis.facts = read_run(files.logs);
  const profiler::MemoryFacts memory = said_memory(diagnosis.facts, about.hardware.get());
  const bool has_folder = std::ranges::any_of(
      paths, [](const auto& path) { return std::filesystem::is_directory(path); });
  if (has_folder) {
    Diagnosis found =
        diagnose_found_traces(files.traces, diagnosis.notes, about.hardware.get(), memory);
    if (!found.traces.empty()) diagnosis.traces = std::move(found);
  } else if (!files.traces.empty()) {
    diagnosis.traces = diagnose_traces(files.traces, about.hardware.get(), memory);
  }
  if (diagnosis.facts && diagnosis.facts->world_size && diagnosis.traces) {
    const std::vector<std::string>& logs = diagnosis.facts->files;
    diagnosis.other_log = other_world_text(logs.empty() ? "the log" : logs.front(),
                                           *diagnosis.facts->world_size, *diagnosis.traces);
    if (!diagnosis.other_log.empty()) diagnosis.notes.push_back(diagnosis.other_log);
  }
  if (diagnosis.facts && diagnosis.traces && diagnosis.other_log.empty()) {
    note_other_step_time(diagnosis);
  }
  add_stated_config(files, about, diagnosis);
  if (!diagnosis.config && diagnosis.facts) diagnosis.config = diagnosis.facts->config;
  if (diagnosis.config) hide_secrets(*diagnosis.config);
  if (diagnosis.facts) {
    if (diagnosis.facts->config) hide_secrets(*diagnosis.facts->config);
    diagnosis.facts->command = without_secrets(diagnosis.facts->command);
  }
  if (!diagnosis.facts && !diagnosis.traces && !diagnosis.config) {
    throw base::UsageError(
        fmt::format("nothing of the run can be read: {}", fmt::join(diagnosis.notes, "; ")));
  }
  take_seen_world(about.num_devices, diagnosis);
  note_untraced_ranks(diagnosis);
  add_remedies(about, diagnosis);
  return diagnosis;
}

json to_json(const RunDiagnosis& diagnosis) {
  json document = diagnosis.traces ? to_json(*diagnosis.traces)
                                   : json{{"run", json::object()}, {"ranks", json::array()}};
  if (!diagnosis.traces || is_out_of_memory(diagnosis)) {
    document["wall"] = wall_without_shares(diagnosis);
  }
  document["run"] = known_json(diagnosis, document["run"]);
  document["notes"] = diagnosis.notes;
  document["remedies"] = json::array();
  for (const Remedy& remedy : diagnosis.remedies) {
    document["remedies"].push_back(
        {{"flags", remedy.flags},
         {"for", remedy.is_for_failure ? "failure" : "wall"},
         {"ceiling_ratio", remedy.is_for_failure ? json() : json(remedy.ceiling_ratio)},
         {"rule", remedy.rule},
         {"why", remedy.why},
         {"refused", remedy.refused.empty() ? json() : json(remedy.refused)}});
  }
  return document;
}

std::string run_text(const RunDiagnosis& diagnosis, std::optional<size_t> width) {
  std::string text = facts_text(diagnosis, width);
  if (diagnosis.traces) {
    if (!text.empty()) text += '\n';
    text += windows_text(*diagnosis.traces, width);
  }
  if (is_out_of_memory(diagnosis)) {
    text += fmt::format("\nwall: memory ({})\n", kind_of_memory(*diagnosis.facts));
  } else if (diagnosis.traces) {
    text += "\n" + wall_text(*diagnosis.traces);
  } else {
    text += fmt::format("\nwall: unknown. {}\n",
                        wall_without_shares(diagnosis)["summary"].get<std::string>());
  }
  for (const std::string& note : diagnosis.notes) text += "note: " + one_line(note) + "\n";
  return text + remedies_text(diagnosis);
}

}  // namespace moetune::sweeps
