// Miniatures: their proportions, and that they can be trained.
#include "tuner/miniature.h"

#include <boost/test/unit_test.hpp>

#include "engine/spec/trial_spec.h"
#include "kernels/base/error.h"
#include "tuner/memory_model.h"

namespace moetune::tuner {

BOOST_AUTO_TEST_SUITE(miniatures)

namespace {

spec::ModelSpec large_model() {
  spec::ModelSpec model;
  model.family = "qwen3_moe";
  model.vocab_size = 151936;
  model.hidden_size = 2048;
  model.num_layers = 48;
  model.num_heads = 32;
  model.num_kv_heads = 4;
  model.head_dim = 128;
  model.num_experts = 128;
  model.experts_per_token = 8;
  model.moe_ffn_size = 768;
  model.is_moe_layer.assign(48, true);
  model.attention_window.assign(48, 0);
  model.max_position_embeddings = 40960;
  model.has_qk_norm = true;
  return model;
}

spec::HardwareSpec cluster() {
  spec::HardwareSpec hardware;
  hardware.name = "2 nodes";
  hardware.num_nodes = 2;
  hardware.devices_per_node = 8;
  hardware.memory_bytes = 80'000'000'000;
  hardware.peak_flops_per_s = 989e12;
  hardware.memory_bytes_per_s = 3.35e12;
  hardware.intra_node = {10'000, 450e9};
  hardware.inter_node = {20'000, 50e9};
  hardware.launch_ns = 4000;
  return hardware;
}

spec::HardwareSpec cpu() {
  spec::HardwareSpec hardware;
  hardware.name = "cpu";
  hardware.peak_flops_per_s = 1e11;
  hardware.memory_bytes_per_s = 2.7e10;
  return hardware;
}

Miniature miniature() { return miniature_of(large_model(), cluster(), {4096, 64}, cpu()); }

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_that_the_engine_does_not_run_has_none) {
  spec::ModelSpec model = large_model();
  model.layer_kinds.assign(48, {spec::Mixer::mla, spec::FeedForward::moe});
  BOOST_CHECK_EXCEPTION(static_cast<void>(miniature_of(model, cluster(), {4096, 64}, cpu())),
                        base::UsageError, [](const base::UsageError& error) {
                          return std::string(error.what()).find("multi-head latent attention") !=
                                 std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(a_large_model_becomes_one_that_a_cpu_trains) {
  const Miniature mini = miniature();
  BOOST_TEST(!is_trainable_on_cpu(large_model(), 4096));
  BOOST_TEST(is_trainable_on_cpu(mini.model, 4096));
  BOOST_TEST(mini.model.num_experts == 16);
  BOOST_TEST(mini.model.num_moe_layers() == mini.model.num_layers);
  // q is twice as wide as the residual stream, there and here.
  BOOST_TEST(mini.model.q_size() == 2 * mini.model.hidden_size);
  // What the engine refuses would be refused here.
  spec::TrialSpec trial;
  trial.model = mini.model;
  trial.hardware = mini.hardware;
  trial.training.seq_length = 64;
  trial.training.global_batch_size = 32;
  trial.knobs.data_parallel_size = 16;
  trial.knobs.expert_model_parallel_size = 16;
  BOOST_TEST(spec::check_constraints(spec::parts_of(trial)).empty());
}

BOOST_AUTO_TEST_CASE(proportions_are_those_of_the_cluster) {
  const Miniature mini = miniature();
  const auto& there = cluster();
  const auto& here = mini.hardware;
  // One factor for all times, one for both links; two digits are kept.
  const auto ratio = [](auto a, auto b) { return static_cast<double>(a) / static_cast<double>(b); };
  const double times = ratio(here.launch_ns, there.launch_ns);
  BOOST_TEST(ratio(here.intra_node.latency_ns, there.intra_node.latency_ns) == times,
             boost::test_tools::tolerance(0.06));
  BOOST_TEST(ratio(here.inter_node.latency_ns, there.inter_node.latency_ns) == times,
             boost::test_tools::tolerance(0.06));
  BOOST_TEST(here.inter_node.bytes_per_s / here.intra_node.bytes_per_s == 50.0 / 450,
             boost::test_tools::tolerance(0.06));
}

// Sending a sequence's hidden states to the chosen experts, over their products: by hand.
BOOST_AUTO_TEST_CASE(an_exchange_costs_the_same_share_of_the_experts) {
  const Miniature mini = miniature();
  const spec::ModelSpec& m = mini.model;
  const auto share = [](double tokens, double chosen, double hidden, double ffn, double bytes,
                        double bytes_per_s, double flops_per_s) {
    const double sent_s = tokens * chosen * hidden * bytes / bytes_per_s;
    return sent_s / (2 * tokens * chosen * hidden * 3 * ffn / flops_per_s);
  };
  const double there = share(4096, 8, 2048, 768, 2, 450e9, 989e12 / 4);
  const double here =
      share(64, static_cast<double>(m.experts_per_token), static_cast<double>(m.hidden_size),
            static_cast<double>(m.moe_ffn_size), 4, mini.hardware.intra_node.bytes_per_s, 1e11);
  BOOST_TEST(here == there, boost::test_tools::tolerance(0.06));
}

// Twice the memory there is twice the memory here, and what shards over all devices fills the same
// share: by hand for the states, which are most of it there.
BOOST_AUTO_TEST_CASE(memory_holds_the_same_share_of_a_layout) {
  const Miniature mini = miniature();
  spec::HardwareSpec twice = cluster();
  twice.memory_bytes *= 2;
  const Miniature larger = miniature_of(large_model(), twice, {4096, 64}, cpu());
  BOOST_TEST(static_cast<double>(larger.hardware.memory_bytes) ==
                 2.0 * static_cast<double>(mini.hardware.memory_bytes),
             boost::test_tools::tolerance(0.01));
  spec::TrialSpec trial;
  trial.model = mini.model;
  trial.hardware = mini.hardware;
  trial.training.seq_length = 64;
  trial.training.global_batch_size = 16;
  trial.knobs.data_parallel_size = 16;
  trial.knobs.expert_model_parallel_size = 16;
  const auto share = static_cast<double>(estimate_memory(trial, ReceivedRows()).peak_bytes) /
                     static_cast<double>(mini.hardware.memory_bytes);
  // Weights and gradients in bf16 and fp32 of what is not an expert, an experts' 16th of 18 bytes.
  BOOST_TEST(share > 0.3);
  BOOST_TEST(share < 1);
}

BOOST_AUTO_TEST_CASE(many_devices_become_sixteen) {
  spec::HardwareSpec many = cluster();
  many.num_nodes = 8;
  const Miniature mini = miniature_of(large_model(), many, {4096, 64}, cpu());
  BOOST_TEST(mini.hardware.num_devices() == 16);
  BOOST_TEST(mini.hardware.devices_per_node == 8);
}

BOOST_AUTO_TEST_CASE(a_dense_model_has_a_miniature_too) {
  spec::ModelSpec dense = large_model();
  dense.family = "llama";
  dense.num_experts = dense.experts_per_token = dense.moe_ffn_size = 0;
  dense.ffn_size = 8192;
  dense.is_moe_layer.assign(48, false);
  const Miniature mini = miniature_of(dense, cluster(), {4096, 64}, cpu());
  BOOST_TEST(mini.model.num_experts == 0);
  BOOST_TEST(mini.model.ffn_size == 512);
  BOOST_TEST(mini.hardware.intra_node.bytes_per_s > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner
