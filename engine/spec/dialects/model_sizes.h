// The model in Megatron's terms and in Hugging Face's: which family it is, and how that spells it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moetune::spec::dialects {

/// `traits` by the names of the table's Trait rows. Without layers, width or heads only what is
/// said comes back, without a family. `notes` gets what Hugging Face has no word for.
nlohmann::json huggingface_of(const nlohmann::json& traits, std::vector<std::string>& notes);

/// The other way, for the families that huggingface_of makes and their relatives. Of others the
/// sizes are read, and a note says so.
nlohmann::json traits_of(const nlohmann::json& huggingface, std::vector<std::string>& notes);

/// Which layers have experts, from "([0]*3+[1]*58)", "[0,1,1]" or "2" (every second one). Throws
/// base::UsageError for other texts and for more than 10,000 layers.
std::vector<bool> moe_layers_of(const std::string& pattern, int64_t num_layers);
/// The first of these forms.
std::string moe_pattern_of(const std::vector<bool>& is_moe);

}  // namespace moetune::spec::dialects
