// Host memory that grows in place, as device memory does by virtual-memory management.
#pragma once

#include "kernels/backend.h"

namespace moetune::kernels {

class HostRange final : public DeviceRange {
 public:
  /// `most_bytes` 0: as much as the machine has. Throws base::Error when the process has no
  /// addresses left.
  explicit HostRange(int64_t most_bytes);
  ~HostRange() override;
  HostRange(const HostRange&) = delete;
  HostRange& operator=(const HostRange&) = delete;

  /// New memory is filled as CpuBackend::allocate fills it.
  void grow(int64_t bytes) override;

 private:
  int64_t reserved_;
};

}  // namespace moetune::kernels
