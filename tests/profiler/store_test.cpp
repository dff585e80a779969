// The runs database: round trips, the commit point, leases, resuming, and files that are not what
// they should be.
#include "profiler/store/store.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <functional>
#include <limits>

#include "profiler/store/db.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(store_test)

namespace {

using tests::says;
using tests::TempFolder;

SweepRow sample_sweep(const std::string& hash = "cfg") {
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

TrialRow sample_trial(int64_t sweep_id, const std::string& hash) {
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

DecisionRow sample_decision(int64_t sweep_id, int64_t ordinal, const std::string& text) {
  DecisionRow decision;
  decision.sweep_id = sweep_id;
  decision.ordinal = ordinal;
  decision.phase = "retune";
  decision.kind = DecisionKind::kept;
  decision.wall = "communication";
  decision.remedy = "overlap";
  decision.knob = "ep_chunks";
  decision.value_before = "1";
  decision.value_after = "2";
  decision.gain_ratio = 0.25;
  decision.text = text;
  decision.evidence_json = R"({"exposed_ns": 5})";
  return decision;
}

std::string write_shard(const std::string& path, int rank = 0) {
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

TrialResult ok_result(const std::vector<std::string>& shards = {}) {
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
int status_of_child(const std::function<void()>& work) {
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

BOOST_AUTO_TEST_CASE(a_trial_comes_back_as_it_was_finished) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const auto [sweep_id, is_resumed] = store.create_or_resume_sweep(sample_sweep());
  BOOST_TEST(!is_resumed);
  const int64_t id =
      store.begin_trial(sample_trial(sweep_id, "00ff"), {{"step_ns", 2000, "calibrated"}},
                        {{0, "weights", 110}, {0, "total", 620}, {7, "total", 5}});
  TrialRow trial = store.get_trial(id).value();
  BOOST_TEST(trial.status == "running");
  BOOST_TEST(trial.lease.pid == getpid());
  BOOST_TEST(is_alive(trial.lease));

  const FinishOutcome outcome = store.finish_trial(
      id, ok_result({write_shard(folder.file("0.db"), 0), write_shard(folder.file("1.db"), 1)}));
  BOOST_TEST(outcome.status == "ok");
  BOOST_TEST(outcome.shard_problems.empty());

  const Store reader = Store::open_read_only(folder.file("runs.db"));
  trial = reader.find_trial(sweep_id, "00ff").value();
  BOOST_TEST(trial.status == "ok");
  BOOST_TEST(trial.reason == "");
  BOOST_TEST(trial.wall == "compute");
  BOOST_TEST(trial.ordinal == 1);
  BOOST_TEST(trial.num_attempts == 1);
  BOOST_TEST(trial.predicted_peak_bytes.value() == 1000);
  BOOST_TEST(trial.peak_bytes.value() == 601);
  BOOST_TEST(trial.step_ns.value() == 800);
  BOOST_TEST(trial.step_ns_low.value() == 790);
  BOOST_TEST(trial.step_ns_high.value() == 820);
  BOOST_TEST(trial.tokens_per_s.value() == 1e6);
  BOOST_TEST(trial.loss_final.value() == 4.5);
  BOOST_TEST(trial.duration_ns.value() >= 0);
  BOOST_TEST(trial.ended_at >= trial.started_at);
  BOOST_TEST(trial.started_at.size() == 24U);
  BOOST_TEST_REQUIRE(trial.knobs.size() == 2U);
  BOOST_TEST(trial.knobs[0].name == "dp");
  BOOST_TEST(trial.knobs[1].value == "[]");

  BOOST_TEST(reader.read_steps(id).size() == 2U);
  BOOST_TEST(reader.read_steps(id)[1].loss == 4.5);
  BOOST_TEST(reader.read_ops(id).size() == 2U);
  BOOST_TEST(reader.read_metrics(id).size() == 4U);
  BOOST_TEST(reader.read_predictions(id)[0].grade == "calibrated");
  const std::vector<NamedText> texts = reader.read_texts(id);
  BOOST_TEST_REQUIRE(texts.size() == 3U);
  BOOST_TEST(texts[2].name == "stderr");

  const std::vector<MemoryRow> memory = reader.read_memory(id);
  const auto row = [&](int rank, const std::string& group) {
    return *std::find_if(memory.begin(), memory.end(),
                         [&](const MemoryRow& m) { return m.rank == rank && m.group == group; });
  };
  BOOST_TEST(memory.size() == 17U);
  BOOST_TEST(row(0, "weights").bytes.value() == 100);
  BOOST_TEST(row(0, "weights").predicted_bytes.value() == 110);
  BOOST_TEST(row(0, "total").peak_allocation == "experts.w1");
  BOOST_TEST(!row(1, "total").predicted_bytes.has_value());
  BOOST_TEST(row(1, "capacity").bytes.value() == 4096);
  BOOST_TEST(!row(7, "total").bytes.has_value());

  const auto traces = reader.read_trace(id);
  BOOST_TEST_REQUIRE(traces.size() == 2U);
  BOOST_TEST(traces[1].rank == 1);
  BOOST_TEST_REQUIRE(traces[1].records.size() == 4U);
  BOOST_TEST(traces[1].records[3].start_ns == 30);
  BOOST_TEST(traces[1].records[3].name == "experts.forward");
  BOOST_TEST(traces[1].records[3].group == "");
}

BOOST_AUTO_TEST_CASE(the_trace_can_be_left_out) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  TrialResult result = ok_result({write_shard(folder.file("0.db"))});
  result.keeps_trace = false;
  store.finish_trial(id, result);
  BOOST_TEST(store.read_trace(id).empty());
  BOOST_TEST(store.read_ops(id).size() == 1U);
}

const std::vector<NamedText> kHere = {{"host", "a"}, {"commit", "c1"}, {"binary", "b1"}};

BOOST_AUTO_TEST_CASE(environments_are_kept) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  BOOST_TEST(store.read_environments(sweep_id).empty());
  BOOST_TEST(store.read_environment(sweep_id).empty());
  const int64_t first = store.set_environment(sweep_id, kHere);
  BOOST_TEST(store.set_environment(sweep_id, kHere) == first);
  std::vector<NamedText> changed = kHere;
  changed.push_back({"memory", "1 GiB"});
  const int64_t second = store.set_environment(sweep_id, changed);
  BOOST_TEST(second != first);
  // Back again is a third time: the latest is the one that the sweep runs in.
  const int64_t third = store.set_environment(sweep_id, kHere);
  const std::vector<EnvironmentRow> rows = store.read_environments(sweep_id);
  BOOST_TEST_REQUIRE(rows.size() == 3U);
  BOOST_TEST(rows[0].id == first);
  BOOST_TEST(rows[2].id == third);
  BOOST_TEST(rows[2].ordinal == 3);
  BOOST_TEST(rows[1].value("memory") == "1 GiB");
  BOOST_TEST(rows[0].value("memory") == "");
  BOOST_TEST(store.read_environment(sweep_id).size() == 3U);
  // Host, commit and binary decide what may be compared, and nothing else.
  BOOST_TEST(are_comparable(rows[0], rows[1]));
  for (const char* name : {"host", "commit", "binary"}) {
    EnvironmentRow other = rows[0];
    for (NamedText& value : other.values) {
      if (value.name == name) value.value += "x";
    }
    BOOST_TEST(!are_comparable(rows[0], other));
    std::erase_if(other.values, [&](const NamedText& value) { return value.name == name; });
    BOOST_TEST(!are_comparable(rows[0], other));
  }
  // They go with their sweep.
  store.database().execute("DELETE FROM sweep");
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM environment_value") == 0);
}

BOOST_AUTO_TEST_CASE(every_run_of_a_trial_is_a_measurement) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t here = store.set_environment(sweep_id, kHere);
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  BOOST_TEST(store.read_measurements(id).empty());
  TrialResult result = ok_result({write_shard(folder.file("0.db"))});
  result.num_steps = 3;
  result.samples_ns = {790, 800, 820};
  store.finish_trial(id, result);
  std::vector<MeasurementRow> runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 1U);
  BOOST_TEST(runs[0].attempt == 1);
  BOOST_TEST(runs[0].purpose == "first");
  BOOST_TEST(runs[0].status == "ok");
  BOOST_TEST(runs[0].is_counted);
  BOOST_TEST(runs[0].num_steps == 3);
  BOOST_TEST(runs[0].samples_ns == result.samples_ns, boost::test_tools::per_element());
  BOOST_TEST(runs[0].step_ns.value() == 800);
  BOOST_TEST(runs[0].step_ns_low.value() == 790);
  BOOST_TEST(runs[0].step_ns_high.value() == 820);
  BOOST_TEST(runs[0].window_start == store.get_trial(id)->started_at);
  BOOST_TEST(runs[0].window_end >= runs[0].window_start);
  BOOST_TEST(runs[0].duration_ns.value() >= 0);
  BOOST_TEST(runs[0].environment_id.value() == here);
  BOOST_TEST(runs[0].commit == "c1");

  // Again, in the same environment: the trial's own rows stay those of its first run.
  TrialResult again;
  again.status = "ok";
  again.purpose = "longer";
  again.num_steps = 9;
  again.step_ns = 860;
  again.samples_ns = {850, 860, 870};
  again.played_ns = {855, 860, 861};
  again.probe_ns = 57;
  const std::string start = "2026-02-03T04:05:06.000Z";
  BOOST_TEST(store.add_measurement(id, start, again, TrialSpeed{830, 800, 860, 5.0}) == 2);
  runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 2U);
  BOOST_TEST(runs[1].purpose == "longer");
  BOOST_TEST(runs[1].played_ns == again.played_ns, boost::test_tools::per_element());
  BOOST_TEST(runs[1].probe_ns.value() == 57);
  BOOST_TEST(runs[0].played_ns.empty());
  BOOST_TEST(!runs[0].probe_ns.has_value());
  BOOST_TEST(runs[1].window_start == start);
  BOOST_TEST(runs[0].is_counted);
  TrialRow trial = store.get_trial(id).value();
  BOOST_TEST(trial.step_ns.value() == 830);
  BOOST_TEST(trial.step_ns_low.value() == 800);
  BOOST_TEST(trial.tokens_per_s.value() == 5.0);
  BOOST_TEST(trial.num_attempts == 2);
  BOOST_TEST(store.read_steps(id).size() == 2U);
  TrialResult bad;
  bad.status = "crashed";
  bad.reason = "signal 11";
  bad.purpose = "again";
  store.add_measurement(id, start, bad, std::nullopt);
  BOOST_TEST(store.get_trial(id)->status == "ok");
  BOOST_TEST(store.get_trial(id)->step_ns.value() == 830);
  BOOST_TEST(store.read_measurements(id).at(2).reason == "signal 11");

  // With another build: what was measured stays, but no longer counts.
  std::vector<NamedText> rebuilt = kHere;
  rebuilt[2].value = "b2";
  const int64_t there = store.set_environment(sweep_id, rebuilt);
  TrialRow next = sample_trial(sweep_id, "a");
  next.started_at = start;
  next.is_baseline = true;
  TrialResult other = ok_result({write_shard(folder.file("1.db"), 3)});
  other.step_ns = 400;
  BOOST_TEST(store.replace_trial(next, {{"step_ns", 7, "analytic"}}, {}, other).status == "ok");
  runs = store.read_measurements(id);
  BOOST_TEST_REQUIRE(runs.size() == 4U);
  for (const MeasurementRow& run : runs) BOOST_TEST(run.is_counted == (run.attempt == 4));
  BOOST_TEST(runs[3].environment_id.value() == there);
  BOOST_TEST(runs[0].environment_id.value() == here);
  trial = store.get_trial(id).value();
  BOOST_TEST(trial.step_ns.value() == 400);
  BOOST_TEST(trial.is_baseline);
  BOOST_TEST(trial.knobs.size() == 2U);
  BOOST_TEST(store.read_ops(id).at(0).rank == 3);
  BOOST_TEST(store.read_predictions(id).at(0).value == 7);
  BOOST_TEST(store.read_measurements_of_sweep(sweep_id).size() == 4U);
  BOOST_TEST(store.read_measurements_of_sweep(sweep_id + 1).empty());
}

BOOST_AUTO_TEST_CASE(replacing_a_trial_is_all_or_nothing) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  const std::string shard = write_shard(folder.file("0.db"));
  int64_t sweep_id = 0;
  {
    Store store = Store::open(path);
    sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
    store.set_environment(sweep_id, kHere);
    TrialRow trial = sample_trial(sweep_id, "a");
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, ok_result()), base::Error);
    const int64_t id = store.begin_trial(trial);
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, ok_result()), base::Error);
    store.finish_trial(id, ok_result({shard}));
    TrialResult stopped;
    stopped.status = "interrupted";
    BOOST_CHECK_THROW(store.replace_trial(trial, {}, {}, stopped), base::Error);
  }
  const int status = status_of_child([&] {
    Store store = Store::open(path);
    store.set_environment(sweep_id, {{"host", "b"}});
    TrialResult result = ok_result();
    result.step_ns = 1;
    store.database().set_commit_hook([] { raise(SIGKILL); });
    store.replace_trial(sample_trial(sweep_id, "a"), {}, {}, result);
  });
  BOOST_REQUIRE(WIFSIGNALED(status));
  Store store = Store::open(path);
  const TrialRow trial = store.find_trial(sweep_id, "a").value();
  BOOST_TEST(trial.status == "ok");
  BOOST_TEST(trial.step_ns.value() == 800);
  BOOST_TEST(store.read_steps(trial.id).size() == 2U);
  BOOST_TEST(store.read_measurements(trial.id).size() == 1U);
  BOOST_TEST(store.read_measurements(trial.id)[0].is_counted);
  // There is no other moment between then and now.
  int num_commits = 0;
  store.database().set_commit_hook([&] { ++num_commits; });
  store.replace_trial(sample_trial(sweep_id, "a"), {}, {}, ok_result());
  BOOST_TEST(num_commits == 1);
  store.add_measurement(trial.id, "t", ok_result(), TrialSpeed{1, 1, 1, 1});
  BOOST_TEST(num_commits == 2);
}

BOOST_AUTO_TEST_CASE(a_run_that_was_stopped_is_no_measurement) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  TrialResult stopped;
  stopped.status = "interrupted";
  store.finish_trial(id, stopped);
  BOOST_TEST(store.read_measurements(id).empty());
  // Nobody said where it ran.
  store.begin_trial(sample_trial(sweep_id, "a"));
  store.finish_trial(id, ok_result());
  BOOST_TEST(!store.read_measurements(id).at(0).environment_id.has_value());
  store.set_environment(sweep_id, kHere);
  TrialResult again = ok_result();
  store.add_measurement(id, "t", again, std::nullopt);
  BOOST_TEST(!store.read_measurements(id).at(0).is_counted);
}

BOOST_AUTO_TEST_CASE(what_a_foreign_hand_made_of_measurements_is_survived) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  store.set_environment(sweep_id, kHere);
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  store.finish_trial(id, ok_result());
  for (const char* samples :
       {"", "[", "]", "[]", "no list", "[1,,2]", "[1,2", "[-5]", "[1.5]", "[99999999999999999999]",
        "[1,]", "[,1]", "[[1]]", "[1 ,2]", "{\"a\": 1}"}) {
    store::Statement(store.database(), "UPDATE measurement SET samples = ?").bind(1, samples).run();
    BOOST_TEST(store.read_measurements(id).at(0).samples_ns.empty(), samples);
  }
  store.database().execute("UPDATE measurement SET samples = '[7,8]'");
  BOOST_TEST(store.read_measurements(id).at(0).samples_ns.size() == 2U);
  store.database().execute(
      "UPDATE measurement SET attempt = 9223372036854775807, num_steps = -3, window_start = 'x', "
      "step_ns = -9223372036854775808, duration_ns = -1, is_counted = 0");
  BOOST_TEST(store.read_measurements(id).at(0).num_steps == -3);
  // There is no next number.
  BOOST_CHECK_THROW(store.add_measurement(id, "t", ok_result(), std::nullopt), base::Error);
  for (const char* sql :
       {"UPDATE measurement SET purpose = 'fun'", "UPDATE measurement SET status = 'running'",
        "UPDATE measurement SET environment_id = 99"}) {
    BOOST_CHECK_THROW(store.database().execute(sql), ConstraintError);
  }
  // The environment it was made in is gone: nothing is known of it.
  store.database().execute("DELETE FROM environment");
  BOOST_TEST(!store.read_measurements(id).at(0).environment_id.has_value());
}

BOOST_AUTO_TEST_CASE(a_sweep_says_which_trials_matter) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  TrialRow start = sample_trial(sweep_id, "start");
  start.is_baseline = true;
  const int64_t first = store.begin_trial(start);
  const int64_t second = store.begin_trial(sample_trial(sweep_id, "other"));
  BOOST_TEST(store.read_sweep(sweep_id)->baseline_trial.value() == first);
  BOOST_TEST(store.get_trial(first)->is_baseline);
  BOOST_TEST(!store.get_trial(second)->is_baseline);
  store.set_baseline(second);
  BOOST_TEST(store.get_trial(second)->is_baseline);
  BOOST_TEST(!store.get_trial(first)->is_baseline);
  store.set_landmarks(sweep_id, {second, first, second});
  SweepRow sweep = store.read_sweep(sweep_id).value();
  BOOST_TEST(sweep.winner_trial.value() == second);
  BOOST_TEST(sweep.baseline_trial.value() == first);
  BOOST_TEST(sweep.first_fit_trial.value() == second);
  // Resuming forgets none of it.
  store.create_or_resume_sweep(sample_sweep());
  BOOST_TEST(store.read_sweep(sweep_id)->winner_trial.value() == second);
  store.database().execute(fmt::format("DELETE FROM trial WHERE id = {}", second));
  sweep = store.read_sweep(sweep_id).value();
  BOOST_TEST(!sweep.winner_trial.has_value());
  BOOST_TEST(sweep.baseline_trial.value() == first);
  BOOST_CHECK_THROW(store.set_landmarks(sweep_id + 1, {}), base::Error);
  BOOST_CHECK_THROW(store.set_landmarks(sweep_id, {77, {}, {}}), ConstraintError);
}

BOOST_AUTO_TEST_CASE(sweeps_resume_by_their_configuration) {
  const TempFolder folder;
  int64_t id = 0;
  {
    Store store = Store::open(folder.file("runs.db"));
    id = store.create_or_resume_sweep(sample_sweep()).id;
    store.set_environment(id, {{"host", "a"}, {"cpu", "b"}});
    store.set_environment(id, {{"host", "c"}});
    store.finish_sweep(id, SearchStatus::interrupted);
    BOOST_TEST((store.read_sweep(id)->status == SearchStatus::interrupted));
    BOOST_CHECK_THROW(store.finish_sweep(id, static_cast<SearchStatus>(99)), ConstraintError);
    BOOST_CHECK_THROW(store.finish_sweep(id + 1, SearchStatus::done), base::Error);
  }
  Store store = Store::open(folder.file("runs.db"));
  const auto again = store.create_or_resume_sweep(sample_sweep());
  BOOST_TEST(again.is_resumed);
  BOOST_TEST(again.id == id);
  const auto other = store.create_or_resume_sweep(sample_sweep("other"));
  BOOST_TEST(!other.is_resumed);
  const std::vector<SweepRow> sweeps = store.read_sweeps();
  BOOST_TEST_REQUIRE(sweeps.size() == 2U);
  BOOST_TEST((sweeps[0].status == SearchStatus::running));
  BOOST_TEST(sweeps[0].ended_at == "");
  BOOST_TEST(sweeps[0].contract_json == sample_sweep().contract_json);
  BOOST_TEST(sweeps[0].model_json == R"({"layers": 4})");
  BOOST_TEST(sweeps[1].hardware_name == "emulated");
  BOOST_TEST(sweeps[1].tool_commit == "abc");
  BOOST_TEST_REQUIRE(store.read_environment(id).size() == 1U);
  BOOST_TEST(store.read_environment(id)[0].value == "c");
  BOOST_TEST(store.database().query_int("SELECT count(*) FROM model") == 1);
  BOOST_TEST(!store.read_sweep(99).has_value());
}

BOOST_AUTO_TEST_CASE(decisions_are_idempotent) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t trial_id = store.begin_trial(sample_trial(sweep_id, "a"));
  store.add_decision(sample_decision(sweep_id, 2, "second"));
  DecisionRow first = sample_decision(sweep_id, 1, "first");
  first.trial_id = trial_id;
  first.wall = "";
  store.add_decision(first);
  store.add_decision(sample_decision(sweep_id, 2, "second again"));
  std::vector<DecisionRow> decisions = store.read_decisions(sweep_id);
  BOOST_TEST_REQUIRE(decisions.size() == 2U);
  BOOST_TEST(decisions[0].text == "first");
  BOOST_TEST(decisions[0].trial_id.value() == trial_id);
  BOOST_TEST(decisions[0].wall == "");
  BOOST_TEST(!decisions[1].trial_id.has_value());
  BOOST_TEST(decisions[1].text == "second again");
  BOOST_TEST(decisions[1].gain_ratio.value() == 0.25);
  BOOST_TEST(!decisions[1].noise_ratio.has_value());
  BOOST_TEST(decisions[1].knob == "ep_chunks");
  BOOST_TEST(decisions[1].value_after == "2");
  BOOST_TEST(decisions[1].evidence_json == R"({"exposed_ns": 5})");
  store.drop_decisions(sweep_id, 2);
  BOOST_TEST(store.read_decisions(sweep_id).size() == 1U);
  DecisionRow wrong = sample_decision(sweep_id, 3, "x");
  wrong.kind = static_cast<DecisionKind>(99);
  BOOST_CHECK_THROW(store.add_decision(wrong), ConstraintError);
}

BOOST_AUTO_TEST_CASE(words_of_the_database_are_read_back) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t hunt_id = store.open_bisect({});
  DecisionRow decision = sample_decision(sweep_id, 1, "text");
  for (const auto& row : base::kDecisionKinds) {
    decision.kind = row.value;
    store.add_decision(decision);
    BOOST_TEST((store.read_decisions(sweep_id).at(0).kind == row.value), row.name);
  }
  for (const auto& row : kSearchStatuses) {
    store.finish_sweep(sweep_id, row.value);
    BOOST_TEST((store.read_sweep(sweep_id)->status == row.value), row.name);
    store.finish_bisect(hunt_id, row.value, "", "{}");
    BOOST_TEST((store.read_bisects().at(0).status == row.value), row.name);
  }
  // What another hand wrote claims as little as can be.
  store.database().execute(
      "PRAGMA ignore_check_constraints = on; UPDATE decision SET kind = 'Kept'; "
      "UPDATE sweep SET status = 'perhaps'; UPDATE bisect_hunt SET status = ''");
  BOOST_TEST((store.read_decisions(sweep_id).at(0).kind == DecisionKind::note));
  BOOST_TEST((store.read_sweep(sweep_id)->status == SearchStatus::interrupted));
  BOOST_TEST((store.read_bisects().at(0).status == SearchStatus::interrupted));
}

BOOST_AUTO_TEST_CASE(trials_that_never_ran) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  TrialRow trial = sample_trial(sweep_id, "bad");
  trial.status = "invalid";
  trial.reason = "ep_divides_experts: 8 experts over ep 3";
  const int64_t id = store.add_finished_trial(trial, {{"step_ns", 1, "analytic"}});
  BOOST_TEST(store.add_finished_trial(trial) == id);
  BOOST_TEST(store.get_trial(id)->status == "invalid");
  BOOST_TEST(store.get_trial(id)->reason == trial.reason);
  BOOST_TEST(store.get_trial(id)->num_attempts == 0);
  BOOST_TEST(store.get_trial(id)->knobs.size() == 2U);
  BOOST_CHECK_EXCEPTION(store.begin_trial(trial), base::Error, says("bad", "invalid"));
  trial.spec_hash = "pruned";
  trial.status = "pruned";
  const int64_t pruned_id = store.add_finished_trial(trial);
  BOOST_TEST(store.begin_trial(trial) == pruned_id);
  BOOST_TEST(store.get_trial(pruned_id)->status == "running");
  BOOST_TEST(store.get_trial(pruned_id)->reason == "");
  trial.spec_hash = "never";
  trial.status = "running";
  BOOST_CHECK_THROW(store.add_finished_trial(trial), base::Error);
  trial.status = "odd";
  BOOST_CHECK_THROW(store.add_finished_trial(trial), ConstraintError);
  BOOST_TEST(store.list_trials(sweep_id).size() == 2U);
}

BOOST_AUTO_TEST_CASE(finished_and_held_trials_are_not_begun_again) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const TrialRow trial = sample_trial(sweep_id, "a");
  const int64_t id = store.begin_trial(trial);
  BOOST_CHECK_EXCEPTION(store.begin_trial(trial), base::Error, says("held by process"));
  store.finish_trial(id, ok_result());
  BOOST_CHECK_EXCEPTION(store.begin_trial(trial), base::Error, says("finished"));
  BOOST_CHECK_EXCEPTION(store.finish_trial(id, ok_result()), base::Error, says("not running"));
  BOOST_TEST(store.read_metrics(id).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_shard_that_contradicts_itself_fails_the_trial_and_nothing_else) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  // The same rank in two shards: the second is left out as a whole.
  const std::vector<std::string> shards = {write_shard(folder.file("good.db")),
                                           write_shard(folder.file("copy.db"))};
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  FinishOutcome outcome = store.finish_trial(id, ok_result(shards));
  BOOST_TEST(outcome.status == "failed");
  BOOST_TEST(outcome.shard_problems.size() == 1U);
  BOOST_TEST(store.get_trial(id)->status == "failed");
  BOOST_TEST(store.get_trial(id)->reason.find("copy.db") != std::string::npos);
  BOOST_TEST(store.read_steps(id).size() == 2U);  // what makes sense is kept
  BOOST_TEST(store.read_trace(id).size() == 1U);
  BOOST_TEST(store.read_ops(id).size() == 1U);

  const int64_t crashed = store.begin_trial(sample_trial(sweep_id, "b"));
  TrialResult result = ok_result(shards);
  result.status = "crashed";
  result.reason = "signal 11";
  outcome = store.finish_trial(crashed, result);
  BOOST_TEST(outcome.status == "crashed");
  BOOST_TEST(store.get_trial(crashed)->reason == "signal 11");
  BOOST_TEST(store.read_texts(crashed).back().name == "shard_problem");
}

BOOST_AUTO_TEST_CASE(unknown_metrics_are_refused_before_anything_is_written) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  TrialResult result = ok_result({write_shard(folder.file("0.db"))});
  result.metrics.push_back({-1, "speediness", 1});
  BOOST_CHECK_EXCEPTION(store.finish_trial(id, result), base::Error, says("speediness"));
  BOOST_TEST(store.get_trial(id)->status == "running");
  BOOST_TEST(store.read_steps(id).empty());
}

BOOST_AUTO_TEST_CASE(killed_before_the_commit_point_leaves_a_running_row) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  const std::string shard = write_shard(folder.file("0.db"));
  int64_t sweep_id = 0;
  { sweep_id = Store::open(path).create_or_resume_sweep(sample_sweep()).id; }
  const int status = status_of_child([&] {
    Store store = Store::open(path);
    const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
    // Every row is written and the status flipped; only the commit itself is missing.
    store.database().set_commit_hook([] { raise(SIGKILL); });
    store.finish_trial(id, ok_result({shard}));
  });
  BOOST_REQUIRE(WIFSIGNALED(status));

  Store store = Store::open(path);
  TrialRow trial = store.find_trial(sweep_id, "a").value();
  BOOST_TEST(trial.status == "running");
  BOOST_TEST(!trial.step_ns.has_value());
  BOOST_TEST(store.read_steps(trial.id).empty());
  BOOST_TEST(store.read_trace(trial.id).empty());
  BOOST_TEST(store.read_metrics(trial.id).empty());
  BOOST_TEST(!is_alive(trial.lease));

  const StaleTrials stale = store.take_back_stale(sweep_id);
  BOOST_TEST(stale.held.empty());
  BOOST_TEST_REQUIRE(stale.taken_back.size() == 1U);
  BOOST_TEST(stale.taken_back[0] == "a");
  trial = store.find_trial(sweep_id, "a").value();
  BOOST_TEST(trial.status == "interrupted");
  BOOST_TEST(!is_final(trial.status));
  BOOST_TEST(store.begin_trial(sample_trial(sweep_id, "a")) == trial.id);
  store.finish_trial(trial.id, ok_result({shard}));
  trial = store.find_trial(sweep_id, "a").value();
  BOOST_TEST(trial.status == "ok");
  BOOST_TEST(trial.num_attempts == 2);
  BOOST_TEST(trial.knobs.size() == 2U);
}

BOOST_AUTO_TEST_CASE(leases_tell_the_living_from_the_dead) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  for (const char* hash : {"own", "reused_pid", "foreign"}) {
    store.begin_trial(sample_trial(sweep_id, hash));
  }
  store.database().execute(
      "UPDATE trial SET lease_start = lease_start + 1 WHERE spec_hash = 'reused_pid';"
      "UPDATE trial SET lease_host = 'elsewhere', lease_pid = 1 WHERE spec_hash = 'foreign';");
  StaleTrials stale = store.take_back_stale(sweep_id);
  BOOST_TEST_REQUIRE(stale.taken_back.size() == 1U);
  BOOST_TEST(stale.taken_back[0] == "reused_pid");
  BOOST_TEST(stale.held.size() == 2U);
  BOOST_TEST(stale.held[1].find("elsewhere") != std::string::npos);
  stale = store.take_back_stale(sweep_id, true);
  BOOST_TEST_REQUIRE(stale.taken_back.size() == 1U);
  BOOST_TEST(stale.taken_back[0] == "foreign");
  BOOST_TEST(store.find_trial(sweep_id, "own")->status == "running");

  // A process that has ended but was not waited for yet is dead too.
  std::array<int, 2> pipe_ends{};
  BOOST_REQUIRE(pipe(pipe_ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const Lease lease = current_lease();
    _exit(write(pipe_ends[1], &lease.start, sizeof(lease.start)) == sizeof(lease.start) ? 0 : 1);
  }
  Lease lease = current_lease();
  BOOST_REQUIRE(read(pipe_ends[0], &lease.start, sizeof(lease.start)) == sizeof(lease.start));
  lease.pid = child;
  siginfo_t info{};
  BOOST_REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  BOOST_TEST(!is_alive(lease));
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

BOOST_AUTO_TEST_CASE(trials_by_id_and_hash_prefix) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t first = store.begin_trial(sample_trial(sweep_id, "abcd1111"));
  const int64_t second = store.begin_trial(sample_trial(sweep_id, "abcd2222"));
  BOOST_TEST(store.get_trial(std::to_string(second)).spec_hash == "abcd2222");
  BOOST_TEST(store.get_trial(std::string("abcd1")).id == first);
  BOOST_CHECK_EXCEPTION(store.get_trial(std::string("abcd")), base::UsageError, says("2 trials"));
  for (const char* text : {"", "abc", "99", "zzzz", "abcd%", "99999999999999999999", "-1"}) {
    BOOST_CHECK_THROW(store.get_trial(std::string(text)), base::UsageError);
  }
  BOOST_TEST(!store.get_trial(int64_t{77}).has_value());
  BOOST_TEST(store.list_trials().size() == 2U);
  BOOST_TEST(store.list_trials(sweep_id + 1).empty());
}

BOOST_AUTO_TEST_CASE(hostile_texts_stay_texts) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const std::string hostile = "'); DROP TABLE trial; --\n<script>\" \xe2\x82\xac";
  TrialRow trial = sample_trial(sweep_id, hostile);
  trial.knobs = {{hostile, hostile}};
  const int64_t id = store.begin_trial(trial);
  TrialResult result = ok_result();
  result.status = "failed";
  result.reason = hostile;
  result.texts = {{"stderr", std::string("a\0b", 3)},
                  {"bytes", "a\xff\xc0\x80\xed\xa0\x80z\xe2\x82"}};
  store.finish_trial(id, result);
  trial = store.find_trial(sweep_id, hostile).value();
  BOOST_TEST(trial.reason == hostile);
  BOOST_TEST(trial.knobs[0].name == hostile);
  BOOST_TEST(store.read_texts(id)[0].value == std::string("a\0b", 3));
  const std::string bad = "\xef\xbf\xbd";
  BOOST_TEST(store.read_texts(id)[1].value ==
             "a" + bad + bad + bad + bad + bad + bad + "z" + bad + bad);
}

BOOST_AUTO_TEST_CASE(tables_are_strict) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  store.begin_trial(sample_trial(sweep_id, "a"));
  Database& database = store.database();
  for (const char* sql : {"UPDATE trial SET step_ns = 'fast'", "UPDATE trial SET status = 'great'",
                          "UPDATE trial SET wall = 'brick'", "UPDATE trial SET sweep_id = 99",
                          "INSERT INTO prediction VALUES (1, 'x', 1.0, 'guessed')",
                          "INSERT INTO step (trial_id, step, is_warmup, is_traced, step_ns) VALUES "
                          "(9, 0, 0, 0, 1)"}) {
    BOOST_CHECK_THROW(database.execute(sql), ConstraintError);
  }
  BOOST_TEST(database.query_int("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND "
                                "name NOT LIKE 'sqlite_%' AND sql NOT LIKE '%STRICT%'") == 0);
  BOOST_TEST(database.query_int("PRAGMA foreign_keys") == 1);
}

BOOST_AUTO_TEST_CASE(files_that_are_not_ours) {
  const TempFolder folder;
  const auto both = [&](const std::string& name, auto check) {
    BOOST_CHECK_EXCEPTION(Store::open(folder.file(name)), base::UsageError, check);
    BOOST_CHECK_EXCEPTION(Store::open_read_only(folder.file(name)), base::UsageError, check);
    BOOST_CHECK_EXCEPTION(Store::upgrade(folder.file(name)), base::UsageError, check);
  };
  const std::string text = std::string("This is a text, not a database.\n") + std::string(600, '.');
  tests::write_text(folder.file("notes.txt"), text);
  both("notes.txt", says("notes.txt", "not a moetune database"));
  BOOST_TEST(std::filesystem::file_size(folder.file("notes.txt")) == text.size());

  Database(folder.file("other.db"), OpenMode::read_write_create).execute("CREATE TABLE t (a)");
  both("other.db", says("other.db", "not written by moetune"));

  write_shard(folder.file("shard.db"));
  both("shard.db", says("shard.db", "shard"));

  { Store::open(folder.file("newer.db")); }
  Database(folder.file("newer.db"), OpenMode::read_write).execute("PRAGMA user_version = 9");
  both("newer.db", says("newer.db", "version 9", "newer"));

  BOOST_CHECK_EXCEPTION(Store::open_read_only(folder.file("none.db")), base::UsageError,
                        says("none.db", "no such database"));
  BOOST_CHECK_EXCEPTION(Store::open(folder.file("no/such/folder.db")), base::UsageError,
                        says("folder.db", "cannot be opened"));
  BOOST_TEST(!std::filesystem::exists(folder.file("none.db")));
}

BOOST_AUTO_TEST_CASE(empty_files_become_databases_and_keep_their_version) {
  const TempFolder folder;
  const std::string path = folder.file("empty.db");
  tests::write_text(path, "");
  BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::UsageError, says("empty"));
  BOOST_CHECK_EXCEPTION(Store::upgrade(path), base::UsageError, says("empty"));
  {
    Store store = Store::open(path);
    BOOST_TEST(store.database().query_int("PRAGMA user_version") == Store::schema_version());
    BOOST_TEST(store.path() == path);
  }
  BOOST_TEST(Store::upgrade(path) == Store::schema_version());
  BOOST_CHECK_NO_THROW(Store::open_read_only(path));
}

BOOST_AUTO_TEST_CASE(changed_schemas_are_refused) {
  for (const auto& [sql, part] :
       {std::pair{"DROP TABLE decision", "decision"},
        std::pair{"ALTER TABLE trial ADD COLUMN x INTEGER", "trial"},
        std::pair{"CREATE TRIGGER evil AFTER INSERT ON trial BEGIN DELETE "
                  "FROM trial; END",
                  "evil"}}) {
    const TempFolder folder;
    const std::string path = folder.file("runs.db");
    { Store::open(path).database().execute(sql); }
    BOOST_CHECK_EXCEPTION(Store::open(path), base::UsageError, says("runs.db", part));
    BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::UsageError, says("runs.db", part));
  }
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  { Store::open(path).database().execute("CREATE VIEW mine AS SELECT * FROM trial; ANALYZE"); }
  BOOST_CHECK_NO_THROW(Store::open(path));
}

BOOST_AUTO_TEST_CASE(a_damaged_database_is_an_error) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  { Store::open(path).create_or_resume_sweep(sample_sweep()); }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file << std::string(30000, '\x5a');
  file.close();
  BOOST_CHECK_EXCEPTION(Store::open(path), base::Error, says("runs.db", "damaged"));
  BOOST_CHECK_EXCEPTION(Store::open_read_only(path), base::Error, says("runs.db", "damaged"));
}

BOOST_AUTO_TEST_CASE(a_locked_database_says_so) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  Store holder = Store::open(path);
  const int64_t sweep_id = holder.create_or_resume_sweep(sample_sweep()).id;
  const Transaction lock(holder.database());
  Database other(path, OpenMode::read_write, 1);
  BOOST_CHECK_EXCEPTION(Transaction{other}, base::Error, says("runs.db", "locked"));
  // Reading goes on.
  BOOST_TEST(Store::open_read_only(path).read_sweep(sweep_id)->name == "quickstart");
}

BOOST_AUTO_TEST_CASE(a_full_disk_says_so_and_leaves_nothing_half_written) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  store.database().execute(
      fmt::format("PRAGMA max_page_count = {}", store.database().query_int("PRAGMA page_count")));
  TrialResult result = ok_result();
  result.texts = {{"stderr", std::string(1 << 20, 'x')}};
  BOOST_CHECK_EXCEPTION(store.finish_trial(id, result), base::Error,
                        says("runs.db", "disk is full"));
  BOOST_TEST(store.get_trial(id)->status == "running");
  BOOST_TEST(store.read_metrics(id).empty());
  store.database().execute("PRAGMA max_page_count = 1000000");
  BOOST_TEST(store.finish_trial(id, result).status == "ok");
}

BOOST_AUTO_TEST_CASE(at_rest_the_database_is_one_file) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  {
    Store store = Store::open(path);
    store.create_or_resume_sweep(sample_sweep());
    BOOST_TEST(std::filesystem::exists(path + "-wal"));
    // A reader beside the writer sees what is committed.
    BOOST_TEST(Store::open_read_only(path).read_sweeps().size() == 1U);
  }
  BOOST_TEST(Store::open_read_only(path).read_sweeps().size() == 1U);
  BOOST_TEST(!std::filesystem::exists(path + "-wal"));
  BOOST_TEST(!std::filesystem::exists(path + "-shm"));
  Store store = Store::open(path);
  Store other = Store::open(folder.file("other.db"));
  other = std::move(store);
  BOOST_TEST(other.path() == path);
  BOOST_TEST(other.read_sweeps().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_read_only_store_cannot_write) {
  const TempFolder folder;
  { Store::open(folder.file("runs.db")); }
  Store store = Store::open_read_only(folder.file("runs.db"));
  BOOST_CHECK_EXCEPTION(store.create_or_resume_sweep(sample_sweep()), base::UsageError,
                        says("read-only"));
}

BOOST_AUTO_TEST_CASE(not_a_number_is_null) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep_id = store.create_or_resume_sweep(sample_sweep()).id;
  const int64_t id = store.begin_trial(sample_trial(sweep_id, "a"));
  TrialResult result = ok_result();
  result.status = "wrong";
  result.loss_final = std::numeric_limits<double>::quiet_NaN();
  result.metrics = {{-1, "loss_final", std::numeric_limits<double>::quiet_NaN()}};
  store.finish_trial(id, result);
  BOOST_TEST(!store.get_trial(id)->loss_final.has_value());
  BOOST_TEST(std::isnan(store.read_metrics(id)[0].value));
}

BOOST_AUTO_TEST_CASE(statements_for_the_report) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  Statement statement(store.database(),
                      "SELECT :x AS a, 1.5 AS b, NULL AS c, 'd' AS d, x'00' AS e");
  BOOST_TEST(statement.parameter_index(":y") == 0);
  statement.bind(statement.parameter_index(":x"), 7);
  BOOST_TEST_REQUIRE(statement.step());
  BOOST_TEST(statement.num_columns() == 5);
  BOOST_TEST(statement.column_name(1) == "b");
  BOOST_TEST((statement.type(0) == ValueType::integer));
  BOOST_TEST((statement.type(1) == ValueType::real));
  BOOST_TEST(statement.is_null(2));
  BOOST_TEST((statement.type(3) == ValueType::text));
  BOOST_TEST((statement.type(4) == ValueType::blob));
  BOOST_TEST(!statement.step());
  BOOST_CHECK_THROW(Statement(store.database(), "SELECT nonsense"), base::Error);
  BOOST_CHECK_THROW(Statement(store.database(), "  "), base::Error);
}

BOOST_AUTO_TEST_CASE(the_gain_is_the_verdicts_or_that_of_the_rows) {
  TrialRow first;
  first.id = 1;
  first.step_ns = 300;
  TrialRow winner;
  winner.id = 2;
  winner.step_ns = 200;
  DecisionRow other;  // of another trial
  other.phase = "validate";
  other.kind = DecisionKind::note;
  other.trial_id = 3;
  other.baseline_trial_id = first.id;
  other.gain_ratio = 7.0;
  BOOST_TEST(gain_over_first_fit({other}, winner, first).value().ratio == 0.5);
  DecisionRow verdict = other;
  verdict.trial_id = winner.id;
  verdict.gain_ratio = 0.7;
  verdict.gain_low_ratio = 0.25;
  verdict.gain_high_ratio = 1.0;
  const Gain said = gain_over_first_fit({other, verdict}, winner, first).value();
  BOOST_TEST(said.ratio == 0.7);
  BOOST_TEST(said.low_ratio.value() == 0.25);
  BOOST_TEST(said.high_ratio.value() == 1.0);
  // The rows' steps are those compared where there is no verdict, else those that it tells.
  BOOST_TEST(gain_over_first_fit({}, winner, first).value().step_ns.value() == 200);
  BOOST_TEST(!said.step_ns.has_value());
  verdict.evidence_json =
      R"({"screening": {"before": {"step_ns": 306.4}, "after": {"step_ns": 180.2}}})";
  const Gain told = gain_over_first_fit({other, verdict}, winner, first).value();
  BOOST_TEST(told.step_ns.value() == 180);
  BOOST_TEST(told.first_fit_step_ns.value() == 306);
  for (const char* edited : {"[1]", "{", R"({"screening": {"after": {"step_ns": "soon"}}})",
                             R"({"screening": 5})", R"({"screening": {"after": [-1]}})"}) {
    verdict.evidence_json = edited;
    BOOST_TEST(!gain_over_first_fit({verdict}, winner, first).value().step_ns.has_value(), edited);
  }
  // The long run of a winner that is the first fit is beside its own short ones.
  DecisionRow long_run = verdict;
  long_run.kind = DecisionKind::kept;
  long_run.gain_ratio = -0.1;
  BOOST_TEST(gain_over_first_fit({long_run, verdict}, winner, first).value().ratio == 0.7);
  winner.step_ns = 0;
  BOOST_TEST(!gain_over_first_fit({}, winner, first).has_value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store
