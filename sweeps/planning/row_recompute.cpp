// Granularity first, then modules; Megatron's defaults where one of them is missing.
#include "sweeps/planning/row_recompute.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "sweeps/planning/row_words.h"

namespace moetune::sweeps {

namespace {

using spec::PlanRecompute;

class RecomputeReading {
 public:
  RecomputeReading(const RowReader& row, spec::PlanKnobs& knobs, std::vector<std::string>& assumed)
      : row_(row),
        parts_(row.object("recompute")),
        knobs_(knobs),
        recompute_(knobs.recompute),
        assumed_(assumed) {
    granularity_ = parts_.word("granularity");
    modules_ = parts_.words("modules");
    method_ = plain_word(parts_.word("method"));
    num_layers_ = parts_.word("num_layers");
  }

  bool read() {
    const nlohmann::json& stated = row_.at("recompute");
    if (stated.is_array()) {
      modules_ = row_.words("recompute");
      granularity_ = modules_.empty() ? "none" : "selective";
    } else if (!stated.is_object()) {
      granularity_ = row_.word("recompute");
      if (stated.is_string()) take_modules_of_text();
    } else if (parts_.has("modules") && parts_.at("modules").is_string()) {
      tell(fmt::format("recompute modules {}: a text is taken as a list",
                       row_word_shown(parts_.word("modules"))));
    }
    if (granularity_.empty()) take_granularity_of_modules();
    by_granularity();
    return is_understood_;
  }

 private:
  void tell(std::string line) { assumed_.push_back(std::move(line)); }

  /// A text that is no granularity may name modules.
  void take_modules_of_text() {
    const std::string word = plain_word(granularity_);
    if (word == "full" || word == "selective" || is_none_word(word) || switch_word(word)) return;
    std::vector<std::string> names = row_.words("recompute");
    for (const std::string& name : names) {
      if (!spec::find_by_name<PlanRecompute>(plain_word(name))) return;
    }
    if (names.empty()) return;
    granularity_.clear();
    modules_ = std::move(names);
  }

  void take_granularity_of_modules() {
    granularity_ = modules_.empty() ? "none" : "selective";
    tell(modules_.empty() ? "recompute none: neither granularity nor modules are stated"
                          : "recompute selective: modules without a granularity");
  }

  void by_granularity() {
    const std::string word = plain_word(granularity_);
    const std::optional<bool> is_on = switch_word(word);
    if (word.starts_with("full") || is_on.value_or(false)) {
      all_layers(word != "full");
    } else if (word == "selective") {
      selected_modules();
    } else if (!is_none_word(word) && !is_on) {
      is_understood_ = false;
      if (!modules_.empty()) {
        tell(fmt::format("recompute selective: {} is not known, modules are stated",
                         row_word_shown(granularity_)));
        return selected_modules();
      }
      tell(fmt::format("recompute none: {} is not known", row_word_shown(granularity_)));
    } else if (!modules_.empty()) {
      tell("recompute none: modules count with granularity selective alone");
    }
  }

  void all_layers(bool is_guessed) {
    // The first none of them. No other method takes 0, so one that is not stated is this.
    if (num_layers_ == "0" && (method_.empty() || method_ == "block")) {
      if (method_.empty()) tell("recompute none: full with 0 layers, the method is not stated");
      return;
    }
    recompute_.add(PlanRecompute::full);
    if (is_guessed) {
      tell(fmt::format("recompute full: {} is taken for it", row_word_shown(granularity_)));
    }
    if (!modules_.empty()) tell("recompute full: modules count with granularity selective alone");
    const bool is_other_number = !num_layers_.empty() && num_layers_ != "1";
    if (method_ != "block" && !is_other_number) return;
    if (take_layers()) return;
    tell(fmt::format("recompute of each layer: the method is {} with {} layers",
                     row_word_shown(method_.empty() ? "not stated" : method_),
                     row_word_shown(num_layers_.empty() ? "1" : num_layers_)));
  }

  /// False where method and number do not say together which layers.
  bool take_layers() {
    const auto method = spec::find_by_name<spec::RecomputeMethod>(method_);
    if (!method || num_layers_.empty()) return false;
    spec::PlanKnobs knobs = knobs_;
    knobs.recompute_method = *method;
    try {
      spec::set_plan_knob(knobs, *spec::find_plan_knob("recompute_num_layers"), num_layers_);
    } catch (const base::UsageError&) {
      return false;
    }
    knobs_ = knobs;
    return true;
  }

  void selected_modules() {
    if (modules_.empty()) {
      modules_ = {"core_attn"};
      tell("recompute core_attn: selective without modules, Megatron's default");
    }
    for (const std::string& name : modules_) {
      const auto module = spec::find_by_name<PlanRecompute>(plain_word(name));
      if (module) {
        recompute_.add(*module);
      } else {
        is_understood_ = false;
        tell(fmt::format("recompute without {}: the module is not known", row_word_shown(name)));
      }
    }
  }

  const RowReader& row_;
  RowReader parts_;
  spec::PlanKnobs& knobs_;
  spec::PlanRecomputeSet& recompute_;
  std::vector<std::string>& assumed_;
  std::string granularity_;
  std::vector<std::string> modules_;
  std::string method_;
  std::string num_layers_;
  bool is_understood_ = true;
};

}  // namespace

bool read_recompute(const RowReader& row, spec::PlanKnobs& knobs,
                    std::vector<std::string>& assumed) {
  return RecomputeReading(row, knobs, assumed).read();
}

}  // namespace moetune::sweeps
