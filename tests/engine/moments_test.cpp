// AdamW's moments in bf16: every layout rounds them like one rank does, and both copies of a tied
// embedding alike.
#include <boost/test/unit_test.hpp>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(moments)

namespace {

using plan::BucketPart;
using testing::knobs_of;

constexpr int64_t kSteps = 4;
constexpr const char* kNarrow = R"("exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})";

/// A part of the buckets, of all ranks, by parameter and element of the whole parameter.
std::map<std::string, std::vector<double>> gathered(const spec::TrialSpec& trial, BucketPart part) {
  std::map<std::string, std::vector<double>> all;
  std::mutex mutex;
  const testing::RandomTokens tokens(trial);
  TrainerHooks hooks;
  hooks.on_gradients = [&](int64_t step, const Parameters& params, kernels::Backend& backend) {
    if (step + 1 < kSteps) return;
    const std::scoped_lock lock(mutex);
    for (const plan::ParamDesc& param : params.plan().params) {
      const auto number = static_cast<size_t>(param.bucket);
      const Bucket& bucket = params.buckets()[number];
      const std::vector<double> values = values_of(backend, params.bucket_part(number, part));
      std::vector<double>& whole = all[param.is_tied_copy ? "tied copy" : param.name];
      const int64_t begin = std::max(param.offset, bucket.desc.own_begin);
      const int64_t end =
          std::min(param.offset + param.numel(), bucket.desc.own_begin + bucket.desc.own_numel);
      whole.resize(static_cast<size_t>(param.global_rows * param.global_cols));
      param.for_stretches(begin - param.offset, end - param.offset,
                          [&](int64_t local, int64_t global, int64_t count) {
                            const auto from =
                                values.begin() + param.offset + local - bucket.desc.own_begin;
                            std::copy(from, from + count, whole.begin() + global);
                          });
    }
  };
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int) {
    for (int64_t step = 0; step < kSteps; ++step) {
      trainer.step(step, tokens, profiler::TraceLevel::none);
    }
  });
  return all;
}

spec::TrialSpec narrow_trial(const std::string& layout, bool ties_embeddings = false) {
  spec::ModelSpec model = testing::tiny_model();
  model.ties_embeddings = ties_embeddings;
  return testing::tiny_trial(model, knobs_of(layout + kNarrow));
}

// The sums of gradients differ in their last bits between layouts: where such a bit decides, a
// moment is rounded the other way. That is one in thousands; draws of another order are every
// second.
BOOST_AUTO_TEST_CASE(every_layout_rounds_like_one_rank) {
  for (const BucketPart part : {BucketPart::m, BucketPart::v}) {
    const auto expected = gathered(narrow_trial("{"), part);
    for (const char* layout :
         {R"({"data_parallel_size": 2, )",
          R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, )",
          R"({"data_parallel_size": 2, "use_distributed_optimizer": false, )",
          R"({"pipeline_model_parallel_size": 3, "context_parallel_size": 2, )"}) {
      const auto found = gathered(narrow_trial(layout), part);
      BOOST_TEST_CONTEXT(layout) {
        BOOST_TEST_REQUIRE(found.size() == expected.size());
        size_t num_elements = 0;
        size_t num_unlike = 0;
        for (const auto& [name, values] : expected) {
          const std::vector<double>& own = found.at(name);
          BOOST_TEST_REQUIRE(own.size() == values.size(), name);
          num_elements += values.size();
          for (size_t i = 0; i < values.size(); ++i) num_unlike += own[i] == values[i] ? 0 : 1;
        }
        BOOST_TEST(static_cast<double>(num_unlike) < 0.01 * static_cast<double>(num_elements));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(losses_and_gradients_are_those_of_one_rank) {
  const auto expected = testing::train(narrow_trial("{"), kSteps);
  for (const char* layout : {R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, )",
                             R"({"pipeline_model_parallel_size": 2, )"}) {
    BOOST_TEST_CONTEXT(layout) {
      testing::check_close(testing::train(narrow_trial(layout), kSteps), expected, 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(copies_of_a_tied_embedding_stay_the_same) {
  for (const BucketPart part : {BucketPart::m, BucketPart::v, BucketPart::master}) {
    const auto found =
        gathered(narrow_trial(R"({"pipeline_model_parallel_size": 2, )", true), part);
    BOOST_TEST((found.at("tied copy") == found.at("embedding")));
  }
}

BOOST_AUTO_TEST_CASE(narrow_moments_take_half_of_the_memory) {
  const auto optimizer_bytes = [](const std::string& knobs) {
    const auto trial = testing::tiny_trial(testing::tiny_model(), knobs_of(knobs));
    return testing::train(trial, 1).ledgers.front().peak_by_group()[static_cast<size_t>(
        profiler::MemoryGroup::optimizer)];
  };
  // Beside the master weights; each bucket is rounded up.
  const auto wide = static_cast<double>(optimizer_bytes("{}"));
  const auto near = boost::test_tools::tolerance(0.02);
  BOOST_TEST(
      static_cast<double>(optimizer_bytes(R"({"exp_avg_sq_dtype": "bf16"})")) == wide * 10 / 12,
      near);
  BOOST_TEST(static_cast<double>(optimizer_bytes(std::string("{") + kNarrow)) == wide * 8 / 12,
             near);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
