// Which layers of a model are of a kind, as Megatron's flags say it: a number, or a list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec::dialects {

/// More than any model has.
inline constexpr int64_t kMostLayers = 10'000;

/// Which layers have experts, from "([0]*3+[1]*58)", "[0,1,1]" or "2" (every second one, from the
/// first on). Throws base::UsageError for other texts and for more layers than these.
std::vector<bool> moe_layers_of(const std::string& pattern, int64_t num_layers);
/// Of layers with a window and with linear attention: a number means all but each so many-th, the
/// last of each group. `what` names the layers with a 1 in messages.
std::vector<bool> mixed_layers_of(const std::string& pattern, int64_t num_layers,
                                  std::string_view what);

/// "[0,0,0,1]" of a sum of lists; other texts as they are.
std::string written_out(const std::string& pattern);

/// "([0]*3+[1]*58)".
std::string pattern_of(const std::vector<bool>& layers);
/// The same, or the number that mixed_layers_of makes it of.
std::string mixed_pattern_of(const std::vector<bool>& layers);

}  // namespace moetune::spec::dialects
