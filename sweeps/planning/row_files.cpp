// Rows from a file; they are larger than specs.
#include "sweeps/planning/row_files.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/spec/document.h"
#include "kernels/base/error.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

std::vector<PublishedRow> load_rows(const std::string& path) {
  constexpr size_t kMost = size_t{256} << 20;
  std::string text;
  const std::string name = path == "-" ? kStandardInput : path;
  const auto read = [&](std::istream& in) {
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (in.bad() || text.size() > kMost) {
      throw base::UsageError(
          fmt::format("{}: cannot be read, or has more than {} MiB", name, kMost >> 20));
    }
  };
  if (path == "-") {
    read(std::cin);
  } else {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw base::UsageError(fmt::format("{}: cannot be read", path));
    read(file);
  }
  return published_rows_of(spec::parse_json(text, name), name);
}

}  // namespace moetune::sweeps
