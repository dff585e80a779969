#include "sweeps/runs/run_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "sweeps/runs/failure_forms.h"
#include "sweeps/runs/secrets.h"
#include "sweeps/runs/waiting_ranks.h"

namespace moetune::sweeps {
namespace {

/// A step that takes this many times the usual, and this long, does not come any more.
constexpr double kSilentSteps = 20;
constexpr double kSilentSeconds = 600;

/// The exit code of an abort.
constexpr int kAbortCode = -6;

Blame blame_of(const Failure& failure) {
  return failure.is_unsure ? Blame::unsure : failure.form->blame;
}

/// Time and place of two failures, as far as they can be compared: negative where `a` was first.
int order_of(const Failure& a, const Failure& b) {
  if (a.time_s && b.time_s && *a.time_s != *b.time_s) return *a.time_s < *b.time_s ? -1 : 1;
  if (a.place.file == b.place.file && a.place.line != b.place.line) {
    return a.place.line < b.place.line ? -1 : 1;
  }
  return 0;
}

bool is_nearer_to_root(const Failure& a, const Failure& b) {
  if (blame_of(a) != blame_of(b)) return blame_of(a) < blame_of(b);
  if (const int order = order_of(a, b); order != 0) return order < 0;
  if (a.form != b.form) return std::less<>()(a.form, b.form);
  return a.rank < b.rank;
}

/// The nearest to the root of those that `is_one` says; null where there is none.
template <class IsOne>
const Failure* nearest_of(const std::vector<const Failure*>& failures, IsOne is_one) {
  const Failure* found = nullptr;
  for (const Failure* failure : failures) {
    if (!is_one(*failure)) continue;
    if (found == nullptr || is_nearer_to_root(*failure, *found)) found = failure;
  }
  return found;
}

/// An abort that another rank may have been the reason of, as of all that are ended.
bool is_abort(const Failure& failure) {
  return failure.form->name == "ended" && failure.exit_code == kAbortCode;
}

/// What explains `found` though its class is blamed less: numbers that were bad before Python
/// failed (a save, a raise or an assertion came of it); a collective that did not end, where other
/// ranks had none; who was killed or may have failed before others waited in vain; what had ended
/// the run before its processes were killed. Null where nothing does.
const Failure* explanation_of(const std::vector<const Failure*>& failures, const Failure& found) {
  const auto is_before = [&](const Failure& failure) { return order_of(failure, found) < 0; };
  if (found.form->name == "python-error") {
    // Frames without an exception, at the end of the log: what had been told is more than they are.
    return nearest_of(failures, [&](const Failure& failure) {
      const Blame blame = blame_of(failure);
      return (blame == Blame::numbers || (found.is_cut && blame == Blame::ending)) &&
             is_before(failure);
    });
  }
  if (found.form->name == "nccl-idle") {
    const Failure* timeout = nearest_of(failures, [&](const Failure& failure) {
      return failure.timeout && blame_of(failure) == Blame::waiting;
    });
    if (timeout != nullptr) return timeout;
  }
  // A kernel of DeepEP that gives up leaves an error of CUDA behind.
  if (found.form->name == "cuda-error") {
    return nearest_of(failures, [&](const Failure& failure) {
      return failure.form->name == "deepep-timeout" && is_before(failure);
    });
  }
  // Slurm cancels the step once a task has failed.
  if (found.form->name == "slurm-cancelled" && found.form->blame == Blame::ending) {
    return nearest_of(failures, [&](const Failure& failure) {
      const bool is_failed =
          failure.form->name == "exit-code" || failure.form->name == "slurm-task";
      return is_failed && is_before(failure);
    });
  }
  // The launcher says that a rank failed, and in its box which.
  const bool is_of_launcher =
      found.form->name == "launcher" || (found.form->name == "exit-code" && found.rank < 0);
  if (is_of_launcher) {
    return nearest_of(failures, [&](const Failure& failure) {
      return failure.form->name == "exit-code" && failure.rank >= 0 && failure.is_first_seen;
    });
  }
  if (found.form->name == "ended" && !is_abort(found)) return nearest_of(failures, is_abort);
  if (blame_of(found) == Blame::waiting) {
    return nearest_of(failures, [&](const Failure& failure) {
      const Blame blame = blame_of(failure);
      return (blame == Blame::killed || blame == Blame::unsure) && is_before(failure);
    });
  }
  if (blame_of(found) != Blame::killed) return nullptr;
  const Failure* before = nearest_of(failures, [&](const Failure& failure) {
    const FailureForm& form = *failure.form;
    const bool is_end = form.status == ForeignStatus::interrupted || form.name == "segfault";
    // Of the same abort C++ said more.
    const bool is_abort = form.name == "abort" && found.exit_code == kAbortCode;
    return ((form.blame == Blame::ending && is_end) || is_abort) && is_before(failure);
  });
  if (before != nullptr || found.rank >= 0) return before;
  // Torchrun tells it twice: with the rank in the box.
  return nearest_of(failures, [&](const Failure& failure) {
    return failure.form == found.form && failure.exit_code == found.exit_code && failure.rank >= 0;
  });
}

/// Whether ranks may have waited in vain because of it before it is told.
bool explains_waiting(const Failure& outer) { return outer.form->name == "slurm-node-failure"; }

/// The nearest to the root of those that count.
const Failure* root_of(const std::vector<const Failure*>& failures) {
  const Failure* inner = nullptr;
  const Failure* outer = nullptr;
  for (const Failure* failure : failures) {
    const Failure*& best = failure->form->blame == Blame::outside ? outer : inner;
    if (best == nullptr || is_nearer_to_root(*failure, *best)) best = failure;
  }
  // An explanation may have one of its own.
  for (int i = 0; i < 3 && inner != nullptr; ++i) {
    if (const Failure* explanation = explanation_of(failures, *inner)) inner = explanation;
  }
  if (outer == nullptr || inner == nullptr) return outer == nullptr ? inner : outer;
  // What ends a run from outside is its root unless something had gone wrong before. For a node
  // that fails others wait before Slurm says so.
  const Blame least = explains_waiting(*outer) ? Blame::waiting : Blame::ending;
  if (blame_of(*inner) >= least) return outer;
  const int order = order_of(*inner, *outer);
  const bool is_inner_first = order != 0 ? order < 0 : blame_of(*inner) <= Blame::numbers;
  return is_inner_first ? inner : outer;
}

/// Where torchrun names one rank only that ended by itself.
int rank_by_exit_codes(const std::vector<const Failure*>& failures, const Failure& root) {
  std::set<int> ranks;
  for (const Failure* failure : failures) {
    const bool is_own = failure->form->name == "exit-code" || failure->form->name == "signal" ||
                        (root.form->name == "abort" && is_abort(*failure));
    if (failure->exit_code && is_own && failure->rank >= 0) ranks.insert(failure->rank);
  }
  return ranks.size() == 1 ? *ranks.begin() : -1;
}

/// Where it is not known after which step a rank ended.
constexpr int64_t kAfterUnknown = -1;

std::string sentence_of(const Failure& failure, int rank, int64_t after_step, int64_t num_ranks) {
  const FailureForm& form = *failure.form;
  const bool is_config = form.blame == Blame::cause && form.status == ForeignStatus::failed;
  std::string sentence;
  if (num_ranks > 1) {
    sentence = fmt::format("{} ranks: ", num_ranks);
  } else if (rank >= 0 && form.blame != Blame::outside) {
    sentence = fmt::format("rank {}: ", rank);
  }
  sentence += form.words;
  if (!is_config && after_step != kAfterUnknown) {
    sentence += after_step > 0 ? fmt::format(" after step {}", after_step)
                               : " before the first step was logged";
  }
  if (!failure.detail.empty()) sentence += ": " + without_secrets(failure.detail);
  return sentence;
}

/// Whether the log of a failure shows steps of its own.
bool has_own_steps(const Failure& failure, const AttemptParts& parts) {
  const auto is_of = [&](const Attempt* part) {
    return std::ranges::any_of(part->failures, [&](const Failure& f) { return &f == &failure; });
  };
  const auto part = std::ranges::find_if(parts, is_of);
  return failure.after_step > 0 || (part != parts.end() && !(*part)->steps.empty());
}

/// Where the failure's own log shows no steps, it came after the last that others show.
RunFailure told(const Failure& failure, const AttemptParts& parts, const RunFacts& facts) {
  const int64_t after_step =
      has_own_steps(failure, parts) ? failure.after_step : facts.last_step.value_or(0);
  RunFailure result;
  result.kind = failure.form->name;
  result.status = failure.form->status;
  (failure.form->saw_others() ? result.reporting_rank : result.rank) = failure.rank;
  if (failure.rank >= 0) result.ranks = {failure.rank};
  result.iteration = after_step + 1;
  result.place = failure.place;
  result.times = failure.times;
  result.is_survived = failure.is_survived;
  result.time_s = failure.time_s;
  result.exit_code = failure.exit_code;
  result.memory = failure.memory;
  result.timeout = failure.timeout;
  result.missing_ranks = failure.missing_ranks;
  if (failure.missing_ranks.size() == 1) result.rank = failure.missing_ranks.front();
  result.sentence = sentence_of(failure, failure.rank, after_step, 1);
  return result;
}

/// Where nothing else had failed, who aborted is no victim.
void tell_own_abort(const Failure& root, RunFailure& failure) {
  Failure own = root;
  own.form = &failure_form("signal");
  failure.kind = own.form->name;
  failure.sentence =
      sentence_of(own, failure.rank, failure.iteration - 1, std::ssize(failure.ranks));
}

/// Several ranks with the same failure are one: of consequences also where the words differ.
bool is_same_failure(const Failure& a, const Failure& b) {
  if (a.form->name != b.form->name || a.is_survived != b.is_survived) return false;
  return a.form->blame >= Blame::waiting || a.detail == b.detail;
}

/// How long no step had come at a time, or when something else was last said; 0: not known.
double silence_before(const AttemptParts& parts, std::optional<double> until_s) {
  std::optional<double> step_s;
  std::optional<double> said_s;
  for (const Attempt* part : parts) {
    if (part->last_step_time_s) step_s = std::max(step_s.value_or(0), *part->last_step_time_s);
    if (part->last_time_s) said_s = std::max(said_s.value_or(0), *part->last_time_s);
  }
  if (!until_s) until_s = said_s;
  return step_s && until_s ? std::max(*until_s - *step_s, 0.0) : 0;
}

bool is_long(double silence_s, const RunFacts& facts) {
  double usual_s = 0;
  if (facts.step_time) {
    usual_s = facts.step_time->median_s * static_cast<double>(facts.step_time->interval);
  }
  return silence_s > std::max(kSilentSeconds, kSilentSteps * usual_s);
}

void set_silence(double silence_s, std::string_view more, RunFacts& facts) {
  RunFailure failure;
  failure.kind = "silence";
  failure.status = ForeignStatus::hung;
  failure.iteration = facts.last_step.value_or(0) + 1;
  if (!facts.steps.empty()) failure.place = {facts.steps_file, facts.steps.back().line};
  failure.sentence = fmt::format("no step for {} after step {}{}", words_of_seconds(silence_s),
                                 facts.last_step.value_or(0), more);
  facts.root = failure;
  facts.failures.insert(facts.failures.begin(), failure);
}

/// The loss that is no number, and stays so to the end.
bool has_bad_end(const RunFacts& facts) {
  for (auto step = facts.steps.rbegin(); step != facts.steps.rend(); ++step) {
    if (step->loss) return !std::isfinite(*step->loss);
  }
  return false;
}

void set_bad_loss(RunFacts& facts) {
  RunFailure failure;
  failure.kind = "nan";
  failure.status = ForeignStatus::wrong;
  failure.iteration = facts.first_nan_step.value_or(0);
  failure.sentence =
      fmt::format("the loss is not a number since step {}", facts.first_nan_step.value_or(0));
  for (const StepLine& step : facts.steps) {
    if (step.step == facts.first_nan_step) failure.place = {facts.steps_file, step.line};
  }
  facts.root = failure;
  facts.failures.insert(facts.failures.begin(), failure);
}

/// Whether a failure says by itself that a process ended, and not that others did or that it
/// waited.
bool is_own_end(const Failure& failure) {
  const Blame blame = blame_of(failure);
  if (failure.form->saw_others() || failure.form->words.empty()) return false;
  return blame != Blame::waiting && (blame != Blame::consequence || failure.exit_code);
}

/// Of a run that is complete by one log: a rank that ended by another, which shows neither the end
/// nor the last step. All steps are done, so that the run counts as complete.
void note_lost_rank(const AttemptParts& parts, const std::vector<const Failure*>& open,
                    RunFacts& facts) {
  const Attempt* complete = nullptr;
  std::set<const Failure*> in_whole_logs;
  for (const Attempt* part : parts) {
    const bool has_last =
        !part->steps.empty() && part->steps.furthest() >= facts.last_step.value_or(0);
    if (!part->end && !has_last) continue;
    if (complete == nullptr || (part->end && !complete->end)) complete = part;
    for (const Failure& failure : part->failures) in_whole_logs.insert(&failure);
  }
  // What was ended from outside, or ran beside the ranks, is a rank's only where the log tells.
  const auto is_of_rank = [&](const Failure& failure) {
    const bool may_be_other =
        blame_of(failure) == Blame::victim || failure.form->name == "process-signal";
    return !may_be_other || failure.rank >= 0 || has_own_steps(failure, parts);
  };
  std::vector<const Failure*> lost;
  for (const Failure* failure : open) {
    if (in_whole_logs.contains(failure)) continue;
    if (is_own_end(*failure) && is_of_rank(*failure)) lost.push_back(failure);
  }
  const Failure* root = root_of(lost);
  if (root == nullptr || complete == nullptr) return;
  std::set<int> ranks;
  for (const Failure* failure : lost) {
    if (failure->rank >= 0 && is_same_failure(*failure, *root)) ranks.insert(failure->rank);
  }
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  const int64_t after_step = has_own_steps(*root, parts) ? root->after_step : kAfterUnknown;
  const std::string words =
      sentence_of(*root, num_ranks > 1 ? -1 : root->rank, after_step, num_ranks);
  facts.notes.push_back(fmt::format(
      "{}; another log {}", words,
      complete->end ? "ends well" : fmt::format("has all {} steps", *facts.total_steps)));
}

/// Without a failure: did it come to its end, or does the log just stop?
void judge_by_end(const AttemptParts& parts, bool is_complete, const RunOptions& options,
                  RunFacts& facts) {
  if (has_bad_end(facts)) {
    set_bad_loss(facts);
    return;
  }
  if (is_complete) {
    facts.status = ForeignStatus::ok;
    return;
  }
  const double said_s = silence_before(parts, std::nullopt);
  if (is_long(said_s, facts)) {
    set_silence(said_s, ", though other lines came", facts);
    return;
  }
  if (options.now_s && options.written_s && facts.last_step) {
    const double silence_s = std::max(*options.now_s - *options.written_s, 0.0);
    if (is_long(silence_s, facts)) {
      set_silence(silence_s, ", and no other line", facts);
      return;
    }
  }
  if (!facts.last_step && facts.framework == Framework::unknown) {
    facts.status = ForeignStatus::unknown;
    facts.reason = "the log shows neither a step nor a failure";
    return;
  }
  facts.status = ForeignStatus::truncated;
  if (!facts.last_step) {
    facts.reason = "the log stops before the first step, without a failure";
    return;
  }
  facts.reason = fmt::format("the log stops after step {}", *facts.last_step);
  if (facts.total_steps) facts.reason += fmt::format(" of {}", *facts.total_steps);
  facts.reason += ", without an end or a failure";
}

}  // namespace

std::vector<std::string> earlier_endings(const std::vector<ForeignLog>& logs) {
  constexpr size_t kMostTold = 5;
  std::vector<std::string> endings;
  for (const ForeignLog& log : logs) {
    for (const Attempt& attempt : std::span(log.attempts).first(log.attempts.size() - 1)) {
      std::vector<const Failure*> open;
      for (const Failure& failure : attempt.failures) {
        if (!failure.is_survived) open.push_back(&failure);
      }
      const Failure* root = root_of(open);
      if (root == nullptr || root->form->words.empty()) continue;
      std::string words =
          "an earlier start ended: " + sentence_of(*root, root->rank, root->after_step, 1);
      if (std::ranges::find(endings, words) != endings.end()) continue;
      if (endings.size() == kMostTold) return endings;
      endings.push_back(std::move(words));
    }
  }
  return endings;
}

void judge_run(const AttemptParts& parts, const RunOptions& options, RunFacts& facts) {
  bool has_end = false;
  std::vector<const Failure*> open;
  std::vector<const Failure*> all;
  for (const Attempt* part : parts) {
    has_end |= part->end.has_value();
    for (const Failure& failure : part->failures) {
      all.push_back(&failure);
      if (!failure.is_survived) open.push_back(&failure);
    }
  }
  const bool has_all_steps =
      facts.total_steps && facts.last_step && *facts.last_step >= *facts.total_steps;
  const std::vector<const Failure*> all_open = open;
  // Every rank has passed the barrier in front of the mark: what follows is tidying up.
  if (has_end) open.clear();
  // A group that was never used is idle, whatever another one waits for.
  std::erase_if(open, [&](const Failure* failure) {
    return failure->form->name == "nccl-idle" &&
           std::ranges::any_of(parts, [&](const Attempt* part) {
             const auto own = part->timeouts.find(failure->rank);
             return own != part->timeouts.end() && own->second.has_open_work;
           });
  });
  if (has_all_steps) {
    std::erase_if(open, [](const Failure* f) { return blame_of(*f) > Blame::waiting; });
  }
  std::ranges::sort(all, [](const Failure* a, const Failure* b) {
    return std::tuple(blame_of(*a), std::string_view(a->place.file), a->place.line) <
           std::tuple(blame_of(*b), std::string_view(b->place.file), b->place.line);
  });
  const Failure* root = root_of(open);
  std::vector<std::pair<const Failure*, RunFailure>> told_of;
  constexpr size_t kMostTold = 64;
  if (root != nullptr) told_of.emplace_back(root, told(*root, parts, facts));
  for (const Failure* failure : all) {
    if (failure == root || failure->form->words.empty()) continue;
    const auto same = std::ranges::find_if(
        told_of, [&](const auto& entry) { return is_same_failure(*entry.first, *failure); });
    if (same == told_of.end()) {
      if (told_of.size() < kMostTold) told_of.emplace_back(failure, told(*failure, parts, facts));
      continue;
    }
    same->second.times += failure->times;
    if (failure->rank >= 0) same->second.ranks.push_back(failure->rank);
  }
  for (auto& [failure, words] : told_of) {
    std::ranges::sort(words.ranks);
    words.is_survived |= has_end;
    const auto num_ranks = static_cast<int64_t>(words.ranks.size());
    if (num_ranks > 1 && !failure->is_first_seen) {
      words.sentence = sentence_of(*failure, -1, words.iteration - 1, num_ranks);
    }
    facts.failures.push_back(words);
  }
  if (root == nullptr) {
    judge_by_end(parts, has_end || has_all_steps, options, facts);
    if (has_end || has_all_steps) note_lost_rank(parts, all_open, facts);
  } else {
    RunFailure& failure = facts.failures.front();
    const bool is_from_outside =
        root->form->blame == Blame::outside || root->form->status == ForeignStatus::interrupted;
    if (root->rank < 0 && !is_from_outside) {
      int& rank = root->form->saw_others() ? failure.reporting_rank : failure.rank;
      rank = rank_by_exit_codes(open, *root);
      failure.sentence = sentence_of(*root, rank, failure.iteration - 1, 1);
    }
    const bool is_timeout =
        root->form->name == "nccl-timeout" || root->form->name == "gloo-timeout";
    if (is_timeout) tell_who_waited(parts, facts, failure);
    if (root->form->name == "nccl-idle") tell_who_was_idle(parts, *root, failure);
    if (is_abort(*root)) tell_own_abort(*root, failure);
    const bool may_have_hung = root->form->blame == Blame::outside && !explains_waiting(*root);
    const double silence_s = may_have_hung ? silence_before(parts, root->time_s) : 0;
    if (is_long(silence_s, facts)) {
      set_silence(silence_s, fmt::format(" until it was ended ({})", root->form->words), facts);
    } else {
      facts.root = failure;
    }
  }
  if (facts.root) {
    facts.status = facts.root->status;
    facts.reason = facts.root->sentence;
  }
}

}  // namespace moetune::sweeps
