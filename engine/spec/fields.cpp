// What is derived from field tables without their types: plausibility, JSON Schema, the page.
#include "engine/spec/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "engine/spec/knobs.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

bool is_number(const FieldPage& page) {
  return page.kind == FieldKind::integer || page.kind == FieldKind::number;
}

/// 1e15 as 1e15, 2^60 as 2^60, 18874368 as 18874368, 0.15 as 0.15.
std::string number_text(double value) {
  constexpr double kExact = 1e9;
  if (std::floor(value) == value && std::abs(value) <= kExact) return fmt::format("{:.0f}", value);
  if (const double power = std::log2(value); value > kExact && std::floor(power) == power) {
    return fmt::format("2^{:.0f}", power);
  }
  std::string text = fmt::format("{:g}", value);
  if (const size_t plus = text.find("e+"); plus != std::string::npos) text.erase(plus + 1, 1);
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

json number_schema(const FieldPage& page) {
  json number = {{"type", page.kind == FieldKind::integer ? "integer" : "number"},
                 {"minimum", page.info.limits.min},
                 {"maximum", page.info.limits.max}};
  if (page.info.limits.max <= page.info.limits.min) {
    number.erase("minimum");
    number.erase("maximum");
  }
  const std::string pattern = unit_pattern(page.info.quantity);
  if (pattern.empty()) return number;
  return {{"anyOf", {number, {{"type", "string"}, {"pattern", pattern}}}}};
}

/// An integer, a truth value or one of the names, as a knob's row says.
json knob_schema(const KnobRow& row) {
  return std::visit(
      [&](auto member) -> json {
        using Member = std::remove_cvref_t<decltype(Knobs{}.*member)>;
        if constexpr (std::is_same_v<Member, int64_t>) {
          return {{"type", "integer"}, {"minimum", row.min_value}};
        } else if constexpr (std::is_same_v<Member, bool>) {
          return {{"type", "boolean"}};
        } else if constexpr (HasNames<Member>) {
          return {{"enum", detail::names_of<Member>()}};
        } else {
          return {{"type", "string"}};
        }
      },
      row.member);
}

json knobs_schema(bool is_space) {
  json properties = json::object();
  const json defaults = to_json(Knobs{});
  for (const KnobRow& row : knob_table()) {
    const std::string name(row.name);
    json value = knob_schema(row);
    if (is_space) {
      value = {{"type", "array"}, {"items", value}, {"minItems", 1}, {"uniqueItems", true}};
    } else {
      value["default"] = defaults[name];
    }
    value["description"] = fmt::format("{} ({})", row.help, row.values);
    properties[name] = std::move(value);
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

json value_schema(const FieldPage& page) {
  switch (page.kind) {
    case FieldKind::integer:
    case FieldKind::number:
      return number_schema(page);
    case FieldKind::boolean:
      return {{"type", "boolean"}};
    case FieldKind::text:
      return {{"type", "string"}};
    case FieldKind::choice:
      return {{"enum", page.choices}};
    case FieldKind::numbers:
      return {{"type", "array"}, {"items", {{"type", "number"}}}};
    case FieldKind::texts:
      return {{"type", "array"}, {"items", {{"type", "string"}}}};
    case FieldKind::object:
      // One without rows is not looked into.
      return page.children.empty() ? json{{"type", "object"}} : schema_of(page.children);
    case FieldKind::model:
    case FieldKind::hardware:
      return {{"type", {"object", "string"}}};
    case FieldKind::knobs:
      return knobs_schema(false);
    case FieldKind::space:
      return knobs_schema(true);
    case FieldKind::settings:
      return {
          {"type", "object"},
          {"additionalProperties", {{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}}}};
    case FieldKind::texts_by_key:
      return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  }
  return json::object();
}

std::string type_text(const FieldPage& page) {
  switch (page.kind) {
    case FieldKind::integer:
      return "integer";
    case FieldKind::number:
      return "number";
    case FieldKind::boolean:
      return "true or false";
    case FieldKind::text:
      return "text";
    case FieldKind::choice: {
      // One without a name is what is there when the key is not.
      std::vector<std::string_view> names = page.choices;
      std::erase(names, std::string_view());
      return fmt::format("`{}`", fmt::join(names, "` `"));
    }
    case FieldKind::numbers:
      return "list of numbers";
    case FieldKind::texts:
      return "list of texts";
    case FieldKind::object:
      return "object";
    case FieldKind::model:
      return "model: object, path or name";
    case FieldKind::hardware:
      return "hardware: object, path or name";
    case FieldKind::knobs:
      return "object: knob to value";
    case FieldKind::space:
      return "object: knob to list of values";
    case FieldKind::settings:
      return "object: setting to list of values";
    case FieldKind::texts_by_key:
      return "object: key to text";
  }
  return "";
}

std::string default_text(const FieldPage& page) {
  if (page.info.presence == Presence::required) return "required";
  if (!page.default_text.empty()) return page.default_text;
  if (page.default_value.is_structured() || page.default_value.is_null()) return "";
  if (page.default_value.is_number_float()) return number_text(page.default_value.get<double>());
  const std::string text = page.default_value.dump();
  return text == "\"\"" ? "" : fmt::format("`{}`", text);
}

void add_rows(const std::vector<FieldPage>& pages, const std::string& path, std::string& text) {
  for (const FieldPage& page : pages) {
    const std::string key = path + std::string(page.info.key);
    const Limits& limits = page.info.limits;
    const bool has_range = is_number(page) && limits.max > limits.min;
    text += fmt::format(
        "| `{}` | {} | {} | {} | {} | {} |\n", key, type_text(page), unit_name(page.info.quantity),
        default_text(page),
        has_range ? fmt::format("{} to {}", number_text(limits.min), number_text(limits.max)) : "",
        escaped(page.info.help));
    add_rows(page.children, key + ".", text);
  }
}

}  // namespace

void check_plausible(const Source& source, const std::vector<FieldPage>& pages, const json& written,
                     Problems& problems, const std::string& path) {
  for (const FieldPage& page : pages) {
    const auto found = written.find(page.info.key);
    if (found == written.end()) continue;
    const std::string key = path + std::string(page.info.key);
    if (page.kind == FieldKind::object) {
      check_plausible(source, page.children, *found, problems, key + ".");
      continue;
    }
    const Limits& plausible = page.info.plausible;
    if (plausible.max <= plausible.min || !found->is_number()) continue;
    const auto value = found->get<double>();
    // Zero says that there is none.
    if (value == 0 || (value >= plausible.min && value <= plausible.max)) continue;
    const std::string meant =
        likely_meaning(page.info.quantity, value, plausible.min, plausible.max);
    const std::string_view unit = unit_name(page.info.quantity);
    problems.add(fmt::format(
        "{}key '{}' is {}{}: no machine has that; {}", source.prefix(key), key, found->dump(),
        unit.empty() ? ""
                     : fmt::format(", {} in {}", quantity_text(page.info.quantity, value), unit),
        meant.empty()
            ? fmt::format("expected {} to {}", quantity_text(page.info.quantity, plausible.min),
                          quantity_text(page.info.quantity, plausible.max))
            : fmt::format("did you mean \"{}\"?", meant)));
  }
}

json schema_of(const std::vector<FieldPage>& pages) {
  json properties = json::object();
  json required = json::array();
  for (const FieldPage& page : pages) {
    const std::string key(page.info.key);
    json value = value_schema(page);
    std::string description(page.info.help);
    if (const std::string_view unit = unit_name(page.info.quantity); !unit.empty()) {
      description += fmt::format(" In {}", unit);
      const std::string_view example = unit_example(page.info.quantity);
      description += example.empty() ? "." : fmt::format(", or a text such as {}.", example);
    }
    value["description"] = std::move(description);
    if (page.info.presence == Presence::required) {
      required.push_back(key);
    } else if (!page.default_value.is_null() && page.kind != FieldKind::knobs &&
               page.kind != FieldKind::space && page.kind != FieldKind::settings &&
               page.kind != FieldKind::texts_by_key) {
      value["default"] = page.default_value;
    }
    properties[key] = std::move(value);
  }
  json schema = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

std::string markdown_of(const std::vector<FieldPage>& pages) {
  std::string text =
      "| key | type | unit | default | range | meaning |\n|---|---|---|---|---|---|\n";
  add_rows(pages, "", text);
  return text;
}

}  // namespace moetune::spec
