// A pull reader of one JSON document of any length: goes into objects and lists, hands out whole
// values, passes over what nobody wants. Keeps one value at a time, so that the memory is bounded
// by the largest event and not by the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/import/byte_source.h"

namespace moetune::profiler {

/// Every mistake of the document is a base::UsageError that names the file and the byte.
class JsonStream {
 public:
  /// A larger value that is asked for is refused.
  static constexpr size_t kMaxValueBytes = size_t{64} << 20;

  JsonStream(std::unique_ptr<ByteSource> source, std::string path);

  /// First character of the next value; 0 at the end of the file.
  char peek();
  /// Into the object or list that starts here.
  void enter();
  /// In an object: reads the next key, or leaves it and returns false. The key is as it stands in
  /// the file, with its escapes, and lasts until the next call.
  bool next_key(std::string_view& key);
  /// In a list: goes to the next element, or leaves it and returns false.
  bool next_element();
  /// The value that starts here, up to its end. Lasts until the next call.
  std::string_view value();
  /// Passes over the value that starts here.
  void skip();
  /// Throws unless nothing but blanks is left.
  void expect_end();

  /// Bytes of the document before the place where it stands.
  [[nodiscard]] int64_t offset() const { return offset_ + static_cast<int64_t>(at_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Throws base::UsageError: "<path>: byte <offset>: <text>".
  [[noreturn]] void fail(const std::string& text) const;

 private:
  /// Moves what is from `keep` on to the front and reads more behind it; false at the end.
  bool refill(size_t keep);
  std::string_view take_value(bool is_kept);
  void expect(char character, const char* what);
  bool next_member(char closing);

  std::unique_ptr<ByteSource> source_;
  std::string path_;
  std::vector<char> buffer_;
  size_t at_ = 0;          // in buffer_: of the next character
  size_t filled_ = 0;      // of buffer_
  int64_t offset_ = 0;     // of the document: of the start of buffer_
  std::string open_;       // closing brackets of what was entered
  std::string key_;        // that was read last
  bool is_first_ = false;  // nothing of what was entered last has been read
};

}  // namespace moetune::profiler
