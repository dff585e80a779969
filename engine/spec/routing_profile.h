// How tokens went to experts in one reference run, at the finest grain any layout splits them: the
// memory model uses it to know how many rows each rank will receive. Routing depends on weights and
// data only, not on the layout.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace moetune::spec {

/// counts[((step * num_layers + layer) * num_sequences + sequence) * num_pieces + piece) *
/// num_experts + expert]: tokens of that piece (an equal part of the sequence, in position order)
/// sent to that expert. Layer counts MoE layers only, sequence counts within the global batch.
struct RoutingProfile {
  int64_t num_steps = 0;
  int64_t num_layers = 0;
  int64_t num_sequences = 0;
  int64_t num_pieces = 0;
  int64_t num_experts = 0;
  std::vector<int32_t> counts;

  [[nodiscard]] bool is_empty() const { return counts.empty(); }
  [[nodiscard]] int64_t index(int64_t step, int64_t layer, int64_t sequence, int64_t piece,
                              int64_t expert) const {
    return (((step * num_layers + layer) * num_sequences + sequence) * num_pieces + piece) *
               num_experts +
           expert;
  }
};

nlohmann::json to_json(const RoutingProfile& profile);
RoutingProfile routing_profile_from_json(const nlohmann::json& json);

}  // namespace moetune::spec
