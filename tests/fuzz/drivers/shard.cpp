// What a rank's process leaves: a shard of all tables, with bytes changed.
#include "profiler/store/shard.h"

#include "profiler/store/store.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/sample_store.h"

namespace moetune::tests {

void fuzz_shard(std::string_view input) {
  const std::string path = patched_database(input, "shard.db", make_sample_shard);
  store::committed_step(path);
  store::read_shard(path);
}

}  // namespace moetune::tests
