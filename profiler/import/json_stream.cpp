#include "profiler/import/json_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/import/json_scan.h"

namespace moetune::profiler {
namespace {

constexpr size_t kPieceBytes = size_t{512} << 10;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
/// What may follow a number or a literal.
bool ends_scalar(char c) { return c == ',' || c == '}' || c == ']' || c == ':' || is_blank(c); }

/// A character for a sentence.
std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

}  // namespace

JsonStream::JsonStream(std::unique_ptr<ByteSource> source, std::string path)
    : source_(std::move(source)), path_(std::move(path)) {
  buffer_.resize(2 * kPieceBytes);
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of UTF-8, by some editors
  while (filled_ < kMark.size() && refill(0)) {
  }
  if (std::string_view(buffer_.data(), filled_).starts_with(kMark)) at_ = kMark.size();
}

void JsonStream::fail(const std::string& text) const {
  throw base::UsageError(fmt::format("{}: byte {}: {}", path_, offset(), text));
}

bool JsonStream::refill(size_t keep) {
  if (keep > 0) {
    std::memmove(buffer_.data(), buffer_.data() + keep, filled_ - keep);
    filled_ -= keep;
    at_ -= keep;
    offset_ += static_cast<int64_t>(keep);
  }
  if (filled_ + kPieceBytes > buffer_.size()) {
    buffer_.resize(std::max(buffer_.size() * 2, filled_ + kPieceBytes));
  }
  const size_t got = source_->read(buffer_.data() + filled_, kPieceBytes);
  filled_ += got;
  return got > 0;
}

char JsonStream::peek() {
  while (true) {
    while (at_ < filled_ && is_blank(buffer_[at_])) ++at_;
    if (at_ < filled_) return buffer_[at_];
    if (!refill(at_)) return '\0';
  }
}

void JsonStream::expect(char character, const char* what) {
  const char found = peek();
  if (at_ == filled_) fail(fmt::format("the file is cut: it ends before {}", what));
  if (found != character) fail(fmt::format("{} is missing, found {}", what, shown(found)));
  ++at_;
}

void JsonStream::enter() {
  const char opening = peek();
  if (opening != '{' && opening != '[') fail("an object or a list is missing");
  ++at_;
  open_.push_back(opening == '{' ? '}' : ']');
  is_first_ = true;
}

bool JsonStream::next_member(char closing) {
  const char found = peek();
  if (at_ == filled_) fail("the file is cut: it ends within an object or a list");
  if (found == closing) {
    ++at_;
    open_.pop_back();
    is_first_ = false;
    return false;
  }
  if (!is_first_) expect(',', "a comma");
  is_first_ = false;
  return true;
}

bool JsonStream::next_key(std::string_view& key) {
  if (!next_member('}')) return false;
  if (peek() != '"') fail(at_ == filled_ ? "the file is cut" : "a key in quotes is missing");
  const std::string_view quoted = take_value(true);
  key_ = quoted.substr(1, quoted.size() - 2);  // what follows may move the buffer
  expect(':', "a colon");
  key = key_;
  return true;
}

bool JsonStream::next_element() {
  if (!next_member(']')) return false;
  const char found = peek();
  if (at_ == filled_) fail("the file is cut: it ends within a list");
  if (found == ']' || found == ',') fail("a value is missing");
  return true;
}

std::string_view JsonStream::value() { return take_value(true); }

void JsonStream::skip() { take_value(false); }

std::string_view JsonStream::take_value(bool is_kept) {
  const char first = peek();
  if (at_ == filled_) fail("the file is cut: a value is missing");
  const int64_t start = offset();
  size_t begin = at_;  // of the value, in the buffer
  const auto check_size = [&] {
    if (is_kept && at_ - begin > kMaxValueBytes) {
      throw base::UsageError(
          fmt::format("{}: byte {}: a value of more than {} MB, which no trace has", path_, start,
                      kMaxValueBytes >> 20U));
    }
  };
  const auto go_on = [&](const char* what) {
    check_size();
    if (!refill(is_kept ? begin : at_)) {
      throw base::UsageError(
          fmt::format("{}: byte {}: the file is cut: {} does not end", path_, start, what));
    }
    begin = 0;
  };
  if (first == '{' || first == '[' || first == '"') {
    JsonScan scan;
    while (true) {
      const char* const data = buffer_.data();
      const char* const end = scan_json(data + at_, data + filled_, scan);
      if (end != nullptr) {
        at_ = static_cast<size_t>(end - data);
        break;
      }
      at_ = filled_;
      go_on(first == '"' ? "a text" : "an object or list");
    }
  } else {
    if (ends_scalar(first)) fail(fmt::format("a value is missing, found {}", shown(first)));
    while (true) {
      while (at_ < filled_ && !ends_scalar(buffer_[at_])) ++at_;
      if (at_ < filled_ || open_.empty()) break;
      go_on("a number");
    }
  }
  check_size();
  return is_kept ? std::string_view(buffer_.data() + begin, at_ - begin) : std::string_view();
}

void JsonStream::expect_end() {
  const char found = peek();
  if (at_ < filled_) fail(fmt::format("{} behind the end of the document", shown(found)));
}

}  // namespace moetune::profiler
