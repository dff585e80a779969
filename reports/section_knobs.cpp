// Section "knobs": which of them mattered in this sweep.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/knob_effects.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

/// Bars of the chart; the table has all.
constexpr size_t kMostKnobBars = 20;

std::string effect_percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

std::string effect_row(const KnobEffect& effect) {
  const bool has = effect.num_settings > 0;
  return fmt::format(
      "<tr><td><code>{}</code></td>{}<td class=\"num\">{}</td><td class=\"num\">{}</td><td "
      "class=\"num\">{}</td><td>{}</td><td class=\"num\">{}</td></tr>\n",
      breakable(effect.knob),
      number_cell(static_cast<double>(effect.num_settings), fmt::format("{}", effect.num_settings)),
      has ? fmt::format("{}", effect.num_clear) : "–",
      has ? effect_percent(effect.median_ratio) : "–",
      has ? effect_percent(effect.most_ratio) : "–",
      has ? fmt::format("{} ({} of {})", breakable(shortened(effect.best_value, 80)),
                        effect.num_best, effect.num_settings)
          : "–",
      effect_percent(effect.explained_ratio));
}

}  // namespace

std::string render_knobs(const SectionInput& input) {
  const std::vector<KnobEffect> effects = knob_effects(input.context);
  if (effects.empty()) return "";
  std::string table =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>knob</th><th "
      "class=\"num\">settings in which it alone varied</th><th class=\"num\">clear of the "
      "noise</th><th class=\"num\">worth, median</th><th class=\"num\">worth, at most</th><th>"
      "fastest most often</th><th class=\"num\">of the spread, goes with it</th></tr></thead>"
      "<tbody>\n";
  json bars = json::array();
  for (const KnobEffect& effect : effects) {
    table += effect_row(effect);
    if (bars.size() < kMostKnobBars) {
      bars.push_back({{"knob", shortened(effect.knob, 60)},
                      {"settings", effect.num_settings},
                      {"clear", effect.num_clear},
                      {"median", effect.median_ratio},
                      {"most", effect.most_ratio},
                      {"best", shortened(effect.best_value, 80)},
                      {"explained", effect.explained_ratio}});
    }
  }
  table += "</tbody></table></div>\n";
  return figure("knobs",
                fmt::format(
                    "Left, what choosing the value was worth where nothing else differed: the bar "
                    "is the median of such settings, the line reaches to the largest. Right, the "
                    "share of the spread of all step times that goes with the knob; knobs that "
                    "were changed together share it.{}",
                    effects.size() > kMostKnobBars
                        ? fmt::format(" Of {} knobs, the first {} are drawn.", effects.size(),
                                      kMostKnobBars)
                        : ""),
                "", table) +
         json_element("data-knobs", bars);
}

}  // namespace moetune::reports
