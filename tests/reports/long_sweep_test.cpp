// A sweep of thousands of trials: its page stays small, says what it leaves out, and holds every
// trial all the same.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "profiler/store/store.h"
#include "reports/report.h"
#include "reports/trial_columns.h"
#include "reports/trial_table.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"
#include "tests/reports/many_trials_helper.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::TempFolder;

constexpr int kTrials = 3000;

const std::string& long_page() {
  static const std::string kPage = [] {
    const TempFolder folder;
    tests::make_many_trials(folder.file("many.db"), kTrials);
    return render_report(store::Store::open_read_only(folder.file("many.db")));
  }();
  return kPage;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

json data_of(const std::string& page, const std::string& name) {
  const std::string mark = "id=\"data-" + name + "\">";
  const size_t start = page.find(mark) + mark.size();
  return json::parse(page.substr(start, page.find("</script>", start) - start));
}

BOOST_AUTO_TEST_SUITE(long_sweep)

// The page of 10,000 trials may have 3 MB. Style, scripts and the timeline do not grow with them.
BOOST_AUTO_TEST_CASE(the_page_stays_small) {
  const std::string& page = long_page();
  const size_t scripts = page.size() - page.rfind("<script>");
  const size_t timeline = data_of(page, "timeline").dump().size();
  const size_t rest = page.size() - scripts - timeline;
  BOOST_TEST(scripts < 800'000u);
  BOOST_TEST(rest < 1'150'000u);
  // Of that, what grows with each trial.
  BOOST_TEST(data_of(page, "trials").dump().size() < kTrials * 150u);
}

BOOST_AUTO_TEST_CASE(what_is_left_out_is_told) {
  const std::string& page = long_page();
  BOOST_TEST(count_of(page, "<tr id=\"trial-") == kMostTableRows);
  BOOST_TEST(page.find("Without scripts, 200 of 3000 trials stand here") != std::string::npos);
  // Memory, budget and predictions.
  BOOST_TEST(count_of(page, "Of the 3000 trials, the 60 that tell most stand here") == 3u);
  BOOST_TEST(data_of(page, "budget")["trials"].size() <= kMostDeep);
  BOOST_TEST(data_of(page, "memory")["trials"].size() <= kMostDeep);
  BOOST_TEST(page.find("300 of 3007 decisions") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(every_trial_is_in_the_data) {
  const json data = data_of(long_page(), "trials");
  const json& columns = data["columns"];
  BOOST_TEST(data["num"] == kTrials);
  BOOST_TEST(columns["flags"].get<std::string>().size() == static_cast<size_t>(kTrials));
  for (const char* numbers : {"n", "step", "low", "high", "tokens", "peak"}) {
    BOOST_TEST(columns[numbers]["at"].size() == static_cast<size_t>(kTrials), numbers);
  }
  BOOST_TEST(data["knobs"].size() == 14u);
  // Tokens and time of a trial belong together, so that six digits of each say the same.
  const auto number = [&](const char* name, size_t i) {
    return columns[name]["unit"].get<double>() * columns[name]["at"][i].get<double>();
  };
  for (const size_t i : {size_t{2}, size_t{3}, size_t{100}}) {
    if (number("step", i) == 0) continue;
    const double tokens = number("tokens", i) * number("step", i) / 1e9;
    BOOST_TEST(std::abs(tokens / (1 << 20) - 1) < 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(texts_of_many_trials_stay_texts) {
  const TempFolder folder;
  tests::make_many_trials(folder.file("many.db"), 500, tests::kHostileText);
  const std::string page = render_report(store::Store::open_read_only(folder.file("many.db")));
  const std::string markup = page.substr(0, page.rfind("<script>"));
  for (const char* part : {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
}

BOOST_AUTO_TEST_CASE(a_command_that_is_no_plain_line_is_not_offered_to_copy) {
  for (const auto& [mark, is_offered] :
       {std::pair{"", true}, std::pair{"ls\n", false}, std::pair{"\x1b[31m", false},
        std::pair{"a\xe2\x80\xae", false}, std::pair{"\xc2\x9b", false},
        std::pair{"touch x\r", false}}) {
    const TempFolder folder;
    tests::make_many_trials(folder.file("many.db"), 10, mark);
    const std::string page = render_report(store::Store::open_read_only(folder.file("many.db")));
    BOOST_TEST((page.find("data-copy=\"copy-sweep\"") != std::string::npos) == is_offered);
    const size_t start = page.find("<pre id=\"copy-sweep\"");
    const std::string box = page.substr(start, page.find("</pre>", start) - start);
    BOOST_TEST(box.find('\n') == std::string::npos);
    BOOST_TEST(box.find("moetune sweep many.json") != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports
