// The space a sweep file spans over the knobs: its axes, the knobs that follow from others, and
// which points are legal.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/sweep_spec.h"

namespace moetune::tuner {

/// An axis that a search can do nothing with.
struct IllegalAxis {
  std::string knob;
  spec::Violation violation;  ///< that its first value breaks
};

/// Keeps a reference to the sweep.
class SearchSpace {
 public:
  explicit SearchSpace(const spec::SweepSpec& sweep) : sweep_(sweep) {}

  [[nodiscard]] const spec::SweepSpec& sweep() const { return sweep_; }
  /// The axis has more than one value.
  [[nodiscard]] bool is_tunable(std::string_view knob) const;
  /// Values of the axis in the file's order; without an axis the baseline's value alone.
  [[nodiscard]] std::vector<std::string> values(std::string_view knob) const;

  /// Sets what follows from the rest: data_parallel_size takes the devices that tensor, context and
  /// pipeline parallelism leave (unless it has an axis of its own), and choices that mean nothing
  /// elsewhere (chunks without expert parallelism, overlap without replicas, stage sizes without
  /// stages) go back to their neutral value.
  [[nodiscard]] spec::Knobs completed(spec::Knobs knobs) const;
  /// `knobs` with one knob changed and completed. Throws base::UsageError for a value the knob does
  /// not take.
  [[nodiscard]] spec::Knobs with(spec::Knobs knobs, std::string_view knob,
                                 std::string_view value) const;
  [[nodiscard]] std::vector<spec::Violation> check(const spec::Knobs& knobs) const;

  /// Every combination of the named axes on top of `base`, completed, in the order of the axes;
  /// duplicates that completing makes are left out. Illegal points are included.
  [[nodiscard]] std::vector<spec::Knobs> product(const spec::Knobs& base,
                                                 const std::vector<std::string_view>& knobs) const;
  /// Axes other than layout, micro-batch, recomputation and the moments' types: when things run,
  /// and how.
  [[nodiscard]] std::vector<std::string_view> schedule_knobs() const;
  /// Every combination of all axes.
  [[nodiscard]] std::vector<spec::Knobs> all() const;
  /// Axes of which every value breaks a rule in every legal layout of the space, with the base's
  /// values elsewhere.
  [[nodiscard]] std::vector<IllegalAxis> illegal_axes() const;

 private:
  const spec::SweepSpec& sweep_;
};

/// What fit and scale search: the knobs of the table's group "parallelism", and more.
std::vector<std::string_view> layout_knobs(std::initializer_list<std::string_view> more);
/// Values of all knobs as one text: a key for maps.
std::string knobs_key(const spec::Knobs& knobs);
/// What names a layout: the sizes of the grid by spec::layout_sizes, hand-written stages and the
/// kind of attention over context ranks: "tp 2, dp 4, ...". Of points that differ in anything else
/// (micro-batch, sizes of the first and last stage) only the one predicted to be fastest is
/// measured.
std::string layout_text(const spec::Knobs& knobs);
bool is_same_layout(const spec::Knobs& a, const spec::Knobs& b);
/// How dear a recompute choice is: none 0, norm < moe_act < core_attn < experts and their sums,
/// full last.
int recompute_weight(const spec::RecomputeSet& recompute);
/// The values of an axis of recompute settings, cheapest first.
std::vector<std::string> by_recompute_weight(std::vector<std::string> values);

}  // namespace moetune::tuner
