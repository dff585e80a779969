#include "sweeps/runs/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/median.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/other_runs.h"
#include "sweeps/runs/path_ranks.h"
#include "sweeps/runs/read_log.h"
#include "sweeps/runs/run_judgement.h"
#include "sweeps/runs/text_scan.h"
#include "sweeps/runs/token_rate.h"
#include "sweeps/runs/unread_steps.h"

namespace moetune::sweeps {
namespace {

using spec::dialects::Dialect;

/// The last attempt of every log: files of several ranks start again together. A log whose last
/// attempt shows no step may stand beside one that does.
AttemptParts last_attempts(const std::vector<ForeignLog>& logs) {
  AttemptParts parts;
  for (const ForeignLog& log : logs) parts.push_back(&log.attempts.back());
  return parts;
}

/// The attempts whose speed is told: the last ones that have steps.
AttemptParts attempts_with_steps(const std::vector<ForeignLog>& logs, const AttemptParts& last) {
  const bool has_any = std::ranges::any_of(
      last, [](const Attempt* a) { return !a->steps.empty() || !a->loose_step_times_s.empty(); });
  if (has_any) return last;
  AttemptParts parts;
  for (const ForeignLog& log : logs) {
    const Attempt* found = &log.attempts.back();
    for (const Attempt& attempt : log.attempts) {
      if (!attempt.steps.empty()) found = &attempt;
    }
    parts.push_back(found);
  }
  return parts;
}

/// One line a step, in order: several ranks or files may tell of the same. The log with the most
/// lines is asked first.
std::vector<StepLine> merged_steps(AttemptParts parts) {
  std::ranges::stable_sort(parts, std::greater<>(),
                           [](const Attempt* part) { return part->steps.num_lines(); });
  std::map<int64_t, StepLine> by_step;
  for (const Attempt* part : parts) {
    for (const StepLine& line : part->steps.lines()) {
      const auto [at, is_new] = by_step.try_emplace(line.step, line);
      if (!is_new) at->second.fill_from(line);
    }
  }
  std::vector<StepLine> steps;
  for (const auto& [step, line] : by_step) steps.push_back(line);
  return steps;
}

/// How often lines come.
struct Cadence {
  int64_t interval = 1;  ///< steps between regular lines
  /// The first line is one more, of the first step alone: Megatron-LM since core 0.16, torchtitan.
  bool has_extra = false;
};

/// `stride`: one in so many lines was kept.
Cadence cadence_of(const std::vector<StepLine>& steps, int64_t stride) {
  std::map<int64_t, int64_t> counts;
  for (size_t i = 1; i < steps.size(); ++i) ++counts[steps[i].step - steps[i - 1].step];
  Cadence cadence;
  int64_t most = 0;
  for (const auto& [distance, count] : counts) {
    if (count < most) continue;
    cadence.interval = distance;
    most = count;
  }
  cadence.interval = std::max<int64_t>(cadence.interval / stride, 1);
  if (steps.size() < 2 || stride > 1) return cadence;
  const int64_t first = steps[1].step - steps[0].step;
  // Two lines do not say more: a distance of 9 to step 10 is one of 10.
  const bool is_short = steps.size() == 2 && first > 1 && steps[1].step % (first + 1) == 0;
  if (is_short) cadence.interval = first + 1;
  cadence.has_extra =
      first == cadence.interval - 1 && first > 0 && steps[1].step % cadence.interval == 0;
  return cadence;
}

/// Where every step has a line, the extra one is none more, and only the clock tells: the second
/// line's mean is then not the time between the two, but that and the first step's, halved. Times
/// of whole seconds do not tell what is closer than one.
bool is_mean_of_two(const std::vector<StepLine>& steps) {
  if (steps.size() < 2 || steps[1].step != steps[0].step + 1) return false;
  const StepLine& first = steps[0];
  const StepLine& second = steps[1];
  if (!first.step_time_s || !second.step_time_s || !first.time_s || !second.time_s) return false;
  const double between_s = *second.time_s - *first.time_s;
  const double alone_s = 2 * *second.step_time_s - *first.step_time_s;
  const bool is_whole =
      *first.time_s == std::floor(*first.time_s) && *second.time_s == std::floor(*second.time_s);
  if (is_whole && std::abs(*second.step_time_s - between_s) <= 1) return false;
  return std::abs(alone_s - between_s) < std::abs(*second.step_time_s - between_s);
}

/// Megatron-LM does not reset its counters at the extra line: the next has the first step in it
/// again.
bool has_first_step_twice(const std::vector<StepLine>& steps, const Cadence& cadence,
                          Framework framework) {
  if (framework != Framework::megatron_lm && framework != Framework::primus) return false;
  return cadence.has_extra || (cadence.interval == 1 && is_mean_of_two(steps));
}

/// How many of the first values are of a longer warm-up than one step: far slower than the median
/// of all, as while kernels are loaded, compiled or chosen. At most a quarter. Others are rates.
std::ptrdiff_t num_still_warming(const std::vector<double>& values, bool are_times) {
  constexpr double kFar = 1.5;
  if (values.empty()) return 0;
  const double usual = base::median(values);
  const auto most = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  const auto is_usual = [&](double value) {
    return are_times ? value < kFar * usual : usual < kFar * value;
  };
  return std::find_if(values.begin(), most, is_usual) - values.begin();
}

/// What the lines behind the warm-up say; all lines where nothing else is left.
struct SteadyValues {
  std::vector<double> values;
  bool has_warmup = false;
  std::vector<StepBatch> batches = {};  ///< of the same lines; empty: values are of none
};

SteadyValues steady_values(const RunFacts& facts, StepMember member, const Cadence& cadence) {
  SteadyValues all{.has_warmup = true};
  SteadyValues steady;
  const size_t skip = has_first_step_twice(facts.steps, cadence, facts.framework) ? 2 : 1;
  for (size_t i = 0; i < facts.steps.size(); ++i) {
    const StepLine& line = facts.steps[i];
    const auto& value = line.*member;
    if (!value || !std::isfinite(*value) || *value <= 0) continue;
    const StepBatch batch{line.global_batch_size.value_or(0), line.seq_length.value_or(0)};
    const auto add = [&](SteadyValues& to) {
      to.values.push_back(*value);
      to.batches.push_back(batch);
    };
    add(all);
    if (i >= skip) add(steady);
  }
  if (steady.values.empty()) return all;
  const bool are_times = member == &StepLine::step_time_s;
  const std::ptrdiff_t warming = num_still_warming(steady.values, are_times);
  steady.values.erase(steady.values.begin(), steady.values.begin() + warming);
  steady.batches.erase(steady.batches.begin(), steady.batches.begin() + warming);
  return steady;
}

/// Of values without a step: the first has the warm-up, unless there is no other.
SteadyValues steady_values(const std::vector<double>& loose) {
  if (loose.size() <= 1) return {loose, loose.size() == 1};
  return {{loose.begin() + 1, loose.end()}};
}

std::optional<double> steady_median(const RunFacts& facts, StepMember member,
                                    const Cadence& cadence) {
  const std::vector<double> values = steady_values(facts, member, cadence).values;
  return values.empty() ? std::nullopt : std::optional(base::median(values));
}

StepTime step_time_of(const std::vector<double>& seconds) {
  StepTime time;
  time.median_s = base::median(seconds);
  time.min_s = *std::ranges::min_element(seconds);
  time.max_s = *std::ranges::max_element(seconds);
  time.num_lines = static_cast<int64_t>(seconds.size());
  time.steady_s = seconds;
  return time;
}

/// Tokens of all ranks in one step; 0: not known.
double tokens_per_step(const AttemptParts& parts, const RunFacts& facts) {
  for (const Attempt* part : parts) {
    if (part->sizes.tokens_per_step > 0) return static_cast<double>(part->sizes.tokens_per_step);
  }
  return static_cast<double>(facts.global_batch_size.value_or(0)) *
         static_cast<double>(facts.seq_length.value_or(0));
}

/// Of the first two lines, where the second has the first step in it again: what the others took.
std::optional<double> second_without_first(const std::vector<StepLine>& steps,
                                           const Cadence& cadence) {
  if (steps.size() < 2 || !steps[0].step_time_s || !steps[1].step_time_s) return std::nullopt;
  const auto count = static_cast<double>(std::max<int64_t>(cadence.interval, 2));
  const double rest = (count * *steps[1].step_time_s - *steps[0].step_time_s) / (count - 1);
  return rest > 0 ? std::optional(rest) : std::nullopt;
}

/// The time of a step by its rates, where lines have no time: its tokens by tokens a second, or the
/// same of samples.
SteadyValues derived_seconds(const RunFacts& facts, const Cadence& cadence) {
  SteadyValues steady;
  const double tokens = facts.tokens_per_step.value_or(0);
  const auto world = static_cast<double>(facts.world_size.value_or(0));
  if (tokens > 0 && world > 0) {
    steady = steady_values(facts, &StepLine::tokens_per_s_per_gpu, cadence);
    const auto usual_length = static_cast<double>(facts.seq_length.value_or(0));
    for (size_t i = 0; i < steady.values.size(); ++i) {
      const StepBatch& own = steady.batches[i];
      const double of_line =
          own.num_sequences * (own.seq_length > 0 ? own.seq_length : usual_length);
      steady.values[i] = (of_line > 0 ? of_line : tokens) / (steady.values[i] * world);
    }
  }
  const auto batch = static_cast<double>(facts.global_batch_size.value_or(0));
  if (steady.values.empty() && batch > 0) {
    steady = steady_values(facts, &StepLine::samples_per_s, cadence);
    for (size_t i = 0; i < steady.values.size(); ++i) {
      const double own = steady.batches[i].num_sequences;
      steady.values[i] = (own > 0 ? own : batch) / steady.values[i];
    }
  }
  return steady;
}

/// Megatron-Bridge prints those of its rank 0 apart from its step lines, to hundredths of a second.
SteadyValues loose_seconds(const AttemptParts& parts) {
  SteadyValues steady;
  for (const Attempt* part : parts) {
    steady = steady_values(part->loose_step_times_s);
    if (!steady.values.empty()) break;
  }
  std::erase_if(steady.values, [](double value) { return !(value > 0); });
  return steady;
}

SteadyValues stated_seconds(const RunFacts& facts, const Cadence& cadence) {
  SteadyValues steady = steady_values(facts, &StepLine::step_time_s, cadence);
  if (steady.has_warmup && has_first_step_twice(facts.steps, cadence, facts.framework)) {
    if (const auto rest = second_without_first(facts.steps, cadence)) return {{*rest}};
  }
  return steady;
}

void read_speed(const AttemptParts& parts, const Cadence& cadence, RunFacts& facts) {
  const double tokens = tokens_per_step(parts, facts);
  if (tokens > 0) facts.tokens_per_step = tokens;
  facts.tokens_per_s_per_gpu = steady_median(facts, &StepLine::tokens_per_s_per_gpu, cadence);
  facts.tflops_per_gpu = steady_median(facts, &StepLine::tflops_per_gpu, cadence);
  if (!facts.tflops_per_gpu) {
    for (const Attempt* part : parts) {
      const SteadyValues steady = steady_values(part->loose_tflops_per_gpu);
      if (!steady.values.empty()) facts.tflops_per_gpu = base::median(steady.values);
    }
  }
  SteadyValues seconds = stated_seconds(facts, cadence);
  bool is_derived = false;
  if (seconds.values.empty()) {
    seconds = derived_seconds(facts, cadence);
    is_derived = !seconds.values.empty();
  }
  if (seconds.values.empty()) seconds = loose_seconds(parts);
  if (seconds.values.empty()) return;
  facts.step_time = step_time_of(seconds.values);
  facts.step_time->interval = cadence.interval;
  facts.step_time->has_warmup = seconds.has_warmup;
  facts.step_time->is_derived = is_derived;
  facts.step_time->steady_batches = std::move(seconds.batches);
  derive_tokens(std::nullopt, facts);
}

/// Steps that the lines cover: the first line stands for those since the start.
void count_steps(const AttemptParts& parts, const Cadence& cadence, RunFacts& facts) {
  if (facts.steps.empty()) return;
  const int64_t first = facts.steps.front().step;
  int64_t before = -1;
  for (const Attempt* part : parts) before = std::max(before, part->first_step);
  if (before < 0 || before >= first) {
    before = first - (cadence.has_extra ? 1 : cadence.interval);
    if (facts.steps.size() == 1) before = 0;
  }
  facts.first_step = std::max<int64_t>(before, 0) + 1;
  facts.last_step = facts.steps.back().step;
  facts.num_steps = *facts.last_step - *facts.first_step + 1;
  for (const StepLine& step : facts.steps) {
    if (step.total > 0) facts.total_steps = step.total;
  }
}

void read_losses(const AttemptParts& parts, const Cadence& cadence, RunFacts& facts) {
  double skipped = 0;
  double nans = 0;
  for (const Attempt* part : parts) {
    skipped = std::max(skipped, part->steps.num_skipped());
    nans = std::max(nans, part->steps.num_nan());
  }
  if (has_first_step_twice(facts.steps, cadence, facts.framework)) {
    skipped -= facts.steps.front().num_skipped.value_or(0);
    nans -= facts.steps.front().num_nan.value_or(0);
  }
  facts.num_skipped_steps = std::llround(std::clamp(skipped, 0.0, 1e15));
  facts.num_nan_steps = std::llround(std::clamp(nans, 0.0, 1e15));
  for (const StepLine& step : facts.steps) {
    if (step.grad_norm) facts.grad_norm = step.grad_norm;
    if (!step.loss) continue;
    facts.loss = step.loss;
    if (!std::isfinite(*step.loss) && !facts.first_nan_step) facts.first_nan_step = step.step;
  }
}

void read_memory_peaks(const AttemptParts& parts, RunFacts& facts) {
  std::map<std::tuple<int, MemoryKind, bool>, MemoryReading> memory;
  for (const Attempt* part : parts) {
    for (const auto& [key, reading] : part->memory) {
      const auto [at, is_new] = memory.try_emplace(key, reading);
      if (!is_new && reading.bytes > at->second.bytes) at->second = reading;
    }
  }
  for (const auto& [key, reading] : memory) facts.memory.push_back(reading);
  // What tensors took says most; then what was reserved for them; then all of the device.
  for (const MemoryKind kind : {MemoryKind::allocated, MemoryKind::reserved, MemoryKind::device}) {
    for (const MemoryReading& reading : facts.memory) {
      const bool counts = reading.kind == kind && reading.is_peak;
      const bool is_more = !facts.peak_memory || reading.bytes > facts.peak_memory->bytes;
      if (counts && is_more) facts.peak_memory = reading;
    }
    if (facts.peak_memory) return;
  }
}

/// The first that is known wins: what a log names itself, then its configuration.
using P = ParallelSizes;
using K = spec::PlanKnobs;
using N = NamedSizes;
constexpr ParallelSizeRow kParallelSizes[] = {
    {"tp", &P::tp, &K::tp, &N::tp},  {"cp", &P::cp, &K::cp, &N::cp},
    {"pp", &P::pp, &K::pp, &N::pp},  {"vpp", &P::vpp, &K::vpp, nullptr},
    {"ep", &P::ep, &K::ep, &N::ep},  {"etp", &P::etp, &K::etp, &N::etp},
    {"dp", &P::dp, nullptr, &N::dp},
};

constexpr NamedSize kNamedSizes[] = {&N::world_size,
                                     &N::tp,
                                     &N::pp,
                                     &N::cp,
                                     &N::dp,
                                     &N::ep,
                                     &N::etp,
                                     &N::global_batch_size,
                                     &N::local_batch_size,
                                     &N::seq_length,
                                     &N::tokens_per_step,
                                     &N::total_steps,
                                     &N::vocab_size,
                                     &N::padded_vocab_size};

void take_size(std::optional<int64_t>& size, int64_t value) {
  if (!size && value > 0) size = value;
}

/// Of a step line; a figure that is no size of a run is left out.
std::optional<int64_t> logged_size(std::optional<double> value) {
  constexpr double kMostLogged = 1e9;
  if (!value || !(*value >= 1) || *value > kMostLogged) return std::nullopt;
  return std::llround(*value);
}

void read_named_sizes(const AttemptParts& parts, RunFacts& facts) {
  ParallelSizes& p = facts.parallel;
  for (const Attempt* part : parts) {
    const NamedSizes& named = part->sizes;
    for (const NamedSize size : kNamedSizes) {
      if (facts.named.*size == 0) facts.named.*size = named.*size;
    }
    take_size(facts.world_size, named.world_size);
    for (const ParallelSizeRow& row : kParallelSizes) {
      if (row.named != nullptr) take_size(p.*row.size, named.*row.named);
    }
    take_size(facts.global_batch_size, named.global_batch_size);
    take_size(facts.seq_length, named.seq_length);
    take_size(facts.total_steps, named.total_steps);
  }
}

/// Ranks that hold the model once; 0: more than can be counted, as sizes of a log may be anything.
int64_t replica_ranks(const ParallelSizes& sizes) {
  int64_t ranks = sizes.tp.value_or(1);
  const bool is_too_much = __builtin_mul_overflow(ranks, sizes.cp.value_or(1), &ranks) ||
                           __builtin_mul_overflow(ranks, sizes.pp.value_or(1), &ranks);
  return is_too_much ? 0 : ranks;
}

/// Where a log has no configuration: a pipeline cuts the local batch into micro-batches, of which
/// the log does not say the size.
void read_local_batch(const AttemptParts& parts, RunFacts& facts) {
  if (facts.parallel.pp != 1) return;
  for (const Attempt* part : parts) take_size(facts.micro_batch_size, part->sizes.local_batch_size);
}

void read_single_facts(const AttemptParts& parts, RunFacts& facts) {
  for (const Attempt* part : parts) {
    if (part->num_parameters > 0) facts.num_parameters = part->num_parameters;
    if (facts.model_name.empty()) facts.model_name = part->model_name;
    if (facts.device_name.empty()) facts.device_name = part->device_name;
    take_size(facts.device_bytes, part->device_bytes);
    if (facts.command.empty()) facts.command = part->command;
    if (facts.echoed.settings.empty()) facts.echoed = part->config;
    facts.num_allocator_retries =
        std::max(facts.num_allocator_retries, part->num_allocator_retries);
    facts.num_checkpoints = std::max(facts.num_checkpoints, part->num_checkpoints);
    if (part->steps.stride() > 1) {
      facts.notes.push_back(fmt::format("of {} step lines one in {} is kept",
                                        part->steps.num_lines(), part->steps.stride()));
    }
  }
}

/// Settings of another release may be called otherwise, and others may go together.
void note_other_release(const AttemptParts& parts, RunFacts& facts) {
  if (facts.framework != Framework::torchtitan) return;
  const std::string_view ours = spec::dialects::dialect_row(Dialect::torchtitan).release;
  const std::string_view number = log_text::up_to(ours, " ");
  for (const Attempt* part : parts) {
    const std::string& theirs = part->titan_version;
    // "0.2.2+cu128" is a build of it.
    if (theirs.empty() || log_text::up_to(theirs, "+") == number) continue;
    facts.notes.push_back(
        fmt::format("the log is of torchtitan {}: its settings and their rules are taken for those "
                    "of {}",
                    theirs, ours));
    return;
  }
}

/// Megatron-LM tells those of each tensor and pipeline rank, of whose experts an expert-parallel
/// rank has its share only. Of all it tells a rounded figure.
void add_up_parameters(const AttemptParts& parts, RunFacts& facts) {
  std::map<std::string, int64_t> parameters;
  int64_t rounded = 0;
  for (const Attempt* part : parts) {
    parameters.insert(part->parameters.begin(), part->parameters.end());
    rounded = std::max(rounded, part->rounded_parameters);
  }
  int64_t sum = 0;
  for (const auto& [place, count] : parameters) {
    if (sum < INT64_MAX / 2 && count < INT64_MAX / 2) sum += count;
  }
  take_size(facts.num_parameters, facts.parallel.ep.value_or(1) > 1 ? rounded : sum);
}

}  // namespace

RunFacts facts_of_logs(const std::vector<ForeignLog>& logs, const RunOptions& options) {
  MOETUNE_CHECK(!logs.empty(), "no log");
  RunFacts facts;
  const ForeignLog* known = &logs.front();
  for (const ForeignLog& log : logs) {
    if (log.framework_weight > known->framework_weight) known = &log;
    facts.files.insert(facts.files.end(), log.files.begin(), log.files.end());
    facts.notes.insert(facts.notes.end(), log.notes.begin(), log.notes.end());
    facts.num_attempts = std::max(facts.num_attempts, log.num_attempts);
    facts.is_rocm |= log.is_rocm;
  }
  facts.framework = known->framework;
  facts.known_by = known->known_by;
  facts.known_at = known->known_at;
  const AttemptParts last = last_attempts(logs);
  const AttemptParts parts = attempts_with_steps(logs, last);
  facts.steps = merged_steps(parts);
  const auto most = std::ranges::max_element(
      parts, {}, [](const Attempt* part) { return part->steps.num_lines(); });
  facts.steps_file = logs[static_cast<size_t>(most - parts.begin())].files.front();
  read_named_sizes(parts, facts);
  read_single_facts(parts, facts);
  note_other_release(parts, facts);
  read_echoed_config(facts);
  if (facts.config) {
    // A log has its command as it was started: nobody says otherwise.
    take_size(facts.world_size, facts.config->world_size);
    take_configured_sizes(*facts.config, facts);
  }
  read_local_batch(parts, facts);
  add_up_parameters(parts, facts);
  for (const StepLine& step : facts.steps) {
    if (const auto size = logged_size(step.global_batch_size)) facts.global_batch_size = size;
    if (const auto size = logged_size(step.seq_length)) facts.seq_length = size;
  }
  int64_t stride = 1;
  for (const Attempt* part : parts) stride = std::max(stride, part->steps.stride());
  const Cadence cadence = cadence_of(facts.steps, stride);
  count_steps(parts, cadence, facts);
  read_speed(parts, cadence, facts);
  read_losses(parts, cadence, facts);
  read_memory_peaks(parts, facts);
  judge_run(last, options, facts);
  note_unread_steps(parts, facts);
  std::ranges::move(earlier_endings(logs), std::back_inserter(facts.notes));
  return facts;
}

RunFacts read_run(const std::vector<std::string>& paths, const RunOptions& options) {
  std::vector<ForeignLog> logs;
  for (const std::string& path : paths) logs.push_back(read_log_file(path));
  const std::vector<std::string> notes = remove_other_runs(logs);
  name_ranks_by_paths(logs);
  RunFacts facts = facts_of_logs(logs, options);
  std::ranges::copy(notes, std::back_inserter(facts.notes));
  return facts;
}

void take_configured_sizes(const spec::dialects::RunConfig& config, RunFacts& facts) {
  const spec::PlanKnobs& knobs = config.knobs;
  ParallelSizes& sizes = facts.parallel;
  take_size(facts.world_size, config.stated_world_size);
  // Experts are usually as attention, which traces may know to be of another size.
  if (knobs.etp == knobs.tp && sizes.tp) take_size(sizes.etp, *sizes.tp);
  for (const ParallelSizeRow& row : kParallelSizes) {
    if (row.knob != nullptr) take_size(sizes.*row.size, knobs.*row.knob);
  }
  const int64_t replica = replica_ranks(sizes);
  if (replica > 0 && facts.world_size && *facts.world_size % replica == 0) {
    take_size(sizes.dp, *facts.world_size / replica);
  }
  take_size(facts.micro_batch_size, knobs.micro_batch_size);
  // One that is not said follows from the ranks.
  if (!config.is_batch_derived || facts.world_size) {
    take_size(facts.global_batch_size, config.global_batch_size);
  }
  take_size(facts.seq_length, config.seq_length);
  if (facts.model_name.empty()) facts.model_name = config.model_name;
}

std::span<const ParallelSizeRow> parallel_sizes() { return kParallelSizes; }

bool RunFailure::is_of_the_machine() const {
  constexpr std::array<std::string_view, 4> kKinds = {"no-device", "library", "disk-full",
                                                      "address-in-use"};
  if (std::ranges::find(kKinds, kind) != kKinds.end()) return true;
  // Every process on a device holds some for itself.
  constexpr int64_t kUsualShare = 10;
  return memory && memory->others_bytes > memory->asked_bytes &&
         memory->others_bytes > memory->capacity_bytes / kUsualShare;
}

}  // namespace moetune::sweeps
