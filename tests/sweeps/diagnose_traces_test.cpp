// moetune diagnose: what it prints of a trace alone, figure by figure.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "profiler/analysis/trace_windows.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(diagnosed_traces, tests::Cli)

namespace {

using nlohmann::json;

const std::string kTraces = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/traces/";
const std::string kOne = kTraces + "cuda_event_sync.json.gz";

}  // namespace

BOOST_AUTO_TEST_CASE(windows_and_verdict_are_printed_as_json) {
  const tests::Answer answer = run({"diagnose", kOne, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0);
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("remedies").is_array());
  BOOST_TEST(document.at("wall").at("label") == "unknown");
  const json& rank = document.at("ranks").at(0);
  BOOST_TEST(rank.at("file") == kOne);
  BOOST_TEST(rank.at("rank") == 0);
  std::vector<std::string> names;
  for (const json& window : rank.at("windows")) {
    names.push_back(window.at("window"));
    for (const profiler::BudgetKey& key : profiler::budget_keys()) {
      BOOST_TEST(window.at(key.name).is_number(), key.name);
    }
    BOOST_TEST(window.at("overlap_pct").is_null());
  }
  BOOST_TEST(
      names == (std::vector<std::string>{"whole", "step 100 by host time", "step 100 by launch"}),
      boost::test_tools::per_element());
  BOOST_TEST(rank.at("windows")[0].at("window_us") == 263.0);
  BOOST_TEST(rank.at("windows")[0].at("compute_busy_us") == 49.0);
}

BOOST_AUTO_TEST_CASE(a_comparison_of_traces_has_kernels) {
  const tests::Answer answer = run({"compare", kOne, kOne, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  tests::check_printed("compare", {document});
  BOOST_TEST(document.at("kernels").at(0).at("change_ratio") == 0);
}

BOOST_AUTO_TEST_CASE(traces_without_steps_are_compared_as_a_whole) {
  const auto trace = [&](const char* name, int kernel_us) {
    const std::string path = folder.file(name);
    tests::write_text(
        path,
        R"({"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
        "tid": 1, "ts": 10, "dur": 5, "args": {"correlation": 1}}, {"ph": "X", "cat": "kernel",
        "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "args": {"correlation": 1, "stream": 7,
        "device": 0}, "dur": )" +
            std::to_string(kernel_us) + "}]}");
    return path;
  };
  const std::string before = trace("a.json", 100);
  const std::string after = trace("b.json", 150);
  const tests::Answer answer = run({"compare", before, after, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST_REQUIRE(document["kernels"].size() == 1u);
  BOOST_TEST(document["kernels"][0]["change_ratio"] == 0.5);
  BOOST_TEST(document["kernels"][0]["is_beyond_noise"].is_null());
  BOOST_TEST(document["notes"].dump().find("marks no steps") != std::string::npos);
  // Neither the text nor the page calls them steps.
  const std::string page = folder.file("two.html");
  const tests::Answer text = run({"compare", before, after, "--report", page});
  BOOST_TEST_REQUIRE(text.code == 0, text.err);
  BOOST_TEST(text.out.find("of a step") == std::string::npos, text.out);
  BOOST_TEST(text.out.find("in a step") == std::string::npos, text.out);
  const std::string html = tests::read_text(page);
  for (const char* part :
       {"A whole trace takes <strong>50.0 % more</strong> time: 100 us before, 150 us after.",
        "Hard to compare: one of the traces marks no steps: each is compared as a whole"}) {
    BOOST_TEST(html.find(part) != std::string::npos, part);
  }
}

BOOST_AUTO_TEST_CASE(text_is_for_people) {
  const tests::Answer answer = run({"diagnose", kOne});
  BOOST_TEST(answer.code == 0);
  for (const char* part : {"step 100 by launch", "263 us", "wall: unknown", "NVIDIA A100"}) {
    BOOST_TEST(answer.out.find(part) != std::string::npos, part);
  }
  BOOST_TEST(answer.out.find('\x1b') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(traces_that_are_not_of_one_run_are_refused) {
  check_refused({"diagnose", spec}, 2, {spec, "no log, trace or configuration"});
  check_refused({"diagnose", kOne, kTraces + "cuda_event_sync_multi_stream.json.gz"}, 2,
                {"both of rank 0"});
  tests::write_text(folder.file("host.json"), R"({"traceEvents": [{"ph": "X", "cat": "cpu_op"}]})");
  check_refused({"diagnose", folder.file("host.json")}, 2, {"holds no device work"});
}

// Of files named by themselves it is a mistake, in a folder the second is left out, as with logs.
BOOST_AUTO_TEST_CASE(a_copy_is_no_further_rank) {
  const std::string content =
      R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
          "ts": 20, "dur": 5, "args": {"stream": 7, "device": 0}}]})";
  std::filesystem::create_directory(folder.file("run"));
  for (const char* name : {"run/a.json", "run/b.json"}) {
    tests::write_text(folder.file(name), content);
  }
  check_refused({"diagnose", folder.file("run/a.json"), folder.file("run/b.json")}, 2,
                {"a.json", "b.json", "same kernels at the same times"});
  const tests::Answer answer = run({"diagnose", folder.file("run"), "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("ranks").size() == 1u);
  BOOST_TEST(document.at("notes").dump().find("b.json is a copy of") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(of_many_files_that_are_left_out_five_are_named) {
  std::filesystem::create_directory(folder.file("run"));
  for (int i = 0; i < 8; ++i) {
    tests::write_text(folder.file("run/trace-" + std::to_string(i) + ".json"),
                      R"({"traceEvents": [{"ph": "X", "cat": "cpu_op"}]})");
  }
  const tests::Answer answer = run({"diagnose", folder.file("run")});
  BOOST_TEST(answer.code == 2);
  BOOST_TEST(answer.err.find("trace-4.json") != std::string::npos, answer.err);
  BOOST_TEST(answer.err.find("trace-5.json") == std::string::npos, answer.err);
  BOOST_TEST(answer.err.find("3 more files are left out") != std::string::npos, answer.err);
}

// For viewers: nothing that an importer reads is lost on the way, so it is diagnosed as before.
BOOST_AUTO_TEST_CASE(imported_traces_are_written_for_viewers) {
  const std::string chrome = folder.file("viewer.json");
  const std::string perfetto = folder.file("viewer.pftrace");
  const tests::Answer first = run({"trace", "--from", kOne, "--out", chrome});
  BOOST_TEST_REQUIRE(first.code == 0, first.err);
  BOOST_TEST(first.out == chrome + " (from " + kOne + ")\n");
  const json before = json::parse(run({"diagnose", kOne, "--format", "json"}).out);
  const json after = json::parse(run({"diagnose", chrome, "--format", "json"}).out);
  BOOST_TEST(after.at("ranks").at(0).at("rank") == 0);
  BOOST_TEST(after.at("ranks").at(0).at("windows") == before.at("ranks").at(0).at("windows"));
  BOOST_TEST(after.at("wall").at("label") == before.at("wall").at("label"));
  BOOST_TEST(run({"trace", "--from", kOne, "--out", perfetto}).code == 0);
  check_refused({"diagnose", perfetto}, 2, {perfetto, "cannot be read back", "--format chrome"});
  // From the original or from the copy: the same slices at the same times.
  const std::string copied = folder.file("copied.pftrace");
  BOOST_TEST(run({"trace", "--from", chrome, "--out", copied}).code == 0);
  BOOST_TEST(tests::read_text(perfetto).starts_with("\x0a"));  // a packet
  BOOST_TEST(tests::read_text(perfetto).find("ProfilerStep#100") != std::string::npos);
  BOOST_TEST(tests::read_text(copied).find("ProfilerStep#100") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(nothing_is_written_of_an_empty_trace_or_over_an_input) {
  const std::string empty = folder.file("empty.json");
  const std::string out = folder.file("out.pftrace");
  tests::write_text(empty, R"({"traceEvents": [{"ph": "X", "cat": "cpu_op"}]})");
  check_refused({"trace", "--from", empty, "--out", out}, 2, {empty, "holds no device work"});
  BOOST_TEST(!std::filesystem::exists(out));
  const std::string copy = folder.file("copy.json.gz");
  tests::write_text(copy, tests::read_text(kOne));
  check_refused({"trace", "--from", copy, "--out", copy, "--format", "chrome"}, 2,
                {copy, "is what this command reads"});
  BOOST_TEST((tests::read_text(copy) == tests::read_text(kOne)));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
