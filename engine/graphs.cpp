// See graphs.h.
#include "engine/graphs.h"

#include "kernels/base/error.h"

namespace moetune::engine {

uint64_t hash_addresses(const std::vector<const void*>& addresses) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const void* address : addresses) {
    hash ^= reinterpret_cast<uint64_t>(address);
    hash *= 0x100000001b3;
  }
  return hash;
}

void Graphs::open(const GraphKey& key) {
  if (!backend_.has_graphs()) return;
  MOETUNE_CHECK(!is_open_, "graph scopes do not nest");
  is_open_ = true;
  key_ = key;
  key_.segment = 0;
}

void Graphs::close() {
  if (!is_open_) return;
  end_segment();
  is_open_ = false;
}

bool Graphs::begin_op() {
  if (!is_open_) return true;
  if (doing_ == Doing::nothing) {
    const auto found = known_.find(key_);
    if (found == known_.end()) {
      // Libraries choose and load their kernels at the first call, which no graph can hold.
      GraphKey part = key_;
      part.buffers = 0;
      int& variants = num_variants_[part];
      if (variants < kMaxVariants) {
        ++variants;
        known_[key_] = {};
      } else {
        ++num_given_up_;
      }
      doing_ = Doing::running;
    } else if (found->second.graph < 0) {
      backend_.begin_capture();
      doing_ = Doing::capturing;
    } else {
      doing_ = Doing::replaying;
    }
  }
  return doing_ != Doing::replaying;
}

void Graphs::end_segment() {
  if (!is_open_ || doing_ == Doing::nothing) return;
  if (doing_ != Doing::running) {
    backend_.use_stream(0);
    Known& known = known_.at(key_);
    if (doing_ == Doing::capturing) {
      known.graph = backend_.end_capture();
      ++num_graphs_;
    }
    backend_.launch_graph(known.graph);
    ++num_replays_;
  }
  doing_ = Doing::nothing;
  ++key_.segment;
}

}  // namespace moetune::engine
