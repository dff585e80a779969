// A database of the fixture and the page that is made of it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "profiler/store/store.h"
#include "reports/report.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"

namespace moetune::tests {

/// A database and its page.
class Page {
 public:
  explicit Page(const FixtureOptions& fixture = {}, const reports::ReportOptions& options = {}) {
    make_fixture(path(), fixture);
    text = reports::render_report(store::Store::open_read_only(path()), options);
  }
  [[nodiscard]] std::string path() const { return folder_.file("runs.db"); }
  [[nodiscard]] bool has(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
  [[nodiscard]] size_t count(const std::string& part) const {
    size_t result = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++result;
    }
    return result;
  }
  /// The data of a chart.
  [[nodiscard]] nlohmann::json data(const std::string& name) const {
    const std::string mark = "id=\"data-" + name + "\">";
    const size_t start = text.find(mark) + mark.size();
    return nlohmann::json::parse(text.substr(start, text.find("</script>", start) - start));
  }
  /// Everything but the program's own script.
  [[nodiscard]] std::string markup() const {
    const size_t start = text.rfind("<script>");
    return text.substr(0, start);
  }

  std::string text;

 private:
  TempFolder folder_;
};

}  // namespace moetune::tests
