// Each rule of the constraint table broken once, with a message that names the knob and the value.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <set>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(constraints)

namespace {

std::vector<Violation> check(const TrialSpec& spec) { return check_constraints(parts_of(spec)); }

void make_dense(TrialSpec& spec) {
  spec.model = model_from_json(samples::llama(), "model.json");
  spec.knobs.expert_model_parallel_size = 1;
}

/// As many devices more.
void with_tp(TrialSpec& spec, int64_t tp) {
  spec.hardware.num_nodes = tp;
  spec.hardware.devices_per_node = 8;
  spec.knobs.tensor_model_parallel_size = tp;
}

/// Micro-batches of sequences that no two ranks can share, for two ranks.
void with_odd_sequences(TrialSpec& spec, int64_t micro_batch_size) {
  with_tp(spec, 2);
  spec.knobs.context_parallel_size = 1;
  spec.knobs.data_parallel_size = 4;
  spec.training.seq_length = 127;
  spec.knobs.micro_batch_size = micro_batch_size;
  spec.training.global_batch_size = 16;
}

struct Case {
  const char* rule;
  const char* part;  ///< of the message
  std::function<void(TrialSpec&)> break_it;
};
std::ostream& operator<<(std::ostream& out, const Case& row) {
  return out << row.rule << ": " << row.part;
}

// The sample: 4 layers, 8 experts, 2 x 4 devices, dp 2 x cp 2 x pp 2, ep 4, 8 sequences of 128
// tokens.
const Case kCases[] = {
    {"sizes", "micro_batch_size is 0", [](TrialSpec& s) { s.knobs.micro_batch_size = 0; }},
    {"sizes", "context_parallel_size is -2",
     [](TrialSpec& s) { s.knobs.context_parallel_size = -2; }},
    {"sizes", "global_batch_size is 0", [](TrialSpec& s) { s.training.global_batch_size = 0; }},
    {"sizes", "seq_length is 4611686018427387904",
     [](TrialSpec& s) { s.training.seq_length = int64_t{1} << 62; }},
    {"engine_runs_model", "multi-token prediction is planned, not run, by the engine yet",
     [](TrialSpec& s) { s.model.mtp.depth = 1; }},
    {"engine_runs_model", "the family qwen3 is planned, not run",
     [](TrialSpec& s) { s.model.family = "qwen3"; }},
    {"world_size", "data_parallel_size 2 would be right",
     [](TrialSpec& s) { s.knobs.data_parallel_size = 4; }},
    {"world_size", "context x pipeline (6) must divide",
     [](TrialSpec& s) { s.knobs.pipeline_model_parallel_size = 3; }},
    {"ep_divides_plane", "expert_model_parallel_size 8 does not divide",
     [](TrialSpec& s) { s.knobs.expert_model_parallel_size = 8; }},
    {"ep_divides_plane",
     "expert_model_parallel_size 4 x expert_tensor_parallel_size 2 does not divide",
     [](TrialSpec& s) { s.knobs.expert_tensor_parallel_size = 2; }},
    {"ep_divides_experts", "expert_model_parallel_size 4 does not divide the 6 experts",
     [](TrialSpec& s) { s.model.num_experts = 6; }},
    {"ep_needs_experts",
     "expert_model_parallel_size is 4 and expert_tensor_parallel_size 1, but the model",
     [](TrialSpec& s) {
       make_dense(s);
       s.knobs.expert_model_parallel_size = 4;
     }},
    {"tp_divides_heads", "tensor_model_parallel_size 2 does not divide the 5 attention heads",
     [](TrialSpec& s) {
       with_tp(s, 2);
       s.model.num_heads = 5;
     }},
    {"tp_divides_heads", "tensor_model_parallel_size 4 does not divide the 2 key-value groups",
     [](TrialSpec& s) { with_tp(s, 4); }},
    {"text_within_vocabulary", "vocab_size is 255, expected at least 256",
     [](TrialSpec& s) {
       s.data_digest = "0123";
       s.model.vocab_size = 255;
     }},
    {"tp_divides_widths", "does not divide the 33 entries of the vocabulary",
     [](TrialSpec& s) {
       with_tp(s, 2);
       s.model.vocab_size = 33;
     }},
    {"tp_divides_widths", "does not divide the 49 columns of the MLP",
     [](TrialSpec& s) {
       with_tp(s, 2);
       s.model.is_moe_layer[1] = false;
       s.model.ffn_size = 49;
     }},
    {"tp_divides_widths", "does not divide the 15 columns of the shared expert",
     [](TrialSpec& s) {
       with_tp(s, 2);
       s.model.shared_ffn_size = 15;
     }},
    {"tp_divides_tokens", "does not split 3 sequences of 64 tokens",
     [](TrialSpec& s) {
       with_tp(s, 2);
       s.knobs.micro_batch_size = 3;
       s.training.global_batch_size = 12;
     }},
    // Two ranks a sequence would have 63 and 64 of its tokens.
    {"tp_divides_tokens", "does not split 1 sequences of 127 tokens",
     [](TrialSpec& s) { with_odd_sequences(s, 1); }},
    {"etp_divides_width", "expert_tensor_parallel_size 3 does not divide the",
     [](TrialSpec& s) {
       s.knobs.expert_tensor_parallel_size = 3;
       s.hardware.num_nodes = 3;
       s.hardware.devices_per_node = 8;
       s.knobs.data_parallel_size = 6;
       s.training.global_batch_size = 12;
     }},
    {"layout_text", "'z' at 2 is no letter",
     [](TrialSpec& s) { s.knobs.pipeline_model_parallel_layout = "Etz|tL"; }},
    {"layout_text", "has 1048576 characters, at most 10000 are read",
     [](TrialSpec& s) { s.knobs.pipeline_model_parallel_layout = std::string(1 << 20, 't'); }},
    {"layout_stages", "excludes decoder_first_pipeline_num_layers",
     [](TrialSpec& s) {
       s.knobs.pipeline_model_parallel_layout = "Ett|ttL";
       s.knobs.decoder_first_pipeline_num_layers = 2;
     }},
    {"layout_stages", "and decoder_last_pipeline_num_layers; use 0 for both",
     [](TrialSpec& s) {
       s.knobs.pipeline_model_parallel_layout = "Ett|ttL";
       s.knobs.decoder_last_pipeline_num_layers = 2;
     }},
    {"layout_stages", "has 3 layers (t), the model has 4",
     [](TrialSpec& s) { s.knobs.pipeline_model_parallel_layout = "Et|ttL"; }},
    {"vpp_needs_pp", "2 virtual stages need pipeline_model_parallel_size above 1",
     [](TrialSpec& s) {
       s.knobs.pipeline_model_parallel_size = 1;
       s.knobs.data_parallel_size = 4;
       s.knobs.virtual_pipeline_model_parallel_size = 2;
     }},
    {"vpp_divides_layers", "more stages than the model's 4 layers fill",
     [](TrialSpec& s) { s.knobs.virtual_pipeline_model_parallel_size = 3; }},
    {"vpp_divides_micro_batches", "the 3 micro-batches of a step are not a multiple",
     [](TrialSpec& s) {
       s.knobs.virtual_pipeline_model_parallel_size = 2;
       s.training.global_batch_size = 6;
     }},
    {"vpp_within_communicator",
     "virtual stages need messages with tags, which communicator 'nccl' does not have yet; it "
     "would be right: virtual_pipeline_model_parallel_size 1",
     [](TrialSpec& s) {
       s.knobs.virtual_pipeline_model_parallel_size = 2;
       s.communicator = CommunicatorKind::nccl;
     }},
    {"vpp_within_communicator", "communicator 'nccl'",
     [](TrialSpec& s) {
       s.knobs.pipeline_model_parallel_layout = "Et|t|t|tL";
       s.communicator = CommunicatorKind::nccl;
     }},
    {"pp_within_layers", "pipeline_model_parallel_size 8 is more than the 4 layers",
     [](TrialSpec& s) {
       s.knobs = {};
       s.knobs.pipeline_model_parallel_size = 8;
     }},
    {"stage_layers", "must add up to the 4 layers",
     [](TrialSpec& s) {
       s.knobs.decoder_first_pipeline_num_layers = 1;
       s.knobs.decoder_last_pipeline_num_layers = 2;
     }},
    {"stage_layers", "each stage needs at least 1",
     [](TrialSpec& s) { s.knobs.decoder_last_pipeline_num_layers = 4; }},
    {"stage_layers", "need pipeline_model_parallel_size above 1",
     [](TrialSpec& s) {
       s.knobs.data_parallel_size = 4;
       s.knobs.pipeline_model_parallel_size = 1;
       s.knobs.decoder_first_pipeline_num_layers = 2;
     }},
    {"cp_divides_sequence", "context_parallel_size 2 needs a seq_length that is a multiple of",
     [](TrialSpec& s) { s.training.seq_length = 126; }},
    {"seq_within_positions", "seq_length 512 is more than",
     [](TrialSpec& s) { s.training.seq_length = 512; }},
    {"micro_batch_divides_global", "global_batch_size 8 is not a multiple",
     [](TrialSpec& s) { s.knobs.micro_batch_size = 3; }},
    {"recompute_needs_experts", "recompute is 'norm,moe_act'",
     [](TrialSpec& s) {
       make_dense(s);
       s.knobs.recompute = RecomputeSet("norm,moe_act");
     }},
    {"graph_preprocess_needs_router", "moe_preprocess needs moe_router",
     [](TrialSpec& s) { s.knobs.cuda_graph_modules = GraphSet("attn,moe_preprocess"); }},
    {"graph_needs_experts", "leave out moe_router",
     [](TrialSpec& s) {
       make_dense(s);
       s.knobs.cuda_graph_modules = GraphSet("attn,moe_router");
     }},
    {"graph_full_iteration_alone", "stands alone",
     [](TrialSpec& s) {
       s.knobs.expert_model_parallel_size = 1;
       s.knobs.cuda_graph_modules = GraphSet("attn,full_iteration");
     }},
    {"graph_static_shapes", "use 1 for both or parts of a layer",
     [](TrialSpec& s) { s.knobs.cuda_graph_modules = GraphSet("full_iteration"); }},
    {"graph_without_full_recompute", "cuda_graph_modules 'attn' cannot be combined",
     [](TrialSpec& s) {
       s.knobs.cuda_graph_modules = GraphSet("attn");
       s.knobs.recompute = RecomputeSet("full");
     }},
    {"ep_chunks_need_ep", "ep_chunks_backward 2 need expert_model_parallel_size above 1",
     [](TrialSpec& s) {
       s.knobs.expert_model_parallel_size = 1;
       s.knobs.ep_chunks_backward = 2;
     }},
    {"ep_chunks_within_tokens", "at most the 64 tokens",
     [](TrialSpec& s) { s.knobs.ep_chunks_forward = 65; }},
    {"overlap_needs_replicas", "overlap_grad_reduce is true",
     [](TrialSpec& s) {
       s.hardware.num_nodes = 1;
       s.hardware.devices_per_node = 2;
       s.knobs = {};
       s.knobs.pipeline_model_parallel_size = 2;
       s.knobs.overlap_grad_reduce = true;
     }},
    {"linear_ce_tile", "linear_ce_chunk_tokens is 100",
     [](TrialSpec& s) { s.knobs.linear_ce_chunk_tokens = 100; }},
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_sample_is_legal) {
  for (const Violation& violation : check(samples::trial())) BOOST_ERROR(violation.message);
}

// Of a micro-batch with as many sequences as ranks, or a multiple, each rank has whole ones.
BOOST_AUTO_TEST_CASE(whole_sequences_need_not_be_cut) {
  for (const int64_t num_sequences : {2, 4}) {
    TrialSpec spec = samples::trial();
    with_odd_sequences(spec, num_sequences);
    for (const Violation& violation : check(spec)) BOOST_ERROR(violation.message);
  }
}

BOOST_DATA_TEST_CASE(each_rule_broken_alone, data::make(kCases)) {
  TrialSpec spec = samples::trial();
  sample.break_it(spec);
  const std::vector<Violation> violations = check(spec);
  BOOST_REQUIRE(violations.size() == 1u);
  BOOST_TEST(violations[0].rule == sample.rule);
  BOOST_TEST_INFO(violations[0].message);
  BOOST_TEST(contains(violations[0].message, sample.part));
}

BOOST_AUTO_TEST_CASE(every_rule_has_a_case_a_help_and_its_own_name) {
  std::set<std::string> tested;
  for (const Case& row : kCases) tested.insert(row.rule);
  std::set<std::string> names;
  for (const ConstraintRow& row : constraint_table()) {
    BOOST_TEST(names.insert(row.name).second);
    BOOST_TEST(std::string(row.help).ends_with("."));
  }
  BOOST_TEST(names == tested, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(several_broken_rules_come_in_table_order) {
  TrialSpec spec = samples::trial();
  spec.knobs.linear_ce_chunk_tokens = 1;
  spec.knobs.data_parallel_size = 1;
  spec.knobs.cuda_graph_modules = GraphSet("moe_preprocess");
  std::vector<std::string> rules;
  for (const Violation& violation : check(spec)) rules.push_back(violation.rule);
  const std::vector<std::string> expected = {"world_size", "ep_divides_plane",
                                             "graph_preprocess_needs_router", "linear_ce_tile"};
  BOOST_TEST(rules == expected, boost::test_tools::per_element());
}

/// Whatever passes the table can be laid out: stages, micro-batches, groups and positions exist.
BOOST_AUTO_TEST_CASE(no_knob_value_crashes_a_rule) {
  const int64_t values[] = {
      std::numeric_limits<int64_t>::min(), -1, 0, 1, 2, 3, 4, 7, 8, 64, int64_t{1} << 28,
      std::numeric_limits<int64_t>::max()};
  for (const KnobRow& row : knob_table()) {
    const auto* member = std::get_if<int64_t Knobs::*>(&row.member);
    if (member == nullptr) continue;
    for (const KnobRow& other : knob_table()) {
      const auto* second = std::get_if<int64_t Knobs::*>(&other.member);
      if (second == nullptr) continue;
      for (const int64_t a : values) {
        for (const int64_t b : values) {
          TrialSpec spec = samples::trial();
          spec.knobs.*(*member) = a;
          spec.knobs.*(*second) = b;
          for (const Violation& violation : check(spec)) {
            BOOST_TEST(!violation.message.empty());
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
