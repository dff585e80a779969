#include "reports/engine_trial.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/store/trial_statuses.h"
#include "profiler/store/untrusted_json.h"

namespace moetune::reports {

using nlohmann::json;

bool has_forced_balancing(const store::Store& store, int64_t trial_id) {
  const std::vector<store::NamedText> texts = store.read_texts(trial_id);
  return std::ranges::find(texts, kForcedBalancingText, &store::NamedText::name) != texts.end();
}

bool is_of_another_engine(const store::TrialRow& trial) {
  const json document = store::parse_untrusted(trial.spec_json);
  return document.is_object() && document.contains("engine");
}

std::optional<std::vector<std::string>> engine_changes(const store::TrialRow& trial) {
  if (!is_of_another_engine(trial)) return std::nullopt;
  const json document = store::parse_untrusted(trial.spec_json);
  std::vector<std::string> changes;
  const auto found = document.find("changes");
  if (found == document.end() || !found->is_array()) return changes;
  for (const json& change : *found) {
    if (change.is_string()) changes.push_back(change.get<std::string>());
  }
  return changes;
}

EngineRun engine_run_of(const store::Store& store, const store::TrialRow& trial) {
  EngineRun run;
  if (!is_of_another_engine(trial)) return run;
  for (const store::NamedText& text : store.read_texts(trial.id)) {
    if (text.name == kCommandText) run.command = text.value;
    if (text.name == kCommandFolderText) run.folder = text.value;
  }
  return run;
}

std::optional<int64_t> known_bytes(bool is_of_another_engine, std::optional<int64_t> bytes) {
  return is_of_another_engine && bytes == 0 ? std::nullopt : bytes;
}

bool waits_for_tell(const store::Store& store, const store::SweepRow& sweep,
                    std::span<const store::TrialRow* const> trials) {
  const json config = store::parse_untrusted(sweep.config_json);
  const bool is_foreign = config.is_object() && config.contains("engine");
  if (!is_foreign || sweep.status != store::SearchStatus::interrupted) return false;
  for (size_t i = trials.size(); i-- > 0;) {
    const std::string& status = trials[i]->status;
    if (store::never_ran(status)) continue;
    if (status == store::kTrialInterrupted) return false;
    const std::vector<store::NamedText> texts = store.read_texts(trials[i]->id);
    // What moetune has launched itself is stored with its command.
    return std::ranges::find(texts, kCommandText, &store::NamedText::name) == texts.end();
  }
  return true;
}

}  // namespace moetune::reports
