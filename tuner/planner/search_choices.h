// What a search tries beside the sizes of a layout: choices of memory and of time.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tuner/planner/search.h"

namespace moetune::tuner::planner {

/// Which layers full recomputation takes.
struct LayersAgain {
  spec::RecomputeMethod method = spec::RecomputeMethod::uniform;
  int32_t count = 1;

  bool operator==(const LayersAgain&) const = default;
};

/// Choices that change memory. They cost time, if anything.
struct MemoryChoice {
  spec::PlanRecomputeSet recompute;
  LayersAgain layers;
  spec::CrossEntropy cross_entropy;
  spec::Fsdp fsdp;
  bool is_aware;      ///< precision_aware_optimizer
  size_t loss_place;  ///< of the losses that are tried: later ones need less memory

  /// Of two choices of a group: whether this one needs as much memory at most.
  [[nodiscard]] bool is_leaner(const MemoryChoice& than) const {
    return is_aware >= than.is_aware && loss_place >= than.loss_place;
  }
};

/// Choices of memory that differ in loss and optimizer alone: they take the same time, and are
/// legal together.
struct MemoryGroup {
  size_t first = 0;              ///< in SearchChoices::memory()
  size_t count = 0;              ///< so many follow each other
  std::vector<size_t> faster{};  ///< earlier groups that are as fast at least
};

/// Choices that change only time.
struct TimeChoice {
  spec::Dispatcher dispatcher;
  bool has_overlap;
  spec::PlanGraphSet graphs;
};

/// Some of the time choices, by their places.
using TimeChoices = std::bitset<64>;

/// The choices of a question.
class SearchChoices {
 public:
  /// `question` has to outlive it.
  explicit SearchChoices(const PlanQuestion& question);

  [[nodiscard]] const std::vector<MemoryChoice>& memory() const { return memory_; }
  /// The same, by the time that they take.
  [[nodiscard]] const std::vector<MemoryGroup>& groups() const { return groups_; }
  [[nodiscard]] const std::vector<TimeChoice>& time() const { return time_; }
  /// Whether an exchange of heads is tried beside that of keys and values.
  [[nodiscard]] bool may_exchange_heads() const { return may_exchange_heads_; }
  /// The virtual stages that are tried with so many pipeline stages.
  const std::vector<int32_t>& virtual_stages_with(int32_t pp);

  /// Megatron-Core's implications are not another engine's.
  void complete(spec::PlanKnobs& knobs) const;
  /// The layout with a choice of memory; none where that is no choice beside another.
  [[nodiscard]] std::optional<spec::PlanKnobs> with(const spec::PlanKnobs& layout,
                                                    const MemoryChoice& choice) const;
  /// A choice of both, from one of memory.
  [[nodiscard]] spec::PlanKnobs with(const spec::PlanKnobs& of_memory,
                                     const TimeChoice& time) const;
  /// Of each group the time choices that are legal with it, where the layout is legal.
  const std::vector<TimeChoices>& legal(const spec::PlanKnobs& layout);

 private:
  template <class T>
  void add_fixed(const T& value, std::vector<T>& values) const;
  template <class T>
  [[nodiscard]] bool is_sayable(std::string_view knob, T spec::PlanKnobs::*member,
                                const T& value) const;
  template <class T>
  void leave_sayable(std::string_view knob, T spec::PlanKnobs::*member,
                     std::vector<T>& values) const;
  [[nodiscard]] spec::PlanKnobs two_replicas() const;
  [[nodiscard]] bool shares_out_weights(const spec::PlanKnobs& knobs) const;
  [[nodiscard]] std::vector<spec::CrossEntropy> losses() const;
  [[nodiscard]] bool may_be_aware() const;
  void add_memory_choices(const std::vector<spec::Fsdp>& shardings);
  void add_time_choices();

  const PlanQuestion& q_;
  std::vector<MemoryChoice> memory_;
  std::vector<MemoryGroup> groups_;
  std::vector<TimeChoice> time_;
  bool may_exchange_heads_ = true;
  bool searches_unsharded_ = true;   ///< Fsdp::none, for all layouts
  bool takes_one_unsharded_ = true;  ///< the framework has words for Fsdp::none of one rank
  std::map<int32_t, std::vector<int32_t>> virtual_stages_;                 ///< by pp
  std::map<std::array<bool, 8>, std::vector<TimeChoices>> legal_choices_;  ///< by what is above 1
};

}  // namespace moetune::tuner::planner
