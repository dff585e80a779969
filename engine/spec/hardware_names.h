// What published results call a machine, and which of the shipped hardware files describes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moetune::spec {

/// The name of the hardware file (library.h) of a machine as published: "h100-80g" of "H100 80G".
/// Case, dashes, spaces and underscores do not count. None for a machine without a file, such as an
/// A100 of 40 GB, and for a name that leaves open which machine it is.
std::optional<std::string> hardware_file_of(std::string_view published_name);

}  // namespace moetune::spec
