// A folder that lives as long as the test, and small helpers to damage files in it.
#pragma once

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace moetune::tests {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moetune-XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// True when the message of an exception holds all of these.
template <typename... Parts>
auto says(const Parts&... parts) {
  return [=](const std::exception& error) {
    const std::string text = error.what();
    const bool is_complete = ((text.find(parts) != std::string::npos) && ...);
    if (!is_complete) {
      BOOST_TEST_MESSAGE("the message was: " << text);
    }
    return is_complete;
  };
}

}  // namespace moetune::tests
