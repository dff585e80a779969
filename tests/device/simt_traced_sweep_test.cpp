// The whole tuner over traced trials on the fake device: each has its records and a wall, and the
// report shows the timeline.
#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/step_parts.h"
#include "profiler/store/store.h"
#include "tests/profiler/temp_folder.h"

namespace moetune {
BOOST_AUTO_TEST_SUITE(traced_sweep)

namespace {

using nlohmann::json;

json sweep_file() {
  json model;
  std::ifstream(std::string(MOETUNE_SOURCE_DIR) + "/engine/models/quickstart_moe.json") >> model;
  model.update({{"hidden_size", 32},
                {"num_hidden_layers", 2},
                {"head_dim", 8},
                {"intermediate_size", 64},
                {"moe_intermediate_size", 16}});
  const json link = {{"latency_ns", 8000}, {"bytes_per_s", 1e9}};
  return {{"name", "traced"},
          {"model", model},
          {"hardware",
           {{"name", "fake"},
            {"num_nodes", 1},
            {"devices_per_node", 2},
            {"memory_bytes", int64_t{64} << 20},
            {"peak_flops_per_s", 1e9},
            {"memory_bytes_per_s", 1e9},
            {"intra_node", link},
            {"inter_node", link},
            {"launch_ns", 3000},
            {"graph_launch_ns", 5000},
            {"sync_ns", 5000},
            {"kernel_floor_ns", 1000}}},
          {"data_path", std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt"},
          {"backend", "cuda"},
          {"dtype", "bf16"},
          {"num_warmup_steps", 3},
          {"num_steps", 6},
          {"num_traced_steps", 1},
          {"training", {{"global_batch_size", 2}, {"seq_length", 32}, {"lr", 0.004}}},
          {"knobs", {{"data_parallel_size", 2}}},
          {"strategy", "three_walls"},
          {"space",
           {{"expert_model_parallel_size", {1, 2}},
            {"cuda_graph_modules", {"none", "attn,moe_router", "full_iteration"}}}},
          {"budget", {{"max_trials", 5}, {"max_seconds", 300}, {"trial_timeout_s", 120}}},
          {"validate_steps", 4}};
}

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

BOOST_AUTO_TEST_CASE(each_trial_has_records_and_a_wall) {
  const tests::TempFolder folder;
  std::ofstream(folder.file("sweep.json")) << sweep_file().dump();
  const std::string bin = MOETUNE_BIN_DIR;
  const int code =
      run(fmt::format("MOETUNE_RANK={0}/simt_traced_rank {0}/moetune sweep {1} --db {2} >{3} 2>&1",
                      bin, folder.file("sweep.json"), folder.file("runs.db"), folder.file("log")));
  BOOST_TEST_INFO(text_of(folder.file("log")));
  BOOST_TEST_REQUIRE(code == 0);

  const store::Store store = store::Store::open_read_only(folder.file("runs.db"));
  int num_traced = 0;
  for (const store::TrialRow& trial : store.list_trials()) {
    if (trial.status != "ok") continue;
    BOOST_TEST_CONTEXT("trial " << trial.ordinal << " of phase " << trial.phase) {
      for (const store::NamedText& text : store.read_texts(trial.id)) {
        if (text.name != "trace_note") continue;
        BOOST_TEST_INFO(text.value);
        // Events of earlier steps are waited for in the traced one.
        BOOST_TEST((text.value.starts_with("the device trace is incomplete: waits for unknown") &&
                    text.value.find(';') == std::string::npos));
      }
      const std::vector<profiler::StepTrace> traces = store.read_trace(trial.id);
      if (traces.empty()) continue;  // of the phases that are not for measuring
      ++num_traced;
      for (const auto& trace : traces) BOOST_TEST(!trace.records.empty());
      BOOST_TEST(trial.wall != "");
      BOOST_TEST(base::wall_from_name(trial.wall).has_value());
    }
  }
  BOOST_TEST(num_traced >= 2);

  BOOST_TEST(run(fmt::format("{}/moetune report {} --out {} >/dev/null", bin,
                             folder.file("runs.db"), folder.file("page.html"))) == 0);
  const std::string page = text_of(folder.file("page.html"));
  BOOST_TEST(page.find("No trace of the winner has been stored") == std::string::npos);
  BOOST_TEST(page.find("Buttons, the handles below or Ctrl and the wheel zoom") !=
             std::string::npos);
  BOOST_TEST(page.find("steps on the device are not traced") == std::string::npos);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune
