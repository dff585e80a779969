#include "engine/spec/dialects/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

/// Defaults of lists stand in the table with blanks between the words.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// Whether an old setting stands for the key.
bool means(const OldSetting& old, std::string_view key) {
  return !key.empty() &&
         std::ranges::find(old.means, key, &OldSetting::Meaning::key) != old.means.end();
}

}  // namespace

bool is_said(const RunConfig& run, const Row& row) {
  const std::string key = key_of(row, run.dialect);
  return std::ranges::any_of(run.stated, [&](const StatedSetting& setting) {
    if (setting.key == key) return true;
    const auto is_spelling = [&](std::string_view dialect_key, Dialect dialect) {
      return dialect == run.dialect && setting.key == dialect_key;
    };
    return std::ranges::any_of(other_keys(),
                               [&](const OtherKey& other) {
                                 return other.row == row.name &&
                                        is_spelling(other.key, other.dialect);
                               }) ||
           std::ranges::any_of(old_settings(), [&](const OldSetting& old) {
             return is_spelling(old.key, old.dialect) && means(old, key);
           });
  });
}

bool may_stand_elsewhere(const RunConfig& run) {
  return !run.is_echo && (run.is_partial || run.dialect == Dialect::megatron_bridge);
}

std::vector<std::string> Parts::list(std::string_view name) {
  const auto at = words_.find(name);
  if (at == words_.end()) return split(fallback_of(row_of(name), dialect_));
  taken_.emplace(name);
  return at->second;
}

std::string Parts::word(std::string_view name) {
  const std::vector<std::string> words = list(name);
  return words.empty() ? "" : words.front();
}

std::optional<int64_t> Parts::integer(std::string_view name) { return parse_integer(word(name)); }

bool Parts::is_on(std::string_view name) const {
  const auto at = words_.find(name);
  if (at == words_.end()) return fallback_of(row_of(name), dialect_) == "true";
  return !at->second.empty() && at->second.front() == "true";
}

Reading::Reading(Dialect dialect_in, const ImportOptions& options_in)
    : dialect(dialect_in),
      options(options_in),
      source(options_in.source.empty() ? std::string(name_of(dialect_in)) : options_in.source),
      settings(source),
      parts(dialect_in) {
  run.dialect = dialect;
}

void Reading::note(std::string text) {
  if (std::ranges::find(run.notes, text) == run.notes.end()) run.notes.push_back(std::move(text));
}

void Reading::problem(const std::string& text) { problems.add(source + ": " + text); }

bool Reading::is_stated(std::string_view row) const { return is_said(run, row_of(row)); }

bool Reading::may_stand_elsewhere() const { return dialects::may_stand_elsewhere(run); }

std::string Reading::key(std::string_view row) const { return key_of(row_of(row), dialect); }

std::string Reading::product_of(const std::vector<std::string_view>& rows) const {
  std::vector<std::string> factors;
  for (const std::string_view row : rows) {
    factors.push_back(
        fmt::format("'{}' {}", key(row), get_plan_knob(run.knobs, *find_plan_knob(row))));
  }
  return fmt::format("{}", fmt::join(factors, " x "));
}

std::string Reading::replica_text() const {
  std::vector<std::string_view> rows;
  for (const LayoutSize& size : layout_sizes()) {
    if (size.is_of_replica) rows.emplace_back(size.name);
  }
  return product_of(rows);
}

void Writing::cannot_say(std::string_view what, std::string_view why) {
  unsaid.emplace_back(what.substr(0, what.find('=')));
  notes.push_back(fmt::format("{} cannot be told {}{}{}", dialect_row(dialect).title, what,
                              why.empty() ? "" : ": ", why));
}

}  // namespace moetune::spec::dialects
