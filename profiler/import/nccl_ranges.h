// Which kernels of NCCL are messages, in exports of Nsight Systems. All kernels of messages and of
// exchanges have one name (SendRecv); the ranges (NVTX) that NCCL puts around its own calls tell
// them apart, and a send from a receive.
#pragma once

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Gives a description (CommCall) with the collective "send" or "recv" to each SendRecv kernel that
/// is one message: it was launched in the range of one such call, or at the end of a group that has
/// no other. The only kernel of a group with one call of each is kSendAndReceive. Kernels of other
/// groups, and those in a range that names a collective ("nccl:all_to_all"), stay as they are.
/// Group and other rank are not known. For a finished trace.
void describe_messages(ImportedTrace& trace);

}  // namespace moetune::profiler
