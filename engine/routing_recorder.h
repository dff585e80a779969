// Counts where the router sends tokens, by step, layer, sequence and piece of the sequence, on a
// one-rank run: the routing profile that tells the memory model how many rows every rank of any
// layout receives.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/exec/observers.h"
#include "engine/spec/routing_profile.h"
#include "engine/spec/trial_spec.h"

namespace moetune::engine {

class RoutingRecorder final : public RoutingObserver {
 public:
  /// The trial must run on one rank with micro_batch_size 1 when it records.
  explicit RoutingRecorder(const spec::TrialSpec& trial);

  void on_routing(int rank, int64_t layer, int64_t micro_batch, const int32_t* indices,
                  int64_t num_tokens, int64_t topk) override;

  [[nodiscard]] const spec::RoutingProfile& profile() const { return profile_; }
  /// As if all steps before `step` had been counted: `read` fills in their counts.
  void go_on_at(int64_t step, const std::function<void(std::vector<int32_t>& counts)>& read) {
    read(profile_.counts);
    num_calls_ = step * calls_per_step();
  }

 private:
  const spec::TrialSpec& trial_;
  spec::RoutingProfile profile_;
  int64_t num_calls_ = 0;

  // One rank runs every MoE layer of every sequence once per step, so calls count steps.
  [[nodiscard]] int64_t calls_per_step() const {
    return profile_.num_layers * profile_.num_sequences;
  }
};

}  // namespace moetune::engine
