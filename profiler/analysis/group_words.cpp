#include "profiler/analysis/group_words.h"

#include <array>
#include <cctype>
#include <string>

#include "kernels/base/step_parts.h"

namespace moetune::profiler {
namespace {

/// Substrings of frameworks' names of process groups, and our name of the group; empty: we have
/// none. The first match wins.
struct GroupWord {
  std::string_view word;
  std::string_view group;
};
constexpr auto kGroupWords = std::to_array<GroupWord>({
    {"tensor_and_data", ""},
    {"expert_data", "edp"},
    {"expert_tensor", ""},
    {"expert", "ep"},
    {"tensor_and_context", "tp_cp"},
    {"tensor", "tp"},
    {"pipeline", "pp"},
    {"embedding", "embedding"},
    {"data_parallel", "dp_cp"},
    {"context", "cp"},
    {"mod_ep", "edp"},
    {"efsdp", "edp"},
    {"mesh_tp", "tp"},
    {"mesh_cp", "cp"},
    {"mesh_pp", "pp"},
    {"mesh_ep", "ep"},
    {"mesh_dp", "dp_cp"},
    {"fsdp", "dp_cp"},
    {"default_pg", "world"},
});

}  // namespace

std::optional<std::string_view> group_of_words(std::string_view words) {
  // Our own groups have our own names.
  const base::GroupRow* own = base::find_group(words);
  if (own != nullptr && *own->adjective != '\0') return std::string_view(own->name);
  std::string lower(words);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const GroupWord& row : kGroupWords) {
    if (lower.find(row.word) != std::string::npos) return row.group;
  }
  return std::nullopt;
}

}  // namespace moetune::profiler
