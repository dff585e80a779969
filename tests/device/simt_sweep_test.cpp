// The whole tuner over the CUDA backend: sweeps on virtual ranks and over one rank of a large
// layout, their trials trained on the fake device, ending in a report.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/profiler/temp_folder.h"

namespace moetune {
BOOST_AUTO_TEST_SUITE(device_sweep)

namespace {

using nlohmann::json;

json sweep(const char* name, int num_devices) {
  json model;
  std::ifstream(std::string(MOETUNE_SOURCE_DIR) + "/engine/models/quickstart_moe.json") >> model;
  model.update({{"hidden_size", 32},
                {"num_hidden_layers", 2},
                {"head_dim", 8},
                {"intermediate_size", 64},
                {"moe_intermediate_size", 16}});
  const json link = {{"latency_ns", 8000}, {"bytes_per_s", 1e9}};
  return {{"name", name},
          {"model", model},
          {"hardware",
           {{"name", "fake"},
            {"num_nodes", 1},
            {"devices_per_node", num_devices},
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
          {"training", {{"global_batch_size", num_devices}, {"seq_length", 32}, {"lr", 0.004}}},
          {"knobs", {{"data_parallel_size", num_devices}}},
          {"space",
           {{"expert_model_parallel_size", {1, 2}},
            {"cuda_graph_modules", {"none", "attn,moe_router", "full_iteration"}}}},
          {"budget", {{"max_trials", 6}, {"max_seconds", 300}, {"trial_timeout_s", 120}}},
          {"scale_trials", 1},
          {"validate_steps", 4}};
}

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Runs the sweep and gives its trials.
json trials_of(const tests::TempFolder& folder, const json& file) {
  std::ofstream(folder.file("sweep.json")) << file.dump();
  const std::string bin = MOETUNE_BIN_DIR;
  const int code =
      run(fmt::format("MOETUNE_RANK={0}/simt_rank {0}/moetune sweep {1} --db {2} >{3} 2>&1", bin,
                      folder.file("sweep.json"), folder.file("runs.db"), folder.file("log")));
  std::ifstream log(folder.file("log"));
  BOOST_TEST_INFO(std::string(std::istreambuf_iterator<char>(log), {}));
  BOOST_TEST_REQUIRE(code == 0);
  BOOST_TEST(run(fmt::format("{}/moetune report {} --out {} >/dev/null", bin,
                             folder.file("runs.db"), folder.file("page.html"))) == 0);
  BOOST_TEST_REQUIRE(run(fmt::format("{}/moetune ls {} --format json >{}", bin,
                                     folder.file("runs.db"), folder.file("ls.json"))) == 0);
  json listed;
  std::ifstream(folder.file("ls.json")) >> listed;
  return listed.is_array() ? listed : listed.at("trials");
}

std::string page(const tests::TempFolder& folder) {
  std::ifstream in(folder.file("page.html"));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

int64_t count_ok(const json& trials) {
  return std::count_if(trials.begin(), trials.end(),
                       [](const json& trial) { return trial.at("status") == "ok"; });
}

BOOST_AUTO_TEST_CASE(virtual_ranks_of_one_device) {
  const tests::TempFolder folder;
  const json trials = trials_of(folder, sweep("virtual", 2));
  // The reference, the baseline and at least one more.
  BOOST_TEST(count_ok(trials) >= 3);
  BOOST_TEST(page(folder).find("share one device") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(one_rank_of_a_large_layout) {
  const tests::TempFolder folder;
  json file = sweep("fake", 16);
  file["communicator"] = "fake";
  file["fake_rank"] = 3;
  const json trials = trials_of(folder, file);
  BOOST_TEST(count_ok(trials) >= 2);
  BOOST_TEST(page(folder).find("made up") != std::string::npos);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune
