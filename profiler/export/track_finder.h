// Which track of a row a slice goes to: viewers draw what lies within another below it, so that two
// slices that only overlap need two tracks. A broken file may have as many tracks as slices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace moetune::profiler {

/// Hands out tracks, numbered from 0, to slices that come by start, of equal starts the longest
/// first. Each takes time of the logarithm of the number of tracks.
class TrackFinder {
 public:
  struct End {
    size_t track = 0;
    int64_t ns = 0;
  };

  /// Ends the open slice that ends first, if that is until `ns`. False: there is none.
  bool end_until(int64_t ns, End& end) {
    if (ends_.empty() || ends_.top().first > ns) return false;
    end = {ends_.top().second, ends_.top().first};
    ends_.pop();
    std::vector<int64_t>& open = open_ends_ns_[end.track];
    open.pop_back();
    set_room(end.track);
    return true;
  }

  /// The first track with nothing open, or where the slice lies within what is. All that ends until
  /// its start has to be ended before.
  size_t begin(int64_t end_ns) {
    if (room_until_ns_[1] < end_ns) grow();
    size_t node = 1;
    while (node < num_leaves()) {
      node *= 2;
      if (room_until_ns_[node] < end_ns) ++node;
    }
    const size_t track = node - num_leaves();
    if (track >= open_ends_ns_.size()) open_ends_ns_.resize(track + 1);
    open_ends_ns_[track].push_back(end_ns);
    ends_.emplace(end_ns, track);
    set_room(track);
    return track;
  }

 private:
  static constexpr int64_t kEmpty = std::numeric_limits<int64_t>::max();

  [[nodiscard]] size_t num_leaves() const { return room_until_ns_.size() / 2; }

  void set_room(size_t track) {
    const std::vector<int64_t>& open = open_ends_ns_[track];
    size_t node = track + num_leaves();
    room_until_ns_[node] = open.empty() ? kEmpty : open.back();
    while (node > 1) {
      node /= 2;
      room_until_ns_[node] = std::max(room_until_ns_[2 * node], room_until_ns_[2 * node + 1]);
    }
  }

  /// All tracks are taken: as many again.
  void grow() {
    const size_t num_before = num_leaves();
    room_until_ns_.assign(4 * num_before, kEmpty);
    for (size_t track = 0; track < num_before; ++track) set_room(track);
  }

  std::vector<std::vector<int64_t>> open_ends_ns_;  ///< by track, the innermost last
  /// Of a binary tree whose leaves are the tracks: until when the roomiest track of a node has
  /// room. Children of node n are 2n and 2n + 1, the root is 1.
  std::vector<int64_t> room_until_ns_ = {kEmpty, kEmpty};
  /// Ends of all that is open, and its track; the first end on top. On its track it is the
  /// innermost, as what lies within another ends first.
  std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>,
                      std::greater<>>
      ends_;
};

}  // namespace moetune::profiler
