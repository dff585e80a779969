// Words of which names of machines consist. A machine that published results name is a row of one
// table; a way to write its name is a word of the other.
#include "engine/spec/hardware_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/spec/joined_words.h"

namespace moetune::spec {

namespace {

struct NamedDevice {
  std::string_view file;
  /// GB of memory that sources state for it, with and without what is kept back; 0: none.
  std::array<int, 4> gigabytes;
  bool is_rack = false;  ///< has NVL72 in its name
  /// There is one of less memory under the same name. Published runs that say H100 alone ran on the
  /// SXM card of 80 GB.
  bool has_smaller = false;
};
enum DeviceNumber { kA100, kH100, kH200, kB200, kB300, kGb200, kGb300, kMi300x, kNumDevices };
constexpr std::array<NamedDevice, kNumDevices> kDevices = {
    NamedDevice{"a100-80g", {80}, false, true},
    NamedDevice{"h100-80g", {80}},
    NamedDevice{"h200", {141, 140}},
    NamedDevice{"b200", {192, 180, 179, 183}},
    NamedDevice{"b300", {288, 270, 268, 275}},
    NamedDevice{"gb200-nvl72", {192, 186, 185, 189}, true},
    NamedDevice{"gb300-nvl72", {288, 279, 278, 284}, true},
    NamedDevice{"mi300x", {192}},
};

/// Meanings of words: devices by their number, memory as its GB behind kGigabytes.
constexpr int kSaysNothing = -1;
constexpr int kRack = -2;
constexpr int kOther = -3;  ///< a device without a file
constexpr int kGigabytes = 1000;

// Cards of other form (PCIe, NVL) are slower: there are no words for them.
constexpr JoinedWord kNameWords[] = {
    {"a100", kA100},
    {"h100", kH100},
    {"h200", kH200},
    {"b200", kB200},
    {"b300", kB300},
    {"gb200", kGb200},
    {"gb300", kGb300},
    {"mi300x", kMi300x},
    {"gh100", kOther},
    {"gh200", kOther},
    {"nvl72", kRack},
    {"80", kGigabytes + 80},
    {"140", kGigabytes + 140},
    {"141", kGigabytes + 141},
    {"179", kGigabytes + 179},
    {"180", kGigabytes + 180},
    {"183", kGigabytes + 183},
    {"185", kGigabytes + 185},
    {"186", kGigabytes + 186},
    {"189", kGigabytes + 189},
    {"192", kGigabytes + 192},
    {"268", kGigabytes + 268},
    {"270", kGigabytes + 270},
    {"275", kGigabytes + 275},
    {"278", kGigabytes + 278},
    {"279", kGigabytes + 279},
    {"284", kGigabytes + 284},
    {"288", kGigabytes + 288},
    {"g", kSaysNothing},
    {"gb", kSaysNothing},
    {"gib", kSaysNothing},
    {"hbm", kSaysNothing},
    {"hbm2e", kSaysNothing},
    {"hbm3", kSaysNothing},
    {"hbm3e", kSaysNothing},
    {"nvidia", kSaysNothing},
    {"amd", kSaysNothing},
    {"instinct", kSaysNothing},
    {"tensor", kSaysNothing},
    {"core", kSaysNothing},
    {"gpu", kSaysNothing},
    {"gpus", kSaysNothing},
    {"dgx", kSaysNothing},
    {"hgx", kSaysNothing},
    {"superpod", kSaysNothing},
    {"sxm", kSaysNothing},
    {"sxm4", kSaysNothing},
    {"sxm5", kSaysNothing},
    {"sxm6", kSaysNothing},
    {"ac", kSaysNothing},   // air-cooled, as the driver of a B300 says
    {"oam", kSaysNothing},  // the form of an MI300X
    {"vf", kSaysNothing},   // its virtual function
};

std::optional<std::string> file_by_words(std::string_view name, bool may_guess_memory) {
  const std::optional<std::vector<int>> meanings = meanings_in(name, kNameWords);
  if (!meanings) return std::nullopt;
  const NamedDevice* device = nullptr;
  int gigabytes = 0;
  bool is_rack = false;
  for (const int meaning : *meanings) {
    if (meaning == kOther) return std::nullopt;
    if (meaning == kRack) {
      is_rack = true;
    } else if (meaning >= kGigabytes) {
      if (gigabytes != 0) return std::nullopt;
      gigabytes = meaning - kGigabytes;
    } else if (meaning >= 0) {
      if (device != nullptr) return std::nullopt;
      device = &kDevices[static_cast<size_t>(meaning)];
    }
  }
  if (device == nullptr || (is_rack && !device->is_rack)) return std::nullopt;
  const bool is_open = gigabytes == 0 && device->has_smaller;
  const bool fits =
      gigabytes == 0 || std::ranges::find(device->gigabytes, gigabytes) != device->gigabytes.end();
  if (!fits || (is_open && !may_guess_memory)) return std::nullopt;
  return std::string(device->file);
}

constexpr std::string_view kNoEightBits[] = {
    "k80",   "p4",    "p40",   "p100",  "v100",  "v100s", "gv100", "t4",    "t4g",   "a2",
    "a10",   "a10g",  "a16",   "a30",   "a40",   "a100",  "a100x", "a800",  "a2000", "a4000",
    "a4500", "a5000", "a5500", "a6000", "1080",  "2080",  "3060",  "3070",  "3080",  "3090",
    "titan", "mi50",  "mi60",  "mi100", "mi200", "mi210", "mi250", "mi250x"};
constexpr std::string_view kNoFourBits[] = {"l4",    "l20",    "l40",    "l40s",   "h20",   "h100",
                                            "h200",  "h800",   "gh100",  "gh200",  "4090",  "ada",
                                            "mi300", "mi300a", "mi300x", "mi308x", "mi325x"};

bool is_among(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether a word of the name, in small letters, is one of those that are looked for.
template <class IsLookedFor>
bool has_word(std::string_view name, const IsLookedFor& is_looked_for) {
  std::string word;
  for (const char c : name) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9')) {
      word += lower;
      continue;
    }
    if (is_looked_for(word)) return true;
    word.clear();
  }
  return is_looked_for(word);
}

}  // namespace

std::optional<std::string> hardware_file_of(std::string_view published_name) {
  return file_by_words(published_name, false);
}

std::optional<std::string> likely_hardware_file_of(std::string_view published_name) {
  return file_by_words(published_name, true);
}

bool lacks_eight_bit_floats(std::string_view device_name) {
  return has_word(device_name, [](std::string_view word) { return is_among(kNoEightBits, word); });
}

bool lacks_four_bit_floats(std::string_view device_name) {
  return has_word(device_name, [](std::string_view word) {
    return is_among(kNoEightBits, word) || is_among(kNoFourBits, word);
  });
}

bool is_name_of_amd(std::string_view device_name) {
  return has_word(device_name, [](std::string_view word) {
    const bool is_mi =
        word.size() > 3 && word.starts_with("mi") && word[2] >= '0' && word[2] <= '9';
    return is_mi || word == "amd" || word == "instinct" || word == "radeon";
  });
}

}  // namespace moetune::spec
