// The runs database: round trips, the commit point, leases, and resuming.
#include "profiler/store/store.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <limits>

#include "profiler/store/db.h"
#include "tests/profiler/store_samples.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(store_test)

namespace {

using samples::ok_result;
using samples::sample_sweep;
using samples::sample_trial;
using samples::status_of_child;
using samples::write_shard;
using tests::says;
using tests::TempFolder;

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
