#include "sweeps/runs/other_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/error.h"
#include "sweeps/runs/echoed_config.h"

namespace moetune::sweeps {
namespace {

int64_t num_step_lines(const ForeignLog& log) {
  int64_t count = 0;
  for (const Attempt& attempt : log.attempts) count += attempt.steps.num_lines();
  return count;
}

/// As the last attempt states it that does.
template <typename Get>
auto stated_last(const ForeignLog& log, const Get& get) {
  auto value = get(log.attempts.front());
  for (const Attempt& attempt : log.attempts) {
    if (const auto next = get(attempt); next != decltype(value){}) value = next;
  }
  return value;
}

/// Logs of one run may name different frameworks: Primus runs Megatron-LM or torchtitan, and only
/// some of its ranks say so. torchtitan and those that build on Megatron-LM have nothing in common.
bool may_be_one(Framework a, Framework b) {
  const auto builds_on_megatron = [](Framework framework) {
    return framework != Framework::unknown && framework != Framework::primus &&
           framework != Framework::torchtitan;
  };
  return !(a == Framework::torchtitan && builds_on_megatron(b)) &&
         !(b == Framework::torchtitan && builds_on_megatron(a));
}

/// One setting of a run as a log states it.
struct StatedValue {
  enum class Source : uint8_t { line, command, dump, summary, echoed_json };
  Source source = Source::line;
  std::string text;
  std::optional<double> number;
  std::string file;
};

/// Values of one spelling are compared as texts, others as numbers only.
bool is_contrary(const StatedValue& a, const StatedValue& b) {
  if (a.number && b.number) return *a.number != *b.number;
  return a.source == b.source && a.text != b.text;
}

/// A row of the dialects' tables, or "dp", and whether a line outside of a configuration says it:
/// what a line calls a length may be another one than the configuration's.
struct StatedName {
  std::string name;
  bool is_line = false;

  auto operator<=>(const StatedName&) const = default;
};
using StatedValues = std::map<StatedName, StatedValue>;

/// The first that states a setting counts. What is not said, and what follows from other settings
/// (-1), states nothing.
void add_statement(StatedValues& values, std::string_view name, StatedValue::Source source,
                   std::string text, const std::string& file) {
  if (text.empty() || text == "None" || text == "null" || text.starts_with('-')) return;
  StatedValue value{source, std::move(text), std::nullopt, file};
  char* end = nullptr;
  const double number = std::strtod(value.text.c_str(), &end);
  if (*end == '\0' && std::isfinite(number)) value.number = number;
  values.try_emplace({std::string(name), source == StatedValue::Source::line}, std::move(value));
}

void add_stated_command(StatedValues& values, const std::string& command,
                        spec::dialects::Dialect dialect, const std::string& file) {
  if (command.empty()) return;
  try {
    const spec::dialects::RunConfig config = spec::dialects::import_run(command, dialect);
    // Of two the later counts, as for the frameworks' parsers.
    for (auto it = config.stated.rbegin(); it != config.stated.rend(); ++it) {
      const spec::dialects::Row* row = spec::dialects::find_row(it->key, dialect);
      if (row != nullptr)
        add_statement(values, row->name, StatedValue::Source::command, it->value, file);
    }
  } catch (const base::Error&) {
    return;  // it states nothing that can be compared
  }
}

struct NamedSetting {
  const char* name;
  NamedSize size;
};
constexpr NamedSetting kNamedSettings[] = {
    {"tp", &NamedSizes::tp},
    {"pp", &NamedSizes::pp},
    {"cp", &NamedSizes::cp},
    {"dp", &NamedSizes::dp},
    {"ep", &NamedSizes::ep},
    {"etp", &NamedSizes::etp},
    {"global_batch_size", &NamedSizes::global_batch_size},
    {"local_batch_size", &NamedSizes::local_batch_size},
    {"seq_length", &NamedSizes::seq_length},
};

StatedValues stated_values(const ForeignLog& log) {
  using Source = StatedValue::Source;
  StatedValues values;
  const std::string& file = log.files.front();
  const auto echo = std::find_if(log.attempts.rbegin(), log.attempts.rend(),
                                 [](const Attempt& a) { return !a.config.settings.empty(); });
  const auto dialect = dialect_of(log.framework);
  if (dialect && echo != log.attempts.rend()) {
    const EchoedConfig::Form form = echo->config.form;
    const Source source = form == EchoedConfig::Form::argument_dump    ? Source::dump
                          : form == EchoedConfig::Form::bridge_summary ? Source::summary
                                                                       : Source::echoed_json;
    for (const EchoedSetting& setting : echo->config.settings) {
      const spec::dialects::Row* row = row_of_echoed(setting.key, form, *dialect);
      if (row != nullptr) add_statement(values, row->name, source, setting.value, file);
    }
  }
  if (dialect) {
    add_stated_command(values, stated_last(log, [](const Attempt& a) { return a.command; }),
                       *dialect, file);
  }
  for (const NamedSetting& setting : kNamedSettings) {
    const int64_t size = stated_last(log, [&](const Attempt& a) { return a.sizes.*setting.size; });
    if (size > 0) add_statement(values, setting.name, Source::line, std::to_string(size), file);
  }
  return values;
}

/// What tells one run from another in a log, beside its settings.
struct RunSight {
  const ForeignLog* log = nullptr;
  std::string folder;
  /// Words that a run prints once at its start: it is no rank's log beside that of another.
  bool has_banner = false;
  bool is_first_rank = false;  ///< it has such words that few ranks print
  bool has_outcome = false;    ///< steps, failures or an end
  std::optional<double> first_s;
  std::optional<double> last_s;
  std::vector<StepLine> steps;  ///< the first ones of the last attempt
};

RunSight sight_of(const ForeignLog& log) {
  constexpr size_t kMostSteps = 64;
  RunSight sight;
  sight.log = &log;
  sight.folder = std::filesystem::path(log.files.front()).parent_path().string();
  for (const Attempt& attempt : log.attempts) {
    sight.is_first_rank |=
        attempt.config.form != EchoedConfig::Form::none || attempt.sizes.world_size > 0;
    sight.has_banner |= sight.is_first_rank || !attempt.command.empty();
    sight.has_outcome |= !attempt.steps.empty() || !attempt.failures.empty() ||
                         attempt.end.has_value() || !attempt.loose_step_times_s.empty();
  }
  sight.last_s = log.attempts.back().last_time_s;
  if (sight.last_s && log.first_time_s) sight.first_s = std::min(*sight.last_s, *log.first_time_s);
  if (sight.has_banner) {
    sight.steps = log.attempts.back().steps.lines();
    sight.steps.resize(std::min(sight.steps.size(), kMostSteps));
  }
  return sight;
}

bool is_dated(const RunSight& sight) { return sight.first_s && sight.last_s; }

bool times_overlap(const RunSight& a, const RunSight& b) {
  return is_dated(a) && is_dated(b) && *a.first_s <= *b.last_s && *b.first_s <= *a.last_s;
}

/// Whether the later of two logs begins where the earlier one began: not by a checkpoint of it.
bool begins_anew(const ForeignLog& later, const ForeignLog& earlier) {
  const Attempt& second = later.attempts.front();
  const Attempt& first = earlier.attempts.front();
  const bool is_loaded = second.first_step > 0;
  if (is_loaded != (first.first_step > 0)) return !is_loaded;
  if (is_loaded) return second.first_step <= first.first_step;
  const auto step_of = [](const Attempt& attempt) {
    const std::vector<StepLine> lines = attempt.steps.lines();
    return lines.empty() ? INT64_MAX : lines.front().step;
  };
  return step_of(second) <= step_of(first);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm time{};
  if (::gmtime_r(&whole, &time) == nullptr) return "?";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", time.tm_year + 1900, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
}

/// Of one step both say a loss, and not the same one: every rank of a run prints the mean of all.
bool has_other_losses(const RunSight& a, const RunSight& b) {
  for (const StepLine& line : a.steps) {
    const auto same = std::ranges::find(b.steps, line.step, &StepLine::step);
    if (same == b.steps.end() || !line.loss || !same->loss) continue;
    if (std::isfinite(*line.loss) && std::isfinite(*same->loss) && *line.loss != *same->loss) {
      return true;
    }
  }
  return false;
}

int64_t last_step(const ForeignLog& log) {
  const std::vector<StepLine> lines = log.attempts.back().steps.lines();
  return lines.empty() ? -1 : lines.back().step;
}

/// Whether the words of its start are those of the only rank that prints them.
bool start_alone(const RunSight& sight) {
  const Framework framework = sight.log->framework;
  return sight.is_first_rank && sight.log->path_rank < 0 &&
         (framework == Framework::megatron_lm || framework == Framework::megatron_bridge);
}

/// Why two logs that state the same are two runs, each with its start; empty: they may be one.
std::string own_start(const RunSight& one, const RunSight& main) {
  const ForeignLog& log = *one.log;
  const ForeignLog& main_log = *main.log;
  const std::string& name = main_log.files.front();
  const bool are_ranks =
      log.path_rank >= 0 && main_log.path_rank >= 0 && log.path_rank != main_log.path_rank;
  if (!one.has_banner || !main.has_banner || are_ranks) return {};
  // With a ramp the size grows: at one step it is the same in a run.
  for (const StepLine& line : one.steps) {
    const auto same = std::ranges::find(main.steps, line.step, &StepLine::step);
    const bool are_said =
        same != main.steps.end() && line.global_batch_size && same->global_batch_size;
    if (are_said && *line.global_batch_size != *same->global_batch_size) {
      return fmt::format("is of global batch {:.0f}, {} of {:.0f}", *line.global_batch_size, name,
                         *same->global_batch_size);
    }
  }
  const bool have_steps = !one.steps.empty() && !main.steps.empty();
  if (!is_dated(one) && !is_dated(main)) {
    if (!have_steps) return {};
    if (has_other_losses(one, main)) {
      return fmt::format("begins anew, with other losses than {}", name);
    }
    // With one seed a run that is started again has the same losses. What ends at the same step may
    // be the same output, kept twice.
    const bool is_again = start_alone(one) && start_alone(main) && begins_anew(log, main_log) &&
                          begins_anew(main_log, log) && last_step(log) != last_step(main_log);
    return is_again ? fmt::format("begins anew, as {} does", name) : std::string();
  }
  if (is_dated(one) != is_dated(main)) {
    return start_alone(one) && start_alone(main) ? fmt::format("begins anew, as {} does", name)
                                                 : std::string();
  }
  if (times_overlap(one, main)) {
    // Jobs of two people, or of a sweep, run side by side.
    return start_alone(one) && start_alone(main) && has_other_losses(one, main)
               ? fmt::format("has other losses than {} at the same steps", name)
               : std::string();
  }
  const bool is_before = *one.last_s < *main.first_s;
  // Ranks that fail while they start do not do so at one time.
  constexpr double kLongestStartS = 900;
  const double gap_s = is_before ? *main.first_s - *one.last_s : *one.first_s - *main.last_s;
  bool is_anew = false;
  if (have_steps) {
    is_anew = is_before ? begins_anew(main_log, log) : begins_anew(log, main_log);
  } else {
    // A node's log has the command, and maybe nothing more.
    is_anew = gap_s > kLongestStartS && one.is_first_rank && main.is_first_rank;
  }
  if (!is_anew) return {};
  return is_before ? fmt::format("ends at {}, and {} begins anew at {}", clock_text(*one.last_s),
                                 name, clock_text(*main.first_s))
                   : fmt::format("begins anew at {}, and {} ends at {}", clock_text(*one.first_s),
                                 name, clock_text(*main.last_s));
}

/// "is of 16 ranks, main.log of 8"; empty: they may be of one run.
std::string difference(const ForeignLog& log, const ForeignLog& main) {
  if (!may_be_one(log.framework, main.framework)) {
    return fmt::format("is of {}, {} of {}", spec::name_of(log.framework), main.files.front(),
                       spec::name_of(main.framework));
  }
  const auto world = [](const Attempt& attempt) { return attempt.sizes.world_size; };
  const int64_t ranks = stated_last(log, world);
  const int64_t main_ranks = stated_last(main, world);
  if (ranks > 0 && main_ranks > 0 && ranks != main_ranks) {
    return fmt::format("is of {} ranks, {} of {}", ranks, main.files.front(), main_ranks);
  }
  const auto device = [](const Attempt& attempt) { return attempt.device_name; };
  const std::string name = stated_last(log, device);
  const std::string main_name = stated_last(main, device);
  if (!name.empty() && !main_name.empty() && name != main_name) {
    return fmt::format("is of a run on {}, {} of one on {}", name, main.files.front(), main_name);
  }
  const auto model = [](const Attempt& attempt) { return attempt.model_name; };
  const std::string size = stated_last(log, model);
  const std::string main_size = stated_last(main, model);
  if (!size.empty() && !main_size.empty() && size != main_size) {
    return fmt::format("is of a model {}, {} of {}", size, main.files.front(), main_size);
  }
  return {};
}

/// Names with numbers in their order: "slurm-9.out" before "slurm-10.out".
bool is_name_before(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto number = [&](std::string_view& text) {
    while (text.size() > 1 && text[0] == '0' && is_digit(text[1])) text.remove_prefix(1);
    size_t length = 0;
    while (length < text.size() && is_digit(text[length])) ++length;
    const std::string_view digits = text.substr(0, length);
    text.remove_prefix(length);
    return digits;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view x = number(a);
      const std::string_view y = number(b);
      if (x != y) return std::tuple(x.size(), x) < std::tuple(y.size(), y);
    } else if (a[0] != b[0]) {
      return a[0] < b[0];
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

/// Logs in the order in which they are taken: those that begin a run first, of these what tells an
/// outcome, and of these the latest, by times where all say them, else by name. Without any such
/// log the one with the most steps is first.
std::vector<const RunSight*> latest_first(const std::vector<RunSight>& sights) {
  std::vector<const RunSight*> order;
  for (const RunSight& sight : sights) order.push_back(&sight);
  const bool has_times = std::ranges::all_of(
      sights, [](const RunSight& sight) { return !sight.has_banner || sight.last_s.has_value(); });
  std::ranges::stable_sort(order, [&](const RunSight* a, const RunSight* b) {
    if (a->has_banner != b->has_banner) return a->has_banner;
    if (a->has_banner) {
      if (a->has_outcome != b->has_outcome) return a->has_outcome;
      if (has_times && *a->last_s != *b->last_s) return *a->last_s > *b->last_s;
      const std::string& name = a->log->files.front();
      const std::string& other = b->log->files.front();
      if (!has_times && name != other) return is_name_before(other, name);
    }
    return num_step_lines(*a->log) > num_step_lines(*b->log);
  });
  return order;
}

/// The run that is told: the logs that were taken for it so far.
class TakenRun {
 public:
  /// Why a log is not of it; empty: it is, and was taken.
  std::string take(const RunSight& sight, StatedValues values) {
    std::string why = difference_of(sight, values);
    if (!why.empty()) {
      if (sight.has_banner) others_.push_back(&sight);
      return why;
    }
    taken_.push_back(&sight);
    if (sight.has_banner) {
      folders_.insert(sight.folder);
      if (starts_.size() < kMostStarts) starts_.push_back(&sight);
    }
    agreed_.merge(std::move(values));
    return why;
  }

 private:
  std::string difference_of(const RunSight& sight, const StatedValues& values) const {
    if (taken_.empty()) return {};
    std::string why = difference(*sight.log, *taken_.front()->log);
    if (!why.empty()) return why;
    for (const auto& [name, value] : values) {
      const auto agreed = agreed_.find(name);
      if (agreed == agreed_.end() || !is_contrary(value, agreed->second)) continue;
      return fmt::format("is of {} {}, {} of {}", name.name, value.text, agreed->second.file,
                         agreed->second.text);
    }
    for (const RunSight* start : starts_) {
      why = own_start(sight, *start);
      if (!why.empty()) return why;
    }
    return sight.has_banner ? std::string() : company_of(sight);
  }

  /// A log without a start of its own is of the run whose time or folder it shares.
  std::string company_of(const RunSight& sight) const {
    const auto is_beside = [&](const RunSight* one) { return times_overlap(sight, *one); };
    const bool is_in_time = std::ranges::any_of(starts_, is_beside);
    const bool is_in_folder = folders_.contains(sight.folder);
    for (const RunSight* other : others_) {
      const bool is_of_its_time = is_beside(other) && !is_in_time && !starts_.empty();
      const bool is_of_its_folder = other->folder == sight.folder && !is_in_folder;
      if (is_of_its_time || (is_of_its_folder && !is_in_time)) {
        return fmt::format("lies beside {}", other->log->files.front());
      }
    }
    return {};
  }

  static constexpr size_t kMostStarts = 8;
  std::vector<const RunSight*> taken_;
  std::vector<const RunSight*> starts_;  ///< those of them that begin the run; not all of very many
  std::vector<const RunSight*> others_;  ///< starts of other runs
  std::set<std::string> folders_;        ///< of the logs that begin the run
  StatedValues agreed_;
};

/// A file and its copy. Ranks that fail alike may print the same, and each of them counts.
bool is_copy(const ForeignLog& a, const ForeignLog& b) {
  return num_step_lines(a) > 0 && a.num_bytes == b.num_bytes && a.tail_hash == b.tail_hash &&
         a.path_rank == b.path_rank;
}

}  // namespace

std::vector<std::string> remove_other_runs(std::vector<ForeignLog>& logs) {
  constexpr size_t kMostTold = 8;
  std::vector<std::string> removed;
  if (logs.size() < 2) return removed;
  std::map<const ForeignLog*, const ForeignLog*> copies;  // and what each is a copy of
  std::vector<RunSight> sights;
  sights.reserve(logs.size());
  for (const ForeignLog& log : logs) {
    const std::span before(logs.data(), static_cast<size_t>(&log - logs.data()));
    const auto copied =
        std::ranges::find_if(before, [&](const ForeignLog& one) { return is_copy(one, log); });
    if (copied != before.end()) {
      copies.emplace(&log, &*copied);
    } else {
      sights.push_back(sight_of(log));
    }
  }
  TakenRun run;
  std::map<const ForeignLog*, std::string> why_other;
  for (const RunSight* sight : latest_first(sights)) {
    std::string why = run.take(*sight, stated_values(*sight->log));
    if (!why.empty()) why_other.emplace(sight->log, std::move(why));
  }
  std::vector<bool> is_left_out;
  size_t num_others = 0;
  for (const ForeignLog& log : logs) {
    const auto other = why_other.find(&log);
    const auto copied = copies.find(&log);
    is_left_out.push_back(other != why_other.end() || copied != copies.end());
    if (other != why_other.end()) {
      if (++num_others > kMostTold) continue;
      removed.push_back(fmt::format("{} {}: left out, it looks like another run", log.files.front(),
                                    other->second));
    } else if (copied != copies.end()) {
      removed.push_back(fmt::format("{} is a copy of {}: left out", log.files.front(),
                                    copied->second->files.front()));
    }
  }
  if (num_others > kMostTold) {
    removed.push_back(
        fmt::format("{} more logs look like other runs: left out", num_others - kMostTold));
  }
  size_t place = 0;
  std::erase_if(logs, [&](const ForeignLog&) { return is_left_out[place++]; });
  return removed;
}

}  // namespace moetune::sweeps
