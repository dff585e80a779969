#include "sweeps/runs/line_forms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/base/text.h"
#include "sweeps/runs/deepspeed_lines.h"
#include "sweeps/runs/hidden_loss.h"
#include "sweeps/runs/line_fields.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"
#include "sweeps/runs/titan_lines.h"

namespace moetune::sweeps {
namespace {

using log_text::bare;
using log_text::behind;
using log_text::integer_behind;
using log_text::leading_integer;
using log_text::leading_number;
using log_text::number_behind;

constexpr double kMebi = 1024.0 * 1024.0;
constexpr double kGibi = 1024.0 * kMebi;
constexpr double kGiga = 1e9;

/// "key: value | key: value |" of Megatron-LM, Megatron-Bridge, Primus and NeMo.
constexpr StepField kBarFields[] = {
    {"consumed samples", &StepLine::consumed_samples},
    {"elapsed time per iteration (ms)", &StepLine::step_time_s, 1e-3},
    {"elapsed time per iteration (s)", &StepLine::step_time_s},
    {"throughput per GPU (TFLOP/s/GPU)", &StepLine::tflops_per_gpu},
    {"compute per GPU (TFLOP/s/GPU)", &StepLine::tflops_per_gpu},
    {"tokens per GPU (tokens/s/GPU)", &StepLine::tokens_per_s_per_gpu},
    {"tokens/s/GPU inst/harmonic mean", &StepLine::tokens_per_s_per_gpu},
    {"learning rate", &StepLine::learning_rate},
    {"decoupled learning rate", &StepLine::learning_rate},
    {"global batch size", &StepLine::global_batch_size},
    {"seq_length", &StepLine::seq_length},
    {"lm loss", &StepLine::loss},
    {"grad norm", &StepLine::grad_norm},
    {"number of skipped iterations", &StepLine::num_skipped},
    {"number of nan iterations", &StepLine::num_nan},
    // NeMo 2.
    {"train_step_timing in s", &StepLine::step_time_s},
    {"reduced_train_loss", &StepLine::loss},
    {"lr", &StepLine::learning_rate},
    {"grad_norm", &StepLine::grad_norm},
    {"global_batch_size", &StepLine::global_batch_size},
    {"consumed_samples", &StepLine::consumed_samples},
    {"TFLOPS_per_GPU", &StepLine::tflops_per_gpu},
    // Megatron-DeepSpeed.
    {"TFLOPs", &StepLine::tflops_per_gpu},
    {"tokens per gpu per second (tgs)", &StepLine::tokens_per_s_per_gpu},
    {"tokens_per_sec_per_gpu", &StepLine::tokens_per_s_per_gpu},
    {"tokens/sec/gpu", &StepLine::tokens_per_s_per_gpu},
    {"samples per second", &StepLine::samples_per_s},
    {"actual seqlen", &StepLine::seq_length},
    // GPT-NeoX.
    {"lm_loss", &StepLine::loss},
    {"approx flops per GPU", &StepLine::tflops_per_gpu},
};

void read_bar_field(std::string_view key, std::string_view said, StepLine& step) {
  for (const StepField& field : kBarFields) {
    if (field.key != key || step.*field.member) continue;
    const auto value = leading_number(said);
    if (value) step.*field.member = *value * field.scale;
  }
}

void read_bars(std::string_view text, StepLine& step) {
  while (!text.empty()) {
    const std::string_view segment = log_text::up_to(text, "|");
    text.remove_prefix(std::min(segment.size() + 1, text.size()));
    const size_t colon = segment.rfind(": ");
    if (colon == std::string_view::npos) continue;
    read_bar_field(bare(segment.substr(0, colon)), segment.substr(colon + 2), step);
  }
}

/// "key=value, key=value]": the same words behind a progress bar.
void read_bar_pairs(std::string_view text, StepLine& step) {
  text = log_text::up_to(text, "]");
  while (!text.empty()) {
    const std::string_view segment = log_text::up_to(text, ",");
    text.remove_prefix(std::min(segment.size() + 1, text.size()));
    const size_t sign = segment.find('=');
    if (sign == std::string_view::npos) continue;
    read_bar_field(bare(segment.substr(0, sign)), segment.substr(sign + 1), step);
  }
}

/// "iteration       20/     100": the last before `at`, where lines may be glued.
bool read_counter(std::string_view text, size_t at, StepLine& step, size_t& begin) {
  constexpr std::string_view kWord = "iteration ";
  begin = text.rfind(kWord, at);
  if (begin == std::string_view::npos) return false;
  const std::string_view counter = text.substr(begin + kWord.size());
  const auto done = leading_integer(counter);
  const auto all = integer_behind(log_text::up_to(counter, "|"), "/");
  if (!done) return false;
  step.step = *done;
  step.total = all.value_or(0);
  return true;
}

/// torchtitan's line in the form of Primus: "| memory usage/free/total: 96.50GiB/90.25GiB/(50.26%)
/// | ... | loss: 1.15E+01 |". The first is what was reserved at most, whatever it is called; none
/// of another line, whose losses have names.
std::optional<double> read_titan_bars(std::string_view text) {
  const auto memory = behind(text, "| memory usage/free/total: ");
  if (!memory || !log_text::up_to(*memory, "/").ends_with("GiB")) return std::nullopt;
  return leading_number(*memory);
}

bool read_megatron_step(std::string_view text, size_t at, LogCollector& log) {
  StepLine step;
  size_t begin = 0;
  if (!read_counter(text, at, step, begin)) return false;
  const size_t date = text.rfind('[', begin);
  if (date != std::string_view::npos) {
    step.time_s = log_text::first_time(text.substr(date, begin - date));
  }
  read_bars(text.substr(begin), step);
  if (!step.step_time_s) return false;
  const std::optional<double> reserved = read_titan_bars(text.substr(begin));
  // Forks that train by other objectives call it so.
  if (!step.loss) step.loss = number_behind(text.substr(begin), "| loss: ");
  // No step takes eleven days, nor less than none: the time is left out, the step was made.
  constexpr double kLongestStepS = 1e6;
  if (!(*step.step_time_s > 0 && *step.step_time_s <= kLongestStepS)) {
    log.add_absurd_time(step.step);
    step.step_time_s.reset();
  }
  if (step.loss) log.has_printed_loss = true;
  // A mean that is not a number is left out, on the first line as well, and those of experts'
  // losses beside it are not. Only a whole line shows that, and steps that were skipped have none.
  if (!step.loss && step.num_skipped.value_or(0) == 0) {
    const bool is_whole = step.num_nan.has_value();
    const bool is_said = text.find("lm loss:", begin) != std::string_view::npos;
    const LossPlace place = loss_place_of(text.substr(begin));
    const bool is_cut =
        is_said || (is_whole ? place == LossPlace::broken : !base::trimmed(text).ends_with('|'));
    // One of another name may be all that a fork has.
    const bool is_hidden = place == LossPlace::empty || log.has_printed_loss;
    if (is_cut) {
      log.add_cut_loss(step.step);
    } else if (is_whole && is_hidden) {
      step.loss = std::numeric_limits<double>::quiet_NaN();
    }
  }
  log.add_step(step);
  if (reserved) {
    log.add_memory(log.rank(), MemoryKind::reserved, true, *reserved * kGibi, step.step);
  }
  return true;
}

/// What stands in front of the time is there, and neither the time is nor what stands behind it:
/// another process has written into the line. The rest of it, on a line of its own, says no step.
bool read_torn_step(std::string_view text, size_t at, LogCollector& log) {
  StepLine step;
  size_t begin = 0;
  if (!read_counter(text, at, step, begin) || step.total <= 0) return false;
  read_bars(text.substr(begin), step);
  const bool has_rest = step.learning_rate || step.global_batch_size || step.loss ||
                        step.grad_norm || step.num_skipped || step.num_nan;
  if (!step.step_time_s && !has_rest) log.add_torn_step(step.step);
  return false;
}

/// "hip mem usage/free/total/usage_ratio: 150.00GB/42.00GB/192.00GB/78.12%": of the device, now.
bool read_hip_memory(std::string_view text, size_t at, LogCollector& log) {
  log.prove_rocm();
  const auto used = number_behind(text.substr(at), "usage_ratio: ");
  if (!used) return false;
  log.add_memory(log.rank(), MemoryKind::device, false, *used * kGibi, -1);
  const auto sizes = behind(text.substr(at), "/usage_ratio: ");
  const auto others = sizes ? behind(*sizes, "/") : std::nullopt;
  const auto total = others ? number_behind(*others, "/") : std::nullopt;
  if (total && *total > 0 && *total < 1e6) log.now().device_bytes = std::llround(*total * kGibi);
  return true;
}

/// "rank-3 rocm max mem usage/usage_ratio: 160.00GB/83.3%": the fullest of all ranks.
bool read_rocm_peak(std::string_view text, size_t at, LogCollector& log) {
  const size_t word = text.rfind("rank-", at);
  const auto used = number_behind(text.substr(at), "usage_ratio: ");
  if (word == std::string_view::npos || !used) return false;
  const auto rank = leading_integer(text.substr(word + 5));
  if (!rank || *rank < 0 || *rank > 1'000'000) return false;
  log.add_memory(static_cast<int>(*rank), MemoryKind::device, true, *used * kGibi, -1);
  return true;
}

/// "Step Time : 1.23s GPU utilization: 456.7MODEL_TFLOP/s/GPU": of rank 0, without a step.
bool read_bridge_time(std::string_view text, size_t at, LogCollector& log) {
  constexpr size_t kMostLoose = 65'536;
  const auto seconds = number_behind(text.substr(at), "Step Time :");
  const auto tflops = number_behind(text.substr(at), "GPU utilization:");
  Attempt& attempt = log.now();
  if (!seconds || !tflops || attempt.loose_step_times_s.size() >= kMostLoose) return false;
  attempt.loose_step_times_s.push_back(*seconds);
  attempt.loose_tflops_per_gpu.push_back(*tflops);
  return true;
}

struct MemoryField {
  std::string_view key;
  MemoryKind kind;
  bool is_peak;
};
constexpr MemoryField kMegatronMemory[] = {
    {"allocated", MemoryKind::allocated, false},
    {"max allocated", MemoryKind::allocated, true},
    {"reserved", MemoryKind::reserved, false},
    {"max reserved", MemoryKind::reserved, true},
    {"total device memory used", MemoryKind::device, false},
    // Megatron-Bridge.
    {"mem-allocated-gigabytes", MemoryKind::allocated, false},
    {"mem-max-allocated-gigabytes", MemoryKind::allocated, true},
    {"mem-reserved-gigabytes", MemoryKind::reserved, false},
    {"mem-max-reserved-gigabytes", MemoryKind::reserved, true},
};

/// "[Rank 0] (after 2 iterations) memory (MB) | allocated: ... | max allocated: ...", and "after 2
/// iterations memory (MB) | ..." of Megatron-LM before it named ranks.
bool read_memory(std::string_view text, size_t at, LogCollector& log, double unit) {
  const size_t word = text.rfind("[Rank ", at);
  const bool names_rank = word != std::string_view::npos;
  const std::string_view front = text.substr(names_rank ? word : 0, at - (names_rank ? word : 0));
  if (!names_rank && !front.ends_with(" iterations")) return false;
  const auto rank =
      names_rank ? leading_integer(front.substr(6)) : std::optional(int64_t{log.rank()});
  const auto step = integer_behind(front, "after ");
  if (!rank || *rank < (names_rank ? 0 : -1) || *rank > 1'000'000) return false;
  std::string_view rest = text.substr(at);
  while (!rest.empty()) {
    const std::string_view segment = log_text::up_to(rest, "|");
    rest.remove_prefix(std::min(segment.size() + 1, rest.size()));
    const size_t colon = segment.find(": ");
    if (colon == std::string_view::npos) continue;
    const std::string_view key = bare(segment.substr(0, colon));
    const auto value = leading_number(segment.substr(colon + 2));
    if (!value) continue;
    if (key == "mem-alloc-retires") {  // sic
      log.now().num_allocator_retries =
          std::max<int64_t>(log.now().num_allocator_retries, std::llround(std::min(*value, 1e9)));
    }
    for (const MemoryField& field : kMegatronMemory) {
      if (field.key != key) continue;
      log.add_memory(static_cast<int>(*rank), field.kind, field.is_peak, *value * unit,
                     step.value_or(-1));
    }
  }
  return true;
}
/// What it calls MB is MiB.
bool read_memory_mib(std::string_view text, size_t at, LogCollector& log) {
  return read_memory(text, at, log, kMebi);
}
/// What it calls GB is 10^9 bytes.
bool read_memory_gb(std::string_view text, size_t at, LogCollector& log) {
  return read_memory(text, at, log, kGiga);
}

constexpr SizeField kWorldFields[] = {
    {"using world size: ", &NamedSizes::world_size},
    {"data-parallel size: ", &NamedSizes::dp},
    {" context-parallel size: ", &NamedSizes::cp},
    {"tensor-model-parallel size: ", &NamedSizes::tp},
    {"pipeline-model-parallel size: ", &NamedSizes::pp},
};
bool read_world(std::string_view text, size_t at, LogCollector& log) {
  log.banner("world");
  // core 0.12 has sizes of an encoder as well.
  std::string rest(text.substr(at));
  for (size_t i = rest.find("encoder-"); i != std::string::npos; i = rest.find("encoder-")) {
    rest.erase(i, std::min(rest.find_first_of(",\n", i), rest.size()) - i);
  }
  return read_sizes(rest, kWorldFields, log);
}

bool begin_arguments(std::string_view, size_t, LogCollector& log) {
  log.banner("arguments");
  log.begin_config(EchoedConfig::Form::argument_dump);
  return true;
}
bool begin_summary(std::string_view, size_t, LogCollector& log) {
  log.banner("summary");
  log.begin_config(EchoedConfig::Form::bridge_summary);
  return true;
}
bool end_arguments(std::string_view, size_t, LogCollector& log) {
  log.end_config();
  return true;
}
/// "Exception ignored in: <function ...>", as the process ends most often, "--- Logging error ---".
bool read_ignored(std::string_view, size_t, LogCollector& log) {
  log.expect_traceback(TracebackOf::nothing);
  return false;
}
/// "Exception in thread Thread-1:", "Task exception was never retrieved".
bool read_of_thread(std::string_view, size_t, LogCollector& log) {
  log.expect_traceback(TracebackOf::thread);
  return false;
}
/// "During handling of the above exception, another exception occurred:", "The above exception was
/// the direct cause of the following exception:".
bool read_chain(std::string_view, size_t, LogCollector& log) {
  log.expect_more_traceback();
  return false;
}
bool begin_python_trace(std::string_view, size_t, LogCollector& log) {
  log.begin_traceback();
  return false;  // nothing of a run yet
}

/// " > number of parameters on (tensor, pipeline) model parallel rank (0, 3): 123456"
bool read_parameters(std::string_view text, size_t at, LogCollector& log) {
  constexpr size_t kMostPlaces = 65'536;
  const auto place = behind(text.substr(at), "rank (");
  if (!place) return false;
  const auto count = integer_behind(*place, "): ");
  if (!count || *count < 0 || log.now().parameters.size() >= kMostPlaces) return false;
  log.now().parameters[log_text::printable(log_text::up_to(*place, ")"), 40)] = *count;
  return true;
}

/// " > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)"
bool read_vocabulary(std::string_view text, size_t at, LogCollector& log) {
  const auto size = integer_behind(text.substr(at), "(size: ");
  const auto padded = integer_behind(text.substr(at), "(new size: ");
  if (!size || !padded) return false;
  log.set_size(&NamedSizes::vocab_size, *size);
  log.set_size(&NamedSizes::padded_vocab_size, *padded);
  return true;
}

/// "Total number of parameters in billions: 30.53"
bool read_total_parameters(std::string_view text, size_t at, LogCollector& log) {
  const auto billions = number_behind(text.substr(at), "billions:");
  if (!billions || !(*billions > 0) || *billions > 1e6) return false;
  log.now().rounded_parameters = std::llround(*billions * kGiga);
  return true;
}

/// "successfully loaded checkpoint from DIR [ t 1/2, p 1/1 ] at iteration 5000"
bool read_loaded(std::string_view text, size_t at, LogCollector& log) {
  const size_t word = text.rfind("at iteration ");
  if (word == std::string_view::npos || word < at) return false;
  const auto step = leading_integer(text.substr(word + 13));
  if (step && *step >= 0) log.now().first_step = *step;
  return step.has_value();
}
bool read_saved(std::string_view, size_t, LogCollector& log) {
  ++log.now().num_checkpoints;
  return true;
}
bool read_end(std::string_view text, size_t at, LogCollector& log) {
  log.mark_end(log_text::up_to(text.substr(at), "]"));
  return true;
}
/// After so many iterations or minutes, as it was told to; SIGTERM is a failure's row.
bool read_planned_end(std::string_view text, size_t at, LogCollector& log) {
  if (text.substr(at).find("SIGTERM") != std::string_view::npos) return false;
  return read_end(text, at, log);
}

constexpr MemoryField kNemoMemory[] = {
    {"max_memory_allocated", MemoryKind::allocated, true},
    {"max_memory_reserved", MemoryKind::reserved, true},
};

/// "max_memory_allocated: 53930270720": as PyTorch tells it, in bytes. Who logs it by a callback of
/// his own may have chosen a unit.
void read_nemo_memory(std::string_view text, int64_t step, LogCollector& log) {
  for (const MemoryField& field : kNemoMemory) {
    const auto said = behind(text, field.key);
    if (!said || said->empty()) continue;
    const auto value = leading_number(said->substr(1));  // ": " or "="
    if (value && *value >= kMebi) {
      log.add_memory(log.rank(), field.kind, field.is_peak, *value, step);
    }
  }
}

/// "Training epoch 0, iteration 19/99 | lr: 1.2e-05 | global_step: 19 | ...": counted from 0.
bool read_nemo_step(std::string_view text, size_t at, LogCollector& log) {
  StepLine step;
  size_t begin = 0;
  if (!read_counter(text, at, step, begin)) return false;
  ++step.step;
  if (step.total > 0) ++step.total;
  const auto global = integer_behind(text.substr(begin), "global_step: ");
  if (global && *global >= 0) step.step = *global + 1;
  read_bars(text.substr(begin), step);
  if (!step.step_time_s && !step.loss) return false;
  log.add_step(step);
  read_nemo_memory(text.substr(begin), step.step, log);
  return true;
}

/// The same without the time of a step.
bool read_untimed_nemo_step(std::string_view text, size_t at, LogCollector& log) {
  const bool is_timed = text.find("train_step_timing in s:") != std::string_view::npos;
  const bool is_step = text.substr(0, at).find("Training epoch ") != std::string_view::npos;
  return is_step && !is_timed && read_nemo_step(text, at, log);
}

/// "Epoch 0: :  2%|x  | 2/100 [00:02<12:00, reduced_train_loss=9.900, global_step=1.000,
/// consumed_samples=512.0, train_step_timing in s=1.234]": a bar that is drawn again and again. Of
/// numbers it has five characters.
bool read_nemo_bar(std::string_view text, size_t at, LogCollector& log) {
  const size_t bracket = text.rfind(" [", at);
  const size_t bar = bracket == std::string_view::npos ? bracket : text.rfind('|', bracket);
  const size_t epoch_at = bar == std::string_view::npos ? bar : text.rfind("Epoch ", bar);
  if (epoch_at == std::string_view::npos) return false;
  const std::string_view counter = text.substr(bar + 1, bracket - bar - 1);
  const auto epoch = leading_integer(text.substr(epoch_at + 6));
  const auto done = leading_integer(counter);
  const auto all = integer_behind(counter, "/");
  constexpr int64_t kMostSteps = 1'000'000'000;
  if (!epoch || *epoch < 0 || *epoch > kMostSteps || !done || *done < 0 || *done > kMostSteps ||
      !all || *all < 1 || *all > kMostSteps / (*epoch + 1)) {
    return false;
  }
  const std::string_view pairs = text.substr(bracket + 2);
  StepLine step;
  step.step = *epoch * *all + *done;
  step.total = (*epoch + 1) * *all;
  const std::string_view global = log_text::up_to(behind(pairs, "global_step=").value_or(""), ",]");
  // "1.2e+3" is rounded.
  const bool is_exact = !global.empty() && global.find('e') == std::string_view::npos;
  const auto number = is_exact ? leading_integer(global) : std::nullopt;
  // NeMo 1 counts steps that are done, NeMo 2 from 0: the bar of the first epoch shows which.
  const bool is_done_count = number && *number == *done && *epoch == 0;
  if (number && *number >= 0 && *number < kMostSteps && !is_done_count) step.step = *number + 1;
  read_bar_pairs(pairs, step);
  if (!step.step_time_s && !step.loss) return false;
  log.add_step(step);
  read_nemo_memory(log_text::up_to(pairs, "]"), step.step, log);
  return true;
}

/// The same without the time of a step: NeMo 1.
bool read_untimed_nemo_bar(std::string_view text, size_t at, LogCollector& log) {
  const std::string_view rest = log_text::up_to(text.substr(at), "]");
  if (rest.find("train_step_timing in s=") != std::string_view::npos) return false;
  return read_nemo_bar(text, at, log);
}

/// "+ torchrun --nproc_per_node=8 ...": the shell shows what it runs. So does who writes the
/// command above a log.
bool read_command_line(std::string_view text, size_t at, LogCollector& log) {
  constexpr size_t kMostBytes = 16'384;
  const std::string_view said = bare(text);
  const bool is_command = (said.starts_with("+ ") && said.find(" --") != std::string_view::npos) ||
                          (log_text::is_commented_command(said) && log.place().line == 1);
  if (!is_command || at > 400 || !log.now().command.empty()) return false;
  log.now().command = log_text::printable(said.substr(2), kMostBytes);
  return true;
}

constexpr Framework kLm = Framework::megatron_lm;
constexpr Framework kBridge = Framework::megatron_bridge;
constexpr Framework kTitan = Framework::torchtitan;
constexpr Framework kPrimus = Framework::primus;
constexpr Framework kNemo = Framework::nemo;
constexpr Framework kDeepspeed = Framework::deepspeed;
constexpr Framework kAnybody = Framework::unknown;

constexpr LineForm kLineForms[] = {
    // Megatron-LM and those that build on it.
    {"megatron step", "elapsed time per iteration (", kLm, 1, read_megatron_step},
    {"megatron torn step", "consumed samples:", kAnybody, 0, read_torn_step},
    {"megatron memory", " memory (MB) |", kLm, 1, read_memory_mib},
    {"megatron world", "using world size: ", kLm, 1, read_world},
    {"megatron arguments", "- arguments -", kLm, 1, begin_arguments},
    {"megatron arguments end", "- end of arguments -", kAnybody, 0, end_arguments},
    {"megatron usage", "usage: pretrain_", kLm, 1},
    {"megatron parameters", "number of parameters on (", kLm, 1, read_parameters},
    {"megatron total", "Total number of parameters in billions:", kAnybody, 0,
     read_total_parameters},
    {"megatron vocabulary", "> padded vocab (size: ", kLm, 1, read_vocabulary},
    {"megatron loaded", "successfully loaded checkpoint from", kAnybody, 0, read_loaded},
    {"megatron saved", "successfully saved checkpoint", kAnybody, 0, read_saved},
    {"megatron end", "after training is done", kAnybody, 0, read_end},
    {"megatron planned end", "exiting program at iteration ", kAnybody, 0, read_planned_end},
    {"megatron planned end", "exiting program after ", kAnybody, 0, read_planned_end},
    // Megatron-Bridge.
    {"bridge time", "Step Time :", kBridge, 3, read_bridge_time},
    {"bridge memory", " memory (GB) |", kBridge, 3, read_memory_gb},
    {"bridge summary", "Configuration Summary (Non-Default Values vs Megatron Core)", kBridge, 3,
     begin_summary},
    // Primus.
    {"primus compute", "compute per GPU (TFLOP/s/GPU):", kPrimus, 4},
    {"primus memory", "hip mem usage/free/total/usage_ratio:", kPrimus, 4, read_hip_memory},
    {"primus peak", " rocm max mem usage/usage_ratio:", kPrimus, 4, read_rocm_peak},
    // torchtitan.
    {"titan", "[titan] 20", kTitan, 2, titan_lines::read_mark},
    {"titan version", "torchtitan version: ", kTitan, 2, titan_lines::read_version},
    {"titan step", "tps: ", kTitan, 2, titan_lines::read_step},
    {"titan step", "wps: ", kTitan, 2, titan_lines::read_step},
    {"titan torn step", " INFO - step:", kAnybody, 0, titan_lines::read_torn_step},
    {"titan mesh", "Building device mesh with parallelism:", kTitan, 2, titan_lines::read_mesh},
    {"titan mesh", "-D device mesh with [", kTitan, 2, titan_lines::read_listed_mesh},
    {"titan trainer", "Trainer is initialized with ", kTitan, 2, titan_lines::read_trainer},
    {"titan start", "Training starts at step ", kAnybody, 0, titan_lines::read_start},
    {"titan end", "Training completed", kAnybody, 0, read_end},
    {"titan configuration", "Running with configs: {", kTitan, 2, titan_lines::begin_configuration},
    {"titan model", " total parameters", kAnybody, 0, titan_lines::read_model},
    {"titan capacity", " capacity: ", kAnybody, 0, titan_lines::read_capacity},
    {"titan retries", " memory allocation retries.", kAnybody, 0, titan_lines::read_retries},
    // NeMo 2.
    {"nemo step", "train_step_timing in s:", kNemo, 3, read_nemo_step},
    {"nemo step", "reduced_train_loss:", kNemo, 3, read_untimed_nemo_step},
    {"nemo bar", "train_step_timing in s=", kNemo, 3, read_nemo_bar},
    {"nemo bar", "reduced_train_loss=", kNemo, 3, read_untimed_nemo_bar},
    // DeepSpeed.
    {"deepspeed rate", "RunningAvgSamplesPerSec=", kDeepspeed, 2, deepspeed_lines::read_rate},
    {"deepspeed rate", ", SamplesPerSec=", kDeepspeed, 2, deepspeed_lines::read_rate},
    {"deepspeed pipeline", "iter time (s): ", kDeepspeed, 2, deepspeed_lines::read_pipeline},
    {"deepspeed step", ", skipped=", kDeepspeed, 2, deepspeed_lines::read_step},
    {"deepspeed memory", "Max_MA ", kDeepspeed, 2, deepspeed_lines::read_memory},
    // Whoever trains.
    {"command", "torchrun ", kAnybody, 0, read_command_line},
    {"command", "torch.distributed.", kAnybody, 0, read_command_line},
    {"command", "+ python", kAnybody, 0, read_command_line},
    {"ignored", "Exception ignored ", kAnybody, 0, read_ignored},
    {"ignored", "--- Logging error ---", kAnybody, 0, read_ignored},
    {"ignored", "Error in atexit._run_exitfuncs:", kAnybody, 0, read_ignored},
    {"thread", "Exception in thread ", kAnybody, 0, read_of_thread},
    {"thread", "Task exception was never retrieved", kAnybody, 0, read_of_thread},
    {"chain", "he above exception", kAnybody, 0, read_chain},
    {"traceback", "Traceback (most recent call last):", kAnybody, 0, begin_python_trace},
};

}  // namespace

std::span<const LineForm> line_forms() { return kLineForms; }

}  // namespace moetune::sweeps
