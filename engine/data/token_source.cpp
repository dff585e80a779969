// Draws where in the text a sequence begins from its step and index alone, so that no state is
// kept, and cuts a rank's part out of it.
#include "engine/data/token_source.h"

#include <fmt/format.h>

#include <utility>

#include "engine/model/philox.h"
#include "kernels/base/error.h"

namespace moetune::engine {

TextSource::TextSource(spec::Corpus corpus, const spec::TrainingSpec& training,
                       const std::string& path)
    : corpus_(std::move(corpus)),
      seq_length_(training.seq_length),
      global_batch_size_(training.global_batch_size),
      key_(philox_key(training.seed, "tokens")) {
  if (static_cast<int64_t>(corpus_.bytes.size()) < seq_length_ + 1) {
    throw base::UsageError(
        fmt::format("training text '{}' has {} bytes, a sequence needs {} (seq_length {} + 1)",
                    path, corpus_.bytes.size(), seq_length_ + 1, seq_length_));
  }
}

std::vector<int32_t> TextSource::sequence(int64_t step, int64_t index) const {
  const uint64_t bound = corpus_.bytes.size() - static_cast<uint64_t>(seq_length_);
  const uint64_t begin =
      philox_uniform(key_, static_cast<uint64_t>(step * global_batch_size_ + index), bound);
  std::vector<int32_t> tokens(static_cast<size_t>(seq_length_) + 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<unsigned char>(corpus_.bytes[begin + i]);
  }
  return tokens;
}

StepTokens step_tokens(const TokenSource& source, const spec::TrialSpec& trial, int rank,
                       int64_t step) {
  const plan::Layout layout = plan::layout_of(trial.knobs);
  const int64_t num_micro_batches =
      plan::num_micro_batches(layout, trial.knobs, trial.training.global_batch_size);
  const std::vector<int32_t> positions =
      plan::local_positions(layout, rank, trial.training.seq_length);
  // In a fake world nobody has the other shards of the vocabulary: a target there would have no
  // probability at all. So all tokens are moved into this rank's shard.
  const bool has_one_shard = spec::ranks_of(trial) == spec::RanksAre::alone && layout.tp > 1;
  const auto shard = static_cast<int32_t>(trial.model.vocab_size / layout.tp);
  const auto known = [&](int32_t token) {
    return has_one_shard ? layout.tp_rank(rank) * shard + token % shard : token;
  };
  StepTokens tokens;
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    for (int64_t slot = 0; slot < trial.knobs.micro_batch_size; ++slot) {
      const std::vector<int32_t> sequence = source.sequence(
          step, plan::sequence_index(layout, trial.knobs, m, layout.dp_rank(rank), slot));
      for (const int32_t position : positions) {
        tokens.inputs.push_back(known(sequence[static_cast<size_t>(position)]));
        tokens.targets.push_back(known(sequence[static_cast<size_t>(position) + 1]));
      }
    }
  }
  return tokens;
}

}  // namespace moetune::engine
