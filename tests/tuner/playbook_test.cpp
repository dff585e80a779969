// The playbook: one knob per remedy, only where it applies, in the order the workflow asks for.
#include "tuner/playbook.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>
#include <utility>

#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;
using spec::Knobs;
using Space = std::map<std::string, std::vector<std::string>>;
using Names = std::vector<std::string>;

constexpr Wall kWalls[] = {Wall::communication, Wall::host,   Wall::pipeline,
                           Wall::imbalance,     Wall::memory, Wall::compute};

/// Axes in no useful order, so that an order in the answer is the playbook's.
const Space kWideSpace = {
    {"use_distributed_optimizer", {"true", "false"}},
    {"overlap_grad_reduce", {"true", "false"}},
    {"recompute", {"full", "experts", "norm,moe_act", "none", "core_attn", "norm"}},
    {"linear_ce_chunk_tokens", {"128", "512", "64", "256"}},
    {"micro_batch_size", {"4", "1", "2"}},
    {"expert_model_parallel_size", {"2", "8", "1", "4"}},
    {"pipeline_model_parallel_size", {"4", "1", "2"}},
    {"context_parallel_size", {"2", "1", "4"}},
    {"decoder_first_pipeline_num_layers", {"0", "3", "2"}},
    {"decoder_last_pipeline_num_layers", {"1", "0"}},
    {"ep_chunks_forward", {"4", "1", "2"}},
    {"ep_chunks_backward", {"2", "4", "1"}},
    {"cuda_graph_modules",
     {"attn,moe_router,moe_preprocess", "moe_router", "none", "moe_router,moe_preprocess"}},
};

/// Two nodes of four devices, plain data parallelism.
spec::SweepSpec sweep(Space space) {
  spec::SweepSpec made;
  made.base = samples::trial();
  made.base.knobs = {};
  made.base.knobs.data_parallel_size = 8;
  made.base.training.global_batch_size = 16;
  made.space = std::move(space);
  return made;
}

std::string text(const Knobs& knobs, std::string_view name) {
  return spec::get_knob(knobs, *spec::find_knob(name));
}

/// Knobs of the wide space that differ from the baseline in many ways, each of them legal to ask
/// about.
std::vector<Knobs> situations() {
  const spec::SweepSpec file = sweep(kWideSpace);
  const SearchSpace space(file);
  std::vector<Knobs> made = {file.base.knobs};
  Knobs folded = file.base.knobs;  // everything on
  folded.expert_model_parallel_size = 4;
  folded.ep_chunks_forward = 2;
  folded.ep_chunks_backward = 4;
  folded.micro_batch_size = 2;
  folded.recompute = spec::RecomputeSet("norm,moe_act");
  folded.cuda_graph_modules = spec::GraphSet("moe_router");
  folded.overlap_grad_reduce = true;
  made.push_back(folded);
  Knobs staged = space.with(folded, "pipeline_model_parallel_size", "2");
  staged.decoder_first_pipeline_num_layers = 2;
  staged.use_distributed_optimizer = false;
  made.push_back(staged);
  Knobs across = space.with(file.base.knobs, "expert_model_parallel_size", "8");
  across.recompute = spec::RecomputeSet("full");
  made.push_back(across);
  made.push_back(space.with(staged, "context_parallel_size", "2"));
  made.push_back(space.with(staged, "context_parallel_size", "4"));  // one replica per stage
  return made;
}

/// "knob=value" of the remedies, in order.
Names changes(const std::vector<Remedy>& remedies) {
  Names made;
  for (const Remedy& remedy : remedies) {
    made.push_back(std::string(remedy.row->knob) + "=" + remedy.value);
  }
  return made;
}

Names changes(const spec::SweepSpec& file, const Knobs& knobs, Wall wall,
              const TrialOutcome& outcome = {}) {
  const SearchSpace space(file);
  return changes(remedies_for(wall, {space, knobs, outcome}));
}

/// Names of the rows used, each once, in order.
Names rows(const spec::SweepSpec& file, const Knobs& knobs, Wall wall,
           const TrialOutcome& outcome = {}) {
  const SearchSpace space(file);
  Names made;
  for (const Remedy& remedy : remedies_for(wall, {space, knobs, outcome})) {
    if (made.empty() || made.back() != remedy.row->name) made.push_back(remedy.row->name);
  }
  return made;
}

void check_same(const Names& found, const Names& expected) {
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

/// May `knob` differ although another one was changed? Only by what completing a point does.
bool follows(const Knobs& after, std::string_view knob) {
  const bool is_alone = after.data_parallel_size * after.context_parallel_size == 1;
  if (knob == "data_parallel_size") {
    return after.data_parallel_size * after.context_parallel_size *
               after.pipeline_model_parallel_size ==
           8;
  }
  if (knob == "ep_chunks_forward" || knob == "ep_chunks_backward") {
    return after.expert_model_parallel_size == 1 && text(after, knob) == "1";
  }
  if (knob == "overlap_grad_reduce") return is_alone && !after.overlap_grad_reduce;
  if (knob == "decoder_first_pipeline_num_layers" || knob == "decoder_last_pipeline_num_layers") {
    return after.pipeline_model_parallel_size == 1 && text(after, knob) == "0";
  }
  return false;
}

BOOST_AUTO_TEST_SUITE(playbook_rows)

BOOST_AUTO_TEST_CASE(every_row_is_complete) {
  const std::set<std::string> groups = {"", "ep", "dp_cp", "pp", "cp", "tp"};
  std::set<std::string> names;
  for (const RemedyRow& row : playbook()) {
    BOOST_TEST_CONTEXT(row.name) {
      BOOST_TEST(names.insert(row.name).second);
      BOOST_TEST(spec::find_knob(row.knob) != nullptr);
      BOOST_TEST(groups.contains(row.group));
      BOOST_TEST((row.group[0] == '\0' || row.wall == Wall::communication ||
                  (row.wall == Wall::pipeline && row.group == std::string_view("pp"))));
      // A sentence: it ends up in decisions.
      const std::string why = row.why;
      BOOST_REQUIRE(why.size() > 10U);
      BOOST_TEST((why.front() >= 'A' && why.front() <= 'Z'));
      BOOST_TEST(why.back() == '.');
    }
  }
  for (const Wall wall : kWalls) {
    BOOST_TEST_CONTEXT(name_of(wall)) {
      BOOST_TEST(std::any_of(playbook().begin(), playbook().end(),
                             [&](const RemedyRow& row) { return row.wall == wall; }));
    }
  }
}

BOOST_DATA_TEST_CASE(a_remedy_changes_one_knob_to_another_allowed_value,
                     data::xrange(size_t{6}) * data::xrange(std::size(kWalls)), situation, wall) {
  const spec::SweepSpec file = sweep(kWideSpace);
  const SearchSpace space(file);
  const Knobs before = situations().at(situation);
  const TrialOutcome outcome;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Remedy& remedy : remedies_for(kWalls[wall], {space, before, outcome})) {
    BOOST_TEST_CONTEXT(remedy.row->name << ": " << remedy.row->knob << " = " << remedy.value) {
      const Names& axis = file.space.at(remedy.row->knob);
      BOOST_TEST((remedy.row->wall == kWalls[wall]));
      BOOST_TEST((std::find(axis.begin(), axis.end(), remedy.value) != axis.end()));
      BOOST_TEST(remedy.value != text(before, remedy.row->knob));
      BOOST_TEST(!(remedy.knobs == before));
      BOOST_TEST(seen.insert({remedy.row->name, remedy.value}).second);
      BOOST_TEST((remedy.knobs == space.with(before, remedy.row->knob, remedy.value)));
      for (const spec::KnobRow& knob : spec::knob_table()) {
        if (knob.name == remedy.row->knob) continue;
        const bool is_same = text(remedy.knobs, knob.name) == text(before, knob.name);
        BOOST_TEST((is_same || follows(remedy.knobs, knob.name)), knob.name << " moved as well");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(knobs_without_a_choice_are_left_alone) {
  Knobs knobs = situations()[1];
  for (const Wall wall : kWalls) {
    check_same(changes(sweep({}), knobs, wall), {});
    check_same(changes(sweep({{"micro_batch_size", {"4"}}, {"recompute", {"none"}}}), knobs, wall),
               {});
  }
  check_same(changes(sweep({{"micro_batch_size", {"2", "4"}}}), knobs, Wall::compute),
             {"micro_batch_size=4"});
}

BOOST_AUTO_TEST_CASE(illegal_points_are_proposed_so_that_they_can_be_stored_as_invalid) {
  const spec::SweepSpec file = sweep({{"micro_batch_size", {"1", "3"}}});
  const SearchSpace space(file);
  const TrialOutcome outcome;
  const std::vector<Remedy> remedies = remedies_for(Wall::host, {space, file.base.knobs, outcome});
  BOOST_REQUIRE(remedies.size() == 1u);
  BOOST_TEST(remedies[0].value == "3");
  BOOST_REQUIRE(!space.check(remedies[0].knobs).empty());
  BOOST_TEST(space.check(remedies[0].knobs).front().rule == "micro_batch_divides_global");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(playbook_memory)

BOOST_AUTO_TEST_CASE(speed_gives_recompute_up_cheapest_setting_first) {
  const spec::SweepSpec file = sweep({{"recompute", kWideSpace.at("recompute")}});
  Knobs knobs = file.base.knobs;
  for (const Wall wall : {Wall::memory, Wall::compute}) {
    knobs.recompute = spec::RecomputeSet("none");
    check_same(changes(file, knobs, wall), {});
    knobs.recompute = spec::RecomputeSet("core_attn");
    check_same(changes(file, knobs, wall),
               {"recompute=none", "recompute=norm", "recompute=norm,moe_act"});
    knobs.recompute = spec::RecomputeSet("full");
    check_same(changes(file, knobs, wall),
               {"recompute=none", "recompute=norm", "recompute=norm,moe_act", "recompute=core_attn",
                "recompute=experts"});
  }
}

BOOST_AUTO_TEST_CASE(narrower_moments_make_room_the_second_one_first) {
  const spec::SweepSpec file =
      sweep({{"exp_avg_dtype", {"fp32", "bf16"}}, {"exp_avg_sq_dtype", {"fp32", "bf16"}}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::memory), {});
  knobs.recompute = spec::RecomputeSet("norm");
  check_same(changes(file, knobs, Wall::memory), {"exp_avg_sq_dtype=bf16", "exp_avg_dtype=bf16"});
  knobs.exp_avg_sq_dtype = spec::MomentType::bf16;
  check_same(changes(file, knobs, Wall::memory), {"exp_avg_dtype=bf16"});
}

BOOST_AUTO_TEST_CASE(smaller_micro_batches_make_room_only_while_something_is_recomputed) {
  const spec::SweepSpec file = sweep({{"micro_batch_size", {"1", "2", "4"}}});
  Knobs knobs = file.base.knobs;
  knobs.micro_batch_size = 4;
  check_same(changes(file, knobs, Wall::memory), {});
  knobs.recompute = spec::RecomputeSet("norm");
  check_same(changes(file, knobs, Wall::memory), {"micro_batch_size=2", "micro_batch_size=1"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(playbook_communication)

TrialOutcome blocked_by(std::map<std::string, double> shares) {
  TrialOutcome outcome;
  outcome.status = spec::TrialStatus::ok;
  outcome.shares = std::move(shares);
  return outcome;
}

/// Axes whose remedies belong to a group each.
const Space kGroupSpace = {{"ep_chunks_forward", {"1", "2", "4"}},
                           {"overlap_grad_reduce", {"false", "true"}},
                           {"decoder_first_pipeline_num_layers", {"0", "3"}},
                           {"context_parallel_size", {"1", "2"}}};

Knobs all_groups() {
  Knobs knobs;
  knobs.data_parallel_size = 2;
  knobs.context_parallel_size = 2;
  knobs.pipeline_model_parallel_size = 2;
  knobs.expert_model_parallel_size = 4;
  return knobs;
}

struct GroupCase {
  std::map<std::string, double> shares;
  Names rows;
};
const GroupCase kGroupCases[] = {
    {{{"blocking_ep", 0.30}, {"blocking_dp_cp", 0.10}},
     {"chunk_dispatch_forward", "overlap_grad_reduce"}},
    {{{"blocking_ep", 0.10}, {"blocking_dp_cp", 0.30}},
     {"overlap_grad_reduce", "chunk_dispatch_forward"}},
    // Reductions over the experts' replicas and over everybody count for the data stream.
    {{{"blocking_ep", 0.25}, {"blocking_edp", 0.20}, {"blocking_world", 0.10}},
     {"overlap_grad_reduce", "chunk_dispatch_forward"}},
    {{{"blocking_ep", 0.10}, {"bubble", 0.20}}, {"chunk_dispatch_forward"}},
    {{{"blocking_ep", 0.10}, {"blocking_cp", 0.20}},
     {"less_context_parallelism", "chunk_dispatch_forward"}},
    // What blocks next to nothing is not worth a trial.
    {{{"blocking_ep", 0.20}, {"blocking_dp_cp", 0.004}}, {"chunk_dispatch_forward"}},
    {{{"compute", 1.0}}, {}},
    // Nothing known: all of them, as the table has them.
    {{}, {"chunk_dispatch_forward", "overlap_grad_reduce", "less_context_parallelism"}},
};

BOOST_DATA_TEST_CASE(the_group_that_blocks_longest_comes_first,
                     data::xrange(std::size(kGroupCases)), index) {
  const GroupCase& expected = kGroupCases[index];
  check_same(
      rows(sweep(kGroupSpace), all_groups(), Wall::communication, blocked_by(expected.shares)),
      expected.rows);
}

BOOST_AUTO_TEST_CASE(chunks_need_expert_parallelism_and_grow_step_by_step) {
  const spec::SweepSpec file =
      sweep({{"ep_chunks_forward", {"4", "1", "2"}}, {"ep_chunks_backward", {"2", "1", "4"}}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::communication), {});
  knobs.expert_model_parallel_size = 4;
  check_same(changes(file, knobs, Wall::communication),
             {"ep_chunks_forward=2", "ep_chunks_forward=4", "ep_chunks_backward=2",
              "ep_chunks_backward=4"});
  knobs.ep_chunks_forward = 2;
  knobs.ep_chunks_backward = 4;
  check_same(changes(file, knobs, Wall::communication), {"ep_chunks_forward=4"});
}

BOOST_AUTO_TEST_CASE(expert_parallelism_that_spans_nodes_moves_inside_one_first) {
  const spec::SweepSpec file = sweep({{"expert_model_parallel_size", {"1", "8", "2", "4"}}});
  Knobs knobs = file.base.knobs;
  knobs.expert_model_parallel_size = 8;
  const Names across = rows(file, knobs, Wall::communication);
  BOOST_REQUIRE(!across.empty());
  BOOST_TEST(across.front() == "ep_inside_node");
  BOOST_TEST(changes(file, knobs, Wall::communication).front() == "expert_model_parallel_size=4");
  knobs.expert_model_parallel_size = 4;  // already inside
  check_same(rows(file, knobs, Wall::communication), {"less_expert_parallelism"});
}

BOOST_AUTO_TEST_CASE(the_last_stage_may_shrink_or_grow) {
  const spec::SweepSpec file = sweep({{"decoder_last_pipeline_num_layers", {"0", "3", "1", "2"}}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::pipeline), {});  // no stages
  knobs.data_parallel_size = 4;
  knobs.pipeline_model_parallel_size = 2;
  knobs.decoder_last_pipeline_num_layers = 2;
  check_same(changes(file, knobs, Wall::pipeline),
             {"decoder_last_pipeline_num_layers=1", "decoder_last_pipeline_num_layers=0",
              "decoder_last_pipeline_num_layers=3"});
}

BOOST_AUTO_TEST_CASE(layers_move_between_stages_fewest_first) {
  spec::SweepSpec file =
      sweep({{"pipeline_model_parallel_layout",
              {"Etttttt|ttL", "Ettttt|tttL", "none", "Et|tt|tt|tttL", "Ettt|tttttL"}},
             {"decoder_last_pipeline_num_layers", {"0", "3"}}});
  file.base.model.num_layers = 8;
  Knobs knobs = file.base.knobs;
  const TrialOutcome bubble = blocked_by({{"bubble", 0.2}});
  check_same(changes(file, knobs, Wall::pipeline, bubble), {});  // no stages
  knobs.data_parallel_size = 4;
  knobs.pipeline_model_parallel_size = 2;
  // From 4 and 4. Four stages are virtual ones: more than a layer would move.
  const std::string knob = "pipeline_model_parallel_layout=";
  check_same(changes(file, knobs, Wall::pipeline, bubble),
             {"decoder_last_pipeline_num_layers=3", knob + "Ettttt|tttL", knob + "Ettt|tttttL",
              knob + "Etttttt|ttL"});
  // A layout excludes the counts of the first and the last stage.
  knobs.pipeline_model_parallel_layout = "Etttttt|ttL";
  check_same(changes(file, knobs, Wall::pipeline, bubble),
             {knob + "Ettttt|tttL", knob + "none", knob + "Ettt|tttttL"});
  knobs.pipeline_model_parallel_layout = "none";
  knobs.decoder_last_pipeline_num_layers = 3;
  check_same(changes(file, knobs, Wall::pipeline, bubble), {"decoder_last_pipeline_num_layers=0"});
  // A pipeline that nobody waits for is left alone.
  check_same(changes(file, knobs, Wall::pipeline, blocked_by({{"compute", 1.0}})), {});
}

BOOST_AUTO_TEST_CASE(changes_that_completing_takes_back_are_none) {
  // One replica: there is nothing to overlap, with or without expert parallelism.
  const spec::SweepSpec file = sweep({{"overlap_grad_reduce", {"false", "true"}}});
  Knobs knobs = file.base.knobs;
  BOOST_TEST(changes(file, knobs, Wall::communication).size() == 1U);
  knobs.data_parallel_size = 1;
  knobs.pipeline_model_parallel_size = 8;
  check_same(changes(file, knobs, Wall::communication), {});
}

BOOST_AUTO_TEST_CASE(fewer_stages_only_where_there_are_any) {
  const spec::SweepSpec file = sweep({{"pipeline_model_parallel_size", {"1", "2", "4"}}});
  const TrialOutcome bubble = blocked_by({{"bubble", 0.3}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::pipeline, bubble), {});
  knobs.pipeline_model_parallel_size = 4;
  check_same(changes(file, knobs, Wall::pipeline, bubble),
             {"pipeline_model_parallel_size=2", "pipeline_model_parallel_size=1"});
}

BOOST_AUTO_TEST_CASE(uneven_experts_even_out_on_fewer_ranks_and_over_more_tokens) {
  const spec::SweepSpec file = sweep(
      {{"expert_model_parallel_size", {"1", "2", "4", "8"}}, {"micro_batch_size", {"1", "2"}}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::imbalance), {});  // no expert parallelism
  knobs.expert_model_parallel_size = 4;
  check_same(
      changes(file, knobs, Wall::imbalance),
      {"expert_model_parallel_size=2", "expert_model_parallel_size=1", "micro_batch_size=2"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(playbook_host_and_compute)

BOOST_AUTO_TEST_CASE(graphs_grow_from_the_narrowest) {
  const spec::SweepSpec file = sweep({{"cuda_graph_modules", kWideSpace.at("cuda_graph_modules")}});
  Knobs knobs = file.base.knobs;
  check_same(changes(file, knobs, Wall::host),
             {"cuda_graph_modules=moe_router", "cuda_graph_modules=moe_router,moe_preprocess",
              "cuda_graph_modules=attn,moe_router,moe_preprocess"});
  knobs.cuda_graph_modules = spec::GraphSet("moe_router,moe_preprocess");
  check_same(changes(file, knobs, Wall::host),
             {"cuda_graph_modules=attn,moe_router,moe_preprocess"});
  knobs.recompute = spec::RecomputeSet("full");  // partial graphs refuse it
  check_same(changes(file, knobs, Wall::host), {});
}

BOOST_AUTO_TEST_CASE(equally_wide_graphs_start_without_attention) {
  const spec::SweepSpec file =
      sweep({{"cuda_graph_modules",
              {"attn,moe_router", "attn", "none", "moe_router", "moe_router,moe_preprocess"}}});
  check_same(
      changes(file, file.base.knobs, Wall::host),
      {"cuda_graph_modules=moe_router", "cuda_graph_modules=attn",
       "cuda_graph_modules=moe_router,moe_preprocess", "cuda_graph_modules=attn,moe_router"});
}

BOOST_AUTO_TEST_CASE(host_asks_for_fewer_larger_launches) {
  Space space = kWideSpace;
  space.erase("cuda_graph_modules");
  Knobs knobs = situations()[1];  // ep 4, chunks 2 and 4, micro-batch 2
  check_same(changes(sweep(space), knobs, Wall::host),
             {"micro_batch_size=4", "ep_chunks_forward=1", "ep_chunks_backward=2",
              "ep_chunks_backward=1", "linear_ce_chunk_tokens=512", "expert_model_parallel_size=2",
              "expert_model_parallel_size=1"});
}

BOOST_AUTO_TEST_CASE(compute_asks_for_less_work_then_for_larger_matrices) {
  check_same(changes(sweep(kWideSpace), situations()[1], Wall::compute),
             {"recompute=none", "recompute=norm", "micro_batch_size=4", "ep_chunks_forward=1",
              "ep_chunks_backward=2", "ep_chunks_backward=1", "linear_ce_chunk_tokens=512",
              "expert_model_parallel_size=8"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::tuner
