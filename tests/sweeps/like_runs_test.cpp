// Published runs beside a plan or a command: which are like it and in which order, and what lies
// between them. All rows are made up.
#include "sweeps/planning/like_runs.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sweeps/planning/calibration_cases.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(like_runs)

namespace {

constexpr const char* kModel = "qwen3-30b-a3b";
constexpr const char* kMachine = "h100-80g";

/// On 16 devices: slices of attention where the rows have replicas, and all is computed again.
constexpr const char* kCommand =
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 1 "
    "--global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer "
    "--overlap-grad-reduce --overlap-param-gather --moe-grouped-gemm "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
    "--moe-token-dispatcher-type alltoall";

bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// A made-up row: of the command's conditions, with another layout.
json row_with(
    const char* id, const std::function<void(json&)>& change = [](json&) {}) {
  json row = {{"id", id},
              {"source", "made up for this test"},
              {"model", model_and_config(kModel).config},
              {"task", "pretrain"},
              {"hardware", "H100 80G"},
              {"world_size", 16},
              {"tp", 1},
              {"cp", 1},
              {"pp", 1},
              {"ep", 8},
              {"etp", 1},
              {"micro_batch_size", 1},
              {"global_batch_size", 256},
              {"seq_length", 4096},
              {"precision", "bf16"},
              {"sequence_parallel", false},
              {"routing", "forced_balance"},
              {"recompute", {{"granularity", "full"}}},
              {"dispatcher", "alltoall"},
              {"software", {{"name", "Megatron-LM"}, {"date", "2026-06"}}},
              {"tokens_per_s_per_gpu", 9000}};
  change(row);
  return row;
}

/// The command with what it refers to.
struct Command {
  explicit Command(const std::string& text = kCommand, int64_t num_devices = 16) {
    NamedRunText named;
    named.text = text;
    named.how.world_size = num_devices;
    words = run_config_of(named, 0);
    owned = owned_run(words, model_named(kModel), machine_of(kMachine, words.world_size));
    loaded = default_calibration();
    of_case = loaded.for_case(*owned.hardware, routing_of_load(*owned.model, 1));
  }

  [[nodiscard]] double tokens_per_s() const {
    return predicted_tokens_per_s(owned.run, of_case, 0);
  }
  [[nodiscard]] LikeRuns beside(const json& rows) const {
    return find_like_runs(
        published_rows_of(rows, "rows"), "rows.json",
        {owned.run, tokens_per_s(), static_cast<double>(owned.hardware->memory_bytes), kMachine,
         loaded, loaded, of_case, true, &words});
  }

  spec::dialects::RunConfig words;
  OwnedRun owned;
  Calibration loaded;
  Calibration of_case;
};

std::vector<std::string> ids_of(const LikeRuns& like) {
  std::vector<std::string> ids;
  for (const LikeRun& run : like.runs) ids.push_back(run.row.id);
  return ids;
}

/// What the conditions multiply to.
double product_of(const std::vector<Condition>& conditions) {
  double product = 1;
  for (const Condition& condition : conditions) product *= condition.ratio.value_or(1);
  return product;
}

std::vector<std::string> names_of(const std::vector<Condition>& conditions) {
  std::vector<std::string> names;
  for (const Condition& condition : conditions) names.push_back(condition.what);
  return names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_nearest_are_in_front) {
  const auto set = [](const char* key, json value) {
    return [key, value](json& row) { row[key] = value; };
  };
  const json rows = json::array({row_with("other-devices", set("hardware", "H200")),
                                 row_with("longer", set("seq_length", 8192)),
                                 row_with("fp8", set("precision", "fp8-current-scaling")),
                                 row_with("more-gpus", set("world_size", 32))});
  const std::vector<const char*> order = {"more-gpus", "fp8", "longer", "other-devices"};
  const Command command;
  // At most three; each time the nearest is taken away, so that all have their turn.
  for (size_t first = 0; first < order.size(); ++first) {
    json left = json::array();
    for (const json& row : rows) {
      for (size_t i = first; i < order.size(); ++i) {
        if (row["id"] == order[i]) left.push_back(row);
      }
    }
    const std::vector<std::string> expected(
        order.begin() + static_cast<std::ptrdiff_t>(first),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), first + 3)));
    const LikeRuns like = command.beside(left);
    BOOST_TEST(ids_of(like) == expected, boost::test_tools::per_element());
    BOOST_TEST(like.num_like == order.size() - first);
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_like_run_is_left_out) {
  const json rows = json::array(
      {row_with("like"), row_with("again", [](json& row) { row["tokens_per_s_per_gpu"] = 8000; }),
       row_with("suspect", [](json& row) { row["suspect"] = "two figures contradict"; }),
       row_with("oom", [](json& row) { row["status"] = "OOM"; }),
       row_with("silent", [](json& row) { row.erase("tokens_per_s_per_gpu"); }),
       row_with("unread", [](json& row) { row.erase("micro_batch_size"); }),
       row_with("other-model",
                [](json& row) { row["model"] = model_and_config("mixtral-8x7b").config; }),
       row_with("other-task", [](json& row) { row["task"] = "lora"; }),
       row_with("older", [](json& row) { row["hardware"] = "A100-80G"; }),
       row_with("newer", [](json& row) { row["hardware"] = "GB200"; })});
  const LikeRuns like = Command().beside(rows);
  BOOST_TEST(ids_of(like) == std::vector<std::string>{"like"}, boost::test_tools::per_element());
  BOOST_TEST(like.num_rows == rows.size());
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"suspect", "suspect: "},
      {"oom", "did not run"},
      {"silent", "states no speed"},
      {"unread", "cannot be priced: "},
      {"again", "states what another row states"}};
  BOOST_TEST_REQUIRE(like.left_out.size() == expected.size());
  json document;
  add_like_runs(like, document);
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(like.left_out[i].id == expected[i].first);
    BOOST_TEST(like.left_out[i].reason.starts_with(expected[i].second), like.left_out[i].reason);
    BOOST_TEST(document["published_left_out"][i]["id"] == expected[i].first);
    BOOST_TEST(document["published_left_out"][i]["reason"] == like.left_out[i].reason);
  }
  // What the row lacks is told.
  BOOST_TEST(says(like.left_out[3].reason, "micro_batch_size"), like.left_out[3].reason);
  BOOST_TEST(says(like_runs_note(like), "Left out: 5: 1 suspect"), like_runs_note(like));
  BOOST_TEST(says(like_runs_note(like), "; 1 states no speed; "), like_runs_note(like));
  // A vocabulary that is padded, and a layer that looks further ahead, make no other model.
  const LikeRuns padded = Command().beside(json::array({row_with("padded", [](json& row) {
    row["model"]["vocab_size"] = row["model"]["vocab_size"].get<int64_t>() + 640;
  })}));
  BOOST_TEST_REQUIRE(padded.runs.size() == 1);
  BOOST_TEST(names_of(padded.runs[0].conditions) == std::vector<std::string>{"model"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(no_like_run_is_said_in_a_sentence) {
  const LikeRuns like = Command().beside(
      json::array({row_with("older", [](json& row) { row["hardware"] = "A100-80G"; })}));
  BOOST_TEST(like.runs.empty());
  BOOST_TEST(to_text(like) ==
             "\npublished runs: None of the 1 runs of rows.json is like it: of a model of this "
             "shape and this task, on devices of this generation.\n");
  json document;
  add_like_runs(like, document);
  BOOST_TEST((document["published"] == json::array()));
}

BOOST_AUTO_TEST_CASE(the_difference_names_its_flags) {
  const Command command;
  const LikeRuns like = command.beside(json::array({row_with("flat")}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const LikeRun& run = like.runs[0];
  // Its conditions are the command's: all that lies between the two are settings.
  BOOST_TEST(run.conditions.empty(), to_text(like));
  BOOST_TEST_REQUIRE(run.moved_tokens_per_s.has_value());
  BOOST_TEST(*run.moved_tokens_per_s == run.estimate.predicted_tokens_per_s,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(*run.moved_tokens_per_s > command.tokens_per_s());
  BOOST_TEST_REQUIRE(!run.path.empty());
  BOOST_TEST(run.path.back().cumulative_ratio == *run.moved_tokens_per_s / command.tokens_per_s(),
             boost::test_tools::tolerance(1e-9));
  const std::string text = to_text(like);
  BOOST_TEST(says(text, "1. flat: 16 "), text);
  BOOST_TEST(says(text, "published 9000 tokens/s a GPU; priced "), text);
  BOOST_TEST(says(text, "from yours to its layout, step by step"), text);
  bool has_flag = false;
  for (const PathStep& step : run.path) {
    for (const std::string& flag : step.flags) {
      const bool is_of_attention = says(flag, "--tensor-model-parallel-size");
      has_flag = has_flag || is_of_attention;
      // The row computes all again, too.
      BOOST_TEST(!says(flag, "--recompute-granularity"), flag);
      // One rank has nothing to share out, said or not.
      BOOST_TEST(!says(flag, "--sequence-parallel"), flag);
      if (is_of_attention) BOOST_TEST(step.speed_ratio > 1);
    }
  }
  BOOST_TEST(has_flag, text);
  // With the row's own layout nothing is left.
  std::string same = kCommand;
  same.replace(same.find("-parallel-size 4"), 16, "-parallel-size 1");
  const LikeRuns left = Command(same).beside(json::array({row_with("flat")}));
  BOOST_TEST_REQUIRE(left.runs.size() == 1);
  for (const PathStep& step : left.runs[0].path) {
    for (const KnobGain& change : step.changes) BOOST_TEST(change.knob != "tp");
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_flag_is_named_and_priced) {
  const Command command;
  const LikeRuns like = command.beside(json::array({row_with("far", [](json& row) {
    row["hardware"] = "H200";
    row["world_size"] = 64;
    row["seq_length"] = 8192;
    row["global_batch_size"] = 512;
    row["routing"] = "natural";
    row["software"]["date"] = "2025-09";
  })}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const LikeRun& run = like.runs[0];
  const std::vector<std::string> expected = {
      "devices", "GPUs", "tokens of a sequence", "sequences of a step", "routing", "software"};
  BOOST_TEST(names_of(run.conditions) == expected, boost::test_tools::per_element());
  for (const Condition& condition : run.conditions) {
    BOOST_TEST_REQUIRE(condition.ratio.has_value(), condition.what + ": " + condition.why);
    BOOST_TEST(condition.from != condition.to);
  }
  // H200's memory is faster; the busiest rank has more rows to wait for where routing is natural.
  BOOST_TEST(*run.conditions[0].ratio < 1);
  BOOST_TEST(*run.conditions[4].ratio > 1);
  // All of the difference is accounted for.
  BOOST_TEST(run.estimate.predicted_tokens_per_s * product_of(run.conditions) ==
                 run.moved_tokens_per_s.value_or(0),
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(says(to_text(like), "GPUs 64 -> 16: "), to_text(like));
}

// With 16 replicas a step of 8 sequences is illegal until its sequences are those of the command.
BOOST_AUTO_TEST_CASE(a_figure_says_what_it_holds_beside_its_own) {
  const Command command;
  const LikeRuns like = command.beside(json::array({row_with("small", [](json& row) {
    row["world_size"] = 8;
    row["global_batch_size"] = 8;
  })}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const std::vector<Condition>& conditions = like.runs[0].conditions;
  BOOST_TEST_REQUIRE(conditions.size() >= 2);
  BOOST_TEST(conditions[0].what == "GPUs");
  BOOST_TEST(!conditions[0].ratio.has_value());
  BOOST_TEST(conditions[1].what == "sequences of a step");
  BOOST_TEST_REQUIRE(conditions[1].ratio.has_value());
  BOOST_TEST(conditions[1].why == "together with the 1 before it");
  BOOST_TEST(says(to_text(like), ", together with the 1 before it"), to_text(like));
  for (size_t i = 2; i < conditions.size(); ++i) BOOST_TEST(conditions[i].why == "");
}

BOOST_AUTO_TEST_CASE(another_engine_is_told) {
  const auto notes_of = [](const char* software) {
    const LikeRuns like = Command().beside(
        json::array({row_with("flat", [&](json& row) { row["software"]["name"] = software; })}));
    BOOST_TEST_REQUIRE(like.runs.size() == 1);
    return like.runs[0].notes.size();
  };
  BOOST_TEST(notes_of("Megatron-LM") == 0U);
  BOOST_TEST(notes_of("NeMo AutoModel") == 1U);
  // Nor are there steps between a command of torchtitan and a row.
  Command titan;
  titan.owned.run.is_of_megatron = false;
  const LikeRuns like = titan.beside(json::array({row_with("flat")}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  BOOST_TEST(like.runs[0].notes.size() == 1U);
  BOOST_TEST(like.runs[0].path.empty());
  BOOST_TEST(like.runs[0].changes.empty());
}

// Experts on 16 ranks are not legal on 8: what of it can be taken over is told change by change.
BOOST_AUTO_TEST_CASE(a_layout_that_is_illegal_there_says_why) {
  const LikeRuns like = Command(kCommand, 8).beside(json::array({row_with("wide", [](json& row) {
    row["ep"] = 16;
  })}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const LikeRun& run = like.runs[0];
  BOOST_TEST(!run.moved_tokens_per_s.has_value());
  BOOST_TEST(!run.broken_rule.empty());
  BOOST_TEST(!run.rule_text.empty());
  BOOST_TEST(run.path.empty());
  BOOST_TEST(!run.changes.empty());
  const std::string text = to_text(like);
  BOOST_TEST(says(text, "its layout is not legal for yours: " + run.broken_rule), text);
  BOOST_TEST(says(text, "from yours to its layout, each change alone:\n"), text);
  BOOST_TEST(says(text, "--expert-model-parallel-size 16"), text);
  BOOST_TEST_REQUIRE(run.conditions.size() == 1);
  BOOST_TEST(run.conditions[0].what == "GPUs");
  BOOST_TEST(!run.conditions[0].ratio.has_value());
  BOOST_TEST(!run.conditions[0].why.empty());
}

// Rows are somebody's.
BOOST_AUTO_TEST_CASE(texts_of_rows_stay_on_their_line) {
  const LikeRuns like = Command().beside(json::array({row_with("flat", [](json& row) {
    row["id"] = "id\x1b[31m\nfake: line";
    row["source"] = "source\r\nfake: line";
    row["software"]["date"] = "2026-06\n\x07";
  })}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const std::string text = to_text(like);
  BOOST_TEST(!says(text, "\x1b"));
  BOOST_TEST(!says(text, "\x07"));
  BOOST_TEST(!says(text, "\nfake"), text);
  // Nor are they as long as they like.
  const std::string endless(100'000, 'x');
  const LikeRuns filled =
      Command().beside(json::array({row_with("flat",
                                             [&](json& row) {
                                               row["id"] = row["source"] = endless;
                                               row["software"]["name"] =
                                                   row["software"]["version"] = endless;
                                               row["software"]["date"] = "2025-09" + endless;
                                             }),
                                    row_with("suspect", [&](json& row) {
                                      row["id"] = endless;
                                      row["suspect"] = true;
                                    })}));
  BOOST_TEST_REQUIRE(filled.runs.size() == 1);
  BOOST_TEST(like_run_title(filled.runs[0].row).size() < 1000);
  json document;
  add_like_runs(filled, document);
  for (const char* key : {"id", "source", "software", "date"}) {
    BOOST_TEST(document["published"][0][key].get<std::string>().size() < 200, key);
  }
  BOOST_TEST(document["published_left_out"][0]["id"].get<std::string>().size() < 200);
  BOOST_TEST(document["published"][0]["conditions"].dump().size() < 2000);
}

BOOST_AUTO_TEST_CASE(speeds_of_any_size_have_few_digits) {
  const auto speed_of = [](double tokens_per_s) {
    const LikeRuns like = Command().beside(json::array(
        {row_with("flat", [&](json& row) { row["tokens_per_s_per_gpu"] = tokens_per_s; })}));
    BOOST_TEST_REQUIRE(like.runs.size() == 1);
    return like_run_speed(like.runs[0]) + "; " + like_run_share(like, like.runs[0]);
  };
  BOOST_TEST(says(speed_of(9000.4), "published 9000 tokens/s"), speed_of(9000.4));
  BOOST_TEST(says(speed_of(0.0123), "published 0.0123 tokens/s"), speed_of(0.0123));
  BOOST_TEST(says(speed_of(1.5e17), "published 1.5e+17 tokens/s"), speed_of(1.5e17));
  for (const double tokens_per_s : {1e-9, 0.5, 1e12, 1e18}) {
    BOOST_TEST(speed_of(tokens_per_s).size() < 200, speed_of(tokens_per_s));
  }
}

// One rule that several conditions break is said once.
BOOST_AUTO_TEST_CASE(a_rule_is_said_once) {
  const LikeRuns like = Command(kCommand, 8).beside(json::array({row_with("wide", [](json& row) {
    row["ep"] = 16;
    row["seq_length"] = 8192;
    row["global_batch_size"] = 512;
  })}));
  BOOST_TEST_REQUIRE(like.runs.size() == 1);
  const LikeRun& run = like.runs[0];
  BOOST_TEST_REQUIRE(run.conditions.size() == 3);
  const std::string& first = run.conditions[0].why;
  BOOST_TEST(says(first, run.rule_text), first);
  for (size_t i = 1; i < run.conditions.size(); ++i) {
    BOOST_TEST(run.conditions[i].why == run.broken_rule + ", as above");
  }
  BOOST_TEST(moved_text(like, run) ==
             "its layout is not legal for yours: " + run.broken_rule + ", as above");
}

BOOST_FIXTURE_TEST_CASE(a_plan_shows_published_runs, Cli) {
  const std::string rows = folder.file("rows.json");
  const std::string page = folder.file("plan.html");
  tests::write_text(rows,
                    json::array({row_with("flat<script>alert(1)</script>",
                                          [](json& row) {
                                            row["tflops_per_gpu"] = 210;
                                            row["source"] = "<img src=x onerror=alert(1)>";
                                          }),
                                 row_with("wide",
                                          [](json& row) {
                                            row["ep"] = 32;
                                            row["world_size"] = 32;
                                          }),
                                 row_with("suspect", [](json& row) { row["suspect"] = true; })})
                        .dump());
  std::vector<std::string> words = {"plan", "--model", kModel, "--hardware",  kMachine, "--gpus",
                                    "16",   "--top",   "1",    "--published", rows,     "--fix",
                                    "tp=1", "--fix",   "pp=1", "--fix",       "cp=1"};
  // Beside the first plan: no steps, as it is nobody's command.
  std::vector<std::string> without = words;
  without.insert(without.end(), {"--format", "json"});
  const Answer alone = run(without);
  BOOST_TEST_REQUIRE(alone.code == 0, alone.err);
  const json of_plan = json::parse(alone.out);
  BOOST_TEST_REQUIRE(of_plan["published"].size() == 2);
  BOOST_TEST(of_plan["published"][0]["path"].empty());
  BOOST_TEST(of_plan["published"][0]["share_ratio"].get<double>() ==
                 of_plan["plans"][0]["tokens_per_s_per_gpu"].get<double>() / 9000,
             boost::test_tools::tolerance(1e-9));
  // Beside a command: its flags.
  words.insert(words.end(), {"--against", kCommand, "--report", page, "--format", "json"});
  const Answer answer = run(words);
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST_REQUIRE(document["published"].size() == 2);
  const json& first = document["published"][0];
  BOOST_TEST(first["id"] == "flat<script>alert(1)</script>");
  BOOST_TEST(first["published_tokens_per_s_per_gpu"] == 9000);
  BOOST_TEST(says(first["path"].dump(), "--tensor-model-parallel-size 1"), first["path"].dump());
  BOOST_TEST(document["published"][1]["broken_rule"].is_string());
  BOOST_TEST(says(document["published_note"].get<std::string>(), "1 suspect"));
  BOOST_TEST(document["published_left_out"].size() == 1U);
  tests::check_printed("plan", {document},
                       [](const std::string& key) { return key.starts_with("published"); });
  const std::string html = tests::read_text(page);
  BOOST_TEST(says(html, "<section id=\"published\""));
  BOOST_TEST(says(html, "flat&lt;script&gt;alert(1)&lt;/script&gt;"));
  BOOST_TEST(!says(html, "<script>alert(1)"));
  BOOST_TEST(!says(html, "<img src=x"));
  // A command alone has the same beside it.
  const Answer estimate = run({"estimate", "--run", kCommand, "--model", kModel, "--hardware",
                               kMachine, "--gpus", "16", "--published", rows, "--format", "json"});
  BOOST_TEST_REQUIRE(estimate.code == 0, estimate.err);
  BOOST_TEST((json::parse(estimate.out)["published"] == document["published"]));
  check_refused({"estimate", "--rows", rows, "--published", rows}, 2, {"--published", "--run"});
  // A file that cannot be read is refused before anything is searched.
  check_refused({"plan", "--model", kModel, "--hardware", kMachine, "--published", page}, 2,
                {"plan.html"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
