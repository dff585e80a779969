// Watches one running trial: ends it when it makes no progress or the user asks to stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sweeps/processes/process.h"

namespace moetune::sweeps {

struct WatchOptions {
  std::string progress_path;                     ///< a change of this file is progress
  std::chrono::milliseconds step_limit{60'000};  ///< longest time without progress
  std::chrono::milliseconds grace{3'000};        ///< between SIGTERM and SIGKILL
  /// Called several times a second with the text of the progress file.
  std::function<void(const std::string&)> on_tick;
  /// When it is ended, whatever it does; none: never.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

struct WatchEnd {
  ProcessEnd process;
  bool is_hung = false;
  bool is_interrupted = false;
  std::string last_progress;    ///< "step 3 of 6", empty before the first step
  bool is_out_of_time = false;  ///< the deadline has come
};

/// The steps of a progress text that tells of the last one, 8 of "step 8 of 8"; none of others.
std::optional<int64_t> steps_where_all_are_done(std::string_view progress);

/// Returns when the child has ended, by itself or by our hand.
WatchEnd watch(Process& process, const WatchOptions& options);

}  // namespace moetune::sweeps
