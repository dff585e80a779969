// What the routers of a real step have decided, for whoever reads its program afterwards.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "engine/exec/observers.h"

namespace moetune::engine::testing {

/// The routes of one step as every rank has seen them.
class RecordedRoutes final : public RouteObserver {
 public:
  void on_route(int rank, int64_t layer, int64_t micro_batch, const plan::Route& route) override {
    const std::scoped_lock lock(mutex_);
    by_rank_[rank].routes[{layer, micro_batch}] = route;
  }
  [[nodiscard]] const plan::Bindings* of(int rank) { return &by_rank_[rank]; }

 private:
  struct OfRank final : plan::Bindings {
    [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override {
      return routes.at({layer, micro_batch});
    }
    std::map<std::pair<int64_t, int64_t>, plan::Route> routes;
  };
  std::mutex mutex_;
  std::map<int, OfRank> by_rank_;
};

}  // namespace moetune::engine::testing
