// The verdict on a trial of our own engine over several traced steps: an interval, what the others
// say, and one step in the database.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/store/judged_steps.h"
#include "profiler/store/store.h"
#include "sweeps/analyse.h"
#include "sweeps/outputs.h"
#include "tests/profiler/synthetic_trace.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using profiler::TraceBuilder;

constexpr int64_t kUs = 1'000;

/// A traced step of 1 ms of two ranks, in which an all-to-all takes `transfer_us`.
void add_step(store::ShardContents& shard, int64_t step, int64_t step_ns, int64_t transfer_us) {
  store::ShardStep row;
  row.step = step;
  row.is_traced = true;
  row.step_ns = step_ns;
  shard.steps.push_back(row);
  for (int32_t rank = 0; rank < 2; ++rank) {
    TraceBuilder t(0, 1000 * kUs, rank);
    const int64_t begin_ns = (900 - transfer_us) * kUs;
    t.kernel("gemm", 0, 0, 0, begin_ns);
    t.collective("ep", 1, 0, begin_ns, 900 * kUs, transfer_us * kUs, 0).sequence = 0;
    t.kernel("expert", 0, 0, 900 * kUs, 1000 * kUs, 1);
    profiler::StepTrace trace = t.trace();
    trace.step = static_cast<int32_t>(step);
    for (profiler::TraceRecord& record : trace.records) record.step = trace.step;
    shard.traces.push_back(trace);
  }
}

struct Judged {
  store::TrialResult result;
  json verdict;
};

Judged judged(const store::ShardContents& shard) {
  spec::TrialSpec trial;
  trial.knobs.data_parallel_size = 2;
  trial.knobs.expert_model_parallel_size = 2;
  Judged judged;
  judged.result.status = "interrupted";  // none of its step times are asked for
  analyse_shard(trial, shard, 0, judged.result);
  BOOST_TEST_REQUIRE(judged.result.texts.size() == 1U);
  judged.verdict = json::parse(judged.result.texts[0].value);
  return judged;
}

std::string sentences_of(const json& verdict) {
  std::string sentences;
  for (const json& fact : verdict["evidence"]) sentences += fact["text"].get<std::string>() + "\n";
  return sentences;
}

double whole_run(const store::TrialResult& result, const std::string& name) {
  for (const store::MetricRow& metric : result.metrics) {
    if (metric.rank == -1 && metric.name == name) return metric.value;
  }
  BOOST_REQUIRE_MESSAGE(false, name << " is missing");
  return 0;
}

/// The program over the real engine, which traces three steps of two ranks.
struct SteppedCli : tests::Cli {
  tests::ScopedEnvironment real{"MOETUNE_RANK", tests::bin("moetune-rank")};

  SteppedCli() {
    spec::TrialSpec trial = tests::small_trial();
    trial.knobs = spec::Knobs{};
    trial.knobs.data_parallel_size = 2;
    trial.knobs.expert_model_parallel_size = 2;
    trial.clock = spec::ClockMode::virtual_modelled;
    trial.data_path = folder.file("corpus");
    trial.data_digest.clear();
    trial.hardware.memory_bytes = 0;
    trial.hardware.num_nodes = 1;
    trial.hardware.devices_per_node = 2;
    trial.num_traced_steps = 3;
    tests::write_text(spec, spec::to_json(trial).dump());
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(several_steps)

BOOST_AUTO_TEST_CASE(ceilings_have_an_interval_over_the_steps) {
  store::ShardContents shard;
  add_step(shard, 4, 300, 600);
  add_step(shard, 5, 100, 400);
  add_step(shard, 6, 200, 500);
  const Judged judged = sweeps::judged(shard);
  const json& verdict = judged.verdict;
  const auto is_near = boost::test_tools::tolerance(0.01);
  BOOST_TEST(verdict["label"] == "communication");
  BOOST_TEST(verdict["num_replayed_steps"] == 3);
  BOOST_TEST(verdict["num_agreeing_steps"] == 3);
  BOOST_TEST(verdict["low_ratio"].get<double>() == 0.4, is_near);
  BOOST_TEST(verdict["share_ratio"].get<double>() == 0.5, is_near);
  BOOST_TEST(verdict["high_ratio"].get<double>() == 0.6, is_near);
  for (const auto& [label, ceiling] : verdict["label_ceilings"].items()) {
    BOOST_TEST(verdict["low_label_ceilings"][label] <= ceiling);
    BOOST_TEST(ceiling <= verdict["high_label_ceilings"][label]);
  }
  const std::string sentences = sentences_of(verdict);
  BOOST_TEST(tests::contains(sentences,
                             "3 of 3 replayed steps have this wall; without it they would be "
                             "40.0 % to 60.0 % shorter."),
             sentences);
  BOOST_TEST(!tests::contains(sentences, "other walls"), sentences);
  // The account is of the step of median length.
  BOOST_TEST(whole_run(judged.result, "blocking_transfer_ns.ep") == 500e3);
  BOOST_TEST(whole_run(judged.result, "critical_transfer_ns") == 500e3);
  BOOST_TEST(whole_run(judged.result, "communication_wall_ratio") == 0.5, is_near);
}

BOOST_AUTO_TEST_CASE(steps_with_another_wall_are_told_and_do_not_name_it) {
  store::ShardContents shard;
  add_step(shard, 4, 300, 20);
  add_step(shard, 5, 100, 400);
  add_step(shard, 6, 200, 500);
  const Judged judged = sweeps::judged(shard);
  BOOST_TEST(judged.verdict["label"] == "communication");
  BOOST_TEST(judged.verdict["num_agreeing_steps"] == 2);
  BOOST_TEST(judged.verdict["low_ratio"].get<double>() == 0.02, boost::test_tools::tolerance(0.01));
  const std::string sentences = sentences_of(judged.verdict);
  BOOST_TEST(tests::contains(sentences, "2 of 3 replayed steps"), sentences);
  BOOST_TEST(tests::contains(sentences, "The other steps have other walls: 1 compute."), sentences);
}

BOOST_AUTO_TEST_CASE(one_step_is_its_own_interval) {
  store::ShardContents shard;
  add_step(shard, 4, 300, 600);
  const json verdict = judged(shard).verdict;
  BOOST_TEST(verdict["num_replayed_steps"] == 1);
  BOOST_TEST(verdict["low_ratio"] == verdict["share_ratio"]);
  BOOST_TEST(verdict["high_ratio"] == verdict["share_ratio"]);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(several_traced_steps, SteppedCli)

BOOST_AUTO_TEST_CASE(all_are_judged_and_shown_and_one_is_stored) {
  const tests::Answer ended = run({"trial", spec, "--db", db});
  BOOST_TEST_REQUIRE(ended.code == 0, ended.err);
  const store::Store store = store::Store::open_read_only(db);
  const store::TrialRow trial = store.list_trials().at(0);
  const std::vector<profiler::StepTrace> traces = store.read_trace(trial.id);
  BOOST_TEST_REQUIRE(traces.size() == 2U);
  BOOST_TEST(traces[0].rank == 0);
  BOOST_TEST(traces[1].rank == 1);
  BOOST_TEST(traces[0].step == traces[1].step);
  BOOST_TEST(!traces[0].records.empty());

  // What is stored of operations is of that step, too.
  int64_t num_launches = 0;
  for (const store::OpRow& op : store.read_ops(trial.id)) num_launches += op.count;
  BOOST_TEST(static_cast<size_t>(num_launches) ==
             traces[0].records.size() + traces[1].records.size());

  const std::string id = std::to_string(trial.id);
  const json shown = json::parse(run({"show", db, id, "--format", "json"}).out);
  const json& verdict = shown["texts"]["wall_evidence"];
  // "texts.*" would cover all keys.
  const auto is_show = [](const Output& output) {
    return std::string_view(output.commands) == "show trial";
  };
  const std::vector<std::string> rows = paths_of(*std::ranges::find_if(outputs(), is_show));
  for (const auto& [key, value] : verdict.items()) {
    const std::string path = "texts.wall_evidence." + key;
    const bool is_documented = std::ranges::any_of(rows, [&](const std::string& row) {
      return row == path || row.starts_with(path + ".") || row.starts_with(path + "[]");
    });
    BOOST_TEST(is_documented, path);
  }
  BOOST_TEST(verdict["label"] == trial.wall);
  BOOST_TEST(verdict["num_replayed_steps"] == 3);
  BOOST_TEST(verdict["low_ratio"] <= verdict["share_ratio"]);
  BOOST_TEST(verdict["share_ratio"] <= verdict["high_ratio"]);
  const std::string text = run({"show", db, id}).out;
  BOOST_TEST(tests::contains(text, "of 3 replayed steps have this wall"), text);

  const std::string page_path = folder.file("page.html");
  BOOST_TEST(run({"report", db, "--trial", id, "--out", page_path}).code == 0);
  const std::string page = tests::read_text(page_path);
  BOOST_TEST(tests::contains(page, "of 3 replayed steps have this wall"));
  BOOST_TEST(tests::contains(page, " over 3 steps)"));
  const std::string exported = folder.file("trace.json");
  BOOST_TEST(run({"trace", db, id, "--out", exported}).code == 0);
  BOOST_TEST(std::filesystem::file_size(exported) > 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

struct FakeCli : tests::Cli {};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(several_steps_of_processes, FakeCli)

// Each rank has a shard and, the odd ones, a clock of its own.
BOOST_AUTO_TEST_CASE(every_step_is_put_on_one_clock) {
  write_spec([](json& document) {
    document["num_traced_steps"] = 3;
    document["backend"] = "cuda";
    document["clock"] = "wall";
    document["communicator"] = "nccl";
    document["hardware"]["num_nodes"] = 1;
    document["hardware"]["devices_per_node"] = 8;
  });
  const tests::Answer ended = run({"trial", spec, "--db", db});
  BOOST_TEST_REQUIRE(ended.code == 0, ended.err);
  const store::Store store = store::Store::open_read_only(db);
  const store::TrialRow trial = store.list_trials().at(0);
  const auto traces = store.read_trace(trial.id);
  BOOST_TEST_REQUIRE(traces.size() > 1U);
  for (const profiler::StepTrace& trace : traces) {
    BOOST_TEST(trace.step == traces[0].step);
    BOOST_TEST(trace.start_ns == 0);
  }
  const std::string text = run({"show", db, std::to_string(trial.id)}).out;
  BOOST_TEST(tests::contains(text, "3 of 3 replayed steps have this wall"), text);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
