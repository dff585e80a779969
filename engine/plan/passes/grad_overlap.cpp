// The reduction of a layer's gradients, moved to where the layer's last backward segment has ended.
#include <map>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {

void grad_overlap(std::vector<Item>& items,
                  const std::vector<std::shared_ptr<const Segment>>& segments) {
  const auto segment_of = [&](const Item& item) -> const Segment& {
    return *segments[static_cast<size_t>(item.segment)];
  };
  const auto reduces = [&](const Item& item) {
    const Segment& segment = segment_of(item);
    return item.layer >= 0 && segment.block == BlockKind::update &&
           segment.code.back().op == Op::grad_reduce;
  };
  std::map<int32_t, std::vector<Item>> reductions;  // by layer
  std::map<int32_t, size_t> last_backward;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (reduces(item)) {
      reductions[item.layer].push_back(item);
    } else if (item.layer >= 0 && segment_of(item).is_backward) {
      last_backward[item.layer] = i;
    }
  }
  std::vector<Item> moved;
  for (size_t i = 0; i < items.size(); ++i) {
    if (reduces(items[i])) continue;
    moved.push_back(items[i]);
    const auto last = last_backward.find(items[i].layer);
    if (last == last_backward.end() || last->second != i) continue;
    const std::vector<Item>& own = reductions[items[i].layer];
    moved.insert(moved.end(), own.begin(), own.end());
  }
  items = std::move(moved);
}

}  // namespace moetune::plan
