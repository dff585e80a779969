// Opens the report in headless Chromium, as a reader would: from file://, with scripts. A probe
// appended to the page uses it and writes what it saw into the document. Exit code 77 (skipped)
// where there is no Chromium.
#define BOOST_TEST_MODULE report_browser
#define BOOST_TEST_NO_MAIN
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string find_browser() {
  for (const char* path :
       {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (access(path, X_OK) == 0) {
      return path;
    }
  }
  std::stringstream folders(getenv("PATH") == nullptr ? "" : getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const fs::path path = fs::path(folder) / name;
      if (access(path.c_str(), X_OK) == 0) {
        return path.string();
      }
    }
  }
  return "";
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Runs a command line made of our own paths; true when it exits with 0.
bool run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// First on the page: counts what goes wrong from the very start.
constexpr const char* kWatch = R"js(<script>
window.seen = {errors: []};
window.addEventListener('error', (event) => window.seen.errors.push(String(event.message)));
window.addEventListener('securitypolicyviolation', (event) => window.seen.errors.push('blocked ' + event.violatedDirective));
</script>)js";

// Last on the page: uses it, once its charts are drawn: on a busy machine the page's own time may
// run far ahead of the unpacking of its data.
constexpr const char* kProbe = R"js(<script>
let waitedMs = 0;
const whenDrawn = (probe) => {
  const isDrawn = document.querySelector('[id^=chart-] svg') !== null;
  if (isDrawn || waitedMs >= 15000) return setTimeout(probe, 2000);
  waitedMs += 50;
  setTimeout(() => whenDrawn(probe), 50);
};
whenDrawn(() => {
const seen = window.seen;
const root = document.documentElement;
const count = (name, what) => document.querySelectorAll(`#chart-${name} svg ${what}`).length;
const charts = ['history', 'pareto', 'knobs', 'memory', 'budget', 'timeline', 'prediction', 'loss', 'bisect-posterior-1', 'bisect-runs-1', 'bisect-runs-4'];
seen.paths = Object.fromEntries(charts.map((name) => [name, count(name, 'path')]));
const planCharts = ['front', 'space', 'memory', 'budget', 'timeline'];
seen.plan = Object.fromEntries(planCharts.map((name) => [name, count(name, 'path')]));
seen.titles = Object.fromEntries(charts.map((name) => [name, count(name, '> title') + count(name, '> desc')]));
const background = () => getComputedStyle(document.body).backgroundColor;
seen.first = {rows: [...document.querySelectorAll('#trial-table tbody tr')].map((row) => row.id),
  rank: document.querySelector('select[data-timeline]')?.value, compared: document.getElementById('compare-result')?.innerText};
seen.before = [root.dataset.theme ?? '', background()];
document.getElementById('theme').click();
seen.after = [root.dataset.theme ?? '', background()];
seen.redrawn = Object.fromEntries(charts.map((name) => [name, count(name, 'path')]));
const html = (name) => document.querySelector(`#chart-${name} svg`)?.innerHTML ?? '';
const changes = (name, act) => { const old = html(name); act(); return html(name) !== old; };
seen.throughput = changes('history', () => document.querySelector('[data-history=throughput]')?.click());
seen.order = changes('bisect-runs-1', () => document.querySelector('[data-bisect-1=time]')?.click());
seen.otherOrderSame = !changes('bisect-runs-4', () => document.querySelector('[data-bisect-1=commit]')?.click());
seen.bars = [...document.querySelectorAll('#chart-bisect-posterior-1 svg text')].map((text) => text.textContent);
seen.share = changes('budget', () => document.querySelector('[data-budget=share]')?.click());
const pick = (selector, value, event = 'change') => () => {
  const select = document.querySelector(selector);
  if (!select) { return; }
  select.value = value;
  select.dispatchEvent(new Event(event, {bubbles: true}));
};
seen.memory = changes('memory', pick('select[data-memory]', '5'));
seen.rank = changes('timeline', pick('select[data-timeline]', '3'));
seen.allRanks = changes('timeline', pick('select[data-timeline]', 'all'));
seen.space = changes('space', pick('select[data-space]', 'tp|cp'));
pick('select[data-filter=status]', 'oom', 'input')();
const rows = () => [...document.querySelectorAll('#trial-table tbody tr')].filter((row) => !row.hidden);
seen.oom = rows().length;
const isFiltered = () => document.getElementById('trials')?.classList.contains('filtered');
seen.filtered = [isFiltered()];
seen.counter = document.getElementById('trial-count')?.textContent;
pick('select[data-filter=status]', '', 'input')();
seen.filtered.push(isFiltered());
document.querySelectorAll('#trial-table th button')[4]?.click();
seen.sorted = rows().filter((row) => row.cells[4].dataset.value).map((row) => Number(row.cells[4].dataset.value));
seen.unknownLast = rows().at(-1)?.cells[4].dataset.value === undefined;
const compared = () => document.getElementById('compare-result')?.innerText ?? '';
const firstCompared = compared();
pick('input[data-compare=before]', '15', 'input')();
seen.compared = [firstCompared, compared()];
pick('input[data-compare=before]', '999', 'input')();
seen.notCompared = compared();
pick('input[data-filter=text]', 'sigsegv', 'input')();
seen.found = rows().map((row) => row.id);
location.hash = '#trial-3';
seen.pwned = window.pwned === 1;
seen.injected = document.querySelectorAll('img, iframe, object, embed, link, base, [onerror], [onclick]').length;
seen.scripts = document.querySelectorAll('script:not([type])').length;
const account = document.querySelector('#memory table.account');
seen.account = [...(account?.rows ?? [])].map((row) => row.innerText.trim());
seen.accountShows = (account?.getBoundingClientRect().height ?? 0) > 50;
seen.notes = ['budget', 'timeline'].map((id) => document.querySelector(`#${id} .notice`)?.innerText ?? '');
seen.wide = root.scrollWidth > root.clientWidth;
const trialTable = document.getElementById('trial-table');
seen.tableWide = trialTable ? trialTable.offsetWidth - trialTable.parentElement.clientWidth : 0;
// The y axis of hunt 3, whose values are thousandths of a second that differ in the third digit.
seen.marks = [...document.querySelectorAll('#chart-bisect-runs-3 svg text')].map((text) => text.textContent).filter((text) => / ms$/.test(text));
// As before printing: light charts, of the paper's width, and the page as it was afterwards.
const ink = () => [...new Set([...document.querySelectorAll('#chart-history svg text')].map((text) => text.getAttribute('fill')))].sort().join();
const screen = [root.dataset.theme ?? '', ink(), document.querySelector('#chart-history svg')?.getAttribute('width')].join(' ');
window.dispatchEvent(new Event('beforeprint'));
seen.paper = {theme: root.dataset.theme, ink: ink(), width: document.querySelector('#chart-history svg')?.getAttribute('width')};
window.dispatchEvent(new Event('afterprint'));
seen.asBefore = screen === [root.dataset.theme ?? '', ink(), document.querySelector('#chart-history svg')?.getAttribute('width')].join(' ');
seen.screenInk = ink();
// A zoom is drawn with the next frame.
const unzoomed = html('timeline');
document.querySelector('[data-timeline-zoom=in]')?.click();
setTimeout(() => {
  seen.zoom = html('timeline') !== unzoomed;
  seen.address = location.hash;
  seen.pointed = document.querySelector('tr.pointed')?.id;
  const out = document.createElement('script');
  out.type = 'application/json';
  out.id = 'probe';
  out.textContent = JSON.stringify(seen).replaceAll('<', '\\u003c');
  document.body.append(out);
}, 1500);
});
</script>)js";

const char* const kBrowserOptions =
    " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    " --virtual-time-budget=20000";

/// Number of pages of a fixture's report on paper (of a size as in CSS): of a PDF that Chromium
/// prints.
int pages_on_paper(const std::string& kind, const std::string& paper, const std::string& hash) {
  std::string folder = (fs::temp_directory_path() / "moetune-print-XXXXXX").string();
  BOOST_REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string html = folder + "/report.html";
  const std::string pdf = folder + "/report.pdf";
  BOOST_REQUIRE(run(std::string(MOETUNE_FIXTURE) + " " + folder + "/runs.db " + html + " " + kind +
                    " > /dev/null"));
  std::string page = read_file(html);
  const size_t rule = page.find("@page { ");
  BOOST_REQUIRE(rule != std::string::npos);
  page.insert(rule + 8, "size: " + paper + "; ");
  std::ofstream(html, std::ios::binary) << page;
  BOOST_REQUIRE(run("timeout 120 " + find_browser() + kBrowserOptions + " --user-data-dir=" +
                    folder + "/profile --no-pdf-header-footer --print-to-pdf=" + pdf + " 'file://" +
                    html + hash + "' > /dev/null 2>&1"));
  const std::string text = read_file(pdf);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  // The root of the tree of pages tells how many there are.
  int count = 0;
  for (size_t at = text.find("/Count "); at != std::string::npos;
       at = text.find("/Count ", at + 1)) {
    count = std::max(count, std::atoi(text.c_str() + at + 7));
  }
  return count;
}

/// A page opened once; what the probe saw and what the console said.
class Page {
 public:
  Page(const std::string& kind, int width, const std::string& hash = "") {
    std::string pattern = (fs::temp_directory_path() / "moetune-browser-XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    const fs::path html = folder_ / "report.html";
    BOOST_REQUIRE(run(std::string(MOETUNE_FIXTURE) + " " + (folder_ / "runs.db").string() + " " +
                      html.string() + " " + kind + " > /dev/null"));
    std::string text = read_file(html);
    insert(text, text.find("<title>"), kWatch);
    insert(text, text.rfind("</body>"), kProbe);
    std::ofstream(html, std::ios::binary) << text;
    const std::string command =
        find_browser() + kBrowserOptions + " --user-data-dir=" + (folder_ / "profile").string() +
        " --window-size=" + std::to_string(width) +
        ",2000 --enable-logging=stderr --v=0 --dump-dom 'file://" + html.string() + hash + "' > " +
        (folder_ / "dom.html").string() + " 2> " + (folder_ / "log.txt").string();
    BOOST_REQUIRE_MESSAGE(run("timeout 120 " + command), read_file(folder_ / "log.txt"));
    log_ = read_file(folder_ / "log.txt");
    const std::string dom = read_file(folder_ / "dom.html");
    const std::string mark = "id=\"probe\">";
    const size_t start = dom.rfind(mark);
    BOOST_REQUIRE_MESSAGE(start != std::string::npos, "the probe did not run to its end:\n"
                                                          << log_);
    const size_t end = dom.find("</script>", start);
    seen = json::parse(dom.substr(start + mark.size(), end - start - mark.size()));
  }
  ~Page() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  void check_clean() const {
    BOOST_TEST(seen["errors"].empty(), seen["errors"].dump());
    BOOST_TEST(log_.find("CONSOLE") == std::string::npos, log_);
  }

  json seen;

 private:
  static void insert(std::string& text, size_t position, const char* what) {
    BOOST_REQUIRE(position != std::string::npos);
    text.insert(position, what);
  }

  fs::path folder_;
  std::string log_;
};

BOOST_AUTO_TEST_SUITE(browser)

BOOST_AUTO_TEST_CASE(charts_are_drawn_and_the_page_can_be_used) {
  const Page page("", 1400);
  const json& seen = page.seen;
  page.check_clean();
  for (const auto& [name, count] : seen["paths"].items()) {
    BOOST_TEST(count.get<int>() > 10, name << " holds " << count << " paths");
    BOOST_TEST(seen["titles"][name].get<int>() == 2, name << " has no title and description");
    BOOST_TEST(seen["redrawn"][name].get<int>() > 10, name << " is empty after the theme changed");
  }
  BOOST_TEST(seen["after"][0] == "dark");
  BOOST_TEST(seen["before"][1] != seen["after"][1]);
  for (const char* control :
       {"throughput", "order", "otherOrderSame", "share", "memory", "rank", "zoom", "allRanks"}) {
    BOOST_TEST(seen[control].get<bool>(), control << " does not change its chart");
  }
  const std::string bars = seen["bars"].dump();
  for (const char* text : {"97.4 %", "7c3c11760000 dispatch", "no change at all", "32 commits"}) {
    BOOST_TEST(bars.find(text) != std::string::npos, text << " is not in " << bars);
  }
  BOOST_TEST(seen["oom"].get<int>() == 2);
  BOOST_TEST(seen["counter"] == "2 of 25");
  // So that paper shows what a filter has found, whatever it is.
  BOOST_TEST(seen["filtered"] == json::array({true, false}));
  const auto sorted = seen["sorted"].get<std::vector<double>>();
  BOOST_TEST(sorted.size() > 10u);
  BOOST_TEST(std::is_sorted(sorted.begin(), sorted.end()));
  BOOST_TEST(seen["unknownLast"].get<bool>());
  const auto has = [](const json& text, const char* part) {
    return text.get<std::string>().find(part) != std::string::npos;
  };
  BOOST_TEST(has(seen["compared"][0], "ep_chunks_forward"), seen["compared"].dump());
  BOOST_TEST(has(seen["compared"][1], "371 ms\t275 ms\t−25.9 %"), seen["compared"].dump());
  BOOST_TEST(has(seen["compared"][1], "beyond the noise"), seen["compared"].dump());
  BOOST_TEST(seen["notCompared"] == "There is no trial 999.");
  BOOST_TEST(seen["found"] == json::parse(R"(["trial-13"])"));
}

BOOST_AUTO_TEST_CASE(what_is_chosen_stays_in_the_address) {
  const Page page("", 1400);
  const std::string address = page.seen["address"];
  for (const char* part :
       {"#trial-3&", "&theme=dark", "&history=throughput", "&budget=share", "&memory=5",
        "&rank=all", "&sort=step", "&before=999", "&text=sigsegv", "&zoom="}) {
    BOOST_TEST(address.find(part) != std::string::npos, part << " in " << address);
  }
  // A link to a trial shows it, although the filter hides it.
  BOOST_TEST(page.seen["pointed"] == "trial-3");
}

BOOST_AUTO_TEST_CASE(an_address_chooses) {
  const Page page("", 1400, "#memory&status=oom&sort=-peak&theme=dark&before=15&after=22&rank=3");
  page.check_clean();
  BOOST_TEST(page.seen["before"][0] == "dark");
  BOOST_TEST(page.seen["first"]["rows"] == json::parse(R"(["trial-6", "trial-2"])"));
  BOOST_TEST(page.seen["first"]["rank"] == "3");
  BOOST_TEST(page.seen["first"]["compared"].get<std::string>().find("#22") != std::string::npos);
  // What cannot be chosen is not.
  const Page hostile("", 1400,
                     "#status=%3Cimg%20src=x%3E&memory=1e9&rank=-1&sort=__proto__&trials=5-1"
                     "&zoom=9-1&text=%E0%A4%A&history=x&theme=x&before=x");
  hostile.check_clean();
  BOOST_TEST(hostile.seen["first"]["rows"].size() == 25u);
  BOOST_TEST(hostile.seen["injected"].get<int>() == 0);
}

BOOST_AUTO_TEST_CASE(the_theme_may_come_with_the_address) {
  const Page page("", 1400, "#theme=dark");
  BOOST_TEST(page.seen["before"][0] == "dark");
  BOOST_TEST(page.seen["after"][0] == "light");
}

BOOST_AUTO_TEST_CASE(the_trial_table_fits_a_screen_of_1400) {
  BOOST_TEST(Page("", 1400).seen["tableWide"].get<int>() <= 0);
}

BOOST_AUTO_TEST_CASE(marks_of_an_axis_differ) {
  const auto marks = Page("", 1400).seen["marks"].get<std::vector<std::string>>();
  BOOST_TEST(marks.size() >= 3u);
  BOOST_TEST(std::set<std::string>(marks.begin(), marks.end()).size() == marks.size(),
             json(marks).dump());
}

BOOST_AUTO_TEST_CASE(on_paper_charts_are_light_and_as_wide_as_the_paper) {
  // The probe prints after it has switched the theme: here to dark.
  const json dark = Page("", 1400).seen;
  const json light = Page("", 500, "#theme=dark").seen;
  for (const json& seen : {dark, light}) {
    BOOST_TEST(seen["paper"]["theme"] == "light");
    BOOST_TEST(seen["paper"]["width"] == "880");
    BOOST_TEST(seen["asBefore"].get<bool>());
  }
  BOOST_TEST(dark["paper"]["ink"] == light["paper"]["ink"]);
  BOOST_TEST(dark["paper"]["ink"] == light["screenInk"]);
  BOOST_TEST(dark["paper"]["ink"] != dark["screenInk"]);
}

BOOST_AUTO_TEST_CASE(a_sweep_takes_at_most_eight_pages_of_paper) {
  // The sweep is one of the quick start's size.
  const int pages = pages_on_paper("sweep", "A4", "");
  BOOST_TEST(pages > 3);
  BOOST_TEST(pages <= 8);
  BOOST_TEST(pages_on_paper("sweep", "A4", "#theme=dark") == pages);
  BOOST_TEST(pages_on_paper("sweep", "letter", "") <= 8);
}

BOOST_AUTO_TEST_CASE(a_phone_needs_no_sideways_scrolling) {
  const Page page("", 500);
  page.check_clean();
  BOOST_TEST(!page.seen["wide"].get<bool>());
}

BOOST_AUTO_TEST_CASE(trials_on_a_gpu_show_the_account_of_its_memory) {
  for (const int width : {1400, 500}) {
    const Page page("threads", width);
    page.check_clean();
    BOOST_TEST(!page.seen["wide"].get<bool>());
    BOOST_TEST(page.seen["accountShows"].get<bool>());
    BOOST_REQUIRE(page.seen["account"].size() == 8u);
    BOOST_TEST(page.seen["account"].back() == "used, as the driver says\t1.17 GiB\t100.0 %");
    for (const json& note : page.seen["notes"]) {
      BOOST_TEST(note.get<std::string>().starts_with("The trace of trial #22: the device trace"));
    }
  }
  BOOST_TEST(Page("", 1400).seen["account"].empty());
}

BOOST_AUTO_TEST_CASE(hunts_without_a_sweep_can_be_used_too) {
  for (const int width : {1400, 500}) {
    const Page page("hunts", width);
    page.check_clean();
    BOOST_TEST(!page.seen["wide"].get<bool>());
    BOOST_TEST(page.seen["paths"]["history"] == 0);
    for (const char* chart : {"bisect-posterior-1", "bisect-runs-1", "bisect-runs-4"}) {
      BOOST_TEST(page.seen["paths"][chart].get<int>() > 10, chart);
      BOOST_TEST(page.seen["redrawn"][chart].get<int>() > 10, chart);
    }
    BOOST_TEST(page.seen["order"].get<bool>());
    BOOST_TEST(!page.seen["throughput"].get<bool>());
  }
}

BOOST_AUTO_TEST_CASE(nothing_in_a_database_becomes_markup_or_runs) {
  const Page page("hostile", 1400);
  page.check_clean();
  BOOST_TEST(!page.seen["pwned"].get<bool>());
  BOOST_TEST(page.seen["injected"].get<int>() == 0);
  // Ours, the watch and the probe.
  BOOST_TEST(page.seen["scripts"].get<int>() == 3);
  for (const auto& [name, count] : page.seen["paths"].items()) {
    BOOST_TEST(count.get<int>() > 10, name << " holds " << count << " paths");
  }
}

BOOST_AUTO_TEST_CASE(the_page_of_a_plan_can_be_used_and_is_safe) {
  for (const char* kind : {"plan", "hostile-plan"}) {
    const Page page(kind, kind == std::string("plan") ? 500 : 1400);
    page.check_clean();
    BOOST_TEST(!page.seen["wide"].get<bool>());
    for (const auto& [name, count] : page.seen["plan"].items()) {
      BOOST_TEST(count.get<int>() > 5, name << " holds " << count << " paths");
    }
    BOOST_TEST(page.seen["space"].get<bool>());
    BOOST_TEST(page.seen["share"].get<bool>());
    BOOST_TEST(!page.seen["pwned"].get<bool>());
    BOOST_TEST(page.seen["injected"].get<int>() == 0);
    BOOST_TEST(page.seen["scripts"].get<int>() == 3);
  }
}

BOOST_AUTO_TEST_CASE(the_pages_of_a_diagnosis_and_of_two_runs_can_be_used_and_are_safe) {
  for (const std::string kind :
       {"diagnosis", "hostile-diagnosis", "comparison", "hostile-comparison"}) {
    const Page page(kind, kind.starts_with("hostile") ? 1400 : 500);
    page.check_clean();
    BOOST_TEST(!page.seen["wide"].get<bool>());
    BOOST_TEST(page.seen["plan"]["budget"].get<int>() > 5);
    BOOST_TEST(page.seen["share"].get<bool>());
    BOOST_TEST(!page.seen["pwned"].get<bool>());
    BOOST_TEST(page.seen["injected"].get<int>() == 0);
    BOOST_TEST(page.seen["scripts"].get<int>() == 3);
  }
}

BOOST_AUTO_TEST_SUITE_END()

bool init() { return true; }

}  // namespace

int main(int argc, char** argv) {
  if (find_browser().empty()) {
    std::puts("skipped: no Chromium found (Debian: apt-get install chromium)");
    return 77;
  }
  return boost::unit_test::unit_test_main(init, argc, argv);
}
