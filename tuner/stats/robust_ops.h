// How long operations take, from the many times that each was measured, whatever else the machine
// did meanwhile: one estimate for all that are alike, one line over rows where sizes differ each
// time, and how fast the machine was by a fixed probe. Whoever plays a program takes its durations
// from here, so that a neighbour's load moves the played step little and a slower operation fully.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moetune::tuner {

/// What alike operations have in common; layer, micro-batch, rank and step do not matter.
struct OpClass {
  std::string label;  ///< op and pass: "expert_fc1.forward"
  std::string sizes;  ///< all sizes but the rows that only the router knows, in any spelling
  auto operator<=>(const OpClass&) const = default;
};

/// One operation as it ran.
struct OpSample {
  OpClass op;
  int step = 0;
  int rank = 0;
  double rows = 0;         ///< that the router sent; 0 where the sizes say everything
  double duration_ns = 0;  ///< not negative
};

/// One run of the fixed probe: the same work every time, whatever the trial is.
struct ProbeSample {
  int step = 0;
  int rank = 0;
  double duration_ns = 0;  ///< above 0
};

/// How many times longer than usual the machine took while a trial ran, with an interval of 95 %.
struct MachineSpeed {
  double slowness = 1;
  double low = 1;
  double high = 1;
};

/// Of the probe's runs during a trial over what it usually takes (`usual_ns`, above 0). Without
/// any, the machine counts as it usually is. Throws base::Error for a
/// duration that is not above 0.
MachineSpeed machine_speed(const std::vector<ProbeSample>& probes, double usual_ns);

/// A duration with an interval of 95 %, on a machine that is as fast as usual.
struct OpDuration {
  double ns = 0;
  double low_ns = 0;
  double high_ns = 0;
  int64_t num_samples = 0;
};

/// The durations of one trial's operations.
///
/// Alike operations: the median of all, which a tenth of doubled durations moves by a tenth of
/// their spread. Its interval is that between two order statistics, or what the medians of single
/// steps of single ranks say where these lie farther apart, as what was measured at the same time
/// is disturbed together.
///
/// With rows: a line through the samples by Theil's incomplete method (Theil 1950, "A
/// rank-invariant method of linear and polynomial regression analysis"; Sen 1968): in order of
/// rows, each of the lower half is paired with its counterpart in the upper half; the slope is the
/// median of the pairs', which share no sample, so that its interval is a median's, too. 29 % of
/// the samples may be anything.
class RobustOps {
 public:
  /// Throws base::Error for a duration or a number of rows that is negative or not finite.
  explicit RobustOps(const std::vector<OpSample>& samples, const MachineSpeed& speed = {});

  /// None where no alike operation was measured. With `rows`, what the line says there; where all
  /// samples had the same rows, time goes with them. Never negative, and more rows never take less.
  [[nodiscard]] std::optional<OpDuration> duration(const OpClass& op, double rows = 0) const;
  [[nodiscard]] size_t num_classes() const { return lines_.size(); }

 private:
  /// A value with its interval.
  struct Centre {
    double value = 0;
    double low = 0;
    double high = 0;
  };
  /// Level at the middle of the rows and slope; without rows, a level alone. A machine disturbs
  /// what takes long by more, so how sure the line is as a whole is a ratio.
  struct Line {
    double middle_rows = 0;
    double level_ns = 0;
    Centre slope;  ///< ns per row
    Centre ratio;  ///< of durations over what the line says, around 1
    int64_t num_samples = 0;

    [[nodiscard]] double at(double rows) const;
  };
  using Samples = std::vector<const OpSample*>;

  static Centre slope_of(Samples samples);
  static Centre ratio_of(const Samples& samples, const Line& line);
  static Line line_of(const Samples& samples);

  MachineSpeed speed_;
  std::map<OpClass, Line> lines_;
};

}  // namespace moetune::tuner
