#include "kernels/base/name.h"

#include <array>
#include <functional>
#include <mutex>
#include <ostream>
#include <unordered_set>

namespace moetune::base {
namespace {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct Pool {
  std::mutex mutex;
  std::unordered_set<std::string, TextHash, std::equal_to<>> texts;
};

/// Never destroyed: names are in objects that end later.
Pool& pool() {
  static Pool* const all = new Pool;
  return *all;
}

/// Of each thread, the texts that it has looked up last, by where they lay: the same few literals
/// and rows of tables name nearly all records.
constexpr size_t kNumRecent = 256;
thread_local std::array<const std::string*, kNumRecent> recent = {};

}  // namespace

const std::string* Name::held(std::string_view text) {
  if (text.empty()) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(text.data());
  const std::string*& slot = recent[(address ^ (address >> 8)) % kNumRecent];
  if (slot != nullptr && *slot == text) return slot;
  Pool& all = pool();
  const std::lock_guard lock(all.mutex);
  auto found = all.texts.find(text);
  if (found == all.texts.end()) found = all.texts.emplace(text).first;
  slot = &*found;
  return slot;
}

const std::string& Name::nothing() {
  static const std::string empty;
  return empty;
}

std::ostream& operator<<(std::ostream& out, Name name) { return out << name.text(); }

}  // namespace moetune::base
