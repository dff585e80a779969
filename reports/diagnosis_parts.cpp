#include "reports/diagnosis_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "reports/format.h"
#include "reports/html.h"

namespace moetune::reports {

std::string told(const std::string& text) { return escape(shortened(text, kMostToldBytes)); }

std::string ratio_text(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

std::string meter(double ratio) {
  return fmt::format(
      "<span class=\"meter\" aria-hidden=\"true\"><span style=\"width:{:.1f}%\"></span></span>",
      100 * std::clamp(ratio, 0.0, 1.0));
}

BudgetBar bar_of(const DiagnosedBar& window) {
  BudgetBar bar;
  bar.label = fmt::format("rank {}", window.rank);
  bar.name = fmt::format("Rank {}, {}", window.rank, window.window);
  bar.cell = fmt::format("{}, {}", escape(window.rank), told(window.window));
  bar.step_ns = static_cast<double>(window.window_ns);
  const auto add = [&](size_t turn, const char* name, std::string_view color, int hatch,
                       int64_t ns) {
    bar.parts[{turn, name, color, hatch}] = static_cast<double>(std::max<int64_t>(0, ns));
  };
  const int64_t apart = window.idle_ns + window.exposed_comm_ns + window.exposed_copy_ns;
  add(0, "compute, alone or beside others", "green", 0, window.window_ns - apart);
  add(1, "exposed communication", "orange", 1, window.exposed_comm_ns);
  add(2, "exposed copies", "sky", 2, window.exposed_copy_ns);
  add(3, "idle, the host was late", "pink", 3, window.host_late_ns);
  add(4, "idle, for another reason", "line", 6, window.idle_ns - window.host_late_ns);
  return bar;
}

std::string fact_list(const std::vector<NamedLine>& facts) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& [name, text] : facts) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(name), told(text));
  }
  return html + "</dl>\n";
}

std::string note_list(const std::vector<std::string>& notes) {
  if (notes.empty()) return "";
  std::string html = "<h3>Notes</h3>\n<ul class=\"facts\">\n";
  constexpr size_t kMostNotes = 100;
  for (size_t i = 0; i < std::min(notes.size(), kMostNotes); ++i) {
    html += fmt::format("<li>{}</li>\n", told(notes[i]));
  }
  if (notes.size() > kMostNotes) {
    html += fmt::format("<li>and {} more</li>\n", notes.size() - kMostNotes);
  }
  return html + "</ul>\n";
}

}  // namespace moetune::reports
