#include "sweeps/runs/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/base/units.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps::out_of_memory {
namespace {

using log_text::behind;
using log_text::bytes_behind;
using log_text::integer_behind;

/// Both forms of PyTorch's message: "Of the allocated memory 70.00 GiB is allocated by PyTorch",
/// and before 2.1 "39.59 GiB total capacity; 37.20 GiB already allocated; ...".
OutOfMemoryFacts facts_of_message(std::string_view text) {
  OutOfMemoryFacts facts;
  const auto bytes = [](std::string_view part, std::string_view key) {
    return bytes_behind(part, key).value_or(0);
  };
  facts.asked_bytes = bytes(text, "Tried to allocate ");
  if (const auto old = behind(text, "(GPU ")) {
    facts.capacity_bytes = bytes(*old, "; ");
    facts.allocated_bytes = bytes(*old, "total capacity; ");
    facts.free_bytes = bytes_behind(*old, "already allocated; ");
    const int64_t reserved = bytes(*old, " free; ");
    facts.reserved_unallocated_bytes = std::max<int64_t>(reserved - facts.allocated_bytes, 0);
    return facts;
  }
  // "capacty" in torch 2.1.
  const auto rest = behind(text, " has a total capac");
  if (!rest) return facts;
  facts.capacity_bytes = bytes(*rest, "ty of ");
  facts.free_bytes = bytes_behind(*rest, "of which ");
  facts.in_use_bytes = bytes(*rest, "this process has ");
  // "Process 4242 has 61.2 GiB memory in use.": another one, or, where none is "this process",
  // itself.
  int64_t named_bytes = 0;
  constexpr std::string_view kProcess = "Process ";
  for (auto left = behind(*rest, kProcess); left; left = behind(*left, kProcess)) {
    // No further than to the next one: a line may repeat the word.
    named_bytes += bytes(left->substr(0, left->find(kProcess)), " has ");
    named_bytes = std::min(named_bytes, facts.capacity_bytes);
  }
  (facts.in_use_bytes == 0 ? facts.in_use_bytes : facts.others_bytes) = named_bytes;
  const auto held = behind(*rest, "Of the allocated memory ");
  if (!held) return facts;
  facts.allocated_bytes = bytes(*held, "");
  const auto more = behind(*held, "is allocated by PyTorch");
  if (!more) return facts;
  facts.graph_pool_bytes = bytes(*more, ", with ");
  facts.reserved_unallocated_bytes = bytes(*more, "and ");
  return facts;
}

}  // namespace

bool read_allocator(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const OutOfMemoryFacts facts = facts_of_message(text.substr(at));
  if (facts.asked_bytes == 0) return false;
  std::string detail = "asked for " + base::format_bytes(facts.asked_bytes);
  const auto add = [&](const char* before, int64_t bytes, const char* behind_it) {
    if (bytes > 0) detail += before + base::format_bytes(bytes) + behind_it;
  };
  add(", of ", facts.capacity_bytes, "");
  if (facts.capacity_bytes > 0 && facts.free_bytes) {
    detail += fmt::format(" {} were free", base::format_bytes(*facts.free_bytes));
  }
  add("; PyTorch had ", facts.allocated_bytes, " allocated");
  add(" and ", facts.reserved_unallocated_bytes, " reserved but unallocated");
  add(", ", facts.graph_pool_bytes, " of it in pools of graphs");
  if (text.substr(0, at).ends_with("HIP ")) log.prove_rocm();
  Failure* failure = log.add_failure(form, detail);
  // A line before it may have named the class alone, as Ray's does.
  if (failure == nullptr) failure = log.failure_without_memory(form, detail);
  if (failure != nullptr) failure->memory = facts;
  return true;
}

/// The class of PyTorch's exception, whatever its words. Ray and Java name theirs like it, which
/// are of the host; PyTorch's usual words have a row with their figures.
bool read_exception_class(const FailureForm& form, std::string_view text, size_t at,
                          LogCollector& log) {
  const std::string_view path = text.substr(0, at);
  const bool is_of_another = path.find("ray.exceptions.") != std::string_view::npos &&
                             !path.ends_with('(');  // "RayTaskError(OutOfMemoryError)"
  if (is_of_another || path.starts_with("java.")) return false;
  if (facts_of_message(text.substr(at)).asked_bytes > 0) return false;
  log.add_failure(form, text);
  return true;
}

/// "Last State: Terminated, Reason: OOMKilled" of Kubernetes, "OOMKilled": true of Docker, which
/// says of every container whether it was.
bool read_container(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  std::string_view value = text.substr(at + form.anchor.size());
  value.remove_prefix(std::min(value.find_first_not_of("\"':= "), value.size()));
  if (value.starts_with("false") || value.starts_with("False")) return false;
  log.add_failure(form, text);
  return true;
}

/// "MemoryError", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB ...":
/// Python's own, and no class of a library that ends alike.
bool read_memory_error(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  const std::string_view path = text.substr(0, at);
  const bool is_pythons =
      path.empty() || path.ends_with(' ') || path.ends_with('.') || path.ends_with("_Array");
  if (!is_pythons || text.find("CUDA") != std::string_view::npos) return false;
  log.add_failure(form, text);
  return true;
}

/// "std::bad_alloc" of C++; libraries throw it for memory of a device, too.
bool read_bad_alloc(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  const bool is_of_device =
      text.find("CUDA") != std::string_view::npos || text.find("cuda") != std::string_view::npos;
  if (is_of_device) return false;
  log.add_failure(form, text);
  return true;
}

/// "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: ... Available Free mem : 0 MB". The
/// resources may be others where memory is left.
bool read_queue_without_memory(const FailureForm& form, std::string_view text, size_t at,
                               LogCollector& log) {
  constexpr int64_t kNothingLeftMib = 64;  // less than a queue needs for its kernels
  const auto free_mib = integer_behind(text.substr(at), "Available Free mem : ");
  if (!free_mib || *free_mib > kNothingLeftMib) return false;
  log.prove_rocm();
  log.add_failure(form, text.substr(at));
  return true;
}

/// "Cuda failure 2 'out of memory'" of NCCL, "HIP failure 'out of memory'" of RCCL, "CUDA error
/// deep_ep.cpp:129 'out of memory'" of DeepEP. Programs that look for these words quote them, too.
bool read_quoted(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  std::string_view front = log_text::bare(text.substr(0, at));
  const size_t end = front.find_last_not_of("0123456789");
  if (end == std::string_view::npos) return false;
  const bool has_number = end + 1 < front.size();
  front = front.substr(0, end + 1);
  const bool is_place = has_number && front.ends_with(':');
  if (!is_place && !log_text::bare(front).ends_with(" failure")) return false;
  if (front.find("HIP failure") != std::string_view::npos) log.prove_rocm();
  log.add_failure(form, text);
  return true;
}

bool read_rocm(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  log.prove_rocm();
  log.add_failure(form, text);
  return true;
}

/// "Job 4242 exceeded memory limit (67108864 > 65536000), being killed": Slurm before it had
/// cgroups. Without the last words it is a warning.
bool read_job_limit(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  if (text.substr(at).find("being killed") == std::string_view::npos) return false;
  log.add_failure(form, text);
  return true;
}

}  // namespace moetune::sweeps::out_of_memory
