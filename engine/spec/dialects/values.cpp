#include "engine/spec/dialects/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <vector>

namespace moetune::spec::dialects {
namespace {

constexpr int32_t kMostCount = 1'000'000;
constexpr double kMostRatio = 1'000;

/// The one member where 0 stands for "not said".
int32_t least_of(int32_t PlanKnobs::*member) {
  const bool is_count = member == &PlanKnobs::first_stage_layers ||
                        member == &PlanKnobs::last_stage_layers ||
                        member == &PlanKnobs::cuda_graph_warmup_steps ||
                        member == &PlanKnobs::moe_flex_dispatcher_num_sms;
  return is_count ? 0 : 1;
}

template <class T>
struct MemberOf;
template <class T>
struct MemberOf<T PlanKnobs::*> {
  using Type = T;
};

template <class T>
concept IsSet = requires(T value) {
  value.text();
};

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.ends_with(".0")) text.remove_suffix(2);
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) return {};
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return {};
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  return std::nullopt;
}

std::optional<bool> parse_yaml_switch(std::string_view text) {
  if (text == "1" || text == "0") return text == "1";
  constexpr std::string_view kOn[] = {"true", "yes", "on"};
  constexpr std::string_view kOff[] = {"false", "no", "off"};
  // In small letters, with a capital, or all capitals.
  std::string small(text);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool has_case = !text.empty() && (std::ranges::all_of(text.substr(1), is_small) ||
                                          std::ranges::none_of(text, is_small));
  if (!has_case) return std::nullopt;
  if (std::ranges::find(kOn, small) != std::end(kOn)) return true;
  if (std::ranges::find(kOff, small) != std::end(kOff)) return false;
  return std::nullopt;
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string text_of(const PlanKnobs& knobs, const PlanKnobMember& member) {
  return std::visit(
      [&](auto pointer) -> std::string {
        const auto& value = knobs.*pointer;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::same_as<Value, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::integral<Value> || std::floating_point<Value>) {
          return fmt::format("{}", value);
        } else if constexpr (IsSet<Value>) {
          return value.text();
        } else {
          return std::string(name_of(value));
        }
      },
      member);
}

bool set_text(PlanKnobs& knobs, const PlanKnobMember& member, std::string_view text) {
  return std::visit(
      [&](auto pointer) {
        auto& value = knobs.*pointer;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::same_as<Value, bool>) {
          const auto parsed = parse_switch(text);
          value = parsed.value_or(value);
          return parsed.has_value();
        } else if constexpr (std::integral<Value>) {
          const auto parsed = parse_integer(text);
          if (!parsed || *parsed < least_of(pointer) || *parsed > kMostCount) return false;
          value = static_cast<Value>(*parsed);
          return true;
        } else if constexpr (std::floating_point<Value>) {
          const auto parsed = parse_number(text);
          if (!parsed || *parsed < 0 || *parsed > kMostRatio) return false;
          value = static_cast<Value>(*parsed);
          return true;
        } else if constexpr (IsSet<Value>) {
          const auto parsed = Value::parse(text);
          value = parsed.value_or(value);
          return parsed.has_value();
        } else {
          const auto parsed = find_by_name<Value>(text);
          value = parsed.value_or(value);
          return parsed.has_value();
        }
      },
      member);
}

std::string values_of(const PlanKnobMember& member) {
  return std::visit(
      [](auto pointer) -> std::string {
        using Value = typename MemberOf<decltype(pointer)>::Type;
        if constexpr (std::same_as<Value, bool>) {
          return "true or false";
        } else if constexpr (std::integral<Value>) {
          return fmt::format("an integer from {} to {}", least_of(pointer), kMostCount);
        } else if constexpr (std::floating_point<Value>) {
          return fmt::format("a number from 0 to {}", kMostRatio);
        } else if constexpr (IsSet<Value>) {
          return "a set of names";
        } else {
          std::vector<std::string_view> names;
          for (const Value value : all_values<Value>()) names.push_back(name_of(value));
          return fmt::format("one of {}", fmt::join(names, ", "));
        }
      },
      member);
}

std::string unquoted(const std::string& text) {
  const bool is_quoted = text.size() >= 2 && text.front() == text.back() &&
                         (text.front() == '\'' || text.front() == '"');
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace moetune::spec::dialects
