// Stages of plans: the best split against trying all, what is written and what is not.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/stages.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::run_of;

BOOST_AUTO_TEST_SUITE(planner_stages)

namespace {

using Layers = std::vector<int64_t>;

/// The slowest of `num_ranks` that have every so-manieth stage.
double slowest(const StageParts& parts, const Layers& layers, int64_t num_ranks) {
  std::vector<StageSeconds> ranks(static_cast<size_t>(num_ranks));
  size_t next = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    StageSeconds& rank = ranks[stage % ranks.size()];
    for (int64_t i = 0; i < layers[stage]; ++i) rank.add(parts.layers[next++]);
    if (stage + 1 == layers.size()) rank.add(parts.end);
  }
  double most = 0;
  for (const StageSeconds& rank : ranks) most = std::max(most, rank.total());
  return most;
}

/// Of all splits in which each stage but the last has a layer: the least that the slowest rank
/// takes, and then the slowest virtual stage.
std::pair<double, double> least_of_all(const StageParts& parts, int64_t pp, int64_t vpp) {
  std::pair<double, double> least(1e300, 1e300);
  Layers layers;
  const std::function<void(int64_t)> go_on = [&](int64_t left) {
    if (static_cast<int64_t>(layers.size()) + 1 == pp * vpp) {
      layers.push_back(left);
      // Rounded, so that equal ones are.
      const auto seconds = [&](int64_t num_ranks) {
        return std::round(1e6 * slowest(parts, layers, num_ranks)) / 1e6;
      };
      least = std::min(least, {seconds(pp), seconds(pp * vpp)});
      layers.pop_back();
      return;
    }
    for (int64_t count = 1; count <= left; ++count) {
      layers.push_back(count);
      go_on(left - count);
      layers.pop_back();
    }
  };
  go_on(static_cast<int64_t>(parts.layers.size()));
  return least;
}

/// best_split without anything that trials of it share: each bound by halving what is left.
Layers plain_split(const StageParts& parts, int64_t pp, const std::vector<int64_t>& in_flight) {
  const auto num_layers = static_cast<int64_t>(parts.layers.size());
  const auto shortest = *std::ranges::min_element(parts.layers, {}, &StageSeconds::total);
  const auto of = [&](int64_t from, int64_t to, bool has_end) {
    StageSeconds seconds;
    for (int64_t layer = from; layer < to; ++layer) {
      const bool is_kept = !parts.kept.empty() && layer - from >= parts.num_again;
      seconds.add((is_kept ? parts.kept : parts.layers)[static_cast<size_t>(layer)]);
    }
    if (has_end) seconds.add(parts.end);
    return seconds;
  };
  struct Bounds {
    double rank = std::numeric_limits<double>::infinity();
    double stage = rank;
    double layers = rank;
    int64_t in_flight = std::numeric_limits<int64_t>::max();
  };
  const auto split = [&](const Bounds& bounds) {
    Layers layers(in_flight.size());
    std::vector<StageSeconds> ranks(static_cast<size_t>(pp));
    int64_t to = num_layers;
    for (size_t stage = in_flight.size(); stage-- > 0;) {
      const bool is_last = stage + 1 == in_flight.size();
      StageSeconds& rank = ranks[stage % ranks.size()];
      const auto fits = [&](int64_t from) {
        StageSeconds with = rank;
        with.add(shortest, static_cast<double>(stage / ranks.size()));
        with.add(of(from, to, is_last));
        return with.total() <= bounds.rank && of(from, to, is_last).total() <= bounds.stage &&
               of(from, to, false).total() <= bounds.layers &&
               (to - from) * in_flight[stage] <= bounds.in_flight;
      };
      const auto first = static_cast<int64_t>(stage);
      int64_t from = is_last ? to : to - 1;
      if (from < first || !fits(from)) return Layers{};
      while (from > first && fits(from - 1)) --from;
      layers[stage] = to - from;
      rank.add(of(from, to, is_last));
      to = from;
    }
    return to == 0 ? layers : Layers{};
  };
  Bounds bounds;
  const auto find = [&](double low, double high, double Bounds::*bound) {
    while (high - low > 1e-5 * high) {
      Bounds tried = bounds;
      tried.*bound = (low + high) / 2;
      (split(tried).empty() ? low : high) = tried.*bound;
    }
    bounds.*bound = high;
  };
  const StageSeconds all = of(0, num_layers, true);
  StageSeconds least = all;
  if (parts.num_again < num_layers && !parts.kept.empty()) {
    least = parts.end;
    for (const StageSeconds& layer : parts.kept) least.add(layer);
  }
  StageSeconds most = parts.end;
  for (const StageSeconds& layer : parts.layers) most.add(layer);
  find(least.total() / static_cast<double>(pp), 2 * most.total(), &Bounds::rank);
  if (static_cast<size_t>(pp) < in_flight.size()) {
    find(0, bounds.rank, &Bounds::stage);
    find(0, bounds.rank, &Bounds::layers);
  }
  int64_t too_few = 0;
  int64_t enough = num_layers * *std::ranges::max_element(in_flight);
  while (enough - too_few > 1) {
    bounds.in_flight = (enough + too_few) / 2;
    (split(bounds).empty() ? too_few : enough) = bounds.in_flight;
  }
  bounds.in_flight = enough;
  return split(bounds);
}

StageParts alike_parts(int64_t num_layers, double end) {
  StageParts parts;
  parts.layers.assign(static_cast<size_t>(num_layers), {1, 0});
  parts.end = {end, 0};
  return parts;
}

/// What choose_stages takes for a dense model of so many layers on pp x vpp stages, with an end
/// that takes as long as `end` layers.
std::string written(int64_t num_layers, int32_t pp, int32_t vpp, double end, int64_t mtp = 0) {
  spec::ModelSpec model = dense_model();
  model.num_layers = num_layers;
  model.is_moe_layer.assign(static_cast<size_t>(num_layers), false);
  model.attention_window.assign(static_cast<size_t>(num_layers), 0);
  model.mtp.depth = mtp;
  if (mtp > 0) model.mtp.layers = {model.kind_of(0)};
  const spec::HardwareSpec hardware = machine(64);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = pp;
  run.knobs.vpp = vpp;
  run.stages = choose_stages(run, alike_parts(num_layers, end), true);
  return pipeline_layout_of(run);
}

}  // namespace

// Any layers on one stage a rank, layers that are alike on several.
BOOST_AUTO_TEST_CASE(no_split_is_better) {
  std::mt19937 generator(17);
  for (int i = 0; i < 400; ++i) {
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(generator() % most); };
    const int64_t vpp = 1 + upto(3);
    const int64_t pp = 2 + upto(vpp == 1 ? 4 : 2);
    StageParts parts = alike_parts(pp * vpp - 1 + upto(5), static_cast<double>(upto(60)) / 10);
    for (StageSeconds& layer : parts.layers) {
      if (vpp == 1) layer = {static_cast<double>(1 + upto(4)), static_cast<double>(upto(3))};
    }
    std::vector<int64_t> in_flight(static_cast<size_t>(pp * vpp));
    for (int64_t& count : in_flight) count = 1 + upto(4);
    const Layers layers = best_split(parts, pp, in_flight);
    BOOST_TEST_REQUIRE(layers.size() == in_flight.size());
    BOOST_TEST(std::accumulate(layers.begin(), layers.end(), size_t{0}) == parts.layers.size());
    BOOST_TEST(std::all_of(layers.begin(), layers.end() - 1, [](int64_t n) { return n > 0; }));
    const auto [rank, stage] = least_of_all(parts, pp, vpp);
    const auto tolerance = boost::test_tools::tolerance(1e-4);
    BOOST_TEST(slowest(parts, layers, pp) == rank, tolerance);
    BOOST_TEST(slowest(parts, layers, pp * vpp) == stage, tolerance);
  }
}

// Times of which no two splits take as long.
BOOST_AUTO_TEST_CASE(trials_that_are_left_out_change_no_split) {
  std::mt19937 generator(23);
  std::uniform_real_distribution<double> seconds(0.5, 2);
  for (int i = 0; i < 400; ++i) {
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(generator() % most); };
    const int64_t vpp = 1 + upto(4);
    const int64_t pp = 2 + upto(6);
    StageParts parts = alike_parts(pp * vpp + upto(40), 3 * seconds(generator));
    for (StageSeconds& layer : parts.layers) layer = {seconds(generator), seconds(generator)};
    if (upto(3) == 0) {
      parts.kept = parts.layers;
      for (StageSeconds& layer : parts.kept) layer.device /= 2;
      parts.num_again = 1 + upto(3);
    }
    std::vector<int64_t> in_flight(static_cast<size_t>(pp * vpp));
    for (int64_t& count : in_flight) count = 1 + upto(20);
    BOOST_TEST(best_split(parts, pp, in_flight) == plain_split(parts, pp, in_flight),
               boost::test_tools::per_element());
  }
}

// Forward by forward: the virtual stages of a rank take groups of pp micro-batches in turn.
BOOST_AUTO_TEST_CASE(micro_batches_in_flight_are_counted_by_rounds) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(64);
  PlanRun run = run_of(model, hardware);
  for (run.knobs.pp = 2; run.knobs.pp <= 5; ++run.knobs.pp) {
    for (run.knobs.vpp = 2; run.knobs.vpp <= 4; ++run.knobs.vpp) {
      for (run.global_batch_size = 1; run.global_batch_size < 20; ++run.global_batch_size) {
        for (const bool has_overlap : {false, true}) {
          for (int stage = 0; stage < run.knobs.pp; ++stage) {
            run.knobs.overlap_moe_expert_parallel_comm = has_overlap;
            const int64_t pp = run.knobs.pp;
            const int64_t vpp = run.knobs.vpp;
            const int64_t forwards =
                std::min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1 + (has_overlap ? 1 : 0),
                         run.global_batch_size * vpp);
            std::vector<int64_t> expected(static_cast<size_t>(vpp));
            for (int64_t i = 0; i < forwards; ++i) ++expected[static_cast<size_t>(i / pp % vpp)];
            BOOST_TEST(micro_batches_in_flight(run, stage) == expected,
                       boost::test_tools::per_element());
          }
        }
      }
    }
  }
}

// Of each stage the first two layers are recomputed, and take twice as long as the others.
BOOST_AUTO_TEST_CASE(layers_of_a_block_count_by_their_place) {
  StageParts parts = alike_parts(8, 4);
  for (StageSeconds& layer : parts.layers) layer = {2, 0};
  BOOST_TEST(best_split(parts, 2, {1, 1}) == (Layers{5, 3}), boost::test_tools::per_element());
  parts.kept.assign(8, {1, 0});
  parts.num_again = 2;
  BOOST_TEST(best_split(parts, 2, {1, 1}) == (Layers{6, 2}), boost::test_tools::per_element());
  const auto exactly = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(stage_seconds(parts, {6, 2}, 2) == 8.0, exactly);
  BOOST_TEST(stage_seconds(parts, {7, 1}, 2) == 9.0, exactly);
  BOOST_TEST(stage_seconds(parts, {5, 3}, 2) == 9.0, exactly);
  // Of a run: both times of each layer, and without a block one.
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 2;
  run.knobs.dp = 4;
  run.knobs.recompute = {spec::PlanRecompute::full};
  WorkCache works;
  BOOST_TEST(parts_by_place(run, works, {}).kept.empty());
  run.knobs.recompute_method = spec::RecomputeMethod::block;
  run.knobs.recompute_num_layers = 2;
  const StageParts of_block = parts_by_place(run, works, {});
  BOOST_TEST(of_block.num_again == 2);
  BOOST_TEST_REQUIRE(of_block.kept.size() == 8);
  BOOST_TEST(of_block.kept[0].device < of_block.layers[0].device);
}

BOOST_AUTO_TEST_CASE(where_time_leaves_a_choice_the_fullest_stage_holds_least) {
  // Thirteen layers and an end of two on four stages of four at most: one place is left.
  const StageParts parts = alike_parts(13, 2);
  BOOST_TEST(best_split(parts, 4, {4, 3, 2, 1}) == (Layers{3, 4, 4, 2}),
             boost::test_tools::per_element());
  BOOST_TEST(best_split(parts, 4, {1, 2, 3, 4}) == (Layers{4, 4, 3, 2}),
             boost::test_tools::per_element());
  // Ranks of two stages: none of three beside one, whatever is in flight.
  BOOST_TEST(best_split(alike_parts(16, 0), 4, {4, 4, 4, 4, 1, 1, 1, 1}) == Layers(8, 2),
             boost::test_tools::per_element());
  BOOST_TEST(best_split(alike_parts(14, 3), 4, {4, 4, 4, 4, 1, 1, 1, 1}) ==
                 (Layers{2, 2, 2, 2, 2, 2, 2, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(virtual_stages_wait_for_the_slowest_of_their_number) {
  const StageParts parts = alike_parts(13, 2);
  BOOST_TEST(stage_seconds(parts, {4, 4, 4, 1}, 4) == 4);
  BOOST_TEST(stage_seconds(parts, {4, 4, 4, 1}, 2) == 8);
  BOOST_TEST(stage_seconds(parts, {4, 2, 4, 3}, 2) == 9);  // the ranks take 8 and 7
}

// What a plan is priced by is what its stages are chosen by.
BOOST_AUTO_TEST_CASE(written_stages_are_priced_as_they_are_chosen) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(2);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 2;
  run.knobs.vpp = 2;
  WorkCache works;
  const StageParts parts = stage_parts(run, works, {});
  const auto priced = [&](const Layers& layers) {
    run.stages = stages_with(model, layers);
    const StepTime step = predict_step(run, {});
    double seconds = 0;
    for (const TimePart part : {TimePart::products, TimePart::attention, TimePart::memory,
                                TimePart::tensor, TimePart::host}) {
      seconds += step.part(part);
    }
    return seconds / static_cast<double>(num_micro_batches(run));
  };
  for (const Layers& layers : {Layers{2, 2, 2, 2}, Layers{3, 1, 3, 1}, Layers{3, 2, 2, 1}}) {
    BOOST_TEST(priced(layers) == stage_seconds(parts, layers, 2),
               boost::test_tools::tolerance(1e-9));
  }
}

// The last stage computes less than the first, but FSDP gathers the large head for each
// micro-batch.
BOOST_AUTO_TEST_CASE(what_a_stage_gathers_may_make_it_the_slowest) {
  spec::ModelSpec model = samples::moe_model();
  model.vocab_size = 256 * 1024;
  model.num_layers = 32;
  model.is_moe_layer.assign(32, true);
  model.attention_window.assign(32, 0);
  spec::HardwareSpec hardware = machine(64);
  hardware.inter_node.bytes_per_s = 5e9;
  PlanRun run = run_of(model, hardware);
  run.seq_length = 256;
  run.knobs.pp = 2;
  run.knobs.dp = 32;
  run.knobs.fsdp = spec::Fsdp::megatron;
  WorkCache works;
  const auto seconds_with = [&](const Layers& layers) {
    run.stages = stages_with(model, layers);
    return predict_step(run, {});
  };
  for (int64_t first = 16; first < 32; ++first) {
    const Layers layers = {first, 32 - first};
    const StepTime plain = seconds_with(layers);
    run.knobs.recompute = {spec::PlanRecompute::full};
    BOOST_TEST(seconds_with(layers).seconds > plain.seconds);
    run.knobs.recompute = {};
  }
  // A split knows what is gathered.
  const StageParts gathered = stage_parts(run, works, {});
  run.knobs.fsdp = spec::Fsdp::none;
  const StageParts kept = stage_parts(run, works, {});
  BOOST_TEST(gathered.end.device > kept.end.device);
  BOOST_TEST(gathered.layers.front().device > kept.layers.front().device);
  const Layers split = best_split(gathered, 2, {1, 1});
  run.knobs.fsdp = spec::Fsdp::megatron;
  BOOST_TEST(seconds_with(split).seconds <= seconds_with(best_split(kept, 2, {1, 1})).seconds);
}

BOOST_AUTO_TEST_CASE(a_layout_is_written_where_it_is_needed_or_pays) {
  BOOST_TEST(written(8, 4, 1, 0.01) == "");
  BOOST_TEST(written(8, 4, 2, 0.01) == "");
  BOOST_TEST(written(8, 1, 1, 4) == "");
  // The end takes as long as a layer, but with one less the last stage would have others take
  // three.
  BOOST_TEST(written(8, 4, 1, 1) == "");
  BOOST_TEST(written(32, 4, 1, 3) == "Et*8|(t*9|)*2t*6L");
  BOOST_TEST(written(9, 4, 1, 0.5) == "Ett|tt|t*3|ttL");
  BOOST_TEST(written(61, 16, 1, 2.4, 1) == "Et*4|(t*4|)*14tmL");
}

BOOST_AUTO_TEST_CASE(ends_stand_alone_where_stages_are_more_than_layers) {
  BOOST_TEST(written(7, 4, 2, 1) == "Et|(t|)*6L");
  BOOST_TEST(written(6, 4, 2, 1) == "E|(t|)*6L");
  BOOST_TEST(written(6, 8, 1, 1, 1) == "E|(t|)*6mL");
  BOOST_TEST(written(5, 4, 2, 1, 1) == "E|(t|)*5m|L");
}

BOOST_AUTO_TEST_CASE(what_is_counted_and_hybrids_stay_as_they_are) {
  spec::ModelSpec model = dense_model();  // eight layers
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.knobs.last_stage_layers = 2;
  run.stages = choose_stages(run, alike_parts(8, 3));
  BOOST_TEST(run.stages == (Stages{"Ett", "tt", "tt", "ttL"}), boost::test_tools::per_element());
  BOOST_TEST(pipeline_layout_of(run) == "");
  run.knobs.last_stage_layers = 1;  // seven do not go into three
  BOOST_TEST(choose_stages(run, alike_parts(8, 3)).empty());
  run.knobs.last_stage_layers = 0;
  run.knobs.pp = 3;
  BOOST_TEST(!choose_stages(run, alike_parts(8, 3)).empty());
  model.layer_kinds.assign(8, {spec::Mixer::mamba, spec::FeedForward::dense});
  BOOST_TEST(choose_stages(run, alike_parts(8, 3)).empty());
}

BOOST_AUTO_TEST_CASE(a_written_layout_is_played) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(2);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 2;
  run.global_batch_size = 8;
  run.stages = {"Ett", "ttttttL"};
  BOOST_TEST(trial_of(run).knobs.pipeline_model_parallel_layout == "Ett|t*6L");
  const int64_t uneven = play_plan(run, {}, false).estimate.step_ns;
  run.stages = unwritten_stages(run);
  BOOST_TEST(trial_of(run).knobs.pipeline_model_parallel_layout == "none");
  BOOST_TEST(play_plan(run, {}, false).estimate.step_ns < uneven);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
