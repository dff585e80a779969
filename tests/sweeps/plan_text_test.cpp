// The answer of moetune plan as text, on terminals of several widths.
#include <boost/test/unit_test.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "engine/plan/layout.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/plan_answer.h"
#include "sweeps/planning/plan_report.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(plan_text)

namespace {

/// A plan of a small model, of one layout.
struct Planned {
  std::shared_ptr<const spec::ModelSpec> model = model_named("llama3-8b");
  std::shared_ptr<const spec::HardwareSpec> hardware = machine_of("h100-80g", 8);
  PlanResult result;

  explicit Planned(spec::PrecisionRecipe precision = spec::PrecisionRecipe::bf16) {
    tuner::planner::PlanQuestion question;
    question.base.precision = precision;
    question.model = model.get();
    question.hardware = hardware.get();
    question.global_batch_size = 128;
    question.seq_length = 4096;
    question.num_best = 3;
    question.keeps = [](const spec::PlanKnobs& k) { return k.pp == 2 && k.tp == 1; };
    result = make_plan(question, default_calibration(), std::nullopt);
  }
};

/// The header and what is below it, until the sentence behind the table.
std::string table_in(const std::string& text) {
  const size_t head = text.find("TFLOP/s");
  const size_t start = text.rfind('\n', head) + 1;
  return text.substr(start, text.find("TFLOP/s and tokens/s") - start);
}

}  // namespace

BOOST_AUTO_TEST_CASE(choices_say_which_layers_are_recomputed) {
  tuner::planner::PlanRun run;
  spec::PlanKnobs& k = run.knobs;
  k.recompute_method = spec::RecomputeMethod::block;
  k.recompute_num_layers = 12;
  BOOST_TEST(choices_text(run) == "recompute none");
  k.recompute = {spec::PlanRecompute::full};
  BOOST_TEST(choices_text(run) == "recompute full (the first 12 of a stage)");
  k.recompute_method = spec::RecomputeMethod::uniform;
  BOOST_TEST(choices_text(run) == "recompute full (in groups of 12)");
  k.recompute_num_layers = 1;
  BOOST_TEST(choices_text(run) == "recompute full");
}

BOOST_AUTO_TEST_CASE(columns_of_plans_are_left_out_where_they_do_not_fit) {
  const Planned planned;
  BOOST_TEST_REQUIRE(!planned.result.answer.best.empty());
  const std::string whole = to_text(planned.result, std::nullopt);
  BOOST_TEST(table_in(whole).find("from, to") != std::string::npos, whole);
  BOOST_TEST(whole.find("choices of the first: ") == std::string::npos);
  BOOST_TEST(to_text(planned.result, 500) == whole);
  const std::string narrow = to_text(planned.result, 80);
  std::istringstream lines(table_in(narrow));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("choices of the first: ")) continue;
    BOOST_TEST(display_width(line) <= 80U, line);
  }
  BOOST_TEST(table_in(narrow).find("from, to") == std::string::npos, narrow);
  // Layouts stay whole, and of the first plan all that it chooses.
  const tuner::planner::PlannedConfig& first = planned.result.answer.best.front();
  BOOST_TEST(table_in(narrow).find(layout_text(first.knobs)) != std::string::npos, narrow);
  const std::string choices = choices_text(run_with(planned.result.question, first));
  BOOST_TEST(narrow.find("choices of the first: " + choices + "\n") != std::string::npos, narrow);
}

// All ranks of a stage hold alike: the first stands for them, in the order of the engine's ranks.
BOOST_AUTO_TEST_CASE(the_rank_of_the_worst_stage_is_named) {
  spec::PlanKnobs knobs;
  knobs.tp = 2;
  knobs.cp = 3;
  knobs.dp = 4;
  knobs.pp = 5;
  plan::Layout layout;
  layout.tp = 2;
  layout.cp = 3;
  layout.dp = 4;
  layout.pp = 5;
  for (int stage = 0; stage < 5; ++stage) {
    const auto rank = static_cast<int>(first_rank_of(knobs, stage));
    BOOST_TEST(layout.pp_rank(rank) == stage);
    if (stage > 0) BOOST_TEST(layout.pp_rank(rank - 1) == stage - 1);
  }

  Planned planned;
  RunEstimate& first = planned.result.estimates.front();
  BOOST_TEST(first.rank == first.stage * 4);  // two stages of eight devices
  first = estimate_run(run_with(planned.result.question, planned.result.answer.best.front()),
                       default_calibration(), {.stage = 1});
  BOOST_TEST(first.rank == 4);
  BOOST_TEST(to_json(first)["memory_rank"] == 4);
  const std::string text = to_text(planned.result, std::nullopt);
  BOOST_TEST(
      text.find("memory of the first on rank 4, the first of stage 1 (worst)") != std::string::npos,
      text);
}

// Where a plan asks for what only plans know, its text, its JSON and its page name the rule.
BOOST_AUTO_TEST_CASE(what_the_engine_does_not_run_is_named_with_its_rule) {
  Planned narrow(spec::PrecisionRecipe::fp8_blockwise);
  BOOST_TEST_REQUIRE(!narrow.result.answer.best.empty());
  const std::string told = engine_gaps_text(narrow.result);
  BOOST_TEST(told.starts_with("the first has what moetune's own engine does not run yet: "), told);
  BOOST_TEST(told.find("fp8-blockwise products") != std::string::npos, told);
  BOOST_TEST(told.ends_with(" (rule engine_runs_knob)"), told);
  BOOST_TEST(to_text(narrow.result, std::nullopt).find(told + "\n") != std::string::npos);
  for (const nlohmann::json& plan : to_json(narrow.result)["plans"]) {
    BOOST_TEST(plan["engine_gaps"][0]["rule"] == "engine_runs_knob");
    BOOST_TEST(plan["engine_gaps"][0]["what"] == "fp8-blockwise products");
  }
  BOOST_TEST(plan_page(narrow.result, "model", "").assumptions.back() == told);

  // Of a model that the engine lacks a part of: the model's rule in front.
  spec::ModelSpec gated = *narrow.model;
  gated.has_attention_gate = true;
  narrow.result.question.model = &gated;
  const std::string both = engine_gaps_text(narrow.result);
  BOOST_TEST(both.find(": a gate on attention (rule engine_runs_model); fp8-blockwise products") !=
                 std::string::npos,
             both);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
