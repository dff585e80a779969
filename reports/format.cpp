// The words for statuses and walls, and how figures are rounded on the page.
#include "reports/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/units.h"
#include "kernels/base/utf8.h"
#include "reports/html.h"

namespace moetune::reports {
namespace {

constexpr std::string_view kUnknown = "–";

constexpr auto kStatusWords = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"ok", "ran to its end"},
    {"oom", "out of memory"},
    {"invalid", "breaks a rule"},
    {"pruned", "ruled out by prediction"},
    {"wrong", "its losses are not the reference's"},
    {"failed", "ended with an error"},
    {"crashed", "ended by a signal"},
    {"hung", "no new step in time"},
    {"interrupted", "stopped from outside"},
    {"running", "not finished"},
});

std::string badge(std::string_view family, std::string_view value) {
  if (value.empty()) {
    return std::string(kUnknown);
  }
  return fmt::format("<span class=\"badge {0} {0}-{1}\">{2}</span>", family, identifier(value),
                     escape(value));
}

}  // namespace

std::string bytes_text(std::optional<int64_t> bytes) {
  return bytes ? base::format_bytes(*bytes) : std::string(kUnknown);
}

std::string ns_text(std::optional<int64_t> ns) {
  return ns ? base::format_ns(*ns) : std::string(kUnknown);
}

std::string count_text(std::optional<double> count) {
  return count && std::isfinite(*count) ? base::format_count(*count) : std::string(kUnknown);
}

std::string signed_percent(double ratio) {
  if (!std::isfinite(ratio)) {
    return std::string(kUnknown);
  }
  const double percent = 100 * ratio;
  if (std::abs(percent) < 0.005) {
    return "0.00 %";
  }
  return fmt::format("{}{:.{}f} %", percent < 0 ? "−" : "+", std::abs(percent),
                     std::abs(percent) < 1 ? 2 : 1);
}

std::string number_text(std::optional<double> value, int digits) {
  return value && std::isfinite(*value) ? fmt::format("{:.{}f}", *value, digits)
                                        : std::string(kUnknown);
}

std::string status_badge(std::string_view status) { return badge("status", status); }
std::string phase_badge(std::string_view phase) { return badge("phase", phase); }
std::string wall_badge(std::string_view wall) { return badge("wall", wall); }
std::string kind_badge(std::string_view kind) { return badge("kind", kind); }

std::string_view status_words(std::string_view status) {
  for (const auto& [name, words] : kStatusWords) {
    if (name == status) return words;
  }
  return "";
}

std::string status_in_words(std::string_view status) {
  const std::string_view words = status_words(status);
  return escape(status) + (words.empty() ? "" : fmt::format(" ({})", escape(words)));
}

std::string breakable(std::string_view text) {
  std::string result;
  for (const char c : escape_or_dash(text)) {
    result += c;
    if (c == '_' || c == ',') {
      result += "<wbr>";
    }
  }
  return result;
}

std::string shortened(const std::string& text, size_t most_bytes) {
  return base::shortened(text, most_bytes, " …");
}

std::string trial_link(int64_t ordinal) {
  return fmt::format("<a href=\"#trial-{0}\">#{0}</a>", ordinal);
}

std::string number_cell(std::optional<double> value, std::string_view text) {
  if (!value || !std::isfinite(*value)) {
    return fmt::format("<td class=\"num\">{}</td>", kUnknown);
  }
  return fmt::format("<td class=\"num\" data-value=\"{:.9g}\">{}</td>", *value, escape(text));
}

std::string speed_number(double value) {
  constexpr double kWholeFrom = 10;
  constexpr double kWholeTo = 1e9;
  const double size = std::abs(value);
  return size >= kWholeFrom && size < kWholeTo ? fmt::format("{:.0f}", value)
                                               : fmt::format("{:.3g}", value);
}

std::optional<double> as_double(std::optional<int64_t> value) {
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

}  // namespace moetune::reports
