// The page of two runs: what is given is there in both columns, the diff is copied as it stands,
// and nothing of a log, a trace or a configuration becomes markup.
#include "reports/comparison_page.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/reports/comparison_sample.h"
#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(comparison_page)

namespace {

using tests::sample_comparison;

bool shows(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_a_step_costs_comes_first) {
  const std::string html = render_comparison(sample_comparison());
  size_t last = 0;
  for (const char* id : {"verdict", "walls", "windows", "settings", "kernels", "figures", "run"}) {
    const size_t at = html.find("<section id=\"" + std::string(id) + "\"");
    BOOST_TEST(at != std::string::npos, id);
    BOOST_TEST(at > last, id);
    last = at;
  }
  for (const char* part :
       {"A step takes <strong>25.0 % less</strong> time: 812 ms before, 609 ms after. That is "
        "beyond the noise of its steps. The wall was communication (transfer) and is host "
        "(launch).",
        "<dt>step</dt><dd><span class=\"value\">−25.0 %",
        // Shares: 31.2 % and 10.0 %, 21.2 points less.
        "−21.2 points", "ceiling of the wall", "exposed comm", "beyond noise", "not known",
        "run-17", "run-18", "device differs"}) {
    BOOST_TEST(shows(html, part), part);
  }
}

BOOST_AUTO_TEST_CASE(bars_of_a_rank_stand_below_each_other) {
  const std::string html = render_comparison(sample_comparison());
  const std::string mark = "id=\"data-budget\">";
  const size_t start = html.find(mark) + mark.size();
  const auto data =
      nlohmann::json::parse(html.substr(start, html.find("</script>", start) - start));
  BOOST_REQUIRE(data["trials"].size() == 8u);
  BOOST_TEST(data["trials"][0]["label"] == "rank 0, before");
  BOOST_TEST(data["trials"][1]["label"] == "rank 0, after");
  BOOST_TEST(data["trials"][2]["label"] == "rank 1, before");
  for (size_t i = 0; i < 8; ++i) {
    int64_t sum = 0;
    for (const auto& part : data["trials"][i]["parts"]) sum += part.get<int64_t>();
    BOOST_TEST(sum == (i % 2 == 0 ? 812'000'000 : 612'000'000));
  }
}

BOOST_AUTO_TEST_CASE(the_diff_is_copied_with_its_signs) {
  const std::string html = render_comparison(sample_comparison());
  BOOST_TEST(shows(html,
                   "id=\"copy-diff\" tabindex=\"0\"><span class=\"minus\">- --micro-batch-size 1\n"
                   "</span><span class=\"plus\">+ --micro-batch-size 2\n</span><span "
                   "class=\"plus\">+ --overlap-grad-reduce\n</span><span class=\"minus\">- "
                   "--recompute-granularity full\n</span></pre>"));
  // The second box has what the second run says, to be put behind a command.
  BOOST_TEST(shows(html,
                   "id=\"copy-settings\" tabindex=\"0\"><span class=\"add\">--micro-batch-size 2\n"
                   "</span><span class=\"add\">--overlap-grad-reduce\n</span></pre>"));
  BOOST_TEST(shows(html, "data-copy=\"copy-diff\""));
  BOOST_TEST(shows(html, "data-copy=\"copy-settings\""));
  BOOST_TEST(!shows(html, "without their folders"));
  for (const std::string mark : {"\x1b[2K", "a\nb", "\xe2\x80\xae", "\xc2\x9b"}) {
    BOOST_TEST(!shows(render_comparison(sample_comparison(mark)), "data-copy=\"copy-"));
  }
  // Neither is a setting copied that the page has cut.
  ComparisonPage page = sample_comparison();
  page.settings = {{"", "--lr " + std::string(3000, '1')}};
  BOOST_TEST(!shows(render_comparison(page), "data-copy=\"copy-"));
  page.settings = {{"--save /home/somebody/a", "--save /home/somebody/b"}};
  const std::string folders = render_comparison(page);
  BOOST_TEST(!shows(folders, "somebody"));
  BOOST_TEST(shows(folders, "without their folders"));
}

BOOST_AUTO_TEST_CASE(what_a_page_does_not_show_is_not_copied) {
  ComparisonPage page = sample_comparison();
  const std::string mark = "<span class=\"note\">(another folder)</span>\n";
  page.settings = {{"--micro-batch-size 1", "--micro-batch-size 2"},
                   {"--save /home/somebody/a", "--save /home/nobody/a"}};
  const std::string folders = render_comparison(page);
  BOOST_TEST(shows(folders, "- --save a\n</span><span class=\"plus\">+ --save a " + mark));
  BOOST_TEST(!shows(folders, "data-copy=\"copy-"));
  // The second box has no path here.
  page.settings[1].after = "";
  const std::string gone = render_comparison(page);
  BOOST_TEST(!shows(gone, "data-copy=\"copy-diff\""));
  BOOST_TEST(shows(gone, "data-copy=\"copy-settings\""));
  BOOST_TEST(!shows(gone, "another folder"));
  // As many as the page shows, and one more.
  page.settings.clear();
  for (int i = 0; i < 500; ++i) page.settings.push_back({"", "--a" + std::to_string(i)});
  BOOST_TEST(shows(render_comparison(page), "data-copy=\"copy-diff\""));
  page.settings.push_back({"", "--zz-not-shown"});
  const std::string cut = render_comparison(page);
  BOOST_TEST(shows(cut, "and 1 more"));
  BOOST_TEST(!shows(cut, "--zz-not-shown"));
  BOOST_TEST(!shows(cut, "data-copy=\"copy-"));
}

BOOST_AUTO_TEST_CASE(variables_go_in_front_of_a_command) {
  ComparisonPage page = sample_comparison();
  page.settings = {{"", "--log-throughput"}, {"NCCL_ALGO=Ring", "NCCL_ALGO='a b'", true}};
  const std::string html = render_comparison(page);
  BOOST_TEST(shows(html,
                   "id=\"copy-settings\" tabindex=\"0\"><span class=\"add\">--log-throughput\n"
                   "</span></pre>"));
  BOOST_TEST(shows(html,
                   "id=\"copy-variables\" tabindex=\"0\"><span class=\"add\">export "
                   "NCCL_ALGO="));
  BOOST_TEST(shows(html, "data-copy=\"copy-variables\""));
  page.settings.pop_back();
  BOOST_TEST(!shows(render_comparison(page), "copy-variables"));
}

BOOST_AUTO_TEST_CASE(texts_of_both_runs_stay_texts) {
  const std::string html = render_comparison(sample_comparison(tests::kHostileText));
  const std::string markup = html.substr(0, html.rfind("<script>"));
  for (const char* part :
       {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b", "\xe2\x80\xae"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
}

BOOST_AUTO_TEST_CASE(logs_alone_have_no_walls_and_no_kernels) {
  ComparisonPage page;
  page.title = "a and b";
  page.before.name = "a.log";
  page.after.name = "b.log";
  page.before.wall = page.after.wall = "unknown";
  page.figures = {{"step_time_s", "s", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}, 0.0, {}}};
  const std::string html = render_comparison(page);
  BOOST_TEST(shows(html,
                   "A step takes as long as before: 500 ms before, 500 ms after. Whether that "
                   "is more than noise is not known."));
  BOOST_TEST(shows(html, "The command or configuration of a run is not known"));
  for (const char* id : {"walls", "windows", "kernels", "run"}) {
    BOOST_TEST(!shows(html, "<section id=\"" + std::string(id) + "\""), id);
  }
  page.are_settings_known = true;
  BOOST_TEST(shows(render_comparison(page), "None that moetune reads."));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
