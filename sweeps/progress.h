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
  int64_t num_expected = 0;  ///< guess of the total
  std::string title;         ///< of the running trial
  std::string step;          ///< "step 3 of 6", may be empty
  std::optional<int64_t> best_step_ns;
  std::optional<std::chrono::seconds> left;
};

/// "[retune 7/24] ep_chunks_forward 1 -> 2, step 3 of 6 | best 12.3 ms | 1 min 05 s left", cut to
/// `width` columns.
std::string format_progress(const ProgressState& state, size_t width);

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
