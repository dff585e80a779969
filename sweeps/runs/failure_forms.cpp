#include "sweeps/runs/failure_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "sweeps/runs/ended_processes.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/out_of_memory.h"
#include "sweeps/runs/text_scan.h"
#include "sweeps/runs/waiting_lines.h"

namespace moetune::sweeps {
namespace {

using log_text::behind;
using log_text::integer_behind;
using log_text::leading_integer;
using processes::read_box_others;
using processes::read_box_rank;
using processes::read_box_root;
using processes::read_box_time;
using processes::read_ended_word;
using processes::read_exit_code;
using processes::read_forced;
using processes::read_job_code;
using processes::read_killed_worker;
using processes::read_make;
using processes::read_named_signal;
using processes::read_on_signal;
using processes::read_signal_code;
using processes::read_signalled_command;
using processes::read_signalled_task;
using processes::read_stated_code;
using processes::read_step_end;
using processes::read_task;
using processes::read_zsh;
using processes::read_zsh_job;
using waiting::read_collective_timeout;
using waiting::read_deepep;
using waiting::read_gloo_timeout;
using waiting::read_monitored_barrier;
using waiting::read_store_barrier;
using waiting::read_store_timeout;
using waiting::read_work_queue;

bool read_queue_error(const FailureForm& form, std::string_view text, size_t at,
                      LogCollector& log) {
  log.prove_rocm();
  log.add_failure(form, text.substr(text.find("HSA_", at)));
  return true;
}

/// "Rank 5, node h, device 1, iteration 21: Unexpected result nan (message='found NaN in ...')".
bool read_bad_number(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  std::string_view detail = text.substr(at);
  if (const auto message = behind(text, "message='")) detail = log_text::up_to(*message, "'");
  const auto iteration = integer_behind(text, "iteration ");
  std::string sentence(detail);
  // Who calls Megatron-LM's parts without its loop says -1.
  if (iteration && *iteration >= 0) sentence += fmt::format(" in iteration {}", *iteration);
  // "Unexpected result nan on rank 0 at iteration #3 invocation #1".
  int rank = log_text::named_rank(text);
  if (rank < 0) rank = log_text::rank_of(integer_behind(text, " on rank "));
  Failure* failure = log.add_failure(form, rank, sentence);
  if (failure != nullptr && iteration && *iteration > 0) failure->after_step = *iteration - 1;
  return true;
}

/// What a bare message says once the class in front of it is taken off.
bool read_message(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  log.add_failure(form, text.substr(at + form.anchor.size()));
  return true;
}

/// The same within a box that is drawn with lines.
bool read_boxed_message(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log) {
  constexpr std::string_view kWall = "\xe2\x94\x82";  // U+2502
  const std::string_view said = text.substr(at + form.anchor.size());
  log.add_failure(form, said.substr(0, std::min(said.find(kWall), said.size())));
  return true;
}

/// Of memory there are rows of their own.
bool read_device_error(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  if (form.anchor.starts_with("HIP ")) log.prove_rocm();
  if (text.substr(at).find("out of memory") != std::string_view::npos) return false;
  return read_message(form, text, at, log);
}

/// "Cuda failure 700 'an illegal memory access was encountered'" of NCCL: an error of a kernel,
/// after which nothing runs any more. Smaller numbers are of calls that it may do without.
bool read_kernel_failure(const FailureForm& form, std::string_view text, size_t at,
                         LogCollector& log) {
  constexpr int64_t kFirstOfKernels = 700;  // cudaErrorIllegalAddress
  constexpr int64_t kLastOfKernels = 719;   // cudaErrorLaunchFailure
  const auto number = leading_integer(text.substr(at + form.anchor.size()));
  if (!number || *number < kFirstOfKernels || *number > kLastOfKernels) return false;
  log.add_failure(form, text.substr(at));
  return true;
}

/// "/a/Loss.cu:240: kernel: block: [0,0,0], thread: [17,0,0] Assertion `t < n_classes` failed.":
/// the file, and what has to hold.
bool read_kernel_assertion(const FailureForm& form, std::string_view text, size_t at,
                           LogCollector& log) {
  const size_t said = text.find("Assertion `", at);
  const std::string_view front = text.substr(0, at);
  if (said == std::string_view::npos || front.find("block: [") == std::string_view::npos) {
    return false;
  }
  const std::string_view file = front.substr(front.rfind('/') + 1);
  const std::string_view place = file.substr(0, std::min(file.find(": "), file.size()));
  log.add_failure(form, fmt::format("{}: {}", place, text.substr(said)));
  return true;
}

/// "Last error:" of NCCL: what failed stands on the next line, if anything does.
bool read_last_error(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const bool is_whole = log_text::bare(text.substr(at + form.anchor.size())).empty();
  if (is_whole) log.expect_detail(form.name);
  return false;
}

/// "terminate called after throwing an instance of 'gloo::IoException'", and on the next line what
/// it says.
bool read_terminate(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  log.add_failure(form, text);
  if (log_text::bare(text).ends_with('\'')) log.expect_detail(form.name);
  return true;
}

/// "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD".
bool read_mpi_abort(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const int rank = log_text::rank_of(leading_integer(text.substr(at + form.anchor.size())));
  log.add_failure(form, rank, text.substr(at));
  return true;
}

/// What srun says of itself.
bool read_srun(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  if (text.substr(0, at).find("srun: error: ") == std::string_view::npos) return false;
  log.add_failure(form, text);
  return true;
}

/// "salloc: Relinquishing job allocation 4242": salloc gives the nodes back by itself, as its
/// command has ended.
bool read_given_back(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_allocation_given_back = true;
  return true;
}

/// "Job allocation 4242 has been revoked.", which salloc also says of what it has given back.
bool read_revoked(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  if (text.substr(0, at).find("Job allocation ") == std::string_view::npos) return false;
  if (log.is_allocation_given_back) return false;
  log.add_failure(form, text);
  return true;
}

/// A connection that is gone. "[W304 05:06:07.089 TCPStore.cpp:125] [c10d] recvValue failed" is a
/// warning that the first rank's store is not there any more, as after a good end. Libraries that
/// talk to a web server quote what Python told them, "ConnectionResetError(104, 'Connection reset
/// by peer')", and most often try again.
bool read_lost_peer(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const bool is_warning =
      log_text::torch_level(text) == 'W' && text.find("TCPStore") != std::string_view::npos;
  if (is_warning || text.substr(0, at).ends_with('\'')) return false;
  log.add_failure(form, text);
  return true;
}

/// The words of the row say all.
bool read_without_detail(const FailureForm& form, std::string_view, size_t, LogCollector& log) {
  log.add_failure(form, "");
  return true;
}

/// The line from the beginning of its statement: Slurm's, which name the job.
bool read_slurm(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const size_t stars = text.rfind("*** ", at);
  std::string_view said = text.substr(stars == std::string_view::npos ? 0 : stars + 4);
  said = said.substr(0, std::min(said.find(" ***"), said.size()));
  log.is_step_ended = true;
  log.add_failure(form, said);
  return true;
}

/// A reason that no row names: such as "DUE TO JOB NOT ENDING WITH SIGNALS".
bool read_other_cancel(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  constexpr std::string_view kReason = "DUE TO ";
  const std::string_view rest = text.substr(at);
  if (rest.find(kReason) == std::string_view::npos) return false;
  for (const FailureForm& other : failure_forms()) {
    const bool is_said = rest.find(other.anchor) != std::string_view::npos;
    if (other.anchor.starts_with(kReason) && is_said) return false;
  }
  return read_slurm(form, text, at, log);
}

bool read_plain_cancel(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  // With a reason it has a row of its own.
  const std::string_view rest = text.substr(at);
  if (rest.find("DUE TO") != std::string_view::npos) return false;
  return read_slurm(form, text, at, log);
}

constexpr ForeignStatus kOom = ForeignStatus::oom;
constexpr ForeignStatus kWrong = ForeignStatus::wrong;
constexpr ForeignStatus kFailed = ForeignStatus::failed;
constexpr ForeignStatus kCrashed = ForeignStatus::crashed;
constexpr ForeignStatus kHung = ForeignStatus::hung;
constexpr ForeignStatus kInterrupted = ForeignStatus::interrupted;
constexpr unsigned kInTraceback = FailureForm::kInTraceback;
constexpr unsigned kSawOthers = FailureForm::kSawOthers;
constexpr std::string_view kOutsideAllocator = "out of GPU memory outside of PyTorch's allocator";
constexpr std::string_view kHostOom = "the host ran out of memory (not the GPU)";
constexpr std::string_view kPeerGone = "another rank is gone";

/// In the order of blame within a class.
constexpr FailureForm kFailureForms[] = {
    // Slurm and other schedulers.
    {"slurm-time-limit", "DUE TO TIME LIMIT", kInterrupted, Blame::outside, "Slurm's time limit",
     read_slurm},
    {"slurm-preempted", "DUE TO PREEMPTION", kInterrupted, Blame::outside, "preempted by Slurm",
     read_slurm},
    {"slurm-preempted", "DUE TO JOB REQUEUE", kInterrupted, Blame::outside, "requeued by Slurm",
     read_slurm},
    {"slurm-node-failure", "DUE TO NODE FAILURE", kInterrupted, Blame::outside, "a node failed",
     read_slurm},
    {"slurm-node-failure", "srun: error: Node failure on ", kInterrupted, Blame::outside,
     "a node failed"},
    {"slurm-cancelled", "DUE to SIGNAL", kInterrupted, Blame::outside, "cancelled", read_slurm},
    {"slurm-cancelled", " CANCELLED AT ", kInterrupted, Blame::outside, "ended by Slurm",
     read_other_cancel},
    {"slurm-cancelled", " has been revoked", kInterrupted, Blame::outside,
     "Slurm took the nodes back", read_revoked},
    {"time-limit", "PBS: job killed: walltime", kInterrupted, Blame::outside,
     "the time limit of PBS"},
    {"time-limit", "TERM_RUNLIMIT: ", kInterrupted, Blame::outside, "the time limit of LSF"},
    // Configuration.
    {"arguments", "error: unrecognized arguments:", kFailed, Blame::cause,
     "flags that this release does not know", read_message},
    {"arguments", "nrecognized options: ", kFailed, Blame::cause,
     "options that this release does not know", read_boxed_message},
    {"arguments", "error: ambiguous option: ", kFailed, Blame::cause,
     "the beginning of a flag fits several", read_message},
    {"arguments", "error: argument --", kFailed, Blame::cause, "a flag has a wrong value"},
    {"arguments", "error: the following arguments are required:", kFailed, Blame::cause,
     "flags are missing", read_message},
    {"arguments", "omegaconf.errors.", kFailed, Blame::cause, "an override does not fit"},
    {"arguments", "Could not override '", kFailed, Blame::cause, "an override does not fit"},
    {"slurm-step", "Unable to create step for job ", kFailed, Blame::cause,
     "Slurm could not start the tasks", read_srun},
    {"slurm-step", " launch failed: ", kFailed, Blame::cause, "Slurm could not start the tasks",
     read_srun},
    // What the machine lacks, whatever is run on it.
    {"no-device", "Found no NVIDIA driver", kFailed, Blame::cause, "there is no driver of a GPU"},
    {"no-device", "CUDA driver version is insufficient", kFailed, Blame::cause,
     "the driver is too old for this CUDA"},
    {"no-device", "No CUDA GPUs are available", kFailed, Blame::cause, "there is no GPU"},
    {"no-device", "No HIP GPUs are available", kFailed, Blame::cause, "there is no GPU"},
    {"no-device", "no CUDA-capable device is detected", kFailed, Blame::cause, "there is no GPU"},
    {"shared-device", "Duplicate GPU detected", kFailed, Blame::cause,
     "ranks were given the same GPU"},
    {"library", "cannot open shared object file", kFailed, Blame::cause, "a library is missing",
     nullptr, kInTraceback},
    {"library", "error while loading shared libraries", kFailed, Blame::cause,
     "a library is missing"},
    {"import", "ModuleNotFoundError: ", kFailed, Blame::cause, "a module of Python is missing",
     read_message, kInTraceback},
    {"import", "ImportError: ", kFailed, Blame::cause, "a module of Python cannot be loaded",
     read_message, kInTraceback},
    // Memory of a device.
    {"cuda-oom", "out of memory. Tried to allocate", kOom, Blame::cause, "out of GPU memory",
     out_of_memory::read_allocator},
    {"cuda-oom", "OutOfMemoryError", kOom, Blame::cause, "out of GPU memory",
     out_of_memory::read_exception_class, kInTraceback},
    {"cuda-oom", "CUDA error: out of memory", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "CUDA driver error: out of memory", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "CUDA Error: out of memory", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "CUDA_ERROR_OUT_OF_MEMORY", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "cudaErrorMemoryAllocation", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "Triton Error [CUDA]: out of memory", kOom, Blame::cause, kOutsideAllocator},
    {"cuda-oom", "HIP error: out of memory", kOom, Blame::cause, kOutsideAllocator,
     out_of_memory::read_rocm},
    {"cuda-oom", "'out of memory'", kOom, Blame::cause, kOutsideAllocator,
     out_of_memory::read_quoted},
    {"cuda-oom", "_STATUS_ALLOC_FAILED", kOom, Blame::cause,
     "no GPU memory was left for a library"},
    {"cuda-oom", "miopenStatusAllocFailed", kOom, Blame::cause,
     "no GPU memory was left for a library", out_of_memory::read_rocm},
    {"cuda-oom", "HSA_STATUS_ERROR_OUT_OF_RESOURCES", kOom, Blame::cause, kOutsideAllocator,
     out_of_memory::read_queue_without_memory},
    {"cuda-oom", "Failed to CUDA calloc", kOom, Blame::cause, "no GPU memory was left for NCCL"},
    // Memory of the host.
    {"host-oom", "oom_kill event", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the kernel killed a process"},
    {"host-oom", "oom-kill event", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the kernel killed a process"},
    {"host-oom", "ut of memory: Kill", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the kernel killed a process"},
    {"host-oom", "OOMKilled", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): a container was killed",
     out_of_memory::read_container},
    {"host-oom", "exceeded memory limit (", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the job was killed", out_of_memory::read_job_limit},
    {"host-oom", "node was low on resource: memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): a pod was evicted"},
    {"host-oom", "PBS: job killed: mem ", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the job was killed"},
    {"host-oom", "PBS: job killed: vmem ", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the job was killed"},
    {"host-oom", "TERM_MEMLIMIT: ", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): the job was killed"},
    {"host-oom", "killed due to memory pressure (OOM)", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): Ray killed a process"},
    {"host-oom", "killed due to the node running low on memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): Ray killed a process"},
    // Its process lives to tell it: no scheduler ended the run.
    {"host-oom", "is killed by signal: Killed", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): a worker that loads data was killed",
     read_killed_worker},
    {"host-oom", "MemoryError", kOom, Blame::cause, kHostOom, out_of_memory::read_memory_error,
     kInTraceback},
    {"host-oom", "std::bad_alloc", kOom, Blame::cause, kHostOom, out_of_memory::read_bad_alloc},
    {"host-oom", ": Out Of Memory", kOom, Blame::cause,
     "the host ran out of memory (not the GPU): a task was killed", read_task},
    {"host-oom", "DefaultCPUAllocator: can't allocate memory", kOom, Blame::cause, kHostOom},
    {"host-oom", "Cannot allocate memory", kOom, Blame::cause, kHostOom, nullptr, kInTraceback},
    // Workers of PyTorch that load data: their rank raises an exception because of it.
    {"segfault", "Unexpected segmentation fault encountered in worker", kCrashed, Blame::cause,
     "a segmentation fault of a worker that loads data"},
    {"signal", "Unexpected bus error encountered in worker", kCrashed, Blame::cause,
     "a bus error of a worker that loads data: most often /dev/shm is full"},
    {"signal", "is killed by signal: Bus error", kCrashed, Blame::cause,
     "a bus error of a worker that loads data: most often /dev/shm is full"},
    {"segfault", "is killed by signal: Segmentation fault", kCrashed, Blame::cause,
     "a segmentation fault of a worker that loads data"},
    {"disk-full", "No space left on device", kFailed, Blame::error, "a disk is full"},
    {"disk-full", "Disk quota exceeded", kFailed, Blame::error, "the quota of a disk is full"},
    // Devices and networks.
    {"cuda-error", "uncorrectable ECC error", kCrashed, Blame::error, "a GPU's memory is faulty"},
    {"cuda-error", "NVRM: Xid", kCrashed, Blame::error, "the GPU's driver reports a fault"},
    {"cuda-error", "CUDA error: ", kCrashed, Blame::error, "an error of CUDA", read_device_error},
    {"cuda-error", "HIP error: ", kCrashed, Blame::error, "an error of HIP", read_device_error},
    {"cuda-error", "Cuda failure ", kCrashed, Blame::error, "an error of CUDA",
     read_kernel_failure},
    {"cuda-error", "], thread: [", kCrashed, Blame::error, "an assertion of a kernel",
     read_kernel_assertion},
    {"cuda-error", " cuDNN Error: ", kCrashed, Blame::error, "an error of cuDNN", read_message},
    {"cuda-error", " cuBLAS Error: ", kCrashed, Blame::error, "an error of cuBLAS", read_message},
    {"cuda-error", "Memory access fault by GPU", kCrashed, Blame::error,
     "the GPU touched memory that is not there"},
    {"cuda-error", "borting with error : HSA_STATUS_", kCrashed, Blame::error,
     "the GPU's runtime gave a queue up", read_queue_error},
    {"mpi-error", "An error occurred in MPI_", kFailed, Blame::error, "an error of MPI"},
    {"address-in-use", "EADDRINUSE", kFailed, Blame::error, "the port is taken"},
    // Python.
    {"interrupted", "KeyboardInterrupt", kInterrupted, Blame::ending,
     "interrupted from the keyboard", nullptr, kInTraceback},
    {"interrupted", "exiting program after receiving SIGTERM", kInterrupted, Blame::outside,
     "asked to end by SIGTERM", read_without_detail},
    {"interrupted", "SIGTERMException", kInterrupted, Blame::ending, "asked to end by SIGTERM",
     read_without_detail, kInTraceback},
    {"interrupted", "SignalException: Process", kInterrupted, Blame::ending,
     "the launcher was asked to end"},
    {"interrupted", " death signal, shutting down workers", kInterrupted, Blame::ending,
     "the launcher was asked to end"},
    // Numbers.
    {"nan", "Unexpected result nan", kWrong, Blame::numbers, "NaN", read_bad_number},
    {"nan", "Unexpected result inf", kWrong, Blame::numbers, "infinity", read_bad_number},
    {"nan", "Unexpected result -inf", kWrong, Blame::numbers, "infinity", read_bad_number},
    {"nan", "found NaN in local", kWrong, Blame::numbers, "NaN", read_bad_number},
    {"nan", "found Inf in local", kWrong, Blame::numbers, "infinity", read_bad_number},
    {"nan", "Current loss scale already at minimum", kWrong, Blame::numbers,
     "gradients overflow at every loss scale"},
    // Waiting.
    {"nccl-timeout", "Watchdog caught collective operation timeout", kHung, Blame::waiting,
     "waited for others in a collective", read_collective_timeout, kSawOthers},
    {"nccl-queue", "last enqueued ", kHung, Blame::waiting, "", read_work_queue},
    {"nccl-queue", "Last enqueued ", kHung, Blame::waiting, "", read_work_queue},
    {"nccl-timeout", "eartbeat monitor timed out", kHung, Blame::waiting,
     "the process was stuck: its watchdog did not move"},
    {"nccl-timeout", "watchdog got stuck for", kHung, Blame::waiting,
     "the process was stuck: its watchdog did not move"},
    {"nccl-timeout", "due to ProcessGroupNCCL watchdog hang", kHung, Blame::waiting,
     "the process was stuck: its watchdog did not move"},
    {"deepep-timeout", "DeepEP ", kHung, Blame::waiting, "waited for others in DeepEP", read_deepep,
     kSawOthers},
    {"barrier-timeout", " failed to pass monitoredBarrier in ", kHung, Blame::waiting,
     "waited for others at a barrier", read_monitored_barrier, kSawOthers},
    {"gloo-timeout", "Timed out waiting ", kHung, Blame::waiting, "waited for others",
     read_gloo_timeout, kSawOthers},
    {"nccl-failed", "Some NCCL operations have failed or timed out", kHung, Blame::consequence,
     "collectives had failed or timed out", nullptr, kSawOthers},
    {"nccl-failed", "dump signal due to a collective timeout", kHung, Blame::consequence,
     "collectives had failed or timed out", nullptr, kSawOthers},
    {"nccl-failed", "debug info, due to collective timeout", kHung, Blame::consequence,
     "collectives had failed or timed out", nullptr, kSawOthers},
    {"rendezvous", "in store based barrier on rank: ", kHung, Blame::waiting,
     "not all ranks came together", read_store_barrier, kSawOthers},
    {"rendezvous", "RendezvousTimeoutError", kHung, Blame::waiting, "not all ranks came together",
     nullptr, kInTraceback | kSawOthers},
    {"rendezvous", "rror: Socket Timeout", kHung, Blame::waiting, "another rank did not answer",
     read_store_timeout, kSawOthers},
    {"rendezvous", "rror: wait timeout after ", kHung, Blame::waiting,
     "another rank did not answer", read_store_timeout, kSawOthers},
    {"rendezvous", "The client socket has timed out after ", kHung, Blame::waiting,
     "the first rank could not be reached", nullptr, kSawOthers},
    {"rendezvous", " seconds waiting for clients", kHung, Blame::waiting,
     "not all ranks came together", nullptr, kSawOthers},
    // A peer is gone, or somebody ended it.
    {"slurm-cancelled", " CANCELLED AT ", kInterrupted, Blame::ending, "cancelled",
     read_plain_cancel},
    {"peer-gone", "ncclRemoteError", kCrashed, Blame::ending, kPeerGone, nullptr, kSawOthers},
    {"peer-gone", "remote process exited or there was a network error", kCrashed, Blame::ending,
     kPeerGone, nullptr, kSawOthers},
    {"nccl-error", "NCCL error in: ", kCrashed, Blame::ending, "NCCL failed"},
    {"nccl-error", "Last error:", kCrashed, Blame::ending, "", read_last_error},
    {"nccl-error", "NCCL Error ", kCrashed, Blame::ending, "NCCL failed", nullptr, kInTraceback},
    {"peer-gone", "ncclSystemError", kCrashed, Blame::ending, "NCCL's network failed"},
    {"peer-gone", "NCCL communicator was aborted", kCrashed, Blame::consequence, kPeerGone, nullptr,
     kSawOthers},
    {"peer-gone", "Connection closed by peer", kCrashed, Blame::ending, kPeerGone, nullptr,
     kSawOthers},
    {"peer-gone", "Connection reset by peer", kCrashed, Blame::ending, kPeerGone, read_lost_peer,
     kSawOthers},
    {"peer-gone", "Connection closed by remote peer", kCrashed, Blame::ending, kPeerGone, nullptr,
     kSawOthers},
    {"peer-gone", "failed to recv, got 0 bytes", kCrashed, Blame::ending, kPeerGone, read_lost_peer,
     kSawOthers},
    {"peer-gone", "Got completion from peer ", kCrashed, Blame::ending,
     "another rank or the way to it is gone", nullptr, kSawOthers},
    {"peer-gone", "RendezvousConnectionError", kCrashed, Blame::ending, "another node is gone",
     nullptr, kInTraceback | kSawOthers},
    {"peer-gone", "RendezvousClosedError", kCrashed, Blame::ending, "another node is gone", nullptr,
     kInTraceback | kSawOthers},
    {"peer-gone", "ActorDiedError", kCrashed, Blame::ending, "a worker of Ray is gone", nullptr,
     kInTraceback | kSawOthers},
    {"peer-gone", "The actor is dead because its worker process has died", kCrashed, Blame::ending,
     "a worker of Ray is gone", nullptr, kSawOthers},
    {"peer-gone", "A worker died or was killed while executing a task", kCrashed, Blame::ending,
     "a worker of Ray is gone", nullptr, kSawOthers},
    {"peer-gone", "Broken pipe", kCrashed, Blame::consequence, kPeerGone, read_lost_peer,
     kSawOthers},
    // Consequences.
    {"segfault", "Segmentation fault", kCrashed, Blame::ending, "a segmentation fault",
     read_ended_word},
    {"signal", "Bus error", kCrashed, Blame::ending, "a bus error: most often /dev/shm is full",
     read_ended_word},
    {"abort", "taking the entire process down", kHung, Blame::consequence,
     "its watchdog ended the process"},
    {"abort", "terminate called ", kCrashed, Blame::consequence, "aborted", read_terminate},
    {"abort", "MPI_ABORT was invoked on rank ", kCrashed, Blame::consequence, "aborted",
     read_mpi_abort},
    {"abort", "Fatal Python error: ", kCrashed, Blame::consequence, "aborted"},
    {"slurm-task", "DUE TO TASK FAILURE", kFailed, Blame::consequence, "a task failed", read_slurm},
    {"slurm-task", "(non-zero exit code or other failure mode)", kFailed, Blame::consequence,
     "a task failed", read_slurm},
    {"exit-code", "Exited with exit code ", kFailed, Blame::consequence, "a task failed",
     read_exit_code},
    {"launcher", "ChildFailedError", kFailed, Blame::consequence, "a rank failed", nullptr,
     kInTraceback},
    {"launcher", "ProcessExitedException", kFailed, Blame::consequence, "a rank failed", nullptr,
     kInTraceback},
    {"launcher", "ProcessRaisedException", kFailed, Blame::consequence, "a rank failed", nullptr,
     kInTraceback},
    {"launcher", "CalledProcessError", kFailed, Blame::consequence, "a rank failed", nullptr,
     kInTraceback},
    // torchrun's box.
    {"box", "Root Cause (first observed failure):", kFailed, Blame::consequence, "", read_box_root},
    {"box", "Failures:", kFailed, Blame::consequence, "", read_box_others},
    {"box", "  time      : ", kFailed, Blame::consequence, "", read_box_time},
    {"box", "  rank      : ", kFailed, Blame::consequence, "", read_box_rank},
    {"box", processes::kBoxCode, kFailed, Blame::consequence, "", read_exit_code},
    {"box", "forcefully exiting via 9", kFailed, Blame::consequence, "", read_forced},
    {"box", "failed (exitcode: ", kFailed, Blame::consequence, "", read_exit_code},
    // The same of others who start and end processes.
    {"box", "command terminated with exit code ", kFailed, Blame::consequence, "", read_exit_code},
    {"box", "exits with return code = ", kFailed, Blame::consequence, "", read_exit_code},
    {"box", " terminated with code ", kFailed, Blame::consequence, "", read_exit_code},
    {"box", " exited on signal ", kCrashed, Blame::consequence, "", read_on_signal},
    {"box", " terminated with signal SIG", kCrashed, Blame::consequence, "", read_named_signal},
    {"box", processes::kDiedOf, kCrashed, Blame::consequence, "", read_named_signal},
    {"box", "salloc: Relinquishing job allocation ", kInterrupted, Blame::consequence, "",
     read_given_back},
    {"box", "srun: Terminating ", kCrashed, Blame::consequence, "", read_step_end},
    {"box", "Job step aborted: ", kCrashed, Blame::consequence, "", read_step_end},
    {"box", ": Killed", kCrashed, Blame::consequence, "", read_signalled_task},
    {"box", ": Terminated", kCrashed, Blame::consequence, "", read_signalled_task},
    {"box", ": Aborted", kCrashed, Blame::consequence, "", read_signalled_task},
    {"box", "Killed", kCrashed, Blame::consequence, "", read_signalled_command},
    {"box", "Terminated", kCrashed, Blame::consequence, "", read_signalled_command},
    {"box", "Aborted", kCrashed, Blame::consequence, "", read_signalled_command},
    {"box", "Illegal instruction", kCrashed, Blame::consequence, "", read_signalled_command},
    {"box", "Floating point exception", kCrashed, Blame::consequence, "", read_signalled_command},
    {"box", "zsh: ", kCrashed, Blame::consequence, "", read_zsh},
    {"box", " killed", kCrashed, Blame::consequence, "", read_zsh_job},
    {"box", " terminated", kCrashed, Blame::consequence, "", read_zsh_job},
    {"box", " abort", kCrashed, Blame::consequence, "", read_zsh_job},
    {"box", " segmentation fault", kCrashed, Blame::consequence, "", read_zsh_job},
    {"box", " bus error", kCrashed, Blame::consequence, "", read_zsh_job},
    {"box", " Exit ", kFailed, Blame::consequence, "", read_job_code},
    {"box", " exit ", kFailed, Blame::consequence, "", read_job_code},
    {"box", processes::kOfMake, kFailed, Blame::consequence, "", read_make},
    {"box", " exited with code ", kCrashed, Blame::consequence, "", read_signal_code},
    {"box", " exited with exit code ", kCrashed, Blame::consequence, "", read_signal_code},
    {"box", " failed with exit code ", kCrashed, Blame::consequence, "", read_signal_code},
    {"box", " finished with exit code ", kCrashed, Blame::consequence, "", read_signal_code},
    {"box", "xit code: ", kCrashed, Blame::consequence, "", read_stated_code},
    {"box", "Exit Code: ", kCrashed, Blame::consequence, "", read_stated_code},
    {"box", " exit status ", kCrashed, Blame::consequence, "", read_signal_code},
    {"box", " exited with status ", kCrashed, Blame::consequence, "", read_signal_code},
    // Without words of their own: told by what stands around them.
    {"assertion", "", kFailed, Blame::cause, "a rule is broken"},
    {"configuration", "", kFailed, Blame::cause, "the configuration was refused"},
    {"python-error", "", kFailed, Blame::error, "an error of Python"},
    {"launcher", "", kFailed, Blame::consequence, "a rank failed"},
    {"nan", "", kWrong, Blame::numbers, "the loss is not a number"},
    {"nccl-idle", "", kHung, Blame::waiting,
     "hung outside of NCCL, most often in a file system: no collective was under way", nullptr,
     kSawOthers},
    {"silence", "", kHung, Blame::waiting, "no step any more"},
    {"signal", "", kCrashed, Blame::killed, "ended by a signal"},
    {"interrupted", "", kInterrupted, Blame::ending, "interrupted from the keyboard"},
    // It may have run beside the ranks: it explains nothing that another failure does not.
    {"process-signal", "", kCrashed, Blame::consequence, "a process was ended by a signal"},
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
