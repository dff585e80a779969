// Who looks into a step while it runs: the recorder of the routing profile, verification, and what
// injects faults into an emulated step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/memory/device_memory.h"
#include "engine/plan/program.h"
#include "engine/plan/route.h"

namespace moetune::engine {

struct RankContext;

/// Comes before each item of a step's program, and may put work of its own on the rank's timeline:
/// a fault that is injected.
class ItemObserver {
 public:
  virtual ~ItemObserver() = default;
  /// Called from the thread of the rank.
  virtual void before_item(RankContext& rank, const plan::Item& item,
                           const plan::Segment& segment) = 0;
};

/// Receives every routing decision of a forward pass (not of recomputation).
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  /// indices i32 [T,K] of MoE layer `layer`; called from the thread of `rank`.
  virtual void on_routing(int rank, int64_t layer, int64_t micro_batch, const int32_t* indices,
                          int64_t num_tokens, int64_t topk) = 0;
};

/// Receives how the rows of each layer and micro-batch travel, as soon as the counts of all ranks
/// are known. Only with expert parallelism.
class RouteObserver {
 public:
  virtual ~RouteObserver() = default;
  /// Called from the thread of `rank`, for recomputation too.
  virtual void on_route(int rank, int64_t layer, int64_t micro_batch, const plan::Route& route) = 0;
};

/// Sees the logits of every position as they are made, chunk by chunk.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  /// Logits of the micro-batch's tokens from `first_token` on, as many as `shape` has rows, for the
  /// vocabulary's entries from `first_col` on, as many as it has columns; called from the thread of
  /// `rank`.
  virtual void on_logits(int rank, int64_t micro_batch, int64_t first_token, int64_t first_col,
                         const kernels::Tensor& shape, const std::vector<double>& logits) = 0;
};

/// Who looks into a step; each may be null.
struct Observers {
  RoutingObserver* routing = nullptr;
  RouteObserver* route = nullptr;
  LogitsObserver* logits = nullptr;
  MemoryObserver* memory = nullptr;
  ItemObserver* items = nullptr;
};

}  // namespace moetune::engine
