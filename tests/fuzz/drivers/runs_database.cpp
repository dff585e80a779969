// The runs database with a sweep and a hunt, with bytes changed: all that is read of it, and its
// upgrade.
#include "kernels/base/error.h"
#include "profiler/store/bisect.h"
#include "profiler/store/store.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/sample_store.h"

namespace moetune::tests {
namespace {

/// It was read, which is all that is asked for.
template <typename... Rows>
void take(const Rows&...) {}

void read_all(const store::Store& store) {
  for (const store::SweepRow& sweep : store.read_sweeps()) {
    take(store.read_environments(sweep.id), store.read_decisions(sweep.id),
         store.read_measurements_of_sweep(sweep.id));
  }
  for (const store::TrialRow& trial : store.list_trials()) {
    take(store.read_steps(trial.id), store.read_memory(trial.id), store.read_ops(trial.id),
         store.read_metrics(trial.id), store.read_predictions(trial.id), store.read_texts(trial.id),
         store.read_trace(trial.id));
    store.unpack_trace(trial.id);
  }
  for (const store::BisectRow& hunt : store.read_bisects()) {
    take(store.read_bisect_commits(hunt.id), store.read_bisect_runs(hunt.id));
  }
}

}  // namespace

void fuzz_runs_database(std::string_view input) {
  const std::string path = patched_database(input, "runs.db", make_sample_store);
  try {
    read_all(store::Store::open_read_only(path));
  } catch (const base::Error&) {
    // It is upgraded all the same.
  }
  store::Store::upgrade(path);
}

}  // namespace moetune::tests
