// A plan as JSON and as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/units.h"
#include "sweeps/planning/change_text.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/plan_answer.h"
#include "sweeps/table.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using nlohmann::json;

namespace {

constexpr double kGiB = 1 << 30;

/// "full (the first 12 of a stage)", "full (in groups of 4)".
std::string recompute_text(const spec::PlanKnobs& k) {
  std::string text = k.recompute.text();
  if (!k.recompute.has(spec::PlanRecompute::full) || k.recomputes_each_layer()) return text;
  return k.recomputes_block()
             ? fmt::format("{} (the first {} of a stage)", text, k.recompute_num_layers)
             : fmt::format("{} (in groups of {})", text, k.recompute_num_layers);
}

}  // namespace

std::string layout_text(const spec::PlanKnobs& k) {
  std::string text = fmt::format("tp {} cp {} ep {} pp {}", k.tp, k.cp, k.ep, k.pp);
  if (k.etp > 1) text += fmt::format(" etp {}", k.etp);
  if (k.vpp > 1) text += fmt::format(" vpp {}", k.vpp);
  return text + fmt::format(" dp {} mbs {}", k.dp, k.micro_batch_size);
}

std::string choices_text(const planner::PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  std::vector<std::string> parts = {"recompute " + recompute_text(k)};
  if (k.fsdp != spec::Fsdp::none) parts.push_back("FSDP");
  // The usual one goes without saying.
  if (k.cross_entropy != spec::CrossEntropy::native) {
    parts.push_back(fmt::format("{} loss", name_of(k.cross_entropy)));
  }
  // Adam with moments or masters in fewer bits has to be it.
  if (k.precision_aware_optimizer) parts.emplace_back("precision-aware optimizer");
  if (k.optimizer_offload_ratio > 0) {
    parts.push_back(fmt::format("optimizer {:.0f} % in the host's memory",
                                100 * static_cast<double>(k.optimizer_offload_ratio)));
  }
  if (!k.offload.empty()) parts.push_back("offload " + k.offload.text());
  if (!k.fused_attention && !planner::has_own_modules(run)) parts.emplace_back("unfused attention");
  if (planner::has_own_modules(run)) parts.emplace_back("Megatron-Core's own modules");
  if (k.ep > 1) parts.push_back(std::string(name_of(k.dispatcher)));
  if (k.overlap_moe_expert_parallel_comm) parts.push_back("EP overlap");
  if (k.cp > 1 && k.cp_comm_type != spec::PlanCp::p2p) {
    parts.push_back(fmt::format("cp by {}", name_of(k.cp_comm_type)));
  }
  if (!k.cuda_graphs.empty()) parts.push_back("graphs " + k.cuda_graphs.text());
  const std::string stages = planner::pipeline_layout_of(run);
  if (!stages.empty()) parts.push_back("stages " + stages);
  return fmt::format("{}", fmt::join(parts, ", "));
}

double capacity_of(const planner::PlanQuestion& question) {
  return static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio;
}

double missing_bytes(const planner::PlanQuestion& question, double peak_bytes) {
  return planner::device_bytes(peak_bytes) - capacity_of(question);
}

double allocated_bytes(const planner::PlanQuestion& question,
                       const planner::PlannedConfig& config) {
  return planner::predict_memory(run_with(question, config)).allocated_bytes();
}

double speed_ratio(const Against& theirs, const PlanResult& result) {
  return result.estimates.front().predicted_tokens_per_s / theirs.estimate.predicted_tokens_per_s;
}

std::string why_slower(const planner::StepTime& best, const planner::StepTime& other) {
  size_t most = 0;
  for (size_t i = 0; i < best.parts.size(); ++i) {
    if (other.parts[i] - best.parts[i] > other.parts[most] - best.parts[most]) most = i;
  }
  const double more = other.parts[most] - best.parts[most];
  return fmt::format("{} takes {} more",
                     base::text_of(planner::named(static_cast<planner::TimePart>(most))),
                     base::format_ns(std::llround(more * 1e9)));
}

std::vector<spec::EngineGap> gaps_of_run(const planner::PlanRun& run) {
  std::vector<spec::EngineGap> gaps = spec::engine_gaps(*run.model);
  for (spec::EngineGap& gap : spec::engine_gaps(planner::computed_knobs(run))) {
    gaps.push_back(std::move(gap));
  }
  return gaps;
}

std::string engine_gaps_text(const PlanResult& result) {
  if (result.answer.best.empty()) return "";
  std::string text;
  std::string_view rule;
  const auto end_rule = [&] {
    if (!rule.empty()) text += fmt::format(" (rule {})", rule);
  };
  for (const spec::EngineGap& gap :
       gaps_of_run(run_with(result.question, result.answer.best.front()))) {
    const bool is_same = gap.rule == rule;
    if (!is_same) end_rule();
    if (!text.empty()) text += is_same ? ", " : "; ";
    text += gap.what;
    rule = gap.rule;
  }
  end_rule();
  return text.empty() ? "" : "the first has what moetune's own engine does not run yet: " + text;
}

std::string_view order_text(const Against& theirs) {
  if (theirs.missing_bytes <= 0) return "Each change alone:";
  const auto& changes = theirs.changes;
  if (std::ranges::none_of(changes, [](const KnobGain& change) { return change.is_within; })) {
    return "No change alone makes yours fit. Each alone, the least memory in front:";
  }
  const bool is_sure = std::ranges::any_of(
      changes, [](const KnobGain& change) { return change.verdict == Verdict::fits; });
  return is_sure ? "Each change alone, those that make yours fit in front:"
                 : "Each change alone, those that may make yours fit in front:";
}

namespace {

json layout_json(const PlanResult& result, const planner::PlannedConfig& config) {
  const std::string layout = planner::pipeline_layout_of(run_with(result.question, config));
  return layout.empty() ? json(nullptr) : json(layout);
}

void add_memory(const RunEstimate& estimate, std::string& text) {
  const planner::StageMemory& stage = estimate.memory.stages[static_cast<size_t>(estimate.stage)];
  text +=
      fmt::format("\nmemory of the first on rank {}, the first of stage {} (worst), in the {}:\n",
                  estimate.rank, estimate.stage, stage.moment);
  text += memory_text(estimate);
}

/// For which load it is said whether something fits.
std::string with_load(const planner::PlanQuestion& question) {
  return question.model->num_experts == 0 ? std::string()
                                          : fmt::format(", for a load of {:.2f}", question.load);
}

void add_nothing_fits(const PlanResult& result, std::string& text) {
  if (result.answer.nearest.empty()) {
    text += "nothing is legal\n";
    return;
  }
  const planner::PlannedConfig& least = result.answer.nearest.front();
  text += fmt::format("nothing fits: {:.1f} GiB are missing with the least of all\n",
                      missing_bytes(result.question, least.peak_bytes) / kGiB);
  for (const planner::PlannedConfig& config : result.answer.nearest) {
    text += fmt::format("  {}; {}: {:.1f} GiB missing\n", layout_text(config.knobs),
                        choices_text(run_with(result.question, config)),
                        missing_bytes(result.question, config.peak_bytes) / kGiB);
  }
  if (!result.ways_out.empty()) {
    text += fmt::format("ways out, each alone{}:\n", with_load(result.question));
  }
  const double before = missing_bytes(result.question, least.peak_bytes);
  const auto bytes = [](double count) { return base::format_bytes(std::llround(count)); };
  for (const WayOut& way : result.ways_out) {
    text += fmt::format("  {}: {}\n", way.what,
                        way.missing_bytes <= 0
                            ? std::string(way.is_tight ? "may fit" : "fits")
                            : fmt::format("{} missing, {} less", bytes(way.missing_bytes),
                                          bytes(before - way.missing_bytes)));
  }
}

/// The global batches that were looked at, as nobody gave one.
void add_batches(const PlanResult& result, std::string& text) {
  if (result.batches.empty()) return;
  text += "\nno global batch is given: the layout of the first with others\n";
  using Align = TextTable::Align;
  TextTable table({{"sequences", Align::right},
                   {"tokens", Align::right},
                   {"a step", Align::right},
                   {"tokens/s of a GPU", Align::right},
                   {"from, to"},
                   {"grade"},
                   {""}});
  const int64_t planned = result.question.global_batch_size;
  for (const BatchSpeed& batch : result.batches) {
    table.add({std::to_string(batch.global_batch_size),
               base::format_count(static_cast<double>(batch.global_batch_size) *
                                  static_cast<double>(result.question.seq_length)),
               base::format_ns(std::llround(batch.seconds.value * 1e9)),
               fmt::format("{:.0f}", batch.speed.tokens_per_s.value),
               range_text(batch.speed.tokens_per_s), batch.speed.grade,
               batch.global_batch_size == planned ? "planned for" : ""});
  }
  text += table.text(std::nullopt);
  const int64_t smallest = smallest_good_batch(result);
  text += fmt::format(
      "the smallest within 2 % of the fastest of these is {}{}; another batch may have a better "
      "layout, and what it does to the loss is not looked at\n",
      smallest, smallest == planned ? "" : fmt::format(" (--gbs {} plans for it)", smallest));
}

/// How much faster the first plan is, and by which measure.
std::string speed_text(const Against& theirs, const PlanResult& result) {
  const planner::PlanQuestion& asked = result.question;
  std::string text =
      fmt::format("the first plan is {:.2f} times as fast", speed_ratio(theirs, result));
  const bool is_alike = theirs.run.global_batch_size == asked.global_batch_size &&
                        theirs.run.seq_length == asked.seq_length;
  if (!is_alike) {
    text += fmt::format(
        " in tokens a second of a GPU (its step has {} sequences of {} tokens, yours {} of {})",
        asked.global_batch_size, asked.seq_length, theirs.run.global_batch_size,
        theirs.run.seq_length);
  }
  return text;
}

/// The way to the first plan. Its lines are not cut: flags are there to be copied.
void add_path(const planner::PlanQuestion& question, const std::vector<PathStep>& path,
              std::string& text) {
  if (path.empty()) return;
  text += fmt::format(
      "step by step, each with all steps before it{}; the first are what to change next:\n",
      with_load(question));
  text += path_text(path);
}

void add_against(const PlanResult& result, std::string& text) {
  const Against& theirs = *result.against;
  text += fmt::format(
      "\nyours: {}; {}\n  {:.0f} TFLOP/s a GPU ({:.0f} to {:.0f}), {} allocated on rank {} (stage "
      "{}), {}{}\n",
      layout_text(theirs.run.knobs), choices_text(theirs.run), theirs.estimate.tflops.value,
      theirs.estimate.tflops.low, theirs.estimate.tflops.high,
      base::format_bytes(std::llround(theirs.estimate.allocated_bytes.value)), theirs.estimate.rank,
      theirs.estimate.stage, name_of(theirs.estimate.verdict),
      load_words(theirs.run, theirs.estimate));
  if (theirs.missing_bytes > 0) {
    text += fmt::format("  {} of a device's memory are missing\n",
                        base::format_bytes(std::llround(theirs.missing_bytes)));
  }
  for (const std::string& note : theirs.notes) text += fmt::format("  note: {}\n", note);
  text += settings_text(theirs.settings);
  if (result.estimates.empty()) return;
  text += fmt::format("{}. {}\n", speed_text(theirs, result), order_text(theirs));
  for (const KnobGain& change : theirs.changes) add_change(change, text);
  add_path(result.question, theirs.path, text);
}

/// The best plans. Where a line does not fit, the choices of the first stand behind the table, too.
std::string plans_text(const PlanResult& r, std::optional<size_t> width) {
  using Align = TextTable::Align;
  std::vector<TextTable::Column> columns = {{"", Align::right},
                                            {"TFLOP/s", Align::right},
                                            {"from, to", Align::left, 4},
                                            {"tokens/s", Align::right, 1},
                                            {"peak", Align::right},
                                            {"load", Align::right, 3},
                                            {"wall", Align::left, 2},
                                            {"layout"},
                                            {"choices"}};
  // Of Megatron-Core's runs only what fits is a plan; torchtitan's are planned by the prediction.
  const bool has_verdicts = !r.question.is_of_megatron;
  if (has_verdicts) columns.insert(columns.begin() + 5, {"verdict"});
  TextTable table(std::move(columns));
  const bool has_experts = r.question.model->num_experts > 0;
  for (size_t i = 0; i < r.answer.best.size(); ++i) {
    const RunEstimate& estimate = r.estimates[i];
    std::vector<std::string> cells = {
        std::to_string(i + 1),
        fmt::format("{:.0f}", estimate.tflops.value),
        range_text(estimate.tflops),
        fmt::format("{:.0f}", estimate.tokens_per_s.value),
        base::format_bytes(std::llround(estimate.allocated_bytes.value)),
        has_experts ? load_text(estimate.load_that_fits) : std::string("-"),
        std::string(base::name_of(planner::wall_of(estimate.step))),
        layout_text(r.answer.best[i].knobs),
        choices_text(run_with(r.question, r.answer.best[i]))};
    if (has_verdicts) cells.insert(cells.begin() + 5, name_of(estimate.verdict));
    table.add(std::move(cells));
  }
  std::string text = table.text(width);
  if (width && text != table.text(std::nullopt)) {
    text += fmt::format("choices of the first: {}\n",
                        choices_text(run_with(r.question, r.answer.best.front())));
  }
  return text;
}

/// Of the first plan.
double played_over_priced(const PlanResult& result) {
  return 1e-9 * static_cast<double>(result.played->estimate.step_ns) /
         result.estimates.front().step.seconds;
}

}  // namespace

json to_json(const PlanResult& result) {
  json document = {{"plans", json::array()},
                   {"num_points", result.answer.num_points},
                   {"num_legal", result.answer.num_legal},
                   {"num_fit", result.answer.num_fit},
                   {"num_timed", result.answer.num_timed},
                   {"search_seconds", result.seconds},
                   {"nearest_misses", json::array()},
                   {"assumptions", result.assumptions},
                   {"memory_terms", memory_terms_json()}};
  for (size_t i = 0; i < result.answer.best.size(); ++i) {
    json plan = to_json(result.estimates[i]);
    plan["rank"] = i + 1;
    plan["knobs"] = to_json(result.answer.best[i].knobs);
    plan["pipeline_layout"] = layout_json(result, result.answer.best[i]);
    plan["engine_gaps"] = json::array();
    for (spec::EngineGap& gap : gaps_of_run(run_with(result.question, result.answer.best[i]))) {
      plan["engine_gaps"].push_back({{"rule", gap.rule}, {"what", std::move(gap.what)}});
    }
    if (i > 0) {
      plan["why_slower"] = why_slower(result.estimates.front().step, result.estimates[i].step);
    }
    if (i == 0 && result.played) {
      plan["played_step_time_ns"] = result.played->estimate.step_ns;
      plan["played_wall"] = base::name_of(result.played_wall);
    } else if (i > 0 && i <= result.played_others.size()) {
      plan["played_step_time_ns"] = result.played_others[i - 1].step_ns;
      plan["played_wall"] = base::name_of(result.played_others[i - 1].wall);
    }
    document["plans"].push_back(std::move(plan));
  }
  for (const planner::PlannedConfig& config : result.answer.nearest) {
    document["nearest_misses"].push_back(
        {{"knobs", to_json(config.knobs)},
         {"pipeline_layout", layout_json(result, config)},
         {"peak_allocated_bytes", std::llround(allocated_bytes(result.question, config))},
         {"missing_bytes", std::llround(missing_bytes(result.question, config.peak_bytes))}});
  }
  for (const WayOut& way : result.ways_out) {
    const Verdict verdict = way.is_tight ? Verdict::tight : Verdict::fits;
    document["ways_out"].push_back(
        {{"what", way.what},
         {"missing_bytes", std::llround(way.missing_bytes)},
         {"verdict", way.missing_bytes <= 0 ? json(name_of(verdict)) : json(nullptr)}});
  }
  for (const BatchSpeed& batch : result.batches) {
    json entry = {{"global_batch_size", batch.global_batch_size},
                  {"tokens", batch.global_batch_size * result.question.seq_length},
                  {"is_planned", batch.global_batch_size == result.question.global_batch_size}};
    put_whole(entry, "step_time_ns", scaled(batch.seconds, 1e9));
    put_speed(batch.speed, entry);
    document["batches"].push_back(std::move(entry));
  }
  if (!result.batches.empty()) document["smallest_good_batch"] = smallest_good_batch(result);
  for (const KnobGain& change : result.helps) document["helps"].push_back(change_json(change));
  for (const ThumbOpinion& thumb : result.thumbs) {
    document["rules_of_thumb"].push_back(
        {{"name", thumb.name},
         {"says", thumb.says},
         {"agrees", thumb.agrees},
         {"cost_ratio", thumb.cost_ratio ? json(*thumb.cost_ratio) : json(nullptr)}});
  }
  if (result.played) {
    document["played"] = {{"step_time_ns", result.played->estimate.step_ns},
                          {"seconds", result.play_seconds},
                          {"parts_ns", result.played->estimate.parts_ns},
                          {"wall", base::name_of(result.played_wall)},
                          {"num_records", result.played->num_records},
                          {"priced_ratio", played_over_priced(result)},
                          {"left_out", result.not_in_played}};
  }
  if (result.against) {
    json against = to_json(result.against->estimate);
    against["knobs"] = to_json(result.against->run.knobs);
    against["missing_bytes"] = std::llround(result.against->missing_bytes);
    against["speed_ratio"] =
        result.estimates.empty() ? json(nullptr) : json(speed_ratio(*result.against, result));
    against["changes"] = json::array();
    for (const KnobGain& change : result.against->changes) {
      against["changes"].push_back(change_json(change));
    }
    against["path"] = json::array();
    for (const PathStep& step : result.against->path) {
      against["path"].push_back(step_json(step, capacity_of(result.question)));
    }
    against["notes"] = result.against->notes;
    add_settings(result.against->settings, against);
    document["against"] = std::move(against);
  }
  if (result.published) add_like_runs(*result.published, document);
  return document;
}

std::string to_text(const PlanResult& result, std::optional<size_t> width) {
  const PlanResult& r = result;
  std::string text = fmt::format(
      "{} devices of {}, sequence {}, global batch {}\n{} points, {} legal, {} {}; searched in "
      "{:.1f} s\n",
      r.question.hardware->num_devices(), r.question.hardware->name, r.question.seq_length,
      r.question.global_batch_size, r.answer.num_points, r.answer.num_legal, r.answer.num_fit,
      r.question.is_of_megatron ? "fit" : "fit as predicted", r.seconds);
  for (const std::string& assumption : r.assumptions) text += "assumed: " + assumption + "\n";
  text += '\n';
  if (r.answer.best.empty()) {
    add_nothing_fits(r, text);
    if (r.against) add_against(r, text);
    if (r.published) text += to_text(*r.published);
    return text;
  }
  const bool has_experts = r.question.model->num_experts > 0;
  text += plans_text(r, width);
  text += fmt::format("TFLOP/s and tokens/s are of one GPU ({}).{}\n", r.estimates.front().grade,
                      has_experts ? " load: fits while the busiest rank's experts get at most so "
                                    "many times their share."
                                  : "");
  text += fmt::format("the first: {}\n", margin_text(r.estimates.front()));
  if (const std::string gaps = engine_gaps_text(r); !gaps.empty()) text += gaps + '\n';
  add_memory(r.estimates.front(), text);
  text += "\nwhere the step of the first goes:\n";
  const planner::StepTime& step = r.estimates.front().step;
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const double share = step.parts[i] / step.seconds;
    if (share < 0.005) continue;
    text +=
        fmt::format("  {:28} {:5.1f} %\n",
                    base::text_of(planner::named(static_cast<planner::TimePart>(i))), 100 * share);
  }
  if (r.estimates.size() > 1) {
    text += fmt::format(
        "the second is {:.1f} % slower: {}\n",
        100 * (r.estimates[1].step_seconds.value / r.estimates[0].step_seconds.value - 1),
        why_slower(r.estimates[0].step, r.estimates[1].step));
  }
  if (r.played) {
    text += fmt::format(
        "\nplayed as a step of moetune's own engine, one rank a stage, in {:.1f} s: {}, wall {}\n",
        r.play_seconds, base::format_ns(r.played->estimate.step_ns), base::name_of(r.played_wall));
    text += fmt::format("that is {:.2f} times the price above", played_over_priced(r));
    text += r.not_in_played.empty()
                ? ""
                : fmt::format("; left out of it: {}", fmt::join(r.not_in_played, ", "));
    text += '\n';
    for (const auto& [part, ns] : r.played->estimate.parts_ns) {
      const double share =
          static_cast<double>(ns) / static_cast<double>(r.played->estimate.step_ns);
      const std::optional<base::NamedPart> named = base::part_from_name(part);
      if (named && share >= 0.005) {
        text += fmt::format("  {:28} {:5.1f} %\n", base::text_of(*named), 100 * share);
      }
    }
    for (size_t i = 0; i < r.played_others.size(); ++i) {
      const PlayedPlan& other = r.played_others[i];
      text += fmt::format("plan {}, played in {:.1f} s: {}, wall {}\n", i + 2, other.seconds,
                          base::format_ns(other.step_ns), base::name_of(other.wall));
    }
  }
  if (!r.thumbs.empty()) text += "\nrules of thumb:\n";
  for (const ThumbOpinion& thumb : r.thumbs) {
    text += fmt::format("  {} {}{}\n", thumb.agrees ? "agrees:  " : "differs: ", thumb.says,
                        thumb.cost_ratio && !thumb.agrees
                            ? fmt::format(" Keeping to it costs {:.1f} %.", 100 * *thumb.cost_ratio)
                            : std::string());
  }
  add_batches(r, text);
  if (!r.helps.empty()) text += "\nwhat would help, one change of what was asked:\n";
  for (const KnobGain& change : r.helps) add_change(change, text);
  if (r.against) add_against(r, text);
  if (r.published) text += to_text(*r.published);
  return text;
}

}  // namespace moetune::sweeps
