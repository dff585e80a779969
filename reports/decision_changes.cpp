#include "reports/decision_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "profiler/store/untrusted_json.h"

namespace moetune::reports {
namespace {

/// Of more changes the first ones: a stranger's file may name any number.
constexpr size_t kMostNamedChanges = 12;

std::string joined_parts(const std::vector<std::string>& parts) {
  if (parts.size() <= kMostNamedChanges) return fmt::format("{}", fmt::join(parts, ", "));
  const std::vector<std::string> first(parts.begin(), parts.begin() + kMostNamedChanges);
  return fmt::format("{}, {} more", fmt::join(first, ", "), parts.size() - kMostNamedChanges);
}

std::string value_at(const nlohmann::json& change, const char* key) {
  const auto found = change.is_object() ? change.find(key) : change.end();
  if (found == change.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_primitive() && !found->is_null() ? found->dump() : "";
}

/// Of an old value that is longer than so many bytes only the new one.
std::string text_of_changes(const store::DecisionRow& decision, size_t most_bytes) {
  std::vector<std::string> parts;
  for (const KnobChange& change : changes_of(decision)) {
    const std::string before = change.before.empty() ? "–" : change.before;
    parts.push_back(change.before.size() > most_bytes
                        ? fmt::format("{} → {}", change.name, change.after)
                        : fmt::format("{} {} → {}", change.name, before, change.after));
  }
  return parts.empty() ? decision.remedy : joined_parts(parts);
}

}  // namespace

std::vector<KnobChange> changes_of(const store::DecisionRow& decision) {
  std::vector<KnobChange> changes;
  if (decision.knob.empty()) return changes;
  const nlohmann::json evidence = store::parse_untrusted(decision.evidence_json);
  const auto knobs = evidence.is_object() ? evidence.find("knobs") : evidence.end();
  // A layout's own text says what it is made of.
  const bool has_all =
      knobs != evidence.end() && knobs->is_object() && knobs->contains(decision.knob);
  if (has_all) {
    for (const auto& [name, change] : knobs->items()) {
      changes.push_back({name, value_at(change, "before"), value_at(change, "after")});
    }
  }
  if (changes.size() < 2) return {{decision.knob, decision.value_before, decision.value_after}};
  return changes;
}

std::string change_text(const store::DecisionRow& decision) {
  return text_of_changes(decision, std::string::npos);
}

std::string short_change_text(const store::DecisionRow& decision) {
  constexpr size_t kMostBytes = 40;
  return text_of_changes(decision, kMostBytes);
}

std::string changed_names(const store::DecisionRow& decision) {
  std::vector<std::string> names;
  for (const KnobChange& change : changes_of(decision)) names.push_back(change.name);
  return names.empty() ? decision.remedy : joined_parts(names);
}

}  // namespace moetune::reports
