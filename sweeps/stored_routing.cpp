// Looks through the texts of a database's trials for a profile that fits the model.
#include "sweeps/stored_routing.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "sweeps/analyse.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

/// What decides the shape of a routing, by name.
json shape_of(const spec::TrialSpec& trial) {
  json shape = spec::to_json(trial.model);
  shape["global_batch_size"] = trial.training.global_batch_size;
  shape["seq_length"] = trial.training.seq_length;
  return shape;
}

/// The first difference between two shapes, "num_experts 8, here 4"; empty when there is none.
std::string difference(const json& stored, const json& wanted) {
  for (const auto& [key, value] : wanted.items()) {
    const auto other = stored.find(key);
    if (other != stored.end() && *other == value) continue;
    return fmt::format("{} {}, here {}", key,
                       other == stored.end() ? "unknown" : spec::describe(*other),
                       spec::describe(value));
  }
  return {};
}

/// The database may be one of an older moetune, or edited: what cannot be read is another trial.
std::string difference_of(const store::TrialRow& row, const std::string& source,
                          const json& wanted) {
  try {
    const json document = spec::parse_json(row.spec_json, source);
    return difference(shape_of(spec::trial_spec_from_json(document, source)), wanted);
  } catch (const base::UsageError& error) {
    return fmt::format("what cannot be read ({})", error.what());
  }
}

}  // namespace

StoredRouting read_stored_routing(const std::string& database, const spec::TrialSpec& trial) {
  const auto store = store::Store::open_read_only(database);
  const json wanted = shape_of(trial);
  std::string last_difference;
  std::vector<store::TrialRow> trials = store.list_trials();
  std::ranges::reverse(trials);
  for (const store::TrialRow& row : trials) {
    const std::vector<store::NamedText> texts = store.read_texts(row.id);
    const auto text = std::find_if(texts.rbegin(), texts.rend(), [](const store::NamedText& named) {
      return named.name == kRoutingProfileText;
    });
    if (text == texts.rend()) continue;
    const std::string source = fmt::format("{}: trial {}", database, row.id);
    const std::string found = difference_of(row, source, wanted);
    if (found.empty()) {
      try {
        const json document = spec::parse_json(text->value, "routing profile");
        return {row.id, spec::routing_profile_from_json(document)};
      } catch (const base::UsageError& error) {
        throw base::UsageError(fmt::format("{}: {}", source, error.what()));
      }
    }
    if (last_difference.empty()) {
      last_difference = fmt::format("trial {} had {}", row.id, found);
    }
  }
  throw base::UsageError(
      last_difference.empty()
          ? fmt::format("{}: no trial has recorded its routing; the reference run of a sweep does",
                        database)
          : fmt::format("{}: no trial has recorded the routing of this model and batch: {}",
                        database, last_difference));
}

}  // namespace moetune::sweeps
