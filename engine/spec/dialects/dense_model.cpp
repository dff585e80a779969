#include "engine/spec/dialects/dense_model.h"

#include <algorithm>
#include <array>

namespace moetune::spec::dialects {

bool says_dense_model(const RunConfig& run) {
  if (run.knobs.ep > 1) return false;
  if (names_dense_model(run)) return true;
  constexpr std::array kNames = {"num_experts", "num_local_experts", "n_routed_experts"};
  return !run.model.empty() && std::ranges::none_of(kNames, [&](const char* name) {
    const auto size = run.model.find(name);
    return size != run.model.end() && size->is_number() && size->get<double>() > 0;
  });
}

}  // namespace moetune::spec::dialects
