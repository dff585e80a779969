// Rows from a file; they are larger than specs.
#include "sweeps/planning/row_files.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/document.h"
#include "kernels/base/error.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

std::vector<PublishedRow> load_rows(const std::string& path) {
  constexpr size_t kMost = size_t{256} << 20;
  const std::string name = path == "-" ? kStandardInput : path;
  std::string text;
  if (path == "-") {
    text = read_at_most(std::cin, kMost, name);
  } else {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw base::UsageError(fmt::format("{}: cannot be read", shown_path(path)));
    text = read_at_most(file, kMost, name);
  }
  return published_rows_of(spec::parse_json(text, name), name);
}

}  // namespace moetune::sweeps
