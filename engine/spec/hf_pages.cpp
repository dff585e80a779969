// The keys of a config.json as rows of the page of formats.
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/spec/fields.h"
#include "engine/spec/hf_read.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

json default_of(const ModelKey& row) {
  if (row.info.key == "hidden_act") return kActivations.front().config_name;
  if (!row.fallback) return {};
  if (row.kind == FieldKind::boolean) return *row.fallback != 0;
  if (row.kind == FieldKind::integer) return static_cast<int64_t>(*row.fallback);
  return *row.fallback;
}

/// Of a key whose default is the family's: "2048 llama, deepseek_v2; 32768 elsewhere". In the order
/// of the table, but that of most families at the end; a family without one has "none".
template <typename Value>
std::string by_family(Value Family::*member) {
  struct Group {
    Value value;
    std::vector<std::string_view> names;
  };
  std::vector<Group> groups;
  for (const Family& family : kFamilies) {
    const Value value = family.*member;
    auto group = std::ranges::find(groups, value, &Group::value);
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->names.push_back(family.name);
  }
  const auto size = [](const Group& group) { return group.names.size(); };
  const auto usual = std::ranges::max_element(groups, {}, size);
  usual->names = {"elsewhere"};
  std::rotate(usual, usual + 1, groups.end());
  std::vector<std::string> parts;
  for (const Group& group : groups) {
    const std::string value = group.value == Value{} ? "none" : fmt::format("{}", group.value);
    parts.push_back(fmt::format("{} {}", value, fmt::join(group.names, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<FieldPage> pages_of_keys(std::span<const ModelKey> rows) {
  std::vector<FieldPage> pages;
  for (const ModelKey& row : rows) {
    pages.push_back({row.info, row.kind, default_of(row), {}, {}, {}});
  }
  return pages;
}

}  // namespace

std::vector<FieldPage> model_pages() {
  std::vector<FieldPage> model = pages_of_keys(kModelKeys);
  for (FieldPage& page : model) {
    if (page.info.key == "rope_parameters") page.children = pages_of_keys(kRopeKeys);
    if (page.info.key == "rms_norm_eps") page.default_text = by_family(&Family::eps);
    if (page.info.key == "rope_theta") page.default_text = by_family(&Family::theta);
    if (page.info.key == "max_position_embeddings") {
      page.default_text = by_family(&Family::max_positions);
    }
    if (page.info.key == "sliding_window") page.default_text = by_family(&Family::window);
  }
  return model;
}

}  // namespace moetune::spec
