// Names and repetitions in a list of instructions. What it says of work, waits and memory is
// compared with real steps in tests/engine/listing_test.cpp.
#include "engine/plan/listing.h"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(listing)

namespace {

spec::TrialSpec trial() {
  spec::TrialSpec made = spec::samples::trial();
  made.knobs = {};
  made.knobs.data_parallel_size = 4;
  made.knobs.expert_model_parallel_size = 2;
  made.knobs.pipeline_model_parallel_size = 2;
  made.training.aux_loss_coeff = 0.01;
  return made;
}

const Segment& segment_of(const StepProgram& program, const Item& item) {
  return *program.segments[static_cast<size_t>(item.segment)];
}

BOOST_AUTO_TEST_CASE(memory_is_made_in_the_pass_that_needs_it) {
  for (const char* recompute : {"none", "full"}) {
    spec::TrialSpec made = trial();
    made.knobs.recompute = spec::RecomputeSet(recompute);
    const StepProgram program = compile(made, 0);
    std::map<std::string, std::set<Pass>> passes;
    for (const ListedInstr& listed : list_instructions(program, BalancedBindings(made, 0))) {
      if (listed.instr->verb != Verb::alloc && listed.instr->verb != Verb::free) continue;
      const std::string title = item_title(program, *listed.item);
      passes[title.substr(title.find(": ") + 2)].insert(listed.instr->pass);
    }
    BOOST_TEST((passes.at("update") == std::set{Pass::update}));  // before the first step
    BOOST_TEST((passes.at("gqa forward") == std::set{Pass::forward}));
    BOOST_TEST((passes.at("moe forward") == std::set{Pass::forward}));
    BOOST_TEST((passes.at("gqa backward") == std::set{Pass::backward}));
    BOOST_TEST((passes.at("moe backward") == std::set{Pass::backward}));
    BOOST_TEST(passes.contains("moe recomputed") == spec::is_full_recompute(made.knobs));
    if (made.knobs.recompute.empty()) continue;
    BOOST_TEST((passes.at("gqa recomputed") == std::set{Pass::recompute}));
    BOOST_TEST((passes.at("moe recomputed") == std::set{Pass::recompute}));
  }
}

BOOST_AUTO_TEST_CASE(items_say_where_they_run) {
  const StepProgram program = compile(trial(), 0);
  const auto title = [&](size_t item) { return item_title(program, program.items[item]); };
  BOOST_TEST(title(0) == "step: update, zero_grads");
  BOOST_TEST(title(1) == "micro-batch 0: embedding forward");
  BOOST_TEST(title(2) == "layer 0, micro-batch 0: gqa forward");
  BOOST_TEST(title(3) == "layer 0, micro-batch 0: moe forward");
  BOOST_TEST(title(6) == "micro-batch 0: stage forward");
  BOOST_TEST(title(program.items.size() - 1) == "step: update, loss_reduce");
}

BOOST_AUTO_TEST_CASE(instructions_say_what_they_are_about) {
  const StepProgram program = compile(trial(), 0);
  std::set<std::string> subjects;
  for (const ListedInstr& listed : list_instructions(program, BalancedBindings(trial(), 0))) {
    const Verb verb = listed.instr->verb;
    const std::string subject = subject_of(program, *listed.item, *listed.instr);
    BOOST_TEST(subject.empty() == (verb == Verb::record || verb == Verb::wait));
    subjects.insert(std::string(name_of(verb)) + " " + subject);
    BOOST_TEST((verb != Verb::mark));  // no graphs are asked for
  }
  for (const char* expected :
       {"alloc layers.0.experts", "alloc rope_cos", "alloc sums of the step", "alloc mid",
        "alloc input (of the next layer)", "free fc2_out", "op expert_fc1", "comm dispatch",
        "send pp_send", "recv pp_recv", "fetch host_sync", "host finish_route", "host write_route",
        "upload tokens and targets", "upload index lists",
        "acquire mlp_norm, router, expert_fc1, expert_fc2", "release embedding"}) {
    BOOST_TEST(subjects.contains(expected), expected);
  }
  const Ref gradient{Space::grad, static_cast<uint8_t>(ParamKind::o_proj)};
  BOOST_TEST(name_of(program, program.items[2], gradient) == "gradient of layers.0.o_proj");
}

BOOST_AUTO_TEST_CASE(what_memory_needs_again_on_devices_only_is_not_listed) {
  const StepProgram program = compile(trial(), 0);
  size_t num_hidden = 0;
  size_t num_instrs = 0;
  for (const auto* items : {&program.setup, &program.items}) {
    for (const Item& item : *items) {
      for (const Instr& instr : segment_of(program, item).code) {
        ++num_instrs;
        num_hidden += instr.device_only && instr.verb != Verb::fetch;
        num_hidden += instr.verb == Verb::mark;
      }
    }
  }
  const auto list = list_instructions(program, BalancedBindings(trial(), 0));
  BOOST_TEST(num_hidden > 15U);
  BOOST_TEST(list.size() == num_instrs - num_hidden);
}

// Index lists and tokens come from the host on a stream of their own: the one that reads them first
// waits for it, and the list shows that.
BOOST_AUTO_TEST_CASE(what_is_uploaded_is_waited_for_before_it_is_read) {
  const StepProgram program = compile(trial(), 0);
  const auto list = list_instructions(program, BalancedBindings(trial(), 0));
  using Place = std::tuple<Space, uint8_t, int32_t, int32_t>;
  const auto place_of = [](const ListedInstr& listed, const Ref& ref) {
    const bool is_of_step = ref.space == Space::table;
    return Place(ref.space, ref.id, is_of_step ? -1 : listed.item->layer,
                 is_of_step ? -1 : listed.item->micro_batch);
  };
  std::map<Place, int64_t> uploads;             // the number of the last one
  std::map<Stream, std::set<int64_t>> waited;   // what each stream has waited for
  std::map<std::pair<Op, Pass>, int> num_read;  // of operations that read what is uploaded
  for (size_t i = 0; i < list.size(); ++i) {
    const Instr& instr = *list[i].instr;
    if (instr.verb == Verb::wait) {
      waited[instr.stream].insert(list[i].waits_for.begin(), list[i].waits_for.end());
    }
    for (const Ref& ref : instr.refs) {
      const Place place = place_of(list[i], ref);
      if (instr.verb == Verb::upload) uploads[place] = static_cast<int64_t>(i);
      if (instr.verb != Verb::op || !uploads.contains(place)) continue;
      if (ref.access != Access::read) continue;
      ++num_read[{instr.op, instr.pass}];
      BOOST_TEST(waited[instr.stream].contains(uploads.at(place)), op_label(instr.op, instr.pass)
                                                                       << ", instruction " << i);
    }
  }
  for (const auto& [op, pass] :
       {std::pair(Op::embed, Pass::forward), std::pair(Op::sort_rows, Pass::forward),
        std::pair(Op::sort_rows, Pass::backward)}) {
    BOOST_TEST((num_read[{op, pass}] > 0), op_label(op, pass));
  }
}

BOOST_AUTO_TEST_CASE(segments_that_read_alike_are_told_from_others) {
  const StepProgram program = compile(trial(), 0);
  std::vector<const Segment*> reductions;
  for (const Item& item : program.items) {
    const Segment& segment = segment_of(program, item);
    if (item.layer >= 0 && segment.code.back().op == Op::grad_reduce) {
      reductions.push_back(&segment);
    }
  }
  BOOST_TEST_REQUIRE(reductions.size() >= 3U);  // of attention, experts; of the next layer
  BOOST_TEST(are_alike(*reductions[0], *reductions[2]));
  BOOST_TEST(!are_alike(*reductions[0], *reductions[1]));
  const auto differs = [&](const std::function<void(Segment&)>& change) {
    Segment other = *reductions[0];
    change(other);
    return !are_alike(*reductions[0], other);
  };
  BOOST_TEST(!differs([](Segment&) {}));
  BOOST_TEST(differs([](Segment& s) { s.is_backward = true; }));
  BOOST_TEST(differs([](Segment& s) { s.block = BlockKind::head; }));
  BOOST_TEST(differs([](Segment& s) { s.code.pop_back(); }));
  BOOST_TEST(differs([](Segment& s) { ++s.code.back().cost.bytes; }));
  BOOST_TEST(differs([](Segment& s) { ++s.code.back().cost_per_row.flops; }));
  BOOST_TEST(differs([](Segment& s) { s.code.back().stream = Stream::compute; }));
  BOOST_TEST(differs([](Segment& s) { s.code.back().refs.front().id = 0; }));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
