// A runs database as a sweep would leave it, made through the Store: trials of every status,
// decisions of every phase, traces of eight ranks. For the tests of the report and for looking at
// it while working on it.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/store/search_status.h"

namespace moetune::tests {

struct FixtureOptions {
  /// Put in front of every text that a database can hold: names, reasons, titles, knob values.
  std::string hostile;
  store::SearchStatus sweep_status = store::SearchStatus::done;
  /// Not empty: the trials ran on a GPU, with this communicator (threads, nccl, fake).
  std::string communicator;
  /// Micro-batches in the traced step; more of them make a longer trace.
  int num_micro_batches = 4;
  /// Hunts beside the sweep (hunt_fixture_helper.h). Each of their runs waits for the disk.
  bool has_hunts = false;
  /// 43 trials, as many as a quick start has, with texts as long as its own; else 25 and short
  /// ones.
  bool is_quickstart_size = false;
};

/// What a hostile database tries: markup, quotes, the ends of scripts and comments, control and
/// reordering characters.
extern const char* const kHostileText;

/// What the fixture's driver says is used on the GPU of trial 25, and what its lines leave of that.
constexpr int64_t kFixtureUsedBytes = 1200LL << 20;
constexpr int64_t kFixtureRestBytes = 11LL << 20;
/// The trial whose trace has a note, and the note.
constexpr int kNotedTrial = 22;
extern const char* const kTraceNote;

/// Creates `path` (its folder must exist; shards are written beside it and removed).
void make_fixture(const std::string& path, const FixtureOptions& options = {});

}  // namespace moetune::tests
