#include "kernels/cpu/host_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::kernels {
namespace {

constexpr int64_t kPageBytes = int64_t{2} << 20;
constexpr int kPoison = 0xFF;

int64_t round_up(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

int64_t physical_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

HostRange::HostRange(int64_t most_bytes)
    : reserved_(round_up(most_bytes > 0 ? most_bytes : physical_bytes())) {
  void* base = mmap(nullptr, static_cast<size_t>(reserved_), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MOETUNE_CHECK(base != MAP_FAILED, "no addresses left for {} bytes of emulated device memory",
                reserved_);
  base_ = static_cast<char*>(base);
}

HostRange::~HostRange() { munmap(base_, static_cast<size_t>(reserved_)); }

void HostRange::grow(int64_t bytes) {
  if (bytes <= usable_bytes_) return;
  const int64_t grown = round_up(bytes);
  if (grown > reserved_) {
    throw base::OutOfMemory("of the device", "arena", bytes, usable_bytes_, reserved_, 0);
  }
  const auto added = static_cast<size_t>(grown - usable_bytes_);
  const bool is_made = mprotect(base_ + usable_bytes_, added, PROT_READ | PROT_WRITE) == 0;
  if (!is_made) {
    throw base::EnvironmentFailure(
        fmt::format("this machine has no {} left for the emulated device's memory",
                    base::format_bytes(static_cast<int64_t>(added))));
  }
  std::memset(base_ + usable_bytes_, kPoison, added);
  usable_bytes_ = grown;
}

}  // namespace moetune::kernels
