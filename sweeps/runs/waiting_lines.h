// What a log says of ranks that wait for others: watchdogs, barriers, stores and DeepEP. Readers of
// rows in failure_forms.cpp.
#pragma once

#include "sweeps/runs/failure_forms.h"

namespace moetune::sweeps::waiting {

/// "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, ...".
FailureReader read_collective_timeout;
/// "Timed out waiting 60000ms for send operation to complete": gloo's, of a pair of ranks.
FailureReader read_gloo_timeout;
/// "Rank 5 failed to pass monitoredBarrier in 600000 ms", "[Rank 0]: Ranks 3, 5 failed to ...".
FailureReader read_monitored_barrier;
/// "Timed out initializing process group in store based barrier on rank: 3, for key: ...".
FailureReader read_store_barrier;
/// "DistStoreError: Socket Timeout" of PyTorch's store, "store->get('0') got error: wait timeout
/// after 600000ms". Whoever uploads or downloads says "error: Socket Timeout", too.
FailureReader read_store_timeout;
/// "last enqueued NCCL work: 80, last completed NCCL work: 76", in newer ones without NCCL. -1 is
/// nothing: the watchdog has nothing to wait for. Where all is well it may say so now and then.
FailureReader read_work_queue;
/// "DeepEP timeout check failed: rank = 6, ...", "DeepEP error: timeout (dispatch CPU)", "DeepEP
/// dispatch NVL receiver timeout, ...". Ranks that these lines name are those of its group.
FailureReader read_deepep;

}  // namespace moetune::sweeps::waiting
