#include "reports/untrusted_json.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

struct TooLarge {};

}  // namespace

json parse_within(const std::string& text, const JsonLimits& limits) {
  const json none(json::value_t::discarded);
  if (text.size() > limits.bytes) return none;
  int64_t num_values = 0;
  const auto keep = [&](int depth, json::parse_event_t /*event*/, json& /*value*/) {
    if (depth > limits.depth || ++num_values > limits.values) throw TooLarge{};
    return true;
  };
  try {
    return json::parse(text, keep, false);
  } catch (const TooLarge&) {
    return none;
  }
}

}  // namespace moetune::reports
