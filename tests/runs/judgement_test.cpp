// Which of several failures is the root, what is survived, and what a log that just stops means.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(judgement_of_runs)

namespace {

using golden_logs::facts_of;
using golden_logs::log_of;
using golden_logs::megatron_step;
using golden_logs::megatron_steps;
using golden_logs::traceback;

const std::string kOom =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.00 MiB is free.\n";
const std::string kDone = "[after training is done] datetime: 2026-03-04 05:06:50.000000 \n";

std::string slurm(const std::string& time, const std::string& why) {
  return "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-03-04T" + time + " " + why + " ***\n";
}
std::string watchdog(int rank) {
  const std::string r = std::to_string(rank);
  return "[rank" + r + "]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:683] [Rank " + r +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
         "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing "
         "out.\n";
}

struct Row {
  const char* name;
  std::string text;
  ForeignStatus status;
  std::string kind;  ///< of the root; empty: none
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

const Row kRows[] = {
    {"the cause wins over its consequences, printed later",
     megatron_steps(1, 5) + watchdog(0) + "[rank3]: " + kOom, ForeignStatus::oom, "cuda-oom"},
    {"memory that ran out before the time limit",
     megatron_steps(1, 5) + "[rank3]: " + kOom + slurm("09:00:00", "DUE TO TIME LIMIT"),
     ForeignStatus::oom, "cuda-oom"},
    {"an error of Python before the time limit",
     megatron_steps(1, 5) + traceback("", "RuntimeError: broken") +
         slurm("05:06:06", "DUE TO TIME LIMIT"),
     ForeignStatus::failed, "python-error"},
    {"the time limit and what it causes",
     megatron_steps(1, 5) + slurm("05:06:06", "DUE TO TIME LIMIT") +
         "[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1\n" + watchdog(1),
     ForeignStatus::interrupted, "slurm-time-limit"},
    {"silence until the time limit", megatron_steps(1, 5) + slurm("05:36:06", "DUE TO TIME LIMIT"),
     ForeignStatus::hung, "silence"},
    {"a node that failed long before Slurm saw it",
     megatron_steps(1, 5) + watchdog(0) + slurm("05:59:00", "DUE TO NODE FAILURE, SEE LOG"),
     ForeignStatus::interrupted, "slurm-node-failure"},
    {"memory that ran out before a node failed",
     megatron_steps(1, 5) + "[rank3]: " + kOom + slurm("05:59:00", "DUE TO NODE FAILURE, SEE LOG"),
     ForeignStatus::oom, "cuda-oom"},
    {"a task that failed and the cancel that followed",
     megatron_steps(1, 5) + traceback("3: ", "RuntimeError: broken") +
         "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-03-04T05:06:07 ***\n",
     ForeignStatus::failed, "python-error"},
    {"a cancel", megatron_steps(1, 5) + slurm("05:06:07", ""), ForeignStatus::interrupted,
     "slurm-cancelled"},
    {"survived, as more steps came", megatron_steps(1, 3) + kOom + megatron_steps(4, 6),
     ForeignStatus::truncated, ""},
    {"one step more may have been printed late", megatron_steps(1, 3) + kOom + megatron_step(4),
     ForeignStatus::oom, "cuda-oom"},
    {"survived, as it ended well", megatron_steps(1, 3) + kOom + kDone, ForeignStatus::ok, ""},
    {"an error of tidying up", megatron_steps(1, 3) + kDone + traceback("", "OSError: busy"),
     ForeignStatus::ok, ""},
    {"the last step and then a signal", megatron_steps(98, 100) + "Segmentation fault\n",
     ForeignStatus::ok, ""},
    {"the last step and then no memory", megatron_steps(98, 100) + kOom, ForeignStatus::oom,
     "cuda-oom"},
    {"all steps", megatron_steps(98, 100), ForeignStatus::ok, ""},
    {"not all steps", megatron_steps(1, 99), ForeignStatus::truncated, ""},
    {"NaN that stays", megatron_steps(1, 3) + megatron_step(4, NAN) + megatron_step(5, NAN),
     ForeignStatus::wrong, "nan"},
    {"NaN that goes", megatron_steps(1, 3) + megatron_step(4, NAN) + megatron_steps(5, 6),
     ForeignStatus::truncated, ""},
    {"an import inside of a traceback only", "ImportError: is only a word\n" + megatron_steps(1, 3),
     ForeignStatus::truncated, ""},
    {"a rule in another class", traceback("", "RuntimeError: 2 is not divisible by 4"),
     ForeignStatus::failed, "configuration"},
    {"NaN and what came of it",
     megatron_steps(1, 3) + "ERROR: Unexpected result nan on rank 0 at iteration #4\n" +
         traceback("[rank0]: ", "TypeError: no path"),
     ForeignStatus::wrong, "nan"},
    {"an error and NaN behind it",
     megatron_steps(1, 3) + traceback("[rank0]: ", "TypeError: no path") +
         "ERROR: Unexpected result nan on rank 1 at iteration #4\n",
     ForeignStatus::failed, "python-error"},
    {"a kill and who saw it",
     megatron_steps(1, 3) + "[rank0]: RuntimeError: Connection reset by peer\n" +
         "E0304 x.py:1] failed (exitcode: -9) local_rank: 1 (pid: 42) of binary: python\n",
     ForeignStatus::crashed, "signal"},
    {"a rank that is gone, and no kill",
     megatron_steps(1, 3) + "[rank0]: RuntimeError: Connection reset by peer\n" +
         "W0304 x.py:1] Unable to shutdown process 42 via 15, forcefully exiting via 9\n" +
         "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 42)\n",
     ForeignStatus::crashed, "peer-gone"},
    {"an assertion before the first step", traceback("", "AssertionError: a % b"),
     ForeignStatus::failed, "assertion"},
    {"an assertion later", megatron_steps(1, 3) + traceback("", "AssertionError: a % b"),
     ForeignStatus::failed, "python-error"},
    {"a wrong value before the first step", traceback("", "ValueError: tp is 3"),
     ForeignStatus::failed, "configuration"},
    {"the host's memory behind a plain cancel",
     megatron_steps(1, 3) + slurm("05:06:07", "") +
         "slurmstepd: error: Detected 2 oom_kill events in StepId=1.0.\n",
     ForeignStatus::oom, "host-oom"},
    {"from the keyboard", megatron_steps(1, 3) + traceback("", "KeyboardInterrupt"),
     ForeignStatus::interrupted, "interrupted"},
    {"NCCL without memory", megatron_steps(1, 3) + "n:1:2 [0] NCCL WARN Failed to CUDA calloc 4\n",
     ForeignStatus::oom, "cuda-oom"},
    {"nothing at all", "hello\nworld\n", ForeignStatus::unknown, ""},
};

}  // namespace

BOOST_DATA_TEST_CASE(roots, boost::unit_test::data::make(kRows)) {
  const RunFacts facts = facts_of(sample.text);
  BOOST_TEST(facts.status == sample.status);
  BOOST_TEST((facts.root ? facts.root->kind : "") == sample.kind, facts.reason);
  BOOST_TEST(facts.reason.empty() == (sample.status == ForeignStatus::ok), facts.reason);
}

BOOST_AUTO_TEST_CASE(what_the_machine_lacks_is_told_from_what_was_asked) {
  const auto is_of_the_machine = [](const std::string& line) {
    const RunFacts facts = facts_of(megatron_steps(1, 3) + line);
    BOOST_REQUIRE(facts.root.has_value());
    return facts.root->is_of_the_machine();
  };
  BOOST_TEST(is_of_the_machine(traceback("", "RuntimeError: No CUDA GPUs are available")));
  BOOST_TEST(!is_of_the_machine("[rank3]: " + kOom));
  // Of the device's memory another process holds more than was asked for.
  const std::string oom =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
      "capacity of 79.10 GiB of which 1.00 GiB is free. Process 4242 has {} memory in use. "
      "Including non-PyTorch memory, this process has 10.00 GiB memory in use.\n";
  const auto with = [&](const std::string& bytes) {
    return std::string(oom).replace(oom.find("{}"), 2, bytes);
  };
  BOOST_TEST(is_of_the_machine(with("61.20 GiB")));
  BOOST_TEST(!is_of_the_machine(with("1.20 GiB")));
  BOOST_TEST(!is_of_the_machine(with("2.50 GiB")));  // more than asked, as others always hold some
  // A library that somebody could do without.
  BOOST_TEST(
      !is_of_the_machine("Could not load dynamic library 'libnvinfer.so.7'; dlerror: "
                         "libnvinfer.so.7: cannot open shared object file\n[rank3]: " +
                         kOom));
}

BOOST_AUTO_TEST_CASE(a_live_run_and_one_that_hangs) {
  const std::string text = megatron_steps(1, 9);
  const double now = 1'800'000'000;
  BOOST_TEST(facts_of(text, {.now_s = now, .written_s = now - 5}).status ==
             ForeignStatus::truncated);
  BOOST_TEST(facts_of(text, {.now_s = now, .written_s = now - 900}).status == ForeignStatus::hung);
  // Steps of a minute may keep still for a quarter of an hour.
  std::string slow = text;
  for (size_t at = slow.find("1000.0"); at != std::string::npos; at = slow.find("1000.0")) {
    slow.replace(at, 6, "60000.0");
  }
  BOOST_TEST(facts_of(slow, {.now_s = now, .written_s = now - 900}).status ==
             ForeignStatus::truncated);
}

BOOST_AUTO_TEST_CASE(attempts_are_told_apart) {
  const std::string start =
      "using world size: 8, data-parallel size: 8, context-parallel size: 1, "
      "tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n";
  const RunFacts again =
      facts_of(start + megatron_steps(1, 5) + kOom + start + megatron_steps(1, 9));
  BOOST_TEST(again.num_attempts == 2);
  BOOST_TEST(again.status == ForeignStatus::truncated);
  BOOST_TEST(again.num_steps == 9);
  BOOST_TEST_REQUIRE(again.notes.size() == 1U);
  BOOST_TEST(again.notes[0].starts_with("an earlier start ended: "), again.notes[0]);
  BOOST_TEST(again.notes[0].find("after step 5") != std::string::npos, again.notes[0]);
  // A start that fails before its first step: the speed is that of the one before.
  const RunFacts short_one = facts_of(start + megatron_steps(1, 9) + start + kOom);
  BOOST_TEST(short_one.num_attempts == 2);
  BOOST_TEST(short_one.status == ForeignStatus::oom);
  BOOST_TEST(short_one.num_steps == 9);
  // Steps that go back are another start even where nothing else says so.
  BOOST_TEST(facts_of(megatron_steps(1, 5) + megatron_steps(3, 9)).num_attempts == 2);
}

BOOST_AUTO_TEST_CASE(few_waiting_ranks_show_the_gap_between_them) {
  const RunFacts facts = facts_of("using world size: 64, data-parallel size: 64\n" +
                                  megatron_steps(1, 5) + watchdog(8) + watchdog(9) + watchdog(11));
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->missing_ranks == std::vector<int>{10});
  BOOST_TEST(facts.reason.find("most likely rank 10 did not come") != std::string::npos);
  const RunFacts none = facts_of("using world size: 64, data-parallel size: 64\n" +
                                 megatron_steps(1, 5) + watchdog(8) + watchdog(30));
  BOOST_TEST(none.root->missing_ranks.empty());
  // A group does not begin at 1: rank 0 may be missing as well as rank 4.
  std::string cut = megatron_steps(1, 5);
  for (const int rank : {1, 2, 3, 5, 6, 7}) cut += watchdog(rank);
  const RunFacts part = facts_of(cut);
  BOOST_TEST(part.root->missing_ranks.empty());
  BOOST_TEST(part.reason.find("is not said") != std::string::npos, part.reason);
}

// Lines of older releases name no group: one of most of the run has all of it.
BOOST_AUTO_TEST_CASE(an_odd_call_in_the_whole_run_needs_no_name_of_a_group) {
  const auto called = [](int rank, const std::string& operation) {
    std::string line = watchdog(rank);
    return line.replace(line.find("ALLREDUCE"), 9, operation);
  };
  const std::string start = "using world size: 8, data-parallel size: 8\n" + megatron_steps(1, 5);
  std::string others;
  for (const int rank : {0, 1, 2, 4, 5, 6}) others += watchdog(rank);
  const RunFacts one = facts_of(start + others + watchdog(7) + called(3, "BROADCAST"));
  BOOST_REQUIRE(one.root.has_value());
  BOOST_TEST(
      one.reason ==
      "ranks 0-2, 4-7 waited 10 min 00 s for ALLREDUCE number 7; rank 3 had called BROADCAST");
  BOOST_TEST(one.root->rank == 3);
  BOOST_TEST(one.root->reporting_rank == 0);
  // Two of six are too many, and a message is of two ranks only.
  const RunFacts two = facts_of(start + others + called(3, "BROADCAST") + called(7, "BROADCAST"));
  BOOST_TEST(two.root->rank == -1);
  BOOST_TEST(two.reason.ends_with("; the ranks had called different operations"), two.reason);
  BOOST_TEST(facts_of(start + others + watchdog(7) + called(3, "SEND")).root->rank == -1);
}

// Its watchdogs have nothing that they could wait for.
BOOST_AUTO_TEST_CASE(without_a_collective_it_hangs_elsewhere) {
  const auto idle = [](int rank, int enqueued) {
    const std::string r = std::to_string(rank);
    return "[rank" + r +
           "]:[E304 05:16:07.1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank " + r +
           "] Exception (either an error or timeout) detected by watchdog at work: 77, last "
           "enqueued NCCL work: " +
           std::to_string(enqueued) + ", last completed NCCL work: -1\n";
  };
  const std::string steps = megatron_steps(1, 3);
  const RunFacts all = facts_of(steps + idle(0, -1) + idle(1, -1) + idle(2, -1));
  BOOST_REQUIRE(all.root.has_value());
  BOOST_TEST((all.status == ForeignStatus::hung));
  BOOST_TEST(all.root->kind == "nccl-idle");
  BOOST_TEST(all.reason ==
             "3 ranks: hung outside of NCCL, most often in a file system: no collective was under "
             "way after step 3");
  BOOST_TEST(all.root->rank == -1);
  // One rank of several.
  BOOST_TEST(facts_of(steps + idle(0, 80) + idle(1, -1) + idle(2, 80)).root->rank == 1);
  BOOST_TEST(!facts_of(steps + idle(0, 80) + idle(2, 80)).root.has_value());
  // A group that a rank never used says -1, too, before or behind the one in which it waits.
  const std::string busy =
      "[rank0]:[E304 05:16:08.1 ProcessGroupNCCL.cpp:1] [PG ID 2 PG GUID 2(dp) Rank 0] PG status: "
      "last enqueued work: 80, last completed work: 79\n";
  for (const std::string& log : {steps + idle(0, -1) + busy, steps + busy + idle(0, -1)}) {
    const std::string reason = facts_of(log).reason;
    BOOST_TEST(reason.find("no collective was under way") == std::string::npos, reason);
  }
  // A timeout says more.
  const RunFacts timed = facts_of(steps + idle(1, -1) + idle(0, 80) + watchdog(0));
  BOOST_TEST(timed.root->kind == "nccl-timeout");
  BOOST_TEST(timed.reason.ends_with("; rank 1 had started none, others had come to number 80"),
             timed.reason);
  BOOST_TEST(timed.root->rank == 1);
}

// Who reports a failure of others is not at fault.
BOOST_AUTO_TEST_CASE(a_rank_that_reports_others_is_not_the_one_at_fault) {
  const std::string start = "using world size: 64, data-parallel size: 64\n" + megatron_steps(1, 5);
  const RunFacts waiting = facts_of(start + watchdog(8) + watchdog(30));
  BOOST_REQUIRE(waiting.root.has_value());
  BOOST_TEST(waiting.root->rank == -1);
  BOOST_TEST(waiting.root->reporting_rank == 8);
  BOOST_TEST(waiting.root->ranks == (std::vector<int>{8, 30}));
  const RunFacts gone = facts_of(start + "[rank2]: ncclRemoteError: A call failed\n");
  BOOST_TEST(gone.root->rank == -1);
  BOOST_TEST(gone.root->reporting_rank == 2);
  BOOST_TEST(gone.reason.starts_with("rank 2: another rank is gone after step 5"), gone.reason);
  const nlohmann::json failure = to_json(gone).at("failures").at(0);
  BOOST_TEST(failure.at("rank").is_null());
  BOOST_TEST(failure.at("reporting_rank") == 2);
  BOOST_TEST(to_json(facts_of("[rank3]: " + kOom)).at("failures").at(0).at("rank") == 3);
}

// Group 12 is of ranks 4 to 7: the other four are of another group of the same name.
BOOST_AUTO_TEST_CASE(a_rank_that_called_another_operation_is_the_odd_one) {
  const auto report = [](int rank, const std::string& operation) {
    const std::string r = std::to_string(rank);
    return "[rank" + r +
           "]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:683] [PG ID 5 PG GUID "
           "12(EXPERT_MODEL_PARALLEL_GROUP) Rank " +
           std::to_string(rank - 4) +
           "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=" +
           operation +
           ", NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before "
           "timing out.\n";
  };
  const std::string start = "using world size: 8, data-parallel size: 8\n" + megatron_steps(1, 5);
  const std::string rows = "ALLTOALL_BASE";
  const std::string sums = "ALLREDUCE";
  const RunFacts one =
      facts_of(start + report(6, sums) + report(4, rows) + report(5, rows) + report(7, rows));
  BOOST_REQUIRE(one.root.has_value());
  BOOST_TEST(one.reason ==
             "ranks 4-5, 7 waited 10 min 00 s for ALLTOALL_BASE number 77 of group "
             "EXPERT_MODEL_PARALLEL_GROUP; rank 6 had called ALLREDUCE");
  BOOST_TEST(one.root->rank == 6);
  BOOST_TEST(one.root->missing_ranks.empty());
  BOOST_TEST(one.root->waiting_ranks == (std::vector<int>{4, 5, 6, 7}));
  const RunFacts first = facts_of(start + report(4, sums) + report(5, rows) + report(6, rows));
  BOOST_TEST(first.reason.starts_with("ranks 5-6 waited 10 min 00 s for ALLTOALL_BASE number 77"),
             first.reason);
  BOOST_TEST(first.reason.ends_with("; rank 4 had called ALLREDUCE"), first.reason);
  const RunFacts halves =
      facts_of(start + report(4, rows) + report(5, rows) + report(6, sums) + report(7, sums));
  BOOST_TEST(halves.reason.ends_with("; ranks 6-7 had called ALLREDUCE, ranks 4-5 had called "
                                     "ALLTOALL_BASE"),
             halves.reason);
  BOOST_TEST(halves.root->missing_ranks.empty());
}

// Four ranks share experts, and four have come: the others of the run wait elsewhere or nowhere.
BOOST_AUTO_TEST_CASE(a_group_that_came_as_a_whole_misses_nobody) {
  const auto waited = [](const std::string& ep) {
    std::string text =
        "------------------------ arguments ------------------------\n"
        "  expert_model_parallel_size ...................... " +
        ep +
        "\n  tensor_model_parallel_size ...................... 1\n"
        "  world_size ...................................... 8\n"
        "-------------------- end of arguments ---------------------\n" +
        megatron_steps(1, 5);
    for (const char* rank : {"4", "5", "6", "7"}) {
      text += std::string("[rank") + rank +
              "]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:683] [PG ID 5 PG GUID "
              "12(EXPERT_MODEL_PARALLEL_GROUP) Rank 0] Watchdog caught collective operation "
              "timeout: WorkNCCL(SeqNum=77, OpType=ALLTOALL_BASE, NumelIn=1, NumelOut=1, "
              "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n";
    }
    return facts_of(text);
  };
  const RunFacts whole = waited("4");
  BOOST_REQUIRE(whole.root.has_value());
  BOOST_TEST(whole.root->missing_ranks.empty());
  BOOST_TEST(whole.reason.ends_with("; all of the group had come"), whole.reason);
  BOOST_TEST(waited("8").reason.ends_with("; ranks 0-3 did not come"));
}

BOOST_AUTO_TEST_CASE(torchrun_names_the_rank_that_has_no_prefix) {
  const std::string box =
      "Root Cause (first observed failure):\n[0]:\n  rank      : 5 "
      "(local_rank: 5)\n  exitcode  : 1 (pid: 42)\n";
  const RunFacts facts = facts_of(megatron_steps(1, 3) + kOom + box);
  BOOST_TEST(facts.root->rank == 5);
}

// Some print only the last line of a traceback, or cut its frames off.
BOOST_AUTO_TEST_CASE(an_exception_without_frames_counts_where_nothing_else_does) {
  const std::string rule = "AssertionError: 256 sequences are not 3 x 4";
  const std::string head = "[rank3]: Traceback (most recent call last):\n";
  const RunFacts first = facts_of(head + "[rank3]: " + rule + "\n" + watchdog(0));
  BOOST_REQUIRE(first.root.has_value());
  BOOST_TEST(first.root->kind == "assertion");
  BOOST_TEST(first.reason == "rank 3: a rule is broken: 256 sequences are not 3 x 4");
  BOOST_TEST(facts_of(watchdog(0) + head + "[rank3]: " + rule + "\n").root->kind == "nccl-timeout");
  const std::string steps = megatron_steps(1, 3);
  const RunFacts bare = facts_of(steps + "[rank2]: RuntimeError: <b>broken\n");
  BOOST_TEST(bare.reason == "rank 2: an error of Python after step 3: RuntimeError: <b>broken");
  BOOST_TEST((bare.status == ForeignStatus::failed));
  // Behind the header of a traceback without a launcher's prefix, not elsewhere.
  BOOST_TEST(facts_of(steps + "Traceback (most recent call last):\nOSError: broken\n").root->kind ==
             "python-error");
  BOOST_TEST(!facts_of(steps + "OSError: broken\n").root.has_value());
  for (const char* text : {"Error: broken", "RuntimeError:", "a RuntimeError: broken",
                           "  RuntimeError: broken", "UserWarning: broken"}) {
    BOOST_TEST(!facts_of(steps + "[rank2]: " + text + "\n").root.has_value(), text);
  }
  // What is certain wins, also of the same rank.
  const std::string told = "[rank2]: ValueError: perhaps\n";
  BOOST_TEST(facts_of(steps + told + "[rank1]: " + kOom).root->kind == "cuda-oom");
  const RunFacts surer = facts_of(steps + told + traceback("[rank2]: ", "TypeError: certain"));
  BOOST_TEST(surer.reason.find("TypeError: certain (model.py:7)") != std::string::npos,
             surer.reason);
  BOOST_TEST(!facts_of(steps + told + megatron_steps(4, 6)).root.has_value());
}

// Writes that exceed the buffer of a pipe, or that have no end of line, are glued.
BOOST_AUTO_TEST_CASE(glued_lines_are_of_their_last_writer) {
  const auto rank_of = [](const std::string& text) {
    const RunFacts facts = facts_of(text);
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST(facts.root->kind == "cuda-oom");
    return facts.root->rank;
  };
  const std::string steps = megatron_steps(1, 3);
  BOOST_TEST(rank_of(steps + "[rank2]: some warning[rank5]: " + kOom) == 5);
  BOOST_TEST(rank_of(steps +
                     "[rank3]: File x.py[rank5]: Traceback (most recent call last):[rank5]: " +
                     kOom) == 5);
  const std::string primus =
      "[20260304 05:06:03][rank-{}/8][ERROR]    [----------training.py:1] : ";
  const auto of_primus = [&](const char* rank) {
    return std::string(primus).replace(primus.find("{}"), 2, rank);
  };
  BOOST_TEST(rank_of(of_primus("7") + "iteration 3/ 50 | lm loss: 9.12" + of_primus("3") + kOom) ==
             3);
  BOOST_TEST(
      facts_of(steps + "[rank2]: [Rank 2] text[rank5]: RuntimeError: CUDA error: out of memory\n")
          .reason ==
      "rank 5: out of GPU memory outside of PyTorch's allocator after step 3: RuntimeError: "
      "CUDA error: out of memory");
  // Within a traceback of another rank, whose exception stays its own.
  const RunFacts both = facts_of(
      steps +
      "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/a/b.py\", line 7, in "
      "f[rank5]: " +
      kOom + "[rank2]: RuntimeError: broken[rank6]: Traceback (most recent call last):\n");
  BOOST_REQUIRE(both.failures.size() == 2U);
  BOOST_TEST(both.failures[0].rank == 5);
  BOOST_TEST(both.failures[1].rank == 2);
  BOOST_TEST(both.failures[1].sentence.ends_with(": RuntimeError: broken (b.py:7)"),
             both.failures[1].sentence);
}

// Torchrun lists the root last, and a rank that it ended first.
BOOST_AUTO_TEST_CASE(who_was_killed_is_not_who_was_ended) {
  const auto entry = [](const std::string& time, int rank, int code) {
    const std::string r = std::to_string(rank);
    return "  time      : 2026-03-04_" + time + "\n  rank      : " + r + " (local_rank: " + r +
           ")\n  exitcode  : " + std::to_string(code) + " (pid: 4" + r + ")\n";
  };
  const auto box = [&](const std::string& time, int code, const std::string& root_time,
                       int root_code) {
    return "Failures:\n[1]:\n" + entry(time, 2, code) +
           "Root Cause (first observed failure):\n[0]:\n" + entry(root_time, 5, root_code);
  };
  const RunFacts later = facts_of(megatron_steps(1, 3) + box("05:07:08", -15, "05:07:07", -9));
  BOOST_REQUIRE(later.root.has_value());
  BOOST_TEST(later.root->kind == "signal");
  BOOST_TEST(later.root->rank == 5);
  BOOST_TEST(later.root->exit_code.value_or(0) == -9);
  BOOST_TEST(later.reason.find("the host ran out of memory") != std::string::npos, later.reason);
  // The whole seconds of the box may be equal, or show the victim first.
  BOOST_TEST(facts_of(box("05:07:07", -15, "05:07:07", -9)).root->rank == 5);
  BOOST_TEST(facts_of(box("05:07:06", -15, "05:07:07", 1)).root->rank == 5);
  // Within a class the earlier one.
  BOOST_TEST(facts_of(box("05:07:08", -11, "05:07:07", -9)).root->rank == 5);
  BOOST_TEST(facts_of(box("05:07:06", -11, "05:07:07", -9)).root->rank == 2);
  // Others wait in vain for a rank that is gone; who is killed later had waited, too.
  const std::string steps = megatron_steps(1, 3);
  const RunFacts before = facts_of(steps + watchdog(0) + box("05:06:08", -15, "05:06:07", -9));
  BOOST_TEST(before.root->kind == "signal");
  BOOST_TEST(before.root->rank == 5);
  const RunFacts after = facts_of(steps + watchdog(0) + box("05:16:38", -15, "05:16:37", -9));
  BOOST_TEST(after.root->kind == "nccl-timeout");
  // A cancelled job's processes are killed in the end.
  const RunFacts ended =
      facts_of(steps + slurm("05:06:07", "") + box("05:06:38", -15, "05:06:37", -9));
  BOOST_TEST(ended.root->kind == "slurm-cancelled");
  BOOST_TEST(ended.root->rank == -1);
}

/// The notes on a run by the logs of its ranks.
std::vector<std::string> notes_of(const std::vector<std::string>& texts, ForeignStatus status) {
  std::vector<ForeignLog> logs;
  for (size_t i = 0; i < texts.size(); ++i) {
    logs.push_back(log_of(texts[i], "logs/rank" + std::to_string(i) + ".log"));
  }
  const RunFacts facts = facts_of_logs(logs, {});
  BOOST_TEST(facts.status == status, facts.reason);
  return facts.notes;
}

BOOST_AUTO_TEST_CASE(a_rank_that_ended_though_others_came_to_the_end_is_told) {
  const std::string killed = "Killed\n";
  const auto whole = notes_of({megatron_steps(98, 100), killed}, ForeignStatus::ok);
  BOOST_REQUIRE_EQUAL(whole.size(), 1);
  // The step is the other log's.
  BOOST_TEST(whole[0].starts_with("rank 1: ended by a signal: exit code -9"), whole[0]);
  BOOST_TEST(whole[0].ends_with("; another log has all 100 steps"), whole[0]);
  // Where its own log has steps it is told after which of them.
  const auto early =
      notes_of({megatron_steps(90, 100), megatron_steps(90, 95) + killed}, ForeignStatus::ok);
  BOOST_REQUIRE_EQUAL(early.size(), 1);
  BOOST_TEST(early[0].starts_with("rank 1: ended by a signal after step 95"), early[0]);
  const auto marked = notes_of({megatron_steps(1, 9) + kDone, killed, killed}, ForeignStatus::ok);
  BOOST_REQUIRE_EQUAL(marked.size(), 1);
  BOOST_TEST(marked[0].starts_with("2 ranks: ended by a signal"), marked[0]);
  BOOST_TEST(marked[0].ends_with("; another log ends well"), marked[0]);
  // Tidying up, what others saw, and a run that did not come to its end.
  const auto none = [](const std::vector<std::string>& texts, ForeignStatus status) {
    return notes_of(texts, status).empty();
  };
  BOOST_TEST(none({megatron_steps(98, 100) + killed}, ForeignStatus::ok));
  BOOST_TEST(none({megatron_steps(98, 100), megatron_steps(98, 100) + killed}, ForeignStatus::ok));
  BOOST_TEST(none({megatron_steps(1, 9) + kDone, "RuntimeError: Connection reset by peer\n"},
                  ForeignStatus::ok));
  BOOST_TEST(none({megatron_steps(1, 9), killed}, ForeignStatus::crashed));
}

// What a script ends in its own log, as it tidies up, or what ran beside the ranks is none of them.
BOOST_AUTO_TEST_CASE(who_may_have_run_beside_the_ranks_is_not_told_as_lost) {
  const auto notes = [](const std::string& said, const std::string& name) {
    return facts_of_logs({log_of(megatron_steps(98, 100), "logs/rank0.log"),
                          log_of(megatron_steps(98, 100), "logs/rank1.log"), log_of(said, name)},
                         {})
        .notes;
  };
  for (const char* said :
       {"trainer-1 exited with code 143\n", "dcgm-1 exited with code 137\n",
        "job.sh: line 12:  4242 Terminated              python gpu_monitor.py\n", "Terminated\n"}) {
    BOOST_TEST(notes(said, "logs/job.err").empty(), said);
    BOOST_TEST(notes(said, "logs/rank2.log").size() == 1, said);
    BOOST_TEST(notes(megatron_steps(98, 99) + said, "logs/job.err").size() == 1, said);
  }
  const auto killed = notes("Killed\n", "logs/job.err");
  BOOST_REQUIRE_EQUAL(killed.size(), 1);
  BOOST_TEST(killed[0].starts_with("ended by a signal: exit code -9"), killed[0]);
}

BOOST_AUTO_TEST_CASE(srun_names_the_task) {
  const std::string steps = megatron_steps(1, 3);
  for (const char* words : {"Segmentation fault (core dumped)", "Bus error", "Out Of Memory"}) {
    const RunFacts facts = facts_of(steps + "srun: error: node01: task 3: " + words + "\n");
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST(facts.root->rank == 3, words);
    BOOST_TEST(facts_of(steps + "srun: error: node01: tasks 3-4: " + words + "\n").root->rank == -1,
               words);
  }
  BOOST_TEST(facts_of(steps + "[rank2]: Segmentation fault\n").root->rank == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
