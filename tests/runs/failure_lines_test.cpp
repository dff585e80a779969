// A line for every row of the table of failures, and lines that are none.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "sweeps/runs/failure_forms.h"
#include "tests/runs/failure_rows.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(lines_of_failed_runs)

namespace {

using golden_logs::check;
using golden_logs::facts_of;
using golden_logs::FailureLine;
using golden_logs::kInTraceback;
using golden_logs::kOom;
using golden_logs::megatron_step;
using golden_logs::megatron_steps;
using golden_logs::traceback;

/// A line for every row of the table of failures that needs no other line.
const FailureLine kLines[] = {
    {"*** JOB 1 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO TIME LIMIT ***", "slurm-time-limit",
     ForeignStatus::interrupted},
    {"*** JOB 1 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO PREEMPTION ***", "slurm-preempted",
     ForeignStatus::interrupted},
    {"*** JOB 1 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO JOB REQUEUE ***", "slurm-preempted",
     ForeignStatus::interrupted},
    {"*** JOB 1 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
     "slurm-node-failure", ForeignStatus::interrupted},
    {"*** STEP 1.0 ON n CANCELLED AT 2026-03-04T05:06:10 DUE to SIGNAL Terminated ***",
     "slurm-cancelled", ForeignStatus::interrupted},
    {"*** STEP 1.0 ON n CANCELLED AT 2026-03-04T05:06:10 ***", "slurm-cancelled",
     ForeignStatus::interrupted},
    {"*** STEP 1.0 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO TASK FAILURE ***", "slurm-task",
     ForeignStatus::failed},
    {"*** STEP 1.0 ON n FAILED (non-zero exit code or other failure mode) ***", "slurm-task",
     ForeignStatus::failed},
    {"a.py: error: unrecognized arguments: --moe-old", "arguments", ForeignStatus::failed},
    {"\xe2\x94\x82 Unrecognized options: --parallelism.old, 3    \xe2\x94\x82", "arguments",
     ForeignStatus::failed},
    {"a.py: error: argument --lr: invalid float value: 'x'", "arguments", ForeignStatus::failed},
    {"a.py: error: the following arguments are required: --seq-length", "arguments",
     ForeignStatus::failed},
    {"omegaconf.errors.ConfigAttributeError: Key 'x' is not in struct", "arguments",
     ForeignStatus::failed},
    {"Could not override 'model.x'.", "arguments", ForeignStatus::failed},
    {"ModuleNotFoundError: No module named 'apex'", "import", ForeignStatus::failed, kInTraceback},
    {"ImportError: libcudnn.so.9: cannot open shared object file", "library", ForeignStatus::failed,
     kInTraceback},
    {"/opt/bin/train: error while loading shared libraries: libcuda.so.1: cannot open shared "
     "object file: No such file or directory",
     "library", ForeignStatus::failed},
    {"RuntimeError: Found no NVIDIA driver on your system.", "no-device", ForeignStatus::failed,
     kInTraceback},
    {"RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "no-device",
     ForeignStatus::failed, kInTraceback},
    {"RuntimeError: No CUDA GPUs are available", "no-device", ForeignStatus::failed, kInTraceback},
    {"RuntimeError: No HIP GPUs are available", "no-device", ForeignStatus::failed, kInTraceback},
    {"RuntimeError: CUDA error: no CUDA-capable device is detected", "no-device",
     ForeignStatus::failed, kInTraceback},
    {"ImportError: cannot import name 'moe' from 'megatron.core'", "import", ForeignStatus::failed,
     kInTraceback},
    {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "cuda-oom", ForeignStatus::oom},
    {"RuntimeError: CUDA error: out of memory", "cuda-oom", ForeignStatus::oom},
    {"RuntimeError: CUDA driver error: out of memory", "cuda-oom", ForeignStatus::oom},
    {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", "cuda-oom",
     ForeignStatus::oom},
    {"NCCL WARN Failed to CUDA calloc async 608 bytes", "cuda-oom", ForeignStatus::oom},
    {"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "host-oom", ForeignStatus::oom},
    {"slurmstepd: error: Detected 1 oom-kill event(s) in step 1.0 cgroup.", "host-oom",
     ForeignStatus::oom},
    {"srun: error: node: task 3: Out Of Memory", "host-oom", ForeignStatus::oom},
    {"RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
     "host-oom", ForeignStatus::oom},
    {"OSError: [Errno 12] Cannot allocate memory", "host-oom", ForeignStatus::oom, kInTraceback},
    {"OSError: [Errno 28] No space left on device", "disk-full", ForeignStatus::failed},
    {"RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda-error",
     ForeignStatus::crashed},
    {"NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", "cuda-error",
     ForeignStatus::crashed},
    {"RuntimeError: CUDA error: device-side assert triggered", "cuda-error",
     ForeignStatus::crashed},
    {"RuntimeError: HIP error: invalid device function", "cuda-error", ForeignStatus::crashed},
    {"Memory access fault by GPU node-2 on address 0x7f", "cuda-error", ForeignStatus::crashed},
    {"RuntimeError: The server socket has failed to listen: EADDRINUSE", "address-in-use",
     ForeignStatus::failed},
    {"KeyboardInterrupt", "interrupted", ForeignStatus::interrupted, kInTraceback},
    {"[exiting program after receiving SIGTERM.] datetime: 2026-03-04 05:06:10", "interrupted",
     ForeignStatus::interrupted},
    {"torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
     "interrupted", ForeignStatus::interrupted},
    {"W0304 05:06:10.089000 4242 torch/distributed/elastic/agent/server/api.py:723] Received 15 "
     "death signal, shutting down workers",
     "interrupted", ForeignStatus::interrupted},
    {"RuntimeError: Rank 1, node n, device 1, iteration 9: Unexpected result nan (message='x')",
     "nan", ForeignStatus::wrong},
    {"RuntimeError: Rank 1, node n, device 1, iteration 9: Unexpected result inf (message='x')",
     "nan", ForeignStatus::wrong},
    {"RuntimeError: Rank 1, node n, device 1, iteration 9: Unexpected result -inf (message='x')",
     "nan", ForeignStatus::wrong},
    {"AssertionError: found NaN in local grad norm for bucket #3 in backward pass", "nan",
     ForeignStatus::wrong},
    {"AssertionError: found Inf in local forward loss calculation", "nan", ForeignStatus::wrong},
    {"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=SEND, NumelIn=1) ran "
     "for 5 milliseconds",
     "nccl-timeout", ForeignStatus::hung},
    {"ProcessGroupNCCL's heartbeat monitor timed out! Will terminate the process", "nccl-timeout",
     ForeignStatus::hung},
    {"[gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 60000ms for send operation to "
     "complete",
     "gloo-timeout", ForeignStatus::hung},
    {"ProcessGroupNCCL's watchdog got stuck for 480 seconds", "nccl-timeout", ForeignStatus::hung},
    {"Some NCCL operations have failed or timed out. Due to", "nccl-failed", ForeignStatus::hung},
    {"DistStoreError: Timed out after 1801 seconds waiting for clients. 7/8 clients joined.",
     "rendezvous", ForeignStatus::hung},
    {"ncclRemoteError: A call failed possibly due to a network error", "peer-gone",
     ForeignStatus::crashed},
    {"NCCL error: remote process exited or there was a network error, NCCL version 2", "peer-gone",
     ForeignStatus::crashed},
    {"NCCL error in: x.cpp:1, unhandled system error", "nccl-error", ForeignStatus::crashed},
    {"ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
     "peer-gone", ForeignStatus::crashed},
    {"RuntimeError: NCCL communicator was aborted on rank 2.", "peer-gone", ForeignStatus::crashed},
    {"RuntimeError: [gloo/pair.cc:534] Connection closed by peer [10.0.0.1]:1", "peer-gone",
     ForeignStatus::crashed},
    {"RuntimeError: recvValue failed: Connection reset by peer", "peer-gone",
     ForeignStatus::crashed},
    {"RuntimeError: sendBytes failed: Broken pipe", "peer-gone", ForeignStatus::crashed},
    {"srun: error: node: task 1: Segmentation fault (core dumped)", "segfault",
     ForeignStatus::crashed},
    {"srun: error: node: task 1: Bus error", "signal", ForeignStatus::crashed},
    {"To avoid data inconsistency, we are taking the entire process down.", "abort",
     ForeignStatus::hung},
    {"terminate called after throwing an instance of 'c10::Error'", "abort",
     ForeignStatus::crashed},
    {"srun: error: node: tasks 0-7: Exited with exit code 1", "exit-code", ForeignStatus::failed},
    {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "launcher",
     ForeignStatus::failed, kInTraceback},
    {"torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated", "launcher",
     ForeignStatus::failed, kInTraceback},
    {"torch.multiprocessing.spawn.ProcessRaisedException: ", "launcher", ForeignStatus::failed,
     kInTraceback},
    {"subprocess.CalledProcessError: Command '['bash']' returned non-zero exit status 1.",
     "launcher", ForeignStatus::failed, kInTraceback},
    {"  exitcode  : -9 (pid: 42)", "signal", ForeignStatus::crashed},
    {"failed (exitcode: 1) local_rank: 3 (pid: 42) of binary: /usr/bin/python3", "exit-code",
     ForeignStatus::failed},
    {"  exitcode  : -15 (pid: 42)", "ended", ForeignStatus::crashed},
    {"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
     "cuda-oom", ForeignStatus::oom, kInTraceback},
    {"RuntimeError: cuda_runtime.cpp:30 in function get_device: CUDA Error: out of memory",
     "cuda-oom", ForeignStatus::oom, kInTraceback},
    {"RuntimeError: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY", "cuda-oom", ForeignStatus::oom},
    {"what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory", "cuda-oom",
     ForeignStatus::oom},
    {"RuntimeError: Triton Error [CUDA]: out of memory", "cuda-oom", ForeignStatus::oom},
    {"RuntimeError: HIP error: out of memory", "cuda-oom", ForeignStatus::oom, kInTraceback},
    {"n:1:2 [1] include/alloc.h:99 NCCL WARN Cuda failure 2 'out of memory'", "cuda-oom",
     ForeignStatus::oom},
    {"n:1:2 [1] NCCL WARN HIP failure 'out of memory'", "cuda-oom", ForeignStatus::oom},
    {"RuntimeError: Failed: CUDA error deep_ep.cpp:129 'out of memory'", "cuda-oom",
     ForeignStatus::oom, kInTraceback},
    {"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cuda-oom", ForeignStatus::oom,
     kInTraceback},
    {"RuntimeError: miopenStatusAllocFailed", "cuda-oom", ForeignStatus::oom, kInTraceback},
    {"Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime "
     "failed. Code: 0x1008 Available Free mem : 0 MB",
     "cuda-oom", ForeignStatus::oom},
    {"Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime "
     "failed. Code: 0x1008 Available Free mem : 10240 MB",
     "cuda-error", ForeignStatus::crashed},
    {"Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation",
     "cuda-error", ForeignStatus::crashed},
    {"ray.exceptions.RayTaskError(OutOfMemoryError): ray::f() (pid=1)", "cuda-oom",
     ForeignStatus::oom, kInTraceback},
    {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
     "host-oom", ForeignStatus::oom, kInTraceback},
    {"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB", "host-oom",
     ForeignStatus::oom, kInTraceback},
    {"MemoryError", "host-oom", ForeignStatus::oom, kInTraceback},
    {"terminate called after throwing an instance of 'std::bad_alloc'", "host-oom",
     ForeignStatus::oom},
    {"[1.5] Out of memory: Killed process 4242 (python) total-vm:1234kB", "host-oom",
     ForeignStatus::oom},
    {"[1.5] Memory cgroup out of memory: Killed process 4242 (python)", "host-oom",
     ForeignStatus::oom},
    {"reason: OOMKilled", "host-oom", ForeignStatus::oom},
    {"The node was low on resource: memory.", "host-oom", ForeignStatus::oom},
    {"slurmstepd: error: Job 1 exceeded memory limit (67108864 > 65536000), being killed",
     "host-oom", ForeignStatus::oom},
    {"=>> PBS: job killed: mem 67108864kb exceeded limit 65536000kb", "host-oom",
     ForeignStatus::oom},
    {"=>> PBS: job killed: vmem 67108864kb exceeded limit 65536000kb", "host-oom",
     ForeignStatus::oom},
    {"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "host-oom",
     ForeignStatus::oom},
    {"RuntimeError: DataLoader worker (pid 5151) is killed by signal: Killed.", "host-oom",
     ForeignStatus::oom, kInTraceback},
    {"OSError: [Errno 122] Disk quota exceeded", "disk-full", ForeignStatus::failed, kInTraceback},
    {"srun: error: Node failure on node03", "slurm-node-failure", ForeignStatus::interrupted},
    {"*** STEP 1.0 ON n CANCELLED AT 2026-03-04T05:06:10 DUE TO JOB NOT ENDING WITH SIGNALS ***",
     "slurm-cancelled", ForeignStatus::interrupted},
    {"=>> PBS: job killed: walltime 3632 exceeded limit 3600", "time-limit",
     ForeignStatus::interrupted},
    {"TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time-limit",
     ForeignStatus::interrupted},
    {"a.py: error: ambiguous option: --moe could match --moe-a, --moe-b", "arguments",
     ForeignStatus::failed},
    {"lightning.fabric.utilities.exceptions.SIGTERMException", "interrupted",
     ForeignStatus::interrupted, kInTraceback},
    {"Exception: Current loss scale already at minimum - cannot decrease scale anymore.", "nan",
     ForeignStatus::wrong, kInTraceback},
    {"RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 600000 ms",
     "barrier-timeout", ForeignStatus::hung, kInTraceback},
    {"Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL "
     "watchdog hang.",
     "nccl-timeout", ForeignStatus::hung},
    {"Terminating the process after attempting to dump debug info, due to collective timeout or "
     "exception.",
     "nccl-failed", ForeignStatus::hung},
    {"Received a dump signal due to a collective timeout from  rank 0 and we will try our best",
     "nccl-failed", ForeignStatus::hung},
    {"RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for "
     "key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)",
     "rendezvous", ForeignStatus::hung, kInTraceback},
    {"torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous",
     ForeignStatus::hung, kInTraceback},
    {"torch.distributed.DistStoreError: Socket Timeout", "rendezvous", ForeignStatus::hung},
    {"DistBackendError: [3] is setting up NCCL communicator, but store->get('0') got error: wait "
     "timeout after 600000ms, keys: /default_pg/0",
     "rendezvous", ForeignStatus::hung},
    {"torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
     "trying to connect to (10.0.0.1, 29500).",
     "rendezvous", ForeignStatus::hung},
    {"Job allocation 4242 has been revoked.", "slurm-cancelled", ForeignStatus::interrupted},
    {"srun: error: Unable to create step for job 1: Requested node configuration is not available",
     "slurm-step", ForeignStatus::failed},
    {"srun: error: task 0 launch failed: Slurmd could not connect IO", "slurm-step",
     ForeignStatus::failed},
    {"(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed",
     "host-oom", ForeignStatus::oom},
    {"n:1:2 [1] NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
     "cuda-error", ForeignStatus::crashed},
    {"NCCL WARN socketProgress: Connection closed by remote peer n02<1234>", "peer-gone",
     ForeignStatus::crashed},
    {"torch.distributed.DistNetworkError: failed to recv, got 0 bytes", "peer-gone",
     ForeignStatus::crashed, kInTraceback},
    {"NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=0 len=0",
     "peer-gone", ForeignStatus::crashed},
    {"torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
     "C10d store has failed. See inner exception for details.",
     "peer-gone", ForeignStatus::crashed, kInTraceback},
    {"torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "peer-gone",
     ForeignStatus::crashed, kInTraceback},
    {"ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
     "peer-gone", ForeignStatus::crashed, kInTraceback},
    {"(raylet) A worker died or was killed while executing a task by an unexpected system error.",
     "peer-gone", ForeignStatus::crashed},
    {"RuntimeError: NCCL Error 2: unhandled system error", "nccl-error", ForeignStatus::crashed,
     kInTraceback},
    {"terminate called without an active exception", "abort", ForeignStatus::crashed},
    {"Fatal Python error: Aborted", "abort", ForeignStatus::crashed},
    {"srun: error: node01: task 5: Killed", "signal", ForeignStatus::crashed},
    {"srun: error: node01: tasks 0-7: Killed", "signal", ForeignStatus::crashed},
    {"srun: error: node01: tasks 0-7: Terminated", "ended", ForeignStatus::crashed},
    {"srun: error: node01: task 3: Aborted (core dumped)", "signal", ForeignStatus::crashed},
    {"MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "abort",
     ForeignStatus::crashed},
    {"*** An error occurred in MPI_Init_thread", "mpi-error", ForeignStatus::failed},
    {"RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error. It is possible that "
     "workers are out of shared memory.",
     "signal", ForeignStatus::crashed, kInTraceback},
    {"RuntimeError: DataLoader worker (pid 42) is killed by signal: Segmentation fault. ",
     "segfault", ForeignStatus::crashed, kInTraceback},
    {"RuntimeError: /a/fused_attn.cu:366 in function operator(): cuDNN Error: "
     "CUDNN_STATUS_EXECUTION_FAILED.",
     "cuda-error", ForeignStatus::crashed, kInTraceback},
    {"RuntimeError: /a/gemm.cu:373 in function cublas_gemm: cuBLAS Error: an internal operation "
     "failed",
     "cuda-error", ForeignStatus::crashed, kInTraceback},
    {"/a/cuda/Loss.cu:240: nll_loss: block: [0,0,0], thread: [17,0,0] Assertion `t < n_classes` "
     "failed.",
     "cuda-error", ForeignStatus::crashed},
    {"RuntimeError: DeepEP error: timeout (dispatch CPU)", "deepep-timeout", ForeignStatus::hung,
     kInTraceback},
    {"RuntimeError: DeepEP error: CPU recv timeout", "deepep-timeout", ForeignStatus::hung,
     kInTraceback},
    {"DeepEP timeout check failed: rank = 6, thread = 0, value = 0)", "deepep-timeout",
     ForeignStatus::hung},
    {"DeepEP dispatch NVL receiver timeout, channel: 3, RDMA: 1, nvl: 2", "deepep-timeout",
     ForeignStatus::hung},
    {"The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
     "peer-gone", ForeignStatus::crashed},
    {"n:4242:4243 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 3 and rank 0 both on "
     "CUDA device f000",
     "shared-device", ForeignStatus::failed},
    {"job.sh: line 12:  4242 Killed                  torchrun train.py", "signal",
     ForeignStatus::crashed},
    {"job.sh: line 12:  4242 Aborted                 (core dumped) python train.py", "signal",
     ForeignStatus::crashed},
    {"job.sh: line 12:  4242 Floating point exception(core dumped) python train.py", "signal",
     ForeignStatus::crashed},
    {"Killed", "signal", ForeignStatus::crashed},
    {"Aborted (core dumped)", "signal", ForeignStatus::crashed},
    {"Terminated", "ended", ForeignStatus::crashed},
    {"Illegal instruction (core dumped)", "signal", ForeignStatus::crashed},
    {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
     "shared memory (shm).",
     "signal", ForeignStatus::crashed},
    {"ERROR: Unexpected segmentation fault encountered in worker.", "segfault",
     ForeignStatus::crashed},
    {"Segmentation fault (core dumped)", "segfault", ForeignStatus::crashed},
    {"command terminated with exit code 137", "signal", ForeignStatus::crashed},
    {"[ERROR] [launch.py:325:sigkill_handler] ['python'] exits with return code = -9", "signal",
     ForeignStatus::crashed},
    {"mpirun noticed that process rank 3 with PID 4242 on node n exited on signal 9 (Killed).",
     "signal", ForeignStatus::crashed},
    {"torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
     "signal", ForeignStatus::crashed, kInTraceback},
    {"[rank: 3] Child process with PID 4242 terminated with code 1. Forcefully terminating all "
     "other processes to avoid zombies",
     "exit-code", ForeignStatus::failed},
};

}  // namespace

BOOST_DATA_TEST_CASE(lines_of_failures, boost::unit_test::data::make(kLines)) { check(sample); }

BOOST_AUTO_TEST_CASE(every_row_of_failures_has_its_line) {
  for (const FailureForm& form : failure_forms()) {
    if (form.words.empty()) continue;  // rows that only help to read others
    const bool has_line =
        form.anchor.empty() || std::ranges::any_of(kLines, [&](const FailureLine& row) {
          return row.line.find(form.anchor) != std::string::npos && row.kind == form.name;
        });
    BOOST_TEST(has_line, form.name << ": " << form.anchor);
  }
}

// The same words where nothing has failed.
BOOST_AUTO_TEST_CASE(words_that_are_no_failures) {
  for (const std::string text :
       {"if 'out of memory' in str(e):",
        "WARNING: option 2 'out of memory'",
        "DeepEP is used for dispatch",
        "DeepEP kernels were built for sm_90; if they wait for long, raise a timeout of theirs",
        "WARNING: MemoryError may come",
        "torch.OutOfMemoryError is caught",
        "slurmstepd: error: Exceeded job memory limit at some point.",
        "Job 1 exceeded memory limit (67108864 > 65536000)",
        "server: Killed the cache",
        "step 3: Killed  branches: 5",
        "Killed the cache",
        "Aborted by the user: eval",
        "Requests Terminated",
        "job.sh: line 14:  4243 Terminated              nvidia-smi dmon > gpu.log",
        "Child process with PID 42 terminated with code 0.",
        "NCCL WARN Cuda failure 1 'invalid argument'",
        "kernel launch failed: will retry",
        "HTTP error: Socket Timeout",
        "s3: Error: Socket Timeout, will retry",
        "the certificate has been revoked",
        "    \"OOMKilled\": false,",
        "OOMKilled=False",
        "job.sh: line 12:  4242 Killed                  nvidia-smi dmon > gpu.log",
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'ProtocolError('Connection "
        "aborted.', ConnectionResetError(104, 'Connection reset by peer'))': /api/1/envelope/",
        "retry: [Errno 32] BrokenPipeError(32, 'Broken pipe')",
        "server started, waiting for clients",
        "command terminated with exit code 0",
        "process 1 terminated with signal SIGUSR1"}) {
    const RunFacts facts = facts_of(megatron_steps(1, 3) + text + "\n");
    BOOST_TEST(!facts.root.has_value(), text << ": " << facts.reason);
  }
  // Python's own class, and not one that ends alike.
  const RunFacts rmm = facts_of(megatron_steps(1, 3) + traceback("", "rmm.MyMemoryError: no room"));
  BOOST_TEST(rmm.root->kind == "python-error");
}

// The first rank's store goes with its process, at a good end, too.
BOOST_AUTO_TEST_CASE(a_warning_that_the_store_is_gone_is_no_failure) {
  const std::string steps = megatron_steps(1, 3);
  for (const char* words :
       {"failed to recv, got 0 bytes", "Connection reset by peer", "Broken pipe"}) {
    const std::string warning =
        "[rank1]:[W304 05:16:08.100 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=63, "
        "remote=[n1]:29500): " +
        std::string(words) + "\n" +
        "[rank1]:[W304 05:16:08.100 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank "
        "1] Failed to check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut "
        "down too early), with error: " +
        words + "\n";
    const RunFacts facts = facts_of(steps + warning);
    BOOST_TEST(!facts.root.has_value(), facts.reason);
    const std::string error =
        traceback("[rank1]: ", "torch.distributed.DistNetworkError: " + std::string(words));
    BOOST_REQUIRE(facts_of(steps + warning + error).root.has_value());
    BOOST_TEST(facts_of(steps + warning + error).root->kind == "peer-gone");
  }
}

// PyTorch tells now and then how far a group is, if asked to: one may never have been used.
BOOST_AUTO_TEST_CASE(a_report_of_a_watchdog_is_no_hang) {
  const auto line = [](char level) {
    return std::string("[rank0]:[") + level +
           "304 05:06:07.089 ProcessGroupNCCL.cpp:2210] [PG ID 3 PG GUID 5(EXPERT) Rank 0] NCCL "
           "Work "
           "update periodically: last enqueued NCCL work: -1, last completed NCCL work: -1\n";
  };
  BOOST_TEST(!facts_of(megatron_steps(1, 3) + line('I')).root.has_value());
  BOOST_REQUIRE(facts_of(megatron_steps(1, 3) + line('E')).root.has_value());
  BOOST_TEST(facts_of(megatron_steps(1, 3) + line('E')).root->kind == "nccl-idle");
}

// The process goes on, or ends as it would have without them.
BOOST_AUTO_TEST_CASE(exceptions_that_python_ignores_are_no_failures) {
  const std::string steps = megatron_steps(1, 3);
  const std::string error = "AssertionError: can only test a child process";
  const std::string chain =
      "\nDuring handling of the above exception, another exception occurred:\n\n";
  for (const std::string head :
       {"Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n",
        "Exception ignored in atexit callback: <function finish at 0x7f>\n",
        "--- Logging error ---\n", "Error in atexit._run_exitfuncs:\n"}) {
    const std::string ignored = head + traceback("", error);
    for (const std::string& text :
         {ignored, ignored + chain + traceback("", "ValueError: too"), head + error + "\n",
          "[rank3]: " + head + traceback("[rank3]: ", error), head + head + traceback("", error)}) {
      const RunFacts facts = facts_of(steps + text);
      BOOST_TEST(!facts.root.has_value(), text << facts.reason);
    }
    // The next one is not, nor is that of another rank.
    for (const std::string& text :
         {ignored + traceback("", "ValueError: broken"),
          head + error + "\n" + traceback("", "ValueError: broken"),
          "[rank3]: " + head + traceback("[rank5]: ", "ValueError: broken")}) {
      const RunFacts facts = facts_of(steps + text);
      BOOST_REQUIRE_MESSAGE(facts.root.has_value(), text);
      BOOST_TEST(facts.reason.find("ValueError: broken") != std::string::npos, facts.reason);
    }
  }
}

// A thread ends alone. Whether the run has failed with it is told by the rest.
BOOST_AUTO_TEST_CASE(exceptions_of_threads_are_unsure) {
  for (const std::string head :
       {"Exception in thread NetStatThr:\n",
        "ERROR:asyncio:Task exception was never retrieved\nfuture: <Task finished name='a'>\n"}) {
    const std::string thread = head + traceback("", "ValueError: closed file");
    BOOST_TEST((facts_of(megatron_steps(1, 3) + thread).status == ForeignStatus::failed));
    BOOST_TEST((facts_of(megatron_steps(98, 100) + thread).status == ForeignStatus::ok));
    const RunFacts both = facts_of(megatron_steps(1, 3) + thread + "[rank1]: " + kOom);
    BOOST_TEST(both.root->kind == "cuda-oom");
  }
  BOOST_TEST((facts_of(megatron_steps(98, 100) + traceback("", "ValueError: closed file")).status ==
              ForeignStatus::failed));
}

// salloc says the same of an allocation that it has given back itself.
BOOST_AUTO_TEST_CASE(an_allocation_that_was_given_back_was_not_taken) {
  const std::string end =
      "salloc: Relinquishing job allocation 4242\n"
      "salloc: Job allocation 4242 has been revoked.\n";
  const std::string failed = "srun: error: node01: task 3: Exited with exit code 1\n";
  BOOST_TEST(!facts_of(megatron_steps(1, 3) + end).root.has_value());
  const RunFacts facts = facts_of(megatron_steps(1, 3) + failed + end);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == "exit-code", facts.reason);
}

// Its workers are killed with a rank: they say nothing of the host's memory.
BOOST_AUTO_TEST_CASE(workers_that_are_killed_with_the_step_are_victims) {
  const RunFacts facts = facts_of(
      megatron_steps(1, 3) + traceback("[rank3]: ", "ValueError: broken") +
      "srun: error: node01: task 3: Exited with exit code 1\nsrun: Terminating StepId=1.0\n" +
      traceback("[rank1]: ",
                "RuntimeError: DataLoader worker (pid 5151) is killed by signal: Killed."));
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == "python-error", facts.reason);
  BOOST_TEST(facts.root->rank == 3);
}

BOOST_AUTO_TEST_CASE(memory_of_other_processes_is_counted_once_each) {
  const RunFacts facts = facts_of(
      megatron_steps(1, 3) +
      "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
      "a total capacity of 80.00 GiB of which 1.00 GiB is free. Process 1 was not found. Process 2 "
      "has 10.00 GiB memory in use. Process 3 has 20.00 GiB memory in use. Including non-PyTorch "
      "memory, this process has 40.00 GiB memory in use.\n");
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_REQUIRE(facts.root->memory.has_value());
  BOOST_TEST(facts.root->memory->others_bytes == int64_t{30} << 30);
}

// Ray tells the class first, and its figures further down.
BOOST_AUTO_TEST_CASE(figures_of_memory_come_behind_the_class) {
  const std::string named = traceback(
      "", "ray.exceptions.RayTaskError(OutOfMemoryError): ray::Worker.train() (pid=4242)");
  const RunFacts facts =
      facts_of(megatron_steps(1, 3) + named + "  File \"/a.py\", line 5\n" + kOom);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_REQUIRE(facts.root->memory.has_value());
  BOOST_TEST(facts.root->memory->asked_bytes == int64_t{2} << 30);
  BOOST_TEST(facts.reason.find("asked for 2.00 GiB") != std::string::npos, facts.reason);
  BOOST_TEST(facts.failures.size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_a_message_of_memory_leaves_out_is_not_told) {
  const RunFacts facts = facts_of(
      megatron_steps(1, 3) +
      "[rank5]: torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
      "total capacity of 64.00 GiB. Of the allocated memory 60.00 GiB is allocated by PyTorch, and "
      "1.00 GiB is reserved by PyTorch but unallocated.\n");
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.reason.find("free") == std::string::npos, facts.reason);
  const nlohmann::json memory = to_json(facts).at("failures").at(0).at("memory");
  BOOST_TEST(memory.at("free_bytes").is_null());
  BOOST_TEST(memory.at("capacity_bytes") == int64_t{64} << 30);
}

BOOST_AUTO_TEST_CASE(rocm_is_known_by_its_words) {
  const std::string steps = megatron_steps(1, 3);
  for (const std::string& line :
       {traceback("", "RuntimeError: HIP error: out of memory"),
        traceback("", "RuntimeError: HIP error: invalid device function"),
        std::string("[rank6]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 "
                    "GiB. GPU 6 has a total capacity of 191.69 GiB of which 1.00 GiB is free.\n"),
        std::string("Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: x\n")}) {
    BOOST_TEST(facts_of(steps + line).is_rocm, line);
  }
  BOOST_TEST(!facts_of(steps + kOom).is_rocm);
}

// A class of any name is an exception where the frames of a traceback stand in front of it.
BOOST_AUTO_TEST_CASE(exceptions_of_unusual_names) {
  const std::string steps = megatron_steps(1, 3);
  for (const char* error :
       {"socket.gaierror: [Errno -2] Name or service not known", "struct.error: unpack requires",
        "socket.timeout: timed out", "queue.Empty", "_queue.Empty", "StopIteration",
        "multiprocessing.pool.RemoteTraceback:",
        "ray.exceptions.RayTaskError(ValueError): ray::f()", "mypackage._PrivateError: no"}) {
    const RunFacts facts = facts_of(steps + traceback("[rank5]: ", error));
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST(facts.root->kind == "python-error", error);
    BOOST_TEST(facts.root->rank == 5, error);
    BOOST_TEST(facts.reason.find(error) != std::string::npos, facts.reason);
  }
  // Lines of others between the frames are none.
  for (const char* other : {"info: a word", "loading data.bin: done", "torch.distributed: ready"}) {
    const RunFacts facts =
        facts_of(steps + traceback("", std::string(other) + "\nOSError: broken"));
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST(facts.reason.find("OSError: broken") != std::string::npos, facts.reason);
  }
}

// Ray's processes print side by side, and each line of theirs has a prefix.
BOOST_AUTO_TEST_CASE(tracebacks_of_rays_processes_are_told_apart) {
  const std::string one = "(TrainWorker pid=4242, ip=10.0.0.1) ";
  const std::string two = "(TrainWorker pid=4243, ip=10.0.0.2) ";
  const RunFacts facts = facts_of(
      megatron_steps(1, 3) + one + "Traceback (most recent call last):\n" + two +
      "Traceback (most recent call last):\n" + two + "  File \"/opt/a/other.py\", line 9, in g\n" +
      one + "  File \"/opt/a/model.py\", line 7, in f\n" + one + "RuntimeError: broken\n" + two +
      "ValueError: broken, too\n");
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.reason == "an error of Python after step 3: RuntimeError: broken (model.py:7)");
  BOOST_TEST(
      !facts_of(megatron_steps(1, 3) + "(a remark) RuntimeError: broken\n").root.has_value());
}

BOOST_AUTO_TEST_CASE(a_traceback_that_is_the_last_word_is_a_failure) {
  const std::string frames =
      "[rank3]: Traceback (most recent call last):\n"
      "[rank3]:   File \"/opt/a/model.py\", line 7, in forward\n[rank3]:     y = f(x)\n";
  const std::string steps = megatron_steps(1, 3);
  const RunFacts cut = facts_of(steps + frames);
  BOOST_TEST(cut.reason == "rank 3: an error of Python after step 3: y = f(x) (model.py:7)");
  BOOST_TEST((cut.status == ForeignStatus::failed));
  BOOST_TEST(
      (facts_of(steps + frames + "[rank3]: oops - no class\n").status == ForeignStatus::failed));
  // It goes on; something else is known for certain.
  BOOST_TEST(!facts_of(steps + frames + megatron_step(4)).root.has_value());
  BOOST_TEST(facts_of(steps + frames + "[rank1]: " + kOom).root->kind == "cuda-oom");
}

BOOST_AUTO_TEST_CASE(the_box_of_torchrun_names_the_rank_of_its_traceback) {
  const auto entry = [](int rank, const std::string& error) {
    const std::string r = std::to_string(rank);
    return "  time      : 2026-03-04_05:06:21\n  rank      : " + r +
           " (local_rank: 1)\n  exitcode  : 1 (pid: 42)\n  error_file: logs/" + r +
           "/error.json\n  traceback : Traceback (most recent call last):\n    File \"/opt/x.py\", "
           "line 346, in wrapper\n      return f(*args)\n  " +
           error + "\n";
  };
  const RunFacts facts =
      facts_of(megatron_steps(1, 3) + "Failures:\n[1]:\n" + entry(9, kOom) +
               "Root Cause (first observed failure):\n[0]:\n" + entry(3, "RuntimeError: broken"));
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == "cuda-oom");
  BOOST_TEST(facts.root->rank == 9);
  // A traceback behind the box is of nobody.
  BOOST_TEST(facts_of(megatron_steps(1, 3) + "  rank      : 9 (local_rank: 1)\n" +
                      traceback("", "RuntimeError: broken"))
                 .root->rank == -1);
}

BOOST_AUTO_TEST_CASE(a_barrier_names_who_did_not_come) {
  const std::string start = "using world size: 8, data-parallel size: 8\n" + megatron_steps(1, 5);
  const RunFacts one = facts_of(
      start +
      traceback("[rank0]: ", "RuntimeError: Rank 5 failed to pass monitoredBarrier in 1800000 ms"));
  BOOST_REQUIRE(one.root.has_value());
  BOOST_TEST(one.root->rank == 5);
  BOOST_TEST(one.root->reporting_rank == 0);
  BOOST_TEST(
      one.reason ==
      "rank 0: waited for others at a barrier after step 5: rank 5 did not come in 30 min 00 "
      "s (model.py:7)");
  const RunFacts two = facts_of(start +
                                "[rank0]:[E ProcessGroupGloo.cpp:138] [Rank 0]: Ranks 3, 5 failed "
                                "to pass monitoredBarrier in 600000 ms\n");
  BOOST_TEST(two.root->rank == -1);
  BOOST_TEST(two.root->missing_ranks == (std::vector<int>{3, 5}));
  BOOST_TEST(to_json(two).at("failures").at(0).at("missing_ranks") == (std::vector<int>{3, 5}));
}

// Written by a rank that another one's timeout ends, with a capital letter.
BOOST_AUTO_TEST_CASE(who_was_behind_is_told_by_signals_to_dump) {
  const auto dump = [](int rank, int enqueued) {
    const std::string r = std::to_string(rank);
    return "[rank" + r +
           "]:[E304 05:16:08.1 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank " +
           r +
           "] Received a dump signal due to a collective timeout from  rank 0 and we will try our "
           "best to dump the debug info. Last enqueued NCCL work: " +
           std::to_string(enqueued) +
           ", last completed NCCL work: " + std::to_string(std::min(enqueued, 76)) + ".\n";
  };
  const std::string start = "using world size: 8, data-parallel size: 8\n" + megatron_steps(1, 5);
  const std::string timeout =
      "[rank0]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
      "Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n";
  std::string others;
  for (const int rank : {0, 1, 2, 3, 4, 6, 7}) others += dump(rank, 77);
  const RunFacts behind = facts_of(start + timeout + others + dump(5, 70));
  BOOST_REQUIRE(behind.root.has_value());
  BOOST_TEST(behind.root->kind == "nccl-timeout");
  BOOST_TEST(behind.root->rank == 5);
  BOOST_TEST(behind.root->missing_ranks == std::vector<int>{5});
  std::string idle;
  for (int rank = 0; rank < 8; ++rank) idle += dump(rank, -1);
  BOOST_TEST(facts_of(start + idle).root->kind == "nccl-idle");
  // The default group may never have been used: the timeout of another says more.
  BOOST_TEST(facts_of(start + timeout + idle).root->kind == "nccl-timeout");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
