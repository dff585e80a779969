// Where a value was read from, for messages: a file, a part of it, a line.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace moetune::spec {

/// The line on which each key stands, counted from 1, by dotted path ("intra_node.latency_ns");
/// that of the document's first bracket by the empty path.
using Lines = std::map<std::string, int64_t, std::less<>>;

/// Names what is read: a file, or a part of one.
class Source {
 public:
  Source(std::string name) : name_(std::move(name)) {}  // NOLINT(google-explicit-constructor)
  Source(const char* name) : name_(name) {}             // NOLINT(google-explicit-constructor)
  Source(std::string name, Lines lines);

  /// The object or value under `key` of this one.
  [[nodiscard]] Source within(std::string_view key) const;
  [[nodiscard]] const std::string& name() const { return name_; }
  /// "FILE: " or "FILE: line 7: " with the line of `path`, or, where it is missing, of what it
  /// would stand in.
  [[nodiscard]] std::string prefix(std::string_view path) const;

 private:
  std::string name_;
  std::string path_;  ///< of this part in the document
  std::shared_ptr<const Lines> lines_;
};

}  // namespace moetune::spec
