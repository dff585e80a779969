// The page of a diagnosis: what is given is there, nothing of it becomes markup or is copied
// although it would not do what it shows.
#include "reports/diagnosis_page.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/reports/diagnosis_sample.h"
#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(diagnosis_page)

namespace {

using tests::sample_diagnosis;

bool shows(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_wall_and_its_numbers_come_first) {
  const std::string html = render_diagnosis(sample_diagnosis());
  size_t last = 0;
  for (const char* id : {"verdict", "remedies", "windows", "run"}) {
    const size_t at = html.find("<section id=\"" + std::string(id) + "\"");
    BOOST_TEST(at != std::string::npos, id);
    BOOST_TEST(at > last, id);
    last = at;
  }
  for (const char* part :
       {"Communication: volume</dt><dd><span class=\"value\">40.6 %",
        "exposed</dt><dd><span class=\"value\">31.2 %",
        "blocking</dt><dd><span class=\"value\">28.7 %", "812 ms a step", "At most 31.2 %."}) {
    BOOST_TEST(shows(html, part), part);
  }
}

BOOST_AUTO_TEST_CASE(a_bar_adds_up_to_its_window) {
  const std::string html = render_diagnosis(sample_diagnosis());
  const std::string mark = "id=\"data-budget\">";
  const size_t start = html.find(mark) + mark.size();
  const auto data =
      nlohmann::json::parse(html.substr(start, html.find("</script>", start) - start));
  BOOST_REQUIRE(data["trials"].size() == 4u);
  for (const auto& bar : data["trials"]) {
    int64_t sum = 0;
    for (const auto& part : bar["parts"]) sum += part.get<int64_t>();
    BOOST_TEST(sum == 812'000'000);
  }
}

BOOST_AUTO_TEST_CASE(settings_are_copied_and_their_signs_are_not) {
  const std::string html = render_diagnosis(sample_diagnosis());
  BOOST_TEST(shows(html,
                   "tabindex=\"0\"><span class=\"add\">--overlap-grad-reduce\n</span><span "
                   "class=\"add\">--overlap-param-gather\n</span></pre>"));
  BOOST_TEST(shows(html, "data-copy=\"copy-remedy-1\""));
  BOOST_TEST(shows(html, "Not possible here: ep_divides_experts: 6 experts"));
  for (const char* mark : {"\x1b[2K", "a\nb", "\xe2\x80\xae", "\xc2\x9b"}) {
    BOOST_TEST(!shows(render_diagnosis(sample_diagnosis(mark)), "data-copy=\"copy-remedy-1\""));
  }
}

// Each set of them under its own title, and every button copies its own settings.
BOOST_AUTO_TEST_CASE(what_lets_a_run_start_is_not_what_makes_it_faster) {
  DiagnosisPage page = sample_diagnosis();
  BOOST_TEST(!shows(render_diagnosis(page), "<section id=\"failure\""));
  page.failure_heading = "What the rule asks for";
  page.remedies.insert(page.remedies.begin(), {{"--sequence-parallel"},
                                               std::nullopt,
                                               "sequence_parallel_with_experts",
                                               "Experts need it.",
                                               "",
                                               true});
  const std::string html = render_diagnosis(page);
  const size_t failure = html.find("<section id=\"failure\"");
  const size_t remedies = html.find("<section id=\"remedies\"");
  BOOST_TEST_REQUIRE(failure != std::string::npos);
  BOOST_TEST_REQUIRE(remedies != std::string::npos);
  BOOST_TEST(failure < remedies);
  BOOST_TEST(shows(html.substr(failure, remedies - failure), "What the rule asks for"));
  BOOST_TEST(shows(html.substr(failure, remedies - failure), "id=\"copy-remedy-1\""));
  BOOST_TEST(!shows(html.substr(failure, remedies - failure), "At most"));
  BOOST_TEST(shows(html.substr(remedies), "id=\"copy-remedy-2\""));
  BOOST_TEST(shows(html.substr(remedies), "At most 31.2 %."));
}

BOOST_AUTO_TEST_CASE(texts_of_logs_and_traces_stay_texts) {
  const std::string html = render_diagnosis(sample_diagnosis(tests::kHostileText));
  const std::string markup = html.substr(0, html.rfind("<script>"));
  for (const char* part :
       {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b", "\xe2\x80\xae"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
  // No path of the machine either.
  DiagnosisPage page = sample_diagnosis();
  page.notes = {"/home/somebody/runs/17/rank0.json holds no device work"};
  BOOST_TEST(!shows(render_diagnosis(page), "somebody"));
}

BOOST_AUTO_TEST_CASE(little_is_known_of_a_run_without_traces) {
  DiagnosisPage page;
  page.title = "Diagnosis of a log";
  page.wall = "unknown";
  page.summary = "There is no trace.";
  const std::string html = render_diagnosis(page);
  BOOST_TEST(shows(html, "There is no trace."));
  BOOST_TEST(!shows(html, "Communication: volume"));
  for (const char* id : {"remedies", "windows", "run"}) {
    BOOST_TEST(!shows(html, "<section id=\"" + std::string(id) + "\""), id);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
