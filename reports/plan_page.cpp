// The sections of a plan in their order, and what stands above them.
#include "reports/plan_page.h"

#include <fmt/format.h>

#include "reports/html.h"
#include "reports/page.h"
#include "reports/plan_sections.h"

namespace moetune::reports {
namespace {

struct PlanSection {
  std::string_view id;
  std::string_view title;
  std::string_view short_title;
  std::string_view lead;
  std::string (*render)(const PlanPage&);
};

constexpr PlanSection kPlanSections[] = {
    {"verdict", "Verdict", "Verdict", "", plan_verdict},
    {"misses", "What is missing", "Missing",
     "Nothing fits. These come nearest, and these changes help most.", plan_misses},
    {"plans", "The best plans", "Plans",
     "The fastest first, each with another layout. The others are told by what they have "
     "different from it.",
     plan_table},
    {"batches", "Other global batches", "Batches",
     "No global batch is given. These are priced with the layout of the first plan, and nothing "
     "else is searched for them. What a batch does to the loss is not looked at.",
     plan_batches},
    {"front", "Memory and throughput", "Front",
     "What more memory buys, and what less costs. Left of the line it fits.", plan_front},
    {"space", "Map of the layouts", "Map",
     "The best of each cell. Stronger blue is faster; crosses do not fit, dots are not legal.",
     plan_space},
    {"memory", "Memory per stage", "Memory",
     "What the highest moment of each pipeline stage of the first plan is made of, against what "
     "a device lets PyTorch allocate.",
     plan_memory},
    {"budget", "Where the played step goes", "Step budget",
     "The step of the first plan, played instruction by instruction, one rank of each pipeline "
     "stage. Every nanosecond is booked once.",
     plan_budget},
    {"timeline", "Timeline of the played step", "Timeline",
     "The host's launches and each stream of the device. In pale: waiting for a participant.",
     plan_timeline},
    {"against", "Against the run of today", "Yours",
     "What differs from the first plan, and what each change alone would buy.", plan_against},
    {"published", "Published runs like it", "Published",
     "What others measured of such a run, beside what is priced for it, and what lies between it "
     "and yours.",
     plan_published},
    {"advice", "Rules of thumb, and what would help", "Advice", "", plan_advice},
    {"basis", "What this rests on", "Basis", "", plan_basis},
};

}  // namespace

std::string render_plan(const PlanPage& page) {
  Page result;
  result.title = fmt::format("{} on {} × {}", page.model, page.num_devices, page.hardware);
  result.subtitle = fmt::format("sequence {} · global batch {} · {} tokens a step", page.seq_length,
                                page.global_batch_size, page.seq_length * page.global_batch_size);
  result.origin = fmt::format(
      "{}{}<strong>predicted, nothing was run</strong>{}", escape(page.date),
      page.date.empty() ? "" : " · ",
      page.rows.empty() ? "" : fmt::format(", grade: {}", escape(page.rows.front().grade)));
  for (const PlanSection& section : kPlanSections) {
    std::string body = section.render(page);
    if (body.empty()) continue;
    result.sections.push_back(
        {section.id, section.title, section.short_title, section.lead, std::move(body)});
  }
  return render_page(result);
}

}  // namespace moetune::reports
