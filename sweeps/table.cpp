// Aligned text: which columns fit a terminal and how wide they are.
#include "sweeps/table.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kGap = 2;  ///< between columns
/// Text is cut to no less; and columns are left out rather than to cut it to less than the second.
constexpr size_t kMinText = 12;
constexpr size_t kReadableText = 32;

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

std::optional<size_t> terminal_height(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
  return size.ws_row;
}

void TextTable::add(std::vector<std::string> cells) {
  MOETUNE_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(),
                columns_.size());
  for (std::string& cell : cells) cell = one_line(cell);
  rows_.push_back(std::move(cells));
}

std::vector<size_t> TextTable::shown_columns(const std::vector<size_t>& widths,
                                             size_t width) const {
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  while (true) {
    size_t needed = 0;
    for (const size_t c : shown) {
      needed += (may_be_cut(c) ? std::min(widths[c], kReadableText) : widths[c]) + kGap;
    }
    const auto next =
        std::ranges::max_element(shown, {}, [&](size_t c) { return columns_[c].drop_order; });
    const bool has_next = next != shown.end() && columns_[*next].drop_order > 0;
    if (needed <= width + kGap || !has_next) return shown;
    shown.erase(next);
  }
}

void TextTable::fit(const std::vector<size_t>& shown, std::vector<size_t>& widths,
                    size_t width) const {
  std::vector<size_t> texts;
  size_t used = (shown.size() - 1) * kGap;
  for (const size_t c : shown) {
    if (may_be_cut(c)) {
      texts.push_back(c);
    } else {
      used += widths[c];
    }
  }
  size_t left = width > used ? width - used : 0;
  // The narrowest first: what it does not need is the others'.
  std::ranges::stable_sort(texts, {}, [&](size_t c) { return widths[c]; });
  for (size_t i = 0; i < texts.size(); ++i) {
    size_t& own = widths[texts[i]];
    own = std::min(own, std::max(left / (texts.size() - i), kMinText));
    left -= std::min(left, own);
  }
}

std::string TextTable::text(std::optional<size_t> width) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  const std::vector<size_t> shown =
      shown_columns(widths, width.value_or(std::numeric_limits<size_t>::max() / 2));
  if (width) fit(shown, widths, *width);
  std::string text;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    for (const size_t c : shown) {
      const std::string cell = cut_to_width(cell_of(c), widths[c]);
      const std::string padding(widths[c] - display_width(cell), ' ');
      line += columns_[c].align == Align::right ? padding + cell : cell + padding;
      if (c != shown.back()) line.append(kGap, ' ');
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
