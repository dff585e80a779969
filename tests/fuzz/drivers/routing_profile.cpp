// Routing profiles, which a shard holds as text.
#include "engine/spec/routing_profile.h"

#include "engine/spec/document.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_routing_profile(std::string_view input) {
  to_json(spec::routing_profile_from_json(spec::parse_json(input, "profile"))).dump();
}

}  // namespace moetune::tests
