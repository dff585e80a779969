// The members of a JSON object, one after another, without reading what they hold. The text may be
// cut off: what tells files and events apart stands near their beginning.
#pragma once

#include <cstddef>
#include <string_view>

#include "profiler/import/json_scan.h"

namespace moetune::profiler {

class JsonMembers {
 public:
  /// Of a text that does not begin with '{' there are none.
  explicit JsonMembers(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {
    at_ = text.starts_with('{') ? at_ + 1 : end_;
  }

  /// Goes to the next member. False behind the last one, and where one is not there as a whole.
  bool next() {
    pass_blanks();
    if (at_ == end_ || *at_ != '"') return false;
    const char* const key = at_;
    if (!pass_closed()) return false;
    key_ = {key + 1, static_cast<size_t>(at_ - key - 2)};
    pass_blanks();
    if (at_ == end_ || *at_ != ':') return false;
    ++at_;
    pass_blanks();
    if (at_ == end_) return false;
    const char* const value = at_;
    if (*at_ == '"' || *at_ == '{' || *at_ == '[') {
      if (!pass_closed()) return false;
    } else {
      while (at_ < end_ && *at_ != ',' && *at_ != '}') ++at_;
    }
    value_ = {value, static_cast<size_t>(at_ - value)};
    return true;
  }

  /// Without quotes, with its escapes.
  [[nodiscard]] std::string_view key() const { return key_; }
  /// As it stands there: texts with their quotes. Blanks may follow a number.
  [[nodiscard]] std::string_view value() const { return value_; }

 private:
  void pass_blanks() {
    const auto is_blank = [](char c) {
      return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ',';
    };
    while (at_ < end_ && is_blank(*at_)) ++at_;
  }
  /// Of a text, an object or a list.
  bool pass_closed() {
    JsonScan scan;
    const char* const behind = scan_json(at_, end_, scan);
    if (behind != nullptr) at_ = behind;
    return behind != nullptr;
  }

  const char* at_;
  const char* end_;
  std::string_view key_;
  std::string_view value_;
};

}  // namespace moetune::profiler
