// Files of Primus that name each other: which of them counts, and how what they say is merged.
#include "engine/spec/dialects/primus_files.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <memory>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
namespace {

using samples::contains;

/// A folder in memory.
class Texts final : public NamedFileSource {
 public:
  explicit Texts(std::map<std::string, std::string> texts) {
    for (auto& [place, text] : texts) files_[place] = {place, std::move(text)};
  }
  const File* first_of(const std::vector<std::string>& places) override {
    for (const std::string& place : places) {
      const auto file = files_.find(place);
      if (file != files_.end()) return &file->second;
    }
    return nullptr;
  }

 private:
  std::map<std::string, File> files_;
};

/// `text` at a place among others.
RunConfig run_of(const std::string& text, const std::map<std::string, std::string>& others,
                 const std::string& place = "exp.yaml") {
  ImportOptions how;
  how.named = std::make_shared<Texts>(others);
  how.place = place;
  return import_run(text, Dialect::primus, how);
}

std::string refused(const std::string& text, const std::map<std::string, std::string>& others) {
  try {
    run_of(text, others);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

bool notes(const RunConfig& run, std::string_view part) {
  return std::ranges::any_of(run.notes,
                             [&](const std::string& note) { return contains(note, part); });
}

std::string unknown_of(const RunConfig& run, std::string_view key) {
  const auto at = std::ranges::find(run.unknown, key, &UnknownSetting::key);
  return at == run.unknown.end() ? "none" : at->value;
}

std::string experiment(const std::string& overrides, const std::string& config = "pre_trainer.yaml",
                       const std::string& model = "mine.yaml") {
  return "modules:\n  pre_trainer:\n    framework: megatron\n    config: " + config +
         "\n    model: " + model + "\n    overrides:\n      train_iters: 5\n" + overrides;
}

const std::string kMine =
    "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 8\nnum_experts: 8\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(files_of_primus)

BOOST_AUTO_TEST_CASE(overrides_win_over_the_preset_and_the_preset_over_the_model) {
  const std::map<std::string, std::string> files = {
      {"mine.yaml", kMine + "micro_batch_size: 8\nseq_length: 8192\ntheirs: model\n"
                            "both: {of_model: 1}\n"},
      {"pre_trainer.yaml", "micro_batch_size: 4\nseq_length: 2048\nboth: {of_preset: 1}\n"}};
  const RunConfig run = run_of(experiment("      seq_length: 512\n"), files);
  BOOST_TEST(run.knobs.micro_batch_size == 4);
  BOOST_TEST(run.seq_length == 512);
  BOOST_TEST(run.model.at("hidden_size") == 64);
  BOOST_TEST(unknown_of(run, "theirs") == "model");
  // Of a map that both have the preset's counts whole; overrides are merged into it.
  BOOST_TEST(unknown_of(run, "both.of_preset") == "1");
  BOOST_TEST(unknown_of(run, "both.of_model") == "none");
  const RunConfig merged = run_of(experiment("      both: {of_user: 2}\n"), files);
  BOOST_TEST(unknown_of(merged, "both.of_preset") == "1");
  BOOST_TEST(unknown_of(merged, "both.of_user") == "2");
  BOOST_TEST(!notes(run, "not given"));
  BOOST_TEST(!run.is_partial);
}

BOOST_AUTO_TEST_CASE(what_is_extended_is_merged_first) {
  const std::map<std::string, std::string> files = {
      {"a.yaml", "seed: 1\nnum_layers: 9\nx: {a: 1}\n"},
      {"b.yaml", "seed: 2\nx: {b: 1}\n"},
  };
  const auto run_with = [&](const std::string& names) {
    return run_of(names + "\n" + kMine, files);
  };
  const RunConfig later = run_with("extends: [a.yaml, b.yaml]");
  BOOST_TEST(unknown_of(later, "seed") == "2");
  BOOST_TEST(unknown_of(later, "x.a") == "1");
  BOOST_TEST(later.model.at("num_hidden_layers") == 4);
  BOOST_TEST(unknown_of(run_with("extends: [b.yaml, a.yaml]"), "seed") == "1");
  // In older releases the first of several counts, with whole keys.
  for (const char* key : {"includes", "bases"}) {
    const RunConfig first = run_with(std::string(key) + ": [a.yaml, b.yaml]");
    BOOST_TEST(unknown_of(first, "seed") == "1", key);
    BOOST_TEST(unknown_of(first, "x.a") == "1", key);
    BOOST_TEST(unknown_of(first, "x.b") == "none", key);
    BOOST_TEST(unknown_of(first, key) == "none");
    BOOST_TEST(first.model.at("num_hidden_layers") == 4);
    // It may be somebody's setting.
    BOOST_TEST(unknown_of(run_with(std::string(key) + ": [1, 2]"), key) == "[1, 2]");
  }
  // Experiments extend each other, too.
  const RunConfig other = run_of(
      "extends: base/exp.yaml\nmodules:\n  pre_trainer:\n    overrides:\n"
      "      micro_batch_size: 8\n",
      {{"base/exp.yaml", experiment("      micro_batch_size: 4\n      seq_length: 512\n")},
       {"mine.yaml", kMine}});
  BOOST_TEST(other.knobs.micro_batch_size == 8);
  BOOST_TEST(other.seq_length == 512);
  BOOST_TEST(other.model.at("hidden_size") == 64);
}

BOOST_AUTO_TEST_CASE(presets_lie_where_primus_looks_and_beside_the_experiment) {
  const std::string tree = "primus/configs/models/megatron/mine.yaml";
  std::map<std::string, std::string> files = {{"mine.yaml", kMine + "seed: 1\n"}};
  const auto seed = [&](const std::string& place, const std::string& model = "mine.yaml") {
    return unknown_of(run_of(experiment("", "pre_trainer.yaml", model), files, place), "seed");
  };
  BOOST_TEST(seed("exp.yaml") == "1");
  BOOST_TEST(seed("exp.yaml", "mine") == "1");  // Primus adds the end of the name
  BOOST_TEST(seed("sub/exp.yaml") == "none");   // it lies beside another one
  files["sub/mine.yaml"] = kMine + "seed: 2\n";
  BOOST_TEST(seed("sub/exp.yaml") == "2");
  files["configs/models/megatron/mine.yaml"] = kMine + "seed: 3\n";
  files["configs/models/torchtitan/mine.yaml"] = kMine + "seed: 4\n";
  BOOST_TEST(seed("sub/exp.yaml") == "3");
  BOOST_TEST(seed("exp.yaml") == "3");
  files[tree] = kMine + "seed: 5\n";
  BOOST_TEST(seed("sub/deep/er/exp.yaml") == "5");
  // Nothing outside is asked for, whatever is said.
  for (const char* name : {"../mine.yaml", "/mine.yaml", "a/../../mine.yaml"}) {
    const RunConfig run = run_of("extends: " + std::string(name) + "\n" + kMine, files);
    BOOST_TEST(notes(run, "mine.yaml has settings of its own and was not given"), name);
    BOOST_TEST(unknown_of(run, "seed") == "none", name);
  }
}

// A model, a preset and what each extends may go by one name.
BOOST_AUTO_TEST_CASE(files_of_one_name_are_not_one_file) {
  const RunConfig run =
      run_of(experiment("", "own.yaml", "own.yaml"),
             {{"configs/models/megatron/own.yaml", "extends: ../base/own.yaml\n" + kMine},
              {"configs/models/base/own.yaml", "hidden_size: 32\nseed: 7\n"},
              {"configs/modules/megatron/own.yaml", "micro_batch_size: 4\n"}});
  BOOST_TEST(run.model.at("hidden_size") == 64);
  BOOST_TEST(unknown_of(run, "seed") == "7");
  BOOST_TEST(run.knobs.micro_batch_size == 4);
}

// The figures of the base are not those of the shipped preset.
BOOST_AUTO_TEST_CASE(a_preset_of_ones_own_starts_from_the_shipped_base) {
  std::map<std::string, std::string> files = {
      {"pre_trainer.yaml", "extends: [trainer_base.yaml]\nmicro_batch_size: 1\n"},
      {"mine.yaml", kMine}};
  const RunConfig own = run_of(experiment(""), files);
  BOOST_TEST(own.knobs.micro_batch_size == 1);
  BOOST_TEST(own.global_batch_size == 128);
  BOOST_TEST(own.seq_length == 4096);
  BOOST_TEST(!own.knobs.distributed_optimizer);
  BOOST_TEST(!notes(own, "not given"));
  files.erase("pre_trainer.yaml");
  const RunConfig shipped = run_of(experiment(""), files);
  BOOST_TEST(shipped.global_batch_size == 16);
  BOOST_TEST(shipped.seq_length == 1024);
  BOOST_TEST(shipped.knobs.distributed_optimizer);
  // One that nobody knows is told.
  const RunConfig unseen = run_of(experiment("", "mine_too.yaml"), files);
  BOOST_TEST(notes(unseen, "mine_too.yaml has settings of its own and was not given"));
  BOOST_TEST(unseen.is_partial);
  const RunConfig tuned = run_of(experiment("", "sft_trainer.yaml"), files);
  BOOST_TEST(tuned.seq_length == 2048);
  BOOST_TEST(tuned.knobs.micro_batch_size == 1);
}

// The base has both spellings, as all of its defaults.
BOOST_AUTO_TEST_CASE(a_setting_in_another_spelling_overrides) {
  const std::map<std::string, std::string> files = {
      {"pre_trainer.yaml",
       "use_custom_fsdp: false\nuse_megatron_fsdp: false\ncuda_graph_scope: full\n"},
      {"mine.yaml", kMine}};
  for (const char* key : {"use_megatron_fsdp", "use_custom_fsdp"}) {
    const std::string on = "      " + std::string(key) + ": true\n";
    BOOST_TEST((run_of(experiment(on), files).knobs.fsdp == Fsdp::megatron), key);
  }
  BOOST_TEST((run_of(experiment(""), files).knobs.fsdp == Fsdp::none));
}

BOOST_AUTO_TEST_CASE(experts_of_a_model_whose_base_is_missing) {
  const RunConfig partly =
      run_of(experiment(""), {{"mine.yaml", "extends: [gone.yaml]\n" + kMine}});
  BOOST_TEST(notes(partly, "gone.yaml has settings of its own and was not given"));
  BOOST_TEST((partly.knobs.dispatcher == Dispatcher::alltoall));
  BOOST_TEST(partly.knobs.moe_grouped_gemm);
  const RunConfig said = run_of(experiment(""), {{"mine.yaml",
                                                  "extends: [gone.yaml]\nmoe_grouped_gemm: false\n"
                                                  "moe_token_dispatcher_type: allgather\n" +
                                                      kMine}});
  BOOST_TEST(!said.knobs.moe_grouped_gemm);
  BOOST_TEST((said.knobs.dispatcher == Dispatcher::allgather));
}

BOOST_AUTO_TEST_CASE(files_without_an_end_are_refused) {
  std::map<std::string, std::string> ring = {{"mine.yaml", "extends: a/b.yaml\n"},
                                             {"a/b.yaml", "extends: ../mine.yaml\n"}};
  BOOST_TEST(contains(refused(experiment(""), ring), "'mine.yaml' extends itself"));
  BOOST_TEST(contains(refused("extends: exp.yaml\n" + kMine, {{"exp.yaml", "extends: exp.yaml\n"}}),
                      "'exp.yaml' extends itself"));
  std::map<std::string, std::string> chain = {{"mine.yaml", "extends: 0.yaml\n"}};
  for (int i = 0; i < 20; ++i) {
    chain[std::to_string(i) + ".yaml"] = "extends: " + std::to_string(i + 1) + ".yaml\n";
  }
  BOOST_TEST(contains(refused(experiment(""), chain), "extends more than 8 files in a row"));
  std::string many = "extends:\n";
  for (int i = 0; i < 100; ++i) many += "  - " + std::to_string(i) + ".yaml\n";
  BOOST_TEST(contains(refused(many + kMine, {}), "names 100 files, expected at most 64"));
  BOOST_TEST(contains(refused(experiment(""), {{"mine.yaml", "- 1\n- 2\n"}}),
                      "'mine.yaml' is no map of settings"));
  // A little text of which each file makes a lot.
  std::string large = "seeds:\n";
  for (int i = 0; i < 9000; ++i) large += "  k" + std::to_string(i) + ": 1\n";
  std::map<std::string, std::string> bomb = {{"large.yaml", large}};
  many = "extends:\n";
  for (int i = 0; i < 60; ++i) {
    bomb[std::to_string(i) + ".yaml"] = "extends: large.yaml\n";
    many += "  - " + std::to_string(i) + ".yaml\n";
  }
  BOOST_TEST(contains(refused(many + kMine, bomb), "say more than 100000 settings"));
}

// However it is spelled, a file that is named twice is merged once, at its last place.
BOOST_AUTO_TEST_CASE(a_file_is_one_however_it_is_named) {
  const std::map<std::string, std::string> files = {{"sub/a.yaml", "seed: 1\n"},
                                                    {"sub/b.yaml", "seed: 2\n"}};
  const auto seed = [&](const std::string& names) {
    return unknown_of(run_of(names + "\n" + kMine, files), "seed");
  };
  BOOST_TEST(seed("extends: [sub/a.yaml, sub/b.yaml, x/../sub/a.yaml]") == "1");
  BOOST_TEST(seed("includes: [sub/a.yaml, sub/b.yaml, ./sub/a.yaml]") == "1");
  BOOST_TEST(seed("includes: [sub/b.yaml, sub/a.yaml, ./sub/b.yaml]") == "2");
  // One of 5000 settings by 64 names would be gone through too often.
  std::string large;
  for (int i = 0; i < 5000; ++i) large += "k" + std::to_string(i) + ": 1\n";
  std::string spellings = "extends:\n";
  std::string others = spellings;
  std::map<std::string, std::string> many = {{"large.yaml", large}};
  for (int i = 0; i < 64; ++i) {
    const std::string name = "x" + std::to_string(i);
    spellings += "  - " + name + "/../large.yaml\n";
    others += "  - " + name + ".yaml\n";
    many[name + ".yaml"] = "k" + std::to_string(i) + ": 2\n";
  }
  many["mine.yaml"] = spellings + kMine;
  const RunConfig run = run_of(experiment(""), many);
  BOOST_TEST(unknown_of(run, "k4999") == "1");
  BOOST_TEST(run.model.at("hidden_size") == 64);
  // Little files that are merged into it again and again keep little.
  many["all.yaml"] = others.replace(others.find("  - x0."), 0, "  - large.yaml\n")
                         .substr(0, others.find("  - x63."));
  BOOST_TEST(unknown_of(run_of("extends: all.yaml\n" + kMine, many), "k62") == "2");
  std::string again = "extends:\n";
  for (int i = 0; i < 6; ++i) {
    const std::string name = "all" + std::to_string(i) + ".yaml";
    many[name] = many["all.yaml"];
    again += "  - " + name + "\n";
  }
  BOOST_TEST(contains(refused(again + kMine, many), "more than 400000 settings are merged"));
}

BOOST_AUTO_TEST_CASE(a_mistake_in_a_file_is_told_with_who_names_it) {
  ImportOptions how;
  how.source = "br/e.yaml";
  how.place = "e.yaml";
  how.named = std::make_shared<Texts>(
      std::map<std::string, std::string>{{"m.yaml", "num_layers: 4\nseeds: [1,\n"}});
  try {
    import_run(experiment("", "pre_trainer.yaml", "m.yaml"), Dialect::primus, how);
    BOOST_TEST(false);
  } catch (const base::UsageError& error) {
    BOOST_TEST(contains(error.what(), "br/e.yaml: names m.yaml: line "), error.what());
  }
}

BOOST_AUTO_TEST_CASE(what_is_an_experiment) {
  BOOST_TEST(is_experiment(experiment("")));
  BOOST_TEST(is_experiment("# ours\nwork_group: amd\nmodules:\n  pre_trainer:\n"));
  BOOST_TEST(!is_experiment(kMine));
  BOOST_TEST(!is_experiment("MODEL_ARGS:\n  --num-layers: 2\nmodules: 1\n"));
  BOOST_TEST(!is_experiment("echo modules:\n"));
}

// Such an experiment has torchtitan's settings, and what to change is told in its words.
BOOST_AUTO_TEST_CASE(an_experiment_of_torchtitan_is_torchtitans) {
  const std::string text =
      "exp_name: ${PRIMUS_EXP_NAME:llama}\nmodules:\n  pre_trainer:\n    framework: torchtitan\n"
      "    config: pre_trainer.yaml\n    model: llama3.1_8B.yaml\n    overrides:\n"
      "      sink_level: null\n      training:\n        local_batch_size: 2\n"
      "        seq_len: 4096\n      parallelism:\n        data_parallel_shard_degree: -1\n"
      "        tensor_parallel_degree: 2\n      activation_checkpoint:\n"
      "        mode: \"selective\"\n        selective_ac_option: \"op\"\n";
  BOOST_TEST((detect_dialect(text) == Dialect::torchtitan));
  const RunConfig run = import_run(text, Dialect::torchtitan, {.world_size = 8});
  BOOST_TEST((run.dialect == Dialect::torchtitan));
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.knobs.dp == 4);
  BOOST_TEST(run.knobs.micro_batch_size == 2);
  BOOST_TEST(run.seq_length == 4096);
  BOOST_TEST(run.model_name == "llama3.1_8B");
  BOOST_TEST(notes(run, "it runs torchtitan"));
  RunConfig changed = run;
  changed.knobs.micro_batch_size = 4;
  const auto changes = changes_of_text(run, changed);
  BOOST_TEST_REQUIRE(changes.size() == 1U);
  BOOST_TEST(text_of(changes[0], run.dialect) == "training.local_batch_size = 4");
  // What it extends counts, too, behind its own.
  const std::map<std::string, std::string> files = {
      {"base.yaml",
       "modules:\n  pre_trainer:\n    overrides:\n      training:\n        seq_len: 1024\n"
       "        local_batch_size: 8\n      parallelism:\n        context_parallel_degree: 2\n"}};
  ImportOptions how;
  how.place = "e.yaml";
  how.world_size = 8;
  how.named = std::make_shared<Texts>(files);
  const RunConfig extending =
      import_run("extends:\n  - base.yaml\n" + text, Dialect::torchtitan, how);
  BOOST_TEST(extending.seq_length == 4096);
  BOOST_TEST(extending.knobs.micro_batch_size == 2);
  BOOST_TEST(extending.knobs.cp == 2);
  how.named = std::make_shared<Texts>(std::map<std::string, std::string>{});
  BOOST_TEST(
      notes(import_run("extends:\n  - base.yaml\n" + text, Dialect::torchtitan, how), "base.yaml"));
  // A module that does not train says nothing of it.
  const std::string other = "modules:\n  helper:\n    framework: torchtitan\n";
  BOOST_TEST(
      (detect_dialect(other + "  pre_trainer:\n    framework: megatron\n") == Dialect::primus));
  BOOST_TEST((detect_dialect("modules:\n  pre_trainer:\n    framework: megatron\n  helper:\n"
                             "    framework: torchtitan\n") == Dialect::primus));
  BOOST_TEST((detect_dialect("modules:\n  pre_trainer:\n    config: a.yaml\n  helper:\n"
                             "    framework: torchtitan\n") == Dialect::primus));
  // As Primus' own it is refused.
  BOOST_TEST(contains(refused(text, {}), "settings of that are read as torchtitan's"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
