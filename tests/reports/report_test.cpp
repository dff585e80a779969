// The whole page from a database: complete, self-contained, repeatable, and safe whatever the
// database says.
#include "reports/report.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
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
#include "tests/reports/page_fixture.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::Page;
using tests::says;
using tests::TempFolder;

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

// Trials 3, 12 are pruned, 4 and 10 invalid. The knobs are printed where no flags tell them.
BOOST_AUTO_TEST_CASE(what_paper_does_not_need_is_marked) {
  const Page page;
  BOOST_TEST(page.count("\" class=\"folded\"><td") == 4u);
  BOOST_TEST(
      page.has("<tr id=\"trial-12\" data-status=\"pruned\" data-phase=\"scale\" "
               "class=\"folded\">"));
  BOOST_TEST(
      page.has("<p class=\"note on-paper\">Not on paper, but in the page: 2 pruned (ruled "
               "out by prediction) and 2 invalid (breaks a rule), which did not run.</p>"));
  BOOST_TEST(page.has("<div class=\"on-screen\">\n<h3>Hardware as described</h3>"));
  const std::string knobs =
      "<div class=\"on-screen\">\n<div class=\"copy\"><div "
      "class=\"copy-head\"><span>Knobs of the winner";
  BOOST_TEST(!page.has(knobs));
  ReportOptions options;
  options.flags = [](const store::TrialRow&) { return std::string("--num-layers 4"); };
  BOOST_TEST(Page({}, options).has(knobs));
  const Page large({.is_quickstart_size = true});
  BOOST_TEST(large.count("<tr id=\"trial-") == 43u);
  BOOST_TEST(large.has("14 pruned (ruled out by prediction) and 6 invalid"));
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
                 .ends_with("<strong>measured on GPU hardware described as 2 nodes x 4 emulated "
                            "devices</strong>"));
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

// What is printed or copied recurses: nested this deep it would overflow the stack.
BOOST_AUTO_TEST_CASE(deep_texts_of_a_foreign_database_are_left_out) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  const store::Store store = store::Store::open(folder.file("runs.db"));
  for (const char* place : {"trial SET spec_json", "model SET json", "hardware SET json",
                            "sweep SET contract_json", "sweep SET config_json"}) {
    store.database().execute(
        fmt::format("UPDATE {} = replace(hex(zeroblob(200000)), '00', '{{\"a\":') || '1' ||"
                    " replace(hex(zeroblob(200000)), '00', '}}')",
                    place));
  }
  BOOST_TEST(render_report(store).find("</html>") != std::string::npos);
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
