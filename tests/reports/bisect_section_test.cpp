// The report's section on hunts: what it says, with and without a sweep beside them, and that
// nothing a database holds can break it.
#include <boost/test/unit_test.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/units.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "reports/hunt_answer.h"
#include "reports/hunts.h"
#include "reports/report.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"
#include "tests/reports/hunt_fixture_helper.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(bisect_section)

namespace {

using nlohmann::json;
using tests::kCulpritPosition;
using tests::TempFolder;

/// A database with hunts only, which a test may change before it is rendered.
class HuntPage {
 public:
  explicit HuntPage(const std::string& hostile = "") : store_(store::Store::open(path())) {
    tests::add_hunts(store_, hostile);
  }
  [[nodiscard]] std::string path() const { return folder_.file("runs.db"); }
  store::Store& store() { return store_; }
  /// Ids count from 1 in the order of add_hunts: the last is the first on the page.
  void set_result(const std::string& result_json, const std::string& verdict = "culprit") {
    store_.finish_bisect(tests::kNumHunts, store::SearchStatus::done, verdict, result_json);
  }
  const std::string& render() { return text = render_report(store_); }
  [[nodiscard]] bool has(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
  /// Everything but the program's own script.
  [[nodiscard]] std::string markup() const { return text.substr(0, text.rfind("<script>")); }
  [[nodiscard]] json data() const {
    const std::string mark = "id=\"data-bisect\">";
    const size_t start = text.find(mark) + mark.size();
    return json::parse(text.substr(start, text.find("</script>", start) - start));
  }
  /// One hunt of the page, by its number on it.
  [[nodiscard]] std::string hunt(int n) const {
    const size_t start = text.find("id=\"hunt-" + std::to_string(n) + "\"");
    BOOST_REQUIRE(start != std::string::npos);
    return text.substr(start, text.find("</article>", start) - start);
  }

  std::string text;

 private:
  TempFolder folder_;
  store::Store store_;
};

bool holds(const std::string& text, const std::string& part) {
  const bool is_there = text.find(part) != std::string::npos;
  if (!is_there) {
    BOOST_TEST_MESSAGE("missing: " << part);
  }
  return is_there;
}

Hunt sample_hunt(std::vector<double> posterior, int num_commits = 10) {
  Hunt hunt;
  hunt.row.metric = "step_ns";
  for (int position = 0; position <= num_commits; ++position) {
    hunt.commits[position] = {std::string(40, static_cast<char>('a' + position % 6)), "subject", "",
                              ""};
  }
  hunt.result.posterior = std::move(posterior);
  return hunt;
}

HuntRun sample_run(int64_t position, double value) {
  HuntRun run;
  run.position = position;
  run.status = "ok";
  run.value = value;
  return run;
}

BOOST_AUTO_TEST_CASE(a_culprit_is_named_with_all_that_was_asked) {
  HuntPage page;
  page.render();
  const std::string hunt = page.hunt(1);
  const std::string id = page.store()
                             .read_bisect_commits(tests::kNumHunts)
                             .at(kCulpritPosition)
                             .commit_id.substr(0, 12);
  BOOST_TEST(holds(hunt, ">" + id +
                             "</code> “dispatch: sort tokens by expert on the host, for "
                             "debugging” by A. Author of 2026-02-10 changed"));
  BOOST_TEST(holds(hunt, "<strong>+4.1 %</strong> (+3.6 % to +4.6 %), from 41.2 ms to 42.9 ms"));
  BOOST_TEST(holds(hunt, "confidence of <strong>97.4 %</strong>"));
  BOOST_TEST(holds(hunt, "What moved: <code>op_dispatch.forward_ns</code>, 4.02 ms to 5.71 ms"));
  BOOST_TEST(holds(hunt, "+42.0 %"));  // in the table of what moved
  BOOST_TEST(holds(hunt, "<span class=\"value\">37</span><span class=\"note\">11 builds"));
  BOOST_TEST(holds(hunt, "13 min 32 s"));
  BOOST_TEST(holds(hunt, "git worktree add ../w"));
  BOOST_TEST(holds(hunt, "<span class=\"value\">0.83 %</span>"));  // noise
  BOOST_TEST(holds(hunt, "<span class=\"value\">1.2 %</span>"));   // would have been seen
  // What has no value, by its reason.
  BOOST_TEST(holds(hunt, "status-build_failed"));
  BOOST_TEST(holds(hunt, "signal 11"));
  // All measurements in the table, by when the fixture says that they were made.
  size_t num_rows = 0;
  const std::string made = ">2026-11-20T10:";
  for (size_t at = hunt.find(made); at != std::string::npos; at = hunt.find(made, at + 1)) {
    ++num_rows;
  }
  BOOST_TEST(num_rows == 37u);
}

BOOST_AUTO_TEST_CASE(charts_hold_the_posterior_and_every_measurement) {
  HuntPage page;
  page.render();
  const json hunts = page.data();
  BOOST_REQUIRE(hunts.size() == static_cast<size_t>(tests::kNumHunts));
  const json& hunt = hunts[0];
  double sum = 0;
  bool has_culprit = false;
  int64_t next = 0;
  for (const json& bar : hunt["bars"]) {
    BOOST_TEST(bar["from"].get<int64_t>() == next);
    next = bar.value("to", next) + 1;
    sum += bar["p"].get<double>();
    has_culprit |= bar["from"] == kCulpritPosition && bar["p"] == 0.974;
  }
  BOOST_TEST(next == tests::kNumHuntCommits + 1);
  BOOST_TEST(has_culprit);
  BOOST_TEST(std::abs(sum - 1) < 0.01);
  BOOST_TEST(hunt["bars"].size() == 9u);  // of 65 commits
  BOOST_TEST(hunt["points"].size() == 35u);
  BOOST_TEST(hunt["failures"].size() == 2u);
  BOOST_TEST(hunt["purposes"].size() == 3u);
  BOOST_REQUIRE(hunt["levels"].size() == 2u);
  BOOST_TEST(hunt["levels"][0]["to"] == kCulpritPosition - 1);
  BOOST_TEST(hunt["levels"][0]["value"] == 41.2e6);
  BOOST_TEST(hunt["levels"][1]["from"] == kCulpritPosition);
  BOOST_TEST(hunt["levels"][1]["value"] == 42.9e6);
  for (const char* id : {"bisect-posterior-1", "bisect-runs-1", "bisect-runs-4"}) {
    BOOST_TEST(page.has("id=\"chart-" + std::string(id) + "\" role=\"img\""), id);
    BOOST_TEST(page.has("id=\"title-" + std::string(id) + "\""), id);
    BOOST_TEST(page.has("id=\"desc-" + std::string(id) + "\""), id);
  }
  // Without a posterior there is no chart of it.
  BOOST_TEST(!page.has("chart-bisect-posterior-3"));
}

BOOST_AUTO_TEST_CASE(the_other_verdicts_are_sentences_too) {
  HuntPage page;
  page.render();
  BOOST_TEST(holds(page.hunt(2), "by <strong>+4.8 %</strong>, from 44 MiB to 46.125 MiB"));
  BOOST_TEST(holds(page.hunt(2), "memory_activations_bytes</code>, 20 MiB to 22.125 MiB"));
  BOOST_TEST(holds(page.hunt(2), "status-oom"));
  BOOST_TEST(holds(page.hunt(3), "<strong>No change</strong> of <code>step_time</code>"));
  BOOST_TEST(holds(page.hunt(3), "A change of 0.52 % would have been seen."));
  const std::string stopped = page.hunt(4);
  BOOST_TEST(holds(stopped, "This hunt is <strong>interrupted</strong>"));
  BOOST_TEST(holds(stopped, "The machine <strong>drifted</strong>"));
  BOOST_TEST(holds(stopped, "<strong>Not resolved</strong>"));
  BOOST_TEST(holds(stopped, "Most likely so far, with 25.0 %"));
  BOOST_TEST(holds(stopped, "Still suspected: 3 commits:"));
  page.set_result("{}", "environment_changed");
  page.render();
  BOOST_TEST(holds(page.hunt(1), "<strong>The environment changed</strong>"));
}

BOOST_AUTO_TEST_CASE(several_culprits_are_all_named) {
  HuntPage page;
  page.set_result(
      R"({"culprits": [{"position": 5, "effect": {"ratio": 0.03}, "before": 10, "after": 11},
                                   {"position": 20, "effect": {"ratio": -0.01}, "after": 10.5}]})");
  page.render();
  const std::string hunt = page.hunt(1);
  BOOST_TEST(holds(hunt, "<strong>2 commits</strong> changed"));
  BOOST_TEST(holds(hunt, "<strong>+3.0 %</strong>"));
  BOOST_TEST(holds(hunt, "<strong>−1.0 %</strong>"));
  const json levels = page.data()[0]["levels"];
  BOOST_REQUIRE(levels.size() == 3u);
  BOOST_TEST(levels[0]["value"] == 10);
  BOOST_TEST(levels[1]["value"] == 11);
  BOOST_TEST(levels[1]["to"] == 19);
  BOOST_TEST(levels[2]["value"] == 10.5);
}

BOOST_AUTO_TEST_CASE(what_changes_add_together_is_told) {
  HuntPage page;
  page.set_result(
      R"({"culprits": [{"subject": "knobs/a: 1 -> 2", "effect": {"ratio": 0.03},
                        "moved": [{"name": "num_a", "before": 1, "after": 2}]},
                       {"subject": "knobs/b: <1> -> 2", "effect": {"ratio": 0.02},
                        "moved": [{"name": "num_b", "before": 1, "after": 2}]}],
          "interaction": {"ratio": 0.08, "low": 0.07, "high": 0.09}})");
  page.render();
  const std::string hunt = page.hunt(1);
  BOOST_TEST(holds(hunt, "Together they add <strong>+8.0 %</strong>"));
  BOOST_TEST(holds(hunt, "What moved with knobs/a: 1 -&gt; 2"));
  BOOST_TEST(holds(hunt, "What moved with knobs/b: &lt;1&gt; -&gt; 2"));
}

BOOST_AUTO_TEST_CASE(how_a_run_fails_and_what_else_the_ends_differ_in_are_told) {
  HuntPage page;
  page.set_result(
      R"({"hunted_metric": "the run fails", "failure": "oom<", "effect": null, "noise_ratio": null,
          "no_change": null, "culprits": [{"position": 5, "confidence": 1,
          "moved": [{"name": "num_a", "before": 1, "after": 2}]}],
          "moved": [{"name": "num_a", "before": 1, "after": 2},
                    {"name": "num_<b>", "before": 3, "after": 4}]})");
  page.render();
  const std::string hunt = page.hunt(1);
  BOOST_TEST(holds(hunt, "is the first from which <strong>the run ends as oom&lt;</strong>"));
  BOOST_TEST(holds(hunt, "What moved with "));
  const size_t others = hunt.find("What else differs between the ends");
  BOOST_REQUIRE(others != std::string::npos);
  BOOST_TEST(hunt.find("num_", others) != std::string::npos);
  BOOST_TEST(!holds(hunt, "<b>"));
}

BOOST_AUTO_TEST_CASE(a_hunt_over_options_has_no_commits) {
  HuntPage page;
  store::BisectRow row;
  row.config_hash = "options";
  row.good = "configs/good.json";
  row.bad = "configs/bad.json";
  row.metric = "tokens_per_s";
  const int64_t id = page.store().open_bisect(row);
  for (int i = 0; i < 6; ++i) {
    store::BisectRunRow run;
    run.key = i % 2 == 0 ? "set 00; machine" : "set 11; machine";
    run.purpose = "ends";
    run.status = i == 5 ? "hung" : "ok";
    run.value = i == 5 ? std::optional<double>() : 200'000 + i;
    page.store().add_bisect_run(id, run);
  }
  page.store().finish_bisect(
      id, store::SearchStatus::done, "culprit",
      R"({"culprits": [{"subject": "/knobs/ep: 4 -> 8 and /knobs/chunks: 1 -> 2",
                        "effect": {"ratio": -0.1, "low": -0.12, "high": -0.08}, "before": 200000,
                        "after": 180000, "confidence": 0.98}], "builds": 0})");
  page.render();
  const std::string hunt = page.hunt(1);
  BOOST_TEST(page.has("<h1>What changed tokens_per_s?</h1>"));
  BOOST_TEST(page.has("<p class=\"subtitle\">5 hunts</p>"));
  BOOST_TEST(holds(hunt,
                   "The change “/knobs/ep: 4 -&gt; 8 and /knobs/chunks: 1 -&gt; 2” changed "
                   "<code>tokens_per_s</code> by <strong>−10.0 %</strong>"));
  BOOST_TEST(holds(hunt, "from 200000 to 180000"));
  BOOST_TEST(holds(hunt, "from <code>configs/good.json</code> to <code>configs/bad.json</code>"));
  BOOST_TEST(holds(hunt, "<code>set 11</code>"));
  BOOST_TEST(holds(hunt, "Without a value: <span class=\"badge status status-hung\">hung</span>."));
  for (const char* part : {"position 0", "data-bisect-1=", "chart-bisect-posterior", "0 commits"}) {
    BOOST_TEST(hunt.find(part) == std::string::npos, part);
  }
  BOOST_TEST(page.data()[0]["hasCommits"] == false);
  BOOST_TEST(page.data()[0]["points"].size() == 5u);
  BOOST_TEST(page.data()[0]["levels"].empty());
}

BOOST_AUTO_TEST_CASE(a_run_that_fails_has_no_levels) {
  HuntPage page;
  page.set_result(R"({"hunted_metric": "the run fails", "note": "the bad end <cannot> be run",
                      "culprits": [{"position": 5, "effect": {"ratio": 1e9}, "before": 0,
                                    "after": 1, "confidence": 1}]})");
  page.render();
  BOOST_TEST(holds(page.hunt(1),
                   "is the first from which <strong>the run fails</strong>, with a "
                   "confidence of <strong>100.0 %</strong>."));
  BOOST_TEST(holds(page.hunt(1), "<li>the bad end &lt;cannot&gt; be run</li>"));
  BOOST_TEST(page.hunt(1).find("from 0 to 1") == std::string::npos);
  BOOST_TEST(holds(page.hunt(1), "<dt>Effect</dt><dd><span class=\"value\">–</span>"));
  for (const json& level : json(page.data()[0]["levels"])) {
    BOOST_TEST(level["value"].get<double>() > 1e6);
  }
}

BOOST_AUTO_TEST_CASE(hunts_without_a_sweep_make_a_page) {
  HuntPage page;
  page.render();
  BOOST_TEST(page.has("<h1>Which commit changed step_ns?</h1>"));
  BOOST_TEST(page.has(">engine · 4 hunts"));
  BOOST_TEST(page.has("href=\"#bisect\">Skip"));
  for (const char* section : {"verdict", "trials", "provenance"}) {
    BOOST_TEST(!page.has("<section id=\"" + std::string(section)), section);
  }
  BOOST_TEST((render_report(page.store()) == page.text));
  BOOST_CHECK_THROW(render_report(page.store(), {.sweep_id = 1}), base::UsageError);
  BOOST_CHECK_THROW(render_report(page.store(), {.trial = "1"}), base::UsageError);
  BOOST_TEST(write_report(page.path(), page.path() + ".html") > 100'000);
}

BOOST_AUTO_TEST_CASE(a_sweep_without_hunts_has_no_such_section) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const std::string page = render_report(store::Store::open_read_only(folder.file("runs.db")));
  BOOST_TEST(page.find("<section id=\"bisect\"") == std::string::npos);
  BOOST_TEST(page.find("href=\"#verdict\">Skip") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(hostile_texts_stay_texts) {
  HuntPage page(tests::kHostileText);
  page.render();
  const std::string markup = page.markup();
  for (const char* part : {"<img", "<script>window", "onerror=\"", "<!--", "\x01", "\x1b",
                           "\xe2\x80\xae", "\xe2\x80\xa8'"}) {
    BOOST_TEST(markup.find(part) == std::string::npos, part);
  }
  // They are there, as texts: subject, metric, purpose, message, moved, reason, command.
  for (int n = 1; n <= tests::kNumHunts; ++n) {
    BOOST_TEST(holds(page.hunt(n), "&lt;/script&gt;&lt;script&gt;window.pwned"));
  }
  BOOST_TEST(page.data().size() == static_cast<size_t>(tests::kNumHunts));
  BOOST_TEST(page.data()[0]["metric"].get<std::string>().starts_with("</script>"));
  // A subject with markup alone.
  HuntPage plain;
  plain.set_result(R"({"culprits": [{"subject": "<script>alert(1)</script>", "commit": "<b>"}]})");
  plain.render();
  BOOST_TEST(holds(plain.hunt(1), "“&lt;script&gt;alert(1)&lt;/script&gt;”"));
  BOOST_TEST(!plain.has("<script>alert"));
}

BOOST_AUTO_TEST_CASE(results_of_any_shape_make_a_page) {
  HuntPage page;
  const std::string deep(1'000'000, '[');
  std::string long_posterior = "{\"posterior\": [0.5";
  for (int i = 0; i < 1'000'000; ++i) {
    long_posterior += ",1e-7";
  }
  long_posterior += "]}";
  for (
      const std::string& result :
      {std::string(), std::string("no JSON"), std::string("[]"), std::string("{}"), deep,
       std::string(
           R"({"culprits": [{}, {"position": 1e300}, {"position": 9000000}], "suspects": [7e15]})"),
       std::string(R"({"effect": {"ratio": 1e300, "low": -1e300, "high": 1e300}, "seconds": 1e300,
                        "runs": 1e300, "noise_ratio": -1e300, "unit": "ns",
                        "culprits": [{"position": 3, "before": 1e308, "after": -1e308,
                                      "moved": [{"name": "x_bytes", "before": -1e308, "after": 1e308}]}]})"),
       long_posterior}) {
    for (const char* verdict : {"culprit", "no_change", "unresolved", ""}) {
      page.set_result(result, verdict);
      const std::string& text = page.render();
      BOOST_TEST(text.size() < 3'000'000u);
      BOOST_TEST(holds(page.hunt(1), "class=\"headline\""));
      BOOST_TEST(page.data()[0]["points"].size() == 35u);
      BOOST_TEST(page.data()[0]["bars"].size() < 100u);
      const bool is_object = result.starts_with("{");
      BOOST_TEST((page.hunt(1).find("cannot be read") == std::string::npos) == is_object);
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_of_any_shape_make_a_page) {
  HuntPage page;
  page.store().database().execute(
      "PRAGMA ignore_check_constraints = on; "
      "UPDATE bisect_run SET position = 5000000000 WHERE ordinal = 1; "
      "UPDATE bisect_run SET position = -5 WHERE ordinal = 2; "
      "UPDATE bisect_run SET value = 1.7e308 WHERE ordinal = 3; "
      "UPDATE bisect_run SET value = 9e999, run_seconds = 9e999 WHERE ordinal = 4; "
      "UPDATE bisect_run SET value = NULL, build_seconds = NULL WHERE ordinal = 5; "
      "UPDATE bisect_run SET status = 'odd' WHERE ordinal = 6; "
      "UPDATE bisect_commit SET position = 9000000000000000000 WHERE position = 64; "
      "UPDATE bisect_commit SET position = -3 WHERE position = 2; "
      "UPDATE bisect_hunt SET status = 'odd', verdict = 'odd' WHERE id = 4");
  page.render();
  BOOST_TEST(holds(page.hunt(1), "No verdict yet"));
  const json hunts = page.data();
  BOOST_TEST(hunts[0]["points"].size() == 30u);
  BOOST_TEST(hunts[0]["failures"].size() == 3u);
  for (const json& point : hunts[0]["points"]) {
    BOOST_TEST(std::abs(point[1].get<double>()) < 1e100);
  }
}

BOOST_AUTO_TEST_CASE(many_hunts_and_measurements_stay_a_page) {
  HuntPage page;
  page.store().database().execute(
      "WITH RECURSIVE n(i) AS (VALUES (1000) UNION ALL SELECT i + 1 FROM n WHERE i < 13000) "
      "INSERT INTO bisect_run SELECT 4, i, 1, 'k', 'purpose ' || i, 'ok', i, '{}', '', 0, 1, 't' "
      "FROM n; "
      "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 9) "
      "INSERT INTO bisect_hunt SELECT NULL, 'x' || i, '{}', 'r', 'g', 'b', 'm', 'running', '', "
      "'{}', "
      "'c', 'v', 'k', 't', NULL FROM n");
  page.render();
  BOOST_TEST(page.text.size() < 3'000'000u);
  BOOST_TEST(page.data().size() == kMostHunts);
  BOOST_TEST(page.has("3 older hunts are in the database"));
  const json hunts = page.data();
  const json& large = hunts[9];
  BOOST_TEST(large["points"].size() + large["failures"].size() == 5000u);
  BOOST_TEST(large["purposes"].size() == 6u);
  BOOST_TEST(page.has("10038 more measurements are in the database"));
}

BOOST_AUTO_TEST_CASE(bars_are_the_ends_the_culprits_and_what_has_mass) {
  Hunt hunt = sample_hunt({0, 0, 0, 0.2, 0, 0.7, 0, 0, 0, 0, 0.1});
  hunt.result.culprits.push_back({});
  hunt.result.culprits[0].position = 8;
  std::string told;
  for (const Bar& bar : posterior_bars(hunt)) {
    told += std::to_string(bar.first) +
            (bar.last > bar.first ? "-" + std::to_string(bar.last) : "") + " ";
  }
  BOOST_TEST(told == "0 1-2 3 4 5 6-7 8 9 10 ");
  // Flat: the heaviest, and the rest together.
  hunt = sample_hunt(std::vector<double>(1001, 0.001), 1000);
  hunt.result.posterior[500] = 0.5;
  double sum = 0;
  bool has_peak = false;
  const std::vector<Bar> bars = posterior_bars(hunt);
  for (const Bar& bar : bars) {
    sum += bar.probability;
    has_peak |= bar.first == 500 && bar.last == 500;
  }
  BOOST_TEST(bars.size() < 90u);
  BOOST_TEST(has_peak);
  BOOST_TEST(std::abs(sum - 1.5) < 1e-9);
  // A posterior that is shorter or longer than the list of commits.
  BOOST_TEST(posterior_bars(sample_hunt({0.5, 0.5})).back().last == 10);
  BOOST_TEST(posterior_bars(sample_hunt(std::vector<double>(30, 0))).back().last == 29);
  BOOST_TEST(posterior_bars(sample_hunt({}, -1)).size() == 1u);
}

BOOST_AUTO_TEST_CASE(levels_come_from_the_result_or_from_the_measurements) {
  Hunt hunt = sample_hunt({});
  const std::vector<HuntRun> runs = {sample_run(0, 10), sample_run(0, 12), sample_run(0, 30),
                                     sample_run(10, 20), sample_run(10, 22)};
  std::vector<Level> levels = levels_of(hunt, runs);
  BOOST_REQUIRE(levels.size() == 1u);
  BOOST_TEST(levels[0].value == 20);  // the median of all
  hunt.result.culprits.push_back({});
  hunt.result.culprits[0].position = 6;
  hunt.result.culprits[0].after = 21.5;
  levels = levels_of(hunt, runs);
  BOOST_REQUIRE(levels.size() == 2u);
  BOOST_TEST(levels[0].value == 12);
  BOOST_TEST(levels[0].to == 5);
  BOOST_TEST(levels[1].value == 21.5);
  hunt.result.culprits[0].after.reset();
  BOOST_TEST(levels_of(hunt, runs)[1].value == 21);
  BOOST_TEST(levels_of(hunt, {}).empty());
}

BOOST_AUTO_TEST_CASE(values_have_five_digits_and_their_unit) {
  BOOST_TEST(value_text(42'871'234.0, "ns") == "42.871 ms");
  BOOST_TEST(value_text(850.0, "ns") == "850 ns");
  BOOST_TEST(value_text(-2048.0, "bytes") == "-2 KiB");
  BOOST_TEST(value_text(14900.0, "tokens/s") == "14900 tokens/s");
  BOOST_TEST(value_text(0.12345678, "") == "0.12346");
  BOOST_TEST(value_text(41'234'567.8, "") == "41234568");
  BOOST_TEST(value_text(1e20, "") == "1e+20");
  BOOST_TEST(value_text(std::nullopt, "ns") == "–");
  BOOST_TEST(value_text(std::numeric_limits<double>::quiet_NaN(), "ns") == "–");
  BOOST_TEST(value_text(1e308, "ns").size() < 20u);
  BOOST_TEST(base::unit_of_name("op_core_attn.forward_ns") == "ns");
  BOOST_TEST(base::unit_of_name("memory_weights_bytes") == "bytes");
  BOOST_TEST(base::unit_of_name("num_launches") == "");
  BOOST_TEST(short_id(std::string(40, 'a')) == "aaaaaaaaaaaa");
  BOOST_TEST(short_id("v1.2") == "v1.2");
  BOOST_TEST(change_text(0.0413) == "+4.1 %");
  BOOST_TEST(change_text(1e300).size() < 20u);
  BOOST_TEST(share_text(0.99996) == "&gt; 99.9 %");
  BOOST_TEST(share_text(1) == "100.0 %");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
