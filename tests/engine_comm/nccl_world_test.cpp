// Training with one rank per process over NCCL, without a card: a thread stands for each process,
// with a fake device, a rendezvous and a world of its own. What the ranks compute is what one rank
// on the CPU computes, in whatever order the devices run, and a rank that fails ends all others.
#include <cuda_runtime.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "engine/comm/nccl_comm.h"
#include "tests/engine/parity_fixture.h"
#include "tests/engine_comm/processes.h"
#include "tests/fakes/nccl/fake_nccl.h"
#include "tests/fakes/simt/simt_device.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(nccl_world)

namespace {

using testing::check_close;
using testing::check_identical;
using testing::contains;
using testing::kLayouts;
using testing::knobs_of;
using testing::Outcome;
using testing::tiny_model;
using testing::tiny_trial;
using testing::TrainingRun;

constexpr int64_t kSteps = 3;
constexpr const char* kEverything = kLayouts[12];

/// One device for each rank. Nothing may be left of NCCL, and its rules must have been kept.
struct Devices {
  explicit Devices(int count, const simt::Schedule& schedule = simt::in_order()) {
    fakes::reset_nccl();
    simt::set_device_count(count);
    simt::set_schedule(schedule);
  }
  ~Devices() {
    for (const std::string& misuse : fakes::nccl_misuse()) BOOST_ERROR(misuse);
    BOOST_TEST(fakes::num_live_communicators() == 0);
    simt::reset();
    fakes::reset_nccl();
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
};

enum class Meeting : uint8_t { file, tcp };

/// Calls body(rendezvous) for each rank in a thread. How each has ended.
std::vector<Outcome> run_meeting(int size, Meeting meeting,
                                 const std::function<void(Rendezvous&)>& body) {
  const tests::TempFolder folder;
  const int port = meeting == Meeting::tcp ? testing::free_port() : 0;
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  testing::run_threads(size, [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = testing::outcome_of([&] {
      const std::unique_ptr<Rendezvous> rendezvous =
          meeting == Meeting::tcp ? join_by_tcp("localhost", port, rank, size, {"world"})
                                  : join_by_file(folder.file("meet"), rank, size, {"world"});
      body(*rendezvous);
    });
  });
  return outcomes;
}

spec::TrialSpec over_nccl(const char* layout, spec::DType dtype = spec::DType::f32,
                          const spec::ModelSpec& model = tiny_model()) {
  spec::TrialSpec trial = tiny_trial(model, knobs_of(layout));
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::wall;
  trial.communicator = spec::CommunicatorKind::nccl;
  trial.dtype = dtype;
  testing::check_constraints_hold(trial);
  return trial;
}

/// Trains each rank on the device of its number.
std::vector<Outcome> train_ranks(const spec::TrialSpec& trial, const TrainerHooks& hooks,
                                 Meeting meeting, const RankBody& body) {
  const int size = plan::layout_of(trial.knobs).world_size();
  return run_meeting(size, meeting, [&](Rendezvous& rendezvous) {
    run_process_rank(trial, hooks, body, rendezvous.rank(), rendezvous);
  });
}

TrainingRun train(const spec::TrialSpec& trial, const simt::Schedule& schedule = simt::in_order(),
                  Meeting meeting = Meeting::file) {
  const int size = plan::layout_of(trial.knobs).world_size();
  const Devices devices(size, schedule);
  TrainingRun run;
  testing::GradientGatherer gatherer;
  TrainerHooks hooks;
  hooks.on_gradients = [&](int64_t step, const Parameters& params, kernels::Backend& backend) {
    gatherer.add(step, params, backend);
  };
  const testing::RandomTokens tokens(trial);
  std::atomic<int> num_ended{0};
  const auto body = [&](RankTrainer& trainer, World& world, int rank) {
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult result = trainer.step(step, tokens, profiler::TraceLevel::none);
      if (rank == 0) run.steps.push_back(result);
      if (world.join_max(rank) != size - 1) throw base::Error("not the largest rank");
    }
    ++num_ended;
  };
  for (const Outcome& outcome : train_ranks(trial, hooks, meeting, body)) {
    BOOST_TEST(outcome.text == "");
  }
  BOOST_TEST(num_ended == size);
  BOOST_TEST(fakes::num_aborted() == 0);
  run.gradients = std::move(gatherer.by_step);
  return run;
}

BOOST_AUTO_TEST_CASE(layouts_train_like_one_rank_on_the_cpu) {
  const TrainingRun expected = testing::train(tiny_trial(tiny_model()), kSteps);
  for (const size_t layout : {0, 1, 5, 6, 8, 9, 10, 12, 13, 16, 19, 20, 22}) {
    BOOST_TEST_CONTEXT(kLayouts[layout]) {
      const Meeting meeting = layout % 2 == 0 ? Meeting::file : Meeting::tcp;
      check_close(train(over_nccl(kLayouts[layout]), simt::in_order(), meeting), expected, 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_rank_alone) {
  const TrainingRun expected = testing::train(tiny_trial(tiny_model()), kSteps);
  check_close(train(over_nccl("{}")), expected, 1e-4);
}

// Whatever order the devices run in, the bits are the same: every dependency is stated.
BOOST_AUTO_TEST_CASE(no_schedule_of_the_devices_changes_a_bit) {
  for (const char* layout :
       {kEverything, kLayouts[5], kLayouts[8],
        R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 3,
            "ep_chunks_backward": 2, "overlap_grad_reduce": true,
            "recompute": "norm,core_attn,moe_act,experts"})",
        R"({"data_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 2,
            "cuda_graph_modules": "attn,moe_router,moe_preprocess"})"}) {
    const TrainingRun expected = train(over_nccl(layout));
    for (const uint64_t seed : {1, 2}) {
      BOOST_TEST_CONTEXT(layout << ", seed " << seed) {
        check_identical(train(over_nccl(layout), simt::adversarial(seed)), expected);
      }
    }
  }
}

// The first and the last stage have a group of their own, and the one in the middle has none.
BOOST_AUTO_TEST_CASE(tied_embeddings_dense_layers_and_shared_experts) {
  spec::ModelSpec model = tiny_model();
  model.is_moe_layer = {true, false, true};
  model.shared_ffn_size = 8;
  model.ties_embeddings = true;
  const TrainingRun expected = testing::train(tiny_trial(model), kSteps);
  for (const char* layout : {kEverything, kLayouts[8]}) {
    const TrainingRun run = train(over_nccl(layout, spec::DType::f32, model));
    BOOST_TEST_CONTEXT(layout) {
      check_close(run, expected, 1e-4);
      check_identical(train(over_nccl(layout, spec::DType::f32, model), simt::adversarial(7)), run);
    }
  }
}

// Mixed precision rounds every activation to 8 bits.
BOOST_AUTO_TEST_CASE(mixed_precision_stays_near) {
  const TrainingRun expected = testing::train(tiny_trial(tiny_model()), kSteps);
  for (const char* layout : {kEverything, kLayouts[1]}) {
    BOOST_TEST_CONTEXT(layout) {
      const TrainingRun run = train(over_nccl(layout, spec::DType::bf16), simt::adversarial(3));
      testing::check_mixed_precision(run, expected);
    }
  }
}

// The failing rank throws in the middle of its second step, where the others are about to add up
// the norm of the gradients with it.
BOOST_AUTO_TEST_CASE(a_rank_that_dies_ends_all_others) {
  const spec::TrialSpec trial = over_nccl(kEverything);
  const testing::RandomTokens tokens(trial);
  const int size = plan::layout_of(trial.knobs).world_size();
  for (const simt::Schedule& schedule : {simt::in_order(), simt::adversarial(4)}) {
    for (const int failing : {0, 5}) {
      const Meeting meeting = failing == 0 ? Meeting::tcp : Meeting::file;
      BOOST_TEST_CONTEXT("rank " << failing << ", deferred " << schedule.is_deferred) {
        const Devices devices(size, schedule);
        thread_local int own_rank = -1;
        TrainerHooks hooks;
        hooks.on_gradients = [&](int64_t step, const Parameters&, kernels::Backend&) {
          if (step == 1 && own_rank == failing) throw base::Error("on purpose");
        };
        std::atomic<int> num_steps{0};
        const std::vector<Outcome> outcomes =
            train_ranks(trial, hooks, meeting, [&](RankTrainer& trainer, World&, int rank) {
              own_rank = rank;
              for (int64_t step = 0; step < kSteps; ++step) {
                trainer.step(step, tokens, profiler::TraceLevel::none);
                ++num_steps;
              }
            });
        BOOST_TEST(num_steps == size);
        const std::string cause = fmt::format("rank {} failed: on purpose", failing);
        for (int rank = 0; rank < size; ++rank) {
          const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
          const bool is_cause = rank == failing;
          BOOST_TEST((outcome.kind == (is_cause ? Outcome::Kind::error : Outcome::Kind::peer)));
          BOOST_TEST(contains(outcome.text, is_cause ? "on purpose" : cause), outcome.text);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_that_die_give_their_own_cause) {
  const spec::TrialSpec trial = over_nccl(kLayouts[10]);
  const testing::RandomTokens tokens(trial);
  const Devices devices(plan::layout_of(trial.knobs).world_size(), simt::adversarial(5));
  const std::vector<Outcome> outcomes =
      train_ranks(trial, {}, Meeting::file, [&](RankTrainer& trainer, World&, int rank) {
        trainer.step(0, tokens, profiler::TraceLevel::none);
        throw base::Error(fmt::format("of rank {}", rank));
      });
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    BOOST_TEST(outcomes[rank].text == fmt::format("of rank {}", rank));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_without_a_device_ends_all_others) {
  const spec::TrialSpec trial = over_nccl(kLayouts[0]);
  const Devices devices(1);
  const std::vector<Outcome> outcomes = train_ranks(
      trial, {}, Meeting::file,
      [](RankTrainer&, World&, int) { throw base::Error("there is no device for rank 1"); });
  BOOST_TEST((outcomes[0].kind == Outcome::Kind::peer));
  BOOST_TEST(contains(outcomes[0].text, "rank 1 failed: "), outcomes[0].text);
  BOOST_TEST(contains(outcomes[0].text, outcomes[1].text), outcomes[0].text);
}

// What the other cases rest on: a dependency that nobody states is one that the devices break. Each
// rank writes its number on one stream and adds all of them up on another.
BOOST_AUTO_TEST_CASE(a_forgotten_dependency_is_found) {
  constexpr int kRanks = 3;
  plan::Layout layout;
  layout.dp = kRanks;
  for (const bool is_stated : {true, false}) {
    const Devices devices(kRanks, simt::adversarial(6));
    std::vector<float> sums(kRanks);
    const auto body = [&](Rendezvous& rendezvous) {
      const int rank = rendezvous.rank();
      const auto at = static_cast<size_t>(rank);
      BOOST_REQUIRE_EQUAL(cudaSetDevice(rank), cudaSuccess);
      cudaStream_t writing = nullptr;
      cudaStream_t adding = nullptr;
      cudaEvent_t written = nullptr;
      float* value = nullptr;
      cudaStreamCreateWithFlags(&writing, cudaStreamNonBlocking);
      cudaStreamCreateWithFlags(&adding, cudaStreamNonBlocking);
      cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
      cudaMalloc(&value, sizeof(float));
      NcclOptions options;
      options.stream = [&] { return adding; };
      {
        const std::unique_ptr<NcclWorld> world = make_nccl_world(layout, rendezvous, options);
        const std::unique_ptr<Communicator> all = world->communicator(plan::Group::world);
        simt::enqueue(adding, [=] { *value = 0; });
        cudaStreamSynchronize(adding);
        simt::enqueue(writing, [=] { *value = static_cast<float>(rank + 1); });
        cudaEventRecord(written, writing);
        if (is_stated) cudaStreamWaitEvent(adding, written, 0);
        all->all_reduce(value, 1, base::DType::f32, 0);
        cudaMemcpyAsync(&sums[at], value, sizeof(float), cudaMemcpyDefault, adding);
        cudaStreamSynchronize(adding);
        rendezvous.barrier();
      }
      cudaFree(value);
      cudaEventDestroy(written);
      cudaStreamDestroy(writing);
      cudaStreamDestroy(adding);
    };
    for (const Outcome& outcome : run_meeting(kRanks, Meeting::file, body)) {
      BOOST_TEST(outcome.text == "");
    }
    for (const float sum : sums) BOOST_TEST((sum == kRanks * (kRanks + 1) / 2) == is_stated);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
