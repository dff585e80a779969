#include "sweeps/runs/failure_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

using log_text::behind;
using log_text::bytes_behind;
using log_text::integer_behind;
using log_text::leading_integer;

constexpr int64_t kMostNamedRank = 1'000'000;

/// "[Rank 5]" or "Rank 5," in the line itself; -1 where it does not say.
int named_rank(std::string_view text) {
  for (const std::string_view key : {"[Rank ", "Rank "}) {
    const auto rank = integer_behind(text, key);
    if (rank && *rank >= 0 && *rank < kMostNamedRank) return static_cast<int>(*rank);
  }
  return -1;
}

/// Both forms of PyTorch's message: "Of the allocated memory 70.00 GiB is allocated by PyTorch",
/// and before 2.1 "39.59 GiB total capacity; 37.20 GiB already allocated; ...".
OutOfMemoryFacts out_of_memory_facts(std::string_view text) {
  OutOfMemoryFacts facts;
  const auto bytes = [](std::string_view part, std::string_view key) {
    return bytes_behind(part, key).value_or(0);
  };
  facts.asked_bytes = bytes(text, "Tried to allocate ");
  if (const auto old = behind(text, "(GPU ")) {
    facts.capacity_bytes = bytes(*old, "; ");
    facts.allocated_bytes = bytes(*old, "total capacity; ");
    facts.free_bytes = bytes(*old, "already allocated; ");
    const int64_t reserved = bytes(*old, " free; ");
    facts.reserved_unallocated_bytes = std::max<int64_t>(reserved - facts.allocated_bytes, 0);
    return facts;
  }
  // "capacty" in torch 2.1.
  const auto rest = behind(text, " has a total capac");
  if (!rest) return facts;
  facts.capacity_bytes = bytes(*rest, "ty of ");
  facts.free_bytes = bytes(*rest, "of which ");
  facts.in_use_bytes = bytes(*rest, "this process has ");
  // "Process 4242 has 61.2 GiB memory in use.": another one, or, where none is "this process",
  // itself.
  int64_t named_bytes = 0;
  for (auto left = behind(*rest, "Process "); left; left = behind(*left, "Process ")) {
    named_bytes += std::min(bytes(*left, " has "), facts.capacity_bytes);
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

bool read_out_of_memory(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log) {
  const OutOfMemoryFacts facts = out_of_memory_facts(text.substr(at));
  if (facts.asked_bytes == 0) return false;
  std::string detail = "asked for " + base::format_bytes(facts.asked_bytes);
  const auto add = [&](const char* before, int64_t bytes, const char* behind_it) {
    if (bytes > 0) detail += before + base::format_bytes(bytes) + behind_it;
  };
  add(", of ", facts.capacity_bytes, "");
  if (facts.capacity_bytes > 0) {
    detail += fmt::format(" {} were free", base::format_bytes(facts.free_bytes));
  }
  add("; PyTorch had ", facts.allocated_bytes, " allocated");
  add(" and ", facts.reserved_unallocated_bytes, " reserved but unallocated");
  add(", ", facts.graph_pool_bytes, " of it in pools of graphs");
  Failure* failure = log.add_failure(form, -1, detail);
  if (failure != nullptr) failure->memory = facts;
  return true;
}

/// "PG GUID 14(EXPERT_MODEL_PARALLEL_GROUP) Rank 5": the name, or the number where it has none.
void read_group(std::string_view text, CollectiveTimeout& timeout) {
  const auto group = behind(text, "PG GUID ");
  if (!group) return;
  const std::string_view number = log_text::up_to(*group, "( ");
  const bool has_name = group->substr(number.size()).starts_with('(');
  timeout.group_id = log_text::printable(number, 80);
  timeout.group = log_text::printable(
      has_name ? log_text::up_to(group->substr(number.size() + 1), ")") : number, 80);
}

bool read_collective_timeout(const FailureForm& form, std::string_view text, size_t at,
                             LogCollector& log) {
  const std::string_view rest = text.substr(at);
  // The rank in brackets is that of the group; the launcher's is that of the run.
  const int rank = log.rank() >= 0 ? log.rank() : named_rank(text.substr(0, at));
  CollectiveTimeout timeout;
  timeout.time_s = log.time();
  timeout.sequence = integer_behind(rest, "SeqNum=").value_or(-1);
  timeout.num_elements = integer_behind(rest, "NumelIn=").value_or(-1);
  timeout.waited_ms = integer_behind(rest, ") ran for ").value_or(-1);
  if (const auto operation = behind(rest, "OpType=")) {
    timeout.operation = log_text::printable(log_text::up_to(*operation, ",) "), 40);
  }
  read_group(text.substr(0, at), timeout);
  // Of several that one rank waits for the first is the nearest to the root.
  CollectiveTimeout& known = log.timeout_of(rank);
  if (known.operation.empty()) {
    const bool is_of_other =
        !timeout.group_id.empty() && !known.group_id.empty() && timeout.group_id != known.group_id;
    if (!is_of_other) {
      timeout.last_enqueued = known.last_enqueued;
      timeout.last_completed = known.last_completed;
    }
    timeout.enqueued_in = std::move(known.enqueued_in);
    if (timeout.group_id.empty()) {
      timeout.group_id = known.group_id;
      timeout.group = known.group;
    }
    known = timeout;
  }
  Failure* failure = log.add_failure(form, rank, "");
  if (failure != nullptr) failure->timeout = timeout;
  return true;
}

/// "Timed out waiting 60000ms for send operation to complete": gloo's, of a pair of ranks.
bool read_gloo_timeout(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  const std::string_view rest = text.substr(at);
  const auto waited = leading_integer(rest.substr(form.anchor.size()));
  const auto operation = behind(rest, "ms for ");
  if (!waited || !operation || operation->find(" operation to complete") == std::string_view::npos)
    return false;
  CollectiveTimeout& timeout = log.timeout_of(log.rank());
  timeout.waited_ms = *waited;
  timeout.operation =
      fmt::format("a {} over gloo", log_text::printable(log_text::up_to(*operation, " "), 40));
  Failure* failure = log.add_failure(form, -1, "");
  if (failure != nullptr) failure->timeout = timeout;
  return true;
}

/// "last enqueued NCCL work: 80, last completed NCCL work: 76", in newer ones without NCCL. -1 is
/// nothing: the watchdog has nothing to wait for.
bool read_work_queue(const FailureForm&, std::string_view text, size_t at, LogCollector& log) {
  const std::string_view rest = text.substr(at);
  const auto enqueued = integer_behind(rest, "work: ");
  if (!enqueued) return false;
  const int rank = log.rank() >= 0 ? log.rank() : named_rank(text);
  CollectiveTimeout& timeout = log.timeout_of(rank);
  const auto done = behind(rest, "last completed ");
  const int64_t completed = done ? integer_behind(*done, "work: ").value_or(-1) : -1;
  if (done && *enqueued > completed) timeout.has_open_work = true;
  CollectiveTimeout said;
  read_group(text.substr(0, at), said);
  constexpr size_t kMostGroups = 64;
  const bool has_room =
      timeout.enqueued_in.size() < kMostGroups || timeout.enqueued_in.contains(said.group_id);
  if (!said.group_id.empty() && has_room) timeout.enqueued_in[said.group_id] = *enqueued;
  const bool is_of_other =
      !said.group_id.empty() && !timeout.group_id.empty() && said.group_id != timeout.group_id;
  if (is_of_other) return true;
  timeout.last_enqueued = *enqueued;
  if (timeout.group_id.empty()) {
    timeout.group_id = said.group_id;
    timeout.group = said.group;
  }
  if (done) timeout.last_completed = completed;
  if (*enqueued == -1) log.add_failure(failure_form("nccl-idle"), rank, "");
  return true;
}

/// "Rank 5, node h, device 1, iteration 21: Unexpected result nan (message='found NaN in ...')".
bool read_bad_number(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  std::string_view detail = text.substr(at);
  if (const auto message = behind(text, "message='")) detail = log_text::up_to(*message, "'");
  const auto iteration = integer_behind(text, "iteration ");
  std::string sentence(detail);
  if (iteration) sentence += fmt::format(" in iteration {}", *iteration);
  // "Unexpected result nan on rank 0 at iteration #3 invocation #1".
  int rank = named_rank(text);
  const auto on_rank = integer_behind(text, " on rank ");
  if (rank < 0 && on_rank && *on_rank >= 0 && *on_rank < kMostNamedRank) {
    rank = static_cast<int>(*on_rank);
  }
  Failure* failure = log.add_failure(form, rank, sentence);
  if (failure != nullptr && iteration && *iteration > 0) failure->after_step = *iteration - 1;
  return true;
}

/// What a bare message says once the class in front of it is taken off.
bool read_message(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  log.add_failure(form, -1, text.substr(at + form.anchor.size()));
  return true;
}

/// The same within a box that is drawn with lines.
bool read_boxed_message(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log) {
  constexpr std::string_view kWall = "\xe2\x94\x82";  // U+2502
  const std::string_view said = text.substr(at + form.anchor.size());
  log.add_failure(form, -1, said.substr(0, std::min(said.find(kWall), said.size())));
  return true;
}

/// Of memory there are rows of their own.
bool read_device_error(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  if (text.substr(at).find("out of memory") != std::string_view::npos) return false;
  return read_message(form, text, at, log);
}

/// The words of the row say all.
bool read_without_detail(const FailureForm& form, std::string_view, size_t, LogCollector& log) {
  log.add_failure(form, -1, "");
  return true;
}

/// The line from the beginning of its statement: Slurm's, which name the job.
bool read_slurm(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const size_t stars = text.rfind("*** ", at);
  std::string_view said = text.substr(stars == std::string_view::npos ? 0 : stars + 4);
  said = said.substr(0, std::min(said.find(" ***"), said.size()));
  log.add_failure(form, -1, said);
  return true;
}

bool read_plain_cancel(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  // With a reason it has a row of its own.
  const std::string_view rest = text.substr(at);
  if (rest.find("DUE TO") != std::string_view::npos) return false;
  return read_slurm(form, text, at, log);
}

constexpr std::string_view kBoxCode = "exitcode  : ";

struct SignalWords {
  int number;
  std::string_view words;
};
constexpr std::array kSignalWords = {
    SignalWords{6, "SIGABRT: a watchdog or an assertion of C++"},
    SignalWords{7, "SIGBUS: most often /dev/shm is full"},
    SignalWords{9, "SIGKILL: most often the host ran out of memory, or a scheduler ended it"},
    SignalWords{11, "SIGSEGV: it touched memory that is not its own"},
    SignalWords{15, "SIGTERM: asked to end, most often because another rank had failed"},
};

std::string exit_words(int code) {
  const int signal = code < 0 ? -code : (code > 128 ? code - 128 : 0);
  for (const SignalWords& row : kSignalWords) {
    if (row.number == signal) return fmt::format("exit code {} ({})", code, row.words);
  }
  return fmt::format("exit code {}", code);
}

/// "task 3:" of srun; -1 where it names several or none.
int task_in(std::string_view text) {
  const auto task = integer_behind(text, ": task ");
  return task && *task >= 0 && *task < 1'000'000 ? static_cast<int>(*task) : -1;
}

/// What srun says of a task, or anybody of itself.
bool read_task(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  log.add_failure(form, task_in(text), text);
  return true;
}

/// "  exitcode  : -9 (pid: 4242)" in torchrun's box, which names the rank before; "failed
/// (exitcode: -9) local_rank: 3" of torchrun; "task 3: Exited with exit code 1" of srun.
bool read_exit_code(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const auto code = leading_integer(text.substr(at + form.anchor.size()));
  constexpr int64_t kMostCode = 255;
  if (!code || *code < -kMostCode || *code > kMostCode || *code == 0) return false;
  const bool is_box = form.anchor == kBoxCode;
  const int rank = is_box ? log.box_rank : task_in(text);
  const bool is_root = is_box && log.is_root_cause;
  const int exit_code = static_cast<int>(*code);
  const auto pid = integer_behind(text, "(pid: ");
  // Those that were sent SIGTERM, or SIGKILL where that did not help, are the others.
  const bool is_forced = exit_code == -9 && pid && log.forced_pids.contains(*pid);
  const bool is_victim = exit_code == -15 || exit_code == -6 || is_forced;
  const bool is_signal = exit_code < 0 || exit_code > 128;
  const auto& row = failure_form(is_victim ? "ended" : (is_signal ? "signal" : "exit-code"));
  std::string detail = is_forced ? "SIGKILL of the launcher, as it did not end when asked to"
                                 : exit_words(exit_code);
  if (is_root) detail += ", the first that torchrun saw";
  Failure* failure = log.add_failure(row, rank, detail);
  if (failure != nullptr) failure->exit_code = exit_code;
  return true;
}

/// "Unable to shutdown process 4242 via 15, forcefully exiting via 9".
bool read_forced(const FailureForm&, std::string_view text, size_t, LogCollector& log) {
  constexpr size_t kMostForced = 65'536;
  const auto pid = integer_behind(text, "shutdown process ");
  if (!pid || log.forced_pids.size() >= kMostForced) return false;
  log.forced_pids.insert(*pid);
  return true;
}

bool read_box_root(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_root_cause = true;
  return true;
}
bool read_box_others(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_root_cause = false;
  return true;
}
/// Of the entry: it is not that of the lines before the box.
bool read_box_time(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  return log.time().has_value();
}
bool read_box_rank(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const auto rank = leading_integer(text.substr(at + form.anchor.size()));
  log.box_rank = rank && *rank >= 0 && *rank < 1'000'000 ? static_cast<int>(*rank) : -1;
  return true;
}

constexpr ForeignStatus kOom = ForeignStatus::oom;
constexpr ForeignStatus kWrong = ForeignStatus::wrong;
constexpr ForeignStatus kFailed = ForeignStatus::failed;
constexpr ForeignStatus kCrashed = ForeignStatus::crashed;
constexpr ForeignStatus kHung = ForeignStatus::hung;
constexpr ForeignStatus kInterrupted = ForeignStatus::interrupted;
constexpr bool kInTraceback = true;
constexpr bool kOfAnother = true;

/// In the order of blame within a class.
constexpr FailureForm kFailureForms[] = {
    // Slurm.
    {"slurm-time-limit", "DUE TO TIME LIMIT", kInterrupted, Blame::outside, "Slurm's time limit",
     false, read_slurm},
    {"slurm-preempted", "DUE TO PREEMPTION", kInterrupted, Blame::outside, "preempted by Slurm",
     false, read_slurm},
    {"slurm-preempted", "DUE TO JOB REQUEUE", kInterrupted, Blame::outside, "requeued by Slurm",
     false, read_slurm},
    {"slurm-node-failure", "DUE TO NODE FAILURE", kInterrupted, Blame::outside, "a node failed",
     false, read_slurm},
    {"slurm-cancelled", "DUE to SIGNAL", kInterrupted, Blame::outside, "cancelled", false,
     read_slurm},
    // Configuration.
    {"arguments", "error: unrecognized arguments:", kFailed, Blame::cause,
     "flags that this release does not know", false, read_message},
    {"arguments", "nrecognized options: ", kFailed, Blame::cause,
     "options that this release does not know", false, read_boxed_message},
    {"arguments", "error: argument --", kFailed, Blame::cause, "a flag has a wrong value"},
    {"arguments", "error: the following arguments are required:", kFailed, Blame::cause,
     "flags are missing", false, read_message},
    {"arguments", "omegaconf.errors.", kFailed, Blame::cause, "an override does not fit"},
    {"arguments", "Could not override '", kFailed, Blame::cause, "an override does not fit"},
    // What the machine lacks, whatever is run on it.
    {"no-device", "Found no NVIDIA driver", kFailed, Blame::cause, "there is no driver of a GPU"},
    {"no-device", "CUDA driver version is insufficient", kFailed, Blame::cause,
     "the driver is too old for this CUDA"},
    {"no-device", "No CUDA GPUs are available", kFailed, Blame::cause, "there is no GPU"},
    {"no-device", "No HIP GPUs are available", kFailed, Blame::cause, "there is no GPU"},
    {"no-device", "no CUDA-capable device is detected", kFailed, Blame::cause, "there is no GPU"},
    {"library", "cannot open shared object file", kFailed, Blame::cause, "a library is missing",
     kInTraceback},
    {"library", "error while loading shared libraries", kFailed, Blame::cause,
     "a library is missing"},
    {"import", "ModuleNotFoundError: ", kFailed, Blame::cause, "a module of Python is missing",
     kInTraceback, read_message},
    {"import", "ImportError: ", kFailed, Blame::cause, "a module of Python cannot be loaded",
     kInTraceback, read_message},
    // Memory of a device.
    {"cuda-oom", "out of memory. Tried to allocate", kOom, Blame::cause, "out of GPU memory", false,
     read_out_of_memory},
    {"cuda-oom", "CUDA error: out of memory", kOom, Blame::cause,
     "out of GPU memory outside of PyTorch's allocator"},
    {"cuda-oom", "CUDA driver error: out of memory", kOom, Blame::cause,
     "out of GPU memory outside of PyTorch's allocator"},
    {"cuda-oom", "CUBLAS_STATUS_ALLOC_FAILED", kOom, Blame::cause,
     "no GPU memory was left for cuBLAS"},
    {"cuda-oom", "Failed to CUDA calloc", kOom, Blame::cause, "no GPU memory was left for NCCL"},
    // Memory of the host.
    {"host-oom", "oom_kill event", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the kernel killed a process"},
    {"host-oom", "oom-kill event", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the kernel killed a process"},
    {"host-oom", ": Out Of Memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): a task was killed", false, read_task},
    {"host-oom", "DefaultCPUAllocator: can't allocate memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU)"},
    {"host-oom", "Cannot allocate memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU)", kInTraceback},
    {"disk-full", "No space left on device", kFailed, Blame::error, "a disk is full"},
    // Devices and networks.
    {"cuda-error", "uncorrectable ECC error", kCrashed, Blame::error, "a GPU's memory is faulty"},
    {"cuda-error", "NVRM: Xid", kCrashed, Blame::error, "the GPU's driver reports a fault"},
    {"cuda-error", "CUDA error: ", kCrashed, Blame::error, "an error of CUDA", false,
     read_device_error},
    {"cuda-error", "HIP error: ", kCrashed, Blame::error, "an error of HIP", false,
     read_device_error},
    {"cuda-error", "Memory access fault by GPU", kCrashed, Blame::error,
     "the GPU touched memory that is not there"},
    {"address-in-use", "EADDRINUSE", kFailed, Blame::error, "the port is taken"},
    // Python.
    {"interrupted", "KeyboardInterrupt", kInterrupted, Blame::ending,
     "interrupted from the keyboard", kInTraceback},
    {"interrupted", "exiting program after receiving SIGTERM", kInterrupted, Blame::outside,
     "asked to end by SIGTERM", false, read_without_detail},
    {"interrupted", "SignalException: Process", kInterrupted, Blame::ending,
     "the launcher was asked to end"},
    // Numbers.
    {"nan", "Unexpected result nan", kWrong, Blame::numbers, "NaN", false, read_bad_number},
    {"nan", "Unexpected result inf", kWrong, Blame::numbers, "infinity", false, read_bad_number},
    {"nan", "Unexpected result -inf", kWrong, Blame::numbers, "infinity", false, read_bad_number},
    {"nan", "found NaN in local", kWrong, Blame::numbers, "NaN", false, read_bad_number},
    {"nan", "found Inf in local", kWrong, Blame::numbers, "infinity", false, read_bad_number},
    // Waiting.
    {"nccl-timeout", "Watchdog caught collective operation timeout", kHung, Blame::waiting,
     "waited for others in a collective", false, read_collective_timeout, kOfAnother},
    {"nccl-queue", "last enqueued ", kHung, Blame::waiting, "", false, read_work_queue},
    {"nccl-timeout", "eartbeat monitor timed out", kHung, Blame::waiting,
     "the process was stuck: its watchdog did not move"},
    {"nccl-timeout", "watchdog got stuck for", kHung, Blame::waiting,
     "the process was stuck: its watchdog did not move"},
    {"gloo-timeout", "Timed out waiting ", kHung, Blame::waiting, "waited for others", false,
     read_gloo_timeout, kOfAnother},
    {"nccl-failed", "Some NCCL operations have failed or timed out", kHung, Blame::consequence,
     "collectives had failed or timed out", false, nullptr, kOfAnother},
    {"rendezvous", "waiting for clients", kHung, Blame::waiting, "not all ranks came together",
     false, nullptr, kOfAnother},
    // A peer is gone, or somebody ended it.
    {"slurm-cancelled", " CANCELLED AT ", kInterrupted, Blame::ending, "cancelled", false,
     read_plain_cancel},
    {"peer-gone", "ncclRemoteError", kCrashed, Blame::ending, "another rank is gone", false,
     nullptr, kOfAnother},
    {"peer-gone", "remote process exited or there was a network error", kCrashed, Blame::ending,
     "another rank is gone", false, nullptr, kOfAnother},
    {"nccl-error", "NCCL error in: ", kCrashed, Blame::ending, "NCCL failed"},
    {"peer-gone", "ncclSystemError", kCrashed, Blame::ending, "NCCL's network failed"},
    {"peer-gone", "NCCL communicator was aborted", kCrashed, Blame::consequence,
     "another rank is gone", false, nullptr, kOfAnother},
    {"peer-gone", "Connection closed by peer", kCrashed, Blame::ending, "another rank is gone",
     false, nullptr, kOfAnother},
    {"peer-gone", "Connection reset by peer", kCrashed, Blame::ending, "another rank is gone",
     false, nullptr, kOfAnother},
    {"peer-gone", "Broken pipe", kCrashed, Blame::consequence, "another rank is gone", false,
     nullptr, kOfAnother},
    // Consequences.
    {"segfault", "Segmentation fault", kCrashed, Blame::ending, "a segmentation fault", false,
     read_task},
    {"signal", "Bus error", kCrashed, Blame::ending, "a bus error: most often /dev/shm is full",
     false, read_task},
    {"abort", "taking the entire process down", kHung, Blame::consequence,
     "its watchdog ended the process"},
    {"abort", "terminate called after throwing", kCrashed, Blame::consequence, "aborted"},
    {"slurm-task", "DUE TO TASK FAILURE", kFailed, Blame::consequence, "a task failed", false,
     read_slurm},
    {"slurm-task", "(non-zero exit code or other failure mode)", kFailed, Blame::consequence,
     "a task failed", false, read_slurm},
    {"exit-code", "Exited with exit code ", kFailed, Blame::consequence, "a task failed", false,
     read_exit_code},
    {"launcher", "ChildFailedError", kFailed, Blame::consequence, "a rank failed", kInTraceback},
    {"launcher", "ProcessExitedException", kFailed, Blame::consequence, "a rank failed",
     kInTraceback},
    {"launcher", "ProcessRaisedException", kFailed, Blame::consequence, "a rank failed",
     kInTraceback},
    {"launcher", "CalledProcessError", kFailed, Blame::consequence, "a rank failed", kInTraceback},
    // torchrun's box.
    {"box", "Root Cause (first observed failure):", kFailed, Blame::consequence, "", false,
     read_box_root},
    {"box", "Failures:", kFailed, Blame::consequence, "", false, read_box_others},
    {"box", "  time      : ", kFailed, Blame::consequence, "", false, read_box_time},
    {"box", "  rank      : ", kFailed, Blame::consequence, "", false, read_box_rank},
    {"box", kBoxCode, kFailed, Blame::consequence, "", false, read_exit_code},
    {"box", "forcefully exiting via 9", kFailed, Blame::consequence, "", false, read_forced},
    {"box", "failed (exitcode: ", kFailed, Blame::consequence, "", false, read_exit_code},
    // Without words of their own: told by what stands around them.
    {"assertion", "", kFailed, Blame::cause, "a rule is broken"},
    {"configuration", "", kFailed, Blame::cause, "the configuration was refused"},
    {"python-error", "", kFailed, Blame::error, "an error of Python"},
    {"nan", "", kWrong, Blame::numbers, "the loss is not a number"},
    {"nccl-idle", "", kHung, Blame::waiting,
     "hung outside of NCCL, most often in a file system: no collective was under way", false,
     nullptr, kOfAnother},
    {"silence", "", kHung, Blame::waiting, "no step any more"},
    {"signal", "", kCrashed, Blame::killed, "ended by a signal"},
    {"exit-code", "", kFailed, Blame::consequence, "ended"},
    {"ended", "", kCrashed, Blame::victim, "ended with the others"},
};

/// Exceptions that a configuration raises before anything has been trained.
constexpr std::array<std::string_view, 5> kConfigErrors = {
    "ValueError", "TypeError", "KeyError", "FileNotFoundError", "NotImplementedError"};

}  // namespace

std::span<const FailureForm> failure_forms() { return kFailureForms; }

const FailureForm& failure_form(std::string_view name) {
  for (const FailureForm& form : kFailureForms) {
    if (form.name == name && form.anchor.empty()) return form;
  }
  throw base::Error(fmt::format("no failure form '{}'", name));
}

const FailureForm& python_error(std::string_view said, bool is_before_first_step) {
  if (!is_before_first_step) return failure_form("python-error");
  if (said.starts_with("AssertionError")) return failure_form("assertion");
  const bool is_config =
      std::ranges::any_of(kConfigErrors,
                          [&](std::string_view name) { return said.starts_with(name); }) ||
      said.find("is not divisible by") != std::string_view::npos;  // whatever the class
  return failure_form(is_config ? "configuration" : "python-error");
}

}  // namespace moetune::sweeps
