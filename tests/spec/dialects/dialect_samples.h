// What the tests of the dialects share: reading with a short name, files of this tree, random runs.
#pragma once

#include <algorithm>
#include <array>
#include <fstream>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "kernels/base/error.h"

namespace moetune::spec::dialects {

inline std::ostream& operator<<(std::ostream& out, Dialect dialect) {
  return out << name_of(dialect);
}

namespace samples {

inline constexpr std::array kDialects = {Dialect::megatron_lm, Dialect::megatron_bridge,
                                         Dialect::torchtitan, Dialect::primus};

inline std::string golden(const std::string& name) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/dialects/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline bool has_note(const RunConfig& run, std::string_view part) {
  return std::ranges::any_of(run.notes,
                             [&](const std::string& note) { return contains(note, part); });
}

/// The message of what is refused; empty where nothing is.
inline std::string refusal(std::string_view text, Dialect dialect, int64_t world_size = 0) {
  try {
    import_run(text, dialect, {.world_size = world_size});
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace samples
}  // namespace moetune::spec::dialects
