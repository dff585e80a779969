// Threads of a world of ranks; see world_run.h.
#include "engine/world_run.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

int num_usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

void run_ranks(const spec::TrialSpec& trial, const TrainerHooks& hooks,
               const std::function<void(RankTrainer&, ThreadWorld&, int rank)>& body) {
  const spec::Layout layout = spec::layout_of(trial.knobs);
  ThreadWorld world(trial.hardware, layout, RankContext::clock_mode(trial.clock),
                    num_usable_cores());
  std::mutex mutex;
  std::exception_ptr cause;
  const auto run = [&](int rank) {
    world.slots().acquire();
    try {
      const std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend();
      RankTrainer trainer(trial, rank, world, *backend, hooks);
      body(trainer, world, rank);
    } catch (const base::PeerFailed&) {
      // Another rank has the cause.
    } catch (...) {
      {
        const std::scoped_lock lock(mutex);
        if (!cause) cause = std::current_exception();
      }
      world.abort();
    }
    world.slots().release();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < layout.world_size(); ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (cause) std::rethrow_exception(cause);
}

}  // namespace moetune::engine
