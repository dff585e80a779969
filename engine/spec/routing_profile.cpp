// JSON form of a routing profile: the five sizes and the flat counts.
#include "engine/spec/routing_profile.h"

#include <limits>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

json to_json(const RoutingProfile& profile) {
  return {{"num_steps", profile.num_steps},         {"num_layers", profile.num_layers},
          {"num_sequences", profile.num_sequences}, {"num_pieces", profile.num_pieces},
          {"num_experts", profile.num_experts},     {"counts", profile.counts}};
}

RoutingProfile routing_profile_from_json(const json& document) {
  constexpr int64_t kMaxSize = 1'000'000;
  constexpr int64_t kMaxCounts = 1'000'000'000;
  JsonReader reader(document, "routing profile");
  RoutingProfile profile;
  profile.num_steps = reader.integer("num_steps", 0, kMaxSize);
  profile.num_layers = reader.integer("num_layers", 0, kMaxSize);
  profile.num_sequences = reader.integer("num_sequences", 0, kMaxSize);
  profile.num_pieces = reader.integer("num_pieces", 0, kMaxSize);
  profile.num_experts = reader.integer("num_experts", 0, kMaxSize);
  int64_t expected = 1;
  for (const int64_t size : {profile.num_steps, profile.num_layers, profile.num_sequences,
                             profile.num_pieces, profile.num_experts}) {
    // Both factors are at most 1e9 and 1e6, so the product fits.
    expected *= size;
    if (expected > kMaxCounts) {
      throw base::UsageError(
          fmt::format("routing profile: its sizes ask for more than {} counts", kMaxCounts));
    }
  }
  const json& counts = reader.array("counts");
  if (static_cast<int64_t>(counts.size()) != expected) {
    reader.fail("counts", fmt::format("{} counts, the product of its sizes", expected));
  }
  profile.counts.reserve(counts.size());
  for (const int64_t count : reader.integers("counts", 0, std::numeric_limits<int32_t>::max())) {
    profile.counts.push_back(static_cast<int32_t>(count));
  }
  reader.refuse_unknown_keys();
  return profile;
}

}  // namespace moetune::spec
