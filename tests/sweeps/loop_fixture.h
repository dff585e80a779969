// A sweep's loop over the stand-in engine: here or in a process of its own, with a database to look
// at.
#pragma once

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/sweep.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::tests {

inline spec::TrialSpec with_fault(spec::FaultKind kind) {
  spec::TrialSpec spec = small_trial();
  spec.fault.kind = kind;
  spec.fault.step = 2;
  return spec;
}

inline spec::TrialSpec with_seed(uint64_t seed) {
  spec::TrialSpec spec = small_trial();
  spec.training.seed = seed;
  return spec;
}

inline std::vector<tuner::TrialRequest> several(int count) {
  std::vector<tuner::TrialRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(request_of(with_seed(static_cast<uint64_t>(i + 1)), "seed"));
  }
  return requests;
}

struct LoopFixture {
  TempFolder folder;
  std::string db = folder.file("runs.db");
  std::string log = folder.file("launches");
  ScopedEnvironment launch_log{"FAKE_RANK_LOG", log};
  sweeps::LoopOptions options;

  LoopFixture() {
    options.runner.rank_program = bin("fake_rank");
    options.runner.folder = sweeps::running_folder(db);
    options.runner.grace = std::chrono::milliseconds(200);
  }

  [[nodiscard]] store::SweepRow row() const { return sweeps::single_trials_row(small_trial()); }

  sweeps::SweepSummary run(tuner::Strategy& strategy) const {
    sweeps::Session session = sweeps::open_session(db, row());
    sweeps::Progress progress(stderr, sweeps::Progress::Mode::quiet);
    sweeps::SystemProcessRunner processes;
    sweeps::SweepLoop loop(session.store, session.sweep_id, processes, options, progress);
    return loop.run(strategy);
  }

  /// The whole loop in a process of its own, which may be killed.
  [[nodiscard]] pid_t run_elsewhere(const std::vector<tuner::TrialRequest>& requests) const {
    const pid_t pid = fork();
    BOOST_REQUIRE(pid >= 0);
    if (pid == 0) {
      int code = 1;
      try {
        const sweeps::InterruptGuard guard;
        ScriptedStrategy strategy(requests);
        code = run(strategy).status == store::SearchStatus::interrupted ? 14 : 0;
      } catch (...) {
      }
      _exit(code);
    }
    return pid;
  }

  [[nodiscard]] std::vector<store::TrialRow> trials() const {
    return store::Store::open_read_only(db).list_trials();
  }
  [[nodiscard]] size_t num_launches() const { return launches_in(log).size(); }
};

}  // namespace moetune::tests
