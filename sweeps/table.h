// Text tables and widths on a terminal.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/utf8.h"

namespace moetune::sweeps {

/// Columns that a text takes: code points, control characters none.
size_t display_width(std::string_view text);
/// The text, or its start and an ellipsis when it is wider than `width`.
std::string cut_to_width(std::string_view text, size_t width);
/// Columns of the terminal behind a descriptor; empty where it is no terminal.
std::optional<size_t> terminal_width(int descriptor);
/// Its lines; empty where it is no terminal.
std::optional<size_t> terminal_height(int descriptor);
/// What the cells are made of, and all that is printed beside a table.
using base::one_line;

class TextTable {
 public:
  enum class Align : unsigned char { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Where not all columns fit, those above 0 are left out, the largest first.
    int drop_order = 0;
    bool is_text = false;  ///< may be cut, as the last column always may
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns. Cells are made one line.
  void add(std::vector<std::string> cells);
  /// Lines with a header; two blanks between columns. With a `width`, columns are left out and
  /// those of text are cut so that lines fit.
  [[nodiscard]] std::string text(std::optional<size_t> width) const;

 private:
  [[nodiscard]] bool may_be_cut(size_t column) const {
    return columns_[column].is_text || column + 1 == columns_.size();
  }
  /// The columns that are shown; `widths` are those of all columns uncut.
  [[nodiscard]] std::vector<size_t> shown_columns(const std::vector<size_t>& widths,
                                                  size_t width) const;
  /// Shares what the other columns leave among those that may be cut: none gets more than it needs.
  void fit(const std::vector<size_t>& shown, std::vector<size_t>& widths, size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moetune::sweeps
