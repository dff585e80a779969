// A CUPTI and a CUDA runtime that the recorder's tests are linked with in place of the real ones:
// they fail on demand, write what a test tells them to, and watch the order of calls.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace fake {

/// What the machine is like. Tests reset it.
struct Machine {
  int driver_version = 13000;
  int num_devices = 1;
  uint32_t cupti_version = CUPTI_API_VERSION;
  CUptiResult subscribe_result = CUPTI_SUCCESS;
  std::string subscriber;  ///< who has the subscription, when it is refused
  CUptiResult clock_result = CUPTI_SUCCESS;
  CUpti_ActivityKind failing_kind = CUPTI_ACTIVITY_KIND_INVALID;
  CUptiResult enable_result = CUPTI_SUCCESS;  ///< of the failing kind
  CUptiResult driver_api_result = CUPTI_SUCCESS;
  size_t num_dropped = 0;

  // What happened.
  bool is_subscribed = false;
  bool has_clock = false;
  bool was_enabled_before_clock = false;
  bool was_flushed_unsynchronised = false;
  bool was_flushed_softly = false;
  int num_synchronisations = 0;
  int num_flushes = 0;
  int num_buffers_out = 0;
  int num_refused = 0;
  std::set<CUpti_ActivityKind> enabled;
  std::set<CUpti_CallbackId> driver_calls_off;
};
extern Machine machine;

/// Writes a record into the current buffer, which flushing hands over.
void write(const void* record, size_t bytes);
template <typename Record>
void write(const Record& record) {
  write(&record, sizeof(record));
}
/// The op id that CUPTI would attach to a call of this thread now, 0 for none.
uint64_t current_op();
/// Time on the clock that the recorder registered.
uint64_t now();

/// Nodes are numbers; their ids in records are the same.
void create_node(uint64_t node);
void clone_node(uint64_t original, uint64_t node);
void depend(uint64_t node, uint64_t dependency);
void fail_fatally(const char* message);

void reset();

}  // namespace fake
