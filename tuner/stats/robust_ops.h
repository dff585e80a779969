// Robust durations of operations, each of which was measured many times on a machine that may have
// had other work, too. Alike operations get one estimate. Where the number of rows differs each
// time, they get a line over the rows. A fixed probe tells how fast the machine was. A program that
// is played with these durations hardly feels other work on the machine, but fully feels an
// operation that became slower.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moetune::tuner {

/// What alike operations have in common. They may be of any layer, micro-batch, rank and step.
struct OpClass {
  std::string label;  ///< op and pass: "expert_fc1.forward"
  std::string sizes;  ///< all sizes as a text, except for the rows that the router decides
  auto operator<=>(const OpClass&) const = default;
};

/// One operation as it ran.
struct OpSample {
  OpClass op;
  int step = 0;
  int rank = 0;
  double rows = 0;         ///< rows that the router sent; 0 if `sizes` says everything
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

/// The durations of the probe during a trial over its usual one (`usual_ns`, above 0). Without
/// durations, the machine is taken to be as fast as usual. Throws base::Error for a duration that
/// is not above 0.
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
/// Alike operations: the median of all. If a tenth of the durations is doubled, it moves by a tenth
/// of their spread. Its interval lies between two order statistics. What was measured at the same
/// time is disturbed together, so the medians of the single steps of each rank are looked at, too:
/// if their interval is wider, it is taken.
///
/// With rows: a line through the samples by Theil's incomplete method (Theil 1950, "A
/// rank-invariant method of linear and polynomial regression analysis"; Sen 1968). The samples are
/// ordered by rows, and each of the lower half is paired with its counterpart in the upper half.
/// The slope is the median of the pairs' slopes. Pairs share no sample, so its interval is that of
/// a median. Up to 29 % of the samples may be arbitrarily wrong.
class RobustOps {
 public:
  /// Throws base::Error for a duration or a number of rows that is negative or not finite.
  explicit RobustOps(const std::vector<OpSample>& samples, const MachineSpeed& speed = {});

  /// The usual duration of an operation; empty if no alike one was measured. With `rows`, it is the
  /// line's value there; if all samples had the same rows, time is proportional to rows. Never
  /// negative, and more rows never take less.
  [[nodiscard]] std::optional<OpDuration> duration(const OpClass& op, double rows = 0) const;
  [[nodiscard]] size_t num_classes() const { return lines_.size(); }

 private:
  /// A value with its interval.
  struct Centre {
    double value = 0;
    double low = 0;
    double high = 0;
  };
  /// A level at the middle of the rows, and a slope; without rows, only a level. Other work on the
  /// machine delays long operations by more, so the uncertainty of the line is a ratio.
  struct Line {
    double middle_rows = 0;
    double level_ns = 0;
    Centre slope;  ///< ns per row
    Centre ratio;  ///< of measured durations over the line's, around 1
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
