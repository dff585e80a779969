// Reading of a row that anybody may have written: what has the wrong type is refused by name. It
// can note what was asked for, so that the page of formats is compared with what is really read.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace moetune::sweeps {

/// One object. Keys with null, with words such as "unknown" and "not stated", and with an object of
/// nothing else count as absent. Keeps references to the object and to `asked`.
class RowReader {
 public:
  /// `asked` gets the dotted path of every key that is asked for, behind `path`; null: none is
  /// kept.
  explicit RowReader(const nlohmann::json& row, std::set<std::string>* asked = nullptr,
                     std::string path = {})
      : row_(row), asked_(asked), path_(std::move(path)) {}

  [[nodiscard]] bool has(const char* key) const;
  /// Of a key that is there.
  [[nodiscard]] const nlohmann::json& at(const char* key) const { return row_.at(key); }

  /// Values, or `otherwise` where there is none. They throw base::UsageError for other types and
  /// for numbers out of range.
  [[nodiscard]] std::string text(const char* key, std::string otherwise = {}) const;
  [[nodiscard]] int64_t integer(const char* key, int64_t otherwise, int64_t min = 1) const;
  [[nodiscard]] int32_t size(const char* key, int32_t otherwise) const;
  /// From 0 to 1e18.
  [[nodiscard]] std::optional<double> number(const char* key) const;

  /// Texts as they are, anything else as JSON writes it: "true", "2". Empty where there is none.
  [[nodiscard]] std::string word(const char* key) const;
  /// The texts of a list, or the parts of one text between commas, plus signs and blanks.
  [[nodiscard]] std::vector<std::string> words(const char* key) const;

  /// What has another type counts as absent here.
  [[nodiscard]] bool is_true(const char* key) const;
  [[nodiscard]] RowReader object(const char* key) const;
  [[nodiscard]] std::vector<RowReader> objects(const char* key) const;
  [[nodiscard]] std::vector<std::string> texts(const char* key) const;

  [[nodiscard]] const nlohmann::json& document() const { return row_; }
  /// The same place with other contents, such as those with the keys spelled in one way.
  [[nodiscard]] RowReader with(const nlohmann::json& contents) const {
    return RowReader(contents, asked_, path_);
  }

 private:
  const nlohmann::json& row_;
  std::set<std::string>* asked_;
  std::string path_;
};

}  // namespace moetune::sweeps
