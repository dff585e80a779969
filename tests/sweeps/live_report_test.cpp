// The report of a running sweep: written now and then and at the end, and never in the sweep's way.
#include "sweeps/live_report.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

struct Reporting {
  tests::TempFolder folder;
  std::string db = folder.file("runs.db");
  std::string page = folder.file("pages/report.html");
  std::string file = folder.file("sweep.json");
  std::vector<std::string> notes;

  Reporting() {
    std::filesystem::create_directory(folder.file("pages"));
    tests::write_text(file, "{}");
    store::Store store = store::Store::open(db);
    store::SweepRow sweep;
    sweep.name = "as it was";
    sweep.config_hash = "0";
    store.create_or_resume_sweep(sweep);
  }
  void rename_sweep(const std::string& name) const {
    store::Store store = store::Store::open(db);
    store::SweepRow sweep;
    sweep.name = name;
    sweep.config_hash = name;
    store.create_or_resume_sweep(sweep);
  }
  [[nodiscard]] bool says(const std::string& text) const {
    return tests::read_text(page).find(text) != std::string::npos;
  }
};

BOOST_FIXTURE_TEST_SUITE(live_report, Reporting)

BOOST_AUTO_TEST_CASE(a_page_is_written_now_and_then_and_at_the_end) {
  LiveReport report(db, page, file);
  report.refresh();
  BOOST_TEST(says("<h1>as it was</h1>"));
  BOOST_TEST(says("This sweep is <strong>running</strong>"));
  rename_sweep("later");
  report.refresh();  // too soon
  BOOST_TEST(says("<h1>as it was</h1>"));
  report.finish();
  BOOST_TEST(says("<h1>later</h1>"));
  // Renamed into place: nothing else is left there.
  const std::filesystem::directory_iterator pages(folder.file("pages"));
  BOOST_TEST(std::distance(begin(pages), end(pages)) == 1);
}

BOOST_AUTO_TEST_CASE(a_page_that_cannot_be_written_is_a_note) {
  LiveReport report(db, page, file);
  report.set_note([&](const std::string& line) { notes.push_back(line); });
  std::filesystem::remove_all(folder.file("pages"));
  report.refresh();
  report.finish();
  BOOST_REQUIRE(notes.size() == 1U);  // told once
  BOOST_TEST(notes[0].starts_with("the report was not written: "));
  BOOST_TEST(notes[0].find(page) != std::string::npos);
  std::filesystem::create_directory(folder.file("pages"));
  report.finish();
  BOOST_TEST(says("<h1>as it was</h1>"));
}

BOOST_AUTO_TEST_CASE(bad_targets_are_refused_before_anything_runs) {
  for (const std::string& bad : {db, file, folder.file("pages"), folder.file("none/x.html")}) {
    BOOST_CHECK_THROW(LiveReport(db, bad, file), base::UsageError);
  }
  BOOST_CHECK_THROW(LiveReport(folder.file("new.db"), folder.file("./new.db"), file),
                    base::UsageError);
  LiveReport none(db, "", file);
  none.refresh();
  none.finish();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::sweeps
