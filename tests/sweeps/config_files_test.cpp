// Files that a run's configuration names: which are read, what they change in what is told, and
// what is never read.
#include "sweeps/config_files.h"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/error.h"
#include "sweeps/adapters/user_run.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tests::Answer;
using tests::contains;

const std::string kExperiment =
    "work_group: amd\nmodules:\n  pre_trainer:\n    framework: megatron\n"
    "    config: pre_trainer.yaml\n    model: small.yaml\n    overrides:\n"
    "      expert_model_parallel_size: 8\n";
const std::string kModel =
    "extends:\n  - small_base.yaml\nnum_layers: 8\nhidden_size: 2048\nffn_hidden_size: 4096\n"
    "num_attention_heads: 16\nnum_experts: 16\nmoe_router_topk: 2\nvocab_size: 32000\n";
const std::string kBase =
    "normalization: RMSNorm\nswiglu: true\nposition_embedding_type: rope\n"
    "untie_embeddings_and_output_weights: true\nadd_bias_linear: false\n"
    "group_query_attention: true\nnum_query_groups: 8\nmoe_token_dispatcher_type: alltoall\n"
    "moe_grouped_gemm: true\n";
const std::string kPreset =
    "micro_batch_size: 4\nglobal_batch_size: 64\nseq_length: 4096\n"
    "recompute_granularity: full\nrecompute_method: uniform\nrecompute_num_layers: 1\n";
const char* const kConfig =
    R"({"model_type": "mixtral", "num_hidden_layers": 8, "hidden_size": 2048,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 8,
        "num_local_experts": 16, "num_experts_per_tok": 2, "vocab_size": 32000,
        "tie_word_embeddings": false})";

/// A run's folder with an experiment and all that it names.
struct Experiment : tests::Cli {
  Experiment() {
    put("exp.yaml", kExperiment);
    put("small.yaml", kModel);
    put("small_base.yaml", kBase);
    put("pre_trainer.yaml", kPreset);
  }
  std::string at(const std::string& name) const { return folder.file("run/" + name); }
  std::string put(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(at(name)).parent_path());
    tests::write_text(at(name), text);
    return at(name);
  }
  json imported(const std::string& name = "exp.yaml") {
    const Answer answer = run({"import", at(name), "--gpus", "8"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  }
  json answer_of(std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  }
  json diagnosed() { return answer_of({"diagnose", folder.file("run")}); }
  void change_preset() {
    put("pre_trainer.yaml", "micro_batch_size: 1\nglobal_batch_size: 64\nseq_length: 4096\n");
  }
  std::string hardware = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/hardware/h100-1x8.json";
};

std::string text_of(const json& notes) {
  std::string text;
  for (const json& note : notes) text += note.get<std::string>() + "\n";
  return text;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(files_that_a_run_names, Experiment)

BOOST_AUTO_TEST_CASE(import_reads_them) {
  const json run = imported();
  BOOST_TEST(run["knobs"]["micro_batch_size"] == 4);
  BOOST_TEST(run["knobs"]["recompute"] == "full");
  BOOST_TEST(run["seq_length"] == 4096);
  BOOST_TEST(run["model"]["model_type"] == "mixtral");
  BOOST_TEST(run["model"]["num_key_value_heads"] == 8);
  BOOST_TEST(!contains(text_of(run["notes"]), "not given"));
  change_preset();
  const json changed = imported();
  BOOST_TEST(changed["knobs"]["micro_batch_size"] == 1);
  BOOST_TEST(changed["knobs"]["recompute"] == "none");
  // What is missing is told by its name.
  fs::remove(at("small_base.yaml"));
  const json without_base = imported();
  BOOST_TEST(contains(text_of(without_base["notes"]), "small_base.yaml has settings of its own"));
  fs::remove(at("small.yaml"));
  const json without_model = imported();
  BOOST_TEST(contains(text_of(without_model["notes"]), "small.yaml has settings of its own"));
  BOOST_TEST(!without_model["model"].contains("num_hidden_layers"));
}

BOOST_AUTO_TEST_CASE(what_an_experiment_of_torchtitan_extends_is_read) {
  put("titan_base.yaml",
      "modules:\n  pre_trainer:\n    overrides:\n      training:\n        seq_len: 1024\n");
  put("titan.yaml",
      "extends:\n  - titan_base.yaml\nmodules:\n  pre_trainer:\n    framework: torchtitan\n"
      "    model: llama3.1_8B.yaml\n    overrides:\n      training:\n"
      "        local_batch_size: 2\n");
  const json run = imported("titan.yaml");
  BOOST_TEST(run["seq_length"] == 1024);
  BOOST_TEST(run["knobs"]["micro_batch_size"] == 2);
}

BOOST_AUTO_TEST_CASE(estimates_and_plans_follow_them) {
  const auto step_and_bytes = [&] {
    const json rows = answer_of(
        {"estimate", "--run", at("exp.yaml"), "--hardware", hardware, "--gpus", "8"})["rows"];
    BOOST_TEST_REQUIRE(rows.size() == 1U);
    return std::pair(rows[0]["step_time_ns"].get<double>(),
                     rows[0]["peak_allocated_bytes"].get<double>());
  };
  tests::write_text(folder.file("config.json"), kConfig);
  const auto theirs = [&] {
    return answer_of({"plan", "--model", folder.file("config.json"), "--hardware", hardware,
                      "--gpus", "8", "--seq", "4096", "--gbs", "64", "--against",
                      at("exp.yaml")})["against"];
  };
  const auto before = step_and_bytes();
  const json against = theirs();
  BOOST_TEST(against["knobs"]["recompute"] == "full");
  BOOST_TEST(against["knobs"]["micro_batch_size"] == 4);
  put("pre_trainer.yaml", kPreset + "recompute_activations: false\n");
  BOOST_TEST((step_and_bytes() == before));
  // One sequence in the place of four, and nothing computed again.
  change_preset();
  const auto after = step_and_bytes();
  BOOST_TEST(after.first != before.first);
  BOOST_TEST(after.second < before.second);
  BOOST_TEST(theirs()["knobs"]["recompute"] == "none");
  BOOST_TEST(theirs()["knobs"]["micro_batch_size"] == 1);
}

BOOST_AUTO_TEST_CASE(a_diagnosis_follows_them) {
  json told = diagnosed()["run"];
  BOOST_TEST(told["micro_batch_size"] == 4);
  BOOST_TEST(told["model_sizes"]["num_hidden_layers"] == 8);
  change_preset();
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 1);
  // Its folder is that of the run: what lies above the experiment is in it.
  fs::create_directories(at("configs/models/megatron"));
  fs::create_directories(at("examples"));
  fs::rename(at("exp.yaml"), at("examples/exp.yaml"));
  for (const char* name : {"small.yaml", "small_base.yaml"}) {
    fs::rename(at(name), at(std::string("configs/models/megatron/") + name));
  }
  told = diagnosed();
  BOOST_TEST(told["run"]["model_sizes"]["num_hidden_layers"] == 8);
  BOOST_TEST(!contains(text_of(told["notes"]), "not given"));
  // By itself it has only what lies beside it.
  BOOST_TEST(contains(text_of(imported("examples/exp.yaml")["notes"]), "small.yaml has settings"));
}

BOOST_AUTO_TEST_CASE(of_several_files_the_experiment_is_the_run) {
  // "a_base.yaml" comes first by its name, and nobody names it.
  put("a_base.yaml", "num_layers: 2\nhidden_size: 64\nmicro_batch_size: 16\n");
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 4);
  fs::remove(at("exp.yaml"));
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 16);
  fs::remove(at("a_base.yaml"));
  fs::remove(at("pre_trainer.yaml"));
  // Of models the one that no other names.
  fs::rename(at("small.yaml"), at("z.yaml"));
  BOOST_TEST(diagnosed()["run"]["model_sizes"]["num_hidden_layers"] == 8);
  fs::remove(at("small_base.yaml"));
  const json alone = diagnosed();
  BOOST_TEST(alone["run"]["model_sizes"]["hidden_size"] == 2048);
  BOOST_TEST(contains(text_of(alone["notes"]), "small_base.yaml has settings of its own"));
}

BOOST_AUTO_TEST_CASE(other_experiments_are_told) {
  const std::string passed_over = " is another experiment and is not read";
  put("copy.yaml", kExperiment);
  BOOST_TEST(!contains(text_of(diagnosed()["notes"]), passed_over));
  put("other.yaml", kExperiment + "      micro_batch_size: 2\n");
  const json told = diagnosed();
  BOOST_TEST(told["run"]["micro_batch_size"] == 4);
  BOOST_TEST(contains(text_of(told["notes"]), at("other.yaml") + passed_over));
  BOOST_TEST(!contains(text_of(told["notes"]), "small.yaml" + passed_over));
  // One that the first extends is a part of it.
  put("copy.yaml", "extends: [other.yaml]\n" + kExperiment);
  fs::remove(at("exp.yaml"));
  BOOST_TEST(!contains(text_of(diagnosed()["notes"]), passed_over));
}

/// Says nothing that a configuration could contradict.
const std::string kMegatronStep =
    " iteration        1/     100 | elapsed time per iteration (ms): 800.0 | lm loss: 8.875000E+00 "
    "| number of skipped iterations:   0 | number of nan iterations:   0 |\n";

// "run2/x" begins with "run", too.
BOOST_AUTO_TEST_CASE(each_of_several_folders_has_its_own_files) {
  for (const char* name : {"exp.yaml", "small.yaml", "small_base.yaml", "pre_trainer.yaml"}) {
    const std::string to = fs::path(name) == "exp.yaml" ? "exps/" : "configs/models/megatron/";
    fs::create_directories(folder.file("run2/" + to));
    fs::rename(at(name), folder.file("run2/" + to + name));
  }
  const std::string preset = folder.file("run2/configs/modules/megatron");
  fs::create_directories(preset);
  tests::write_text(preset + "/pre_trainer.yaml", kPreset);
  put("train.log", kMegatronStep);
  for (const std::string end : {"", "/"}) {
    const json told = answer_of({"diagnose", folder.file("run") + end, folder.file("run2") + end});
    const std::string notes = text_of(told["notes"]);
    BOOST_TEST(!contains(notes, "not given"), notes);
    BOOST_TEST(told["run"]["micro_batch_size"] == 4);
  }
}

BOOST_AUTO_TEST_CASE(a_part_that_is_no_run_by_itself_is_not_told) {
  const std::string broken = "micro_batch_size: many\nglobal_batch_size: 64\nseq_length: 4096\n";
  put("unused.yaml", broken);
  BOOST_TEST(contains(text_of(diagnosed()["notes"]), "unused.yaml is not understood"));
  fs::remove(at("unused.yaml"));
  // The experiment overrides it.
  put("small_base.yaml", kBase + "tensor_model_parallel_size: many\n");
  put("small.yaml", kModel + "tensor_model_parallel_size: 1\n");
  const json told = diagnosed();
  BOOST_TEST(told["run"]["micro_batch_size"] == 4);
  BOOST_TEST(!contains(text_of(told["notes"]), "not understood"), text_of(told["notes"]));
}

BOOST_AUTO_TEST_CASE(a_script_stays_where_its_name_puts_it) {
  fs::remove(at("exp.yaml"));
  put("job.sh", "torchrun pretrain_gpt.py --micro-batch-size 32 --seq-length 4096\n");
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 32);
  put("zexp.yaml", kExperiment);
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 32);
  put("exp.yaml", kExperiment);
  BOOST_TEST(diagnosed()["run"]["micro_batch_size"] == 4);
}

BOOST_AUTO_TEST_CASE(files_that_name_each_other_are_told) {
  put("small_base.yaml", "extends: small.yaml\n" + kBase);
  check_refused({"import", at("exp.yaml")}, 2, {"'small.yaml' extends itself"});
  tests::write_text(at("train.log"), "");
  fs::copy_file(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/nccl_timeout.log",
                at("train.log"), fs::copy_options::overwrite_existing);
  const json told = diagnosed();
  BOOST_TEST(told["run"]["status"] == "hung");
  BOOST_TEST(contains(text_of(told["notes"]), "exp.yaml is not understood: 'small.yaml' extends"));
  // Without an experiment each of them is looked at.
  fs::remove(at("exp.yaml"));
  fs::remove(at("pre_trainer.yaml"));
  const std::string both = text_of(diagnosed()["notes"]);
  BOOST_TEST(contains(both, "small.yaml is not understood: 'small.yaml' extends itself"), both);
}

BOOST_AUTO_TEST_CASE(nothing_outside_of_the_folder_is_read) {
  tests::write_text(folder.file("secret.yaml"), kBase + "seed: 4711\n");
  const std::string outside = "secret.yaml has settings of its own and was not given";
  const auto check_not_read = [&](const std::string& name) {
    put("small.yaml", "extends: " + name + "\n" + kModel.substr(kModel.find("num_layers")));
    const json run = imported();
    BOOST_TEST(!contains(run.dump(), "4711"), name);
    BOOST_TEST(contains(text_of(run["notes"]), outside), name << ": " << run["notes"].dump());
  };
  check_not_read("../secret.yaml");
  check_not_read("sub/../../secret.yaml");
  check_not_read(folder.file("secret.yaml"));
  fs::create_symlink("../secret.yaml", at("secret.yaml"));
  check_not_read("secret.yaml");
  fs::create_symlink("..", at("up"));
  check_not_read("up/secret.yaml");
  fs::remove(at("secret.yaml"));
  // What is no file is not waited for.
  BOOST_TEST_REQUIRE(::mkfifo(at("secret.yaml").c_str(), 0600) == 0);
  check_not_read("secret.yaml");
  // A link within it is as good as a file.
  fs::remove(at("secret.yaml"));
  put("real/secret.yaml", kBase + "seed: 4711\n");
  fs::create_symlink("real/secret.yaml", at("secret.yaml"));
  put("small.yaml", "extends: secret.yaml\n" + kModel.substr(kModel.find("num_layers")));
  BOOST_TEST(contains(imported().dump(), "4711"));
}

BOOST_AUTO_TEST_CASE(files_that_nobody_has_written_are_refused) {
  const auto refused = [&](const std::string& text, const std::string& part) {
    put("small_base.yaml", text);
    check_refused({"import", at("exp.yaml")}, 2, {part});
  };
  refused(std::string("num_layers: 4\n\0", 15), "small_base.yaml: holds a NUL character");
  refused("num_layers: \xff\n", "is not UTF-8");
  refused("a: [[[[[", "small_base.yaml");
  refused(std::string((size_t{2} << 20), '#') + "\n", "names may have 1048576 bytes together");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string item = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + item;
    for (int j = 0; j < 9; ++j) bomb += ", " + item;
    bomb += "]\n";
  }
  refused(bomb, "anchors repeat more than");
  std::string many;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "n" + std::to_string(i);
    put(name + ".yaml", "extends: [" + name + "a.yaml]\n");
    put(name + "a.yaml", "seed: 1\n");
    many += "  - " + name + ".yaml\n";
  }
  refused("extends:\n" + many, "may name 64 files, and this is one more");
}

BOOST_AUTO_TEST_CASE(names_are_shown_as_text) {
  put("small.yaml", "extends: \"<script>alert(1)</script>\\t[31m\\n.yaml\"\n" +
                        kModel.substr(kModel.find("num_")));
  const json run = imported();
  const std::string notes = text_of(run["notes"]);
  BOOST_TEST(contains(notes, "?[31m?.yaml has settings of its own"), notes);
  const std::string page = folder.file("page.html");
  const Answer answer = this->run({"diagnose", folder.file("run"), "--report", page});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(!contains(tests::read_text(page), "<script>alert(1)"));
}

BOOST_AUTO_TEST_CASE(a_sweep_starts_from_them) {
  const auto read = [&] {
    spec::SweepSpec sweep;
    sweep.has_model = false;
    sweep.has_hardware = false;
    sweep.engine.dialect = spec::EngineDialect::primus;
    sweep.engine.run = "run.sh {config}";
    sweep.engine.config = "run/exp.yaml";
    sweep.engine.folder = folder.file("");
    sweep.engine.gpus = 8;
    return user_run_of(sweep);
  };
  const UserRun before = read();
  BOOST_TEST(before.config.knobs.micro_batch_size == 4);
  BOOST_TEST_REQUIRE(before.model != nullptr);
  BOOST_TEST(before.model->num_experts == 16);
  // Another preset is another sweep.
  change_preset();
  const UserRun after = read();
  BOOST_TEST(after.config.knobs.micro_batch_size == 1);
  BOOST_TEST(after.config_text != before.config_text);
}

// As import does: nothing else says it before the first trial.
BOOST_AUTO_TEST_CASE(a_dry_run_tells_what_was_read_and_whose_rules) {
  fs::remove(at("small_base.yaml"));
  tests::write_text(folder.file("sweep.json"), json{{"name", "dry"},
                                                    {"engine",
                                                     {{"dialect", "primus"},
                                                      {"run", "run.sh {config}"},
                                                      {"config", "run/exp.yaml"},
                                                      {"gpus", 8}}},
                                                    {"space", {{"micro_batch_size", {1, 4}}}},
                                                    {"num_steps", 8}}
                                                   .dump());
  for (const std::string format : {"text", "json"}) {
    const Answer answer =
        run({"sweep", folder.file("sweep.json"), "--db", db, "--dry-run", "--format", format});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const auto& row = spec::dialects::dialect_row(spec::dialects::Dialect::primus);
    BOOST_TEST(contains(answer.err, "those of Primus " + std::string(row.release)), answer.err);
    BOOST_TEST(contains(answer.err, "small_base.yaml has settings of its own"), answer.err);
    BOOST_TEST(contains(answer.out, "the run as it is"), answer.out);
  }
}

BOOST_AUTO_TEST_CASE(a_script_names_its_toml) {
  const std::string script = put("train.sh",
                                 "torchrun -m torchtitan.train --job.config_file ./conf/llama.toml "
                                 "--training.seq_len 2048\n");
  const auto told = [&] {
    const Answer answer = run({"import", script, "--gpus", "8"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  };
  BOOST_TEST(contains(text_of(told()["notes"]), "llama.toml has settings of its own"));
  put("conf/llama.toml", "[training]\nlocal_batch_size = 3\n");
  const json run = told();
  BOOST_TEST(run["knobs"]["micro_batch_size"] == 3);
  BOOST_TEST(!contains(text_of(run["notes"]), "not given"));
}

BOOST_AUTO_TEST_CASE(a_toml_of_another_folder_is_not_taken_for_the_named_one) {
  const std::string launch = "torchrun -m torchtitan.train --job.config_file=a/t.toml\n";
  put("a/t.toml", "[training]\nlocal_batch_size = 3\n");
  put("b/t.toml", "[training]\nlocal_batch_size = 5\n");
  for (const std::string& text : {"cat b/t.toml\n" + launch, launch + "cp b/t.toml kept/\n"}) {
    put("train.sh", text);
    BOOST_TEST(imported("train.sh")["knobs"]["micro_batch_size"] == 3, text);
  }
  // Which of two is meant is not known.
  fs::remove(at("a/t.toml"));
  put("c/t.toml", "[training]\nlocal_batch_size = 7\n");
  put("train.sh",
      "cat b/t.toml c/t.toml\ntorchrun -m torchtitan.train --training.seq_len 2048 "
      "--job.config_file a/t.toml\n");
  const json none = imported("train.sh");
  BOOST_TEST(contains(text_of(none["notes"]), "t.toml has settings of its own and was not given"));
}

BOOST_AUTO_TEST_CASE(a_script_whose_toml_is_not_there) {
  const std::string script = put("scripts/run.sh",
                                 "CONFIG_FILE=${CONFIG_FILE:-\"./configs/t.toml\"}\n"
                                 "torchrun -m torchtitan.train --job.config_file $CONFIG_FILE\n");
  for (const char* name : {"exp.yaml", "small.yaml", "small_base.yaml", "pre_trainer.yaml"}) {
    fs::remove(at(name));
  }
  const std::string missing = "names ./configs/t.toml, which is not below " + at("");
  check_refused({"import", script}, 2, {script + ": " + missing + "scripts"});
  fs::copy_file(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/nan_titan.log",
                at("train.log"));
  const std::string notes = text_of(diagnosed()["notes"]);
  BOOST_TEST(contains(notes, script + " is not understood: " + missing.substr(0, 40)), notes);
  // A script is started above the folder in which it lies.
  put("configs/t.toml", "[training]\nlocal_batch_size = 2\nseq_len = 8192\n");
  const json told = diagnosed();
  BOOST_TEST(!contains(text_of(told["notes"]), "not understood"), text_of(told["notes"]));
  BOOST_TEST(told["run"]["micro_batch_size"] == 2);
}

BOOST_AUTO_TEST_CASE(an_experiment_in_a_checkout_of_primus) {
  const std::string deep = "examples/megatron/configs/";
  put(deep + "exp.yaml", kExperiment);
  fs::remove(at("exp.yaml"));
  for (const char* name : {"small.yaml", "small_base.yaml"}) {
    fs::create_directories(at("primus/configs/models/megatron"));
    fs::rename(at(name), at(std::string("primus/configs/models/megatron/") + name));
  }
  const json run = imported(deep + "exp.yaml");
  BOOST_TEST(run["model"]["num_hidden_layers"] == 8);
  // Beside it lies nothing, and the folder of the checkout is not where presets are looked for.
  BOOST_TEST(run["knobs"]["micro_batch_size"] != 4);
  // Nothing else marks a checkout.
  fs::rename(at("primus/configs/models"), at("primus/configs/model"));
  BOOST_TEST(contains(text_of(imported(deep + "exp.yaml")["notes"]), "small.yaml has settings"));
  fs::rename(at("primus"), at("configs"));
  fs::rename(at("configs/configs/model"), at("configs/models"));
  BOOST_TEST(contains(text_of(imported(deep + "exp.yaml")["notes"]), "small.yaml has settings"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
