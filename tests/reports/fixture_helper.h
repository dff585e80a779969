// A runs database as a sweep would leave it, made through the Store: trials of every status,
// decisions of every phase, traces of eight ranks. For the tests of the report and for looking at
// it while working on it.
#pragma once

#include <string>

namespace moetune::tests {

struct FixtureOptions {
  /// Put in front of every text that a database can hold: names, reasons, titles, knob values.
  std::string hostile;
  /// The sweep's status: done, running, interrupted.
  std::string sweep_status = "done";
  /// Micro-batches in the traced step; more of them make a longer trace.
  int num_micro_batches = 4;
};

/// What a hostile database tries: markup, quotes, the ends of scripts and comments, control and
/// reordering characters.
extern const char* const kHostileText;

/// Creates `path` (its folder must exist; shards are written beside it and removed).
void make_fixture(const std::string& path, const FixtureOptions& options = {});

}  // namespace moetune::tests
