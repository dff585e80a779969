// The made-up hunts themselves: their commits, runs and results, written through the store.
#include "tests/reports/hunt_fixture_helper.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace moetune::tests {
namespace {

using nlohmann::json;

constexpr double kBefore = 41.2e6;  // ns
constexpr double kAfter = 42.9e6;

/// The same numbers on every machine, in -1 to 1, most of them near 0.
class Noise {
 public:
  double next() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24);
    }
    return sum / 2 - 1;
  }

 private:
  uint64_t state_ = 1;
};

std::string commit_id(int position) {
  return fmt::format("{:08x}{:032x}", 0x9e3779b9U * static_cast<uint32_t>(position + 1), position);
}

std::string subject_of(int position) {
  constexpr std::array kSubjects = {
      "kernels: wider tiles for the grouped product", "engine: free the routing table earlier",
      "docs: say how the cache is keyed", "comm: one stream for each group",
      "tests: longer sequences in the attention test"};
  return position == kCulpritPosition
             ? "dispatch: sort tokens by expert on the host, for debugging"
             : std::string(kSubjects[static_cast<size_t>(position) % kSubjects.size()]);
}

class HuntBuilder {
 public:
  HuntBuilder(store::Store& store, const std::string& hostile, const std::string& metric,
              int num_commits)
      : store_(store), hostile_(hostile) {
    store::BisectRow row;
    row.config_hash = "hunt of " + metric + std::to_string(store.read_bisects().size());
    row.config_json = "{}";
    row.repository = hostile + "/src/engine";
    row.good = hostile.empty() ? commit_id(0) : hostile;
    row.bad = hostile.empty() ? commit_id(num_commits) : hostile;
    row.metric = hostile + metric;
    row.command_line =
        hostile + "moetune bisect --repo . --good v0.3 --bad main --spec trial.json --metric " +
        metric;
    row.tool_version = "0.1.0";
    row.tool_commit = "0000000";
    id_ = store.open_bisect(row);
    std::vector<store::BisectCommitRow> commits;
    for (int position = 0; position <= num_commits; ++position) {
      commits.push_back(
          {position, hostile + commit_id(position), hostile + subject_of(position),
           hostile + "A. Author",
           fmt::format("2026-0{}-{:02d}T09:30:00+00:00", 1 + position / 28, 1 + position % 28)});
    }
    store.set_bisect_commits(id_, commits);
  }

  void run(int position, const std::string& purpose, double value) {
    add(position, purpose, "ok", value, "");
  }
  void fail(int position, const std::string& status, const std::string& message) {
    add(position, "search", status, std::nullopt, message);
  }
  void finish(store::SearchStatus status, const std::string& verdict, json result) {
    result["verdict"] = verdict;
    store_.finish_bisect(id_, status, verdict,
                         result.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  [[nodiscard]] std::string text(const std::string& value) const { return hostile_ + value; }

 private:
  void add(int position, const std::string& purpose, const std::string& status,
           std::optional<double> value, const std::string& message) {
    store::BisectRunRow row;
    row.position = position;
    row.key = hostile_ + "key";
    row.purpose = hostile_ + purpose;
    row.status = status;
    row.value = value;
    row.message = message.empty() ? "" : hostile_ + message;
    row.build_seconds = ++num_runs_ % 3 == 0 ? 48.5 : 0;
    row.run_seconds = 6.25;
    row.started_at =
        fmt::format("2026-11-20T10:{:02d}:{:02d}.000Z", num_runs_ / 6, num_runs_ % 6 * 10);
    store_.add_bisect_run(id_, row);
  }

  store::Store& store_;
  std::string hostile_;
  int64_t id_ = 0;
  int num_runs_ = 0;
};

void add_memory_hunt(store::Store& store, const std::string& hostile) {
  HuntBuilder hunt(store, hostile, "peak_bytes", 20);
  constexpr double kMebi = 1 << 20;
  for (const int position : {0, 20, 10, 5, 7, 6}) {
    hunt.run(position, position % 20 == 0 ? "verify" : "search",
             (position >= 7 ? 46.125 : 44) * kMebi);
  }
  hunt.fail(8, "build_failed", "error: no member named 'groups' in 'Layout'");
  hunt.fail(9, "oom", "out of memory: 512 MiB asked for");
  hunt.finish(store::SearchStatus::done, "culprit",
              {{"metric", "peak_bytes"},
               {"unit", "bytes"},
               {"confidence", 0.95},
               {"posterior", {0, 0, 0, 0, 0, 0, 0, 1}},
               {"culprits",
                {{{"position", 7},
                  {"effect", {{"ratio", 2.125 / 44}, {"low", 2.125 / 44}, {"high", 2.125 / 44}}},
                  {"before", 44 * kMebi},
                  {"after", 46.125 * kMebi},
                  {"confidence", 1},
                  {"moved",
                   {{{"name", "memory_activations_bytes"},
                     {"before", 20 * kMebi},
                     {"after", 22.125 * kMebi}}}}}}},
               {"runs", 8},
               {"builds", 7},
               {"seconds", 412.0}});
}

void add_unchanged_hunt(store::Store& store, const std::string& hostile) {
  HuntBuilder hunt(store, hostile, "step_time", 12);
  Noise noise;
  for (int i = 0; i < 24; ++i) {
    hunt.run(i % 4 == 0 || i % 4 == 3 ? 0 : 12, "verify",
             kBefore * 1e-9 * (1 + 0.004 * noise.next()));
  }
  hunt.finish(store::SearchStatus::done, "no_change",
              {{"unit", "s"},
               {"effect", {{"ratio", 0.0004}, {"low", -0.003}, {"high", 0.0038}}},
               {"noise_ratio", 0.0041},
               {"detectable_ratio", 0.0052},
               {"confidence", 0.95},
               {"min_effect_ratio", 0.02},
               {"no_change", 0.991},
               {"runs", 24},
               {"builds", 2},
               {"seconds", 310.0},
               {"reason", hunt.text("Both ends take the same time.")}});
}

void add_interrupted_hunt(store::Store& store, const std::string& hostile) {
  HuntBuilder hunt(store, hostile, "tokens_per_s", 9);
  Noise noise;
  for (int i = 0; i < 14; ++i) {
    hunt.run(i % 10, i % 5 == 0 ? "reference" : "search", 14900 - 12 * i + 40 * noise.next());
  }
  std::vector<double> posterior(10, 0.1);
  posterior[4] = 0.25;
  hunt.finish(store::SearchStatus::interrupted, "unresolved",
              {{"reason", hunt.text("Interrupted after 14 runs.")},
               {"unit", hunt.text("tokens/s")},
               {"has_drift", true},
               {"no_change", 0.05},
               {"posterior", posterior},
               {"suspects", {3, 4, 5}}});
}

void add_step_time_hunt(store::Store& store, const std::string& hostile) {
  HuntBuilder hunt(store, hostile, "step_ns", kNumHuntCommits);
  Noise noise;
  const auto measure = [&](int position, const std::string& purpose, double outlier = 1) {
    const double level = position >= kCulpritPosition ? kAfter : kBefore;
    hunt.run(position, purpose, outlier * level * (1 + 0.016 * noise.next()));
  };
  for (int i = 0; i < 10; ++i) {
    measure(i % 4 == 0 || i % 4 == 3 ? 0 : kNumHuntCommits, "verify");
  }
  for (const int position : {32, 32, 48, 40, 40, 36, 36, 38, 38, 37, 37, 36, 35, 34, 37, 36}) {
    measure(position, "search");
  }
  measure(44, "search", 1.06);
  hunt.fail(41, "build_failed", "ninja: build stopped: subcommand failed");
  hunt.fail(39, "crashed", "signal 11");
  for (int i = 0; i < 8; ++i) {
    measure(i % 2 == 0 ? kCulpritPosition : kCulpritPosition - 1, "confirm");
  }
  std::vector<double> posterior(kNumHuntCommits + 1, 0.00002);
  posterior[kCulpritPosition] = 0.974;
  posterior[kCulpritPosition - 1] = 0.012;
  posterior[kCulpritPosition + 1] = 0.0095;
  posterior[33] = 0.0021;
  hunt.finish(
      store::SearchStatus::done, "culprit",
      {{"metric", hunt.text("step_ns")},
       {"unit", "ns"},
       {"effect", {{"ratio", 0.0405}, {"low", 0.0341}, {"high", 0.0472}}},
       {"noise_ratio", 0.0083},
       {"detectable_ratio", 0.012},
       {"confidence", 0.95},
       {"min_effect_ratio", 0.02},
       {"has_drift", false},
       {"no_change", 0.0004},
       {"posterior", posterior},
       {"culprits",
        {{{"position", kCulpritPosition},
          {"commit", hostile + commit_id(kCulpritPosition)},
          {"subject", hunt.text(subject_of(kCulpritPosition))},
          {"author", hunt.text("A. Author")},
          {"author_date", "2026-02-10T09:30:00+00:00"},
          {"effect", {{"ratio", 0.0413}, {"low", 0.0362}, {"high", 0.0461}}},
          {"before", kBefore},
          {"after", kAfter},
          {"confidence", 0.974},
          {"moved",
           {{{"name", hunt.text("op_dispatch.forward_ns")}, {"before", 4.02e6}, {"after", 5.71e6}},
            {{"name", "num_launches"}, {"before", 1200}, {"after", 1204}}}}}}},
       {"suspects", {kCulpritPosition}},
       {"runs", 37},
       {"builds", 11},
       {"seconds", 812.5},
       {"reproduce", hunt.text("git worktree add ../w " + commit_id(kCulpritPosition) +
                               " && cmake -S ../w -B ../b && cmake --build ../b")}});
}

}  // namespace

void add_hunts(store::Store& store, const std::string& hostile) {
  add_interrupted_hunt(store, hostile);
  add_unchanged_hunt(store, hostile);
  add_memory_hunt(store, hostile);
  add_step_time_hunt(store, hostile);
}

}  // namespace moetune::tests
