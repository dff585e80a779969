#include "sweeps/runs/anchors.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

/// The automaton while it grows: states in the order of their making.
struct Trie {
  explicit Trie(size_t num_classes_in) : num_classes(num_classes_in) { add(); }

  uint32_t add() {
    children.resize(children.size() + num_classes, 0);
    ends.emplace_back();
    return static_cast<uint32_t>(ends.size() - 1);
  }
  uint32_t& child(uint32_t state, size_t byte_class) {
    return children[state * num_classes + byte_class];
  }

  size_t num_classes;
  std::vector<uint32_t> children;  ///< 0: none, which is where a search starts again
  std::vector<std::vector<uint16_t>> ends;
};

/// Every state gets a way on for every byte: that of its longest proper ending.
void link(Trie& trie) {
  std::vector<uint32_t> fallback(trie.ends.size(), 0);
  std::vector<uint32_t> queue = {0};
  for (size_t at = 0; at < queue.size(); ++at) {
    const uint32_t state = queue[at];
    for (size_t c = 0; c < trie.num_classes; ++c) {
      uint32_t& child = trie.child(state, c);
      const uint32_t beside = state == 0 ? 0 : trie.child(fallback[state], c);
      if (child == 0) {
        child = beside;
        continue;
      }
      fallback[child] = beside;
      auto& ends = trie.ends[child];
      ends.insert(ends.end(), trie.ends[beside].begin(), trie.ends[beside].end());
      queue.push_back(child);
    }
  }
}

}  // namespace

Anchors::Anchors(std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    MOETUNE_CHECK(!text.empty(), "an anchor without text");
    for (const char c : text) {
      uint8_t& byte_class = class_[static_cast<unsigned char>(c)];
      if (byte_class == 0) byte_class = static_cast<uint8_t>(num_classes_++);
    }
    lengths_.push_back(text.size());
  }
  Trie trie(num_classes_);
  for (size_t i = 0; i < texts.size(); ++i) {
    uint32_t state = 0;
    for (const char c : texts[i]) {
      const uint8_t byte_class = class_[static_cast<unsigned char>(c)];
      uint32_t next = trie.child(state, byte_class);
      if (next == 0) {
        next = trie.add();
        trie.child(state, byte_class) = next;
      }
      state = next;
    }
    trie.ends[state].push_back(static_cast<uint16_t>(i));
  }
  link(trie);
  // States that end a text come last: one comparison tells them.
  const size_t num_states = trie.ends.size();
  std::vector<uint32_t> order(num_states);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_partition(order.begin(), order.end(),
                        [&](uint32_t state) { return trie.ends[state].empty(); });
  std::vector<uint32_t> place(num_states);
  for (size_t i = 0; i < num_states; ++i) {
    place[order[i]] = static_cast<uint32_t>(i * num_classes_);
  }
  next_.resize(num_states * num_classes_);
  for (size_t state = 0; state < num_states; ++state) {
    for (size_t c = 0; c < num_classes_; ++c) {
      next_[place[state] + c] = place[trie.child(static_cast<uint32_t>(state), c)];
    }
  }
  first_final_ = static_cast<uint32_t>(next_.size());
  for (size_t i = 0; i < num_states; ++i) {
    auto& ends = trie.ends[order[i]];
    if (ends.empty()) continue;
    first_final_ = std::min(first_final_, place[order[i]]);
    ends_.push_back(std::move(ends));
  }
}

void Anchors::add_hits(uint32_t state, size_t end, std::vector<Hit>& hits) const {
  for (const uint16_t anchor : ends_[(state - first_final_) / num_classes_]) {
    hits.push_back({anchor, end - lengths_[anchor]});
  }
}

}  // namespace moetune::sweeps
