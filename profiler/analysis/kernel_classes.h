// Classifies kernels by their names, with one table of patterns for the libraries that training
// uses. Traces of other tools have only names; our own have tags (classify.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// The class to which device work counts.
enum class WorkClass : uint8_t {
  compute,
  communication,
  dispatcher,  ///< packs or routes for communication: neither compute nor communication
  copy,
  fill,
  count
};

enum class KernelClass : uint8_t {
  nccl,  ///< includes RCCL kernels with NCCL's names
  rccl,
  deepep,
  deepep_layout,
  hybridep,
  hybridep_pack,
  mori,  ///< of AMD
  nvshmem,
  msccl,
  symmetric_memory,  ///< kernels of PyTorch, vLLM, TensorRT-LLM
  userbuffers,       ///< of Transformer Engine, beside products (--tp-comm-overlap)
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
  const char* name;        ///< for people
  WorkClass work;          ///< for verdicts
  bool is_in_wide = true;  ///< false: compute under RuleSet::wide, which does not know it
};
const KernelClassRow& row_of(KernelClass kernel_class);

/// Class of a kernel by its full demangled name: that of the first matching pattern.
KernelClass kernel_class_of(std::string_view name);

/// Rules for what counts as communication.
enum class RuleSet : uint8_t {
  nccl,  ///< names that begin with "nccl" and contain "Kernel", as in HolisticTraceAnalysis
  wide,  ///< also kernels of other transports, and kernels that pack for them; for figures that are
         ///< compared with those of other tools
};

/// The classes of a trace's ops; classifies each name once.
class WorkClasses {
 public:
  WorkClasses(const NameTable& names, RuleSet rules);
  /// For verdicts: all transports that are known. A kernel that the file describes as a collective
  /// or a message is communication, whatever its name, and so is a copy between two devices.
  explicit WorkClasses(const ImportedTrace& trace);
  [[nodiscard]] WorkClass of(const ImportedOp& op) const {
    switch (op.kind) {
      case ActivityKind::copy:
        return is_for_verdicts_ && op.path == CopyPath::peer ? WorkClass::communication
                                                             : WorkClass::copy;
      case ActivityKind::fill:
        return WorkClass::fill;
      case ActivityKind::kernel:
      case ActivityKind::graph:
        break;
    }
    if (op.comm < is_described_.size() && is_described_[op.comm]) return WorkClass::communication;
    return by_name_[op.name];
  }

 private:
  std::vector<WorkClass> by_name_;
  std::vector<bool> is_described_;  ///< by row of the trace's comms; empty: names alone count
  bool is_for_verdicts_ = false;
};

}  // namespace moetune::profiler
