// Asking the table.
#include "engine/spec/dialects/concepts.h"

#include <algorithm>
#include <map>

#include "kernels/base/error.h"

namespace moetune::spec::dialects {
namespace {

size_t index_of(Dialect dialect) { return static_cast<size_t>(dialect); }

/// "--num-experts" is num_experts to the program that reads it.
std::string name_of_flag(std::string_view flag) {
  std::string name(flag.substr(flag.find_first_not_of('-')));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Every key that leads to a row.
using Index = std::map<std::string, const Row*, std::less<>>;
Index index_for(Dialect dialect) {
  Index index;
  for (const Row& row : rows()) {
    if (const std::string key = key_of(row, dialect); !key.empty()) index.emplace(key, &row);
  }
  for (const OtherKey& other : other_keys()) {
    if (other.dialect == dialect) index.emplace(other.key, &row_of(other.row));
  }
  return index;
}

}  // namespace

std::span<const Row> rows() {
  static const std::vector<Row> kAll = [] {
    std::vector<Row> all(knob_rows().begin(), knob_rows().end());
    all.insert(all.end(), trait_rows().begin(), trait_rows().end());
    return all;
  }();
  return kAll;
}

std::string key_of(const Row& row, Dialect dialect) {
  std::string_view key = row.keys[index_of(dialect)];
  if (key == kByParts) return "";
  if (key.starts_with('!')) key.remove_prefix(1);
  if (key != kSame) return std::string(key);
  const std::string name = name_of_flag(row.keys[index_of(Dialect::megatron_lm)]);
  return dialect == Dialect::megatron_bridge ? "model." + name : name;
}

bool is_inverted(const Row& row, Dialect dialect) {
  return row.keys[index_of(dialect)].starts_with('!');
}

std::string_view fallback_of(const Row& row, Dialect dialect) {
  return row.fallbacks[index_of(dialect)];
}

const Row& row_of(std::string_view name) {
  const Row* found = nullptr;
  for (const std::span<const Row> table : {rows(), carried_rows()}) {
    const auto at = std::ranges::find(table, name, &Row::name);
    if (at != table.end()) found = &*at;
  }
  MOETUNE_CHECK(found != nullptr, "no concept is called '{}'", name);
  return *found;
}

const Row* find_row(std::string_view key, Dialect dialect) {
  static const std::array<Index, kNumDialects> kIndices = {
      index_for(Dialect::megatron_lm), index_for(Dialect::megatron_bridge),
      index_for(Dialect::torchtitan), index_for(Dialect::primus)};
  const Index& index = kIndices[index_of(dialect)];
  const auto at = index.find(key);
  return at == index.end() ? nullptr : at->second;
}

bool is_known(std::string_view key, Dialect dialect) {
  return find_row(key, dialect) != nullptr ||
         std::ranges::any_of(old_settings(), [&](const OldSetting& old) {
           return old.dialect == dialect && old.key == key;
         });
}

Kind kind_of(const Row& row) {
  if (const auto* part = std::get_if<Part>(&row.target)) return part->kind;
  if (const auto* trait = std::get_if<Trait>(&row.target)) return trait->kind;
  if (std::holds_alternative<int64_t RunConfig::*>(row.target)) return Kind::integer;
  if (std::holds_alternative<std::string RunConfig::*>(row.target) || !row.words.empty()) {
    return Kind::word;
  }
  const auto& member = std::get<PlanKnobMember>(row.target);
  if (std::holds_alternative<int32_t PlanKnobs::*>(member)) return Kind::integer;
  if (std::holds_alternative<bool PlanKnobs::*>(member)) return Kind::flag;
  return std::holds_alternative<float PlanKnobs::*>(member) ? Kind::number : Kind::word;
}

}  // namespace moetune::spec::dialects
