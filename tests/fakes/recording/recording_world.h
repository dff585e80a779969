// The other ranks of one rank that is alone: communicators that move nothing and write down what
// they are asked for, on the tape of the rank's device.
#pragma once

#include "engine/comm/world.h"
#include "tests/fakes/recording/recording_backend.h"

namespace moetune::recording {

/// On the tape a group is its plan::Group, and what one rank gives the others is told as the
/// communicator is: bytes or elements of each member, rows of each peer.
class RecordingWorld final : public engine::World {
 public:
  explicit RecordingWorld(const plan::Layout& layout) : layout_(layout) {}

  /// `backend` must be a RecordingBackend.
  std::unique_ptr<engine::Communicator> communicator(plan::Group group, int rank,
                                                     kernels::Backend& backend) override;
  int64_t join_max(int64_t value) override { return value; }
  void join_local() override {}
  void check() override {}
  [[nodiscard]] int64_t message_bytes() override { return 0; }
  void abort(const std::string& /*reason*/) noexcept override {}

 private:
  plan::Layout layout_;
};

/// Names of what an all-to-all with several tensors has been given; see recording_world.cpp.
std::string_view lane_role(bool is_sent, size_t lane);
/// Names of the rows that go to a peer, or come from it.
std::string_view peer_name(bool is_sent, size_t peer);

}  // namespace moetune::recording
