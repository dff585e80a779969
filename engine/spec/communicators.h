// The communicators as rows of one table: how the ranks of a trial run and what each way can do.
// Who makes them stands in engine/comm/communicators.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/spec/modes.h"

namespace moetune::spec {

enum class CommunicatorKind : uint8_t { threads, nccl, fake };

/// Where the ranks of a trial are.
enum class RanksAre : uint8_t {
  threads,    ///< all in one process, one address space
  processes,  ///< each a process with a device of its own, started by a launcher or by moetune
  alone,      ///< one rank of the layout; nothing moves, and the others' numbers are made up
};

/// What constraints, sweeps and the engine ask of a communicator.
struct CommunicatorRow {
  CommunicatorKind value;
  std::string_view name;
  RanksAre ranks;
  bool needs_device;           ///< moves a device's memory, so only with a backend on one
  int64_t max_virtual_stages;  ///< of a pipeline rank; 0: any
  /// Why there are no more of them.
  std::string_view virtual_stages_need;
};

template <>
struct NameTable<CommunicatorKind> {
  static constexpr std::array kRows = {
      CommunicatorRow{CommunicatorKind::threads, "threads", RanksAre::threads, false, 0, ""},
      CommunicatorRow{CommunicatorKind::nccl, "nccl", RanksAre::processes, true, 1,
                      "messages with tags"},
      CommunicatorRow{CommunicatorKind::fake, "fake", RanksAre::alone, false, 0, ""},
  };
};

/// The communicator's row.
constexpr const CommunicatorRow& row_of(CommunicatorKind kind) {
  return NameTable<CommunicatorKind>::kRows[static_cast<size_t>(kind)];
}

consteval bool rows_are_in_order() {
  size_t index = 0;
  for (const CommunicatorRow& row : NameTable<CommunicatorKind>::kRows) {
    if (static_cast<size_t>(row.value) != index++) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "a communicator's row stands where its value says");

}  // namespace moetune::spec
