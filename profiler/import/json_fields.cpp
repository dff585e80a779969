#include "profiler/import/json_fields.h"

#include <simdjson.h>

#include <cstring>
#include <vector>

#include "kernels/base/text.h"
#include "profiler/import/json_scan.h"

namespace moetune::profiler {
namespace {

namespace ondemand = simdjson::ondemand;

/// Deeper values are refused: they are read by recursion.
constexpr int kMaxDepth = 64;

struct TooDeep {};

/// What is asked for lies behind the end: a bracket closes what another has opened.
struct Unbalanced {};

/// What JSON takes for blanks; simdjson leaves those behind a token in it.
constexpr std::string_view kJsonBlanks = " \n\r\t";

/// Gives the leaves of one text to one sink.
class Walk {
 public:
  Walk(std::string_view json, JsonFieldSink& sink) : json_(json), sink_(sink) {}

  void take_object(ondemand::object object, std::string_view key, int depth) {
    for (ondemand::field member : object) {
      JsonField field;
      field.parent = key;
      field.key = key_of(member);
      field.depth = depth;
      take_value(member.value(), field);
    }
  }

  void take_list(ondemand::array list, std::string_view key, int depth) {
    for (ondemand::value element : list) {
      JsonField field;
      field.parent = key;
      field.depth = depth;
      take_value(element, field);
    }
  }

 private:
  /// As it stands in the file: releases of simdjson differ in how they unescape keys, and nobody
  /// looks for a key that needs it.
  std::string_view key_of(ondemand::field& member) const {
    const char* const begin = member.key().raw();
    JsonScan scan;
    scan.is_in_string = true;
    const char* const end = scan_json(begin, json_.data() + json_.size(), scan);
    if (end == nullptr) throw Unbalanced();
    return {begin, static_cast<size_t>(end - begin - 1)};
  }

  void take_value(ondemand::value value, JsonField field) {
    if (field.depth > kMaxDepth) throw TooDeep();
    // Told apart by the first character: "inf" and "nan", which are no JSON, stand in some files.
    const std::string_view token = value.raw_json_token();
    const char* const end = json_.data() + json_.size();
    if (token.data() >= end || token.size() > static_cast<size_t>(end - token.data())) {
      throw Unbalanced();
    }
    const std::string_view key = field.key.empty() ? field.parent : field.key;
    switch (token.front()) {
      case '{':
        return take_object(value.get_object(), key, field.depth + 1);
      case '[':
        return take_list(value.get_array(), key, field.depth + 1);
      case '"': {
        field.is_text = true;
        std::string_view text;
        if (value.get_string().get(text) != simdjson::SUCCESS) {
          // Half of a surrogate pair, as Python writes for bytes that were no text.
          text = base::trimmed(token, kJsonBlanks);
          text = text.substr(1, text.size() < 2 ? 0 : text.size() - 2);
        }
        field.text = text;
        return sink_.take(field);
      }
      default:
        field.text = base::trimmed(token, kJsonBlanks);
        return sink_.take(field);
    }
  }

  std::string_view json_;
  JsonFieldSink& sink_;
};

}  // namespace

struct JsonFields::Parser {
  ondemand::parser parser;
  std::vector<char> text;
};

JsonFields::JsonFields() : parser_(std::make_unique<Parser>()) {}
JsonFields::~JsonFields() = default;

std::string JsonFields::parse(std::string_view json, JsonFieldSink& sink) {
  // A copy, since what lies behind the end must not look like more of it: the parser goes there
  // when brackets do not match.
  std::vector<char>& text = parser_->text;
  if (text.size() < json.size() + simdjson::SIMDJSON_PADDING) {
    text.resize(json.size() + json.size() / 4 + simdjson::SIMDJSON_PADDING);
  }
  std::memcpy(text.data(), json.data(), json.size());
  std::memset(text.data() + json.size(), 0, simdjson::SIMDJSON_PADDING);
  const std::string_view copy(text.data(), json.size());
  try {
    ondemand::document document = parser_->parser.iterate(
        simdjson::padded_string_view(copy.data(), copy.size(), text.size()));
    Walk walk(copy, sink);
    if (copy.starts_with('[')) {
      walk.take_list(document.get_array(), {}, 1);
    } else {
      walk.take_object(document.get_object(), {}, 1);
    }
    return {};
  } catch (const simdjson::simdjson_error& error) {
    return error.error() == simdjson::UTF8_ERROR ? "it is not UTF-8"
                                                 : std::string("it is not JSON: ") + error.what();
  } catch (const Unbalanced&) {
    return "it is not JSON: its brackets do not match";
  } catch (const TooDeep&) {
    return "it has more than 64 objects and lists within one another";
  }
}

}  // namespace moetune::profiler
