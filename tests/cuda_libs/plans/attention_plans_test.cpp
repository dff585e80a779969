// Attention's graphs on a Hopper card that is not there: cuDNN finds a kernel for each shape that
// the engine makes and compiles it, and takes the workspace that the memory model counts on. The
// devices are in h100.json and h200.json, the driver is tests/fakes/cuda_driver.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/plan/attention_workspace.h"
#include "engine/spec/sweep_spec.h"
#include "kernels/base/error.h"
#include "kernels/cuda/cudnn_attention.h"
#include "tests/spec/spec_samples.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_attention_plans)

namespace {

using cuda::AttentionSegment;
using cuda::CudnnAttention;

struct Case {
  int64_t batch, length, heads, kv_heads, width;
  int64_t window = 0;
  int cp = 1, cp_rank = 0;
  bool has_qk_norm = false;  ///< queries and keys are then buffers of their own

  [[nodiscard]] plan::LayerDims dims() const {
    plan::LayerDims dims;
    dims.sequences = batch;
    dims.context_tokens = batch * length;
    dims.tokens = dims.context_tokens / cp;
    dims.q = heads * width;
    dims.kv = kv_heads * width;
    dims.heads = heads;
    dims.kv_heads = kv_heads;
    dims.head_dim = width;
    dims.cp = cp;
    dims.has_qk_norm = has_qk_norm;
    return dims;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "batch " << c.batch << " keys " << c.length << " heads " << c.heads << "/"
             << c.kv_heads << " width " << c.width << " window " << c.window << " rank "
             << c.cp_rank << " of " << c.cp;
}

const Case kCases[] = {
    // Heads that share keys and heads that do not, whole sequences and odd lengths.
    {1, 4096, 32, 4, 128},
    {4, 128, 4, 4, 64},
    {1, 1000, 16, 4, 64},
    {4, 77, 8, 2, 128},
    {1, 333, 4, 2, 256},
    {2, 192, 8, 8, 80},
    {2, 48, 4, 2, 8},  // of the tests' models
    // Zig-zag shards: two runs, two runs whose second is added to packed gradients, one run.
    {1, 4096, 32, 4, 128, 0, 2, 0},
    {4, 512, 4, 4, 64, 0, 4, 1},
    {1, 36, 4, 2, 64, 0, 2, 0, true},
    {1, 4096, 32, 4, 128, 0, 2, 1, true},
    // Windows.
    {1, 2048, 16, 4, 64, 128},
    {1, 4096, 8, 2, 128, 1024, 2, 0},
};

/// At an address that nobody reads.
Tensor bf16(int64_t rows, int64_t cols) {
  return Tensor::matrix(reinterpret_cast<void*>(uintptr_t{1} << 20), DType::bf16, rows, cols);
}

/// A call with the strides that the engine gives it (engine/model/attention.cpp).
AttentionBackwardArgs args_of(const plan::LayerDims& dims, int64_t window) {
  const Tensor qkv = bf16(dims.tokens, dims.q + 2 * dims.kv);
  const Tensor all_keys = bf16(dims.context_tokens, 2 * dims.kv);
  const auto of_qkv = [&](int64_t begin, int64_t count) { return qkv.columns(begin, count); };
  AttentionBackwardArgs args;
  AttentionArgs& forward = args.forward;
  forward.q = dims.has_qk_norm ? bf16(dims.tokens, dims.q) : of_qkv(0, dims.q);
  forward.k = dims.has_qk_norm ? bf16(dims.tokens, dims.kv) : of_qkv(dims.q, dims.kv);
  forward.v = of_qkv(dims.q + dims.kv, dims.kv);
  forward.out = args.dout = bf16(dims.tokens, dims.q);
  args.dq = of_qkv(0, dims.q);
  args.dk = of_qkv(dims.q, dims.kv);
  args.dv = of_qkv(dims.q + dims.kv, dims.kv);
  if (dims.cp > 1) {
    forward.k = args.dk = all_keys.columns(0, dims.kv);
    forward.v = args.dv = all_keys.columns(dims.kv, dims.kv);
  }
  forward.batch = dims.sequences;
  forward.heads = dims.heads;
  forward.kv_heads = dims.kv_heads;
  forward.window = window;
  forward.scale = 1.0 / std::sqrt(static_cast<double>(dims.head_dim));
  return args;
}

std::vector<AttentionSegment> runs_of(const plan::LayerDims& dims, int cp_rank) {
  plan::Layout layout;
  layout.cp = static_cast<int>(dims.cp);
  return cuda::segments_of(
      plan::local_positions(layout, cp_rank, dims.context_tokens / dims.sequences));
}

CudnnAttention attention_of(const std::string& device) {
  return {{spec::samples::read_file("tests/cuda_libs/plans/" + device + ".json"), 90}, {}};
}

void check_plans(const std::string& device, const plan::LayerDims& dims, int64_t window,
                 int cp_rank) {
  CudnnAttention attention = attention_of(device);
  const AttentionBackwardArgs args = args_of(dims, window);
  const std::vector<AttentionSegment> runs = runs_of(dims, cp_rank);
  BOOST_TEST_REQUIRE(attention.is_supported(args.forward, runs), attention.last_refusal());
  BOOST_TEST_REQUIRE(attention.is_supported(args, runs), attention.last_refusal());
  BOOST_TEST(attention.num_cached() == static_cast<int64_t>(2 * runs.size()));
  plan::LayerDims of_rank = dims;
  of_rank.cp_rank = cp_rank;
  const int64_t expected = plan::attention_workspace_bytes(of_rank);
  BOOST_TEST(attention.backward_workspace_bytes(args, runs) == expected);
  BOOST_TEST(attention.forward_workspace_bytes(args.forward, runs) < expected);
}

const char* const kDevices[] = {"h100", "h200"};
const std::pair<const char*, int64_t> kTrials[] = {{"single-gpu", 4}, {"single-gpu-full", 1}};

}  // namespace

BOOST_DATA_TEST_CASE(every_shape_has_its_kernels, boost::unit_test::data::make(kCases), c) {
  check_plans("h100", c.dims(), c.window, c.cp_rank);
}

// The trials that run on a card first.
BOOST_DATA_TEST_CASE(so_have_the_sweeps_for_one_card, boost::unit_test::data::make(kDevices),
                     device) {
  for (const auto& [name, batch] : kTrials) {
    BOOST_TEST_CONTEXT(name << " with micro-batches of " << batch) {
      const std::string path = std::string("sweeps/configs/") + name + ".json";
      spec::TrialSpec trial =
          spec::sweep_from_json(spec::parse_json(spec::samples::read_file(path), path), path,
                                std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs")
              .base;
      trial.knobs.micro_batch_size = batch;
      const plan::LayerDims dims =
          plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, 0);
      check_plans(device, dims, trial.model.attention_window.front(), 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_described_device_runs_nothing) {
  CudnnAttention attention = attention_of("h100");
  const plan::LayerDims dims = Case{1, 64, 2, 2, 64}.dims();
  const AttentionBackwardArgs args = args_of(dims, 0);
  const std::vector<AttentionSegment> runs = runs_of(dims, 0);
  std::string message;
  try {
    attention.forward(nullptr, args.forward, runs, [&](int64_t) { return args.forward.out.data; });
  } catch (const base::Error& error) {
    message = error.what();
  }
  BOOST_TEST(message.find("only described") != std::string::npos, message);
}

BOOST_AUTO_TEST_CASE(a_description_that_is_none_is_refused) {
  BOOST_CHECK_THROW(CudnnAttention({"{", 90}, CudnnAttention::Options{}), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
