// What the memory model adds on a real device. tests/engine/memory_model_test.cpp has the model
// against the ledger of real runs.
#include "tuner/memory_model.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/spec/sweep_spec.h"
#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(memory_model)

namespace {

using spec::BackendKind;
using spec::DType;

/// Two context-parallel and two data-parallel ranks on each of two stages; heads of 8.
spec::TrialSpec trial(BackendKind backend, DType dtype) {
  spec::TrialSpec made = spec::samples::trial();
  made.backend = backend;
  made.dtype = dtype;
  made.training.global_batch_size = 8;
  made.training.seq_length = 64;
  made.hardware.memory_bytes = 0;
  return made;
}

/// How much more each rank's peak and its workspaces are with `more` than with `less`.
std::vector<int64_t> difference(const spec::TrialSpec& more, const spec::TrialSpec& less,
                                const ReceivedRows& rows = {}) {
  const std::vector<RankMemory> with = estimate_memory(more, rows).ranks;
  const std::vector<RankMemory> without = estimate_memory(less, rows).ranks;
  BOOST_TEST_REQUIRE(with.size() == without.size());
  constexpr auto kWorkspace = static_cast<size_t>(MemoryGroup::workspace);
  std::vector<int64_t> bytes;
  for (size_t rank = 0; rank < with.size(); ++rank) {
    bytes.push_back(with[rank].peak_bytes - without[rank].peak_bytes);
    BOOST_TEST(with[rank].group_bytes[kWorkspace] - without[rank].group_bytes[kWorkspace] ==
               bytes.back());
  }
  return bytes;
}

BOOST_AUTO_TEST_CASE(attention_of_bf16_has_a_workspace_on_a_real_device) {
  // 16 rows that see 64 keys, and 32 rows in the middle that see 48; 4 heads of 8, 2 for keys:
  // statistics, then the graph's own bytes, each aligned to 256.
  constexpr int64_t kOuter = 256 + (4 * 16 * 8 * 4 + 4 * 16 * 4 + 4 * 64 * 8 * 4 + 256);
  constexpr int64_t kMiddle = 512 + (4 * 32 * 8 * 4 + 4 * 32 * 4 + 4 * 48 * 8 * 4 + 256);
  const std::vector<int64_t> expected = {kOuter, kMiddle, kOuter, kMiddle,
                                         kOuter, kMiddle, kOuter, kMiddle};
  BOOST_TEST(difference(trial(BackendKind::cuda, DType::bf16),
                        trial(BackendKind::cpu, DType::bf16)) == expected,
             boost::test_tools::per_element());
  BOOST_TEST(difference(trial(BackendKind::cuda, DType::f32),
                        trial(BackendKind::cpu, DType::f32)) == std::vector<int64_t>(8, 0),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(it_comes_beside_what_the_hardware_file_says) {
  spec::TrialSpec more = trial(BackendKind::cuda, DType::bf16);
  more.hardware.workspace_bytes = 4096;
  BOOST_TEST(
      difference(more, trial(BackendKind::cuda, DType::bf16)) == std::vector<int64_t>(8, 4096),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(where_rows_are_not_known_the_most_is_told) {
  spec::TrialSpec spread = trial(BackendKind::cpu, DType::f32);
  spread.knobs.expert_model_parallel_size = 4;
  const MemoryEstimate guessed = estimate_memory(spread, {});
  BOOST_TEST(!guessed.is_exact);
  BOOST_TEST(guessed.most_peak_bytes > guessed.peak_bytes);
  // Each rank of four with all rows of its group.
  BOOST_TEST(guessed.most_peak_bytes ==
             estimate_memory(spread, CompiledStep(spread), {}, 4).peak_bytes);
  spread.knobs.expert_model_parallel_size = 1;
  spread.knobs.expert_tensor_parallel_size = 1;
  const MemoryEstimate known = estimate_memory(spread, {});
  BOOST_TEST(known.is_exact);
  BOOST_TEST(known.most_peak_bytes == known.peak_bytes);
}

BOOST_AUTO_TEST_CASE(a_16k_sequence_needs_half_a_gigabyte) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs";
  const char* const path = "sweeps/configs/single-gpu-full.json";
  const spec::TrialSpec real =
      spec::sweep_from_json(spec::parse_json(spec::samples::read_file(path), path), path, folder)
          .base;
  spec::TrialSpec emulated = real;
  emulated.backend = spec::BackendKind::cpu;
  const std::vector<int64_t> bytes = difference(real, emulated);
  BOOST_TEST_REQUIRE(bytes.size() == 1U);
  BOOST_TEST(bytes.front() - real.hardware.workspace_bytes == 541'065'472);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
