// A runs database and a shard that have a row in every table, small, so that changes of single
// bytes meet something.
#pragma once

#include <string>

namespace moetune::tests {

void make_sample_shard(const std::string& path);
void make_sample_store(const std::string& path);

}  // namespace moetune::tests
