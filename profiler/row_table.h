// Rows of a small table, each kept once and known by its number: streams, threads, launch shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace moetune::profiler {

/// Row has == and `uint64_t hash() const`.
template <typename Row>
class RowTable {
 public:
  /// The number of a row, a new one where it has none.
  uint32_t row_of(const Row& row) {
    if (last_ < rows_.size() && rows_[last_] == row) return last_;
    const auto [at, is_new] = numbers_.try_emplace(row, static_cast<uint32_t>(rows_.size()));
    if (is_new) rows_.push_back(row);
    last_ = at->second;
    return last_;
  }
  const Row& operator[](size_t number) const { return rows_[number]; }
  [[nodiscard]] size_t size() const { return rows_.size(); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

 private:
  struct Hash {
    size_t operator()(const Row& row) const { return row.hash(); }
  };

  std::vector<Row> rows_;
  std::unordered_map<Row, uint32_t, Hash> numbers_;
  uint32_t last_ = 0;
};

}  // namespace moetune::profiler
