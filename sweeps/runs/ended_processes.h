// What launchers, schedulers and shells say of a process that has ended: its exit code or signal,
// and which rank it was. Readers of rows in failure_forms.cpp.
#pragma once

#include <string_view>

#include "sweeps/runs/failure_forms.h"

namespace moetune::sweeps::processes {

/// In torchrun's box, which names the rank before.
inline constexpr std::string_view kBoxCode = "exitcode  : ";

/// Of make, in front of the target that failed.
inline constexpr std::string_view kOfMake = ": *** [";
/// What Python's subprocess says of a command, which it names before.
inline constexpr std::string_view kDiedOf = " died with <Signals.SIG";

/// What srun says of a task, or anybody of itself: the line is the detail.
FailureReader read_task;
/// "  exitcode  : -9 (pid: 4242)" in torchrun's box; "failed (exitcode: -9) local_rank: 3" of
/// torchrun; "task 3: Exited with exit code 1" of srun.
FailureReader read_exit_code;
/// "process rank 3 with PID 4242 on node n exited on signal 9 (Killed)." of mpirun.
FailureReader read_on_signal;
/// "process 1 terminated with signal SIGKILL" of PyTorch, "died with <Signals.SIGKILL: 9>." of
/// Python.
FailureReader read_named_signal;
/// "srun: error: node01: task 5: Killed", "tasks 0-3: Terminated".
FailureReader read_signalled_task;
/// "job.sh: line 12:  4242 Killed                  torchrun ..." of a shell, and "[1]+  Killed ..."
/// of one that somebody types in. Of what trains only: scripts kill what they had started beside
/// it. The words may stand alone: "Aborted (core dumped)".
FailureReader read_signalled_command;
/// The same where anybody may say it of a process: "node: task 1: Segmentation fault".
FailureReader read_ended_word;
/// "zsh: killed     python train.py"
FailureReader read_zsh;
/// "[1]  + 4242 killed     python train.py" of zsh.
FailureReader read_zsh_job;
/// "[1]+  Exit 137      python train.py", "[1]  + exit 137     python train.py" of zsh.
FailureReader read_job_code;
/// "make: *** [Makefile:12: train] Killed", "make: *** [train] Error 137".
FailureReader read_make;
/// "train exited with code 137" of a container or a launcher: of a signal, and the last that the
/// line says. Of other codes it is not known what ended.
FailureReader read_signal_code;
/// "Exit code: 137": the line says no more.
FailureReader read_stated_code;
/// "DataLoader worker (pid 4242) is killed by signal: Killed." of PyTorch.
FailureReader read_killed_worker;
/// "srun: Terminating StepId=4242.0", "srun: Job step aborted: Waiting up to 32 seconds ...".
FailureReader read_step_end;
/// "Unable to shutdown process 4242 via 15, forcefully exiting via 9" of torchrun.
FailureReader read_forced;

// Parts of torchrun's box.
FailureReader read_box_root;
FailureReader read_box_others;
FailureReader read_box_time;
FailureReader read_box_rank;

}  // namespace moetune::sweeps::processes
