// Reads hunts with their runs, and sorts the runs into what the charts show.
#include "reports/hunts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/median.h"
#include "kernels/base/units.h"
#include "profiler/store/db.h"
#include "reports/format.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

constexpr size_t kMostBars = 40;
constexpr double kSomeMass = 0.0005;  // what would be shown as 0.1 %
constexpr size_t kMostPoints = 5000;
constexpr size_t kMostPurposes = 6;
constexpr size_t kShownSubjectBytes = 70;
// An axis from the largest negative to the largest positive number has no length.
constexpr double kMostDrawn = 1e60;

bool is_drawn(const HuntRun& run) {
  return run.status == "ok" && run.value && std::abs(*run.value) < kMostDrawn;
}

}  // namespace

const HuntCommit& Hunt::commit_at(int64_t position) const {
  static const HuntCommit kNone;
  const auto found = commits.find(position);
  return found == commits.end() ? kNone : found->second;
}

int64_t Hunt::last_position() const {
  const auto last = commits.empty() ? int64_t{0} : commits.rbegin()->first;
  return std::max(last, static_cast<int64_t>(result.posterior.size()) - 1);
}

std::string Hunt::unit() const {
  return result.unit.empty() ? std::string(base::unit_of_name(row.metric)) : result.unit;
}

double Hunt::posterior_at(int64_t position) const {
  return position >= 0 && position < static_cast<int64_t>(result.posterior.size())
             ? result.posterior[static_cast<size_t>(position)]
             : 0;
}

std::vector<Hunt> read_hunts(const store::Store& store) {
  std::vector<Hunt> hunts;
  for (store::BisectRow& row : store.read_bisects()) {
    hunts.push_back({std::move(row), {}, {}});
  }
  std::ranges::reverse(hunts);
  hunts.resize(std::min(hunts.size(), kMostHunts));
  for (Hunt& hunt : hunts) {
    hunt.result = read_hunt_result(hunt.row.result_json);
    // Not Store::read_bisect_commits, which refuses what this page can show.
    const Rows rows(store.database(),
                    "SELECT position, substr(commit_id, 1, 80) AS id, substr(subject, 1, 300) AS "
                    "subject, substr(author, 1, 100) AS author, substr(author_date, 1, 40) AS "
                    "author_date FROM bisect_commit WHERE hunt_id = :hunt_id AND position >= 0 "
                    "ORDER BY position LIMIT 200000",
                    {{":hunt_id", hunt.row.id}});
    for (size_t i = 0; i < rows.size(); ++i) {
      hunt.commits[rows.integer(i, "position").value_or(0)] = {
          rows.text(i, "id"), rows.text(i, "subject"), rows.text(i, "author"),
          rows.text(i, "author_date")};
    }
  }
  return hunts;
}

int64_t count_hunts(const store::Store& store) {
  return store.database().query_int("SELECT count(*) FROM bisect_hunt");
}

std::vector<HuntRun> runs_of(const Rows& rows, int64_t hunt_id) {
  std::vector<HuntRun> runs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.integer(i, "hunt_id") != hunt_id) {
      continue;
    }
    runs.push_back({rows.integer(i, "ordinal").value_or(0), rows.integer(i, "position").value_or(0),
                    rows.text(i, "run_key").substr(0, rows.text(i, "run_key").find(';')),
                    rows.text(i, "purpose"), rows.text(i, "status"), rows.real(i, "value"),
                    rows.text(i, "message"), rows.real(i, "build_seconds"),
                    rows.real(i, "run_seconds"), rows.text(i, "started_at")});
  }
  return runs;
}

std::string short_id(const std::string& commit_id) {
  constexpr size_t kMostIdBytes = 40;
  return shortened(std::string(base::short_commit(commit_id)), kMostIdBytes);
}

std::string commit_label(const Hunt& hunt, int64_t position) {
  const HuntCommit& commit = hunt.commit_at(position);
  if (commit.id.empty() && commit.subject.empty()) {
    return fmt::format("position {}", position);
  }
  return fmt::format("{}{}{}", short_id(commit.id), commit.id.empty() ? "" : " ",
                     shortened(commit.subject, kShownSubjectBytes));
}

std::string value_text(std::optional<double> value, std::string_view unit) {
  return value && std::isfinite(*value) ? base::format_value(*value, unit) : "–";
}

std::vector<Level> levels_of(const Hunt& hunt, const std::vector<HuntRun>& runs) {
  if (!hunt.has_commits()) {
    return {};
  }
  const bool has_levels = hunt.result.hunted_metric != kRunFails;
  std::map<int64_t, const Culprit*> steps;
  for (const Culprit& culprit : hunt.result.culprits) {
    if (culprit.position > 0 && culprit.position <= hunt.last_position()) {
      steps[culprit.position] = &culprit;
    }
  }
  std::vector<Level> levels;
  const auto add = [&](int64_t from, int64_t to, const std::optional<double>& known) {
    if (has_levels && known && std::abs(*known) < kMostDrawn) {
      levels.push_back({from, to, *known});
      return;
    }
    std::vector<double> measured;
    for (const HuntRun& run : runs) {
      if (is_drawn(run) && run.position >= from && run.position <= to) {
        measured.push_back(*run.value);
      }
    }
    if (!measured.empty()) levels.push_back({from, to, base::median(std::move(measured))});
  };
  int64_t from = 0;
  std::optional<double> value = steps.empty() ? std::nullopt : steps.begin()->second->before;
  for (const auto& [position, culprit] : steps) {
    add(from, position - 1, value);
    from = position;
    value = culprit->after;
  }
  add(from, hunt.last_position(), value);
  return levels;
}

std::vector<Bar> posterior_bars(const Hunt& hunt) {
  const int64_t last = hunt.last_position();
  std::vector<int64_t> heavy;
  for (int64_t p = 0; p < static_cast<int64_t>(hunt.result.posterior.size()); ++p) {
    if (hunt.posterior_at(p) >= kSomeMass) {
      heavy.push_back(p);
    }
  }
  if (heavy.size() > kMostBars) {
    std::ranges::stable_sort(heavy, std::greater{},
                             [&](int64_t p) { return hunt.posterior_at(p); });
    heavy.resize(kMostBars);
  }
  std::set<int64_t> shown(heavy.begin(), heavy.end());
  shown.insert(0);
  shown.insert(last);
  for (const Culprit& culprit : hunt.result.culprits) {
    if (culprit.position >= 0 && culprit.position <= last) {
      shown.insert(culprit.position);
    }
  }
  std::vector<Bar> bars;
  int64_t next = 0;
  for (const int64_t position : shown) {
    if (position > next) {
      Bar gap{next, position - 1, 0};
      for (int64_t p = gap.first;
           p <= gap.last && p < static_cast<int64_t>(hunt.result.posterior.size()); ++p) {
        gap.probability += hunt.posterior_at(p);
      }
      bars.push_back(gap);
    }
    bars.push_back({position, position, hunt.posterior_at(position)});
    next = position + 1;
  }
  return bars;
}

json hunt_chart(const Hunt& hunt, const std::vector<HuntRun>& runs, size_t n) {
  std::set<int64_t> culprits;
  for (const Culprit& culprit : hunt.result.culprits) {
    if (culprit.position > 0 && culprit.position <= hunt.last_position()) {
      culprits.insert(culprit.position);
    }
  }
  json bars = json::array();
  if (!hunt.result.posterior.empty()) {
    for (const Bar& bar : posterior_bars(hunt)) {
      json entry = {{"from", bar.first}, {"p", bar.probability}};
      if (bar.last > bar.first) {
        entry["to"] = bar.last;
      } else {
        const HuntCommit& commit = hunt.commit_at(bar.first);
        entry["id"] = short_id(commit.id);
        entry["subject"] = shortened(commit.subject, kShownSubjectBytes);
        entry["date"] = commit.author_date;
      }
      bars.push_back(std::move(entry));
    }
  }

  std::vector<std::string> purposes;
  json points = json::array();
  json failures = json::array();
  json commits = json::object();
  for (const HuntRun& run : runs) {
    const bool has_place = run.position >= 0 && run.position <= hunt.last_position();
    if ((hunt.has_commits() && !has_place) || points.size() + failures.size() >= kMostPoints) {
      continue;
    }
    if (is_drawn(run)) {
      auto purpose = std::ranges::find(purposes, run.purpose);
      if (purpose == purposes.end()) {
        const bool is_full = purposes.size() + 1 >= kMostPurposes;
        const std::string name = is_full ? "other" : run.purpose;
        purpose = std::ranges::find(purposes, name);
        if (purpose == purposes.end()) {
          purpose = purposes.insert(purposes.end(), name);
        }
      }
      points.push_back({run.position, *run.value, run.ordinal, purpose - purposes.begin()});
    } else if (run.status != "ok") {
      failures.push_back({run.position, run.ordinal, run.status, shortened(run.message, 200)});
    } else {
      continue;
    }
    if (hunt.has_commits()) {
      commits[std::to_string(run.position)] = commit_label(hunt, run.position);
    }
  }
  json levels = json::array();
  for (const Level& level : levels_of(hunt, runs)) {
    levels.push_back({{"from", level.from}, {"to", level.to}, {"value", level.value}});
  }
  json steps = json::array();
  for (const int64_t position : culprits) {
    steps.push_back({{"position", position}, {"id", short_id(hunt.commit_at(position).id)}});
  }
  return {{"n", n},
          {"metric", hunt.row.metric},
          {"unit", hunt.unit()},
          {"last", hunt.last_position()},
          {"hasCommits", hunt.has_commits()},
          {"bars", bars},
          {"noChange", hunt.result.no_change ? json(*hunt.result.no_change) : json()},
          {"purposes", purposes},
          {"points", points},
          {"failures", failures},
          {"commits", commits},
          {"levels", levels},
          {"culprits", steps}};
}

}  // namespace moetune::reports
