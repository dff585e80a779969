// What published results call a machine, and which of the shipped hardware files describes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moetune::spec {

/// The name of the hardware file (library.h) of a machine as published: "h100-80g" of "H100 80G"
/// and of "NVIDIA H100 80GB HBM3". Case, signs, makers and the words for form and memory do not
/// count. None for a machine without a file, such as an A100 of 40 GB or a card for PCIe, and for a
/// name that leaves open which machine it is.
std::optional<std::string> hardware_file_of(std::string_view published_name);

/// The same for a name that leaves open only how much memory the device has, such as "A100": the
/// file of the one that there is a file for.
std::optional<std::string> likely_hardware_file_of(std::string_view published_name);

/// Whether a device of that name has no products of 8-bit floating point numbers: NVIDIA's before
/// compute capability 8.9, AMD's before the MI300. False for names that nobody knows.
bool lacks_eight_bit_floats(std::string_view device_name);
/// The same of 4 bits, and of 8 bits with a scale for each block: NVIDIA's before Blackwell, AMD's
/// before the MI350.
bool lacks_four_bit_floats(std::string_view device_name);
/// Whether AMD makes a device of that name: "AMD Instinct MI300X".
bool is_name_of_amd(std::string_view device_name);

}  // namespace moetune::spec
