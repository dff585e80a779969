// Programs of models that plans know and the engine does not run hold what every program has to
// hold: what check() asks, memory that is as it was, ranks that do not wait for each other forever.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/plan/listing.h"
#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(planned_programs)

namespace {

using testing::error_of;
using testing::ModelSpec;
using testing::num_ranks;
namespace data = boost::unit_test::data;

const char* const kLayouts[] = {
    "{}",
    R"({"recompute": "full", "micro_batch_size": 2})",
    R"({"recompute": "norm,core_attn"})",
    R"({"data_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"tensor_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "recompute": "full"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "recompute": "norm"})",
    R"({"context_parallel_size": 2})",
    R"({"context_parallel_size": 2, "recompute": "norm,core_attn"})",
    R"({"context_parallel_size": 2, "cp_comm_type": "p2p", "cuda_graph_modules": "attn"})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "recompute": "norm"})",
    R"({"pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "recompute": "full"})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2, "recompute": "full",
        "overlap_grad_reduce": true})",
};

/// For models with experts.
const char* const kExpertLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 2, "recompute": "norm,moe_act,experts"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "recompute": "full"})",
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "moe_act"})",
};

std::vector<std::string> layouts_for(const ModelSpec& model) {
  std::vector<std::string> all(std::begin(kLayouts), std::end(kLayouts));
  if (model.num_experts > 0) {
    all.insert(all.end(), std::begin(kExpertLayouts), std::end(kExpertLayouts));
  }
  return all;
}

/// body(trial) for all models and layouts.
void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    for (const std::string& knobs : layouts_for(model)) {
      BOOST_TEST_CONTEXT(name << " " << knobs) { body(testing::trial_of(model, knobs)); }
    }
  }
}

BOOST_AUTO_TEST_CASE(compiled_programs_hold_it) {
  for_all([](const spec::TrialSpec& trial) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      BOOST_TEST(error_of(compile(trial, rank)) == "", "rank " << rank);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_step_ends_with_the_memory_that_it_has_begun_with) {
  for_all([](const spec::TrialSpec& trial) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      const BalancedBindings bindings(trial, rank);
      BOOST_TEST(testing::bytes_left(compile(trial, rank), bindings) == 0);
    }
  });
}

BOOST_AUTO_TEST_CASE(ranks_do_all_that_their_programs_say) {
  for_all([](const spec::TrialSpec& trial) { testing::play_all(trial, {}); });
}

BOOST_AUTO_TEST_CASE(instructions_have_names_for_all_their_operands) {
  for_all([](const spec::TrialSpec& trial) {
    const int last = num_ranks(trial) - 1;
    const StepProgram program = compile(trial, last);
    for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      if (segment.block == BlockKind::update) return;
      for (const Ref& ref : instr.refs) {
        const std::string name = name_of(program, item, ref);
        BOOST_TEST(name.find("of kind") == std::string::npos, item_title(program, item)
                                                                  << ": " << name);
      }
    });
  });
}

// Chunks and recomputation repeat what is there, so that layouts alone do not change the sum.
BOOST_AUTO_TEST_CASE(all_layouts_do_the_same_work) {
  const auto all = [](const Segment&, const Instr& instr) { return instr.pass != Pass::recompute; };
  for (const auto& [name, model] : testing::small_models()) {
    const int64_t expected = testing::flops_of(testing::trial_of(model), all);
    for (const std::string& knobs : layouts_for(model)) {
      const spec::TrialSpec trial = testing::trial_of(model, knobs);
      const int64_t sequences = trial.knobs.micro_batch_size * trial.knobs.data_parallel_size;
      BOOST_TEST(testing::flops_of(trial, all) == sequences * expected, name << " " << knobs);
    }
  }
}

BOOST_AUTO_TEST_CASE(backward_passes_do_twice_the_work_of_forward_passes) {
  for (const auto& [name, model] : testing::small_models()) {
    const spec::TrialSpec trial = testing::trial_of(model);
    const auto flops = [&](bool is_forward) {
      return testing::flops_of(trial, [&](const Segment&, const Instr& instr) {
        return op_row(instr.op).work != spec::Work::attention &&
               (instr.pass == Pass::forward) == is_forward;
      });
    };
    BOOST_TEST(flops(false) == 2 * flops(true), name);
  }
}

// Each block by its own operations, and with full recomputation all of them.
BOOST_AUTO_TEST_CASE(what_recomputation_drops_is_made_again) {
  const auto made_again = [](const ModelSpec& model, const char* modules) {
    spec::TrialSpec trial = testing::trial_of(model);
    trial.knobs.recompute = spec::RecomputeSet(modules);
    std::set<Op> ops;
    for_each(compile(trial, 0), [&](const Item&, const Segment&, const Instr& instr) {
      if (instr.verb == Verb::op && instr.pass == Pass::recompute) ops.insert(instr.op);
    });
    return ops;
  };
  const ModelSpec deepseek = testing::small_deepseek();
  BOOST_TEST((made_again(deepseek, "norm,core_attn") ==
              std::set{Op::attn_norm, Op::core_attn, Op::mlp_norm}));
  BOOST_TEST((made_again(testing::small_qwen3_next(), "norm") ==
              std::set{Op::attn_norm, Op::gdn_norm, Op::mlp_norm}));
  BOOST_TEST((made_again(testing::small_nemotron(), "norm") ==
              std::set{Op::attn_norm, Op::mamba_norm, Op::mlp_norm}));
  for (const Op op : {Op::mla_q_down, Op::mla_kv_up, Op::core_attn, Op::mtp_proj}) {
    BOOST_TEST(made_again(deepseek, "full").contains(op), op_row(op).name);
  }
}

/// The program with one segment changed.
StepProgram changed(const StepProgram& program, size_t segment,
                    const std::function<void(std::vector<Instr>&)>& change) {
  StepProgram made = program;
  Segment copy = *program.segments[segment];
  change(copy.code);
  made.segments[segment] = std::make_shared<const Segment>(std::move(copy));
  return made;
}

// In every block: each of what makes, ends, records or holds something.
BOOST_AUTO_TEST_CASE(nothing_that_makes_or_ends_can_be_left_out) {
  std::set<BlockKind> seen;
  for (const auto& [name, model] : testing::small_models()) {
    for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2, "recompute": "norm"})",
                              R"({"context_parallel_size": 2, "recompute": "full"})"}) {
      const StepProgram program = compile(testing::trial_of(model, knobs), 0);
      for (size_t s = 0; s < program.segments.size(); ++s) {
        const Segment& segment = *program.segments[s];
        if (segment.block == BlockKind::update) continue;
        seen.insert(segment.block);
        for (size_t at = 0; at < segment.code.size(); ++at) {
          const Verb verb = segment.code[at].verb;
          const bool is_needed = verb == Verb::record || verb == Verb::alloc ||
                                 verb == Verb::free || verb == Verb::acquire ||
                                 verb == Verb::release;
          if (!is_needed) continue;
          const StepProgram without = changed(program, s, [&](std::vector<Instr>& code) {
            code.erase(code.begin() + static_cast<std::ptrdiff_t>(at));
          });
          BOOST_TEST(error_of(without) != "", name << " " << knobs << ": " << name_of(segment.block)
                                                   << " without " << name_of(verb) << " " << at);
        }
      }
    }
  }
  for (const BlockKind block :
       {BlockKind::mla, BlockKind::gdn, BlockKind::mamba, BlockKind::mtp, BlockKind::mtp_head}) {
    BOOST_TEST(seen.contains(block), name_of(block));
  }
}

/// Whether a layer's input is made by the layer before it and not there earlier.
bool has_one_half(const spec::TrialSpec& trial, const Item& item) {
  return halves_of(layer_dims(trial.model, trial.knobs, 128, item.layer)).size() == 1;
}

BOOST_AUTO_TEST_CASE(items_in_another_order_are_found) {
  for (const auto& [name, model] : testing::small_models()) {
    const spec::TrialSpec trial = testing::trial_of(model);
    const StepProgram program = compile(trial, 0);
    int num_swapped = 0;
    for (size_t i = 1; i + 1 < program.items.size(); ++i) {
      const Item& first = program.items[i];
      const Item& second = program.items[i + 1];
      const bool is_in_layers = first.layer >= 0 && second.layer >= 0;
      if (!is_in_layers || first.micro_batch < 0 || first.micro_batch != second.micro_batch) {
        continue;
      }
      const auto segment_of = [&](const Item& item) {
        return program.segments[static_cast<size_t>(item.segment)];
      };
      // What is there is followed, not what is written: backward, layers meet in a gradient that
      // all of them find, and so does a head its input, from which another depth goes on.
      const bool is_backward = segment_of(first)->is_backward;
      if (segment_of(first)->block == BlockKind::mtp_head ||
          segment_of(second)->block == BlockKind::mtp_head) {
        continue;
      }
      const bool is_next = !is_backward && has_one_half(trial, first);
      if (first.layer != second.layer && !is_next) continue;
      ++num_swapped;
      StepProgram swapped = program;
      std::swap(swapped.items[i], swapped.items[i + 1]);
      BOOST_TEST(error_of(swapped) != "", name << " items " << i << " and " << i + 1);
    }
    BOOST_TEST(num_swapped > 20);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
