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
using tests::contains;
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

/// The models that a CPU cannot train.
constexpr const char* kLargeModels[] = {"llama3-8b",     "llama3-70b",    "mixtral-8x7b",
                                        "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b"};

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

  /// Prints the sweep, with the file as standard input.
  Answer print_from(const std::string& file, const std::string& options) {
    const std::string line = "cd " + folder.file("") + " && exec " + tests::bin("moetune") +
                             " init --data corpus " + options + " <" + file;
    for (const char* left : {"out", "err"}) std::filesystem::remove(folder.file(left));
    SystemProcessRunner runner;
    return finish(
        *runner.start({{"/bin/sh", "-c", line}, {}, folder.file("out"), folder.file("err")}));
  }
};

std::string model_file(const std::string& name) {
  return std::string(MOETUNE_SOURCE_DIR) + "/engine/models/" + name + ".json";
}

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
  BOOST_TEST(contains(text, "//   head_dim 128 -> 32\n"));
  BOOST_TEST(contains(text, "//   width of an expert 768 -> 48\n"));
  BOOST_TEST(!contains(text, "No cluster was named"));
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

// Without them a host that is too slow could never be found.
BOOST_AUTO_TEST_CASE(launches_that_a_data_sheet_leaves_out_are_typical_ones) {
  const std::string file = folder.file("cluster.json");
  const std::vector<std::string> words = {"init", "--model", "qwen3-30b-a3b",      "--hardware",
                                          file,   "--data",  folder.file("corpus")};
  json cluster = json::parse(std::string(kCluster), nullptr, true, true);
  cluster["sync_ns"] = 0;  // there is none
  const auto made_of = [&](const json& document, const std::string& missing) {
    write_text(file, document.dump());
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_REQUIRE(answer.code == 0);
      const std::string text =
          missing +
          ": not in the cluster's file; typical ones were taken (those of 64 H100 SXM, 8 "
          "per node)\n";
      BOOST_TEST(contains(answer.out, "  //   " + text) == !missing.empty());
      BOOST_TEST(answer.err == (missing.empty() ? "" : "moetune: note: " + file + ": " + text));
    }
    return json::parse(answer.out, nullptr, true, true).at("hardware");
  };
  // Of 4, 12 and 3 us, in one proportion; two digits are kept.
  const auto check = [](const json& made) {
    const auto launch = made.at("launch_ns").get<double>();
    BOOST_TEST(launch > 0);
    BOOST_TEST(made.at("graph_launch_ns").get<double>() == 3 * launch,
               boost::test_tools::tolerance(0.1));
    BOOST_TEST(made.at("kernel_floor_ns").get<double>() == 0.75 * launch,
               boost::test_tools::tolerance(0.1));
    BOOST_TEST(made.at("sync_ns") == 0);
  };
  check(made_of(cluster, "graph_launch_ns, kernel_floor_ns"));
  cluster.erase("launch_ns");
  check(made_of(cluster, "launch_ns, graph_launch_ns, kernel_floor_ns"));
  cluster.update({{"launch_ns", 4000}, {"graph_launch_ns", 12000}, {"kernel_floor_ns", 3000}});
  check(made_of(cluster, ""));
}

BOOST_AUTO_TEST_CASE(the_flags_of_a_miniature_are_those_of_the_model) {
  write({"--model", "qwen3-30b-a3b", "--hardware", folder.file("cluster.json")});
  BOOST_TEST(contains(read_text(out), "\"stands_for\": {\n    \"model\": \"qwen3-30b-a3b\""));
  run({"trial", out, "--db", db});  // by the fake rank, which does not know this model's ranks
  const Answer shown = run({"show", db, "1"});
  for (const char* part : {"--num-layers 48 --hidden-size 2048", "--seq-length 4096",
                           "tuned on a miniature (8 layers"}) {
    BOOST_TEST(contains(shown.out, part), shown.out);
  }
  BOOST_TEST(!contains(shown.out, "--num-layers 8"));
  const json details = json::parse(run({"show", db, "1", "--format", "json"}).out);
  BOOST_TEST(details.at("megatron_flags").at(1) == "48");
  // A mistake in it is told by its place.
  std::string text = read_text(out);
  text.replace(text.find("\"qwen3-30b-a3b\""), 15, "\"qwen3-30b-a3\"");
  const size_t second = text.find("\"model\": \"qwen3-30b-a3b\"");
  if (second != std::string::npos) text.replace(second, 24, "\"model\": \"qwen3-30b-a3\"");
  write_text(out, text);
  check_refused({"program", out}, 2, {"stands_for.model", "qwen3-30b-a3b"});
}

BOOST_AUTO_TEST_CASE(a_large_model_alone_gets_a_cluster_that_holds_it) {
  for (const char* model : kLargeModels) {
    BOOST_TEST_CONTEXT(model) {
      std::filesystem::remove(out);
      write({"--model", model});
      BOOST_TEST(contains(read_text(out), "// No cluster was named, so h100-8x8 was taken."));
      const Answer program = run({"program", out, "--format", "json"});
      BOOST_TEST_CONTEXT(program.err) { BOOST_TEST(program.code == 0); }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_model_that_the_engine_does_not_run_is_refused) {
  check_refused({"init", "--model", "deepseek-v3"}, 2,
                {"deepseek_v3.json: line ", "key 'model_type' is \"deepseek_v3\"",
                 "multi-head latent attention is planned, not run, by the engine yet",
                 "it runs llama, mixtral and qwen3_moe"});
  write({});
  json sweep = json::parse(read_text(out), nullptr, true, true);
  sweep["model"] = "qwen3.5-35b-a3b";
  write_text(folder.file("gap.json"), sweep.dump());
  const std::string gap = folder.file("gap.json");
  const std::string database = folder.file("gap.db");
  check_refused({"sweep", gap, "--db", database}, 2,
                {"engine_runs_model", "Gated DeltaNet is planned, not run, by the engine yet"});
  BOOST_TEST(!std::filesystem::exists(database));
  check_refused({"program", gap}, 2, {"engine_runs_model"});
  BOOST_TEST(run({"trial", gap}).code == 2);
}

BOOST_AUTO_TEST_CASE(a_family_that_nobody_knows_is_refused_with_those_that_it_runs) {
  write_text(folder.file("config.json"), R"({"model_type": "gemma9"})");
  check_refused({"init", "--model", folder.file("config.json")}, 2,
                {"config.json", "'gemma9' is not supported yet",
                 "(supported: llama, mixtral, qwen3_moe; only in plans: "});
}

// Of a program that was copied without it.
BOOST_AUTO_TEST_CASE(a_share_folder_that_is_missing_is_told) {
  const tests::ScopedEnvironment share("MOETUNE_SHARE", folder.file("none"));
  const std::vector<std::vector<std::string>> rows = {
      {"init", "--model", model_file("qwen3_30b_a3b"), "--hardware", folder.file("cluster.json")},
      {"init"}};
  for (const std::vector<std::string>& words : rows) {
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == 2);
      BOOST_TEST(contains(answer.err, "the share folder " + folder.file("none") + " is missing"));
      BOOST_TEST(contains(answer.err, "MOETUNE_SHARE"));
      // Nobody gave such an option.
      BOOST_TEST(!contains(answer.err, " is 'emulated-2x4'"));
      BOOST_TEST(!contains(answer.err, "--model is"));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_config_of_ones_own_alone_is_named_after_its_folder) {
  std::filesystem::create_directory(folder.file("My-Model"));
  write_text(folder.file("My-Model/config.json"), read_text(model_file("llama3_8b")));
  write({"--model", folder.file("My-Model/config.json")});
  BOOST_TEST(contains(read_text(out), "\"name\": \"My-Model\""));
  BOOST_TEST(contains(read_text(out), "h100-8x8 was taken"));
  BOOST_TEST(run({"program", out}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_cluster_that_no_miniature_can_have_is_refused_with_what_to_do) {
  check_refused({"init", "--model", "qwen3-30b-a3b", "--hardware", "emulated-2x4"}, 2,
                {"emulated-2x4: key 'memory_bytes'", "18.0 MiB on each of 8 devices",
                 "cannot hold this model", "h100-8x8"});
  // Who uses the cluster of the advice is not sent to it.
  const Answer largest = run({"init", "--model", "llama3-405b", "--hardware", "h100-8x8"});
  BOOST_TEST_CONTEXT(largest.err) {
    BOOST_TEST(largest.code == 2);
    BOOST_TEST(contains(largest.err, "no emulated cluster has the proportions of this one"));
    BOOST_TEST(!contains(largest.err, "is a shipped cluster"));
  }
  json cluster = json::parse(std::string(kCluster), nullptr, true, true);
  cluster["inter_node"]["bytes_per_s"] = "100Mb/s";
  write_text(folder.file("cluster.json"), cluster.dump());
  const Answer refused =
      run({"init", "--model", "qwen3-30b-a3b", "--hardware", folder.file("cluster.json")});
  BOOST_TEST_CONTEXT(refused.err) {
    BOOST_TEST(refused.code == 2);
    BOOST_TEST(contains(refused.err, "no emulated cluster has the proportions of this one"));
    BOOST_TEST(contains(refused.err, "link between nodes 0.0125 GB/s"));
    // Nobody wrote the miniature's figures.
    BOOST_TEST(!contains(refused.err, "did you mean"));
  }
}

BOOST_AUTO_TEST_CASE(a_dash_is_standard_input) {
  const Answer large = print_from(model_file("qwen3_30b_a3b"), "--model -");
  BOOST_TEST_CONTEXT(large.err) { BOOST_REQUIRE(large.code == 0); }
  BOOST_TEST(contains(large.out, "\"name\": \"qwen3_moe\""));
  BOOST_TEST(contains(large.out, "//   hidden_size 2048 -> 128"));
  // What needs no miniature is written whole: there is no file to name.
  const Answer small = print_from(model_file("quickstart_moe"), "--model -");
  BOOST_TEST_CONTEXT(small.err) { BOOST_REQUIRE(small.code == 0); }
  BOOST_TEST(json::parse(small.out, nullptr, true, true).at("model").at("num_experts") > 0);
  const Answer cluster = print_from("cluster.json", "--hardware -");
  BOOST_TEST_CONTEXT(cluster.err) { BOOST_REQUIRE(cluster.code == 0); }
  const json written = json::parse(cluster.out, nullptr, true, true);
  BOOST_TEST(written.at("model") == "quickstart-moe");
  BOOST_TEST(written.at("hardware").at("name") == "ours");
  const Answer wrong = print_from("/dev/null", "--model -");
  BOOST_TEST(wrong.code == 2);
  BOOST_TEST(contains(wrong.err, "standard input: is empty"), wrong.err);
}

// What it writes starts: else a sweep would be refused, or end after its reference run.
BOOST_AUTO_TEST_CASE(what_cannot_start_is_not_written) {
  json small = json::parse(read_text(model_file("quickstart_moe")));
  small["vocab_size"] = 65;
  write_text(folder.file("small.json"), small.dump());
  check_refused({"init", "--model", folder.file("small.json"), "--out", out}, 2,
                {"small.json", "text_within_vocabulary", "vocab_size is 65"});
  check_refused({"init", "--data", "/no/such/text", "--out", out}, 2,
                {"data_path", "/no/such/text"});
  check_refused({"init", "--name", "", "--out", out}, 2, {"--name is empty"});
  check_refused({"init", "--out", folder.file("none/my.json")}, 2,
                {"none/my.json", "needs a folder that exists"});
  BOOST_TEST(!std::filesystem::exists(out));
  // Nor does a trial of such a model start ranks.
  write_spec([](json& trial) { trial["model"]["vocab_size"] = 65; });
  check_refused({"program", spec}, 2, {"text_within_vocabulary"});
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
  const std::string name = "x\", \"strategy\": \"mine";
  cluster["name"] = name + "\n";
  write_text(folder.file("cluster.json"), cluster.dump());
  check_refused({"init", "--hardware", folder.file("cluster.json")}, 2, {"cluster.json", "'name'"});
  cluster["name"] = name;
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
