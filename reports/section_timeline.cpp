// Section "timeline": lanes per rank and stream of one traced step, and the operations that took
// longest.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"
#include "reports/step_figures.h"
#include "reports/timeline_data.h"

namespace moetune::reports {
namespace {

constexpr size_t kNumListedOps = 15;

using OpTotal = StepSlices::OpTotal;

// The longest of all ranks; the host's launches are left out, they are not work of the device.
std::vector<OpTotal> longest_ops(const std::map<std::string, OpTotal>& totals) {
  std::vector<OpTotal> sorted;
  for (const auto& [name, total] : totals) {
    sorted.push_back(total);
  }
  std::ranges::stable_sort(sorted, std::greater{}, &OpTotal::ns);
  sorted.resize(std::min(sorted.size(), kNumListedOps));
  return sorted;
}

std::string ops_table(const std::vector<OpTotal>& ops, int64_t num_ranks, std::string_view unit) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>Longest operations, mean per " +
      std::string(unit) +
      "</caption><thead><tr><th>operation</th><th class=\"num\">launches</th><th "
      "class=\"num\">time</th><th class=\"num\">of it waiting</th></tr></thead><tbody>\n";
  for (const OpTotal& op : ops) {
    html += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"num\">{:.1f}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td></tr>\n",
        escape(op.name), static_cast<double>(op.count) / static_cast<double>(num_ranks),
        ns_text(op.ns / num_ranks), op.wait_ns > 0 ? ns_text(op.wait_ns / num_ranks) : "–");
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

void StepSlices::add(std::vector<Slice> slices, size_t most_slices) {
  for (const Slice& slice : slices) {
    ranks_.insert(slice.rank);
    if (slice.stream < 0) {
      continue;
    }
    OpTotal& total = totals_[slice.name];
    total.name = slice.name;
    total.count += slice.count;
    total.ns += slice.end_ns - slice.start_ns;
    total.wait_ns += slice.wait_ns;
  }
  num_before_ += slices.size();
  slices = downsample(std::move(slices), most_slices, step_ns_);
  slices_.insert(slices_.end(), std::make_move_iterator(slices.begin()),
                 std::make_move_iterator(slices.end()));
}

std::string StepSlices::figure(std::string description, std::string_view unit) const {
  std::string options = "<option value=\"all\">all, compute only</option>";
  for (const int64_t rank : ranks_) {
    options += fmt::format("<option value=\"{0}\"{1}>{2} {0}</option>", rank,
                           rank == *ranks_.begin() ? " selected" : "", unit);
  }
  if (slices_.size() < num_before_) {
    description +=
        fmt::format(" {} operations were merged into {} slices.", num_before_, slices_.size());
  }
  std::string label(unit);
  label[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(label[0])));
  return reports::figure(
             "timeline", description,
             "<label>" + label + " <select data-timeline>" + options +
                 "</select></label> <span role=\"group\" aria-label=\"Zoom\">"
                 "<button type=\"button\" data-timeline-zoom=\"left\" "
                 "aria-label=\"Earlier\">←</button> "
                 "<button type=\"button\" data-timeline-zoom=\"in\" aria-label=\"Zoom "
                 "in\">+</button> "
                 "<button type=\"button\" data-timeline-zoom=\"out\" aria-label=\"Zoom "
                 "out\">−</button> "
                 "<button type=\"button\" data-timeline-zoom=\"right\" "
                 "aria-label=\"Later\">→</button> "
                 "<button type=\"button\" data-timeline-zoom=\"all\">Whole step</button></span>",
             ops_table(longest_ops(totals_), static_cast<int64_t>(ranks_.size()), unit)) +
         json_element("data-timeline", timeline_json(slices_, step_ns_, unit));
}

std::string render_timeline(const SectionInput& input) {
  const store::TrialRow* traced = input.context.at(input.context.traced);
  const std::string notice = trace_notice(input.context, traced);
  if (input.rows.empty()) {
    const store::TrialRow* shown = input.context.at(input.context.shown);
    return fmt::format("<p>No trace of {} has been stored.</p>\n{}",
                       shown == nullptr ? "the winner" : input.context.name_of(*shown), notice);
  }
  const int64_t step_ns = std::max<int64_t>(1, input.rows.integer(0, "step_ns").value_or(1));
  StepSlices slices(step_ns);
  slices.add(collect_slices(input.rows), kMaxSlices);
  return notice +
         slices.figure(
             fmt::format("Step {} of trial {}, {} ranks, {}. Buttons, the handles below or Ctrl "
                         "and the wheel zoom; point at a slice for the operation.",
                         input.rows.integer(0, "step").value_or(0),
                         traced == nullptr ? 0 : traced->ordinal, slices.num_ranks(),
                         ns_text(step_ns)),
             "rank");
}

}  // namespace moetune::reports
