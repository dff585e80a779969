// Played programs where the answer can be done by hand.
#include "engine/plan/player.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/plan/compile.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(player)

namespace {

/// Twelve alike layers on free links and a free host.
spec::TrialSpec trial(int64_t pp, int64_t vpp, int64_t num_micro_batches) {
  spec::TrialSpec made = spec::samples::trial();
  made.model.num_layers = 12;
  made.model.is_moe_layer.assign(12, true);
  made.model.attention_window.assign(12, 0);
  made.knobs = {};
  made.knobs.pipeline_model_parallel_size = pp;
  made.knobs.virtual_pipeline_model_parallel_size = vpp;
  made.hardware = {};
  made.hardware.num_nodes = 1;
  made.hardware.devices_per_node = pp;
  made.training.global_batch_size = num_micro_batches;
  return made;
}

int64_t step_of(const spec::TrialSpec& spec, const DurationOf& duration_of) {
  std::vector<StepProgram> programs;
  std::vector<BalancedBindings> bindings;
  for (int rank = 0; rank < layout_of(spec.knobs).world_size(); ++rank) {
    programs.push_back(compile(spec, rank));
    bindings.emplace_back(spec, rank);
  }
  std::vector<PlayedRank> ranks;
  for (size_t i = 0; i < programs.size(); ++i) ranks.push_back({&programs[i], &bindings[i]});
  return play(spec.hardware, ranks, duration_of).step_ns;
}

// (pp - 1) / (m vpp) of the work, Narayanan et al. 2021, section 2.2.
BOOST_AUTO_TEST_CASE(the_bubble_shrinks_with_virtual_stages) {
  constexpr int64_t kForward = 100;
  constexpr int64_t kBackward = 200;
  const auto only_attention = [](const Position&, const Instr& instr, const OpCost&) -> int64_t {
    if (instr.op != Op::core_attn) return 0;
    return instr.pass == Pass::backward ? kBackward : kForward;
  };
  for (const int64_t pp : {2, 3, 4}) {
    for (const int64_t vpp : {1, 2, 3}) {
      if (12 % (pp * vpp) != 0) continue;
      for (const int64_t m : {pp, 2 * pp, 4 * pp}) {
        const int64_t work = m * (12 / pp) * (kForward + kBackward);
        BOOST_TEST_CONTEXT("pp " << pp << " vpp " << vpp << " m " << m) {
          BOOST_TEST(step_of(trial(pp, vpp, m), only_attention) ==
                     work + work * (pp - 1) / (m * vpp));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_wait_for_each_other_are_named) {
  const spec::TrialSpec spec = trial(2, 1, 2);
  const StepProgram first = compile(spec, 0);
  StepProgram last = compile(spec, 1);
  // The last stage waits for a micro-batch that nobody sends.
  for (Item& item : last.items) item.micro_batch += item.micro_batch >= 0 ? 7 : 0;
  const auto instant = [](const Position&, const Instr&, const OpCost&) { return int64_t{1}; };
  BOOST_CHECK_EXCEPTION(play(spec.hardware, {{&first, nullptr}, {&last, nullptr}}, instant),
                        base::Error, [](const base::Error& error) {
                          const std::string text = error.what();
                          return text.find("rank 0") != std::string::npos &&
                                 text.find("rank 1") != std::string::npos &&
                                 text.find("recv pp_recv.forward") != std::string::npos;
                        });
}

/// A rank of a pipeline of two that only talks.
StepProgram talking(int rank, int64_t bytes, const std::vector<Verb>& verbs) {
  StepProgram program;
  program.rank = rank;
  program.layout.pp = 2;
  program.num_message_slots = 2;
  Segment segment;
  for (const Verb verb : verbs) {
    Instr& instr = segment.code.emplace_back();
    instr.verb = verb;
    instr.group = Group::pp;
    instr.op = verb == Verb::host   ? Op::finish_route
               : verb == Verb::send ? Op::pp_send
                                    : Op::pp_recv;
    instr.stream = verb == Verb::send ? Stream::pipeline_send : Stream::pipeline_recv;
    instr.peer = static_cast<int16_t>(1 - rank);
    instr.tag = 0;
    instr.cost.bytes = bytes;
  }
  program.segments = {std::make_shared<const Segment>(segment)};
  program.items = {Item{}};
  return program;
}

// Two messages are on their way at once; the third begins when the first has been read.
BOOST_AUTO_TEST_CASE(a_full_slot_makes_the_sender_wait) {
  spec::HardwareSpec hardware;
  hardware.devices_per_node = 2;
  hardware.intra_node = {10, 1e9};
  const StepProgram sender = talking(0, 90, {Verb::send, Verb::send, Verb::send, Verb::send});
  const StepProgram reader =
      talking(1, 90, {Verb::host, Verb::recv, Verb::host, Verb::recv, Verb::recv, Verb::recv});
  PlayOptions options;
  options.level = profiler::TraceLevel::ops;
  const auto thousand = [](const Position&, const Instr&, const OpCost&) { return int64_t{1000}; };
  const PlayResult played =
      play(hardware, {{&sender, nullptr}, {&reader, nullptr}}, thousand, options);
  std::vector<int64_t> ends;
  for (const profiler::TraceRecord& record : played.traces[0].records)
    ends.push_back(record.end_ns);
  BOOST_TEST(ends == (std::vector<int64_t>{100, 200, 1100, 2100}),
             boost::test_tools::per_element());
  for (const profiler::StepTrace& trace : played.traces) {
    for (const profiler::TraceRecord& record : trace.records) {
      const bool is_message = record.kind == profiler::RecordKind::p2p;
      BOOST_TEST(record.peer == (is_message ? 1 - trace.rank : -1));
      BOOST_TEST(record.communicator == (is_message ? 0 : -1));
      BOOST_TEST(record.device == (is_message ? trace.rank : -1));
    }
  }
}

BOOST_AUTO_TEST_CASE(starts_and_collectives_are_told_as_they_are_recorded) {
  spec::TrialSpec spec = trial(1, 1, 2);
  spec.knobs.data_parallel_size = 2;
  spec.hardware.devices_per_node = 2;
  spec.hardware.intra_node = {10, 1e9};
  const BalancedBindings bindings(spec, 0);
  const StepProgram first = compile(spec, 0);
  const StepProgram last = compile(spec, 1);
  using Times = std::vector<std::pair<int64_t, int64_t>>;
  std::vector<int64_t> told;
  const auto hundred = [&](const Position& at, const Instr& instr, const OpCost&) -> int64_t {
    if (at.rank == 0 && instr.verb == Verb::op) told.push_back(at.start_ns);
    return 100;
  };
  Times seen;
  PlayOptions options;
  options.level = profiler::TraceLevel::ops;
  options.sees_collective = [&](int rank, int64_t start_ns, int64_t end_ns) {
    if (rank == 0) seen.emplace_back(start_ns, end_ns);
  };
  const PlayResult played =
      play(spec.hardware, {{&first, &bindings}, {&last, &bindings}}, hundred, options);
  std::vector<int64_t> starts;
  Times collectives;
  for (const profiler::TraceRecord& record : played.traces[0].records) {
    if (record.kind == profiler::RecordKind::kernel) starts.push_back(record.start_ns);
    if (record.kind == profiler::RecordKind::collective) {
      collectives.emplace_back(record.start_ns, record.end_ns);
    }
  }
  BOOST_TEST(!starts.empty());
  BOOST_TEST((told == starts));
  BOOST_TEST(!collectives.empty());
  BOOST_TEST((seen == collectives));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
