// Rotary embedding frequencies for each rope type, with the conventions of the Hugging Face
// reference, in double.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/spec/model_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

/// theta^(-2i/dim), i = 0..dim/2-1 (Su et al. 2021, RoFormer).
std::vector<double> plain_frequencies(double theta, int64_t dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dim; i += 2) {
    frequencies.push_back(1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(dim)));
  }
  return frequencies;
}

/// NTK-aware scaling with the current length: the base grows once the sequence is longer than the
/// model was made for.
double dynamic_theta(const ModelSpec& model, int64_t num_positions) {
  const auto made_for = static_cast<double>(model.max_position_embeddings);
  const double length = std::max(static_cast<double>(num_positions), made_for);
  const auto dim = static_cast<double>(model.head_dim);
  const double stretch = model.rope.factor * length / made_for - (model.rope.factor - 1.0);
  return model.rope.theta * std::pow(stretch, dim / (dim - 2.0));
}

/// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended.
void scale_llama3(const RopeSpec& rope, double original_length, std::vector<double>& frequencies) {
  const double longest_kept = original_length / rope.high_freq_factor;
  const double shortest_scaled = original_length / rope.low_freq_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength > shortest_scaled) {
      frequency /= rope.factor;
    } else if (wavelength >= longest_kept) {
      const double blend = (original_length / wavelength - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1.0 - blend) * frequency / rope.factor + blend * frequency;
    }
  }
}

/// YaRN (Peng et al. 2023, "NTK-by-parts"): dimensions that turn often within the original length
/// are kept, those that turn rarely are divided by the factor, with a linear ramp over dimensions
/// between.
void scale_yarn(const RopeSpec& rope, double original_length, int64_t dim,
                std::vector<double>& frequencies) {
  const auto dimension_of = [&](double num_turns) {
    return static_cast<double>(dim) *
           std::log(original_length / (num_turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

/// YaRN's temperature, applied to cos and sin. Given, or from the factor and the two mscale values.
double yarn_attention_factor(const RopeSpec& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  const auto mscale_of = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
    return mscale_of(rope.mscale) / mscale_of(rope.mscale_all_dim);
  }
  return mscale_of(1.0);
}

}  // namespace

RopeTable make_rope_table(const ModelSpec& model, int64_t num_positions) {
  constexpr int64_t kMaxEntries = int64_t{1} << 30;
  const RopeSpec& rope = model.rope;
  const int64_t half_dim = model.head_dim / 2;
  MOETUNE_CHECK(half_dim > 0 && num_positions >= 0 && num_positions <= kMaxEntries / half_dim,
                "no rope table for {} positions of head_dim {}", num_positions, model.head_dim);
  const auto original_length = static_cast<double>(rope.original_max_position_embeddings > 0
                                                       ? rope.original_max_position_embeddings
                                                       : model.max_position_embeddings);
  double attention_factor = 1.0;
  std::vector<double> frequencies = plain_frequencies(
      rope.type == "dynamic" ? dynamic_theta(model, num_positions) : rope.theta, model.head_dim);
  if (rope.type == "linear") {
    for (double& frequency : frequencies) frequency /= rope.factor;
  } else if (rope.type == "llama3") {
    scale_llama3(rope, original_length, frequencies);
  } else if (rope.type == "yarn") {
    scale_yarn(rope, original_length, model.head_dim, frequencies);
    attention_factor = yarn_attention_factor(rope);
  } else {
    MOETUNE_CHECK(rope.type == "default" || rope.type == "dynamic", "unknown rope type '{}'",
                  rope.type);
  }

  RopeTable table;
  table.num_positions = num_positions;
  table.half_dim = half_dim;
  table.cos.reserve(static_cast<size_t>(num_positions * half_dim));
  table.sin.reserve(static_cast<size_t>(num_positions * half_dim));
  for (int64_t position = 0; position < num_positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cos.push_back(std::cos(angle) * attention_factor);
      table.sin.push_back(std::sin(angle) * attention_factor);
    }
  }
  return table;
}

}  // namespace moetune::spec
