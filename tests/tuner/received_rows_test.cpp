// Received rows against counting token by token which rank holds it and which rank has its experts.
#include "tuner/received_rows.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tests/spec/spec_samples.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(received_rows)

namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;

constexpr int64_t kSteps = 2;
constexpr int64_t kSequences = 16;
constexpr int64_t kLength = 32;
constexpr int64_t kTopK = 2;

spec::ModelSpec model() {
  spec::ModelSpec made = samples::trial().model;
  made.is_moe_layer = {true, false, true, true};
  return made;
}

spec::TrainingSpec training(int64_t global_batch_size = kSequences) {
  spec::TrainingSpec made;
  made.global_batch_size = global_batch_size;
  made.seq_length = kLength;
  return made;
}

/// Expert of one of a token's choices: uneven, and different everywhere.
int64_t expert_of(int64_t step, int64_t layer, int64_t sequence, int64_t position, int64_t choice) {
  const int64_t mixed = step * 7 + layer * 13 + sequence * 29 + position * position + choice * 3;
  return mixed * mixed % 31 % 8;
}

spec::RoutingProfile profile(int64_t num_pieces) {
  spec::RoutingProfile made;
  made.num_steps = kSteps;
  made.num_layers = 3;
  made.num_sequences = kSequences;
  made.num_pieces = num_pieces;
  made.num_experts = 8;
  made.counts.assign(static_cast<size_t>(made.index(kSteps, 0, 0, 0, 0)), 0);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
        for (int64_t token = 0; token < kLength * kTopK; ++token) {
          const int64_t position = token / kTopK;
          const int64_t expert = expert_of(step, layer, sequence, position, token % kTopK);
          const int64_t piece = position / (kLength / num_pieces);
          ++made.counts[static_cast<size_t>(made.index(step, layer, sequence, piece, expert))];
        }
      }
    }
  }
  return made;
}

/// Every rank of the expert-parallel group, every sequence and position it holds.
int64_t count(const plan::Layout& layout, const spec::Knobs& knobs, int64_t step, int64_t moe_layer,
              int64_t micro_batch, int rank) {
  const int64_t experts = 8 / layout.ep;
  int64_t rows = 0;
  for (const int peer : layout.group_ranks(plan::Group::ep, rank)) {
    const auto positions = plan::local_positions(layout, peer, kLength);
    const auto num_local = static_cast<int64_t>(positions.size());
    const int64_t tokens = num_local * knobs.micro_batch_size / layout.tp;
    for (int64_t own = 0; own < tokens; ++own) {
      const int64_t token = layout.tp_rank(peer) * tokens + own;
      const int64_t sequence =
          plan::sequence_index(layout, knobs, micro_batch, layout.dp_rank(peer), token / num_local);
      for (int64_t choice = 0; choice < kTopK; ++choice) {
        const int32_t position = positions[static_cast<size_t>(token % num_local)];
        rows += expert_of(step, moe_layer, sequence, position, choice) / experts ==
                layout.ep_rank(rank);
      }
    }
  }
  return rows;
}

const char* const kKnobs[] = {
    "{}",
    R"({"data_parallel_size": 8})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "micro_batch_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "micro_batch_size": 4})",
    R"({"context_parallel_size": 4, "expert_model_parallel_size": 2})",
    R"({"context_parallel_size": 4, "data_parallel_size": 2, "expert_model_parallel_size": 8})",
    R"({"context_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "micro_batch_size": 2})",
    R"({"data_parallel_size": 4, "expert_tensor_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "data_parallel_size": 2,
        "expert_model_parallel_size": 8, "micro_batch_size": 4})",
    R"({"tensor_model_parallel_size": 4, "context_parallel_size": 2, "micro_batch_size": 2,
        "expert_model_parallel_size": 4})",
};

BOOST_DATA_TEST_CASE(rows_are_those_counted_token_by_token, data::make(kKnobs), text) {
  const ReceivedRows rows(profile(16), model(), training());
  const spec::Knobs knobs = spec::knobs_from_json(nlohmann::json::parse(text), "test");
  const plan::Layout layout = plan::layout_of(knobs);
  const int64_t num_micro_batches = plan::num_micro_batches(layout, knobs, kSequences);
  const int64_t layers[] = {0, 2, 3};  // those with experts
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t moe_layer = 0; moe_layer < 3; ++moe_layer) {
      int64_t total = 0;
      for (int64_t m = 0; m < num_micro_batches; ++m) {
        for (int rank = 0; rank < layout.stage_size(); ++rank) {
          const int64_t found = rows.of_rank(layout, knobs, rank).at(step, layers[moe_layer], m);
          BOOST_TEST_CONTEXT("step " << step << " layer " << moe_layer << " micro-batch " << m
                                     << " rank " << rank) {
            BOOST_TEST(found == count(layout, knobs, step, moe_layer, m, rank));
          }
          total += found;
        }
      }
      BOOST_TEST(total == kSequences * kLength * kTopK * layout.etp);  // dropless
    }
  }
}

BOOST_AUTO_TEST_CASE(later_stages_receive_as_the_first_would) {
  const ReceivedRows rows(profile(16), model(), training());
  spec::Knobs knobs;
  knobs.data_parallel_size = 2;
  knobs.pipeline_model_parallel_size = 2;
  knobs.expert_model_parallel_size = 2;
  const plan::Layout layout = plan::layout_of(knobs);
  for (int rank = 0; rank < 2; ++rank) {
    BOOST_TEST(rows.of_rank(layout, knobs, rank + 2).at(1, 3, 0) ==
               rows.of_rank(layout, knobs, rank).at(1, 3, 0));
  }
}

BOOST_AUTO_TEST_CASE(pieces_too_coarse_for_the_zig_zag_are_shared_equally) {
  const ReceivedRows rows(profile(2), model(), training());
  spec::Knobs knobs;
  knobs.context_parallel_size = 4;
  const plan::Layout layout = plan::layout_of(knobs);
  for (int rank = 0; rank < 4; ++rank) {
    BOOST_TEST(rows.of_rank(layout, knobs, rank).at(0, 0, 0) == kLength * kTopK / 4);
  }
}

BOOST_AUTO_TEST_CASE(profiles_of_another_model_or_batch_are_refused) {
  BOOST_TEST(!ReceivedRows().has_profile());
  BOOST_TEST(ReceivedRows(profile(4), model(), training()).num_steps() == kSteps);
  BOOST_CHECK_THROW(ReceivedRows(profile(4), model(), training(kSequences / 2)), base::Error);
  spec::ModelSpec other = model();
  other.is_moe_layer = {true, true, true, true};
  BOOST_CHECK_THROW(ReceivedRows(profile(4), other, training()), base::Error);
  other = model();
  other.num_experts = 16;
  BOOST_CHECK_THROW(ReceivedRows(profile(4), other, training()), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
