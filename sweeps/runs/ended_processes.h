// What launchers, schedulers and shells say of a process that has ended: its exit code or signal,
// and which rank it was. Readers of rows in failure_forms.cpp.
#pragma once

#include <cstddef>
#include <string_view>

namespace moetune::sweeps {

class LogCollector;
struct FailureForm;

namespace processes {

/// In torchrun's box, which names the rank before.
inline constexpr std::string_view kBoxCode = "exitcode  : ";

/// What srun says of a task, or anybody of itself: the line is the detail.
bool read_task(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
/// "  exitcode  : -9 (pid: 4242)" in torchrun's box; "failed (exitcode: -9) local_rank: 3" of
/// torchrun; "task 3: Exited with exit code 1" of srun.
bool read_exit_code(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
/// "process rank 3 with PID 4242 on node n exited on signal 9 (Killed)." of mpirun.
bool read_on_signal(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
/// "process 1 terminated with signal SIGKILL" of PyTorch.
bool read_named_signal(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log);
/// "srun: error: node01: task 5: Killed", "tasks 0-3: Terminated".
bool read_signalled_task(const FailureForm& form, std::string_view text, size_t at,
                         LogCollector& log);
/// "job.sh: line 12:  4242 Killed                  torchrun ..." of a shell, of what trains only:
/// scripts kill what they had started beside it.
bool read_killed_by_shell(const FailureForm& form, std::string_view text, size_t at,
                          LogCollector& log);
/// "DataLoader worker (pid 4242) is killed by signal: Killed." of PyTorch.
bool read_killed_worker(const FailureForm& form, std::string_view text, size_t at,
                        LogCollector& log);
/// "srun: Terminating StepId=4242.0", "srun: Job step aborted: Waiting up to 32 seconds ...".
bool read_step_end(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
/// "Unable to shutdown process 4242 via 15, forcefully exiting via 9" of torchrun.
bool read_forced(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);

// Parts of torchrun's box.
bool read_box_root(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_box_others(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_box_time(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);
bool read_box_rank(const FailureForm& form, std::string_view text, size_t at, LogCollector& log);

}  // namespace processes
}  // namespace moetune::sweeps
