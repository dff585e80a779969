// Trials and sweeps whose ranks are processes, each with a fake device of its own, over a fake
// NCCL: the whole way from one command to one result, and what becomes of a process that fails.
#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "profiler/store/store.h"
#include "tests/engine/parity_fixture.h"
#include "tests/profiler/temp_folder.h"

namespace moetune {
namespace {

using engine::testing::knobs_of;
using nlohmann::json;

constexpr const char* kLayout = R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
                                    "pipeline_model_parallel_size": 2})";

struct Processes {
  tests::TempFolder folder;

  static spec::TrialSpec trial(spec::CommunicatorKind communicator) {
    spec::ModelSpec model = engine::testing::tiny_model();
    model.vocab_size = 256;
    spec::TrialSpec made = engine::testing::tiny_trial(model, knobs_of(kLayout));
    made.backend = spec::BackendKind::cuda;
    made.clock = spec::ClockMode::wall;
    made.dtype = spec::DType::bf16;
    made.communicator = communicator;
    made.hardware.num_nodes = 1;
    made.hardware.devices_per_node = 4;
    made.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
    made.num_warmup_steps = 2;
    made.num_steps = 3;
    made.num_traced_steps = 1;
    return made;
  }

  /// Ends with the exit code of moetune.
  int moetune(const std::string& rank_program, const std::string& words) {
    // The fake NCCL's messages go with the folder.
    const int status = std::system(
        fmt::format("TMPDIR={0} MOETUNE_RANK={1}/{2} {1}/moetune {3} >{0}/out 2>{0}/err",
                    folder.file(""), MOETUNE_BIN_DIR, rank_program, words)
            .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text_of(const std::string& name) {
    std::ifstream in(folder.file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  struct Stored {
    store::TrialRow trial;
    std::vector<store::StepRow> steps;
    std::vector<profiler::StepTrace> traces;
    std::vector<store::MetricRow> metrics;
    int code = -1;
  };
  Stored run(const std::string& rank_program, const spec::TrialSpec& spec) {
    std::ofstream(folder.file("trial.json")) << spec::to_json(spec).dump();
    const std::string db = folder.file(rank_program + ".db");
    std::remove(db.c_str());
    Stored stored;
    stored.code = moetune(rank_program, fmt::format("trial {} --db {} --step-limit 120",
                                                    folder.file("trial.json"), db));
    const store::Store store = store::Store::open_read_only(db);
    stored.trial = store.list_trials().at(0);
    stored.steps = store.read_steps(stored.trial.id);
    stored.traces = store.read_trace(stored.trial.id);
    stored.metrics = store.read_metrics(stored.trial.id);
    return stored;
  }
};

BOOST_FIXTURE_TEST_SUITE(traced_processes, Processes)

BOOST_AUTO_TEST_CASE(processes_train_and_are_traced_like_threads) {
  const Stored threads = run("simt_traced_rank", trial(spec::CommunicatorKind::threads));
  BOOST_TEST_INFO(text_of("err"));
  BOOST_TEST_REQUIRE(threads.trial.status == "ok");
  const Stored processes = run("simt_nccl_rank", trial(spec::CommunicatorKind::nccl));
  BOOST_TEST_INFO(text_of("err"));
  BOOST_TEST_INFO(processes.trial.reason);
  BOOST_TEST_REQUIRE(processes.trial.status == "ok");
  BOOST_TEST(processes.code == 0);

  BOOST_TEST_REQUIRE(processes.steps.size() == 6U);
  BOOST_TEST_REQUIRE(threads.steps.size() == 6U);
  for (size_t i = 0; i < 6; ++i) {
    BOOST_TEST(std::abs(processes.steps[i].loss - threads.steps[i].loss) < 1e-3);
  }
  BOOST_TEST_REQUIRE(processes.traces.size() == 4U);
  BOOST_TEST_REQUIRE(threads.traces.size() == 4U);
  std::map<std::tuple<std::string, int64_t>, int> num_participants;
  for (size_t rank = 0; rank < 4; ++rank) {
    const profiler::StepTrace& trace = processes.traces[rank];
    BOOST_TEST(trace.rank == static_cast<int>(rank));
    // The same operations, and one record for each communication.
    const auto names_of = [](const profiler::StepTrace& from) {
      std::map<std::string, int> names;
      for (const profiler::TraceRecord& record : from.records) {
        if (record.kind == profiler::RecordKind::collective ||
            record.kind == profiler::RecordKind::p2p) {
          ++names[record.name.text() + " " + record.group.text()];
        }
      }
      return names;
    };
    BOOST_TEST((names_of(trace) == names_of(threads.traces[rank])));
    for (const profiler::TraceRecord& record : trace.records) {
      BOOST_TEST(record.transfer_ns <= record.end_ns - record.start_ns);
      BOOST_TEST(record.start_ns >= trace.start_ns);
      BOOST_TEST(record.end_ns <= trace.end_ns);
    }
    // One clock: the steps of all ranks lie side by side.
    BOOST_TEST(trace.start_ns < processes.traces[0].end_ns);
    BOOST_TEST(processes.traces[0].start_ns < trace.end_ns);
  }
  BOOST_TEST(processes.trial.wall != "");
  double num_unmatched = 0;
  double num_matched = 0;
  std::set<int> ranks_with_memory;
  for (const store::MetricRow& metric : processes.metrics) {
    if (metric.name.starts_with("num_unmatched.")) num_unmatched += metric.value;
    if (metric.name.starts_with("num_matched.")) num_matched += metric.value;
    if (metric.name == "peak_bytes") ranks_with_memory.insert(metric.rank);
  }
  BOOST_TEST(num_matched > 0);
  BOOST_TEST(num_unmatched == 0);
  BOOST_TEST((ranks_with_memory == std::set<int>{-1, 0, 1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(a_process_that_fails_ends_all_and_says_why) {
  struct Case {
    spec::FaultKind fault;
    const char* status;
    const char* reason;
  };
  for (const Case& c : {Case{spec::FaultKind::error, "failed", "injected error (rank 2)"},
                        Case{spec::FaultKind::kill, "crashed", "killed by signal 9"}}) {
    BOOST_TEST_CONTEXT(spec::name_of(c.fault)) {
      spec::TrialSpec failing = trial(spec::CommunicatorKind::nccl);
      failing.fault = {c.fault, 3, 2};
      const Stored stored = run("simt_nccl_rank", failing);
      BOOST_TEST(stored.trial.status == c.status);
      BOOST_TEST_INFO(stored.trial.reason);
      BOOST_TEST(stored.trial.reason.find(c.reason) != std::string::npos);
      BOOST_TEST(stored.trial.reason.find("(rank 2)") != std::string::npos);
      BOOST_TEST(stored.steps.size() == 3U);
    }
  }
}

BOOST_AUTO_TEST_CASE(out_of_memory_on_a_process_is_out_of_memory) {
  spec::TrialSpec small = trial(spec::CommunicatorKind::nccl);
  small.hardware.memory_bytes = 200'000;
  const Stored stored = run("simt_nccl_rank", small);
  BOOST_TEST(stored.trial.status == "oom");
  BOOST_TEST(stored.trial.reason.starts_with("out of memory on rank"), stored.trial.reason);
  BOOST_TEST(stored.code == 10);
}

BOOST_AUTO_TEST_CASE(a_sweep_starts_the_processes_of_its_trials) {
  const spec::TrialSpec base = trial(spec::CommunicatorKind::nccl);
  json sweep = {{"name", "processes"},
                {"num_warmup_steps", 2},
                {"num_steps", 6},
                {"num_traced_steps", 1},
                {"knobs", {{"data_parallel_size", 2}}},
                {"space", {{"expert_model_parallel_size", {1, 2}}, {"ep_chunks_forward", {1, 2}}}},
                {"budget", {{"max_trials", 4}, {"max_seconds", 300}, {"trial_timeout_s", 120}}},
                {"scale_trials", 1},
                {"validate_steps", 4}};
  const json document = spec::to_json(base);
  for (const char* key :
       {"model", "hardware", "training", "data_path", "dtype", "backend", "communicator"}) {
    sweep[key] = document[key];
  }
  sweep["hardware"]["num_nodes"] = 1;
  sweep["hardware"]["devices_per_node"] = 2;
  std::ofstream(folder.file("sweep.json")) << sweep.dump();
  const std::string db = folder.file("runs.db");
  const int code =
      moetune("simt_nccl_rank", fmt::format("sweep {} --db {}", folder.file("sweep.json"), db));
  BOOST_TEST_INFO(text_of("err"));
  BOOST_TEST_REQUIRE(code == 0);
  int num_walls = 0;
  {
    const store::Store store = store::Store::open_read_only(db);
    for (const store::TrialRow& row : store.list_trials()) {
      BOOST_TEST_INFO(row.reason);
      BOOST_TEST((row.status == "ok" || row.status == "pruned" || row.status == "invalid"));
      const bool is_traced = !store.read_trace(row.id).empty();
      if (is_traced && row.is_baseline) BOOST_TEST(store.read_trace(row.id).size() == 2U);
      num_walls += row.wall.empty() ? 0 : 1;
    }
  }
  BOOST_TEST(num_walls >= 2);
  BOOST_TEST(moetune("simt_nccl_rank",
                     fmt::format("report {} --out {}", db, folder.file("page.html"))) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune
