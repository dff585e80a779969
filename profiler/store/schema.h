// Which schema a database has: creating it, checking that a file is one of ours and unchanged, and
// migrating old ones.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/store/db.h"

namespace moetune::store {

constexpr int kSchemaVersion = 6;
/// Shards live as long as their trial: they are never migrated, and have a version of their own.
constexpr int kShardSchemaVersion = 3;
constexpr int64_t kStoreApplicationId = 0x4d6f6554;  // "MoeT"
constexpr int64_t kShardApplicationId = 0x4d6f6553;  // "MoeS"

/// Creates the tables of the runs database in an empty file, or checks that the file has them in
/// this version. Any other file is base::UsageError: empty (when it may not be created), another
/// program's, of a newer or older schema.
void create_or_check_store(Database& database, bool may_create);
/// The same for the shard of a rank process: a new one, and one to read.
void create_shard(Database& database);
void check_shard(Database& database);

/// Runs the migrations from the file's version to kSchemaVersion, in one transaction, so that a
/// file is of the old version or of the new one whenever this ends; returns the version it had.
int migrate_store(Database& database);

}  // namespace moetune::store
