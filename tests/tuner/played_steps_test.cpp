// Steps played with robust durations: what disturbs single operations does not move them, what
// slows an operation down does, and rows count as they were routed. Against a made-up device whose
// durations are known.
#include "tuner/played_steps.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(played_steps)

namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;
namespace tt = boost::test_tools;
using plan::Instr;
using plan::Verb;

constexpr int kSteps = 7;
constexpr double kProbeNs = 100'000;

const char* const kLayouts[] = {
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "ep_chunks_forward": 2})",
    R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2, "recompute": "full",
        "expert_model_parallel_size": 2, "ep_chunks_backward": 3})",
    R"({"data_parallel_size": 2})",
    // Of four micro-batches the last one's backward runs beside the reductions.
    R"({"data_parallel_size": 2, "overlap_grad_reduce": true})",
};

spec::TrialSpec trial_of(const char* knobs) {
  spec::TrialSpec trial = samples::trial();
  trial.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  trial.training.global_batch_size = 8;
  trial.training.seq_length = 32;
  trial.hardware.comm_sm_ratio = 0.3;
  return trial;
}

/// What an operation takes on a quiet device; proportional to nothing but its work.
double quiet_ns(const plan::OpCost& cost) {
  return 3'000 + static_cast<double>(cost.flops) / 20 + static_cast<double>(cost.bytes) / 8;
}

/// Rows of a step, the same in the eyes of all ranks of a group.
plan::Route route_of(const plan::StepProgram& program, const plan::LayerDims& dims, int64_t layer,
                     int64_t micro_batch, int step) {
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  std::vector<int32_t> counts(static_cast<size_t>(dims.expert_ranks * num_chunks * dims.experts));
  const int group = program.layout.group_ranks(plan::Group::ep, program.rank).front();
  std::mt19937_64 random(
      static_cast<uint64_t>(((layer * 97 + micro_batch) * 89 + step) * 83 + group));
  for (int64_t source = 0; source < dims.expert_ranks; ++source) {
    // Spread by chance, and the same rows cut into the chunks of each direction.
    std::vector<int32_t> rows(static_cast<size_t>(dims.experts));
    for (int64_t row = 0; row < dims.tokens * dims.topk; ++row) ++rows[random() % rows.size()];
    int32_t* chunk_counts = &counts[static_cast<size_t>(source * num_chunks * dims.experts)];
    for (const int64_t num : {dims.chunks_forward, dims.chunks_backward}) {
      for (int64_t chunk = 0; chunk < num; ++chunk) {
        for (const int32_t all : rows) {
          *chunk_counts++ = static_cast<int32_t>(all * (chunk + 1) / num - all * chunk / num);
        }
      }
    }
  }
  return plan::make_route(dims, program.layout.ep_rank(program.rank), counts);
}

using Disturbance = std::function<double(const MeasuredStep&, const Instr&)>;

/// Steps of all ranks, each duration times what `factor` says.
std::vector<MeasuredStep> run_on_device(const spec::TrialSpec& trial, const Disturbance& factor,
                                        double probe_factor = 1) {
  std::vector<MeasuredStep> steps;
  for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
    const plan::StepProgram program = plan::compile(trial, rank);
    for (int step = 0; step < kSteps; ++step) {
      MeasuredStep& own = steps.emplace_back();
      own.step = step + 2;
      own.rank = rank;
      own.probe_ns = {std::llround(kProbeNs * probe_factor), std::llround(kProbeNs * probe_factor)};
      std::map<std::pair<int64_t, int64_t>, plan::Route> routes;
      plan::for_each(program, [&](const plan::Item& item, const plan::Segment& segment,
                                  const Instr& instr) {
        const std::pair<int64_t, int64_t> place(item.layer, item.micro_batch);
        if (instr.verb == Verb::host && instr.op == plan::Op::finish_route) {
          const plan::Route route =
              route_of(program, segment.dims, item.layer, item.micro_batch, step);
          for (const auto* direction : {&route.forward, &route.backward}) {
            for (const plan::ChunkRoute& chunk : *direction) {
              for (const auto* rows : {&chunk.send_rows, &chunk.recv_rows}) {
                own.routed_rows.insert(own.routed_rows.end(), rows->begin(), rows->end());
              }
            }
          }
          routes[place] = route;
        }
        if (instr.verb != Verb::op && instr.verb != Verb::host) return;
        plan::OpCost cost = instr.cost;
        if (instr.is_routed) {
          if (segment.dims.expert_ranks == 1) routes[place] = plan::local_route(segment.dims);
          cost = plan::cost_at(instr, routes.at(place).received(segment.is_backward, instr.chunk));
        }
        const auto index = static_cast<size_t>(&instr - segment.code.data());
        const int num_collectives =
            instr.verb == Verb::op ? plan::sharing_of(program, item, index).num_collectives : 0;
        own.durations_ns.push_back(plan::slowed_ns(
            trial.hardware, std::llround(quiet_ns(cost) * factor(own, instr)), num_collectives));
      });
    }
  }
  return steps;
}

PlayedTrial played_on(const spec::TrialSpec& trial, const Disturbance& factor,
                      double probe_factor = 1, double usual_ns = kProbeNs) {
  return play_trial(trial, run_on_device(trial, factor, probe_factor), usual_ns);
}

double quiet(const MeasuredStep& /*step*/, const Instr& /*instr*/) { return 1; }

double median_of(const std::vector<int64_t>& values) {
  return profiler::median({values.begin(), values.end()});
}

BOOST_DATA_TEST_CASE(on_a_quiet_machine_steps_are_what_was_measured, data::make(kLayouts), text) {
  const spec::TrialSpec trial = trial_of(text);
  const PlayedTrial played = played_on(trial, quiet);
  BOOST_REQUIRE(played.played_ns.size() == size_t{kSteps});
  for (size_t i = 0; i < played.played_ns.size(); ++i) {
    BOOST_TEST(
        static_cast<double>(played.played_ns[i]) == static_cast<double>(played.measured_ns[i]),
        tt::tolerance(1e-3));
  }
  BOOST_TEST(static_cast<double>(played.step_ns) == median_of(played.played_ns),
             tt::tolerance(1e-6));
  BOOST_TEST(played.low_ns <= played.step_ns);
  BOOST_TEST(played.high_ns >= played.step_ns);
  BOOST_TEST(played.slowness == 1.0);
  BOOST_TEST(static_cast<double>(played.probe_ns) == kProbeNs);
  // Alike operations of all layers, micro-batches, ranks and steps are one.
  BOOST_TEST(played.num_classes < 100);
}

// Each step is played with its own rows: where they are routed differently it takes another time.
BOOST_AUTO_TEST_CASE(each_step_has_its_own_rows) {
  const PlayedTrial played = played_on(trial_of(kLayouts[0]), quiet);
  BOOST_TEST(played.played_ns[0] != played.played_ns[1]);
}

BOOST_DATA_TEST_CASE(a_neighbour_moves_steps_little, data::make(kLayouts), text) {
  const spec::TrialSpec trial = trial_of(text);
  const auto truth = static_cast<double>(played_on(trial, quiet).step_ns);
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform;
  const PlayedTrial played = played_on(trial, [&](const MeasuredStep&, const Instr&) {
    const double usual = 0.98 + 0.04 * uniform(random);
    return uniform(random) < 0.15 ? usual * (1.5 + 3 * uniform(random)) : usual;
  });
  BOOST_TEST(median_of(played.measured_ns) > 1.2 * truth);
  BOOST_TEST(static_cast<double>(played.step_ns) == truth, tt::tolerance(0.02));
}

// What is seen to be slower is slower: the step moves as it does on a device where that is true.
BOOST_DATA_TEST_CASE(an_operation_that_became_slower_moves_the_step, data::make(kLayouts), text) {
  const spec::TrialSpec trial = trial_of(text);
  const auto before = static_cast<double>(played_on(trial, quiet).step_ns);
  for (const plan::Op op : {plan::Op::qkv_proj, plan::Op::expert_fc1}) {
    const auto slower = [&](const MeasuredStep&, const Instr& instr) {
      return instr.op == op ? 1.2 : 1.0;
    };
    const double expected = median_of(played_on(trial, slower).measured_ns);
    BOOST_TEST(expected > 1.005 * before);
    std::mt19937_64 random(4);
    std::uniform_real_distribution<double> uniform;
    const PlayedTrial played = played_on(trial, [&](const MeasuredStep& step, const Instr& instr) {
      return slower(step, instr) * (uniform(random) < 0.1 ? 2.5 : 1.0);
    });
    BOOST_TEST(static_cast<double>(played.step_ns) == expected, tt::tolerance(0.005));
  }
}

/// Query-key pairs of an attention of `rank`, counted position by position.
int64_t pairs_of(const spec::TrialSpec& trial, const Instr& instr, int rank, int64_t window) {
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const int key_rank = static_cast<int>(instr.refs.back().row);
  int64_t pairs = 0;
  for (const int32_t query : plan::local_positions(layout, rank, trial.training.seq_length)) {
    for (const int32_t key : plan::local_positions(layout, key_rank, trial.training.seq_length)) {
      if (key <= query && key > query - window) ++pairs;
    }
  }
  return pairs;
}

// With a window most blocks of a ring are empty for most ranks, and take no time.
BOOST_AUTO_TEST_CASE(blocks_of_a_ring_are_alike_where_they_see_as_much) {
  constexpr int64_t kWindow = 4;
  spec::TrialSpec trial = trial_of(R"({"context_parallel_size": 4, "cp_comm_type": "p2p"})");
  trial.model.attention_window.assign(trial.model.attention_window.size(), kWindow);
  const PlayedTrial played = played_on(trial, [&](const MeasuredStep& step, const Instr& instr) {
    if (instr.op != plan::Op::core_attn) return 1.0;
    const auto pairs = static_cast<double>(pairs_of(trial, instr, step.rank, kWindow));
    return (1'000 + 5'000 * pairs) / quiet_ns(instr.cost);
  });
  for (size_t i = 0; i < played.played_ns.size(); ++i) {
    BOOST_TEST(
        static_cast<double>(played.played_ns[i]) == static_cast<double>(played.measured_ns[i]),
        tt::tolerance(1e-3));
  }
}

BOOST_AUTO_TEST_CASE(the_probe_takes_the_machine_out) {
  const spec::TrialSpec trial = trial_of(kLayouts[1]);
  const auto truth = static_cast<double>(played_on(trial, quiet).step_ns);
  const auto slow = [](const MeasuredStep&, const Instr&) { return 1.4; };
  const PlayedTrial played = played_on(trial, slow, 1.4);
  BOOST_TEST(played.slowness == 1.4, tt::tolerance(1e-3));
  BOOST_TEST(median_of(played.measured_ns) > 1.2 * truth);
  BOOST_TEST(static_cast<double>(played.step_ns) == truth, tt::tolerance(1e-3));
  // Without anything to compare it with, the machine is as it is.
  const PlayedTrial alone = played_on(trial, slow, 1.4, 0);
  BOOST_TEST(static_cast<double>(alone.step_ns) == median_of(alone.measured_ns),
             tt::tolerance(1e-3));
  BOOST_TEST(alone.slowness == 1.0);
}

// A neighbour disturbs some runs of the probe, too: that makes the trial little less sure.
BOOST_AUTO_TEST_CASE(a_disturbed_probe_widens_the_interval_little) {
  const spec::TrialSpec trial = trial_of(kLayouts[0]);
  std::vector<MeasuredStep> steps = run_on_device(trial, quiet);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform;
  for (MeasuredStep& step : steps) {
    for (int64_t& ns : step.probe_ns) {
      ns = std::llround(kProbeNs * (0.99 + 0.02 * uniform(random)));
      if (uniform(random) < 0.3) ns = 2 * ns;
    }
  }
  const PlayedTrial played = play_trial(trial, steps, kProbeNs);
  BOOST_TEST(played.slowness == 1.0, tt::tolerance(0.02));
  BOOST_TEST(static_cast<double>(played.high_ns - played.low_ns) <
             0.05 * static_cast<double>(played.step_ns));
}

BOOST_AUTO_TEST_CASE(what_is_not_of_the_program_is_refused) {
  const spec::TrialSpec trial = trial_of(kLayouts[0]);
  const std::vector<MeasuredStep> good = run_on_device(trial, quiet);
  const auto refused = [&](const std::function<void(std::vector<MeasuredStep>&)>& change,
                           const std::string& part) {
    std::vector<MeasuredStep> steps = good;
    change(steps);
    BOOST_CHECK_EXCEPTION(play_trial(trial, steps, 0), base::Error, [&](const base::Error& error) {
      BOOST_TEST_MESSAGE(error.what());
      return samples::contains(error.what(), part);
    });
  };
  refused([](auto& steps) { steps[0].durations_ns.pop_back(); }, "durations for a program of");
  refused([](auto& steps) { steps[0].routed_rows.pop_back(); }, "too few");
  refused([](auto& steps) { steps[0].routed_rows.push_back(1); }, "too many");
  refused([](auto& steps) { steps.pop_back(); }, "missing");
  refused([](auto& steps) { steps.push_back(steps.back()); }, "twice");
  refused([](auto& steps) { steps[0].rank = 99; }, "rank 99");
  refused([](auto& steps) { steps[0].durations_ns[0] = -1; }, "-1");
  refused([](auto& steps) { steps.clear(); }, "without steps");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
