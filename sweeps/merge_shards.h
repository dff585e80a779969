// A trial of several processes leaves a shard per rank; the rest of this folder knows one shard.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// One shard from those of the ranks, which come in the order of the ranks (of a trial that ended
/// badly, some may be missing). Steps, numbers of the whole run and texts that all write are those
/// of the first; everything else is there of every rank. Traces are brought onto one clock (the
/// text "clock_id" tells those apart that are not the same), and communication is split into moving
/// data and waiting for others, which only all ranks together tell. Throws base::Error for times
/// that cannot be.
store::ShardContents merge_shards(const spec::TrialSpec& trial,
                                  std::vector<store::ShardContents> shards);

/// Throws base::Error, naming the file, where a shard has rows of another rank than this.
void check_rank(const store::ShardContents& shard, int rank);

/// Throws base::Error, naming the file, when these are not the shards of all ranks of a trial that
/// has ended well: one of them lacks memory, or has other steps than the first.
void check_all_there(const std::vector<store::ShardContents>& shards);

}  // namespace moetune::sweeps
