#include "sweeps/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kernels/base/error.h"
#include "sweeps/diagnosis_outputs.h"
#include "sweeps/planning/plan_outputs.h"
#include "sweeps/planning/row_keys.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

constexpr OutputKey kTrialKeys[] = {
    {"id", "integer", "", "Of the trial in this database."},
    {"sweep", "integer", "", "The sweep it belongs to."},
    {"hash", "text", "", "Hash of the configuration that identifies the trial."},
    {"phase", "text", "", "contract, fit, scale, profile, retune or validate."},
    {"title", "text", "", "What it was for."},
    {"status", "text", "",
     "running, ok, oom, invalid, pruned, hung, crashed, failed, wrong, interrupted."},
    {"reason", "text", "", "Of a status that is not ok."},
    {"knobs.*", "any", "", "The value of each knob."},
    {"predicted_peak_bytes", "integer or null", "bytes", "Of the rank that needs most."},
    {"peak_bytes", "integer or null", "bytes", "The same, measured."},
    {"predicted_step_ns", "integer or null", "ns", "Time of a step."},
    {"step_ns", "integer or null", "ns", "The same, measured."},
    {"wall", "text or null", "",
     "communication, host, pipeline, imbalance, memory, compute or unknown."},
    {"tokens_per_s", "number or null", "tokens/s", "Of all devices together."},
    {"loss", "number or null", "", "Of the last step."},
    {"marks[]", "list of texts", "", "winner, baseline, first_fit."},
    {"is_kept", "true or false", "", "The search went on from it."},
    {"is_cleared", "true or false", "",
     "It ended as wrong; the perturbed reference says it is not."},
    {"validated", "true, false or null", "",
     "Whether its validation was passed; null: it had none, or the long run tells."},
    {"parent", "integer or null", "", "Id of the trial that it changes."},
    {"changes.*.before", "any", "", "By knob: the parent's value."},
    {"changes.*.after", "any", "", "By knob: its own value."},
    {"changes_from_first_fit.*.before", "any", "", "The same from the first trial that fitted."},
    {"changes_from_first_fit.*.after", "any", "", "By knob: its own value."},
    {"num_measurements", "integer", "", "Runs behind its figures."},
    {"environment.*", "any", "", "Where it was measured; null when it was not."},
};

/// What stands in the log of a trial (analyse.cpp; of another engine, adapters/engine_result.cpp).
constexpr OutputKey kWallEvidenceKeys[] = {
    {"label", "text", "", "The wall: as wall of a trial."},
    {"sub_cause", "text", "", "What of it: launch, sync, loader, transfer, ...; empty: not told."},
    {"rank", "integer or null", "", "Whose doing it is, where one rank stands out."},
    {"share_ratio", "number", "ratio",
     "Its ceiling: so much shorter would the step be without its causes. Of compute its share."},
    {"most_ratio", "number or null", "ratio",
     "The ceiling if the wall is to blame for what nothing explains, too, such as waits whose "
     "records are lost. No less than share_ratio."},
    {"joint_ratio", "number or null", "ratio",
     "Where another wall hides this one, so that only both gain much: what is saved without this "
     "one once the others are gone. Else null."},
    {"low_ratio", "number or null", "ratio", "The least ceiling over the judged steps."},
    {"high_ratio", "number or null", "ratio", "The largest."},
    {"num_replayed_steps", "integer", "", "Steps that were judged, by replay."},
    {"num_agreeing_steps", "integer", "", "Of them, those that have this wall."},
    {"unknown_ratio", "number", "ratio", "Of the step, what nothing explains."},
    {"label_ceilings.*", "number", "ratio", "The same as share_ratio, of each wall."},
    {"low_label_ceilings.*", "number", "ratio", "Of each wall, the least over the judged steps."},
    {"high_label_ceilings.*", "number", "ratio", "Of each wall, the largest."},
    {"ceilings.*", "number", "ratio", "Of each cause, dropped alone."},
    {"summary", "text", "", "A sentence."},
    {"evidence[].name", "text", "", "Of a number behind the verdict."},
    {"evidence[].value", "number", "unit", "The number."},
    {"evidence[].unit", "text", "", "ratio, ns or count."},
    {"evidence[].text", "text", "", "A sentence."},
    {"shares.*", "number", "ratio",
     "Of the stored step, the parts of its account: mean of the ranks."},
    {"dominant_group", "text", "", "The group that blocks longest; pp: the bubble."},
    {"dominant_ratio", "number", "ratio", "Of the step."},
    {"slowest_rank", "integer", "", "That which waits least for others."},
};
constexpr SharedKeys kWallEvidence = {
    "Wall evidence",
    "What is behind the wall of a trial. Trials of other engines lack the keys of single steps "
    "(num_agreeing_steps, low_label_ceilings, high_label_ceilings) and of the account (shares, "
    "dominant_group, dominant_ratio, slowest_rank); one that ran out of memory may have a label, a "
    "summary and evidence alone.",
    kWallEvidenceKeys};

constexpr SharedKeys kTrial = {"A trial", "Wherever one is printed.", kTrialKeys};
constexpr OutputPart kListParts[] = {{"[].", &kTrial}};
constexpr OutputPart kDetailsParts[] = {{"", &kTrial}, {"texts.wall_evidence.", &kWallEvidence}};
constexpr OutputPart kSweepParts[] = {{"best.", &kTrial}};

/// In the order of the page.
constexpr const SharedKeys* kShared[] = {&kTrial,    &kWallEvidence, &kEstimate,       &kMemoryTerm,
                                         &kKnobGain, &kPathStep,     &kLikeRun,        &kErrorSet,
                                         &kOrder,    &kFoldErrors,   &kComparedFigure, &kLogPlace};

constexpr OutputKey kList[] = {
    {"[]", "list of objects", "", "A trial each."},
};

constexpr OutputKey kHuntList[] = {
    {"[].hunt", "integer", "", "Of the hunt in this database."},
    {"[].repository", "text or null", "", "Its folder."},
    {"[].good", "text", "", "The good end: a commit, or a file."},
    {"[].bad", "text", "", "The bad end."},
    {"[].metric", "text", "", "What was compared."},
    {"[].status", "text", "", "running, done, interrupted or failed."},
    {"[].verdict", "text or null", "", "culprit, no_change, environment_changed or unresolved."},
    {"[].answer", "text or null", "", "Whose fault it is, or why nobody's."},
    {"[].num_runs", "integer", "", "Measurements."},
    {"[].started_at", "text or null", "UTC", "When it began."},
    {"[].ended_at", "text or null", "UTC", "When it ended."},
    {"[].command_line", "text", "", "How to run it again."},
};

constexpr OutputKey kDetails[] = {
    {"is_baseline", "true or false", "", "Losses are compared with this trial's."},
    {"megatron_flags[]", "list of texts or null", "", "Its knobs as Megatron-LM's arguments."},
    {"megatron_notes[]", "list of texts or null", "", "What those flags cannot say."},
    {"engine_settings[]", "list of texts or null", "",
     "Of somebody else's engine: what the trial changes in the command."},
    {"step_ns_low", "integer or null", "ns", "Of the interval of 95 %."},
    {"step_ns_high", "integer or null", "ns", "The same."},
    {"started_at", "text or null", "UTC", "When it began."},
    {"ended_at", "text or null", "UTC", "When it ended."},
    {"duration_ns", "integer or null", "ns", "From one to the other."},
    {"num_attempts", "integer", "", "How often it was started."},
    {"spec.*", "any", "", "The trial as a trial file."},
    {"measurements[].attempt", "integer", "", "Which start it was."},
    {"measurements[].purpose", "text", "", "first, again, longer or in_turns."},
    {"measurements[].status", "text", "", "As of a trial."},
    {"measurements[].reason", "text", "", "As of a trial."},
    {"measurements[].is_counted", "true or false", "", "It stands behind the trial's figures."},
    {"measurements[].num_steps", "integer", "", "Steps that were run."},
    {"measurements[].samples_ns[]", "list of integers", "ns", "Each timed step."},
    {"measurements[].played_ns[]", "list of integers", "ns",
     "The same steps, played with robust durations."},
    {"measurements[].probe_ns", "integer or null", "ns", "How fast the machine was."},
    {"measurements[].step_ns", "integer or null", "ns", "What this run says."},
    {"measurements[].step_ns_low", "integer or null", "ns", "Of its interval."},
    {"measurements[].step_ns_high", "integer or null", "ns", "Of its interval."},
    {"measurements[].window_start", "text", "UTC", "When it was made."},
    {"measurements[].window_end", "text", "UTC", "When it ended."},
    {"measurements[].commit", "text or null", "", "Of the program."},
    {"measurements[].environment.*", "any", "", "Where it was made."},
    {"decisions[].kind", "text", "", "kept, rejected, undecided, ..."},
    {"decisions[].phase", "text", "", "As of a trial."},
    {"decisions[].text", "text", "", "A sentence."},
    {"decisions[].gain_ratio", "number or null", "ratio", "Of speed."},
    {"decisions[].gain_low_ratio", "number or null", "ratio", "Of its interval."},
    {"decisions[].gain_high_ratio", "number or null", "ratio", "Of its interval."},
    {"predictions.*.value", "number", "of the name", "What was predicted before it ran."},
    {"predictions.*.grade", "text", "", "How it was predicted."},
    {"metrics[].rank", "integer", "", "-1: the whole run."},
    {"metrics[].name", "text", "", "Of the metric."},
    {"metrics[].unit", "text", "", "Of the value."},
    {"metrics[].value", "number or null", "its unit", "Measured."},
    {"memory[].rank", "integer", "", "Whose memory."},
    {"memory[].group", "text", "",
     "weights, gradients, ...; total: all of them; capacity: what there is."},
    {"memory[].bytes", "integer or null", "bytes",
     "Of a group at its own peak, of total at the rank's; null: not known."},
    {"memory[].predicted_bytes", "integer or null", "bytes", "The same, predicted."},
    {"memory[].peak_allocation", "text or null", "", "What was allocated at the peak."},
    {"steps[].step", "integer", "", "From 0."},
    {"steps[].is_warmup", "true or false", "", "Not timed."},
    {"steps[].is_traced", "true or false", "", "Recorded."},
    {"steps[].step_ns", "integer", "ns", "How long it took."},
    {"steps[].loss", "number", "", "Cross-entropy."},
    {"steps[].grad_norm", "number", "", "Before clipping."},
    {"steps[].lr", "number", "", "Learning rate."},
    {"texts.*", "any", "",
     "Its log: command, stderr, routing, device memory, and wall_evidence (above)."},
};

constexpr OutputKey kSweep[] = {
    {"db", "text", "", "The database."},
    {"sweep_id", "integer", "", "Of the sweep in it."},
    {"status", "text", "",
     "done, interrupted or failed; waiting: somebody else has to run the next trial."},
    {"stop_reason", "text", "", "Why it stopped early, if it did."},
    {"failure", "text", "", "Why nothing fitted."},
    {"num_run", "integer", "", "Trials that ran now."},
    {"num_reused", "integer", "", "Trials that were found."},
    {"num_by_status.*", "integer", "", "Trials by status."},
    {"num_cleared", "integer", "", "Of the wrong ones: cleared by the perturbed reference."},
    {"best", "object or null", "", "The winner: a trial."},
    {"megatron_flags[]", "list of texts or null", "", "The winner's, for Megatron-LM."},
    {"megatron_notes[]", "list of texts or null", "", "What those flags cannot say."},
    {"first_fit_id", "integer or null", "", "The first trial that fitted."},
    {"validated", "true, false or null", "", "What a long run said; null: none was made."},
    {"validation", "text", "", "The same as a sentence."},
    {"speedup", "number or null", "ratio", "Of the winner over the first fit; 1: none."},
    {"speedup_low", "number or null", "ratio", "Of its interval."},
    {"speedup_high", "number or null", "ratio", "Of its interval."},
    {"speedup_step_ns", "integer or null", "ns", "Of the winner in screening: what speedup is of."},
    {"speedup_first_fit_step_ns", "integer or null", "ns", "The same of the first fit."},
    {"gain_ratio", "number or null", "ratio", "speedup - 1."},
    {"gain_low_ratio", "number or null", "ratio", "Of its interval."},
    {"gain_high_ratio", "number or null", "ratio", "Of its interval."},
    {"undecided[].trial", "integer or null", "", "A change that the noise hides."},
    {"undecided[].knob", "text", "", "Its knob; of several changes all, with commas."},
    {"undecided[].value", "text", "", "The value that was tried."},
    {"undecided[].gain_low_ratio", "number or null", "ratio", "What it may gain."},
    {"undecided[].gain_high_ratio", "number or null", "ratio", "The same."},
    {"undecided[].text", "text", "", "A sentence."},
    {"engine_settings[]", "list of texts or null", "",
     "Of somebody else's engine: what the best trial changes in the command."},
    {"next.title", "text", "",
     "The trial that nobody has run yet (--dry-run, tell); next is null where there is none."},
    {"next.phase", "text", "", "As of a trial."},
    {"next.why", "text", "", "Why it is tried next."},
    {"next.command", "text", "", "For a shell."},
    {"next.folder", "text", "", "Where it is run."},
    {"next.predicted_step_ns", "integer or null", "ns", "Time of a step."},
    {"next.predicted_peak_bytes", "integer or null", "bytes", "Of the rank that needs most."},
};

constexpr OutputKey kProgram[] = {
    {"rank", "integer", "", "Whose program."},
    {"world_size", "integer", "", "Ranks."},
    {"instructions[].verb", "text", "", "op, comm, send, recv, alloc, free, record, wait, ..."},
    {"instructions[].op", "text or null", "", "The operation."},
    {"instructions[].pass", "text", "", "forward, backward, recompute, ..."},
    {"instructions[].layer", "integer", "", "-1: none."},
    {"instructions[].micro_batch", "integer", "", "-1: none."},
    {"instructions[].chunk", "integer", "", "Of expert rows."},
    {"instructions[].stream", "text", "", "Where it runs."},
    {"instructions[].group", "text or null", "", "Of communication."},
    {"instructions[].flops", "number", "FLOP", "Floating-point operations."},
    {"instructions[].bytes", "number", "bytes", "Read and written, or sent."},
    {"instructions[].waits[]", "list of integers", "", "Instructions that it waits for."},
    {"peak_bytes", "integer", "bytes", "Memory of the rank at its peak."},
};

constexpr OutputKey kKnobs[] = {
    {"[].name", "text", "", "As in files and --set."},
    {"[].group", "text", "", "What it belongs to."},
    {"[].unit", "text", "", "Of the value."},
    {"[].values", "text", "", "What it takes."},
    {"[].default", "text", "", "Where it is left out."},
    {"[].megatron_flag", "text", "", "Megatron-LM's name."},
    {"[].help", "text", "", "What it does."},
};

constexpr OutputKey kHunt[] = {
    {"verdict", "text", "", "culprit, no_change, environment_changed or unresolved."},
    {"reason", "text", "", "Of a verdict other than culprit, or what a culprit leaves open."},
    {"is_swapped", "true or false", "", "The bad end is the better one."},
    {"is_interrupted", "true or false", "", "It was stopped."},
    {"metric", "text", "", "That was asked for."},
    {"hunted_metric", "text", "", "That was followed in the end."},
    {"note", "text", "", "How it was found, or what else was seen."},
    {"failure", "text", "", "How runs fail at the bad end, if that is the change."},
    {"unit", "text", "", "Of the metric: ns, bytes, s or empty."},
    {"confidence", "number", "ratio", "That was asked for."},
    {"min_effect_ratio", "number", "ratio", "The least change of interest."},
    {"no_change", "number or null", "ratio", "Probability of it."},
    {"effect.ratio", "number", "ratio",
     "Of the bad end over the good one; effect is null if unknown."},
    {"effect.low", "number", "ratio", "Of its interval."},
    {"effect.high", "number", "ratio", "Of its interval."},
    {"noise_ratio", "number or null", "ratio", "Of one run, over the good end's level."},
    {"detectable_ratio", "number or null", "ratio", "What these many runs could just have shown."},
    {"detectable_with_more_ratio", "number or null", "ratio", "The same with more_runs more."},
    {"more_runs", "integer", "", "Runs that detectable_with_more_ratio adds."},
    {"has_drift", "true or false", "", "The machine's speed changed meanwhile."},
    {"has_dropped_earlier", "true or false", "", "Runs of long ago do not hold any more."},
    {"runs", "integer", "", "Measurements."},
    {"builds", "integer", "", "Builds; 0 with --configs."},
    {"seconds", "number", "s", "Of building and running."},
    {"db", "text", "", "Where all of it is kept."},
    {"reproduce", "text", "", "The command line."},
    {"culprits[].subject", "text", "", "Of the commit; with --configs the changes in words."},
    {"culprits[].effect.ratio", "number", "ratio",
     "Of the change alone; effect is null of failures."},
    {"culprits[].effect.low", "number", "ratio", "Of its interval."},
    {"culprits[].effect.high", "number", "ratio", "Of its interval."},
    {"culprits[].before", "number or null", "unit",
     "Level up to its parent; --configs: of the good file."},
    {"culprits[].after", "number or null", "unit",
     "Level from it on; --configs: with the change alone."},
    {"culprits[].confidence", "number", "ratio", "That it is one."},
    {"culprits[].is_improvement", "true or false", "", "It makes the metric better."},
    {"culprits[].moved[].name", "text", "", "A number that moved with it."},
    {"culprits[].moved[].before", "number", "of the name", "Before."},
    {"culprits[].moved[].after", "number", "of the name", "After."},
    {"culprits[].position", "integer", "", "Commits after the good end."},
    {"culprits[].commit", "text", "", "Its id."},
    {"culprits[].author", "text", "", "Of the commit."},
    {"culprits[].author_date", "text", "", "Of the commit."},
    {"culprits[].hint", "text", "", "What to do next, such as looking into a merge."},
    {"culprits[].config[].name", "text", "", "A default that it changes."},
    {"culprits[].config[].before", "text", "", "As JSON; empty: none."},
    {"culprits[].config[].after", "text", "", "As JSON; empty: none."},
    {"culprits[].changes[].path", "text", "", "--configs: JSON pointer of a change."},
    {"culprits[].changes[].before", "any", "", "--configs: in the good file."},
    {"culprits[].changes[].after", "any", "", "--configs: in the bad file."},
    {"culprits[].is_interaction", "true or false", "",
     "--configs: only all of them together do it."},
    {"culprits[].is_good_restored", "true or false", "", "--configs: without it bad is as good."},
    {"effect_metric", "text", "", "Whose change the culprit's effect is."},
    {"config[].name", "text", "", "What the ends fill in differently."},
    {"config[].before", "text", "", "At the good end, as JSON."},
    {"config[].after", "text", "", "At the bad end."},
    {"moved[].name", "text", "", "A number in which the ends differ."},
    {"moved[].before", "number", "of the name", "At the good end."},
    {"moved[].after", "number", "of the name", "At the bad end."},
    {"skipped[].position", "integer", "", "A commit that could not be measured."},
    {"skipped[].commit", "text", "", "Its id."},
    {"skipped[].status", "text", "", "build_failed, crashed, ..."},
    {"skipped[].message", "text", "", "What it said."},
    {"good", "text", "", "Id of the good end."},
    {"bad", "text", "", "Id of the bad end."},
    {"num_commits", "integer", "", "From the good end to the bad one."},
    {"posterior[]", "list of numbers", "ratio", "By position: that it is a culprit."},
    {"suspects[]", "list of integers", "", "Positions that hold the confidence together."},
    {"candidates[].position", "integer", "", "A suspect."},
    {"candidates[].commit", "text", "", "Its id."},
    {"candidates[].probability", "number", "ratio", "That it is a culprit."},
    {"num_changes", "integer", "", "--configs: places where the files differ."},
    {"complete", "number", "ratio",
     "--configs: probability that bad without all culprits is good."},
    {"interaction.ratio", "number", "ratio", "--configs: what all together add; null: nothing."},
    {"interaction.low", "number", "ratio", "Of its interval."},
    {"interaction.high", "number", "ratio", "Of its interval."},
};

constexpr Output kOutputs[] = {
    {"ls", "A list of trials.", kList, kListParts},
    {"show trial", "A trial with everything that is stored about it.", kDetails, kDetailsParts},
    {"sweep tell", "What a sweep has found.", kSweep, kSweepParts},
    {"plan", "The best configurations of a cluster.", kPlanKeys, kPlanParts},
    {"estimate", "Memory and throughput of runs.", kEstimateKeys, kEstimateParts},
    {"import", "What was understood of another framework's command or configuration.", kImportKeys},
    {"calibrate",
     "Rates, without --out on standard output. --calibration of plan, estimate and "
     "calibrate reads such a file.",
     kRatesKeys},
    {"folds",
     "How far fits are off runs that they have not seen, by `moetune calibrate --folds`: no model "
     "on one machine is in two parts, or no source is.",
     {},
     kFoldParts},
    {"probe", "What was measured of a machine.", kProbeKeys},
    {"diagnose", "Where a run's time went, and what holds it back.", kDiagnosisKeys,
     kDiagnosisParts},
    {"compare", "Two runs side by side.", kComparisonKeys, kComparisonParts},
    {"program", "What a rank runs in a step, in its order.", kProgram},
    {"knobs", "A list of what can be tuned.", kKnobs},
    {"hunts", "A database of hunts, by `moetune ls`.", kHuntList},
    {"bisect", "What a hunt has found.", kHunt},
};

/// All leaves of a value by their paths, every element of a list under "[]"; with `has_inner` the
/// objects and lists that hold them, too.
void collect(const json& value, const std::string& path, bool has_inner,
             std::set<std::string>& paths) {
  const bool is_leaf = !value.is_structured() || value.empty();
  if (is_leaf || has_inner) paths.insert(path);
  if (is_leaf) return;
  if (value.is_array()) {
    for (const json& inner : value) collect(inner, path + "[]", has_inner, paths);
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    collect(inner, path.empty() ? key : path + "." + key, has_inner, paths);
  }
}

/// Whether a row's path is this one.
bool matches(std::string_view row, std::string_view path) {
  const size_t star = row.find('*');
  if (star == std::string_view::npos) return row == path;
  if (!path.starts_with(row.substr(0, star))) return false;
  const std::string_view behind = row.substr(star + 1);
  if (behind.empty()) return path.size() > star;
  // A name may have dots of its own.
  for (size_t end = star + 1; end < path.size(); ++end) {
    if (matches(behind, path.substr(end))) return true;
  }
  return false;
}

/// Whether a row says what stands at a path. A row of "a.*" covers all below; a null or an empty
/// object or list at "a" is covered by any row below it.
bool covers(std::string_view row, std::string_view path) {
  if (matches(row, path)) return true;
  for (size_t end = 1; end < row.size(); ++end) {
    const bool is_holder = (row[end] == '.' || row[end] == '[') && row[end - 1] != '*';
    if (is_holder && matches(row.substr(0, end), path)) return true;
  }
  return false;
}

/// What is printed even where there are no elements and no names.
std::string_view holder_of(std::string_view row) {
  while (row.ends_with("[]") || row.ends_with(".*")) row.remove_suffix(2);
  return row;
}

const Output& output_of(std::string_view command) {
  for (const Output& output : kOutputs) {
    std::istringstream names(output.commands);
    for (std::string name; names >> name;) {
      if (name == command) return output;
    }
  }
  throw base::Error(fmt::format("moetune {} prints no JSON", command));
}

void add_table(std::span<const OutputKey> keys, std::string& text) {
  if (keys.empty()) return;
  text += "\n| key | type | unit | meaning |\n|---|---|---|---|\n";
  for (const OutputKey& key : keys) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.path, key.type, key.unit, key.meaning);
  }
}

/// A paragraph in lines of the page.
std::string paragraph_of(const std::string& text) {
  constexpr size_t kColumns = 118;
  std::string lines;
  size_t columns = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_full = columns + 1 + word.size() > kColumns;
    if (!lines.empty()) lines += is_full ? '\n' : ' ';
    columns = lines.empty() || is_full ? word.size() : columns + 1 + word.size();
    lines += word;
  }
  return lines;
}

/// Sentences on which objects have shared keys.
std::string parts_text(std::span<const OutputPart> parts) {
  std::string text;
  for (const SharedKeys* shared : kShared) {
    std::string title = shared->title;
    title[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(title[0])));
    std::vector<std::string> places;
    for (const OutputPart& part : parts) {
      if (part.shared != shared) continue;
      std::string path = part.prefix;
      if (path.empty()) {
        text += fmt::format(" It has the keys of {}, too.", title);
        continue;
      }
      path.pop_back();
      places.push_back(fmt::format("`{}`", path));
    }
    if (places.empty()) continue;
    const std::string last = places.back();
    places.pop_back();
    text += places.empty() ? fmt::format(" {} has the keys of {}.", last, title)
                           : fmt::format(" {} and {} have the keys of {}.", fmt::join(places, ", "),
                                         last, title);
  }
  return text;
}

}  // namespace

std::span<const Output> outputs() { return kOutputs; }

std::vector<std::string> paths_of(const Output& output) {
  std::vector<std::string> paths;
  for (const OutputKey& key : output.keys) paths.emplace_back(key.path);
  for (const OutputPart& part : output.parts) {
    for (const OutputKey& key : part.shared->keys) {
      paths.push_back(std::string(part.prefix) + key.path);
    }
  }
  return paths;
}

std::vector<std::string> undocumented_keys(std::string_view command, const json& document) {
  const std::vector<std::string> rows = paths_of(output_of(command));
  std::set<std::string> paths;
  collect(document, "", false, paths);
  std::vector<std::string> missing;
  for (const std::string& path : paths) {
    const auto is_row = [&](const std::string& row) { return covers(row, path); };
    if (!path.empty() && std::ranges::none_of(rows, is_row)) missing.push_back(path);
  }
  return missing;
}

std::vector<std::string> unprinted_keys(std::string_view command,
                                        const std::vector<json>& documents) {
  std::set<std::string> paths;
  for (const json& document : documents) collect(document, "", true, paths);
  std::vector<std::string> unprinted;
  for (std::string& row : paths_of(output_of(command))) {
    const auto is_row = [&](const std::string& path) { return matches(holder_of(row), path); };
    if (std::ranges::none_of(paths, is_row)) unprinted.push_back(std::move(row));
  }
  return unprinted;
}

std::string files_markdown() {
  std::string text = "\n## Rows file\n\n";
  text += paragraph_of(
      "Measured runs: a JSON array with an object for each. `moetune estimate --rows` prices them "
      "and compares with what they state, `moetune calibrate --rows` fits rates to them. Keys that "
      "are not listed are not read. A null counts as absent, and so does a word such as unknown or "
      "not stated. A row that lacks what is required "
      "is left out with its reason. A word that is not known is replaced, and the answer says by "
      "what. Numbers are plain numbers here. `moetune knobs --plans` has the knobs.");
  text += "\n";
  add_table(kRowKeys, text);
  return text;
}

std::string outputs_markdown() {
  std::string text =
      "\n## What commands print\n\n"
      "With `--format json`; `import` and `calibrate` print nothing else. `[]` stands for each "
      "element of a list, `*` for a\nname such as a knob's. A null at a key says that there is "
      "nothing to tell. New keys may come; those that are\nhere stay. These tables have neither "
      "defaults nor ranges: nobody sets what is printed.\n";
  for (const SharedKeys* shared : kShared) {
    text += fmt::format("\n### {}\n\n{}\n", shared->title, paragraph_of(shared->what));
    add_table(shared->keys, text);
  }
  for (const Output& output : kOutputs) {
    std::istringstream names(output.commands);
    std::string title;
    for (std::string name; names >> name;) title += (title.empty() ? "" : ", ") + name;
    text += fmt::format("\n### {}\n\n{}\n", title,
                        paragraph_of(output.what + parts_text(output.parts)));
    add_table(output.keys, text);
  }
  return text;
}

}  // namespace moetune::sweeps
