// The purpose of a process group, by frameworks' names of it. The one table of such names.
#pragma once

#include <optional>
#include <string_view>

namespace moetune::profiler {

/// Our name of the group ("tp", "pp", "world"), by its description or name in a file: that name
/// itself, or as "TENSOR_MODEL_PARALLEL_GROUP" or "mesh_pp", in upper or lower case. Empty: its
/// purpose is known, but we have no such group. Nothing: the words say no purpose.
std::optional<std::string_view> group_of_words(std::string_view words);

}  // namespace moetune::profiler
