// Whole trials on the fake device: what is stored, and what becomes of a device that is not there,
// too old, too small, or fails in the middle.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/run_trial.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "tests/engine/parity_fixture.h"
#include "tests/fakes/simt/simt_device.h"

namespace moetune::engine {
namespace {

namespace fs = std::filesystem;
using testing::knobs_of;

struct DeviceFixture {
  DeviceFixture()
      : folder(fs::temp_directory_path() / fmt::format("moetune_simt_trial_test-{}", getpid())) {
    fs::remove_all(folder);
  }
  ~DeviceFixture() {
    simt::reset();
    fs::remove_all(folder);
  }
  DeviceFixture(const DeviceFixture&) = delete;
  DeviceFixture& operator=(const DeviceFixture&) = delete;

  static spec::TrialSpec trial(const std::string& knobs) {
    spec::ModelSpec model = testing::tiny_model();
    model.vocab_size = 256;
    spec::TrialSpec made = testing::tiny_trial(model, knobs_of(knobs));
    made.backend = spec::BackendKind::cuda;
    made.clock = spec::ClockMode::wall;
    made.dtype = spec::DType::bf16;
    made.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
    made.num_warmup_steps = 3;
    made.num_steps = 2;
    made.num_traced_steps = 1;
    return made;
  }

  /// The exit code that the program would end with, and its message.
  std::pair<spec::ExitCode, std::string> run(const spec::TrialSpec& spec,
                                             const RunOptions& options = {}) const {
    fs::remove_all(folder);
    try {
      return {run_trial(spec, folder.string(), options), ""};
    } catch (const std::exception& error) {
      return {exit_code_of(error), error.what()};
    }
  }

  store::ShardContents shard() const { return store::read_shard((folder / "shard-0.db").string()); }

  fs::path folder;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_FIXTURE_TEST_SUITE(device_trial, DeviceFixture)

BOOST_AUTO_TEST_CASE(a_trial_stores_steps_graphs_and_where_the_memory_went) {
  const auto [code, message] =
      run(trial(R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
                    "cuda_graph_modules": "attn,moe_router"})"));
  BOOST_TEST(message == "");
  BOOST_TEST_REQUIRE((code == spec::ExitCode::ok));
  const store::ShardContents contents = shard();
  BOOST_TEST(contents.steps.size() == 6U);
  BOOST_TEST(contents.memory.size() == 2U);
  double num_graphs = 0;
  for (const auto& metric : contents.metrics) {
    if (metric.name == "num_graphs") num_graphs += metric.value;
  }
  BOOST_TEST(num_graphs > 0);
  const std::string account = contents.text("device_memory");
  const std::string note = contents.text("trace_note");
  // Nothing can be traced on a fake device, and the trial says so instead of failing.
  BOOST_TEST(note != "");
  const nlohmann::json json = nlohmann::json::parse(account);
  BOOST_TEST(json["ranks"].size() == 2U);
  int64_t sum = 0;
  for (const auto& rank : json["ranks"]) {
    for (const auto& line : rank["lines"]) sum += line["bytes"].get<int64_t>();
  }
  // The fake device holds what was asked of it and nothing else: every byte is explained.
  BOOST_TEST(sum == json["driver_used_bytes"].get<int64_t>());
}

BOOST_AUTO_TEST_CASE(workspaces_of_kernels_are_in_the_ledger_and_count_against_the_capacity) {
  spec::TrialSpec spec = trial("{}");
  BOOST_TEST_REQUIRE((run(spec).first == spec::ExitCode::ok));
  const store::ShardContents contents = shard();
  double workspace_bytes = 0;
  for (const auto& metric : contents.metrics) {
    if (metric.name == "kernel_workspace_bytes") workspace_bytes = metric.value;
  }
  BOOST_TEST(workspace_bytes > 0);
  // Room for all but half of them: without the booking it would fit.
  spec.hardware.memory_bytes =
      contents.memory.front().peak_bytes - static_cast<int64_t>(workspace_bytes / 2);
  BOOST_TEST((run(spec).first == spec::ExitCode::oom));
  spec.hardware.memory_bytes = contents.memory.front().peak_bytes;
  BOOST_TEST((run(spec).first == spec::ExitCode::ok));
}

BOOST_AUTO_TEST_CASE(the_end_says_how_long_a_step_took_and_what_tracing_added) {
  std::string line;
  RunOptions options;
  options.on_summary = [&](const std::string& text) { line = text; };
  BOOST_TEST_REQUIRE((run(trial("{}"), options).first == spec::ExitCode::ok));
  BOOST_TEST(contains(line, "median of 2 steps; tracing "), line);
}

BOOST_AUTO_TEST_CASE(each_way_of_having_no_device_has_its_code) {
  const spec::TrialSpec spec = trial("{}");
  simt::set_device_count(0);
  auto [code, message] = run(spec);
  BOOST_TEST((code == spec::ExitCode::no_device));
  BOOST_TEST(contains(message, "no GPU to use"));
  simt::reset();

  simt::set_failure("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  std::tie(code, message) = run(spec);
  BOOST_TEST((code == spec::ExitCode::no_driver));
  BOOST_TEST(contains(message, "no NVIDIA driver"));
  simt::reset();

  simt::set_compute_capability(7, 5);
  std::tie(code, message) = run(spec);
  BOOST_TEST((code == spec::ExitCode::device_too_old));
  BOOST_TEST(contains(message, "compute capability 7.5, needed is 8.0"));
}

BOOST_AUTO_TEST_CASE(a_device_that_is_too_small_is_out_of_memory) {
  simt::set_memory_capacity(int64_t{9} << 20);
  const auto [code, message] = run(trial(R"({"data_parallel_size": 2})"));
  BOOST_TEST((code == spec::ExitCode::oom));
  BOOST_TEST(contains(message, ", as the driver says'"));
  BOOST_TEST(contains(message, "of 9.00 MiB are in use"));
  simt::reset();
  // By the ledger's capacity as well, before the device is asked.
  spec::TrialSpec small = trial("{}");
  small.hardware.memory_bytes = 100'000;
  const auto [ledger_code, ledger_message] = run(small);
  BOOST_TEST((ledger_code == spec::ExitCode::oom));
  BOOST_TEST(contains(ledger_message, "'layers."));
  BOOST_TEST(!contains(ledger_message, "driver"));
}

BOOST_AUTO_TEST_CASE(memory_that_others_hold_is_no_result_of_a_trial) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  simt::set_memory_of_others(80 * kGiB - (int64_t{9} << 20));
  const auto [code, message] = run(trial(R"({"data_parallel_size": 2})"));
  BOOST_TEST((code == spec::ExitCode::environment));
  BOOST_TEST(contains(message, "other programs held 79.0 GiB of GPU 0's 80.0 GiB"), message);
  // Of no use, where the trial is too large for an empty device.
  simt::set_memory_capacity(2 * kGiB + (int64_t{9} << 20));
  simt::set_memory_of_others(2 * kGiB);
  spec::TrialSpec large = trial("{}");
  large.model.vocab_size = int64_t{64} << 20;
  const auto [large_code, large_message] = run(large);
  BOOST_TEST((large_code == spec::ExitCode::oom), large_message);
  simt::reset();
  // Not even room for a context.
  simt::set_failure("cudaFree", cudaErrorMemoryAllocation, 0);
  const auto [no_code, no_message] = run(trial("{}"));
  BOOST_TEST((no_code == spec::ExitCode::environment));
  BOOST_TEST(contains(no_message, "no memory on GPU 0"));
}

BOOST_AUTO_TEST_CASE(a_device_that_fails_ends_all_ranks_with_its_error) {
  for (const char* function : {"cudaEventRecord", "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
    BOOST_TEST_CONTEXT(function) {
      simt::set_failure(function, cudaErrorIllegalAddress, 40);
      const auto [code, message] =
          run(trial(R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})"));
      BOOST_TEST((code == spec::ExitCode::device_failed));
      BOOST_TEST(contains(message, "cudaErrorIllegalAddress"));
      simt::reset();
    }
  }
}

BOOST_AUTO_TEST_CASE(other_failures_keep_their_codes) {
  BOOST_TEST((exit_code_of(base::UsageError("x")) == spec::ExitCode::usage));
  BOOST_TEST((exit_code_of(base::WrongNumbers("x")) == spec::ExitCode::wrong));
  BOOST_TEST((exit_code_of(base::PeerFailed("x")) == spec::ExitCode::peer_failed));
  BOOST_TEST((exit_code_of(base::DeviceFailed("x")) == spec::ExitCode::device_failed));
  BOOST_TEST((exit_code_of(base::EnvironmentFailure("x")) == spec::ExitCode::environment));
  BOOST_TEST((exit_code_of(std::bad_alloc()) == spec::ExitCode::environment));
  BOOST_TEST((exit_code_of(base::Error("x")) == spec::ExitCode::failed));
  BOOST_TEST((exit_code_of(std::runtime_error("x")) == spec::ExitCode::failed));
}

BOOST_AUTO_TEST_CASE(one_rank_of_a_fake_world_is_a_trial) {
  spec::TrialSpec spec = trial(R"({"data_parallel_size": 8, "expert_model_parallel_size": 4})");
  spec.training.global_batch_size = 8;
  spec.communicator = spec::CommunicatorKind::fake;
  spec.fake_rank = 5;
  spec.reference_loss = {100, 100};  // not compared: the numbers of the others are made up
  const auto [code, message] = run(spec);
  BOOST_TEST(message == "");
  BOOST_TEST((code == spec::ExitCode::ok));
  BOOST_TEST_REQUIRE(shard().memory.size() == 1U);
  BOOST_TEST(shard().memory.front().rank == 5);
  spec.fake_rank = 8;
  BOOST_TEST((run(spec).first == spec::ExitCode::usage));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
