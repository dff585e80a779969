// Finds numbers in what a run printed, and sorts stored metrics into those that a hunt may follow.
#include "sweeps/bisect/reading.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "kernels/base/text.h"
#include "profiler/store/store.h"
#include "profiler/store/untrusted_json.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/text.h"
#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/run_folder.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxNumbers = 20'000;
constexpr size_t kMaxConfigValues = 2'000;
constexpr size_t kMaxConfigBytes = 1'000;
constexpr int kMaxDepth = 16;

void add_numbers(const json& object, const std::string& prefix, int depth, Numbers& numbers) {
  for (const auto& [key, value] : object.items()) {
    if (numbers.size() >= kMaxNumbers) return;
    const std::string name = prefix + key;
    if (value.is_number()) {
      const auto number = value.get<double>();
      if (is_measurement(number)) numbers[name] = number;
    } else if (value.is_object() && depth < kMaxDepth) {
      add_numbers(value, name + ".", depth + 1, numbers);
    }
  }
}

std::string text_or_digest(std::string text) {
  return text.size() > kMaxConfigBytes ? "digest " + base::fnv_digits(text) : std::move(text);
}

/// Objects are looked into, lists are whole; a value is its JSON text.
void add_config(const json& object, const std::string& prefix, int depth, ConfigTexts& config) {
  for (const auto& [key, value] : object.items()) {
    if (config.size() >= kMaxConfigValues) return;
    if (value.is_object() && depth < kMaxDepth) {
      add_config(value, prefix + key + ".", depth + 1, config);
    } else {
      config[prefix + key] =
          text_or_digest(value.dump(-1, ' ', false, json::error_handler_t::replace));
    }
  }
}

/// Of an object, or of one member of it. Parsed with a limit to its depth: writing JSON recurses.
void add_config_text(std::string_view text, const std::string& member, ConfigTexts& config) {
  try {
    const json document = spec::parse_json(text, "config");
    if (!document.is_object()) return;
    const json& object = member.empty() ? document : document.at(member);
    if (object.is_object()) add_config(object, "", 0, config);
  } catch (const base::Error&) {
    return;  // a run counts without its configuration
  }
}

/// The whole text as a decimal number; "nan" and "inf" in all their spellings count as one.
std::optional<double> number_in(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return HUGE_VAL;
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

void read_object(std::string_view line, const std::string& metric, PrintedNumbers& printed) {
  const json object = store::parse_untrusted(line);
  if (!object.is_object()) {
    // Python prints NaN and Infinity into what it calls JSON.
    printed.complaint = fmt::format(
        "its last line looks like a JSON object, but is none (NaN and Infinity are not JSON; the "
        "object must be on one line): \"{}\"",
        plain_text(line));
    return;
  }
  json measured = object;
  measured.erase("config");
  add_numbers(measured, "", 0, printed.numbers);
  if (object.contains("config")) add_config_text(line, "config", printed.config);
  if (find_metric(printed.numbers, metric)) return;
  const auto wanted = object.find(metric);
  printed.complaint =
      wanted == object.end()
          ? fmt::format("the JSON object on its last line has no '{}': \"{}\"", metric,
                        plain_text(line))
          : fmt::format("'{}' on its last line is no number that can be measured: \"{}\"", metric,
                        plain_text(line));
}

}  // namespace

bool is_measurement(double number) { return std::abs(number) <= kLargestNumber; }

std::optional<double> find_metric(const Numbers& numbers, const std::string& metric) {
  for (const std::string& name : {metric, stored_metric(metric)}) {
    const auto found = numbers.find(name);
    if (found != numbers.end() && is_measurement(found->second)) return found->second;
  }
  return std::nullopt;
}

PrintedNumbers read_printed(std::string_view line, const std::string& metric) {
  PrintedNumbers printed;
  line = base::trimmed(line);
  if (line.empty()) {
    printed.complaint = "it printed nothing";
  } else if (line.starts_with('{')) {
    read_object(line, metric, printed);
  } else if (const std::optional<double> number = number_in(line)) {
    if (is_measurement(*number)) {
      printed.numbers[metric] = *number;
    } else {
      printed.complaint =
          fmt::format("its last line is no number that can be measured: \"{}\"", plain_text(line));
    }
  } else {
    printed.complaint = fmt::format("its last line is neither a number nor a JSON object: \"{}\"",
                                    plain_text(line));
  }
  return printed;
}

StoredNumbers read_stored(const std::string& path) {
  store::Store::upgrade(path);
  const store::Store store = store::Store::open_read_only(path);
  StoredNumbers result;
  const std::vector<store::TrialRow> trials = store.list_trials();
  const auto newest = std::ranges::max_element(trials, {}, &store::TrialRow::id);
  if (newest == trials.end()) return result;
  result.status = newest->status;
  result.reason = newest->reason;
  add_config_text(newest->spec_json, "", result.config);
  Numbers& numbers = result.numbers;
  const auto set = [&](const std::string& name, auto value) {
    if (value) numbers[name] = static_cast<double>(*value);
  };
  set("step_ns", newest->step_ns);
  set("step_ns_low", newest->step_ns_low);
  set("step_ns_high", newest->step_ns_high);
  set("peak_bytes", newest->peak_bytes);
  set("tokens_per_s", newest->tokens_per_s);
  set("loss_final", newest->loss_final);
  for (const store::MetricRow& metric : store.read_metrics(newest->id)) {
    if (metric.rank == -1) numbers[metric.name] = metric.value;
  }
  for (const store::MemoryRow& memory : store.read_memory(newest->id)) {
    if (!memory.bytes) continue;
    const auto bytes = static_cast<double>(*memory.bytes);
    const auto [row, is_new] = numbers.try_emplace("memory_" + memory.group + "_bytes", bytes);
    row->second = std::max(row->second, bytes);
  }
  // What ranks do at the same time adds nothing to the step: the mean of those that do it.
  std::map<std::string, double> num_ranks;
  for (const store::OpRow& op : store.read_ops(newest->id)) {
    const std::string duration = "op_" + op.name + "_ns";
    numbers[duration] += static_cast<double>(op.duration_ns);
    numbers["op_" + op.name + "_count"] += static_cast<double>(op.count);
    ++num_ranks[duration];
  }
  for (const auto& [duration, count] : num_ranks) numbers[duration] /= count;
  std::erase_if(numbers, [](const auto& number) { return !is_measurement(number.second); });
  return result;
}

StoredNumbers read_logged(const std::vector<std::string>& paths) {
  StoredNumbers result;
  RunFacts facts;
  try {
    const std::vector<std::string> logs = logs_among(paths);
    if (logs.empty()) return result;
    facts = read_run(logs);
  } catch (const base::Error&) {
    return result;  // what the command left has gone meanwhile
  }
  result.status = spec::name_of(facts.status);
  result.reason = facts.reason;
  const auto set = [&](const char* name, std::optional<double> value) {
    if (value && is_measurement(*value)) result.numbers[name] = *value;
  };
  if (facts.step_time) set("step_ns", facts.step_time->median_s * 1e9);
  if (facts.peak_memory) set("peak_bytes", static_cast<double>(facts.peak_memory->bytes));
  set("tokens_per_s_per_gpu", facts.tokens_per_s_per_gpu);
  set("tflops_per_gpu", facts.tflops_per_gpu);
  set("loss_final", facts.loss);
  for (const EchoedSetting& setting : facts.echoed.settings) {
    if (result.config.size() >= kMaxConfigValues) break;
    result.config[setting.key] =
        text_or_digest(json(setting.value).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return result;
}

std::string newest_database(const std::string& folder) {
  std::string newest;
  fs::file_time_type newest_time;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), last; !error && entry != last;
       entry.increment(error)) {
    // Behind a link there may be a database that somebody needs, and reading may change it.
    std::error_code ignored;
    if (entry->path().extension() != ".db") continue;
    if (!fs::is_regular_file(entry->symlink_status(ignored))) continue;
    const fs::file_time_type time = entry->last_write_time(ignored);
    if (newest.empty() || time > newest_time ||
        (time == newest_time && entry->path().string() > newest)) {
      newest = entry->path();
      newest_time = time;
    }
  }
  return newest;
}

}  // namespace moetune::sweeps
