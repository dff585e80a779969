#include "sweeps/commands/bisect_options.h"

#include <fmt/format.h>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "sweeps/processes/interrupt.h"

namespace moetune::sweeps {

double ratio_option(const CommandOptions& options, const std::string& name, double otherwise) {
  const std::string text = options.text(name);
  if (text.empty()) return otherwise;
  const auto refuse = [&] {
    return base::UsageError(
        fmt::format("--{} '{}' must be a share such as 2% or 0.02", name, text));
  };
  double value = 0;
  size_t used = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    throw refuse();
  }
  const std::string rest = text.substr(used);
  if (rest == "%") {
    value /= 100;
  } else if (!rest.empty()) {
    throw refuse();
  }
  if (!(value > 0 && value < 1)) throw refuse();
  return value;
}

MetricKind kind_option(const CommandOptions& options) {
  const std::string text = options.text("noise");
  if (text.empty() || text == "auto") return MetricKind::automatic;
  if (text == "none") return MetricKind::exact;
  if (text == "some") return MetricKind::noisy;
  throw base::UsageError(
      fmt::format("--noise '{}': it would be right: auto, none (one run a commit), some", text));
}

double min_effect_option(const CommandOptions& options) {
  return ratio_option(options, "min-effect", 0.02);
}

double confidence_option(const CommandOptions& options) {
  const double confidence = ratio_option(options, "confidence", 0.95);
  if (confidence <= 0.5) throw base::UsageError("--confidence must be above 50 %");
  return confidence;
}

std::string metric_option(const CommandOptions& options) {
  const std::string metric = options.text("metric");
  return metric.empty() ? "step_time" : metric;
}

int hunt_exit_code(tuner::HuntVerdict verdict, bool is_swapped, bool is_interrupted) {
  using spec::ExitCode;
  if (is_interrupted && num_interrupts() > 0) return static_cast<int>(ExitCode::interrupted);
  if (is_swapped) return static_cast<int>(ExitCode::usage);
  switch (verdict) {
    case tuner::HuntVerdict::culprit:
    case tuner::HuntVerdict::no_change:
      return static_cast<int>(ExitCode::ok);
    case tuner::HuntVerdict::environment_changed:
      return static_cast<int>(ExitCode::environment_changed);
    case tuner::HuntVerdict::unresolved:
      break;
  }
  return static_cast<int>(ExitCode::unresolved);
}

}  // namespace moetune::sweeps
