// moetune watch: a sweep that another process runs, as it goes on. Only reads.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <set>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/search_words.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "profiler/store/verdict.h"
#include "reports/engine_trial.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/processes/poll.h"
#include "sweeps/sweep_lock.h"
#include "sweeps/table.h"
#include "sweeps/trial_list.h"

namespace moetune::sweeps {
namespace {

constexpr std::string_view kHomeAndClear = "\x1b[H\x1b[2J";
/// Of a terminal, what stands above the trials, and the line at the end.
constexpr size_t kLinesBeside = 8;
constexpr size_t kFewestShown = 4;
constexpr int64_t kMostPause = 3600;

store::SweepRow find_sweep(const store::Store& store, int64_t wanted) {
  const std::vector<store::SweepRow> sweeps = store.read_sweeps();
  for (const store::SweepRow& sweep : sweeps) {
    if (sweep.id == wanted) return sweep;
  }
  if (wanted != 0 || sweeps.empty()) {
    throw base::UsageError(sweeps.empty()
                               ? store.path() + ": no sweeps"
                               : fmt::format("{}: there is no sweep {}", store.path(), wanted));
  }
  return sweeps.back();
}

std::string counts_text(const std::vector<TrialLine>& lines) {
  std::map<std::string, int64_t> counts;
  for (const TrialLine& line : lines) ++counts[line.trial.status];
  std::string text = fmt::format("{} {}", lines.size(), lines.size() == 1 ? "trial" : "trials");
  for (const auto& [status, count] : counts) text += fmt::format(", {} {}", count, status);
  return text;
}

struct Seen {
  store::SweepRow sweep;
  TrialLines trials;
  std::vector<store::DecisionRow> decisions;
  bool waits_for_tell = false;  ///< unless it is running
};

/// How much faster it is than the first that fitted, by runs of one length.
std::string best_text(const Seen& seen, bool is_running) {
  const std::vector<TrialLine>& lines = seen.trials.lines;
  const auto find = [&](std::optional<int64_t> id) -> const store::TrialRow* {
    const auto found =
        std::ranges::find_if(lines, [&](const TrialLine& line) { return line.trial.id == id; });
    return found == lines.end() || !found->trial.step_ns ? nullptr : &found->trial;
  };
  const bool is_done = !is_running && seen.sweep.status == store::SearchStatus::done;
  std::string what = is_done ? "best" : "best so far";
  const store::TrialRow* best = find(seen.sweep.winner_trial);
  if (best == nullptr) return fmt::format("{}: none{}", what, is_done ? "" : " yet");
  if (store::validation_of(seen.decisions, *best).is_passed == false) {
    what += " in short trials (did not pass its validation)";
  }
  std::string text =
      fmt::format("{}: trial {}, {} a step", what, best->id, base::format_ns(*best->step_ns));
  // A long run's steps are others than those of the first fit: routing drifts.
  const bool is_long = best->phase == name_of(base::Phase::validate);
  if (is_long) text += " in the long run";
  const store::TrialRow* first = find(seen.sweep.first_fit_trial);
  if (first == nullptr || first->id == best->id) return text;
  const std::optional<store::Gain> gain = store::gain_over_first_fit(seen.decisions, *best, *first);
  // Only a verdict has an interval. Else the gain is that of the rows.
  if (!gain || (is_long && !gain->low_ratio)) return text;
  return text + fmt::format("{} {:.2f} times as fast as the first that fitted",
                            is_long ? "; in screening" : ",", store::speedup_of(gain->ratio));
}

Seen look(const std::string& path, int64_t sweep_id) {
  const auto store = store::Store::open_read_only(path);
  Seen seen;
  seen.sweep = find_sweep(store, sweep_id);
  seen.trials = read_trial_lines(store, seen.sweep.id);
  seen.decisions = store.read_decisions(seen.sweep.id);
  std::vector<const store::TrialRow*> trials;
  for (const TrialLine& line : seen.trials.lines) trials.push_back(&line.trial);
  seen.waits_for_tell = reports::waits_for_tell(store, seen.sweep, trials);
  return seen;
}

std::string head_text(const Seen& seen, bool is_running) {
  using store::SearchStatus;
  const std::string_view state = is_running            ? name_of(SearchStatus::running)
                                 : seen.waits_for_tell ? "waiting for tell"
                                 : seen.sweep.status == SearchStatus::running
                                     ? "stopped: no process is running it"
                                     : name_of(seen.sweep.status);
  return fmt::format("sweep {} {}: {}\n{}\n{}\n{}{}", seen.sweep.id, one_line(seen.sweep.name),
                     state, counts_text(seen.trials.lines), best_text(seen, is_running),
                     forced_text(seen.trials.lines),
                     seen.decisions.empty() ? "" : one_line(seen.decisions.back().text) + "\n");
}

/// On a terminal, drawn anew: as many of the last trials as there is room for.
std::string screen_text(const Seen& seen, bool is_running, size_t width) {
  const size_t height = terminal_height(STDOUT_FILENO).value_or(24);
  const size_t room = std::max(kFewestShown, height - std::min(height, kLinesBeside));
  std::vector<TrialLine> last = seen.trials.lines;
  if (last.size() > room) last.erase(last.begin(), last.end() - static_cast<int64_t>(room));
  std::string text;
  const std::string head = head_text(seen, is_running);
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find('\n', at), head.size());
    text += cut_to_width(std::string_view(head).substr(at, end - at), width) + "\n";
    at = end + 1;
  }
  return text + (last.empty() ? "" : "\n" + trial_list_text(last, width));
}

/// Elsewhere: a line for each trial that has ended, once.
void tell_ended(const Seen& seen, std::set<int64_t>& told) {
  for (const TrialLine& line : seen.trials.lines) {
    const store::TrialRow& trial = line.trial;
    if (spec::find_status(trial.status) == spec::TrialStatus::running ||
        !told.insert(trial.id).second)
      continue;
    std::cout << fmt::format("trial {} {}: {}{}{}\n", trial.id, trial.phase, trial.status,
                             trial.step_ns ? " " + base::format_ns(*trial.step_ns) : "",
                             one_line(", " + purpose_text(*line.view, trial, line.title)));
  }
  std::cout.flush();
}

}  // namespace

CommandOptions watch_options() {
  namespace po = boost::program_options;
  CommandOptions options("watch [--db] PATH [--sweep N] [--every SECONDS]",
                         "Follows a sweep that another process runs, until it ends: on a terminal "
                         "the last trials, drawn anew; elsewhere a line for each trial.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("sweep", po::value<std::string>()->value_name("N"),
                "number of the sweep, default the last one");
  options.add()("every", po::value<std::string>()->value_name("SECONDS"),
                "how often to look, default 2");
  options.positional("db");
  return options;
}

int run_watch_command(const CommandOptions& options) {
  const std::string path = options.database();
  const int64_t sweep_id = options.integer("sweep", 1, 0);
  const std::chrono::seconds period(std::min<int64_t>(options.integer("every", 1, 2), kMostPause));
  std::set<int64_t> told;
  const auto has_ended = [&] {
    // Asked first: what was written before it ended is seen.
    const bool is_running = is_locked(path);
    const Seen seen = look(path, sweep_id);
    if (const std::optional<size_t> width = terminal_width(STDOUT_FILENO)) {
      std::cout << kHomeAndClear << screen_text(seen, is_running, *width) << std::flush;
    } else {
      tell_ended(seen, told);
      if (!is_running) std::cout << head_text(seen, is_running);
    }
    return !is_running;
  };
  poll_until(std::chrono::steady_clock::time_point::max(), period, has_ended);
  return 0;
}

}  // namespace moetune::sweeps
