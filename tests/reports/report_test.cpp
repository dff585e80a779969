// The whole page from a database: complete, self-contained, repeatable, and safe whatever the
// database says.
#include "reports/report.h"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/error.h"
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
  const Page page;
  size_t last = 0;
  for (const SectionRow& section : section_table()) {
    const size_t at = page.text.find("<section id=\"" + std::string(section.id) + "\"");
    BOOST_TEST(at != std::string::npos, section.id);
    BOOST_TEST(at > last, section.id);
    last = at;
  }
  for (const char* chart : {"history", "memory", "budget", "timeline", "prediction", "loss"}) {
    BOOST_TEST(page.has("id=\"chart-" + std::string(chart) + "\" role=\"img\""), chart);
    BOOST_TEST(page.has("id=\"desc-" + std::string(chart) + "\""), chart);
  }
}

BOOST_AUTO_TEST_CASE(the_verdict_can_be_read_without_scripts) {
  const Page page;
  BOOST_TEST(page.has("2.23×"));  // 612 ms to 275 ms
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
  const Page page;
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
  const Page page;
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
  BOOST_TEST(data["parts"].dump().find("unexplained") == std::string::npos);
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
  const Page page({.hostile = tests::kHostileText});
  const std::string markup = page.markup();
  for (const char* part : {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b",
                           "\xe2\x80\xae", "\xe2\x80\xa8'"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
  BOOST_TEST(page.count("<script>") == 1u);
  // Marks of the template that a text contains are not filled in.
  BOOST_TEST(markup.find("{{script}}") != std::string::npos);
  BOOST_TEST(page.data("history")["trials"].size() == 25u);
  BOOST_TEST(page.data("timeline")["lanes"].size() > 8u);
}

BOOST_AUTO_TEST_CASE(a_refused_long_run_is_no_winner) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  {
    store::Store store = store::Store::open(folder.file("runs.db"));
    store::DecisionRow decision = store.read_decisions(1).back();
    decision.kind = "rejected";
    decision.text = "The loss stayed above 2.5.";
    store.add_decision(decision);
  }
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(page.find("No long run has confirmed this configuration") != std::string::npos);
  BOOST_TEST(page.find("<p class=\"headline\">Trial <a href=\"#trial-22\">") != std::string::npos);
  BOOST_TEST(page.find("class=\"stay refusal\"") != std::string::npos);
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
      row.kind = kind;
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
  BOOST_TEST(
      Page({.sweep_status = "interrupted"}).has("This sweep is <strong>interrupted</strong>"));
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
                        base::UsageError, says("empty.db", "no sweep"));
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
