// When work of the fake device runs: what a wait needs, in an order that the program leaves open.
// The order is drawn by chance, so that a forgotten wait shows.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

/// Operations that can run, and the choice among them. Half of the waits take any; the other half
/// prefer some streams over others for a while, which lets one run far ahead.
class Choice {
 public:
  explicit Choice(std::mt19937_64& random)
      : random_(random), prefers_lanes_(random() % 2 == 0), salt_(random()) {}

  void add(Node* node) { ready_.push_back(node); }
  [[nodiscard]] bool is_empty() const { return ready_.empty(); }

  Node* take() {
    size_t chosen = random_() % ready_.size();
    if (prefers_lanes_) {
      if (random_() % 64 == 0) salt_ = random_();
      for (size_t i = 0; i < ready_.size(); ++i) {
        if (rank(*ready_[i]) < rank(*ready_[chosen])) chosen = i;
      }
    }
    std::swap(ready_[chosen], ready_.back());
    Node* node = ready_.back();
    ready_.pop_back();
    return node;
  }

 private:
  [[nodiscard]] uint64_t rank(const Node& node) const {
    return ((node.lane + 1) * 0x9E3779B97F4A7C15U ^ salt_) * 0xBF58476D1CE4E5B9U >> 16;
  }

  std::mt19937_64& random_;
  std::vector<Node*> ready_;
  bool prefers_lanes_;
  uint64_t salt_;
};

/// Marks what has to run for `targets`; returns how much that is.
size_t collect(const Nodes& targets, Choice& choice) {
  const uint64_t wait = ++world().last_wait;
  std::vector<Node*> open;
  for (const auto& target : targets) open.push_back(target.get());
  size_t count = 0;
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node->is_done || node->wanted_by == wait) continue;
    node->wanted_by = wait;
    ++count;
    if (node->num_undone == 0) choice.add(node);
    for (const auto& earlier : node->after) open.push_back(earlier.get());
  }
  return count;
}

Failure guarded(const Work& work, const Operation& what) {
  World& w = world();
  Observer* watching = observer();
  const uint64_t start_ns = watching == nullptr ? 0 : watching->now_ns();
  w.is_executing = true;
  Failure failure;
  try {
    failure = work();
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "an exception";
  }
  w.is_executing = false;
  ++w.clock;
  if (watching != nullptr) watching->ran(what, start_ns);
  return failure;
}

void run(Node& node, Choice& choice) {
  World& w = world();
  if (w.failure == cudaSuccess) {
    if (const Failure failure = guarded(*node.work, node.what); !failure.empty()) {
      w.failure = cudaErrorLaunchFailure;
      w.failure_text = failure;
      w.is_failure_known = false;
    }
  }
  node.is_done = true;
  node.done_at = w.clock;
  node.work.reset();
  node.after.clear();
  --w.num_pending;
  for (Node* next : std::exchange(node.successors, {})) {
    if (--next->num_undone == 0 && next->wanted_by == w.last_wait) choice.add(next);
  }
}

cudaError_t run_some(const Nodes& targets, bool is_query) {
  if (targets.empty()) return world().failure;
  Choice choice(world().random);
  const Nodes held = targets;  // running empties what holds them
  const size_t count = collect(held, choice);
  const size_t limit = is_query ? 1 + count / 4 : count;
  for (size_t i = 0; i < std::min(limit, count); ++i) {
    if (choice.is_empty()) {
      std::fprintf(stderr, "simt: %zu operations wait for each other\n", count - i);
      std::abort();
    }
    run(*choice.take(), choice);
  }
  if (world().failure != cudaSuccess) return world().failure;
  return is_query && count > 0 ? cudaErrorNotReady : cudaSuccess;
}

}  // namespace

void join(Nodes& frontier, const Nodes& nodes) {
  std::erase_if(frontier, [](const auto& node) { return node->is_done; });
  for (const auto& node : nodes) {
    if (node->is_done || std::find(frontier.begin(), frontier.end(), node) != frontier.end()) {
      continue;
    }
    frontier.push_back(node);
  }
}

std::shared_ptr<Node> defer(const std::shared_ptr<const Work>& work, const Operation& what,
                            const Nodes& after, unsigned lane) {
  auto node = std::make_shared<Node>();
  node->work = work;
  node->what = what;
  node->lane = lane;
  for (const auto& earlier : after) {
    if (earlier->is_done) continue;
    earlier->successors.push_back(node.get());
    node->after.push_back(earlier);
  }
  node->num_undone = node->after.size();
  ++world().num_pending;
  return node;
}

cudaError_t run_now(const Work& work, const Operation& what) {
  const Failure failure = guarded(work, what);
  return failure.empty() ? cudaSuccess : refuse(cudaErrorLaunchFailure, failure);
}

cudaError_t finish(const Nodes& targets) { return run_some(targets, false); }
cudaError_t advance(const Nodes& targets) { return run_some(targets, true); }

cudaError_t finish_device(int device) {
  World& w = world();
  Nodes all = std::exchange(w.orphans[device], {});
  const auto add = [&](const CUstream_st& stream) {
    const Nodes& own = stream.capture ? stream.frontier_before : stream.frontier;
    all.insert(all.end(), own.begin(), own.end());
  };
  for (const CUstream_st* stream : w.streams) {
    if (stream->device == device) add(*stream);
  }
  if (const auto legacy = w.legacy_streams.find(device); legacy != w.legacy_streams.end()) {
    add(*legacy->second);
  }
  // Streams are kept by address, which must not choose the order.
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->lane < b->lane; });
  return finish(all);
}

int64_t num_pending() {
  const std::lock_guard lock(world().mutex);
  return world().num_pending;
}

}  // namespace moetune::simt
