// What two configurations differ in, what lies between them, and the program's --configs.
#include "sweeps/bisect/config_source.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "tests/profiler/temp_folder.h"
#include "tests/spec/spec_samples.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(config_source)

namespace {

using nlohmann::json;

/// The program's exit code and all that it says.
std::pair<int, std::string> run(const tests::TempFolder& folder, const std::string& arguments) {
  const std::string line =
      fmt::format("cd '{0}' && MOETUNE_RANK='{1}/fake_rank' '{1}/moetune' bisect {2} >'{3}' 2>&1",
                  folder.file(""), MOETUNE_BIN_DIR, arguments, folder.file("said"));
  const int status = std::system(line.c_str());
  std::ifstream in(folder.file("said"));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          std::string(std::istreambuf_iterator<char>(in), {})};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_AUTO_TEST_CASE(differences_are_those_of_the_effective_configurations) {
  const spec::TrialSpec good = spec::samples::trial();
  BOOST_TEST(differences(good, good).empty());
  spec::TrialSpec bad = good;
  bad.knobs.overlap_grad_reduce = !good.knobs.overlap_grad_reduce;
  bad.training.lr = good.training.lr * 2;
  const std::vector<SpecChange> changes = differences(good, bad);
  BOOST_REQUIRE(changes.size() == 2U);
  BOOST_TEST(changes[0].path == "/knobs/overlap_grad_reduce");
  BOOST_TEST(changes[1].path == "/training/lr");
  BOOST_TEST((differences(good, with_changes(good, changes, {true, true})).size()) == 2U);
  BOOST_TEST(differences(bad, with_changes(good, changes, {true, true})).empty());
  BOOST_TEST(differences(good, with_changes(good, changes, {false, false})).empty());
  const spec::TrialSpec between = with_changes(good, changes, {false, true});
  BOOST_TEST(between.training.lr == bad.training.lr);
  BOOST_TEST(between.knobs.overlap_grad_reduce == good.knobs.overlap_grad_reduce);
}

BOOST_AUTO_TEST_CASE(a_combination_that_breaks_a_rule_is_not_run) {
  spec::TrialSpec trial = spec::samples::trial();
  trial.knobs.data_parallel_size = 999;
  const CommitRun run = run_config(trial, {.metric = "step_time"});
  BOOST_TEST((run.status == RunStatus::build_failed));
  BOOST_TEST(run.message != "");
}

BOOST_AUTO_TEST_CASE(every_end_of_a_trial_is_one_of_a_run) {
  const std::map<std::string_view, RunStatus> others = {{"ok", RunStatus::ok},
                                                        {"oom", RunStatus::oom},
                                                        {"hung", RunStatus::hung},
                                                        {"interrupted", RunStatus::interrupted}};
  for (const spec::StatusRow& row : spec::status_table()) {
    const auto other = others.find(row.name);
    const RunStatus expected = other == others.end() ? RunStatus::crashed : other->second;
    BOOST_TEST((run_status_of(row.status) == expected), row.name);
    BOOST_TEST((spec::find_status(row.name) == row.status), row.name);
  }
  BOOST_TEST(!spec::find_status("truncated").has_value());
}

BOOST_AUTO_TEST_CASE(the_program_says_what_is_wrong_and_that_nothing_changed) {
  const tests::TempFolder folder;
  std::ofstream(folder.file("corpus")) << std::string(5000, 'a') << "some text to train on";
  const auto write = [&](const char* name, const std::function<void(json&)>& change) {
    json document = spec::to_json(spec::samples::trial());
    document["model"]["vocab_size"] = 256;
    document["data_path"] = folder.file("corpus");
    document["data_digest"] = "";
    document["num_steps"] = 3;
    change(document);
    std::ofstream(folder.file(name)) << document.dump();
  };
  write("good.json", [](json&) {});
  write("bad.json", [](json& trial) { trial["training"]["lr"] = 0.5; });
  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const auto [code, text] = run(folder, arguments);
    BOOST_TEST_CONTEXT(text) {
      BOOST_TEST(code == 2);
      BOOST_TEST(contains(text, part));
    }
  };
  refused("--configs good.json", "needs two files");
  refused("--configs good.json good.json", "are the same trial");
  refused("--configs good.json bad.json --repo .", "do not go together");
  refused("--configs good.json missing.json", "missing.json");

  // The stand-in engine is as fast with one as with the other.
  const auto [code, text] = run(folder, "--configs good.json bad.json --db hunt.db");
  BOOST_TEST_CONTEXT(text) {
    BOOST_TEST(code == 0);
    BOOST_TEST(contains(text, "verdict: no_change"));
    BOOST_TEST(contains(text, "differs: training/lr"));
  }
  const auto runs = [&] {
    const store::Store store = store::Store::open_read_only(folder.file("hunt.db"));
    return store.read_bisect_runs(store.read_bisects().at(0).id).size();
  };
  const size_t num_runs = runs();
  BOOST_TEST(num_runs >= 2U);
  BOOST_TEST(run(folder, "--configs good.json bad.json --db hunt.db").first == 0);
  BOOST_TEST(runs() == num_runs);
}

// The real engine: two knobs that need more together than each adds alone, and a memory group that
// only the shards of a trial tell of.
BOOST_AUTO_TEST_CASE(the_program_names_knobs_with_what_they_moved) {
  const tests::TempFolder folder;
  std::ofstream(folder.file("corpus")) << std::string(5000, 'a') << "some text to train on";
  const auto write = [&](const char* name, int micro_batch_size, const char* recompute,
                         int64_t memory_bytes = 1 << 30) {
    json document = json::parse(R"({"model": {"model_type": "qwen3_moe", "vocab_size": 256,
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32,
      "num_key_value_heads": 1, "moe_intermediate_size": 64, "num_experts": 4,
      "num_experts_per_tok": 2, "max_position_embeddings": 128},
      "training": {"seq_length": 64, "global_batch_size": 4}, "num_steps": 3})");
    document["data_path"] = folder.file("corpus");
    document["hardware"] = spec::to_json(spec::samples::trial().hardware);
    document["hardware"]["num_nodes"] = document["hardware"]["devices_per_node"] = 1;
    document["hardware"]["memory_bytes"] = memory_bytes;
    document["knobs"] = {{"micro_batch_size", micro_batch_size}, {"recompute", recompute}};
    std::ofstream(folder.file(name)) << document.dump();
  };
  const auto hunt = [&](const std::string& arguments) {
    const std::string line = fmt::format(
        "cd '{0}' && '{1}/moetune' bisect --configs good.json bad.json {2} --format json >'{3}' "
        "2>'{4}'",
        folder.file(""), MOETUNE_BIN_DIR, arguments, folder.file("out"), folder.file("err"));
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  write("good.json", 1, "full");
  write("bad.json", 4, "none");
  for (const std::string metric : {"memory_activations_bytes", "peak_memory"}) {
    const int code = hunt(fmt::format("--metric {0} --db {0}.db", metric));
    std::ifstream err(folder.file("err"));
    const std::string said{std::istreambuf_iterator<char>(err), {}};
    BOOST_TEST_CONTEXT(said) { BOOST_REQUIRE(code == 0); }
    BOOST_TEST(contains(said, "to go"));
    std::ifstream out(folder.file("out"));
    const json document = json::parse(out);
    BOOST_TEST(document.at("verdict") == "culprit");
    BOOST_TEST(document.at("unit") == "bytes");
    const json& culprits = document.at("culprits");
    BOOST_REQUIRE(culprits.size() == 2U);
    double sum = 0;
    for (const json& culprit : culprits) {
      BOOST_TEST(!culprit.at("moved").empty());
      sum += culprit.at("effect").at("ratio").get<double>();
    }
    BOOST_REQUIRE(document.at("interaction").is_object());
    BOOST_TEST(document.at("interaction").at("ratio").get<double>() ==
                   document.at("effect").at("ratio").get<double>() - sum,
               boost::test_tools::tolerance(1e-9));
    if (metric == "peak_memory") {
      BOOST_TEST(culprits[0].at("moved")[0].at("name") == "memory_activations_bytes");
    }
  }
  // Where neither fits there is nothing to compare.
  write("good.json", 1, "full", 1 << 20);
  write("bad.json", 4, "none", 1 << 20);
  BOOST_TEST(hunt("--metric peak_memory --db none.db") == 30);
  std::ifstream out(folder.file("out"));
  BOOST_TEST(contains(json::parse(out).at("reason"), "the good configuration cannot be measured"));
}

BOOST_AUTO_TEST_CASE(old_runs_are_compared_at_the_ends_first) {
  const tests::TempFolder folder;
  std::ofstream(folder.file("corpus")) << std::string(5000, 'a') << "some text to train on";
  ConfigSetup setup;
  setup.good = spec::samples::trial();
  setup.good.data_path = folder.file("corpus");
  setup.good.data_digest = "";
  setup.good.num_steps = 3;
  spec::TrialSpec bad = setup.good;
  bad.training.lr *= 2;
  setup.changes = differences(setup.good, bad);
  setup.options.num_changes = static_cast<int>(setup.changes.size());
  setup.runner.metric = "step_time";
  setup.runner.rank_program = MOETUNE_BIN_DIR "/fake_rank";
  setup.runner.folder = folder.file("running");
  setup.runner.text_path = folder.file("corpus");
  setup.key_parts = "this machine";
  store::Store store = store::Store::open(folder.file("hunt.db"));
  const auto open = [&](const char* hash) {
    store::BisectRow row;
    row.config_hash = hash;
    return store.open_bisect(row);
  };
  const int64_t first = open("first");
  BOOST_REQUIRE(
      (run_config_hunt(setup, store, first).result.verdict == tuner::HuntVerdict::no_change));
  const std::vector<store::BisectRunRow> rows = store.read_bisect_runs(first);
  BOOST_REQUIRE(rows.size() >= 6U);
  constexpr size_t kLooks = 6;
  for (const double machine : {1.0, 1.5}) {
    const int64_t hunt = open(machine > 1 ? "another machine" : "the same machine");
    for (store::BisectRunRow row : rows) {
      row.value = machine * row.value.value();
      row.started_at = "2026-01-01T00:00:00.000Z";
      store.add_bisect_run(hunt, row);
    }
    const ConfigAnswer answer = run_config_hunt(setup, store, hunt);
    const size_t num_new = store.read_bisect_runs(hunt).size() - rows.size();
    BOOST_TEST(answer.has_dropped_earlier == (machine > 1));
    BOOST_TEST((answer.result.verdict == (machine > 1 ? tuner::HuntVerdict::environment_changed
                                                      : tuner::HuntVerdict::no_change)));
    if (machine > 1) {
      BOOST_TEST(num_new > kLooks);
    } else {
      BOOST_TEST(num_new == kLooks);
    }
    // What was looked at once is recent now.
    static_cast<void>(run_config_hunt(setup, store, hunt));
    BOOST_TEST(store.read_bisect_runs(hunt).size() == rows.size() + num_new);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
