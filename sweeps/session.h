// An open database with one sweep in it, held by this process alone: what sweep and trial write
// into.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "profiler/store/store.h"
#include "sweeps/sweep_lock.h"

namespace moetune::sweeps {

struct Session {
  std::unique_ptr<SweepLock> lock;  ///< outlives the store
  store::Store store;
  int64_t sweep_id = 0;
  bool is_resumed = false;
};

/// Opens (or creates) the database, takes its lock, and finds or inserts the sweep.
Session open_session(const std::string& database_path, const store::SweepRow& sweep);

/// This machine and build, with a digest of the program that runs the trials ("binary"): what a
/// measurement is worth comparing with.
std::vector<store::NamedText> environment_of(const std::string& rank_program);

/// The row of a sweep file. Its identity is everything but the budget: a sweep may be resumed with
/// a larger one.
store::SweepRow sweep_row(const spec::SweepSpec& sweep);
/// The same of somebody else's engine. `config_text`: the settings of the user's own run; `model`:
/// null where it is not known.
store::SweepRow engine_sweep_row(const spec::SweepSpec& sweep, const std::string& config_text,
                                 const spec::ModelSpec* model);
/// The row under which single trials are kept: one per model, hardware and recipe.
store::SweepRow single_trials_row(const spec::TrialSpec& spec);

/// The folder that the running trial of a database lives in; at most one exists, because the
/// session is locked.
std::string running_folder(const std::string& database_path);
/// The folder that keeps the reference run of a database on its way.
std::string reference_folder(const std::string& database_path);

}  // namespace moetune::sweeps
