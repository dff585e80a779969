// The space of a plan as two charts: memory against throughput, and a map of the four large sizes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/units.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/plan_sections.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

/// Marks that need more than so many times what a device has are only counted.
constexpr double kMostOverCapacity = 2;
/// Rows of the table below the map; the others are in the map.
constexpr size_t kMostCells = 200;

json mark_json(const PlanMark& mark) {
  return {{"bytes", std::llround(mark.needed_bytes)},
          {"tokens", mark.tokens_per_s},
          {"label", mark.label}};
}

/// The two figures that are marks, as cells of a table.
std::string mark_cells(const PlanMark& mark) {
  return number_cell(mark.needed_bytes, rounded_bytes(mark.needed_bytes)) +
         number_cell(mark.tokens_per_s, fmt::format("{:.0f}", mark.tokens_per_s));
}

bool is_faster(const PlanRegion* a, const PlanRegion* b) {
  const auto key = [](const PlanRegion& region) {
    return region.num_fit > 0 ? region.best->tokens_per_s : -1;
  };
  return key(*a) > key(*b);
}

}  // namespace

std::string plan_front(const PlanPage& page) {
  if (page.front.empty() && page.regions.empty()) return "";
  json front = json::array();
  std::string table =
      "<div class=\"scroll tall\"><table class=\"compact\"><caption>The front</caption><thead><tr>"
      "<th>configuration</th><th class=\"num\">needed</th><th class=\"num\">tokens/s</th><th></th>"
      "</tr></thead><tbody>\n";
  for (const PlanMark& mark : page.front) {
    front.push_back(mark_json(mark));
    table += fmt::format("<tr><td>{}</td>{}<td>{}</td></tr>\n", escape(mark.label),
                         mark_cells(mark), mark.fits ? "" : "does not fit");
  }
  table += "</tbody></table></div>\n";
  json fitting = json::array();
  json others = json::array();
  int64_t num_beyond = 0;
  for (const PlanRegion& region : page.regions) {
    if (!region.best) continue;
    if (region.best->needed_bytes > kMostOverCapacity * page.capacity_bytes) {
      ++num_beyond;
      continue;
    }
    (region.best->fits ? fitting : others).push_back(mark_json(*region.best));
  }
  if (front.empty() && fitting.empty() && others.empty()) {
    return fmt::format(
        "<p>All {} choices of tp, cp, ep and pp need over {:.0f} times a device.</p>\n", num_beyond,
        kMostOverCapacity);
  }
  json data = {{"capacity", std::llround(page.allocatable_bytes)},
               {"front", front},
               {"fits", fitting},
               {"others", others}};
  if (!page.rows.empty()) {
    const PlanRow& first = page.rows.front();
    data["first"] = mark_json(
        {first.layout + ", " + first.choices, first.needed_bytes, first.tokens_per_s.value, true});
  }
  std::string description = fmt::format(
      "{} marks: of each choice of tp, cp, ep and pp the fastest that fits, else the one with the "
      "least memory. The line is the front over all {} legal configurations: nothing is faster "
      "with less. Memory is what has to fit: allocated, pools of graphs, buffers of the "
      "dispatcher.",
      fitting.size() + others.size(), base::format_count(static_cast<double>(page.num_legal)));
  if (num_beyond > 0) {
    description +=
        fmt::format(" {} more need over {:.0f} times a device.", num_beyond, kMostOverCapacity);
  }
  return figure("front", description, "", table) + json_element("data-front", data);
}

std::string plan_space(const PlanPage& page) {
  if (page.regions.empty()) return "";
  json columns = {{"tp", json::array()},     {"cp", json::array()},    {"ep", json::array()},
                  {"pp", json::array()},     {"legal", json::array()}, {"fit", json::array()},
                  {"tokens", json::array()}, {"bytes", json::array()}, {"label", json::array()}};
  std::vector<const PlanRegion*> sorted;
  for (const PlanRegion& region : page.regions) {
    sorted.push_back(&region);
    columns["tp"].push_back(region.tp);
    columns["cp"].push_back(region.cp);
    columns["ep"].push_back(region.ep);
    columns["pp"].push_back(region.pp);
    columns["legal"].push_back(region.num_legal);
    columns["fit"].push_back(region.num_fit);
    columns["tokens"].push_back(region.num_fit > 0 ? region.best->tokens_per_s : 0);
    columns["bytes"].push_back(region.best ? std::llround(region.best->needed_bytes) : 0);
    columns["label"].push_back(region.best ? region.best->label : region.reason);
  }
  std::ranges::stable_sort(sorted, is_faster);
  std::string table = fmt::format(
      "<div class=\"scroll tall\"><table class=\"compact\"><caption>{}</caption><thead><tr><th "
      "class=\"num\">tp</th><th class=\"num\">cp</th><th class=\"num\">ep</th><th "
      "class=\"num\">pp</th><th class=\"num\">legal</th><th class=\"num\">fit</th><th "
      "class=\"num\">needed</th><th class=\"num\">tokens/s</th><th>best, or why none</th></tr>"
      "</thead><tbody>\n",
      sorted.size() > kMostCells
          ? fmt::format("The first {} of {} cells, the fastest first", kMostCells, sorted.size())
          : "All cells, the fastest first");
  for (size_t i = 0; i < std::min(kMostCells, sorted.size()); ++i) {
    const PlanRegion& region = *sorted[i];
    table += "<tr>";
    for (const int64_t size : {int64_t{region.tp}, int64_t{region.cp}, int64_t{region.ep},
                               int64_t{region.pp}, region.num_legal, region.num_fit}) {
      table += fmt::format("<td class=\"num\">{}</td>", size);
    }
    table +=
        region.best ? mark_cells(*region.best) : "<td class=\"num\">–</td><td class=\"num\">–</td>";
    table += fmt::format("<td>{}</td></tr>\n",
                         breakable(region.best ? region.best->label : region.reason));
  }
  table += "</tbody></table></div>\n";
  std::string options;
  for (const auto& [value, label] :
       {std::pair{"tp cp|ep pp", "tp × cp by ep × pp"}, std::pair{"tp|ep", "tp by ep"},
        std::pair{"tp|cp", "tp by cp"}, std::pair{"tp|pp", "tp by pp"},
        std::pair{"cp|ep", "cp by ep"}, std::pair{"pp|ep", "pp by ep"}}) {
    options += fmt::format("<option value=\"{}\">{}</option>", value, label);
  }
  return figure("space",
                "Each cell is the best of all configurations with these sizes. A cross: none fits; "
                "a dot: none is legal; empty: the sizes do not divide the devices, or --fix leaves "
                "them out. Point at a cell for the configuration or the reason.",
                "<label>Sizes <select data-space>" + options + "</select></label>", table) +
         json_element("data-space", columns);
}

}  // namespace moetune::reports
