// Fits the line into the terminal, and guesses the time left from the trials so far.
#include "sweeps/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/base/units.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

std::string format_place(const ProgressState& state) {
  return fmt::format("{} {}{}{}", state.phase, state.num_trials,
                     state.is_limit ? " of at most " : "/",
                     std::max(state.num_expected, state.num_trials));
}

void TimeLeft::guess(double seconds_left, Clock::time_point now) {
  constexpr double kShare = 0.3;
  const auto after = [&](double seconds) {
    return now +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  if (!end_) {
    end_ = after(std::max(seconds_left, 0.0));
    return;
  }
  const double shown = std::max(std::chrono::duration<double>(*end_ - now).count(), 0.0);
  end_ = after(shown + kShare * (std::max(seconds_left, 0.0) - shown));
}

std::optional<std::chrono::seconds> TimeLeft::at(Clock::time_point now) const {
  if (!end_) return std::nullopt;
  const int64_t left = std::chrono::duration_cast<std::chrono::seconds>(*end_ - now).count();
  if (left < 1) return std::nullopt;
  return std::chrono::seconds(left < 60 ? left : left / 10 * 10);
}

std::string format_progress(const ProgressState& state, size_t width) {
  std::string line = fmt::format("[{}] {}", format_place(state), state.title);
  if (!state.step.empty()) line += ", " + state.step;
  std::string tail;
  if (state.best_step_ns) tail += " | best " + base::format_ns(*state.best_step_ns);
  if (state.left && state.left->count() > 0) {
    tail += fmt::format(" | {} left", base::format_ns(state.left->count() * 1'000'000'000));
  }
  // The end of the line matters more than the end of a long title.
  const size_t tail_width = display_width(tail);
  const size_t head_width = width > tail_width ? width - tail_width : 0;
  return cut_to_width(cut_to_width(line, head_width) + tail, width);
}

Progress::Mode Progress::mode_for(std::FILE* out, bool is_quiet) {
  if (is_quiet) return Mode::quiet;
  return isatty(fileno(out)) != 0 ? Mode::live : Mode::plain;
}

void Progress::update(const ProgressState& state) {
  if (mode_ != Mode::live) return;
  // One column less than the terminal has: a full line would wrap and could not be erased.
  const size_t columns = terminal_width(fileno(out_)).value_or(80);
  const std::string line = format_progress(state, columns > 1 ? columns - 1 : columns);
  if (line == shown_) return;
  fmt::print(out_, "\r\x1b[K{}", line);
  std::fflush(out_);
  shown_ = line;
}

void Progress::note(const std::string& line) {
  if (mode_ == Mode::quiet) return;
  erase();
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void Progress::erase() {
  if (shown_.empty()) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
  shown_.clear();
}

}  // namespace moetune::sweeps
