// What collectives compute, for every kind of fake NCCL.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace moetune::fakes {

struct Collective {
  std::string kind;
  const char* send = nullptr;
  char* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;

  [[nodiscard]] bool matches(const Collective& other) const {
    return kind == other.kind && count == other.count && type == other.type;
  }
};

/// Bytes of an element.
size_t size_of_type(ncclDataType_t type);
/// Of what a member brings to a collective of `size`.
size_t send_bytes(const Collective& collective, size_t size);
/// What all members together make of it.
std::string combine(const Collective& collective, const std::vector<const char*>& sent);
/// The part of that which `rank` gets.
void deliver(const Collective& collective, const std::string& result, int rank);

}  // namespace moetune::fakes
