#include "profiler/import/range_steps.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "profiler/import/decimal.h"

namespace moetune::profiler {
namespace {

// In lower case; a blank stands for a blank, '_', '-' or nothing. A longer word before its part.
constexpr std::string_view kStepWords[] = {
    "profiler step", "training iteration", "train iteration", "training step", "train step",
    "train batch",   "global step",        "iteration",       "iter",          "step",
};

bool is_separator(char c) {
  return std::string_view(" _-#:=.,[(/").find(c) != std::string_view::npos;
}
void pass_separators(std::string_view& text) {
  while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
}
/// Takes the word off the front of the text.
bool take_word(std::string_view& text, std::string_view word) {
  std::string_view rest = text;
  for (const char c : word) {
    if (c == ' ') {
      if (!rest.empty() && (rest[0] == ' ' || rest[0] == '_' || rest[0] == '-')) {
        rest.remove_prefix(1);
      }
      continue;
    }
    if (rest.empty() || std::tolower(static_cast<unsigned char>(rest[0])) != c) return false;
    rest.remove_prefix(1);
  }
  text = rest;
  return true;
}
std::optional<int64_t> take_number(std::string_view& text) {
  while (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9') {
    text.remove_prefix(1);
  }
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  text.remove_prefix(digits.size());
  return digits.empty() ? std::nullopt : whole_number(digits);
}

struct StepGroup {
  std::vector<ImportedStep> steps;
  bool has_numbers = true;
  int64_t total_ns = 0;
};

}  // namespace

std::optional<StepName> step_name_of(std::string_view name) {
  for (size_t word = 0; word < std::size(kStepWords); ++word) {
    std::string_view rest = name;
    if (!take_word(rest, kStepWords[word])) continue;
    StepName found;
    found.word = word;
    pass_separators(rest);
    found.number = take_number(rest);
    if (found.number) {  // as in "step 3/100" and "iteration [3]"
      if (!rest.empty() && (rest[0] == ']' || rest[0] == ')')) rest.remove_prefix(1);
      if (rest.starts_with('/')) {
        rest.remove_prefix(1);
        take_number(rest);
      }
    }
    if (rest.empty()) return found;
  }
  return std::nullopt;
}

std::vector<ImportedStep> steps_in_ranges(const Chunks<HostRange>& ranges, const NameTable& names) {
  enum class IsStep : uint8_t { unknown, no, yes };
  std::vector<IsStep> is_step(names.size());
  std::map<std::pair<size_t, uint16_t>, StepGroup> groups;
  for (const HostRange& range : ranges) {
    if (is_step[range.name] == IsStep::no) continue;
    const std::optional<StepName> step = step_name_of(names[range.name]);
    is_step[range.name] = step ? IsStep::yes : IsStep::no;
    if (!step) continue;
    StepGroup& group = groups[{step->word, range.thread}];
    group.has_numbers = group.has_numbers && step->number.has_value();
    group.steps.push_back({step->number.value_or(0), range.start_ns, range.end_ns});
  }
  StepGroup* best = nullptr;
  for (auto& [key, group] : groups) {
    std::ranges::stable_sort(group.steps, [](const ImportedStep& a, const ImportedStep& b) {
      return std::pair(a.start_ns, -a.end_ns) < std::pair(b.start_ns, -b.end_ns);
    });
    std::vector<ImportedStep> kept;
    for (const ImportedStep& step : group.steps) {
      if (!kept.empty() && step.start_ns < kept.back().end_ns) continue;
      group.total_ns += step.end_ns - step.start_ns;
      kept.push_back(step);
    }
    group.steps = std::move(kept);
    const auto rank = [](const StepGroup& one) {
      return std::pair(one.steps.size() > 1, one.total_ns);
    };
    if (best == nullptr || rank(*best) < rank(group)) best = &group;
  }
  if (best == nullptr) return {};
  if (!best->has_numbers) {
    for (size_t i = 0; i < best->steps.size(); ++i) {
      best->steps[i].number = static_cast<int64_t>(i);
    }
  }
  return std::move(best->steps);
}

}  // namespace moetune::profiler
