// The text form of a pipeline's stages, as Megatron-LM's --pipeline-model-parallel-layout takes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec {

/// The stages of a layout (pipeline_stages_of) that has to hold for so many pipeline ranks and
/// layers of a model. Throws base::UsageError also where the stages are no multiple of `pp`, where
/// the layers are not the model's, and where the embedding does not stand first or the loss last,
/// once each.
std::vector<std::string> pipeline_stages_for(std::string_view text, int64_t pp, int64_t num_layers);

/// "Et*3|(tt|)*2tL" is {"Ettt", "tt", "tt", "tL"}: letters E (embedding), t (layer), m (multi-token
/// prediction) and L (loss), stages between bars, commas between anything, and a letter or a part
/// in parentheses followed by *n stands n times. Throws base::UsageError that names the place of
/// what is none of this, or of a text that is too long (10,000 letters written out).
std::vector<std::string> pipeline_stages_of(std::string_view text);

/// What stands in a pipeline beside a model's layers, as far as the split counts it as one.
struct CountedEnds {
  bool has_embedding = false;
  bool has_loss = false;

  bool operator==(const CountedEnds&) const = default;
};

/// So many stages of as many letters each, as Megatron-Core makes them where it counts embedding or
/// loss as a layer (--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-
/// split): the first or the last stage has a layer less, which may be its only one. Multi-token
/// prediction is beside the loss and counts for nothing. Empty where the letters do not divide.
std::vector<std::string> counted_pipeline_stages(int64_t num_layers, int64_t mtp_depth,
                                                 int64_t num_stages, CountedEnds counted);

/// So many stages at most may be without a layer: the embedding's, the loss' and that of
/// multi-token prediction, where there is some.
constexpr int64_t most_lone_stages(int64_t mtp_depth) { return mtp_depth > 0 ? 3 : 2; }

/// The stages of a model that has fewer layers than these: of one more the loss stands alone, of
/// two more the embedding, too, and of three more multi-token prediction. Empty where there are
/// layers for all, or no such way.
std::vector<std::string> lone_pipeline_stages(int64_t num_layers, int64_t mtp_depth,
                                              int64_t num_stages);

/// The other way round, as short as people write it: "Et*3|(tt|)*2tL".
std::string pipeline_layout_text(const std::vector<std::string>& stages);

}  // namespace moetune::spec
