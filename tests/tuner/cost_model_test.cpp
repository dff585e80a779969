// The replay against sums that can be done by hand, how it answers to hardware and knobs, and what
// trials teach it.
#include "tuner/cost_model.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(cost_model)

namespace {

namespace data = boost::unit_test::data;

/// As many devices as the knobs need, four in a node.
spec::TrialSpec trial(const char* knobs) {
  spec::TrialSpec made = spec::samples::trial();
  made.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  const int world = plan::layout_of(made.knobs).world_size();
  made.hardware.devices_per_node = std::min(world, 4);
  made.hardware.num_nodes = (world + 3) / 4;
  made.hardware.peak_flops_per_s = 1e11;
  made.hardware.memory_bytes_per_s = 1e10;
  made.hardware.launch_ns = 1000;
  made.hardware.graph_launch_ns = 1500;
  made.hardware.sync_ns = 500;
  made.training.global_batch_size = 8;
  made.training.seq_length = 64;
  return made;
}

CostEstimate replay(const spec::TrialSpec& spec) { return play_step(spec, Calibration()); }

int64_t part(const CostEstimate& estimate, const char* name) {
  const auto found = estimate.parts_ns.find(name);
  return found == estimate.parts_ns.end() ? 0 : found->second;
}

/// Compute-like ops of a step on rank 0, and their roofline times.
struct Work {
  int64_t ns = 0;
  int64_t recompute_ns = 0;
  int64_t num_launches = 0;
};
template <typename Body>
void for_each_op(const spec::TrialSpec& spec, Body&& body) {
  const plan::BalancedBindings bindings(spec, 0);
  plan::for_each(plan::compile(spec, 0), [&](const plan::Item& item, const plan::Segment& segment,
                                             const plan::Instr& instr) {
    if (instr.verb != plan::Verb::op) return;
    const plan::Route& route = bindings.at(item.layer, item.micro_batch);
    body(instr, instr.is_routed
                    ? plan::cost_at(instr, route.received(segment.is_backward, instr.chunk))
                    : instr.cost);
  });
}

Work work_of(const spec::TrialSpec& spec) {
  Work work;
  for_each_op(spec, [&](const plan::Instr& instr, const plan::OpCost& cost) {
    const int64_t ns = plan::roofline_ns(spec.hardware, instr.op, cost);
    (instr.pass == plan::Pass::recompute ? work.recompute_ns : work.ns) += ns;
    ++work.num_launches;
  });
  return work;
}

const char* const kKnobs[] = {
    "{}",
    R"({"recompute": "full"})",
    R"({"data_parallel_size": 8, "overlap_grad_reduce": true})",
    R"({"data_parallel_size": 4, "context_parallel_size": 2, "use_distributed_optimizer": false})",
    R"({"data_parallel_size": 8, "expert_model_parallel_size": 8, "ep_chunks_forward": 2})",
    R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 4})",
    R"({"data_parallel_size": 2, "context_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "expert_model_parallel_size": 4, "ep_chunks_forward": 2, "ep_chunks_backward": 4,
        "recompute": "norm,experts", "cuda_graph_modules": "attn,moe_router,moe_preprocess"})",
};

BOOST_AUTO_TEST_CASE(one_device_without_a_host_does_its_ops_one_after_another) {
  for (const char* knobs : {"{}", R"({"micro_batch_size": 4})", R"({"recompute": "full"})",
                            R"({"recompute": "norm,core_attn,moe_act,experts"})"}) {
    spec::TrialSpec spec = trial(knobs);
    spec.hardware.launch_ns = 0;
    spec.hardware.sync_ns = 0;
    const Work work = work_of(spec);
    const CostEstimate estimate = replay(spec);
    BOOST_TEST_CONTEXT(knobs) {
      BOOST_TEST(estimate.step_ns == work.ns + work.recompute_ns);
      BOOST_TEST(part(estimate, "compute") == work.ns);
      BOOST_TEST(part(estimate, "recompute") == work.recompute_ns);
      BOOST_TEST((estimate.grade == Grade::analytic));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_slow_host_is_what_the_step_waits_for) {
  spec::TrialSpec spec = trial("{}");
  spec.hardware.launch_ns = 10'000'000;
  const CostEstimate slow = replay(spec);
  BOOST_TEST(slow.step_ns >= work_of(spec).num_launches * spec.hardware.launch_ns);
  BOOST_TEST(part(slow, "launch_starved") > slow.step_ns * 9 / 10);

  spec.hardware.graph_launch_ns = spec.hardware.launch_ns;
  int64_t last = slow.step_ns;
  for (const char* modules : {"moe_router", "moe_router,moe_preprocess",
                              "attn,moe_router,moe_preprocess", "full_iteration"}) {
    spec.knobs.cuda_graph_modules = spec::GraphSet(modules);
    const int64_t step_ns = replay(spec).step_ns;
    BOOST_TEST_CONTEXT(modules) { BOOST_TEST(step_ns < last); }
    last = step_ns;
  }
}

BOOST_DATA_TEST_CASE(parts_add_up_and_nothing_is_random, data::make(kKnobs), knobs) {
  const spec::TrialSpec spec = trial(knobs);
  const CostEstimate estimate = replay(spec);
  int64_t sum = 0;
  for (const auto& [name, ns] : estimate.parts_ns) {
    sum += ns;
    BOOST_TEST_CONTEXT(name) { BOOST_TEST(ns >= 0); }
  }
  BOOST_TEST(estimate.step_ns > 0);
  BOOST_TEST(sum == estimate.step_ns);
  if (spec.knobs.pipeline_model_parallel_size == 1) {
    // All ranks do the same work, and waiting is never mistaken for it.
    BOOST_TEST(part(estimate, "compute") == work_of(spec).ns);
    BOOST_TEST(part(estimate, "recompute") == work_of(spec).recompute_ns);
  }
  const CostEstimate again = replay(spec);
  BOOST_TEST(again.step_ns == estimate.step_ns);
  BOOST_TEST((again.parts_ns == estimate.parts_ns));
}

BOOST_DATA_TEST_CASE(a_step_is_the_same_however_many_records_are_kept, data::make(kKnobs), knobs) {
  spec::TrialSpec spec = trial(knobs);
  spec.training.global_batch_size = 64;
  const CompiledStep compiled(spec);
  const PlayedStep whole = play_traced(spec, compiled, Calibration(), 1'000'000);
  const PlayedStep thin = play_traced(spec, compiled, Calibration(), 10);
  BOOST_TEST(!whole.is_thinned);
  BOOST_TEST(thin.is_thinned);
  BOOST_TEST((thin.estimate.parts_ns == whole.estimate.parts_ns));
  BOOST_TEST((thin.stage_parts_ns == whole.stage_parts_ns));
  BOOST_TEST(thin.num_records == whole.num_records);
  int64_t num_records = 0;
  for (size_t i = 0; i < whole.traces.size(); ++i) {
    num_records += static_cast<int64_t>(whole.traces[i].records.size());
    int64_t sum = 0;
    for (const auto& [name, ns] : whole.stage_parts_ns[i]) sum += ns;
    BOOST_TEST(sum == whole.estimate.step_ns);
    const int64_t last = whole.num_micro_batches - 1;
    std::vector<int64_t> kept;
    for (const profiler::TraceRecord& record : whole.traces[i].records) {
      const int64_t micro_batch = record.micro_batch;
      if (micro_batch <= 0 || micro_batch == (last + 1) / 2 || micro_batch == last) {
        kept.push_back(record.id);
      }
    }
    std::vector<int64_t> ids;
    for (const profiler::TraceRecord& record : thin.traces[i].records) ids.push_back(record.id);
    BOOST_TEST(ids == kept);
  }
  BOOST_TEST(num_records == whole.num_records);
  BOOST_TEST(play_traced(spec, compiled, Calibration(), 0).traces.empty());
}

BOOST_DATA_TEST_CASE(worse_hardware_is_never_faster, data::make(kKnobs), knobs) {
  const spec::TrialSpec spec = trial(knobs);
  const int64_t before = replay(spec).step_ns;
  const auto expect_slower = [&](const char* what, auto&& change) {
    spec::TrialSpec worse = spec;
    change(worse.hardware);
    BOOST_TEST_CONTEXT(what) { BOOST_TEST(replay(worse).step_ns >= before); }
  };
  expect_slower("launch", [](spec::HardwareSpec& h) { h.launch_ns *= 3; });
  expect_slower("sync", [](spec::HardwareSpec& h) { h.sync_ns *= 20; });
  expect_slower("flops", [](spec::HardwareSpec& h) { h.peak_flops_per_s /= 50; });
  expect_slower("memory", [](spec::HardwareSpec& h) { h.memory_bytes_per_s /= 50; });
  expect_slower("intra", [](spec::HardwareSpec& h) { h.intra_node.bytes_per_s /= 50; });
  expect_slower("inter", [](spec::HardwareSpec& h) { h.inter_node.latency_ns *= 50; });
}

/// One change, and the part of the step that it adds or takes away.
struct Change {
  const char* before;
  const char* after;
  const char* part;
};
std::ostream& operator<<(std::ostream& out, const Change& change) { return out << change.after; }

const Change kAdds[] = {
    {"{}", R"({"recompute": "full"})", "recompute"},
    {R"({"data_parallel_size": 8})",
     R"({"data_parallel_size": 8, "expert_model_parallel_size": 8})", "blocking_ep"},
    {R"({"data_parallel_size": 8})", R"({"data_parallel_size": 4, "context_parallel_size": 2})",
     "blocking_cp"},
    {R"({"data_parallel_size": 4})",
     R"({"data_parallel_size": 4, "pipeline_model_parallel_size": 2})", "bubble"},
    {"{}", R"({"data_parallel_size": 2})", "blocking_dp_cp"},
    {"{}", R"({"tensor_model_parallel_size": 2})", "blocking_tp"},
    {R"({"data_parallel_size": 4})",
     R"({"data_parallel_size": 4, "expert_tensor_parallel_size": 2})", "blocking_ep"},
    {R"({"data_parallel_size": 4})",
     R"({"data_parallel_size": 4, "context_parallel_size": 2, "cp_comm_type": "p2p"})",
     "blocking_cp"},
    {"{}", R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
     "bubble"},
};

BOOST_DATA_TEST_CASE(each_dimension_brings_its_part, data::make(kAdds), change) {
  BOOST_TEST(part(replay(trial(change.before)), change.part) == 0);
  BOOST_TEST(part(replay(trial(change.after)), change.part) > 0);
}

// Narayanan et al. 2021: the bubble is (pp - 1) / (m vpp) of the work.
BOOST_AUTO_TEST_CASE(virtual_stages_shrink_the_bubble) {
  const CostEstimate whole = replay(trial(R"({"pipeline_model_parallel_size": 2})"));
  const CostEstimate interleaved = replay(
      trial(R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})"));
  BOOST_TEST(part(interleaved, "bubble") < part(whole, "bubble"));
}

BOOST_AUTO_TEST_CASE(more_micro_batches_shrink_the_share_of_the_bubble) {
  double last = 1;
  for (const int64_t batch : {4, 8, 32}) {
    spec::TrialSpec spec = trial(R"({"pipeline_model_parallel_size": 4})");
    spec.training.global_batch_size = batch;
    const CostEstimate estimate = replay(spec);
    const double share =
        static_cast<double>(part(estimate, "bubble")) / static_cast<double>(estimate.step_ns);
    BOOST_TEST(share < last);
    last = share;
  }
}

// With a window the ranks of a context see different numbers of pairs: all wait for those with
// most.
BOOST_AUTO_TEST_CASE(the_busiest_context_rank_is_played) {
  for (const char* knobs : {R"({"context_parallel_size": 4})",
                            R"({"context_parallel_size": 4, "cp_comm_type": "p2p"})"}) {
    spec::TrialSpec spec = trial(knobs);
    spec.model.attention_window.assign(spec.model.attention_window.size(), 8);
    const auto attention_flops = [](const plan::StepProgram& program) {
      int64_t flops = 0;
      plan::for_each(program, [&](const auto&, const auto&, const plan::Instr& instr) {
        if (instr.op == plan::Op::core_attn) flops += instr.cost.flops;
      });
      return flops;
    };
    int64_t most = 0;
    for (int rank = 0; rank < 4; ++rank) {
      most = std::max(most, attention_flops(plan::compile(spec, rank)));
    }
    BOOST_TEST_CONTEXT(knobs) {
      BOOST_TEST(attention_flops(plan::compile(spec, 0)) < most);
      BOOST_TEST(attention_flops(CompiledStep(spec).stages().front()) == most);
    }
  }
}

BOOST_AUTO_TEST_CASE(chunks_hide_an_all_to_all_as_long_as_the_experts) {
  spec::TrialSpec spec = trial(R"({"data_parallel_size": 4, "expert_model_parallel_size": 4})");
  spec.model.moe_ffn_size = 512;
  // Bound by FLOPs: every chunk reads the experts' weights again, which must not matter here.
  spec.hardware.memory_bytes_per_s = 1e14;
  spec.hardware.launch_ns = 0;
  spec.hardware.intra_node = {0, 5e8};
  const CostEstimate whole = replay(spec);
  spec.knobs.ep_chunks_forward = 4;
  spec.knobs.ep_chunks_backward = 4;
  const CostEstimate chunked = replay(spec);
  BOOST_TEST(chunked.step_ns < whole.step_ns);
  BOOST_TEST(part(chunked, "blocking_ep") < part(whole, "blocking_ep"));
  // Where every message costs its latency, cutting makes it worse.
  spec.hardware.intra_node = {1'000'000, 1e12};
  const int64_t many = replay(spec).step_ns;
  spec.knobs.ep_chunks_forward = 1;
  spec.knobs.ep_chunks_backward = 1;
  BOOST_TEST(many > replay(spec).step_ns);
}

BOOST_AUTO_TEST_CASE(shared_experts_hide_the_dispatch_of_every_chunk) {
  spec::TrialSpec spec = trial(R"({"data_parallel_size": 4, "expert_model_parallel_size": 4})");
  spec.model.shared_ffn_size = 4096;  // longer than all transfers of a layer
  spec.hardware.memory_bytes_per_s = 1e14;
  spec.hardware.launch_ns = 0;
  spec.hardware.intra_node = {0, 5e8};
  const int64_t whole = part(replay(spec), "blocking_ep");
  spec.knobs.ep_chunks_forward = 2;
  // Only the way back is left, as without chunks; a second chunk that waited would add half a
  // dispatch.
  BOOST_TEST(part(replay(spec), "blocking_ep") <= whole);
}

BOOST_AUTO_TEST_CASE(overlapped_reductions_cost_less) {
  spec::TrialSpec spec = trial(R"({"data_parallel_size": 4})");
  spec.hardware.launch_ns = 0;
  const int64_t at_the_end = replay(spec).step_ns;
  spec.knobs.overlap_grad_reduce = true;
  BOOST_TEST(replay(spec).step_ns < at_the_end);
}

TrialOutcome measured(int64_t step_ns) {
  TrialOutcome outcome;
  outcome.status = spec::TrialStatus::ok;
  outcome.step_ns = step_ns;
  return outcome;
}

BOOST_AUTO_TEST_CASE(trials_correct_their_own_layout_first) {
  const spec::TrialSpec flat = trial(R"({"data_parallel_size": 8})");
  const spec::TrialSpec experts =
      trial(R"({"data_parallel_size": 8, "expert_model_parallel_size": 8})");
  CostModel model;
  BOOST_TEST((model.estimate(flat).grade == Grade::analytic));
  BOOST_TEST(model.estimate(flat).step_ns == replay(flat).step_ns);
  BOOST_TEST(model.error_ratio() == 1.0);

  model.add(flat, measured(2 * replay(flat).step_ns));
  BOOST_TEST((model.estimate(flat).grade == Grade::calibrated));
  BOOST_TEST(model.estimate(flat).step_ns == 2 * replay(flat).step_ns);
  // A layout nobody has measured takes the typical correction.
  BOOST_TEST(model.estimate(experts).step_ns == 2 * replay(experts).step_ns);

  model.add(experts, measured(3 * replay(experts).step_ns));
  spec::TrialSpec chunked = experts;
  chunked.knobs.ep_chunks_forward = 2;
  BOOST_TEST(model.estimate(flat).step_ns == 2 * replay(flat).step_ns);
  BOOST_TEST(model.estimate(chunked).step_ns == 3 * replay(chunked).step_ns);
  BOOST_TEST(model.error_ratio() > 0.1);
  BOOST_TEST(model.error_ratio() < 0.5);

  const CostEstimate estimate = model.estimate(chunked);
  int64_t sum = 0;
  for (const auto& [name, ns] : estimate.parts_ns) sum += ns;
  BOOST_TEST(sum == estimate.step_ns);
}

BOOST_AUTO_TEST_CASE(failed_trials_teach_nothing) {
  const spec::TrialSpec spec = trial("{}");
  CostModel model;
  TrialOutcome failed = measured(5 * replay(spec).step_ns);
  failed.status = spec::TrialStatus::failed;
  model.add(spec, failed);
  model.add(spec, measured(0));
  BOOST_TEST(model.estimate(spec).step_ns == replay(spec).step_ns);
  BOOST_TEST((model.estimate(spec).grade == Grade::analytic));
}

BOOST_AUTO_TEST_CASE(measured_op_times_replace_the_roofline) {
  spec::TrialSpec spec = trial("{}");
  spec.hardware.launch_ns = 0;
  spec.hardware.sync_ns = 0;
  // Every op takes four times its roofline.
  Calibration calibration;
  std::map<std::string, TrialOutcome::OpTime> op_times;
  for_each_op(spec, [&](const plan::Instr& instr, const plan::OpCost& cost) {
    TrialOutcome::OpTime& time = op_times[plan::op_label(instr.op, instr.pass)];
    time.count += 1;
    time.flops += cost.flops;
    time.bytes += cost.bytes;
    time.duration_ns += 4 * plan::roofline_ns(spec.hardware, instr.op, cost);
  });
  calibration.add(spec.hardware, op_times);
  const CostEstimate estimate = play_step(spec, calibration);
  const double ratio =
      static_cast<double>(estimate.step_ns) / static_cast<double>(replay(spec).step_ns);
  BOOST_TEST(std::abs(ratio - 4.0) < 0.05);
  BOOST_TEST((estimate.grade == Grade::calibrated));
}

/// The step and its operations as they are by the roofline, slowed down beside collectives.
TrialOutcome outcome_by_roofline(const spec::TrialSpec& spec) {
  TrialOutcome outcome = measured(replay(spec).step_ns);
  const plan::BalancedBindings bindings(spec, 0);
  const plan::StepProgram program = plan::compile(spec, 0);
  for (const plan::Item& item : program.items) {
    const plan::Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    for (size_t i = 0; i < segment.code.size(); ++i) {
      const plan::Instr& instr = segment.code[i];
      if (instr.verb != plan::Verb::op) continue;
      const plan::OpCost cost =
          instr.is_routed ? plan::cost_at(instr, bindings.at(item.layer, item.micro_batch)
                                                     .received(segment.is_backward, instr.chunk))
                          : instr.cost;
      TrialOutcome::OpTime& time = outcome.op_times[plan::op_label(instr.op, instr.pass)];
      time.count += 1;
      time.flops += cost.flops;
      time.bytes += cost.bytes;
      time.duration_ns +=
          plan::slowed_ns(spec.hardware, plan::roofline_ns(spec.hardware, instr.op, cost),
                          plan::sharing_of(program, item, i).num_collectives);
    }
  }
  return outcome;
}

BOOST_AUTO_TEST_CASE(what_collectives_took_is_not_taken_twice) {
  spec::TrialSpec plain = trial(R"({"data_parallel_size": 8})");
  plain.hardware.comm_sm_ratio = 0.4;
  spec::TrialSpec overlapped = plain;
  overlapped.knobs.overlap_grad_reduce = true;
  CostModel model;
  for (const spec::TrialSpec& spec : {plain, overlapped})
    model.add(spec, outcome_by_roofline(spec));
  BOOST_TEST(model.error_ratio() < 0.005);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
