// Sums and copies in the order of ranks, by dtype, so that results have the same bits in every run.
#include "tests/fakes/nccl/fake_nccl_math.h"

#include <cstdint>
#include <cstring>

#include "kernels/base/dtype.h"

namespace moetune::fakes {
namespace {

template <typename T>
T load(const char* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store(char* to, size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

void add_element(char* sum, const char* x, size_t i, ncclDataType_t type) {
  if (type == ncclFloat64) {
    store(sum, i, load<double>(sum, i) + load<double>(x, i));
  } else if (type == ncclFloat32) {
    store(sum, i, load<float>(sum, i) + load<float>(x, i));
  } else if (type == ncclInt32) {
    store(sum, i, load<int32_t>(sum, i) + load<int32_t>(x, i));
  } else {
    const float total =
        base::from_bf16(load<uint16_t>(sum, i)) + base::from_bf16(load<uint16_t>(x, i));
    store(sum, i, base::to_bf16(total));
  }
}

}  // namespace

size_t size_of_type(ncclDataType_t type) {
  if (type == ncclFloat64) return 8;
  if (type == ncclBfloat16) return 2;
  return type == ncclInt8 ? 1 : 4;
}

size_t send_bytes(const Collective& collective, size_t size) {
  const size_t bytes = collective.count * size_of_type(collective.type);
  return collective.kind == "reduce_scatter" ? bytes * size : bytes;
}

std::string combine(const Collective& collective, const std::vector<const char*>& sent) {
  const size_t bytes = send_bytes(collective, sent.size());
  std::string result;
  if (collective.kind == "all_gather") {
    for (const char* part : sent) result.append(part, bytes);
    return result;
  }
  result.assign(bytes, '\0');
  const size_t count = bytes / size_of_type(collective.type);
  for (const char* term : sent) {
    for (size_t i = 0; i < count; ++i) add_element(result.data(), term, i, collective.type);
  }
  return result;
}

void deliver(const Collective& collective, const std::string& result, int rank) {
  if (collective.kind != "reduce_scatter") {
    std::memcpy(collective.recv, result.data(), result.size());
    return;
  }
  const size_t bytes = collective.count * size_of_type(collective.type);
  std::memcpy(collective.recv, result.data() + static_cast<size_t>(rank) * bytes, bytes);
}

}  // namespace moetune::fakes
