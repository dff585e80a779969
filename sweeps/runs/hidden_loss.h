// Megatron-LM leaves a loss out of its line where the mean is not a number. So may a fork whose
// loss has another name, and so does a line that another process has written into.
#pragma once

#include <cstdint>
#include <string_view>

namespace moetune::sweeps {

/// What stands where a line about a step has its losses, "lm loss" aside.
enum class LossPlace : uint8_t {
  empty,   ///< nothing but experts' losses
  other,   ///< a loss of another name
  broken,  ///< none of the words that belong there
};

/// Of a line in the form "key: value | key: value |", from its counter on.
LossPlace loss_place_of(std::string_view line);

}  // namespace moetune::sweeps
