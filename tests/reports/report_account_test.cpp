// The account of a device's memory on the page, and notes where it or the trace is missing.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/spec/communicators.h"
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

BOOST_AUTO_TEST_SUITE(report_account)

/// The rows of the account of the device's memory: name, bytes and share.
std::vector<std::string> account_rows(const std::string& text) {
  const size_t start = text.find("<table class=\"compact account\">");
  if (start == std::string::npos) {
    return {};
  }
  const std::string table = text.substr(start, text.find("</table>", start) - start);
  std::vector<std::string> rows;
  for (size_t at = table.find("<tr><td>"); at != std::string::npos;
       at = table.find("<tr><td>", at + 1)) {
    std::string row;
    bool is_tag = false;
    for (const char c : table.substr(at, table.find("</tr>", at) - at)) {
      if (c == '<' && row.size() > 0 && row.back() != '|') {
        row += '|';
      }
      is_tag = c == '<' || (is_tag && c != '>');
      if (!is_tag && c != '>') {
        row += c;
      }
    }
    rows.push_back(row);
  }
  return rows;
}

BOOST_AUTO_TEST_CASE(the_memory_of_a_gpu_is_explained_line_by_line) {
  const Page page({.communicator = "threads"});
  const std::vector<std::string> expected = {
      "peak of the ledger|369 MiB|30.7 %|",
      "arenas beyond it|12.0 MiB|1.0 %|",
      "handles of the libraries|256 MiB|21.3 %|",
      "graphs|16.0 MiB|1.3 %|",
      "context, modules and other programs|536 MiB|44.7 %|",
      "not explained|11.0 MiB|0.9 %|",
      "used, as the driver says|1.17 GiB|100.0 %|",
  };
  BOOST_TEST(account_rows(page.text) == expected, boost::test_tools::per_element());
  BOOST_TEST(page.has("The device's memory, trial 25"));
  BOOST_TEST(page.has("8 ranks: all that lies on the device"));
  BOOST_TEST(account_rows(Page().text).empty());
  // Of the trial that was asked for.
  BOOST_TEST(Page({.communicator = "nccl"}, {.trial = "5"}).has("The device's memory, trial 5"));
}

// A new one needs a sentence on where its ranks were, not only its name.
BOOST_AUTO_TEST_CASE(each_communicator_is_explained) {
  for (const spec::CommunicatorRow& row : spec::NameTable<spec::CommunicatorKind>::kRows) {
    const std::string name(row.name);
    const Page page({.communicator = name});
    BOOST_TEST(!page.has("<li>Communicator <strong>" + name + "</strong>.</li>"), name);
    BOOST_TEST((page.has("<li>Communicator <strong>" + name + "</strong>: ") ||
                page.has("<strong>Fake world</strong>")),
               name);
  }
}

BOOST_AUTO_TEST_CASE(a_note_on_a_trace_stands_beside_the_trace) {
  const Page page({.communicator = "threads"});
  // Budget, timeline, and the trial's row.
  BOOST_TEST(page.count(tests::kTraceNote) == 3u);
  BOOST_TEST(page.count("The trace of trial <a href=\"#trial-22\">#22</a>: the device") == 2u);
  for (const char* section : {"budget", "timeline"}) {
    const size_t start = page.text.find("<section id=\"" + std::string(section) + "\"");
    const size_t note = page.text.find(tests::kTraceNote, start);
    BOOST_TEST(note < page.text.find("</section>", start), section);
  }
  BOOST_TEST(page.has("Trace: the device trace is incomplete"));
  BOOST_TEST(!Page().has("The trace of trial"));
}

BOOST_AUTO_TEST_CASE(a_note_says_why_there_is_no_trace) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"), {.communicator = "threads"});
  {
    const store::Store store = store::Store::open(folder.file("runs.db"));
    store::Statement(store.database(), "DELETE FROM trace_step").run();
    store::Statement(store.database(), "DELETE FROM metric WHERE name = 'traced_step_ns'").run();
    store::Statement(store.database(),
                     "UPDATE trial_log SET trial_id = 25, ordinal = 1000 WHERE name = ?")
        .bind(1, "trace_note")
        .run();
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  const std::string notice =
      std::string("\n<p class=\"notice\">The trace of trial <a href=\"#trial-25\">#25</a>: ") +
      tests::kTraceNote;
  for (const char* body :
       {"<p>No trace of the winner has been stored.</p>", "<p>No trial has a traced step.</p>"}) {
    BOOST_TEST(page.find(body + notice) != std::string::npos, body);
  }
}

namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

/// The report where trials do not say their hardware, and have these texts beside their own.
std::string page_of_strangers(const Texts& texts) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  {
    const store::Store store = store::Store::open(folder.file("runs.db"));
    store::Statement(store.database(),
                     "UPDATE trial SET spec_json = json_remove(spec_json, '$.hardware')")
        .run();
    int64_t ordinal = 5000;  // behind the trials' own
    for (const auto& [name, text] : texts) {
      store::Statement(store.database(), "INSERT INTO trial_log SELECT id, ?, ?, ? FROM trial")
          .bind_all(ordinal++, name, text)
          .run();
    }
  }
  return render_report(store::Store::open_read_only(folder.file("runs.db")));
}

}  // namespace

// A trial of another engine says neither its hardware nor, in a stranger's file, only good words.
BOOST_AUTO_TEST_CASE(verdict_and_roof_are_taken_from_texts_of_the_trial) {
  const std::string page = page_of_strangers(
      {{"device_peaks", R"({"peak_flops_per_s": 2e11, "memory_bytes_per_s": 1e10})"},
       {"wall_evidence",
        R"({"summary": "a <wall>", "evidence": [{"text": "120 ms: of that"}, {"text": 5}, 7]})"}});
  for (const char* part :
       {"<p>a &lt;wall&gt;</p>", "<li>120 ms: of that</li>", "\"peak\":200000000000.0"}) {
    BOOST_TEST(page.find(part) != std::string::npos, part);
  }
}

BOOST_AUTO_TEST_CASE(ceilings_have_their_interval_over_several_steps) {
  const auto page_with = [](const std::string& low, const std::string& high,
                            const std::string& num_steps) {
    return page_of_strangers(
        {{"wall_evidence", R"({"low_label_ceilings": )" + low + R"(, "high_label_ceilings": )" +
                               high + R"(, "num_replayed_steps": )" + num_steps + "}"}});
  };
  const std::string low = R"({"communication": 0.21, "host": 0.0})";
  const std::string high = R"({"communication": 0.45, "host": "x"})";
  const std::string told =
      " of the step would be gained without it (21.0 % to 45.0 % over 3 steps)";
  const std::string page = page_with(low, high, "3");
  BOOST_TEST(page.find(told) != std::string::npos);
  BOOST_TEST(page.find("to 45.0 %") == page.rfind("to 45.0 %"));
  // One step has no interval, and a stranger's file may say anything.
  for (const auto& [other_low, other_high, num_steps] :
       {std::tuple(low, high, "1"), std::tuple(low, high, "1e300"), std::tuple(low, high, "[]"),
        std::tuple(std::string("[1]"), high, "3"), std::tuple(low, std::string("7"), "3"),
        std::tuple(low, std::string(R"({"communication": 1e300})"), "3")}) {
    const std::string other = page_with(other_low, other_high, num_steps);
    BOOST_TEST(other.find(" steps)") == std::string::npos, other_low << other_high << num_steps);
    BOOST_TEST(other.find("of the step would be gained without it") != std::string::npos);
  }
}

// A stranger's text may be of any length: what no writer of ours needs is not read.
BOOST_AUTO_TEST_CASE(endless_texts_of_a_trial_are_cut) {
  const std::string page = page_of_strangers(
      {{"device_peaks",
        R"({"peak_flops_per_s": 2e11, "memory_bytes_per_s": 1e10)" + std::string(5'000, ' ') + "}"},
       {"wall_evidence", R"({"summary": "an earlier wall"})"},
       {"wall_evidence", R"({"summary": "a wall")" + std::string(1'000'001, ' ') + "}"}});
  for (const char* part : {"id=\"data-roofline\"", "an earlier wall", "<p>a wall</p>"}) {
    BOOST_TEST(page.find(part) == std::string::npos, part);
  }
}

BOOST_AUTO_TEST_CASE(nobody_is_late_where_nobody_waits) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const store::Store store = store::Store::open(folder.file("runs.db"));
  const std::string late = "waits least for others";
  BOOST_TEST(render_report(store).find(late) != std::string::npos);
  store::Statement(store.database(), "UPDATE metric SET value = 0 WHERE name = 'blocking_wait_ns'")
      .run();
  const std::string page = render_report(store);
  BOOST_TEST(page.find(late) == std::string::npos);
  BOOST_TEST(page.find("Late ranks and spread") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_account_that_cannot_be_read_says_so) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"), {.communicator = "threads"});
  const auto page_with = [&](const std::string& text) {
    const store::Store store = store::Store::open(folder.file("runs.db"));
    store::Statement(store.database(), "UPDATE trial_log SET value = ? WHERE name = ?")
        .bind(1, text)
        .bind(2, "device_memory")
        .run();
    return render_report(store);
  };
  for (const std::string text : {"", "{\"ranks\": 5}", "<b>no JSON", "[[[[[[[[[[[[[[[["}) {
    const std::string page = page_with(text);
    BOOST_TEST(page.find("account of the device's memory cannot be read") != std::string::npos,
               text);
    BOOST_TEST(account_rows(page).empty(), text);
    BOOST_TEST(page.find("<b>no JSON") == std::string::npos);
  }
  const std::string page = page_with(
      R"({"ranks": [{"rank": 3, "lines": [{"name": "<img src=x>", "bytes": 300}]}],
          "driver_used_bytes": 200})");
  const std::vector<std::string> expected = {"&lt;img src=x&gt;|300 B|150.0 %|",
                                             "counted twice|-100 B|-50.0 %|",
                                             "used, as the driver says|200 B|100.0 %|"};
  BOOST_TEST(account_rows(page) == expected, boost::test_tools::per_element());
  BOOST_TEST(page.find("rank 3: all that lies on the device") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports
