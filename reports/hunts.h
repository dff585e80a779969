// The hunts of a database (`moetune bisect`) for the report: the newest first, with the commits
// they choose from, what they found, and their measurements. Nothing in them is trusted.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/store/store.h"
#include "reports/hunt_result.h"
#include "reports/rows.h"

namespace moetune::reports {

/// Hunts on one page; sql/bisect.sql has the same number.
constexpr size_t kMostHunts = 10;

struct HuntCommit {
  std::string id;
  std::string subject;
  std::string author;
  std::string author_date;
};

struct Hunt {
  store::BisectRow row;
  HuntResult result;
  std::map<int64_t, HuntCommit> commits;  ///< by position

  /// The commit at a position; empty texts where the hunt has none.
  [[nodiscard]] const HuntCommit& commit_at(int64_t position) const;
  /// False for a hunt over the options of two configurations: its runs have no place in a history.
  [[nodiscard]] bool has_commits() const { return !commits.empty(); }
  /// Position of the bad end.
  [[nodiscard]] int64_t last_position() const;
  /// What the metric is counted in: as the result says, else by the end of its name ("_ns").
  [[nodiscard]] std::string unit() const;
  /// The result's posterior at a position, 0 beyond it.
  [[nodiscard]] double posterior_at(int64_t position) const;
};

/// One measurement.
struct HuntRun {
  int64_t ordinal = 0;
  int64_t position = 0;
  std::string key;  ///< what was measured: "commit ...", "set 0110", up to its machine
  std::string purpose;
  std::string status;
  std::optional<double> value;
  std::string message;
  std::optional<double> build_seconds;
  std::optional<double> run_seconds;
  std::string started_at;
};

/// The last kMostHunts hunts, the newest first.
std::vector<Hunt> read_hunts(const store::Store& store);
int64_t count_hunts(const store::Store& store);

/// The measurements of one hunt, from the answer of the section's query.
std::vector<HuntRun> runs_of(const Rows& rows, int64_t hunt_id);

/// base::short_commit, cut where it is a long name. Plain text.
std::string short_id(const std::string& commit_id);
/// "1a2b3c4d5e6f subject", or "position 12" where nothing is known of it. Plain text.
std::string commit_label(const Hunt& hunt, int64_t position);
/// base::format_value; a dash when not known. Plain text.
std::string value_text(std::optional<double> value, std::string_view unit);

/// A stretch of positions that share one level: from a culprit (or the good end) to before the
/// next.
struct Level {
  int64_t from = 0;
  int64_t to = 0;
  double value = 0;
};
/// The levels that the result speaks of; where it gives none, the median of what was measured.
std::vector<Level> levels_of(const Hunt& hunt, const std::vector<HuntRun>& runs);

/// One bar of the posterior: a commit, or several without mass that are left out.
struct Bar {
  int64_t first = 0;
  int64_t last = 0;  ///< beyond `first`: left out
  double probability = 0;
};
/// Both ends, the culprits and every commit with some mass, in order, with gaps between.
std::vector<Bar> posterior_bars(const Hunt& hunt);

/// What the scripts draw of a hunt; `n` is its number on the page.
nlohmann::json hunt_chart(const Hunt& hunt, const std::vector<HuntRun>& runs, size_t n);

}  // namespace moetune::reports
