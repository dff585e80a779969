// Starts ranks as threads, one alone, or this process's own, and picks the cause among their
// failures.
#include "engine/world_run.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "engine/comm/communicators.h"
#include "engine/comm/launch_env.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

int num_usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

using spec::is_on_device;
using spec::RanksAre;

std::unique_ptr<World> make_world(const WorldRequest& request) {
  return maker_of(request.trial.communicator).make(request);
}

std::unique_ptr<kernels::Backend> make_backend(const spec::TrialSpec& trial, int device) {
  return is_on_device(trial) ? kernels::make_cuda_backend(device) : kernels::make_cpu_backend();
}

void run_threads(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body) {
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const auto num_ranks = static_cast<size_t>(layout.world_size());
  // The ranks' backends end after the world, whose messages lie in their memory.
  std::vector<std::unique_ptr<kernels::Backend>> backends(num_ranks);
  // Threads that only launch do not disturb each other's measurement.
  const int num_slots = is_on_device(trial) ? layout.world_size() : num_usable_cores();
  const std::unique_ptr<World> world = make_world({trial, 0, num_slots, nullptr, nullptr});
  // Trainers end when all threads have: what one has allocated, others may still be reading.
  std::vector<std::unique_ptr<RankTrainer>> trainers(num_ranks);
  std::mutex mutex;
  std::exception_ptr cause;
  const auto run = [&](int rank) {
    world->begin_computing();
    try {
      std::unique_ptr<kernels::Backend>& backend = backends[static_cast<size_t>(rank)];
      // Virtual ranks share the first device.
      backend = make_backend(trial, 0);
      std::unique_ptr<RankTrainer>& trainer = trainers[static_cast<size_t>(rank)];
      trainer = std::make_unique<RankTrainer>(trial, rank, *world, *backend, hooks);
      body(*trainer, *world, rank);
    } catch (const base::PeerFailed&) {
      // Another rank has the cause.
    } catch (...) {
      {
        const std::scoped_lock lock(mutex);
        if (!cause) cause = std::current_exception();
      }
      world->abort("another rank failed");
    }
    world->end_computing();
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < layout.world_size(); ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error& error) {
    world->abort("a rank has no thread");
    const std::scoped_lock lock(mutex);
    cause = std::make_exception_ptr(
        base::Error(fmt::format("{} of {} ranks have a thread, the next gets none: {}",
                                threads.size(), num_ranks, error.code().message())));
  }
  for (std::thread& thread : threads) thread.join();
  if (cause) std::rethrow_exception(cause);
}

void run_fake(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body) {
  const auto rank = static_cast<int>(trial.fake_rank);
  const std::unique_ptr<kernels::Backend> backend = make_backend(trial, 0);
  const std::unique_ptr<World> world = make_world({trial, rank, 1, nullptr, backend.get()});
  RankTrainer trainer(trial, rank, *world, *backend, hooks);
  body(trainer, *world, rank);
}

void run_process(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body,
                 const Meeting& meeting) {
  const LaunchEnv launch = read_launch_env(process_env);
  RendezvousOptions options;
  options.meet_timeout = meeting.patience;
  const std::unique_ptr<Rendezvous> rendezvous =
      join_launch(launch, plan::layout_of(trial.knobs).world_size(), meeting.folder, options);
  run_process_rank(trial, hooks, body, local_device(trial), *rendezvous, meeting.patience);
}

}  // namespace

std::vector<int> local_ranks(const spec::TrialSpec& trial) {
  const plan::Layout layout = plan::layout_of(trial.knobs);
  if (spec::ranks_of(trial) == RanksAre::alone) return {static_cast<int>(trial.fake_rank)};
  if (spec::ranks_of(trial) == RanksAre::processes) return {read_launch_env(process_env).rank};
  std::vector<int> all(static_cast<size_t>(layout.world_size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

int local_device(const spec::TrialSpec& trial) {
  if (spec::ranks_of(trial) != RanksAre::processes) return 0;
  const LaunchEnv launch = read_launch_env(process_env);
  std::string why_none;
  const auto num_devices = static_cast<int>(kernels::cuda_devices(why_none).size());
  return num_devices > 1 ? launch.local_rank.value_or(launch.rank) % num_devices : 0;
}

std::string missing_in_build(const spec::TrialSpec& trial) {
  const std::string missing = MOETUNE_MISSING_CUDA_PARTS;
  const std::string why =
      missing.empty() ? "it is a sanitizer build" : "not found when it was built: " + missing;
  if (is_on_device(trial) && !kernels::has_cuda()) {
    return fmt::format(
        "backend 'cuda' cannot run in this build, which has no CUDA ({}); it would be right: cpu",
        why);
  }
  const CommunicatorMaker& maker = maker_of(trial.communicator);
  if (!maker.is_in_build()) {
    return fmt::format(
        "communicator '{}' cannot run in this build, which has no {} ({}); it would be right: "
        "threads",
        spec::name_of(trial.communicator), maker.library, why);
  }
  return {};
}

void run_process_rank(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body,
                      int device, Rendezvous& rendezvous, std::chrono::milliseconds patience) {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<World> world;
  std::unique_ptr<RankTrainer> trainer;
  try {
    backend = make_backend(trial, device);
    world = make_world({trial, rendezvous.rank(), 1, &rendezvous, backend.get(), patience});
    trainer = std::make_unique<RankTrainer>(trial, rendezvous.rank(), *world, *backend, hooks);
    body(*trainer, *world, rendezvous.rank());
  } catch (const std::exception& error) {
    // Before anything is freed: that waits for the device, where operations may wait for ranks
    // that have failed as well.
    if (world) {
      world->abort(error.what());
    } else {
      rendezvous.fail(error.what());
    }
    throw;
  }
}

void run_ranks(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body,
               const Meeting& meeting) {
  switch (spec::ranks_of(trial)) {
    case RanksAre::threads:
      return run_threads(trial, hooks, body);
    case RanksAre::processes:
      return run_process(trial, hooks, body, meeting);
    case RanksAre::alone:
      return run_fake(trial, hooks, body);
  }
}

}  // namespace moetune::engine
