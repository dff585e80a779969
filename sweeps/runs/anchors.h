// Which of many texts occur in a line, found in one pass over it however many they are: logs have
// gigabytes, the tables of what matters in them about a hundred rows. (Aho and Corasick, 1975.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

class Anchors {
 public:
  /// Where one was found.
  struct Hit {
    size_t anchor = 0;  ///< its place in the list
    size_t at = 0;      ///< of its first character in the line
  };

  /// Texts must not be empty. Two may be the same; one may be a part of another.
  explicit Anchors(std::span<const std::string_view> texts);

  /// Appends all places where one occurs, in the order of their ends.
  void find(std::string_view line, std::vector<Hit>& hits) const {
    uint32_t state = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      state = next_[state + class_[static_cast<unsigned char>(line[i])]];
      if (state >= first_final_) add_hits(state, i + 1, hits);
    }
  }

 private:
  void add_hits(uint32_t state, size_t end, std::vector<Hit>& hits) const;

  std::array<uint8_t, 256> class_{};  ///< bytes that no text has share class 0
  size_t num_classes_ = 1;
  /// Next state after state s and class c, at s + c. States are multiples of num_classes_.
  std::vector<uint32_t> next_;
  /// States from this one on end a text.
  uint32_t first_final_ = 0;
  /// Texts that end in a state, by (state - first_final_) / num_classes_.
  std::vector<std::vector<uint16_t>> ends_;
  std::vector<size_t> lengths_;
};

}  // namespace moetune::sweeps
