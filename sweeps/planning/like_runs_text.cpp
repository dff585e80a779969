// Published runs beside the user's, as text and JSON. What rows say is somebody's: no text of
// theirs gets to a terminal but on one line.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/format.h"
#include "reports/or_null.h"
#include "sweeps/load.h"
#include "sweeps/planning/change_text.h"
#include "sweeps/planning/like_runs.h"
#include "sweeps/planning/row_words.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

using nlohmann::json;
using reports::or_null;
using reports::speed_number;
using reports::text_or_null;

namespace {

/// Of two speeds.
std::string ratio_number(double ratio) {
  constexpr double kPlainFrom = 0.01;
  constexpr double kPlainTo = 1e4;
  return ratio >= kPlainFrom && ratio < kPlainTo ? fmt::format("{:.2f}", ratio)
                                                 : fmt::format("{:.3g}", ratio);
}

std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

/// How many rows are left out, and why: reasons that several have by their number, the rest
/// counted.
std::string left_out(const LikeRuns& like) {
  if (like.left_out.empty()) return "";
  std::vector<std::pair<std::string_view, size_t>> reasons;  // each with how many have it
  for (const LeftOutRow& row : like.left_out) {
    const auto known =
        std::ranges::find(reasons, row.reason, &std::pair<std::string_view, size_t>::first);
    if (known == reasons.end()) {
      reasons.emplace_back(row.reason, 1);
    } else {
      ++known->second;
    }
  }
  std::ranges::stable_sort(reasons, std::greater{}, &std::pair<std::string_view, size_t>::second);
  constexpr size_t kMostReasons = 6;
  std::string text;
  for (size_t i = 0; i < std::min(reasons.size(), kMostReasons); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : "; ", reasons[i].second, reasons[i].first);
  }
  size_t rest = 0;
  for (size_t i = kMostReasons; i < reasons.size(); ++i) rest += reasons[i].second;
  if (rest > 0) text += fmt::format("; {} for other reasons (--format json has all)", rest);
  return fmt::format(" Left out: {}: {}.", like.left_out.size(), text);
}

std::string condition_text(const Condition& condition) {
  const std::string figure = condition.ratio ? percent(*condition.ratio) : "not priced by itself";
  const char* beside = condition.why.empty() ? "" : condition.ratio ? ", " : ": ";
  return fmt::format("{} {} -> {}: {}{}{}", condition.what, condition.from, condition.to, figure,
                     beside, condition.why);
}

}  // namespace

std::string like_runs_note(const LikeRuns& like) {
  const std::string file = shown_path(like.file);
  if (like.runs.empty()) {
    return fmt::format(
        "None of the {} runs of {} is like it: of a model of this shape and this task, on devices "
        "of this generation.{}",
        like.num_rows, file, left_out(like));
  }
  return fmt::format(
      "{} of {} like runs among the {} of {}. Like it: the model's shape, the task, devices of its "
      "generation. In front: the same devices, then the nearest length of sequences, precision and "
      "number of GPUs, then the newest software.{}",
      like.runs.size(), like.num_like, like.num_rows, file, left_out(like));
}

std::string like_run_title(const PublishedRow& row) {
  const tuner::planner::PlanRun& run = row.run;
  std::string text =
      fmt::format("{}: {} {}, {} sequences of {} tokens, {}", shown_of_row(row.id),
                  row.hardware->num_devices(), row.hardware->name, run.global_batch_size,
                  run.seq_length, spec::name_of(run.knobs.precision));
  for (const std::string* part : {&row.software, &row.date, &row.source}) {
    if (!part->empty()) text += "; " + shown_of_row(*part);
  }
  return one_line(text);
}

std::string like_run_speed(const LikeRun& run) {
  const RunEstimate& priced = run.estimate;
  return fmt::format(
      "published {}{} tokens/s a GPU; priced {} TFLOP/s ({} to {}), {} tokens/s ({})",
      run.row.tflops ? speed_number(*run.row.tflops) + " TFLOP/s, " : std::string(),
      speed_number(*run.row.tokens_per_s), speed_number(priced.tflops.value),
      speed_number(priced.tflops.low), speed_number(priced.tflops.high),
      speed_number(priced.tokens_per_s.value), priced.grade);
}

std::string like_run_share(const LikeRuns& like, const LikeRun& run) {
  if (like.tokens_per_s <= 0) return "";
  return fmt::format("{} is priced at {} tokens/s a GPU, {} times what is published",
                     like.is_command ? "yours" : "the first plan", speed_number(like.tokens_per_s),
                     ratio_number(like.tokens_per_s / *run.row.tokens_per_s));
}

std::string moved_text(const LikeRuns& like, const LikeRun& run) {
  if (!run.broken_rule.empty()) {
    const std::string rule = fmt::format("{}: {}", run.broken_rule, run.rule_text);
    const bool is_told = std::ranges::any_of(
        run.conditions, [&](const Condition& condition) { return condition.why == rule; });
    return fmt::format("its layout is not legal for {}: {}", like.is_command ? "yours" : "the plan",
                       is_told ? run.broken_rule + ", as above" : rule);
  }
  if (!run.moved_tokens_per_s) return "";
  return fmt::format("its layout on your GPUs, with your sequences: {} tokens/s, {:.2f} times {}",
                     speed_number(*run.moved_tokens_per_s),
                     *run.moved_tokens_per_s / like.tokens_per_s,
                     like.is_command ? "yours" : "the first plan");
}

std::string to_text(const LikeRuns& like) {
  std::string text = fmt::format("\npublished runs: {}\n", one_line(like_runs_note(like)));
  const auto add = [&](const std::string& line) {
    if (!line.empty()) text += "  " + one_line(line) + '\n';
  };
  for (size_t i = 0; i < like.runs.size(); ++i) {
    const LikeRun& run = like.runs[i];
    text += fmt::format("\n{}. {}\n", i + 1, like_run_title(run.row));
    add(like_run_speed(run));
    if (!run.row.assumed.empty()) {
      add(fmt::format("{} things that it leaves open are assumed (--format json names them)",
                      run.row.assumed.size()));
    }
    add(like_run_share(like, run));
    for (const std::string& note : run.notes) add("note: " + note);
    if (!run.conditions.empty()) {
      add(fmt::format("what is no flag, from it to {}, each with all before it:",
                      like.is_command ? "yours" : "the plan"));
      for (const Condition& condition : run.conditions) add("  " + condition_text(condition));
    }
    add(moved_text(like, run));
    if (!run.path.empty()) {
      add("from yours to its layout, step by step, each with all steps before it:");
      text += path_text(run.path);
    }
    if (!run.changes.empty()) add("from yours to its layout, each change alone:");
    for (const KnobGain& change : run.changes) add_change(change, text);
  }
  return text;
}

void add_like_runs(const LikeRuns& like, json& document) {
  document["published_note"] = like_runs_note(like);
  document["published_left_out"] = json::array();
  for (const LeftOutRow& row : like.left_out) {
    document["published_left_out"].push_back({{"id", row.id}, {"reason", row.reason}});
  }
  json& published = document["published"] = json::array();
  for (const LikeRun& run : like.runs) {
    const PublishedRow& row = run.row;
    json entry = to_json(run.estimate);
    entry["id"] = shown_of_row(row.id);
    entry["source"] = shown_of_row(row.source);
    entry["software"] = shown_of_row(row.software);
    entry["date"] = shown_of_row(row.date);
    entry["hardware"] = row.hardware_name;
    entry["num_gpus"] = row.hardware->num_devices();
    entry["seq_length"] = row.run.seq_length;
    entry["global_batch_size"] = row.run.global_batch_size;
    entry["precision"] = spec::name_of(row.run.knobs.precision);
    entry["knobs"] = spec::to_json(row.run.knobs);
    entry["assumed"] = row.assumed;
    entry["notes"] = run.notes;
    entry["published_tflops_per_gpu"] = or_null(row.tflops);
    entry["published_tokens_per_s_per_gpu"] = or_null(row.tokens_per_s);
    entry["share_ratio"] =
        like.tokens_per_s > 0 ? json(like.tokens_per_s / *row.tokens_per_s) : json(nullptr);
    entry["conditions"] = json::array();
    for (const Condition& condition : run.conditions) {
      entry["conditions"].push_back({{"what", condition.what},
                                     {"from", condition.from},
                                     {"to", condition.to},
                                     {"speed_ratio", or_null(condition.ratio)},
                                     {"why", text_or_null(condition.why)}});
    }
    entry["moved_tokens_per_s_per_gpu"] = or_null(run.moved_tokens_per_s);
    entry["broken_rule"] = text_or_null(run.broken_rule);
    entry["broken_rule_text"] = text_or_null(run.rule_text);
    entry["path"] = json::array();
    for (const PathStep& step : run.path) {
      entry["path"].push_back(step_json(step, like.capacity_bytes));
    }
    entry["changes"] = json::array();
    for (const KnobGain& change : run.changes) entry["changes"].push_back(change_json(change));
    published.push_back(std::move(entry));
  }
}

}  // namespace moetune::sweeps
