// What a hunt found (`moetune bisect`), read from the JSON that it left in the database: untrusted,
// every field may be missing, of another type, or a million entries long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moetune::reports {

/// The hunted metric of a hunt for the commit from which the run fails: its levels are 0 and 1.
constexpr const char* kRunFails = "the run fails";

/// Change over the level before, as a fraction: 0.04 is 4 % more. low and high: its interval.
struct Effect {
  std::optional<double> ratio;
  std::optional<double> low;
  std::optional<double> high;
};

/// A phase, operation or memory group whose number changed with the culprit.
struct MovedMetric {
  std::string name;
  std::optional<double> before;
  std::optional<double> after;
};

/// A value of the effective configuration that is not the same; JSON texts, empty: not there.
struct ConfigChange {
  std::string name;
  std::string before;
  std::string after;
};

struct Culprit {
  int64_t position = -1;  ///< -1: not said
  std::string commit;
  std::string subject;
  std::string author;
  std::string author_date;
  Effect effect;
  std::optional<double> before;  ///< level before it
  std::optional<double> after;
  std::optional<double> confidence;
  std::vector<MovedMetric> moved;
  std::vector<ConfigChange> config;
};

struct HuntResult {
  bool is_readable = true;  ///< false: no JSON object, nested too deeply, or too large
  std::string verdict;      ///< culprit, no_change, environment_changed, unresolved
  std::string reason;
  std::string metric;
  std::string hunted_metric;  ///< the one that was followed; kRunFails: from where on it fails
  std::string failure;        ///< how the run fails from there on: oom, crashed, ...
  std::string note;
  std::string unit;
  Effect effect;
  std::optional<double> noise_ratio;
  std::optional<double> detectable_ratio;
  std::optional<double> detectable_with_more_ratio;  ///< with more_runs more
  std::optional<int64_t> more_runs;
  Effect interaction;                ///< of several changes together, beyond what each does alone
  std::vector<ConfigChange> config;  ///< between the ends
  std::vector<MovedMetric> moved;    ///< between the ends
  std::optional<double> confidence;
  std::optional<double> min_effect_ratio;
  bool has_drift = false;
  std::optional<double> no_change;  ///< probability
  std::vector<double> posterior;    ///< by position; what is no probability is 0
  std::vector<Culprit> culprits;
  std::vector<int64_t> suspects;
  std::optional<int64_t> runs;
  std::optional<int64_t> builds;
  std::optional<double> seconds;
  std::string reproduce;  ///< shell text
};

/// Never throws for what the text holds; texts are cut to what a page can show.
HuntResult read_hunt_result(const std::string& text);

}  // namespace moetune::reports
