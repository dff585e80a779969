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

}  // namespace moetune::spec::dialects
