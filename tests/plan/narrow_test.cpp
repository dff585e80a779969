// Recipes of 8 and 4 bits in programs: which products are narrow, that they read fresh copies of
// their operands, and that programs hold what they have to.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/listing.h"
#include "engine/plan/player.h"
#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(narrow_products)

namespace {

using spec::PrecisionRecipe;
using testing::error_of;
using testing::num_ranks;

constexpr PrecisionRecipe kRecipes[] = {PrecisionRecipe::fp8_current, PrecisionRecipe::fp8_delayed,
                                        PrecisionRecipe::fp8_blockwise, PrecisionRecipe::mxfp8,
                                        PrecisionRecipe::nvfp4};

Planned with(PrecisionRecipe recipe) {
  Planned planned;
  planned.precision = recipe;
  return planned;
}

const char* const kLayouts[] = {
    "{}",
    R"({"recompute": "full", "micro_batch_size": 2})",
    R"({"recompute": "norm,core_attn"})",
    R"({"data_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"tensor_model_parallel_size": 2, "recompute": "norm"})",
    R"({"context_parallel_size": 2, "cp_comm_type": "p2p"})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "recompute": "full"})",
};
const char* const kExpertLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "norm,moe_act,experts"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "pipeline_model_parallel_size": 2})",
};

void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    std::vector<const char*> layouts(std::begin(kLayouts), std::end(kLayouts));
    if (model.num_experts > 0) {
      layouts.insert(layouts.end(), std::begin(kExpertLayouts), std::end(kExpertLayouts));
    }
    for (const char* knobs : layouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) { body(testing::trial_of(model, knobs)); }
    }
  }
}

bool is_product(const Instr& instr) {
  if (instr.verb != Verb::op) return false;
  const Work work = op_row(instr.op).work;
  return work == Work::product || work == Work::grouped;
}
bool is_narrow(const Instr& instr) { return spec::is_product_narrow(instr.cost.recipe); }

BOOST_AUTO_TEST_CASE(narrow_programs_hold_what_programs_hold) {
  for_all([](const spec::TrialSpec& trial) {
    Planned planned = with(PrecisionRecipe::fp8_blockwise);
    planned.overlaps_micro_batches = !spec::is_full_recompute(trial.knobs);
    planned.dispatcher = spec::Dispatcher::hybridep;
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      const StepProgram program = compile(trial, rank, planned);
      BOOST_TEST(error_of(program) == "");
      BOOST_TEST(testing::bytes_left(program, BalancedBindings(trial, rank)) == 0);
    }
  });
}

BOOST_AUTO_TEST_CASE(linear_modules_are_narrow_and_nothing_else) {
  for_all([](const spec::TrialSpec& trial) {
    for (const PrecisionRecipe recipe : kRecipes) {
      const StepProgram program = compile(trial, num_ranks(trial) - 1, with(recipe));
      int64_t num_narrow = 0;
      for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
        const bool is_plain =
            instr.op == Op::router_gemm || instr.op == Op::lm_head || instr.op == Op::mtp_proj;
        BOOST_TEST(is_narrow(instr) == (is_product(instr) && !is_plain),
                   op_label(instr.op, instr.pass));
        num_narrow += is_narrow(instr) ? 1 : 0;
        if (instr.verb != Verb::op || instr.op == Op::quantize) return;
        for (size_t i = 0; i < instr.refs.size(); ++i) {
          // What is read of activations is narrow, in narrow products and nowhere else.
          const bool is_operand = is_narrow(instr) && i < (instr.pass == Pass::wgrad ? 2U : 1U);
          BOOST_TEST((instr.refs[i].space == Space::narrow) == is_operand,
                     op_label(instr.op, instr.pass) << " operand " << i);
        }
      });
      BOOST_TEST(num_narrow > 0);
    }
  });
}

// Of each piece of a buffer the copy is made behind what last wrote it.
BOOST_AUTO_TEST_CASE(products_read_fresh_copies) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram program = compile(trial, num_ranks(trial) - 1, with(PrecisionRecipe::mxfp8));
    // Frame, micro-batch, buffer; by first column, since parts of a row are written on their own.
    using Place = std::tuple<int32_t, int32_t, uint8_t, int64_t>;
    std::map<Place, int64_t> written;
    std::map<Place, int64_t> copied;
    int64_t now = 0;
    int64_t num_read = 0;
    for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      ++now;
      if (segment.num_chunks > 1 || instr.verb == Verb::alloc || instr.verb == Verb::free) return;
      for (const Ref& ref : instr.refs) {
        const bool is_of_edge = static_cast<Buf>(ref.id) == Buf::d_hidden;
        const Place place{ref.space == Space::next ? item.next
                          : is_of_edge             ? item.edge
                                                   : item.frame,
                          item.micro_batch, ref.id, ref.col};
        const bool is_written = ref.access != Access::read;
        if (ref.space == Space::narrow) {
          if (is_written) copied[place] = now;
          num_read += is_written ? 0 : 1;
          BOOST_TEST(copied[place] > written[place], op_label(instr.op, instr.pass)
                                                         << " in " << item_title(program, item));
        } else if (is_written && (ref.space == Space::frame || ref.space == Space::edge ||
                                  ref.space == Space::next)) {
          written[place] = now;
        }
      }
    });
    if (trial.knobs.ep_chunks_forward == 1) BOOST_TEST(num_read > 0);
  });
}

struct Sum {
  double flops = 0;
  int64_t count = 0;
  bool operator==(const Sum&) const = default;
};

BOOST_AUTO_TEST_CASE(narrow_programs_compute_the_same) {
  for_all([](const spec::TrialSpec& trial) {
    const auto sums_of = [&](const Planned& planned) {
      std::map<std::pair<Op, Pass>, Sum> sums;
      for_each(compile(trial, 0, planned),
               [&](const Item&, const Segment& segment, const Instr& instr) {
                 if (instr.verb != Verb::op || instr.op == Op::quantize || instr.op == Op::amax)
                   return;
                 Sum& sum = sums[{instr.op, instr.pass}];
                 sum.flops += cost_at(instr, segment.dims.received_rows).all_flops();
                 ++sum.count;
               });
      return sums;
    };
    for (const PrecisionRecipe recipe : kRecipes) {
      BOOST_TEST((sums_of(with(recipe)) == sums_of({})));
    }
  });
}

// A copy is quantized from two bytes an element into one, or two with its transpose, and where the
// scale is not known before the tensor is read once more.
BOOST_AUTO_TEST_CASE(quantizing_costs_its_bytes) {
  spec::TrialSpec trial = testing::trial_of(testing::small_models().front().second, "{}");
  trial.dtype = spec::DType::bf16;
  const auto bytes_of = [&](Op op, PrecisionRecipe recipe) {
    std::map<Buf, int64_t> bytes;
    for_each(compile(trial, 0, with(recipe)),
             [&](const Item& item, const Segment& segment, const Instr& instr) {
               if (instr.op != op || item.layer != 0 || item.micro_batch != 0) return;
               if (instr.pass != Pass::forward) return;
               const Ref& ref = instr.refs.front();
               const BufferRow& row = buffer_row(static_cast<Buf>(ref.id));
               const int64_t elements = row.rows(segment.dims) *
                                        (ref.num_cols > 0 ? ref.num_cols : row.cols(segment.dims));
               bytes[row.id] = instr.cost.bytes / elements;
             });
    return bytes;
  };
  for (const auto& [recipe, expected] : {std::pair(PrecisionRecipe::fp8_delayed, int64_t{4}),
                                         {PrecisionRecipe::fp8_blockwise, int64_t{4}},
                                         {PrecisionRecipe::mxfp8, int64_t{4}}}) {
    trial.hardware.fp4_flops_per_s = 0;
    const std::map<Buf, int64_t> bytes = bytes_of(Op::quantize, recipe);
    BOOST_TEST(!bytes.empty());
    for (const auto& [buffer, each] : bytes) BOOST_TEST(each == expected);
    BOOST_TEST(bytes_of(Op::amax, recipe).empty());
  }
  for (const auto& [buffer, each] : bytes_of(Op::amax, PrecisionRecipe::fp8_current)) {
    BOOST_TEST(each == 2);
  }
  BOOST_TEST(bytes_of(Op::amax, PrecisionRecipe::fp8_current).size() ==
             bytes_of(Op::quantize, PrecisionRecipe::fp8_current).size());
  // Blackwell multiplies with either layout.
  trial.hardware.fp8_flops_per_s = trial.hardware.fp4_flops_per_s = 1e15;
  for (const auto& [buffer, each] : bytes_of(Op::quantize, PrecisionRecipe::fp8_current)) {
    BOOST_TEST(each == 3);
  }
}

// Weights are quantized once a step.
BOOST_AUTO_TEST_CASE(weights_are_quantized_once_a_step) {
  const spec::TrialSpec trial = testing::trial_of(testing::small_models().front().second, "{}");
  const StepProgram program = compile(trial, 0, with(PrecisionRecipe::mxfp8));
  std::map<int64_t, int> by_bucket;
  for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
    if (instr.op != Op::quantize || instr.pass != Pass::update) return;
    BOOST_TEST(item.micro_batch == -1);
    ++by_bucket[instr.refs.front().row];
  });
  BOOST_TEST(!by_bucket.empty());
  for (const auto& [bucket, count] : by_bucket) {
    BOOST_TEST(count == 1);
    BOOST_TEST(program.params.buckets[static_cast<size_t>(bucket)].layer >= 0);
  }
}

BOOST_AUTO_TEST_CASE(sixteen_bits_change_nothing) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram plain = compile(trial, 0);
    const StepProgram same = compile(trial, 0, with(PrecisionRecipe::bf16));
    BOOST_TEST_REQUIRE(plain.segments.size() == same.segments.size());
    BOOST_TEST(plain.items.size() == same.items.size());
    for (size_t i = 0; i < plain.segments.size(); ++i) {
      BOOST_TEST(are_alike(*plain.segments[i], *same.segments[i]));
    }
  });
}

// At its peak a narrow product takes as much less time; what memory bounds does not.
BOOST_AUTO_TEST_CASE(narrow_products_run_at_their_peak) {
  spec::HardwareSpec hardware;
  hardware.peak_flops_per_s = 1e15;
  hardware.fp8_flops_per_s = 2e15;
  hardware.fp4_flops_per_s = 4e15;
  hardware.memory_bytes_per_s = 1e12;
  OpCost cost{1'000'000'000'000, 1000};
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 1'000'000);
  cost.recipe = PrecisionRecipe::mxfp8;
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 500'000);
  cost.recipe = PrecisionRecipe::nvfp4;
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 250'000);
  cost.bytes = 1'000'000'000;
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 1'000'000);
  // Rows at which half of a rate is reached count twice.
  cost = {1'000'000'000'000, 0, 10'000'000'000};
  hardware.half_rows[static_cast<size_t>(Work::product)] = 100;
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 2'000'000);
  cost.recipe = PrecisionRecipe::fp8_delayed;
  BOOST_TEST(roofline_ns(hardware, Op::qkv_proj, cost) == 1'500'000);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
