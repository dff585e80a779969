// Rows of a recorded run, bound for other layouts: against counting token by token which rank holds
// it, in which chunk, and which rank has its experts.
#include "tuner/profile_bindings.h"

#include <array>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/plan/compile.h"
#include "kernels/base/error.h"
#include "tests/spec/spec_samples.h"
#include "tuner/memory_model.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(profile_bindings)

namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;

constexpr int64_t kSequences = 16;
constexpr int64_t kLength = 32;
constexpr int64_t kTopK = 2;
constexpr int64_t kExperts = 8;

spec::TrialSpec trial_of(const char* knobs) {
  spec::TrialSpec trial = samples::trial();
  trial.model.is_moe_layer = {true, false, true, true};
  trial.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  trial.training.global_batch_size = kSequences;
  trial.training.seq_length = kLength;
  return trial;
}

/// The experts of a token: uneven, different everywhere, no expert twice.
std::array<int64_t, kTopK> experts_of(int64_t layer, int64_t sequence, int64_t position) {
  const int64_t mixed = layer * 13 + sequence * 29 + position * position;
  const int64_t first = mixed * mixed % 31 % kExperts;
  return {first, (first + 1 + mixed % 3) % kExperts};
}

spec::RoutingProfile profile(int64_t num_pieces, int64_t length = kLength) {
  spec::RoutingProfile made{2, 3, kSequences, num_pieces, kExperts, {}};
  made.counts.assign(static_cast<size_t>(made.index(2, 0, 0, 0, 0)), 0);
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
        for (int64_t position = 0; position < length; ++position) {
          const int64_t piece = position / (length / num_pieces);
          // The second step is another one.
          for (const int64_t expert : experts_of(layer + 7 * step, sequence, position)) {
            ++made.counts[static_cast<size_t>(made.index(step, layer, sequence, piece, expert))];
          }
        }
      }
    }
  }
  return made;
}

/// Rows that chunk `chunk` of `num_chunks` of `source` has for `expert`.
int64_t count(const spec::TrialSpec& trial, int64_t moe_layer, int64_t micro_batch, int source,
              int64_t chunk, int64_t num_chunks, int64_t expert) {
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const auto positions = plan::local_positions(layout, source, kLength);
  const auto num_local = static_cast<int64_t>(positions.size());
  const int64_t tokens = num_local * trial.knobs.micro_batch_size / layout.tp;
  const int64_t first = layout.tp_rank(source) * tokens;
  int64_t rows = 0;
  for (int64_t token = first + chunk * tokens / num_chunks;
       token < first + (chunk + 1) * tokens / num_chunks; ++token) {
    const int64_t sequence = plan::sequence_index(layout, trial.knobs, micro_batch,
                                                  layout.dp_rank(source), token / num_local);
    for (const int64_t own :
         experts_of(moe_layer, sequence, positions[static_cast<size_t>(token % num_local)])) {
      rows += own == expert;
    }
  }
  return rows;
}

const char* const kKnobs[] = {
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "micro_batch_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "micro_batch_size": 4,
        "ep_chunks_forward": 3, "ep_chunks_backward": 5})",
    R"({"context_parallel_size": 4, "expert_model_parallel_size": 2, "ep_chunks_forward": 3})",
    R"({"context_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "micro_batch_size": 2, "ep_chunks_backward": 3})",
    R"({"data_parallel_size": 4, "expert_tensor_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 4,
        "ep_chunks_forward": 3})",
};

/// Three ranks to a sequence: borders that no number of pieces has which is a power of two.
constexpr int64_t kUnevenLength = 48;
const char* const kUnevenKnobs[] = {
    R"({"context_parallel_size": 3, "expert_model_parallel_size": 1, "data_parallel_size": 2})",
    R"({"context_parallel_size": 3, "data_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"context_parallel_size": 3, "data_parallel_size": 4, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "ep_chunks_forward": 3})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 3, "expert_model_parallel_size": 2,
        "ep_chunks_backward": 2})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 3, "micro_batch_size": 2,
        "expert_tensor_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "micro_batch_size": 4, "expert_model_parallel_size": 2})",
};

// A piece of one token is the finest grain: nothing is left to be spread.
BOOST_DATA_TEST_CASE(rows_are_those_counted_token_by_token, data::make(kKnobs), text) {
  const spec::TrialSpec trial = trial_of(text);
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const int64_t layers[] = {0, 2, 3};  // those with experts
  const int64_t last = plan::num_micro_batches(layout, trial.knobs, kSequences) - 1;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const ProfileBindings bindings(profile(kLength), trial, rank);
    for (int64_t moe_layer = 0; moe_layer < 3; ++moe_layer) {
      const plan::LayerDims dims =
          plan::layer_dims(trial.model, trial.knobs, kLength, layers[moe_layer]);
      const std::vector<int> peers = layout.group_ranks(plan::Group::ep, rank);
      const plan::Route& route = bindings.at(layers[moe_layer], last);
      BOOST_TEST_CONTEXT("rank " << rank << " layer " << moe_layer) {
        const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
        size_t at = 0;
        for (const int peer : peers) {
          for (int64_t c = 0; c < num_chunks; ++c) {
            const bool is_forward = c < dims.chunks_forward;
            for (int64_t e = 0; e < dims.local_experts; ++e) {
              BOOST_TEST(route.counts[at++] ==
                         count(trial, moe_layer, last, peer,
                               is_forward ? c : c - dims.chunks_forward,
                               is_forward ? dims.chunks_forward : dims.chunks_backward,
                               layout.ep_rank(rank) * dims.local_experts + e));
            }
          }
        }
        for (int64_t c = 0; c < dims.chunks_forward; ++c) {
          for (size_t p = 0; p < peers.size(); ++p) {
            int64_t expected = 0;
            for (int64_t e = 0; e < dims.local_experts; ++e) {
              expected += count(trial, moe_layer, last, rank, c, dims.chunks_forward,
                                static_cast<int64_t>(p) / dims.etp * dims.local_experts + e);
            }
            BOOST_TEST(route.forward[static_cast<size_t>(c)].send_rows[p] == expected);
          }
        }
      }
    }
  }
}

// With pieces that neither chunks nor context ranks respect: what a rank sends to another is what
// that one receives, no row is lost, and every token sends as many rows as it has choices.
BOOST_DATA_TEST_CASE(coarse_pieces_lose_no_row, data::make(kKnobs), text) {
  const spec::TrialSpec trial = trial_of(text);
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const plan::LayerDims dims = plan::layer_dims(trial.model, trial.knobs, kLength, 0);
  std::vector<plan::Route> routes;
  for (int rank = 0; rank < layout.stage_size(); ++rank) {
    routes.push_back(ProfileBindings(profile(2), trial, rank).at(2, 0));
  }
  int64_t total = 0;
  for (int rank = 0; rank < layout.stage_size(); ++rank) {
    const plan::Route& route = routes[static_cast<size_t>(rank)];
    total += route.num_received;
    const std::vector<int> peers = layout.group_ranks(plan::Group::ep, rank);
    for (const bool is_backward : {false, true}) {
      const int64_t num_chunks = is_backward ? dims.chunks_backward : dims.chunks_forward;
      for (int64_t c = 0; c < num_chunks; ++c) {
        const plan::ChunkRoute& chunk = route.chunk(is_backward, c);
        const int64_t tokens = (c + 1) * dims.tokens / num_chunks - c * dims.tokens / num_chunks;
        BOOST_TEST(chunk.num_sent == tokens * dims.slots_per_token());
        for (size_t p = 0; p < peers.size(); ++p) {
          const plan::ChunkRoute& other =
              routes[static_cast<size_t>(peers[p])].chunk(is_backward, c);
          BOOST_TEST(chunk.send_rows[p] ==
                     other.recv_rows[static_cast<size_t>(layout.rank_in(plan::Group::ep, rank))]);
        }
      }
    }
  }
  BOOST_TEST(total == dims.tokens * layout.stage_size() * dims.slots_per_token());
}

// The memory of all ranks and that of one rank's program read the same profile.
BOOST_DATA_TEST_CASE(memory_is_the_same_by_either_reader, data::make(kUnevenKnobs), text) {
  spec::TrialSpec trial = trial_of(text);
  trial.training.seq_length = kUnevenLength;
  trial.num_warmup_steps = 0;
  trial.num_steps = 1;  // of the profile the first
  trial.num_traced_steps = 0;
  for (const int64_t num_pieces : {1, 8, 48}) {
    const spec::RoutingProfile made = profile(num_pieces, kUnevenLength);
    const MemoryEstimate estimate =
        estimate_memory(trial, ReceivedRows(made, trial.model, trial.training));
    for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
      const RankMemory by_rank =
          rank_memory(trial, plan::compile(trial, rank), ProfileBindings(made, trial, rank));
      BOOST_TEST_CONTEXT(num_pieces << " pieces, rank " << rank) {
        const RankMemory& found = estimate.ranks[static_cast<size_t>(rank)];
        BOOST_TEST(found.peak_bytes == by_rank.peak_bytes);
        BOOST_TEST(found.group_bytes == by_rank.group_bytes, boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_piece_are_spread_evenly) {
  constexpr int64_t kTokens = 16;
  // All on few experts; as even as can be, where all stand at the same places; something between.
  const std::vector<std::vector<int32_t>> pieces = {
      {16, 0, 0, 0, 0, 0, 0, 16}, {4, 4, 4, 4, 4, 4, 4, 4}, {16, 0, 1, 1, 1, 8, 3, 2}};
  for (const std::vector<int32_t>& counts : pieces) {
    const auto rows_of = [&](int64_t begin, int64_t end) {
      return rows_of_tokens(counts.data(), kExperts, kTokens, begin, end);
    };
    for (int64_t begin = 0; begin < kTokens; ++begin) {
      for (int64_t end = begin; end <= kTokens; ++end) {
        const auto rows = rows_of(begin, end);
        const auto before = rows_of(0, begin);
        const auto all = rows_of(0, end);
        BOOST_TEST_CONTEXT("tokens " << begin << " to " << end) {
          BOOST_TEST(std::accumulate(rows.begin(), rows.end(), int64_t{0}) ==
                     (end - begin) * kTopK);
          for (size_t e = 0; e < rows.size(); ++e) {
            const double even = static_cast<double>(counts[e] * end) / kTokens;
            BOOST_TEST(std::abs(static_cast<double>(all[e]) - even) <= 1);
            BOOST_TEST(rows[e] >= 0);
            BOOST_TEST(before[e] + rows[e] == all[e]);
          }
        }
      }
    }
    const auto whole = rows_of(0, kTokens);
    BOOST_TEST(whole == std::vector<int64_t>(counts.begin(), counts.end()),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(without_expert_parallelism_all_rows_stay) {
  const ProfileBindings bindings(profile(4), trial_of(R"({"data_parallel_size": 2})"), 1);
  BOOST_TEST(bindings.at(0, 0).num_received == kLength * kTopK);
  BOOST_CHECK_THROW((void)bindings.at(0, kSequences / 2), base::Error);  // no such micro-batch
  BOOST_CHECK_THROW((void)bindings.at(1, 0), base::Error);               // no experts
}

BOOST_AUTO_TEST_CASE(profiles_of_another_run_are_refused) {
  const auto refused = [](const spec::RoutingProfile& made, const spec::TrialSpec& trial,
                          const std::string& part) {
    BOOST_CHECK_EXCEPTION(ProfileBindings(made, trial, 0), base::Error,
                          [&](const base::Error& error) {
                            BOOST_TEST_MESSAGE(error.what());
                            return samples::contains(error.what(), part);
                          });
  };
  const spec::TrialSpec trial = trial_of("{}");
  spec::TrialSpec other = trial;
  other.training.global_batch_size = 8;
  refused(profile(4), other, "16 sequences");
  other = trial;
  other.model.is_moe_layer[1] = true;
  refused(profile(4), other, "a model of 4 such layers");
  other = trial;
  other.training.seq_length = 36;
  refused(profile(8), other, "sequences of 36 tokens");
  refused({}, trial, "0 steps");
  spec::RoutingProfile wrong = profile(4);
  ++wrong.counts.back();
  refused(wrong, trial, "17 rows for a piece of 8 tokens");
  wrong = profile(4);
  wrong.counts[0] = 9;
  wrong.counts[1] = 7;
  for (size_t expert = 2; expert < kExperts; ++expert) wrong.counts[expert] = 0;
  refused(wrong, trial, "one expert gets 9");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
