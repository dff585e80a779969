// What a running sweep shows: a live line on a terminal, plain lines elsewhere, nothing when asked
// to be quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace moetune::sweeps {

/// What is known at one moment.
struct ProgressState {
  std::string phase;
  int64_t num_trials = 0;    ///< started ones, the running one included
  int64_t num_expected = 0;  ///< guess of the total, or what the budget allows
  bool is_limit = false;     ///< the latter: fewer may be enough
  std::string title;         ///< of the running trial
  std::string step;          ///< "step 3 of 6", may be empty
  std::optional<int64_t> best_step_ns;
  std::optional<std::chrono::seconds> left;
};

/// "retune 7/24", or "retune 7 of at most 48".
std::string format_place(const ProgressState& state);

/// "[retune 7/24] ep_chunks_forward 1 -> 2, step 3 of 6 | best 12.3 ms | 1 min 05 s left", cut to
/// `width` columns.
std::string format_progress(const ProgressState& state, size_t width);

/// The time left as it is shown: it runs down with the clock, and a new guess moves it only part of
/// the way, as the next guess will be another. Never below a second: then nothing is shown.
class TimeLeft {
 public:
  using Clock = std::chrono::steady_clock;

  void guess(double seconds_left, Clock::time_point now);
  /// Whole seconds, from a minute on in tens; none before the first guess and at the end.
  [[nodiscard]] std::optional<std::chrono::seconds> at(Clock::time_point now) const;

 private:
  std::optional<Clock::time_point> end_;
};

class Progress {
 public:
  enum class Mode : uint8_t { live, plain, quiet };

  /// Writes to `out`, which must outlive this.
  Progress(std::FILE* out, Mode mode) : out_(out), mode_(mode) {}
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Live on a terminal, plain otherwise.
  static Mode mode_for(std::FILE* out, bool is_quiet);

  /// Redraws the live line; does nothing in the other modes.
  void update(const ProgressState& state);
  /// A line that stays.
  void note(const std::string& line);
  /// Takes the live line away.
  void erase();

 private:
  std::FILE* out_;
  Mode mode_;
  std::string shown_;
};

}  // namespace moetune::sweeps
