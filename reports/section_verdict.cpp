// Section "verdict": the answer first, in one sentence and six figures, and the command that
// repeats it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/store/verdict.h"
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

// The device's memory, as the trial's own spec says; 0: unlimited or not known.
int64_t capacity_of(const TrialRow& trial) {
  const json spec = json::parse(trial.spec_json, nullptr, false);
  if (!spec.is_object() || !spec.contains("hardware") || !spec["hardware"].is_object()) {
    return 0;
  }
  const auto& hardware = spec["hardware"];
  const auto found = hardware.find("memory_bytes");
  return found != hardware.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Over the first configuration that fitted, when both are known.
std::optional<store::Gain> gain_of(const Context& context, const TrialRow& winner) {
  const TrialRow* first = context.at(context.first_fit);
  if (first == nullptr) return std::nullopt;
  return store::gain_over_first_fit(context.decisions, winner, *first);
}

std::string memory_card(const TrialRow& winner) {
  const int64_t capacity = capacity_of(winner);
  if (!winner.peak_bytes || capacity <= 0) {
    return card("Peak memory", bytes_text(winner.peak_bytes), "fullest rank");
  }
  const double share = static_cast<double>(*winner.peak_bytes) / static_cast<double>(capacity);
  const std::string note = fmt::format(
      "{:.1f} % of {} on the fullest rank<span class=\"meter\" aria-hidden=\"true\"><span "
      "style=\"width:{:.1f}%\"></span></span>",
      100 * share, bytes_text(capacity), std::clamp(100 * share, 0.0, 100.0));
  return card("Peak memory", bytes_text(winner.peak_bytes), note);
}

bool has_failed_validation(const Context& context, const TrialRow& winner) {
  return store::validation_of(context.decisions, winner).is_passed == false;
}

std::string cards(const SectionInput& input, const TrialRow& winner) {
  const Context& context = input.context;
  const TrialRow* first = context.at(context.first_fit);
  const bool has_failed = has_failed_validation(context, winner);
  std::string html = fmt::format("<dl class=\"cards{}\">\n", has_failed ? " unvalidated" : "");
  const std::optional<store::Gain> gain = gain_of(context, winner);
  const bool has_gain_interval = gain && gain->low_ratio && gain->high_ratio;
  const std::string interval =
      has_gain_interval
          ? fmt::format("{} to {}×; ", number_text(store::speedup_of(*gain->low_ratio), 2),
                        number_text(store::speedup_of(*gain->high_ratio), 2))
          : "";
  html += card(has_failed ? "Not validated: gain of short trials" : "Gain over the first fit",
               gain ? number_text(store::speedup_of(gain->ratio), 2) + "×" : "–",
               first == nullptr ? "nothing fitted before"
                                : fmt::format("{}{} took {} a step", interval,
                                              trial_link(first->ordinal), ns_text(first->step_ns)));
  // Where operations are measured on this machine, the emulated device's peak says nothing about
  // them.
  const bool has_mfu = spec_text(winner, "clock") != "virtual_measured";
  const std::optional<double> mfu = has_mfu ? metric(input.rows, "mfu_ratio") : std::nullopt;
  html += card("Throughput", count_text(winner.tokens_per_s),
               "tokens per second" + (mfu ? fmt::format(", MFU {:.1f} %", 100 * *mfu) : ""));
  const bool has_interval = winner.step_ns_low && winner.step_ns_high;
  html += card("Step time", ns_text(winner.step_ns),
               has_interval ? fmt::format("{} to {}, interval of the median",
                                          ns_text(winner.step_ns_low), ns_text(winner.step_ns_high))
                            : "median of the timed steps");
  html += memory_card(winner);
  const TrialRow* traced = context.at(context.traced);
  const std::string wall = winner.wall.empty() && traced != nullptr ? traced->wall : winner.wall;
  html += card("Binding wall", wall_badge(wall), "what limits the winner now");
  html += card("Loss reached", number_text(winner.loss_final, 3),
               is_fake_world(winner) ? "made up: one rank alone" : "nats per token, last step");
  return html + "</dl>\n";
}

std::string headline(const Context& context, const TrialRow& winner) {
  const TrialRow* first = context.at(context.first_fit);
  const std::optional<store::Gain> gain = gain_of(context, winner);
  std::string text = fmt::format("<p class=\"headline\">Trial {} ", trial_link(winner.ordinal));
  if (has_failed_validation(context, winner)) {
    text += "was the fastest in short trials";
    if (gain && first != &winner) {
      text += fmt::format(" ({}× as fast as the first configuration that fitted)",
                          number_text(store::speedup_of(gain->ratio), 2));
    }
    text += ", but <strong>is not validated</strong>";
  } else if (gain && first != &winner) {
    text += fmt::format("trains <strong>{} as fast</strong> as the first configuration that fitted",
                        number_text(store::speedup_of(gain->ratio), 2) + "×");
  } else {
    text += "is the configuration to use";
  }
  text += ".";
  const TrialRow* baseline = context.at(context.baseline);
  if (baseline != nullptr && baseline != &winner && baseline->status != "ok") {
    const std::string_view words = status_words(baseline->status);
    const bool is_said = words.empty() || baseline->reason.find(words) != std::string::npos;
    text += fmt::format(" The configuration it started from ({}) ended as {}{}{}.",
                        trial_link(baseline->ordinal), status_badge(baseline->status),
                        is_said ? "" : fmt::format(" ({})", escape(words)),
                        baseline->reason.empty() ? "" : ": " + escape(baseline->reason));
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
std::string unconfirmed_notice(const Context& context, const TrialRow& winner) {
  if (winner.phase == "validate" || context.sweep.status != "done" || context.decisions.empty()) {
    return "";
  }
  const store::Validation validation = store::validation_of(context.decisions, winner);
  return fmt::format("<p class=\"notice\"><strong>{}</strong> {}</p>\n",
                     validation.is_passed == false
                         ? "This configuration did not pass its validation."
                         : "No long run has confirmed this configuration.",
                     escape(validation.text));
}

std::string changes_table(const Context& context, const TrialRow& winner) {
  const TrialRow* baseline = context.at(context.baseline);
  if (baseline == nullptr || baseline == &winner) {
    return "";
  }
  const std::vector<KnobChange> changes = knob_changes(*baseline, winner);
  if (changes.empty()) {
    return "<p>The winner has the same knobs as the configuration the sweep started from.</p>\n";
  }
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>What differs from the starting "
      "configuration</caption>"
      "<thead><tr><th>knob</th><th>start</th><th>winner</th></tr></thead><tbody>\n";
  for (const KnobChange& change : changes) {
    html +=
        fmt::format("<tr><td><code>{}</code></td><td>{}</td><td><strong>{}</strong></td></tr>\n",
                    breakable(change.name), breakable(change.before), breakable(change.after));
  }
  return html + "</tbody></table></div>\n";
}

std::string knobs_json(const TrialRow& winner) {
  nlohmann::ordered_json knobs = nlohmann::ordered_json::object();
  const json spec = json::parse(winner.spec_json, nullptr, false);
  const bool has_typed = spec.is_object() && spec.contains("knobs") && spec["knobs"].is_object();
  for (const store::NamedText& knob : winner.knobs) {
    if (has_typed && spec["knobs"].contains(knob.name)) {
      knobs[knob.name] = spec["knobs"][knob.name];
    } else {
      knobs[knob.name] = knob.value;
    }
  }
  return knobs.dump(2, ' ', false, json::error_handler_t::replace);
}

// The spec on one line between quoted marks: nothing in it is expanded by the shell.
std::string trial_command(const Context& context, const TrialRow& winner) {
  const json spec = json::parse(winner.spec_json, nullptr, false);
  if (!spec.is_object()) {
    return "";
  }
  // A sweep's own launcher is not known here.
  const auto communicator = spec.find("communicator");
  const bool is_several = communicator != spec.end() && *communicator == "nccl";
  return fmt::format(
      "cat > winner.json <<'END_OF_SPEC'\n{}\nEND_OF_SPEC\nmoetune trial winner.json{}\n",
      seen_from(context.folder, spec.dump(-1, ' ', true, json::error_handler_t::replace)),
      is_several ? "  # and --launch COMMAND, where the sweep had it" : "");
}

}  // namespace

std::string render_verdict(const SectionInput& input) {
  const Context& context = input.context;
  const TrialRow* winner = context.at(context.winner);
  std::string html;
  if (context.sweep.status != "done") {
    html += fmt::format(
        "<p class=\"notice\">This sweep is <strong>{}</strong>: what follows is what it had stored "
        "so far. The same command resumes it; while it runs with --report, load this page "
        "again.</p>\n",
        escape(context.sweep.status));
  }
  if (winner == nullptr) {
    return html +
           "<p class=\"headline\">No configuration has run to its end yet. The trials below say "
           "why.</p>\n" +
           layout_words(nullptr);
  }
  html += unconfirmed_notice(context, *winner);
  html += headline(context, *winner) + layout_words(winner) + cards(input, *winner);
  html += winner_reason(context, *winner);
  html += "<div class=\"columns\">\n<div>\n";
  if (!context.sweep.command_line.empty()) {
    html +=
        copy_box("copy-sweep", "Repeat the sweep (into another --db to measure everything again)",
                 typed_command(context.sweep.command_line).command);
  }
  html += (context.flags.empty()
               ? ""
               : copy_box("copy-flags", "The winner as flags for Megatron-LM", context.flags));
  html += copy_box("copy-knobs", "Knobs of the winner", knobs_json(*winner));
  html += "</div>\n<div>\n" + changes_table(context, *winner);
  const std::string command = trial_command(context, *winner);
  if (!command.empty()) {
    html += "<details><summary>Repeat the winning trial alone</summary>\n" +
            copy_box("copy-trial", "Paste into a shell in the sweep's folder", command) +
            "</details>\n";
  }
  return html + "</div>\n</div>\n";
}

}  // namespace moetune::reports
