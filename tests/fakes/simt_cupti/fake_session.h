// The inside of the fake CUPTI: who subscribed, what is enabled, and the records. The functions
// that are CUPTI's own are in simt_cupti.cpp.
#pragma once

#include <cupti.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/fakes/simt_cupti/simt_cupti.h"

namespace moetune::simt_cupti {

class Session final : public simt::Observer {
 public:
  /// Never destroyed: threads may outlive main().
  static Session& instance();

  // --- what is set up ---------------------------------------------------------------------------

  std::recursive_mutex mutex;  ///< of all that follows; never held during a callback on graphs
  Behaviour behaviour;
  Counts counts;
  size_t num_untold_drops = 0;
  CUpti_CallbackFunc callback = nullptr;  ///< null without a subscriber
  void* callback_data = nullptr;
  std::set<CUpti_CallbackId> resource_callbacks;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::atomic<CUpti_TimestampCallbackFunc> clock{nullptr};
  std::set<CUpti_ActivityKind> enabled;
  std::set<CUpti_CallbackId> disabled_runtime_calls;
  std::set<CUpti_CallbackId> disabled_driver_calls;

  /// The calling thread's, innermost last, by kind.
  static std::map<CUpti_ExternalCorrelationKind, std::vector<uint64_t>>& external_ids();

  /// CUPTI_ERROR_... that the test wants of the function.
  CUptiResult wanted_failure(const char* function);
  /// Hands over all buffers.
  void flush();
  /// What the first record would else have to look up within a step.
  static void prepare_names();
  /// 0 when it is no node that was told of.
  uint64_t id_of(const void* node);

  // --- the device's reports ---------------------------------------------------------------------

  uint32_t begin_call(const char* function) override;
  void end_call(const char* function, uint32_t call, cudaError_t status) override;
  uint64_t now_ns() override;
  void ran(const simt::Operation& operation, uint64_t start_ns) override;
  void waited(const simt::WaitReport& wait, uint32_t call) override;
  void recorded(int device, unsigned stream, uint64_t record, uint32_t call) override;
  void created_node(const void* node) override;
  void depends(const void* node, const void* dependency) override;
  void cloned_node(const void* original, const void* node, uint32_t instance) override;

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t size = 0;
    size_t used = 0;
  };

  /// Records of one writer keep their order; a thread's calls are one, a device's work another.
  void write(uint64_t writer, const void* record, size_t bytes, CUpti_ActivityKind kind);
  template <typename Record>
  void write(uint64_t writer, const Record& record) {
    write(writer, &record, sizeof(record), record.kind);
  }
  void hand_over(Buffer& buffer);
  void write_kernel(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns);
  void write_copy(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns);
  void write_fill(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns);
  void name_node(const void* node, uint64_t graph);
  void tell(CUpti_CallbackIdResource id, const void* node, const void* other);
  /// While kernels are traced.
  void wait_until(uint64_t end_ns);

  uint32_t last_call_ = 0;
  uint64_t last_node_ = 0;
  std::map<uint64_t, Buffer> buffers_;                  // by writer
  std::unordered_map<const void*, uint64_t> node_ids_;  // of the latest node at that address
};

}  // namespace moetune::simt_cupti
