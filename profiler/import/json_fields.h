// The leaves of one JSON value, in its order: what importers read of an event. The only place that
// knows simdjson.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace moetune::profiler {

/// A leaf. Views last until the next call of JsonFields::parse.
struct JsonField {
  std::string_view parent;  ///< key of the object or list that it stands in; empty at the top
  std::string_view key;     ///< with its escapes; empty for an element of a list
  std::string_view text;    ///< texts without quotes and escapes; numbers and literals as written
  bool is_text = false;
  int depth = 1;  ///< objects and lists that it stands in
};

/// What takes the leaves.
class JsonFieldSink {
 public:
  virtual ~JsonFieldSink() = default;
  virtual void take(const JsonField& field) = 0;
};

class JsonFields {
 public:
  JsonFields();
  ~JsonFields();
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  /// Gives all leaves of an object or list to the sink. Returns what is wrong with it, in words;
  /// empty: it is JSON of UTF-8.
  [[nodiscard]] std::string parse(std::string_view json, JsonFieldSink& sink);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace moetune::profiler
