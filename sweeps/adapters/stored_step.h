// A step of another engine's traces as the store keeps those of our own, so that the report draws
// it and `moetune trace` exports it.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/diagnosis.h"

namespace moetune::sweeps {

/// The middle step that all traces have, of as many ranks as the bound on records allows, with what
/// it waits for as far as the replay infers it. As metrics the account that the verdict rests on
/// (imported_account.h), a step in the mean, and the critical path of that step; and the operations
/// whose work is known. Notes tell what is left out.
void add_stored_step(const Diagnosis& diagnosis, store::ShardContents& shard,
                     std::vector<std::string>& notes);

}  // namespace moetune::sweeps
