// Section "evidence": what the verdict on the wall rests on. Communication with its volume, what of
// it was exposed and what was waited for; ceilings beside gains; the ranks; the critical path.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/step_parts.h"
#include "profiler/store/untrusted_json.h"
#include "reports/decision_changes.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

/// Of more ranks and more kept changes the first ones, or the last ones, are told.
constexpr size_t kMostRanks = 64;
constexpr size_t kMostKept = 20;
constexpr int64_t kWholeRun = -1;
/// Of the verdict's own words: a page may be made of a stranger's database.
constexpr size_t kMostSentences = 40;
constexpr size_t kMostSentenceBytes = 600;
/// Less of all communication in groups without a name is rounding.
constexpr double kLeastUnnamedRatio = 0.005;

constexpr const char* kWallEvidence = "wall_evidence";

/// The metrics of the traced trial, by rank and name, and what the verdict says.
class TracedMetrics {
 public:
  TracedMetrics(const Rows& rows, int64_t trial_id) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto value = rows.real(i, "value");
      const int64_t trial = rows.integer(i, "trial_id").value_or(0);
      const std::string name = rows.text(i, "name");
      if (name == kWallEvidence) verdict_ = rows.text(i, "text");
      if (!value) continue;
      if (name == "gain_ceiling_ratio") ceilings_[trial] = *value;
      if (trial == trial_id) values_[{rows.integer(i, "rank").value_or(kWholeRun), name}] = *value;
    }
    for (const auto& [key, value] : values_) {
      if (key.first >= 0) ranks_.insert(key.first);
      const size_t dot = key.second.find('.');
      if (dot != std::string::npos) groups_.insert(key.second.substr(dot + 1));
    }
  }

  /// Of the whole run as stored, else the mean over the ranks.
  [[nodiscard]] std::optional<double> whole(const std::string& name) const {
    if (const auto own = of_rank(kWholeRun, name)) return own;
    double sum = 0;
    size_t count = 0;
    for (const int64_t rank : ranks_) {
      if (const auto own = of_rank(rank, name)) {
        sum += *own;
        ++count;
      }
    }
    return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
  }
  [[nodiscard]] std::optional<double> of_rank(int64_t rank, const std::string& name) const {
    const auto found = values_.find({rank, name});
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Ratio of what a trial would have gained at most, by trial.
  [[nodiscard]] const std::map<int64_t, double>& ceilings() const { return ceilings_; }
  [[nodiscard]] const std::set<int64_t>& ranks() const { return ranks_; }
  [[nodiscard]] const std::set<std::string>& groups() const { return groups_; }
  /// JSON of the verdict; empty: none.
  [[nodiscard]] const std::string& verdict() const { return verdict_; }

  /// Of what the whole run has of a number, the part that no group has. `has_copies`: the whole
  /// counts those between memories, too.
  [[nodiscard]] std::optional<double> without_group(const std::string& name,
                                                    bool has_copies) const {
    auto rest = whole(name);
    for (const std::string& group : groups_) {
      const bool is_counted = has_copies || !is_no_communication(group);
      const auto own = is_counted ? whole(fmt::format("{}.{}", name, group)) : std::nullopt;
      if (rest && own) *rest -= *own;
    }
    return rest ? std::optional(std::max(0.0, *rest)) : rest;
  }

 private:
  /// Copies between memories, and the end of the step, are of no communication's numbers.
  static bool is_no_communication(std::string_view group) {
    return group == base::kMemcpyGroup || group == base::kStepEndGroup;
  }

  std::map<std::pair<int64_t, std::string>, double> values_;
  std::map<int64_t, double> ceilings_;
  std::set<int64_t> ranks_;
  std::set<std::string> groups_;
  std::string verdict_;
};

std::string percent_of(std::optional<double> part, double whole) {
  return part && whole > 0 ? fmt::format("{:.1f} %", 100 * *part / whole) : "–";
}

std::string ns_and_share(std::optional<double> ns, double step_ns) {
  if (!ns || !std::isfinite(*ns)) return "<td class=\"num\">–</td>";
  return number_cell(ns,
                     fmt::format("{} · {}", ns_text(std::llround(*ns)), percent_of(ns, step_ns)));
}

/// The numbers of one group; nothing where its volume is not known.
std::string communication_row(const std::string& group, std::optional<double> bytes,
                              std::array<std::optional<double>, 4> ns, double step_ns) {
  if (!ns[0]) return "";
  // Traces of other tools may not say how much was sent.
  const bool is_known = bytes && *bytes > 0 && *bytes < 9e18;
  std::string row =
      fmt::format("<tr><td>{}</td>{}", escape(group),
                  number_cell(bytes, is_known ? bytes_text(std::llround(*bytes)) : "–"));
  for (const std::optional<double>& value : ns) row += ns_and_share(value, step_ns);
  return row + "</tr>\n";
}

// All three numbers of each group: a volume alone says nothing about what it costs.
std::string communication_table(const TracedMetrics& metrics, double step_ns) {
  std::string rows;
  for (const std::string& group : metrics.groups()) {
    const auto of = [&](const char* name) {
      return metrics.whole(fmt::format("{}.{}", name, group));
    };
    rows += communication_row(group, of("comm_bytes"),
                              {of("comm_volume_ns"), of("comm_exposed_ns"),
                               of("blocking_transfer_ns"), of("blocking_wait_ns")},
                              step_ns);
  }
  const double volume = metrics.whole("comm_volume_ns").value_or(0);
  const auto unnamed = metrics.without_group("comm_volume_ns", false);
  if (unnamed && *unnamed > kLeastUnnamedRatio * volume) {
    const bool is_all = rows.empty();
    rows += communication_row(is_all ? "all, of groups that are not named" : "not named",
                              metrics.without_group("comm_bytes", false),
                              {unnamed, metrics.without_group("comm_exposed_ns", false),
                               metrics.without_group("blocking_transfer_ns", true),
                               metrics.without_group("blocking_wait_ns", true)},
                              step_ns);
  }
  if (rows.empty()) return "";
  return "<h3>Communication: volume, exposed, blocking</h3>\n<div class=\"scroll\"><table "
         "class=\"compact\"><thead><tr><th>group</th><th class=\"num\">sent by a rank</th><th "
         "class=\"num\">volume: all durations</th><th class=\"num\">exposed: nothing ran beside "
         "it</th><th class=\"num\">blocking: data moving</th><th class=\"num\">blocking: somebody "
         "late</th></tr></thead><tbody>\n" +
         rows +
         "</tbody></table></div>\n<p class=\"note\">Mean over the ranks, and the share of the "
         "traced "
         "step. Volume may exceed the step, as transfers run side by side. Only what blocks can "
         "be gained.</p>\n";
}

/// What the verdict says itself: its sentence, and one for each number behind it.
std::string verdict_list(const TracedMetrics& metrics) {
  const nlohmann::json document = store::parse_untrusted(metrics.verdict());
  if (!document.is_object()) return "";
  const auto text_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    const bool is_text = object.is_object() && found != object.end() && found->is_string();
    return is_text ? shortened(found->get<std::string>(), kMostSentenceBytes) : std::string();
  };
  std::string html;
  if (const std::string summary = text_of(document, "summary"); !summary.empty()) {
    html += fmt::format("<p>{}</p>\n", escape(summary));
  }
  std::string items;
  const auto evidence = document.find("evidence");
  if (evidence != document.end() && evidence->is_array()) {
    for (size_t i = 0; i < std::min(kMostSentences, evidence->size()); ++i) {
      const std::string sentence = text_of((*evidence)[i], "text");
      if (!sentence.empty()) items += fmt::format("<li>{}</li>\n", escape(sentence));
    }
  }
  if (!items.empty()) html += "<ul class=\"facts\">\n" + items + "</ul>\n";
  return html.empty() ? "" : "<h3>What the verdict says</h3>\n" + html;
}

const char* ratio_words(base::Wall wall) {
  if (wall == base::Wall::compute) return " of the step computes";
  if (wall == base::Wall::unknown) return " of the step is not explained";
  return " of the step would be gained without it";
}

/// From where to where a wall's ceiling goes over the steps that were judged; empty where one was,
/// or the verdict does not say.
std::string range_words(const nlohmann::json& verdict, base::Wall wall) {
  const auto number_at = [&](const std::string& place) -> std::optional<double> {
    const nlohmann::json::json_pointer pointer(place);
    if (!verdict.is_object() || !verdict.contains(pointer)) return std::nullopt;
    const nlohmann::json& value = verdict.at(pointer);
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  const auto is_ratio = [](std::optional<double> value) {
    return value && *value >= 0 && *value <= 1;
  };
  const auto low = number_at(fmt::format("/low_label_ceilings/{}", name_of(wall)));
  const auto high = number_at(fmt::format("/high_label_ceilings/{}", name_of(wall)));
  const double num_steps = number_at("/num_replayed_steps").value_or(0);
  if (!is_ratio(low) || !is_ratio(high) || !(num_steps > 1 && num_steps < 1e6)) return "";
  return fmt::format(" ({} to {} over {:.0f} steps)", percent_of(low, 1), percent_of(high, 1),
                     num_steps);
}

/// A kept change starts from what was compared. Where that was not traced, another run of the same
/// configuration was: the last one by which a wall was seen.
const store::TrialRow* looked_at(const Context& context, const TracedMetrics& metrics,
                                 const store::DecisionRow& change) {
  if (metrics.ceilings().contains(*change.baseline_trial_id)) {
    return context.by_id(*change.baseline_trial_id);
  }
  const store::TrialRow* look = nullptr;
  for (const store::DecisionRow& decision : context.decisions) {
    const bool is_look = decision.kind == store::DecisionKind::wall && decision.trial_id &&
                         decision.baseline_trial_id == change.baseline_trial_id &&
                         metrics.ceilings().contains(*decision.trial_id);
    if (is_look && decision.ordinal < change.ordinal) look = context.by_id(*decision.trial_id);
  }
  return look;
}

/// Of the step, and as gains are: "74.6 % of the step, +293.3 %".
std::string ceiling_text(double gain_ratio) {
  if (!(gain_ratio > -1)) return signed_percent(gain_ratio);
  return fmt::format("{} of the step, {}", percent_of(gain_ratio, 1 + gain_ratio),
                     signed_percent(gain_ratio));
}

std::string ceilings_table(const Context& context, const TracedMetrics& metrics) {
  using base::Wall;
  const nlohmann::json verdict = store::parse_untrusted(metrics.verdict());
  std::string walls;
  for (size_t i = 0; i < base::kNumWalls; ++i) {
    const auto wall = static_cast<Wall>(i);
    const auto ratio = metrics.whole(fmt::format("{}_wall_ratio", name_of(wall)));
    // The three that every step is asked for are told even where there is nothing of them.
    const bool is_always_told =
        wall == Wall::communication || wall == Wall::host || wall == Wall::compute;
    if (!ratio || (*ratio <= 0 && !is_always_told)) continue;
    walls += fmt::format("<li>{} <strong>{}</strong>{}{}</li>\n", wall_badge(name_of(wall)),
                         percent_of(ratio, 1), ratio_words(wall), range_words(verdict, wall));
  }
  std::string rows;
  size_t num = 0;
  for (auto it = context.decisions.rbegin(); it != context.decisions.rend(); ++it) {
    const store::DecisionRow& decision = *it;
    if (decision.kind != store::DecisionKind::kept || !decision.trial_id ||
        !decision.baseline_trial_id || !decision.gain_ratio) {
      continue;
    }
    const store::TrialRow* look = looked_at(context, metrics, decision);
    const store::TrialRow* trial = context.by_id(*decision.trial_id);
    const store::TrialRow* before = context.by_id(*decision.baseline_trial_id);
    if (look == nullptr || trial == nullptr || before == nullptr) continue;
    if (++num > kMostKept) break;
    rows =
        fmt::format(
            "<tr><td>{} → {}</td><td>{}</td><td>{}</td><td class=\"num\">{}</td><td "
            "class=\"num\">{}</td></tr>\n",
            trial_link(before->ordinal), trial_link(trial->ordinal), wall_badge(look->wall),
            breakable(shortened(changed_names(decision), 120)),
            ceiling_text(metrics.ceilings().at(look->id)), signed_percent(*decision.gain_ratio)) +
        rows;
  }
  if (walls.empty() && rows.empty()) return "";
  std::string html = "<h3>Ceilings, and what was gained</h3>\n";
  if (!walls.empty()) html += "<ul class=\"facts\">\n" + walls + "</ul>\n";
  if (rows.empty()) return html;
  return html +
         "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>trials</th><th>wall "
         "before</th><th>change</th><th class=\"num\">its ceiling</th><th "
         "class=\"num\">gained</th></tr></thead><tbody>\n" +
         rows +
         "</tbody></table></div>\n<p class=\"note\">A ceiling is what the trial before would have "
         "gained without all causes of its wall, by a replay of its traced steps: so much of the "
         "step, and by so much faster. It is a bound for remedies of that wall, never a forecast. "
         "A change that moves other time too may gain "
         "more.</p>\n";
}

struct RankColumn {
  const char* name;
  const char* title;
};

// Who is late, and by how much: ranks that compute longer make the others wait.
std::string ranks_table(const TracedMetrics& metrics, double step_ns) {
  constexpr auto kColumns = std::to_array<RankColumn>({
      {"compute_busy_ns", "compute"},
      {"launch_starved_ns", "launch-starved"},
      {"blocking_transfer_ns", "data moving"},
      {"blocking_wait_ns", "waiting for others"},
      {"pipeline_bubble_ns", "of it, pipeline bubble"},
      {"critical_path_ns", "on the critical path"},
  });
  if (metrics.ranks().size() < 2) return "";
  std::string head;
  std::string spread = "<tr><td>largest less smallest</td>";
  for (const RankColumn& column : kColumns) {
    head += fmt::format("<th class=\"num\">{}</th>", column.title);
    std::optional<std::pair<double, double>> range;
    for (const int64_t rank : metrics.ranks()) {
      const auto value = metrics.of_rank(rank, column.name);
      if (!value) continue;
      range = range ? std::pair(std::min(range->first, *value), std::max(range->second, *value))
                    : std::pair(*value, *value);
    }
    spread +=
        ns_and_share(range ? std::optional(range->second - range->first) : std::nullopt, step_ns);
  }
  // Who waits least for others is who the others wait for.
  std::optional<std::pair<double, int64_t>> latest;
  double longest_wait = 0;
  std::string rows;
  size_t num = 0;
  for (const int64_t rank : metrics.ranks()) {
    const auto wait = metrics.of_rank(rank, "blocking_wait_ns");
    if (wait && (!latest || *wait < latest->first)) latest = {*wait, rank};
    longest_wait = std::max(longest_wait, wait.value_or(0));
    if (++num > kMostRanks) continue;
    rows += fmt::format("<tr><td>{}</td>", rank);
    for (const RankColumn& column : kColumns) {
      rows += ns_and_share(metrics.of_rank(rank, column.name), step_ns);
    }
    rows += "</tr>\n";
  }
  std::string html = "<h3>Late ranks and spread</h3>\n";
  // Where nobody waits, as traces may not tell it, nobody is waited for.
  if (latest && longest_wait > latest->first) {
    html += fmt::format("<p>Rank {} waits least for others, {}: the others wait for it.</p>\n",
                        latest->second, ns_text(std::llround(latest->first)));
  }
  html += fmt::format(
      "<div class=\"scroll\"><table "
      "class=\"compact\"><thead><tr><th>rank</th>{}</tr></thead><tbody>"
      "\n{}</tbody><tfoot>{}</tr></tfoot></table></div>\n",
      head, rows, spread);
  if (metrics.ranks().size() > kMostRanks) {
    html += fmt::format("<p class=\"note\">The first {} of {} ranks.</p>\n", kMostRanks,
                        metrics.ranks().size());
  }
  return html;
}

std::string critical_path_list(const TracedMetrics& metrics) {
  constexpr auto kClasses = std::to_array<std::pair<const char*, const char*>>(
      {{"critical_compute_ns", "computing"},
       {"critical_dispatcher_ns", "packing and routing"},
       {"critical_transfer_ns", "data moving"},
       {"critical_wait_ns", "waiting for what is in no trace"},
       {"critical_memcpy_ns", "copies"},
       {"critical_host_ns", "the host: launches and synchronisation"},
       {"critical_stalled_ns", "unexplained"}});
  double whole = 0;
  for (const auto& [name, words] : kClasses) whole += metrics.whole(name).value_or(0);
  if (!(whole > 0)) return "";
  std::string rows;
  for (const auto& [name, words] : kClasses) {
    const double ns = metrics.whole(name).value_or(0);
    if (ns <= 0) continue;
    rows += fmt::format(
        "<tr><td>{}</td>{}<td class=\"share\"><span class=\"meter\" aria-hidden=\"true\"><span "
        "style=\"width:{:.1f}%\"></span></span></td></tr>\n",
        words, ns_and_share(ns, whole), 100 * ns / whole);
  }
  return "<h3>Critical path across the ranks</h3>\n<div class=\"scroll\"><table "
         "class=\"compact\"><tbody>\n" +
         rows +
         "</tbody></table></div>\n<p class=\"note\">The chain of work that the step could not have "
         "been shorter than: shortening anything else changes nothing. Where a rank waits for "
         "another "
         "one, it goes on there.</p>\n";
}

}  // namespace

std::string render_evidence(const SectionInput& input) {
  const store::TrialRow* traced = input.context.at(input.context.traced);
  if (traced == nullptr || input.rows.empty()) return "";
  const TracedMetrics metrics(input.rows, traced->id);
  const double step_ns = metrics.whole("traced_step_ns").value_or(0);
  const std::string parts = verdict_list(metrics) + communication_table(metrics, step_ns) +
                            ceilings_table(input.context, metrics) + critical_path_list(metrics) +
                            ranks_table(metrics, step_ns);
  if (parts.empty()) return "";
  return fmt::format("<p>Of the traced step of trial {}{}.</p>\n{}", trial_link(traced->ordinal),
                     step_ns > 0 ? fmt::format(", {}", ns_text(std::llround(step_ns))) : "", parts);
}

}  // namespace moetune::reports
