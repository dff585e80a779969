// What the tests of single commits share: a repository of four, checks of an answer, a store to
// leave.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/bisect/commit_runner.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::tests {

/// Commits 0 to 3; "value" holds the number.
struct Commits : GitFixture {
  Commits() {
    for (const char* number : {"0", "1", "2", "3"}) {
      ids.push_back(commit_file("value", number, std::string("change ") + number));
    }
  }

  [[nodiscard]] sweeps::CommitRunnerOptions options(const std::string& run_command,
                                                    const std::string& build_command = "") const {
    sweeps::CommitRunnerOptions options;
    options.repository = repo;
    options.scratch = scratch;
    options.run_command = run_command;
    options.build_command = build_command;
    options.metric = "step_time";
    // Only the tests that wait for them have short ones.
    options.build_limit = options.run_limit = std::chrono::minutes(5);
    return options;
  }
  /// One run of a commit with a fresh runner, by default of the last one.
  [[nodiscard]] sweeps::CommitRun run(const std::string& run_command,
                                      const std::string& build_command = "") const {
    return sweeps::CommitRunner(options(run_command, build_command)).run(ids.back());
  }
  [[nodiscard]] std::string own(const std::string& name) const { return folder.file(name); }

  std::vector<std::string> ids;
  std::string scratch = folder.file("scratch");
};

/// Holds for every answer, whatever happened.
inline void check_message(const sweeps::CommitRun& run) {
  BOOST_TEST(run.value.has_value() == (run.status == sweeps::RunStatus::ok));
  BOOST_TEST(run.message.empty() == (run.status == sweeps::RunStatus::ok));
  BOOST_TEST(run.message.size() <= 500);
  BOOST_TEST(std::ranges::none_of(
      run.message, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
}

/// Checks how a run ended and that its message has all `words`.
inline void expect(const sweeps::CommitRun& run, sweeps::RunStatus status,
                   const std::vector<std::string>& words) {
  check_message(run);
  BOOST_TEST(sweeps::name_of(run.status) == sweeps::name_of(status), "it was " << run.message);
  for (const std::string& word : words) {
    BOOST_TEST((run.message.find(word) != std::string::npos),
               "'" << word << "' is not in: " << run.message);
  }
}

inline bool is_running(int64_t pid) {
  const std::string stat = text_of(fmt::format("/proc/{}/stat", pid));
  const size_t at = stat.rfind(") ");
  return at != std::string::npos && stat[at + 2] != 'Z' && stat[at + 2] != 'X';
}

/// The ids in a file, one a line.
inline std::vector<int64_t> pids_in(const std::string& path) {
  std::vector<int64_t> pids;
  std::ifstream file(path);
  for (int64_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

/// A store with one trial of two ranks.
inline void write_store(const std::string& path, const std::string& status, double peak = 900) {
  store::Store store = store::Store::open(path);
  store::SweepRow sweep;
  sweep.name = "single trials";
  sweep.config_hash = "hash";
  sweep.config_json = sweep.contract_json = sweep.model_json = sweep.hardware_json = "{}";
  sweep.model_name = "tiny";
  sweep.hardware_name = "emulated";
  const int64_t sweep_id = store.create_or_resume_sweep(sweep).id;
  for (const char* hash : {"01", "02"}) {
    store::TrialRow trial;
    trial.sweep_id = sweep_id;
    trial.spec_hash = hash;
    trial.spec_json = "{}";
    trial.phase = "profile";
    const int64_t id = store.begin_trial(trial);
    store::TrialResult result;
    result.status = std::string(hash) == "02" ? status : "ok";
    result.reason = result.status == "ok" ? "" : "no memory for \"experts\"";
    result.step_ns = 777;
    result.tokens_per_s = 5;
    result.metrics = {{-1, "comm_bytes.ep", 64}, {-1, "num_launches", 12}, {0, "num_launches", 6}};
    for (const int rank : {0, 1}) {
      const std::string shard = fmt::format("{}.{}.{}", path, hash, rank);
      store::ShardWriter writer(shard);
      writer.add_step({0, false, false, 777, 1.5});
      writer.add_memory({rank, static_cast<int64_t>(peak) + rank, 4096, {100 + rank, 20}, "x"});
      writer.add_op({rank, "experts.forward", 4, 40, 50, 20 + rank});
      writer.commit();
      result.shards.push_back(store::read_shard(shard));
    }
    store.finish_trial(id, result);
  }
}

}  // namespace moetune::tests
