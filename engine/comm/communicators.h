// Who makes the world of each communicator: the engine's side of the table in
// engine/spec/communicators.h.
#pragma once

#include <chrono>
#include <memory>

#include "engine/comm/rendezvous.h"
#include "engine/comm/world.h"
#include "engine/spec/trial_spec.h"

namespace moetune::engine {

/// What a world is made of; the rendezvous and the backend where ranks are processes.
struct WorldRequest {
  const spec::TrialSpec& trial;
  int rank = 0;       ///< of this process, the first if it has several
  int num_slots = 1;  ///< ranks of this process that may compute at once
  Rendezvous* rendezvous = nullptr;
  kernels::Backend* backend = nullptr;
  std::chrono::milliseconds patience = kUsualPatience;
};

struct CommunicatorMaker {
  spec::CommunicatorKind value;
  const char* library;    ///< what it needs
  bool (*is_in_build)();  ///< whether that was there
  /// What the request refers to must outlive the world. Throws base::UsageError when the layout has
  /// no such rank or the build cannot.
  std::unique_ptr<World> (*make)(const WorldRequest&);
};

const CommunicatorMaker& maker_of(spec::CommunicatorKind communicator);

}  // namespace moetune::engine
