// The page of a plan from made-up data: every section is there when it has something to show, its
// charts hold the figures given, and no text of it becomes markup.
#include "reports/plan_page.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(plan_page)

namespace {

using nlohmann::json;

constexpr double kGiB = 1 << 30;

profiler::StepTrace trace_of(int rank) {
  profiler::StepTrace trace;
  trace.rank = rank;
  trace.end_ns = 1'000'000;
  for (int i = 0; i < 4; ++i) {
    profiler::TraceRecord& record = trace.records.emplace_back();
    record.id = i;
    record.rank = rank;
    record.name = i == 3 ? "dispatch.forward" : "core_attn.forward";
    record.micro_batch = i;
    record.start_ns = 250'000 * i;
    record.end_ns = record.start_ns + 200'000;
  }
  return trace;
}

/// `text` is in every text that somebody else could have written.
PlanPage sample(const std::string& text = "") {
  PlanPage page;
  page.model = text + "model";
  page.hardware = text + "machine";
  page.date = "2026-11-24 10:00 UTC";
  page.num_devices = 16;
  page.seq_length = 4096;
  page.global_batch_size = 1024;
  page.num_points = 1000;
  page.num_legal = 500;
  page.num_fit = 20;
  page.has_experts = true;
  page.assumptions = {text + "balanced routing"};
  page.capacity_bytes = 80 * kGiB;
  page.allocatable_bytes = 75 * kGiB;
  PlanRow row;
  row.layout = text + "tp 2";
  row.choices = text + "recompute full";
  row.step_ns = {2e9, 1e9, 3e9};
  row.tflops = {300, 250, 350};
  row.tokens_per_s = {1234, 1000, 1500};
  row.peak_bytes = {60 * kGiB, 55 * kGiB, 65 * kGiB};
  row.load_that_fits = 1.37;
  row.wall = "communication";
  row.grade = text + "calibrated";
  page.rows = {row, row};
  page.rows[1].to_first = {{text + "tp", text + "2", text + "4"}};
  page.rows[1].why_slower = text + "bubble takes more";
  const PlanMark mark = {text + "tp 2 cp 1", 60 * kGiB, 1234, true};
  page.front = {mark, {text + "tp 1 cp 1", 90 * kGiB, 1300, false}};
  page.regions = {{2, 1, 8, 1, 9, 4, mark, ""},
                  {1, 1, 8, 1, 5, 0, PlanMark{text + "tp 1", 500 * kGiB, 1500, false}, ""},
                  {4, 1, 8, 1, 0, 0, {}, text + "tp_divides_heads"}};
  page.memory_terms = {text + "weights", "saved activations"};
  page.stages = {{text + "loss", {20 * kGiB, 40 * kGiB}}, {text + "loss", {10 * kGiB, 5 * kGiB}}};
  page.step_parts = {{text + "products", 1.5}, {"bubble", 0.5}};
  PlanPlayed& played = page.played.emplace();
  played.step_ns = 1'000'000;
  played.stage_parts_ns = {{{"compute", 800'000}, {"blocking_ep", 200'000}},
                           {{"compute", 600'000}, {"bubble", 400'000}}};
  played.wall = "communication";
  played.traces = {trace_of(0), trace_of(8)};
  played.num_records = 8;
  played.num_micro_batches = 4;
  played.left_out = {text + "FSDP"};
  page.against = PlanAgainst{text + "tp 4", text + "none", row.step_ns, row.tflops,
                             row.tokens_per_s, row.peak_bytes, "fits", {}};
  page.against->changes = {{{text + "ep", "1", "8"}, 0.25, -3 * kGiB, ""},
                           {{text + "vpp", "1", "2"}, {}, {}, text + "vpp_needs_pp"}};
  page.thumbs = {{text + "Two replicas.", false, 0.125}};
  page.helps = {{{text + "precision", "bf16", "mxfp8"}, 0.4, kGiB, ""}};
  return page;
}

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
  const std::string html = render_plan(sample());
  for (const char* id : {"verdict", "plans", "front", "space", "memory", "budget", "timeline",
                         "against", "advice", "basis"}) {
    BOOST_TEST(has(html, "<section id=\"" + std::string(id) + "\""), id);
  }
  BOOST_TEST(!has(html, "<section id=\"misses\""));
  BOOST_TEST(has(html, "model on 16 × machine"));
  BOOST_TEST(has(html, "up to an imbalance of <strong>1.37"));
  BOOST_TEST(has(html, "+25.0 %"));
  BOOST_TEST(has(html, "−3.00 GiB"));
  BOOST_TEST(has(html, "not alone: vpp_needs_pp"));
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

BOOST_AUTO_TEST_CASE(a_thinned_step_says_so) {
  PlanPage page = sample();
  page.played->is_thinned = true;
  page.played->num_records = 2'400'000;
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "Of 2.4M records only those of the first, the middle and the last") ||
             has(html, "Of 2.40M records only those of the first, the middle and the last"));
}

BOOST_AUTO_TEST_CASE(where_nothing_fits_the_page_says_what_is_missing) {
  PlanPage page = sample();
  page.rows.clear();
  page.stages.clear();
  page.played.reset();
  page.helps.clear();
  page.misses = {{"tp 8", "recompute full", 95 * kGiB, 20 * kGiB}};
  page.ways_out = {{"32 devices (--gpus 32)", -kGiB}, {"moments of 16 bits", 4 * kGiB}};
  const std::string html = render_plan(page);
  BOOST_TEST(has(html, "Nothing fits on 16 devices of machine: 20.0 GiB are missing"));
  BOOST_TEST(has(html, "<section id=\"misses\""));
  BOOST_TEST(has(html, "32 devices (--gpus 32)"));
  BOOST_TEST(has(html, "4.00 GiB"));
  for (const char* id : {"plans", "memory", "timeline"}) {
    BOOST_TEST(!has(html, "<section id=\"" + std::string(id) + "\""), id);
  }
  BOOST_TEST(!data_of(html, "front").contains("first"));
}

BOOST_AUTO_TEST_CASE(no_text_becomes_markup_and_no_path_gets_in) {
  const std::string plain = render_plan(sample());
  const std::string html = render_plan(sample(tests::kHostileText));
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
  const std::string paths = render_plan(sample("/home/somebody/secret/"));
  BOOST_TEST(!has(paths, "somebody"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::reports
