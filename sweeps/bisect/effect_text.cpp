// See effect_text.h.
#include "sweeps/bisect/effect_text.h"

#include <fmt/format.h>

namespace moetune::sweeps {

std::string percent(double ratio) { return fmt::format("{:+.2f} %", 100 * ratio); }

std::string effect_text(const tuner::Effect& effect) {
  return fmt::format("{} ({} to {})", percent(effect.effect_ratio),
                     percent(effect.effect_low_ratio), percent(effect.effect_high_ratio));
}

std::string noise_text(const tuner::EndsEffect& ends) {
  std::string text = fmt::format("noise of one run {:.2f} %", 100 * ends.noise_ratio);
  if (ends.noise_ratio > 0) {
    text += fmt::format("; as many runs could have shown {:.2f} %, with {} more {:.2f} %",
                        100 * ends.detectable_ratio, tuner::kMoreRuns,
                        100 * ends.detectable_with_more_ratio);
  }
  return text;
}

std::string machine_text(bool has_drift, bool has_dropped_earlier) {
  std::string text;
  if (has_dropped_earlier) {
    text += "  earlier runs were not used: the machine is not what it was\n";
  }
  if (has_drift) {
    text += "  the machine's speed changed meanwhile; every run was paired with one of an end\n";
  }
  return text;
}

nlohmann::json effect_json(const tuner::Effect& effect) {
  return {{"ratio", effect.effect_ratio},
          {"low", effect.effect_low_ratio},
          {"high", effect.effect_high_ratio}};
}

void add_ends(const tuner::EndsEffect& ends, nlohmann::json& document) {
  document["effect"] = effect_json(ends);
  document["noise_ratio"] = ends.noise_ratio;
  document["detectable_ratio"] = ends.detectable_ratio;
  document["detectable_with_more_ratio"] = ends.detectable_with_more_ratio;
  document["more_runs"] = tuner::kMoreRuns;
}

}  // namespace moetune::sweeps
