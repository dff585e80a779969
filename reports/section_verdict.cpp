// Section "verdict": the answer first, in one sentence and six figures, and the command that
// repeats it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "profiler/store/trial_statuses.h"
#include "profiler/store/untrusted_json.h"
#include "profiler/store/verdict.h"
#include "reports/engine_boxes.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/local_paths.h"
#include "reports/sections.h"
#include "reports/winner_reason.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using store::TrialRow;

std::optional<double> metric(const Rows& rows, std::string_view name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.text(i, "name") == name) {
      return rows.real(i, "value");
    }
  }
  return std::nullopt;
}

// Over the first configuration that fitted, when both are known.
std::optional<store::Gain> gain_of(const Context& context, const TrialRow& trial) {
  const TrialRow* first = context.at(context.first_fit);
  if (first == nullptr) return std::nullopt;
  return store::gain_over_first_fit(context.decisions, trial, *first);
}

std::string memory_card(const TrialRow& trial) {
  const int64_t capacity = device_bytes_of(trial);
  if (!trial.peak_bytes || capacity <= 0) {
    return card("Peak memory", bytes_text(trial.peak_bytes), "fullest rank");
  }
  const double share = static_cast<double>(*trial.peak_bytes) / static_cast<double>(capacity);
  const std::string note = fmt::format(
      "{:.1f} % of {} on the fullest rank<span class=\"meter\" aria-hidden=\"true\"><span "
      "style=\"width:{:.1f}%\"></span></span>",
      100 * share, bytes_text(capacity), std::clamp(100 * share, 0.0, 100.0));
  return card("Peak memory", bytes_text(trial.peak_bytes), note);
}

bool has_failed_validation(const Context& context, const TrialRow& trial) {
  return store::validation_of(context.decisions, trial).is_passed == false;
}

std::string cards(const SectionInput& input, const TrialRow& trial) {
  const Context& context = input.context;
  const TrialRow* first = context.at(context.first_fit);
  const bool has_failed = has_failed_validation(context, trial);
  std::string html = fmt::format("<dl class=\"cards{}\">\n", has_failed ? " unvalidated" : "");
  const std::optional<store::Gain> gain = gain_of(context, trial);
  const bool has_gain_interval = gain && gain->low_ratio && gain->high_ratio;
  const std::string interval =
      has_gain_interval
          ? fmt::format("{} to {}×; ", number_text(store::speedup_of(*gain->low_ratio), 2),
                        number_text(store::speedup_of(*gain->high_ratio), 2))
          : "";
  // The long run's step, beside it, is another.
  const bool compared =
      gain && gain->step_ns && gain->first_fit_step_ns && gain->step_ns != trial.step_ns;
  html += card(has_failed ? "Not validated: speedup in short trials" : "Speedup over the first fit",
               gain ? number_text(store::speedup_of(gain->ratio), 2) + "×" : "–",
               first == nullptr
                   ? "nothing fitted before"
                   : fmt::format("{}{} took {} a step{}", interval, trial_link(first->ordinal),
                                 ns_text(compared ? gain->first_fit_step_ns : first->step_ns),
                                 compared ? fmt::format(", this one {} in short runs",
                                                        ns_text(gain->step_ns))
                                          : ""));
  // Where operations are measured on this machine, the emulated device's peak says nothing about
  // them.
  const bool has_mfu = spec_text(trial, "clock") != "virtual_measured";
  const std::optional<double> mfu = has_mfu ? metric(input.rows, "mfu_ratio") : std::nullopt;
  html += card("Throughput", count_text(trial.tokens_per_s),
               "tokens per second" + (mfu ? fmt::format(", MFU {:.1f} %", 100 * *mfu) : ""));
  const bool has_interval = trial.step_ns_low && trial.step_ns_high;
  html += card("Step time", ns_text(trial.step_ns),
               has_interval ? fmt::format("{} to {}, interval of the median",
                                          ns_text(trial.step_ns_low), ns_text(trial.step_ns_high))
                            : "median of the timed steps");
  html += memory_card(trial);
  const TrialRow* traced = context.at(context.traced);
  const std::string wall = trial.wall.empty() && traced != nullptr ? traced->wall : trial.wall;
  html += card("Binding wall", wall_badge(wall),
               context.has_won(trial) ? "what limits the winner now" : "what limits it now");
  html += card("Loss reached", number_text(trial.loss_final, 3),
               is_fake_world(trial) ? "made up: one rank alone" : "nats per token, last step");
  return html + "</dl>\n";
}

// "oom (out of memory): rank 0: ...": the words only where the reason does not say them.
std::string ending_of(const TrialRow& trial) {
  const std::string_view words = status_words(trial.status);
  const bool is_said = words.empty() || trial.reason.find(words) != std::string::npos;
  return fmt::format("{}{}{}", status_badge(trial.status),
                     is_said ? "" : fmt::format(" ({})", escape(words)),
                     trial.reason.empty() ? "" : ": " + escape(trial.reason));
}

// Of a trial that was asked for and did not win: what did instead, how it ended, how fast it is.
std::string other_headline(const Context& context, const TrialRow& trial) {
  const TrialRow* winner = context.at(context.winner);
  const TrialRow* first = context.at(context.first_fit);
  const std::optional<store::Gain> gain = gain_of(context, trial);
  std::string text = fmt::format("Trial {}, as asked for; ", trial_link(trial.ordinal));
  if (winner == nullptr) {
    text += "there is no winner.";
  } else if (context.is_refused) {
    text += fmt::format("trial {}, the fastest in short trials, is not validated.",
                        trial_link(winner->ordinal));
  } else {
    text += fmt::format("the winner is trial {}.", trial_link(winner->ordinal));
  }
  if (trial.status != "ok") {
    text += fmt::format(" It ended as {}.", ending_of(trial));
  } else if (gain && first != &trial && !is_reference(trial)) {
    text += fmt::format(
        " It trains <strong>{}× as fast</strong> as the first configuration that fitted.",
        number_text(store::speedup_of(gain->ratio), 2));
  }
  return fmt::format("<p class=\"headline\">{}</p>\n", text);
}

std::string headline(const Context& context, const TrialRow& trial) {
  if (!context.is_winner(trial)) return other_headline(context, trial);
  const TrialRow* first = context.at(context.first_fit);
  const std::optional<store::Gain> gain = gain_of(context, trial);
  std::string text = fmt::format("<p class=\"headline\">Trial {} ", trial_link(trial.ordinal));
  if (has_failed_validation(context, trial)) {
    text += "was the fastest in short trials";
    if (gain && first != &trial) {
      text += fmt::format(" ({}× as fast as the first configuration that fitted)",
                          number_text(store::speedup_of(gain->ratio), 2));
    }
    text += ", but <strong>is not validated</strong>";
  } else if (gain && first != &trial) {
    text += fmt::format("trains <strong>{} as fast</strong> as the first configuration that fitted",
                        number_text(store::speedup_of(gain->ratio), 2) + "×");
  } else {
    text += "is the configuration to use";
  }
  text += ".";
  const TrialRow* baseline = context.at(context.baseline);
  if (baseline != nullptr && baseline != &trial && baseline->status != "ok") {
    text += fmt::format(" The configuration it started from ({}) ended as {}.",
                        trial_link(baseline->ordinal), ending_of(*baseline));
  }
  return text + "</p>\n";
}

// The short names of the process grid, with the trial's sizes where there is one, in plain words.
std::string layout_words(const TrialRow* trial) {
  std::string items;
  for (const LayoutSize& size : kLayoutSizes) {
    const std::string value = trial == nullptr ? "" : knob_of(*trial, size.knob);
    const bool is_told = trial == nullptr || (!value.empty() && value != "1");
    if (!is_told && (value.empty() || !size.is_always_told)) continue;
    items += fmt::format("<li><b>{}{}{}</b> {}</li>\n", size.label, value.empty() ? "" : " ",
                         escape(value), size.words);
  }
  return items.empty() ? "" : fmt::format("<ul class=\"layout\">\n{}</ul>\n", items);
}

// A sweep that is done, but whose long run did not hold (or never was), must not look like a
// success.
std::string unconfirmed_notice(const Context& context, const TrialRow& trial) {
  const store::Validation validation = store::validation_of(context.decisions, trial);
  if (validation.is_passed == true && validation.is_slower) {
    return fmt::format("<p class=\"notice\"><strong>Slower in the long run.</strong> {}</p>\n",
                       escape(validation.text));
  }
  if (trial.phase == name_of(store::Phase::validate) ||
      context.sweep.status != store::SearchStatus::done || context.decisions.empty()) {
    return "";
  }
  // Another trial than the winner looks like no success, and had no long run to wait for.
  if (!context.is_winner(trial) && validation.is_passed != false) return "";
  return fmt::format("<p class=\"notice\"><strong>{}</strong> {}</p>\n",
                     validation.is_passed == false
                         ? "This configuration did not pass its validation."
                         : "No long run has confirmed this configuration.",
                     escape(validation.text));
}

// Why a failed sweep ended, as it printed it: where a trial could not be started at all, its row
// says it. Plain text without a full stop; empty where nothing says it.
std::string failure_of(const Context& context) {
  if (context.sweep.status != store::SearchStatus::failed) return "";
  std::string failure;
  std::string ended;
  for (const TrialRow& trial : context.trials) {
    if (trial.status != store::kTrialInterrupted || trial.reason.empty() || trial.ended_at < ended)
      continue;
    failure = trial.reason;
    ended = trial.ended_at;
  }
  while (failure.ends_with('.') || failure.ends_with(' ')) failure.pop_back();
  return failure;
}

std::string capitalised(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string changes_table(const Context& context, const TrialRow& trial) {
  const TrialRow* baseline = context.at(context.baseline);
  if (baseline == nullptr || baseline == &trial) {
    return "";
  }
  const std::vector<KnobChange> changes = knob_changes(*baseline, trial);
  if (changes.empty()) {
    return fmt::format(
        "<p>{} has the same knobs as the configuration the sweep started from.</p>\n",
        capitalised(context.name_of(trial)));
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><caption>What differs from the starting "
      "configuration</caption>"
      "<thead><tr><th>knob</th><th>start</th><th>{}</th></tr></thead><tbody>\n",
      context.has_won(trial) ? "winner" : context.name_of(trial));
  for (const KnobChange& change : changes) {
    html +=
        fmt::format("<tr><td><code>{}</code></td><td>{}</td><td><strong>{}</strong></td></tr>\n",
                    breakable(change.name), breakable(change.before), breakable(change.after));
  }
  return html + "</tbody></table></div>\n";
}

std::string knobs_json(const TrialRow& trial) {
  nlohmann::ordered_json knobs = nlohmann::ordered_json::object();
  const json spec = store::parse_untrusted(trial.spec_json);
  const bool has_typed = spec.is_object() && spec.contains("knobs") && spec["knobs"].is_object();
  for (const store::NamedText& knob : trial.knobs) {
    if (has_typed && spec["knobs"].contains(knob.name)) {
      knobs[knob.name] = spec["knobs"][knob.name];
    } else {
      knobs[knob.name] = knob.value;
    }
  }
  return knobs.dump(2, ' ', false, json::error_handler_t::replace);
}

/// The path of a trial's text as it may stand on the page.
struct TextPath {
  std::string told;
  bool is_whole = true;  ///< false: only its last part is told
};

// A path below the sweep's folder is told from there, and a relative one stays as it is, so that
// the paste finds the text. Any other would tell strangers the folders of a machine.
TextPath text_path(const std::string& folder, const std::string& stored) {
  const std::filesystem::path path(stored);
  if (path.is_relative()) return {stored};
  const bool is_known = folder.size() > 1;
  const std::filesystem::path below = is_known ? path.lexically_relative(folder) : "";
  if (!below.empty() && *below.begin() != "..") return {below.string()};
  const bool is_folder = path.filename().empty();
  return {(is_folder ? path.parent_path() : path).filename().string(), false};
}

// A box with the spec on one line between quoted marks: nothing in it is expanded by the shell.
std::string trial_box(const Context& context, const TrialRow& trial) {
  json spec = store::parse_untrusted(trial.spec_json);
  if (!spec.is_object()) {
    return "";
  }
  TextPath text;
  if (const auto path = spec.find("data_path"); path != spec.end() && path->is_string()) {
    text = text_path(context.folder, path->get<std::string>());
    *path = text.told;
  }
  // A sweep's own launcher is not known here.
  const auto communicator = spec.find("communicator");
  const bool is_several = communicator != spec.end() && *communicator == "nccl";
  const bool is_winner = context.has_won(trial);
  const std::string command = fmt::format(
      "cat > {0}.json <<'END_OF_SPEC'\n{1}\nEND_OF_SPEC\nmoetune trial {0}.json{2}\n",
      is_winner ? "winner" : "trial",
      seen_from(context.folder, spec.dump(-1, ' ', true, json::error_handler_t::replace)),
      is_several ? "  # and --launch COMMAND, where the sweep had it" : "");
  const std::string missing =
      text.is_whole
          ? ""
          : fmt::format(
                "<p class=\"note\">Put in the path of <code>{}</code> at <code>data_path</code> "
                "first: a report holds no absolute path. "
                "moetune's own texts are found by their names.</p>\n",
                escape(text.told));
  return fmt::format("<details><summary>Repeat {} alone</summary>\n{}{}</details>\n",
                     is_winner ? "the winning trial" : context.name_of(trial), missing,
                     copy_box("copy-trial", "Paste into a shell in the sweep's folder", command));
}

}  // namespace

std::string render_verdict(const SectionInput& input) {
  const Context& context = input.context;
  const TrialRow* trial = context.at(context.shown);
  std::string html;
  const std::string failure = escape(failure_of(context));
  if (context.sweep.status != store::SearchStatus::done) {
    html += fmt::format(
        "<p class=\"notice\">This sweep is <strong>{}</strong>{}: what follows is what it had "
        "stored so far. {}</p>\n",
        context.waits_for_tell ? "waiting for tell" : name_of(context.sweep.status),
        trial == nullptr || failure.empty() ? "" : fmt::format(" ({})", failure),
        context.waits_for_tell
            ? "<code>moetune sweep --dry-run</code> names the command that somebody has to run."
            : "The same command resumes it; while it runs with --report, load this page again.");
  }
  if (trial == nullptr) {
    return html +
           fmt::format("<p class=\"headline\">No configuration has run to its end yet{}</p>\n",
                       failure.empty() ? ". The trials below say why." : ": " + failure + ".") +
           layout_words(nullptr);
  }
  html += unconfirmed_notice(context, *trial);
  html += headline(context, *trial) + layout_words(trial) + cards(input, *trial);
  html += winner_reason(context, *trial);
  html += "<div class=\"columns\">\n<div>\n";
  if (!context.sweep.command_line.empty()) {
    html += command_box("copy-sweep",
                        "Repeat the sweep (into another --db to measure everything again)",
                        typed_command(context.sweep.command_line).command);
  }
  const std::string name = context.name_of(*trial);
  const bool is_foreign = is_of_another_engine(*trial);
  const std::string flags =
      is_foreign ? engine_settings_box(*trial, capitalised(name))
      : context.flags.empty()
          ? ""
          : copy_box("copy-flags", capitalised(name) + " as flags for Megatron-LM", context.flags);
  // On paper the flags tell them.
  const std::string knobs = copy_box("copy-knobs", "Knobs of " + name, knobs_json(*trial));
  html += flags + (flags.empty() ? knobs : "<div class=\"on-screen\">\n" + knobs + "</div>\n");
  html += "</div>\n<div>\n" + changes_table(context, *trial) +
          (is_foreign ? engine_command_box(context, *trial) : trial_box(context, *trial));
  return html + "</div>\n</div>\n";
}

}  // namespace moetune::reports
