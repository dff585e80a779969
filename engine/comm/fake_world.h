// One rank of a large layout alone on its device: true shapes and true memory, while communication
// moves nothing. For fitting and timing the work of a rank where the cluster is not at hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/world.h"
#include "engine/spec/trial_spec.h"

namespace moetune::engine {

/// What the other ranks would bring is made up, the same in every run, so that training goes on
/// with numbers of the right size:
///  - a gather finds the others' parts equal to this rank's, unless it is in place: then what is
///    there stays (weights are complete from the start);
///  - a sum of at most kMostSummedBytes counts this rank's part once per rank, so that losses,
///  norms
///    and balances come out right; a larger one (gradients) holds this rank's part only;
///  - an all-to-all receives copies of this rank's own rows, as many as the counts say;
///  - a message holds random numbers, normally distributed, of this trial's element type.
/// Every other rank is ready when this one is, so waiting for others never shows.
class FakeWorld final : public World {
 public:
  /// Throws base::UsageError when the layout has no rank `rank`.
  FakeWorld(const spec::TrialSpec& trial, int rank);
  ~FakeWorld() override;

  std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                             kernels::Backend& backend) override;
  int64_t join_max(int64_t value) override { return value; }
  void join_local() override {}
  void check() override {}
  [[nodiscard]] int64_t message_bytes() override { return message_bytes_; }
  void abort(const std::string& /*reason*/) noexcept override {}

  static constexpr int64_t kMostSummedBytes = int64_t{64} << 10;

 private:
  const spec::TrialSpec& trial_;
  plan::Layout layout_;
  int64_t message_bytes_ = 0;
};

}  // namespace moetune::engine
