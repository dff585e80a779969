// A CUPTI for the fake device of tests/fakes/simt: what runs there becomes CUPTI's records, by the
// rules that CUPTI documents, for whoever subscribes. A program that is linked with it uses it in
// place of the real one, of which only names, versions and the reading of records remain.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tests/fakes/simt/simt_observer.h"

namespace moetune::simt_cupti {

/// What a test changes; reset() brings back what a fresh process has.
struct Behaviour {
  /// Of each buffer only so much is used, so that records spread over many; 0: all of it.
  size_t buffer_bytes = 0;
  /// These functions return this, and do nothing.
  std::map<std::string, CUptiResult> failures;
  /// Nodes of instances are told of as created before they are told of as cloned.
  bool tells_of_clones_twice = false;
  /// While kernels are traced: how long a call or an operation lasts at least.
  std::function<uint64_t(const char* function)> call_ns;
  std::function<uint64_t(const simt::Operation& operation)> work_ns;
};
/// Set while nothing runs.
void set_behaviour(const Behaviour& behaviour);
void reset();

/// What happened since reset().
struct Counts {
  std::map<CUpti_ActivityKind, int64_t> records;  ///< handed over or to be, by kind
  int64_t num_graph_work = 0;                     ///< records of nodes of graphs
  int64_t num_dropped = 0;
  int64_t num_buffers = 0;  ///< filled
  int64_t num_buffers_out = 0;
};
Counts counts();

/// The mangled name of a function of this program; "kernel" where it has none.
const char* name_of_function(const void* function);

}  // namespace moetune::simt_cupti
