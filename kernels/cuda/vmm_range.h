// Device memory that grows in place, by the driver's virtual-memory management: addresses are
// reserved at once, physical memory is added as it is needed.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace moetune::kernels::cuda {

struct VmmDriver;

class VmmRange final : public DeviceRange {
 public:
  /// Of the current device. Throws base::Error where the driver or the device has no virtual-memory
  /// management. `most_bytes` 0: as much as the device has.
  VmmRange(int device, int64_t most_bytes);
  ~VmmRange() override;
  VmmRange(const VmmRange&) = delete;
  VmmRange& operator=(const VmmRange&) = delete;

  /// Throws base::OutOfMemory when the device has no more, or beyond most_bytes.
  void grow(int64_t bytes) override;

 private:
  struct Piece {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  /// Adds a piece at the end; false when the device does not have that much.
  bool map_piece(int64_t bytes);

  int device_;
  const VmmDriver& driver_;
  int64_t granularity_ = 0;
  int64_t reserved_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace moetune::kernels::cuda
