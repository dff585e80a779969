// Boost.Program_options with messages in our own words, and the values that several commands check
// alike.
#include "sweeps/commands/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <typeinfo>

#include "engine/spec/other_knobs.h"
#include "engine/spec/quantity.h"
#include "kernels/base/error.h"
#include "sweeps/processes/trial_commands.h"

namespace moetune::sweeps {

namespace po = boost::program_options;
using base::UsageError;

namespace {

std::string checked_database(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    throw UsageError(fmt::format("{}: is a folder, expected a runs database", path));
  }
  // Before anything puts a lock or a journal beside a device or a pipe.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw UsageError(fmt::format("{}: is not a regular file, expected a runs database", path));
  }
  return path;
}

}  // namespace

CommandOptions::CommandOptions(std::string_view usage, std::string_view help)
    : usage_(usage), help_(help), options_("options") {
  add()("help,h", "print this");
}

void CommandOptions::add_format() {
  add()("format", po::value<std::string>()->value_name("text|json"), "how to print, default text");
  prints_text_or_json_ = true;
}

void CommandOptions::add_set() {
  add()("set", po::value<std::vector<std::string>>()->value_name("KNOB=VALUE"),
        "set a knob (see 'moetune knobs'); may be repeated");
}

void CommandOptions::add_trial() {
  add()("spec", po::value<std::string>()->value_name("SPEC"),
        "the trial or sweep file, the name of a sweep that came with moetune, or - for standard "
        "input");
  positional("spec");
  add_set();
}

void CommandOptions::add_launch() {
  add()("launch", po::value<std::string>()->value_name("COMMAND"),
        "what starts the processes of a trial with communicator nccl, put in front of "
        "moetune-rank, such as 'srun --nodes={nodes} --ntasks={ranks}'; without it this program "
        "does, on this machine");
}

std::string CommandOptions::launcher(const spec::TrialSpec& trial) const {
  check_has_launcher(trial, has("launch") ? text("launch") : "");
  if (!has("launch")) return "";
  if (spec::ranks_of(trial) != spec::RanksAre::processes) {
    throw UsageError(fmt::format(
        "--launch is for trials of several processes (communicator nccl); with {} there is one",
        spec::name_of(trial.communicator)));
  }
  check_launcher(text("launch"));
  return text("launch");
}

bool CommandOptions::parse(const std::vector<std::string>& words) {
  namespace style = po::command_line_style;
  words_ = words;
  try {
    po::store(po::command_line_parser(words)
                  .options(options_)
                  .positional(positional_)
                  .style(style::unix_style & ~style::allow_guessing)
                  .run(),
              values_);
    po::notify(values_);
  } catch (const po::error& error) {
    throw UsageError(fmt::format("{}; usage: moetune {}", error.what(), usage_));
  }
  if (has("help")) {
    std::cout << "usage: moetune " << usage_ << "\n\n" << help_ << "\n\n" << options_;
    return false;
  }
  if (prints_text_or_json_) [[maybe_unused]]
    const bool is_known_format = wants_json();
  return true;
}

std::vector<OptionRow> CommandOptions::rows() const {
  std::vector<OptionRow> rows;
  for (const auto& option : options_.options()) {
    OptionRow row{option->long_name(), "", "", option->description()};
    const std::string first =
        option->canonical_display_name(po::command_line_style::allow_dash_for_short);
    if (first.size() == 2 && first.front() == '-') row.letter = first.substr(1);
    if (option->semantic()->max_tokens() > 0) row.value = option->semantic()->name();
    const auto* typed = dynamic_cast<const po::typed_value_base*>(option->semantic().get());
    row.is_repeatable = typed != nullptr && typed->value_type() == typeid(std::vector<std::string>);
    const unsigned num_positional = std::min(positional_.max_total_count(), 16U);
    for (unsigned i = 0; i < num_positional; ++i) {
      row.is_positional |= positional_.name_for_position(i) == row.name;
    }
    row.takes_several = row.is_positional && num_positional == 16U &&
                        positional_.name_for_position(num_positional) == row.name;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string CommandOptions::text(const std::string& option) const {
  return has(option) ? values_[option].as<std::string>() : std::string();
}

std::vector<std::string> CommandOptions::texts(const std::string& option) const {
  return has(option) ? values_[option].as<std::vector<std::string>>() : std::vector<std::string>();
}

std::string CommandOptions::required(const std::string& option, const char* what) const {
  const std::string value = text(option);
  if (value.empty())
    throw UsageError(fmt::format("{} is missing; usage: moetune {}", what, usage_));
  return value;
}

std::string CommandOptions::database(const std::string& option) const {
  return checked_database(
      required(option, fmt::format("the database (--{} PATH)", option).c_str()));
}

int64_t CommandOptions::integer(const std::string& option, int64_t min, int64_t otherwise) const {
  if (!has(option)) return otherwise;
  const std::string value = text(option);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < min) {
    throw UsageError(
        fmt::format("--{} is '{}', expected a whole number of at least {}", option, value, min));
  }
  return number;
}

int64_t CommandOptions::seconds(const std::string& option, int64_t min, int64_t otherwise) const {
  constexpr double kMostSeconds = 1e12;  // what clocks can add
  if (!has(option)) return otherwise;
  const std::string value = text(option);
  const std::string as_seconds =
      value.find_first_not_of("0123456789") == std::string::npos ? value + "s" : value;
  const std::optional<double> number = spec::parse_quantity(spec::Quantity::seconds, as_seconds);
  if (!number || !(*number >= static_cast<double>(min) && *number <= kMostSeconds)) {
    throw UsageError(fmt::format(
        "--{} is '{}', expected a whole number of seconds of at least {}, or one with a unit such "
        "as {}",
        option, value.substr(0, 40), min, spec::unit_example(spec::Quantity::seconds)));
  }
  return std::llround(*number);
}

double CommandOptions::ratio(const std::string& option, double min, double max,
                             double otherwise) const {
  if (!has(option)) return otherwise;
  const std::string value = text(option);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() ||
      !(number >= min && number <= max)) {
    throw UsageError(fmt::format("--{} is '{}', expected a number from {:g} to {:g}", option,
                                 value.substr(0, 40), min, max));
  }
  return number;
}

void CommandOptions::refuse_beside(std::string_view what,
                                   const std::vector<const char*>& others) const {
  for (const char* other : others) {
    if (has(other)) throw UsageError(fmt::format("{} and --{} do not go together", what, other));
  }
}

bool CommandOptions::wants_json() const {
  const std::string format = text("format");
  if (format.empty() || format == "text") return false;
  if (format == "json") return true;
  throw UsageError(fmt::format("--format is '{}', expected text or json", format));
}

std::pair<std::string, std::string> CommandOptions::database_and_word(const char* what) const {
  std::vector<std::string> found;
  if (has("db")) found.push_back(text("db"));
  for (const std::string& word : texts("id")) found.push_back(word);
  if (found.size() == 2) return {checked_database(found[0]), found[1]};
  throw UsageError(fmt::format("expected the database and {}, found {} words; usage: moetune {}",
                               what, found.size(), usage_));
}

Loaded<spec::TrialSpec> CommandOptions::trial() const {
  Loaded<spec::TrialSpec> loaded = load_trial(required("spec", "the trial file"));
  apply_set(loaded.spec.knobs);
  return loaded;
}

void CommandOptions::apply_set(spec::Knobs& knobs) const {
  for (const std::string& word : texts("set")) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("--set is '{}', expected KNOB=VALUE", word));
    }
    std::string name = word.substr(0, equals);
    for (char& c : name) c = c == '-' ? '_' : c;
    const spec::KnobRow* row = spec::find_knob(name);
    if (row == nullptr) {
      if (const std::string gap = spec::engine_knob_gap(name); !gap.empty()) {
        throw UsageError(fmt::format("--set {}: {}", word, gap));
      }
      const std::string meant = spec::knob_meant_by(name);
      throw UsageError(fmt::format("--set: there is no knob '{}'{}; 'moetune knobs' lists them",
                                   name, meant.empty() ? "" : ", did you mean '" + meant + "'?"));
    }
    spec::set_knob(knobs, *row, word.substr(equals + 1));
  }
}

}  // namespace moetune::sweeps
