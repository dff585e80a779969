// Which trial the page calls the winner, where trials were measured, and what moved the wall.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "reports/context.h"
#include "reports/report.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"
#include "tests/reports/page_fixture.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::Page;
using tests::says;
using tests::TempFolder;

BOOST_AUTO_TEST_SUITE(report_winner)

BOOST_AUTO_TEST_CASE(a_refused_long_run_is_no_winner) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::DecisionRow decision = store.read_decisions(1).back();
    decision.kind = store::DecisionKind::rejected;
    decision.text = "The loss stayed above 2.5.";
    store.add_decision(decision);
    store::Store::Landmarks landmarks{*decision.baseline_trial_id, 2, std::nullopt};
    store.set_landmarks(1, landmarks);
  }
  ReportOptions options;
  options.flags = [](const store::TrialRow&) { return std::string("--num-layers 4"); };
  const std::string page =
      render_report(store::Store::open_read_only(folder.file("runs.db")), options);
  BOOST_TEST(page.find("This configuration did not pass its validation.") != std::string::npos);
  BOOST_TEST(page.find("<dl class=\"cards unvalidated\">") != std::string::npos);
  BOOST_TEST(page.find("<dt>Not validated: speedup in short trials</dt>") != std::string::npos);
  BOOST_TEST(page.find("<p class=\"headline\">Trial <a href=\"#trial-22\">") != std::string::npos);
  BOOST_TEST(page.find("class=\"stay refusal\"") != std::string::npos);
  // Nowhere is it called the winner.
  for (const char* part :
       {"<span class=\"note\">what limits it now</span>",
        "<span>Trial #22 (not validated) as flags for Megatron-LM</span>",
        "<span>Knobs of trial #22 (not validated)</span>", "<th>trial #22 (not validated)</th>",
        "Repeat trial #22 (not validated) alone", " (not validated)</option>",
        "22 <span class=\"badge mark\">not validated</span>"}) {
    BOOST_TEST((page.find(part) != std::string::npos), part);
  }
  for (const char* part :
       {"limits the winner", "The winner as flags", "Knobs of the winner", "the winning trial",
        "winner.json", "(winner)</option>", "mark\">winner<", "class=\"winner\""}) {
    BOOST_TEST((page.find(part) == std::string::npos), part);
  }
  options.trial = "5";
  const std::string other =
      render_report(store::Store::open_read_only(folder.file("runs.db")), options);
  BOOST_TEST(other.find("as asked for; trial <a href=\"#trial-22\">#22</a>, the fastest in short "
                        "trials, is not validated.") != std::string::npos);
}

// Which trial matters is what the sweep says, whatever could be guessed from the rest.
BOOST_AUTO_TEST_CASE(the_winner_is_the_one_that_the_sweep_names) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const auto context = [&](const store::Store::Landmarks& landmarks) {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store.set_landmarks(1, landmarks);
    return read_context(store, 1, "");
  };
  const Context named = context({7, 5, 6});
  BOOST_TEST(named.at(named.winner)->id == 7);
  BOOST_TEST(named.at(named.baseline)->id == 5);
  BOOST_TEST(named.at(named.first_fit)->id == 6);
  const Context none = context({});
  BOOST_TEST(none.winner == -1);
  BOOST_TEST(none.first_fit == -1);
  // One that has not ended well has won nothing, whoever stored it.
  BOOST_TEST(context({6, 5, 6}).winner == -1);
}

// Trial 8 has another layout and micro-batch than 7, and takes 431 instead of 548 ms.
BOOST_AUTO_TEST_CASE(a_kept_layout_is_told_by_its_changes_and_their_interval) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const auto page_with = [&](double low, double high) {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store.database().execute(
        "UPDATE trial_knob SET value = '2' WHERE trial_id = 8 AND name = 'micro_batch_size'");
    for (store::DecisionRow& decision : store.read_decisions(1)) {
      if (decision.trial_id != 8 || decision.kind != store::DecisionKind::kept) continue;
      decision.remedy = decision.knob = "layout";
      decision.gain_low_ratio = low;
      decision.gain_high_ratio = high;
      store.add_decision(decision);
    }
    return render_report(store);
  };
  const std::string what =
      "dp 8 → 4,<wbr> ep 8 → 4,<wbr> micro-batch 1 → 2,<wbr> pp 1 → 2 (<a "
      "href=\"#trial-8\">#8</a>) <strong>+27.1 %</strong>";
  const std::string noisy = page_with(-0.035, 0.58);
  BOOST_TEST(noisy.find(what + " (−3.5 % to +58.0 %, which may be noise)") != std::string::npos);
  BOOST_TEST(noisy.find("another layout") == std::string::npos);
  const std::string certain = page_with(0.25, 0.29);
  BOOST_TEST(certain.find(what + " (+25.0 % to +29.0 %)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(where_and_how_often_trials_were_measured_is_told) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const auto page = [&] {
    return render_report(store::Store::open_read_only(folder.file("runs.db")));
  };
  BOOST_TEST(page().find("Machine and build 2") == std::string::npos);
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store.set_environment(1, {{"host", "another"}, {"binary", "b2"}});
    store::TrialResult again;
    again.status = "ok";
    again.purpose = "again";
    again.step_ns = 500'000'000;
    store.add_measurement(5, store::now_utc(), again, std::nullopt);
    store::DecisionRow row;
    row.sweep_id = 1;
    row.ordinal = 99;
    row.phase = "retune";
    row.kind = store::DecisionKind::undecided;
    row.trial_id = 5;
    row.knob = "recompute";
    row.gain_ratio = 0.031;
    row.gain_low_ratio = -0.012;
    row.gain_high_ratio = 0.076;
    row.text = "The noise hides it.";
    store.add_decision(row);
  }
  const std::string html = page();
  for (const char* part : {"Machine and build 1", "Machine and build 2 (the latest)",
                           "1 measurements since", ">1, build 2</td>", ">1, build 1</td>",
                           "another", "1 undecided", "The noise hides it.", "−1.2 %", "+7.6 %"}) {
    BOOST_TEST((html.find(part) != std::string::npos), part);
  }
}

BOOST_AUTO_TEST_CASE(a_trial_that_was_cleared_says_so) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  int64_t wrong = 0;
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    for (const store::TrialRow& trial : store.list_trials(1)) {
      if (trial.status == "wrong") wrong = trial.id;
    }
    BOOST_REQUIRE(wrong > 0);
    store::DecisionRow row;
    row.sweep_id = 1;
    row.ordinal = 99;
    row.phase = "validate";
    row.kind = store::DecisionKind::note;
    row.trial_id = wrong;
    row.text = "Cleared.";
    row.evidence_json = R"({"is_cleared": true})";
    store.add_decision(row);
  }
  const std::string html = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(html.find("<b>cleared by the perturbed reference</b>") != std::string::npos);
  const size_t flags = html.find("\"flags\":\"") + 9;
  BOOST_TEST((std::stoi(html.substr(flags + static_cast<size_t>(wrong) - 1, 1), nullptr, 36) & 16) >
             0);
}

BOOST_AUTO_TEST_CASE(remedies_of_other_walls_do_not_move_the_wall) {
  const TempFolder folder;
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::SweepRow sweep;
    sweep.config_hash = "0";
    const int64_t id = store.create_or_resume_sweep(sweep).id;
    int64_t ordinal = 0;
    const auto add = [&](const char* phase, const char* kind, const char* wall) {
      store::DecisionRow row;
      row.sweep_id = id;
      row.ordinal = ++ordinal;
      row.phase = phase;
      row.kind = base::decision_kind_of(kind);
      row.wall = wall;
      row.text = "text";
      store.add_decision(row);
    };
    add("fit", "wall", "memory");
    add("fit", "kept", "memory");
    add("scale", "note", "");
    add("scale", "rejected", "");
    add("profile", "wall", "communication");
    add("retune", "rejected", "communication");
    add("retune", "rejected", "host");
    add("retune", "rejected", "memory");
    add("profile", "wall", "communication");
    add("profile", "wall", "compute");
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  std::string cells;
  for (size_t at = page.find("class=\"stay "); at != std::string::npos;
       at = page.find("class=\"stay ", at + 1)) {
    cells += page.substr(at + 12, page.find('"', at + 12) - at - 12) + " ";
  }
  BOOST_TEST(cells == "at-memory at-layout at-communication at-compute ");
  BOOST_TEST(page.find("3 tried and not kept") != std::string::npos);
}

// A GPU sweep on a machine without a GPU: its one trial could not be started.
BOOST_AUTO_TEST_CASE(what_did_not_run_was_not_measured) {
  const TempFolder folder;
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::SweepRow sweep;
    sweep.config_hash = "0";
    sweep.hardware_name = "one H100 as 4 virtual ranks";
    sweep.config_json = sweep.contract_json = sweep.model_json = sweep.hardware_json = "{}";
    const int64_t id = store.create_or_resume_sweep(sweep).id;
    store::TrialRow trial;
    trial.sweep_id = id;
    trial.spec_hash = "0123456789abcdef";
    trial.phase = "contract";
    trial.spec_json = R"({"backend": "cuda", "clock": "wall", "communicator": "threads"})";
    store::TrialResult result;
    result.status = "interrupted";
    result.reason = "moetune-rank cannot run here: no GPU to use: no NVIDIA driver";
    store.finish_trial(store.begin_trial(trial), result);
    store.finish_sweep(id, store::SearchStatus::failed);
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(page.find("<strong>to be measured on GPU hardware described as one H100 as 4 virtual "
                       "ranks</strong>: nothing has run to its end yet</p>") != std::string::npos);
  BOOST_TEST(page.find("<strong>measured") == std::string::npos);
  BOOST_TEST(
      page.find("<p class=\"headline\">No configuration has run to its end yet: moetune-rank "
                "cannot run here: no GPU to use: no NVIDIA driver.</p>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_unfinished_sweep_says_so) {
  BOOST_TEST(Page({.sweep_status = store::SearchStatus::interrupted})
                 .has("This sweep is <strong>interrupted</strong>"));
  BOOST_TEST(!Page().has("This sweep is"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports
