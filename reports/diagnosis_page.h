// The page of a diagnosis: what it shows, as plain data, and the file made from it. All texts come
// from logs and traces, which anybody may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moetune::reports {

/// A name and what is said under it.
using NamedLine = std::pair<std::string, std::string>;

/// What a cause takes of the judged time, from 0 to 1.
struct DiagnosedShare {
  std::string label;  ///< communication, host, ...
  double ratio = 0;
};

/// One window of one rank. Times in ns; exposed communication, exposed copies and idle time do not
/// overlap.
struct DiagnosedBar {
  std::string rank;  ///< "?": not known
  std::string window;
  std::string device;
  int64_t window_ns = 0;
  int64_t compute_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_comm_ns = 0;
  int64_t exposed_copy_ns = 0;
  int64_t idle_ns = 0;
  int64_t host_late_ns = 0;  ///< of idle time, what passed before the next work was launched
  int64_t num_kernels = 0;
};

struct DiagnosedRemedy {
  std::vector<std::string> flags;  ///< in the words of the framework; empty: not a matter of flags
  std::optional<double> ceiling_ratio;  ///< of the step: more cannot be saved by it
  std::string rule;
  std::string why;
  std::string refused;          ///< what forbids it; empty: nothing
  bool is_for_failure = false;  ///< it may let a failed run go on; false: it saves time
};

/// Communication's three numbers, as shares of what is judged of a rank: how long its kernels ran,
/// one after the other, how long nothing ran beside them, and what of that the next work waited
/// for.
struct CommunicationNumbers {
  double volume_ratio = 0;
  double exposed_ratio = 0;
  double blocking_ratio = 0;
};

struct DiagnosisPage {
  std::string title;
  std::string date;              ///< "2026-11-24 10:00 UTC"
  std::vector<NamedLine> facts;  ///< what the logs say of the run
  std::string wall;              ///< a label
  std::string sub_cause;         ///< empty: not told apart
  std::string summary;           ///< a sentence
  std::optional<double> share_ratio;
  std::vector<DiagnosedShare> shares;
  std::vector<std::string> evidence;                  ///< sentences
  std::vector<DiagnosedBar> bars;                     ///< by rank
  std::optional<CommunicationNumbers> communication;  ///< empty: the traces have none
  std::vector<DiagnosedRemedy> remedies;
  std::string failure_heading;  ///< of those for a failure: "What would free memory"
  std::vector<std::string> notes;
};

std::string render_diagnosis(const DiagnosisPage& page);

}  // namespace moetune::reports
