// Batch-level overlap: the forward of one micro-batch woven into the backward of another. Nothing
// is lost or done twice, what every program holds is held, and rows travel while others compute.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/listing.h"
#include "engine/plan/player.h"
#include "engine/plan/schedules/schedule.h"
#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(combined_schedule)

namespace {

using testing::error_of;
using testing::num_ranks;

const Planned kOverlap = [] {
  Planned planned;
  planned.overlaps_micro_batches = true;
  return planned;
}();

const char* const kLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true,
        "recompute": "norm,core_attn,moe_act", "ep_chunks_forward": 2, "ep_chunks_backward": 3})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2, "cuda_graph_modules": "attn,moe_router"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2})",
};

void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    if (model.num_experts == 0) continue;
    for (const char* knobs : kLayouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) { body(testing::trial_of(model, knobs)); }
    }
  }
}

/// On two ranks that share experts.
spec::TrialSpec with_experts() {
  const auto models = testing::small_models();
  const auto found =
      std::ranges::find_if(models, [](const auto& named) { return named.second.num_experts > 0; });
  return testing::trial_of(found->second, kLayouts[0]);
}

bool is_cut(const StepProgram& program) {
  return std::ranges::any_of(program.items, [&](const Item& item) {
    return program.segments[static_cast<size_t>(item.segment)]->num_pieces > 1;
  });
}

/// By what each instruction is and whose it is.
using Counts = std::map<std::tuple<Verb, Op, Pass, int32_t, int32_t, int32_t, int64_t>, int>;
Counts counts_of(const StepProgram& program) {
  Counts counts;
  for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
    ++counts[{instr.verb, instr.op, instr.pass, item.layer, item.micro_batch, instr.event,
              instr.cost.bytes}];
  });
  return counts;
}

int64_t played_ns(const spec::TrialSpec& trial, const Planned& planned,
                  const DurationOf& duration) {
  const testing::RanksOfStep step(trial, planned);
  return play(trial.hardware, step.played(), duration).step_ns;
}

BOOST_AUTO_TEST_CASE(woven_programs_hold_what_programs_hold) {
  int num_cut = 0;
  int num_all = 0;
  for_all([&](const spec::TrialSpec& trial) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      const StepProgram woven = compile(trial, rank, kOverlap);
      num_cut += is_cut(woven) ? 1 : 0;
      ++num_all;
      BOOST_TEST(error_of(woven) == "");
    }
  });
  // Some stages have no layer with experts.
  BOOST_TEST(10 * num_cut > 9 * num_all);
}

BOOST_AUTO_TEST_CASE(weaving_changes_only_the_order) {
  for_all([](const spec::TrialSpec& trial) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      const StepProgram plain = compile(trial, rank);
      BOOST_TEST(!is_cut(plain));
      BOOST_TEST((counts_of(compile(trial, rank, kOverlap)) == counts_of(plain)));
    }
  });
}

BOOST_AUTO_TEST_CASE(ranks_of_woven_programs_do_all_that_they_say) {
  for_all([](const spec::TrialSpec& trial) { testing::play_all(trial, kOverlap); });
}

BOOST_AUTO_TEST_CASE(rows_of_one_travel_while_another_computes) {
  spec::TrialSpec trial = with_experts();
  // Products take as long as an exchange or longer; the host and memory nothing.
  trial.hardware.launch_ns = trial.hardware.sync_ns = trial.hardware.graph_launch_ns = 0;
  trial.hardware.intra_node.latency_ns = trial.hardware.inter_node.latency_ns = 1000;
  const auto products = [](const Position&, const Instr& instr, const OpCost&) {
    const Work work = op_row(instr.op).work;
    return work == Work::grouped || work == Work::attention ? int64_t{20000} : int64_t{0};
  };
  const int64_t work = played_ns(trial, {}, products);
  const int64_t woven = played_ns(trial, kOverlap, products);
  spec::TrialSpec near = trial;
  near.hardware.intra_node = near.hardware.inter_node = {0, 1e15};
  const int64_t bare = played_ns(near, {}, products);
  BOOST_TEST(bare < work);
  // Most of what was exposed is hidden; the first forward and the last backward are beside nothing.
  BOOST_TEST(woven - bare < (work - bare) / 2);
  BOOST_TEST(woven > bare);
}

// More is held than one after the other: a layer's worth of two micro-batches.
BOOST_AUTO_TEST_CASE(woven_micro_batches_hold_more_memory) {
  const spec::TrialSpec trial = with_experts();
  const auto most = [&](const Planned& planned) {
    const StepProgram program = compile(trial, 0, planned);
    const BalancedBindings bindings(trial, 0);
    int64_t bytes = 0;
    int64_t peak = 0;
    for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
      if (instr.verb != Verb::alloc && instr.verb != Verb::free) return;
      const int64_t rows =
          instr.is_routed ? bindings.at(item.layer, item.micro_batch).num_received : 0;
      bytes += (instr.verb == Verb::alloc ? 1 : -1) * cost_at(instr, rows).bytes;
      peak = std::max(peak, bytes);
    });
    BOOST_TEST(bytes == 0);
    return peak;
  };
  BOOST_TEST(most(kOverlap) > most({}));
}

BOOST_AUTO_TEST_CASE(pieces_of_one_segment_come_in_order) {
  const spec::TrialSpec trial = with_experts();
  StepProgram program = compile(trial, 0, kOverlap);
  const auto piece_of = [&](const Item& item) {
    return program.segments[static_cast<size_t>(item.segment)]->piece;
  };
  const auto second =
      std::ranges::find_if(program.items, [&](const Item& item) { return piece_of(item) == 1; });
  BOOST_TEST_REQUIRE((second != program.items.end()));
  BOOST_TEST(item_title(program, *second).find("piece 2 of 3") != std::string::npos);
  program.items.erase(second);
  BOOST_CHECK_THROW(check(program), base::Error);
}

BOOST_AUTO_TEST_CASE(steps_that_are_woven_are_of_different_micro_batches) {
  for (int pp = 1; pp <= 4; ++pp) {
    for (int vpp = pp == 1 ? 1 : 2; vpp <= (pp == 1 ? 1 : 3); ++vpp) {
      for (int64_t m = pp; m <= 4 * pp; m += pp) {
        for (int stage = 0; stage < pp; ++stage) {
          const std::vector<ScheduleStep> steps = combined_1f1b(pp, vpp, stage, m);
          BOOST_TEST(steps.size() == static_cast<size_t>(2 * m * vpp));
          std::set<std::tuple<bool, int64_t, int>> seen;
          int64_t num_woven = 0;
          for (size_t i = 0; i < steps.size(); ++i) {
            const ScheduleStep& at = steps[i];
            BOOST_TEST(seen.emplace(at.is_forward, at.micro_batch, at.virtual_stage).second);
            if (!at.is_woven) continue;
            ++num_woven;
            BOOST_TEST_REQUIRE(i + 1 < steps.size());
            BOOST_TEST(at.is_forward);
            BOOST_TEST(!steps[i + 1].is_forward);
            BOOST_TEST((at.micro_batch != steps[i + 1].micro_batch ||
                        at.virtual_stage != steps[i + 1].virtual_stage));
          }
          const int64_t ahead = 2 * (pp - 1 - stage) + (vpp - 1) * pp + 1;
          BOOST_TEST(num_woven == std::max<int64_t>(0, m * vpp - ahead), pp << " " << vpp);
        }
      }
    }
  }
}

// Forwards wait for the stage before and backwards for the one behind, both before either begins.
BOOST_AUTO_TEST_CASE(combined_stages_end) {
  for (int pp = 1; pp <= 4; ++pp) {
    for (int vpp = pp == 1 ? 1 : 2; vpp <= (pp == 1 ? 1 : 3); ++vpp) {
      for (int64_t m = pp; m <= 4 * pp; m += pp) {
        const auto num_stages = static_cast<size_t>(pp * vpp);
        std::vector<std::vector<ScheduleStep>> plans;
        for (int stage = 0; stage < pp; ++stage) plans.push_back(combined_1f1b(pp, vpp, stage, m));
        std::vector<std::set<int64_t>> forward(num_stages);
        std::vector<std::set<int64_t>> backward(num_stages);
        std::vector<size_t> next(plans.size(), 0);
        const auto is_ready = [&](size_t rank, const ScheduleStep& step) {
          const auto k = static_cast<size_t>(step.virtual_stage * pp) + rank;
          if (step.is_forward) return k == 0 || forward[k - 1].contains(step.micro_batch);
          return k + 1 == num_stages ? forward[k].contains(step.micro_batch)
                                     : backward[k + 1].contains(step.micro_batch);
        };
        for (bool has_moved = true; has_moved;) {
          has_moved = false;
          for (size_t rank = 0; rank < plans.size(); ++rank) {
            if (next[rank] == plans[rank].size()) continue;
            const size_t count = plans[rank][next[rank]].is_woven ? 2 : 1;
            const auto begin = plans[rank].begin() + static_cast<std::ptrdiff_t>(next[rank]);
            const auto end = begin + static_cast<std::ptrdiff_t>(count);
            if (!std::all_of(begin, end,
                             [&](const ScheduleStep& s) { return is_ready(rank, s); })) {
              continue;
            }
            for (auto step = begin; step != end; ++step) {
              const auto k = static_cast<size_t>(step->virtual_stage * pp) + rank;
              (step->is_forward ? forward : backward)[k].insert(step->micro_batch);
            }
            next[rank] += count;
            has_moved = true;
          }
        }
        for (size_t k = 0; k < num_stages; ++k) {
          BOOST_TEST(static_cast<int64_t>(backward[k].size()) == m, pp << " " << vpp << " " << m);
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
