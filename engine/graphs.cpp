#include "engine/graphs.h"

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::engine {

uint64_t hash_addresses(const std::vector<const void*>& addresses) {
  uint64_t hash = base::kFnvStart;
  for (const void* address : addresses) {
    hash = base::fnv_with(hash, reinterpret_cast<uint64_t>(address));
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

void Graphs::close(uint64_t trail) {
  if (!is_open_) return;
  end_segment(trail);
  is_open_ = false;
}

bool Graphs::begin_op() {
  if (!is_open_) return true;
  if (doing_ == Doing::nothing) {
    const auto found = known_.find(key_);
    if (found == known_.end()) {
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
    } else if (found->second.graph >= 0) {
      doing_ = Doing::replaying;
    } else if (found->second.num_runs < kRunsBefore) {
      doing_ = Doing::running;
    } else {
      backend_.begin_capture();
      doing_ = Doing::capturing;
    }
  }
  return doing_ != Doing::replaying;
}

void Graphs::end_segment(uint64_t trail) {
  if (!is_open_ || doing_ == Doing::nothing) return;
  const auto found = known_.find(key_);
  if (doing_ == Doing::running) {
    if (found != known_.end()) {
      Known& known = found->second;
      known.num_runs = known.trail == trail ? known.num_runs + 1 : 1;
      known.trail = trail;
    }
  } else {
    backend_.use_stream(0);
    Known& known = found->second;
    if (doing_ == Doing::capturing) {
      known.graph = backend_.end_capture();
      known.trail = trail;
      ++num_graphs_;
    }
    MOETUNE_CHECK(known.trail == trail,
                  "the buffers of a captured part are not where they were when it was captured");
    backend_.launch_graph(known.graph);
    ++num_replays_;
  }
  doing_ = Doing::nothing;
  ++key_.segment;
}

}  // namespace moetune::engine
