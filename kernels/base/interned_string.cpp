#include "kernels/base/interned_string.h"

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

/// Never destroyed: objects that end later refer to its texts.
Pool& pool() {
  static Pool* const names = new Pool;
  return *names;
}

/// Cache of each thread, by the address of the looked-up text: literals and table rows recur.
constexpr size_t kNumRecent = 256;
thread_local std::array<const std::string*, kNumRecent> recent = {};

}  // namespace

const std::string* InternedString::intern(std::string_view text) {
  if (text.empty()) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(text.data());
  const std::string*& slot = recent[(address ^ (address >> 8)) % kNumRecent];
  if (slot != nullptr && *slot == text) return slot;
  Pool& names = pool();
  const std::lock_guard lock(names.mutex);
  auto found = names.texts.find(text);
  if (found == names.texts.end()) found = names.texts.emplace(text).first;
  slot = &*found;
  return slot;
}

const std::string& InternedString::empty_text() {
  static const std::string empty;
  return empty;
}

std::ostream& operator<<(std::ostream& out, InternedString name) { return out << name.text(); }

}  // namespace moetune::base
