// Whether the software of a row trains with Megatron-Core, whose runs are behind the rates.
#pragma once

#include <cstdint>
#include <string_view>

namespace moetune::sweeps {

enum class EngineOfSoftware : uint8_t {
  megatron_core,  ///< what is built on it
  other,          ///< an engine of its own, or PyTorch's
  unknown,        ///< a name that no table has
};

/// By a name in any spelling: "NeMo 2.0", "verl (Megatron backend)", "NeMo AutoModel".
EngineOfSoftware engine_of_software(std::string_view name);
/// Whether its recipes say what a row leaves open: "Megatron Bridge", "NVIDIA Megatron-Bridge 0.6".
bool is_megatron_bridge(std::string_view name);

}  // namespace moetune::sweeps
