// Training on the CUDA backend against training on the CPU backend: every layout as virtual ranks
// of one device. Compiled twice: for a card, and against the fake device.
#include <nlohmann/json.hpp>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(device_parity)

namespace {

using testing::check_close;
using testing::check_identical;
using testing::kLayouts;
using testing::knobs_of;
using testing::tiny_model;
using testing::tiny_trial;
using testing::train;
using testing::TrainingRun;

constexpr int64_t kSteps = 3;

spec::TrialSpec on_device(spec::TrialSpec trial, spec::DType dtype = spec::DType::f32) {
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::wall;
  trial.dtype = dtype;
  return trial;
}

BOOST_AUTO_TEST_CASE(every_layout_trains_like_one_rank_on_the_cpu) {
  const TrainingRun expected = train(tiny_trial(tiny_model()), kSteps);
  for (const char* layout : kLayouts) {
    BOOST_TEST_CONTEXT(layout) {
      check_close(train(on_device(tiny_trial(tiny_model(), knobs_of(layout))), kSteps), expected,
                  1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(dense_layers_shared_experts_biases_windows_and_tied_embeddings) {
  spec::ModelSpec model = testing::mixed_model();
  model.ties_embeddings = true;
  const TrainingRun expected = train(tiny_trial(model), kSteps);
  for (const char* layout : {"{}", kLayouts[12]}) {
    BOOST_TEST_CONTEXT(layout) {
      check_close(train(on_device(tiny_trial(model, knobs_of(layout))), kSteps), expected, 1e-4);
    }
  }
}

// Mixed precision rounds every activation to 8 bits: the numbers are near, and every layout is as
// near as one rank.
BOOST_AUTO_TEST_CASE(mixed_precision_stays_near) {
  const TrainingRun expected = train(tiny_trial(tiny_model()), kSteps);
  // Among them tensor parallelism, expert-tensor parallelism and rings, which add up parts of sums
  // that are rounded to 8 bits.
  for (const char* layout : {"{}", kLayouts[1], kLayouts[5], kLayouts[12], kLayouts[14],
                             kLayouts[19], kLayouts[20], kLayouts[22]}) {
    BOOST_TEST_CONTEXT(layout) {
      const TrainingRun run =
          train(on_device(tiny_trial(tiny_model(), knobs_of(layout)), spec::DType::bf16), kSteps);
      testing::check_mixed_precision(run, expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(choices_of_the_schedule_change_no_bit) {
  const std::string base = R"("data_parallel_size": 2, "expert_model_parallel_size": 2,
                              "micro_batch_size": 2)";
  const auto make = [&](const std::string& choice) {
    spec::TrialSpec trial =
        on_device(tiny_trial(tiny_model(), knobs_of("{" + base + choice + "}")));
    trial.training.global_batch_size = 8;
    return trial;
  };
  const TrainingRun expected = train(make(""), kSteps);
  for (const char* choice :
       {R"(, "recompute": "norm,core_attn,moe_act,experts")", R"(, "recompute": "full")",
        R"(, "ep_chunks_forward": 3, "ep_chunks_backward": 5)",
        R"(, "overlap_grad_reduce": true)"}) {
    BOOST_TEST_CONTEXT(choice) { check_identical(train(make(choice), kSteps), expected); }
  }
}

// Enough steps that everything captured is replayed.
BOOST_AUTO_TEST_CASE(graphs_replay_the_same_bits) {
  constexpr int64_t kGraphSteps = 6;
  for (const char* layout :
       {R"("micro_batch_size": 2)", R"("data_parallel_size": 2, "expert_model_parallel_size": 2)",
        R"("context_parallel_size": 2)", R"("pipeline_model_parallel_size": 2)"}) {
    const auto make = [&](const std::string& graphs) {
      return on_device(tiny_trial(
          tiny_model(),
          knobs_of("{" + std::string(layout) + ", \"cuda_graph_modules\": \"" + graphs + "\"}")));
    };
    const TrainingRun expected = train(make("none"), kGraphSteps);
    BOOST_TEST(expected.num_graphs.front() == 0);
    for (const char* graphs : {"attn", "moe_router", "attn,moe_router,moe_preprocess"}) {
      BOOST_TEST_CONTEXT(layout << ", " << graphs) {
        const TrainingRun run = train(make(graphs), kGraphSteps);
        check_identical(run, expected);
        for (size_t rank = 0; rank < run.num_graphs.size(); ++rank) {
          BOOST_TEST(run.num_graphs[rank] > 0);
          BOOST_TEST(run.num_replays[rank] > 2 * run.num_graphs[rank]);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_whole_iteration_replays_the_same_bits) {
  constexpr int64_t kGraphSteps = 6;
  for (const char* knobs : {R"("micro_batch_size": 2)", R"("recompute": "full")",
                            R"("data_parallel_size": 2, "overlap_grad_reduce": true)",
                            R"("context_parallel_size": 2, "pipeline_model_parallel_size": 2)"}) {
    BOOST_TEST_CONTEXT(knobs) {
      const auto make = [&](const std::string& graphs) {
        const std::string all =
            "{" + std::string(knobs) + ", \"cuda_graph_modules\": \"" + graphs + "\"}";
        return on_device(tiny_trial(tiny_model(), knobs_of(all)));
      };
      testing::check_constraints_hold(make("full_iteration"));
      const TrainingRun run = train(make("full_iteration"), kGraphSteps);
      check_identical(run, train(make("none"), kGraphSteps));
      BOOST_TEST(run.num_graphs.front() > 0);
      BOOST_TEST(run.num_replays.front() > 2 * run.num_graphs.front());
      // Where nobody has to be talked to, the forward and backward passes are one graph.
      if (run.num_graphs.size() == 1) BOOST_TEST(run.num_graphs.front() == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_rank_of_a_fake_world) {
  const char* const kLayout = R"({"data_parallel_size": 4, "expert_model_parallel_size": 4,
                                  "pipeline_model_parallel_size": 2})";
  for (const int rank : {0, 7}) {
    spec::TrialSpec trial = tiny_trial(tiny_model(), knobs_of(kLayout));
    trial.communicator = spec::CommunicatorKind::fake;
    trial.fake_rank = rank;
    const TrainingRun expected = train(trial, kSteps);
    const TrainingRun run = train(on_device(trial), kSteps);
    const auto at = static_cast<size_t>(rank);
    // The same allocations; beside them the device's kernels have workspaces.
    for (int group = 0; group < profiler::kNumMemoryGroups; ++group) {
      const int64_t bytes = run.ledgers[at].peak_by_group()[static_cast<size_t>(group)];
      const int64_t known = expected.ledgers[at].peak_by_group()[static_cast<size_t>(group)];
      if (static_cast<profiler::MemoryGroup>(group) == profiler::MemoryGroup::workspace) {
        BOOST_TEST(bytes > known);
      } else {
        BOOST_TEST(bytes == known);
      }
    }
    for (size_t step = 0; step < kSteps; ++step) {
      BOOST_TEST(run.steps[step].loss == expected.steps[step].loss,
                 boost::test_tools::tolerance(1e-4));
      BOOST_TEST(run.steps[step].grad_norm == expected.steps[step].grad_norm,
                 boost::test_tools::tolerance(1e-3));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
