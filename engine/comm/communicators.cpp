// One row for each communicator with the function that makes its world: the only file that names
// all of them.
#include "engine/comm/communicators.h"

#include <array>

#include "engine/comm/fake_world.h"
#include "engine/comm/process_world.h"
#include "engine/comm/thread_world.h"

namespace moetune::engine {
namespace {

using spec::CommunicatorKind;

bool always() { return true; }

constexpr std::array kMakers = {
    CommunicatorMaker{CommunicatorKind::threads, "", always,
                      [](const WorldRequest& r) -> std::unique_ptr<World> {
                        return std::make_unique<ThreadWorld>(r.trial.hardware,
                                                             plan::layout_of(r.trial.knobs),
                                                             r.trial.clock, r.num_slots);
                      }},
    CommunicatorMaker{CommunicatorKind::nccl, "NCCL", has_nccl,
                      [](const WorldRequest& r) -> std::unique_ptr<World> {
                        return std::make_unique<ProcessWorld>(
                            plan::layout_of(r.trial.knobs), *r.rendezvous, *r.backend, r.patience);
                      }},
    CommunicatorMaker{CommunicatorKind::fake, "", always,
                      [](const WorldRequest& r) -> std::unique_ptr<World> {
                        return std::make_unique<FakeWorld>(r.trial, r.rank);
                      }},
};

consteval bool has_all_in_order() {
  const auto& rows = spec::NameTable<CommunicatorKind>::kRows;
  if (kMakers.size() != rows.size()) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (kMakers[i].value != rows[i].value) return false;
  }
  return true;
}
static_assert(has_all_in_order(), "every communicator has its maker, in the order of their rows");

}  // namespace

const CommunicatorMaker& maker_of(CommunicatorKind communicator) {
  return kMakers[static_cast<size_t>(communicator)];
}

}  // namespace moetune::engine
