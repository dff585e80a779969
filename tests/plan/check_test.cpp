// What every program has to hold: programs of many layouts do, and each kind of mistake in one is
// found, wherever it is made.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/plan/compile.h"
#include "tests/plan/program_checks.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(check_program)

namespace {

using testing::error_of;
using testing::num_ranks;
namespace data = boost::unit_test::data;
namespace samples = spec::samples;

const char* const kLayouts[] = {
    "{}",
    R"({"recompute": "full", "micro_batch_size": 2})",
    R"({"recompute": "norm,core_attn,moe_act,experts"})",
    R"({"data_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"data_parallel_size": 2, "use_distributed_optimizer": false})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_backward": 2,
        "recompute": "full"})",
    R"({"context_parallel_size": 2, "cuda_graph_modules": "attn,moe_router"})",
    R"({"context_parallel_size": 4, "expert_model_parallel_size": 4, "recompute": "norm,experts"})",
    R"({"pipeline_model_parallel_size": 3, "recompute": "full"})",
    R"({"pipeline_model_parallel_size": 2, "decoder_first_pipeline_num_layers": 1})",
    R"({"data_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "overlap_grad_reduce": true, "ep_chunks_forward": 2,
        "linear_ce_chunk_tokens": 64})",
    R"({"data_parallel_size": 2, "cuda_graph_modules": "full_iteration"})",
    R"({"tensor_model_parallel_size": 2, "recompute": "full"})",
    R"({"tensor_model_parallel_size": 2, "micro_batch_size": 2, "data_parallel_size": 2,
        "expert_model_parallel_size": 4, "ep_chunks_forward": 2, "overlap_grad_reduce": true})",
    R"({"data_parallel_size": 2, "expert_tensor_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_tensor_parallel_size": 2,
        "expert_model_parallel_size": 2, "ep_chunks_backward": 2, "recompute": "norm,experts"})",
    R"({"context_parallel_size": 4, "cp_comm_type": "p2p", "recompute": "core_attn"})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
        "expert_tensor_parallel_size": 4, "micro_batch_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "E|tt||ttL",
        "data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
        "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2, "recompute": "norm"})",
};

/// Dense layers between MoE layers, a shared expert, biases, a head that is the embedding.
spec::ModelSpec mixed_model() {
  spec::ModelSpec model = samples::trial().model;
  model.is_moe_layer = {true, false, true, false};
  model.shared_ffn_size = 8;
  model.has_attention_bias = true;
  model.has_attention_output_bias = true;
  model.has_mlp_bias = true;
  model.has_qk_norm = false;
  model.ties_embeddings = true;
  return model;
}

spec::TrialSpec trial_of(const char* knobs, bool is_mixed = false) {
  spec::TrialSpec trial = samples::trial();
  if (is_mixed) trial.model = mixed_model();
  trial.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  trial.training.global_batch_size = 8;
  trial.training.aux_loss_coeff = 0.01;
  trial.training.z_loss_coeff = 0.001;
  return trial;
}

using Code = std::vector<Instr>;

/// The program with the code of one segment changed.
StepProgram changed(const StepProgram& program, size_t segment,
                    const std::function<void(Code&)>& change) {
  StepProgram made = program;
  Segment copy = *program.segments[segment];
  change(copy.code);
  made.segments[segment] = std::make_shared<const Segment>(std::move(copy));
  return made;
}

bool is_work(const Instr& instr, Op work) { return instr.verb == Verb::host && instr.op == work; }
bool is_counts(const Instr& instr) {
  return instr.verb == Verb::fetch && instr.what == static_cast<uint8_t>(Fetch::counts);
}

/// body(segment, code, index) for every instruction of a step; what lives from start to end is left
/// out: not all of it is an operand.
void for_each_of_step(const StepProgram& program,
                      const std::function<void(size_t, const Code&, size_t)>& body) {
  for (size_t s = 0; s < program.segments.size(); ++s) {
    if (static_cast<int32_t>(s) == program.setup.front().segment) continue;
    const Code& code = program.segments[s]->code;
    for (size_t i = 0; i < code.size(); ++i) body(s, code, i);
  }
}

/// A program with everything in it, on the first stage; and on the last one.
StepProgram rich_program(int rank = 0) {
  return compile(trial_of(R"({"data_parallel_size": 2, "context_parallel_size": 2,
      "expert_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "ep_chunks_forward": 2,
      "ep_chunks_backward": 2, "recompute": "norm,moe_act"})",
                          true),
                 rank);
}
StepProgram recomputing_program() {
  return compile(trial_of(R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
      "recompute": "full"})"),
                 0);
}
/// Matrices, experts and sequences split over ranks, stages in turns: on a rank with MoE layers (2)
/// or with dense ones (5).
StepProgram split_program(int rank = 2) {
  return compile(trial_of(R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2,
      "cp_comm_type": "p2p", "pipeline_model_parallel_size": 2,
      "virtual_pipeline_model_parallel_size": 2, "expert_model_parallel_size": 2,
      "expert_tensor_parallel_size": 2, "recompute": "norm"})",
                          true),
                 rank);
}

/// The program with the first instruction for which `is_it` holds changed.
StepProgram changed_at(const StepProgram& program, const std::function<bool(const Instr&)>& is_it,
                       const std::function<void(Code&, size_t)>& change) {
  std::optional<std::pair<size_t, size_t>> found;
  for_each_of_step(program, [&](size_t s, const Code& code, size_t i) {
    if (!found && is_it(code[i])) found = {s, i};
  });
  BOOST_REQUIRE(found.has_value());
  return changed(program, found->first, [&](Code& code) { change(code, found->second); });
}

void drop(Code& code, size_t i) { code.erase(code.begin() + static_cast<std::ptrdiff_t>(i)); }

void check_says(const StepProgram& program, const std::vector<std::string>& parts) {
  const std::string error = error_of(program);
  BOOST_TEST_CONTEXT(error) {
    for (const std::string& part : parts) {
      BOOST_TEST(error.find(part) != std::string::npos, "the message says " << part);
    }
  }
}

BOOST_DATA_TEST_CASE(compiled_programs_hold_it, data::make(kLayouts), knobs) {
  for (const bool is_mixed : {false, true}) {
    const spec::TrialSpec trial = trial_of(knobs, is_mixed);
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      BOOST_TEST_CONTEXT((is_mixed ? "mixed, " : "") << "rank " << rank) {
        BOOST_TEST(error_of(compile(trial, rank)) == "");
      }
    }
  }
}

// Each of them alone, everywhere.
BOOST_AUTO_TEST_CASE(nothing_that_makes_or_ends_can_be_left_out) {
  std::map<Verb, int> num_dropped;
  for (const StepProgram& program : {rich_program(), rich_program(7), recomputing_program(),
                                     split_program(), split_program(5)}) {
    for_each_of_step(program, [&](size_t s, const Code& code, size_t at) {
      const Instr& instr = code[at];
      const Verb verb = instr.verb;
      const bool is_needed = verb == Verb::record || verb == Verb::alloc || verb == Verb::free ||
                             verb == Verb::acquire || verb == Verb::release || is_counts(instr);
      if (!is_needed) return;
      ++num_dropped[verb];
      BOOST_TEST(error_of(changed(program, s, [&](Code& c) { drop(c, at); })) != "",
                 "segment " << s << " without instruction " << at << ", " << name_of(verb));
    });
  }
  for (const Verb verb :
       {Verb::record, Verb::alloc, Verb::free, Verb::acquire, Verb::release, Verb::fetch}) {
    BOOST_TEST(num_dropped[verb] > 0, name_of(verb));
  }
}

// On the first rank no shard is but what fills a bucket up.
BOOST_AUTO_TEST_CASE(the_update_uses_every_part_of_every_bucket) {
  const auto plain = R"({"data_parallel_size": 2, "use_distributed_optimizer": false})";
  for (const StepProgram& program : {rich_program(), compile(trial_of(plain), 0)}) {
    const auto setup = static_cast<size_t>(program.setup.front().segment);
    const Code& code = program.segments[setup]->code;
    size_t num_parts = 0;
    for (size_t at = 0; at < code.size(); ++at) {
      const Ref& made = code[at].refs.front();
      if (made.space != Space::bucket) continue;
      ++num_parts;
      BOOST_TEST(error_of(changed(program, setup, [&](Code& c) { drop(c, at); })) != "",
                 "part " << int{made.id} << " of bucket " << made.row);
    }
    constexpr auto kNumKept = static_cast<size_t>(BucketPart::narrow);  // from the start
    BOOST_TEST(num_parts == program.params.buckets.size() * kNumKept);
  }
}

BOOST_AUTO_TEST_CASE(a_wait_before_its_record_is_found) {
  for (const StepProgram& program :
       {rich_program(), rich_program(7), split_program(), split_program(5)}) {
    int num_swapped = 0;
    for_each_of_step(program, [&](size_t s, const Code& code, size_t at) {
      if (code[at].verb != Verb::wait) return;
      const auto record = std::find_if(code.begin(), code.end(), [&](const Instr& instr) {
        return instr.verb == Verb::record && instr.event == code[at].event;
      });
      BOOST_TEST_REQUIRE((record != code.end()));
      const auto other = static_cast<size_t>(record - code.begin());
      ++num_swapped;
      BOOST_TEST(error_of(changed(program, s, [&](Code& c) { std::swap(c[other], c[at]); })) != "",
                 "segment " << s << " with instructions " << other << " and " << at << " swapped");
    });
    BOOST_TEST(num_swapped > 20);
  }
}

BOOST_AUTO_TEST_CASE(memory_that_is_made_after_its_first_use_is_found) {
  for (const StepProgram& program : {rich_program(), rich_program(7), recomputing_program(),
                                     split_program(), split_program(5)}) {
    int num_moved = 0;
    for_each_of_step(program, [&](size_t s, const Code& code, size_t at) {
      if (code[at].verb != Verb::alloc) return;
      const Ref& made = code[at].refs.front();
      for (size_t user = at + 1; user < code.size(); ++user) {
        const bool uses = code[user].verb != Verb::free &&
                          std::ranges::any_of(code[user].refs, [&](const Ref& ref) {
                            return ref.space == made.space && ref.id == made.id;
                          });
        if (!uses) continue;
        ++num_moved;
        const StepProgram moved = changed(program, s, [&](Code& c) {
          const auto first = c.begin() + static_cast<std::ptrdiff_t>(at);
          std::rotate(first, first + 1, c.begin() + static_cast<std::ptrdiff_t>(user) + 1);
        });
        BOOST_TEST(error_of(moved) != "", "segment " << s << ", buffer of " << at);
        return;
      }
    });
    BOOST_TEST(num_moved > 30);
  }
}

BOOST_AUTO_TEST_CASE(messages_name_the_item_and_the_instruction) {
  const StepProgram program = rich_program();
  check_says(changed_at(program, is_counts, drop),
             {"rank 0, item 3 (layer 0, micro-batch 0: moe forward), instruction ",
              "(host finish_route)", "the counts are not fetched"});
  const auto is_record = [](const Instr& instr) {
    return instr.verb == Verb::record && !instr.device_only;
  };
  check_says(changed_at(program, is_record, drop),
             {"item ", "instruction ", "(wait)", "the event is not recorded before"});
  check_says(
      changed_at(program, is_record, [](Code& code, size_t i) { code[i].device_only = true; }),
      {"(wait)", "recorded on real devices only"});
  check_says(changed_at(program, is_record, [](Code& code, size_t i) { code[i].event = 10'000; }),
             {"(record)", "no such event"});
  const auto is_alloc = [](const Instr& instr) { return instr.verb == Verb::alloc; };
  check_says(changed_at(program, is_alloc,
                        [](Code& code, size_t i) { code.insert(code.begin(), code[i]); }),
             {"(alloc input)", "is there already"});
  const auto is_operator = [](const Instr& instr) { return instr.op == Op::attn_norm; };
  check_says(changed_at(program, is_operator,
                        [](Code& code, size_t i) {
                          code[i].refs.front().id = static_cast<uint8_t>(Buf::fc1_out);
                        }),
             {"layer 0, micro-batch 0: gqa forward", "(op attn_norm)", "fc1_out is not there"});
}

BOOST_AUTO_TEST_CASE(memory_is_ended_once_and_always) {
  const StepProgram program = rich_program();
  const auto is_free = [](const Instr& instr) { return instr.verb == Verb::free; };
  check_says(changed_at(program, is_free, [](Code& code, size_t i) { code.push_back(code[i]); }),
             {"(free ", "the buffer is not there"});
  // The last backward item of the first layer ends what its frame holds.
  StepProgram shorter = program;
  const auto last =
      std::find_if(shorter.items.rbegin(), shorter.items.rend(), [&](const Item& item) {
        return shorter.segments[static_cast<size_t>(item.segment)]->block == BlockKind::gqa;
      });
  shorter.items.erase(std::next(last).base());
  check_says(shorter, {"item ", "micro-batch 3", "(alloc input)", "is never freed"});
  // What lives to the end is made once, too.
  StepProgram twice = program;
  twice.setup.push_back(twice.setup.front());
  check_says(twice, {"setup item 1", "is there already"});
  StepProgram none = program;
  none.setup.clear();
  check_says(none, {"item 0", "is not there"});
}

BOOST_AUTO_TEST_CASE(items_in_another_order_are_found) {
  const StepProgram program = rich_program();
  for (size_t i = 1; i + 1 < program.items.size(); ++i) {
    const Item& first = program.items[i];
    const Item& second = program.items[i + 1];
    if (first.layer < 0 || first.layer != second.layer || first.micro_batch < 0) continue;
    StepProgram swapped = program;
    std::swap(swapped.items[i], swapped.items[i + 1]);
    BOOST_TEST(error_of(swapped) != "", "items " << i << " and " << i + 1);
  }
}

BOOST_AUTO_TEST_CASE(rows_are_not_used_before_they_are_known) {
  for (const StepProgram& program : {rich_program(), recomputing_program(), split_program()}) {
    int num_found = 0;
    for_each_of_step(program, [&](size_t s, const Code& code, size_t at) {
      if (!is_work(code[at], Op::finish_route)) return;
      ++num_found;
      BOOST_TEST_REQUIRE(is_counts(code[at - 1]));
      BOOST_TEST(error_of(changed(program, s, [&](Code& c) { std::swap(c[at - 1], c[at]); })) !=
                 "");
      BOOST_TEST_REQUIRE(code[at + 1].is_routed);
      BOOST_TEST(error_of(changed(program, s, [&](Code& c) { std::swap(c[at + 1], c[at]); })) !=
                 "");
    });
    BOOST_TEST(num_found > 0);
    check_says(
        changed_at(
            program, [](const Instr& instr) { return is_work(instr, Op::finish_route); }, drop),
        {": moe ", "are not known before"});
  }
  // An operand that follows the router is found as well as a size.
  const auto is_router = [](const Instr& instr) { return instr.op == Op::router_gemm; };
  check_says(changed_at(rich_program(), is_router,
                        [](Code& code, size_t i) { code[i].refs.front().rows = RowsOf::received; }),
             {"(op router_gemm)", "are not known before"});
}

BOOST_AUTO_TEST_CASE(parameters_are_used_while_they_are_held) {
  const StepProgram program = rich_program();
  const auto is_acquire = [](const Instr& instr) { return instr.verb == Verb::acquire; };
  check_says(changed_at(program, is_acquire,
                        [](Code& code, size_t i) {
                          code.insert(code.begin() + static_cast<std::ptrdiff_t>(i), code[i]);
                        }),
             {"(acquire ", "acquired twice"});
  check_says(changed_at(program, is_acquire, drop), {"(op embed)", "that is not acquired"});
  for_each_of_step(program, [&](size_t s, const Code& code, size_t at) {
    // One kind less, of those that the segment uses.
    if (code[at].verb != Verb::acquire) return;
    for (size_t kind = 0; kind < code[at].refs.size(); ++kind) {
      const uint8_t id = code[at].refs[kind].id;
      const bool is_used = std::ranges::any_of(code, [&](const Instr& instr) {
        return instr.verb == Verb::op && std::ranges::any_of(instr.refs, [&](const Ref& ref) {
                 return (ref.space == Space::weight || ref.space == Space::grad) && ref.id == id;
               });
      });
      if (!is_used) continue;
      const auto without = [&](Code& c) {
        for (Instr& instr : c) {
          if (instr.verb != Verb::acquire && instr.verb != Verb::release) continue;
          std::erase_if(instr.refs, [&](const Ref& ref) { return ref.id == id; });
        }
      };
      BOOST_TEST(error_of(changed(program, s, without)) != "");
    }
  });
}

BOOST_AUTO_TEST_CASE(buffers_without_a_size_need_not_be_made) {
  // Without context parallelism no keys are gathered; with it they are, and here nobody has.
  const auto add = [](Code& code, size_t i) {
    code[i].refs.push_back({Space::frame, static_cast<uint8_t>(Buf::kv_full)});
  };
  const auto is_router = [](const Instr& instr) { return instr.op == Op::router_gemm; };
  BOOST_TEST(error_of(changed_at(recomputing_program(), is_router, add)) == "");
  check_says(changed_at(rich_program(), is_router, add), {"kv_full is not there"});
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
