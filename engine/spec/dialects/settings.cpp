#include "engine/spec/dialects/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {
namespace {

std::string told(const Setting& setting) {
  if (setting.is_null) return "null";
  if (setting.words.empty()) return "set";
  return fmt::format("'{}'", shown(fmt::format("{}", fmt::join(setting.words, " "))));
}

}  // namespace

void Settings::add(Setting setting, Problems& problems) {
  const Setting* first = find(setting.key);
  if (first == nullptr) {
    if (settings_.size() == kMaxFields) {
      throw base::UsageError(fmt::format("{}: has more than {} settings", source_, kMaxFields));
    }
    settings_.push_back(std::move(setting));
  } else if (first->words != setting.words || first->is_null != setting.is_null) {
    problems.add(fmt::format("{}: '{}' stands twice, as {} and as {}: leave one", source_,
                             shown(setting.key), told(*first), told(setting)));
  }
}

const Setting* Settings::find(std::string_view key) const {
  const auto at = std::ranges::find(settings_, key, &Setting::key);
  return at == settings_.end() ? nullptr : &*at;
}

void Settings::replace(Setting setting) {
  *std::ranges::find(settings_, setting.key, &Setting::key) = std::move(setting);
}

void Settings::remove(std::string_view key) {
  std::erase_if(settings_, [&](const Setting& setting) { return setting.key == key; });
}

void flatten(const Node& node, const std::string& prefix, std::string (*print)(const Node&),
             Settings& settings, Problems& problems) {
  if (node.kind == Node::Kind::map && !node.fields.empty()) {
    for (const auto& [key, value] : node.fields) {
      flatten(value, prefix.empty() ? key : prefix + "." + key, print, settings, problems);
    }
    return;
  }
  Setting setting{.key = prefix, .is_null = node.is_null(), .value = print(node)};
  if (node.kind == Node::Kind::scalar && !setting.is_null) setting.words = {node.text};
  for (const Node& item : node.items) {
    const bool is_scalar = item.kind == Node::Kind::scalar;
    setting.words.push_back(is_scalar ? item.text : print(item));
  }
  settings.add(std::move(setting), problems);
}

}  // namespace moetune::spec::dialects
