// Section "provenance": who measured what, where and how, and what the figures must not be taken
// for.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/units.h"
#include "profiler/store/untrusted_json.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/local_paths.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

constexpr size_t kMostShownBytes = 400;

std::string list(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& [name, value] : values) {
    if (!value.empty()) {
      html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(name),
                          escape(shortened(value, kMostShownBytes)));
    }
  }
  return html + "</dl>\n";
}

// A number of a contract or a machine as its key says: "memory_bytes" in MiB, "launch_ns" in us.
// Other values as JSON has them. These are round figures that somebody wrote: three digits, and not
// the five of base::format_value, which are for differences between measurements.
std::string setting_text(const std::string& name, const json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number() && std::abs(value.get<double>()) < 9e18) {
    const int64_t number = std::llround(value.get<double>());
    if (name.ends_with("_ns")) {
      return base::format_ns(number);
    }
    if (name.ends_with("bytes_per_s")) {
      return base::format_bytes(number) + "/s";
    }
    if (name.ends_with("_bytes")) {
      return base::format_bytes(number);
    }
    if (name.ends_with("flops_per_s")) {
      return base::format_flops_per_s(value.get<double>());
    }
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Flattens an object to "a.b.c" and value; arrays stay as JSON text.
void flatten(const json& value, const std::string& prefix, int depth,
             std::vector<std::pair<std::string, std::string>>& result) {
  constexpr int kMaxDepth = 4;
  if (value.is_object() && depth < kMaxDepth) {
    for (const auto& [key, item] : value.items()) {
      flatten(item, prefix.empty() ? key : prefix + "." + key, depth + 1, result);
    }
    return;
  }
  result.emplace_back(prefix, setting_text(prefix, value));
}

std::vector<std::pair<std::string, std::string>> flatten_text(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> result;
  const json value = store::parse_untrusted(text);
  if (value.is_object()) {
    flatten(value, "", 0, result);
  } else if (!text.empty() && text != "null") {
    result.emplace_back("text", text);
  }
  return result;
}

// What computed the figures, in which numbers; nothing when the spec does not say.
std::string backend_item(const store::TrialRow& trial) {
  const std::string backend = spec_text(trial, "backend");
  const std::string dtype = spec_text(trial, "dtype");
  if (backend.empty()) {
    return "";
  }
  static const std::map<std::string, std::string> kWords = {
      {"cpu", "the processor of this machine"},
      {"cuda", "a GPU"},
      {"f32", "single precision"},
      {"f64", "double precision"},
      {"bf16", "bfloat16, 16 bits"}};
  const auto named = [](const std::string& name) {
    const auto found = kWords.find(name);
    return fmt::format("<strong>{}</strong>{}", escape(shortened(name, kMostShownBytes)),
                       found == kWords.end() ? "" : " (" + found->second + ")");
  };
  return fmt::format("<li>Backend {}{}.</li>\n", named(backend),
                     dtype.empty() ? "" : ", computing in " + named(dtype));
}

// Which ranks there were, and whether they really sent anything.
std::string world_item(const store::TrialRow& trial) {
  const std::string world = spec_text(trial, "communicator");
  if (world == "fake") {
    const json spec = store::parse_untrusted(trial.spec_json);
    const json rank = spec.value("fake_rank", json());
    return fmt::format(
        "<li><strong>Fake world</strong>: only {} of the layout ran, alone. Communication moved "
        "nothing: what the other ranks would send is made up, and <strong>so are the "
        "losses</strong>. Only the time of compute and the memory of this one rank are "
        "measured.</li>\n",
        rank.is_number_integer() ? "rank " + rank.dump() : "one rank");
  }
  if (world == "nccl") {
    return "<li>Communicator <strong>nccl</strong>: each rank is a process with a GPU of its own; "
           "they communicate through NCCL.</li>\n";
  }
  if (world == "threads") {
    return spec_text(trial, "backend") == "cuda"
               ? "<li>Communicator <strong>threads</strong>: the ranks are virtual, threads of one "
                 "process that share one device. What they send each other stays on it, so these "
                 "times say nothing about links between devices.</li>\n"
               : "<li>Communicator <strong>threads</strong>: the ranks are threads of one process, "
                 "and send each other real data.</li>\n";
  }
  return world.empty() ? ""
                       : fmt::format("<li>Communicator <strong>{}</strong>.</li>\n",
                                     escape(shortened(world, kMostShownBytes)));
}

std::string notes(const SectionInput& input) {
  std::string html = "<ul class=\"facts\">\n";
  const store::TrialRow* traced = input.context.at(input.context.traced);
  const std::string clock = traced == nullptr ? "" : spec_text(*traced, "clock");
  if (clock == "virtual_measured") {
    html += fmt::format(
        "<li>Times are <strong>virtual</strong>: the cluster is emulated. Each operation was "
        "really "
        "computed, and its own duration was measured on this machine; ranks, streams, launches and "
        "links then move on an emulated clock.{}</li>\n",
        is_fake_world(*traced) ? "" : " Losses and numbers are real.");
  } else if (clock == "virtual_modelled") {
    html +=
        "<li>Times are <strong>virtual</strong> and <strong>modelled</strong>: every operation "
        "took "
        "what the cost model says, on an emulated cluster.</li>\n";
  } else if (clock == "wall") {
    html += "<li>Times are those of the wall clock of this machine.</li>\n";
  }
  if (traced != nullptr) {
    html += backend_item(*traced) + world_item(*traced);
  }
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const std::optional<double> value = input.rows.real(i, "value");
    if (value && input.rows.text(i, "name") == "tracing_overhead_ratio") {
      html += fmt::format(
          "<li>Step times come from steps without tracing. The traced steps of the same run took "
          "{:.1f} % "
          "{} time: the profiling overhead behind the budget and the timeline.</li>\n",
          100 * std::abs(*value), *value < 0 ? "less" : "more");
    }
  }
  return html +
         "<li>A gain is kept only when it is larger than the measured noise. A gain ceiling of a "
         "wall "
         "is a bound, never a forecast.</li>\n"
         "<li class=\"on-paper\">Not on paper, but in the page: the hardware as described, and "
         "what is folded.</li>\n"
         "<li>This page loads nothing. Charts: Apache ECharts, Apache License 2.0.</li>\n</ul>\n";
}

// What measurements were made where. A sweep that was resumed with another build or on another
// machine has several places, and only what was measured in comparable ones counts.
std::string environments(const Context& context) {
  const auto& rows = context.environments;
  std::string html;
  for (auto environment = rows.rbegin(); environment != rows.rend(); ++environment) {
    int64_t num_runs = 0;
    int64_t num_counted = 0;
    for (const auto& [trial_id, runs] : context.measurements) {
      for (const store::MeasurementRow& run : runs) {
        if (run.environment_id != environment->id) continue;
        ++num_runs;
        num_counted += run.is_counted ? 1 : 0;
      }
    }
    if (rows.size() == 1) {
      html += "<h3>Machine and build</h3>\n";
    } else {
      html += fmt::format(
          "<h3>Machine and build {}{}</h3>\n<p class=\"note\">{} measurements since "
          "{}, {} of them count.</p>\n",
          environment->ordinal, environment == rows.rbegin() ? " (the latest)" : "", num_runs,
          escape(environment->started_at), num_counted);
    }
    std::vector<std::pair<std::string, std::string>> values;
    for (const store::NamedText& entry : environment->values) {
      values.emplace_back(entry.name, entry.value);
    }
    html += list(values);
  }
  return html;
}

}  // namespace

std::string render_provenance(const SectionInput& input) {
  const store::SweepRow& sweep = input.context.sweep;
  std::string html = notes(input);
  html += "<div class=\"columns\">\n<div><h3>Run</h3>\n";
  html += list({{"sweep", sweep.name},
                {"status", std::string(name_of(sweep.status))},
                {"command", typed_command(sweep.command_line).command},
                {"model", sweep.model_name},
                {"hardware", sweep.hardware_name},
                {"started", sweep.started_at},
                {"ended", sweep.ended_at},
                {"moetune", sweep.tool_version},
                {"commit", sweep.tool_commit},
                {"configuration hash", sweep.config_hash}});
  html += environments(input.context) + "</div>\n<div>";
  auto contract = flatten_text(sweep.contract_json);
  // Those two have lists of their own.
  std::erase_if(contract, [](const auto& entry) {
    return entry.first.starts_with("model.") || entry.first.starts_with("hardware.");
  });
  if (!contract.empty()) {
    html += "<h3>Contract: what was frozen</h3>\n" + list(contract);
  }
  const auto hardware = flatten_text(sweep.hardware_json);
  if (!hardware.empty()) {
    html +=
        "<div class=\"on-screen\">\n<h3>Hardware as described</h3>\n" + list(hardware) + "</div>\n";
  }
  const auto model = flatten_text(sweep.model_json);
  if (!model.empty()) {
    html += "<details><summary>Model</summary>\n" + list(model) + "</details>\n";
  }
  return html + "</div>\n</div>\n";
}

}  // namespace moetune::reports
