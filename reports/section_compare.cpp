// Section "compare": two trials side by side. What they are is chosen on the page, and a script
// fills it from the data of all trials.
#include <fmt/format.h>

#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

std::string choice_of(std::string_view name, std::string_view label, const store::TrialRow& trial) {
  return fmt::format(
      "<label>{1} <input type=\"number\" min=\"1\" data-compare=\"{0}\" value=\"{2}\"></label> ",
      name, label, trial.ordinal);
}

}  // namespace

std::string render_compare(const SectionInput& input) {
  const Context& context = input.context;
  const store::TrialRow* after = context.at(context.shown);
  const store::TrialRow* before = context.at(context.first_fit);
  if (before == nullptr) before = context.at(context.baseline);
  if (after == nullptr || before == nullptr || before == after) return "";
  return "<div class=\"controls needs-script\">" + choice_of("before", "Trial", *before) +
         choice_of("after", "beside trial", *after) +
         "<button type=\"button\" id=\"compare-swap\">Swap</button></div>\n<div "
         "id=\"compare-result\" class=\"needs-script\" aria-live=\"polite\"></div>\n"
         "<noscript><p>Two trials are compared by a script; <code>moetune show</code> tells each "
         "of them.</p></noscript>\n";
}

}  // namespace moetune::reports
