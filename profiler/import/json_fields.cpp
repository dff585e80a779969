#include "profiler/import/json_fields.h"

#include <simdjson.h>

#include "profiler/import/json_stream.h"

namespace moetune::profiler {
namespace {

namespace ondemand = simdjson::ondemand;

static_assert(JsonStream::kPaddingBytes >= simdjson::SIMDJSON_PADDING);
/// Deeper values are refused: they are read by recursion.
constexpr int kMaxDepth = 64;

struct TooDeep {};

std::string_view trimmed(std::string_view token) {
  const size_t last = token.find_last_not_of(" \n\r\t");
  return last == std::string_view::npos ? std::string_view() : token.substr(0, last + 1);
}

void take_value(ondemand::value value, JsonField field, JsonFieldSink& sink);

void take_object(ondemand::object object, std::string_view key, int depth, JsonFieldSink& sink) {
  for (ondemand::field member : object) {
    JsonField field;
    field.parent = key;
    field.key = member.unescaped_key();
    field.depth = depth;
    take_value(member.value(), field, sink);
  }
}

void take_list(ondemand::array list, std::string_view key, int depth, JsonFieldSink& sink) {
  for (ondemand::value element : list) {
    JsonField field;
    field.parent = key;
    field.depth = depth;
    take_value(element, field, sink);
  }
}

void take_value(ondemand::value value, JsonField field, JsonFieldSink& sink) {
  if (field.depth > kMaxDepth) throw TooDeep();
  // Told apart by the first character: "inf" and "nan", which are no JSON, stand in some files.
  const std::string_view token = value.raw_json_token();
  const std::string_view key = field.key.empty() ? field.parent : field.key;
  switch (token.front()) {
    case '{':
      return take_object(value.get_object(), key, field.depth + 1, sink);
    case '[':
      return take_list(value.get_array(), key, field.depth + 1, sink);
    case '"': {
      field.is_text = true;
      std::string_view text;
      if (value.get_string().get(text) != simdjson::SUCCESS) {
        // Half of a surrogate pair, as Python writes for bytes that were no text.
        text = trimmed(token);
        text = text.substr(1, text.size() < 2 ? 0 : text.size() - 2);
      }
      field.text = text;
      return sink.take(field);
    }
    default:
      field.text = trimmed(token);
      return sink.take(field);
  }
}

}  // namespace

struct JsonFields::Parser {
  ondemand::parser parser;
};

JsonFields::JsonFields() : parser_(std::make_unique<Parser>()) {}
JsonFields::~JsonFields() = default;

std::string JsonFields::parse(std::string_view json, JsonFieldSink& sink) {
  try {
    ondemand::document document = parser_->parser.iterate(simdjson::padded_string_view(
        json.data(), json.size(), json.size() + JsonStream::kPaddingBytes));
    if (json.starts_with('[')) {
      take_list(document.get_array(), {}, 1, sink);
    } else {
      take_object(document.get_object(), {}, 1, sink);
    }
    return {};
  } catch (const simdjson::simdjson_error& error) {
    return error.error() == simdjson::UTF8_ERROR ? "it is not UTF-8"
                                                 : std::string("it is not JSON: ") + error.what();
  } catch (const TooDeep&) {
    return "it has more than 64 objects and lists within one another";
  }
}

}  // namespace moetune::profiler
