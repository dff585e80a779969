// What follows from a failure and is printed beside it, or in front of it: the root is told, with
// the words that say why.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <string>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(follow_ups)

namespace {

using golden_logs::facts_of;
using golden_logs::megatron_steps;
using golden_logs::traceback;

const std::string kNcclError =
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: /a/NCCLUtils.cpp:77, unhandled "
    "cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.3\n"
    "[rank1]: ncclUnhandledCudaError: Call to CUDA function failed.\n"
    "[rank1]: Last error:\n";
const std::string kExit1 =
    "E0304 05:06:20.341000 42 torch/distributed/elastic/multiprocessing/api.py:874] failed "
    "(exitcode: 1) local_rank: 1 (pid: 43) of binary: /a/bin/python\n";
const std::string kCutLauncher =
    "Traceback (most recent call last):\n  File \"/a/bin/torchrun\", line 33, in <module>\n"
    "    sys.exit(main())\n  File \"/a/torch/distributed/run.py\", line 892, in main\n"
    "    run(args)\n";
const std::string kLauncher =
    kCutLauncher + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
const std::string kCancelled =
    "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT "
    "2026-03-04T05:06:21 ***\n";

std::string box_entry(int rank, int code) {
  const std::string r = std::to_string(rank);
  return "[" + r + "]:\n  time      : 2026-03-04_05:06:20\n  host      : n\n  rank      : " + r +
         " (local_rank: " + r + ")\n  exitcode  : " + std::to_string(code) + " (pid: 42)\n";
}
std::string box(const std::string& others, const std::string& root) {
  return "====\ntrain.py FAILED\n----\nFailures:\n" + others +
         "----\nRoot Cause (first observed failure):\n" + root + "====\n";
}

struct Row {
  const char* name;
  std::string text;
  ForeignStatus status;
  std::string kind;
  int rank;
  std::string words;  ///< in the reason
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

const Row kRows[] = {
    {"the end of the launcher's traceback is cut off",
     kNcclError + "[rank1]: Cuda failure 802 'system not yet initialized'\n" + kExit1 +
         kCutLauncher,
     ForeignStatus::crashed, "nccl-error", 1, "Cuda failure 802 'system not yet initialized'"},
    {"nothing but the launcher", kExit1 + kCutLauncher, ForeignStatus::failed, "exit-code", -1,
     "exit code 1"},
    {"nothing but a part of the launcher", megatron_steps(1, 5) + kCutLauncher,
     ForeignStatus::failed, "launcher", -1, "a rank failed"},
    {"NCCL knows no more", kNcclError + "[rank1]: \n[rank1]: of somebody else\n",
     ForeignStatus::crashed, "nccl-error", 1, "unhandled cuda error"},
    {"a box of two ranks", kLauncher + box(box_entry(1, 1), box_entry(0, 1)), ForeignStatus::failed,
     "exit-code", 0, "exit code 1, the first that torchrun saw"},
    {"an abort alone", "Error: process 1 terminated with signal SIGABRT\n", ForeignStatus::crashed,
     "signal", -1, "ended by a signal"},
    {"an abort of which C++ says more",
     "terminate called after throwing an instance of 'gloo::IoException'\n  what():  pair.cc:724] "
     "connect [127.0.1.1]:3210: Connection refused\nAborted (core dumped)\n",
     ForeignStatus::crashed, "abort", -1, "what():  pair.cc:724] connect [127.0.1.1]:3210"},
    {"an abort of the first that torchrun saw",
     "terminate called without an active exception\n" + kLauncher + box("", box_entry(3, -6)),
     ForeignStatus::crashed, "abort", 3, "terminate called"},
    {"an abort among those that were asked to end",
     box(box_entry(1, -15) + box_entry(2, -15), box_entry(3, -6)), ForeignStatus::crashed, "signal",
     3, "SIGABRT"},
    {"a task that failed before the step was cancelled",
     megatron_steps(1, 5) + "srun: error: n: task 3: Exited with exit code 1\n" +
         "srun: Terminating StepId=1.0\n" + kCancelled + "srun: error: n: task 0: Terminated\n",
     ForeignStatus::failed, "exit-code", 3, "exit code 1"},
    {"tasks that failed as the step was cancelled",
     megatron_steps(1, 5) + kCancelled + "srun: error: n: task 3: Exited with exit code 1\n",
     ForeignStatus::interrupted, "slurm-cancelled", -1, "cancelled"},
    {"a worker that loads data, told behind the exception",
     traceback("[rank2]: ", "RuntimeError: DataLoader worker (pid(s) 42) exited unexpectedly") +
         "[rank2]: ERROR: Unexpected bus error encountered in worker. This might be caused by "
         "insufficient shared memory (shm).\n",
     ForeignStatus::crashed, "signal", 2, "/dev/shm"},
    {"an error of CUDA behind DeepEP's timeout",
     traceback("[rank6]: ", "RuntimeError: DeepEP error: timeout (dispatch CPU)") +
         "[rank6]: RuntimeError: CUDA error: unspecified launch failure\n",
     ForeignStatus::hung, "deepep-timeout", -1, "waited for others in DeepEP"},
    {"an error of CUDA before DeepEP's timeout",
     "[rank6]: RuntimeError: CUDA error: an illegal memory access was encountered\n" +
         traceback("[rank2]: ", "RuntimeError: DeepEP error: timeout (dispatch CPU)"),
     ForeignStatus::crashed, "cuda-error", 6, "an illegal memory access"},
    {"a checkpoint's exception holds those of ranks",
     traceback("(W pid=42) ",
               "torch.distributed.checkpoint.api.CheckpointException: "
               "CheckpointException ranks:dict_keys([3])") +
         "(W pid=42) Traceback (most recent call last): (RANK 3)\n"
         "(W pid=42)   File \"/a/planner.py\", line 9, in plan\n"
         "(W pid=42)     raise RuntimeError(key)\n"
         "(W pid=42) RuntimeError: Missing key in checkpoint state_dict: a.b.\n",
     ForeignStatus::failed, "python-error", 3, "Missing key"},
    {"ranks that got one GPU",
     kNcclError + "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device f0\n",
     ForeignStatus::failed, "shared-device", 1, "both on CUDA device f0"},
    {"another rank's traceback is cut off behind NCCL's failure",
     kNcclError + "[rank1]: Net : Connection closed by remote peer n<43236>\n" +
         "Traceback (most recent call last):\n  File \"/a/train.py\", line 55, in main\n"
         "    fit(\n",
     ForeignStatus::crashed, "nccl-error", 1, "closed by remote peer"},
    {"an assertion of a kernel, and the error of CUDA that follows",
     "/a/cuda/Loss.cu:240: nll_loss: block: [0,0,0], thread: [17,0,0] Assertion `t < n_classes` "
     "failed.\n" +
         traceback("", "RuntimeError: CUDA error: device-side assert triggered"),
     ForeignStatus::crashed, "cuda-error", -1, "Loss.cu:240: Assertion `t < n_classes` failed"},
    {"an exception whose message stands on the next line",
     traceback("[rank0]: ", "RuntimeError: Error(s) in loading state_dict for GPTModel:") +
         "[rank0]: \tsize mismatch for a.weight: [2, 3] and [2, 4].\n",
     ForeignStatus::failed, "python-error", 0,
     "for GPTModel: size mismatch for a.weight: [2, 3] and [2, 4]. (model.py:7)"},
    {"times in front of ranks",
     "05:06:07.351 [rank0]: a\n" +
         traceback("05:06:07.351 [rank3]: ", "FileNotFoundError: no such file"),
     ForeignStatus::failed, "configuration", 3, "no such file"},
};

}  // namespace

BOOST_DATA_TEST_CASE(roots, boost::unit_test::data::make(kRows)) {
  const RunFacts facts = facts_of(sample.text);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->kind == sample.kind);
  BOOST_TEST((facts.status == sample.status));
  BOOST_TEST(facts.root->rank == sample.rank);
  BOOST_TEST(facts.reason.find(sample.words) != std::string::npos, facts.reason);
}

BOOST_AUTO_TEST_CASE(paths_of_windows_are_cut_to_the_file) {
  const RunFacts facts = facts_of(
      "Traceback (most recent call last):\n  File \"C:\\Users\\a\\lib\\api.py\", line "
      "250, in launch\n    raise X\nRuntimeError: broken\n");
  BOOST_TEST(facts.reason.find("(api.py:250)") != std::string::npos, facts.reason);
}

// What is told of a failure is passed on.
BOOST_AUTO_TEST_CASE(keys_in_the_words_of_a_failure_are_not_told) {
  for (const std::string& text :
       {traceback("",
                  "subprocess.CalledProcessError: Command '['python', 'train.py', "
                  "'--wandb-api-key', 'c0ffee', '--hf-token=c0ffee']' returned non-zero exit "
                  "status 1."),
        std::string("job.sh: line 12:  4242 Segmentation fault      HF_TOKEN=c0ffee torchrun "
                    "train.py --wandb-api-key c0ffee\n"),
        traceback("", "HTTPError: 401 for https://me:c0ffee@example.org/x?token=c0ffee")}) {
    const RunFacts facts = facts_of(megatron_steps(1, 5) + text);
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST(facts.reason.find("***") != std::string::npos, facts.reason);
    BOOST_TEST(to_json(facts).dump().find("c0ffee") == std::string::npos, facts.reason);
  }
}

BOOST_AUTO_TEST_CASE(an_iteration_that_nobody_counts_is_not_told) {
  const RunFacts facts =
      facts_of(traceback("[rank1]: ",
                         "RuntimeError: Rank 1, node n, device 1, iteration -1: Unexpected "
                         "result nan (message='found NaN in local grad norm')"));
  BOOST_TEST((facts.status == ForeignStatus::wrong));
  BOOST_TEST(facts.reason.find("-1") == std::string::npos, facts.reason);
}

// Seconds without parts do not tell whether a line has the first step in it again.
BOOST_AUTO_TEST_CASE(a_clock_of_whole_seconds_takes_no_line_away) {
  const auto line = [](int step, const std::string& time, const std::string& ms) {
    return " [2026-03-04 05:06:" + time + "] iteration " + std::to_string(step) +
           "/ 100 | consumed samples: 1 | elapsed time per iteration (ms): " + ms +
           " | lm loss: 1.0E+00 | number of nan iterations: 0 |\n";
  };
  const RunFacts facts =
      facts_of(line(71, "12", "5361.6") + line(72, "18", "5470.7") + line(73, "24", "5829.9"));
  BOOST_REQUIRE(facts.step_time.has_value());
  BOOST_TEST(facts.step_time->num_lines == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
