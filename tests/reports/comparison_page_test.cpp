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

/// From `start` to the next `end`; empty where it is not there.
std::string part_of(const std::string& html, const std::string& start, const std::string& end) {
  const size_t at = html.find(start);
  return at == std::string::npos ? "" : html.substr(at, html.find(end, at) - at);
}

std::string ceilings_of(const std::string& html) {
  return part_of(html, "<tr><td>ceiling of the wall</td>", "</tr>");
}

nlohmann::json bars_of(const std::string& html) {
  const std::string mark = "id=\"data-budget\">";
  const std::string element = part_of(html, mark, "</script>");
  BOOST_REQUIRE(element.size() > mark.size());
  return nlohmann::json::parse(element.substr(mark.size()))["trials"];
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

// Where they differ in more than settings, the change is told with that beside it.
BOOST_AUTO_TEST_CASE(what_makes_two_runs_hard_to_compare_stands_under_the_headline) {
  ComparisonPage page = sample_comparison();
  page.differences = {"world size differs: 8 and 16", "the second run ended as oom"};
  const std::string html = render_comparison(page);
  const std::string line = part_of(html, "<p class=\"headline\">", "<dl class=\"cards\">");
  BOOST_TEST(shows(line,
                   "<p class=\"notice\">Hard to compare: world size differs: 8 and 16; the second "
                   "run ended as oom.</p>"),
             line);
  page.differences.clear();
  BOOST_TEST(!shows(render_comparison(page), "Hard to compare"));
}

BOOST_AUTO_TEST_CASE(windows_that_are_no_steps_are_not_called_steps) {
  ComparisonPage page = sample_comparison();
  page.figures = {{"window_us", "us", {100, 100, 100}, {173, 173, 173}, 0.73, {}}};
  const std::string steps = render_comparison(page);
  for (const char* part :
       {"A step takes <strong>73.0 % more</strong> time: 100 us before, 173 us after. Whether that "
        "is more than noise is not known.",
        "<dt>traced step</dt>", "before and after: mean over its steps.",
        "<p class=\"lead\">Time in a step,", "<th>figure, of a step</th>"}) {
    BOOST_TEST(shows(steps, part), part);
  }
  page.window = ComparedWindow::whole;
  const std::string whole = render_comparison(page);
  for (const char* part :
       {"A whole trace takes <strong>73.0 % more</strong> time: 100 us before, 173 us after.",
        "<dt>whole trace</dt>", "before and after: its whole trace.",
        "<p class=\"lead\">Time in a whole trace,", "<th>figure</th>"}) {
    BOOST_TEST(shows(whole, part), part);
  }
  page.window = ComparedWindow::launched;
  const std::string launched = render_comparison(page);
  for (const char* part :
       {"What was launched in a trace takes <strong>73.0 % more</strong> time: 100 us before,",
        "<dt>launched in a trace</dt>", "before and after: all that was launched in its trace.",
        "<p class=\"lead\">Time in all that was launched in a trace,", "<th>figure</th>"}) {
    BOOST_TEST(shows(launched, part), part);
  }
  for (const std::string& html : {whole, launched}) {
    for (const char* part : {"A step", "traced step", "Time in a step", ">step</th>",
                             "mean over its steps", "figure, of a step"}) {
      BOOST_TEST(!shows(html.substr(0, html.rfind("<script>")), part), part);
    }
  }
  // What logs say is of a step all the same.
  page.figures.push_back({"step_time_s", "s", {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}, -0.5, {}});
  BOOST_TEST(shows(render_comparison(page), "A step takes <strong>50.0 % less</strong> time"));
}

BOOST_AUTO_TEST_CASE(of_a_change_from_nothing_both_values_are_told) {
  ComparisonPage page = sample_comparison();
  page.figures = {{"window_us", "us", {0, 0, 0}, {5, 5, 5}, {}, {}}};
  const std::string html = render_comparison(page);
  BOOST_TEST(shows(html, "A step took 0 ns before and takes 5 us now. Whether that is more"));
  BOOST_TEST(!shows(html, "as long as before"));
}

BOOST_AUTO_TEST_CASE(a_wall_is_named_once) {
  ComparisonPage page = sample_comparison();
  const auto line = [&](const char* when) {
    return part_of(render_comparison(page), "<p><strong>" + std::string(when) + ":</strong>",
                   "</p>");
  };
  const std::string badge = "</strong> <span class=\"badge wall wall-";
  BOOST_TEST(shows(line("Before"),
                   badge + "communication\">communication</span>: 31.2 % of the time (transfer)"));
  BOOST_TEST(shows(line("After"), badge + "host\">host</span> (launch): without it the step"));
  // No other word that begins like it is cut, and neither is another sentence.
  page.after.summary = "hosts: both are late";
  BOOST_TEST(shows(line("After"), "host</span> hosts: both are late"));
  page.after.wall = "unknown";
  page.after.summary = "There is no trace";
  BOOST_TEST(shows(line("After"), "unknown</span> There is no trace"));
  page.after.summary = "unknown: 4 device operations";
  BOOST_TEST(shows(line("After"), "unknown</span>: 4 device operations"));
}

BOOST_AUTO_TEST_CASE(a_ceiling_is_told_of_a_wall_and_compared_with_one_of_the_same) {
  ComparisonPage page = sample_comparison();
  // Communication with 31.2 %, and the host with 12.1 %: their difference says nothing.
  std::string row = ceilings_of(render_comparison(page));
  BOOST_TEST(shows(row, "31.2 %"), row);
  BOOST_TEST(shows(row, "12.1 %"), row);
  BOOST_TEST(!shows(row, "points"), row);
  page.after.wall = page.before.wall;
  row = ceilings_of(render_comparison(page));
  BOOST_TEST(shows(row, "−19.1 points"), row);
  page.after.wall = "unknown";
  row = ceilings_of(render_comparison(page));
  BOOST_TEST(shows(row, "31.2 %"), row);
  BOOST_TEST(!shows(row, "12.1 %"), row);
  BOOST_TEST(!shows(row, "points"), row);
  page.before.wall = "unknown";
  const std::string html = render_comparison(page);
  BOOST_TEST(ceilings_of(html) == "");
  BOOST_TEST(shows(html, "exposed comm"));
}

BOOST_AUTO_TEST_CASE(a_share_that_stays_has_no_sign) {
  ComparisonPage page = sample_comparison();
  // The host's 8.1 % before become 8.08 %; the other shares are those of before, but one.
  page.after.shares[1].ratio = 0.0808;
  const std::string html = render_comparison(page);
  BOOST_TEST(shows(html, "<td class=\"num\">0.0 points</td>"));
  BOOST_TEST(!shows(html, "+0.0 points"));
  BOOST_TEST(!shows(html, "−0.0 points"));
}

BOOST_AUTO_TEST_CASE(bars_of_a_rank_stand_below_each_other) {
  const nlohmann::json bars = bars_of(render_comparison(sample_comparison()));
  BOOST_REQUIRE(bars.size() == 8u);
  BOOST_TEST(bars[0]["label"] == "rank 0, before");
  BOOST_TEST(bars[1]["label"] == "rank 0, after");
  BOOST_TEST(bars[2]["label"] == "rank 1, before");
  for (size_t i = 0; i < 8; ++i) {
    int64_t sum = 0;
    for (const auto& part : bars[i]["parts"]) sum += part.get<int64_t>();
    BOOST_TEST(sum == (i % 2 == 0 ? 812'000'000 : 612'000'000));
  }
}

BOOST_AUTO_TEST_CASE(of_many_ranks_the_first_are_shown_and_it_says_so) {
  ComparisonPage page = sample_comparison();
  const auto set_ranks = [&](int num_ranks) {
    for (ComparedRun* run : {&page.before, &page.after}) {
      run->bars.resize(1);
      while (run->bars.size() < static_cast<size_t>(num_ranks)) {
        run->bars.push_back(run->bars.front());
        run->bars.back().rank = std::to_string(run->bars.size() - 1);
      }
    }
  };
  set_ranks(64);
  std::string html = render_comparison(page);
  BOOST_TEST(bars_of(html).size() == 128u);
  BOOST_TEST(!shows(html, "ranks are shown"));
  set_ranks(100);
  html = render_comparison(page);
  BOOST_TEST(shows(html, "mean over its steps. 64 of 100 ranks are shown."));
  nlohmann::json bars = bars_of(html);
  BOOST_REQUIRE(bars.size() == 128u);
  BOOST_TEST(bars[126]["label"] == "rank 63, before");
  BOOST_TEST(bars[127]["label"] == "rank 63, after");
  // Neither do ranks that no file states make a page longer.
  for (ComparedRun* run : {&page.before, &page.after}) {
    for (DiagnosedBar& bar : run->bars) bar.rank = "?";
  }
  html = render_comparison(page);
  BOOST_TEST(shows(html, "64 of 100 ranks are shown."));
  bars = bars_of(html);
  BOOST_REQUIRE(bars.size() == 128u);
  BOOST_TEST(bars[126]["label"] == "rank ?, before");
  BOOST_TEST(bars[127]["label"] == "rank ?, after");
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
