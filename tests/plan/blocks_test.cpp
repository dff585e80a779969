// What blocks declare: all that their instructions name, and nothing twice. And parameters without
// a gradient, which no block has yet.
#include "engine/plan/blocks/blocks.h"

#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/plan/compile.h"
#include "engine/plan/passes/passes.h"
#include "tests/plan/planned_models.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(blocks)

namespace {

/// Those that declare something.
std::vector<BlockKind> declaring_blocks() {
  std::vector<BlockKind> kinds;
  for (int i = 0; i < static_cast<int>(BlockKind::count); ++i) {
    if (is_of_model(static_cast<BlockKind>(i))) kinds.push_back(static_cast<BlockKind>(i));
  }
  return kinds;
}

/// Whether it is a parameter of another block that this one uses: the table that tokens are looked
/// up in, the head that is that table.
bool is_borrowed(BlockKind block, ParamKind kind) {
  const bool is_table = kind == ParamKind::embedding || kind == ParamKind::head;
  return is_table &&
         (block == BlockKind::mtp || block == BlockKind::mtp_head || block == BlockKind::head);
}

/// All axes, layers of both kinds, everything that a model may have.
spec::TrialSpec trial() {
  spec::TrialSpec made = spec::samples::trial();
  made.model.shared_ffn_size = 16;
  made.model.is_moe_layer.front() = false;
  made.knobs = {};
  made.knobs.tensor_model_parallel_size = 2;
  made.knobs.data_parallel_size = 4;
  made.knobs.context_parallel_size = 2;
  made.knobs.expert_model_parallel_size = 2;
  made.knobs.expert_tensor_parallel_size = 2;
  made.knobs.pipeline_model_parallel_size = 2;
  made.hardware.num_nodes = 4;
  made.hardware.devices_per_node = 8;
  made.training.seq_length = 64;
  return made;
}

BOOST_AUTO_TEST_CASE(instructions_name_what_their_block_declares) {
  std::map<BlockKind, std::set<ParamKind>> params;
  std::map<BlockKind, std::set<Buf>> buffers;
  for (const BlockKind kind : declaring_blocks()) {
    for (const auto rows : block_of(kind).params) {
      for (const ParamRow& row : rows) BOOST_TEST(params[kind].insert(row.id).second);
    }
    for (const auto rows : block_of(kind).buffers) {
      for (const BufferRow& row : rows) BOOST_TEST(buffers[kind].insert(row.id).second);
    }
  }
  const std::set<Buf>& residual = buffers[BlockKind::stage];
  int num_seen = 0;
  const auto look_at = [&](const StepProgram& program) {
    for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
      if (segment.block == BlockKind::update || instr.verb == Verb::mark) return;
      for (const Ref& ref : instr.refs) {
        const bool is_work = instr.verb == Verb::op || instr.verb == Verb::comm;
        const char* what = is_work ? op_label(instr.op, instr.pass) : name_of(instr.verb);
        BOOST_TEST_CONTEXT(name_of(segment.block) << " " << what) {
          if (ref.space == Space::weight || ref.space == Space::grad) {
            const auto kind = static_cast<ParamKind>(ref.id);
            BOOST_TEST((params[segment.block].contains(kind) || is_borrowed(segment.block, kind)));
            ++num_seen;
          }
          const bool is_buffer =
              ref.space == Space::frame || ref.space == Space::next || ref.space == Space::edge;
          if (is_buffer && is_work && !residual.contains(static_cast<Buf>(ref.id))) {
            BOOST_TEST(buffers[segment.block].contains(static_cast<Buf>(ref.id)));
            ++num_seen;
          }
        }
      }
    });
  };
  for (const int rank : {0, 16}) look_at(compile(trial(), rank));
  BOOST_TEST(num_seen > 200);
  const char* const both = R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2})";
  for (const auto& [name, model] : testing::small_models()) {
    num_seen = 0;
    look_at(compile(testing::trial_of(model, both), 3));
    BOOST_TEST(num_seen > 200, name);
  }
}

/// What layers have, and a number for each expert that no gradient changes.
std::vector<const ParamRow*> rows_with_state(const ModelSpec&, const LayerDims& dims) {
  static const ParamRow kState = {ParamKind::router,
                                  "expert_bias",
                                  [](const LayerDims& d) { return d.experts; },
                                  [](const LayerDims&) { return int64_t{1}; },
                                  Split::whole,
                                  Sync::no_gradient,
                                  nullptr};
  std::vector<const ParamRow*> rows = {&param_row(ParamKind::attn_norm)};
  if (dims.is_moe) rows.push_back(&kState);
  rows.push_back(&param_row(ParamKind::qkv));
  return rows;
}

BOOST_AUTO_TEST_CASE(state_without_a_gradient_is_only_kept) {
  const spec::TrialSpec spec = trial();
  const Layout layout = layout_of(spec.knobs);
  const BlockContext context{spec.model, spec.training, spec::precision_of(spec.dtype, spec.knobs),
                             layer_dims(spec.model, spec.knobs, spec.training.seq_length, 0), 16};
  const ParamPlan params = make_param_plan(spec.model, spec.knobs, 16, rows_with_state);
  const auto num_named = [&](const Segment& segment, size_t bucket) {
    int count = 0;
    for (const Instr& instr : segment.code) {
      for (const Ref& ref : instr.refs) {
        count += ref.space == Space::bucket && ref.row == static_cast<int64_t>(bucket);
      }
    }
    return count;
  };
  const UpdateContext update{context, params, layout, 1};
  int num_states = 0;
  int64_t num_trained = 0;
  for (size_t i = 0; i < params.buckets.size(); ++i) {
    const bool is_state = params.buckets[i].name.ends_with(".state");
    BOOST_TEST_CONTEXT(params.buckets[i].name) {
      BOOST_TEST(params.buckets[i].has_gradient == !is_state);
      // Weight; and gradient, master, two moments.
      BOOST_TEST(num_named(setup(update), i) == (is_state ? 1 : 5));
      BOOST_TEST((num_named(begin_step(update), i) == 0) == is_state);
      BOOST_TEST((num_named(update_weights(update), i) == 0) == is_state);
      if (is_state) BOOST_TEST(num_named(clip_gradients(update), i) == 0);
    }
    num_states += is_state;
  }
  for (const ParamDesc& param : params.params) {
    if (param.name.ends_with("expert_bias")) continue;
    num_trained += param.numel();
  }
  BOOST_TEST(num_states > 0);
  BOOST_TEST(params.num_trained() == num_trained);
  BOOST_TEST(update_weights(update).code.front().cost.flops == 12 * num_trained);
}

BOOST_AUTO_TEST_CASE(state_without_a_gradient_is_neither_sharded_nor_gathered) {
  const spec::TrialSpec spec = trial();
  constexpr int kRank = 16;
  const BlockContext context{spec.model, spec.training, spec::precision_of(spec.dtype, spec.knobs),
                             layer_dims(spec.model, spec.knobs, spec.training.seq_length, 0),
                             kRank};
  StepProgram program;
  program.rank = kRank;
  program.layout = layout_of(spec.knobs);
  program.precision = context.precision;
  program.params = make_param_plan(spec.model, spec.knobs, kRank, rows_with_state);
  const UpdateContext update{context, program.params, program.layout, 1};
  const auto item_of = [&](Segment segment) {
    Item item;
    item.segment = static_cast<int32_t>(program.segments.size());
    program.segments.push_back(std::make_shared<const Segment>(std::move(segment)));
    return item;
  };
  program.setup.push_back(item_of(setup(update)));
  program.items.push_back(item_of(clip_gradients(update)));
  program.items.push_back(item_of(update_weights(update)));
  program.items.push_back(item_of(end_step(update)));
  distributed_optimizer(program, context);

  std::vector<std::multiset<Verb>> uses(program.params.buckets.size());
  for (const std::shared_ptr<const Segment>& segment : program.segments) {
    for (const Instr& instr : segment->code) {
      for (const Ref& ref : instr.refs) {
        if (ref.space == Space::bucket) uses[static_cast<size_t>(ref.row)].insert(instr.verb);
      }
    }
  }
  int num_states = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    const BucketDesc& bucket = program.params.buckets[i];
    BOOST_TEST_CONTEXT(bucket.name) {
      if (bucket.has_gradient) {
        BOOST_TEST(uses[i].count(Verb::alloc) == 5U);
        BOOST_TEST(uses[i].count(Verb::comm) == 1U);  // gathered
        BOOST_TEST(bucket.own_numel * program.layout.group_size(bucket.group) == bucket.numel);
      } else {
        BOOST_TEST((uses[i] == std::multiset<Verb>{Verb::alloc}));
        BOOST_TEST(bucket.own_numel == bucket.numel);
        ++num_states;
      }
    }
  }
  BOOST_TEST(num_states > 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
