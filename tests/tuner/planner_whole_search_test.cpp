// The search against trying every point by itself, without anything that points share.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/choice_peaks.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/search.h"
#include "tuner/planner/search_choices.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::question_of;
using samples::run_of;

namespace {

/// Latent attention, a dense layer before those of experts, and multi-token prediction.
spec::ModelSpec latent_model() {
  spec::ModelSpec model = moe_model();
  model.mla = {.q_lora_rank = 256,
               .kv_lora_rank = 128,
               .qk_nope_head_dim = 64,
               .qk_rope_head_dim = 32,
               .v_head_dim = 64};
  model.ffn_size = 2816;
  model.layer_kinds.assign(8, {spec::Mixer::mla, spec::FeedForward::moe});
  model.layer_kinds.front().feed_forward = spec::FeedForward::dense;
  model.is_moe_layer.front() = false;
  model.mtp = {.depth = 1, .layers = {model.layer_kinds.back()}};
  return model;
}

/// Calls `see` with each legal point, and the number of its layout.
template <typename See>
void for_each_legal(const PlanQuestion& question, const See& see) {
  SearchChoices choices(question);
  const int64_t devices = question.hardware->num_devices();
  int64_t layout = 0;
  spec::PlanKnobs knobs = question.base;
  const auto look_at_choices = [&] {
    ++layout;
    for (const MemoryChoice& memory : choices.memory()) {
      const auto of_memory = choices.with(knobs, memory);
      if (!of_memory) continue;
      for (const TimeChoice& time : choices.time()) {
        const PlanRun run = run_with(question, {choices.with(*of_memory, time)});
        if (broken_rule(run) == nullptr) see(run, layout);
      }
    }
  };
  const auto divides = [](int64_t size, int64_t count) { return count % size == 0; };
  for (knobs.tp = 1; knobs.tp <= question.hardware->devices_per_node; ++knobs.tp) {
    for (knobs.cp = 1; knobs.cp <= devices; ++knobs.cp) {
      for (knobs.pp = 1; knobs.pp <= question.model->num_layers; ++knobs.pp) {
        if (!divides(knobs.replica_ranks(), devices)) continue;
        knobs.dp = static_cast<int32_t>(devices / knobs.replica_ranks());
        for (knobs.ep = 1; knobs.ep <= devices; ++knobs.ep) {
          for (knobs.etp = 1; knobs.etp <= knobs.tp; knobs.etp += std::max(1, knobs.tp - 1)) {
            for (const int32_t vpp : choices.virtual_stages_with(knobs.pp)) {
              knobs.vpp = vpp;
              for (knobs.micro_batch_size = 1; knobs.micro_batch_size <= 8;
                   knobs.micro_batch_size *= 2) {
                knobs.cp_comm_type = spec::PlanCp::p2p;
                look_at_choices();
                if (knobs.cp == 1 || !choices.may_exchange_heads()) continue;
                knobs.cp_comm_type = spec::PlanCp::a2a;
                --layout;  // the better of both ways counts
                look_at_choices();
              }
            }
          }
        }
      }
    }
  }
}

struct Expected {
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  std::vector<double> seconds;  ///< of the fastest that fits of each layout, ascending
};

/// Of points without pipeline stages, which nobody has to choose.
Expected expected_of(const PlanQuestion& question) {
  Expected expected;
  std::map<int64_t, double> fastest;
  for_each_legal(question, [&](const PlanRun& run, int64_t layout) {
    if (run.knobs.pp > 1) return;
    ++expected.num_legal;
    const double bytes = device_bytes(predict_memory(run).peak_bytes());
    if (bytes > static_cast<double>(question.hardware->memory_bytes)) return;
    ++expected.num_fit;
    double& least =
        fastest.try_emplace(layout, std::numeric_limits<double>::infinity()).first->second;
    least = std::min(least, predict_step(run, {}).seconds);
  });
  for (const auto& [layout, seconds] : fastest) expected.seconds.push_back(seconds);
  std::ranges::sort(expected.seconds);
  return expected;
}

void check_legal(const PlanQuestion& question) {
  int64_t num_legal = 0;
  for_each_legal(question, [&](const PlanRun&, int64_t) { ++num_legal; });
  BOOST_TEST(num_legal > 0);
  BOOST_TEST(search_plans(question, {}).num_legal == num_legal);
}

void check_search(PlanQuestion question) {
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.pp == 1; };
  const Expected expected = expected_of(question);
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST(answer.num_legal == expected.num_legal);
  BOOST_TEST(answer.num_fit == expected.num_fit);
  BOOST_TEST_REQUIRE(expected.num_fit > 0);
  BOOST_TEST(expected.num_fit < expected.num_legal);
  BOOST_TEST_REQUIRE(answer.best.size() ==
                     std::min<size_t>(expected.seconds.size(), question.num_best));
  for (size_t i = 0; i < answer.best.size(); ++i) {
    BOOST_TEST(answer.best[i].seconds == expected.seconds[i], boost::test_tools::tolerance(1e-12));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(planner_whole_search)

BOOST_AUTO_TEST_CASE(all_points_that_are_legal_are_counted) {
  const spec::HardwareSpec hardware = machine(16);
  for (const spec::ModelSpec& model : {dense_model(), moe_model(), latent_model()}) {
    BOOST_TEST_CONTEXT(model.family << " with " << model.mtp.depth << " further tokens") {
      PlanQuestion question = question_of(model, hardware);
      check_legal(question);
      question.is_of_megatron = false;
      question.base.fsdp = spec::Fsdp::torch;
      check_legal(question);
    }
  }
}

BOOST_AUTO_TEST_CASE(counts_and_best_are_those_of_all_points) {
  spec::HardwareSpec hardware = machine(4);
  hardware.memory_bytes = int64_t{6} << 30;
  for (const spec::ModelSpec& model : {dense_model(), moe_model(), latent_model()}) {
    BOOST_TEST_CONTEXT(model.family << " with " << model.mtp.depth << " further tokens") {
      check_search(question_of(model, hardware));
    }
  }
}

BOOST_AUTO_TEST_CASE(counts_and_best_are_those_of_all_points_under_load) {
  spec::HardwareSpec hardware = machine(4);
  hardware.memory_bytes = int64_t{6} << 30;
  const spec::ModelSpec model = latent_model();
  PlanQuestion question = question_of(model, hardware);
  question.load = 3;
  question.num_best = 3;
  question.base.recompute_method = spec::RecomputeMethod::block;
  check_search(question);
}

BOOST_AUTO_TEST_CASE(counts_and_best_are_those_of_all_points_of_torchtitan) {
  spec::HardwareSpec hardware = machine(4);
  hardware.memory_bytes = int64_t{6} << 30;
  const spec::ModelSpec model = moe_model();
  PlanQuestion question = question_of(model, hardware);
  question.is_of_megatron = false;
  question.base.fsdp = spec::Fsdp::torch;
  question.can_say = [](const spec::PlanKnobs& k, std::string_view knob) {
    return knob != "fsdp" || (k.fsdp == spec::Fsdp::torch) == (k.dense_copies() > 1);
  };
  check_search(question);
}

// Its masters are what 16-bit weights lack.
BOOST_AUTO_TEST_CASE(the_precision_aware_optimizer_is_a_choice_of_memory) {
  spec::HardwareSpec hardware = machine(4);
  const spec::ModelSpec model = moe_model();
  PlanQuestion question = question_of(model, hardware);
  question.keeps = [](const spec::PlanKnobs& k) { return !k.precision_aware_optimizer; };
  hardware.memory_bytes = int64_t{1} << 30;
  const PlanAnswer wide = search_plans(question, {});
  BOOST_TEST_REQUIRE(!wide.nearest.empty());
  question.keeps = nullptr;
  const PlanAnswer both = search_plans(question, {});
  BOOST_TEST_REQUIRE(!both.nearest.empty());
  BOOST_TEST(both.nearest.front().knobs.precision_aware_optimizer);
  BOOST_TEST(both.nearest.front().peak_bytes < wide.nearest.front().peak_bytes);
  // Where nothing is gained by it, the usual one stays.
  hardware.memory_bytes = int64_t{80} << 30;
  BOOST_TEST(!search_plans(question, {}).best.front().knobs.precision_aware_optimizer);
  // FSDP has masters of its own, other optimizers do not know it.
  const SearchChoices choices(question);
  for (const MemoryChoice& choice : choices.memory()) {
    BOOST_TEST((!choice.is_aware || choice.fsdp == spec::Fsdp::none));
  }
  question.base.optimizer = spec::OptimizerKind::muon;
  const SearchChoices of_muon(question);
  for (const MemoryChoice& choice : of_muon.memory()) BOOST_TEST(!choice.is_aware);
}

BOOST_AUTO_TEST_CASE(losses_are_those_that_arguments_take) {
  const spec::HardwareSpec hardware = machine(4);
  const spec::ModelSpec model = moe_model();
  PlanQuestion question = question_of(model, hardware);
  const auto losses = [&] {
    std::set<spec::CrossEntropy> all;
    const SearchChoices choices(question);
    for (const MemoryChoice& choice : choices.memory()) {
      all.insert(choice.cross_entropy);
    }
    return all;
  };
  using spec::CrossEntropy;
  BOOST_TEST(
      (losses() == std::set{CrossEntropy::unfused, CrossEntropy::native, CrossEntropy::chunked}));
  question.takes_te_loss = true;
  BOOST_TEST(losses().contains(CrossEntropy::te));
}

// What a command sends to the host's memory, and the same without.
BOOST_AUTO_TEST_CASE(other_bases_are_searched_as_well) {
  spec::HardwareSpec hardware = machine(4);
  hardware.memory_bytes = int64_t{6} << 30;
  const spec::ModelSpec model = moe_model();
  PlanQuestion question = question_of(model, hardware);
  question.wants_space = true;
  const PlanAnswer plain = search_plans(question, {});
  question.base.offload = {spec::Offload::moe_act};
  const PlanAnswer offloaded = search_plans(question, {});
  question.other_bases = {question_of(model, hardware).base};
  const PlanAnswer both = search_plans(question, {});
  BOOST_TEST(both.num_fit == plain.num_fit + offloaded.num_fit);
  BOOST_TEST(both.num_legal == plain.num_legal + offloaded.num_legal);
  BOOST_TEST(both.best.front().seconds ==
             std::min(plain.best.front().seconds, offloaded.best.front().seconds));
  BOOST_TEST_REQUIRE(both.cells.size() == plain.cells.size());
  for (size_t i = 0; i < both.cells.size(); ++i) {
    BOOST_TEST(both.cells[i].num_fit == plain.cells[i].num_fit + offloaded.cells[i].num_fit);
  }
  for (size_t i = 0; i < both.best.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      BOOST_TEST(!is_same_choice(both.best[i].knobs, both.best[k].knobs));
    }
  }
}

// In whatever order they are asked for.
BOOST_AUTO_TEST_CASE(peaks_of_choices_are_those_of_each_alone) {
  const spec::HardwareSpec hardware = machine(8);
  std::mt19937 generator(29);
  for (const spec::ModelSpec& model : {dense_model(), moe_model(), latent_model()}) {
    for (const bool is_of_megatron : {true, false}) {
      for (const int32_t pp : {1, 4}) {
        PlanQuestion question = question_of(model, hardware);
        question.is_of_megatron = is_of_megatron;
        question.base.pp = pp;
        question.base.dp = 8 / pp;
        question.base.ep = model.num_experts > 0 ? 2 : 1;
        question.base.recompute_method = spec::RecomputeMethod::block;
        const SearchChoices choices(question);
        PlanRun run = run_with(question, {question.base});
        if (pp > 1) run.stages = unwritten_stages(run);
        const PreparedMemory memory(run);
        ChoicePeaks peaks(memory, 2);
        run.load = 2;
        for (int i = 0; i < 200; ++i) {
          const auto& of_memory = choices.memory()[generator() % choices.memory().size()];
          const auto& of_time = choices.time()[generator() % choices.time().size()];
          run.knobs = question.base;
          run.knobs.recompute = of_memory.recompute;
          run.knobs.recompute_method = of_memory.layers.method;
          run.knobs.cross_entropy = of_memory.cross_entropy;
          run.knobs.fsdp = of_memory.fsdp;
          run.knobs.precision_aware_optimizer = of_memory.is_aware;
          run.knobs.distributed_optimizer = generator() % 2 == 0;
          run.knobs = choices.with(run.knobs, of_time);
          BOOST_TEST_REQUIRE(peaks.peak_bytes(run.knobs) == predict_memory(run).peak_bytes());
        }
      }
    }
  }
}

// What other layouts with the same sizes of a layer took is no other time.
BOOST_AUTO_TEST_CASE(times_that_layouts_share_are_those_of_each_alone) {
  const spec::HardwareSpec hardware = machine(32);
  const spec::ModelSpec model = latent_model();
  std::mt19937 generator(31);
  for (const bool is_of_megatron : {true, false}) {
    PlanQuestion question = question_of(model, hardware);
    question.is_of_megatron = is_of_megatron;
    const SearchChoices choices(question);
    WorkCache works;
    TimeCache times;
    for (int i = 0; i < 400; ++i) {
      const auto one_of = [&](std::initializer_list<int32_t> values) {
        return values.begin()[generator() % values.size()];
      };
      spec::PlanKnobs knobs = question.base;
      knobs.tp = one_of({1, 2});
      knobs.cp = one_of({1, 2});
      knobs.pp = one_of({1, 2, 4});
      knobs.dp = static_cast<int32_t>(32 / knobs.replica_ranks());
      knobs.ep = one_of({1, 4});
      knobs.cp_comm_type = generator() % 2 == 0 ? spec::PlanCp::p2p : spec::PlanCp::a2a;
      const auto& of_memory = choices.memory()[generator() % choices.memory().size()];
      const auto& of_time = choices.time()[generator() % choices.time().size()];
      knobs.recompute = of_memory.recompute;
      knobs.fsdp = of_memory.fsdp;
      PlanRun run = run_with(question, {choices.with(knobs, of_time)});
      if (knobs.pp > 1 && is_of_megatron) run.stages = unwritten_stages(run);
      const PipelineOutline outline = outline_of(run);
      const PreparedStep shared(run, outline, works);
      BOOST_TEST_REQUIRE(shared.price({}, times).seconds == predict_step(run, {}).seconds);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
