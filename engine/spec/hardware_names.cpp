// One table of names. A machine that published results call otherwise is one more row.
#include "engine/spec/hardware_names.h"

namespace moetune::spec {

namespace {

struct HardwareName {
  std::string_view published;  ///< letters and digits only, small
  std::string_view file;
};
constexpr HardwareName kHardwareNames[] = {
    {"a10080g", "a100-80g"},
    {"a10080gb", "a100-80g"},
    {"a100sxm80gb", "a100-80g"},
    // Published runs that say H100 alone ran on the SXM card of 80 GB.
    {"h100", "h100-80g"},
    {"h10080g", "h100-80g"},
    {"h10080gb", "h100-80g"},
    {"h100sxm", "h100-80g"},
    {"h200", "h200"},
    {"h200sxm", "h200"},
    {"b200", "b200"},
    {"b200sxm", "b200"},
    {"b300", "b300"},
    {"b300sxm", "b300"},
    {"gb200", "gb200-nvl72"},
    {"gb200nvl72", "gb200-nvl72"},
    {"gb300", "gb300-nvl72"},
    {"gb300nvl72", "gb300-nvl72"},
    {"mi300x", "mi300x"},
    // What drivers call the devices, and so traces. Cards of other form (PCIe, NVL) are slower.
    {"nvidiaa100sxm480gb", "a100-80g"},
    {"nvidiah10080gbhbm3", "h100-80g"},
    {"nvidiah200", "h200"},
    {"nvidiab200", "b200"},
    {"nvidiab300sxm6ac", "b300"},
    {"nvidiagb200", "gb200-nvl72"},
    {"nvidiagb300", "gb300-nvl72"},
    {"amdinstinctmi300x", "mi300x"},
    {"amdinstinctmi300xvf", "mi300x"},
};

/// "H100-80G" as "h10080g".
std::string letters_and_digits(std::string_view name) {
  std::string kept;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') kept += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) kept += c;
  }
  return kept;
}

}  // namespace

std::optional<std::string> hardware_file_of(std::string_view published_name) {
  const std::string name = letters_and_digits(published_name);
  for (const HardwareName& row : kHardwareNames) {
    if (row.published == name) return std::string(row.file);
  }
  return std::nullopt;
}

}  // namespace moetune::spec
