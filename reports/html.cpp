// Escapes text for HTML and for JSON inside HTML, and takes the machine's paths out of both.
#include "reports/html.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/local_paths.h"

namespace moetune::reports {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Length in bytes of a character at the start of `text` that reorders what stands around it or is a
// control character of the second kind (U+0080 to U+009F), else 0.
size_t misleading_mark(std::string_view text) {
  if (text.size() >= 2 && text[0] == '\xc2' && static_cast<unsigned char>(text[1]) < 0xa0) return 2;
  if (text.size() < 3 || text[0] != '\xe2') {
    return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const auto third = static_cast<unsigned char>(text[2]);
  const bool is_direction = second == 0x80 && (third == 0x8e || third == 0x8f);
  const bool is_embedding = second == 0x80 && third >= 0xaa && third <= 0xae;
  const bool is_isolate = second == 0x81 && third >= 0xa6 && third <= 0xa9;
  return is_direction || is_embedding || is_isolate ? 3 : 0;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

void drop_folders(nlohmann::json& value) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    if (text.find('/') != std::string::npos) text = without_folders(text);
  } else if (value.is_structured()) {
    for (nlohmann::json& item : value) {
      drop_folders(item);
    }
  }
}

}  // namespace

std::string escape(std::string_view original) {
  const std::string text = without_folders(original);
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (const size_t length = misleading_mark(std::string_view(text).substr(i)); length > 0) {
      result += kReplacement;
      i += length - 1;
    } else if (is_control(c)) {
      result += kReplacement;
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (c == '\'') {
      result += "&#39;";
    } else {
      result += c;
    }
  }
  return result;
}

bool is_plain_line(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f ||
        misleading_mark(text.substr(i)) > 0) {
      return false;
    }
  }
  return true;
}

std::string escape_or_dash(std::string_view text) { return text.empty() ? "–" : escape(text); }

std::string json_element(std::string_view id, nlohmann::json data) {
  drop_folders(data);
  const std::string text = data.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "\\u003c";
        break;
      case '>':
        safe += "\\u003e";
        break;
      case '&':
        safe += "\\u0026";
        break;
      default:
        safe += c;
    }
  }
  return fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", id, safe);
}

std::string identifier(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    result += is_plain ? c : '-';
  }
  return result;
}

}  // namespace moetune::reports
