#include "profiler/store/untrusted_json.h"

#include <nlohmann/json.hpp>

namespace moetune::store {
namespace {

using nlohmann::json;

/// Reads a document without keeping it; stops where it goes beyond the limits. The library's own
/// way to watch a parser, a callback, takes a time that grows with the square of an array's length.
class Measure : public nlohmann::json_sax<json> {
 public:
  explicit Measure(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return count(); }
  bool boolean(bool /*value*/) override { return count(); }
  bool number_integer(number_integer_t /*value*/) override { return count(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return count(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return count(); }
  bool binary(binary_t& /*value*/) override { return count(); }
  bool string(string_t& /*value*/) override { return count(); }
  bool key(string_t& /*name*/) override { return count(); }
  bool start_object(size_t /*size*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t /*size*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const json::exception& /*error*/) override {
    return false;
  }

 private:
  bool count() { return ++num_values_ <= limits_.values && depth_ <= limits_.depth; }
  bool enter() {
    const bool is_within = count();
    ++depth_;
    return is_within;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const JsonLimits& limits_;
  int depth_ = 0;
  int64_t num_values_ = 0;
};

}  // namespace

nlohmann::json parse_untrusted(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) return json(json::value_t::discarded);
  Measure measure(limits);
  constexpr bool kStrict = true;
  if (!json::sax_parse(text, &measure, json::input_format_t::json, kStrict, limits.has_comments)) {
    return json(json::value_t::discarded);
  }
  return json::parse(text, nullptr, false, limits.has_comments);
}

}  // namespace moetune::store
