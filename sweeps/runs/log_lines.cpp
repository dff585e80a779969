#include "sweeps/runs/log_lines.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace moetune::sweeps {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr char kEscape = '\x1b';

const char* find_in(const char* first, const char* end, char c) {
  return static_cast<const char*>(std::memchr(first, c, static_cast<size_t>(end - first)));
}

/// Behind the escape sequence that starts at `at`: colours and cursor moves, titles of windows.
const char* behind_escape(const char* at, const char* end) {
  if (++at == end) return end;
  if (*at == '[') {
    for (++at; at != end; ++at) {
      if (*at >= 0x40 && *at <= 0x7E) return at + 1;
      if (*at < 0x20) return at;
    }
    return end;
  }
  if (*at == ']') {
    while (at != end && *at != '\a' && *at != kEscape) ++at;
    if (at == end) return end;
    return *at == '\a' ? at + 1 : std::min(at + 2, end);
  }
  return at + 1;
}

/// In place: without escapes and NULs. The new end.
char* strip(char* first, char* end) {
  char* to = first;
  for (const char* from = first; from != end;) {
    if (*from == kEscape) {
      from = behind_escape(from, end);
    } else if (*from == '\0') {
      ++from;
    } else {
      *to++ = *from++;
    }
  }
  return to;
}

/// Where a number ends that the end of the text may have cut; a word that looks like one is none.
char* before_cut_number(char* first, char* end) {
  char* at = end;
  while (at != first && std::strchr("0123456789.,eE+-", at[-1]) != nullptr) --at;
  const bool is_word = at != first && std::isalpha(static_cast<unsigned char>(at[-1])) != 0;
  return is_word ? end : at;
}

}  // namespace

LogLines::LogLines(std::istream& in) : in_(in), buffer_(kBlockBytes, '\0') {}

void LogLines::fill() {
  std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
  end_ -= at_;
  at_ = 0;
  in_.read(buffer_.data() + end_, static_cast<std::streamsize>(buffer_.size() - end_));
  const auto count = static_cast<size_t>(in_.gcount());
  end_ += count;
  num_bytes_ += static_cast<int64_t>(count);
  const size_t tail = std::min(end_, kMostLineBytes);
  if (count > 0) tail_.assign(buffer_, end_ - tail, tail);
  is_at_end_ = count == 0;
}

std::string_view LogLines::clean(size_t first, size_t end, bool is_cut) {
  char* const begin = buffer_.data() + first;
  char* stop = buffer_.data() + end;
  const bool is_dirty =
      find_in(begin, stop, kEscape) != nullptr || find_in(begin, stop, '\0') != nullptr;
  if (is_dirty) stop = strip(begin, stop);
  if (is_cut) stop = before_cut_number(begin, stop);
  return {begin, static_cast<size_t>(stop - begin)};
}

bool LogLines::next(LogLine& line) {
  for (;;) {
    const char* const first = buffer_.data() + at_;
    const char* const stop = buffer_.data() + std::min(end_, at_ + kMostLineBytes);
    const char* end = find_in(first, stop, '\n');
    const char* const mark = find_in(first, end == nullptr ? stop : end, '\r');
    const bool may_go_on = end == nullptr && mark == nullptr && stop == buffer_.data() + end_;
    if (may_go_on && !is_at_end_) {
      fill();
      continue;
    }
    if (end_ == at_) return false;
    line.number = number_;
    if (mark != nullptr) end = mark;
    if (end == nullptr) {
      const bool is_too_long = end_ - at_ >= kMostLineBytes;
      if (is_too_long && !is_in_cut_line_) ++num_cut_lines_;
      is_in_cut_line_ = is_too_long;
      const size_t begin = at_;
      at_ = static_cast<size_t>(stop - buffer_.data());
      line.text = clean(begin, at_, true);
      return true;
    }
    const size_t begin = at_;
    const auto last = static_cast<size_t>(end - buffer_.data());
    at_ = last + 1;
    const bool is_windows = *end == '\r' && at_ < end_ && buffer_[at_] == '\n';
    if (is_windows) ++at_;
    if (*end == '\n' || is_windows) {
      ++number_;
      is_in_cut_line_ = false;
    }
    line.text = clean(begin, last, false);
    return true;
  }
}

}  // namespace moetune::sweeps
