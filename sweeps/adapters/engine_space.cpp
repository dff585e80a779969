#include "sweeps/adapters/engine_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/pipeline_layout.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/fnv.h"
#include "kernels/base/units.h"
#include "sweeps/adapters/engine_result.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/adapters/shell_text.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/rates_file.h"
#include "sweeps/runs/remedies.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/step_time.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;
namespace planner = tuner::planner;
using base::Wall;
using tuner::Settings;
using tuner::SettingsMove;

/// Sizes that make a layout: their combinations are looked at together.
constexpr std::array<std::string_view, 7> kLayoutKnobs = {
    "tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch_size"};
constexpr size_t kMostCombinations = 20'000;
/// Of a device's memory: plans for Megatron-Core are off by a tenth at worst, so what is predicted
/// to need a little more is tried.
constexpr double kCertainlyTooLarge = 1.12;

planner::PlanRun plan_run_of(const UserRun& run, const spec::PlanKnobs& knobs) {
  planner::PlanRun plan;
  plan.model = run.model.get();
  plan.hardware = run.hardware.get();
  plan.knobs = knobs;
  // As in owned_run: a dense model has no experts to slice.
  if (plan.model != nullptr && plan.model->num_experts == 0) plan.knobs.etp = 1;
  plan.seq_length = run.sweep.base.training.seq_length;
  plan.global_batch_size = run.sweep.base.training.global_batch_size;
  plan.is_of_megatron = run.config.dialect != dialects::Dialect::torchtitan;
  plan.states_own_modules = run.config.has_own_modules;
  plan.holds_all_micro_batches = dialects::holds_all_micro_batches(run.config, knobs);
  plan.has_rounds = dialects::has_rounds(run.config, knobs);
  plan.fills_stages = dialects::fills_stages(run.config, knobs);
  plan.has_usual_schedule = dialects::has_usual_schedule(run.config, knobs);
  plan.takes_padded_deepep = dialects::takes_padded_deepep(run.config);
  if (!run.config.pipeline_layout.empty()) {
    plan.stages = spec::pipeline_stages_of(run.config.pipeline_layout);
  }
  return plan;
}

/// `config` with the sweep's global batch, model and hardware: what remedies and rules look at.
RunToMend run_to_mend(const UserRun& run, const dialects::RunConfig& config) {
  RunToMend mend;
  mend.config = config;
  // The trial's command states its own settings.
  std::vector<dialects::StatedSetting>& stated = mend.config->stated;
  for (const dialects::SettingChange& change : dialects::changes_of_text(run.config, config)) {
    if (change.is_variable || stated.empty()) continue;
    std::erase_if(stated, [&](const auto& setting) { return setting.key == change.key; });
    if (change.after) stated.push_back({change.key, *change.after});
  }
  mend.config->global_batch_size = run.sweep.base.training.global_batch_size;
  mend.config->is_batch_derived = false;
  mend.model = run.model;
  mend.hardware = run.hardware;
  return mend;
}

}  // namespace

std::string whose_rules(dialects::Dialect dialect) {
  const dialects::DialectRow& row = dialects::dialect_row(dialect);
  return fmt::format("Rules and names of settings are those of {} {}", row.title, row.release);
}

tuner::Prediction EngineSpace::predict(const spec::PlanKnobs& knobs) const {
  tuner::Prediction prediction;
  if (run_->model == nullptr || run_->hardware == nullptr) return prediction;
  const planner::PlanRun plan = plan_run_of(*run_, knobs);
  if (planner::broken_rule(plan) != nullptr) return prediction;
  prediction.peak_bytes = static_cast<int64_t>(planner::predict_memory(plan).peak_bytes());
  prediction.step_ns =
      static_cast<int64_t>(planner::predict_step(plan, default_calibration().rates).seconds * 1e9);
  return prediction;
}

tuner::TrialRequest EngineSpace::request(const Settings& settings, bool is_profiled,
                                         int64_t num_steps) const {
  const dialects::RunConfig config = config_with(*run_, settings);
  tuner::TrialRequest request;
  request.spec = run_->sweep.base;
  request.spec.num_steps = num_steps;
  request.is_profiled = is_profiled;
  std::string identity;
  for (const auto& [name, value] : settings) {
    const spec::PlanKnobRow* row = run_->dialect ? spec::find_plan_knob(name) : nullptr;
    request.settings.emplace_back(name,
                                  row == nullptr ? value : spec::get_plan_knob(config.knobs, *row));
    identity += fmt::format("{}={}\n", name, request.settings.back().second);
  }
  identity += fmt::format("{} {} {}", num_steps, request.spec.num_warmup_steps, is_profiled);
  request.hash = base::fnv_digits(identity);
  if (run_->dialect) request.prediction = predict(config.knobs);
  nlohmann::json settings_json = nlohmann::json::object();
  for (const auto& [name, value] : request.settings) settings_json[name] = value;
  request.stored_spec = nlohmann::json{
      {"engine", spec::name_of(run_->engine().dialect)},
      {"run", run_->engine().run},
      {"changes", change_texts(*run_, config)},
      {"settings", settings_json},
      {"num_steps", num_steps},
      {"is_profiled",
       is_profiled}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return request;
}

std::string EngineSpace::broken_rule(const Settings& settings) const {
  const dialects::RunConfig config = config_with(*run_, settings);
  if (run_->dialect) {
    const int64_t replica = config.knobs.replica_ranks();
    if (run_->world_size > 0 && run_->world_size % replica != 0) {
      return fmt::format("ranks: tp {} x cp {} x pp {} do not divide the {} ranks", config.knobs.tp,
                         config.knobs.cp, config.knobs.pp, run_->world_size);
    }
    std::string rule = rule_broken_by(run_to_mend(*run_, run_->config), config.knobs);
    if (!rule.empty()) return rule;
  }
  return unsayable(*run_, config, settings);
}

std::string EngineSpace::too_large(const tuner::TrialRequest& request) const {
  const int64_t peak = request.prediction.peak_bytes;
  if (peak <= 0 || run_->hardware == nullptr || run_->hardware->memory_bytes <= 0) return {};
  const double device = planner::device_bytes(static_cast<double>(peak));
  const auto capacity = static_cast<double>(run_->hardware->memory_bytes);
  if (run_->config.dialect == dialects::Dialect::torchtitan) {
    // Less is known of its memory than a tenth.
    const Settings settings(request.settings.begin(), request.settings.end());
    const planner::PlanRun plan = plan_run_of(*run_, config_with(*run_, settings).knobs);
    if (verdict_of(plan, static_cast<double>(peak), capacity) != Verdict::oom) return {};
  } else if (device <= kCertainlyTooLarge * capacity) {
    return {};
  }
  return fmt::format("predicted to need {} of {}", base::format_bytes(static_cast<int64_t>(device)),
                     base::format_bytes(run_->hardware->memory_bytes));
}

bool EngineSpace::can_profile() const {
  const std::string& words = run_->engine().profile;
  return words != "none" && (run_->dialect.has_value() || !words.empty());
}

bool EngineSpace::asks_for_steps() const { return sweeps::asks_for_steps(*run_); }

std::string EngineSpace::remark() const {
  std::string text;
  if (dialects::forces_balance(run_->config)) {
    text = " Experts are forced to be balanced: no figure here holds for real routing.";
  }
  if (run_->dialect) text += fmt::format(" {}.", whose_rules(*run_->dialect));
  return text;
}

std::string EngineSpace::change_text(const Settings& from, const Settings& to) const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : to) {
    const auto was = from.find(name);
    if (was == from.end() || was->second == value || !run_->is_axis(name)) continue;
    parts.push_back(fmt::format("{} {} -> {}", name, was->second, value));
  }
  return parts.empty() ? std::string("no change") : fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<Settings> EngineSpace::layouts() const {
  std::vector<Settings> layouts = {{}};
  if (!run_->dialect) return {};
  for (const std::string_view name : kLayoutKnobs) {
    const auto axis = run_->sweep.space.find(std::string(name));
    if (axis == run_->sweep.space.end()) continue;
    std::vector<Settings> next;
    for (const Settings& layout : layouts) {
      for (const std::string& value : axis->second) {
        if (next.size() == kMostCombinations) break;
        next.push_back(layout);
        next.back().insert_or_assign(axis->first, value);
      }
    }
    layouts = std::move(next);
  }
  return layouts;
}

std::vector<std::pair<std::string, std::string>> EngineSpace::illegal_axes() const {
  constexpr size_t kMostLookedAt = 500;
  std::vector<Settings> places = {base()};
  const std::vector<Settings> all = layouts();
  const size_t num_looked_at = std::min(kMostLookedAt, all.size());
  for (size_t i = 0; i < num_looked_at; ++i) {
    Settings place = base();
    for (const auto& [name, value] : all[i * all.size() / num_looked_at]) {
      place.insert_or_assign(name, value);
    }
    if (broken_rule(place).empty()) places.push_back(std::move(place));
  }
  std::vector<std::pair<std::string, std::string>> illegal;
  for (const auto& axis : run_->sweep.space) {
    const std::string& name = axis.first;
    std::string first;
    const bool is_usable = std::ranges::any_of(axis.second, [&](const std::string& value) {
      return std::ranges::any_of(places, [&](Settings settings) {
        settings.insert_or_assign(name, value);
        const std::string rule = broken_rule(settings);
        if (first.empty()) first = rule;
        return rule.empty();
      });
    });
    if (!is_usable) illegal.emplace_back(name, first);
  }
  return illegal;
}

void EngineSpace::add_remedies(const Settings& from, const tuner::TrialOutcome& seen,
                               std::vector<SettingsMove>& moves) const {
  FoundWall wall{seen.wall.value_or(Wall::unknown),
                 seen.wall_cause,
                 {seen.ceilings.begin(), seen.ceilings.end()},
                 {seen.cause_ceilings.begin(), seen.cause_ceilings.end()}};
  if (seen.status == spec::TrialStatus::oom)
    wall = {Wall::memory, "oom", {{name_of(Wall::memory), 1.0}}};
  if (!run_->dialect) return;
  const dialects::RunConfig config = config_with(*run_, from);
  for (const Remedy& remedy : remedies_of(wall, run_to_mend(*run_, config))) {
    if (!remedy.knobs) continue;
    SettingsMove move{from, remedy.rule, remedy.why, remedy.ceiling_ratio};
    bool is_allowed = true;
    for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
      const std::string name(row.name);
      const std::string value = spec::get_plan_knob(*remedy.knobs, row);
      if (name == "dp" || spec::get_plan_knob(config.knobs, row) == value) continue;
      const auto axis = run_->sweep.space.find(name);
      is_allowed = is_allowed && axis != run_->sweep.space.end() &&
                   std::ranges::find(axis->second, value) != axis->second.end();
      move.settings.insert_or_assign(name, value);
    }
    if (is_allowed) moves.push_back(std::move(move));
  }
}

std::vector<SettingsMove> EngineSpace::moves(const Settings& from,
                                             const tuner::TrialOutcome& seen) const {
  std::vector<SettingsMove> moves;
  add_remedies(from, seen, moves);
  const auto num_remedies = static_cast<std::ptrdiff_t>(moves.size());
  for (const auto& [name, values] : run_->sweep.space) {
    for (const std::string& value : values) {
      if (from.at(name) == value) continue;
      SettingsMove move{from, "", "", 0};
      move.settings.insert_or_assign(name, value);
      const bool is_known = std::ranges::any_of(
          moves, [&](const SettingsMove& other) { return other.settings == move.settings; });
      if (!is_known) moves.push_back(std::move(move));
    }
  }
  if (run_->model == nullptr || run_->hardware == nullptr || !run_->dialect) return moves;
  // What nobody has named is tried in the order of what it promises: memory, or time.
  const bool wants_memory = seen.status == spec::TrialStatus::oom;
  std::map<std::string, int64_t> worth;
  const auto key_of = [&](const SettingsMove& move) { return change_text(from, move.settings); };
  for (const SettingsMove& move : moves) {
    const tuner::Prediction prediction = predict(config_with(*run_, move.settings).knobs);
    const int64_t figure = wants_memory ? prediction.peak_bytes : prediction.step_ns;
    worth[key_of(move)] = figure > 0 ? figure : INT64_MAX;
  }
  std::stable_sort(moves.begin() + num_remedies, moves.end(),
                   [&](const SettingsMove& a, const SettingsMove& b) {
                     return worth[key_of(a)] < worth[key_of(b)];
                   });
  return moves;
}

}  // namespace moetune::sweeps
