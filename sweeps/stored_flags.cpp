// A trial's spec from its row, then flags.
#include "sweeps/stored_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/spec/trial_spec.h"
#include "kernels/base/error.h"
#include "profiler/store/untrusted_json.h"

namespace moetune::sweeps {

std::optional<spec::MegatronFlags> flags_of(const store::TrialRow& trial) {
  const auto document = store::parse_untrusted(trial.spec_json);
  if (!document.is_object()) return std::nullopt;
  try {
    return spec::megatron_flags(
        spec::trial_spec_from_json(document, fmt::format("trial {}", trial.id)));
  } catch (const base::UsageError&) {
    return std::nullopt;  // written by an older moetune, or by a foreign hand
  }
}

std::string flags_block(const store::TrialRow& trial) {
  const std::optional<spec::MegatronFlags> flags = flags_of(trial);
  return flags ? spec::shell_block(*flags) : "";
}

}  // namespace moetune::sweeps
