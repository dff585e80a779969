// Aligned text; see table.h.
#include "sweeps/table.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMinLastColumn = 12;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return !is_continuation(c) && !is_control(c); }));
}

std::string cut_to_width(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  size_t num_columns = 0;
  size_t end = 0;
  while (end < text.size() && (num_columns + 1 < width || is_continuation(text[end]))) {
    if (!is_continuation(text[end])) ++num_columns;
    ++end;
  }
  return std::string(text.substr(0, end)) + "\u2026";
}

std::optional<size_t> terminal_width(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    // C1 controls, which some terminals obey, are two bytes in UTF-8.
    const bool is_c1 =
        text[i] == '\xc2' && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_control(text[i]) || is_c1) {
      line += ' ';
      if (is_c1) ++i;
    } else {
      line += text[i];
    }
  }
  return line;
}

void TextTable::add(std::vector<std::string> cells) {
  MOETUNE_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(),
                columns_.size());
  for (std::string& cell : cells) cell = one_line(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(std::optional<size_t> width) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  if (width) {
    size_t used = 0;
    for (size_t c = 0; c + 1 < widths.size(); ++c) used += widths[c] + 2;
    const size_t left = *width > used ? *width - used : 0;
    widths.back() = std::min(widths.back(), std::max(left, kMinLastColumn));
  }
  std::string text;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cut_to_width(cell_of(c), widths[c]);
      const std::string padding(widths[c] - display_width(cell), ' ');
      line += columns_[c].align == Align::right ? padding + cell : cell + padding;
      if (c + 1 < columns_.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) { return std::string_view(columns_[c].title); });
  for (const auto& row : rows_) {
    add_line([&](size_t c) { return std::string_view(row[c]); });
  }
  return text;
}

}  // namespace moetune::sweeps
