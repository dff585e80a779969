// What a process group is for, by the words that frameworks have for it. One table, for whoever
// reads their traces.
#pragma once

#include <optional>
#include <string_view>

namespace moetune::profiler {

/// Our name of the group ("tp", "pp", "world"), by its description or name in a file, as
/// "TENSOR_MODEL_PARALLEL_GROUP" or "mesh_pp", in upper or lower case. Empty: its purpose is known,
/// but we have no such group. Nothing: the words say no purpose.
std::optional<std::string_view> group_of_words(std::string_view words);

}  // namespace moetune::profiler
