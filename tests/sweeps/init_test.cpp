// moetune init and schema: what they write is what the other commands take.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;
using tests::Cli;
using tests::read_text;
using tests::write_text;

constexpr const char* kCluster = R"({
  // as a data sheet has it
  "name": "ours", "num_nodes": 2, "devices_per_node": 4, "memory_bytes": "80GB",
  "peak_flops_per_s": "989TF", "memory_bytes_per_s": "3.35TB/s",
  "intra_node": {"latency_ns": "10us", "bytes_per_s": "450GB/s"},
  "inter_node": {"latency_ns": "20us", "bytes_per_s": "400Gb/s"},
  "launch_ns": "4us"
})";

struct Init : Cli {
  std::string out = folder.file("my.json");

  Init() { write_text(folder.file("cluster.json"), kCluster); }

  /// Writes the sweep with these options, trained on the fixture's text.
  void write(std::vector<std::string> options) {
    options.insert(options.begin(), "init");
    for (const char* word : {"--data", "corpus", "--out"}) options.emplace_back(word);
    options.push_back(out);
    const Answer answer = run(options);
    BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(init, Init)

BOOST_AUTO_TEST_CASE(a_small_model_is_searched_as_it_is) {
  write({});
  const std::string text = read_text(out);
  BOOST_TEST(text.find("\"model\": \"quickstart-moe\"") != std::string::npos);
  BOOST_TEST(text.find("miniature") == std::string::npos);
  const json program = json::parse(run({"program", out, "--format", "json"}).out);
  BOOST_TEST(program.at("world_size") == 8);
}

BOOST_AUTO_TEST_CASE(a_large_model_gets_a_miniature_that_can_run) {
  write({"--model", "qwen3-30b-a3b", "--hardware", folder.file("cluster.json")});
  const std::string text = read_text(out);
  BOOST_TEST(text.find("//   hidden_size 2048 -> 128") != std::string::npos);
  BOOST_TEST(text.find("link between nodes 50 GB/s and 20.0 us -> ") != std::string::npos);
  // Its starting point is legal, and so are other corners of its space.
  for (const char* set : {"data_parallel_size=8", "expert_model_parallel_size=8",
                          "use_distributed_optimizer=true", "recompute=full"}) {
    const Answer program = run({"program", out, "--set", set, "--format", "json"});
    BOOST_TEST_CONTEXT(program.err) {
      BOOST_REQUIRE(program.code == 0);
      BOOST_TEST(json::parse(program.out).at("world_size") == 8);
    }
  }
}

BOOST_AUTO_TEST_CASE(it_writes_to_standard_output_and_over_nothing) {
  const Answer printed = run({"init"});
  BOOST_TEST(printed.code == 0);
  BOOST_TEST(printed.out.starts_with("// Written by `moetune init`"));
  write_text(out, "mine");
  check_refused({"init", "--out", out}, 2, {"is there already"});
  BOOST_TEST(read_text(out) == "mine");
}

// A name stands in a comment: a line break in it would write keys of the file.
BOOST_AUTO_TEST_CASE(names_cannot_write_keys) {
  json cluster = json::parse(std::string(kCluster), nullptr, true, true);
  cluster["name"] = "x\n\"strategy\": \"mine\",\n";
  write_text(folder.file("cluster.json"), cluster.dump());
  write({"--model", "qwen3-30b-a3b", "--hardware", folder.file("cluster.json"), "--name",
         "y\n\"strategy\": \"mine\","});
  const json written = json::parse(read_text(out), nullptr, true, true);
  BOOST_TEST(!written.contains("strategy"));
  BOOST_TEST(run({"program", out}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_cluster_without_a_peak_is_refused) {
  json cluster = json::parse(std::string(kCluster), nullptr, true, true);
  cluster.erase("peak_flops_per_s");
  write_text(folder.file("cluster.json"), cluster.dump());
  check_refused({"init", "--hardware", folder.file("cluster.json")}, 2,
                {"cluster.json", "'peak_flops_per_s'", "\"989TF\""});
}

BOOST_AUTO_TEST_CASE(any_number_of_devices_gets_a_sweep_that_starts) {
  for (const int devices : {1, 3, 6, 7}) {
    json cluster = json::parse(std::string(kCluster), nullptr, true, true);
    cluster["num_nodes"] = 1;
    cluster["devices_per_node"] = devices;
    // As editors find its schema.
    cluster["$schema"] = "hardware.schema.json";
    write_text(folder.file("cluster.json"), cluster.dump());
    std::filesystem::remove(out);
    write({"--hardware", folder.file("cluster.json")});
    const Answer program = run({"program", out, "--format", "json"});
    BOOST_TEST_CONTEXT(program.err) { BOOST_TEST(program.code == 0); }
  }
}

BOOST_AUTO_TEST_CASE(paths_are_written_from_the_folder_of_the_file) {
  std::filesystem::create_directory(folder.file("sub"));
  BOOST_REQUIRE(run({"init", "--data", folder.file("corpus"), "--hardware",
                     folder.file("cluster.json"), "--out", folder.file("sub/my.json")})
                    .code == 0);
  const std::string text = read_text(folder.file("sub/my.json"));
  BOOST_TEST(text.find("\"../corpus\"") != std::string::npos);
  BOOST_TEST(run({"program", folder.file("sub/my.json")}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_report_takes_no_other_files_place) {
  write({});
  for (const char* name : {"corpus", "cluster.json"}) {
    const std::string before = read_text(folder.file(name));
    check_refused({"sweep", out, "--db", db, "--report", folder.file(name)}, 2,
                  {name, "is no HTML page"});
    BOOST_TEST(read_text(folder.file(name)) == before);
  }
}

BOOST_AUTO_TEST_CASE(schemas_are_printed) {
  for (const char* kind : {"sweep", "trial", "hardware", "model"}) {
    const json schema = json::parse(run({"schema", kind}).out);
    BOOST_TEST(schema.at("title") == "moetune " + std::string(kind) + " file");
    BOOST_TEST(schema.at("properties").size() > 5U);
  }
  BOOST_TEST(run({"schema", "--markdown"}).out.starts_with("# Formats\n"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
