// Rows of measured runs and the commands that price them: accuracy on published rows, hostile rows,
// plan, estimate, import, export and calibrate as people type them.
#include <fmt/format.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>

#include "engine/spec/pipeline_layout.h"
#include "kernels/base/error.h"
#include "sweeps/planning/accuracy.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/row_files.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;
using tests::Answer;
using tests::Cli;

namespace {

std::string rows_file() {
  return std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json";
}

json rows_document() {
  std::ifstream file(rows_file());
  return json::parse(file);
}

const json& row_of(const json& document, const std::string& id) {
  for (const json& row : document["rows"]) {
    if (row["id"] == id) return row;
  }
  throw base::Error("no row " + id);
}

/// On 16 devices.
constexpr const char* kCommand =
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 1 "
    "--global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
    "--moe-token-dispatcher-type alltoall --lr 3e-4";

/// What only some plans have: played steps, what misses, other batches, published runs.
bool is_of_played(const std::string& key) { return key.find("played") != std::string::npos; }
bool is_of_misses(const std::string& key) {
  return key.starts_with("nearest_misses") || key.starts_with("ways_out");
}
bool is_of_batches(const std::string& key) {
  return key.starts_with("batches") || key == "smallest_good_batch";
}
bool is_of_published(const std::string& key) { return key.starts_with("published"); }

}  // namespace

BOOST_AUTO_TEST_SUITE(planning)

BOOST_AUTO_TEST_CASE(published_memory_is_predicted) {
  const json document = estimate_rows(load_rows(rows_file()), default_calibration());
  const json& memory = document["summary"]["memory_error_ratio"];
  BOOST_TEST_REQUIRE(memory["count"].get<int>() >= 40);
  BOOST_TEST(memory["mean"].get<double>() < 0.03, memory.dump());
  BOOST_TEST(memory["median"].get<double>() < 0.02, memory.dump());
  BOOST_TEST(memory["worst"].get<double>() < 0.1, memory.dump());
  // No run that was published as running is called impossible, and few are close.
  BOOST_TEST(document["summary"]["num_running_called_oom"] == 0);
  BOOST_TEST(5 * document["summary"]["num_tight"].get<int>() <=
             document["summary"]["num_rows"].get<int>());
}

BOOST_AUTO_TEST_CASE(published_throughput_is_predicted) {
  const json document = estimate_rows(load_rows(rows_file()), default_calibration());
  const json& time = document["summary"]["throughput_log_error"];
  BOOST_TEST_REQUIRE(time["count"].get<int>() >= 35);
  BOOST_TEST(time["median"].get<double>() < 0.08, time.dump());
  for (const json& row : document["rows"]) {
    if (!row["supported"].get<bool>()) continue;
    for (const char* key : {"step_time_ns", "tflops_per_gpu", "peak_allocated_bytes"}) {
      const auto value = row[key].get<double>();
      BOOST_TEST(row[std::string(key) + "_low"].get<double>() <= value);
      BOOST_TEST(row[std::string(key) + "_high"].get<double>() >= value);
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_of_the_reference_collection) {
  const std::string path =
      std::string(MOETUNE_SOURCE_DIR) + "/../shared/reference/published_runs.json";
  if (!std::filesystem::exists(path)) {
    BOOST_TEST_MESSAGE("skipped: the collection of published runs is not here");
    return;
  }
  const json document = estimate_rows(load_rows(path), default_calibration());
  const json& summary = document["summary"];
  BOOST_TEST(summary["memory_error_ratio"]["mean"].get<double>() < 0.03);
  BOOST_TEST(summary["throughput_log_error"]["median"].get<double>() < 0.08);
  BOOST_TEST(summary["order"]["tau"].get<double>() > 0.8);
  BOOST_TEST(summary["order"]["tau_of_different"].get<double>() >=
             summary["order"]["tau"].get<double>());
  BOOST_TEST(summary["num_running_called_oom"] == 0);
  BOOST_TEST(summary["num_priceable_supported"].get<double>() >=
             0.95 * summary["num_priceable"].get<double>());
}

struct Hostile {
  const char* name;
  void (*change)(json& row);
  const char* reason;  ///< part of it
};
std::ostream& operator<<(std::ostream& out, const Hostile& row) { return out << row.name; }

const Hostile kHostile[] = {
    {"no object", [](json& row) { row = 7; }, "is no object"},
    {"no model", [](json& row) { row.erase("model"); }, "states no model"},
    {"a model without layers", [](json& row) { row["model"].erase("num_hidden_layers"); },
     "num_hidden_layers"},
    {"a huge model", [](json& row) { row["model"]["hidden_size"] = int64_t{1} << 60; },
     "hidden_size"},
    {"a negative size", [](json& row) { row["tp"] = -2; }, "'tp' is not"},
    {"half a rank", [](json& row) { row["pp"] = 1.5; }, "'pp' is not"},
    {"a size as text", [](json& row) { row["ep"] = "eight"; }, "'ep' is not"},
    {"sizes that do not multiply", [](json& row) { row["tp"] = 7; }, "are not world_size"},
    {"a machine that is not known", [](json& row) { row["hardware"] = "abacus"; }, "has no file"},
    {"a precision that is not known", [](json& row) { row["precision"] = "fp2"; }, "fp2"},
    {"no sequence", [](json& row) { row.erase("seq_length"); }, "seq_length"},
    {"a layout of other layers", [](json& row) { row["pipeline_layout"] = "Et|tL"; }, "layers"},
    {"a layout that is none", [](json& row) { row["pipeline_layout"] = "E(t|"; }, ""},
    {"a split of other layers",
     [](json& row) {
       row.erase("pipeline_layout");
       row["pipeline_split"] = {1, 2};
     },
     "add up"},
    {"endless devices", [](json& row) { row["world_size"] = 1e300; }, "world_size"},
    {"lists for texts",
     [](json& row) {
       row["recompute"] = {1, 2};
       row["optimizer"] = {3};
       row["software"] = "x";
       row["tp"] = json::array();
     },
     "'tp' is not"},
};

BOOST_DATA_TEST_CASE(a_hostile_row_has_a_reason, data::make(kHostile), hostile) {
  json rows = rows_document();
  json one = json::array({rows[0]});
  hostile.change(one[0]);
  const std::vector<PublishedRow> read = published_rows_of(one, "test");
  BOOST_TEST_REQUIRE(read.size() == 1);
  BOOST_TEST(!read[0].reason.empty());
  BOOST_TEST(read[0].reason.find(hostile.reason) != std::string::npos, read[0].reason);
  const json document = estimate_rows(read, default_calibration());
  BOOST_TEST(document["rows"][0]["supported"] == false);
}

BOOST_FIXTURE_TEST_CASE(estimate_prints_documented_keys, Cli) {
  const Answer answer = run({"estimate", "--rows", rows_file(), "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  const json& row = row_of(document, "skill-001");
  BOOST_TEST(row["published_peak_allocated_bytes"].is_number());
  std::vector<json> documents = {document};
  const std::vector<std::vector<std::string>> others = {
      {"estimate", spec, "--format", "json"},
      {"estimate", "--run", kCommand, "--model", "qwen3-30b-a3b", "--hardware", "h100-80g",
       "--gpus", "16", "--format", "json"}};
  for (const std::vector<std::string>& words : others) {
    const Answer other = run(words);
    BOOST_TEST_REQUIRE(other.code == 0, other.err);
    documents.push_back(json::parse(other.out));
  }
  tests::check_printed("estimate", documents, std::not_fn(is_of_published));
}

BOOST_FIXTURE_TEST_CASE(plan_finds_plans_and_says_why, Cli) {
  const std::vector<std::string> words = {
      "plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16"};
  std::vector<std::string> with_json = words;
  with_json.insert(with_json.end(), {"--format", "json"});
  const Answer answer = run(with_json);
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST(document["plans"].size() == 10);
  BOOST_TEST(document["num_fit"].get<int64_t>() > 0);
  BOOST_TEST(document["plans"][0]["knobs"]["ep"].is_number());
  // Beside a plan that fits stands nothing that does not, and the margin that says so.
  constexpr double kBesidePyTorch = 2.5 * (1 << 30);
  for (const json& plan : document["plans"]) {
    const auto bytes = [&](const char* key) { return plan[key].get<double>(); };
    const double buffers = plan["memory_parts_bytes"]["exchange_buffers"].get<double>();
    const double peak = bytes("peak_allocated_bytes") + bytes("graph_pool_bytes") + buffers;
    BOOST_TEST(plan["verdict"] == "fits");
    BOOST_TEST(std::abs(bytes("margin_bytes") - 0.02 * peak - kBesidePyTorch) < 10);
    BOOST_TEST(bytes("left_bytes") >= 0);
    const double device = peak + bytes("margin_bytes") + bytes("left_bytes");
    BOOST_TEST(bytes("peak_reserved_bytes") + buffers <= device, plan.dump());
  }
  const Answer text = run(words);
  BOOST_TEST(text.out.find("memory of the first") != std::string::npos);
  BOOST_TEST(text.out.find("\n  peak, allocated ") != std::string::npos);
  BOOST_TEST(text.out.find("\"fits\" keeps ") != std::string::npos, text.out);
  BOOST_TEST(text.out.find("no global batch is given: ") != std::string::npos, text.out);
  BOOST_TEST(text.out.find("the busiest rank's experts receive 1.00") != std::string::npos);
  BOOST_TEST(text.out.find("(2 % for fragments, 2.50 GiB for CUDA's context") != std::string::npos);
}

// Other batches are priced with the first plan's layout. The answer is for the usual one.
BOOST_FIXTURE_TEST_CASE(a_plan_without_a_batch_looks_at_several, Cli) {
  const std::string path = folder.file("plan.html");
  const Answer answer =
      run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16", "--fix",
           "pp=1", "--fix", "tp=1", "--report", path, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  const std::string page = tests::read_text(path);
  tests::check_printed("plan", {document}, is_of_batches);
  const json& first = document["plans"][0];
  const int64_t unit =
      first["knobs"]["dp"].get<int64_t>() * first["knobs"]["micro_batch_size"].get<int64_t>();
  double most = 0;
  int num_planned = 0;
  for (const json& batch : document["batches"]) {
    const auto size = batch["global_batch_size"].get<int64_t>();
    const auto speed = batch["tokens_per_s_per_gpu"].get<double>();
    BOOST_TEST(size % unit == 0);
    BOOST_TEST(batch["tokens"] == size * 4096);
    // The larger the batch, the less the update costs.
    BOOST_TEST(speed > most);
    BOOST_TEST(page.find(fmt::format("data-value=\"{}\">{}</td>", size, size)) !=
               std::string::npos);
    most = std::max(most, speed);
    if (batch["is_planned"] == false) continue;
    ++num_planned;
    BOOST_TEST(size == 1024);  // four million tokens
    BOOST_TEST(speed == first["tokens_per_s_per_gpu"].get<double>(),
               boost::test_tools::tolerance(1e-9));
  }
  BOOST_TEST(document["batches"].size() == 5U);
  BOOST_TEST(num_planned == 1);
  const json* smallest = nullptr;
  for (const json& batch : document["batches"]) {
    const bool is_good = batch["tokens_per_s_per_gpu"].get<double>() >= 0.98 * most;
    if (is_good && smallest == nullptr) smallest = &batch;
  }
  BOOST_TEST_REQUIRE(smallest != nullptr);
  BOOST_TEST(document["smallest_good_batch"] == (*smallest)["global_batch_size"]);
  BOOST_TEST(page.find(fmt::format("within 2 % of the fastest of these is {}",
                                   (*smallest)["global_batch_size"].get<int64_t>())) !=
             std::string::npos);
}

/// The data of a chart in a page.
json chart_of(const std::string& page, const std::string& name) {
  const std::string mark = "id=\"data-" + name + "\">";
  const size_t start = page.find(mark);
  BOOST_REQUIRE_MESSAGE(start != std::string::npos, "no data of " << name);
  const size_t from = start + mark.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

BOOST_FIXTURE_TEST_CASE(the_report_of_a_plan_says_what_its_json_says, Cli) {
  const std::string path = folder.file("plan.html");
  const std::string trace = folder.file("step.json");
  const Answer answer =
      run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16", "--gbs",
           "64", "--report", path, "--trace-out", trace, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  const std::string page = tests::read_text(path);
  BOOST_TEST(page.find("qwen3-30b-a3b on 16 × ") != std::string::npos);
  BOOST_TEST(page.find(folder.file("")) == std::string::npos);
  const json& first = document["plans"][0];
  const json front = chart_of(page, "front");
  BOOST_TEST(front["first"]["tokens"] == first["tokens_per_s_per_gpu"]);
  const auto buffers = first["memory_parts_bytes"]["exchange_buffers"].get<int64_t>();
  const int64_t beside = buffers + first["graph_pool_bytes"].get<int64_t>();
  const auto allocated = first["peak_allocated_bytes"].get<int64_t>();
  BOOST_TEST(beside > 0);
  BOOST_TEST(std::abs(front["first"]["bytes"].get<int64_t>() - allocated - beside) < 10);
  const json space = chart_of(page, "space");
  double most = 0;
  int64_t num_legal = 0;
  for (size_t i = 0; i < space["tokens"].size(); ++i) {
    most = std::max(most, space["tokens"][i].get<double>());
    num_legal += space["legal"][i].get<int64_t>();
  }
  BOOST_TEST(most == first["tokens_per_s_per_gpu"].get<double>(),
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(num_legal == document["num_legal"].get<int64_t>());
  const json memory = chart_of(page, "memory");
  int64_t worst = 0;
  for (const json& stage : memory["trials"][0]["ranks"]) {
    int64_t sum = 0;
    for (const json& bytes : stage["predicted"]) sum += bytes.get<int64_t>();
    worst = std::max(worst, sum);
  }
  // Each term is rounded. Buffers of the dispatcher are shown, and not allocated by PyTorch.
  BOOST_TEST(std::abs(worst - beside - allocated) < 10);
  tests::check_printed("plan", {document}, is_of_played);
  BOOST_TEST(!document.contains("batches"));  // one is given
  BOOST_TEST(page.find("<section id=\"batches\"") == std::string::npos);
  BOOST_TEST(chart_of(page, "timeline")["step"] == document["played"]["step_time_ns"]);
  BOOST_TEST(chart_of(page, "budget")["trials"][0]["step"] == document["played"]["step_time_ns"]);
  BOOST_TEST(!json::parse(tests::read_text(trace))["traceEvents"].empty());
  // The search for the page finds the same plans.
  const Answer without = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g",
                              "--gpus", "16", "--gbs", "64", "--format", "json"});
  // A page has steps played, the answer without one has not.
  json plans = document["plans"];
  BOOST_TEST(plans[0].contains("played_step_time_ns"));
  for (json& plan : plans) {
    plan.erase("played_step_time_ns");
    plan.erase("played_wall");
  }
  BOOST_TEST(json::parse(without.out)["plans"] == plans);
}

BOOST_FIXTURE_TEST_CASE(a_report_where_nothing_fits_names_ways_out, Cli) {
  const std::string path = folder.file("plan.html");
  const Answer answer = run({"plan", "--model", "deepseek_v3", "--hardware", "h100-80g", "--gpus",
                             "8", "--seq", "131072", "--report", path, "--format", "json"});
  BOOST_TEST(answer.code == 1);
  const json document = json::parse(answer.out);
  const std::string page = tests::read_text(path);
  BOOST_TEST(page.find("Nothing fits on 8 devices") != std::string::npos);
  BOOST_TEST_REQUIRE(!document["ways_out"].empty());
  tests::check_printed("plan", {document}, is_of_misses);
  for (const json& way : document["ways_out"]) {
    // Apostrophes are escaped there.
    const auto what = way["what"].get<std::string>();
    BOOST_TEST(page.find(what.substr(0, what.find('\''))) != std::string::npos, what);
  }
}

BOOST_FIXTURE_TEST_CASE(ways_out_say_how_much_less_is_missing, Cli) {
  const std::vector<std::string> words = {"plan",     "--model", "llama3-70b", "--hardware",
                                          "h100-80g", "--gpus",  "8"};
  std::vector<std::string> with_json = words;
  with_json.insert(with_json.end(), {"--format", "json"});
  const json document = json::parse(run(with_json).out);
  const auto before = document["nearest_misses"][0]["missing_bytes"].get<double>();
  BOOST_TEST_REQUIRE(!document["ways_out"].empty());
  // Half the sequence would free a hundredth of what is missing, which helps nobody.
  for (const json& way : document["ways_out"]) {
    BOOST_TEST(way["missing_bytes"].get<double>() <= 0.99 * before, way.dump());
  }
  const Answer answer = run(words);
  BOOST_TEST(answer.code == 1);
  BOOST_TEST(
      std::regex_search(
          answer.out,
          std::regex(R"(16 bits \(--fix main_grads=bf16 --fix precision_aware_optimizer=true\): )"
                     R"([0-9.]+ GiB missing, )"
                     R"([0-9.]+ GiB less\n)")),
      answer.out);
}

// 61 layers and one of multi-token prediction divide into nothing.
BOOST_FIXTURE_TEST_CASE(plans_of_uneven_stages_say_a_layout_that_can_be_run, Cli) {
  const std::vector<std::string> words = {
      "plan",  "--model", "deepseek-v3", "--hardware", "gb300-nvl72", "--gpus", "64",
      "--fix", "pp=16",   "--fix",       "tp=1",       "--top",       "3"};
  std::vector<std::string> with_json = words;
  with_json.insert(with_json.end(), {"--format", "json"});
  const Answer answer = run(with_json);
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  for (const json& plan : document["plans"]) {
    const auto stages = spec::pipeline_stages_of(plan["pipeline_layout"].get<std::string>());
    BOOST_TEST(stages.size() == 16 * plan["knobs"]["vpp"].get<size_t>());
    std::string letters;
    for (const std::string& stage : stages) letters += stage;
    BOOST_TEST(letters == "E" + std::string(61, 't') + "mL");
  }
  std::vector<std::string> with_flags = words;
  with_flags.insert(with_flags.end(), {"--export", "megatron-lm"});
  const Answer exported = run(with_flags);
  BOOST_TEST_REQUIRE(exported.code == 0, exported.err);
  const json& first = document["plans"][0];
  const std::string layout = first["pipeline_layout"];
  BOOST_TEST(exported.out.find("stages " + layout) != std::string::npos, exported.out);
  const size_t command = exported.out.find("torchrun");
  BOOST_TEST_REQUIRE(command != std::string::npos, exported.out);
  const Answer imported = run({"import", exported.out.substr(command), "--gpus", "64"});
  BOOST_TEST_REQUIRE(imported.code == 0, imported.err);
  BOOST_TEST(json::parse(imported.out)["pipeline_layout"] == layout);
  BOOST_TEST(json::parse(imported.out)["knobs"]["vpp"] == first["knobs"]["vpp"]);
}

BOOST_FIXTURE_TEST_CASE(plan_tells_what_is_missing, Cli) {
  const Answer answer = run({"plan", "--model", "deepseek_v3", "--hardware", "h100-80g", "--gpus",
                             "8", "--seq", "131072"});
  BOOST_TEST(answer.code == 1);
  BOOST_TEST(answer.out.find("nothing fits: ") != std::string::npos, answer.out);
  BOOST_TEST(answer.out.find("GiB are missing") != std::string::npos, answer.out);
}

BOOST_FIXTURE_TEST_CASE(plan_is_set_against_a_command, Cli) {
  const Answer answer =
      run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16",
           "--against", kCommand, "--export", "megatron-lm", "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  const json& changes = document["against"]["changes"];
  BOOST_TEST(!changes.empty());
  bool has_tp = false;
  for (const json& change : changes) has_tp = has_tp || change["knob"] == "tp";
  BOOST_TEST(has_tp);
  tests::check_printed("plan", {document}, [](const std::string& key) {
    return !(is_of_played(key) || is_of_misses(key) || is_of_batches(key) || is_of_published(key));
  });
  // A command that starts has the model's sizes.
  const auto exported = document["exported"].get<std::string>();
  for (const char* words : {"--num-layers 48", "--hidden-size 2048", "--num-experts 128"}) {
    BOOST_TEST(exported.find(words) != std::string::npos, exported);
  }
  // Megatron-LM has no chunked loss: a plan for it has none either.
  BOOST_TEST(document["plans"][0]["knobs"]["cross_entropy"] != "chunked");
}

BOOST_FIXTURE_TEST_CASE(what_is_fixed_leaves_the_rest_of_the_command, Cli) {
  const std::string command = std::string(kCommand) +
                              " --use-precision-aware-optimizer --exp-avg-dtype bf16"
                              " --exp-avg-sq-dtype bf16";
  const Answer answer = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus",
                             "16", "--against", command, "--fix", "pp=1", "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json knobs = json::parse(answer.out)["plans"][0]["knobs"];
  BOOST_TEST(knobs["pp"] == 1);
  BOOST_TEST(knobs["exp_avg"] == "bf16");
}

BOOST_FIXTURE_TEST_CASE(runs_are_translated, Cli) {
  const std::string command =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel "
      "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16";
  const Answer imported = run({"import", command, "--gpus", "8"});
  BOOST_TEST_REQUIRE(imported.code == 0, imported.err);
  BOOST_TEST(json::parse(imported.out)["knobs"]["tp"] == 2);
  tests::check_documented("import", imported.out);
  const Answer exported = run({"export", command, "--gpus", "8", "--format", "primus"});
  BOOST_TEST_REQUIRE(exported.code == 0, exported.err);
  BOOST_TEST(exported.out.find("tensor_model_parallel_size: 2") != std::string::npos, exported.out);
}

// What it says of a run is what docs/formats.md says of it: with all that it has lists of, and
// none.
BOOST_FIXTURE_TEST_CASE(import_prints_documented_keys, Cli) {
  const Answer answer =
      run({"import",
           std::string("CUDA_DEVICE_MAX_CONNECTIONS=1 ") + kCommand +
               " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --manual-gc",
           "--gpus", "16"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST(document["unknown"].size() == 1);
  BOOST_TEST(document["unknown"][0]["key"] == "--lr");
  BOOST_TEST(document["not_priced"][0]["key"] == "--manual-gc");
  BOOST_TEST(document["environment"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1");
  BOOST_TEST(document["model"]["num_hidden_layers"] == 4);
  tests::check_documented("import", answer.out);
  tests::check_printed("import", {document});
}

// What nobody knows, and what is known and moves no figure, is named in text and JSON, and goes
// along where the plan is written in the same words.
BOOST_FIXTURE_TEST_CASE(settings_that_move_nothing_are_named, Cli) {
  const std::string command = std::string(kCommand) + " --manual-gc --moe-shared-expert-overlap";
  const std::vector<std::string> machine = {"--model",  "qwen3-30b-a3b", "--hardware",
                                            "h100-80g", "--gpus",        "16"};
  const auto answer_of = [&](std::vector<std::string> words) {
    words.insert(words.end(), machine.begin(), machine.end());
    const Answer answer = run(words);
    BOOST_TEST(answer.code == 0, answer.err);
    return answer.out;
  };
  const json row =
      json::parse(answer_of({"estimate", "--run", command, "--format", "json"}))["rows"][0];
  BOOST_TEST(row["not_priced_settings"] ==
             json::array({"--manual-gc", "--moe-shared-expert-overlap"}));
  BOOST_TEST(row["num_not_priced_settings"] == 2);
  BOOST_TEST(row["unknown_settings"] == json::array({"--lr"}));
  BOOST_TEST(row["num_unknown_settings"] == 1);
  const std::string text = answer_of({"estimate", "--run", command});
  BOOST_TEST(text.find("known, but not priced: --manual-gc, --moe-shared-expert-overlap\n") !=
                 std::string::npos,
             text);
  BOOST_TEST(text.find("not known, and not priced: --lr\n") != std::string::npos, text);
  const std::string plan = answer_of(
      {"plan", "--against", command, "--fix", "pp=1", "--fix", "ep=8", "--export", "megatron-lm"});
  BOOST_TEST(plan.find("not known, and not priced: --lr\n") != std::string::npos, plan);
  const size_t exported = plan.find("torchrun");
  BOOST_TEST_REQUIRE(exported != std::string::npos, plan);
  BOOST_TEST(plan.find("--lr 3e-4", exported) != std::string::npos, plan);
  BOOST_TEST(plan.find("--manual-gc", exported) != std::string::npos, plan);
}

// HybridEP has to be told which ranks NVLink joins.
BOOST_FIXTURE_TEST_CASE(a_plan_with_hybridep_says_its_domain, Cli) {
  const Answer answer =
      run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16", "--fix",
           "dispatcher=hybridep", "--fix", "ep=16", "--top", "1", "--export", "megatron-lm"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  for (const char* words :
       {"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=8", "NVLINK_DOMAIN_SIZE=8", "USE_MNNVL=0"}) {
    BOOST_TEST(answer.out.find(words) != std::string::npos, answer.out);
  }
}

// torchtitan has no words for most of Megatron's choices, and takes FSDP2 beside stages.
BOOST_FIXTURE_TEST_CASE(a_plan_has_the_words_of_its_framework, Cli) {
  const std::vector<std::string> words = {"plan",       "--model",  "qwen3-30b-a3b",
                                          "--hardware", "h100-80g", "--gpus",
                                          "16",         "--format", "json"};
  const auto plans_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = words;
    line.insert(line.end(), more.begin(), more.end());
    const Answer answer = run(line);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  };
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--export", "torchtitan"},
        std::vector<std::string>{"--export", "torchtitan", "--fix", "pp=2"},
        std::vector<std::string>{
            "--against",
            "--parallelism.pipeline_parallel_degree 2 --parallelism.expert_parallel_degree 8 "
            "--parallelism.data_parallel_shard_degree -1 --training.local_batch_size 16 "
            "--training.global_batch_size 128 --training.seq_len 4096 "
            "--activation_checkpoint.mode full"}}) {
    const json document = plans_with(more);
    BOOST_TEST_REQUIRE(!document["plans"].empty());
    for (const json& plan : document["plans"]) {
      const json& knobs = plan["knobs"];
      // One rank has nobody to share with.
      const bool has_copies = knobs["dp"].get<int>() * knobs["cp"].get<int>() > 1;
      BOOST_TEST(knobs["fsdp"] == (has_copies ? "torch" : "none"), knobs.dump());
      BOOST_TEST(knobs["dispatcher"] != "hybridep");
      BOOST_TEST(knobs["cuda_graphs"] == "none");
      BOOST_TEST(knobs["overlap_moe_expert_parallel_comm"] == false);
      BOOST_TEST((knobs["recompute"] == "none" || knobs["recompute"] == "full"));
      BOOST_TEST(plan["pipeline_layout"].is_null());
    }
    if (document.contains("exported")) {
      const auto exported = document["exported"].get<std::string>();
      BOOST_TEST(exported.find("cannot be told") == std::string::npos, exported);
    }
  }
}

BOOST_FIXTURE_TEST_CASE(hybridep_is_refused_where_it_does_not_run, Cli) {
  const std::string command =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 1 --expert-model-parallel-size 8 "
      "--micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --bf16 "
      "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep";
  check_refused({"estimate", "--run", command, "--model", "qwen3-30b-a3b", "--hardware", "mi300x",
                 "--gpus", "16"},
                2, {"dispatcher_of_machine", "HybridEP"});
  json row = rows_document()[0];
  row["hardware"] = "MI300X";
  row["dispatcher"] = "hybridep";
  const std::vector<PublishedRow> rows = published_rows_of(json::array({row}), "test");
  BOOST_TEST(rows.at(0).reason.find("has no HybridEP") != std::string::npos, rows.at(0).reason);
}

// A trial of our engine: the memory that each rank's program says.
BOOST_FIXTURE_TEST_CASE(a_trial_is_estimated_by_its_program, Cli) {
  const Answer answer = run({"estimate", spec, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json row = json::parse(answer.out)["rows"][0];
  int64_t highest = 0;
  int64_t fullest = -1;
  for (int64_t rank = 0; rank < tests::small_trial().hardware.num_devices(); ++rank) {
    const Answer program =
        run({"program", spec, "--rank", std::to_string(rank), "--format", "json"});
    BOOST_TEST_REQUIRE(program.code == 0, program.err);
    const auto peak = json::parse(program.out)["peak_bytes"].get<int64_t>();
    if (peak <= highest) continue;
    highest = peak;
    fullest = rank;
  }
  BOOST_TEST(row["peak_allocated_bytes"] == highest);
  BOOST_TEST(row["worst_rank"] == fullest);
  int64_t groups = 0;
  for (const json& bytes : row["memory_parts_bytes"]) groups += bytes.get<int64_t>();
  BOOST_TEST(groups == highest);
  int64_t parts = 0;
  for (const json& ns : row["step_parts_ns"]) parts += ns.get<int64_t>();
  BOOST_TEST(row["step_time_ns"] == parts);
  BOOST_TEST(row["step_time_ns"].get<int64_t>() > 0);
  const Answer text = run({"estimate", spec});
  BOOST_TEST(text.code == 0);
  BOOST_TEST(text.out.find(" a step (") != std::string::npos, text.out);
}

// A file of several nodes is a cluster: all of it is planned for.
BOOST_FIXTURE_TEST_CASE(a_cluster_of_ones_own_is_planned_as_a_whole, Cli) {
  const Answer all = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-8x8", "--format",
                          "json", "--top", "1"});
  BOOST_TEST_REQUIRE(all.code == 0, all.err);
  const json knobs = json::parse(all.out)["plans"][0]["knobs"];
  BOOST_TEST(knobs["tp"].get<int>() * knobs["cp"].get<int>() * knobs["pp"].get<int>() *
                 knobs["dp"].get<int>() ==
             64);
}

BOOST_FIXTURE_TEST_CASE(a_calibration_can_be_used_again, Cli) {
  const std::string file = folder.file("rates.json");
  const Answer made = run({"calibrate", "--rows", rows_file(), "--out", file});
  BOOST_TEST_REQUIRE(made.code == 0, made.err);
  const std::string rates = tests::read_text(file);
  tests::check_documented("calibrate", rates);
  std::string text = tests::read_text(MOETUNE_SOURCE_DIR "/tests/golden/logs/megatron_lm.log");
  text = std::regex_replace(text, std::regex("\\(ms\\): [0-9.]+"), "(ms): 16000.0");
  tests::write_text(folder.file("a.log"), text);
  const Answer own = run({"calibrate", "--log", folder.file("a.log"), "--hardware", "h100-80g"});
  tests::check_printed("calibrate", {json::parse(rates), json::parse(own.out)});
  const Answer answer =
      run({"estimate", "--rows", rows_file(), "--calibration", file, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json summary = json::parse(answer.out)["summary"];
  BOOST_TEST(summary["throughput_log_error"]["median"].get<double>() < 0.12);
}

BOOST_FIXTURE_TEST_CASE(folds_print_documented_keys, Cli) {
  const Answer answer = run({"calibrate", "--rows", rows_file(), "--folds", "2"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  tests::check_documented("folds", answer.out);
  tests::check_printed("folds", {json::parse(answer.out)});
}

BOOST_FIXTURE_TEST_CASE(folds_and_dates_have_bounds, Cli) {
  const std::vector<std::string> calibrate = {"calibrate", "--rows", rows_file()};
  const size_t num_rows = json::parse(std::ifstream(rows_file())).size();
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--folds", std::to_string(num_rows + 1)}, "--folds is"},
      {{"--folds", "100000"}, "--folds is 100000, expected at most"},
      {{"--folds", "1"}, "--folds is '1'"},
      {{"--date", "yesterday"}, "--date is 'yesterday', expected a month such as 2026-06"},
      {{"--date", "2026-13"}, "--date"},
      {{"--date", "2026-00"}, "--date"},
      {{"--date", "26-06-1"}, "--date"},
      {{"--date", ""}, "--date"}};
  for (const auto& [words, helps] : wrong) {
    std::vector<std::string> line = calibrate;
    line.insert(line.end(), words.begin(), words.end());
    check_refused(line, 2, {helps});
  }
}

struct Wrong {
  std::vector<std::string> words;
  const char* helps;
};
std::ostream& operator<<(std::ostream& out, const Wrong& row) { return out << row.helps; }

const Wrong kWrong[] = {
    {{"plan"}, "a model"},
    {{"plan", "--model", "qwen3-30b-a3b"}, "a hardware file"},
    {{"plan", "--model", "qwen3-30b-a3c", "--hardware", "h100-80g"}, "qwen3-30b-a3b"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-8x9", "--gpus", "8"}, "h100-8x8"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "0"}, "--gpus"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "13"}, "13"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "1099511627776"},
     "devices"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--seq", "1e9"}, "--seq"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--fix", "pq=2"}, "--fix"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "8", "--fix", "tp=3"},
     "tp_divides_heads"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--fix", "pp=zwei"}, "pp"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--report", "/"}, "--report"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--trace-out", "/no/where"},
     "--trace-out"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--imbalance", "nan"},
     "--imbalance"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "8", "--against",
      "hello"},
     "is neither a file nor a command"},
    {{"estimate"}, "one of SPEC, --rows FILE and --run"},
    {{"estimate", "trial.json", "--rows", "rows.json"}, "one of SPEC, --rows FILE and --run"},
    {{"estimate", "--rows", "nowhere.json"}, "cannot be read"},
    {{"calibrate"}, "a file of rows"},
    {{"import"}, "a command or configuration"},
    {{"export", "x"}, "--format NAME"},
};

BOOST_DATA_TEST_CASE_F(Cli, a_wrong_line_is_told_and_ends_with_2, data::make(kWrong), wrong) {
  const Answer answer = run(wrong.words);
  BOOST_TEST(answer.code == 2);
  BOOST_TEST(answer.err.find(wrong.helps) != std::string::npos, answer.err);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
