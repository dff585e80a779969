// Where training tokens come from. A sequence is named by step and index in the global batch, so
// every layout trains on the same tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/spec/corpus.h"
#include "engine/spec/trial_spec.h"

namespace moetune::engine {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// seq_length + 1 tokens of a sequence of a step; position i predicts token i + 1.
  [[nodiscard]] virtual std::vector<int32_t> sequence(int64_t step, int64_t index) const = 0;
};

/// Windows of a text at positions drawn by a counter-based generator.
class TextSource final : public TokenSource {
 public:
  TextSource(spec::Corpus corpus, const spec::TrainingSpec& training, const std::string& path);
  [[nodiscard]] std::vector<int32_t> sequence(int64_t step, int64_t index) const override;

 private:
  spec::Corpus corpus_;
  int64_t seq_length_;
  int64_t global_batch_size_;
  uint64_t key_;
};

/// Tokens of one step on one rank: [micro-batches * T], targets alike.
struct StepTokens {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

/// The tokens one rank trains on in one step: its sequences, and of each the positions of its
/// context-parallel part.
StepTokens step_tokens(const TokenSource& source, const spec::TrialSpec& trial, int rank,
                       int64_t step);

}  // namespace moetune::engine
