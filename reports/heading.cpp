// Title, subtitle and origin of the page, put together from the sweep's row and its environments.
#include "reports/heading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"

namespace moetune::reports {
namespace {

constexpr size_t kMostHeadingBytes = 120;

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "2026-11-23 13:04"; empty where the text is no time of day as the store writes them.
std::string minute_of(const std::string& utc) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd";
  if (utc.size() < kForm.size()) return "";
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(utc[i])) != 0;
    if (kForm[i] == 'd' ? !is_digit : utc[i] != kForm[i]) return "";
  }
  return utc.substr(0, 10) + " " + utc.substr(11, 5);
}

// From the start to the end, the day once where both are on one.
std::string period(const std::string& started, const std::string& ended) {
  const std::string from = minute_of(started);
  std::string to = minute_of(ended);
  if (from.empty()) return "";
  if (to.substr(0, 10) == from.substr(0, 10)) to = to.substr(11);
  const bool is_moment = to.empty() || from.ends_with(to);
  return from + (is_moment ? "" : " to " + to) + " UTC";
}

// The trial that the page's figures are of, else any that says how it was run.
const store::TrialRow* shown_trial(const Context& context) {
  for (const int position : {context.shown, context.traced}) {
    if (context.at(position) != nullptr) return context.at(position);
  }
  return context.trials.empty() ? nullptr : &context.trials.front();
}

// Where the shown trial was measured; else where the sweep ran last.
const store::EnvironmentRow* environment_of(const Context& context) {
  if (const store::TrialRow* trial = shown_trial(context)) {
    for (const store::MeasurementRow& run : context.counted_runs(*trial)) {
      if (const auto* environment = context.environment_of(run)) return environment;
    }
  }
  return context.environments.empty() ? nullptr : &context.environments.back();
}

std::string machine_of(const Context& context) {
  const store::EnvironmentRow* environment = environment_of(context);
  if (environment == nullptr) return "";
  std::vector<std::string> parts;
  for (const auto& [name, unit] : {std::pair{"host", ""}, std::pair{"cpu", ""},
                                   std::pair{"cores", " cores"}, std::pair{"memory", ""}}) {
    const std::string value = environment->value(name);
    if (!value.empty()) parts.push_back(escape(shortened(value, kMostHeadingBytes)) + unit);
  }
  const std::string launched_from = environment->value("launched_from");
  if (!launched_from.empty()) {
    parts.push_back("launched from " + escape(shortened(launched_from, kMostHeadingBytes)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Whether any run has ended well: before that nothing on the page was measured.
bool has_measured(const Context& context) {
  const auto is_ok = [](const auto& row) { return row.status == "ok"; };
  return std::ranges::any_of(context.trials, is_ok) ||
         std::ranges::any_of(context.measurements, [&](const auto& runs_of_trial) {
           return std::ranges::any_of(runs_of_trial.second, is_ok);
         });
}

// How the times of the page came about, and on what.
std::string clock_of(const Context& context) {
  const store::TrialRow* trial = shown_trial(context);
  const auto measured = [&](const std::string& how) {
    return has_measured(context)
               ? fmt::format("<strong>measured {}</strong>", how)
               : fmt::format("<strong>to be measured {}</strong>: nothing has run to its end yet",
                             how);
  };
  const std::string engine = trial == nullptr ? "" : spec_text(*trial, "engine");
  if (!engine.empty()) {
    return measured("by runs of " + escape(shortened(engine, kMostHeadingBytes)));
  }
  const std::string clock = trial == nullptr ? "" : spec_text(*trial, "clock");
  if (clock == "virtual_measured") return "<strong>emulated, virtual time</strong>";
  if (clock == "virtual_modelled") return "<strong>modelled, virtual time</strong>";
  if (clock != "wall") return "";
  // The hardware file says how the GPU is described; which card it was is not stored.
  const bool is_cpu = spec_text(*trial, "backend") == "cpu" || context.sweep.hardware_name.empty();
  const std::string device =
      is_cpu ? "the processor of this machine"
             : "GPU hardware described as " +
                   escape(shortened(context.sweep.hardware_name, kMostHeadingBytes));
  return measured("on " + device) + (is_fake_world(*trial) ? ", one rank alone" : "");
}

}  // namespace

std::string title_of(const Context& context) {
  if (!context.has_sweep) {
    const Hunt& hunt = context.hunts.front();
    return fmt::format("{} changed {}?", hunt.has_commits() ? "Which commit" : "What",
                       hunt.row.metric);
  }
  return context.sweep.name.empty() ? fmt::format("sweep {}", context.sweep.id)
                                    : context.sweep.name;
}

std::string subtitle_of(const Context& context) {
  if (!context.has_sweep) {
    const std::string& repository = context.hunts.front().row.repository;
    return fmt::format("{}{}{}", repository, repository.empty() ? "" : " · ",
                       counted(context.num_hunts, "hunt"));
  }
  std::string text = context.sweep.model_name;
  if (!context.sweep.hardware_name.empty()) {
    text += (text.empty() ? "" : " on ") + context.sweep.hardware_name;
  }
  return fmt::format("{}{}{}{}", text, text.empty() ? "" : " · ",
                     counted(static_cast<int64_t>(context.trials.size()), "trial"),
                     context.is_forced ? fmt::format(" · {}", kForcedBalancing) : "");
}

std::string origin_of(const Context& context) {
  std::vector<std::string> parts;
  if (context.has_sweep) {
    // A running sweep has no end yet: the page is as old as the last trial in it.
    std::string ended = context.sweep.ended_at;
    for (const store::TrialRow& trial : context.trials) {
      if (context.sweep.ended_at.empty()) ended = std::max(ended, trial.ended_at);
    }
    parts = {period(context.sweep.started_at, ended), machine_of(context), clock_of(context)};
  } else {
    const store::BisectRow& row = context.hunts.front().row;
    parts = {period(row.started_at, row.ended_at)};
  }
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, " · "));
}

}  // namespace moetune::reports
