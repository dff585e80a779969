// Two diagnoses as the page of a comparison: bars are means over steps of any length, and what
// makes the runs hard to compare stands apart from what each says of itself.
#include "sweeps/runs/comparison_report.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(comparison_report)

namespace {

using profiler::WindowKind;

/// One trace of rank 0 with a window of each length, all of one kind and full of compute.
RunDiagnosis traced(const std::vector<int64_t>& lengths_ns, WindowKind kind) {
  RunDiagnosis run;
  Diagnosis& traces = run.traces.emplace();
  traces.traces.emplace_back().facts.rank = 0;
  std::vector<DiagnosedWindow>& windows = traces.windows.emplace_back();
  for (const int64_t length_ns : lengths_ns) {
    DiagnosedWindow& window = windows.emplace_back();
    window.name = "step " + std::to_string(windows.size()) + " by launch";
    window.kind = kind;
    window.figures.wide.window_ns = length_ns;
    window.figures.wide.compute_busy_ns = length_ns;
    window.figures.wide.num_kernels = 1;
  }
  return run;
}

reports::ComparisonPage page_of(const RunDiagnosis& before, const RunDiagnosis& after,
                                RunComparison comparison = {}) {
  return comparison_page(comparison, {"a", before}, {"b", after});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_bar_is_the_mean_over_steps_of_any_length) {
  // The sum of six steps of 2.3e18 ns is beyond 64 bits; 10 + 11 + 13 = 34 = 3 * 11 + 1.
  constexpr int64_t kLong = 2'300'000'000'000'000'000;
  const reports::ComparisonPage page =
      page_of(traced(std::vector<int64_t>(6, kLong), WindowKind::step_by_launch),
              traced({10, 11, 13}, WindowKind::step_by_launch));
  BOOST_REQUIRE(page.before.bars.size() == 1u);
  BOOST_TEST(page.before.bars[0].window_ns == kLong);
  BOOST_TEST(page.before.bars[0].compute_ns == kLong);
  BOOST_TEST(page.before.bars[0].num_kernels == 1);
  BOOST_TEST(page.before.bars[0].rank == "0");
  BOOST_TEST(page.before.bars[0].window == "mean of 6 steps");
  BOOST_REQUIRE(page.after.bars.size() == 1u);
  BOOST_TEST(page.after.bars[0].window_ns == 11);
}

BOOST_AUTO_TEST_CASE(a_window_alone_is_its_own_bar) {
  RunComparison comparison;
  comparison.window_kind = WindowKind::whole;
  const RunDiagnosis run = traced({7}, WindowKind::whole);
  const reports::ComparisonPage page = page_of(run, run, comparison);
  BOOST_TEST((page.window == reports::ComparedWindow::whole));
  BOOST_REQUIRE(page.before.bars.size() == 1u);
  BOOST_TEST(page.before.bars[0].window == "step 1 by launch");
  BOOST_TEST(page.before.bars[0].window_ns == 7);
  // A run that has none of the windows has no bar.
  BOOST_TEST(page_of(run, run).before.bars.empty());
  BOOST_TEST((page_of(run, run).window == reports::ComparedWindow::step));
  comparison.window_kind = WindowKind::launched;
  BOOST_TEST((page_of(run, run, comparison).window == reports::ComparedWindow::launched));
}

BOOST_AUTO_TEST_CASE(text_and_json_have_both_walls) {
  RunDiagnosis before = traced({7}, WindowKind::step_by_launch);
  RunDiagnosis after = traced({7}, WindowKind::step_by_launch);
  const auto text_of_both = [&] {
    return comparison_text(compare_runs(before, after), std::nullopt);
  };
  // Where neither is known there is nothing to tell.
  BOOST_TEST(text_of_both().find("wall:") == std::string::npos, text_of_both());
  profiler::ImportedWall& wall = before.traces->wall;
  wall.label = base::Wall::communication;
  wall.sub_cause = "transfer";
  wall.share_ratio = 0.26;
  BOOST_TEST(text_of_both().find("\nwall: communication (transfer) 26.0 % -> unknown\n") !=
                 std::string::npos,
             text_of_both());
  after.traces->wall.label = base::Wall::compute;
  after.traces->wall.share_ratio = 0.875;
  BOOST_TEST(text_of_both().find("\nwall: communication (transfer) 26.0 % -> compute 87.5 %\n") !=
                 std::string::npos,
             text_of_both());
  const nlohmann::json walls = to_json(compare_runs(before, after)).at("walls");
  const nlohmann::json first = {
      {"label", "communication"}, {"sub_cause", "transfer"}, {"share_ratio", 0.26}};
  const nlohmann::json second = {
      {"label", "compute"}, {"sub_cause", nullptr}, {"share_ratio", 0.875}};
  BOOST_TEST((walls.at("before") == first), walls.dump());
  BOOST_TEST((walls.at("after") == second), walls.dump());
  // A run without memory has one without a trace.
  after.traces.reset();
  after.facts.emplace().status = ForeignStatus::oom;
  BOOST_TEST(wall_in_short(after).label == "memory");
  BOOST_TEST(wall_in_short(after).sub_cause == "oom");
  BOOST_TEST(!wall_in_short(after).share_ratio.has_value());
}

// Windows by launch leave out how long the host stood still before them.
BOOST_AUTO_TEST_CASE(without_logs_the_traces_tell_how_long_steps_took) {
  const auto run_of = [](int64_t step_ns) {
    RunDiagnosis run = traced({7'000'000, 7'000'000, 7'000'000}, WindowKind::step_by_launch);
    for (int64_t step = 0; step < 3; ++step) {
      run.traces->traces[0].steps.push_back({step, step * step_ns, (step + 1) * step_ns});
    }
    return run;
  };
  RunDiagnosis before = run_of(80'000'000);
  const auto figures = [&] { return compare_runs(before, run_of(40'000'000)).figures; };
  BOOST_REQUIRE(!figures().empty());
  BOOST_TEST(figures().front().name == "step_time_s");
  BOOST_TEST(figures().front().before.median == 0.08);
  BOOST_TEST(figures().front().after.median == 0.04);
  BOOST_TEST(figures().front().change_ratio.value() == -0.5);
  // A log's time is another figure than a profiler's.
  before.facts.emplace().step_time.emplace().steady_s = {0.07, 0.07};
  for (const ComparedFigure& figure : figures()) BOOST_TEST(figure.name != "step_time_s");
}

BOOST_AUTO_TEST_CASE(differences_stand_apart_from_the_notes_of_each_run) {
  RunDiagnosis run = traced({7}, WindowKind::step_by_launch);
  run.notes = {"one file is left out"};
  RunComparison comparison;
  comparison.notes = {"world size differs: 8 and 16"};
  const reports::ComparisonPage page = page_of(run, run, comparison);
  BOOST_TEST(page.differences == comparison.notes, boost::test_tools::per_element());
  BOOST_REQUIRE(page.notes.size() == 4u);
  BOOST_TEST(page.notes[0] == "the first run: one file is left out");
  BOOST_TEST(page.notes[2] == "the second run: one file is left out");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
