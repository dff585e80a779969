// Rows, a shard and a result to store, and a child process that may be killed while it stores them.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::store::samples {

inline SweepRow sample_sweep(const std::string& hash = "cfg") {
  SweepRow sweep;
  sweep.name = "quickstart";
  sweep.config_hash = hash;
  sweep.config_json = R"({"a": 1})";
  sweep.contract_json = R"({"tokens": 1})";
  sweep.model_name = "tiny";
  sweep.model_json = R"({"layers": 4})";
  sweep.hardware_name = "emulated";
  sweep.hardware_json = R"({"nodes": 2})";
  sweep.command_line = "moetune sweep x.json";
  sweep.tool_version = "0.1.0";
  sweep.tool_commit = "abc";
  return sweep;
}

inline TrialRow sample_trial(int64_t sweep_id, const std::string& hash) {
  TrialRow trial;
  trial.sweep_id = sweep_id;
  trial.spec_hash = hash;
  trial.spec_json = R"({"dp": 8})";
  trial.phase = "fit";
  trial.predicted_peak_bytes = 1000;
  trial.predicted_step_ns = 2000;
  trial.knobs = {{"dp", "8"}, {"attn", "[]"}};
  return trial;
}

inline std::string write_shard(const std::string& path, int rank = 0) {
  ShardWriter writer(path);
  writer.add_step({0, true, false, 900, 5.0});
  writer.add_step({1, false, false, 800, 4.5});
  profiler::StepTrace trace{rank, 2, 0, 100, {}};
  for (int64_t i = 0; i < 4; ++i) {
    profiler::TraceRecord record;
    record.id = i;
    record.rank = rank;
    record.step = 2;
    record.name = "experts.forward";
    record.start_ns = 10 * i;
    record.end_ns = 10 * i + 5;
    trace.records.push_back(record);
  }
  writer.add_trace(trace);
  writer.add_memory({rank, 600 + rank, 4096, {100, 200, 300, 0, 0, 0}, "experts.w1"});
  writer.add_op({rank, "experts.forward", 4, 40, 50, 20});
  writer.add_metric(rank, "num_launches", 4);
  writer.add_text("log", "hello");
  writer.commit();
  return path;
}

inline TrialResult ok_result(const std::vector<std::string>& shards = {}) {
  TrialResult result;
  result.status = "ok";
  result.wall = "compute";
  result.step_ns = 800;
  result.step_ns_low = 790;
  result.step_ns_high = 820;
  result.tokens_per_s = 1e6;
  result.metrics = {{-1, "step_ns", 800}, {-1, "overlap_ratio", 0.5}};
  result.texts = {{"stderr", "warning"}};
  for (const std::string& shard : shards) result.shards.push_back(read_shard(shard));
  return result;
}

/// Runs `work` in a child process and tells how it ended.
inline int status_of_child(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (...) {
      _exit(99);
    }
    _exit(0);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace moetune::store::samples
