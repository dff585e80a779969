// Plans: the search finds what trying everything finds, and says what it counted; rules.
#include <algorithm>
#include <array>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/search.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::question_of;
using samples::run_of;

BOOST_AUTO_TEST_SUITE(planner_search)

BOOST_AUTO_TEST_CASE(all_that_is_best_is_legal_and_fits_and_is_sorted) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  const PlanQuestion question = question_of(model, hardware);
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(answer.best.size() == 10);
  BOOST_TEST(answer.num_points >= answer.num_legal);
  BOOST_TEST(answer.num_legal >= answer.num_fit);
  BOOST_TEST(answer.num_fit > 0);
  double before = 0;
  for (const PlannedConfig& config : answer.best) {
    const PlanRun run = run_with(question, config);
    BOOST_TEST((config.knobs.pp == 1) == run.stages.empty());
    BOOST_TEST((broken_rule(run) == nullptr));
    BOOST_TEST(device_bytes(config.peak_bytes) <= static_cast<double>(hardware.memory_bytes));
    BOOST_TEST(config.peak_bytes == predict_memory(run).peak_bytes());
    BOOST_TEST(config.seconds == predict_step(run, {}).seconds,
               boost::test_tools::tolerance(1e-12));
    BOOST_TEST(config.seconds >= before);
    before = config.seconds;
  }
}

// The ring holds less, exchanged heads are faster: neither leaves the other out. What the run of
// today does is no bound either.
BOOST_AUTO_TEST_CASE(both_ways_to_exchange_context_are_looked_at) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  question.seq_length = 65536;
  question.global_batch_size = 8;
  question.num_best = 1000;
  const PlanAnswer both = search_plans(question, {});
  question.may_exchange_heads = false;
  const PlanAnswer ring = search_plans(question, {});
  question.base.cp_comm_type = spec::PlanCp::a2a;
  const PlanAnswer heads = search_plans(question, {});
  BOOST_TEST(ring.num_fit > heads.num_fit);  // without context parallelism they are the same
  BOOST_TEST(both.num_fit > ring.num_fit);
  BOOST_TEST(both.best.front().seconds ==
             std::min(ring.best.front().seconds, heads.best.front().seconds));
  for (size_t i = 1; i < both.best.size(); ++i) {
    const spec::PlanKnobs& a = both.best[i - 1].knobs;
    spec::PlanKnobs b = both.best[i].knobs;
    b.cp_comm_type = a.cp_comm_type;
    BOOST_TEST((a != b));
  }
  question.may_exchange_heads = true;
  question.base.fsdp = spec::Fsdp::megatron;
  BOOST_TEST(search_plans(question, {}).best.front().seconds == both.best.front().seconds);
}

BOOST_AUTO_TEST_CASE(a_split_that_holds_no_layers_is_illegal) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  question.base.first_stage_layers = static_cast<int32_t>(model.num_layers) + 1;
  for (const PlannedConfig& config : search_plans(question, {}).best) {
    BOOST_TEST(config.knobs.pp == 1);  // where it says nothing
  }
}

// Seven layers on two, four ... stages: each plan says a layout, and figures are of it.
BOOST_AUTO_TEST_CASE(layers_that_do_not_divide_are_laid_out) {
  spec::ModelSpec model = moe_model();
  model.num_layers = 7;
  model.is_moe_layer.resize(7);
  model.attention_window.resize(7);
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.pp > 1; };
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  for (const PlannedConfig& config : answer.best) {
    PlanRun run = run_with(question, config);
    const std::string layout = pipeline_layout_of(run);
    BOOST_TEST_CONTEXT(layout) {
      BOOST_TEST(std::ranges::count(layout, '|') > 0);
      int64_t num_layers = 0;
      for (const Chunk& chunk : chunks_of(run)) num_layers += chunk.count;
      BOOST_TEST(num_layers == 7);
      BOOST_TEST(num_virtual_stages(run) == config.knobs.vpp);
      BOOST_TEST(config.peak_bytes == predict_memory(run).peak_bytes());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_layout_is_listed_once_with_its_fastest_virtual_stages) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  question.num_best = 1'000'000;
  const auto seconds_by_sizes = [&](int32_t vpp) {
    question.keeps = [&](const spec::PlanKnobs& k) {
      return k.pp == 2 && (vpp == 0 || k.vpp == vpp);
    };
    std::map<std::array<int32_t, 5>, double> seconds;
    for (const PlannedConfig& config : search_plans(question, {}).best) {
      const spec::PlanKnobs& k = config.knobs;
      BOOST_TEST(
          seconds.emplace(std::array{k.tp, k.cp, k.ep, k.etp, k.micro_batch_size}, config.seconds)
              .second);
    }
    return seconds;
  };
  const auto all = seconds_by_sizes(0);
  const auto one = seconds_by_sizes(1);
  const auto two = seconds_by_sizes(2);
  BOOST_TEST_REQUIRE(!two.empty());
  for (const auto& [sizes, seconds] : two) {
    BOOST_TEST(all.at(sizes) <= std::min(seconds, one.at(sizes)));
  }
}

BOOST_AUTO_TEST_CASE(a_layout_misses_once) {
  const spec::ModelSpec model = dense_model();
  spec::HardwareSpec hardware = machine(2);
  hardware.memory_bytes = int64_t{1} << 20;
  const PlanAnswer answer = search_plans(question_of(model, hardware), {});
  BOOST_TEST_REQUIRE(answer.nearest.size() > 1);
  std::set<std::array<int32_t, 4>> layouts;
  for (const PlannedConfig& config : answer.nearest) {
    const spec::PlanKnobs& k = config.knobs;
    BOOST_TEST(layouts.insert({k.tp, k.cp, k.pp, k.micro_batch_size}).second);
  }
}

BOOST_AUTO_TEST_CASE(bounds_leave_out_nothing_that_is_faster) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  hardware.memory_bytes = int64_t{8} << 30;
  PlanQuestion question = question_of(model, hardware);
  const PlanAnswer few = search_plans(question, {});
  // With room for all of them no layout is left out.
  question.num_best = 1'000'000;
  const PlanAnswer all = search_plans(question, {});
  BOOST_TEST_REQUIRE(all.best.size() > few.best.size());
  BOOST_TEST(all.num_fit == few.num_fit);
  BOOST_TEST(all.num_timed > few.num_timed);
  for (size_t i = 0; i < few.best.size(); ++i) {
    BOOST_TEST(few.best[i].seconds == all.best[i].seconds);
  }
}

// A layout that sends the most to the host's memory is no bound.
BOOST_AUTO_TEST_CASE(offload_leaves_out_nothing_that_is_faster) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  hardware.host_link_bytes_per_s = 1e9;  // copies take longer than all else
  PlanQuestion question = question_of(model, hardware);
  question.base.offload = {spec::Offload::moe_act};
  question.num_best = 1;
  const PlanAnswer one = search_plans(question, {});
  question.num_best = 1000;
  const PlanAnswer many = search_plans(question, {});
  BOOST_TEST_REQUIRE(one.best.size() == 1);
  BOOST_TEST_REQUIRE(many.best.size() > 1);
  BOOST_TEST(one.best.front().seconds == many.best.front().seconds);
}

BOOST_AUTO_TEST_CASE(the_space_has_what_trying_everything_finds) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  hardware.memory_bytes = int64_t{8} << 30;
  PlanQuestion question = question_of(model, hardware);
  question.num_best = 1'000'000;
  const PlanAnswer all = search_plans(question, {});
  question.num_best = 3;
  question.wants_space = true;
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST(answer.num_legal == all.num_legal);
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  size_t num_fitting = 0;
  for (const PlanCell& cell : answer.cells) {
    num_legal += cell.num_legal;
    num_fit += cell.num_fit;
    BOOST_TEST((cell.num_legal > 0 || cell.broken != nullptr));
    BOOST_TEST((cell.num_fit > 0) == cell.fastest.has_value());
    if (!cell.fastest) continue;
    ++num_fitting;
    double fastest = std::numeric_limits<double>::infinity();
    for (const PlannedConfig& config : all.best) {
      const spec::PlanKnobs& k = config.knobs;
      if (k.tp == cell.tp && k.cp == cell.cp && k.ep == cell.ep && k.pp == cell.pp) {
        fastest = std::min(fastest, config.seconds);
      }
    }
    BOOST_TEST(cell.fastest->seconds == fastest);
  }
  BOOST_TEST(num_fitting > 3);
  BOOST_TEST(num_legal == answer.num_legal);
  BOOST_TEST(num_fit == answer.num_fit);
  BOOST_TEST_REQUIRE(answer.front.size() > 1);
  for (size_t i = 1; i < answer.front.size(); ++i) {
    BOOST_TEST(answer.front[i].peak_bytes > answer.front[i - 1].peak_bytes);
    BOOST_TEST(answer.front[i].seconds < answer.front[i - 1].seconds);
  }
  // Nothing that is known is faster with less; a hundredth of a device counts as the same.
  const double slack = static_cast<double>(hardware.memory_bytes) / 100;
  for (const PlannedConfig& config : all.best) {
    const bool is_behind =
        std::any_of(answer.front.begin(), answer.front.end(), [&](const PlannedConfig& ahead) {
          return ahead.peak_bytes <= config.peak_bytes + slack && ahead.seconds <= config.seconds;
        });
    BOOST_TEST(is_behind);
  }
}

// Every legal configuration without a pipeline is priced here by itself, none is left out. Without
// a distributed optimizer FSDP may be faster than a step without it.
BOOST_DATA_TEST_CASE(no_configuration_is_faster_than_the_best_of_its_cell,
                     boost::unit_test::data::make({true, false}), shares_state) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  hardware.memory_bytes = int64_t{8} << 30;
  PlanQuestion question = question_of(model, hardware);
  question.num_best = 3;
  question.wants_space = true;
  question.base.distributed_optimizer = shares_state;
  std::mutex mutex;
  std::vector<spec::PlanKnobs> seen;
  question.keeps = [&](const spec::PlanKnobs& knobs) {
    if (knobs.pp > 1) return false;
    const std::scoped_lock lock(mutex);
    seen.push_back(knobs);
    return true;
  };
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(seen.size() > 1000);
  using Cell = std::array<int32_t, 3>;
  std::map<Cell, double> fastest;
  for (const spec::PlanKnobs& knobs : seen) {
    const PlanRun run = run_with(question, {knobs});
    if (broken_rule(run) != nullptr) continue;
    const double bytes = predict_memory(run).peak_bytes();
    if (device_bytes(bytes) > static_cast<double>(hardware.memory_bytes)) continue;
    const double seconds = predict_step(run, {}).seconds;
    double& least = fastest.try_emplace({knobs.tp, knobs.cp, knobs.ep}, seconds).first->second;
    least = std::min(least, seconds);
  }
  BOOST_TEST(fastest.size() > 3);
  for (const PlanCell& cell : answer.cells) {
    const auto found = fastest.find({cell.tp, cell.cp, cell.ep});
    BOOST_TEST(cell.fastest.has_value() == (cell.pp == 1 && found != fastest.end()));
    if (!cell.fastest) continue;
    BOOST_TEST(cell.fastest->seconds == found->second, boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(what_is_fixed_stays) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanQuestion question = question_of(model, hardware);
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.pp == 2 && knobs.tp == 2; };
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  for (const PlannedConfig& config : answer.best) {
    BOOST_TEST(config.knobs.pp == 2);
    BOOST_TEST(config.knobs.tp == 2);
  }
}

BOOST_AUTO_TEST_CASE(where_nothing_fits_the_nearest_are_told) {
  const spec::ModelSpec model = dense_model();
  spec::HardwareSpec hardware = machine(2);
  hardware.memory_bytes = int64_t{1} << 30;
  const PlanAnswer answer = search_plans(question_of(model, hardware), {});
  BOOST_TEST(answer.best.empty());
  BOOST_TEST(answer.num_fit == 0);
  BOOST_TEST_REQUIRE(!answer.nearest.empty());
  for (size_t i = 1; i < answer.nearest.size(); ++i) {
    BOOST_TEST(answer.nearest[i].peak_bytes >= answer.nearest[i - 1].peak_bytes);
  }
}

BOOST_AUTO_TEST_CASE(each_rule_can_be_broken_and_says_so) {
  const spec::ModelSpec moe = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  const PlanRun legal = [&] {
    PlanRun run = run_of(moe, hardware);
    run.knobs.dp = 16;
    return run;
  }();
  BOOST_TEST((broken_rule(legal) == nullptr));
  using K = spec::PlanKnobs;
  const std::pair<const char*, void (*)(K&)> kBroken[] = {
      {"world_size", [](K& k) { k.dp = 8; }},
      {"tp_divides_heads", [](K& k) { k.tp = 3; }},
      {"pp_within_layers", [](K& k) { k.pp = 16; }},
      {"vpp_needs_pp", [](K& k) { k.vpp = 2; }},
      {"ep_divides_experts", [](K& k) { k.ep = 3; }},
      {"etp_divides_width", [](K& k) { k.etp = 3; }},
      {"ep_divides_plane",
       [](K& k) {
         k.ep = 16;
         k.etp = 2;
       }},
      {"batch_divides", [](K& k) { k.micro_batch_size = 3; }},
      {"overlap_needs_ep", [](K& k) { k.overlap_moe_expert_parallel_comm = true; }},
      {"overlap_needs_16_bits",
       [](K& k) {
         k.ep = 2;
         k.overlap_moe_expert_parallel_comm = true;
         k.precision = spec::PrecisionRecipe::fp32;
       }},
      {"static_shapes", [](K& k) { k.cuda_graphs = {spec::PlanGraph::full_iteration}; }},
      {"static_shapes",
       [](K& k) {
         k.cuda_graphs = {spec::PlanGraph::moe};
         k.capacity_factor = 1;
       }},
      {"recompute_fits_model", [](K& k) { k.recompute = {spec::PlanRecompute::mla_up_proj}; }},
      {"sequence_parallel_with_experts",
       [](K& k) {
         k.tp = 2;
         k.dp = 8;
         k.sequence_parallel = false;
       }},
      {"fsdp_without_pipeline",
       [](K& k) {
         k.fsdp = spec::Fsdp::torch;
         k.ep = 2;
       }},
      {"router_graph_or_recompute",
       [](K& k) {
         k.recompute = {spec::PlanRecompute::moe};
         k.cuda_graphs = {spec::PlanGraph::moe_router};
       }},
      {"graphs_of_router", [](K& k) { k.cuda_graphs = {spec::PlanGraph::moe_preprocess}; }},
      {"delayed_wgrad", [](K& k) { k.delay_wgrad_compute = true; }},
      {"precision_of_machine", [](K& k) { k.precision = spec::PrecisionRecipe::nvfp4; }},
      {"delayed_scaling_or_recompute",
       [](K& k) {
         k.precision = spec::PrecisionRecipe::fp8_delayed;
         k.recompute = {spec::PlanRecompute::moe_act};
       }},
      {"offload_fits", [](K& k) { k.offload = {spec::Offload::attn_proj}; }},
      {"offload_or_recompute",
       [](K& k) {
         k.recompute = {spec::PlanRecompute::full};
         k.offload = {spec::Offload::attn_norm};
       }},
      {"offload_or_recompute",
       [](K& k) {
         k.recompute = {spec::PlanRecompute::moe};
         k.offload = {spec::Offload::expert_fc1};
       }},
      {"host_optimizer", [](K& k) { k.optimizer_offload_ratio = 1; }},
      {"fsdp_optimizer",
       [](K& k) {
         k.fsdp = spec::Fsdp::megatron;
         k.optimizer = spec::OptimizerKind::muon;
       }},
      {"flex_dispatcher_needs_ep", [](K& k) { k.dispatcher = spec::Dispatcher::deepep; }},
      {"gather_overlap_needs_reduce", [](K& k) { k.overlap_grad_reduce = false; }},
      {"narrow_weights",
       [](K& k) {
         k.fp8_param_gather = true;
         k.distributed_optimizer = false;
       }},
  };
  for (const auto& [name, change] : kBroken) {
    PlanRun run = legal;
    change(run.knobs);
    const std::vector<const PlanRule*> broken = broken_rules(run);
    const bool is_there =
        std::any_of(broken.begin(), broken.end(),
                    [&, &name = name](const PlanRule* rule) { return rule->name == name; });
    BOOST_TEST(is_there, name);
    for (const PlanRule* rule : broken) BOOST_TEST(!rule->message(run).empty());
  }
}

// Rules that hold for some models only: Megatron-Core and Transformer Engine refuse each of these.
BOOST_AUTO_TEST_CASE(a_model_has_rules_of_its_own) {
  const spec::HardwareSpec hardware = machine(16);
  const auto is_broken = [&](const spec::ModelSpec& model, std::string_view name, auto&& change) {
    PlanRun run = run_of(model, hardware);
    run.knobs.dp = 16;
    change(run.knobs);
    const std::vector<const PlanRule*> broken = broken_rules(run);
    return std::ranges::any_of(broken, [&](const PlanRule* rule) { return rule->name == name; });
  };
  const auto shares_sequences = [](spec::PlanKnobs& k) {
    k.cp = 2;
    k.dp = 8;
  };
  spec::ModelSpec model = moe_model();
  BOOST_TEST(!is_broken(model, "cp_fits_attention", shares_sequences));
  model.has_attention_sinks = true;
  BOOST_TEST(is_broken(model, "cp_fits_attention", shares_sequences));
  model.has_attention_sinks = false;
  model.attention_window.assign(8, 128);
  BOOST_TEST(is_broken(model, "cp_fits_attention", shares_sequences));
  BOOST_TEST(!is_broken(model, "cp_fits_attention", [&](spec::PlanKnobs& k) {
    shares_sequences(k);
    k.cp_comm_type = spec::PlanCp::all_gather;
  }));
  model.has_expert_bias = true;
  BOOST_TEST(is_broken(model, "etp_without_bias", [](spec::PlanKnobs& k) { k.etp = 2; }));

  const auto slices = [](spec::PlanKnobs& k) {
    k.tp = 8;
    k.dp = 2;
  };
  spec::ModelSpec hybrid = samples::hybrid_model(4);
  BOOST_TEST(!is_broken(hybrid, "ranks_divide_gdn", slices));
  hybrid.gdn.num_key_heads = 4;
  BOOST_TEST(is_broken(hybrid, "ranks_divide_gdn", slices));

  spec::ModelSpec mamba = moe_model();
  mamba.layer_kinds.assign(8, {spec::Mixer::mamba, spec::FeedForward::moe});
  mamba.mamba = {.num_heads = 16, .head_dim = 64, .state_size = 64, .num_groups = 4};
  BOOST_TEST(is_broken(mamba, "tp_divides_mamba", slices));
  const auto overlaps = [](spec::PlanKnobs& k) {
    k.ep = 8;
    k.overlap_moe_expert_parallel_comm = true;
  };
  BOOST_TEST(is_broken(mamba, "overlap_fits_model", overlaps));
  BOOST_TEST(is_broken(mamba, "hybrid_without_vpp", [](spec::PlanKnobs& k) {
    k.pp = 2;
    k.vpp = 2;
    k.dp = 8;
  }));
  spec::ModelSpec predicting = moe_model();
  predicting.mtp = {.depth = 2, .layers = {predicting.kind_of(7)}};
  BOOST_TEST(is_broken(predicting, "overlap_fits_model", overlaps));
  predicting.mtp.depth = 1;
  BOOST_TEST(!is_broken(predicting, "overlap_fits_model", overlaps));
}

// Of an engine of its own that has few words: FSDP2 beside pipeline stages, which it makes itself.
BOOST_AUTO_TEST_CASE(what_cannot_be_said_is_not_searched) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanQuestion question = question_of(model, hardware);
  question.is_of_megatron = false;
  question.base.fsdp = spec::Fsdp::torch;
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.pp == 2; };
  question.can_say = [](const spec::PlanKnobs& k, std::string_view knob) {
    if (knob == "fsdp") return k.fsdp == spec::Fsdp::torch;
    if (knob == "dispatcher") return k.dispatcher != spec::Dispatcher::hybridep;
    if (knob == "recompute") {
      return k.recompute.empty() || k.recompute.has(spec::PlanRecompute::full);
    }
    if (knob == "cuda_graphs") return k.cuda_graphs.empty();
    if (knob == "cross_entropy") return k.cross_entropy == spec::CrossEntropy::native;
    if (knob == "overlap_moe_expert_parallel_comm") return !k.overlap_moe_expert_parallel_comm;
    if (knob == "cp_comm_type") return k.cp_comm_type != spec::PlanCp::a2a;
    return knob != "vpp" || k.vpp <= 2;
  };
  question.num_best = 1000;
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  bool has_deepep = false;
  for (const PlannedConfig& config : answer.best) {
    const spec::PlanKnobs& k = config.knobs;
    for (const char* knob : {"fsdp", "dispatcher", "recompute", "cuda_graphs", "cross_entropy",
                             "overlap_moe_expert_parallel_comm", "cp_comm_type", "vpp"}) {
      BOOST_TEST(question.can_say(k, knob), knob);
    }
    BOOST_TEST(config.stages.empty());
    BOOST_TEST(!k.delay_wgrad_compute);
    has_deepep = has_deepep || k.dispatcher == spec::Dispatcher::deepep;
  }
  BOOST_TEST(has_deepep);
  // Megatron-Core refuses FSDP2 with stages.
  question.is_of_megatron = true;
  BOOST_TEST(search_plans(question, {}).best.empty());
}

// FSDP of one rank shares nothing out: it is neither planned nor priced.
BOOST_AUTO_TEST_CASE(one_rank_is_not_sharded) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  std::mutex mutex;
  std::vector<spec::PlanKnobs> seen;
  question.keeps = [&](const spec::PlanKnobs& knobs) {
    const std::scoped_lock lock(mutex);
    seen.push_back(knobs);
    return true;
  };
  const auto count = [&](auto&& holds) { return std::ranges::count_if(seen, holds); };
  using spec::Fsdp;
  search_plans(question, {});
  // Experts of two ranks are shared out, though nothing else is.
  BOOST_TEST(count([](const spec::PlanKnobs& k) {
               return k.fsdp == Fsdp::megatron && k.dense_copies() == 1 && k.expert_copies() > 1;
             }) > 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) {
               return k.fsdp == Fsdp::megatron && k.dense_copies() == 1 && k.expert_copies() == 1;
             }) == 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) {
               return k.fsdp == Fsdp::none && k.dense_copies() == 1 && k.expert_copies() == 1;
             }) > 0);
  // A framework that shards wherever it can is told of one rank that it does not.
  seen.clear();
  question.is_of_megatron = false;
  question.base.fsdp = Fsdp::torch;
  question.can_say = [](const spec::PlanKnobs& k, std::string_view knob) {
    return knob != "fsdp" || (k.fsdp == Fsdp::torch) == (k.dense_copies() > 1);
  };
  search_plans(question, {});
  BOOST_TEST(count([](const spec::PlanKnobs& k) {
               return (k.fsdp == Fsdp::torch) != (k.dense_copies() > 1);
             }) == 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) { return k.dense_copies() == 1; }) > 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) {
               return k.fsdp == Fsdp::none && k.distributed_optimizer;
             }) == 0);
}

// HybridEP's kernels are for one vendor's devices.
BOOST_AUTO_TEST_CASE(a_machine_has_the_dispatchers_of_its_vendor) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 8;
  run.knobs.dispatcher = spec::Dispatcher::hybridep;
  BOOST_TEST((broken_rule(run) == nullptr));
  hardware.vendor = spec::Vendor::amd;
  BOOST_TEST_REQUIRE((broken_rule(run) != nullptr));
  BOOST_TEST(broken_rule(run)->name == "dispatcher_of_machine");
  const PlanAnswer answer = search_plans(question_of(model, hardware), {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  for (const PlannedConfig& config : answer.best) {
    BOOST_TEST((config.knobs.dispatcher != spec::Dispatcher::hybridep));
  }
  // DeepEP is tried instead, and faster than NCCL.
  PlanQuestion question = question_of(model, hardware);
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.ep == 8; };
  const PlanAnswer spread = search_plans(question, {});
  BOOST_TEST_REQUIRE(!spread.best.empty());
  BOOST_TEST((spread.best.front().knobs.dispatcher == spec::Dispatcher::deepep));
}

// Alone with its experts a rank has nobody to send rows to. torchtitan's DeepEP takes whole experts
// only.
BOOST_AUTO_TEST_CASE(flex_dispatchers_need_somebody_to_send_to) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  const auto is_legal = [&](bool is_of_megatron, spec::Dispatcher dispatcher, int32_t ep,
                            int32_t etp) {
    PlanRun run = run_of(model, hardware);
    run.is_of_megatron = is_of_megatron;
    run.knobs.dp = 16;
    run.knobs.ep = ep;
    run.knobs.etp = etp;
    run.knobs.dispatcher = dispatcher;
    const PlanRule* broken = broken_rule(run);
    if (broken != nullptr) BOOST_TEST(broken->name == "flex_dispatcher_needs_ep");
    return broken == nullptr;
  };
  using spec::Dispatcher;
  for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
    BOOST_TEST(!is_legal(true, dispatcher, 1, 1));
    BOOST_TEST(is_legal(true, dispatcher, 1, 2));
    BOOST_TEST(is_legal(true, dispatcher, 2, 1));
  }
  BOOST_TEST(!is_legal(false, Dispatcher::deepep, 1, 1));
  BOOST_TEST(!is_legal(false, Dispatcher::deepep, 1, 2));
  BOOST_TEST(!is_legal(false, Dispatcher::deepep, 2, 2));
  BOOST_TEST(is_legal(false, Dispatcher::deepep, 2, 1));
  BOOST_TEST(is_legal(true, Dispatcher::alltoall, 1, 1));
  BOOST_TEST(is_legal(false, Dispatcher::alltoall, 1, 2));

  // What the run of today sends with keeps no layout from being looked at.
  PlanQuestion question = question_of(model, hardware);
  question.base.dispatcher = Dispatcher::deepep;
  question.keeps = [](const spec::PlanKnobs& knobs) { return knobs.ep == 1 && knobs.etp == 1; };
  const PlanAnswer answer = search_plans(question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  for (const PlannedConfig& config : answer.best) {
    BOOST_TEST((config.knobs.dispatcher == Dispatcher::alltoall));
  }
}

// What is searched for completes itself: partial graphs beside recomputed experts, the queues that
// Megatron-Core asks for before Blackwell.
BOOST_AUTO_TEST_CASE(choices_bring_what_they_imply) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hopper = machine(16);
  spec::PlanKnobs knobs;
  knobs.recompute = {spec::PlanRecompute::moe};
  knobs.cuda_graphs = {spec::PlanGraph::attn, spec::PlanGraph::moe_router,
                       spec::PlanGraph::moe_preprocess};
  knobs.tp = 2;
  complete(model, hopper, knobs);
  BOOST_TEST((knobs.cuda_graphs == spec::PlanGraphSet{spec::PlanGraph::attn}));
  BOOST_TEST(knobs.cuda_device_max_connections == 1);

  spec::HardwareSpec blackwell = hopper;
  blackwell.fp4_flops_per_s = 9e15;
  spec::PlanKnobs other;
  other.tp = 2;
  other.overlap_moe_expert_parallel_comm = true;
  other.optimizer_offload_ratio = 1;
  complete(model, blackwell, other);
  BOOST_TEST(other.cuda_device_max_connections == spec::PlanKnobs{}.cuda_device_max_connections);
  BOOST_TEST(other.delay_wgrad_compute);
  BOOST_TEST(other.precision_aware_optimizer);

  // State of fewer bits has an optimizer of its own; what nobody shares out nobody gathers.
  for (const auto state :
       {&spec::PlanKnobs::exp_avg, &spec::PlanKnobs::exp_avg_sq, &spec::PlanKnobs::main_params}) {
    spec::PlanKnobs narrow;
    complete(model, hopper, narrow);
    BOOST_TEST(!narrow.precision_aware_optimizer);
    BOOST_TEST(narrow.overlap_param_gather);
    narrow.*state = spec::StateType::bf16;
    narrow.distributed_optimizer = false;
    complete(model, hopper, narrow);
    BOOST_TEST(narrow.precision_aware_optimizer);
    BOOST_TEST(!narrow.overlap_param_gather);
  }
  spec::PlanKnobs by_torch;
  by_torch.fsdp = spec::Fsdp::torch;
  complete(model, hopper, by_torch);
  BOOST_TEST(!by_torch.distributed_optimizer);
  BOOST_TEST(!by_torch.gradient_accumulation_fusion);

  // FSDP refuses what tp and cp ask for.
  spec::PlanKnobs sharded;
  sharded.fsdp = spec::Fsdp::megatron;
  sharded.cuda_device_max_connections = 1;
  complete(model, hopper, sharded);
  BOOST_TEST(sharded.cuda_device_max_connections == spec::PlanKnobs{}.cuda_device_max_connections);
}

// What people who tune say, of runs that keep to it and of runs that do not.
BOOST_AUTO_TEST_CASE(rules_of_thumb_tell_who_keeps_to_them) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  const auto thumb_named = [](std::string_view name) -> const Thumb& {
    const auto found = std::ranges::find(thumbs(), name, &Thumb::name);
    BOOST_TEST_REQUIRE((found != thumbs().end()), name);
    return *found;
  };
  const auto agrees = [&](std::string_view name, auto&& change) {
    PlanRun run = run_of(model, hardware);
    change(run);
    const Thumb& thumb = thumb_named(name);
    BOOST_TEST(thumb.applies(run), name);
    return thumb.agrees(run);
  };
  const auto of_long = [&](int32_t cp, int32_t tp) {
    return agrees("cp_by_length", [&](PlanRun& run) {
      run.seq_length = 65536;
      run.knobs.cp = cp;
      run.knobs.tp = tp;
    });
  };
  BOOST_TEST(of_long(16, 1));  // 65536 / 4096
  BOOST_TEST(of_long(8, 1));
  BOOST_TEST(of_long(32, 1));
  BOOST_TEST(!of_long(64, 1));
  BOOST_TEST(!of_long(4, 1));
  BOOST_TEST(!of_long(4, 4));  // slices of layers are no shorter sequences
  // Ranks that share sequences are no replicas.
  const auto of_replicas = [&](int32_t dp, int32_t cp) {
    return agrees("keep_data_parallelism", [&](PlanRun& run) {
      run.knobs.dp = dp;
      run.knobs.cp = cp;
    });
  };
  BOOST_TEST(!of_replicas(1, 16));
  BOOST_TEST(of_replicas(2, 8));
  const auto of_batch = [&](int64_t batch, int32_t pp) {
    return agrees("batch_shrinks_with_cp", [&](PlanRun& run) {
      run.knobs.cp = 2;
      run.knobs.dp = 2;
      run.knobs.pp = pp;
      run.global_batch_size = batch;
    });
  };
  BOOST_TEST(of_batch(32, 1));
  BOOST_TEST(!of_batch(64, 1));  // 32 micro-batches a replica
  BOOST_TEST(of_batch(64, 8));
  const auto of_graphs = [&](spec::PlanGraphSet graphs, float capacity_factor, bool pads = false) {
    return agrees("graphs_of_static_shapes", [&](PlanRun& run) {
      run.knobs.cuda_graphs = graphs;
      run.knobs.capacity_factor = capacity_factor;
      run.knobs.pad_to_capacity = pads;
    });
  };
  BOOST_TEST(of_graphs({spec::PlanGraph::attn, spec::PlanGraph::moe_router}, 0));
  BOOST_TEST(!of_graphs({spec::PlanGraph::moe}, 0));
  BOOST_TEST(!of_graphs({spec::PlanGraph::moe}, 1));
  BOOST_TEST(of_graphs({spec::PlanGraph::moe}, 1, true));
  BOOST_TEST(!of_graphs({spec::PlanGraph::full_iteration}, 0));
  for (const char* name : {"cp_by_length", "batch_shrinks_with_cp", "graphs_of_static_shapes",
                           "selective_before_full", "no_attention_again"}) {
    BOOST_TEST(!thumb_named(name).applies(run_of(model, hardware)), name);
  }
}

// Rules of thumb explain; the search looks at what does not keep to them as well.
BOOST_AUTO_TEST_CASE(rules_of_thumb_leave_nothing_out) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question = question_of(model, hardware);
  question.seq_length = 65536;
  question.num_best = 1000;
  const PlanAnswer answer = search_plans(question, {});
  for (const char* name : {"cp_by_length", "keep_data_parallelism", "batch_shrinks_with_cp"}) {
    const auto thumb = std::ranges::find(thumbs(), std::string_view(name), &Thumb::name);
    BOOST_TEST_REQUIRE((thumb != thumbs().end()));
    const auto differs = [&](const PlannedConfig& config) {
      const PlanRun run = run_with(question, config);
      return thumb->applies(run) && !thumb->agrees(run);
    };
    BOOST_TEST(std::ranges::any_of(answer.best, differs), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
