// The whole page from a database: complete, self-contained, repeatable, and safe whatever the
// database says.
#include "reports/report.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "reports/context.h"
#include "reports/sections.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::FixtureOptions;
using tests::says;
using tests::TempFolder;

/// A database and its page.
class Page {
 public:
  explicit Page(const FixtureOptions& fixture = {}, const ReportOptions& options = {}) {
    tests::make_fixture(path(), fixture);
    text = render_report(store::Store::open_read_only(path()), options);
  }
  [[nodiscard]] std::string path() const { return folder_.file("runs.db"); }
  [[nodiscard]] bool has(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
  [[nodiscard]] size_t count(const std::string& part) const {
    size_t result = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++result;
    }
    return result;
  }
  /// The data of a chart.
  [[nodiscard]] json data(const std::string& name) const {
    const std::string mark = "id=\"data-" + name + "\">";
    const size_t start = text.find(mark) + mark.size();
    return json::parse(text.substr(start, text.find("</script>", start) - start));
  }
  /// Everything but the program's own script.
  [[nodiscard]] std::string markup() const {
    const size_t start = text.rfind("<script>");
    return text.substr(0, start);
  }

  std::string text;

 private:
  TempFolder folder_;
};

BOOST_AUTO_TEST_SUITE(report)

BOOST_AUTO_TEST_CASE(every_section_is_there_in_order) {
  const Page page({.has_hunts = true});
  size_t last = 0;
  for (const SectionRow& section : section_table()) {
    const size_t at = page.text.find("<section id=\"" + std::string(section.id) + "\"");
    BOOST_TEST(at != std::string::npos, section.id);
    BOOST_TEST(at > last, section.id);
    last = at;
  }
  for (const char* chart : {"history", "memory", "budget", "roofline", "timeline", "prediction",
                            "loss", "bisect-posterior-1", "bisect-runs-1"}) {
    BOOST_TEST(page.has("id=\"chart-" + std::string(chart) + "\" role=\"img\""), chart);
    BOOST_TEST(page.has("id=\"desc-" + std::string(chart) + "\""), chart);
  }
}

BOOST_AUTO_TEST_CASE(the_verdict_can_be_read_without_scripts) {
  const Page page;
  BOOST_TEST(page.has("<dt>Speedup over the first fit</dt><dd><span class=\"value\">2.23×"));
  BOOST_TEST(page.has("275 ms"));
  BOOST_TEST(page.has("14.9k"));  // 4096 tokens in 275 ms
  BOOST_TEST(page.has("46.1 MiB"));
  BOOST_TEST(page.has("2.388"));  // loss of the last step
  BOOST_TEST(page.has("moetune sweep sweeps/configs/quickstart.json"));
  BOOST_TEST(page.has("moetune trial winner.json"));
  BOOST_TEST(page.has("dp 4 · cp 1 · ep 4 · pp 2"));
  BOOST_TEST(page.has("Times are <strong>virtual</strong>"));
  BOOST_TEST(page.count("<tr id=\"trial-") == 25u);
  BOOST_TEST(page.has("8 experts need one of 1, 2, 4, 8"));
}

BOOST_AUTO_TEST_CASE(the_top_says_when_where_and_by_which_clock) {
  const auto origin = [](const Page& page) {
    const std::string mark = "<p class=\"origin\">";
    const size_t start = page.text.find(mark) + mark.size();
    return page.text.substr(start, page.text.find("</p>", start) - start);
  };
  const std::string emulated = origin(Page());
  BOOST_TEST(emulated.starts_with("20"));  // today
  BOOST_TEST(emulated.ends_with(
      " UTC · example, Example CPU, 2 cores · <strong>emulated, virtual time</strong>"));
  BOOST_TEST(origin(Page({.communicator = "nccl"}))
                 .ends_with("<strong>measured on 2 nodes x 4 emulated devices</strong>"));
  BOOST_TEST(origin(Page({.communicator = "fake"})).ends_with("</strong>, one rank alone"));
}

BOOST_AUTO_TEST_CASE(short_names_stand_beside_plain_words_first) {
  const Page page;
  const size_t start = page.text.find("<main>");
  for (const auto& [name, words] :
       {std::pair{"dp", "<b>dp 4</b> data parallel: copies of the model"},
        std::pair{"cp", "<b>cp 1</b> context parallel: ranks that share a sequence"},
        std::pair{"ep", "<b>ep 4</b> expert parallel: ranks that share out the experts"},
        std::pair{"pp", "<b>pp 2</b> pipeline parallel: stages of layers"}}) {
    const size_t first = page.text.find(words, start);
    BOOST_TEST((first != std::string::npos), words);
    BOOST_TEST(page.text.find(std::string(name) + " ", start) >= first, name);
  }
  // Its reason does not say what an oom is, so the headline does.
  BOOST_TEST(page.has("oom</span> (out of memory): rank 0: activations"));
  BOOST_TEST(page.has("2 oom (out of memory)"));
}

BOOST_AUTO_TEST_CASE(three_sentences_say_why_this_one_won) {
  const Page page;
  const auto link = [](int ordinal) {
    return fmt::format("<a href=\"#trial-{0}\">#{0}</a>", ordinal);
  };
  for (const std::string& part :
       {"The search met these walls: memory (at " + link(2) + "), communication (at " + link(7) +
            "), host (at " + link(17) + ") and compute (at " + link(22) +
            "), which still limits it.",
        "From the first configuration that fitted (" + link(5) +
            ", 612 ms a step) on, this was kept",
        "ep_<wbr>chunks_<wbr>forward 1 → 2 (" + link(15) + ") <strong>+13.2 %</strong>",
        std::string(" and 3 more."),
        "It was preferred to 12 other configurations that ran to the end, of which the nearest, " +
            link(24) + ", is 0.4 % faster, less than counts; without a time: 1 crashed"}) {
    BOOST_TEST(page.has(part), part);
  }
  // Of the sweep's own winner only.
  BOOST_TEST(!Page({}, {.trial = "5"}).has("Why this one."));
}

BOOST_AUTO_TEST_CASE(a_trial_that_was_asked_for_is_not_called_the_winner) {
  // Trial 6 ran out of memory; trial 8 ran to its end, but others were faster.
  const Page failed({}, {.trial = "6"});
  for (const char* part :
       {"<p class=\"headline\">Trial <a href=\"#trial-6\">#6</a>, as asked for; the winner is "
        "trial <a href=\"#trial-25\">#25</a>. It ended as ",
        ">oom</span> (out of memory): rank 3", "6 <span class=\"badge mark\">shown</span>",
        "<th>trial #6</th>", "Knobs of trial #6", "Repeat trial #6 alone",
        "moetune trial trial.json"}) {
    BOOST_TEST(failed.has(part), part);
  }
  const Page slower({}, {.trial = "8"});
  BOOST_TEST(
      slower.has("the winner is trial <a href=\"#trial-25\">#25</a>. It trains "
                 "<strong>1.42× as fast</strong> as the first configuration that fitted."));
  for (const Page* page : {&failed, &slower}) {
    for (const char* part : {"the configuration to use", "the winning trial", "limits the winner",
                             "Knobs of the winner", "No long run has confirmed"}) {
      BOOST_TEST(!page->has(part), part);
    }
    // The winner is marked as such all the same.
    BOOST_TEST(page->count("(winner)") == 1u);
    BOOST_TEST(page->has("#25 ok: dp 4 · cp 1 · ep 4 · pp 2 (winner)</option>"));
    BOOST_TEST(page->count("<span class=\"badge mark\">winner</span>") == 1u);
    const std::string flags = page->data("trials")["columns"]["flags"];
    for (size_t i = 0; i < flags.size(); ++i) {
      const bool is_marked = (std::stoi(flags.substr(i, 1), nullptr, 36) & 4) > 0;
      BOOST_TEST(is_marked == (i + 1 == 25));
    }
  }
  BOOST_TEST(!Page().has("<span class=\"badge mark\">shown</span>"));
}

BOOST_AUTO_TEST_CASE(no_absolute_path_gets_into_the_page) {
  const Page page({.has_hunts = true});
  for (const char* part : {"/home", "/tmp", "/src/engine"}) {
    BOOST_TEST(!page.has(part), part);
  }
  BOOST_TEST(page.has(">moetune sweep sweeps/configs/quickstart.json --db quickstart.db</pre>"));
  BOOST_TEST(page.has("&quot;data_path&quot;:&quot;sweeps/data/text&quot;"));
  BOOST_TEST(page.has("cannot read corpus.txt: out of file descriptors"));
}

BOOST_AUTO_TEST_CASE(the_box_that_repeats_a_trial_finds_its_text_or_says_what_is_missing) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  struct Sample {
    std::string stored;
    std::string told;
    bool is_whole;
  };
  for (const auto& [stored, told, is_whole] :
       {Sample{"/home/user/moetune/own texts/a.txt", "own texts/a.txt", true},
        Sample{"/home/user/moetune", ".", true}, Sample{"../t2/foo.txt", "../t2/foo.txt", true},
        Sample{"/home/user/t2/foo.txt", "foo.txt", false},
        Sample{"/home/user/my texts/", "my texts", false}}) {
    const store::Store store = store::Store::open(folder.file("runs.db"));
    store::Statement(store.database(),
                     "UPDATE trial SET spec_json = json_set(spec_json, '$.data_path', ?)")
        .bind(1, stored)
        .run();
    const std::string page = render_report(store);
    const auto has = [&](const std::string& part) { return page.find(part) != std::string::npos; };
    BOOST_TEST(has("&quot;data_path&quot;:&quot;" + told + "&quot;"), stored);
    BOOST_TEST(has("Put in the path of <code>" + told + "</code>") == !is_whole, stored);
    BOOST_TEST(has("Put in the path of") == !is_whole, stored);
    BOOST_TEST(!has("/home/"), stored);
  }
}

BOOST_AUTO_TEST_CASE(flags_are_shown_to_copy) {
  BOOST_TEST(!Page().has("copy-flags"));
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  ReportOptions options;
  options.flags = [](const store::TrialRow& trial) {
    return fmt::format("--num-experts {} <x>", trial.id);
  };
  const std::string page =
      render_report(store::Store::open_read_only(folder.file("runs.db")), options);
  const size_t box = page.find("tabindex=\"0\">--num-experts ");
  BOOST_REQUIRE(box != std::string::npos);
  BOOST_TEST(page.substr(box, 60).find(" &lt;x&gt;</pre>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(trials_tell_the_knobs_that_are_not_those_of_the_first_fit) {
  const Page page;
  BOOST_TEST(page.has(">other knobs, where not as in #5</th>"));
  const auto row = [&](int ordinal) {
    const size_t start = page.text.find(fmt::format("<tr id=\"trial-{}\"", ordinal));
    return page.text.substr(start, page.text.find("</tr>", start) - start);
  };
  BOOST_TEST(row(15).find("<td class=\"knobs\">ep_<wbr>chunks_<wbr>forward <b>2</b>, "
                          "recompute <b>moe_<wbr>act</b></td>") != std::string::npos,
             row(15));
  // The first fit tells all that vary.
  BOOST_TEST(row(5).find("cuda_<wbr>graph_<wbr>modules <b>none</b>") != std::string::npos, row(5));
  BOOST_TEST(row(15).find("<td class=\"num\">1</td><td class=\"num\">4</td><td "
                          "class=\"num\">4</td><td class=\"num\">2</td>") != std::string::npos,
             row(15));
}

BOOST_AUTO_TEST_CASE(the_walls_follow_each_other) {
  const Page page;
  const std::string mark = "class=\"stay at-";
  std::vector<std::string> walls;
  for (size_t at = page.text.find(mark); at != std::string::npos;
       at = page.text.find(mark, at + 1)) {
    const size_t start = at + mark.size();
    walls.push_back(page.text.substr(start, page.text.find('"', start) - start));
  }
  const std::vector<std::string> expected = {"memory", "communication", "host", "compute"};
  BOOST_TEST(walls == expected, boost::test_tools::per_element());
  BOOST_TEST(page.has("class=\"stay validation\""));
}

BOOST_AUTO_TEST_CASE(the_page_needs_nothing_from_outside) {
  const Page page({.has_hunts = true});
  BOOST_TEST(page.has("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'"));
  const std::string markup = page.markup();
  for (const char* part : {"<link", "<iframe", "<img", "<object", "src=", "@import", "url("}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
  BOOST_TEST(markup.find("http://") == std::string::npos);
  BOOST_TEST(markup.find("https://") == std::string::npos);
  BOOST_TEST(page.text.size() < 3'000'000u);
  // The bundle must not end its own element early.
  BOOST_TEST(page.count("<script>") == 1u);
  BOOST_TEST(page.count("</script>") == 1u + page.count("<script type=\"application/json\""));
}

BOOST_AUTO_TEST_CASE(the_same_database_gives_the_same_bytes) {
  const Page page({.has_hunts = true});
  const std::string again = render_report(store::Store::open_read_only(page.path()));
  BOOST_TEST((again == page.text));
}

BOOST_AUTO_TEST_CASE(budget_parts_add_up_to_the_step) {
  const Page page;
  const json data = page.data("budget");
  BOOST_TEST(data["trials"].size() > 10u);
  for (const json& trial : data["trials"]) {
    int64_t sum = 0;
    for (const json& part : trial["parts"]) {
      sum += part.get<int64_t>();
    }
    // Parts below a ten-thousandth in every trial are left out.
    BOOST_TEST(std::abs(sum - trial["step"].get<int64_t>()) <= trial["step"].get<int64_t>() / 1000);
  }
  BOOST_TEST(data["parts"] ==
             json::parse(R"(["compute", "recompute", "launch-starved", "transfer dp_cp",
                             "transfer ep", "transfer pp", "other transfers", "late participant",
                             "pipeline bubble", "dependency-stalled"])"));
  BOOST_REQUIRE(data["styles"].size() == data["parts"].size());
  BOOST_TEST(data["styles"][0] == json::parse(R"(["green", 0])"));
  BOOST_TEST(data["styles"][3] == json::parse(R"(["", 0])"));
}

BOOST_AUTO_TEST_CASE(the_evidence_tells_three_numbers_of_each_communication) {
  const Page page;
  const size_t start = page.text.find("<section id=\"evidence\"");
  const std::string section = page.text.substr(start, page.text.find("</section>", start) - start);
  // The traced step of trial 22 took 274 ms and 2.1 % more; ep blocks for 4 % of it.
  for (const char* part : {"45.8 MiB</td>", "23.5 ms · 8.4 %</td>", "13.4 ms · 4.8 %</td>",
                           "11.2 ms · 4.0 %</td>", "5.60 ms · 2.0 %</td>",
                           "Rank 7 waits least for others", "computing</td>", "7.0 %</strong>"}) {
    BOOST_TEST(section.find(part) != std::string::npos, part << " is not in " << section);
  }
  // Beside the ceiling of the trial before stands what the change gained.
  BOOST_TEST(section.find("its ceiling") != std::string::npos);
  BOOST_TEST(section.find("#17</a> → <a href=\"#trial-19\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_roofline_has_what_computes) {
  const Page page;
  const json data = page.data("roofline");
  BOOST_TEST(data["peak"] == 1e11);
  BOOST_TEST(data["bandwidth"] == 1e10);
  BOOST_REQUIRE(data["ops"].size() == 2u);
  const json& product = data["ops"][0];
  BOOST_TEST(product["name"] == "expert_fc1.forward");
  BOOST_TEST(product["intensity"].get<double>() == 100, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(product["rate"].get<double>() == 5e10, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(product["roof"] == 1e11);
  BOOST_TEST(product["share"].get<double>() == 0.75, boost::test_tools::tolerance(1e-9));
  const json& norm = data["ops"][1];
  BOOST_TEST(norm["roof"] == 1e10);
  BOOST_TEST(norm["rate"].get<double>() == 9e9, boost::test_tools::tolerance(1e-9));
  // 2 of 8 ms; 3 + 1.8 of 8 ms.
  BOOST_TEST(page.has("bounds 25 % of the computing time"));
  BOOST_TEST(page.has("would take 60 % of it"));
}

BOOST_AUTO_TEST_CASE(the_front_holds_what_nothing_beats) {
  const Page page;
  const json front = page.data("pareto")["front"];
  const json columns = page.data("trials")["columns"];
  BOOST_TEST(page.data("pareto")["capacity"] == 48LL << 20);
  BOOST_REQUIRE(front.size() > 3u);
  const auto value = [&](const char* name, size_t ordinal) {
    return columns[name]["at"][ordinal - 1].get<int64_t>();
  };
  for (const json& n : front) {
    for (size_t other = 2; other <= 25; ++other) {  // the first is the reference run
      const size_t own = n.get<size_t>();
      if (other == own || value("tokens", other) == 0) continue;
      const bool is_beaten = value("peak", other) <= value("peak", own) &&
                             value("tokens", other) >= value("tokens", own);
      BOOST_TEST(!is_beaten, other << " beats " << own);
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_stands_beside_its_prediction) {
  const Page page;
  const json data = page.data("memory");
  const json* winner = nullptr;
  for (const json& trial : data["trials"]) {
    if (trial["n"] == data["shown"]) {
      winner = &trial;
    }
  }
  BOOST_REQUIRE(winner != nullptr);
  BOOST_TEST((*winner)["capacity"] == 48LL << 20);
  BOOST_TEST((*winner)["ranks"].size() == 8u);
  for (const json& rank : (*winner)["ranks"]) {
    BOOST_TEST(rank["measured"].size() == data["groups"].size());
    for (size_t i = 0; i < rank["measured"].size(); ++i) {
      const double measured = rank["measured"][i].get<double>();
      BOOST_TEST(std::abs(rank["predicted"][i].get<double>() - measured) < 0.05 * measured);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_timeline_shows_all_ranks_of_one_step) {
  const Page page;
  const json data = page.data("timeline");
  std::set<int64_t> ranks;
  for (const json& lane : data["lanes"]) {
    ranks.insert(lane["rank"].get<int64_t>());
    int64_t end = 0;
    for (size_t i = 0; i < lane["start"].size(); ++i) {
      end = std::max(end, lane["length"][i].get<int64_t>());
    }
    BOOST_TEST(end <= data["step"].get<int64_t>());
  }
  BOOST_TEST(ranks.size() == 8u);
}

BOOST_AUTO_TEST_CASE(a_long_trace_is_merged_and_says_so) {
  const Page page({.num_micro_batches = 80});
  size_t num_slices = 0;
  const json data = page.data("timeline");
  for (const json& lane : data["lanes"]) {
    num_slices += lane["start"].size();
  }
  BOOST_TEST(num_slices <= 50'000u);
  BOOST_TEST(page.has("operations were merged into"));
  BOOST_TEST(page.text.size() < 5'000'000u);
}

BOOST_AUTO_TEST_CASE(hostile_texts_stay_texts) {
  const Page page({.hostile = tests::kHostileText, .communicator = "threads", .has_hunts = true});
  const std::string markup = page.markup();
  for (const char* part : {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b",
                           "\xe2\x80\xae", "\xe2\x80\xa8'"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
  BOOST_TEST(page.count("<script>") == 1u);
  // Marks of the template that a text contains are not filled in.
  BOOST_TEST(markup.find("{{script}}") != std::string::npos);
  BOOST_TEST(page.data("trials")["columns"]["flags"].get<std::string>().size() == 25u);
  BOOST_TEST(page.data("timeline")["lanes"].size() > 8u);
  // Their control characters would do in a terminal what nobody sees.
  for (const char* box : {"copy-sweep", "copy-bisect-1"}) {
    const std::string button = std::string("data-copy=\"") + box + "\"";
    BOOST_TEST(!page.has(button), button);
    BOOST_TEST(Page({.has_hunts = true}).has(button), button);
  }
}

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

BOOST_AUTO_TEST_CASE(it_is_told_what_computed_and_what_was_sent) {
  const auto says_only = [](const Page& page, const std::string& part) {
    size_t num_others = 0;
    for (const char* other :
         {"send each other real data", "share one device", "through NCCL", "Fake world"}) {
      num_others += other != part && page.has(other) ? 1 : 0;
    }
    return page.has(part) && num_others == 0;
  };
  const Page cpu;
  BOOST_TEST(
      cpu.has("Backend <strong>cpu</strong> (the processor of this machine), computing in "
              "<strong>f32</strong> (single precision)."));
  BOOST_TEST(says_only(cpu, "send each other real data"));
  BOOST_TEST(cpu.has("Losses and numbers are real."));
  const Page threads({.communicator = "threads"});
  BOOST_TEST(
      threads.has("Backend <strong>cuda</strong> (a GPU), computing in "
                  "<strong>bf16</strong> (bfloat16, 16 bits)."));
  BOOST_TEST(threads.has("Times are those of the wall clock"));
  BOOST_TEST(says_only(threads, "share one device"));
  BOOST_TEST(says_only(Page({.communicator = "nccl"}), "through NCCL"));
}

BOOST_AUTO_TEST_CASE(a_fake_world_is_called_one) {
  const Page page({.communicator = "fake"});
  BOOST_TEST(
      page.has("<strong>Fake world</strong>: only rank 3 of the layout ran, alone. "
               "Communication moved nothing"));
  BOOST_TEST(
      page.has("<strong>so are the losses</strong>. Only the time of compute and the memory "
               "of this one rank are measured."));
  // Where the losses stand, too.
  BOOST_TEST(page.has("These losses are made up"));
  BOOST_TEST(page.has("made up: one rank alone"));
  BOOST_TEST(!page.has("numbers are real"));
  const Page threads({.communicator = "threads"});
  BOOST_TEST(!threads.has("made up"));
  // Whatever a spec says, it stays text.
  const Page strange({.communicator = "<img src=x>"});
  BOOST_TEST(strange.has("Communicator <strong>&lt;img src=x&gt;</strong>."));
}

BOOST_AUTO_TEST_CASE(a_refused_long_run_is_no_winner) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::DecisionRow decision = store.read_decisions(1).back();
    decision.kind = store::DecisionKind::rejected;
    decision.text = "The loss stayed above 2.5.";
    store.add_decision(decision);
    store::Store::Landmarks landmarks{*decision.baseline_trial_id, std::nullopt, std::nullopt};
    store.set_landmarks(1, landmarks);
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(page.find("This configuration did not pass its validation.") != std::string::npos);
  BOOST_TEST(page.find("<dl class=\"cards unvalidated\">") != std::string::npos);
  BOOST_TEST(page.find("<dt>Not validated: speedup in short trials</dt>") != std::string::npos);
  BOOST_TEST(page.find("<p class=\"headline\">Trial <a href=\"#trial-22\">") != std::string::npos);
  BOOST_TEST(page.find("class=\"stay refusal\"") != std::string::npos);
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

BOOST_AUTO_TEST_CASE(an_unfinished_sweep_says_so) {
  BOOST_TEST(Page({.sweep_status = store::SearchStatus::interrupted})
                 .has("This sweep is <strong>interrupted</strong>"));
  BOOST_TEST(!Page().has("This sweep is"));
}

BOOST_AUTO_TEST_CASE(title_and_trial_can_be_chosen) {
  const Page page({}, {.title = "A <b>title", .trial = "5"});
  BOOST_TEST(page.has("<h1>A &lt;b&gt;title</h1>"));
  BOOST_TEST(page.has("<p class=\"headline\">Trial <a href=\"#trial-5\">#5</a>"));
  BOOST_TEST(page.data("memory")["shown"] == 5);
}

BOOST_AUTO_TEST_CASE(a_sweep_without_trials_still_makes_a_page) {
  const TempFolder folder;
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::SweepRow sweep;
    sweep.name = "empty";
    sweep.config_hash = "0";
    sweep.model_name = "m";
    sweep.model_json = "not json";
    sweep.hardware_name = "h";
    sweep.hardware_json = "[1, 2";
    sweep.contract_json = "{}";
    sweep.config_json = "{}";
    store.create_or_resume_sweep(sweep);
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(page.find("No configuration has run to its end yet") != std::string::npos);
  BOOST_TEST(page.find("No trial yet") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(bad_requests_are_named) {
  const TempFolder folder;
  store::Store::open(folder.file("empty.db"));
  BOOST_CHECK_EXCEPTION(write_report(folder.file("empty.db"), folder.file("out.html")),
                        base::UsageError, says("empty.db", "no sweep and no hunt"));
  BOOST_TEST(!std::filesystem::exists(folder.file("out.html")));
  BOOST_CHECK_THROW(write_report(folder.file("missing.db"), folder.file("out.html")), base::Error);
  tests::make_fixture(folder.file("runs.db"));
  BOOST_CHECK_EXCEPTION(
      write_report(folder.file("runs.db"), folder.file("out.html"), {.sweep_id = 7}),
      base::UsageError, says("runs.db", "no sweep 7"));
  BOOST_CHECK_THROW(
      write_report(folder.file("runs.db"), folder.file("out.html"), {.trial = "ffffffff"}),
      base::UsageError);
  std::filesystem::create_directory(folder.file("folder"));
  BOOST_CHECK_EXCEPTION(write_report(folder.file("runs.db"), folder.file("folder")),
                        base::UsageError, says("folder"));
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_old_page) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  std::filesystem::create_directory(folder.file("a"));
  BOOST_TEST(write_report(folder.file("runs.db"), folder.file("a/out.html")) > 100'000);
  BOOST_TEST(std::filesystem::file_size(folder.file("a/out.html")) > 100'000u);
  BOOST_CHECK_THROW(
      write_report(folder.file("runs.db"), folder.file("a/out.html"), {.sweep_id = 7}),
      base::UsageError);
  BOOST_TEST(std::filesystem::file_size(folder.file("a/out.html")) > 100'000u);
  // Its temporary file is gone too.
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("a"))) {
    BOOST_TEST(entry.path().filename() == "out.html");
  }
}

BOOST_AUTO_TEST_CASE(a_target_that_is_no_place_for_a_page_is_refused) {
  const TempFolder folder;
  const std::string db = folder.file("runs.db");
  tests::make_fixture(db);
  const auto check = [&](const std::string& target, const char* part) {
    BOOST_CHECK_EXCEPTION(write_report(db, target), base::UsageError, says(target, part));
  };
  check(folder.file("none/deep/out.html"), "does not exist");
  BOOST_TEST(!std::filesystem::exists(folder.file("none")));
  tests::write_text(folder.file("file"), "x");
  check(folder.file("file/out.html"), "is not a folder");
  BOOST_REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  check(folder.file("pipe"), "not a regular file");
  std::filesystem::create_symlink(folder.file("pipe"), folder.file("link.html"));
  check(folder.file("link.html"), "not a regular file");
  BOOST_TEST(std::filesystem::is_fifo(folder.file("pipe")));
  BOOST_TEST(std::filesystem::is_symlink(folder.file("link.html")));
  check(db, "is the database itself");
  BOOST_CHECK_NO_THROW(store::Store::open_read_only(db));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(report_guide)

BOOST_AUTO_TEST_CASE(the_guide_explains_what_the_page_shows_first) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/docs/report.md");
  std::stringstream guide;
  guide << file.rdbuf();
  for (const char* part : {"The top line", "\"Why this one\"", "| speedup |"}) {
    BOOST_TEST((guide.str().find(part) != std::string::npos), part);
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(report_context)

BOOST_AUTO_TEST_CASE(winner_baseline_and_trace_are_found) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const store::Store store = store::Store::open_read_only(folder.file("runs.db"));
  const Context context = read_context(store, 0, "");
  BOOST_TEST(context.at(context.winner)->ordinal == 25);
  BOOST_TEST(context.at(context.baseline)->ordinal == 2);
  BOOST_TEST(context.at(context.first_fit)->ordinal == 5);
  // The long run was not traced; the trial with the same knobs was.
  BOOST_TEST(context.at(context.traced)->ordinal == 22);
  BOOST_TEST(context.varying_knobs.size() == 8u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports
