#include "sweeps/bisect/effect_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace moetune::sweeps {

std::string count_text(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string runs_left_text(const std::optional<tuner::RunsLeft>& left) {
  if (!left || left->likely <= 0) return "";
  if (left->most <= left->likely)
    return fmt::format("; {} to go", count_text(static_cast<size_t>(left->likely), "run"));
  return fmt::format("; {} to {} runs to go", left->likely, left->most);
}

std::string percent(double ratio) { return fmt::format("{:+.2f} %", 100 * ratio); }

std::string effect_text(const tuner::Effect& effect) {
  return fmt::format("{} ({} to {})", percent(effect.effect_ratio),
                     percent(effect.effect_low_ratio), percent(effect.effect_high_ratio));
}

nlohmann::json effect_json(const tuner::Effect& effect) {
  return {{"ratio", effect.effect_ratio},
          {"low", effect.effect_low_ratio},
          {"high", effect.effect_high_ratio}};
}

}  // namespace moetune::sweeps
