// Sets of named values as bits: the knobs that choose any of a few things.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "engine/spec/names.h"
#include "kernels/base/error.h"

namespace moetune::spec {

/// A row of the table behind a set.
template <class E>
struct SetMember {
  E value;
  std::string_view name;
  bool stands_alone = false;  ///< written without others: an alternative to a set of members
};

/// Any of the values of E, whose table has SetMember rows. As text: "none", a member that stands
/// alone, or the others by commas, in table order.
template <HasNames E>
class NamedSet {
 public:
  constexpr NamedSet() = default;
  constexpr NamedSet(std::initializer_list<E> members) {
    for (const E member : members) add(member);
  }
  /// Throws base::UsageError for a text that `parse` refuses.
  explicit NamedSet(std::string_view text) {
    const std::optional<NamedSet> parsed = parse(text);
    if (!parsed) throw base::UsageError(fmt::format("'{}' is no set of known names", text));
    *this = *parsed;
  }

  /// In any order, also with duplicates and with blanks around the commas. Nothing for unknown
  /// names and for what stands alone beside others.
  static std::optional<NamedSet> parse(std::string_view text) {
    NamedSet set;
    if (text == kNone) return set;
    const std::optional<E> single = find_by_name<E>(text);
    if (single) return NamedSet{*single};
    while (true) {
      const size_t end = text.find(',');
      std::string_view part = text.substr(0, end);
      while (part.starts_with(' ')) part.remove_prefix(1);
      while (part.ends_with(' ')) part.remove_suffix(1);
      if (!set.add_among_others(part)) return std::nullopt;
      if (end == std::string_view::npos) return set;
      text.remove_prefix(end + 1);
    }
  }

  [[nodiscard]] std::string text() const {
    std::string result;
    for (const auto& row : NameTable<E>::kRows) {
      if (!has(row.value)) continue;
      if (!result.empty()) result += ',';
      result += row.name;
    }
    return result.empty() ? std::string(kNone) : result;
  }

  constexpr void add(E member) { bits_ |= bit(member); }
  [[nodiscard]] constexpr bool has(E member) const { return (bits_ & bit(member)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr int size() const { return std::popcount(bits_); }

  constexpr bool operator==(const NamedSet&) const = default;
  /// What is in both.
  constexpr NamedSet operator&(const NamedSet& other) const {
    NamedSet both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }

 private:
  static constexpr std::string_view kNone = "none";

  static constexpr uint32_t bit(E member) { return uint32_t{1} << static_cast<uint32_t>(member); }

  bool add_among_others(std::string_view name) {
    for (const auto& row : NameTable<E>::kRows) {
      if (row.name != name || row.stands_alone) continue;
      add(row.value);
      return true;
    }
    return false;
  }

  uint32_t bits_ = 0;
};

}  // namespace moetune::spec
