// Section "loss": the training curve of the final run.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "profiler/store/untrusted_json.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

// The loss that the sweep file wants the final run to fall below; 0: none.
double wanted_loss(const Context& context) {
  const json config = store::parse_untrusted(context.sweep.config_json);
  if (!config.is_object()) {
    return 0;
  }
  const auto found = config.find("validate_max_loss");
  return found != config.end() && found->is_number() ? found->get<double>() : 0;
}

std::string table_of(const Rows& rows) {
  std::string html =
      "<div class=\"scroll tall\"><table class=\"compact\"><thead><tr><th>step</th><th "
      "class=\"num\">loss</th><th class=\"num\">aux loss</th><th class=\"num\">z loss</th><th "
      "class=\"num\">gradient norm</th><th class=\"num\">learning rate</th><th "
      "class=\"num\">time</th><th>kind</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
        "<td class=\"num\">{}</td><td class=\"num\">{:.2e}</td><td "
        "class=\"num\">{}</td><td>{}</td></tr>\n",
        rows.integer(i, "step").value_or(0), number_text(rows.real(i, "loss"), 4),
        number_text(rows.real(i, "aux_loss"), 4), number_text(rows.real(i, "z_loss"), 4),
        number_text(rows.real(i, "grad_norm"), 3), rows.real(i, "lr").value_or(0),
        ns_text(rows.integer(i, "step_ns")),
        rows.integer(i, "is_warmup").value_or(0) != 0   ? "warm-up"
        : rows.integer(i, "is_traced").value_or(0) != 0 ? "traced"
                                                        : "timed");
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string render_loss(const SectionInput& input) {
  const Rows& rows = input.rows;
  if (rows.empty()) {
    return "<p>No step has been stored.</p>\n";
  }
  json steps = json::array();
  json losses = json::array();
  std::vector<double> known;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::optional<double> loss = rows.real(i, "loss");
    steps.push_back(rows.integer(i, "step").value_or(0));
    losses.push_back(loss ? json(*loss) : json());
    if (loss) {
      known.push_back(*loss);
    }
  }
  const store::TrialRow* run = input.context.at(input.context.final_run);
  std::string description =
      fmt::format("Trial {}, {} steps", run == nullptr ? 0 : run->ordinal, rows.size());
  if (!known.empty()) {
    description +=
        fmt::format(": from {:.3f} to {:.3f} nats per token", known.front(), known.back());
  }
  // Asked of the long run only.
  const bool is_long = run != nullptr && run->phase == name_of(store::Phase::validate);
  const double wanted = is_long ? wanted_loss(input.context) : 0;
  if (wanted > 0) {
    description += fmt::format("; it had to fall below {:.2f}", wanted);
  }
  const std::string notice =
      run != nullptr && is_fake_world(*run)
          ? "<p class=\"notice\">These losses are made up: one rank ran alone, and nobody sent it "
            "anything.</p>\n"
          : "";
  return notice + figure("loss", description + ".", "", table_of(rows)) +
         json_element("data-loss", {{"steps", steps}, {"loss", losses}, {"wanted", wanted}});
}

}  // namespace moetune::reports
