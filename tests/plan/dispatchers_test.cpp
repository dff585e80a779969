// Dispatchers of experts' rows other than the all-to-all: what travels is what the closed form
// says, what is packed elsewhere is packed by their kernels, and programs hold what they have to.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "engine/spec/planned_links.h"
#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(dispatchers_of_rows)

namespace {

using spec::Dispatcher;
using testing::error_of;
using testing::num_ranks;

constexpr Dispatcher kOthers[] = {Dispatcher::allgather, Dispatcher::deepep, Dispatcher::hybridep};

Planned with(Dispatcher dispatcher, bool has_overlap = false) {
  Planned planned;
  planned.dispatcher = dispatcher;
  planned.overlaps_micro_batches = has_overlap;
  return planned;
}

const char* const kLayouts[] = {
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "recompute": "full"})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4,
        "recompute": "norm,moe_act,experts", "ep_chunks_forward": 2, "ep_chunks_backward": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "pipeline_model_parallel_size": 2})",
    R"({"context_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
};

/// On nodes of two devices.
void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    if (model.num_experts == 0) continue;
    for (const char* knobs : kLayouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) {
        spec::TrialSpec trial = testing::trial_of(model, knobs);
        trial.hardware.devices_per_node = 2;
        trial.hardware.num_nodes = num_ranks(trial) / 2;
        body(trial);
      }
    }
  }
}

/// It has layers with experts, whatever the layout.
int last_of(const spec::TrialSpec& trial) { return num_ranks(trial) - 1; }

std::vector<int> group_of(const spec::TrialSpec& trial) {
  return layout_of(trial.knobs).group_ranks(Group::ep, last_of(trial));
}

spec::ExpertTraffic traffic_of(const spec::TrialSpec& trial, const LayerDims& dims, Op op) {
  const Precision precision = spec::precision_of(trial.dtype, trial.knobs);
  const int64_t weights =
      op == Op::dispatch ? dims.slots_per_token() * base::size_of(precision.stat) : 0;
  return {dims.tokens, dims.expert_hidden() * base::size_of(precision.element) + weights,
          dims.expert_slices(), dims.slots_per_token()};
}

bool is_packing(Op op, Dispatcher dispatcher) {
  if (op == Op::permute || op == Op::permute_probs || op == Op::unpermute) return true;
  return dispatcher == Dispatcher::hybridep &&
         (op == Op::sort_rows || op == Op::sort_probs || op == Op::unsort_rows);
}

BOOST_AUTO_TEST_CASE(their_programs_hold_what_programs_hold) {
  for_all([](const spec::TrialSpec& trial) {
    for (const Dispatcher dispatcher : kOthers) {
      const bool has_overlap =
          dispatcher != Dispatcher::allgather && !spec::is_full_recompute(trial.knobs);
      const Planned planned = with(dispatcher, has_overlap);
      for (int rank = 0; rank < num_ranks(trial); ++rank) {
        BOOST_TEST(error_of(compile(trial, rank, planned)) == "");
      }
      testing::play_all(trial, planned);
    }
  });
}

BOOST_AUTO_TEST_CASE(what_travels_is_the_closed_form) {
  for_all([](const spec::TrialSpec& trial) {
    const std::vector<int> group = group_of(trial);
    const spec::Placement placement = spec::placement_of_ranks(trial.hardware, group);
    for (const Dispatcher dispatcher : kOthers) {
      int64_t num_seen = 0;
      for_each(compile(trial, last_of(trial), with(dispatcher)),
               [&](const Item&, const Segment& segment, const Instr& instr) {
                 if (!is_exchange_of_rows(instr)) return;
                 ++num_seen;
                 const spec::LinkBytes expected = spec::dispatch_bytes(
                     dispatcher, placement, traffic_of(trial, segment.dims, instr.op));
                 spec::LinkBytes moved{static_cast<double>(instr.cost.bytes),
                                       static_cast<double>(instr.across_bytes)};
                 if (!instr.is_by_node) {
                   moved = spec::link_bytes(trial.hardware, instr.kind, group, instr.cost.bytes);
                 }
                 const auto chunks = static_cast<double>(segment.num_chunks);
                 BOOST_TEST(std::abs(chunks * moved.intra - expected.intra) <= chunks);
                 BOOST_TEST(std::abs(chunks * moved.inter - expected.inter) <= chunks);
                 BOOST_TEST(expected.inter > 0);
               });
      BOOST_TEST(num_seen > 0);
    }
  });
}

/// Bytes of operations that pack rows or put them in order, and of what kernels pack, of a step.
struct Packed {
  double by_operations = 0;
  double by_kernels = 0;
};
Packed packed_of(const StepProgram& program, Dispatcher dispatcher) {
  Packed packed;
  for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
    // Routed operations take the rows of their chunk.
    const double rows = static_cast<double>(segment.dims.received_rows) / segment.num_chunks;
    if (instr.verb == Verb::op && is_packing(instr.op, dispatcher)) {
      packed.by_operations += static_cast<double>(instr.cost.bytes) +
                              static_cast<double>(instr.cost_per_row.bytes) * rows;
    }
    packed.by_kernels += static_cast<double>(instr.packing.bytes) +
                         static_cast<double>(instr.packing.bytes_per_row) * rows;
  });
  return packed;
}

BOOST_AUTO_TEST_CASE(kernels_pack_what_operations_have_packed) {
  for_all([](const spec::TrialSpec& trial) {
    for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
      const Packed plain = packed_of(compile(trial, last_of(trial)), dispatcher);
      const Packed fused = packed_of(compile(trial, last_of(trial), with(dispatcher)), dispatcher);
      BOOST_TEST(plain.by_kernels == 0);
      BOOST_TEST(plain.by_operations > 0);
      BOOST_TEST(fused.by_operations == 0);
      BOOST_TEST(fused.by_kernels == plain.by_operations, boost::test_tools::tolerance(1e-9));
    }
  });
}

/// Bytes of that buffer, as they are first allocated in a step.
int64_t bytes_of(const StepProgram& program, Buf buffer) {
  int64_t bytes = 0;
  for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
    if (instr.verb != Verb::alloc || instr.refs.front().space != Space::frame || bytes > 0) return;
    if (instr.refs.front().id != static_cast<uint8_t>(buffer)) return;
    bytes = cost_at(instr, segment.dims.received_rows).bytes;
  });
  return bytes;
}

BOOST_AUTO_TEST_CASE(buffers_hold_each_token_once) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram plain = compile(trial, last_of(trial));
    BOOST_TEST(bytes_of(plain, Buf::send_rows) > 0);
    BOOST_TEST(bytes_of(plain, Buf::node_rows) == 0);
    for (const Dispatcher dispatcher : kOthers) {
      const StepProgram program = compile(trial, last_of(trial), with(dispatcher));
      BOOST_TEST(bytes_of(program, Buf::send_rows) == 0);
      const bool is_by_node = dispatcher != Dispatcher::allgather;
      BOOST_TEST((bytes_of(program, Buf::node_rows) > 0) == is_by_node);
      const int64_t arrive = bytes_of(program, Buf::recv_rows);
      if (dispatcher == Dispatcher::hybridep) BOOST_TEST(arrive == 0);
      if (dispatcher == Dispatcher::deepep) {
        BOOST_TEST(arrive > 0);
        BOOST_TEST(arrive <= bytes_of(plain, Buf::recv_rows));
      }
    }
  });
}

// The all-to-all is what blocks write.
BOOST_AUTO_TEST_CASE(the_usual_dispatcher_changes_nothing) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram plain = compile(trial, last_of(trial));
    const StepProgram same = compile(trial, last_of(trial), with(Dispatcher::alltoall));
    BOOST_TEST_REQUIRE(plain.segments.size() == same.segments.size());
    for (size_t i = 0; i < plain.segments.size(); ++i) {
      BOOST_TEST(plain.segments[i]->code.size() == same.segments[i]->code.size());
      BOOST_TEST((plain.segments[i]->dims == same.segments[i]->dims));
    }
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
