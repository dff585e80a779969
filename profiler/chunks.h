// A growing column of rows that never moves what it holds. A vector that doubles needs the old and
// the new memory at once; a trace of many million records must not.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace moetune::profiler {

/// Rows in the order they were added. References stay valid until the rows are destroyed.
template <typename Row>
class Chunks {
 public:
  Row& add(Row row) {
    if (size_ % kRowsEach == 0) chunks_.emplace_back().reserve(kRowsEach);
    ++size_;
    return chunks_.back().emplace_back(std::move(row));
  }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  Row& operator[](size_t row) { return chunks_[row / kRowsEach][row % kRowsEach]; }
  const Row& operator[](size_t row) const { return chunks_[row / kRowsEach][row % kRowsEach]; }

  template <typename Owner, typename Value>
  class Walk {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Row;
    using difference_type = std::ptrdiff_t;
    using pointer = Value*;
    using reference = Value&;
    Walk() = default;
    Walk(Owner* owner, size_t row) : owner_(owner), row_(row) {}
    Value& operator*() const { return (*owner_)[row_]; }
    Value* operator->() const { return &(*owner_)[row_]; }
    Walk& operator++() {
      ++row_;
      return *this;
    }
    Walk operator++(int) { return {owner_, row_++}; }
    bool operator==(const Walk& other) const { return row_ == other.row_; }

   private:
    Owner* owner_ = nullptr;
    size_t row_ = 0;
  };
  auto begin() { return Walk<Chunks, Row>(this, 0); }
  auto end() { return Walk<Chunks, Row>(this, size_); }
  auto begin() const { return Walk<const Chunks, const Row>(this, 0); }
  auto end() const { return Walk<const Chunks, const Row>(this, size_); }

 private:
  static constexpr size_t kRowsEach = size_t{1} << 14;

  std::vector<std::vector<Row>> chunks_;
  size_t size_ = 0;
};

}  // namespace moetune::profiler
