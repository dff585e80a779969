// Section "roofline": the operations of a traced step against what the hardware file lets them
// reach. Williams, Waterman and Patterson, "Roofline", CACM 2009: of an operation with f FLOPs a
// byte, at most min(peak, f * bandwidth).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "profiler/store/untrusted_json.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

constexpr size_t kMostOpsListed = 40;
/// Marks, the longest operations first.
constexpr size_t kMostMarked = 200;

struct Roof {
  double flops_per_s = 0;
  double bytes_per_s = 0;

  [[nodiscard]] double at(double flops_per_byte) const {
    return std::min(flops_per_s, flops_per_byte * bytes_per_s);
  }
  /// FLOPs a byte from which on arithmetic is what bounds.
  [[nodiscard]] double ridge() const { return flops_per_s / bytes_per_s; }
};

/// Of hardware as described; none where a stranger's file does not say it.
std::optional<Roof> roof_in(const json& hardware) {
  if (!hardware.is_object()) return std::nullopt;
  const auto read = [&](const char* key) {
    const auto found = hardware.find(key);
    return found != hardware.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const Roof roof{read("peak_flops_per_s"), read("memory_bytes_per_s")};
  constexpr double kMost = 1e18;  // above any hardware, and exact as int64
  const auto is_plausible = [](double rate) { return rate >= 1 && rate <= kMost; };
  if (!is_plausible(roof.flops_per_s) || !is_plausible(roof.bytes_per_s)) return std::nullopt;
  return roof;
}

/// By the trial's own hardware; of other engines by what is known of the device in their traces.
std::optional<Roof> roof_of(const store::TrialRow& trial, const Rows& rows) {
  const json spec = store::parse_untrusted(trial.spec_json);
  if (spec.is_object() && spec.contains("hardware")) return roof_in(spec["hardware"]);
  return roof_in(store::parse_untrusted(rows.text(0, "peaks")));
}

struct RoofedOp {
  std::string name;
  double count = 0;
  double ns = 0;
  double flops_per_byte = 0;
  double flops_per_s = 0;
  double roof_flops_per_s = 0;

  [[nodiscard]] double ratio() const { return flops_per_s / roof_flops_per_s; }
};

std::vector<RoofedOp> ops_of(const Rows& rows, const Roof& roof) {
  std::vector<RoofedOp> ops;
  for (size_t i = 0; i < rows.size(); ++i) {
    RoofedOp& op = ops.emplace_back();
    op.name = rows.text(i, "name");
    op.count = rows.real(i, "count").value_or(0);
    op.ns = rows.real(i, "ns").value_or(1);
    const double flops = rows.real(i, "flops").value_or(1);
    op.flops_per_byte = flops / rows.real(i, "bytes").value_or(1);
    op.flops_per_s = flops / (op.ns * 1e-9);
    op.roof_flops_per_s = roof.at(op.flops_per_byte);
  }
  return ops;
}

std::string ops_table(const std::vector<RoofedOp>& ops, const Roof& roof, double all_ns) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>Longest operations that compute"
      "</caption><thead><tr><th>operation</th><th class=\"num\">launches</th><th class=\"num\">of "
      "the time</th><th class=\"num\">FLOPs a byte</th><th class=\"num\">FLOP/s</th><th "
      "class=\"num\">of the roof</th><th>bound by</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < std::min(kMostOpsListed, ops.size()); ++i) {
    const RoofedOp& op = ops[i];
    html += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"num\">{}</td>{}{}{}{}<td>{}</td></tr>\n",
        escape(op.name), fmt::format("{:.0f}", op.count),
        number_cell(op.ns / all_ns, fmt::format("{:.1f} %", 100 * op.ns / all_ns)),
        number_cell(op.flops_per_byte, fmt::format("{:.3g}", op.flops_per_byte)),
        number_cell(op.flops_per_s, count_text(op.flops_per_s)),
        number_cell(op.ratio(), fmt::format("{:.0f} %", 100 * op.ratio())),
        op.flops_per_byte < roof.ridge() ? "bandwidth" : "arithmetic");
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string render_roofline(const SectionInput& input) {
  const store::TrialRow* traced = input.context.at(input.context.traced);
  if (traced == nullptr || input.rows.empty()) return "";
  const std::optional<Roof> roof = roof_of(*traced, input.rows);
  if (!roof) return "";
  const std::vector<RoofedOp> ops = ops_of(input.rows, *roof);
  double all_ns = 0;
  double least_ns = 0;
  double bandwidth_ns = 0;
  for (const RoofedOp& op : ops) {
    all_ns += op.ns;
    least_ns += op.ns * op.ratio();
    if (op.flops_per_byte < roof->ridge()) bandwidth_ns += op.ns;
  }
  json marks = json::array();
  for (size_t i = 0; i < std::min(kMostMarked, ops.size()); ++i) {
    marks.push_back({{"name", ops[i].name},
                     {"intensity", ops[i].flops_per_byte},
                     {"rate", ops[i].flops_per_s},
                     {"roof", ops[i].roof_flops_per_s},
                     {"share", ops[i].ns / all_ns}});
  }
  return fmt::format(
             "<p>Trial {}: memory's bandwidth bounds {:.0f} % of the computing time. At the roof, "
             "the same work would take {:.0f} % of it.</p>\n",
             trial_link(traced->ordinal), 100 * bandwidth_ns / all_ns, 100 * least_ns / all_ns) +
         figure("roofline",
                fmt::format("One mark for each operation of the traced step, larger where more "
                            "time is spent: FLOPs for each byte, and FLOP/s. The line is the "
                            "hardware file's: {} FLOP/s, and {}/s of memory. Operations whose data "
                            "lies in a cache may be above it.",
                            count_text(roof->flops_per_s),
                            bytes_text(static_cast<int64_t>(roof->bytes_per_s))),
                "", ops_table(ops, *roof, all_ns)) +
         json_element(
             "data-roofline",
             {{"peak", roof->flops_per_s}, {"bandwidth", roof->bytes_per_s}, {"ops", marks}});
}

}  // namespace moetune::reports
