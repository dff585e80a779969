#include "sweeps/runs/titan_lines.h"

#include <algorithm>
#include <cmath>

#include "sweeps/runs/line_fields.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps::titan_lines {
namespace {

using log_text::bare;
using log_text::behind;
using log_text::integer_behind;
using log_text::leading_integer;
using log_text::leading_number;
using log_text::number_behind;

constexpr double kGibi = 1024.0 * 1024.0 * 1024.0;

/// "key: value  key: value" of torchtitan.
constexpr StepField kTitanFields[] = {
    {" loss:", &StepLine::loss},
    {"grad_norm:", &StepLine::grad_norm},
    {"tps:", &StepLine::tokens_per_s_per_gpu},
    {"wps:", &StepLine::tokens_per_s_per_gpu},  // before 0.1.0
    {"tflops:", &StepLine::tflops_per_gpu},
};

constexpr SizeField kMeshFields[] = {
    {"pp=", &NamedSizes::pp},  {" cp=", &NamedSizes::cp},  {" tp=", &NamedSizes::tp},
    {" ep=", &NamedSizes::ep}, {"etp=", &NamedSizes::etp},
};

struct MeshAxis {
  std::string_view name;
  NamedSize member;
};
/// Up to torchtitan 0.2.0. The shards are split in two where experts are spread over them.
constexpr MeshAxis kMeshAxes[] = {
    {"pp", &NamedSizes::pp},
    {"dp", &NamedSizes::dp},
    {"dp_replicate", &NamedSizes::dp},
    {"dp_shard", &NamedSizes::dp},
    {"dp_shard_mod_ep", &NamedSizes::dp},
    {"dp_shard_in_ep", &NamedSizes::dp},
    {"cp", &NamedSizes::cp},
    {"tp", &NamedSizes::tp},
};

constexpr SizeField kTrainerFields[] = {
    {"local batch size ", &NamedSizes::local_batch_size},
    {"global batch size ", &NamedSizes::global_batch_size},
    {"sequence length ", &NamedSizes::seq_length},
    {"maximum context length ", &NamedSizes::seq_length},
    {"total steps ", &NamedSizes::total_steps},
};

}  // namespace

/// "[titan] 2026-03-04 05:06:07,089 - root - INFO - ": torchtitan's own logger.
bool read_mark(std::string_view text, size_t at, LogCollector&) {
  return log_text::first_time(text.substr(at, 40)).has_value();
}

/// "torchtitan version: 0.2.0 (0.0.0 means __version__ is not defined correctly)."
bool read_version(std::string_view text, size_t at, LogCollector& log) {
  const std::string_view said = bare(behind(text.substr(at), "version: ").value_or(""));
  const std::string_view version = log_text::up_to(said, " ");
  if (!leading_integer(version)) return false;
  constexpr std::string_view kUndefined = "0.0.0";
  if (version.starts_with(kUndefined)) return true;
  log.now().titan_version = log_text::printable(version, 40);
  return true;
}

/// "step: 20  loss:  9.12500  grad_norm:  1.2500  memory: 61.25GiB(87.50%)  tps: 4,321 ..."
bool read_step(std::string_view text, size_t at, LogCollector& log) {
  const size_t word = text.rfind("step:", at);
  if (word == std::string_view::npos || text.substr(0, word).ends_with("validate ")) return false;
  const std::string_view rest = text.substr(word);
  const auto number = leading_integer(rest.substr(5));
  if (!number) return false;
  StepLine step;
  step.step = *number;
  step.total = log.now().sizes.total_steps;
  for (const StepField& field : kTitanFields) {
    const auto value = number_behind(rest, field.key);
    if (value) step.*field.member = *value * field.scale;
  }
  if (!step.tokens_per_s_per_gpu) return false;
  // Of ranks that have no loss: not on the last stage of the pipeline.
  if (step.loss == -1.0) step.loss.reset();
  log.add_step(step);
  // Reserved, the largest since the line before.
  const auto memory = number_behind(rest, "memory:");
  if (memory) log.add_memory(log.rank(), MemoryKind::reserved, true, *memory * kGibi, step.step);
  return true;
}

/// The same of torchtitan: the loss is there, and the rate is not.
bool read_torn_step(std::string_view text, size_t at, LogCollector& log) {
  const std::string_view rest = text.substr(text.find("step:", at) + 5);
  const auto number = leading_integer(rest);
  const bool has_loss = rest.find("loss:") != std::string_view::npos;
  const bool has_rate = number_behind(rest, "tps:") || number_behind(rest, "wps:");
  if (number && has_loss && !has_rate) log.add_torn_step(*number);
  return false;
}

bool read_mesh(std::string_view text, size_t at, LogCollector& log) {
  log.banner("mesh");
  const std::string_view rest = text.substr(at);
  if (!read_sizes(rest, kMeshFields, log)) return false;
  const auto replicate = integer_behind(rest, "dp_replicate=");
  const auto shard = integer_behind(rest, "dp_shard=");
  if (!replicate || !shard || *replicate < 1 || *shard < 1 || *shard > 1'000'000 ||
      *replicate > 1'000'000) {
    return true;
  }
  const NamedSizes& sizes = log.now().sizes;
  log.set_size(&NamedSizes::dp, *replicate * *shard);
  const auto known = [](int64_t size) { return std::max<int64_t>(size, 1); };
  const double world = static_cast<double>(known(sizes.dp)) * static_cast<double>(known(sizes.pp)) *
                       static_cast<double>(known(sizes.cp)) * static_cast<double>(known(sizes.tp));
  if (world < 1e7) log.set_size(&NamedSizes::world_size, std::llround(world));
  return true;
}

/// "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]": axes of one rank are left out.
bool read_listed_mesh(std::string_view text, size_t at, LogCollector& log) {
  constexpr int64_t kMostRanks = 10'000'000;
  const auto lists = behind(text.substr(at), "mesh with [");
  if (!lists) return false;
  std::string_view names = log_text::up_to(*lists, "]");
  const auto rest = behind(lists->substr(names.size()), "[");
  if (!rest || rest->find(']') == std::string_view::npos) return false;  // cut off
  std::string_view sizes = log_text::up_to(*rest, "]");
  NamedSizes mesh{.tp = 1, .pp = 1, .cp = 1, .dp = 1, .ep = 1};
  int64_t world = 1;
  while (!bare(names).empty()) {
    const std::string_view quoted = log_text::up_to(names, ",");
    const std::string_view number = log_text::up_to(sizes, ",");
    names.remove_prefix(std::min(quoted.size() + 1, names.size()));
    sizes.remove_prefix(std::min(number.size() + 1, sizes.size()));
    const std::string_view name = log_text::up_to(behind(quoted, "'").value_or(""), "'");
    const auto size = leading_integer(number);
    const auto* const axis = std::ranges::find(kMeshAxes, name, &MeshAxis::name);
    if (!size || *size < 1 || *size > kMostRanks / world) return false;
    world *= *size;
    if (axis == std::end(kMeshAxes)) continue;
    mesh.*axis->member *= *size;
    // How many of these ranks hold the experts depends on tensor parallelism within them.
    if (name.ends_with("_ep")) mesh.ep = 0;
  }
  log.banner("mesh");
  for (const NamedSize member :
       {&NamedSizes::tp, &NamedSizes::pp, &NamedSizes::cp, &NamedSizes::dp, &NamedSizes::ep}) {
    log.set_size(member, mesh.*member);
  }
  log.set_size(&NamedSizes::world_size, world);
  return true;
}

bool read_trainer(std::string_view text, size_t at, LogCollector& log) {
  const std::string_view rest = text.substr(at);
  // "131072 tokens per train step": the number stands before its words.
  const size_t words = rest.find(" tokens per train step");
  if (words != std::string_view::npos) {
    const size_t blank = rest.rfind(' ', words - 1);
    log.set_size(&NamedSizes::tokens_per_step, leading_integer(rest.substr(blank + 1)));
  }
  return read_sizes(rest, kTrainerFields, log);
}

bool read_start(std::string_view text, size_t at, LogCollector& log) {
  const auto step = integer_behind(text.substr(at), "at step ");
  if (step && *step > 0) log.now().first_step = *step - 1;
  return step.has_value();
}

/// "Model llama3 8B size: 8,030,261,248 total parameters"
bool read_model(std::string_view text, size_t at, LogCollector& log) {
  const size_t size = text.rfind(" size: ", at);
  const size_t word = text.rfind("Model ", size);
  if (size == std::string_view::npos || word == std::string_view::npos) return false;
  const auto count = leading_number(text.substr(size + 7));
  if (!count || *count < 0 || *count > 1e15) return false;
  log.now().model_name = log_text::printable(bare(text.substr(word + 6, size - word - 6)), 80);
  log.now().num_parameters = std::llround(*count);
  return true;
}

/// "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory"
bool read_capacity(std::string_view text, size_t at, LogCollector& log) {
  const auto rest = behind(text.substr(at), " capacity: ");
  const size_t with = rest ? rest->rfind(" with ") : std::string_view::npos;
  if (with == std::string_view::npos) return false;
  const auto size = leading_number(rest->substr(with + 6));
  if (!size || *size < 0 || *size > 1e6) return false;
  log.now().device_name = log_text::printable(rest->substr(0, with), 80);
  log.now().device_bytes = std::llround(*size * kGibi);
  return true;
}

/// "3 CUDA memory allocation retries."
bool read_retries(std::string_view text, size_t at, LogCollector& log) {
  const size_t device = text.rfind(' ', at == 0 ? 0 : at - 1);
  const size_t blank = device == std::string_view::npos || device == 0
                           ? std::string_view::npos
                           : text.rfind(' ', device - 1);
  const auto count = leading_integer(text.substr(blank == std::string_view::npos ? 0 : blank + 1));
  if (!count || *count < 0 || *count > 1'000'000'000) return false;
  log.now().num_allocator_retries = std::max(log.now().num_allocator_retries, *count);
  return true;
}

bool begin_configuration(std::string_view, size_t, LogCollector& log) {
  log.begin_config(EchoedConfig::Form::titan_json);
  log.take_by_block(std::string_view::npos);
  return true;
}

}  // namespace moetune::sweeps::titan_lines
