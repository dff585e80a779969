#include "sweeps/runs/unread_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMostNamedSteps = 5;

/// "2, 4, 6" or "2, 4, 6, 8, 10 and 3 more".
std::string steps_text(const std::vector<int64_t>& first, int64_t count) {
  const int64_t more = count - static_cast<int64_t>(first.size());
  return fmt::format("{}{}", fmt::join(first, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Of lines that were read, but for one part.
void note_unread_parts(const AttemptParts& parts, RunFacts& facts) {
  std::set<int64_t> cut_losses;
  std::set<int64_t> absurd_times;
  for (const Attempt* part : parts) {
    cut_losses.insert(part->cut_losses.begin(), part->cut_losses.end());
    absurd_times.insert(part->absurd_times.begin(), part->absurd_times.end());
  }
  // Another rank may say it.
  for (const StepLine& line : facts.steps) {
    if (line.loss) cut_losses.erase(line.step);
    if (line.step_time_s) absurd_times.erase(line.step);
  }
  const auto note = [&](const std::set<int64_t>& steps, std::string_view what) {
    if (steps.empty()) return;
    const auto count = static_cast<int64_t>(steps.size());
    const std::vector<int64_t> named(
        steps.begin(), std::next(steps.begin(), std::min<int64_t>(count, kMostNamedSteps)));
    facts.notes.push_back(fmt::format("{} line{} about {} {}: {} about {}", count,
                                      count == 1 ? "" : "s", count == 1 ? "a step" : "steps", what,
                                      count == 1 ? "that" : "those", steps_text(named, count)));
  };
  note(cut_losses, "without a loss that can be read, as if another rank's words stood there");
  note(absurd_times, "with a time that no step takes (0, less, or more than eleven days)");
}

/// After how many steps the framework was told to log; 0: it is not said.
int64_t said_interval(const RunFacts& facts) {
  const auto interval_of = [](std::string_view key, std::string_view value) -> int64_t {
    const size_t dot = key.rfind('.');
    if (dot != std::string_view::npos) key.remove_prefix(dot + 1);
    const bool is_it = key == "log_interval" || key == "--log-interval" || key == "log_freq";
    const int64_t steps = is_it ? log_text::leading_integer(value).value_or(0) : 0;
    // No run has more steps: sums of a step and an interval fit.
    constexpr int64_t kMostSteps = 1'000'000'000;
    return steps <= kMostSteps ? steps : 0;
  };
  for (const EchoedSetting& setting : facts.echoed.settings) {
    if (const int64_t steps = interval_of(setting.key, setting.value); steps > 0) return steps;
  }
  if (!facts.config) return 0;
  for (const spec::dialects::StatedSetting& setting : facts.config->stated) {
    if (const int64_t steps = interval_of(setting.key, setting.value); steps > 0) return steps;
  }
  return 0;
}

/// Whether it logs whenever a fixed number of steps divides that of the step, and besides at most
/// after its first one.
bool logs_multiples(Framework framework) {
  return framework == Framework::megatron_lm || framework == Framework::megatron_bridge ||
         framework == Framework::primus || framework == Framework::torchtitan;
}

/// Lines that never came: `known` are the steps that any line is about.
void note_gaps(const std::set<int64_t>& known, RunFacts& facts) {
  constexpr size_t kFewestLines = 3;
  if (!logs_multiples(facts.framework) || known.size() < kFewestLines) return;
  int64_t interval = said_interval(facts);
  const bool is_said = interval > 0;
  if (!is_said) {
    // The first line may be one more. Of the others the interval is a divisor.
    for (auto step = std::next(known.begin()); step != known.end(); ++step) {
      interval = std::gcd(interval, *step);
    }
  }
  if (interval <= 0) return;
  const int64_t first = *known.begin();
  const int64_t last = *known.rbegin();
  const int64_t first_due = (first + interval - 1) / interval * interval;
  if (first_due > last) return;
  const int64_t num_due = (last - first_due) / interval + 1;
  const int64_t num_there =
      std::ranges::count_if(known, [&](int64_t step) { return step % interval == 0; });
  const int64_t num_missing = num_due - num_there;
  // Few lines between many missing ones are lines that came for other reasons.
  if (num_missing <= 0 || (!is_said && num_missing > 2 * num_there)) return;
  std::vector<int64_t> named;
  for (int64_t step = first_due; step <= last && named.size() < kMostNamedSteps; step += interval) {
    if (!known.contains(step)) named.push_back(step);
  }
  facts.notes.push_back(fmt::format(
      "{} of {} lines about steps are missing between step {} and {}, where one comes every {}: "
      "those about {}; figures are of the other steps",
      num_missing, num_due, first, last, interval == 1 ? "step" : fmt::format("{} steps", interval),
      steps_text(named, num_missing)));
}

}  // namespace

void note_unread_steps(const AttemptParts& parts, RunFacts& facts) {
  note_unread_parts(parts, facts);
  std::set<int64_t> read;
  for (const StepLine& line : facts.steps) read.insert(line.step);
  std::set<int64_t> torn;
  bool is_thinned = false;
  for (const Attempt* part : parts) {
    is_thinned |= part->steps.stride() > 1;
    for (const int64_t step : part->torn_steps) {
      if (!read.contains(step)) torn.insert(step);
    }
  }
  if (is_thinned) return;  // which lines were read is no longer known
  const auto num_torn = static_cast<int64_t>(torn.size());
  if (num_torn > 0) {
    const std::vector<int64_t> named(
        torn.begin(), std::next(torn.begin(), std::min<int64_t>(num_torn, kMostNamedSteps)));
    facts.notes.push_back(fmt::format(
        "{} line{} about {} begin{} and cannot be read to the end, as if another rank's words "
        "stood in {}: {} about {}{}",
        num_torn, num_torn == 1 ? "" : "s", num_torn == 1 ? "a step" : "steps",
        num_torn == 1 ? "s" : "", num_torn == 1 ? "it" : "them", num_torn == 1 ? "that" : "those",
        steps_text(named, num_torn), read.empty() ? "" : "; figures are of the other steps"));
  }
  if (num_torn > 0 && read.empty() && !facts.step_time) {
    const bool has_end = facts.status == ForeignStatus::ok;
    // Without a failure nothing else is said of a run that did not come to its end.
    if (has_end || (facts.status == ForeignStatus::truncated && !facts.root)) {
      facts.status = ForeignStatus::unknown;
      facts.reason = has_end
                         ? "the log has a mark of its end, but no line about a step can be read"
                         : "no line about a step can be read, and the log has no mark of its end";
    }
  }
  read.merge(torn);
  note_gaps(read, facts);
}

}  // namespace moetune::sweeps
