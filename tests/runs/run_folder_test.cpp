// A folder as a run leaves it: what of it is a log, a trace or a configuration.
#include "sweeps/runs/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <ostream>
#include <thread>

#include "kernels/base/error.h"
#include "sweeps/runs/compared_runs.h"
#include "sweeps/runs/diagnosed_run.h"
#include "tests/import/trace_texts.h"
#include "tests/profiler/temp_folder.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(folders_of_runs)

namespace {

namespace fs = std::filesystem;

struct Row {
  const char* name;
  std::string text;
  RunFileKind kind;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

const std::string kStep = golden_logs::megatron_step(1);

const Row kRows[] = {
    {"a log", kStep, RunFileKind::log},
    {"Kineto", "{\n\"schemaVersion\": 1, \"traceEvents\": [" + kStep, RunFileKind::chrome_trace},
    {"an array of events", "[{\"ph\": \"X\", \"ts\": 1}]", RunFileKind::chrome_trace},
    {"rocprofiler", "{\"rocprofiler-sdk-tool\": [", RunFileKind::rocprof_trace},
    {"SQLite", std::string("SQLite format 3\0....", 20), RunFileKind::sqlite},
    {"gzip", "\x1f\x8b\x08", RunFileKind::gzip},
    {"a model", "{\"hidden_size\": 2048}", RunFileKind::other},
    {"a command",
     "#!/bin/bash\ntorchrun --nproc-per-node 8 pretrain_gpt.py \\\n"
     "  --tensor-model-parallel-size 2 --micro-batch-size 1\n",
     RunFileKind::config},
    {"TOML", "[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\n",
     RunFileKind::config},
    {"a log below its command", "# torchrun -m torchtitan.train --training.steps 4\n" + kStep,
     RunFileKind::log},
    {"a log below a command of another program", "# bash megatron.sh --num-layers 8\n" + kStep,
     RunFileKind::log},
    {"a command below a comment",
     "# torchrun pretrain_gpt.py --seq-length 4096\ntorchrun --nproc-per-node 8 pretrain_gpt.py "
     "\\\n"
     "  --tensor-model-parallel-size 2 --micro-batch-size 1\n",
     RunFileKind::config},
    {"a page with a step in it", "# How to read --log-interval\n\n" + kStep, RunFileKind::other},
    {"a source", "import os\nprint('''" + kStep + "''')\n", RunFileKind::other},
    {"a page", "# How to train with torchtitan\n\nwords\n", RunFileKind::other},
    {"nothing", "", RunFileKind::other},
    {"a trace behind the mark of UTF-8", "\xef\xbb\xbf{\"traceEvents\": []}",
     RunFileKind::chrome_trace},
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

BOOST_DATA_TEST_CASE(kinds, boost::unit_test::data::make(kRows)) {
  BOOST_TEST((kind_of_file(sample.text) == sample.kind));
}

BOOST_AUTO_TEST_CASE(the_end_of_a_log_counts_as_well) {
  BOOST_TEST((kind_of_file("words\n", kStep) == RunFileKind::log));
}

BOOST_AUTO_TEST_CASE(packed_logs_are_read) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const std::string packed = tests::gzip_of(golden_logs::megatron_steps(1, 9));
  write(root / "train.log.gz", packed);
  write(root / "trace.json.gz", tests::gzip_of("{\"traceEvents\": []}"));
  write(root / "cut.log.gz", packed.substr(0, packed.size() / 2));
  const RunFolder folder = find_run_files(root.string());
  BOOST_TEST(folder.logs == std::vector{(root / "train.log.gz").string()});
  BOOST_TEST(folder.traces.size() == 2U);  // nobody knows what the cut one was
  BOOST_TEST(read_run(folder.logs).num_steps == 9);
  BOOST_CHECK_THROW(read_run({(root / "cut.log.gz").string()}), base::UsageError);
}

BOOST_AUTO_TEST_CASE(logs_of_other_runs_are_left_out) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const std::string ranks_8 = "using world size: 8, data-parallel size: 8\n";
  const std::string ranks_16 = "using world size: 16, data-parallel size: 16\n";
  write(root / "a.log", ranks_16 + golden_logs::megatron_steps(1, 4));
  write(root / "b.log", ranks_8 + golden_logs::megatron_steps(1, 9));
  write(root / "c.log", golden_logs::megatron_steps(1, 9));  // of a rank that does not say it
  write(root / "d.log",
        "[rank0]:[titan] 2026-03-04 05:06:01,089 - root - INFO - step:  1  loss:  9.50000  "
        "grad_norm:  1.2500  memory: 61.25GiB(77.43%)  tps: 5,000  tflops: 210.50\n");
  const RunFacts facts = read_run(find_run_files(root.string()).logs);
  BOOST_TEST(facts.world_size.value_or(0) == 8);
  BOOST_TEST(facts.num_steps == 9);
  BOOST_TEST(facts.files.size() == 2U);
  std::string notes;
  for (const std::string& note : facts.notes) notes += note + "\n";
  const std::string b = (root / "b.log").string();
  BOOST_TEST(notes.find((root / "a.log").string() + " is of 16 ranks, " + b + " of 8: left out") !=
                 std::string::npos,
             notes);
  BOOST_TEST(notes.find((root / "d.log").string() + " is of torchtitan, " + b +
                        " of megatron-lm: left out") != std::string::npos,
             notes);
}

namespace {

/// A whole run of Megatron-LM on 8 ranks at 05:06 of a day of March: what stands in front of its
/// steps, then steps, then how it ended.
std::string run_on_day(int day, const std::string& front, int first_step, int last_step,
                       const std::string& end) {
  std::string text = "using world size: 8, data-parallel size: 8\n" + front;
  std::string steps = golden_logs::megatron_steps(first_step, last_step);
  const std::string march_4 = "2026-03-04";
  for (size_t at = steps.find(march_4); at != std::string::npos; at = steps.find(march_4, at + 1)) {
    steps.replace(at, march_4.size(), "2026-03-0" + std::to_string(day));
  }
  return text + steps + end;
}

const std::string kOutOfMemory =
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n";
const std::string kDone = "[after training is done] datetime: 2026-03-05 06:00:00\n";

std::string dumped(const std::string& name, int value) {
  return "------------------------ arguments ------------------------\n  " + name + " " +
         std::string(48 - name.size(), '.') + " " + std::to_string(value) +
         "\n-------------------- end of arguments ---------------------\n";
}

/// Facts of two logs in one folder.
RunFacts facts_of_two(const std::string& first, const std::string& second,
                      const std::string& first_name = "slurm-9.out",
                      const std::string& second_name = "slurm-10.out") {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  write(root / first_name, first);
  write(root / second_name, second);
  RunFacts facts = read_run(find_run_files(root.string()).logs);
  for (std::string& file : facts.files) file = fs::path(file).filename().string();
  return facts;
}

bool has_note(const RunFacts& facts, const std::string& words) {
  return std::ranges::any_of(facts.notes, [&](const std::string& note) {
    return note.find(words) != std::string::npos &&
           note.find("left out, it looks like another run") != std::string::npos;
  });
}

}  // namespace

// The folder of somebody who tunes: each job leaves its log beside the others'.
BOOST_AUTO_TEST_CASE(of_two_runs_the_latest_is_told) {
  const std::vector<std::string> only_second = {"slurm-10.out"};
  const std::vector<std::string> only_first = {"slurm-9.out"};
  // Equal settings, and both begin at step 1: in either order of their days.
  const RunFacts later =
      facts_of_two(run_on_day(4, "", 1, 9, kOutOfMemory), run_on_day(5, "", 1, 5, kDone));
  BOOST_TEST(later.files == only_second, boost::test_tools::per_element());
  BOOST_TEST((later.status == ForeignStatus::ok));
  BOOST_TEST(later.num_steps == 5);
  BOOST_TEST(later.failures.empty());
  BOOST_TEST(has_note(later, "slurm-9.out ends at 2026-03-04 05:06:09, and "));
  const RunFacts earlier =
      facts_of_two(run_on_day(6, "", 1, 9, kOutOfMemory), run_on_day(5, "", 1, 5, kDone));
  BOOST_TEST(earlier.files == only_first, boost::test_tools::per_element());
  BOOST_TEST((earlier.status == ForeignStatus::oom));
  BOOST_TEST(has_note(earlier, "slurm-10.out ends at 2026-03-05 06:00:00, and "));
}

BOOST_AUTO_TEST_CASE(logs_of_other_settings_are_other_runs) {
  for (const char* name : {"tensor_model_parallel_size", "micro_batch_size", "num_layers"}) {
    BOOST_TEST_CONTEXT(name) {
      // On one day at one time, so that nothing but the setting tells.
      const RunFacts facts = facts_of_two(run_on_day(4, dumped(name, 2), 1, 9, kOutOfMemory),
                                          run_on_day(4, dumped(name, 4), 1, 9, ""));
      BOOST_TEST(facts.files.size() == 1U);
      BOOST_TEST(std::ranges::any_of(facts.notes, [](const std::string& note) {
        return note.find("another run") != std::string::npos;
      }));
      const RunFacts same = facts_of_two(run_on_day(4, dumped(name, 2), 1, 9, kOutOfMemory),
                                         run_on_day(4, dumped(name, 2), 1, 8, ""));
      BOOST_TEST(same.files.size() == 2U);
    }
  }
  // The layout that a line says, and names where no line has a time.
  const std::string undated =
      "iteration 1/ 9 | elapsed time per iteration (ms): 800.0 | lm loss: 5 |\n";
  const auto tensor = [](int size) {
    return "using world size: 8, tensor-model-parallel size: " + std::to_string(size) + "\n";
  };
  const RunFacts by_name = facts_of_two(tensor(2) + undated, tensor(4) + undated);
  BOOST_TEST(by_name.parallel.tp.value_or(0) == 4);
  BOOST_TEST(by_name.files == std::vector<std::string>{"slurm-10.out"},
             boost::test_tools::per_element());
}

// Two jobs at one time, alike but for the data: each has the start of a run, and losses of its own.
BOOST_AUTO_TEST_CASE(runs_side_by_side_are_told_apart_by_their_losses) {
  const std::string dump = dumped("num_layers", 2);
  std::string other = run_on_day(4, dump, 1, 9, kOutOfMemory);
  for (size_t at = 0; (at = other.find("lm loss: ", at)) != std::string::npos; at += 9) {
    other.replace(at + 9, 1, "7");
  }
  const RunFacts facts = facts_of_two(run_on_day(4, dump, 1, 8, ""), other);
  BOOST_TEST(facts.files.size() == 1U);
  BOOST_TEST(has_note(facts, "has other losses than "));
  // Of ranks, as their names say, each may print its own.
  BOOST_TEST(
      facts_of_two(run_on_day(4, dump, 1, 8, ""), other, "rank-0.log", "rank-1.log").files.size() ==
      2U);
}

// With one seed the second has the losses of the first: without times the name tells the later.
BOOST_AUTO_TEST_CASE(a_run_that_was_started_again_is_told_alone) {
  const auto run_of = [](int num_steps) {
    std::string text = dumped("num_layers", 2);
    for (int step = 1; step <= num_steps; ++step) {
      text += fmt::format(
          " iteration {}/ 20 | elapsed time per iteration (ms): 800.0 | lm loss: 3.5 |\n", step);
    }
    return text;
  };
  const RunFacts facts = facts_of_two(run_of(20), run_of(12));
  BOOST_TEST(facts.files == std::vector<std::string>{"slurm-10.out"},
             boost::test_tools::per_element());
  BOOST_TEST(facts.num_steps == 12);
  BOOST_TEST(has_note(facts, "slurm-9.out begins anew, as "));
  // The same output twice is a copy, or one that somebody has cut at its front.
  BOOST_TEST(facts_of_two(run_of(20), run_of(20)).files.size() == 1U);
  BOOST_TEST(facts_of_two("a line of the shell\n" + run_of(20), run_of(20)).files.size() == 2U);
}

// A failure before the first step, in a log that shows no time: it is not the other's.
BOOST_AUTO_TEST_CASE(a_start_that_shows_no_time_is_another_run) {
  const std::string start = "using world size: 8, data-parallel size: 8\n";
  const RunFacts facts = facts_of_two(start + kOutOfMemory, run_on_day(5, "", 1, 5, kDone));
  BOOST_TEST(facts.files == std::vector<std::string>{"slurm-10.out"},
             boost::test_tools::per_element());
  BOOST_TEST((facts.status == ForeignStatus::ok));
  BOOST_TEST(has_note(facts, "slurm-9.out begins anew, as "));
}

// As the shell shows it with "+ ". Elsewhere it is what somebody left out.
BOOST_AUTO_TEST_CASE(a_command_above_a_log_is_that_of_the_run) {
  const std::string command = "torchrun --nproc_per_node=8 pretrain_gpt.py --seq-length ";
  const ForeignLog log =
      golden_logs::log_of("# " + command + "4096\n" + golden_logs::megatron_steps(1, 3));
  BOOST_TEST(log.attempts.back().command == command + "4096");
  const ForeignLog later = golden_logs::log_of(golden_logs::megatron_step(1) + "# " + command +
                                               "4096\n+ " + command + "2048\n");
  BOOST_TEST(later.attempts.back().command == command + "2048");
}

// A node's log may have no more than the command and steps.
BOOST_AUTO_TEST_CASE(logs_of_nodes_stay_together) {
  const std::string command =
      "+ torchrun --nproc_per_node=8 pretrain_gpt.py --seq-length 4096 --micro-batch-size 2\n";
  const RunFacts facts =
      facts_of_two(command + "[2026-03-04 04:05:00] using world size: 8, data-parallel size: 8\n",
                   command + golden_logs::megatron_steps(1, 9));
  BOOST_TEST(facts.files.size() == 2U);
  BOOST_TEST(facts.world_size.value_or(0) == 8);
}

BOOST_AUTO_TEST_CASE(logs_of_one_run_stay_together) {
  // One that goes on from a checkpoint of the first.
  const std::string loaded =
      "successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 5\n";
  BOOST_TEST(
      facts_of_two(run_on_day(4, "", 1, 9, ""), run_on_day(5, loaded, 6, 12, "")).files.size() ==
      2U);
  // Both that began from one of another run's are runs of their own.
  BOOST_TEST(facts_of_two(run_on_day(4, loaded, 6, 12, ""), run_on_day(5, loaded, 6, 12, ""))
                 .files.size() == 1U);
  // Ranks: at one time, or at others where their names say it.
  BOOST_TEST(facts_of_two(run_on_day(4, "", 1, 9, ""), run_on_day(4, "", 1, 8, kOutOfMemory))
                 .files.size() == 2U);
  BOOST_TEST(facts_of_two(run_on_day(4, "", 1, 9, ""), run_on_day(5, "", 1, 9, ""), "rank-0.log",
                          "rank-1.log")
                 .files.size() == 2U);
}

BOOST_AUTO_TEST_CASE(what_lies_beside_another_run_is_left_out_with_it) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("runs");
  write(root / "a" / "rank-0.log", run_on_day(4, "", 1, 9, ""));
  write(root / "a" / "rank-3.log", kOutOfMemory);  // says no time and no setting
  write(root / "b" / "rank-0.log", run_on_day(5, "", 1, 9, kDone));
  write(root / "b" / "rank-3.log", "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n");
  const RunFacts facts = read_run(find_run_files(root.string()).logs);
  BOOST_TEST(facts.files.size() == 2U);
  for (const std::string& file : facts.files) {
    BOOST_TEST(file.find("/b/") != std::string::npos, file);
  }
  BOOST_TEST(has_note(facts, "a/rank-3.log lies beside "));
}

BOOST_AUTO_TEST_CASE(traces_of_another_world_than_the_log_are_noted) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  tests::EventText events;
  for (int i = 0; i < 40; ++i) events.call(i, 1, i + 1).kernel(1000 + 100 * i, 99, i + 1);
  const auto notes_for = [&](const std::string& world_size) {
    write(root / "rank0.json",
          events.json(R"(, "distributedInfo": {"rank": 0, "world_size": )" + world_size + "}"));
    return diagnose_run({root.string()}, {}).notes;
  };
  const std::string log = (root / "train.log").string();
  write(log, "using world size: 8, data-parallel size: 8\n" + golden_logs::megatron_steps(1, 9));
  const std::string note = log + " is of a run of 8 ranks, " + (root / "rank0.json").string() +
                           " of one of 4: they do not seem to be of one run";
  BOOST_TEST(std::ranges::count(notes_for("4"), note) == 1);
  for (const std::string& one : notes_for("8")) {
    BOOST_TEST(one.find("one run") == std::string::npos, one);
  }
  // What to change is against the wall of the traces, for the run that they are of.
  const RunDiagnosis apart = diagnose_run({root.string()}, {});
  BOOST_TEST(apart.other_log.empty());
  notes_for("4");
  const RunDiagnosis beside = diagnose_run({root.string()}, {});
  BOOST_TEST(beside.other_log == note);
  const std::vector<std::string> compared = compare_runs(beside, apart).notes;
  BOOST_TEST(std::ranges::count(compared, "the first run: " + note) == 1);
}

// 40 kernels of 99 us, in a log whose steps take a second.
BOOST_AUTO_TEST_CASE(steps_of_another_length_than_the_log_says_are_noted) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  for (const double step_us : {4'000.0, 950'000.0}) {
    tests::EventText events;
    for (int step = 0; step < 3; ++step) {
      const double start = 10 + step * step_us;
      events.range(start, step_us - 1, "ProfilerStep#" + std::to_string(step));
      for (int i = 0; i < 40; ++i) {
        const int id = 40 * step + i + 1;
        events.call(start + i, 1, id).kernel(start + 60 + i * step_us / 41, 90, id);
      }
    }
    write(root / "rank0.json", events.json());
    write(root / "train.log", golden_logs::megatron_steps(1, 9));
    const std::vector<std::string> notes = diagnose_run({root.string()}, {}).notes;
    const bool is_noted = std::ranges::any_of(notes, [](const std::string& note) {
      return note.starts_with("a step took 1.00 s in the log and ");
    });
    BOOST_TEST(is_noted == (step_us < 900'000), fmt::format("{}", fmt::join(notes, "; ")));
  }
}

// Traces that do not say of how many ranks they are, beside a command or a log that does.
BOOST_AUTO_TEST_CASE(ranks_without_a_trace_are_noted) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const auto trace_of = [](int rank, const std::string& more) {
    tests::EventText events;
    for (int i = 0; i < 40; ++i) events.call(i, 1, i + 1).kernel(1000 + 100 * i, 98 + rank, i + 1);
    return events.json(more);
  };
  const auto num_noted = [&](const std::string& begin) {
    const std::vector<std::string> notes = diagnose_run({root.string()}, {}).notes;
    return std::ranges::count_if(notes,
                                 [&](const std::string& note) { return note.starts_with(begin); });
  };
  for (const int rank : {0, 1}) write(root / fmt::format("rank{}.json", rank), trace_of(rank, ""));
  write(root / "run.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 4\n");
  BOOST_TEST(num_noted("the command has 8 ranks by default, and 2 traces were given, which do not "
                       "say so") == 1);
  write(root / "run.sh",
        "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 4\n");
  BOOST_TEST(num_noted("the command has 16 ranks, and 2 traces were given") == 1);
  write(root / "train.log",
        "using world size: 8, data-parallel size: 8\n" + golden_logs::megatron_steps(1, 9));
  BOOST_TEST(num_noted("the log has 8 ranks, and 2 traces were given") == 1);
  // As many as there are, or the traces say it, be it another number.
  fs::remove(root / "train.log");
  write(root / "run.sh", "torchrun --nproc_per_node 2 pretrain_gpt.py --bf16 --num-layers 4\n");
  BOOST_TEST(num_noted("the command has ") == 0);
  write(root / "run.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 4\n");
  for (const int world : {8, 3}) {
    for (const int rank : {0, 1}) {
      const auto more =
          fmt::format(R"(, "distributedInfo": {{"rank": {}, "world_size": {}}})", rank, world);
      write(root / fmt::format("rank{}.json", rank), trace_of(rank, more));
    }
    BOOST_TEST(num_noted("the command has ") == 0, world);
  }
}

// What speaks for waiting is in the collectives; settings are told with that.
BOOST_AUTO_TEST_CASE(settings_against_communication_have_a_doubt) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const auto notes_of = [&](double slow_us) {
    tests::EventText events;
    double at_us = 10'000;
    for (int i = 0; i < 60; ++i) {
      const double us = i % 6 == 5 ? slow_us : 60;
      events.call(i, 1, 2 * i + 1).kernel(at_us, 60, 2 * i + 1);
      events.call(i + 0.5, 0.2, 2 * i + 2)
          .kernel(at_us + 60, us, 2 * i + 2, "ncclDevKernel_AllReduce_Sum_bf16(x)", 20,
                  R"(, "Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float",
                     "Out msg nelems": 1000, "Process Group Name": "0", "Group size": 2,
                     "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP")");
      at_us += 60 + us;
    }
    write(root / "rank0.json", events.json(R"(, "distributedInfo": {"rank": 0, "world_size": 2})"));
    return fmt::format("{}", fmt::join(diagnose_run({root.string()}, {}).notes, "\n"));
  };
  const std::string even = notes_of(60);
  BOOST_TEST(even.find("settings against communication do nothing where it is waiting for the one "
                       "rank without a trace") != std::string::npos,
             even);
  const std::string uneven = notes_of(900);
  BOOST_TEST(uneven.find("the wall is more likely waiting for the one rank without a trace, "
                         "against which settings of communication do nothing") != std::string::npos,
             uneven);
}

// The file that is met first is somebody's of another recorder.
BOOST_AUTO_TEST_CASE(of_two_recorders_that_with_most_traces_is_kept) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  write(root / "a.json",
        R"({"otherData": {"writer": "moetune 1", "origin_ns": 0}, "traceEvents": [
           {"ph": "X", "cat": "step", "pid": 0, "tid": 0, "name": "step 0", "ts": 0, "dur": 900,
            "args": {"step": 0}},
           {"ph": "X", "cat": "kernel", "pid": 0, "tid": 1, "name": "gemm.forward", "ts": 10,
            "dur": 800, "args": {"id": 0, "step": 0}}]})");
  tests::EventText events;
  for (int i = 0; i < 40; ++i) events.call(i, 1, i + 1).kernel(1000 + 100 * i, 99, i + 1);
  for (const char* rank : {"0", "1"}) {
    write(root / (std::string("rank") + rank + ".json"),
          events.json(std::string(R"(, "distributedInfo": {"world_size": 2, "rank": )") + rank +
                      "}"));
  }
  const RunDiagnosis diagnosis = diagnose_run({root.string()}, {});
  BOOST_TEST_REQUIRE(diagnosis.traces.has_value());
  BOOST_TEST_REQUIRE(diagnosis.traces->traces.size() == 2U);
  BOOST_TEST(diagnosis.traces->traces[0].facts.format == "kineto");
  const std::string note = (root / "a.json").string() + " is of moetune, " +
                           (root / "rank0.json").string() + " of kineto: left out";
  BOOST_TEST(std::ranges::count(diagnosis.notes, note) == 1);
}

BOOST_AUTO_TEST_CASE(copies_of_a_log_are_left_out) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const std::string steps = golden_logs::megatron_steps(1, 9);
  const std::string failed = "torch.OutOfMemoryError: CUDA out of memory.\n";
  write(root / "a.log", steps);
  write(root / "b.log", steps);
  write(root / "rank1.log", steps);  // another rank may have printed the same
  write(root / "c.log", failed);
  write(root / "d.log", failed);  // and have failed in the same way
  std::vector<std::string> paths;
  for (const char* name : {"a.log", "b.log", "rank1.log", "c.log", "d.log"}) {
    paths.push_back((root / name).string());
  }
  const RunFacts facts = read_run(paths);
  BOOST_TEST(facts.files.size() == 4U);
  const std::string note =
      (root / "b.log").string() + " is a copy of " + (root / "a.log").string() + ": left out";
  BOOST_TEST(std::ranges::count(facts.notes, note) == 1);
}

BOOST_AUTO_TEST_CASE(a_folder) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  write(root / "b" / "rank-1.log", kStep);
  write(root / "b" / "rank-0", kStep);
  write(root / "traces" / "x.json", "{\"traceEvents\": []}");
  write(root / "train.toml", kRows[8].text);
  write(root / ".git" / "log", kStep);
  write(root / "1/2/3/4/5/6/7/8/9/10/deep.log", kStep);
  fs::create_directory_symlink(root, root / "b" / "loop");
  fs::create_symlink(root / "b" / "rank-0", root / "b" / "twice");
  fs::create_symlink(root / "nowhere", root / "b" / "broken");
  const RunFolder folder = find_run_files(root.string());
  BOOST_REQUIRE(folder.logs.size() == 2U);
  BOOST_TEST(folder.logs[0] == (root / "b" / "rank-0").string());
  BOOST_TEST(folder.logs[1] == (root / "b" / "rank-1.log").string());
  BOOST_TEST(folder.traces.size() == 1U);
  BOOST_TEST(folder.configs.size() == 1U);
  BOOST_TEST(folder.notes.empty());
  BOOST_TEST(find_run_files((root / "train.toml").string()).configs.size() == 1U);
  BOOST_CHECK_THROW(find_run_files((root / "nowhere").string()), base::UsageError);
}

// Its commands are examples, and a quote in its words is no quote of a shell.
BOOST_AUTO_TEST_CASE(pages_are_no_commands) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  const std::string command =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1\n";
  write(root / "README.md", command + "It doesn't end.\n");
  write(root / "run.sh", command);
  write(root / "notes", "cat <<EOF\n```\nwords\n```\nEOF\n" + command);
  write(root / "run.md", command);
  const RunFolder folder = find_run_files(root.string());
  BOOST_TEST(folder.configs == std::vector{(root / "run.sh").string()});
  BOOST_TEST(folder.unread_configs.empty());
  // What could be read is named.
  BOOST_REQUIRE(folder.notes.size() == 2U);
  BOOST_TEST(folder.notes[0].starts_with((root / "notes").string() + ": is read as prose"));
  BOOST_TEST(folder.notes[1].starts_with((root / "run.md").string() + ": is read as prose"));
  // Whoever names a file knows what it is.
  for (const char* name : {"notes", "run.md"}) {
    BOOST_TEST(find_run_files((root / name).string()).configs.size() == 1U, name);
  }
}

// A script may write a page.
BOOST_AUTO_TEST_CASE(a_script_with_a_block_of_code_is_a_command) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  write(root / "run.sh",
        "#!/bin/bash\ncat <<EOF > README\n```\nhello\n```\nEOF\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1\n");
  const RunFolder folder = find_run_files(root.string());
  BOOST_TEST(folder.configs.size() == 1U);
  BOOST_TEST(folder.notes.empty());
}

// Each mark of a block was looked for from its own place back to the line's begin.
BOOST_AUTO_TEST_CASE(many_marks_in_a_line_take_no_time) {
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  std::string text =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1\n";
  std::string line = "echo '";
  while (line.size() < 60'000) line += "```";
  for (int i = 0; i < 4; ++i) text += line + "'\n";
  for (int i = 0; i < 8; ++i) write(root / ("f" + std::to_string(i)), text);
  const auto begin = std::chrono::steady_clock::now();
  BOOST_TEST(find_run_files(root.string()).configs.size() == 8U);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < std::chrono::seconds(5)));
}

// They call themselves regular files, and some, such as /proc/kmsg, give no end to whoever reads
// them. Here the words of a process look like a log.
BOOST_AUTO_TEST_CASE(files_of_the_kernel_are_not_read) {
  const std::string words = "\n" + kStep;
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", "kill -STOP $$", words.c_str(), nullptr);
    ::_exit(1);
  }
  const std::string made_up = "/proc/" + std::to_string(child) + "/cmdline";
  std::string text;
  for (int i = 0; i < 1000 && text.find(kStep) == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::ifstream file(made_up, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  BOOST_TEST((kind_of_file(text) == RunFileKind::log));
  const tests::TempFolder temp;
  const fs::path root = temp.file("run");
  write(root / "rank-0.log", kStep);
  fs::create_symlink(made_up, root / "words");
  BOOST_TEST(find_run_files(root.string()).logs.size() == 1U);
  BOOST_TEST(find_run_files(made_up).logs.empty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
