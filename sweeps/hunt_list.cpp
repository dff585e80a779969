// Hunts from their rows and from the JSON that each left as its result, which is not trusted.
#include "sweeps/hunt_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/base/units.h"
#include "reports/hunt_result.h"
#include "reports/or_null.h"
#include "sweeps/bisect/git.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using reports::text_or_null;

std::string culprit_text(const reports::Culprit& culprit) {
  std::string text = base::short_commit(culprit.commit);
  if (!culprit.subject.empty()) text += (text.empty() ? "" : " ") + culprit.subject;
  if (culprit.effect.ratio) text += fmt::format(" ({:+.1f} %)", *culprit.effect.ratio * 100);
  return text;
}

/// One sentence: whose fault it is, or why nobody's.
std::string answer_text(const store::BisectRow& hunt, const reports::HuntResult& result) {
  std::string text;
  for (const reports::Culprit& culprit : result.culprits) {
    text += (text.empty() ? "" : "; ") + culprit_text(culprit);
  }
  if (!text.empty()) return text;
  if (!result.reason.empty()) return result.reason;
  return hunt.verdict;
}

struct Hunt {
  store::BisectRow row;
  std::string answer;
  size_t num_runs = 0;
};

std::vector<Hunt> read_hunts(const store::Store& store) {
  std::vector<Hunt> hunts;
  for (store::BisectRow& row : store.read_bisects()) {
    Hunt& hunt = hunts.emplace_back();
    hunt.answer = answer_text(row, reports::read_hunt_result(row.result_json));
    hunt.num_runs = store.read_bisect_runs(row.id).size();
    hunt.row = std::move(row);
  }
  return hunts;
}

}  // namespace

json hunts_json(const store::Store& store) {
  json list = json::array();
  for (const auto& [row, answer, num_runs] : read_hunts(store)) {
    list.push_back({{"hunt", row.id},
                    {"repository", text_or_null(row.repository)},
                    {"good", row.good},
                    {"bad", row.bad},
                    {"metric", row.metric},
                    {"status", name_of(row.status)},
                    {"verdict", text_or_null(row.verdict)},
                    {"answer", text_or_null(answer)},
                    {"num_runs", num_runs},
                    {"started_at", text_or_null(row.started_at)},
                    {"ended_at", text_or_null(row.ended_at)},
                    {"command_line", row.command_line}});
  }
  return list;
}

std::string hunts_text(const store::Store& store, std::optional<size_t> width) {
  using Align = TextTable::Align;
  TextTable table({{"hunt", Align::right},
                   {"what"},
                   {"good", Align::left, 0, true},
                   {"bad", Align::left, 0, true},
                   {"status", Align::left, 2},
                   {"verdict"},
                   {"runs", Align::right, 1},
                   {"when (UTC)", Align::left, 3},
                   {"answer"}});
  for (const auto& [row, answer, num_runs] : read_hunts(store)) {
    constexpr size_t kDateAndMinute = 16;  // of "2026-01-31T12:34:56.789Z"
    std::string when = row.started_at.substr(0, kDateAndMinute);
    std::ranges::replace(when, 'T', ' ');
    table.add({std::to_string(row.id), row.metric, base::short_commit(row.good),
               base::short_commit(row.bad), std::string(name_of(row.status)),
               row.verdict.empty() ? "-" : row.verdict, std::to_string(num_runs), std::move(when),
               answer.empty() ? "-" : answer});
  }
  return table.text(width);
}

}  // namespace moetune::sweeps
