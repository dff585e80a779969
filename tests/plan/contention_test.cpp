// What instructions share with communication in flight, on programs made by hand and on compiled
// ones.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/plan/compile.h"
#include "engine/plan/passes/passes.h"
#include "engine/plan/player.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(contention_of_links)

namespace {

/// Four ranks of one stage on two nodes.
struct HandMade {
  StepProgram program;
  Segment segment;
  spec::HardwareSpec hardware;

  HandMade() {
    program.layout.dp = 4;
    program.layout.ep = 2;
    hardware.num_nodes = 2;
    hardware.devices_per_node = 2;
    hardware.intra_node = {10, 1e9};
    hardware.inter_node = {100, 1e8};
  }

  Instr& add(Verb verb, Stream stream) {
    Instr& instr = segment.code.emplace_back();
    instr.verb = verb;
    instr.stream = stream;
    return instr;
  }
  void gather(Stream stream, Group group, int64_t bytes) {
    Instr& instr = add(Verb::comm, stream);
    instr.group = group;
    instr.cost.bytes = bytes;
  }
  void op(Stream stream) { add(Verb::op, stream).op = Op::core_attn; }
  void join(Stream stream, Stream other) {
    add(Verb::record, other).event = segment.num_events;
    add(Verb::wait, stream).event = segment.num_events++;
  }

  /// By instruction.
  std::vector<Sharing> sharings() {
    program.segments = {std::make_shared<const Segment>(segment)};
    program.items = {Item{}};
    program.sharings.clear();
    contention(program, hardware);
    std::vector<Sharing> all;
    for (size_t i = 0; i < segment.code.size(); ++i) {
      all.push_back(sharing_of(program, program.items.front(), i));
    }
    return all;
  }
};

// A ring of 2 puts half of the payload on a link, a ring of 4 three quarters, half of that on each
// of two rails.
BOOST_AUTO_TEST_CASE(two_transfers_pass_as_many_bytes_beside_each_other_as_the_smaller_has) {
  HandMade made;
  made.gather(Stream::data, Group::dp_cp, 8000);  // 6000 within a node, 3000 on the rail
  made.gather(Stream::expert, Group::ep, 4000);   // ranks 0, 1: 2000 within the node
  const auto shared = made.sharings();
  BOOST_TEST(shared[0].links.intra == 1 + 2000.0 / 6000);
  BOOST_TEST(shared[0].links.inter == 1);
  BOOST_TEST(shared[1].links.intra == 2);
  BOOST_TEST(shared[1].links.inter == 1);
}

BOOST_AUTO_TEST_CASE(bytes_pass_once) {
  HandMade made;
  made.gather(Stream::data, Group::dp_cp, 4000);                             // 3000 within a node
  for (int i = 0; i < 3; ++i) made.gather(Stream::expert, Group::ep, 4000);  // 2000 each
  const auto shared = made.sharings();
  BOOST_TEST(shared[0].links.intra == 2);
  BOOST_TEST(shared[1].links.intra == 2);
  BOOST_TEST(shared[2].links.intra == 1.5);
  BOOST_TEST(shared[3].links.intra == 1);
}

BOOST_AUTO_TEST_CASE(what_has_been_waited_for_is_not_in_flight) {
  HandMade made;
  made.gather(Stream::data, Group::dp_cp, 8000);
  made.join(Stream::compute, Stream::data);
  made.op(Stream::compute);
  made.join(Stream::expert, Stream::compute);
  made.gather(Stream::expert, Group::ep, 4000);
  for (const Sharing& sharing : made.sharings()) BOOST_TEST((sharing == Sharing{}));
  // Nor what the host has waited for.
  HandMade fetched;
  fetched.gather(Stream::data, Group::dp_cp, 8000);
  fetched.add(Verb::fetch, Stream::data);
  fetched.gather(Stream::expert, Group::ep, 4000);
  for (const Sharing& sharing : fetched.sharings()) BOOST_TEST((sharing == Sharing{}));
}

BOOST_AUTO_TEST_CASE(groups_on_unlike_links_do_not_meet) {
  HandMade made;
  made.program.layout = {};
  made.program.layout.dp = 2;
  made.program.layout.cp = 2;
  made.gather(Stream::context, Group::cp, 4000);  // ranks 0, 1
  made.gather(Stream::data, Group::edp, 4000);    // all four: both kinds
  made.program.layout.ep = 2;                     // edp: 0, 2, on two nodes
  for (const Sharing& sharing : made.sharings()) BOOST_TEST((sharing == Sharing{}));
}

BOOST_AUTO_TEST_CASE(operations_lose_multiprocessors_to_collectives_in_flight) {
  HandMade made;
  made.op(Stream::compute);
  made.gather(Stream::data, Group::dp_cp, 8000);
  made.op(Stream::compute);
  made.gather(Stream::expert, Group::ep, 8000);
  made.op(Stream::compute);
  made.join(Stream::compute, Stream::data);
  made.op(Stream::compute);
  std::vector<int> counts;
  const auto shared = made.sharings();
  for (size_t i = 0; i < shared.size(); ++i) {
    if (made.segment.code[i].verb == Verb::op) counts.push_back(shared[i].num_collectives);
  }
  BOOST_TEST(counts == (std::vector<int>{0, 1, 2, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_kernel_takes_longer_by_what_collectives_hold) {
  spec::HardwareSpec hardware;
  BOOST_TEST(slowed_ns(hardware, 1000, 3) == 1000);
  hardware.comm_sm_ratio = 0.2;
  BOOST_TEST(slowed_ns(hardware, 1000, 0) == 1000);
  BOOST_TEST(slowed_ns(hardware, 1000, 1) == 1250);
  BOOST_TEST(slowed_ns(hardware, 1200, 2) == 2000);
  BOOST_TEST(slowed_ns(hardware, 1000, 100) == 4000);
}

BOOST_AUTO_TEST_CASE(overlapped_reductions_meet_the_experts_rows) {
  spec::TrialSpec trial = spec::samples::trial();
  trial.knobs = {};
  trial.knobs.data_parallel_size = 4;
  trial.knobs.expert_model_parallel_size = 2;
  trial.hardware.num_nodes = 1;
  trial.hardware.devices_per_node = 4;
  trial.hardware.intra_node = {1000, 1e9};
  const auto shares_of = [&](Op op) {
    double most = 1;
    const StepProgram program = compile(trial, 0);
    for (const Item& item : program.items) {
      const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
      for (size_t i = 0; i < segment.code.size(); ++i) {
        if (segment.code[i].op != op) continue;
        most = std::max(most, sharing_of(program, item, i).links.intra);
      }
    }
    return most;
  };
  BOOST_TEST(shares_of(Op::grad_reduce) == 1);
  BOOST_TEST(shares_of(Op::dispatch) == 1);
  trial.knobs.overlap_grad_reduce = true;
  BOOST_TEST(shares_of(Op::grad_reduce) > 1);
  BOOST_TEST(shares_of(Op::dispatch) > 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
