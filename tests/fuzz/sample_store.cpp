#include "tests/fuzz/sample_store.h"

#include <filesystem>

#include "profiler/store/bisect.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"

namespace moetune::tests {
namespace {

profiler::StepTrace sample_trace(int rank) {
  profiler::StepTrace trace{rank, 1, 0, 100, {}};
  for (int64_t i = 0; i < 4; ++i) {
    profiler::TraceRecord record;
    record.id = i;
    record.rank = rank;
    record.step = 1;
    record.kind = i % 2 == 0 ? profiler::RecordKind::kernel : profiler::RecordKind::collective;
    record.name = i % 2 == 0 ? "experts.forward" : "dispatch.forward";
    record.group = i % 2 == 0 ? "" : "ep";
    record.start_ns = 10 * i;
    record.end_ns = 10 * i + 5;
    record.producer_id = i - 1;
    if (i % 2 == 0) {
      record.thread = record.device = 0;
      record.kernel = "void experts<float>(float*)";
      record.grid = record.block = {8, 1, 1};
    } else {
      record.communicator = 3;
    }
    trace.records.push_back(record);
    if (i > 1) trace.further_waits.push_back({i, i - 2});
  }
  return trace;
}

void add_sweep(store::Store& store, const std::string& shard) {
  store::SweepRow sweep;
  sweep.name = "sample";
  sweep.config_hash = "cfg";
  sweep.config_json = sweep.contract_json = sweep.model_json = sweep.hardware_json = "{}";
  sweep.model_name = sweep.hardware_name = "tiny";
  const int64_t sweep_id = store.create_or_resume_sweep(sweep).id;
  store.set_environment(sweep_id, {{"host", "here"}, {"commit", "abc"}});
  store::TrialRow trial;
  trial.sweep_id = sweep_id;
  trial.spec_hash = "00ff";
  trial.spec_json = "{}";
  trial.phase = "fit";
  trial.knobs = {{"dp", "8"}};
  const int64_t id = store.begin_trial(trial, {{"step_ns", 2000, "calibrated"}}, {{0, "total", 7}});
  store::TrialResult result;
  result.status = "ok";
  result.wall = "compute";
  result.step_ns = 800;
  result.samples_ns = {790, 800, 810};
  result.texts = {{"stderr", "warning"}};
  result.shards.push_back(store::read_shard(shard));
  store.finish_trial(id, result);
  store.set_landmarks(sweep_id, {id, id, id});
  store::DecisionRow decision;
  decision.sweep_id = sweep_id;
  decision.ordinal = 1;
  decision.phase = "retune";
  decision.kind = store::DecisionKind::kept;
  decision.trial_id = id;
  store.add_decision(decision);
}

void add_hunt(store::Store& store) {
  store::BisectRow hunt;
  hunt.config_hash = "hunt";
  hunt.config_json = "{}";
  hunt.metric = "step_ns";
  const int64_t id = store.open_bisect(hunt);
  store.set_bisect_commits(id, {{0, "a0", "first", "me", "2026-01-01T00:00:00Z"},
                                {1, "b1", "second", "me", "2026-01-02T00:00:00Z"}});
  store::BisectRunRow run;
  run.position = 1;
  run.key = "k";
  run.purpose = "search";
  run.status = "ok";
  run.value = 1.5;
  store.add_bisect_run(id, run);
  store.finish_bisect(id, store::SearchStatus::done, "culprit", "{}");
}

/// One file of small pages without a log beside it.
void make_small(const std::string& path) {
  store::Database database(path, store::OpenMode::read_write);
  database.execute("PRAGMA journal_mode = delete");
  database.execute("PRAGMA page_size = 512; VACUUM");
}

}  // namespace

void make_sample_shard(const std::string& path) {
  {
    store::ShardWriter writer(path);
    writer.add_step({0, true, false, 900, 5.0});
    writer.add_step({1, false, true, 800, 4.5});
    writer.add_trace(sample_trace(0));
    writer.add_trace(sample_trace(1));
    writer.add_memory({0, 600, 4096, {100, 200, 300, 0, 0, 0}, "experts.w1"});
    writer.add_op({0, "experts.forward", 4, 40, 50, 20});
    writer.add_work({1, 0, {5, 1234567890123, 0}, {3, 4}, {7}});
    writer.add_metric(0, "num_launches", 4);
    writer.add_text("log", "hello");
    writer.commit();
  }
  make_small(path);
}

void make_sample_store(const std::string& path) {
  const std::string shard = path + ".shard";
  make_sample_shard(shard);
  {
    store::Store store = store::Store::open(path);
    add_sweep(store, shard);
    add_hunt(store);
  }
  make_small(path);
  std::filesystem::remove(shard);
}

}  // namespace moetune::tests
