// The sums of attention_workspace.h; the order of a call's runs is that of
// kernels/cuda/attention_plan.h.
#include "engine/plan/attention_workspace.h"

#include <algorithm>
#include <vector>

namespace moetune::plan {
namespace {

constexpr int64_t kAlignmentBytes = 256;
constexpr int64_t kWidestHead = 256;  // of cuDNN
constexpr int64_t kHeadMultiple = 8;
constexpr int64_t kBf16Bytes = 2;
constexpr int64_t kF32Bytes = 4;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

/// What one run needs during a call: the row statistics in the library's order, dk and dv until
/// they are added to those of an earlier run (`is_added`), and the graph's own workspace.
int64_t run_bytes(const AttentionRun& run, bool is_added) {
  const int64_t stats = run.batch * run.heads * run.queries * kF32Bytes;
  const int64_t packed = run.batch * run.keys * run.kv_heads * run.head_dim * kBf16Bytes;
  return aligned(stats) + (is_added ? 2 * aligned(packed) : 0) + aligned(cudnn_backward_bytes(run));
}

/// The rank's rows at consecutive positions; those that see most keys come first.
std::vector<PositionRange> runs_of(const LayerDims& dims) {
  std::vector<PositionRange> runs;
  for (const PositionRange& range : local_ranges(dims)) {
    if (!runs.empty() && runs.back().end == range.begin) {
      runs.back().end = range.end;
    } else {
      runs.push_back(range);
    }
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

}  // namespace

int64_t cudnn_backward_bytes(const AttentionRun& run) {
  const int64_t query_rows = run.batch * run.heads * run.queries;
  const int64_t key_rows = run.batch * run.heads * run.keys;
  const bool shares_keys = run.heads != run.kv_heads;
  return query_rows * run.head_dim * kF32Bytes + query_rows * kF32Bytes +
         (shares_keys ? 2 * key_rows * run.head_dim * kBf16Bytes : 0) + kAlignmentBytes;
}

int64_t attention_workspace_bytes(const LayerDims& dims) {
  // Keys with explicit positions go to the plain kernels, which need no workspace.
  if (dims.is_ring) return 0;
  if (dims.head_dim % kHeadMultiple != 0 || dims.head_dim > kWidestHead) return 0;
  int64_t most = 0;
  bool is_added = false;
  for (const PositionRange& rows : runs_of(dims)) {
    const int64_t queries = rows.end - rows.begin;
    if (queries <= 1) continue;  // the plain kernel does single rows
    const AttentionRun run{dims.sequences, dims.heads, dims.kv_heads,
                           dims.head_dim,  queries,    rows.end};
    most = std::max(most, run_bytes(run, is_added));
    is_added = true;
  }
  return most;
}

}  // namespace moetune::plan
