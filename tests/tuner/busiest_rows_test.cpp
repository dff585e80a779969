// What uneven routing makes of a rank's rows and of the step.
#include "tuner/busiest_rows.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <utility>

#include "engine/plan/compile.h"
#include "tests/spec/spec_samples.h"
#include "tuner/cost_model.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(busiest_rows)

namespace {

constexpr int64_t kSequences = 8;
constexpr int64_t kTokens = 64;  ///< of a sequence
constexpr int64_t kTopK = 2;
constexpr int64_t kExperts = 8;

spec::TrialSpec trial() {
  spec::TrialSpec made = spec::samples::trial();
  made.knobs = {};
  made.knobs.data_parallel_size = 4;
  made.knobs.expert_model_parallel_size = 4;
  made.hardware.num_nodes = 1;
  made.hardware.devices_per_node = 4;
  made.hardware.peak_flops_per_s = 1e9;  // slow devices: work is what counts
  made.hardware.memory_bytes_per_s = 1e9;
  made.training.global_batch_size = kSequences;
  made.training.seq_length = kTokens;
  return made;
}

/// `share` of the rows of step 0 go to the first two experts, which are rank 0's, and all of them
/// are spread evenly in step 1.
ReceivedRows profile_of(const spec::TrialSpec& spec, double share, int64_t num_steps = 1) {
  spec::RoutingProfile profile;
  profile.num_steps = num_steps;
  profile.num_layers = spec.model.num_moe_layers();
  profile.num_sequences = kSequences;
  profile.num_pieces = 1;
  profile.num_experts = kExperts;
  const int64_t rows = kTokens * kTopK;
  for (int64_t step = 0; step < num_steps; ++step) {
    const double of_first = step == 0 ? share : 2.0 / kExperts;
    const auto first = static_cast<int32_t>(of_first * static_cast<double>(rows) / 2);
    for (int64_t i = 0; i < profile.num_layers * kSequences; ++i) {
      for (int64_t expert = 0; expert < kExperts; ++expert) {
        profile.counts.push_back(
            expert < 2 ? first : static_cast<int32_t>((rows - 2 * first) / (kExperts - 2)));
      }
    }
  }
  return {profile, spec.model, spec.training};
}

int64_t received(const spec::TrialSpec& spec, int rank, const ReceivedRows& rows) {
  return BusiestBindings(spec, plan::compile(spec, rank), rows).at(0, 0).num_received;
}

BOOST_AUTO_TEST_CASE(every_rank_waits_for_the_one_that_gets_most) {
  const spec::TrialSpec spec = trial();
  const int64_t all = 4 * kTokens * kTopK;
  for (int rank = 0; rank < 4; ++rank) {
    BOOST_TEST(received(spec, rank, {}) == all / 4);
    BOOST_TEST(received(spec, rank, profile_of(spec, 0.25)) == all / 4);
    BOOST_TEST(received(spec, rank, profile_of(spec, 0.625)) == all * 5 / 8);
  }
}

BOOST_AUTO_TEST_CASE(steps_that_the_trial_times_count_alike) {
  spec::TrialSpec spec = trial();
  const ReceivedRows rows = profile_of(spec, 0.75, 2);
  const int64_t all = 4 * kTokens * kTopK;
  spec.num_warmup_steps = 0;
  spec.num_steps = 2;
  BOOST_TEST(received(spec, 0, rows) == all / 2);
  spec.num_warmup_steps = 1;
  BOOST_TEST(received(spec, 0, rows) == all / 4);
  // A profile of fewer steps than the warm-up says what it can.
  spec.num_warmup_steps = 5;
  BOOST_TEST(received(spec, 0, rows) == all / 4);
}

BOOST_AUTO_TEST_CASE(chunks_share_the_rows) {
  spec::TrialSpec spec = trial();
  spec.knobs.ep_chunks_forward = 2;
  spec.knobs.ep_chunks_backward = 4;
  const ReceivedRows rows = profile_of(spec, 0.625);
  const BusiestBindings bindings(spec, plan::compile(spec, 1), rows);
  const plan::Route& route = bindings.at(0, 0);
  for (const auto* direction : {&route.forward, &route.backward}) {
    int64_t sum = 0;
    for (const plan::ChunkRoute& chunk : *direction) sum += chunk.num_received;
    BOOST_TEST(sum == route.num_received);
  }
}

BOOST_AUTO_TEST_CASE(uneven_counts_lose_no_row) {
  for (const auto& [ep, etp] : {std::pair(4, 1), std::pair(2, 2), std::pair(1, 4)}) {
    spec::TrialSpec spec = trial();
    spec.knobs.expert_model_parallel_size = ep;
    spec.knobs.expert_tensor_parallel_size = etp;
    spec.knobs.ep_chunks_backward = 3;
    const plan::LayerDims dims = plan::layer_dims(spec.model, spec.knobs, kTokens, 0);
    const int64_t all = dims.expert_ranks * dims.tokens * dims.topk;
    for (const int64_t rows : {int64_t{0}, int64_t{7}, all / 3, all, all + 5}) {
      for (int64_t own = 0; own < dims.expert_ranks; ++own) {
        const std::vector<int32_t> counts = plan::uneven_counts(dims, own, rows);
        // Each row once for every slice of its expert, forward and backward.
        int64_t sum = 0;
        for (const int32_t count : counts) sum += count;
        BOOST_TEST(sum == 2 * etp * all);
        const int64_t expected = ep == 1 ? all : std::min(rows, all);
        BOOST_TEST(plan::make_route(dims, own, counts).num_received == expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_step_is_longer_by_the_work_of_the_busiest) {
  spec::TrialSpec spec = trial();
  const int64_t even = play_step(spec, {}, profile_of(spec, 0.25)).step_ns;
  BOOST_TEST(even == play_step(spec, {}).step_ns);
  const int64_t uneven = play_step(spec, {}, profile_of(spec, 0.5)).step_ns;
  const int64_t all_in_one = play_step(spec, {}, profile_of(spec, 1)).step_ns;
  BOOST_TEST(uneven > even);
  BOOST_TEST(all_in_one - even > 2 * (uneven - even));
  // Without expert parallelism all experts are everywhere.
  spec.knobs.expert_model_parallel_size = 1;
  BOOST_TEST(play_step(spec, {}, profile_of(spec, 1)).step_ns == play_step(spec, {}).step_ns);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
