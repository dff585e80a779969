// A trial of several processes leaves a shard per rank; the rest of this folder knows one shard.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// Merges the shards of the ranks, which are in the order of the ranks (after a failure some may be
/// missing). Takes steps, numbers of the whole run and texts that all ranks write from the first
/// shard, everything else from all. Puts the traces on one clock (ranks with another "clock_id"
/// have another clock), and splits communication into moving data and waiting, for which all ranks
/// are needed. Throws base::Error for impossible times.
store::ShardContents merge_shards(const spec::TrialSpec& trial,
                                  std::vector<store::ShardContents> shards);

/// Throws base::Error, naming the file, where a shard has rows of another rank than this.
void check_rank(const store::ShardContents& shard, int rank);

/// Throws base::Error, naming the file, when these are not the shards of all ranks of a trial that
/// has ended well: one of them lacks memory, or has other steps than the first.
void check_all_there(const std::vector<store::ShardContents>& shards);

}  // namespace moetune::sweeps
