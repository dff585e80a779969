// No choice of a plan is lost on the way to its played step: it is in the step, or it is named.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/plan/planned.h"
#include "tests/tuner/planner_samples.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(not_played_choices)

namespace {

using spec::PlanKnobs;

/// All kinds of groups have members.
PlanKnobs usual_knobs() {
  PlanKnobs k;
  k.tp = k.cp = k.dp = k.pp = k.ep = 2;
  return k;
}

/// What a choice needs beside it to say anything, by its name.
struct Beside {
  std::string_view knob;
  void (*set)(PlanKnobs& knobs);
};
constexpr Beside kBeside[] = {
    {"recompute_method", [](PlanKnobs& k) { k.recompute = {spec::PlanRecompute::full}; }},
    {"recompute_num_layers", [](PlanKnobs& k) { k.recompute = {spec::PlanRecompute::full}; }},
    {"lora_rank", [](PlanKnobs& k) { k.task = spec::TrainingTask::lora; }},
    {"pad_to_capacity", [](PlanKnobs& k) { k.capacity_factor = 1.5F; }},
    {"cuda_graph_warmup_steps", [](PlanKnobs& k) { k.cuda_graphs = {spec::PlanGraph::attn}; }},
    {"moe_flex_dispatcher_num_sms", [](PlanKnobs& k) { k.dispatcher = spec::Dispatcher::deepep; }},
    {"cuda_device_max_connections",
     [](PlanKnobs& k) { k.overlap_moe_expert_parallel_comm = true; }},
};

/// Values off the default: all with a name, or a number.
std::vector<std::string> values_of(const spec::PlanKnobRow& row, const PlanKnobs& usual) {
  const std::string before = get_plan_knob(usual, row);
  std::vector<std::string> values;
  std::string text(row.values);
  if (const size_t set = text.find("set of "); set != std::string::npos) text.erase(set, 7);
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find_first_of("|,;", start), text.size());
    std::string value = text.substr(start, end - start);
    value.erase(0, value.find_first_not_of(' '));
    value.erase(value.find_last_not_of(' ') + 1);
    values.push_back(std::move(value));
    start = end + 1;
  }
  // "1 to 1048576", "0 to 1; ..."
  if (values.front().find(" to ") != std::string::npos) {
    const bool is_share = row.name == "optimizer_offload_ratio" || row.name == "capacity_factor";
    values = {is_share ? "0.5" : before == "1" ? "2" : "1"};
  }
  std::erase(values, before);
  return values;
}

/// What is played: the trial, what only plans know, and what it comes to.
std::pair<nlohmann::json, int64_t> played(const PlanRun& run, plan::Planned& planned) {
  planned = plan::planned_of(computed_knobs(run));
  // The fixed cost comes from the price, whatever is played.
  Rates rates = samples::rates_of_devices();
  rates.fixed_ns = rates.parameter_ns = 0;
  return {to_json(trial_of(run)), play_plan(run, rates, false).estimate.step_ns};
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_choice_is_played_or_named) {
  const spec::ModelSpec model = samples::moe_model();
  int num_values = 0;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    PlanKnobs usual = usual_knobs();
    for (const Beside& beside : kBeside) {
      if (beside.knob == row.name) beside.set(usual);
    }
    for (const std::string& value : values_of(row, usual)) {
      // It trains what pre-training does, in the same way.
      if (row.name == "task" && value == "sft") continue;
      BOOST_TEST_CONTEXT(row.name << " " << value) {
        PlanKnobs knobs = usual;
        set_plan_knob(knobs, row, value);
        BOOST_TEST_REQUIRE(get_plan_knob(knobs, row) != get_plan_knob(usual, row));
        const auto with_run = [&](const PlanKnobs& of, const std::function<void(PlanRun&)>& body) {
          const spec::HardwareSpec hardware = samples::machine(of.world_size());
          PlanRun run = samples::run_of(model, hardware);
          run.knobs = of;
          run.global_batch_size = 4 * of.pp * of.dp * of.micro_batch_size;
          body(run);
        };
        with_run(usual, [&](PlanRun& before) {
          with_run(knobs, [&](PlanRun& after) {
            plan::Planned of_before;
            plan::Planned of_after;
            const bool is_played =
                played(before, of_before) != played(after, of_after) || of_before != of_after;
            const std::vector<std::string> words = not_played(after);
            BOOST_TEST((is_played || words != not_played(before)));
            for (const std::string& word : words) BOOST_TEST(!word.empty());
          });
        });
        ++num_values;
      }
    }
  }
  // The walk sees the table: no value has got lost by its spelling.
  BOOST_TEST(num_values > 90);
}

// Choices that change a price and no program.
BOOST_AUTO_TEST_CASE(what_has_a_price_alone_is_named) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(16);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs = usual_knobs();
  BOOST_TEST(not_played(run).empty());
  run.knobs.precision = spec::PrecisionRecipe::fp8_delayed;
  run.knobs.optimizer_instances = 2;
  run.knobs.main_params = spec::StateType::bf16;
  run.knobs.exp_avg = spec::StateType::fp8;
  const std::vector<std::string> expected = {
      "the reduction of amax over ranks", "the mean of gradients in fp8 (bf16 stands for it)",
      "main weights in bf16 (fp32 stands for it)", "2 instances of the optimizer"};
  BOOST_TEST(not_played(run) == expected, boost::test_tools::per_element());
  // Moments in bf16 are played, with fewer bytes to update.
  PlanRun narrow = run;
  run.knobs = narrow.knobs = usual_knobs();
  narrow.knobs.exp_avg = narrow.knobs.exp_avg_sq = spec::StateType::bf16;
  BOOST_TEST(not_played(narrow).empty());
  BOOST_TEST(play_plan(narrow, samples::rates_of_devices(), false).estimate.step_ns <
             play_plan(run, samples::rates_of_devices(), false).estimate.step_ns);
}

// Of the weights' gathering a step waits for what the next step's forward does not hide.
BOOST_AUTO_TEST_CASE(gathered_weights_are_hidden_as_they_are_priced) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(8);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.dp = 8;
  Rates rates = samples::rates_of_devices();
  const auto step_ns = [&](double exposed) {
    rates.data_exposed = exposed;
    return play_plan(run, rates, false).estimate.step_ns;
  };
  const int64_t hidden = step_ns(0.1);
  const int64_t half = step_ns(0.5);
  BOOST_TEST(hidden < half);
  run.knobs.overlap_param_gather = false;
  BOOST_TEST(step_ns(0.1) == step_ns(1));
  BOOST_TEST(step_ns(1) > half);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
