#include "sweeps/runs/seen_world.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/missing_ranks.h"
#include "sweeps/runs/other_config.h"

namespace moetune::sweeps {
namespace {

/// Whether torchtitan is told how many shards there are; by default they are as many as fit.
bool has_all_degrees(const spec::dialects::RunConfig& config) {
  constexpr std::string_view kShards = "data_parallel_shard_degree";
  return std::ranges::any_of(config.stated, [&](const spec::dialects::StatedSetting& setting) {
    return setting.key.ends_with(kShards) && setting.value != "-1";
  });
}

void note_default_world(RunDiagnosis& diagnosis) {
  const std::string& source = diagnosis.config_source;
  diagnosis.notes.push_back(
      fmt::format("{} starts {} ranks where nobody says otherwise, and no log or trace says how "
                  "many there were: "
                  "ranks, dp and tokens/s are left out; say them with --gpus",
                  source.empty() ? "the command" : source, diagnosis.config->world_size));
}

/// `ranks`: seen, or else said by the user.
void note_unfit_world(int64_t ranks, bool is_said, RunDiagnosis& diagnosis) {
  const spec::PlanKnobs& knobs = diagnosis.config->knobs;
  const std::string& source = diagnosis.config_source;
  diagnosis.notes.push_back(
      fmt::format("{} {} ranks, which are no multiple of tp {} x cp {} x pp {} of {}{}",
                  is_said ? "--gpus says" : "the log or a trace says", ranks, knobs.tp, knobs.cp,
                  knobs.pp, source.empty() ? "the configuration" : source,
                  is_said ? ": ranks, dp and tokens/s are left out" : ""));
}

}  // namespace

std::optional<int64_t> seen_world_size(const RunDiagnosis& diagnosis) {
  if (diagnosis.facts && diagnosis.facts->world_size) return diagnosis.facts->world_size;
  if (diagnosis.traces) {
    for (const profiler::ImportedTrace& trace : diagnosis.traces->traces) {
      if (trace.facts.world_size) return trace.facts.world_size;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> world_size_of(const RunDiagnosis& diagnosis) {
  if (diagnosis.config && diagnosis.config->world_size > 0) return diagnosis.config->world_size;
  return seen_world_size(diagnosis);
}

void take_seen_world(int64_t said_devices, RunDiagnosis& diagnosis) {
  if (!diagnosis.config || diagnosis.config->stated_world_size > 0) return;
  spec::dialects::RunConfig& config = *diagnosis.config;
  std::optional<int64_t> seen = seen_world_size(diagnosis);
  const bool is_said = !seen && said_devices > 0;
  if (is_said) seen = said_devices;
  // torchtitan's degrees say its ranks.
  const bool is_open = config.dialect != spec::dialects::Dialect::torchtitan;
  if (!seen) {
    diagnosis.has_default_world = config.world_size > 0 && (is_open || !has_all_degrees(config));
    if (diagnosis.has_default_world) note_default_world(diagnosis);
    return;
  }
  if (*seen == config.world_size || !is_open || take_world_size(*seen, config)) return;
  diagnosis.has_default_world = config.world_size > 0;
  note_unfit_world(*seen, is_said, diagnosis);
}

void note_untraced_ranks(RunDiagnosis& diagnosis) {
  if (!diagnosis.traces || !diagnosis.other_log.empty()) return;
  const std::vector<profiler::ImportedTrace>& traces = diagnosis.traces->traces;
  const auto says_world = [](const auto& trace) { return trace.facts.world_size.has_value(); };
  if (std::ranges::any_of(traces, says_world)) return;  // the wall's evidence has it
  const bool is_logged = diagnosis.facts && diagnosis.facts->world_size;
  const bool is_default = !is_logged && diagnosis.has_default_world;
  int64_t world = 0;
  if (diagnosis.config) {
    world = is_default ? diagnosis.config->world_size : diagnosis.config->stated_world_size;
  }
  if (is_logged) world = *diagnosis.facts->world_size;
  if (world <= std::max(profiler::known_ranks(traces), std::ssize(traces))) return;
  const bool is_one = traces.size() == 1;
  diagnosis.notes.push_back(
      fmt::format("{} has {} ranks{}, and {} given, which {} not say so: what looks like "
                  "communication may be waiting for a rank without a trace; give the traces of all",
                  is_logged ? "the log" : "the command", world, is_default ? " by default" : "",
                  is_one ? "one trace was" : fmt::format("{} traces were", traces.size()),
                  is_one ? "does" : "do"));
}

}  // namespace moetune::sweeps
