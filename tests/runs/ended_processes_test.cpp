// What launchers, schedulers and shells say of a process that ended, and lines that only sound so.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "tests/runs/failure_rows.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(processes_that_ended)

namespace {

using golden_logs::check;
using golden_logs::facts_of;
using golden_logs::FailureLine;
using golden_logs::kInTraceback;
using golden_logs::kOom;
using golden_logs::megatron_steps;

const FailureLine kLines[] = {
    {"[1]+  Killed                  python train.py --bf16", "signal", ForeignStatus::crashed},
    {"[1]+  Killed", "signal", ForeignStatus::crashed},
    {"[2]-  4242 Segmentation fault      (core dumped) torchrun train.py", "segfault",
     ForeignStatus::crashed},
    {"[1]+  Terminated              python train.py", "ended", ForeignStatus::crashed},
    {"[1]+  Aborted                 (core dumped) python train.py", "signal",
     ForeignStatus::crashed},
    {"Killed: 9", "signal", ForeignStatus::crashed},
    {"zsh: killed     python train.py", "signal", ForeignStatus::crashed},
    {"zsh: terminated  torchrun train.py", "ended", ForeignStatus::crashed},
    {"zsh: segmentation fault (core dumped)  python train.py", "segfault", ForeignStatus::crashed},
    {"zsh: abort (core dumped)  python train.py", "signal", ForeignStatus::crashed},
    {"[1]  + 4242 killed     python train.py", "signal", ForeignStatus::crashed},
    {"[1]  + 4242 terminated  python train.py", "ended", ForeignStatus::crashed},
    {"[1]  + 4242 abort (core dumped)  python train.py", "signal", ForeignStatus::crashed},
    {"[1]  + 4242 segmentation fault (core dumped)  python train.py", "segfault",
     ForeignStatus::crashed},
    {"[1]  + 4242 bus error (core dumped)  python train.py", "signal", ForeignStatus::crashed},
    {"make: *** [train] Killed", "signal", ForeignStatus::crashed},
    {"make[1]: *** [Makefile:12: train] Terminated", "ended", ForeignStatus::crashed},
    {"make: *** [Makefile:12: train] Segmentation fault (core dumped)", "segfault",
     ForeignStatus::crashed},
    {"make: *** [Makefile:12: train] Error 137", "signal", ForeignStatus::crashed},
    {"make: *** [Makefile:12: train] Error 1", "exit-code", ForeignStatus::failed},
    {"trainer-1 exited with code 137", "signal", ForeignStatus::crashed},
    {"trainer-1 exited with code 143", "ended", ForeignStatus::crashed},
    {"[launcher] worker exited with exit code 139.", "process-signal", ForeignStatus::crashed},
    {"dcgm-exporter-1 exited with code 137", "process-signal", ForeignStatus::crashed},
    {"[1]+  Killed                  python monitor.py", "process-signal", ForeignStatus::crashed},
    {"make: *** [docs] Error 137", "process-signal", ForeignStatus::crashed},
    {"make: *** [train] Error 255", "exit-code", ForeignStatus::failed},
    {"command terminated with exit code 255", "exit-code", ForeignStatus::failed},
    {"make: *** [train] Error 130", "interrupted", ForeignStatus::interrupted},
    {"make: *** [Makefile:12: train] Interrupt", "interrupted", ForeignStatus::interrupted},
    {"gmake[1]: *** [train] Killed", "signal", ForeignStatus::crashed},
    {"[1]+  Exit 137                python train.py", "signal", ForeignStatus::crashed},
    {"[1]+  Exit 1                  torchrun train.py", "exit-code", ForeignStatus::failed},
    {"[1]  + exit 137     python train.py", "signal", ForeignStatus::crashed},
    {"[1]  + 4242 exit 137     python monitor.py", "process-signal", ForeignStatus::crashed},
    {"[1]+  Killed                  uv run pretrain", "signal", ForeignStatus::crashed},
    {"zsh: segmentation fault  ./pretrain", "segfault", ForeignStatus::crashed},
    {"Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.", "signal",
     ForeignStatus::crashed},
    {"Command '['nvidia-smi', '-q']' died with <Signals.SIGKILL: 9>.", "process-signal",
     ForeignStatus::crashed},
    {"Process finished with exit code: 137", "process-signal", ForeignStatus::crashed},
    {"Training failed with exit code 137", "signal", ForeignStatus::crashed},
    {"Process finished with exit code 137 (interrupted by signal 9:SIGKILL)", "process-signal",
     ForeignStatus::crashed},
    {"Exit code: 139", "process-signal", ForeignStatus::crashed},
    {"      Exit Code:    137", "process-signal", ForeignStatus::crashed},
    {"subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit "
     "status 137.",
     "signal", ForeignStatus::crashed, kInTraceback},
    {"torchrun exited with status 137", "signal", ForeignStatus::crashed},
    {"[node01:42] Signal: Segmentation fault (11)", "segfault", ForeignStatus::crashed},
    {"[node01:42:0:42] Caught signal 11 (Segmentation fault: address not mapped to object at "
     "address 0x8)",
     "segfault", ForeignStatus::crashed},
    {" 50%|#####     | 5/10 [00:05<00:05,  1.0it/s]Segmentation fault (core dumped)", "segfault",
     ForeignStatus::crashed},
    {"Thread 1 \"python\" received signal SIGSEGV, Segmentation fault.", "segfault",
     ForeignStatus::crashed},
    {"Program received signal SIGBUS, Bus error.", "signal", ForeignStatus::crashed},
    {"FatalError: `Segmentation fault` is detected by the operating system.", "segfault",
     ForeignStatus::crashed},
    {"*** Segmentation fault", "segfault", ForeignStatus::crashed},
    {"worker 3 died with Segmentation fault", "segfault", ForeignStatus::crashed},
    {"mpirun noticed that process rank 3 with PID 42 on node n exited on signal 11 (Segmentation "
     "fault).",
     "signal", ForeignStatus::crashed},
    {"[node01:42:0:42] Caught signal 7 (Bus error: nonexistent physical address)", "signal",
     ForeignStatus::crashed},
    {"Fatal Python error: Segmentation fault", "segfault", ForeignStatus::crashed},
    {"RuntimeError: DataLoader worker (pid 5151) is killed by signal: Bus error. It is possible "
     "that dataloader's workers are out of shared memory.",
     "signal", ForeignStatus::crashed, kInTraceback},
};

const char* const kOtherLines[] = {
    "[1]+  Terminated              nvidia-smi dmon > gpu.log",
    "[1]  + 4242 killed     nvidia-smi dmon",
    "[1]+  Done                    python prepare.py",
    "[1] was Killed",
    "branches [3] killed",
    "zsh: killed     tail -f x.log",
    "On small hosts people see zsh: killed python train.py",
    "zsh: command not found: nvcc",
    "make: *** [train] Error 2 (ignored)",
    "see make: *** [train] Killed",
    "make: *** No rule to make target 'x'.  Stop.",
    "trainer-1 exited with code 0",
    "monitor exited with code 1",
    "A worker that exited with code 137 is started again",
    "Exit code: 137 means that memory was short",
    "WARNING: Segmentation fault may come with this driver",
    "Set OMP_NUM_THREADS=1 if you see a Segmentation fault",
    "crashes (Segmentation fault) are retried",
    "a Bus error is most often /dev/shm",
    "WARNING: Segmentation fault, see the FAQ, is fixed in NCCL 2.29",
    "WARNING: what ended it before: Segmentation fault",
    "hint: Bus error? enlarge /dev/shm",
    "known issues: Segmentation fault (rare) at exit",
    "faulthandler: Segmentation fault: enabled",
    "health: 0 nodes with [xid] Bus error, 0 with ECC",
    "on a signal (Segmentation fault) a dump is written",
    "a `Segmentation fault` is told in core.txt",
    "Previous exit code: 137",
    "expected exit code: 137",
    "common exit codes: OOM exit code: 137",
    "Training failed with exit code 137 (ignored)",
    "make: *** [train] Error 137 (ignored)",
    "[1]+  Exit 137                nvidia-smi dmon",
    "[1]+  Exit 1                  python monitor.py",
    "[1]+  Exit 0                  torchrun train.py",
    "phases [1] exit 137 python train.py",
    "see gmake: *** [train] Killed",
    "processes that died with <Signals.SIGNONE> are started again",
};

}  // namespace

BOOST_DATA_TEST_CASE(ends_by_shells_and_launchers, boost::unit_test::data::make(kLines)) {
  check(sample);
}

BOOST_DATA_TEST_CASE(words_that_end_nothing, boost::unit_test::data::make(kOtherLines)) {
  const RunFacts facts = facts_of(megatron_steps(1, 3) + sample + "\n");
  BOOST_TEST(!facts.root.has_value(), facts.reason);
}

// What ran beside the ranks explains no waiting, and is named only where nothing else is known.
BOOST_AUTO_TEST_CASE(who_ends_beside_the_ranks_is_not_why_they_waited) {
  const std::string watchdog =
      "[rank0]:[E304 05:16:38.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
      "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n";
  const auto kind_of = [&](const std::string& line, const std::string& more) {
    return facts_of(megatron_steps(1, 3) + line + "\n" + more).root->kind;
  };
  for (const char* line :
       {"dcgm-exporter-1 exited with code 137", "[W] health check 'ping' failed with exit code 137",
        "make: *** [docs] Error 137", "make: *** [docs] Killed",
        "make: *** [docs] Segmentation fault", "[1]+  Segmentation fault      python monitor.py",
        "[1]  + 4242 bus error  python monitor.py",
        "[1]+  Killed                  python monitor.py",
        "[1]  + 4242 killed     python monitor.py",
        "[1]+  Exit 137                python monitor.py",
        "Command '['nvidia-smi', '-q']' returned non-zero exit status 137.",
        "Command '['nvidia-smi', '-q']' died with <Signals.SIGKILL: 9>.",
        "constraints-1 exited with code 137"}) {
    BOOST_TEST(kind_of(line, watchdog) == "nccl-timeout", line);
    BOOST_TEST(kind_of(line, "") == "process-signal", line);
    BOOST_TEST(kind_of(line, "Killed\n") == "signal", line);
  }
  for (const char* line : {"trainer-1 exited with code 137", "make: *** [train] Error 137",
                           "[1]+  Killed                  torchrun a.py",
                           "torchrun exited with status 137", "srun: error: node01: task 3: Killed",
                           "job.sh: line 12:  4242 Killed                  python a.py"}) {
    BOOST_TEST(kind_of(line, watchdog) == "signal", line);
  }
}

// srun ends the others by SIGKILL: who had failed before is not one of them.
BOOST_AUTO_TEST_CASE(who_slurm_kills_behind_a_failure_is_a_victim) {
  const std::string steps = megatron_steps(1, 3);
  const std::string killed = "srun: error: node01: tasks 0-2,4-7: Killed\n";
  const RunFacts facts = facts_of(steps + "srun: error: node01: task 3: Exited with exit code 1\n" +
                                  "srun: Terminating StepId=4242.0\n" + killed);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == "exit-code");
  BOOST_TEST(facts.root->rank == 3);
  const auto ended = std::ranges::find(facts.failures, "ended", &RunFailure::kind);
  BOOST_REQUIRE(ended != facts.failures.end());
  BOOST_TEST(ended->sentence.find("SIGKILL of Slurm, as the step was ended") != std::string::npos,
             ended->sentence);
  const RunFacts first = facts_of(steps + "srun: error: node01: task 5: Killed\n" +
                                  "srun: Terminating StepId=4242.0\n" + killed);
  BOOST_TEST(first.root->kind == "signal");
  BOOST_TEST(first.root->rank == 5);
  BOOST_TEST(first.root->exit_code.value_or(0) == -9);
  // The same as the shell of each task tells it.
  const RunFacts shell = facts_of(steps + "srun: error: node01: task 3: Exited with exit code 1\n" +
                                  "srun: Terminating StepId=4242.0\n" +
                                  "bash: line 1:  4242 Killed                  python train.py\n");
  BOOST_TEST(shell.root->kind == "exit-code");
  const RunFacts cancelled =
      facts_of(steps + "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-03-04T05:06:10 ***\n" +
               "srun: error: node01: tasks 0-7: Killed\n");
  BOOST_TEST(cancelled.root->kind == "slurm-cancelled");
}

// A shell says no more of who ended: it is nothing where the run goes on, and least where others
// say why.
BOOST_AUTO_TEST_CASE(what_a_shell_says_alone_counts_least) {
  const std::string steps = megatron_steps(1, 3);
  for (const char* words : {"Killed", "Aborted (core dumped)", "Terminated"}) {
    const std::string line = std::string(words) + "\n";
    BOOST_TEST(!facts_of(steps + line + megatron_steps(4, 9)).root.has_value(), words);
    BOOST_TEST(facts_of(steps + kOom + line).root->kind == "cuda-oom", words);
    BOOST_TEST(facts_of(steps + "[rank2]: " + line).root->rank == 2, words);
  }
}

BOOST_AUTO_TEST_CASE(launchers_name_the_rank_that_ended) {
  for (const char* line :
       {"mpirun noticed that process rank 3 with PID 42 on node n exited on signal 11.",
        "[rank: 3] Child process with PID 42 terminated with code -9. Forcefully terminating",
        "srun: error: node01: task 3: Killed"}) {
    BOOST_TEST(facts_of(megatron_steps(1, 3) + line + "\n").root->rank == 3, line);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
