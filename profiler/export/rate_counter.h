// A counter of a timeline: amounts that belong to intervals (bytes, FLOPs) as a rate over time.
#pragma once

#include <cstdint>
#include <map>

#include "profiler/export/timeline_events.h"

namespace moetune::profiler {

/// Amounts that are spread evenly over intervals, as a rate that changes where one begins or ends.
class RateCounter {
 public:
  void add(int64_t start_ns, int64_t end_ns, int64_t amount) {
    if (amount <= 0 || end_ns <= start_ns) return;
    const double per_s = static_cast<double>(amount) / static_cast<double>(end_ns - start_ns) * 1e9;
    edges_[start_ns].per_s += per_s;
    edges_[start_ns].num_active += 1;
    edges_[end_ns].per_s -= per_s;
    edges_[end_ns].num_active -= 1;
  }

  void tell(TimelineSink& sink, int32_t rank, const char* name) const {
    Edge sum;
    for (const auto& [ns, edge] : edges_) {
      sum.per_s += edge.per_s;
      sum.num_active += edge.num_active;
      // Nothing left is zero, whatever rounding made of the sum.
      sink.counter(rank, name, ns, sum.num_active == 0 ? 0 : sum.per_s);
    }
  }

 private:
  struct Edge {
    double per_s = 0;
    int num_active = 0;
  };
  std::map<int64_t, Edge> edges_;
};

}  // namespace moetune::profiler
