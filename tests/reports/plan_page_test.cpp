// The page of a plan from made-up data: every section is there when it has something to show, its
// charts hold the figures given, and no text of it becomes markup.
#include "reports/plan_page.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/reports/fixture_helper.h"
#include "tests/reports/plan_sample.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(plan_page)

namespace {

using nlohmann::json;
using tests::kGiB;
using tests::sample_plan;

json data_of(const std::string& html, const std::string& name) {
  const std::string mark = "id=\"data-" + name + "\">";
  const size_t start = html.find(mark);
  BOOST_REQUIRE_MESSAGE(start != std::string::npos, "no data of " << name);
  const size_t from = start + mark.size();
  return json::parse(html.substr(from, html.find("</script>", from) - from));
}

bool has(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sections_and_charts_hold_what_is_given) {
  const std::string html = render_plan(sample_plan());
  for (const char* id : {"verdict", "plans", "batches", "front", "space", "memory", "budget",
                         "timeline", "against", "published", "advice", "basis"}) {
    BOOST_TEST(has(html, "<section id=\"" + std::string(id) + "\""), id);
  }
  BOOST_TEST(!has(html, "<section id=\"misses\""));
  BOOST_TEST(has(html, "model on 16 × machine"));
  BOOST_TEST(has(html, "up to an imbalance of <strong>1.37"));
  BOOST_TEST(has(html, "+25.0 %"));
  BOOST_TEST(has(html, "−3.00 GiB"));
  BOOST_TEST(has(html, "not alone: vpp_needs_pp"));
  BOOST_TEST(has(html, "speed not priced"));
  BOOST_TEST(has(html, "12.5 %"));
  const json front = data_of(html, "front");
  BOOST_TEST(front["first"]["tokens"] == 1234);
  BOOST_TEST(front["front"].size() == 2);
  BOOST_TEST(front["fits"].size() == 1);
  // Beyond twice a device's memory marks are only counted.
  BOOST_TEST(front["others"].empty());
  BOOST_TEST(has(html, " 1 more need over 2 times a device."));
  const json space = data_of(html, "space");
  BOOST_TEST(space["tokens"] == json({1234, 0, 0}));
  BOOST_TEST(space["label"][2] == "tp_divides_heads");
  const json memory = data_of(html, "memory");
  BOOST_TEST(memory["trials"][0]["ranks"][1]["predicted"] ==
             json({10 * int64_t{1 << 30}, 5 * int64_t{1 << 30}}));
  const json budget = data_of(html, "budget");
  for (const json& stage : budget["trials"]) {
    int64_t sum = 0;
    for (const json& part : stage["parts"]) sum += part.get<int64_t>();
    BOOST_TEST(sum == stage["step"].get<int64_t>());
  }
  const json timeline = data_of(html, "timeline");
  BOOST_TEST(timeline["step"] == 1'000'000);
  BOOST_TEST(timeline["unit"] == "stage");
  BOOST_TEST_REQUIRE(timeline["lanes"].size() == 2);
  BOOST_TEST(timeline["lanes"][1]["rank"] == 1);
  BOOST_TEST(timeline["lanes"][1]["start"].size() == 4);
  BOOST_TEST(!has(html, "only those of the first, the middle and the last"));
}

// Steps of other sequences are compared by their tokens; what does not fit alone says so.
BOOST_AUTO_TEST_CASE(the_run_of_today_is_compared_by_tokens) {
  PlanPage page = sample_plan();
  BOOST_TEST(!has(render_plan(page), "does not fit alone"));
  page.against->tokens_per_s.value = 617;
  page.against->changes[0].verdict = "oom";
  page.against->changes[1].verdict = "tight";
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "<strong>2.00 times</strong> as fast in tokens a second"));
  BOOST_TEST(has(html, "<td>does not fit alone</td>"));
  BOOST_TEST(has(html, "<td>speed not priced, tight alone</td>"));
}

// What a device lacks for the command, and for it with each change alone.
BOOST_AUTO_TEST_CASE(a_command_that_does_not_fit_is_told_what_is_missing) {
  PlanPage page = sample_plan();
  const std::string fitting = render_plan(page);
  BOOST_TEST(!has(fitting, "of a device's memory are missing"));
  BOOST_TEST(!has(fitting, "fits alone"));
  PlanAgainst& theirs = *page.against;
  theirs.verdict = "oom";
  theirs.missing_bytes = 5 * kGiB;
  theirs.order = "No change alone makes yours <fit>.";
  theirs.changes[0].verdict = "oom";
  theirs.changes[0].missing_bytes = 2 * kGiB;
  theirs.changes[1].verdict = "fits";
  theirs.changes[1].missing_bytes = -kGiB;
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "<strong>5.00 GiB</strong> of a device's memory are missing"));
  BOOST_TEST(has(html, "<td>does not fit alone: 2.00 GiB missing</td>"));
  BOOST_TEST(has(html, "<td>speed not priced, fits alone</td>"));
  BOOST_TEST(has(html, "No change alone makes yours &lt;fit&gt;."));
  BOOST_TEST(has(html, "<li>known, but not priced: --seed</li>"));
}

// The flags of each change, the rule that one breaks, and the steps to the plan.
BOOST_AUTO_TEST_CASE(the_way_to_the_plan_is_a_table) {
  PlanPage page = sample_plan();
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "not alone: vpp_needs_pp: vpp 2 without pipeline stages</td>"));
  BOOST_TEST(has(html, "<h3>Step by step</h3>"));
  BOOST_TEST(has(html, "data-value=\"1.25\">1.25 ×</td>"));
  BOOST_TEST(has(html, "<td class=\"num\">not priced</td>"));
  BOOST_TEST(has(html, "<td>oom: 15.0 GiB missing</td>"));
  BOOST_TEST(has(html, "<td>fits</td>"));
  page.against->path.clear();
  BOOST_TEST(!has(render_plan(page), "<h3>Step by step</h3>"));
}

BOOST_AUTO_TEST_CASE(published_runs_are_told_beside_yours) {
  PlanPage page = sample_plan();
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "<h3>run-1: 64 H100</h3>"));
  BOOST_TEST(has(html, "<td class=\"num\" data-value=\"310\">310</td>"));
  BOOST_TEST(has(html,
                 "<td>GPUs</td><td>64</td><td>16</td><td class=\"num\" "
                 "data-value=\"1.02\">+2.0 %</td>"));
  BOOST_TEST(has(html, "<td>not priced by itself: no such node</td>"));
  BOOST_TEST(has(html, "<p class=\"lead\">From yours to its layout, step by step"));
  // None is like it: a sentence.
  page.published.clear();
  page.published_note = "None is <like> it.";
  const std::string none = render_plan(page);
  BOOST_TEST(has(none, "<p class=\"reason\">None is &lt;like&gt; it.</p>"));
  BOOST_TEST(!has(none, "run-1"));
  page.published_note.clear();
  BOOST_TEST(!has(render_plan(page), "<section id=\"published\""));
}

BOOST_AUTO_TEST_CASE(other_batches_are_a_table) {
  PlanPage page = sample_plan();
  const std::string html = render_plan(page);
  // 512 sequences of 4096 tokens.
  BOOST_TEST(has(html,
                 "<tr><td class=\"num\" data-value=\"512\">512</td><td class=\"num\" "
                 "data-value=\"2097152\">2.10M</td>"));
  BOOST_TEST(has(html, "<tr class=\"winner\"><td class=\"num\" data-value=\"1024\">1024</td>"));
  BOOST_TEST(has(html, "<td>planned for</td>"));
  BOOST_TEST(has(html, "within 2 % of the fastest of these is 512: --gbs 512 plans for it."));
  page.smallest_good_batch = 1024;
  BOOST_TEST(has(render_plan(page), "of these is 1024, which is planned for."));
  // One that is given leaves nothing to tell.
  page.batches.clear();
  page.smallest_good_batch = 0;
  BOOST_TEST(!has(render_plan(page), "<section id=\"batches\""));
}

BOOST_AUTO_TEST_CASE(the_fullest_rank_is_named) {
  PlanPage page = sample_plan();
  BOOST_TEST(has(render_plan(page),
                 "The fullest rank is <strong>0</strong>, the first of stage 0: 60.0 GiB are "
                 "allocated. Its others"));
  page.stages[1].bytes = {70 * kGiB, kGiB};
  page.stages[1].allocated_bytes = 70 * kGiB;
  const std::string html = render_plan(page);
  BOOST_TEST(has(html,
                 "The fullest rank is <strong>8</strong>, the first of stage 1: 70.0 GiB are "
                 "allocated; with the pool of graphs and buffers of the dispatcher it needs 71.0 "
                 "GiB. Its others"));
  BOOST_TEST(has(html, "<tr><td>1</td><td class=\"num\" data-value=\"8\">8</td>"));
}

// What a change, a step and another batch come to has an interval and a grade.
BOOST_AUTO_TEST_CASE(each_predicted_speed_has_its_interval) {
  const std::string html = render_plan(sample_plan());
  const std::string note = " <span class=\"note\">1261 to 1881 tokens/s, analytic</span></td>";
  const size_t change = html.find("\">+25.0 %" + note);
  BOOST_TEST_REQUIRE(change != std::string::npos);
  BOOST_TEST(html.find("\">+25.0 %" + note, change + 1) != std::string::npos);  // the step
  BOOST_TEST(has(html, ">1222 <span class=\"note\">1000 to 1490 tokens/s, calibrated</span></td>"));
}

BOOST_AUTO_TEST_CASE(a_thinned_step_says_so) {
  PlanPage page = sample_plan();
  page.played->is_thinned = true;
  page.played->num_records = 2'400'000;
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "Of 2.40M records only those of the first, the middle and the last"));
}

BOOST_AUTO_TEST_CASE(where_nothing_fits_the_page_says_what_is_missing) {
  PlanPage page = sample_plan();
  page.rows.clear();
  page.stages.clear();
  page.played.reset();
  page.helps.clear();
  page.misses = {{"tp 8", "recompute full", 95 * kGiB, 20 * kGiB}};
  page.ways_out = {{"32 devices (--gpus 32)", -kGiB, false},
                   {"moments of 16 bits", 4 * kGiB, false},
                   {"half the sequence", -kGiB, true}};
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "Nothing fits on 16 devices of machine: 20.0 GiB are missing"));
  BOOST_TEST(has(html, "<section id=\"misses\""));
  BOOST_TEST(has(html, "32 devices (--gpus 32)</td><td class=\"num\">–</td><td>fits</td>"));
  BOOST_TEST(has(html, "half the sequence</td><td class=\"num\">–</td><td>may fit</td>"));
  BOOST_TEST(has(html, "4.00 GiB"));
  for (const char* id : {"plans", "memory", "timeline"}) {
    BOOST_TEST(!has(html, "<section id=\"" + std::string(id) + "\""), id);
  }
  BOOST_TEST(!data_of(html, "front").contains("first"));
}

BOOST_AUTO_TEST_CASE(no_text_becomes_markup_and_no_path_gets_in) {
  const std::string plain = render_plan(sample_plan());
  const std::string html = render_plan(sample_plan(tests::kHostileText));
  // Everything but the program's own script.
  const auto count = [](const std::string& text, const std::string& part) {
    size_t result = 0;
    const size_t end = text.rfind("<script>");
    for (size_t at = text.find(part); at < end; at = text.find(part, at + 1)) ++result;
    return result;
  };
  for (const char* part : {"<script", "</script", "<img", "<b>", "<!--", "<td", "<section"}) {
    BOOST_TEST(count(html, part) == count(plain, part), part);
  }
  const std::string paths = render_plan(sample_plan("/home/somebody/secret/"));
  BOOST_TEST(!has(paths, "somebody"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::reports
