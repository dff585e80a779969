// What ls, show and trace tell of a stored sweep: which trials matter, what each was tried for, and
// how that fits a terminal.
#include "sweeps/listing.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "sweeps/knob_changes.h"
#include "sweeps/stored_flags.h"
#include "sweeps/sweep_lock.h"
#include "sweeps/table.h"
#include "sweeps/trial_list.h"
#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

using Changes = std::vector<std::pair<std::string, std::string>>;

/// A sweep of six trials with its decisions, as a search leaves them.
struct StoredSweep : Cli {
  StoredSweep() { build(); }

  /// Adds a trial of the small spec with these knobs; returns its id.
  int64_t add(store::Store& store, const std::string& phase, const std::string& status,
              const Changes& changes, const std::string& title = "") {
    spec::TrialSpec trial = tests::small_trial();
    for (const auto& [name, value] : changes) {
      spec::set_knob(trial.knobs, *spec::find_knob(name), value);
    }
    store::TrialRow row;
    row.sweep_id = sweep;
    row.spec_json = spec::to_json(trial).dump();
    row.spec_hash = "abcd00000000" + std::to_string(1000 + ++num_trials);
    row.phase = phase;
    for (const spec::KnobRow& knob : spec::knob_table()) {
      row.knobs.push_back({std::string(knob.name), spec::get_knob(trial.knobs, knob)});
    }
    row.status = status;
    if (status == "pruned") {
      row.reason = "predicted to need too much";
      return store.add_finished_trial(row);
    }
    const int64_t id = store.begin_trial(row);
    store::TrialResult result;
    result.status = status;
    if (status == "ok") result.step_ns = 10'000'000 - num_trials * 100'000;
    if (status != "ok") result.reason = "out of memory";
    if (!title.empty()) result.texts.push_back({"title", title});
    store.finish_trial(id, result);
    return id;
  }

  void decide(store::Store& store, store::DecisionKind kind, int64_t trial, int64_t parent) {
    store::DecisionRow decision;
    decision.sweep_id = sweep;
    decision.ordinal = ++num_decisions;
    decision.phase = "retune";
    decision.kind = kind;
    decision.trial_id = trial;
    decision.baseline_trial_id = parent;
    store.add_decision(decision);
  }

  void build() {
    auto store = store::Store::open(db);
    store::SweepRow row;
    row.name = "a sweep";
    row.config_hash = "0123456789abcdef";
    row.config_json = row.contract_json = row.model_json = row.hardware_json = "{}";
    row.model_name = row.hardware_name = "none";
    sweep = store.create_or_resume_sweep(row).id;
    const Changes two_ranks = {{"expert_model_parallel_size", "2"}};
    const Changes kept = {{"expert_model_parallel_size", "2"}, {"recompute", "norm"}};
    baseline = add(store, "contract", "oom", {}, "baseline: the starting configuration");
    store.set_baseline(baseline);
    pruned = add(store, "fit", "pruned", {{"micro_batch_size", "2"}});
    first_fit = add(store, "fit", "ok", two_ranks, "fit: a long text");
    decide(store, store::DecisionKind::kept, first_fit, baseline);
    better = add(store, "retune", "ok", kept, "recompute none -> norm");
    decide(store, store::DecisionKind::kept, better, first_fit);
    Changes wide = kept;
    wide.emplace_back("cp_comm_type", "p2p");
    remedy = add(store, "retune", "pruned", wide);
    winner = add(store, "validate", "ok", kept, "validation over 80 steps");
    decide(store, store::DecisionKind::kept, winner, better);
    store.set_landmarks(sweep, {winner, baseline, first_fit});
  }

  /// As ls prints them.
  std::string table(std::optional<size_t> width) const {
    const auto store = store::Store::open_read_only(db);
    const SweepView view(store, sweep);
    const std::vector<store::TrialRow> trials = store.list_trials();
    std::vector<TrialLine> lines;
    for (const store::TrialRow& trial : trials) {
      lines.push_back({trial, title_of(store, trial, baseline_of(trials)), &view});
    }
    return trial_list_text(lines, width);
  }

  int64_t sweep = 0;
  int64_t num_trials = 0;
  int64_t num_decisions = 0;
  int64_t baseline = 0;
  int64_t pruned = 0;
  int64_t first_fit = 0;
  int64_t better = 0;
  int64_t remedy = 0;
  int64_t winner = 0;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(listing, StoredSweep)

BOOST_AUTO_TEST_CASE(every_trial_says_what_it_is_and_what_it_was_for) {
  BOOST_TEST(
      table(std::nullopt) ==
      "first fit: trial 3: dp 2, cp 2, ep 2, pp 2, micro-batch 1, recompute none\n"
      "\n"
      "id  mark       phase     status     step  predicted  tokens/s  peak  predicted  wall  runs  "
      "changes from the first fit        purpose and result\n"
      " 1  baseline   contract  oom           -          -         -     -          -  -        1  "
      "ep 4                              baseline: the starting configuration: out of memory\n"
      " 2             fit       pruned        -          -         -     -          -  -        0  "
      "ep 4, micro-batch 2               micro-batch 1 -> 2, from trial 1: predicted to need too "
      "much\n"
      " 3  first fit  fit       ok      9.70 ms          -         -     -          -  -        1  "
      "-                                 ep 4 -> 2, from trial 1\n"
      " 4  kept       retune    ok      9.60 ms          -         -     -          -  -        1  "
      "recompute norm                    recompute none -> norm, from trial 3\n"
      " 5             retune    pruned        -          -         -     -          -  -        0  "
      "cp_comm_type p2p, recompute norm  cp_comm_type all_gather -> p2p, from trial 4: predicted "
      "to "
      "need too much\n"
      " 6  winner     validate  ok      9.40 ms          -         -     -          -  -        1  "
      "recompute norm                    validation over 80 steps, from trial 4\n");
}

BOOST_AUTO_TEST_CASE(lines_fit_the_terminal) {
  for (const size_t width : {60U, 80U, 100U, 120U, 160U, 240U}) {
    std::istringstream lines(table(width));
    std::string line;
    std::getline(lines, line);  // the first fit, a sentence
    size_t widest = 0;
    while (std::getline(lines, line)) widest = std::max(widest, display_width(line));
    BOOST_TEST(widest <= width);
    BOOST_TEST(widest * 4 >= width * 2);  // and uses it
  }
  // What matters least goes first; what differs from the first fit stays.
  const std::string narrow = table(80);
  for (const char* word : {"id", "mark", "status", "step", "changes from the first fit", "winner",
                           "ep 4, micro-batch 2", "cp_comm_type p2p, recompute norm"}) {
    BOOST_TEST(narrow.find(word) != std::string::npos, word << " is there");
  }
  for (const char* word : {"runs", "predicted  ", "tokens/s", "purpose"}) {
    BOOST_TEST(narrow.find(word) == std::string::npos, word << " is not there");
  }
  // On a wider terminal both are there.
  for (const char* word : {"changes from the first fit", "purpose", "ep 4 -> 2"}) {
    BOOST_TEST(table(120).find(word) != std::string::npos, word << " is there");
  }
  // Without a first fit there are no changes: what a trial was for stays.
  store::Store::open(db).set_landmarks(sweep, {std::nullopt, baseline, std::nullopt});
  for (const char* word : {"status", "purpose", "baseline: the starting"}) {
    BOOST_TEST(table(80).find(word) != std::string::npos, word << " is there");
  }
}

BOOST_AUTO_TEST_CASE(what_has_not_ended_well_is_no_winner) {
  auto store = store::Store::open(db);
  store.set_landmarks(sweep, {baseline, baseline, first_fit});
  const SweepView view(store, sweep);
  const auto trial = store.get_trial(baseline);
  BOOST_TEST((view.marks_of(*trial) == std::vector<std::string>{"baseline"}));
  BOOST_TEST(table(std::nullopt).find("winner") == std::string::npos);
  check_refused({"show", db, "best"}, 2, {db, "'best'", "no trial has ended well", "moetune ls"});
}

BOOST_AUTO_TEST_CASE(json_tells_the_parent_and_what_changed) {
  const json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_REQUIRE(list.size() == 6U);
  BOOST_TEST(list[0].at("parent").is_null());
  BOOST_TEST(list[0].at("changes").is_null());
  BOOST_TEST(list[0].at("changes_from_first_fit") ==
             json({{"expert_model_parallel_size", {{"before", 2}, {"after", 4}}}}));
  BOOST_TEST(list[4].at("parent") == better);
  BOOST_TEST(list[4].at("changes") ==
             json({{"cp_comm_type", {{"before", "all_gather"}, {"after", "p2p"}}}}));
  BOOST_TEST(list[5].at("changes") == json::object());
  BOOST_TEST(list[5].at("marks") == json({"winner"}));
  std::vector<bool> are_kept;
  for (const json& trial : list) are_kept.push_back(trial.at("is_kept"));
  BOOST_TEST((are_kept == std::vector<bool>{false, false, true, true, false, true}));
}

BOOST_AUTO_TEST_CASE(trials_are_shown_by_what_they_are) {
  const auto id_of = [&](const char* word) {
    const Answer answer = run({"show", db, word, "--format", "json"});
    BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
    return json::parse(answer.out).at("id").get<int64_t>();
  };
  BOOST_TEST(id_of("best") == winner);
  BOOST_TEST(id_of("first-fit") == first_fit);
  BOOST_TEST(id_of("baseline") == baseline);
  BOOST_TEST(id_of("4") == better);
  check_refused({"show", db, "bst"}, 2,
                {"no trial 'bst'; give 'best', 'first-fit', 'baseline', an id, or at least 4"});
  const Answer text = run({"show", db, "4"});
  BOOST_TEST(text.out.find("retune: recompute none -> norm, from trial 3\n") != std::string::npos);
  // Trials that were run one by one do not hide the sweep's.
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
  BOOST_TEST(id_of("first-fit") == first_fit);
}

BOOST_AUTO_TEST_CASE(who_looks_for_a_trial_among_hunts_is_told_so) {
  check_refused({"show", db, "77"}, 2, {"no trial '77'", "that 'moetune ls' shows\n"});
  const std::string hunts = folder.file("hunts.db");
  {
    store::BisectRow row;
    row.config_hash = "hunt";
    row.config_json = "{}";
    row.repository = "/src/engine";
    row.good = std::string(40, 'a');
    row.bad = std::string(40, 'b');
    row.metric = "step_ns";
    store::Store::open(hunts).open_bisect(row);
  }
  const std::string told = "; of 'moetune bisect' it holds hunts: 'moetune ls " + hunts +
                           " --hunts' lists them, 'moetune report " + hunts + "' shows them\n";
  for (const char* word : {"1", "abcd", "best", "first-fit"}) {
    check_refused({"show", hunts, word}, 2, {fmt::format("no trial '{}'", word), told});
  }
}

BOOST_AUTO_TEST_CASE(flags_are_shown_whole_on_every_terminal) {
  const auto store = store::Store::open_read_only(db);
  const store::TrialRow trial = *store.get_trial(winner);
  const std::string block = flags_block(trial);
  BOOST_TEST(block.find("--expert-model-parallel-size 2") != std::string::npos);
  const std::string text = trial_details_text(store, trial, 30);
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    BOOST_TEST(text.find("\n  " + line + "\n") != std::string::npos, line << " is whole");
  }
  const json shown = json::parse(run({"show", db, "best", "--format", "json"}).out);
  BOOST_TEST(shown.at("megatron_flags")[0] == "--num-layers");
  BOOST_TEST(shown.at("megatron_notes").size() == 2U);
  store::TrialRow foreign = trial;
  for (const char* spec_json : {"", "[]", "{}", R"({"knobs": {"micro_batch_size": "x"}})"}) {
    foreign.spec_json = spec_json;
    BOOST_TEST(flags_block(foreign) == "");
  }
}

// What is printed or copied recurses: nested this deep it would overflow the stack.
BOOST_AUTO_TEST_CASE(deep_texts_of_a_foreign_database_are_left_out) {
  const std::string copy = folder.file("deep.db");
  std::filesystem::copy_file(db, copy);
  store::Store::open(copy).database().execute(
      "UPDATE trial SET spec_json = replace(hex(zeroblob(200000)), '00', '[') ||"
      " replace(hex(zeroblob(200000)), '00', ']')");
  const auto answer = run({"show", copy, "best", "--format", "json"});
  BOOST_TEST(answer.code == 0, answer.err);
  BOOST_TEST(json::parse(answer.out).at("spec").is_null());
}

BOOST_AUTO_TEST_CASE(configurations_are_read_from_their_rows) {
  const auto store = store::Store::open_read_only(db);
  store::TrialRow trial = *store.get_trial(better);
  BOOST_TEST(configuration_text(trial) == "dp 2, cp 2, ep 2, pp 2, micro-batch 1, recompute norm");
  trial.knobs[0].value = "many";
  BOOST_TEST(configuration_text(trial) == "");
  trial.knobs[0] = {"a_knob_of_another_version", "1"};
  BOOST_TEST(change_text(knob_changes(*store.get_trial(better), trial)) == "");
}

// Beside the sweep, that is as long as somebody holds its lock.
BOOST_AUTO_TEST_CASE(a_sweep_is_watched_until_it_ends) {
  auto lock = std::make_unique<SweepLock>(db);
  BOOST_TEST(is_locked(db));
  std::jthread sweeping([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    lock.reset();
  });
  const Answer watched = run({"watch", db, "--every", "1"});
  sweeping.join();
  BOOST_TEST(!is_locked(db));
  BOOST_TEST(watched.code == 0, watched.err);
  int num_lines = 0;
  for (size_t at = 0; (at = watched.out.find("trial ", at)) != std::string::npos; ++at) {
    num_lines += at == 0 || watched.out[at - 1] == '\n';
  }
  BOOST_TEST(num_lines == num_trials, watched.out);
  BOOST_TEST(tests::contains(watched.out, "best so far: trial " + std::to_string(winner)));
  BOOST_TEST(tests::contains(watched.out, "3 ok"));
  check_refused({"watch", db, "--sweep", "7"}, 2, {"there is no sweep 7"});
}

// The row of a validated winner is its long run, whose steps are not those of the first fit.
BOOST_AUTO_TEST_CASE(who_watches_is_told_a_gain_by_runs_of_one_length) {
  auto store = store::Store::open(db);
  const auto told = [&](const std::string& line) {
    const Answer watched = run({"watch", db, "--every", "1"});
    BOOST_TEST(watched.code == 0, watched.err);
    BOOST_TEST(tests::contains(watched.out, "\n" + line + "\n"), watched.out);
  };
  const std::string id = std::to_string(winner);
  told("best so far: trial " + id + ", 9.40 ms a step in the long run");
  store.set_landmarks(sweep, {better, baseline, first_fit});  // 9.6 ms; the first fit 9.7 ms
  told("best so far: trial " + std::to_string(better) +
       ", 9.60 ms a step, 1.01 times as fast as the first that fitted");
  store.set_landmarks(sweep, {winner, baseline, first_fit});
  store::DecisionRow verdict;
  verdict.sweep_id = sweep;
  verdict.ordinal = ++num_decisions;
  verdict.phase = "validate";
  verdict.trial_id = winner;
  verdict.baseline_trial_id = first_fit;
  verdict.gain_ratio = 0.13;
  verdict.gain_low_ratio = 0.1;
  verdict.gain_high_ratio = 0.15;
  verdict.text = "Validated.";
  store.add_decision(verdict);
  store.finish_sweep(sweep, store::SearchStatus::done);
  told("best: trial " + id +
       ", 9.40 ms a step in the long run; in screening 1.13 times as fast as the first that "
       "fitted");
}

// Its short trial is the best that there is, and its long run failed.
BOOST_AUTO_TEST_CASE(what_did_not_pass_its_validation_is_not_called_the_winner) {
  auto store = store::Store::open(db);
  store::DecisionRow refusal;
  refusal.sweep_id = sweep;
  refusal.ordinal = ++num_decisions;
  refusal.phase = "validate";
  refusal.kind = store::DecisionKind::rejected;
  refusal.trial_id = winner;
  refusal.baseline_trial_id = better;
  refusal.text = "The loss did not fall.";
  store.add_decision(refusal);
  store.set_landmarks(sweep, {better, baseline, first_fit});
  store.finish_sweep(sweep, store::SearchStatus::done);
  const std::string listed = table(std::nullopt);
  BOOST_TEST(tests::contains(listed, "\n 4  not validated  retune "), listed);
  BOOST_TEST(!tests::contains(listed, "winner"), listed);
  const json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_TEST(list[3].at("marks") == json({"winner"}));
  BOOST_TEST(list[3].at("validated") == false);
  BOOST_TEST(list[5].at("validated") == false);
  BOOST_TEST(list[2].at("validated").is_null());
  const Answer watched = run({"watch", db, "--every", "1"});
  BOOST_TEST(tests::contains(watched.out,
                             "\nbest in short trials (did not pass its validation): trial 4, "
                             "9.60 ms a step, 1.01 times as fast as the first that fitted\n"),
             watched.out);
  const Answer shown = run({"show", db, "best"});
  BOOST_TEST(tests::contains(shown.out,
                             "from trial 3\nNOT VALIDATED: The loss did not fall.\nstatus  ok\n"),
             shown.out);
  BOOST_TEST(!tests::contains(run({"show", db, "first-fit"}).out, "VALIDATED"));
  // One that has passed keeps its words.
  refusal.kind = store::DecisionKind::kept;
  store.add_decision(refusal);
  store.set_landmarks(sweep, {winner, baseline, first_fit});
  BOOST_TEST(tests::contains(table(std::nullopt), "\n 6  winner "));
  BOOST_TEST(json::parse(run({"ls", db, "--format", "json"}).out)[5].at("validated") == true);
  BOOST_TEST(!tests::contains(run({"show", db, "best"}).out, "VALIDATED"));
}

BOOST_AUTO_TEST_CASE(stored_traces_are_exported_without_a_run) {
  const std::string asked = folder.file("asked.json");
  const std::string exported = folder.file("exported.json");
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet", "--trace-out", asked}).code == 0);
  const std::string id = std::to_string(num_trials + 1);
  const tests::ScopedEnvironment none("MOETUNE_RANK", "/no/such/program");
  const Answer answer = run({"trace", db, id, "--out", exported});
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  BOOST_TEST(answer.out == exported + " (trial " + id + ")\n");
  BOOST_TEST(tests::read_text(exported) == tests::read_text(asked));
  std::set<std::string> phases;
  const json document = json::parse(tests::read_text(exported));
  for (const json& event : document.at("traceEvents")) phases.insert(event.at("ph"));
  BOOST_TEST((phases == std::set<std::string>{"M", "X", "s", "f", "C"}));
  // The same as Perfetto's own file, also by way of the other one.
  const std::string direct = folder.file("direct.pftrace");
  const std::string converted = folder.file("converted");
  BOOST_TEST(run({"trace", db, id, "--out", direct}).code == 0);
  const Answer from =
      run({"trace", "--from", exported, "--out", converted, "--format", "perfetto"});
  BOOST_TEST(from.code == 0, from.err);
  BOOST_TEST(tests::read_text(direct).starts_with("\x0a"));  // a packet
  BOOST_TEST((tests::read_text(direct) == tests::read_text(converted)));
  BOOST_TEST(from.out == converted + " (from " + exported + ")\n");
  // A name that does not say what is in the file: it is told.
  const std::string text = folder.file("trace.txt");
  BOOST_TEST(run({"trace", db, id, "--out", text}).out ==
             text + " (trial " + id +
                 ", as Chrome's JSON; --format perfetto writes Perfetto's format)\n");
  BOOST_TEST((tests::read_text(text) == tests::read_text(exported)));
}

BOOST_AUTO_TEST_CASE(no_trace_is_no_file) {
  const std::string out = folder.file("trace.json");
  check_refused({"trace", db, "best", "--out", out}, 2,
                {db, "trial 6 has no stored trace", "without a traced step", "no trial"});
  check_refused({"trace", db, "1", "--out", out}, 2, {"trial 1", "ended as oom"});
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
  const Answer bad = run(
      {"trial", spec, "--db", db, "--quiet", "--set", "micro_batch_size=4", "--trace-out", out});
  BOOST_TEST(bad.code == 10);
  BOOST_TEST(
      bad.err.find("trace.json is not written: trial 8 has no stored trace: it ended as oom; "
                   "trials of its sweep that have one: 7") != std::string::npos,
      bad.err);
  BOOST_TEST(!std::filesystem::exists(out));
  check_refused({"trace", db, "7"}, 2, {"--out FILE"});
  check_refused({"trace", db, "7", "--out", out, "--format", "svg"}, 2, {"--format", "svg"});
  check_refused({"trace", db, "7", "--from", db, "--out", out}, 2, {"--from"});
  check_refused({"trace", "--from", db, "--out", out}, 2, {db, "is a runs database of moetune"});
  check_refused({"trace", db, "7", "--out", folder.file("none/trace.json")}, 2,
                {"none/trace.json", "--out needs a folder"});
  check_refused({"trace", db, "70", "--out", out}, 2, {"70"});
}

BOOST_AUTO_TEST_CASE(hunts_are_listed) {
  const std::string hunts = folder.file("hunts.db");
  const auto add_hunts = [](const std::string& path) {
    auto store = store::Store::open(path);
    store::BisectRow row;
    row.config_hash = "0123456789abcdef";
    row.config_json = "{}";
    row.repository = "/repository";
    row.good = std::string(40, 'a');
    row.bad = std::string(40, 'b');
    row.metric = "step_time";
    const int64_t id = store.open_bisect(row);
    store.set_bisect_commits(id, {{0, row.good, "first", "", ""}, {1, row.bad, "second", "", ""}});
    store::BisectRunRow run;
    run.key = "key";
    run.purpose = "search";
    run.status = "ok";
    run.value = 1.5;
    store.add_bisect_run(id, run);
    store.add_bisect_run(id, run);
    store.finish_bisect(id, store::SearchStatus::done, "culprit",
                        R"({"culprits": [{"commit": "cccccccccccccccccccccccccccccccccccccccc",
                            "subject": "norm: go over it twice", "effect": {"ratio": 0.02}}]})");
    row.config_hash = "fedcba9876543210";
    row.repository = "";
    row.good = "good.json";
    row.bad = "bad.json";
    row.metric = "peak_memory";
    store.finish_bisect(store.open_bisect(row), store::SearchStatus::done, "no_change",
                        R"({"reason": "the ends do not differ"})");
  };
  add_hunts(hunts);
  const Answer text = run({"ls", hunts});
  BOOST_TEST_CONTEXT(text.out) {
    BOOST_TEST(text.code == 0);
    BOOST_TEST(text.out.starts_with(
        "hunt  what         good          bad           status  verdict    runs  when (UTC)"));
    BOOST_TEST(text.out.find(
                   "   1  step_time    aaaaaaaaaaaa  bbbbbbbbbbbb  done    culprit       2  20") !=
               std::string::npos);
    BOOST_TEST(text.out.find("  cccccccccccc norm: go over it twice (+2.0 %)\n") !=
               std::string::npos);
    BOOST_TEST(text.out.find("   2  peak_memory  good.json     bad.json      done    no_change     "
                             "0  20") != std::string::npos);
    BOOST_TEST(text.out.find("  the ends do not differ\n") != std::string::npos);
  }
  const json list = json::parse(run({"ls", hunts, "--format", "json"}).out);
  BOOST_REQUIRE(list.size() == 2U);
  BOOST_TEST(list[0].at("hunt") == 1);
  BOOST_TEST(list[0].at("verdict") == "culprit");
  BOOST_TEST(list[0].at("num_runs") == 2);
  BOOST_TEST(list[1].at("repository").is_null());
  BOOST_TEST(list[1].at("answer") == "the ends do not differ");

  // Beside trials they are asked for.
  add_hunts(db);
  BOOST_TEST(
      run({"ls", db}).out.find("\n2 hunts are not listed: moetune ls " + db + " --hunts\n") !=
      std::string::npos);
  BOOST_TEST(json::parse(run({"ls", db, "--format", "json"}).out).size() == 6U);
  BOOST_TEST(json::parse(run({"ls", db, "--hunts", "--format", "json"}).out).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_cleared_trial_is_marked_wherever_it_says_wrong) {
  int64_t wrong = 0;
  {
    auto store = store::Store::open(db);
    wrong = add(store, "validate", "wrong", {}, "validation over 90 steps");
    store::DecisionRow note;
    note.sweep_id = sweep;
    note.ordinal = ++num_decisions;
    note.phase = "validate";
    note.kind = store::DecisionKind::note;
    note.trial_id = wrong;
    note.text = "Cleared by the perturbed reference: it was.";
    note.evidence_json = R"({"is_cleared": true})";
    store.add_decision(note);
  }
  const std::string listed = table(std::nullopt);
  const std::string row = listed.substr(listed.find("\n " + std::to_string(wrong) + " "));
  BOOST_TEST(row.find("cleared") < row.find("wrong"), row);
  BOOST_TEST(row.find("cleared by the perturbed reference") != std::string::npos, row);
  const Answer shown = run({"show", db, std::to_string(wrong)});
  BOOST_TEST_CONTEXT(shown.err) { BOOST_REQUIRE(shown.code == 0); }
  for (const char* part : {"cleared by the perturbed reference\n", "Cleared by the perturbed"}) {
    BOOST_TEST(shown.out.find(part) != std::string::npos, shown.out);
  }
  const Answer list = run({"ls", "--db", db, "--format", "json"});
  int num_cleared = 0;
  for (const json& trial : json::parse(list.out)) num_cleared += trial.at("is_cleared") ? 1 : 0;
  BOOST_TEST(num_cleared == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
