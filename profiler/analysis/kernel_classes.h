// What a kernel is, by its name: one table of patterns for the libraries that training runs on.
// Names are all that other tools' traces have; our own are tagged (classify.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// What device work is booked as.
enum class WorkClass : uint8_t {
  compute,
  communication,
  dispatcher,  ///< packs or routes for communication: neither compute nor communication
  copy,
  fill,
  count
};

enum class KernelClass : uint8_t {
  nccl,  ///< and RCCL, whose kernels have the same names
  rccl,
  deepep,
  deepep_layout,
  hybridep,
  hybridep_pack,
  nvshmem,
  msccl,
  symmetric_memory,  ///< of PyTorch, vLLM, TensorRT-LLM
  copy_kernel,
  fill_kernel,
  moe_routing,
  attention,
  grouped_gemm,
  gemm,
  convolution,
  quantisation,
  norm,
  optimizer,
  indexing,
  elementwise,
  other,
  count
};

struct KernelClassRow {
  KernelClass id;
  const char* name;  ///< for people
  WorkClass work;    ///< in figures of the rule set `wide`
};
const KernelClassRow& row_of(KernelClass kernel_class);

/// Of a full demangled name; the first pattern that fits.
KernelClass kernel_class_of(std::string_view name);

/// Whose rules say what is communication.
enum class RuleSet : uint8_t {
  nccl,  ///< names that begin with nccl and go on with Kernel: what HolisticTraceAnalysis counts
  wide,  ///< also transports whose kernels are not called nccl, and what packs for them
};

/// The classes of a trace's ops; each name is looked at once.
class WorkClasses {
 public:
  WorkClasses(const NameTable& names, RuleSet rules);
  [[nodiscard]] WorkClass of(const ImportedOp& op) const {
    switch (op.kind) {
      case ActivityKind::copy:
        return WorkClass::copy;
      case ActivityKind::fill:
        return WorkClass::fill;
      case ActivityKind::kernel:
      case ActivityKind::graph:
        break;
    }
    return by_name_[op.name];
  }

 private:
  std::vector<WorkClass> by_name_;
};

}  // namespace moetune::profiler
