// Attention where context-parallel ranks exchange heads: what travels, what is computed and what is
// kept, against what attention of one rank does.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "engine/plan/listing.h"
#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(head_exchange)

namespace {

using testing::error_of;
using testing::ModelSpec;
using testing::num_ranks;

const Planned kExchanged = [] {
  Planned planned;
  planned.exchanges_heads = true;
  return planned;
}();

const char* const kLayouts[] = {
    R"({"context_parallel_size": 2})",
    R"({"context_parallel_size": 2, "cp_comm_type": "p2p", "micro_batch_size": 2})",
    R"({"context_parallel_size": 2, "recompute": "full"})",
    R"({"context_parallel_size": 2, "recompute": "norm,core_attn",
        "cuda_graph_modules": "attn"})",
    R"({"context_parallel_size": 2, "data_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"context_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2})",
};
/// Of models whose heads divide by it.
const char* const kSplitLayouts[] = {
    R"({"context_parallel_size": 4})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "recompute": "full"})",
};

bool mixes_with(const ModelSpec& model, spec::Mixer mixer) {
  return std::ranges::any_of(model.layer_kinds,
                             [&](const spec::LayerKind& kind) { return kind.mixer == mixer; });
}

/// Keys of latent attention are made for all heads. Scans have heads of their own.
bool has_heads_for_four(const ModelSpec& model) {
  return !mixes_with(model, spec::Mixer::gdn) && !mixes_with(model, spec::Mixer::mamba) &&
         (model.num_kv_heads >= 4 || mixes_with(model, spec::Mixer::mla));
}

void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  int num_split = 0;
  for (const auto& [name, model] : testing::small_models()) {
    std::vector<std::string> layouts(std::begin(kLayouts), std::end(kLayouts));
    if (has_heads_for_four(model)) {
      layouts.insert(layouts.end(), std::begin(kSplitLayouts), std::end(kSplitLayouts));
      ++num_split;
    }
    for (const std::string& knobs : layouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) { body(testing::trial_of(model, knobs)); }
    }
  }
  BOOST_TEST(num_split > 2);
}

bool is_attention(const Segment& segment) {
  return segment.block == BlockKind::gqa || segment.block == BlockKind::mla;
}

BOOST_AUTO_TEST_CASE(programs_with_exchanged_heads_hold_what_all_hold) {
  for_all([](const spec::TrialSpec& trial) {
    const testing::RanksOfStep step(trial, kExchanged);
    for (size_t rank = 0; rank < step.programs.size(); ++rank) {
      BOOST_TEST(error_of(step.programs[rank]) == "");
      BOOST_TEST(testing::bytes_left(step.programs[rank], step.bindings[rank]) == 0);
    }
    testing::play_all(trial, step);
  });
}

// Queries, keys and values to those who have the heads, and attention's output back: of a rank's
// tokens all that it has but its own share. Backward the same of their gradients.
BOOST_AUTO_TEST_CASE(what_travels_is_of_the_ranks_own_tokens) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram program = compile(trial, 0, kExchanged);
    std::map<std::tuple<int32_t, int32_t, Pass>, int64_t> bytes;
    std::map<std::tuple<int32_t, int32_t, Pass>, int64_t> expected;
    for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      if (!is_attention(segment)) return;
      BOOST_TEST((instr.op != Op::kv_gather && instr.op != Op::kv_shift));
      const LayerDims& d = segment.dims;
      if (instr.op == Op::head_exchange) {
        BOOST_TEST((instr.kind == spec::CollectiveKind::all_to_all));
        BOOST_TEST((instr.group == Group::cp));
        bytes[{item.layer, item.micro_batch, instr.pass}] += instr.cost.bytes;
      }
      if (instr.op != Op::core_attn) return;
      // What core attention makes again is by heads already.
      const bool is_whole = instr.pass != Pass::recompute || spec::is_full_recompute(trial.knobs);
      const int64_t columns = d.attn + (is_whole ? d.q + d.kv + d.v : 0);
      expected[{item.layer, item.micro_batch, instr.pass}] += 2 * d.block_tokens * columns;
    });
    BOOST_TEST((bytes == expected));
  });
}

/// FLOPs of attention of all ranks of one replica and stage in a micro-batch, by pass.
std::map<Pass, int64_t> attention_flops(const spec::TrialSpec& trial, const Planned& planned) {
  std::map<Pass, int64_t> flops;
  for (int rank = 0; rank < num_ranks(trial); ++rank) {
    for_each(compile(trial, rank, planned),
             [&](const Item& item, const Segment&, const Instr& instr) {
               if (item.micro_batch != 0 || instr.op != Op::core_attn) return;
               flops[instr.pass] += instr.cost.flops;
             });
  }
  return flops;
}

BOOST_AUTO_TEST_CASE(ranks_attend_to_all_together) {
  for (const auto& [name, model] : testing::small_models()) {
    BOOST_TEST_CONTEXT(name) {
      const std::map<Pass, int64_t> alone = attention_flops(testing::trial_of(model), {});
      BOOST_TEST((attention_flops(testing::trial_of(model, kLayouts[0]), kExchanged) == alone));
      if (!has_heads_for_four(model)) continue;
      BOOST_TEST(
          (attention_flops(testing::trial_of(model, kSplitLayouts[0]), kExchanged) == alone));
      BOOST_TEST(
          (attention_flops(testing::trial_of(model, kSplitLayouts[1]), kExchanged) == alone));
    }
  }
}

/// With windows, too, all ranks have the same work.
BOOST_AUTO_TEST_CASE(no_rank_attends_to_more_than_others) {
  const spec::TrialSpec trial = testing::trial_of(testing::small_gpt_oss(), kLayouts[0]);
  const auto flops = [&](int rank) {
    int64_t sum = 0;
    for_each(compile(trial, rank, kExchanged),
             [&](const Item&, const Segment&, const Instr& instr) {
               if (instr.op == Op::core_attn) sum += instr.cost.flops;
             });
    return sum;
  };
  BOOST_TEST(flops(0) > 0);
  BOOST_TEST(flops(0) == flops(1));
}

/// What a layer keeps of the first micro-batch, by buffer.
std::map<Buf, int64_t> kept_by(const spec::TrialSpec& trial, const Planned& planned) {
  std::map<Buf, int64_t> kept;
  for_each(compile(trial, 0, planned),
           [&](const Item& item, const Segment& segment, const Instr& instr) {
             if (item.micro_batch != 0 || !is_attention(segment)) return;
             if (instr.verb != Verb::alloc || segment.is_backward) return;
             if (instr.what != static_cast<uint8_t>(MemoryGroup::activations)) return;
             kept[static_cast<Buf>(instr.refs.front().id)] += instr.cost.bytes;
           });
  return kept;
}

// As much as around a ring, and attention's output once more. What norms of queries and keys or a
// gate read stays as it was projected, and what lies beside it.
BOOST_AUTO_TEST_CASE(attention_keeps_its_output_twice) {
  for (const auto& [name, model] : testing::small_models()) {
    BOOST_TEST_CONTEXT(name) {
      const spec::TrialSpec trial =
          testing::trial_of(model, R"({"context_parallel_size": 2, "cp_comm_type": "p2p"})");
      std::map<Buf, int64_t> ring = kept_by(trial, {});
      std::map<Buf, int64_t> exchanged = kept_by(trial, kExchanged);
      BOOST_TEST(exchanged[Buf::attn_out_heads] == exchanged[Buf::attn_out]);
      BOOST_TEST(exchanged[Buf::attn_lse] == ring[Buf::attn_lse]);
      const auto sum = [](const std::map<Buf, int64_t>& kept) {
        int64_t bytes = 0;
        for (const auto& [buffer, each] : kept) bytes += each;
        return bytes;
      };
      const bool has_both = model.has_qk_norm || model.has_attention_gate;
      if (has_both) BOOST_TEST(exchanged[Buf::qkv] == ring[Buf::qkv]);
      if (!has_both) {
        BOOST_TEST(exchanged.count(Buf::qkv) + exchanged.count(Buf::mla_q) == 0U);
        BOOST_TEST(sum(exchanged) == sum(ring) + exchanged[Buf::attn_out]);
      }
    }
  }
}

// Where core attention is recomputed the copy by heads is what it starts from.
BOOST_AUTO_TEST_CASE(recomputed_attention_keeps_what_it_reads) {
  const ModelSpec model = testing::small_gpt_oss();
  std::map<Buf, int64_t> kept =
      kept_by(testing::trial_of(model, R"({"context_parallel_size": 2, "recompute": "core_attn"})"),
              kExchanged);
  BOOST_TEST(kept[Buf::qkv_heads] > 0);
  BOOST_TEST(kept.count(Buf::attn_out) + kept.count(Buf::attn_out_heads) +
                 kept.count(Buf::attn_lse) ==
             0U);
}

BOOST_AUTO_TEST_CASE(ranks_that_share_no_sequence_exchange_nothing) {
  for (const auto& [name, model] : testing::small_models()) {
    const spec::TrialSpec trial = testing::trial_of(model, R"({"data_parallel_size": 2})");
    const StepProgram plain = compile(trial, 0);
    const StepProgram same = compile(trial, 0, kExchanged);
    BOOST_TEST_REQUIRE(plain.segments.size() == same.segments.size());
    for (size_t i = 0; i < plain.segments.size(); ++i) {
      BOOST_TEST(are_alike(*plain.segments[i], *same.segments[i]));
    }
  }
}

BOOST_AUTO_TEST_CASE(operands_by_heads_have_names) {
  for_all([](const spec::TrialSpec& trial) {
    const StepProgram program = compile(trial, 0, kExchanged);
    for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      if (!is_attention(segment)) return;
      for (const Ref& ref : instr.refs) {
        BOOST_TEST(name_of(program, item, ref).find("of kind") == std::string::npos);
      }
    });
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
