// What the processes of a trial said themselves of how they ended: a launcher in between passes on
// one exit code for all of them, and often not that of the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/processes/trial_folder.h"

namespace moetune::sweeps {

/// The content of last-word-R.json.
struct LastWord {
  int rank = 0;
  int code = 0;  ///< exit code of moetune-rank
  std::string message;
  int64_t time_ns = 0;  ///< of the rank's wall clock
};

/// Whether a rank that ends with this exit code of moetune-rank has failed of itself: not because
/// another one had, nor because it was asked to stop.
bool is_own_failure(int code);

/// Those that are there and make sense, by rank: a rank that was killed has left none.
std::vector<LastWord> read_last_words(const TrialFolder& folder, int num_ranks);

/// Who began it: the earliest that failed of itself, else the earliest that ended early for another
/// reason; nullopt when nobody did.
std::optional<LastWord> cause_of(const std::vector<LastWord>& words);

/// "rank 3 has", "ranks 1, 2 have", with at most a few of them named.
std::string silent_ranks(const std::vector<LastWord>& words, int num_ranks);

}  // namespace moetune::sweeps
